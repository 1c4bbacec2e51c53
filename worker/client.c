/* The run side's handle and its thread: sends what runs are asked to do, renews what is held, calls back. */
#include "worker/client_private.h"

#include "common/token.h"
#include "worker/options.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* AGAIN_MS: an answer takes milliseconds; who waits shall not wait much longer if the first sending was lost. FETCH_WAIT_MS: a
 * start in a partition that is not read yet waits for one empty fetch. LINE_TURNS: a place in line outlives so many askings. */
enum { AGAIN_MS = 2000, LINE_TURNS = 3, RETRY_MS = 20, FETCH_WAIT_MS = 20, READ_MAX = 1000, SLEEP_MAX_MS = 1000, LAST_MS = 1000 };

static int64_t earlier(int64_t left_us, int64_t right_us) {
    return left_us < right_us ? left_us : right_us;
}

/* ---- callbacks ---- */

void client_gather(struct call_list *calls, struct lease_run *run, bool is_loss, bool has_answer) {
    if (is_loss ? !run->lost : !run->answered)
        return;
    struct call *call = memory_alloc(sizeof *call);
    *call = (struct call){.run = run, .is_loss = is_loss, .has_answer = has_answer};
    run->calls++;
    TAILQ_INSERT_TAIL(calls, call, all);
}

static void make_calls(struct lease_client *client, struct call_list *calls) {
    struct call *call;
    while ((call = TAILQ_FIRST(calls)) != NULL) {
        struct lease_run *run = call->run; /* NOLINT(clang-analyzer-unix.Malloc): what is freed was taken out of the list before */
        TAILQ_REMOVE(calls, call, all);
        if (call->is_loss)
            run->lost(run->context, run);
        else
            run->answered(run->context, run, call->has_answer ? &run->answer : NULL);
        pthread_mutex_lock(&client->lock);
        run->calls--;
        pthread_cond_broadcast(&client->is_changed);
        pthread_mutex_unlock(&client->lock);
        free(call);
    }
}

void client_look_at_loss(struct lease_run *run, int64_t now_us, struct call_list *calls) {
    if (atomic_load(&run->is_held) && hold_take_loss(&run->hold, now_us) && !run->is_covering)
        client_gather(calls, run, true, false);
}

bool client_renews(const struct lease_run *run) {
    return !run->is_manual || run->is_covering;
}

/* ---- sending; under the lock ---- */

void client_say_farewell(struct lease_client *client, const struct lease_grant *grant, int32_t partition) {
    if (!grant && partition < 0)
        return;
    struct farewell *farewell = memory_alloc(sizeof *farewell);
    struct messages_words words = {.delay_ms = -1};
    farewell->partition = partition;
    farewell->command = LEASE_COMMAND_RELEASE;
    if (grant) {
        farewell->lease = memory_copy_text(grant->lease);
        messages_write_one(&farewell->data, grant, &words);
    }
    TAILQ_INSERT_TAIL(&client->farewells, farewell, all);
}

/* Who asks again without patience is not in line any more; he is answered `held`, by himself. */
void client_leave_line(struct lease_client *client, const struct lease_run *run) {
    struct farewell *farewell = memory_alloc(sizeof *farewell);
    *farewell = (struct farewell){.command = LEASE_COMMAND_START, .lease = memory_copy_text(run->lease), .partition = -1};
    buf_append(&farewell->data, run->ask.data.data, run->ask.data.size);
    TAILQ_INSERT_TAIL(&client->farewells, farewell, all);
}

static void free_farewell(struct lease_client *client, struct farewell *farewell) {
    TAILQ_REMOVE(&client->farewells, farewell, all);
    if (farewell->data.data)
        token_wipe(farewell->data.data, farewell->data.size);
    buf_release(&farewell->data);
    free(farewell->lease);
    free(farewell);
}

/* False: not all could be sent. */
static bool send_farewells(struct lease_client *client) {
    struct farewell *farewell;
    while ((farewell = TAILQ_FIRST(&client->farewells)) != NULL) {
        if (farewell->lease && !link_send(client->link, farewell->command, farewell->lease, /* NOLINT(clang-analyzer-unix.Malloc): what is freed was taken out of the list before */
                                          link_next_number(client->link), &farewell->data, NULL))
            return false;
        if (farewell->partition >= 0)
            link_unwant(client->link, farewell->partition);
        free_farewell(client, farewell);
    }
    return true;
}

