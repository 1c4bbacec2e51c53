/* One whole coordinator; see coordinator.h. Reads from the bottom: coordinator_run is the table of contents. */
#include "coordinator/coordinator.h"

#include "common/backoff.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/db.h"
#include "common/event.h"
#include "common/kafka_reader.h"
#include "common/log.h"
#include "common/token.h"
#include "common/topics.h"
#include "coordinator/admission.h"
#include "coordinator/counts.h"
#include "coordinator/intake.h"
#include "coordinator/lane.h"
#include "coordinator/reaper.h"
#include "coordinator/relay.h"
#include "coordinator/status.h"
#include "coordinator/store.h"
#include "coordinator/witness.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sysexits.h>
#include <unistd.h>

enum {
    START_MS = 30 * 1000,      /* how long a start waits for servers that are away: a machine that boots brings them up */
    TICK_MS = 500,             /* how often the relay is looked at for readiness */
    PULSE_MS = 60 * 1000,      /* an intake that has not turned for so long hangs: its longest wait is a third of it */
    REAPER_PULSE_MS = 300 * 1000, /* housekeeping may wait for a reader of an old partition */
    RELAY_BLOCKED_MS = 5000,   /* publishing may stand still that long before we say that we are not ready */
    BROKER_MS = 5000,
    RELAY_STOP_MS = 2000,      /* the relay gets at least this long to catch up, whatever draining took */
    LANE_DEADLINE_MS = 30 * 1000, /* of one statement or commit of a lane; beyond it the commit is in doubt */
    KINDS_MAX = 100,
    NAME_SIZE = 64,
    QUEUE_BYTES = 16 * 1024 * 1024, /* of all lanes together: within the 64 MB of the whole process */
};

struct decoder {
    struct event_limits limits;
    struct token_keys *keys;
};

struct lane_slot {
    char name[NAME_SIZE], application[NAME_SIZE + 32];
    struct store *store;
    struct lane *lane;
};

struct coordinator {
    const struct options *options;
    struct log log;
    struct clock clock;
    struct kafka_settings kafka;
    char *group;
    char application[NAME_SIZE + 64];

    struct event_kind kinds[KINDS_MAX];
    size_t kind_count;
    struct decoder decoder;
    struct intake_topic *topics;
    size_t topic_count;

    struct counts *counts;
    struct status *status;
    struct status_pulse *intake_pulse, *reaper_pulse;
    struct admission *admission;
    struct lane_slot *lanes;
    struct lane **lane_pointers;
    size_t lane_count;
    struct relay *relay;
    struct reaper *reaper;
    struct intake *intake;

    int stop_fd;
    _Atomic bool is_stopping;
    _Atomic bool has_relay, has_reaper, has_intake; /* the pointers above may be used by the lanes' events */
    _Atomic int64_t away_since_ms; /* 0 while PostgreSQL answers */
    pthread_mutex_t failure_mutex;
    struct error failure; /* the first; kind NONE while there is none */
};

/* ---- failures ---- */

int coordinator_exit_status(const struct error *error) {
    static const struct {
        const char *prefix;
        int status;
    } rows[] = {
        {"LE004", EX_DATAERR},         /* topics ahead of the database */
        {"LE006", EX_CONFIG},          /* another schema */
        {"LE008", EX_CONFIG},          /* a server unfit for this */
        {"28", EX_NOPERM},             {"42501", EX_NOPERM},
        {"3D", EX_CONFIG},             {"3F000", EX_CONFIG},
        {"42", EX_CONFIG},             /* functions are missing: not migrated */
        {"db_conninfo", EX_CONFIG},    {"db_", EX_UNAVAILABLE},
        {"08", EX_UNAVAILABLE},        {"57", EX_UNAVAILABLE},
        {"53", EX_UNAVAILABLE},        {"kafka_not_authorized", EX_NOPERM},
        {"kafka_key", EX_CONFIG},      {"kafka_value", EX_CONFIG},
        {"kafka_unknown_topic", EX_CONFIG}, {"witness_topic_missing", EX_CONFIG},
        {"topic_missing", EX_CONFIG},  {"kafka_", EX_UNAVAILABLE},
        {"witness_", EX_UNAVAILABLE},  {"token_key", EX_CONFIG},
        {"usage", EX_USAGE},           {"configuration", EX_CONFIG},
        {"secret_file", EX_CONFIG},    {"http", EX_CONFIG},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strncmp(error->code, rows[i].prefix, strlen(rows[i].prefix)) == 0)
            return rows[i].status;
    return EX_SOFTWARE;
}

