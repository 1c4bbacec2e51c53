/*
 * kafka_config: what every Kafka client of ours has in common: which librdkafka properties may be passed through,
 * which ones the protocol fixes, and what an operator may not touch.
 *
 * A passed-through key must stand in the allow-list of kafka_config.c: some of librdkafka's keys run code
 * (plugin.library.paths, ssl.engine.location, sasl.kerberos.kinit.cmd), others would break the protocol
 * (enable.auto.commit, acks, …). Both are refused by name. Values never appear in an error or a log.
 */
#ifndef LEASE_KAFKA_CONFIG_H
#define LEASE_KAFKA_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* One librdkafka property as the operator gave it ([kafka], -X key=value, LEASE_KAFKA_KEY). */
struct kafka_property {
    const char *key;
    const char *value;
};

/* librdkafka's own log lines; level is syslog's (0 emerg … 7 debug). Called from librdkafka's threads. */
typedef void kafka_log_fn(void *context, int level, const char *facility, const char *text);

/* Borrowed by every client while it is being created, not afterwards (log and log_context: while it lives). */
struct kafka_settings {
    const char *brokers;   /* host:port[,host:port…] */
    const char *client_id; /* shows in the broker's logs; NULL = "leasehold" */
    const struct kafka_property *properties;
    size_t property_count;
    kafka_log_fn *log; /* NULL = librdkafka's lines are dropped */
    void *log_context;
};

/* Kafka's own rule for names of topics: a prefix or group that keeps it can always be created. Refuses with code `configuration`. */
bool kafka_name_check(const char *value, struct error *error) MUST_USE;

/* May this key be passed through, with this value? On refusal error->code is kafka_key_unknown, kafka_key_refused
 * (it runs code), kafka_key_protocol (the protocol fixes it) or kafka_value (librdkafka does not take the value). */
bool kafka_property_check(const char *key, const char *value, struct error *error) MUST_USE;

/* Is the value of this key a secret, that is: never printed? */
bool kafka_property_is_secret(const char *key);

/* One partition and, where the call says so, an offset. topic is borrowed. */
struct kafka_partition {
    const char *topic;
    int32_t partition;
    int64_t offset;
};

/* Logical offsets, where a call takes them. Offsets of Kafka itself are ≥ 0. */
#define KAFKA_OFFSET_BEGINNING ((int64_t)-2)
#define KAFKA_OFFSET_END       ((int64_t)-1)
#define KAFKA_OFFSET_NONE      ((int64_t)-1001)

/* The partition that Kafka's Java clients and librdkafka's murmur2 partitioner give this key. */
int32_t kafka_partition_of_key(const void *key, size_t key_size, int32_t partition_count);

#endif
