/* witness; see witness.h.
 *
 * Only tails are read. In each partition numbers and fences rise with the offset, but for a paused relay's stragglers, which
 * are few: the last WITNESS_TAIL records hold what the whole partition would tell. The marks in lease.state need no search of
 * their own: whatever stands behind the latest mark in its partition is newer than the mark. */
#include "coordinator/witness.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/kafka_reader.h"
#include "coordinator/outputs.h"
#include "coordinator/stamp.h"

#include <stdlib.h>
#include <string.h>

enum { WITNESS_TAIL = 64 };

struct look {
    struct kafka_reader *reader;
    struct outputs outputs;
    bool *is_done;   /* per partition: read to its end */
    bool *is_short;  /* per partition: the log begins behind the tail, so all of it is read */
    int32_t left;    /* not done */
    bool is_empty;
    int64_t number, fence;
};

static void look_note(struct look *look, const struct message *message) {
    struct stamp stamp;
    stamp_read(message, &stamp);
    look->is_empty = false;
    if (stamp.number > look->number)
        look->number = stamp.number;
    if (stamp.fence > look->fence)
        look->fence = stamp.fence;
}

static bool look_assign(struct look *look, struct error *error) {
    struct kafka_partition *partitions = memory_alloc_array((size_t)look->outputs.total, sizeof *partitions);
    size_t count = 0;
    for (int32_t i = 0; i < look->outputs.total; i++)
        if (!look->is_done[i])
            partitions[count++] = outputs_partition(
                &look->outputs, i, look->is_short[i] ? KAFKA_OFFSET_BEGINNING : KAFKA_OFFSET_TAIL(WITNESS_TAIL));
    bool assigned = kafka_reader_assign(look->reader, partitions, count, error);
    free(partitions);
    return assigned;
}

/* A tail that reaches back behind the log's beginning is out of range: then the whole log is read, which is short. */
static bool look_on_error(struct look *look, const struct message *message, bool *ret_again, struct error *error) {
    int32_t index = outputs_index(&look->outputs, message->topic, message->partition);
    if (index < 0 || strcmp(error->code, "kafka_offset_out_of_range") != 0 || look->is_short[index])
        return error->kind == ERROR_RETRY; /* the brokers move: the deadline decides */
    look->is_short[index] = true;
    *ret_again = true;
    return true;
}

/* Reads until every partition that can be is at its end. *ret_again: some have to be read from their beginning. */
static bool look_read(struct look *look, int64_t deadline_us, bool *ret_again, struct error *error) {
    *ret_again = false;
    int32_t given_up = 0;
    while (look->left > given_up) {
        struct message message;
        int64_t left_ms = (deadline_us - clock_monotonic_us()) / 1000;
        if (left_ms <= 0)
            return error_set(error, ERROR_RETRY, "witness_timeout", "the tails of the output topics could not be read in time");
        enum kafka_read what = kafka_reader_poll(look->reader, (int)left_ms, &message, error);
        if (what == KAFKA_READ_ERROR && error->kind == ERROR_FATAL)
            return false;
        if (what == KAFKA_READ_MESSAGE)
            look_note(look, &message);
        if (what == KAFKA_READ_PARTITION_ERROR) {
            bool is_short = false;
            if (!look_on_error(look, &message, &is_short, error))
                return false;
            given_up += is_short;
            *ret_again |= is_short;
        }
        int32_t index = what == KAFKA_READ_END ? outputs_index(&look->outputs, message.topic, message.partition) : -1;
        if (index >= 0 && !look->is_done[index]) {
            look->is_done[index] = true;
            look->left--;
            look->is_empty &= message.offset == 0;
        }
    }
    return true;
}

static bool look_at_all(struct look *look, int64_t deadline_us, struct error *error) {
    bool again = true;
    while (again)
        if (!look_assign(look, error) || !look_read(look, deadline_us, &again, error))
            return false;
    return true;
}

bool witness_look(struct kafka_reader *reader, const char *topic_prefix, int timeout_ms, int64_t *ret_number,
                  int64_t *ret_fence, bool *ret_empty, struct error *error) {
    int64_t deadline_us = clock_monotonic_us() + (int64_t)timeout_ms * 1000;
    struct look look = {.reader = reader, .is_empty = true};
    if (!outputs_init(&look.outputs, topic_prefix, reader, timeout_ms, error)) {
        if (strcmp(error->code, "output_topic_missing") == 0)
            memcpy(error->code, "witness_topic_missing", sizeof "witness_topic_missing");
        return false;
    }
    look.left = look.outputs.total;
    look.is_done = memory_alloc_array((size_t)look.left, sizeof *look.is_done);
    look.is_short = memory_alloc_array((size_t)look.left, sizeof *look.is_short);
    bool done = look_at_all(&look, deadline_us, error);
    if (done) {
        *ret_number = look.number;
        *ret_fence = look.fence;
        *ret_empty = look.is_empty;
    }
    free(look.is_done);
    free(look.is_short);
    outputs_release(&look.outputs);
    return done;
}

bool witness_read(const struct kafka_settings *kafka, const char *topic_prefix, const char *group, int timeout_ms,
                  int64_t *ret_number, int64_t *ret_fence, bool *ret_empty, struct error *error) {
    struct kafka_reader_options options = {.settings = kafka, .group = group};
    struct kafka_reader *reader;
    if (!kafka_reader_new(&options, &reader, error))
        return false;
    bool done = witness_look(reader, topic_prefix, timeout_ms, ret_number, ret_fence, ret_empty, error);
    kafka_reader_free(reader);
    return done;
}
