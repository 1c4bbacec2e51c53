/* Options as they are given, with their defaults and bounds; and errors as they are handed out. */
#ifndef LEASE_WORKER_OPTIONS_H
#define LEASE_WORKER_OPTIONS_H

#include "common/error.h"
#include "worker/lease_worker.h"

/* Copies what the caller's struct has, puts the library's own defaults under it and checks. Texts stay borrowed. */
bool options_settle_worker(const struct lease_worker_options *given, struct lease_worker_options *ret, struct error *error)
    MUST_USE;
bool options_settle_client(const struct lease_client_options *given, struct lease_client_options *ret, struct error *error)
    MUST_USE;
bool options_settle_run(const struct lease_run_options *given, struct lease_run_options *ret, struct error *error) MUST_USE;

bool options_check_resource(const char *resource, struct error *error) MUST_USE;

/* How long the broker may hold an empty fetch: a position at a new partition waits so long. */
int options_fetch_wait_ms(unsigned ttl_ms);

/* Hands the error out (ret may be NULL). Always false. */
bool options_fail(struct lease_error *ret, const struct error *error);

#endif
