/* Kafka records out: one journal row becomes the records of lease.results, lease.grants, lease.state and
 * lease.dead-letters; and the marks of the relay. CloudEvents in binary mode: attributes in ce_* headers, JSON in the
 * value (schemas/). Written straight into buffers that are used again, for speed; no JSON library.
 *
 * Not for: which row gets which record first, or producing it (the relay); deriving anything about a lease. Absent
 * members are left out. The token appears in record_encode_grant and nowhere else.
 *
 * Each struct record is one thread's. */
#ifndef LEASE_RECORD_H
#define LEASE_RECORD_H

#include "common/buf.h"
#include "common/headers.h"
#include "common/lease.h"
#include "common/message.h"
#include "common/token.h"
#include "common/topics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Null of a nullable number and time in a journal row. */
#define ROW_NULL INT64_MIN

/* One row of the journal, borrowed as a whole (from a PGresult, a test's constants). Text is NUL-terminated, NULL for
 * null. Times are µs since 1970, UTC. JOURNAL_ROW_INIT has every nullable number null. */
struct journal_row {
    int64_t number;
    int64_t at_us;
    const char *event; /* an outcome's name, or lapsed, dead, granted, jumped, restated, dead_letter */
    const char *kind;
    const char *subject;
    const char *command; /* NULL: nobody asked (a lapse; a grant out of the line, which names its claim by source and id) */
    const char *source;
    const char *message_id;
    const char *traceparent;
    const char *origin_topic;
    int64_t origin_partition;
    int64_t origin_offset;
    const char *holder;
    bool has_claim_id;
    struct claim_id claim_id;
    int64_t fence;
    int64_t since_us;
    int64_t lease_until_us;
    int64_t min_fence;
    const char *state;
    int64_t attempt;
    const char *step;
    int64_t amount;
    int64_t refresh;
    const char *reason;
    const char *field;
    const char *blocker;  /* JSON object text as PostgreSQL prints jsonb: kind, lease, resource?, holder, fence, since, until */
    const char *original; /* JSON object text: outcome, fence, claim_id */
    const char *basis;    /* JSON object text: basis, edits?, changes?; of a run that covered rows of guarded tables and finished */
    const char *payload;  /* JSON text */
    bool changes_lease;
    bool is_grant;
    const uint8_t *raw_key; /* NULL: null */
    size_t raw_key_size;
    const uint8_t *raw_value;
    size_t raw_value_size;
    const uint8_t *raw_headers; /* packed, see headers_pack */
    size_t raw_headers_size;
    int64_t previous_number; /* of a jump: the last number before it */
};
#define JOURNAL_ROW_INIT                                                                                       \
    ((struct journal_row){.origin_partition = ROW_NULL, .origin_offset = ROW_NULL, .fence = ROW_NULL,          \
                          .since_us = ROW_NULL, .lease_until_us = ROW_NULL, .min_fence = ROW_NULL,             \
                          .attempt = ROW_NULL, .amount = ROW_NULL, .refresh = ROW_NULL,                        \
                          .previous_number = ROW_NULL})

/* What a mark says: where the relay that wrote it stood, on which server. */
struct mark {
    int64_t epoch;
    int64_t number; /* journal */
    int64_t fence;  /* the highest given out so far */
    const char *system_identifier;
    int64_t timeline;
};

/* A record ready to be produced. Pointers live until the record's next encode or its release; a dead letter's key,
 * value and header values are the row's own and live as long as that. */
struct record {
    enum topic_id topic;
    const void *key; /* NULL: null (only a dead letter's) */
    size_t key_size;
    const void *value; /* NULL: null */
    size_t value_size;
    const struct message_header *headers; /* names NUL-terminated */
    size_t header_count;

    /* Private: */
    struct buf key_text, value_text, header_text;
    struct message_header *slots;
    size_t slot_capacity;
};

void record_init(struct record *record);
void record_release(struct record *record); /* NULL allowed; wipes what may have been a token */

/* Each returns false, leaving the record without contents, if the row has no record of that kind. `epoch` is the
 * relay's. */
bool record_encode_result(struct record *record, const struct journal_row *row, int64_t epoch);
bool record_encode_grant(struct record *record, const struct journal_row *row, int64_t epoch,
                         const struct token_keys *keys);
bool record_encode_state(struct record *record, const struct journal_row *row, int64_t epoch);
bool record_encode_dead_letter(struct record *record, const struct journal_row *row, int64_t epoch);

/* A mark for one output topic. In lease.state its key is the witness's (record_witness_key of `topic_name` and
 * `partition`: the partition it speaks of); elsewhere MARK_KEY, and topic_name and partition are not looked at. */
#define MARK_KEY "~mark"
void record_encode_mark(struct record *record, enum topic_id topic, const struct mark *mark, const char *topic_name,
                        int32_t partition);
/* "~mark/<topic>/<partition>": the key in lease.state of the latest mark of that partition. */
void record_witness_key(struct buf *buf, const char *topic_name, int32_t partition);

/* Names of the headers that readers look for. */
#define HEADER_MARK "lease_mark"
#define HEADER_EPOCH "lease_epoch"
#define HEADER_NUMBER "lease_number"
#define HEADER_OUTCOME "lease_outcome"
#define HEADER_FENCE "lease_fence"

/* Room that a dead letter needs beyond its record: our headers, at most (checked in a test against topics.c). */
enum { RECORD_DEAD_LETTER_EXTRA = 4096 };

#endif
