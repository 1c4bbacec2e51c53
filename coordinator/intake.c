/* A thread that reads the input topics; see intake.h. Its parts in the order of a partition's life: assigned, taken in the
 * database, checked against the log, read, given back. */
#include "coordinator/intake.h"

#include "common/backoff.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"
#include "common/db.h"
#include "common/kafka_consumer.h"
#include "common/kafka_reader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    POLL_MS = 100,           /* longest turn of the loop: timers are this exact */
    MESSAGES_A_TURN = 512,   /* so that timers are looked at under full load too */
    PUBLISH_MS = 1000,       /* how often the group is told the offsets, which only lag tools read */
    BROKER_MS = 3000,        /* bound of one question to the broker; several fit between two polls that must not be missed */
    FINGERPRINT_MS = 5000,
    PROBE_MS = 2000,         /* after an error of the brokers, how often we ask whether they are back */
    CLOSE_MS = 3000,
    ERROR_RETAKE_MS = 1000,  /* after an error of one partition */
    RETRY_BASE_MS = 50,
    RETRY_MAXIMUM_MS = 3000,
    CAUTION_TAKES = 3,       /* that many takings without progress: something may kill its reader */
    AWAY_POLL_MS = 100,
};

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
    _Atomic int drain_ms;
    pthread_mutex_t consumer_mutex; /* intake_wake against replacing the consumer */
    pthread_t thread;
};

static int64_t now_ms(void) {
    return clock_monotonic_us() / 1000;
}

/* ---- finding partitions ---- */

static size_t topic_index(const struct intake *intake, const char *topic) {
    for (size_t i = 0; i < intake->options.topic_count; i++)
        if (strcmp(intake->options.topics[i].name, topic) == 0)
            return i;
    return SIZE_MAX;
}

static struct partition *find_partition(const struct intake *intake, const char *topic, int32_t number) {
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        if (partition->number == number && strcmp(partition->topic, topic) == 0)
            return partition;
    }
    return NULL;
}

static struct lane *lane_of(const struct intake *intake, const char *topic, int32_t number) {
    const struct intake_topic *row = &intake->options.topics[topic_index(intake, topic)];
    return intake->options.lanes[row->lane_first + (size_t)number % row->lane_count];
}

static struct partition *find_or_add_partition(struct intake *intake, const char *topic, int32_t number) {
    struct partition *partition = find_partition(intake, topic, number);
    if (partition != NULL)
        return partition;
    if (intake->partition_count == intake->partition_capacity) {
        intake->partition_capacity = intake->partition_capacity > 0 ? 2 * intake->partition_capacity : 64;
        intake->partitions = memory_resize(intake->partitions, intake->partition_capacity, sizeof *intake->partitions);
    }
    partition = partition_new(topic, number, lane_of(intake, topic, number));
    intake->partitions[intake->partition_count++] = partition;
    return partition;
}

static struct kafka_partition place_of(const struct partition *partition, int64_t offset) {
    return (struct kafka_partition){.topic = partition->topic, .partition = partition->number, .offset = offset};
}

/* ---- states ---- */

static void set_state(struct intake *intake, struct partition *partition, enum partition_state state) {
    partition->state = state;
    partition->is_paused = false;
    intake->has_changed = true;
}

static void stop_fetching(struct intake *intake, struct partition *partition) {
    struct error ignored = {0};
    if (!kafka_consumer_stop(intake->consumer, partition->topic, partition->number, &ignored))
        return; /* no longer assigned: the callback will say so */
}

static void halt(struct intake *intake, struct partition *partition, const struct error *why) {
    if (partition->state == PARTITION_RUNNING)
        stop_fetching(intake, partition);
    partition_invalidate(partition);
    partition->halt = *why;
    set_state(intake, partition, PARTITION_HALTED);
    log_error(intake->options.log, LOG_ERROR, "partition halted", why, "topic", partition->topic, "partition",
              LOG_N(partition->number), NULL);
}

static void retake_later(struct intake *intake, struct partition *partition, int64_t wait_ms) {
    partition->take_at_ms = now_ms() + wait_ms;
    set_state(intake, partition, PARTITION_PENDING);
}

