/* Runs: what they are asked to do, and what may be asked of them. Public functions; any thread. */
#include "worker/client_private.h"

#include "common/event_text.h"
#include "common/token.h"
#include "worker/options.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_EVERY_MAX_US = 2000000 };

void ask_clear(struct ask *ask) {
    if (ask->data.data)
        token_wipe(ask->data.data, ask->data.size);
    buf_release(&ask->data);
    *ask = (struct ask){.state = ASK_NONE};
}

static enum lease_status fail(struct lease_error *ret_error, const struct error *error) {
    options_fail(ret_error, error);
    return LEASE_FAILED;
}

/* ---- asking; under the lock ---- */

static struct timespec moment_after(unsigned wait_ms) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += wait_ms / 1000;
    at.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

static bool can_ask(const struct lease_run *run, unsigned wait_ms, struct error *error) {
    if (wait_ms == 0 && !run->answered)
        return error_set(error, ERROR_FATAL, "options", "wait_ms 0 needs a callback for the answer");
    if (run->ask.state != ASK_NONE || run->is_covering)
        return error_set(error, ERROR_RETRY, "busy_run", "%s is asked something already", run->lease);
    return true;
}

static enum lease_status await(struct lease_run *run, unsigned wait_ms) {
    struct lease_client *client = run->client;
    struct timespec until = moment_after(wait_ms);
    int waited = 0;
    while (run->ask.state != ASK_DONE && waited == 0)
        waited = pthread_cond_timedwait(&client->is_changed, &client->lock, &until);
    bool is_done = run->ask.state == ASK_DONE || run->ask.line.is_waiting;
    bool is_refused = run->ask.state == ASK_DONE ? run->ask.is_refused : is_done;
    run->has_answer = is_done;
    ask_clear(&run->ask); /* an answer that comes now finds nobody */
    return !is_done ? LEASE_UNANSWERED : is_refused ? LEASE_REFUSED : LEASE_ACCEPTED;
}

/* A grant's deadline counts from the asking that it names: a sixth of the ttl is what it may cost. */
static int64_t line_every_us(const struct lease_run *run) {
    int64_t every_us = run->terms.ttl_us / 6;
    return every_us > LINE_EVERY_MAX_US ? LINE_EVERY_MAX_US : every_us;
}

enum lease_status run_ask(struct lease_run *run, enum lease_command command, struct buf *data, unsigned wait_ms) {
    unsigned line_ms = command == LEASE_COMMAND_START ? run->line_ms : 0;
    int64_t now_us = hold_clock_us();
    run->has_answer = false;
    run->ask = (struct ask){.state = ASK_QUEUED, .command = command, .data = *data, .has_callback = wait_ms == 0,
                            .until_us = now_us + run->answer_us + (int64_t)line_ms * 1000};
    if (line_ms > 0)
        run->ask.line = (struct line){.until_us = now_us + (int64_t)line_ms * 1000, .every_us = line_every_us(run)};
    *data = BUF_INIT;
    link_wake(run->client->link);
    return wait_ms == 0 ? LEASE_PENDING : await(run, wait_ms + line_ms);
}

/* ---- start ---- */

static struct lease_run *run_new(struct lease_client *client, const struct lease_run_options *options) {
    struct lease_run *run = memory_alloc(sizeof *run);
    run->client = client;
    run->lease = memory_copy_text(options->lease);
    run->answered = options->answered;
    run->lost = options->lost;
    run->context = options->context;
    run->is_manual = options->is_manual;
    run->ttl_ms = options->ttl_ms ? options->ttl_ms : client->ttl_ms;
    run->answer_us = (int64_t)options->answer_ms * 1000;
    run->line_ms = options->line_ms;
    run->terms = (struct hold_terms){.ttl_us = (int64_t)run->ttl_ms * 1000, .margin_us = (int64_t)client->margin_ms * 1000};
    if (run->terms.margin_us > run->terms.ttl_us / 2)
        run->terms.margin_us = run->terms.ttl_us / 2;
    return run;
}

