/* store: one lane's way to PostgreSQL: a connection that was admitted (the server is the one whose fences these are), and
 * the one transaction that a batch is: claim offsets, apply, commit.
 *
 * Not for: deciding what happens next; lane.c does, by what these return. One thread per store. */
#ifndef LEASE_STORE_H
#define LEASE_STORE_H

#include "common/error.h"
#include "common/lease.h"
#include "coordinator/batch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct db;
struct store;

/* Called on every new connection before anything else is done on it. `since_ms` (monotonic): what is known of the
 * witness must be at least as fresh as this. False: not this server, or not now. */
typedef bool store_admit_fn(void *context, struct db *db, int64_t since_ms, struct error *error);

struct store_options {
    const char *database;         /* libpq conninfo; borrowed */
    const char *application_name; /* borrowed */
    int idle_in_transaction_ms;
    int deadline_ms;
    store_admit_fn *admit;
    void *context;
};

struct store *store_new(const struct store_options *options);
void store_free(struct store *store); /* NULL allowed */

/* Connects and is admitted, unless it still is. Waits connect and admission out, no longer. */
bool store_open(struct store *store, struct error *error) MUST_USE;
/* Lets the connection go: it broke, or the server must be looked at again (LE001). */
void store_close(struct store *store);

/* Outcome of one entry: enum lease_outcome, or STORE_DEAD_LETTER. */
enum { STORE_DEAD_LETTER = LEASE_OUTCOME_COUNT, STORE_OUTCOMES };

struct store_answer {
    int *outcomes;       /* one per entry of the range that was not dropped, in order; room for all is the caller's */
    size_t count;
    int64_t earliest_expiry_us; /* of the leases granted, database time; INT64_MAX: none */
    uint32_t *lost_slots;       /* STORE_LOST: slots whose claim was refused; room for slot_count is the caller's */
    size_t lost_count;
};

enum store_result {
    STORE_DONE,     /* committed */
    STORE_LOST,     /* nothing changed: the claims in lost_slots were refused */
    STORE_STOOD,    /* nothing changed: the claims in lost_slots stand as we would leave them: an earlier try of ours, whose
                       commit was in doubt, had committed. No others were refused */
    STORE_RETRY,    /* nothing is known to have changed: the same again later, after store_open */
    STORE_REJECTED, /* nothing changed: the data of one message is refused */
    STORE_FATAL,
};

/* Applies the entries [from, upto) that are not dropped in one transaction. */
enum store_result store_apply(struct store *store, struct batch *batch, size_t from, size_t upto,
                              struct store_answer *ret_answer, struct error *error);

/* Notes, in a transaction of its own, that this message is about to be tried; how often it was before. */
bool store_attempt(struct store *store, const char *topic, int32_t partition, int64_t offset, int *ret_tries,
                   struct error *error) MUST_USE;

#endif
