/* The reference worker: one kind of items, done by one of the effects until it is told to stop.
 *
 * What becomes of an item:
 *
 *   cleanup    file removed, or settled as missing         finish, result {"file": "removed" | "missing", "bytes", "settled_by"}
 *              the file server has no such file            fail, never again
 *              a link, a name outside of the root, …       fail, never again
 *              not permitted                               fail, to be tried again
 *              the gate refuses (lease still ours)         fail, to be tried under a higher fence
 *              database or disk away                       tried again here for patience_ms, then released: no attempt is burned
 *              nothing at all beneath the root             released, and the process ends: is it mounted?
 *   delivery   2xx                                         finish, result {"status"}
 *              408, 425, 429, 5xx, no answer               fail, to be tried again (after Retry-After, else as the kind says)
 *              409: its gate refuses (lease still ours)    fail, to be tried under a higher fence
 *              any other answer                            fail, never again
 *   both       the lease is lost                           nothing: whoever has it now does the rest
 *
 * Threads: `daemon_run` is main's, effects run in the library's threads, daemon_stop may be called from any. */
#ifndef LEASE_DAEMON_H
#define LEASE_DAEMON_H

#include "worker/daemon/settings.h"

struct daemon;

struct daemon *daemon_new(const struct settings *settings); /* borrowed for its life */
void daemon_free(struct daemon *daemon);                    /* NULL allowed */

/* Works until daemon_stop, drains, and returns the exit status: 0, or as sysexits.h: 69 what it needs is away, 78 it is set up wrongly. */
int daemon_run(struct daemon *daemon);

void daemon_stop(struct daemon *daemon);

#endif
