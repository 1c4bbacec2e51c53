/* What the parts of a coordinator tell it, and what follows from it: metrics, readiness, who is woken. Each runs in the thread
 * of the part that tells. See coordinator.h. */
#include "coordinator/coordinator_private.h"

#include "common/clock.h"

#include <string.h>

/* ---- is the database there? ---- */

static bool is_of_database(const struct error *error) {
    return strncmp(error->code, "kafka", 5) != 0 && strncmp(error->code, "witness", 7) != 0 &&
           strcmp(error->code, "crash_point") != 0 && strncmp(error->code, "40", 2) != 0 &&
           strcmp(error->code, "55P03") != 0;
}

enum { BIT_REAPER = 0, LANE_BITS = 63 };

static int bit_of_lane(const struct coordinator *coordinator, const struct lane *lane) {
    for (size_t i = 0; i < coordinator->lane_count; i++)
        if (coordinator->lane_pointers[i] == lane)
            return 1 + (int)(i % LANE_BITS);
    return 1;
}

/* It works when all say so who have found that it does not: the reaper's looks succeed on a server that refuses to write. */
static void note_database_works(struct coordinator *coordinator, int bit) {
    uint64_t mask = ~(UINT64_C(1) << bit);
    if ((atomic_fetch_and(&coordinator->in_trouble, mask) & mask) != 0)
        return;
    if (atomic_exchange(&coordinator->away_since_ms, 0) != 0)
        log_write(&coordinator->log, LOG_INFO, "the database answers again", NULL);
    status_meet(coordinator->status, STATUS_DATABASE);
}

static void note_retry(struct coordinator *coordinator, const char *what, int bit, const struct error *error) {
    counts_add_of(coordinator->counts, COUNT_RETRIES, what, 1);
    /* Two lanes that met are nothing to look after. */
    bool is_conflict = strncmp(error->code, "40", 2) == 0 || strcmp(error->code, "55P03") == 0;
    log_error(&coordinator->log, is_conflict ? LOG_INFO : LOG_WARNING, "trying again", error, "what", what, NULL);
    if (!is_of_database(error))
        return;
    atomic_fetch_or(&coordinator->in_trouble, UINT64_C(1) << bit);
    int64_t never = 0;
    atomic_compare_exchange_strong(&coordinator->away_since_ms, &never, clock_monotonic_us() / 1000);
    status_miss(coordinator->status, STATUS_DATABASE, "%s: %s", what, error->message);
}

int64_t coordinator_away_since_ms(void *context) {
    struct coordinator *coordinator = context;
    return atomic_load(&coordinator->away_since_ms);
}

/* ---- what the parts tell ---- */

static void on_committed(void *context, struct lane *lane, const struct lane_commit *commit) {
    struct coordinator *coordinator = context;
    if (atomic_load(&coordinator->has_relay))
        relay_wake(coordinator->relay);
    if (commit->answer->earliest_expiry_us != INT64_MAX && atomic_load(&coordinator->has_reaper))
        reaper_note(coordinator->reaper, commit->answer->earliest_expiry_us);
    counts_commit(coordinator->counts, lane_name(lane), commit);
}

static void wake_intake(struct coordinator *coordinator) {
    if (atomic_load(&coordinator->has_intake))
        intake_wake(coordinator->intake);
}

void coordinator_on_moved(void *context) {
    struct coordinator *coordinator = context;
    if (atomic_load(&coordinator->has_intake))
        intake_retake(coordinator->intake);
}

static void on_refused(void *context, struct lane *lane, const struct partition *partition) {
    struct coordinator *coordinator = context;
    (void)lane;
    (void)partition; /* the intake logs it */
    counts_add(coordinator->counts, COUNT_REFUSED, 1);
    wake_intake(coordinator);
}

static void on_lane_has_room(void *context, struct lane *lane) {
    (void)lane;
    wake_intake(context);
}

static void on_lane_retries(void *context, struct lane *lane, const struct error *error) {
    note_retry(context, lane_name(lane), bit_of_lane(context, lane), error);
}

static void on_lane_works(void *context, struct lane *lane) {
    note_database_works(context, bit_of_lane(context, lane));
}

static void on_lane_failed(void *context, struct lane *lane, const struct error *error) {
    coordinator_fail(context, lane_name(lane), error);
}

static void on_reaped(void *context, int turned, int granted, int64_t late_us) {
    struct coordinator *coordinator = context;
    counts_add(coordinator->counts, COUNT_LAPSES, turned);
    counts_add(coordinator->counts, COUNT_LATE_GRANTS, granted);
    if (turned > 0)
        counts_observe(coordinator->counts, COUNT_REAPER_LATE, late_us);
    if (atomic_load(&coordinator->has_relay))
        relay_wake(coordinator->relay);
}

