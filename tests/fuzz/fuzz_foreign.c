/* What relay, readers and gate make of records on output topics, whoever wrote them. Input: records (fuzz.h), `%%` on a line of its own
 * between them. Numbers of the first say how the relay begins: epoch, noted, mark, lost_after, lost_before, check_from. Numbers of
 * each: topic (0 to 3: results, grants, state, dead letters), partition (0, 1), gap before its offset; error (1: out of range, 2: the
 * brokers are away), end, ack (a record of ours was acknowledged there).
 *
 * Holds: a stamp is within its bounds, a mark has the header and is no dead letter; readback comes to what a second statement of its
 * rules comes to; a results position only rises; a gate refuses only with its one error, and lets nobody through below a floor that it
 * was told of. */
#include "fuzz.h"

#include "common/gate.h"
#include "common/results_reader.h"
#include "common/stamp.h"
#include "coordinator/readback.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS_MAX = 64, TOTAL = 8, STATE_FIRST = 4, STATE_COUNT = 2 };

static char *topic_names[OUTPUT_TOPICS] = {(char[]){"lease.results"}, (char[]){"lease.grants"}, (char[]){"lease.state"},
                                           (char[]){"lease.dead-letters"}};
static const struct outputs outputs_of_two = {
    .topics = {{TOPIC_RESULTS, (char[]){"lease.results"}, 0, 2},
               {TOPIC_GRANTS, (char[]){"lease.grants"}, 2, 2},
               {TOPIC_STATE, (char[]){"lease.state"}, STATE_FIRST, STATE_COUNT},
               {TOPIC_DEAD_LETTERS, (char[]){"lease.dead-letters"}, 6, 2}},
    .total = TOTAL,
};

/* ---- the broker's side: linked in place of kafka_reader's functions ---- */

static struct fuzz_record *records;
static size_t record_count, at;
static int64_t next_offset[TOTAL]; /* where the reader stands */

bool __wrap_kafka_reader_assign(struct kafka_reader *reader, const struct kafka_partition *partitions, size_t count, struct error *error);
enum kafka_read __wrap_kafka_reader_poll(struct kafka_reader *reader, int timeout_ms, struct message *ret_message, struct error *error);

bool __wrap_kafka_reader_assign(struct kafka_reader *reader, const struct kafka_partition *partitions, size_t count,
                                struct error *error) {
    (void)reader;
    (void)error;
    CHECK(count <= TOTAL);
    bool is_assigned[TOTAL] = {false};
    for (size_t i = 0; i < count; i++) {
        int32_t index = outputs_index(&outputs_of_two, partitions[i].topic, partitions[i].partition);
        CHECK(index >= 0 && !is_assigned[index] && partitions[i].offset >= KAFKA_OFFSET_BEGINNING);
        CHECK(partitions[i].offset >= 0 || partitions[i].offset == KAFKA_OFFSET_BEGINNING);
        is_assigned[index] = true;
        next_offset[index] = partitions[i].offset >= 0 ? partitions[i].offset : 0;
    }
    return true;
}

static int32_t index_of(const struct fuzz_record *record) {
    int64_t topic = fuzz_record_number(record, "topic", 2), partition = fuzz_record_number(record, "partition", 0);
    return (int32_t)((topic & 3) * 2 + (partition & 1));
}

/* Gives the record the next place in its partition. */
static int32_t place(struct fuzz_record *record) {
    int32_t index = index_of(record);
    int64_t gap = fuzz_record_number(record, "gap", 0);
    record->message.topic = topic_names[index / 2];
    record->message.partition = index % 2;
    record->message.offset = next_offset[index] + (gap & 15);
    next_offset[index] = record->message.offset + 1;
    return index;
}

static bool is_ack(const struct fuzz_record *record) {
    return fuzz_record_number(record, "ack", 0) != 0;
}

static void note_in_model(int32_t index, const struct message *message);

enum kafka_read __wrap_kafka_reader_poll(struct kafka_reader *reader, int timeout_ms, struct message *ret_message,
                                         struct error *error) {
    (void)reader;
    (void)timeout_ms;
    if (at == record_count || is_ack(&records[at]))
        return KAFKA_READ_NOTHING;
    struct fuzz_record *record = &records[at++];
    int64_t fault = fuzz_record_number(record, "error", 0);
    if (fault == 2) {
        error_set(error, ERROR_RETRY, "kafka_transport", "away");
        return KAFKA_READ_ERROR;
    }
    if (fault == 1) {
        int32_t index = index_of(record);
        *ret_message = (struct message){.topic = topic_names[index / 2], .partition = index % 2};
        error_set(error, ERROR_FATAL, "kafka_offset_out_of_range", "out of range");
        return KAFKA_READ_PARTITION_ERROR;
    }
    int32_t index = place(record);
    *ret_message = record->message;
    if (fuzz_record_number(record, "end", 0) != 0) {
        next_offset[index] = record->message.offset;
        return KAFKA_READ_END;
    }
    note_in_model(index, &record->message);
    return KAFKA_READ_MESSAGE;
}

