/* A coordinator's start: are the database, its schema, the brokers and the topics there, and may we work with them? What is
 * only away is waited for, a bounded time; what will not pass refuses the start, with the reason. See coordinator.h. */
#include "coordinator/coordinator_private.h"

#include "common/backoff.h"
#include "common/buf.h"
#include "common/db.h"
#include "common/kafka_access.h"
#include "common/kafka_reader.h"
#include "common/topics.h"
#include "coordinator/outputs.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum {
    START_MS = 30 * 1000,      /* how long a start waits for servers that are away: a machine that boots brings them up */
    BROKER_MS = 5000,
    ACCESS_MS = 5000,
};

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

/* Before the witness reads them, so that all that is missing is named and not only the first topic that is not to be read. */
static bool look_at_outputs(struct coordinator *coordinator, struct error *error) {
    static const enum topic_id ids[OUTPUT_TOPICS] = {TOPIC_RESULTS, TOPIC_GRANTS, TOPIC_STATE, TOPIC_DEAD_LETTERS};
    struct kafka_access_wish wishes[OUTPUT_TOPICS];
    struct buf names[OUTPUT_TOPICS];
    for (size_t i = 0; i < OUTPUT_TOPICS; i++) {
        names[i] = BUF_INIT;
        topic_full_name(&names[i], coordinator->options->topic_prefix, ids[i]);
        wishes[i] = (struct kafka_access_wish){buf_text(&names[i]), KAFKA_MAY_READ | KAFKA_MAY_WRITE};
    }
    bool is_good = kafka_access_check(&coordinator->kafka, coordinator->group, wishes, OUTPUT_TOPICS, ACCESS_MS, error);
    for (size_t i = 0; i < OUTPUT_TOPICS; i++)
        buf_release(&names[i]);
    return is_good;
}

static bool look_at_servers(struct coordinator *coordinator, struct error *error) {
    const struct db_options options = {
        .conninfo = coordinator->options->database,
        .application_name = coordinator->application,
        .connect_ms = 5000,
    };
    struct db *db = NULL;
    bool is_good = db_connect(&options, &db, error) && look_at_outputs(coordinator, error) &&
                   admission_admit(coordinator->admission, db, 0, error) && read_kinds(coordinator, db, error);
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

static bool may_read_inputs(struct coordinator *coordinator, struct error *error) {
    struct kafka_access_wish *wishes = memory_alloc_array(coordinator->topic_count, sizeof *wishes);
    for (size_t i = 0; i < coordinator->topic_count; i++)
        wishes[i] = (struct kafka_access_wish){coordinator->topics[i].name, KAFKA_MAY_READ};
    bool is_good = kafka_access_check(&coordinator->kafka, coordinator->group, wishes, coordinator->topic_count, ACCESS_MS, error);
    free(wishes);
    return is_good;
}

static bool look_at_topics(struct coordinator *coordinator, struct error *error) {
    struct kafka_reader *reader = NULL;
    const struct kafka_reader_options options = {.settings = &coordinator->kafka, .group = coordinator->group};
    bool is_good = kafka_reader_new(&options, &reader, error);
    for (size_t i = 0; is_good && i < coordinator->topic_count; i++) {
        int32_t partitions;
        is_good = kafka_reader_partition_count(reader, coordinator->topics[i].name, BROKER_MS, &partitions, error);
        if (!is_good && strcmp(error->code, "kafka_not_authorized") == 0)
            is_good = true; /* named below, with all others */
        else if (!is_good && strcmp(error->code, "kafka_unknown_topic") == 0)
            error_set(error, ERROR_FATAL, "topic_missing", "there is no topic %s: run \"leasectl topics --apply\"",
                      coordinator->topics[i].name);
    }
    kafka_reader_free(reader);
    return is_good && may_read_inputs(coordinator, error);
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

bool coordinator_look_around(struct coordinator *coordinator, struct error *error) {
    if (!make_keys(coordinator, error) || !try_until_there(coordinator, "servers", look_at_servers, error))
        return false;
    list_topics(coordinator);
    if (!try_until_there(coordinator, "topics", look_at_topics, error))
        return false;
    coordinator->decoder.limits = event_limits_default();
    coordinator->decoder.limits.kinds = coordinator->kinds;
    coordinator->decoder.limits.kind_count = coordinator->kind_count;
    return true;
}
