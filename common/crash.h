/* Named crash points: where a fault test can kill, freeze or fail the process. Only in builds with
 * LEASE_CRASH_POINTS; in all others CRASH_POINT is the constant false and no name is left in the binary.
 *
 *   LEASE_CRASH=<point>:<nth>[:kill|stop|error|note]   the nth passage (1 = first, counted over all threads) of that point
 *       kill   SIGKILL, at exactly this point (the default)
 *       stop   SIGSTOP, likewise; goes on as if nothing had happened after SIGCONT
 *       error  CRASH_POINT is true this once: the caller acts as if an I/O error had come
 *       note   nothing but a line in the log, at this passage and at each one behind it: tells a test how often a point is passed
 *   LEASE_CRASH_LOG=FILE   one line "<point>" is appended just before, so a test can prove that the point was hit
 *
 * Several, separated by commas, are armed together. A text that does not parse aborts: a fault test whose fault never
 * comes would pass for the wrong reason.
 *
 *   CRASH_POINT("tx.begun");
 *   if (CRASH_POINT("commit.sent")) return error_set(error, ERROR_RETRY, "connection_lost", …);
 *
 * As a statement it says that no step there can fail: tests/matrix/points.py has the reason.
 */
#ifndef LEASE_CRASH_H
#define LEASE_CRASH_H

#include <stdbool.h>

#ifdef LEASE_CRASH_POINTS

#define CRASH_POINT(name) crash_point(name)
bool crash_point(const char *name);

/* Replaces what the environment said: a spec as in LEASE_CRASH (NULL or "" disarms), and a log file or NULL. All counts
 * start again. For tests inside one process, while no other thread passes a point. */
void crash_arm(const char *spec, const char *log_file);

#else

static inline bool crash_absent(void) {
    return false;
}
#define CRASH_POINT(name) crash_absent()

#endif
#endif
