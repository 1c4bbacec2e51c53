/* What the files of the intake share: its state, and the moves of a partition. All of it belongs to the intake's thread. */
#ifndef LEASE_INTAKE_PRIVATE_H
#define LEASE_INTAKE_PRIVATE_H

#include "common/backoff.h"
#include "common/kafka_consumer.h"
#include "coordinator/intake.h"

#include <pthread.h>
#include <stdatomic.h>

struct db;
struct kafka_reader;

struct intake_tally {
    size_t messages, bytes;
};

struct intake {
    struct intake_options options;
    struct kafka_consumer *consumer;
    struct kafka_reader *reader;
    struct db *db;
    struct backoff backoff;
    int64_t db_lost_at_ms;
    struct partition **partitions;
    size_t partition_count, partition_capacity;
    struct intake_tally *tallies; /* one per topic */
    bool has_changed;             /* which partitions are ours or halted */
    bool is_kafka_failing;
    int64_t publish_at_ms, probe_at_ms;
    _Atomic bool is_stopping;
    _Atomic bool is_retake_due;
    _Atomic int drain_ms;
    pthread_mutex_t consumer_mutex; /* intake_wake against replacing the consumer */
    pthread_t thread;
};

int64_t intake_now_ms(void);

/* NULL if that partition was never ours. */
struct partition *intake_find_partition(const struct intake *intake, const char *topic, int32_t number);
struct kafka_partition intake_place_of(const struct partition *partition, int64_t offset);

/* The moves. */
void intake_set_state(struct intake *intake, struct partition *partition, enum partition_state state);
void intake_retake_later(struct intake *intake, struct partition *partition, int64_t wait_ms);
void intake_stop_fetching(struct intake *intake, struct partition *partition);
void intake_halt(struct intake *intake, struct partition *partition, const struct error *why);
void intake_tell_partitions(struct intake *intake);

/* intake_group.c: membership. */
bool intake_join(struct intake *intake, struct error *error) MUST_USE;
void intake_leave(struct intake *intake);
void intake_publish_offsets(struct intake *intake);
size_t intake_topic_index(const struct intake *intake, const char *topic); /* SIZE_MAX: none of ours */

/* intake_take.c: takes what is pending and due. False when going on would be wrong. */
bool intake_take_pending(struct intake *intake, struct error *error) MUST_USE;
void intake_close_db(struct intake *intake);

#endif
