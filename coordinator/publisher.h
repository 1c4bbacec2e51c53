/* publisher: what the relay does while it has the role: take over, then read the journal, produce, note how far it came, write marks,
 * repair lease.state, until it is told to stop or something fails. Lives for one term of the role, in the relay's thread. */
#ifndef LEASE_PUBLISHER_H
#define LEASE_PUBLISHER_H

#include "common/kafka_producer.h"
#include "common/record.h"
#include "coordinator/outputs.h"
#include "coordinator/readback.h"
#include "coordinator/relay.h"
#include "coordinator/relay_store.h"
#include "coordinator/window.h"

#include <stdatomic.h>

/* What the relay tells others; written by its thread. */
struct relay_counts {
    atomic_bool has_role;
    _Atomic int64_t epoch, published, records, bytes, takes, skipped, restated, step_downs, in_flight;
    _Atomic int64_t progress_us; /* monotonic: when publishing last moved, or had nothing to do */
    _Atomic int64_t oldest_us;
};

struct publisher_options {
    const struct relay_options *relay;
    struct relay_store *store;
    struct kafka_reader *reader;
    const struct outputs *outputs;
    struct relay_counts *counts;
    atomic_bool *is_signaled;              /* something was journaled in this process */
    const atomic_bool *is_stopping;
    const _Atomic int64_t *stop_by_us;     /* monotonic; when is_stopping */
    int wake_fd;
    int64_t fence; /* the highest that the topics show */
};

/* Records in flight: about 8 MB with what librdkafka keeps of each. What a paused relay sends when it wakes up is no more. */
enum { PUBLISHER_QUEUE_MESSAGES = 6000 };

struct publisher {
    struct publisher_options options;
    struct kafka_producer *producer;
    struct relay_progress noted; /* as it was found, then as we noted it */
    int64_t *start;              /* positions as they were found */
    struct readback readback;
    struct window window;
    struct record record;
    int64_t *mark; /* per partition: the offset of our take-over mark; -1 = not acknowledged yet */
    int32_t marks_missing;
    int64_t failed_number; /* the row of the first record that a broker refused; 0 = none, or a mark */
    int64_t fence; /* the highest known to be given out */

    /* the rows that were read last, and how far they are handed over */
    struct db_result *rows;
    size_t row;
    bool is_row_open;
    uint64_t sequence;
    int stage;
    int64_t read_upto; /* number of the last row handed over whole */
    bool has_more;     /* the last look at the journal may not have reached its end */

    int64_t noted_at_us, marked_at_us, state_marked_at_us, polled_at_us;
};

/* `take_progress`: what relay_store_take found; ownership moves. */
bool publisher_init(struct publisher *publisher, const struct publisher_options *options,
                    struct relay_progress *take_progress, struct error *error) MUST_USE;
void publisher_release(struct publisher *publisher); /* zeroed allowed; what is in flight is dropped */

/* Marks, and reading up to them. */
bool publisher_take_over(struct publisher *publisher, struct error *error) MUST_USE;

/* True when it stopped because it was told to; all that was journaled is then published and noted, if there was time. */
bool publisher_run(struct publisher *publisher, struct error *error) MUST_USE;

#endif