/* Before a start the position must be fixed where its answer will come; later it is. */
static bool can_hear(struct lease_run *run) {
    struct link *link = run->client->link;
    if (!run->has_partition)
        run->has_partition = link_want(link, run->lease, &run->partition);
    return run->has_partition && link_is_ready(link) && link_has(link, run->partition);
}

/* The message that is sent now, and its number: the same one as before, or another asking for the place in line. */
static bool send_in_line(struct lease_run *run, int64_t now_us) {
    struct line *line = &run->ask.line;
    struct buf data = BUF_INIT;
    uint64_t number = link_next_number(run->client->link);
    int64_t rest_us = line->until_us - now_us;
    messages_write_patient(&data, &run->ask.data, number, (unsigned)((earlier(rest_us, LINE_TURNS * line->every_us) + 999) / 1000));
    bool is_sent = link_send(run->client->link, run->ask.command, run->lease, number, &data, NULL);
    buf_release(&data);
    if (!is_sent)
        return false;
    line->asked[line->next].number = number;
    line->asked[line->next].sent_us = now_us;
    line->next = (line->next + 1) % LINE_ASKINGS;
    run->ask.number = number;
    run->ask.first = run->ask.first ? run->ask.first : number;
    return true;
}

static bool send_ask(struct lease_run *run, int64_t now_us) {
    struct ask *ask = &run->ask;
    if (ask->line.until_us > now_us)
        return send_in_line(run, now_us);
    if (ask->number == 0)
        ask->first = ask->number = link_next_number(run->client->link);
    return link_send(run->client->link, ask->command, run->lease, ask->number, &ask->data, NULL);
}

/* Returns when to look again. */
static int64_t serve_ask(struct lease_run *run, int64_t now_us, struct call_list *calls) {
    struct ask *ask = &run->ask;
    if (ask->state != ASK_QUEUED && ask->state != ASK_SENT)
        return INT64_MAX;
    if (ask->has_callback && now_us >= ask->until_us) {
        client_give_up(run, calls);
        return INT64_MAX;
    }
    int64_t until_us = ask->has_callback ? ask->until_us : INT64_MAX;
    if (ask->state == ASK_QUEUED && !can_hear(run))
        return earlier(until_us, now_us + RETRY_MS * 1000);
    if (ask->state == ASK_SENT && now_us < ask->again_us)
        return earlier(until_us, ask->again_us);
    if (ask->line.is_waiting && now_us >= ask->line.until_us)
        return until_us; /* nothing is asked any more: a grant may be on its way */
    bool is_sent = send_ask(run, now_us);
    if (is_sent && ask->state == ASK_QUEUED) {
        ask->state = ASK_SENT;
        ask->sent_us = now_us;
    }
    ask->again_us = now_us + (!is_sent ? RETRY_MS * 1000 : ask->line.until_us > now_us ? ask->line.every_us : AGAIN_MS * 1000);
    return earlier(until_us, ask->again_us);
}

struct renewal {
    struct buf data;
    size_t count;
};

static void send_renewal(struct lease_client *client, struct renewal *renewal, int64_t now_us) {
    if (renewal->count == 0)
        return;
    uint64_t number = link_next_number(client->link);
    messages_end_items(&renewal->data, 0);
    client->renewals[number % CLIENT_RENEWALS].number = number;
    client->renewals[number % CLIENT_RENEWALS].sent_us = now_us;
    /* One that was not sent is asked for again, as one that is not answered. */
    if (!link_send(client->link, LEASE_COMMAND_RENEW, link_holder(client->link), number, &renewal->data, NULL))
        link_say(client->link, LEASE_LOG_INFO, "a renewal could not be sent");
    token_wipe(renewal->data.data, renewal->data.size);
    buf_reset(&renewal->data);
    renewal->count = 0;
}

static void add_renewal(struct lease_client *client, struct lease_run *run, struct renewal *renewal, int64_t now_us) {
    struct messages_words words = {.ttl_ms = 0, .delay_ms = -1};
    if (renewal->count == CLIENT_ITEMS || renewal->data.size > CLIENT_BYTES)
        send_renewal(client, renewal, now_us);
    if (renewal->count++ == 0)
        messages_begin_items(&renewal->data, link_holder(client->link));
    messages_add_item(&renewal->data, &run->grant, &words);
    hold_asked(&run->hold, &run->terms, now_us);
}