/* ---- readback's rules, stated anew: what is read up to our marks ---- */

static struct {
    int64_t epoch, noted, lost_after, lost_before;
    int64_t mark[TOTAL], check_from[TOTAL], published[TOTAL], seen[TOTAL], fence;
    bool is_past[TOTAL], is_following;
    char *keys[RECORDS_MAX];
    size_t key_count;
} model;

static void model_note_key(const struct message *message) {
    if (message->key == NULL || memchr(message->key, '/', message->key_size) == NULL ||
        memchr(message->key, '\0', message->key_size) != NULL)
        return;
    char *key = memory_copy_bytes(message->key, message->key_size);
    for (size_t i = 0; i < model.key_count; i++)
        if (strcmp(model.keys[i], key) == 0) {
            free(key);
            return;
        }
    model.keys[model.key_count++] = key;
}

static bool model_is_straggler(int32_t index, const struct stamp *stamp) {
    bool is_of_lost_history = stamp->number > model.lost_after && stamp->number < model.lost_before;
    if (is_of_lost_history || model.is_past[index])
        return is_of_lost_history || stamp->epoch != model.epoch;
    return stamp->epoch < model.noted || stamp->epoch > model.epoch || stamp->epoch < model.seen[index];
}

static void note_in_model(int32_t index, const struct message *message) {
    if (model.is_following || model.is_past[index])
        return;
    struct stamp stamp;
    stamp_read(message, &stamp);
    if (stamp.fence > model.fence)
        model.fence = stamp.fence;
    model.is_past[index] = message->offset >= model.mark[index];
    bool is_before = !model.is_past[index];
    if (stamp.is_mark) {
        if (is_before && stamp.epoch > model.seen[index] && stamp.epoch < model.epoch)
            model.seen[index] = stamp.epoch;
        return;
    }
    if (is_before && stamp.number > model.published[index])
        model.published[index] = stamp.number;
    if (index < STATE_FIRST || index >= STATE_FIRST + STATE_COUNT || message->offset < model.check_from[index])
        return;
    if (model_is_straggler(index, &stamp))
        model_note_key(message);
    else if (is_before)
        model.seen[index] = stamp.epoch;
}

static void check_against_model(const struct readback *readback) {
    int32_t before = 0;
    for (int32_t i = 0; i < TOTAL; i++) {
        CHECK(readback->published[i] == model.published[i] && readback->is_past_mark[i] == model.is_past[i]);
        before += !model.is_past[i];
    }
    CHECK(readback->before_mark == before && readback->fence == model.fence);
    CHECK(readback->key_count == model.key_count);
    for (size_t i = 0; i < model.key_count; i++)
        CHECK(strcmp(readback->keys[i], model.keys[i]) == 0);
}

static void check_sound(const struct readback *readback) {
    bool is_looking = false;
    CHECK(readback->before_mark >= 0 && readback->before_mark <= TOTAL && readback->key_count <= READBACK_KEYS_MAX);
    for (size_t i = 0; i < readback->key_count; i++)
        CHECK(strchr(readback->keys[i], '/') != NULL);
    for (int32_t i = 0; i < TOTAL; i++) {
        is_looking |= readback->look_upto[i] > 0;
        CHECK(readback->position[i] >= -1);
    }
    CHECK(readback->is_looking == is_looking);
}

static void begin(struct readback *readback) {
    int64_t position[TOTAL], read_back[TOTAL];
    const struct fuzz_record *first = &records[0];
    memset(&model, 0, sizeof model);
    model.epoch = fuzz_record_number(first, "epoch", 5);
    model.noted = fuzz_record_number(first, "noted", 4);
    model.lost_after = fuzz_record_number(first, "lost_after", 0);
    model.lost_before = fuzz_record_number(first, "lost_before", 0);
    for (int32_t i = 0; i < TOTAL; i++) {
        position[i] = i % 2 == 0 ? -1 : 2;
        read_back[i] = fuzz_record_number(first, "check_from", -1) & 15;
        model.check_from[i] = read_back[i];
        model.mark[i] = fuzz_record_number(first, "mark", 3) & 15;
    }
    readback_init(readback, (struct kafka_reader *)&records, &outputs_of_two, model.epoch, model.noted, position, read_back, model.mark);
    readback->lost_after = model.lost_after;
    readback->lost_before = model.lost_before;
}

static void follow(struct readback *readback) {
    struct error error;
    model.is_following = true;
    while (at < record_count) {
        size_t before = at;
        if (is_ack(&records[at])) {
            int32_t index = place(&records[at]);
            int64_t offset = records[at++].message.offset;
            readback_acknowledged(readback, index, fuzz_record_number(&records[at - 1], "ack", 0) < 0 ? -1 : offset);
        } else if (!readback_poll(readback, &error)) {
            CHECK(error.code[0] != '\0');
            return;
        } else if (at == before) {
            at++; /* nothing to look for: nobody asks for this record */
        }
        check_sound(readback);
    }
}

