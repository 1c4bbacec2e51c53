/*
 * message: one Kafka record as the rest of the program sees it. A borrowed view: everything it points to
 * belongs to whoever handed it out (the consumer, until its next poll; a test's own arrays) and is gone with it.
 *
 * Not for: what the record means (event.h), or how it got here (kafka_consumer.h).
 */
#ifndef LEASE_MESSAGE_H
#define LEASE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A record header. value is NULL for a null value, which Kafka tells apart from an empty one (value_size 0). */
struct message_header {
    const char *name; /* NUL-terminated; Kafka's own length is name_size */
    size_t name_size;
    const void *value;
    size_t value_size;
};

struct message {
    const char *topic;
    int32_t partition;
    int64_t offset;
    int64_t timestamp_ms; /* -1 when the record carries none */
    int32_t broker;       /* the id of the one that it was fetched from; -1: not known */

    const void *key; /* NULL for a null key */
    size_t key_size;
    const void *value; /* NULL for a null value (a tombstone) */
    size_t value_size;

    const struct message_header *headers;
    size_t header_count;
    bool has_lost_headers; /* more than the client library reads: header_count is 0 */
};

#endif