/* Returns when to look again. */
static int64_t serve_hold(struct lease_run *run, struct renewal *renewal, int64_t now_us, struct call_list *calls) {
    if (!atomic_load(&run->is_held))
        return INT64_MAX;
    client_look_at_loss(run, now_us, calls);
    bool is_asking = run->ask.state == ASK_QUEUED || run->ask.state == ASK_SENT; /* then it waits, and is not stuck */
    if (!client_renews(run))
        run->hold.look_us = INT64_MAX;
    else if (hold_wish(&run->hold, &run->terms, is_asking, now_us) == HOLD_RENEW)
        add_renewal(run->client, run, renewal, now_us);
    return hold_next_us(&run->hold);
}

static int64_t serve_runs(struct lease_client *client, int64_t now_us, struct call_list *calls) {
    int64_t next_us = INT64_MAX;
    struct renewal renewal = {.data = BUF_INIT};
    struct lease_run *run;
    TAILQ_FOREACH(run, &client->runs, all) {
        next_us = earlier(next_us, serve_ask(run, now_us, calls));
        next_us = earlier(next_us, serve_hold(run, &renewal, now_us, calls));
    }
    send_renewal(client, &renewal, now_us);
    buf_release(&renewal.data);
    if (!send_farewells(client))
        next_us = earlier(next_us, now_us + RETRY_MS * 1000);
    return next_us;
}

/* ---- the thread ---- */

static void read_records(struct lease_client *client, int timeout_ms, struct call_list *calls) {
    struct message record;
    enum link_got got = link_poll(client->link, timeout_ms, &record);
    for (int i = 1; got != LINK_NOTHING; i++) {
        if (got == LINK_GRANT)
            client_take_grant(client, &record, calls);
        else if (got == LINK_RESULT)
            client_take_result(client, &record, calls);
        if (i == READ_MAX)
            break;
        got = link_poll(client->link, 0, &record);
    }
}

static int sleep_ms(int64_t next_us) {
    int64_t ms = (next_us - hold_clock_us() + 999) / 1000;
    return ms < 0 ? 0 : ms > SLEEP_MAX_MS ? SLEEP_MAX_MS : (int)ms;
}

static void *client_loop(void *context) {
    struct lease_client *client = context;
    int64_t next_us = 0;
    for (bool is_over = false; !is_over;) {
        struct call_list calls = TAILQ_HEAD_INITIALIZER(calls);
        read_records(client, sleep_ms(next_us), &calls);
        pthread_mutex_lock(&client->lock);
        next_us = serve_runs(client, hold_clock_us(), &calls);
        is_over = client->is_over;
        pthread_mutex_unlock(&client->lock);
        make_calls(client, &calls);
    }
    link_flush(client->link, LAST_MS);
    return NULL;
}

/* ---- the handle ---- */

static void client_release(struct lease_client *client) {
    while (!TAILQ_EMPTY(&client->farewells))
        free_farewell(client, TAILQ_FIRST(&client->farewells)); /* NOLINT(clang-analyzer-unix.Malloc): what is freed was taken out of the list before */
    link_free(client->link);
    pthread_mutex_destroy(&client->lock);
    pthread_cond_destroy(&client->is_changed);
    free(client);
}

static bool start_loop(struct lease_client *client) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_started = pthread_create(&client->loop, NULL, client_loop, client) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

bool lease_client_new(const struct lease_client_options *given, struct lease_client **ret_client,
                      struct lease_error *ret_error) {
    struct lease_client_options options;
    struct link *link;
    struct error error = {0};
    if (!options_settle_client(given, &options, &error) ||
        !link_new(&options.connection, options.kind, options.name, FETCH_WAIT_MS, &link, &error))
        return options_fail(ret_error, &error);
    struct lease_client *client = memory_alloc(sizeof *client);
    client->link = link;
    client->ttl_ms = options.ttl_ms;
    client->margin_ms = options.margin_ms;
    client->runs_max = options.runs_max;
    pthread_mutex_init(&client->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&client->is_changed, &attributes);
    pthread_condattr_destroy(&attributes);
    TAILQ_INIT(&client->runs);
    TAILQ_INIT(&client->farewells);
    if (!start_loop(client)) {
        client_release(client);
        error_set(&error, ERROR_RETRY, "threads", "cannot start a thread");
        return options_fail(ret_error, &error);
    }
    *ret_client = client;
    return true;
}

void lease_client_free(struct lease_client *client) {
    if (!client)
        return;
    pthread_mutex_lock(&client->lock);
    assert(TAILQ_EMPTY(&client->runs)); /* they point to us */
    client->is_over = true;
    pthread_mutex_unlock(&client->lock);
    link_wake(client->link);
    pthread_join(client->loop, NULL);
    client_release(client);
}

const char *lease_client_holder(const struct lease_client *client) {
    return link_holder(client->link);
}
