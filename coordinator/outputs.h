/* outputs: the partitions of the output topics, numbered through: results, grants, state, dead letters. What is kept for each
 * partition (positions, marks) is an array over that number. Partition counts are fixed when it is made: records of a key stay in
 * their partition as long as one relay runs. */
#ifndef LEASE_OUTPUTS_H
#define LEASE_OUTPUTS_H

#include "common/error.h"
#include "common/kafka_config.h"
#include "common/kafka_reader.h"
#include "common/topics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    OUTPUT_TOPICS = 4,
    OUTPUT_PARTITIONS_MAX = 4096, /* in all; a bound on our arrays, far above what one relay could fill */
};

struct output_topic {
    enum topic_id id;
    char *name; /* full */
    int32_t first; /* the number of its partition 0 */
    int32_t count;
};

struct outputs {
    struct output_topic topics[OUTPUT_TOPICS];
    int32_t total;
};

/* Asks the brokers. FATAL output_topic_missing when a topic is not there; RETRY when the brokers are away. */
bool outputs_init(struct outputs *outputs, const char *prefix, struct kafka_reader *reader, int timeout_ms,
                  struct error *error) MUST_USE;
void outputs_release(struct outputs *outputs); /* NULL and zeroed allowed */

const struct output_topic *outputs_topic(const struct outputs *outputs, enum topic_id id);

/* The number of a partition; -1 if it is none of ours. */
int32_t outputs_index(const struct outputs *outputs, const char *topic, int32_t partition);

/* The partition of a number, with that offset; topic is borrowed. */
struct kafka_partition outputs_partition(const struct outputs *outputs, int32_t index, int64_t offset);

/* The number of the partition that a key belongs to, as every Kafka client computes it. A null key: by `spread`. */
int32_t outputs_index_of_key(const struct outputs *outputs, enum topic_id id, const void *key, size_t key_size,
                             int64_t spread);

#endif