static void run_release(struct lease_run *run) {
    ask_clear(&run->ask);
    if (run->grant_texts)
        token_wipe(run->grant_texts, run->grant_texts_size);
    free(run->grant_texts);
    free(run->answer_texts);
    free(run->lease);
    free(run);
}

static bool can_start(const struct lease_run *run, unsigned wait_ms, struct error *error) {
    if (wait_ms > 0 || (run->answered && !run->is_covering))
        return true;
    return error_set(error, ERROR_FATAL, "options", "wait_ms 0 needs a callback for the answer, and a start that fits a message");
}

static void write_start(struct buf *data, const struct lease_run *run, const struct lease_run_options *options) {
    const struct messages_start what = {
        .holder = link_holder(run->client->link), .ttl_ms = run->ttl_ms, .payload = options->payload,
        .resources = options->resources, .resource_count = run->is_covering ? 0 : options->resource_count,
        .more = run->is_covering, .tables = options->tables, .table_count = options->table_count};
    messages_write_start(data, &what);
}

/* Does it fit one message, as it is? */
static bool fits(const struct lease_run_options *options) {
    return !options->next && options->table_count == 0 && options->resource_count <= LEASE_RESOURCES_MAX;
}

static enum lease_status start(struct lease_client *client, struct lease_run *run, struct buf *data, unsigned wait_ms,
                               struct lease_run **ret_run, struct error *error) {
    if (!can_start(run, wait_ms, error))
        return LEASE_FAILED;
    if (client->run_count == client->runs_max) {
        error_set(error, ERROR_RETRY, "runs_max", "%u runs are the most at a time", client->runs_max);
        return LEASE_FAILED;
    }
    client->run_count++;
    TAILQ_INSERT_TAIL(&client->runs, run, all);
    *ret_run = run; /* before a callback can speak of it */
    return run_ask(run, LEASE_COMMAND_START, data, wait_ms);
}

enum lease_status lease_run_start(struct lease_client *client, const struct lease_run_options *given, unsigned wait_ms,
                                  struct lease_run **ret_run, struct lease_error *ret_error) {
    struct lease_run_options options;
    struct error error = {0};
    if (!options_settle_run(given, &options, &error))
        return fail(ret_error, &error);
    struct lease_run *run = run_new(client, &options);
    struct buf data = BUF_INIT;
    run->is_covering = !fits(&options);
    write_start(&data, run, &options);
    if (data.size > EVENT_VALUE_MAX - (options.line_ms > 0 ? MESSAGES_PATIENCE_MAX : 0)) {
        buf_reset(&data);
        run->is_covering = true;
        write_start(&data, run, &options);
    }
    pthread_mutex_lock(&client->lock);
    enum lease_status status = start(client, run, &data, wait_ms, ret_run, &error);
    pthread_mutex_unlock(&client->lock);
    buf_release(&data);
    if (status == LEASE_FAILED) {
        run_release(run);
        return fail(ret_error, &error);
    }
    if (status == LEASE_ACCEPTED && run->is_covering)
        status = cover_all(run, &options, wait_ms, ret_error);
    if (status == LEASE_FAILED) {
        lease_run_free(run);
        *ret_run = NULL;
    }
    return status;
}

/* ---- what its holder asks ---- */

static enum lease_status ask_as_holder(struct lease_run *run, enum lease_command command, const struct messages_words *words,
                                       unsigned wait_ms, struct lease_error *ret_error) {
    struct error error = {0};
    enum lease_status status = LEASE_FAILED;
    pthread_mutex_lock(&run->client->lock);
    if (!run->has_grant) {
        error_set(&error, ERROR_REJECT, "not_granted", "%s was not granted", run->lease);
    } else if (can_ask(run, wait_ms, &error)) {
        struct buf data = BUF_INIT;
        messages_write_one(&data, &run->grant, words);
        status = run_ask(run, command, &data, wait_ms);
    }
    pthread_mutex_unlock(&run->client->lock);
    return status == LEASE_FAILED ? fail(ret_error, &error) : status;
}

