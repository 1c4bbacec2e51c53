/* One whole coordinator; see coordinator.h. Read it from coordinator_run: the table of contents. What it starts with is in
 * coordinator_start.c, its parts in coordinator_parts.c, what they tell in coordinator_events.c. */
#include "coordinator/coordinator_private.h"

#include "common/buf.h"
#include "coordinator/witness.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sysexits.h>
#include <unistd.h>

enum {
    TICK_MS = 500,             /* how often the relay is looked at for readiness */
    RELAY_BLOCKED_MS = 5000,   /* publishing may stand still that long before we say that we are not ready */
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

void coordinator_fail(struct coordinator *coordinator, const char *what, const struct error *error) {
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
    bool is_started = coordinator_look_around(coordinator, &error);
    if (is_started) {
        coordinator->counts = counts_new(coordinator->kinds, coordinator->kind_count);
        coordinator->status = status_new(counts_metrics(coordinator->counts), &coordinator->clock);
        is_started = coordinator_start_parts(coordinator, &error);
    }
    if (is_started) {
        log_write(&coordinator->log, LOG_INFO, "started", "http_port", LOG_N(status_port(coordinator->status)), NULL);
        watch(coordinator);
        log_write(&coordinator->log, LOG_INFO, "draining", NULL);
        coordinator_stop_parts(coordinator, has_failed(coordinator, &error) ? 0 : (int)options->drain_ms);
    } else if (error.kind != ERROR_NONE && !atomic_load(&coordinator->is_stopping)) {
        coordinator_fail(coordinator, "cannot start", &error);
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
        .log = coordinator_on_kafka_log,
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
        .moved = coordinator_on_moved,
        .moved_context = coordinator,
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
