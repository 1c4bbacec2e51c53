/* results_reader; see results_reader.h. Runs in its owner's thread. */
#include "common/results_reader.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/kafka_reader.h"
#include "common/stamp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS_TIMEOUT_MS = 10000 };

struct results_reader {
    struct kafka_reader *reader;
    struct results_position *positions; /* one per partition; topic: one of `topics` */
    bool *is_at_end;                    /* likewise */
    size_t count;
    char **topics;
    size_t topic_count;
    int64_t counts[RESULTS_KIND_COUNT];
};

/* ---- one partition ---- */

enum results_kind results_position_take(struct results_position *position, const struct message *message) {
    struct stamp stamp;
    stamp_read(message, &stamp);
    position->offset = message->offset + 1;
    if (!stamp.is_mark && stamp.number == 0)
        return RESULTS_STRANGER;
    if (!stamp.is_mark && stamp.epoch < position->epoch)
        return RESULTS_STRAGGLER;
    if (stamp.epoch > position->epoch)
        position->epoch = stamp.epoch;
    if (stamp.is_mark)
        return RESULTS_MARK;
    if (stamp.number <= position->number)
        return RESULTS_REPEAT;
    position->number = stamp.number;
    return RESULTS_NEW;
}

/* ---- starting ---- */

static struct results_position first_position(const struct results_reader_options *options, const char *topic, int32_t partition) {
    for (size_t i = 0; i < options->position_count; i++) {
        struct results_position stored = options->positions[i];
        if (stored.partition == partition && strcmp(stored.topic, topic) == 0) {
            stored.topic = topic;
            return stored;
        }
    }
    return (struct results_position){topic, partition, KAFKA_OFFSET_BEGINNING, 0, 0};
}

/* The end as a number, so that a position which is stored before anything came still says where. */
static bool find_end(struct results_reader *reader, struct results_position *position, int timeout_ms, struct error *error) {
    int64_t first;
    return kafka_reader_watermarks(reader->reader, position->topic, position->partition, timeout_ms, &first, &position->offset, error);
}

static bool add_topic(struct results_reader *reader, const struct results_reader_options *options, const char *topic,
                      int timeout_ms, struct error *error) {
    int32_t partitions;
    if (!kafka_reader_partition_count(reader->reader, topic, timeout_ms, &partitions, error))
        return false;
    reader->positions = memory_resize(reader->positions, reader->count + (size_t)partitions, sizeof *reader->positions);
    for (int32_t i = 0; i < partitions; i++) {
        struct results_position *position = &reader->positions[reader->count++];
        *position = first_position(options, topic, i);
        if (position->offset == KAFKA_OFFSET_BEGINNING && options->from_end && !find_end(reader, position, timeout_ms, error))
            return false;
    }
    return true;
}

static bool assign(struct results_reader *reader, struct error *error) {
    struct kafka_partition *partitions = memory_alloc_array(reader->count + 1, sizeof *partitions);
    for (size_t i = 0; i < reader->count; i++)
        partitions[i] = (struct kafka_partition){reader->positions[i].topic, reader->positions[i].partition, reader->positions[i].offset};
    bool done = kafka_reader_assign(reader->reader, partitions, reader->count, error);
    free(partitions);
    return done;
}

static bool start(struct results_reader *reader, const struct results_reader_options *options, struct error *error) {
    const struct kafka_reader_options kafka = {.settings = options->settings, .group = options->group, .wait_ms = options->wait_ms};
    int timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : RESULTS_TIMEOUT_MS;
    if (!kafka_reader_new(&kafka, &reader->reader, error))
        return false;
    for (size_t i = 0; i < reader->topic_count; i++)
        if (!add_topic(reader, options, reader->topics[i], timeout_ms, error))
            return false;
    reader->is_at_end = memory_alloc_array(reader->count + 1, sizeof *reader->is_at_end);
    return assign(reader, error);
}

bool results_reader_new(const struct results_reader_options *options, struct results_reader **ret_reader, struct error *error) {
    struct results_reader *reader = memory_alloc(sizeof *reader);
    reader->topics = memory_alloc_array(options->topic_count + 1, sizeof *reader->topics);
    for (; reader->topic_count < options->topic_count; reader->topic_count++)
        reader->topics[reader->topic_count] = memory_copy_text(options->topics[reader->topic_count]);
    if (!start(reader, options, error)) {
        results_reader_free(reader);
        return false;
    }
    *ret_reader = reader;
    return true;
}

void results_reader_free(struct results_reader *reader) {
    if (reader == NULL)
        return;
    kafka_reader_free(reader->reader);
    for (size_t i = 0; i < reader->topic_count; i++)
        free(reader->topics[i]);
    free(reader->topics);
    free(reader->positions);
    free(reader->is_at_end);
    free(reader);
}

/* ---- reading ---- */

static size_t find_position(const struct results_reader *reader, const struct message *message) {
    for (size_t i = 0; i < reader->count; i++)
        if (reader->positions[i].partition == message->partition && strcmp(reader->positions[i].topic, message->topic) == 0)
            return i;
    return reader->count;
}

/* False: an error for the caller. */
static bool read_anew(struct results_reader *reader, size_t index, struct message *message, struct error *error) {
    if (index == reader->count || strcmp(error->code, "kafka_offset_out_of_range") != 0 ||
        reader->positions[index].offset == KAFKA_OFFSET_BEGINNING)
        return false;
    message->offset = reader->positions[index].offset;
    reader->positions[index].offset = KAFKA_OFFSET_BEGINNING;
    return assign(reader, error);
}

static bool take(struct results_reader *reader, size_t index, const struct message *message) {
    if (index == reader->count)
        return false;
    reader->is_at_end[index] = false;
    enum results_kind kind = results_position_take(&reader->positions[index], message);
    reader->counts[kind]++;
    return kind == RESULTS_NEW;
}

enum results_read results_reader_poll(struct results_reader *reader, int timeout_ms, struct message *ret_message,
                                      struct error *error) {
    int64_t deadline_us = clock_monotonic_us() + (int64_t)timeout_ms * 1000;
    for (;;) {
        int64_t left_ms = (deadline_us - clock_monotonic_us()) / 1000;
        enum kafka_read what = kafka_reader_poll(reader->reader, left_ms > 0 ? (int)left_ms : 0, ret_message, error);
        if (what == KAFKA_READ_NOTHING)
            return RESULTS_NOTHING;
        if (what == KAFKA_READ_ERROR)
            return RESULTS_ERROR;
        size_t index = find_position(reader, ret_message);
        if (what == KAFKA_READ_PARTITION_ERROR)
            return read_anew(reader, index, ret_message, error) ? RESULTS_GAP : RESULTS_ERROR;
        if (what == KAFKA_READ_MESSAGE && take(reader, index, ret_message))
            return RESULTS_RECORD;
        if (what == KAFKA_READ_END && index < reader->count) {
            reader->is_at_end[index] = true;
            reader->positions[index].offset = ret_message->offset;
        }
        if (timeout_ms > 0 && left_ms <= 0)
            return RESULTS_NOTHING; /* nothing but marks and repeats in all that time */
    }
}

bool results_reader_is_at_end(const struct results_reader *reader) {
    for (size_t i = 0; i < reader->count; i++)
        if (!reader->is_at_end[i])
            return false;
    return true;
}

const struct results_position *results_reader_positions(const struct results_reader *reader, size_t *ret_count) {
    *ret_count = reader->count;
    return reader->positions;
}

int64_t results_reader_count(const struct results_reader *reader, enum results_kind kind) {
    assert((unsigned)kind < RESULTS_KIND_COUNT);
    return reader->counts[kind];
}