enum lease_status lease_run_renew(struct lease_run *run, unsigned wait_ms, struct lease_error *error) {
    struct messages_words words = {.ttl_ms = run->ttl_ms, .delay_ms = -1};
    return ask_as_holder(run, LEASE_COMMAND_RENEW, &words, wait_ms, error);
}

enum lease_status lease_run_advance(struct lease_run *run, const char *step, unsigned wait_ms, struct lease_error *ret_error) {
    struct messages_words words = {.step = step, .delay_ms = -1};
    struct error error = {0};
    if (step && event_text_step((struct slice){step, strlen(step)}) == EVENT_REASON_NONE)
        return ask_as_holder(run, LEASE_COMMAND_ADVANCE, &words, wait_ms, ret_error);
    error_set(&error, ERROR_REJECT, "options", "this is no name of a step");
    return fail(ret_error, &error);
}

enum lease_status lease_run_finish(struct lease_run *run, const char *result, unsigned wait_ms, struct lease_error *ret_error) {
    struct messages_words words = {.result = result, .delay_ms = -1};
    struct error error = {0};
    if (!result || messages_is_payload(result))
        return ask_as_holder(run, LEASE_COMMAND_FINISH, &words, wait_ms, ret_error);
    error_set(&error, ERROR_REJECT, "options", "the result is no JSON object of at most %d bytes", LEASE_PAYLOAD_MAX);
    return fail(ret_error, &error);
}

enum lease_status lease_run_fail(struct lease_run *run, const char *reason, bool retry, unsigned wait_ms,
                                 struct lease_error *error) {
    struct buf text = BUF_INIT;
    messages_clean_reason(&text, reason ? reason : "");
    struct messages_words words = {.reason = buf_text(&text), .retry = retry, .delay_ms = -1};
    enum lease_status status = ask_as_holder(run, LEASE_COMMAND_FAIL, &words, wait_ms, error);
    buf_release(&text);
    return status;
}

enum lease_status lease_run_release(struct lease_run *run, unsigned wait_ms, struct lease_error *error) {
    struct messages_words words = {.delay_ms = -1};
    return ask_as_holder(run, LEASE_COMMAND_RELEASE, &words, wait_ms, error);
}

/* ---- what it is ---- */

const struct lease_grant *lease_run_grant(const struct lease_run *run) {
    pthread_mutex_lock(&run->client->lock);
    bool has_grant = run->has_grant;
    pthread_mutex_unlock(&run->client->lock);
    return has_grant ? &run->grant : NULL;
}

const struct lease_answer *lease_run_answer(const struct lease_run *run) {
    pthread_mutex_lock(&run->client->lock);
    bool has_answer = run->has_answer;
    pthread_mutex_unlock(&run->client->lock);
    return has_answer ? &run->answer : NULL;
}

bool lease_run_progress(struct lease_run *run) {
    return atomic_load(&run->is_held) && hold_progress(&run->hold, hold_clock_us());
}

bool lease_run_is_mine(struct lease_run *run) {
    return atomic_load(&run->is_held) && hold_is_mine(&run->hold, hold_clock_us());
}

int64_t lease_run_remaining_ms(struct lease_run *run) {
    return atomic_load(&run->is_held) ? hold_remaining_us(&run->hold, hold_clock_us()) / 1000 : 0;
}

void lease_run_free(struct lease_run *run) {
    if (!run)
        return;
    struct lease_client *client = run->client;
    pthread_mutex_lock(&client->lock);
    while (run->calls > 0)
        pthread_cond_wait(&client->is_changed, &client->lock);
    TAILQ_REMOVE(&client->runs, run, all);
    client->run_count--;
    client_say_farewell(client, atomic_load(&run->is_held) ? &run->grant : NULL, run->has_partition ? run->partition : -1);
    pthread_mutex_unlock(&client->lock);
    link_wake(client->link);
    run_release(run);
}
