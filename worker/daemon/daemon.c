/* Life of the reference worker: start, wait, drain; see daemon.h. What it does with an item is in the jobs. */
#include "worker/daemon/daemon_private.h"

#include "common/backoff.h"
#include "common/buf.h"
#include "common/clock.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

enum { START_MS = 30 * 1000 }; /* how long a start waits for what is away: a machine that boots brings it up */

/* ---- stopping ---- */

bool daemon_pause(struct daemon *daemon, int64_t ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nanoseconds = until.tv_nsec + ms % 1000 * 1000000;
    until.tv_sec += (time_t)(ms / 1000 + nanoseconds / 1000000000);
    until.tv_nsec = (long)(nanoseconds % 1000000000);
    pthread_mutex_lock(&daemon->mutex);
    int waited = 0;
    while (!daemon->is_stopping && waited == 0)
        waited = pthread_cond_timedwait(&daemon->stopping, &daemon->mutex, &until);
    bool may_go_on = !daemon->is_stopping;
    pthread_mutex_unlock(&daemon->mutex);
    return may_go_on;
}

void daemon_stop(struct daemon *daemon) {
    pthread_mutex_lock(&daemon->mutex);
    daemon->is_stopping = true;
    pthread_cond_broadcast(&daemon->stopping);
    pthread_mutex_unlock(&daemon->mutex);
}

void daemon_fail(struct daemon *daemon, const struct error *error) {
    pthread_mutex_lock(&daemon->mutex);
    if (daemon->failure.kind == ERROR_NONE)
        daemon->failure = *error;
    daemon->is_stopping = true;
    pthread_cond_broadcast(&daemon->stopping);
    pthread_mutex_unlock(&daemon->mutex);
}

static void wait_for_stop(struct daemon *daemon) {
    pthread_mutex_lock(&daemon->mutex);
    while (!daemon->is_stopping)
        pthread_cond_wait(&daemon->stopping, &daemon->mutex);
    pthread_mutex_unlock(&daemon->mutex);
}

/* ---- what the library calls ---- */

bool daemon_item_is_mine(void *item) {
    return lease_item_progress(item);
}

static void on_work(void *context, struct lease_item *item) {
    struct daemon *daemon = context;
    daemon->job->work(daemon, item);
}

static void on_lost(void *context, struct lease_item *item) {
    struct daemon *daemon = context;
    const struct lease_grant *grant = lease_item_grant(item);
    log_write(&daemon->log, LOG_WARNING, "lease lost", "item", grant->lease, "fence", LOG_N(grant->fence), NULL);
}

static void on_settled(void *context, const struct lease_grant *grant, const char *outcome) {
    struct daemon *daemon = context;
    log_write(&daemon->log, LOG_DEBUG, "settled", "item", grant->lease, "fence", LOG_N(grant->fence), "outcome",
              outcome != NULL ? outcome : "unanswered", NULL);
}

static void on_log(void *context, enum lease_log_level level, const char *text) {
    static const enum log_level levels[] = {LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR}; /* enum lease_log_level */
    struct daemon *daemon = context;
    log_write(&daemon->log, levels[level], "library", "text", text, NULL);
}

/* ---- start ---- */

static bool start_job(struct daemon *daemon, struct error *error) {
    struct backoff backoff;
    int64_t deadline_ms = clock_monotonic_us() / 1000 + START_MS;
    backoff_init(&backoff, 100, 2000, (uint64_t)clock_monotonic_us());
    while (!daemon->job->start(daemon, error)) {
        if (error->kind != ERROR_RETRY || clock_monotonic_us() / 1000 > deadline_ms)
            return false;
        log_error(&daemon->log, LOG_WARNING, "not there yet", error, NULL);
        if (!daemon_pause(daemon, backoff_next_ms(&backoff)))
            return false;
    }
    return true;
}

