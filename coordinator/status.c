/* The HTTP face; see status.h. Handlers run in the HTTP server's thread. */
#include "coordinator/status.h"

#include "common/http.h"

#include <assert.h>
#include <dirent.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAME_SIZE = 48, US_PER_SECOND = 1000000 };

static const char *const condition_names[STATUS_CONDITIONS] = {
    [STATUS_DATABASE] = "database", [STATUS_KAFKA] = "kafka",   [STATUS_TOPICS] = "topics",   [STATUS_RELAY] = "relay",
    [STATUS_REAPER] = "reaper",     [STATUS_INTAKE] = "intake", [STATUS_RUNNING] = "running",
};

enum { READY, ALIVE, BUILD, RESIDENT_BYTES, OPEN_FILES, CPU_TIME, START_TIME, ROW_COUNT };

static const struct metric_row rows[ROW_COUNT] = {
    [READY] = {.name = "lease_ready", .type = METRIC_GAUGE, .labels = {"condition"},
               .help = "1 while this condition of readiness is met"},
    [ALIVE] = {.name = "lease_alive", .type = METRIC_GAUGE, .help = "1 while every loop beats within its limit"},
    [BUILD] = {.name = "lease_build_info", .type = METRIC_GAUGE, .labels = {"version"}, .help = "Always 1"},
    [RESIDENT_BYTES] = {.name = "process_resident_memory_bytes", .type = METRIC_GAUGE, .help = "Resident memory"},
    [OPEN_FILES] = {.name = "process_open_fds", .type = METRIC_GAUGE, .help = "Open file descriptors"},
    [CPU_TIME] = {.name = "process_cpu_seconds_total", .type = METRIC_COUNTER, .per_unit = US_PER_SECOND,
                  .help = "User and system time spent"},
    [START_TIME] = {.name = "process_start_time_seconds", .type = METRIC_GAUGE, .per_unit = US_PER_SECOND,
                    .help = "When this process started, since 1970"},
};

struct condition {
    bool is_met;
    char reason[STATUS_REASON_SIZE];
};

struct status_pulse {
    struct status *status;
    bool is_used;
    char name[NAME_SIZE];
    int64_t limit_us;
    _Atomic int64_t last_us;
};

struct status {
    const struct clock *clock;
    struct metrics *metrics; /* the coordinator's */
    struct metrics *own;     /* made from `rows` */
    struct http_server *server;
    pthread_mutex_t lock; /* of all that follows */
    struct condition conditions[STATUS_CONDITIONS];
    struct status_pulse pulses[STATUS_PULSES_MAX];
    pthread_mutex_t refresh_lock; /* held while it runs: who takes it away knows that it has returned */
    void (*refresh)(void *context);
    void *refresh_context;
};

/* ---- conditions and pulses --------------------------------------------------------------------------------- */

struct status *status_new(struct metrics *metrics, const struct clock *clock) {
    struct status *status = memory_alloc(sizeof *status);
    status->metrics = metrics;
    status->clock = clock;
    status->own = metrics_new(rows, ROW_COUNT);
    pthread_mutex_init(&status->lock, NULL);
    pthread_mutex_init(&status->refresh_lock, NULL);
    for (int i = 0; i < STATUS_CONDITIONS; i++)
        strcpy(status->conditions[i].reason, "not checked yet");
    metric_set(metrics_get(status->own, BUILD, (const char *const[]){LEASE_VERSION}), 1);
    metric_set(metrics_get(status->own, START_TIME, NULL), clock_wall_us());
    return status;
}

void status_free(struct status *status) {
    if (status == NULL)
        return;
    http_stop(status->server);
    metrics_free(status->own);
    pthread_mutex_destroy(&status->refresh_lock);
    pthread_mutex_destroy(&status->lock);
    free(status);
}

void status_meet(struct status *status, enum status_condition condition) {
    assert(condition < STATUS_CONDITIONS);
    pthread_mutex_lock(&status->lock);
    status->conditions[condition].is_met = true;
    pthread_mutex_unlock(&status->lock);
}

void status_miss(struct status *status, enum status_condition condition, const char *reason, ...) {
    assert(condition < STATUS_CONDITIONS);
    va_list arguments;
    va_start(arguments, reason);
    pthread_mutex_lock(&status->lock);
    status->conditions[condition].is_met = false;
    vsnprintf(status->conditions[condition].reason, STATUS_REASON_SIZE, reason, arguments);
    pthread_mutex_unlock(&status->lock);
    va_end(arguments);
}

static void append_line(struct buf *out, const char *name, const char *state) {
    buf_appendf(out, "%s: ", name);
    for (; *state != '\0'; state++)
        buf_append_byte(out, (unsigned char)*state < ' ' ? ' ' : *state);
    buf_append_byte(out, '\n');
}

/* Appends a line for each condition; true if all are met. */
static bool list_conditions(struct status *status, struct buf *out) {
    bool is_ready = true;
    pthread_mutex_lock(&status->lock);
    for (int i = 0; i < STATUS_CONDITIONS; i++) {
        const struct condition *condition = &status->conditions[i];
        append_line(out, condition_names[i], condition->is_met ? "ok" : condition->reason);
        is_ready &= condition->is_met;
    }
    pthread_mutex_unlock(&status->lock);
    return is_ready;
}

bool status_is_ready(struct status *status) {
    struct buf unused = BUF_INIT;
    bool is_ready = list_conditions(status, &unused);
    buf_release(&unused);
    return is_ready;
}

