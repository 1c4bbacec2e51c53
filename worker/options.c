/* Defaults and bounds of options; see options.h. */
#include "worker/options.h"

#include "common/event_text.h"
#include "worker/messages.h"

#include <stdio.h>
#include <string.h>

enum { TTL_MIN_MS = 300, CONCURRENCY_MAX = 256, CREDIT_MAX = 10000, LINGER_MAX_MS = 100, RUNS_MAX = 10000, MARGIN_MIN_MS = 20 };

void lease_worker_options_init_sized(struct lease_worker_options *options, size_t size) {
    static const struct lease_worker_options initial = {
        .connection = {.topic_prefix = "", .group = "lease-worker"}, .name = "worker", .concurrency = 4, .ttl_ms = 30000,
        .linger_ms = 1};
    memset(options, 0, size);
    memcpy(options, &initial, size < sizeof initial ? size : sizeof initial);
    options->size = size;
}

void lease_client_options_init_sized(struct lease_client_options *options, size_t size) {
    static const struct lease_client_options initial = {
        .connection = {.topic_prefix = "", .group = "lease-worker"}, .name = "client", .ttl_ms = 30000, .runs_max = 1000};
    memset(options, 0, size);
    memcpy(options, &initial, size < sizeof initial ? size : sizeof initial);
    options->size = size;
}

void lease_run_options_init_sized(struct lease_run_options *options, size_t size) {
    static const struct lease_run_options initial = {.answer_ms = 30000};
    memset(options, 0, size);
    memcpy(options, &initial, size < sizeof initial ? size : sizeof initial);
    options->size = size;
}

static bool is_within(const char *name, unsigned value, unsigned least, unsigned most, struct error *error) {
    if (value >= least && value <= most)
        return true;
    return error_set(error, ERROR_FATAL, "options", "%s is %u, it can be %u to %u", name, value, least, most);
}

static bool check_size(size_t given, size_t least, struct error *error) {
    if (given >= least)
        return true;
    return error_set(error, ERROR_FATAL, "options", "the options were not filled by their _init function");
}

static unsigned default_margin(unsigned margin_ms, unsigned ttl_ms) {
    unsigned tenth = ttl_ms / 10;
    return margin_ms > 0 ? margin_ms : tenth > MARGIN_MIN_MS ? tenth : MARGIN_MIN_MS;
}

bool options_settle_worker(const struct lease_worker_options *given, struct lease_worker_options *ret, struct error *error) {
    lease_worker_options_init_sized(ret, sizeof *ret);
    if (!check_size(given->size, offsetof(struct lease_worker_options, lost), error))
        return false;
    memcpy(ret, given, given->size < sizeof *ret ? given->size : sizeof *ret);
    if (!ret->work || !ret->kind || !ret->name)
        return error_set(error, ERROR_FATAL, "options", "kind, name and work are required");
    if (!is_within("ttl_ms", ret->ttl_ms, TTL_MIN_MS, LEASE_TTL_MS_MAX, error) ||
        !is_within("concurrency", ret->concurrency, 1, CONCURRENCY_MAX, error))
        return false;
    if (ret->credit == 0)
        ret->credit = 2 * ret->concurrency;
    if (ret->wait_ms == 0)
        ret->wait_ms = ret->ttl_ms / 3;
    if (ret->answer_ms == 0)
        ret->answer_ms = ret->ttl_ms > 1000 ? ret->ttl_ms : 1000;
    ret->margin_ms = default_margin(ret->margin_ms, ret->ttl_ms);
    return is_within("credit", ret->credit, ret->concurrency, CREDIT_MAX, error) &&
           is_within("wait_ms", ret->wait_ms, 50, LEASE_WAIT_MS_MAX, error) &&
           is_within("margin_ms", ret->margin_ms, 1, ret->ttl_ms / 2, error) &&
           is_within("linger_ms", ret->linger_ms, 0, LINGER_MAX_MS, error);
}