static void on_guarded(void *context, int stopping, int others) {
    struct coordinator *coordinator = context;
    counts_set_of(coordinator->counts, COUNT_GUARD_FINDINGS, "true", stopping);
    counts_set_of(coordinator->counts, COUNT_GUARD_FINDINGS, "false", others);
}

static void on_reaper_looked(void *context) {
    struct coordinator *coordinator = context;
    status_beat(coordinator->reaper_pulse);
    status_meet(coordinator->status, STATUS_REAPER);
    note_database_works(coordinator, BIT_REAPER);
}

static void on_reaper_retries(void *context, const struct error *error) {
    struct coordinator *coordinator = context;
    status_beat(coordinator->reaper_pulse);
    status_miss(coordinator->status, STATUS_REAPER, "%s", error->message);
    note_retry(coordinator, "reaper", BIT_REAPER, error);
}

static void on_reaper_failed(void *context, const struct error *error) {
    coordinator_fail(context, "reaper", error);
}

static void on_intake_beat(void *context) {
    struct coordinator *coordinator = context;
    status_beat(coordinator->intake_pulse);
}

static void on_read(void *context, size_t topic, size_t messages, size_t bytes) {
    struct coordinator *coordinator = context;
    counts_add_of(coordinator->counts, COUNT_MESSAGES, coordinator->topics[topic].name, (int64_t)messages);
    counts_add_of(coordinator->counts, COUNT_BYTES, coordinator->topics[topic].name, (int64_t)bytes);
}

static void on_joined(void *context, bool is_member) {
    struct coordinator *coordinator = context;
    if (is_member)
        status_meet(coordinator->status, STATUS_KAFKA);
    else
        status_miss(coordinator->status, STATUS_KAFKA, "not a member of the group");
}

static void on_kafka_error(void *context, const struct error *error) {
    struct coordinator *coordinator = context;
    counts_add_of(coordinator->counts, COUNT_RETRIES, "kafka", 1);
    log_error(&coordinator->log, LOG_WARNING, "brokers", error, NULL);
    status_miss(coordinator->status, STATUS_KAFKA, "%s", error->message);
}

static void on_kafka_works(void *context) {
    struct coordinator *coordinator = context;
    log_write(&coordinator->log, LOG_INFO, "the brokers answer again", NULL);
    status_meet(coordinator->status, STATUS_KAFKA);
}

static void on_intake_retries(void *context, const struct error *error) {
    note_retry(context, "intake", BIT_REAPER, error);
}

static void on_partitions(void *context, size_t assigned, size_t halted, const struct partition *one_halted) {
    struct coordinator *coordinator = context;
    counts_set(coordinator->counts, COUNT_ASSIGNED, (int64_t)assigned);
    counts_set(coordinator->counts, COUNT_HALTED, (int64_t)halted);
    if (one_halted == NULL)
        status_meet(coordinator->status, STATUS_INTAKE);
    else
        status_miss(coordinator->status, STATUS_INTAKE, "%zu partitions halted, one of them %s[%d]: %s: %s", halted,
                    one_halted->topic, one_halted->number, one_halted->halt.code, one_halted->halt.message);
}

static void on_intake_failed(void *context, const struct error *error) {
    coordinator_fail(context, "intake", error);
}

void coordinator_on_relay_failed(void *context, const struct error *error) {
    coordinator_fail(context, "relay", error);
}

/* librdkafka's own lines, at syslog's levels. */
void coordinator_on_kafka_log(void *context, int level, const char *facility, const char *text) {
    struct coordinator *coordinator = context;
    log_write(&coordinator->log, level <= 3 ? LOG_WARNING : level <= 5 ? LOG_INFO : LOG_DEBUG, "librdkafka", "facility",
              facility, "text", text, NULL);
}

/* ---- the tables ---- */

struct lane_events coordinator_lane_events(struct coordinator *coordinator) {
    return (struct lane_events){.context = coordinator, .committed = on_committed, .refused = on_refused,
                                .has_room = on_lane_has_room, .retries = on_lane_retries, .works = on_lane_works,
                                .failed = on_lane_failed};
}

struct reaper_events coordinator_reaper_events(struct coordinator *coordinator) {
    return (struct reaper_events){.context = coordinator, .reaped = on_reaped, .guarded = on_guarded, .looked = on_reaper_looked,
                                  .retries = on_reaper_retries, .failed = on_reaper_failed};
}

struct intake_events coordinator_intake_events(struct coordinator *coordinator) {
    return (struct intake_events){.context = coordinator, .beat = on_intake_beat, .read = on_read, .joined = on_joined,
                                  .kafka_error = on_kafka_error, .kafka_works = on_kafka_works,
                                  .retries = on_intake_retries, .partitions = on_partitions, .failed = on_intake_failed};
}