struct status_pulse *status_add_pulse(struct status *status, const char *name, int64_t limit_ms) {
    pthread_mutex_lock(&status->lock);
    size_t at = 0;
    while (at < STATUS_PULSES_MAX && status->pulses[at].is_used)
        at++;
    assert(at < STATUS_PULSES_MAX);
    struct status_pulse *pulse = &status->pulses[at];
    pulse->status = status;
    pulse->is_used = true;
    pulse->limit_us = limit_ms * 1000;
    snprintf(pulse->name, sizeof pulse->name, "%s", name);
    atomic_store(&pulse->last_us, clock_now_us(status->clock));
    pthread_mutex_unlock(&status->lock);
    return pulse;
}

void status_beat(struct status_pulse *pulse) {
    atomic_store(&pulse->last_us, clock_now_us(pulse->status->clock));
}

void status_end_pulse(struct status_pulse *pulse) {
    if (pulse == NULL)
        return;
    struct status *status = pulse->status;
    pthread_mutex_lock(&status->lock);
    pulse->is_used = false;
    pthread_mutex_unlock(&status->lock);
}

/* Appends a line for each pulse; true if none is late. */
static bool list_pulses(struct status *status, struct buf *out) {
    bool is_alive = true;
    int64_t now_us = clock_now_us(status->clock);
    pthread_mutex_lock(&status->lock);
    for (size_t i = 0; i < STATUS_PULSES_MAX; i++) {
        struct status_pulse *pulse = &status->pulses[i];
        if (!pulse->is_used)
            continue;
        int64_t silent_us = now_us - atomic_load(&pulse->last_us);
        bool is_late = silent_us > pulse->limit_us;
        char state[64];
        snprintf(state, sizeof state, is_late ? "silent for %lld ms" : "ok", (long long)(silent_us / 1000));
        append_line(out, pulse->name, state);
        is_alive &= !is_late;
    }
    pthread_mutex_unlock(&status->lock);
    return is_alive;
}

bool status_is_alive(struct status *status) {
    struct buf unused = BUF_INIT;
    bool is_alive = list_pulses(status, &unused);
    buf_release(&unused);
    return is_alive;
}

/* ---- /metrics ---------------------------------------------------------------------------------------------- */

void status_before_scrape(struct status *status, void (*refresh)(void *context), void *context) {
    pthread_mutex_lock(&status->refresh_lock);
    status->refresh = refresh;
    status->refresh_context = context;
    pthread_mutex_unlock(&status->refresh_lock);
}

static int64_t resident_bytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static int64_t open_files(void) {
    int64_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return 0;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count > 3 ? count - 3 : 0; /* less ".", ".." and the folder itself */
}

static int64_t cpu_time_us(void) {
    struct timespec spent;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (int64_t)spent.tv_sec * US_PER_SECOND + spent.tv_nsec / 1000;
}

static void refresh_own(struct status *status) {
    struct metrics *own = status->own;
    metric_set(metrics_get(own, ALIVE, NULL), status_is_alive(status));
    metric_set(metrics_get(own, RESIDENT_BYTES, NULL), resident_bytes());
    metric_set(metrics_get(own, OPEN_FILES, NULL), open_files());
    metric_set(metrics_get(own, CPU_TIME, NULL), cpu_time_us());
    for (int i = 0; i < STATUS_CONDITIONS; i++) {
        pthread_mutex_lock(&status->lock);
        bool is_met = status->conditions[i].is_met;
        pthread_mutex_unlock(&status->lock);
        metric_set(metrics_get(own, READY, (const char *const[]){condition_names[i]}), is_met);
    }
}

static void handle_metrics(void *context, struct http_reply *reply) {
    struct status *status = context;
    pthread_mutex_lock(&status->refresh_lock);
    if (status->refresh != NULL)
        status->refresh(status->refresh_context);
    pthread_mutex_unlock(&status->refresh_lock);
    refresh_own(status);
    reply->content_type = METRICS_CONTENT_TYPE;
    if (status->metrics != NULL)
        metrics_render(status->metrics, &reply->body);
    metrics_render(status->own, &reply->body);
}

/* ---- /livez, /readyz --------------------------------------------------------------------------------------- */

/* "ready\n" or "not ready\n", then the list. */
static void answer(struct http_reply *reply, bool is_good, const char *word, const struct buf *list) {
    reply->status = is_good ? 200 : 503;
    buf_appendf(&reply->body, "%s%s\n", is_good ? "" : "not ", word);
    buf_append(&reply->body, buf_text(list), list->size);
}

static void handle_ready(void *context, struct http_reply *reply) {
    struct buf list = BUF_INIT;
    bool is_ready = list_conditions(context, &list);
    answer(reply, is_ready, "ready", &list);
    buf_release(&list);
}

static void handle_alive(void *context, struct http_reply *reply) {
    struct buf list = BUF_INIT;
    bool is_alive = list_pulses(context, &list);
    answer(reply, is_alive, "alive", &list);
    buf_release(&list);
}

bool status_serve(struct status *status, const char *address, struct error *error) {
    assert(status->server == NULL);
    const struct http_route routes[] = {
        {"/metrics", handle_metrics, status}, {"/livez", handle_alive, status}, {"/readyz", handle_ready, status}};
    return http_start(address, routes, sizeof routes / sizeof routes[0], &status->server, error);
}

uint16_t status_port(const struct status *status) {
    return status->server != NULL ? http_port(status->server) : 0;
}
