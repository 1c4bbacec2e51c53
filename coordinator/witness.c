/* witness; see witness.h.
 *
 * Only tails are read. In each partition numbers and fences rise with the offset, but for what a paused relay sends when it wakes
 * up: the last WITNESS_TAIL records hold what the whole partition would tell, unless all of them may be such stragglers. In
 * lease.state the running relay's marks come every few seconds: a tail without one is looked at again, deeper than all that a
 * paused relay can have in hand. So the latest relay's epoch is known, and tails of other topics where nothing of it stands are
 * looked at again, too. */
#include "coordinator/witness.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/kafka_reader.h"
#include "coordinator/outputs.h"
#include "coordinator/publisher.h"
#include "common/stamp.h"

#include <stdlib.h>
#include <string.h>

enum { WITNESS_TAIL = 64, WITNESS_DEEP_TAIL = PUBLISHER_QUEUE_MESSAGES + 10 * WITNESS_TAIL };

struct tail {
    bool is_done;  /* read to its end */
    bool is_short; /* the log begins behind the tail, so all of it is read */
    bool is_deep;
    bool has_records, has_mark;
    int64_t epoch; /* the highest in it */
};

struct look {
    struct kafka_reader *reader;
    struct outputs outputs;
    struct tail *tails; /* per partition */
    int32_t left;       /* not done */
    struct witness found;
};

static void raise_to(int64_t *number, int64_t other) {
    if (other > *number)
        *number = other;
}

static void look_note(struct look *look, const struct message *message) {
    struct stamp stamp;
    stamp_read(message, &stamp);
    look->found.is_empty = false;
    raise_to(&look->found.number, stamp.number);
    raise_to(&look->found.fence, stamp.fence);
    raise_to(&look->found.epoch, stamp.epoch);
    int32_t index = outputs_index(&look->outputs, message->topic, message->partition);
    if (index < 0)
        return;
    look->tails[index].has_records = true;
    look->tails[index].has_mark |= stamp.is_mark;
    raise_to(&look->tails[index].epoch, stamp.epoch);
}

static int64_t tail_offset(const struct tail *tail) {
    if (tail->is_short)
        return KAFKA_OFFSET_BEGINNING;
    return tail->is_deep ? KAFKA_OFFSET_TAIL(WITNESS_DEEP_TAIL) : KAFKA_OFFSET_TAIL(WITNESS_TAIL);
}

static bool look_assign(struct look *look, struct error *error) {
    struct kafka_partition *partitions = memory_alloc_array((size_t)look->outputs.total, sizeof *partitions);
    size_t count = 0;
    for (int32_t i = 0; i < look->outputs.total; i++)
        if (!look->tails[i].is_done)
            partitions[count++] = outputs_partition(&look->outputs, i, tail_offset(&look->tails[i]));
    bool assigned = kafka_reader_assign(look->reader, partitions, count, error);
    free(partitions);
    return assigned;
}

/* A tail that reaches back behind the log's beginning is out of range: then the whole log is read, which is short. */
static bool look_on_error(struct look *look, const struct message *message, bool *ret_again, struct error *error) {
    int32_t index = outputs_index(&look->outputs, message->topic, message->partition);
    if (index < 0 || strcmp(error->code, "kafka_offset_out_of_range") != 0 || look->tails[index].is_short)
        return error->kind == ERROR_RETRY; /* the brokers move: the deadline decides */
    look->tails[index].is_short = true;
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
        if (index >= 0 && !look->tails[index].is_done) {
            look->tails[index].is_done = true;
            look->left--;
            look->found.is_empty &= message.offset == 0;
        }
    }
    return true;
}

static bool may_be_all_stragglers(const struct look *look, int32_t index) {
    const struct output_topic *state = outputs_topic(&look->outputs, TOPIC_STATE);
    const struct tail *tail = &look->tails[index];
    if (!tail->has_records || tail->is_deep || tail->is_short)
        return false;
    bool is_state = index >= state->first && index < state->first + state->count;
    return is_state ? !tail->has_mark : tail->epoch < look->found.epoch;
}

/* True if some are to be read again. */
static bool look_deeper(struct look *look) {
    for (int32_t i = 0; i < look->outputs.total; i++)
        if (may_be_all_stragglers(look, i)) {
            look->tails[i].is_deep = true;
            look->tails[i].is_done = false;
            look->left++;
        }
    return look->left > 0;
}

static bool look_at_all(struct look *look, int64_t deadline_us, struct error *error) {
    do {
        bool again = true;
        while (again)
            if (!look_assign(look, error) || !look_read(look, deadline_us, &again, error))
                return false;
    } while (look_deeper(look));
    return true;
}

bool witness_look(struct kafka_reader *reader, const char *topic_prefix, int timeout_ms, struct witness *ret_witness,
                  struct error *error) {
    int64_t deadline_us = clock_monotonic_us() + (int64_t)timeout_ms * 1000;
    struct look look = {.reader = reader, .found.is_empty = true};
    if (!outputs_init(&look.outputs, topic_prefix, reader, timeout_ms, error)) {
        if (strcmp(error->code, "output_topic_missing") == 0)
            memcpy(error->code, "witness_topic_missing", sizeof "witness_topic_missing");
        return false;
    }
    look.left = look.outputs.total;
    look.tails = memory_alloc_array((size_t)look.left, sizeof *look.tails);
    bool done = look_at_all(&look, deadline_us, error);
    if (done)
        *ret_witness = look.found;
    free(look.tails);
    outputs_release(&look.outputs);
    return done;
}

bool witness_read(const struct kafka_settings *kafka, const char *topic_prefix, const char *group, int timeout_ms,
                  int64_t *ret_number, int64_t *ret_fence, bool *ret_empty, struct error *error) {
    struct kafka_reader_options options = {.settings = kafka, .group = group};
    struct kafka_reader *reader;
    if (!kafka_reader_new(&options, &reader, error))
        return false;
    struct witness found;
    bool done = witness_look(reader, topic_prefix, timeout_ms, &found, error);
    kafka_reader_free(reader);
    if (done) {
        *ret_number = found.number;
        *ret_fence = found.fence;
        *ret_empty = found.is_empty;
    }
    return done;
}