static bool start_worker(struct daemon *daemon, struct error *error) {
    const struct settings *settings = daemon->settings;
    struct lease_worker_options options;
    struct lease_error failure = {0};
    lease_worker_options_init(&options);
    struct lease_property *properties = program_connect(&settings->common, &options.connection);
    options.connection.log = on_log;
    options.connection.log_context = daemon;
    options.kind = settings_kind_name(settings);
    options.name = settings->common.name;
    options.work = on_work;
    options.lost = on_lost;
    options.settled = on_settled;
    options.context = daemon;
    options.concurrency = (unsigned)settings->concurrency;
    options.credit = (unsigned)settings->credit;
    options.ttl_ms = (unsigned)settings->ttl_ms;
    bool is_started = lease_worker_start(&options, &daemon->worker, &failure);
    free(properties);
    return is_started || error_set(error, failure.kind == LEASE_ERROR_RETRY ? ERROR_RETRY : ERROR_FATAL, failure.code, "%s",
                                   failure.message);
}

/* ---- run ---- */

static void drain(struct daemon *daemon) {
    struct lease_worker_stats stats = {.size = sizeof stats};
    log_write(&daemon->log, LOG_INFO, "draining", NULL);
    unsigned left = lease_worker_stop(daemon->worker, (unsigned)daemon->settings->drain_ms);
    if (left > 0)
        log_write(&daemon->log, LOG_WARNING, "still at work", "items", LOG_N(left), NULL);
    lease_worker_get_stats(daemon->worker, &stats);
    log_write(&daemon->log, LOG_INFO, "drained", "begun", LOG_N(stats.begun), "finished", LOG_N(stats.finished), "failed",
              LOG_N(stats.failed), "released", LOG_N(stats.released), "lost", LOG_N(stats.lost), "stale", LOG_N(stats.stale),
              "unanswered", LOG_N(stats.unanswered), NULL);
    lease_worker_free(daemon->worker);
    daemon->worker = NULL;
}

static int finish(struct daemon *daemon) {
    const struct error *failure = &daemon->failure;
    if (failure->kind == ERROR_NONE) {
        log_write(&daemon->log, LOG_INFO, "stopped", NULL);
        return EX_OK;
    }
    int status = failure->kind == ERROR_RETRY ? EX_UNAVAILABLE : EX_CONFIG;
    log_error(&daemon->log, LOG_ERROR, "stopped", failure, "exit_status", LOG_N(status), NULL);
    return status;
}

int daemon_run(struct daemon *daemon) {
    const struct settings *settings = daemon->settings;
    struct error error = {0};
    log_write(&daemon->log, LOG_INFO, "starting", "version", LEASE_VERSION, "kind", settings_kind_name(settings), "brokers",
              settings->common.brokers, NULL);
    if (start_job(daemon, &error) && start_worker(daemon, &error)) {
        log_write(&daemon->log, LOG_INFO, "started", "holder", lease_worker_holder(daemon->worker), NULL);
        wait_for_stop(daemon);
        drain(daemon);
    } else if (daemon_pause(daemon, 0)) {
        daemon_fail(daemon, &error);
    }
    return finish(daemon);
}

/* ---- life ---- */

struct daemon *daemon_new(const struct settings *settings) {
    static const struct job *const jobs[] = {&job_cleanup, &job_delivery}; /* enum settings_kind */
    struct daemon *daemon = memory_alloc(sizeof *daemon);
    pthread_condattr_t attributes;
    daemon->settings = settings;
    daemon->job = jobs[settings->kind];
    log_init(&daemon->log, STDERR_FILENO, (enum log_format)settings->common.log_format, (enum log_level)settings->common.log_level);
    pthread_mutex_init(&daemon->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&daemon->stopping, &attributes);
    pthread_condattr_destroy(&attributes);
    return daemon;
}

void daemon_free(struct daemon *daemon) {
    if (daemon == NULL)
        return;
    assert(daemon->worker == NULL);
    daemon->job->release(daemon);
    pthread_cond_destroy(&daemon->stopping);
    pthread_mutex_destroy(&daemon->mutex);
    log_release(&daemon->log);
    free(daemon);
}
