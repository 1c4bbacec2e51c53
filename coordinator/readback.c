/* readback; see readback.h. */
#include "coordinator/readback.h"

#include "common/buf.h"
#include "common/clock.h"
#include "coordinator/stamp.h"

#include <stdlib.h>
#include <string.h>

enum {
    READBACK_AT_ONCE = 2000, /* records taken in by one call: publishing has its turn in between */
};

static int64_t *copied(const int64_t *from, int32_t count) {
    int64_t *array = memory_alloc_array((size_t)count + 1, sizeof *array);
    if (from)
        memcpy(array, from, (size_t)count * sizeof *array);
    return array;
}

void readback_init(struct readback *readback, struct kafka_reader *reader, const struct outputs *outputs, int64_t epoch,
                   int64_t noted_epoch, const int64_t *position, const int64_t *read_back, const int64_t *mark) {
    int32_t count = outputs->total;
    *readback = (struct readback){
        .reader = reader,
        .outputs = outputs,
        .epoch = epoch,
        .noted_epoch = noted_epoch,
        .mark = copied(mark, count),
        .published = copied(NULL, count),
        .position = copied(position, count),
        .check_from = copied(read_back, count),
        .epoch_seen = copied(NULL, count),
        .is_past_mark = memory_alloc_array((size_t)count + 1, sizeof(bool)),
        .before_mark = count,
    };
    const struct output_topic *state = outputs_topic(outputs, TOPIC_STATE);
    for (int32_t i = state->first; i < state->first + state->count; i++)
        if (read_back[i] < position[i])
            readback->position[i] = read_back[i];
}

void readback_release(struct readback *readback) {
    readback_forget_keys(readback);
    free(readback->mark);
    free(readback->published);
    free(readback->position);
    free(readback->check_from);
    free(readback->epoch_seen);
    free(readback->is_past_mark);
    *readback = (struct readback){0};
}

/* ---- stragglers ---- */

void readback_forget_keys(struct readback *readback) {
    for (size_t i = 0; i < readback->key_count; i++)
        free(readback->keys[i]);
    readback->key_count = 0;
}

/* Keys of leases only; once each: SQL draws a number for every key it is given. */
static void note_key(struct readback *readback, const struct message *message) {
    if (!message->key || !memchr(message->key, '/', message->key_size) || memchr(message->key, '\0', message->key_size))
        return;
    for (size_t i = 0; i < readback->key_count; i++)
        if (strlen(readback->keys[i]) == message->key_size &&
            memcmp(readback->keys[i], message->key, message->key_size) == 0)
            return;
    readback->keys[readback->key_count++] = memory_copy_bytes(message->key, message->key_size);
}

static bool is_straggler(struct readback *readback, int32_t index, const struct stamp *stamp) {
    if (readback->is_past_mark[index])
        return stamp->epoch != readback->epoch;
    if (stamp->epoch < readback->noted_epoch || stamp->epoch > readback->epoch)
        return true;
    if (stamp->epoch < readback->epoch_seen[index])
        return true;
    readback->epoch_seen[index] = stamp->epoch;
    return false;
}

/* ---- taking records in ---- */

static bool is_state(const struct readback *readback, int32_t index) {
    const struct output_topic *state = outputs_topic(readback->outputs, TOPIC_STATE);
    return index >= state->first && index < state->first + state->count;
}

static void pass_mark(struct readback *readback, int32_t index) {
    if (readback->is_past_mark[index])
        return;
    readback->is_past_mark[index] = true;
    readback->before_mark--;
}

static void take_in(struct readback *readback, int32_t index, const struct message *message) {
    struct stamp stamp;
    stamp_read(message, &stamp);
    readback->position[index] = message->offset + 1;
    if (stamp.fence > readback->fence)
        readback->fence = stamp.fence;
    if (message->offset >= readback->mark[index])
        pass_mark(readback, index);
    if (stamp.is_mark) {
        if (!readback->is_past_mark[index] && stamp.epoch > readback->epoch_seen[index] &&
            stamp.epoch < readback->epoch)
            readback->epoch_seen[index] = stamp.epoch;
        return;
    }
    if (!readback->is_past_mark[index] && stamp.number > readback->published[index])
        readback->published[index] = stamp.number;
    if (is_state(readback, index) && message->offset >= readback->check_from[index] && is_straggler(readback, index, &stamp))
        note_key(readback, message);
}

static bool assign(struct readback *readback, bool state_only, struct error *error) {
    struct kafka_partition *partitions = memory_alloc_array((size_t)readback->outputs->total + 1, sizeof *partitions);
    size_t count = 0;
    for (int32_t i = 0; i < readback->outputs->total; i++) {
        int64_t from = readback->position[i];
        if (state_only ? is_state(readback, i) : !readback->is_past_mark[i])
            partitions[count++] =
                outputs_partition(readback->outputs, i, from < 0 ? KAFKA_OFFSET_BEGINNING : from);
    }
    bool done = kafka_reader_assign(readback->reader, partitions, count, error);
    free(partitions);
    return done;
}

/* The log begins behind the position (retention), or ends before it (it was cut or made anew): read what there is. */
static bool restart_partition(struct readback *readback, const struct message *message, bool state_only,
                              struct error *error) {
    int32_t index = outputs_index(readback->outputs, message->topic, message->partition);
    if (index < 0 || strcmp(error->code, "kafka_offset_out_of_range") != 0)
        return error->kind == ERROR_RETRY;
    if (readback->position[index] < 0)
        return false;
    readback->position[index] = -1;
    return assign(readback, state_only, error);
}

static bool readback_must_pause(const struct readback *readback) {
    return readback->before_mark == 0 || readback->key_count == READBACK_KEYS_MAX;
}

bool readback_start(struct readback *readback, struct error *error) {
    return assign(readback, false, error);
}

bool readback_to_marks(struct readback *readback, int wait_ms, struct error *error) {
    for (int taken = 0; taken < READBACK_AT_ONCE && !readback_must_pause(readback); taken++) {
        struct message message;
        enum kafka_read what = kafka_reader_poll(readback->reader, wait_ms, &message, error);
        if (what == KAFKA_READ_NOTHING)
            return true;
        int32_t index = what == KAFKA_READ_MESSAGE
                            ? outputs_index(readback->outputs, message.topic, message.partition)
                            : -1;
        if (index >= 0 && !readback->is_past_mark[index])
            take_in(readback, index, &message);
        if ((what == KAFKA_READ_PARTITION_ERROR && !restart_partition(readback, &message, false, error)) ||
            (what == KAFKA_READ_ERROR && error->kind == ERROR_FATAL))
            return false;
    }
    return true;
}

bool readback_follow_state(struct readback *readback, struct error *error) {
    return assign(readback, true, error);
}

bool readback_poll(struct readback *readback, struct error *error) {
    readback->has_more = false;
    for (int taken = 0; taken < READBACK_AT_ONCE && readback->key_count < READBACK_KEYS_MAX; taken++) {
        struct message message;
        enum kafka_read what = kafka_reader_poll(readback->reader, 0, &message, error);
        if (what == KAFKA_READ_NOTHING)
            return true;
        if (what == KAFKA_READ_MESSAGE) {
            int32_t index = outputs_index(readback->outputs, message.topic, message.partition);
            if (index >= 0)
                take_in(readback, index, &message);
        }
        if ((what == KAFKA_READ_PARTITION_ERROR && !restart_partition(readback, &message, true, error)) ||
            (what == KAFKA_READ_ERROR && error->kind == ERROR_FATAL))
            return false;
    }
    readback->has_more = true;
    return true;
}
