/* readback; see readback.h. */
#include "coordinator/readback.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/stamp.h"

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
        .next = copied(mark, count),
        .look_upto = copied(NULL, count),
        .epoch_seen = copied(NULL, count),
        .is_past_mark = memory_alloc_array((size_t)count + 1, sizeof(bool)),
        .before_mark = count,
    };
    const struct output_topic *state = outputs_topic(outputs, TOPIC_STATE);
    for (int32_t i = state->first; i < state->first + state->count; i++) {
        readback->next[i] = mark[i] + 1;
        if (read_back[i] < position[i])
            readback->position[i] = read_back[i];
    }
}

void readback_release(struct readback *readback) {
    readback_forget_keys(readback);
    free(readback->mark);
    free(readback->published);
    free(readback->position);
    free(readback->check_from);
    free(readback->next);
    free(readback->look_upto);
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
    if (stamp->number > readback->lost_after && stamp->number < readback->lost_before)
        return true;
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

static bool assign(struct readback *readback, bool is_following, struct error *error) {
    struct kafka_partition *partitions = memory_alloc_array((size_t)readback->outputs->total + 1, sizeof *partitions);
    size_t count = 0;
    for (int32_t i = 0; i < readback->outputs->total; i++) {
        int64_t from = readback->position[i];
        if (is_following ? readback->look_upto[i] > 0 : !readback->is_past_mark[i])
            partitions[count++] =
                outputs_partition(readback->outputs, i, from < 0 ? KAFKA_OFFSET_BEGINNING : from);
    }
    bool done = kafka_reader_assign(readback->reader, partitions, count, error);
    free(partitions);
    return done;
}

/* The log begins behind the position (retention), or ends before it (it was cut or made anew): read what there is. */
static bool restart_partition(struct readback *readback, const struct message *message, bool is_following,
                              struct error *error) {
    int32_t index = outputs_index(readback->outputs, message->topic, message->partition);
    if (index < 0 || strcmp(error->code, "kafka_offset_out_of_range") != 0)
        return error->kind == ERROR_RETRY;
    if (readback->position[index] < 0)
        return false;
    readback->position[index] = -1;
    return assign(readback, is_following, error);
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

/* ---- gaps between our own records ---- */

static void look(struct readback *readback, int32_t index, int64_t upto) {
    readback->look_upto[index] = upto;
    readback->is_looking = readback->must_assign = true;
}

void readback_acknowledged(struct readback *readback, int32_t index, int64_t offset) {
    if (!is_state(readback, index) || offset == readback->mark[index])
        return;
    int64_t expected = readback->next[index];
    readback->next[index] = offset < 0 ? -1 : offset + 1;
    if (offset > 0 && offset != expected) /* nothing stands before the first: then the topic was made anew */
        look(readback, index, offset);
    else if (offset >= 0 && readback->look_upto[index] == 0)
        readback->position[index] = offset + 1;
}

/* All up to look_upto was read: what follows is ours, up to our last record. */
static void look_done(struct readback *readback, int32_t index) {
    if (readback->next[index] > readback->position[index])
        readback->position[index] = readback->next[index];
    readback->look_upto[index] = 0;
    readback->is_looking = false;
    for (int32_t i = 0; i < readback->outputs->total; i++)
        readback->is_looking |= readback->look_upto[i] > 0;
    readback->must_assign = true;
}

static void follow(struct readback *readback, enum kafka_read what, const struct message *message) {
    int32_t index = outputs_index(readback->outputs, message->topic, message->partition);
    if (index < 0 || readback->look_upto[index] == 0)
        return;
    if (what == KAFKA_READ_MESSAGE && message->offset < readback->look_upto[index])
        take_in(readback, index, message);
    int64_t read_upto = what == KAFKA_READ_END ? message->offset : message->offset + 1;
    if (read_upto >= readback->look_upto[index])
        look_done(readback, index);
}

static bool assign_if_due(struct readback *readback, struct error *error) {
    if (!readback->must_assign)
        return true;
    readback->must_assign = false;
    return assign(readback, true, error);
}

bool readback_poll(struct readback *readback, struct error *error) {
    for (int taken = 0; taken < READBACK_AT_ONCE && readback->key_count < READBACK_KEYS_MAX; taken++) {
        struct message message;
        if (!assign_if_due(readback, error))
            return false;
        if (!readback->is_looking)
            return true;
        enum kafka_read what = kafka_reader_poll(readback->reader, 0, &message, error);
        if (what == KAFKA_READ_NOTHING)
            return true;
        if (what == KAFKA_READ_MESSAGE || what == KAFKA_READ_END)
            follow(readback, what, &message);
        if ((what == KAFKA_READ_PARTITION_ERROR && !restart_partition(readback, &message, true, error)) ||
            (what == KAFKA_READ_ERROR && error->kind == ERROR_FATAL))
            return false;
    }
    return true;
}