static void tell_partitions(struct intake *intake) {
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

/* ---- the group ---- */

static void publish_offsets(struct intake *intake) {
    struct kafka_partition *places = memory_alloc_array(intake->partition_count + 1, sizeof *places);
    size_t count = 0;
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        int64_t committed = atomic_load(&partition->committed);
        if (partition->state == PARTITION_AWAY || committed == PARTITION_NEVER || committed == partition->published)
            continue;
        partition->published = committed;
        places[count++] = place_of(partition, committed);
    }
    kafka_consumer_commit(intake->consumer, places, count);
    free(places);
    intake->publish_at_ms = now_ms() + PUBLISH_MS;
}

static void on_assigned(struct intake *intake, const struct kafka_partition *places, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (topic_index(intake, places[i].topic) == SIZE_MAX)
            continue;
        struct partition *partition = find_or_add_partition(intake, places[i].topic, places[i].partition);
        partition->takes_failed = 0;
        partition->published = PARTITION_NEVER;
        atomic_store(&partition->committed, PARTITION_NEVER);
        retake_later(intake, partition, 0);
    }
    intake->options.events.joined(intake->options.events.context, true);
}

static bool uses_lane(struct intake *intake, const struct lane *lane, const struct kafka_partition *places, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct partition *partition = find_partition(intake, places[i].topic, places[i].partition);
        if (partition != NULL && partition->lane == lane)
            return true;
    }
    return false;
}

/* A transaction in flight may end: that spares its other partitions from being done twice. Its claim would be refused
 * anyway if it came too late. */
static void wait_for_lanes(struct intake *intake, const struct kafka_partition *places, size_t count) {
    int64_t deadline_ms = now_ms() + intake->options.session_timeout_ms / 4;
    for (size_t i = 0; i < intake->options.lane_count; i++) {
        int64_t left_ms = deadline_ms - now_ms();
        if (uses_lane(intake, intake->options.lanes[i], places, count))
            lane_wait_in_hand(intake->options.lanes[i], left_ms > 0 ? (int)left_ms : 0);
    }
}

static void on_taken_away(struct intake *intake, enum kafka_rebalance what, const struct kafka_partition *places,
                          size_t count) {
    CRASH_POINT("revoke.enter");
    for (size_t i = 0; i < count; i++) {
        struct partition *partition = find_partition(intake, places[i].topic, places[i].partition);
        if (partition == NULL)
            continue;
        partition_invalidate(partition);
        lane_nudge(partition->lane);
    }
    if (what == KAFKA_REVOKED) {
        wait_for_lanes(intake, places, count);
        publish_offsets(intake);
    }
    for (size_t i = 0; i < count; i++) {
        struct partition *partition = find_partition(intake, places[i].topic, places[i].partition);
        if (partition != NULL)
            set_state(intake, partition, PARTITION_AWAY);
    }
    CRASH_POINT("revoke.drained");
}

static void on_rebalance(void *context, enum kafka_rebalance what, const struct kafka_partition *places, size_t count) {
    struct intake *intake = context;
    static const char *const words[] = {[KAFKA_ASSIGNED] = "assigned", [KAFKA_REVOKED] = "revoked", [KAFKA_LOST] = "lost"};
    if (count > 0)
        log_write(intake->options.log, what == KAFKA_LOST ? LOG_WARNING : LOG_INFO, "partitions changed hands", "what",
                  words[what], "count", LOG_N(count), NULL);
    if (what == KAFKA_ASSIGNED)
        on_assigned(intake, places, count);
    else
        on_taken_away(intake, what, places, count);
}

static bool join(struct intake *intake, struct error *error) {
    const char **names = memory_alloc_array(intake->options.topic_count, sizeof *names);
    for (size_t i = 0; i < intake->options.topic_count; i++)
        names[i] = intake->options.topics[i].name;
    const struct kafka_consumer_options options = {
        .settings = intake->options.kafka,
        .group = intake->options.group,
        .topics = names,
        .topic_count = intake->options.topic_count,
        .session_timeout_ms = intake->options.session_timeout_ms,
        .rebalance = on_rebalance,
        .context = intake,
    };
    struct kafka_consumer *consumer = NULL;
    bool has_joined = kafka_consumer_new(&options, &consumer, error);
    free(names);
    pthread_mutex_lock(&intake->consumer_mutex);
    intake->consumer = consumer;
    pthread_mutex_unlock(&intake->consumer_mutex);
    return has_joined;
}