static void fail(struct coordinator *coordinator, const char *what, const struct error *error) {
    log_error(&coordinator->log, LOG_ERROR, what, error, NULL);
    pthread_mutex_lock(&coordinator->failure_mutex);
    if (coordinator->failure.kind == ERROR_NONE)
        coordinator->failure = *error;
    pthread_mutex_unlock(&coordinator->failure_mutex);
    coordinator_stop(coordinator);
}

static bool has_failed(struct coordinator *coordinator, struct error *ret_failure) {
    pthread_mutex_lock(&coordinator->failure_mutex);
    *ret_failure = coordinator->failure;
    pthread_mutex_unlock(&coordinator->failure_mutex);
    return ret_failure->kind != ERROR_NONE;
}

/* ---- is the database there? ---- */

static bool is_of_database(const struct error *error) {
    return strncmp(error->code, "kafka", 5) != 0 && strncmp(error->code, "witness", 7) != 0 &&
           strcmp(error->code, "crash_point") != 0 && strncmp(error->code, "40", 2) != 0 &&
           strcmp(error->code, "55P03") != 0;
}

static void note_database_works(struct coordinator *coordinator) {
    if (atomic_exchange(&coordinator->away_since_ms, 0) != 0)
        log_write(&coordinator->log, LOG_INFO, "the database answers again", NULL);
    status_meet(coordinator->status, STATUS_DATABASE);
}

static void note_retry(struct coordinator *coordinator, const char *what, const struct error *error) {
    counts_add_of(coordinator->counts, COUNT_RETRIES, what, 1);
    /* Two lanes that met are nothing to look after. */
    bool is_conflict = strncmp(error->code, "40", 2) == 0 || strcmp(error->code, "55P03") == 0;
    log_error(&coordinator->log, is_conflict ? LOG_INFO : LOG_WARNING, "trying again", error, "what", what, NULL);
    if (!is_of_database(error))
        return;
    int64_t never = 0;
    atomic_compare_exchange_strong(&coordinator->away_since_ms, &never, clock_monotonic_us() / 1000);
    status_miss(coordinator->status, STATUS_DATABASE, "%s: %s", what, error->message);
}

static int64_t away_since_ms(void *context) {
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
    note_retry(context, lane_name(lane), error);
}

static void on_lane_works(void *context, struct lane *lane) {
    (void)lane;
    note_database_works(context);
}