bool options_settle_client(const struct lease_client_options *given, struct lease_client_options *ret, struct error *error) {
    lease_client_options_init_sized(ret, sizeof *ret);
    if (!check_size(given->size, offsetof(struct lease_client_options, name), error))
        return false;
    memcpy(ret, given, given->size < sizeof *ret ? given->size : sizeof *ret);
    if (!ret->kind || !ret->name)
        return error_set(error, ERROR_FATAL, "options", "kind and name are required");
    ret->margin_ms = default_margin(ret->margin_ms, ret->ttl_ms);
    return is_within("ttl_ms", ret->ttl_ms, TTL_MIN_MS, LEASE_TTL_MS_MAX, error) &&
           is_within("margin_ms", ret->margin_ms, 1, ret->ttl_ms / 2, error) &&
           is_within("runs_max", ret->runs_max, 1, RUNS_MAX, error);
}

bool options_check_resource(const char *resource, struct error *error) {
    if (event_text_resource((struct slice){resource, strlen(resource)}) == EVENT_REASON_NONE)
        return true;
    return error_set(error, ERROR_REJECT, "options", "'%.200s' is no resource: <type>/<id>", resource);
}

static bool check_run_texts(const struct lease_run_options *run, struct error *error) {
    if (!run->lease || event_text_id((struct slice){run->lease, strlen(run->lease)}) != EVENT_REASON_NONE)
        return error_set(error, ERROR_REJECT, "options", "the run has no name, or one that is not allowed");
    if (run->next && run->resource_count > 0)
        return error_set(error, ERROR_REJECT, "options", "resources are named or listed, not both");
    if (run->table_count > LEASE_TABLES_MAX)
        return error_set(error, ERROR_REJECT, "options", "%zu tables, %d are allowed", run->table_count, LEASE_TABLES_MAX);
    for (size_t i = 0; i < run->table_count; i++)
        if (event_text_table((struct slice){run->tables[i], strlen(run->tables[i])}) != EVENT_REASON_NONE)
            return error_set(error, ERROR_REJECT, "options", "'%.200s' is no type of resource", run->tables[i]);
    for (size_t i = 0; i < run->resource_count; i++)
        if (!options_check_resource(run->resources[i], error))
            return false;
    if (run->payload && !messages_is_payload(run->payload))
        return error_set(error, ERROR_REJECT, "options", "the payload is no JSON object of at most %d bytes",
                         LEASE_PAYLOAD_MAX);
    return true;
}

bool options_settle_run(const struct lease_run_options *given, struct lease_run_options *ret, struct error *error) {
    lease_run_options_init_sized(ret, sizeof *ret);
    if (!check_size(given->size, offsetof(struct lease_run_options, payload), error))
        return false;
    memcpy(ret, given, given->size < sizeof *ret ? given->size : sizeof *ret);
    return (ret->ttl_ms == 0 || is_within("ttl_ms", ret->ttl_ms, TTL_MIN_MS, LEASE_TTL_MS_MAX, error)) &&
           is_within("answer_ms", ret->answer_ms, 1, LEASE_WAIT_MS_MAX, error) &&
           is_within("line_ms", ret->line_ms, 0, LEASE_WAIT_MS_MAX, error) && check_run_texts(ret, error);
}

/* A fifth of what a renewal may take, for short leases; few fetches an hour, for long ones. */
int options_fetch_wait_ms(unsigned ttl_ms) {
    unsigned wait_ms = ttl_ms / 30;
    return wait_ms < 10 ? 10 : wait_ms > 500 ? 500 : (int)wait_ms;
}

bool options_fail(struct lease_error *ret, const struct error *error) {
    if (!ret)
        return false;
    static const enum lease_error_kind kinds[] = {[ERROR_NONE] = LEASE_ERROR_NONE, [ERROR_RETRY] = LEASE_ERROR_RETRY,
                                                  [ERROR_REJECT] = LEASE_ERROR_REJECT, [ERROR_FATAL] = LEASE_ERROR_FATAL};
    *ret = (struct lease_error){.kind = kinds[error->kind]};
    snprintf(ret->code, sizeof ret->code, "%s", error->code);
    snprintf(ret->message, sizeof ret->message, "%s", error->message);
    return false;
}