static void leave(struct intake *intake) {
    if (intake->consumer == NULL)
        return;
    publish_offsets(intake);
    kafka_consumer_close(intake->consumer, CLOSE_MS); /* the callback gives all partitions back */
    for (size_t i = 0; i < intake->partition_count; i++) {
        partition_invalidate(intake->partitions[i]);
        set_state(intake, intake->partitions[i], PARTITION_AWAY);
    }
    pthread_mutex_lock(&intake->consumer_mutex);
    struct kafka_consumer *consumer = intake->consumer;
    intake->consumer = NULL;
    pthread_mutex_unlock(&intake->consumer_mutex);
    kafka_consumer_free(consumer);
    intake->options.events.joined(intake->options.events.context, false);
    tell_partitions(intake);
}

void intake_wake(struct intake *intake) {
    pthread_mutex_lock(&intake->consumer_mutex);
    if (intake->consumer != NULL)
        kafka_consumer_wake(intake->consumer);
    pthread_mutex_unlock(&intake->consumer_mutex);
}

/* ---- taking: the database ---- */

static void close_db(struct intake *intake) {
    if (intake->db != NULL)
        intake->db_lost_at_ms = now_ms();
    db_free(intake->db);
    intake->db = NULL;
}

static bool open_db(struct intake *intake, struct error *error) {
    if (db_is_usable(intake->db))
        return true;
    close_db(intake);
    const struct db_options options = {
        .conninfo = intake->options.database,
        .application_name = intake->options.application_name,
        .connect_ms = 2000,
        .deadline_ms = 5000, /* polls must go on */
        .statement_timeout_ms = 4000,
        .lock_timeout_ms = 3000, /* whoever had the partition may have a batch in flight */
        .idle_in_transaction_ms = intake->options.session_timeout_ms / 2,
    };
    if (!db_connect(&options, &intake->db, error))
        return false;
    if (intake->options.admit(intake->options.admit_context, intake->db, intake->db_lost_at_ms, error))
        return true;
    db_free(intake->db);
    intake->db = NULL;
    return false;
}

static const char take_sql[] = "SELECT epoch, next_offset, last_offset, last_timestamp, last_checksum, idle_takes,"
                               " known_partitions FROM lease.take_partition($1, $2, $3, $4)";

static bool take_in_database(struct intake *intake, struct partition *partition, struct partition_evidence *evidence,
                             int *ret_idle_takes, struct error *error) {
    struct db_params params;
    struct db_result *rows = NULL;
    db_params_init(&params);
    db_param_text(&params, partition->topic);
    db_param_int4(&params, partition->number);
    db_param_int4(&params, evidence->partitions_now);
    db_param_text(&params, intake->options.owner);
    bool is_good = db_query(intake->db, "take_partition", take_sql, &params, &rows, error);
    db_params_release(&params);
    if (!is_good)
        return false;
    /* From here on whatever was read before is refused: it must not be handed to a lane any more either. */
    partition_invalidate(partition);
    partition->taken = atomic_load(&partition->generation);
    atomic_store(&partition->is_refused, false);
    partition->epoch = db_int8(rows, 0, 0);
    evidence->next_offset = db_is_null(rows, 0, 1) ? PARTITION_NEVER : db_int8(rows, 0, 1);
    evidence->last_offset = db_is_null(rows, 0, 2) ? -1 : db_int8(rows, 0, 2);
    evidence->last_timestamp = db_int8(rows, 0, 3);
    evidence->last_checksum = db_int8(rows, 0, 4);
    *ret_idle_takes = (int)db_int8(rows, 0, 5);
    evidence->partitions_known = (int32_t)db_int8(rows, 0, 6);
    db_result_free(rows);
    CRASH_POINT("assign.offset_read");
    return true;
}

/* ---- taking: the log ---- */

/* Partitions that were taken in one round, with what is known of each. */
struct round {
    struct partition **partitions;
    struct partition_evidence *evidence;
    int64_t *starts;
    bool *compares;
    size_t count;
    size_t cautious; /* how many of them are read with caution */
    const char *counted_topic; /* of the last answer of the broker to how many partitions there are */
    int32_t counted_partitions;
};

static void round_init(struct round *round, size_t capacity) {
    round->partitions = memory_alloc_array(capacity + 1, sizeof *round->partitions);
    round->evidence = memory_alloc_array(capacity + 1, sizeof *round->evidence);
    round->starts = memory_alloc_array(capacity + 1, sizeof *round->starts);
    round->compares = memory_alloc_array(capacity + 1, sizeof *round->compares);
    round->count = round->cautious = 0;
    round->counted_topic = NULL;
}

static void round_release(struct round *round) {
    free(round->partitions);
    free(round->evidence);
    free(round->starts);
    free(round->compares);
}

