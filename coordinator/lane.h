/* lane: a thread that turns queued messages into committed transactions, in order, with one connection of its own.
 *
 * It takes whatever is queued, up to a batch, as soon as it is free: while PostgreSQL works on one batch the intake
 * fills the next, and a lone message waits for nothing. What goes wrong is settled here, once: a refused claim drops that
 * partition's messages, a passing failure repeats the same batch, refused data halves the batch until the one message is
 * found, anything else stops the lane.
 *
 * The intake's thread puts; the lane's thread works; everything else here may be called from any thread. */
#ifndef LEASE_LANE_H
#define LEASE_LANE_H

#include "common/error.h"
#include "common/event.h"
#include "common/log.h"
#include "coordinator/batch.h"
#include "coordinator/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lane;

/* How a lane reaches the database: store.h in the daemon, a script in tests. Called in the lane's thread only. */
struct lane_store {
    void *context;
    bool (*open)(void *context, struct error *error);
    void (*close)(void *context);
    enum store_result (*apply)(void *context, struct batch *batch, size_t from, size_t upto,
                               struct store_answer *ret_answer, struct error *error);
    bool (*attempt)(void *context, const char *topic, int32_t partition, int64_t offset, int *ret_tries,
                    struct error *error);
};
struct lane_store lane_store_of(struct store *store);

/* A batch, or a part of one, was committed. Borrowed, and gone after the call. */
struct lane_commit {
    const struct batch *batch;
    size_t from, upto;
    const struct store_answer *answer; /* outcomes belong to the entries that were not dropped */
    int64_t took_us;
};

/* What a lane tells. Called in its thread; must not wait. */
struct lane_events {
    void *context;
    void (*committed)(void *context, struct lane *lane, const struct lane_commit *commit);
    void (*refused)(void *context, struct lane *lane, const struct partition *partition); /* a claim: see partition_refuse */
    void (*has_room)(void *context, struct lane *lane);       /* the queue fell below its low-water mark */
    void (*retries)(void *context, struct lane *lane, const struct error *error); /* before each wait */
    void (*works)(void *context, struct lane *lane);          /* the database answered */
    void (*failed)(void *context, struct lane *lane, const struct error *error);  /* stopped for good: kind FATAL */
};

struct lane_options {
    const char *name; /* borrowed: "renewals", "lane 1" */
    struct lane_store store;
    struct lane_events events;
    void (*decode)(void *context, const struct message *message, struct command *ret_command);
    void *decode_context;
    struct log *log;
    size_t batch_messages, batch_bytes;  /* messages by their work: batch_work_of */
    int batch_wait_ms;                   /* linger for a fuller batch; 0: none */
    size_t queue_messages, queue_bytes;  /* high-water marks, likewise; the low ones are half */
};

struct lane *lane_new(const struct lane_options *options); /* starts the thread */
/* Ends the thread; what is queued is dropped, a transaction in flight is waited for. NULL allowed. */
void lane_free(struct lane *lane);
const char *lane_name(const struct lane *lane);

/* Queues a message; see batch_add. Always takes it; false when the queue is full now: the caller pauses what fills it. */
bool lane_put(struct lane *lane, struct partition *partition, const struct message *message,
              struct command *take_command);

bool lane_is_full(struct lane *lane);
size_t lane_queued(struct lane *lane); /* messages, without the batch in hand */
bool lane_is_idle(struct lane *lane);  /* nothing queued, nothing in hand */

/* Waits until the batch in hand (if any) is through; false if that took longer. */
bool lane_wait_in_hand(struct lane *lane, int wait_ms);
/* Looks at generations and at stopping again instead of waiting out a backoff. */
void lane_nudge(struct lane *lane);

enum {
    /* A message that was begun more often than this and never passed has killed the process: it becomes a dead letter. */
    LANE_ATTEMPTS_MAX = 3,
    /* Messages tried together with caution: two commits instead of two for each; as many single tries once it died of them. */
    LANE_CAUTIOUS_MESSAGES = 50,
};

#endif
