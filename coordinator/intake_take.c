/* How the intake takes partitions: their epoch and offset from the database, then a look at the log whether it is still the
 * one that was read. See intake.h. */
#include "coordinator/intake_private.h"

#include "common/buf.h"
#include "common/crash.h"
#include "common/db.h"
#include "common/kafka_reader.h"

#include <stdlib.h>
#include <string.h>

enum {
    BROKER_MS = 3000,        /* bound of one question to the broker; several fit between two polls that must not be missed */
    FINGERPRINT_MS = 5000,
    TAKE_AGAIN_MS = 500,     /* a partition that its broker does not know, yet or any more */
    CAUTION_TAKES = 3,       /* that many takings without progress: something may kill its reader */
};

/* ---- the database ---- */

void intake_close_db(struct intake *intake) {
    if (intake->db != NULL)
        intake->db_lost_at_ms = intake_now_ms();
    db_free(intake->db);
    intake->db = NULL;
}

static bool open_db(struct intake *intake, struct error *error) {
    if (db_is_usable(intake->db))
        return true;
    intake_close_db(intake);
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
    partition->compared_at = -1;
    atomic_store(&partition->is_refused, false);
    partition->epoch = db_int8(rows, 0, 0);
    evidence->next_offset = db_is_null(rows, 0, 1) ? PARTITION_NEVER : db_int8(rows, 0, 1);
    evidence->last_offset = db_is_null(rows, 0, 2) ? -1 : db_int8(rows, 0, 2);
    evidence->last_timestamp = db_int8(rows, 0, 3);
    evidence->last_checksum = db_int8(rows, 0, 4);
    *ret_idle_takes = (int)db_int8(rows, 0, 5);
    evidence->partitions_known = (int32_t)db_int8(rows, 0, 6);
    db_result_free(rows);
    if (CRASH_POINT("assign.offset_read"))
        return error_set(error, ERROR_RETRY, "crash_point", "assign.offset_read");
    return true;
}

/* ---- the log ---- */

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
            intake_halt(intake, partition, why);
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

/* Whether the round may go on, without this partition. */
static bool skip_for_answer(struct intake *intake, struct partition *partition, const struct error *error) {
    switch (partition_judge_answer(error)) {
    case PARTITION_ANSWER_OTHER:
        return false;
    case PARTITION_ANSWER_LATER:
        intake_retake_later(intake, partition, TAKE_AGAIN_MS);
        intake->options.events.retries(intake->options.events.context, error);
        break;
    case PARTITION_ANSWER_HALT:
        intake_halt(intake, partition, error);
        break;
    }
    return true;
}

/* Takes one partition and looks at its place. False when the round must stop here (broker or database away). */
static bool take_one(struct intake *intake, struct partition *partition, struct round *round, struct error *error) {
    struct partition_evidence evidence = {0};
    int idle_takes = 0;
    if (!count_partitions(intake, partition->topic, round, error))
        return skip_for_answer(intake, partition, error);
    evidence.partitions_now = round->counted_partitions;
    if (!take_in_database(intake, partition, &evidence, &idle_takes, error))
        return false;
    if (!kafka_consumer_watermarks(intake->consumer, partition->topic, partition->number, BROKER_MS, &evidence.low,
                                   &evidence.high, error))
        return skip_for_answer(intake, partition, error);
    partition->takes_failed = 0;
    partition->handed = evidence.next_offset;
    struct error why = {0};
    size_t at = round->count;
    if (!partition_judge_place(&evidence, &round->starts[at], &round->compares[at], &why)) {
        /* Keys may have moved between all partitions of the topic, not only to this one. */
        if (strcmp(why.code, "partition_count_changed") == 0)
            halt_topic(intake, partition->topic, &why);
        else
            intake_halt(intake, partition, &why);
        return true;
    }
    partition->cautious_until = INT64_MIN;
    if (idle_takes >= CAUTION_TAKES) {
        int64_t window = round->starts[at] + intake->options.caution_messages;
        partition->cautious_until = window < evidence.high ? window : evidence.high;
        round->cautious += partition->cautious_until > round->starts[at];
    }
    intake_set_state(intake, partition, PARTITION_CHECKED);
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
            places[(*ret_wanted)++] = intake_place_of(round->partitions[i], round->evidence[i].last_offset);
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
    int64_t deadline_ms = intake_now_ms() + FINGERPRINT_MS;
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
                round->partitions[at]->compared_at = message.broker;
                evidence->record_offset = message.offset;
                evidence->record_timestamp = message.timestamp_ms;
                evidence->record_checksum = partition_checksum(&message);
            }
            if (read == KAFKA_READ_PARTITION_ERROR)
                is_good = skip_for_answer(intake, round->partitions[at], error);
        }
        if (is_good && seen < wanted && intake_now_ms() > deadline_ms)
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
            intake_halt(intake, partition, &why);
            continue;
        }
        places[count++] = intake_place_of(partition, round->starts[i]);
        intake_set_state(intake, partition, PARTITION_RUNNING);
    }
    if (round->cautious > 0)
        log_write(intake->options.log, LOG_WARNING, "reading with caution: takings without progress, something may kill us",
                  "partitions", LOG_N(round->cautious), NULL);
    bool is_good = CRASH_POINT("assign.fingerprint_checked")
                       ? error_set(error, ERROR_RETRY, "crash_point", "assign.fingerprint_checked")
                       : count == 0 || kafka_consumer_start(intake->consumer, places, count, error);
    free(places);
    return is_good;
}

static bool take_round(struct intake *intake, struct round *round, struct error *error) {
    if (!open_db(intake, error))
        return false;
    int64_t now = intake_now_ms();
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
        if (partition->state == PARTITION_PENDING && partition->take_at_ms <= intake_now_ms())
            partition->take_at_ms = intake_now_ms() + wait_ms;
    }
    for (size_t i = 0; i < round->count; i++)
        if (round->partitions[i]->state == PARTITION_CHECKED || round->partitions[i]->state == PARTITION_RUNNING)
            intake_retake_later(intake, round->partitions[i], wait_ms);
    if (!db_is_usable(intake->db) || strcmp(error->code, "LE001") == 0)
        intake_close_db(intake);
    intake->options.events.retries(intake->options.events.context, error);
}

/* False when going on would be wrong. */
bool intake_take_pending(struct intake *intake, struct error *error) {
    if (!is_take_due(intake, intake_now_ms()))
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