static void halt_topic(struct intake *intake, const char *topic, const struct error *why) {
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        bool is_read = partition->state == PARTITION_RUNNING || partition->state == PARTITION_CHECKED ||
                       partition->state == PARTITION_PENDING;
        if (is_read && strcmp(partition->topic, topic) == 0)
            halt(intake, partition, why);
    }
}

/* Asks once per topic: partitions come in the order of their topics. */
static bool count_partitions(struct intake *intake, const char *topic, struct round *round, struct error *error) {
    if (round->counted_topic != NULL && strcmp(round->counted_topic, topic) == 0)
        return true;
    if (!kafka_consumer_partition_count(intake->consumer, topic, BROKER_MS, &round->counted_partitions, error))
        return false;
    round->counted_topic = topic;
    return true;
}

/* Takes one partition and looks at its place. False when the round must stop here (broker or database away). */
static bool take_one(struct intake *intake, struct partition *partition, struct round *round, struct error *error) {
    struct partition_evidence evidence = {0};
    int idle_takes = 0;
    if (!count_partitions(intake, partition->topic, round, error))
        return false;
    evidence.partitions_now = round->counted_partitions;
    if (!take_in_database(intake, partition, &evidence, &idle_takes, error) ||
        !kafka_consumer_watermarks(intake->consumer, partition->topic, partition->number, BROKER_MS, &evidence.low,
                                   &evidence.high, error))
        return false;
    partition->takes_failed = 0;
    partition->handed = evidence.next_offset;
    struct error why = {0};
    size_t at = round->count;
    if (!partition_judge_place(&evidence, &round->starts[at], &round->compares[at], &why)) {
        /* Keys may have moved between all partitions of the topic, not only to this one. */
        if (strcmp(why.code, "partition_count_changed") == 0)
            halt_topic(intake, partition->topic, &why);
        else
            halt(intake, partition, &why);
        return true;
    }
    partition->cautious_until = INT64_MIN;
    if (idle_takes >= CAUTION_TAKES) {
        int64_t window = round->starts[at] + intake->options.caution_messages;
        partition->cautious_until = window < evidence.high ? window : evidence.high;
        round->cautious += partition->cautious_until > round->starts[at];
    }
    set_state(intake, partition, PARTITION_CHECKED);
    round->partitions[at] = partition;
    round->evidence[at] = evidence;
    round->count++;
    return true;
}

static bool assign_reader(struct intake *intake, const struct round *round, size_t *ret_wanted, struct error *error) {
    struct kafka_partition *places = memory_alloc_array(round->count + 1, sizeof *places);
    *ret_wanted = 0;
    for (size_t i = 0; i < round->count; i++)
        if (round->compares[i])
            places[(*ret_wanted)++] = place_of(round->partitions[i], round->evidence[i].last_offset);
    const struct kafka_reader_options options = {
        .settings = intake->options.kafka, .group = intake->options.group, .queue_kbytes = 1024};
    bool is_good = *ret_wanted == 0 ||
                   ((intake->reader != NULL || kafka_reader_new(&options, &intake->reader, error)) &&
                    kafka_reader_assign(intake->reader, places, *ret_wanted, error));
    free(places);
    return is_good;
}

static size_t round_index(const struct round *round, const struct message *message) {
    for (size_t i = 0; i < round->count; i++)
        if (round->partitions[i]->number == message->partition &&
            strcmp(round->partitions[i]->topic, message->topic) == 0)
            return i;
    return SIZE_MAX;
}

/* The first record at or after each stored one's place. */
static bool read_records(struct intake *intake, struct round *round, struct error *error) {
    size_t wanted, seen = 0;
    bool *is_seen = memory_alloc_array(round->count + 1, sizeof *is_seen);
    bool is_good = assign_reader(intake, round, &wanted, error);
    int64_t deadline_ms = now_ms() + FINGERPRINT_MS;
    while (is_good && seen < wanted) {
        struct message message;
        enum kafka_read read = kafka_reader_poll(intake->reader, 100, &message, error);
        size_t at = read == KAFKA_READ_MESSAGE || read == KAFKA_READ_END || read == KAFKA_READ_PARTITION_ERROR
                        ? round_index(round, &message)
                        : SIZE_MAX;
        if (at != SIZE_MAX && !is_seen[at]) {
            is_seen[at] = true;
            seen++;
            struct partition_evidence *evidence = &round->evidence[at];
            evidence->has_record = read == KAFKA_READ_MESSAGE;
            if (evidence->has_record) {
                evidence->record_offset = message.offset;
                evidence->record_timestamp = message.timestamp_ms;
                evidence->record_checksum = partition_checksum(&message);
            }
            if (read == KAFKA_READ_PARTITION_ERROR)
                is_good = false;
        }
        if (is_good && seen < wanted && now_ms() > deadline_ms)
            is_good = error_set(error, ERROR_RETRY, "kafka_timeout", "records to compare did not arrive");
    }
    free(is_seen);
    struct error ignored = {0};
    if (intake->reader != NULL && !kafka_reader_assign(intake->reader, NULL, 0, &ignored)) {
        kafka_reader_free(intake->reader); /* the next round makes a new one */
        intake->reader = NULL;
    }
    return is_good;
}

