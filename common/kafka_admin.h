/*
 * kafka_admin: creates topics and says how they are set up. For leasectl and tests; the daemon only describes.
 *
 * librdkafka 2.0.2 can neither alter single configuration values nor list offsets through its admin calls: a topic that
 * differs is reported, not changed.
 */
#ifndef LEASE_KAFKA_ADMIN_H
#define LEASE_KAFKA_ADMIN_H

#include "common/kafka_config.h"

struct kafka_admin;

bool kafka_admin_new(const struct kafka_settings *settings, struct kafka_admin **ret_admin, struct error *error)
    __attribute__((warn_unused_result));
void kafka_admin_free(struct kafka_admin *admin);

struct kafka_topic_config {
    const char *key;
    const char *value;
};

struct kafka_topic_spec {
    const char *name;
    int32_t partitions;
    int32_t replicas; /* ≤ 0 = the broker's default */
    const struct kafka_topic_config *configs;
    size_t config_count;
};

enum kafka_created {
    KAFKA_CREATED,
    KAFKA_EXISTS,
    KAFKA_NOT_CREATED, /* error of that entry says why */
};

struct kafka_create_result {
    enum kafka_created created;
    struct error error;
};

/* One result per topic, in order. False if the request as a whole failed (results are then unset). When it returns, the
 * topics that were created have been seen in the cluster's metadata with all their partitions led, or timeout_ms passed. */
bool kafka_admin_create_topics(struct kafka_admin *admin, const struct kafka_topic_spec *topics, size_t count,
                               int timeout_ms, struct kafka_create_result *ret_results, struct error *error)
    __attribute__((warn_unused_result));

/* 0 in *ret_count if there is no such topic. */
bool kafka_admin_partition_count(struct kafka_admin *admin, const char *topic, int timeout_ms, int32_t *ret_count,
                                 int32_t *ret_replicas, struct error *error) MUST_USE;

/* Calls back for each configuration entry of a topic. */
typedef void kafka_config_fn(void *context, const char *key, const char *value, bool is_default);
bool kafka_admin_describe_config(struct kafka_admin *admin, const char *topic, int timeout_ms, kafka_config_fn *each,
                                 void *context, struct error *error) MUST_USE;

#endif
