/* relay: publishes the journal to Kafka in order; one in the whole system at a time. It has a thread, a database
 * connection and a producer of its own.
 *
 * Its life is a circle: take the role → learn from the output topics what a predecessor already published → publish and
 * note how far → step down (superseded, a connection lost, a record refused) → take the role again. Whatever happens,
 * what was journaled is published, and once: a consumer that drops numbers it has already seen in a partition sees every record
 * exactly once.
 *
 * It also repairs lease.state, where compaction could keep a record of a paused predecessor, and rewrites the marks that
 * are the witness of the fences (witness.h). */
#ifndef LEASE_RELAY_H
#define LEASE_RELAY_H

#include "common/error.h"
#include "common/kafka_config.h"
#include "common/log.h"

#include <stdbool.h>
#include <stdint.h>

struct db;
struct relay;
struct token_keys; /* common/token.h */

/* Everything is borrowed until relay_free. */
struct relay_options {
    const struct kafka_settings *kafka;
    const char *database;     /* libpq conninfo */
    const char *topic_prefix; /* "" = none */
    const char *group;        /* named to the broker by the readers; prefix included */
    const char *owner;        /* the instance's name, for the role */
    const struct token_keys *token_keys;
    int batch;                /* rows per read; 0 = 2000 */
    int mark_interval_ms;     /* 0 = 60000 */
    struct log *log;          /* NULL = silent */
    /* Asked on every new connection whether this is a server to work on (admission_admit). NULL = any. */
    bool (*admit)(void *context, struct db *db, int64_t since_ms, struct error *error);
    void *admit_context;
    /* Called once, from the relay's thread, when going on would be wrong (kind FATAL): the process should end. NULL = only
     * the status tells. */
    void (*failed)(void *context, const struct error *error);
    void *context;
};

/* Starts the thread. Brokers or a database that are away are waited for, not errors. */
bool relay_new(const struct relay_options *options, struct relay **ret_relay, struct error *error) MUST_USE;

/* Publishes what is journaled by now (if it has the role), waiting wait_ms at most, notes how far it came, gives the role back
 * and ends the thread. NULL allowed. */
void relay_free(struct relay *relay, int wait_ms);

/* There is something in the journal. Cheap; any thread, after its commit. */
void relay_wake(struct relay *relay);

/* A snapshot for readiness and metrics. Any thread. */
struct relay_status {
    bool has_role;
    int64_t epoch;
    int64_t published;         /* the last journal number known to be on the topics */
    int64_t records_total;     /* acknowledged by this process */
    int64_t bytes_total;
    int64_t takes_total;       /* how often this process took the role */
    int64_t skipped_total;     /* records found already published at a take-over */
    int64_t restated_total;    /* keys repaired in lease.state */
    int64_t step_downs_total;  /* involuntary ones */
    int64_t in_flight;
    int64_t blocked_ms;        /* 0, or how long publishing has stood still although there is something to publish */
    int64_t oldest_unacknowledged_us; /* wall time of the oldest journal row in flight; 0 = none */
    struct error error;        /* of the last step down; kind NONE if there was none since the role was taken */
};
void relay_get_status(struct relay *relay, struct relay_status *ret_status);

#endif