static bool start_round(struct intake *intake, struct round *round, struct error *error) {
    struct kafka_partition *places = memory_alloc_array(round->count + 1, sizeof *places);
    size_t count = 0;
    for (size_t i = 0; i < round->count; i++) {
        struct partition *partition = round->partitions[i];
        struct error why = {0};
        if (partition->state != PARTITION_CHECKED)
            continue;
        if (round->compares[i] && !partition_judge_record(&round->evidence[i], &why)) {
            halt(intake, partition, &why);
            continue;
        }
        places[count++] = place_of(partition, round->starts[i]);
        set_state(intake, partition, PARTITION_RUNNING);
    }
    if (round->cautious > 0)
        log_write(intake->options.log, LOG_WARNING, "reading with caution: takings without progress, something may kill us",
                  "partitions", LOG_N(round->cautious), NULL);
    CRASH_POINT("assign.fingerprint_checked");
    bool is_good = count == 0 || kafka_consumer_start(intake->consumer, places, count, error);
    free(places);
    return is_good;
}

static bool take_round(struct intake *intake, struct round *round, struct error *error) {
    if (!open_db(intake, error))
        return false;
    int64_t now = now_ms();
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        if (partition->state == PARTITION_PENDING && partition->take_at_ms <= now &&
            !take_one(intake, partition, round, error))
            return false;
    }
    return read_records(intake, round, error) && start_round(intake, round, error);
}

static bool is_take_due(const struct intake *intake, int64_t now) {
    for (size_t i = 0; i < intake->partition_count; i++)
        if (intake->partitions[i]->state == PARTITION_PENDING && intake->partitions[i]->take_at_ms <= now)
            return true;
    return false;
}

/* What did not work out is tried again later, all of it: a taking costs little and bumps the epoch. */
static void postpone_takes(struct intake *intake, const struct round *round, const struct error *error) {
    int64_t wait_ms = backoff_next_ms(&intake->backoff);
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        if (partition->state == PARTITION_PENDING && partition->take_at_ms <= now_ms())
            partition->take_at_ms = now_ms() + wait_ms;
    }
    for (size_t i = 0; i < round->count; i++)
        if (round->partitions[i]->state == PARTITION_CHECKED || round->partitions[i]->state == PARTITION_RUNNING)
            retake_later(intake, round->partitions[i], wait_ms);
    if (!db_is_usable(intake->db) || strcmp(error->code, "LE001") == 0)
        close_db(intake);
    intake->options.events.retries(intake->options.events.context, error);
}

/* False when going on would be wrong. */
static bool take_pending(struct intake *intake, struct error *error) {
    if (!is_take_due(intake, now_ms()))
        return true;
    struct round round;
    round_init(&round, intake->partition_count);
    bool is_good = take_round(intake, &round, error);
    if (is_good)
        backoff_reset(&intake->backoff);
    else if (error->kind != ERROR_FATAL)
        postpone_takes(intake, &round, error);
    round_release(&round);
    return is_good || error->kind != ERROR_FATAL;
}

/* ---- reading ---- */

