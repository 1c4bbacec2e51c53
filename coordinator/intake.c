/* A thread that reads the input topics; see intake.h. This is its loop and the moves of a partition; intake_group.c is given
 * and loses partitions, intake_take.c takes them in the database and looks at their log. */
#include "coordinator/intake_private.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"
#include "common/kafka_reader.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    POLL_MS = 100,           /* longest turn of the loop: timers are this exact */
    MESSAGES_A_TURN = 512,   /* so that timers are looked at under full load too */
    PROBE_MS = 2000,         /* after an error of the brokers, how often we ask whether they are back */
    ERROR_RETAKE_MS = 1000,  /* after an error of one partition */
    RETRY_BASE_MS = 50,
    RETRY_MAXIMUM_MS = 3000,
    AWAY_POLL_MS = 100,
};

int64_t intake_now_ms(void) {
    return clock_monotonic_us() / 1000;
}

struct partition *intake_find_partition(const struct intake *intake, const char *topic, int32_t number) {
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        if (partition->number == number && strcmp(partition->topic, topic) == 0)
            return partition;
    }
    return NULL;
}

struct kafka_partition intake_place_of(const struct partition *partition, int64_t offset) {
    return (struct kafka_partition){.topic = partition->topic, .partition = partition->number, .offset = offset};
}

/* ---- states ---- */

void intake_set_state(struct intake *intake, struct partition *partition, enum partition_state state) {
    partition->state = state;
    partition->is_paused = false;
    intake->has_changed = true;
}

void intake_stop_fetching(struct intake *intake, struct partition *partition) {
    struct error ignored = {0};
    if (!kafka_consumer_stop(intake->consumer, partition->topic, partition->number, &ignored))
        return; /* no longer assigned: the callback will say so */
}

void intake_halt(struct intake *intake, struct partition *partition, const struct error *why) {
    if (partition->state == PARTITION_RUNNING)
        intake_stop_fetching(intake, partition);
    partition_invalidate(partition);
    partition->halt = *why;
    intake_set_state(intake, partition, PARTITION_HALTED);
    log_error(intake->options.log, LOG_ERROR, "partition halted", why, "topic", partition->topic, "partition",
              LOG_N(partition->number), NULL);
}

void intake_retake_later(struct intake *intake, struct partition *partition, int64_t wait_ms) {
    partition->take_at_ms = intake_now_ms() + wait_ms;
    intake_set_state(intake, partition, PARTITION_PENDING);
}

void intake_tell_partitions(struct intake *intake) {
    size_t assigned = 0, halted = 0;
    const struct partition *one = NULL;
    for (size_t i = 0; i < intake->partition_count; i++) {
        const struct partition *partition = intake->partitions[i];
        assigned += partition->state != PARTITION_AWAY;
        if (partition->state == PARTITION_HALTED) {
            halted++;
            one = partition;
        }
    }
    intake->has_changed = false;
    intake->options.events.partitions(intake->options.events.context, assigned, halted, one);
}

void intake_wake(struct intake *intake) {
    pthread_mutex_lock(&intake->consumer_mutex);
    if (intake->consumer != NULL)
        kafka_consumer_wake(intake->consumer);
    pthread_mutex_unlock(&intake->consumer_mutex);
}

void intake_retake(struct intake *intake) {
    atomic_store(&intake->is_retake_due, true);
    intake_wake(intake);
}

/* ---- reading ---- */

static void pause_lane(struct intake *intake, const struct lane *lane, bool is_paused) {
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        if (partition->lane != lane || partition->state != PARTITION_RUNNING || partition->is_paused == is_paused)
            continue;
        struct error ignored = {0};
        const struct kafka_partition place = intake_place_of(partition, 0);
        bool done = is_paused ? kafka_consumer_pause(intake->consumer, &place, 1, &ignored)
                              : kafka_consumer_resume(intake->consumer, &place, 1, &ignored);
        if (done)
            partition->is_paused = is_paused;
    }
}

static void resume_lanes(struct intake *intake) {
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        if (partition->state == PARTITION_RUNNING && partition->is_paused && !lane_is_full(partition->lane))
            pause_lane(intake, partition->lane, false);
    }
}

/* Whoever takes it anew compares it with the log, and finds out whether it must halt. */
static void take_anew(struct intake *intake, struct partition *partition, int64_t wait_ms) {
    intake_stop_fetching(intake, partition);
    partition_invalidate(partition);
    intake_retake_later(intake, partition, wait_ms);
}

