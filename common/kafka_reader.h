/*
 * kafka_reader: reads given partitions from given offsets, without a group: marks, tails, the record before a stored
 * offset, `leasectl tail`. Reports the end of each partition.
 *
 * One thread owns a reader; only kafka_reader_wake may be called from others.
 */
#ifndef LEASE_KAFKA_READER_H
#define LEASE_KAFKA_READER_H

#include "common/kafka_config.h"
#include "common/kafka_consumer.h"

struct kafka_reader;

struct kafka_reader_options {
    const struct kafka_settings *settings;
    const char *group;   /* named to the broker, never joined: use one that the access rules already allow */
    int wait_ms;         /* how long the broker may hold an empty fetch; the end is noticed no sooner. 0 = 10 */
    size_t queue_kbytes; /* read ahead in all at most; 0 = 2048 */
};

bool kafka_reader_new(const struct kafka_reader_options *options, struct kafka_reader **ret_reader, struct error *error)
    __attribute__((warn_unused_result));
void kafka_reader_free(struct kafka_reader *reader);

/* Replaces what is read, at any time. Offsets: absolute, KAFKA_OFFSET_BEGINNING, KAFKA_OFFSET_END, or KAFKA_OFFSET_TAIL(n): n
 * before the end (offsets are not dense: fewer than n records may stand there). count 0 = stop reading. */
#define KAFKA_OFFSET_TAIL(n) ((int64_t)-2000 - (int64_t)(n))
bool kafka_reader_assign(struct kafka_reader *reader, const struct kafka_partition *partitions, size_t count,
                         struct error *error) MUST_USE;

enum kafka_read {
    KAFKA_READ_NOTHING,
    KAFKA_READ_MESSAGE, /* *ret_message is borrowed until the next call on this reader */
    KAFKA_READ_END,     /* ret_message names topic, partition and the offset of the end; once per end reached */
    KAFKA_READ_PARTITION_ERROR, /* as KAFKA_POLL_PARTITION_ERROR */
    KAFKA_READ_ERROR,           /* as KAFKA_POLL_ERROR */
};

enum kafka_read kafka_reader_poll(struct kafka_reader *reader, int timeout_ms, struct message *ret_message,
                                  struct error *error);

/* Makes a poll that waits, or else the next one, return without waiting. Any thread. */
void kafka_reader_wake(struct kafka_reader *reader);

bool kafka_reader_watermarks(struct kafka_reader *reader, const char *topic, int32_t partition, int timeout_ms,
                             int64_t *ret_low, int64_t *ret_high, struct error *error)
    __attribute__((warn_unused_result));
bool kafka_reader_partition_count(struct kafka_reader *reader, const char *topic, int timeout_ms, int32_t *ret_count,
                                  struct error *error) MUST_USE;

#endif