static void pause_lane(struct intake *intake, const struct lane *lane, bool is_paused) {
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        if (partition->lane != lane || partition->state != PARTITION_RUNNING || partition->is_paused == is_paused)
            continue;
        struct error ignored = {0};
        const struct kafka_partition place = place_of(partition, 0);
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

static void hand_over(struct intake *intake, const struct message *message) {
    struct partition *partition = find_partition(intake, message->topic, message->partition);
    if (partition == NULL || partition->state != PARTITION_RUNNING || !partition_is_current(partition, partition->taken))
        return;
    /* The client never decides where we are: what was handed already is not handed again (F12). */
    if (partition->handed != PARTITION_NEVER && message->offset < partition->handed)
        return;
    struct intake_tally *tally = &intake->tallies[topic_index(intake, message->topic)];
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
    struct partition *partition = find_partition(intake, message->topic, message->partition);
    if (partition == NULL || partition->state != PARTITION_RUNNING)
        return;
    log_error(intake->options.log, LOG_WARNING, "partition cannot be read", error, "topic", partition->topic, "partition",
              LOG_N(partition->number), NULL);
    if (error->kind == ERROR_FATAL && strcmp(error->code, "kafka_offset_out_of_range") != 0) {
        halt(intake, partition, error);
        return;
    }
    /* Taking it anew compares it with the log, and finds out whether it must halt. */
    stop_fetching(intake, partition);
    partition_invalidate(partition);
    retake_later(intake, partition, ERROR_RETAKE_MS);
}

static void note_kafka_error(struct intake *intake, const struct error *error) {
    intake->is_kafka_failing = true;
    intake->probe_at_ms = now_ms() + PROBE_MS;
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
            if (error->kind == ERROR_FATAL)
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
        stop_fetching(intake, partition);
        retake_later(intake, partition, intake->options.session_timeout_ms);
    }
}

static void probe_kafka(struct intake *intake) {
    if (!intake->is_kafka_failing || now_ms() < intake->probe_at_ms)
        return;
    int32_t count;
    struct error error = {0};
    intake->probe_at_ms = now_ms() + PROBE_MS;
    if (kafka_consumer_partition_count(intake->consumer, intake->options.topics[0].name, 1000, &count, &error))
        note_kafka_works(intake);
}

static int ms_until_timer(const struct intake *intake) {
    int64_t now = now_ms(), wait_ms = POLL_MS;
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
    if (!take_pending(intake, error))
        return false;
    resume_lanes(intake);
    if (now_ms() >= intake->publish_at_ms)
        publish_offsets(intake);
    probe_kafka(intake);
    if (intake->has_changed)
        tell_partitions(intake);
    bool is_good = read_some(intake, ms_until_timer(intake), error);
    tell_tallies(intake);
    return is_good;
}

static bool is_away_too_long(struct intake *intake) {
    int64_t since_ms = intake->options.away_since_ms(intake->options.away_context);
    return since_ms != 0 && now_ms() - since_ms > intake->options.database_grace_ms;
}

static void wait_ms(int64_t ms) {
    const struct timespec span = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL);
}

/* Cut off from PostgreSQL alone: others may do the work meanwhile. */
static bool stay_away(struct intake *intake, struct error *error) {
    log_write(intake->options.log, LOG_WARNING, "leaving the group: the database is away", NULL);
    leave(intake);
    close_db(intake);
    while (!atomic_load(&intake->is_stopping) && intake->options.away_since_ms(intake->options.away_context) != 0) {
        intake->options.events.beat(intake->options.events.context);
        wait_ms(AWAY_POLL_MS);
    }
    if (atomic_load(&intake->is_stopping))
        return true;
    log_write(intake->options.log, LOG_INFO, "joining the group again", NULL);
    return join(intake, error);
}

static bool are_lanes_idle(struct intake *intake) {
    for (size_t i = 0; i < intake->options.lane_count; i++)
        if (!lane_is_idle(intake->options.lanes[i]))
            return false;
    return true;
}

/* Reads nothing more, but stays in the group and serves it while the lanes finish. */
static void drain(struct intake *intake) {
    int64_t deadline_ms = now_ms() + atomic_load(&intake->drain_ms);
    struct error ignored = {0};
    CRASH_POINT("shutdown.drain");
    if (intake->consumer == NULL || !kafka_consumer_pause(intake->consumer, NULL, 0, &ignored))
        return;
    while (!are_lanes_idle(intake) && now_ms() < deadline_ms) {
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
    bool is_good = join(intake, &error);
    while (is_good && !atomic_load(&intake->is_stopping))
        is_good = is_away_too_long(intake) ? stay_away(intake, &error) : turn(intake, &error);
    if (!is_good)
        intake->options.events.failed(intake->options.events.context, &error);
    drain(intake);
    leave(intake);
    close_db(intake);
    return NULL;
}

/* ---- life ---- */

struct intake *intake_new(const struct intake_options *options) {
    struct intake *intake = memory_alloc(sizeof *intake);
    intake->options = *options;
    intake->tallies = memory_alloc_array(options->topic_count, sizeof *intake->tallies);
    atomic_init(&intake->is_stopping, false);
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