static void check_readback(void) {
    struct readback readback;
    struct error error;
    memset(next_offset, 0, sizeof next_offset);
    at = 0;
    begin(&readback);
    CHECK(readback_start(&readback, &error));
    bool done = readback_to_marks(&readback, 0, &error);
    check_sound(&readback);
    check_against_model(&readback);
    if (done && readback.before_mark == 0)
        follow(&readback);
    readback_forget_keys(&readback);
    CHECK(readback.key_count == 0);
    readback_release(&readback);
    for (size_t i = 0; i < model.key_count; i++)
        free(model.keys[i]);
}

/* ---- each record alone ---- */

static bool has_header(const struct message *message, const char *name) {
    for (size_t i = 0; i < message->header_count; i++)
        if (strcmp(message->headers[i].name, name) == 0)
            return true;
    return false;
}

static void check_stamp(const struct message *message) {
    const int64_t above = INT64_C(1000000000000000000);
    struct stamp stamp;
    stamp_read(message, &stamp);
    CHECK(stamp.number >= 0 && stamp.number < above && stamp.epoch >= 0 && stamp.epoch < above);
    CHECK(stamp.fence >= 0 && stamp.fence < above);
    bool is_letter = has_header(message, "lease_dlq_at");
    CHECK(stamp.is_mark == (has_header(message, "lease_mark") && !is_letter));
    CHECK(!is_letter || stamp.fence == 0);
    CHECK(stamp.number == 0 || has_header(message, "lease_number"));
    CHECK(stamp.epoch == 0 || has_header(message, "lease_epoch"));
    CHECK(stamp.fence == 0 || stamp.is_mark || has_header(message, "lease_fence"));
}

static void check_positions(void) {
    struct results_position position = {.topic = "lease.results"};
    memset(next_offset, 0, sizeof next_offset);
    for (size_t i = 0; i < record_count; i++) {
        struct results_position before = position;
        place(&records[i]);
        check_stamp(&records[i].message);
        enum results_kind kind = results_position_take(&position, &records[i].message);
        CHECK((unsigned)kind < RESULTS_KIND_COUNT && position.offset == records[i].message.offset + 1);
        CHECK(position.number >= before.number && position.epoch >= before.epoch);
        CHECK((kind == RESULTS_NEW) == (position.number > before.number));
        CHECK(kind != RESULTS_NEW || position.epoch >= before.epoch);
    }
}

/* ---- the gate ---- */

/* The floor that a record tells, as another parser reads it; 0 if it is not quite plain. */
static int64_t floor_told(const struct message *message) {
    json_t *value = memchr(message->value, '\\', message->value_size) == NULL
                        ? json_loadb(message->value, message->value_size, JSON_REJECT_DUPLICATES, NULL)
                        : NULL;
    const json_t *floor = json_object_get(value, "min_fence");
    int64_t number = json_is_integer(floor) ? json_integer_value(floor) : 0;
    json_decref(value);
    return number;
}

static void check_floor(struct gate *gate, const struct message *message) {
    int64_t floor = floor_told(message);
    if (floor < 2 || floor > LEASE_FENCE_MAX)
        return;
    struct gate_request request = {.resource = message->key, .resource_size = message->key_size, .fence = floor - 1, .claim_id = {{1}}};
    CHECK(gate_admit(gate, &request) == GATE_STALE);
}

static void check_gate(void) {
    struct gate *gate = gate_new(&(struct gate_options){.resources_max = GATE_RESOURCES_MIN});
    const int64_t ends[STATE_COUNT] = {0, 0};
    struct gate_counts counts;
    gate_begin(gate, ends, STATE_COUNT);
    CHECK(gate_is_ready(gate));
    int64_t base = 0;
    for (size_t i = 0; i < record_count; i++) {
        const struct message *message = &records[i].message;
        struct error error = {0};
        struct stamp stamp;
        stamp_read(message, &stamp);
        if (!gate_feed(gate, message, &error)) {
            CHECK(error.kind == ERROR_FATAL && strcmp(error.code, "gate_unreadable") == 0 && error.message[0] != '\0');
            CHECK(!stamp.is_mark);
            continue;
        }
        if (!stamp.is_mark && stamp.number > 0 && message->key != NULL && message->value != NULL)
            check_floor(gate, message);
        gate_get_counts(gate, &counts);
        CHECK(counts.resources <= GATE_RESOURCES_MIN && counts.base >= base);
        base = counts.base;
    }
    gate_free(gate);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_record all[RECORDS_MAX];
    records = all;
    record_count = 0;
    while (record_count < RECORDS_MAX) {
        const uint8_t *end = memmem(data, size, "\n%%\n", 4);
        size_t here = end != NULL ? (size_t)(end - data) : size;
        fuzz_record_read(&all[record_count++], data, here);
        if (end == NULL)
            break;
        data += here + 4;
        size -= here + 4;
    }
    check_positions();
    check_gate();
    check_readback();
    for (size_t i = 0; i < record_count; i++)
        fuzz_record_release(&all[i]);
    return 0;
}