static void on_lane_failed(void *context, struct lane *lane, const struct error *error) {
    fail(context, lane_name(lane), error);
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

static void on_reaper_looked(void *context) {
    struct coordinator *coordinator = context;
    status_beat(coordinator->reaper_pulse);
    status_meet(coordinator->status, STATUS_REAPER);
    note_database_works(coordinator);
}

static void on_reaper_retries(void *context, const struct error *error) {
    struct coordinator *coordinator = context;
    status_beat(coordinator->reaper_pulse);
    status_miss(coordinator->status, STATUS_REAPER, "%s", error->message);
    note_retry(coordinator, "reaper", error);
}

static void on_reaper_failed(void *context, const struct error *error) {
    fail(context, "reaper", error);
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
    note_retry(context, "intake", error);
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
    fail(context, "intake", error);
}

static void on_relay_failed(void *context, const struct error *error) {
    fail(context, "relay", error);
}

/* librdkafka's own lines, at syslog's levels. */
static void on_kafka_log(void *context, int level, const char *facility, const char *text) {
    struct coordinator *coordinator = context;
    log_write(&coordinator->log, level <= 3 ? LOG_WARNING : level <= 5 ? LOG_INFO : LOG_DEBUG, "librdkafka", "facility",
              facility, "text", text, NULL);
}

static void decode(void *context, const struct message *message, struct command *ret_command) {
    struct decoder *decoder = context;
    if (event_decode(message, &decoder->limits, ret_command))
        command_check_token(ret_command, decoder->keys);
}

/* ---- start-up ---- */

static bool read_kinds(struct coordinator *coordinator, struct db *db, struct error *error) {
    struct db_result *rows = NULL;
    if (!db_query(db, NULL, "SELECT kind, mode FROM lease.kinds ORDER BY kind", NULL, &rows, error))
        return false;
    for (size_t row = 0; row < db_rows(rows) && coordinator->kind_count < KINDS_MAX; row++) {
        struct event_kind *kind = &coordinator->kinds[coordinator->kind_count];
        size_t size;
        const char *mode = db_text(rows, row, 1, &size);
        if (!lease_mode_parse(mode, size, &kind->mode))
            continue; /* a mode of a newer schema: its commands are unknown_type here */
        kind->name = memory_copy_text(db_text(rows, row, 0, NULL));
        coordinator->kind_count++;
    }
    db_result_free(rows);
    return true;
}

static bool look_at_database(struct coordinator *coordinator, struct error *error) {
    const struct db_options options = {
        .conninfo = coordinator->options->database,
        .application_name = coordinator->application,
        .connect_ms = 5000,
    };
    struct db *db = NULL;
    bool is_good = db_connect(&options, &db, error) && admission_admit(coordinator->admission, db, 0, error) &&
                   read_kinds(coordinator, db, error);
    db_free(db);
    return is_good;
}

/* <kind>.events of every kind on the lanes, then the renewals on a lane of their own, the first. */
static void list_topics(struct coordinator *coordinator) {
    coordinator->topic_count = coordinator->kind_count + 1;
    coordinator->topics = memory_alloc_array(coordinator->topic_count, sizeof *coordinator->topics);
    for (size_t i = 0; i < coordinator->topic_count; i++) {
        struct buf name = BUF_INIT;
        struct intake_topic *topic = &coordinator->topics[i];
        if (i < coordinator->kind_count) {
            buf_appendf(&name, "%s%s.events", coordinator->options->topic_prefix, coordinator->kinds[i].name);
            topic->lane_first = 1;
            topic->lane_count = (size_t)coordinator->options->lanes;
        } else {
            topic_full_name(&name, coordinator->options->topic_prefix, TOPIC_RENEWALS);
            topic->lane_first = 0;
            topic->lane_count = 1;
        }
        topic->name = buf_take(&name, NULL);
    }
}

static bool look_at_topics(struct coordinator *coordinator, struct error *error) {
    struct kafka_reader *reader = NULL;
    const struct kafka_reader_options options = {.settings = &coordinator->kafka, .group = coordinator->group};
    bool is_good = kafka_reader_new(&options, &reader, error);
    for (size_t i = 0; is_good && i < coordinator->topic_count; i++) {
        int32_t partitions;
        is_good = kafka_reader_partition_count(reader, coordinator->topics[i].name, BROKER_MS, &partitions, error);
        if (!is_good && strcmp(error->code, "kafka_unknown_topic") == 0)
            error_set(error, ERROR_FATAL, "topic_missing", "there is no topic %s: run \"leasectl topics --apply\"",
                      coordinator->topics[i].name);
    }
    kafka_reader_free(reader);
    return is_good;
}

/* Waits for what is only away, a bounded time; refuses at once what will not pass. */
static bool try_until_there(struct coordinator *coordinator, const char *what,
                            bool (*look)(struct coordinator *coordinator, struct error *error), struct error *error) {
    struct backoff backoff;
    int64_t deadline_ms = clock_monotonic_us() / 1000 + START_MS;
    backoff_init(&backoff, 100, 2000, (uint64_t)clock_monotonic_us());
    while (!look(coordinator, error)) {
        if (error->kind == ERROR_FATAL || clock_monotonic_us() / 1000 > deadline_ms)
            return false;
        log_error(&coordinator->log, LOG_WARNING, "not there yet", error, "what", what, NULL);
        struct pollfd slot = {.fd = coordinator->stop_fd, .events = POLLIN};
        if (poll(&slot, 1, (int)backoff_next_ms(&backoff)) > 0)
            return false;
    }
    return true;
}

static bool make_keys(struct coordinator *coordinator, struct error *error) {
    const char *key = coordinator->options->token_key, *previous = coordinator->options->token_key_previous;
    return token_keys_new(key, strlen(key), previous, previous != NULL ? strlen(previous) : 0, &coordinator->decoder.keys,
                          error);
}

static bool look_around(struct coordinator *coordinator, struct error *error) {
    if (!make_keys(coordinator, error) || !try_until_there(coordinator, "database", look_at_database, error))
        return false;
    list_topics(coordinator);
    if (!try_until_there(coordinator, "topics", look_at_topics, error))
        return false;
    coordinator->decoder.limits = event_limits_default();
    coordinator->decoder.limits.kinds = coordinator->kinds;
    coordinator->decoder.limits.kind_count = coordinator->kind_count;
    return true;
}

/* ---- the parts ---- */

static int idle_in_transaction_ms(const struct coordinator *coordinator) {
    return (int)(coordinator->options->session_timeout_ms / 2); /* F15: locks of a stopped process end before the group moves on */
}

static void start_relay(struct coordinator *coordinator, struct error *error, bool *ret_good) {
    const struct relay_options options = {
        .kafka = &coordinator->kafka,
        .database = coordinator->options->database,
        .topic_prefix = coordinator->options->topic_prefix,
        .group = coordinator->group,
        .owner = coordinator->options->instance,
        .token_keys = coordinator->decoder.keys,
        .batch = (int)coordinator->options->relay_batch,
        .mark_interval_ms = (int)coordinator->options->mark_interval_ms,
        .admit = admission_admit,
        .admit_context = coordinator->admission,
        .log = &coordinator->log,
        .failed = on_relay_failed,
        .context = coordinator,
    };
    *ret_good = relay_new(&options, &coordinator->relay, error);
    atomic_store(&coordinator->has_relay, *ret_good);
}

static void start_reaper(struct coordinator *coordinator) {
    const struct reaper_options options = {
        .database = coordinator->options->database,
        .application_name = coordinator->application,
        .poll_ms = (int)coordinator->options->reap_poll_ms,
        .idle_in_transaction_ms = idle_in_transaction_ms(coordinator),
        .admit = admission_admit,
        .admit_context = coordinator->admission,
        .events = {.context = coordinator, .reaped = on_reaped, .looked = on_reaper_looked, .retries = on_reaper_retries,
                   .failed = on_reaper_failed},
        .log = &coordinator->log,
    };
    coordinator->reaper_pulse = status_add_pulse(coordinator->status, "reaper", REAPER_PULSE_MS);
    coordinator->reaper = reaper_new(&options);
    atomic_store(&coordinator->has_reaper, true);
}

static void start_lane(struct coordinator *coordinator, size_t index) {
    struct lane_slot *slot = &coordinator->lanes[index];
    if (index == 0)
        snprintf(slot->name, sizeof slot->name, "renewals");
    else
        snprintf(slot->name, sizeof slot->name, "lane-%zu", index);
    snprintf(slot->application, sizeof slot->application, "lease-coordinator %s", slot->name);
    const struct store_options store = {
        .database = coordinator->options->database,
        .application_name = slot->application,
        .idle_in_transaction_ms = idle_in_transaction_ms(coordinator),
        .deadline_ms = LANE_DEADLINE_MS,
        .admit = admission_admit,
        .context = coordinator->admission,
    };
    slot->store = store_new(&store);
    size_t batch_messages = (size_t)coordinator->options->batch_messages;
    size_t batch_bytes = (size_t)coordinator->options->batch_bytes;
    size_t share = (size_t)coordinator->options->queue_messages / coordinator->lane_count;
    size_t share_bytes = QUEUE_BYTES / coordinator->lane_count;
    const struct lane_options options = {
        .name = slot->name,
        .store = lane_store_of(slot->store),
        .events = {.context = coordinator, .committed = on_committed, .refused = on_refused, .has_room = on_lane_has_room,
                   .retries = on_lane_retries, .works = on_lane_works, .failed = on_lane_failed},
        .decode = decode,
        .decode_context = &coordinator->decoder,
        .log = &coordinator->log,
        .batch_messages = batch_messages,
        .batch_bytes = batch_bytes,
        .batch_wait_ms = (int)coordinator->options->batch_wait_ms,
        /* The next batch fills while one is in PostgreSQL: less than a whole one would leave the lane waiting. */
        .queue_messages = share > batch_messages ? share : batch_messages,
        .queue_bytes = share_bytes > batch_bytes ? share_bytes : batch_bytes,
    };
    slot->lane = lane_new(&options);
    coordinator->lane_pointers[index] = slot->lane;
}

static void start_lanes(struct coordinator *coordinator) {
    coordinator->lane_count = (size_t)coordinator->options->lanes + 1;
    coordinator->lanes = memory_alloc_array(coordinator->lane_count, sizeof *coordinator->lanes);
    coordinator->lane_pointers = memory_alloc_array(coordinator->lane_count, sizeof(struct lane *));
    for (size_t i = 0; i < coordinator->lane_count; i++)
        start_lane(coordinator, i);
}

static void start_intake(struct coordinator *coordinator) {
    const struct options *given = coordinator->options;
    const struct intake_options options = {
        .kafka = &coordinator->kafka,
        .group = coordinator->group,
        .owner = given->instance,
        .database = given->database,
        .application_name = "lease-coordinator intake",
        .topics = coordinator->topics,
        .topic_count = coordinator->topic_count,
        .lanes = coordinator->lane_pointers,
        .lane_count = coordinator->lane_count,
        .decode = decode,
        .decode_context = &coordinator->decoder,
        .admit = admission_admit,
        .admit_context = coordinator->admission,
        .away_since_ms = away_since_ms,
        .away_context = coordinator,
        .events = {.context = coordinator, .beat = on_intake_beat, .read = on_read, .joined = on_joined,
                   .kafka_error = on_kafka_error, .kafka_works = on_kafka_works, .retries = on_intake_retries,
                   .partitions = on_partitions, .failed = on_intake_failed},
        .log = &coordinator->log,
        .session_timeout_ms = (int)given->session_timeout_ms,
        .database_grace_ms = (int)given->database_grace_ms,
        .caution_messages = given->queue_messages + 2 * given->batch_messages,
    };
    coordinator->intake_pulse = status_add_pulse(coordinator->status, "intake", PULSE_MS);
    status_meet(coordinator->status, STATUS_INTAKE);
    coordinator->intake = intake_new(&options);
    atomic_store(&coordinator->has_intake, true);
}

static void refresh_gauges(void *context) {
    struct coordinator *coordinator = context;
    struct relay_status status;
    int64_t since_ms = atomic_load(&coordinator->away_since_ms);
    counts_set(coordinator->counts, COUNT_DATABASE_AWAY, since_ms > 0 ? clock_monotonic_us() / 1000 - since_ms : 0);
    for (size_t i = 0; i < coordinator->lane_count; i++)
        counts_set_of(coordinator->counts, COUNT_QUEUED, coordinator->lanes[i].name,
                      (int64_t)lane_queued(coordinator->lanes[i].lane));
    relay_get_status(coordinator->relay, &status);
    counts_relay(coordinator->counts, &status);
}

static bool start_parts(struct coordinator *coordinator, struct error *error) {
    bool is_good;
    if (!status_serve(coordinator->status, coordinator->options->http, error))
        return false;
    status_meet(coordinator->status, STATUS_TOPICS);
    start_relay(coordinator, error, &is_good);
    if (!is_good)
        return false;
    start_reaper(coordinator);
    start_lanes(coordinator);
    start_intake(coordinator);
    status_before_scrape(coordinator->status, refresh_gauges, coordinator);
    status_meet(coordinator->status, STATUS_RUNNING);
    return true;
}

/* Against the stream: nothing new comes in, what is in comes out. */
static void stop_parts(struct coordinator *coordinator, int drain_ms) {
    int64_t deadline_ms = clock_monotonic_us() / 1000 + drain_ms;
    status_miss(coordinator->status, STATUS_RUNNING, "draining");
    status_before_scrape(coordinator->status, NULL, NULL);
    intake_stop(coordinator->intake, drain_ms);
    atomic_store(&coordinator->has_intake, false);
    for (size_t i = 0; i < coordinator->lane_count; i++) {
        lane_free(coordinator->lanes[i].lane);
        store_free(coordinator->lanes[i].store);
    }
    intake_free(coordinator->intake);
    atomic_store(&coordinator->has_reaper, false);
    reaper_free(coordinator->reaper);
    int64_t left_ms = deadline_ms - clock_monotonic_us() / 1000;
    relay_free(coordinator->relay, left_ms > RELAY_STOP_MS ? (int)left_ms : RELAY_STOP_MS);
    status_end_pulse(coordinator->intake_pulse);
    status_end_pulse(coordinator->reaper_pulse);
}

/* ---- watching ---- */

static void look_at_relay(struct coordinator *coordinator) {
    struct relay_status status;
    relay_get_status(coordinator->relay, &status);
    if (status.blocked_ms > RELAY_BLOCKED_MS)
        status_miss(coordinator->status, STATUS_RELAY, "nothing published for %lld ms", (long long)status.blocked_ms);
    else if (!status.has_role && status.error.kind != ERROR_NONE)
        status_miss(coordinator->status, STATUS_RELAY, "%s", status.error.message);
    else
        status_meet(coordinator->status, STATUS_RELAY);
}

static void watch(struct coordinator *coordinator) {
    struct pollfd slot = {.fd = coordinator->stop_fd, .events = POLLIN};
    while (!atomic_load(&coordinator->is_stopping)) {
        look_at_relay(coordinator);
        poll(&slot, 1, TICK_MS);
    }
}

static int finish(struct coordinator *coordinator) {
    struct error failure;
    if (!has_failed(coordinator, &failure)) {
        log_write(&coordinator->log, LOG_INFO, "stopped", NULL);
        return EX_OK;
    }
    int status = coordinator_exit_status(&failure);
    log_error(&coordinator->log, LOG_ERROR, "stopped", &failure, "exit_status", LOG_N(status), NULL);
    return status;
}

int coordinator_run(struct coordinator *coordinator) {
    struct error error = {0};
    const struct options *options = coordinator->options;
    log_write(&coordinator->log, LOG_INFO, "starting", "version", LEASE_VERSION, "instance", options->instance, "brokers",
              options->brokers, "group", coordinator->group, NULL);
    bool is_started = look_around(coordinator, &error);
    if (is_started) {
        coordinator->counts = counts_new(coordinator->kinds, coordinator->kind_count);
        coordinator->status = status_new(counts_metrics(coordinator->counts), &coordinator->clock);
        is_started = start_parts(coordinator, &error);
    }
    if (is_started) {
        log_write(&coordinator->log, LOG_INFO, "started", "http_port", LOG_N(status_port(coordinator->status)), NULL);
        watch(coordinator);
        log_write(&coordinator->log, LOG_INFO, "draining", NULL);
        stop_parts(coordinator, has_failed(coordinator, &error) ? 0 : (int)options->drain_ms);
    } else if (error.kind != ERROR_NONE && !atomic_load(&coordinator->is_stopping)) {
        fail(coordinator, "cannot start", &error);
    }
    return finish(coordinator);
}

/* ---- life ---- */

void coordinator_stop(struct coordinator *coordinator) {
    const uint64_t one = 1;
    atomic_store(&coordinator->is_stopping, true);
    ssize_t written = write(coordinator->stop_fd, &one, sizeof one);
    (void)written; /* full means that it is told already */
}

uint16_t coordinator_http_port(struct coordinator *coordinator) {
    return coordinator->status != NULL ? status_port(coordinator->status) : 0;
}

struct coordinator *coordinator_new(const struct options *options) {
    struct coordinator *coordinator = memory_alloc(sizeof *coordinator);
    struct buf group = BUF_INIT;
    coordinator->options = options;
    log_init(&coordinator->log, STDERR_FILENO, (enum log_format)options->log_format, (enum log_level)options->log_level);
    coordinator->clock = clock_system();
    buf_appendf(&group, "%s%s", options->topic_prefix, options->group);
    coordinator->group = buf_take(&group, NULL);
    snprintf(coordinator->application, sizeof coordinator->application, "lease-coordinator %.60s", options->instance);
    coordinator->kafka = (struct kafka_settings){
        .brokers = options->brokers,
        .client_id = options->instance,
        .properties = options->kafka,
        .property_count = options->kafka_count,
        .log = on_kafka_log,
        .log_context = coordinator,
    };
    coordinator->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    memory_or_exit(coordinator->stop_fd < 0 ? NULL : coordinator);
    pthread_mutex_init(&coordinator->failure_mutex, NULL);
    const struct admission_options admission = {
        .kafka = &coordinator->kafka,
        .topic_prefix = options->topic_prefix,
        .group = coordinator->group,
        .instance = options->instance,
        .is_throwaway = options->throwaway,
        .log = &coordinator->log,
        .read_witness = witness_read,
    };
    coordinator->admission = admission_new(&admission);
    return coordinator;
}

void coordinator_free(struct coordinator *coordinator) {
    if (coordinator == NULL)
        return;
    status_free(coordinator->status);
    counts_free(coordinator->counts);
    admission_free(coordinator->admission);
    token_keys_free(coordinator->decoder.keys);
    for (size_t i = 0; i < coordinator->topic_count; i++)
        free((void *)(uintptr_t)coordinator->topics[i].name);
    free(coordinator->topics);
    for (size_t i = 0; i < coordinator->kind_count; i++)
        free((void *)(uintptr_t)coordinator->kinds[i].name);
    free(coordinator->lanes);
    free(coordinator->lane_pointers);
    free(coordinator->group);
    close(coordinator->stop_fd);
    pthread_mutex_destroy(&coordinator->failure_mutex);
    log_release(&coordinator->log);
    free(coordinator);
}
