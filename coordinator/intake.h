/* intake: a thread that reads the input topics as one member of the group, decodes, and hands commands to the lanes.
 *
 * The group says which partitions are ours, PostgreSQL where to read from: an assigned partition is first taken there (its
 * epoch rises, so that whoever had it is refused), and the record before the stored offset must still be the one that was
 * consumed: a topic deleted and made anew with a longer log would be read on from its middle, without a word. What does
 * not agree halts that partition, and only that, and is said.
 *
 * It polls always. A lane that is full has its partitions paused; a database that is away longer than the bound
 * makes the intake leave the group until it is back. */
#ifndef LEASE_INTAKE_H
#define LEASE_INTAKE_H

#include "common/error.h"
#include "common/event.h"
#include "common/kafka_config.h"
#include "common/log.h"
#include "coordinator/lane.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct intake;

/* An input topic. The lane of a partition is lane_first + (something even) % lane_count. */
struct intake_topic {
    const char *name; /* full; borrowed */
    size_t lane_first, lane_count;
};

/* Called in the intake's thread; must not wait. */
struct intake_events {
    void *context;
    void (*beat)(void *context); /* once per turn of its loop, at least every second */
    void (*read)(void *context, size_t topic, size_t messages, size_t bytes); /* topic: index in options.topics */
    void (*joined)(void *context, bool is_member);
    void (*kafka_error)(void *context, const struct error *error); /* passing */
    void (*kafka_works)(void *context);                            /* after an error */
    void (*retries)(void *context, const struct error *error);     /* a partition could not be taken now */
    /* After each change: how many partitions are ours and how many of them are halted, and one of those with its reason. */
    void (*partitions)(void *context, size_t assigned, size_t halted, const struct partition *one_halted);
    void (*failed)(void *context, const struct error *error); /* stopped for good: kind FATAL */
};

struct intake_options {
    const struct kafka_settings *kafka;
    const char *group; /* prefix included */
    const char *owner; /* the instance's name, for the database */
    const char *database;
    const char *application_name;
    const struct intake_topic *topics;
    size_t topic_count;
    struct lane **lanes;
    size_t lane_count;
    void (*decode)(void *context, const struct message *message, struct command *ret_command);
    void *decode_context;
    store_admit_fn *admit;
    void *admit_context;
    /* Since when PostgreSQL does not answer this process (monotonic ms), 0 while it does. */
    int64_t (*away_since_ms)(void *context);
    void *away_context;
    struct intake_events events;
    struct log *log;
    int session_timeout_ms, database_grace_ms;
    int64_t caution_messages; /* what a process may have had in hand when it died: queues and batches */
};

/* Everything in options is borrowed until intake_free. Starts the thread. */
struct intake *intake_new(const struct intake_options *options);

/* Stops reading, gives the lanes until drain_ms to finish what they were handed, drops the rest, tells the group how far
 * we came, leaves it, and ends the thread. NULL allowed. */
void intake_stop(struct intake *intake, int drain_ms);
/* After intake_stop, and after the lanes: their batches point to its partitions. NULL allowed. */
void intake_free(struct intake *intake);

/* Something changed that it should look at: a lane has room, a claim was refused. Any thread. */
void intake_wake(struct intake *intake);

/* The database is another one than before, so consumed offsets may have gone back: every partition is taken anew, also those in
 * which nothing arrives that a claim could be refused for. Any thread. */
void intake_retake(struct intake *intake);

#endif
