/* gate_reader; see gate_reader.h. Runs in the gate's thread. */
#include "common/gate_reader.h"

#include "common/kafka_reader.h"
#include "common/topics.h"

#include <stdlib.h>
#include <string.h>

enum { GATE_READER_TIMEOUT_MS = 10000 };

struct gate_reader {
    struct kafka_reader *reader;
    struct gate *gate; /* borrowed */
    char *topic;
    int32_t partition_count;
    struct kafka_partition *partitions; /* offset: the next to read */
};

static bool ask_ends(struct gate_reader *reader, int timeout_ms, struct error *error) {
    if (!kafka_reader_partition_count(reader->reader, reader->topic, timeout_ms, &reader->partition_count, error))
        return false;
    size_t count = (size_t)reader->partition_count;
    int64_t *ends = memory_alloc_array(count + 1, sizeof *ends);
    reader->partitions = memory_alloc_array(count + 1, sizeof *reader->partitions);
    bool done = true;
    for (int32_t i = 0; done && i < reader->partition_count; i++) {
        int64_t first, end;
        done = kafka_reader_watermarks(reader->reader, reader->topic, i, timeout_ms, &first, &end, error);
        ends[i] = done && end > first ? end : 0;
        reader->partitions[i] = (struct kafka_partition){reader->topic, i, KAFKA_OFFSET_BEGINNING};
    }
    if (done)
        gate_begin(reader->gate, ends, reader->partition_count);
    free(ends);
    return done;
}

static bool assign(struct gate_reader *reader, struct error *error) {
    return kafka_reader_assign(reader->reader, reader->partitions, (size_t)reader->partition_count, error);
}

bool gate_reader_new(const struct gate_reader_options *options, struct gate *gate, struct gate_reader **ret_reader,
                     struct error *error) {
    struct gate_reader *reader = memory_alloc(sizeof *reader);
    struct buf topic = BUF_INIT;
    topic_full_name(&topic, options->topic_prefix ? options->topic_prefix : "", TOPIC_STATE);
    reader->topic = buf_take(&topic, NULL);
    reader->gate = gate;
    const struct kafka_reader_options kafka = {.settings = options->settings, .group = options->group};
    int timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : GATE_READER_TIMEOUT_MS;
    if (!kafka_reader_new(&kafka, &reader->reader, error) || !ask_ends(reader, timeout_ms, error) || !assign(reader, error)) {
        gate_reader_free(reader);
        return false;
    }
    *ret_reader = reader;
    return true;
}

void gate_reader_free(struct gate_reader *reader) {
    if (reader == NULL)
        return;
    kafka_reader_free(reader->reader);
    free(reader->partitions);
    free(reader->topic);
    free(reader);
}

/* The log begins behind where we stand, or ends before it (it was made anew): read what there is. All it says only raises. */
static bool read_anew(struct gate_reader *reader, int32_t partition, struct error *error) {
    if (strcmp(error->code, "kafka_offset_out_of_range") != 0 || partition < 0 || partition >= reader->partition_count ||
        reader->partitions[partition].offset == KAFKA_OFFSET_BEGINNING)
        return false;
    reader->partitions[partition].offset = KAFKA_OFFSET_BEGINNING;
    return assign(reader, error);
}

static void moved(struct gate_reader *reader, int32_t partition, int64_t offset) {
    if (partition >= 0 && partition < reader->partition_count)
        reader->partitions[partition].offset = offset;
}

bool gate_reader_poll(struct gate_reader *reader, int timeout_ms, size_t *ret_count, struct error *error) {
    size_t count = 0;
    bool done = true, is_over = false;
    while (done && !is_over && count < GATE_READER_AT_ONCE) {
        struct message message;
        switch (kafka_reader_poll(reader->reader, count == 0 ? timeout_ms : 0, &message, error)) {
        case KAFKA_READ_NOTHING:
            is_over = true;
            break;
        case KAFKA_READ_MESSAGE:
            done = gate_feed(reader->gate, &message, error);
            moved(reader, message.partition, message.offset + 1);
            count++;
            break;
        case KAFKA_READ_END:
            gate_reached(reader->gate, message.partition, message.offset);
            break;
        case KAFKA_READ_PARTITION_ERROR:
            done = read_anew(reader, message.partition, error);
            break;
        case KAFKA_READ_ERROR:
            done = false;
            break;
        }
    }
    if (ret_count != NULL)
        *ret_count = count;
    return done;
}
