/* process: what the main of a daemon does around its work: few arenas, no death by SIGPIPE, and signals that become a stop.
 *
 * SIGTERM and SIGINT stop in order; a second one ends the process at once. Main's thread only. */
#ifndef LEASE_PROCESS_H
#define LEASE_PROCESS_H

/* First of all, before any thread is started: threads inherit which signals are blocked. */
void process_prepare(void);

/* Returns what run(object) returns. At the first signal stop(object) is called, in a thread of its own while run goes on. */
int process_run(int (*run)(void *object), void (*stop)(void *object), void *object);

#endif
