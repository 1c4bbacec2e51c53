/* results_reader: lease.results and lease.grants (any output topic that is keyed, but dead letters) as a careful consumer reads them: each
 * record once, in the order of its partition; marks, repeats and stragglers left out. Joins no group: the positions are the caller's to
 * store, best in the same transaction as what was made of the records.
 *
 * Who is left out, per partition:
 *   - marks (header lease_mark): the relay's own. They tell its epoch.
 *   - repeats: records whose lease_number is not above the last one handed out.
 *   - stragglers: records of a lower lease_epoch than one already seen. A relay that was replaced while it was paused sends what it had in
 *     hand when it wakes up; its successor has sent, or will send, the same.
 *   - strangers: records that no relay wrote.
 *
 * One thread owns a reader. */
#ifndef LEASE_RESULTS_READER_H
#define LEASE_RESULTS_READER_H

#include "common/error.h"
#include "common/kafka_config.h"
#include "common/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How far a partition was read. What to store; all of it matters. */
struct results_position {
    const char *topic; /* full name; borrowed */
    int32_t partition;
    int64_t offset; /* the next to read */
    int64_t number; /* of the last record handed out; 0 = none */
    int64_t epoch;  /* the highest seen; 0 = none */
};

/* ---- without Kafka ---- */

enum results_kind { RESULTS_NEW, RESULTS_MARK, RESULTS_REPEAT, RESULTS_STRAGGLER, RESULTS_STRANGER, RESULTS_KIND_COUNT };

/* What a record is for somebody who stands at this position, which moves behind it. Only a new one is to be looked at. */
enum results_kind results_position_take(struct results_position *position, const struct message *message);

/* ---- with it ---- */

struct results_reader_options {
    const struct kafka_settings *settings;
    const char *group; /* named to the brokers, never joined */
    const char *const *topics; /* full names */
    size_t topic_count;
    const struct results_position *positions; /* as they were stored; those of other topics are not looked at */
    size_t position_count;
    bool from_end;  /* partitions without a position: begin at the end that there is now, not at the beginning */
    int wait_ms;    /* as in kafka_reader.h */
    int timeout_ms; /* of the questions at the start; 0 = 10000 */
};

struct results_reader;

/* Nothing of the options is kept. RETRY: brokers away; FATAL: no such topic, no rights. */
bool results_reader_new(const struct results_reader_options *options, struct results_reader **ret_reader, struct error *error)
    __attribute__((warn_unused_result));
void results_reader_free(struct results_reader *reader); /* NULL allowed */

enum results_read {
    RESULTS_NOTHING,
    RESULTS_RECORD, /* *ret_message is borrowed until the next call */
    RESULTS_GAP,    /* ret_message names topic, partition and the offset where we stood: what was there the broker no longer has
                       (retention, or the topic was made anew). Reading goes on with the first record that there is */
    RESULTS_ERROR,  /* RETRY passes by itself, FATAL does not */
};

/* The next new record, waiting timeout_ms at most. */
enum results_read results_reader_poll(struct results_reader *reader, int timeout_ms, struct message *ret_message,
                                      struct error *error);

/* Was each partition read to where it ended at some moment since the last record? */
bool results_reader_is_at_end(const struct results_reader *reader);

/* The positions behind everything handed out so far; borrowed while the reader lives, moved by each poll. */
const struct results_position *results_reader_positions(const struct results_reader *reader, size_t *ret_count);

/* How many records of a kind were met. */
int64_t results_reader_count(const struct results_reader *reader, enum results_kind kind);

#endif