static void hand_over(struct intake *intake, const struct message *message) {
    struct partition *partition = intake_find_partition(intake, message->topic, message->partition);
    if (partition == NULL || partition->state != PARTITION_RUNNING || !partition_is_current(partition, partition->taken))
        return;
    /* The client never decides where we are: what was handed already is not handed again. */
    if (partition->handed != PARTITION_NEVER && message->offset < partition->handed)
        return;
    if (!partition_follows(partition, message->broker)) {
        log_write(intake->options.log, LOG_INFO, "another broker has the partition: it is compared", "topic", partition->topic,
                  "partition", LOG_N(partition->number), "broker", LOG_N(message->broker), NULL);
        take_anew(intake, partition, 0);
        return;
    }
    struct intake_tally *tally = &intake->tallies[intake_topic_index(intake, message->topic)];
    tally->messages++;
    tally->bytes += message->key_size + message->value_size;
    struct command command;
    bool is_cautious = message->offset < partition->cautious_until;
    if (!is_cautious)
        intake->options.decode(intake->options.decode_context, message, &command);
    bool has_room = lane_put(partition->lane, partition, message, is_cautious ? NULL : &command);
    partition->handed = message->offset + 1;
    if (!has_room)
        pause_lane(intake, partition->lane, true);
}

static void on_partition_error(struct intake *intake, const struct message *message, const struct error *error) {
    struct partition *partition = intake_find_partition(intake, message->topic, message->partition);
    if (partition == NULL || partition->state != PARTITION_RUNNING)
        return;
    log_error(intake->options.log, LOG_WARNING, "partition cannot be read", error, "topic", partition->topic, "partition",
              LOG_N(partition->number), NULL);
    if (error->kind == ERROR_FATAL && strcmp(error->code, "kafka_offset_out_of_range") != 0) {
        intake_halt(intake, partition, error);
        return;
    }
    take_anew(intake, partition, ERROR_RETAKE_MS);
}

/* A topic was deleted: the others' work goes on. Should it be there again already, only a new look at the record before the
 * stored offset tells that it is another one. */
static void take_all_anew(struct intake *intake) {
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        if (partition->state == PARTITION_RUNNING)
            take_anew(intake, partition, 0);
    }
}

static void note_kafka_error(struct intake *intake, const struct error *error) {
    intake->is_kafka_failing = true;
    intake->probe_at_ms = intake_now_ms() + PROBE_MS;
    intake->options.events.kafka_error(intake->options.events.context, error);
}

static void note_kafka_works(struct intake *intake) {
    if (!intake->is_kafka_failing)
        return;
    intake->is_kafka_failing = false;
    intake->options.events.kafka_works(intake->options.events.context);
}

/* False when the client is beyond repair. */
static bool read_some(struct intake *intake, int timeout_ms, struct error *error) {
    for (int count = 0; count < MESSAGES_A_TURN; count++) {
        struct message message;
        switch (kafka_consumer_poll(intake->consumer, count == 0 ? timeout_ms : 0, &message, error)) {
        case KAFKA_POLL_NOTHING:
            return true;
        case KAFKA_POLL_MESSAGE:
            if (count == 0)
                CRASH_POINT("poll.after");
            note_kafka_works(intake);
            hand_over(intake, &message);
            break;
        case KAFKA_POLL_PARTITION_ERROR:
            on_partition_error(intake, &message, error);
            break;
        case KAFKA_POLL_ERROR:
            if (strcmp(error->code, "kafka_unknown_topic") == 0)
                take_all_anew(intake);
            else if (error->kind == ERROR_FATAL)
                return false;
            note_kafka_error(intake, error);
            return true;
        }
    }
    return true;
}

/* ---- the loop ---- */

static void tell_tallies(struct intake *intake) {
    for (size_t i = 0; i < intake->options.topic_count; i++) {
        struct intake_tally *tally = &intake->tallies[i];
        if (tally->messages > 0)
            intake->options.events.read(intake->options.events.context, i, tally->messages, tally->bytes);
        *tally = (struct intake_tally){0};
    }
}

/* A claim was refused: somebody else has the partition, or has had it. One session timeout later the group knows who. */
static void look_at_refusals(struct intake *intake) {
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        if (!atomic_exchange(&partition->is_refused, false) || partition->state != PARTITION_RUNNING)
            continue;
        log_write(intake->options.log, LOG_WARNING, "claim refused, partition paused", "topic", partition->topic,
                  "partition", LOG_N(partition->number), NULL);
        intake_stop_fetching(intake, partition);
        intake_retake_later(intake, partition, intake->options.session_timeout_ms);
    }
}

static void retake_all_if_due(struct intake *intake) {
    if (!atomic_exchange(&intake->is_retake_due, false))
        return;
    log_write(intake->options.log, LOG_WARNING, "another server: partitions are taken anew", NULL);
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        if (partition->state != PARTITION_RUNNING)
            continue;
        intake_stop_fetching(intake, partition);
        partition_invalidate(partition);
        atomic_store(&partition->committed, PARTITION_NEVER);
        intake_retake_later(intake, partition, 0);
    }
}

static void probe_kafka(struct intake *intake) {
    if (!intake->is_kafka_failing || intake_now_ms() < intake->probe_at_ms)
        return;
    int32_t count;
    struct error error = {0};
    intake->probe_at_ms = intake_now_ms() + PROBE_MS;
    if (kafka_consumer_partition_count(intake->consumer, intake->options.topics[0].name, 1000, &count, &error))
        note_kafka_works(intake);
}

