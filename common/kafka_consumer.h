/*
 * kafka_consumer: a member of a consumer group, for the intake. Cooperative-sticky; commits nothing by itself; stores no
 * offset by itself; an offset that the log no longer has is an error of that partition (auto.offset.reset=error).
 *
 * The group only says *who* reads a partition. *Where* reading starts is the owner's to say (PostgreSQL knows it), and a
 * partition is not fetched before the owner said so. Nothing here is trusted to remember a position across a
 * rebalance: the client does not notice a log that was cut, and has rewound by itself.
 *
 * One thread owns a consumer; only kafka_consumer_wake may be called from others. The rebalance callback runs inside
 * kafka_consumer_poll and kafka_consumer_close, in that thread.
 *
 * For reading without a group (a tail, one record at an offset, marks) see kafka_reader.h.
 */
#ifndef LEASE_KAFKA_CONSUMER_H
#define LEASE_KAFKA_CONSUMER_H

#include "common/kafka_config.h"
#include "common/message.h"

struct kafka_consumer;

enum kafka_rebalance {
    KAFKA_ASSIGNED, /* ours from now on; call kafka_consumer_start for each, in the callback or later */
    KAFKA_REVOKED,  /* still ours until the callback returns: finish what is running, then return */
    KAFKA_LOST,     /* somebody else may own them already: what is running will fail its compare-and-set */
};

/* offset is unset in partitions. Those revoked or lost are no longer fetched when it returns. */
typedef void kafka_rebalance_fn(void *context, enum kafka_rebalance what, const struct kafka_partition *partitions,
                                size_t count);

struct kafka_consumer_options {
    const struct kafka_settings *settings;
    const char *group;
    const char *const *topics; /* full names, prefix included */
    size_t topic_count;
    int session_timeout_ms;  /* 0 = 10000 */
    int max_poll_ms;         /* a longer pause between polls loses the partitions; 0 = three session timeouts, 15 s at least */
    size_t queue_messages;   /* read ahead per partition at most; 0 = 2000 */
    size_t queue_kbytes;     /* read ahead in all at most; 0 = 4096. One response of KAFKA_FETCH_BYTES comes on top */
    kafka_rebalance_fn *rebalance;
    void *context;
};

/* Most that one fetch response carries (a single larger record still passes). */
#define KAFKA_FETCH_BYTES (2 * 1024 * 1024)

/* Creates the client and joins the group. A missing topic is not an error here: it shows in kafka_consumer_poll. */
bool kafka_consumer_new(const struct kafka_consumer_options *options, struct kafka_consumer **ret_consumer,
                        struct error *error) MUST_USE;

/* Leaves the group (KAFKA_REVOKED is called first), waiting wait_ms at most; twice that if it was only just joining. Free
 * without close leaves it to time out. */
void kafka_consumer_close(struct kafka_consumer *consumer, int wait_ms);
void kafka_consumer_free(struct kafka_consumer *consumer);

/* Starts, or restarts, fetching an assigned partition at an absolute offset (or KAFKA_OFFSET_BEGINNING). Records of an
 * earlier start that are still queued here are dropped. False with code kafka_not_assigned if it is no longer ours. */
bool kafka_consumer_start(struct kafka_consumer *consumer, const struct kafka_partition *partitions, size_t count,
                          struct error *error) MUST_USE;

/* Stops fetching an assigned partition (it halts, or waits for the database); it stays ours. */
bool kafka_consumer_stop(struct kafka_consumer *consumer, const char *topic, int32_t partition, struct error *error)
    __attribute__((warn_unused_result));

/* Backpressure: no record of these comes out of poll until resumed; nothing is thrown away, and what was read ahead is bounded.
 * NULL, 0 = all that are assigned. A paused partition that is started again is running again. */
bool kafka_consumer_pause(struct kafka_consumer *consumer, const struct kafka_partition *partitions, size_t count,
                          struct error *error) MUST_USE;
bool kafka_consumer_resume(struct kafka_consumer *consumer, const struct kafka_partition *partitions, size_t count,
                           struct error *error) MUST_USE;

enum kafka_polled {
    KAFKA_POLL_NOTHING,
    KAFKA_POLL_MESSAGE,         /* *ret_message is borrowed until the next call on this consumer */
    KAFKA_POLL_PARTITION_ERROR, /* ret_message names topic and partition only; *error says why: kind RETRY or FATAL.
                                   code kafka_offset_out_of_range, kafka_unknown_topic, kafka_not_authorized, … */
    KAFKA_POLL_ERROR,           /* of the client as a whole; kind RETRY passes by itself (brokers away), FATAL does not;
                                   code kafka_max_poll: polled too late, the partitions will come back as KAFKA_LOST */
};

/* Serves rebalances and hands out one message at a time. */
enum kafka_polled kafka_consumer_poll(struct kafka_consumer *consumer, int timeout_ms, struct message *ret_message,
                                      struct error *error);

/* Makes a poll that waits return KAFKA_POLL_NOTHING at once. Any thread. */
void kafka_consumer_wake(struct kafka_consumer *consumer);

/* Publishes consumed offsets (the next to read) for lag tools; asynchronous, failures are ignored: nothing reads them. */
void kafka_consumer_commit(struct kafka_consumer *consumer, const struct kafka_partition *partitions, size_t count);

/* First offset that the log still has, and the one that the next record will get. Asks the broker. */
bool kafka_consumer_watermarks(struct kafka_consumer *consumer, const char *topic, int32_t partition, int timeout_ms,
                               int64_t *ret_low, int64_t *ret_high, struct error *error)
    __attribute__((warn_unused_result));

/* How many partitions a topic has now. code kafka_unknown_topic if there is none. Asks the broker. */
bool kafka_consumer_partition_count(struct kafka_consumer *consumer, const char *topic, int timeout_ms,
                                    int32_t *ret_count, struct error *error) MUST_USE;

#endif
