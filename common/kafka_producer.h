/*
 * kafka_producer: an idempotent producer, acks=all, in order per partition, with a delivery report for each record.
 *
 * A record that fails for good stops the producer: everything queued behind it fails too, and nothing more is taken.
 * (By itself the client fails an over-large message alone and delivers the ones behind it: the order of a key would be
 * lost.) The owner then frees it, reads the topics to see what stands there, and starts a new one. Brokers that are away
 * are not such a failure before delivery_ms has passed.
 *
 * One thread owns a producer; delivery reports are called in that thread, from kafka_producer_poll, _send and _flush.
 */
#ifndef LEASE_KAFKA_PRODUCER_H
#define LEASE_KAFKA_PRODUCER_H

#include "common/kafka_config.h"
#include "common/message.h"

struct kafka_producer;

/* number is the one that was sent with the record. On failure error says why (and offset is unset). */
typedef void kafka_delivery_fn(void *context, uint64_t number, int32_t partition, int64_t offset,
                               const struct error *error /* NULL = delivered */);

struct kafka_producer_options {
    const struct kafka_settings *settings;
    size_t queue_messages; /* in flight at most; 0 = 20000 */
    size_t queue_kbytes;   /* in flight at most; 0 = 8192 */
    int linger_ms;         /* 0: a record leaves at once; what gathers while a request is on its way leaves with the next */
    int delivery_ms;       /* a record that is not delivered by then fails; 0 = 120000 */
    size_t record_bytes;   /* largest record that is sent (key + value + headers); 0 = 1000000 */
    kafka_delivery_fn *delivered; /* NULL = not wanted */
    void *context;
};

bool kafka_producer_new(const struct kafka_producer_options *options, struct kafka_producer **ret_producer,
                        struct error *error) MUST_USE;

/* What is still in flight is dropped, without delivery reports. */
void kafka_producer_free(struct kafka_producer *producer);

struct kafka_record {
    const char *topic;
    int32_t partition;    /* ≥ 0, or KAFKA_PARTITION_BY_KEY */
    const void *key;      /* NULL = null key */
    size_t key_size;
    const void *value;    /* NULL = null value */
    size_t value_size;
    const struct message_header *headers;
    size_t header_count;
    uint64_t number;      /* comes back in the delivery report */
};
#define KAFKA_PARTITION_BY_KEY (-1)

/* Copies the record and queues it. If the queue is full, waits wait_ms at most for room (serving delivery reports):
 * then false with kind RETRY, code kafka_queue_full. Kind REJECT, code kafka_too_large: larger than record_bytes; nothing was
 * queued and the producer goes on. Kind FATAL: stopped, see above. */
bool kafka_producer_send(struct kafka_producer *producer, const struct kafka_record *record, int wait_ms,
                         struct error *error) MUST_USE;

/* Serves delivery reports; returns how many came. A wait returns at the first ones. */
int kafka_producer_poll(struct kafka_producer *producer, int timeout_ms);
/* Makes a poll that waits return at once. Any thread. */
void kafka_producer_wake(struct kafka_producer *producer);

/* Writes to this event descriptor (eventfd, non-blocking) when delivery reports wait after none did. */
void kafka_producer_set_wake_fd(struct kafka_producer *producer, int event_fd);

/* Waits until nothing is in flight; false with kafka_timeout otherwise, or with what stopped the producer. */
bool kafka_producer_flush(struct kafka_producer *producer, int timeout_ms, struct error *error)
    __attribute__((warn_unused_result));

/* Drops what is queued and in flight; each gets its (failed) delivery report from the next polls. The producer is stopped. */
void kafka_producer_purge(struct kafka_producer *producer);

/* What stopped the producer, or NULL. Borrowed. */
const struct error *kafka_producer_stopped(const struct kafka_producer *producer);

size_t kafka_producer_in_flight(const struct kafka_producer *producer);

/* How many partitions a topic has now. code kafka_unknown_topic if there is none. Asks the broker. */
bool kafka_producer_partition_count(struct kafka_producer *producer, const char *topic, int timeout_ms,
                                    int32_t *ret_count, struct error *error) MUST_USE;

#endif