static int ms_until_timer(const struct intake *intake) {
    int64_t now = intake_now_ms(), wait_ms = POLL_MS;
    for (size_t i = 0; i < intake->partition_count; i++) {
        const struct partition *partition = intake->partitions[i];
        if (partition->state == PARTITION_PENDING && partition->take_at_ms - now < wait_ms)
            wait_ms = partition->take_at_ms - now;
    }
    return wait_ms > 0 ? (int)wait_ms : 0;
}

static bool turn(struct intake *intake, struct error *error) {
    intake->options.events.beat(intake->options.events.context);
    look_at_refusals(intake);
    retake_all_if_due(intake);
    if (!intake_take_pending(intake, error))
        return false;
    resume_lanes(intake);
    if (intake_now_ms() >= intake->publish_at_ms)
        intake_publish_offsets(intake);
    probe_kafka(intake);
    if (intake->has_changed)
        intake_tell_partitions(intake);
    bool is_good = read_some(intake, ms_until_timer(intake), error);
    tell_tallies(intake);
    return is_good;
}

static bool is_away_too_long(struct intake *intake) {
    int64_t since_ms = intake->options.away_since_ms(intake->options.away_context);
    return since_ms != 0 && intake_now_ms() - since_ms > intake->options.database_grace_ms;
}

static void wait_ms(int64_t ms) {
    const struct timespec span = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL);
}

/* Cut off from PostgreSQL alone: others may do the work meanwhile. */
static bool stay_away(struct intake *intake, struct error *error) {
    log_write(intake->options.log, LOG_WARNING, "leaving the group: the database is away", NULL);
    intake_leave(intake);
    intake_close_db(intake);
    while (!atomic_load(&intake->is_stopping) && intake->options.away_since_ms(intake->options.away_context) != 0) {
        intake->options.events.beat(intake->options.events.context);
        wait_ms(AWAY_POLL_MS);
    }
    if (atomic_load(&intake->is_stopping))
        return true;
    log_write(intake->options.log, LOG_INFO, "joining the group again", NULL);
    return intake_join(intake, error);
}

static bool are_lanes_idle(struct intake *intake) {
    for (size_t i = 0; i < intake->options.lane_count; i++)
        if (!lane_is_idle(intake->options.lanes[i]))
            return false;
    return true;
}

/* Reads nothing more, but stays in the group and serves it while the lanes finish. */
static void drain(struct intake *intake) {
    int64_t deadline_ms = intake_now_ms() + atomic_load(&intake->drain_ms);
    struct error ignored = {0};
    if (CRASH_POINT("shutdown.drain") || intake->consumer == NULL || !kafka_consumer_pause(intake->consumer, NULL, 0, &ignored))
        return;
    while (!are_lanes_idle(intake) && intake_now_ms() < deadline_ms) {
        struct message message;
        intake->options.events.beat(intake->options.events.context);
        kafka_consumer_poll(intake->consumer, 5, &message, &ignored);
    }
    if (!are_lanes_idle(intake))
        log_write(intake->options.log, LOG_WARNING, "not everything that was read is applied: it will be read again", NULL);
}

static void *intake_main(void *argument) {
    struct intake *intake = argument;
    struct error error = {0};
    bool is_good = intake_join(intake, &error);
    while (is_good && !atomic_load(&intake->is_stopping))
        is_good = is_away_too_long(intake) ? stay_away(intake, &error) : turn(intake, &error);
    if (!is_good)
        intake->options.events.failed(intake->options.events.context, &error);
    drain(intake);
    intake_leave(intake);
    intake_close_db(intake);
    return NULL;
}

/* ---- life ---- */

struct intake *intake_new(const struct intake_options *options) {
    struct intake *intake = memory_alloc(sizeof *intake);
    intake->options = *options;
    intake->tallies = memory_alloc_array(options->topic_count, sizeof *intake->tallies);
    atomic_init(&intake->is_stopping, false);
    atomic_init(&intake->is_retake_due, false);
    atomic_init(&intake->drain_ms, 0);
    pthread_mutex_init(&intake->consumer_mutex, NULL);
    backoff_init(&intake->backoff, RETRY_BASE_MS, RETRY_MAXIMUM_MS, (uint64_t)clock_monotonic_us());
    int failed = pthread_create(&intake->thread, NULL, intake_main, intake);
    if (failed == 0)
        pthread_setname_np(intake->thread, "intake");
    memory_or_exit(failed != 0 ? NULL : intake);
    return intake;
}

void intake_stop(struct intake *intake, int drain_ms) {
    if (intake == NULL || atomic_load(&intake->is_stopping))
        return;
    atomic_store(&intake->drain_ms, drain_ms);
    atomic_store(&intake->is_stopping, true);
    intake_wake(intake);
    pthread_join(intake->thread, NULL);
}

void intake_free(struct intake *intake) {
    if (intake == NULL)
        return;
    intake_stop(intake, 0);
    kafka_reader_free(intake->reader);
    for (size_t i = 0; i < intake->partition_count; i++)
        partition_free(intake->partitions[i]);
    free(intake->partitions);
    free(intake->tallies);
    pthread_mutex_destroy(&intake->consumer_mutex);
    free(intake);
}
