/* One input partition; see partition.h. */
#include "coordinator/partition.h"

#include "common/buf.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct partition *partition_new(const char *topic, int32_t number, struct lane *lane) {
    struct partition *partition = memory_alloc(sizeof *partition);
    partition->topic = memory_copy_text(topic);
    partition->number = number;
    partition->lane = lane;
    partition->published = PARTITION_NEVER;
    partition->read_from = partition->compared_at = -1;
    atomic_init(&partition->committed, PARTITION_NEVER);
    atomic_init(&partition->generation, 1);
    return partition;
}

void partition_free(struct partition *partition) {
    if (partition == NULL)
        return;
    free(partition->topic);
    free(partition);
}

void partition_invalidate(struct partition *partition) {
    atomic_fetch_add(&partition->generation, 1);
}

void partition_refuse(struct partition *partition, uint64_t generation) {
    uint64_t expected = generation;
    if (atomic_compare_exchange_strong(&partition->generation, &expected, generation + 1))
        atomic_store(&partition->is_refused, true);
}

bool partition_is_current(struct partition *partition, uint64_t generation) {
    return atomic_load(&partition->generation) == generation;
}

bool partition_follows(struct partition *partition, int32_t broker) {
    bool is_first = partition->read_from < 0 && partition->compared_at < 0;
    bool follows = is_first || broker == partition->read_from || broker == partition->compared_at;
    if (broker < 0)
        return true;
    partition->read_from = broker;
    if (follows)
        partition->compared_at = broker;
    return follows;
}

int64_t partition_checksum(const struct message *message) {
    uLong sum = crc32_z(0, NULL, 0);
    if (message->key != NULL)
        sum = crc32_z(sum, message->key, message->key_size);
    if (message->value != NULL)
        sum = crc32_z(sum, message->value, message->value_size);
    return (int64_t)sum;
}

bool partition_judge_place(const struct partition_evidence *evidence, int64_t *ret_start, bool *ret_compare,
                           struct error *error) {
    if (evidence->partitions_known > 0 && evidence->partitions_known != evidence->partitions_now)
        return error_set(error, ERROR_FATAL, "partition_count_changed",
                         "the topic has %" PRId32 " partitions, it had %" PRId32
                         " when it was first consumed: keys may have moved",
                         evidence->partitions_now, evidence->partitions_known);
    *ret_compare = false;
    if (evidence->next_offset == PARTITION_NEVER) {
        *ret_start = evidence->low;
        return true;
    }
    if (evidence->next_offset < evidence->low)
        return error_set(error, ERROR_FATAL, "offset_before_log",
                         "the next offset is %" PRId64 ", the log begins at %" PRId64 ": records are gone unread",
                         evidence->next_offset, evidence->low);
    if (evidence->next_offset > evidence->high)
        return error_set(error, ERROR_FATAL, "offset_beyond_log",
                         "the next offset is %" PRId64 ", the log ends at %" PRId64
                         ": it was truncated or the topic recreated",
                         evidence->next_offset, evidence->high);
    *ret_start = evidence->next_offset;
    /* At the very beginning of what is left, the record before is gone with time and nothing can be compared. */
    *ret_compare = evidence->last_offset >= evidence->low;
    return true;
}

enum partition_answer partition_judge_answer(const struct error *error) {
    if (error->kind != ERROR_FATAL || strncmp(error->code, "kafka_", 6) != 0)
        return PARTITION_ANSWER_OTHER;
    /* Retention moved the beginning since we asked for it: the next look compares anew. */
    if (strcmp(error->code, "kafka_offset_out_of_range") == 0)
        return PARTITION_ANSWER_LATER;
    /* So answers a broker that has just started, too; of a topic that is really gone, the group takes the partitions away. */
    if (strcmp(error->code, "kafka_unknown_topic") == 0)
        return PARTITION_ANSWER_LATER;
    return PARTITION_ANSWER_HALT;
}

bool partition_judge_record(const struct partition_evidence *evidence, struct error *error) {
    if (!evidence->has_record || evidence->record_offset != evidence->last_offset)
        return error_set(error, ERROR_FATAL, "topic_recreated",
                         "no record stands at offset %" PRId64 ", where the last one consumed was", evidence->last_offset);
    if (evidence->record_timestamp != evidence->last_timestamp || evidence->record_checksum != evidence->last_checksum)
        return error_set(error, ERROR_FATAL, "topic_recreated",
                         "the record at offset %" PRId64 " is not the one that was consumed there", evidence->last_offset);
    return true;
}
