/* relay_store: the relay's calls of SQL, over its own connection: take the role, read the journal, note how far it is published, restate.
 * One thread. Every false leaves the role in doubt: let the connection go (the advisory lock goes with it) and take again. */
#ifndef LEASE_RELAY_STORE_H
#define LEASE_RELAY_STORE_H

#include "common/db.h"
#include "common/error.h"
#include "common/record.h"
#include "coordinator/outputs.h"

#include <stdbool.h>
#include <stdint.h>

struct relay_store {
    struct db *db;
    int64_t epoch;                 /* 0 = no role */
    char synchronous_commit[24];   /* what the session had: barriers and restatements commit with it */
    char system_identifier[24];
    int64_t timeline;
    int64_t called_us;             /* monotonic: when the server last answered */
    struct db_params params;
};

/* Connects. `admit` (may be NULL) is asked whether this is a server to work on. */
bool relay_store_open(struct relay_store *store, const char *conninfo,
                      bool (*admit)(void *context, struct db *db, int64_t since_ms, struct error *error), void *context,
                      struct error *error) MUST_USE;
void relay_store_close(struct relay_store *store); /* zeroed allowed */

/* What the last relay that noted something had published: everything up to `published`, the partitions' positions then, how
 * far it had read lease.state back, and its epoch. Arrays have one entry per output partition, -1 = unknown. */
struct relay_progress {
    int64_t epoch; /* of whoever noted it; 0 = nobody yet */
    int64_t published;
    int64_t *position;
    int64_t *read_back;
    int64_t lost_after, lost_before; /* records with numbers between are of a history that a jump left behind; 0, 0 = none */
};
void relay_progress_release(struct relay_progress *progress); /* zeroed allowed */

/* Committed for certain: an epoch that a crash of the server forgets would be given out again. epoch_seen: the highest that the
 * topics show, 0 = not known yet. Whoever has the role may take it again, for a higher epoch. *ret_taken is false while another
 * session has the role. */
bool relay_store_take(struct relay_store *store, const char *owner, int64_t epoch_seen, const struct outputs *outputs,
                      bool *ret_taken, struct relay_progress *ret_progress, struct error *error) MUST_USE;

/* The rows after `after`; if a synchronous standby is configured they have reached it when this returns. (After a crash
 * of the primary, rows that no standby has yet are visible, and may still be lost.) */
bool relay_store_read(struct relay_store *store, int64_t after, int limit, int bytes, struct db_result **ret_rows,
                      struct error *error) MUST_USE;
/* Fills a view of a row of the result. */
void relay_store_row(const struct db_result *rows, size_t row, struct journal_row *ret_row);

bool relay_store_advance(struct relay_store *store, const struct relay_progress *progress, const struct outputs *outputs,
                         struct error *error) MUST_USE;

/* Keys of lease.state, "<kind>/<lease>", no one twice. */
bool relay_store_restate(struct relay_store *store, char *const *keys, size_t count, struct error *error) MUST_USE;

/* Is the session still the relay's? Asks the server. */
bool relay_store_check(struct relay_store *store, struct error *error) MUST_USE;

#endif
