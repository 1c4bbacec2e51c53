/* outputs; see outputs.h. */
#include "coordinator/outputs.h"

#include "common/buf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const enum topic_id output_ids[OUTPUT_TOPICS] = {TOPIC_RESULTS, TOPIC_GRANTS, TOPIC_STATE, TOPIC_DEAD_LETTERS};

static bool topic_init(struct output_topic *topic, enum topic_id id, const char *prefix, struct kafka_reader *reader,
                       int timeout_ms, struct error *error) {
    struct buf name = BUF_INIT;
    topic_full_name(&name, prefix, id);
    *topic = (struct output_topic){.id = id, .name = buf_take(&name, NULL)};
    if (kafka_reader_partition_count(reader, topic->name, timeout_ms, &topic->count, error))
        return true;
    if (strcmp(error->code, "kafka_unknown_topic") == 0)
        return error_set(error, ERROR_FATAL, "output_topic_missing", "there is no topic %s: create it with leasectl topics",
                         topic->name);
    return false;
}

bool outputs_init(struct outputs *outputs, const char *prefix, struct kafka_reader *reader, int timeout_ms,
                  struct error *error) {
    *outputs = (struct outputs){0};
    for (size_t i = 0; i < OUTPUT_TOPICS; i++) {
        struct output_topic *topic = &outputs->topics[i];
        if (!topic_init(topic, output_ids[i], prefix, reader, timeout_ms, error)) {
            outputs_release(outputs);
            return false;
        }
        topic->first = outputs->total;
        outputs->total += topic->count;
        if (outputs->total > OUTPUT_PARTITIONS_MAX) {
            outputs_release(outputs);
            return error_set(error, ERROR_FATAL, "output_partitions", "the output topics have more than %d partitions",
                             OUTPUT_PARTITIONS_MAX);
        }
    }
    return true;
}

void outputs_release(struct outputs *outputs) {
    if (!outputs)
        return;
    for (size_t i = 0; i < OUTPUT_TOPICS; i++)
        free(outputs->topics[i].name);
    *outputs = (struct outputs){0};
}

const struct output_topic *outputs_topic(const struct outputs *outputs, enum topic_id id) {
    for (size_t i = 0; i < OUTPUT_TOPICS; i++)
        if (outputs->topics[i].id == id)
            return &outputs->topics[i];
    assert(false && "an output topic");
    return NULL;
}

int32_t outputs_index(const struct outputs *outputs, const char *topic, int32_t partition) {
    for (size_t i = 0; i < OUTPUT_TOPICS; i++) {
        const struct output_topic *output = &outputs->topics[i];
        if (partition >= 0 && partition < output->count && strcmp(output->name, topic) == 0)
            return output->first + partition;
    }
    return -1;
}

struct kafka_partition outputs_partition(const struct outputs *outputs, int32_t index, int64_t offset) {
    assert(index >= 0 && index < outputs->total);
    size_t i = OUTPUT_TOPICS - 1;
    while (outputs->topics[i].first > index)
        i--;
    return (struct kafka_partition){outputs->topics[i].name, index - outputs->topics[i].first, offset};
}

int32_t outputs_index_of_key(const struct outputs *outputs, enum topic_id id, const void *key, size_t key_size,
                             int64_t spread) {
    const struct output_topic *topic = outputs_topic(outputs, id);
    if (!key)
        return topic->first + (int32_t)(spread % topic->count);
    return topic->first + kafka_partition_of_key(key, key_size, topic->count);
}
