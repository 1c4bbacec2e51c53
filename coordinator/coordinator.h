/* coordinator: one whole coordinator: it starts the intake, the lanes, the reaper, the relay and the status page, watches
 * over them, and takes them down in order. All its state is in one struct, so several can run in one process.
 *
 * Commands flow intake → lanes → PostgreSQL → relay; see ARCHITECTURE.md for the map. */
#ifndef LEASE_COORDINATOR_H
#define LEASE_COORDINATOR_H

#include "common/error.h"
#include "coordinator/options.h"

struct coordinator;

/* Borrows the options. Nothing is started yet. */
struct coordinator *coordinator_new(const struct options *options);
void coordinator_free(struct coordinator *coordinator); /* NULL allowed */

/* Starts up, runs until coordinator_stop or a failure, drains, and returns the exit status (sysexits): 0, or why it
 * would not start or go on, which is logged too. */
int coordinator_run(struct coordinator *coordinator);

/* Asks it to drain and end. Any thread, any number of times, also before it runs. */
void coordinator_stop(struct coordinator *coordinator);

/* 0 until the status page is served. */
uint16_t coordinator_http_port(struct coordinator *coordinator);

/* Which exit status an error asks for. */
int coordinator_exit_status(const struct error *error);

#endif
