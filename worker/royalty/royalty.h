/* One settlement run, from start to end:
 *
 *   start     the lease covers the contracts: all or none. In the database of the coordinator, and guarded there, nobody changes them
 *             from here on
 *   begin     behind what a predecessor has written, if that still holds
 *   compute   chunk by chunk: sales and rates in, lines out behind the gate; before each one, is the lease still ours?
 *   close     the database adds up the same
 *   finish    the coordinator says whether the base data was the same all the time
 *
 * What becomes of it, as exit status (sysexits.h):
 *
 *   0   settled. One line of JSON on standard output: settlement, fence, lines, total, basis
 *   65  the settlement has ended already, or is about something else; an amount is too large; or the base data was changed while nobody
 *       held it: what was computed may have two bases (it is on standard output all the same)
 *   69  database or brokers are away, or nobody answers
 *   75  somebody else has the settlement or a contract, the lease was lost, or SIGTERM: start it again. Nothing is lost, what is written
 *       is used by whoever goes on
 *   78  configuration
 *
 * Threads: royalty_run is main's, royalty_stop may be called from any. */
#ifndef LEASE_ROYALTY_ROYALTY_H
#define LEASE_ROYALTY_ROYALTY_H

#include "worker/royalty/settings.h"

struct royalty;

struct royalty *royalty_new(const struct royalty_settings *settings); /* borrowed for its life */
void royalty_free(struct royalty *royalty);                           /* NULL allowed */

/* Returns the exit status. */
int royalty_run(struct royalty *royalty);

/* It stops before the next chunk, and gives the lease back. */
void royalty_stop(struct royalty *royalty);

#endif
