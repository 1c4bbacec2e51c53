/* worker, client: what becomes of items and runs, step by step, without a broker: nothing listens where commands are sent. */
#include "common/buf.h"
#include "common/event.h"
#include "worker/client_private.h"
#include "worker/worker_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CLAIM_ID "0198c0de-0000-7000-8000-000000000001"
#define TOKEN "ac5aef25547bdb31f7f4f1f21c57b2b81b9002817d8b8234752b960c3a771439"

enum { TTL_MS = 30000 };
static const struct hold_terms terms = {.ttl_us = TTL_MS * 1000, .margin_us = 1000000};
static const struct lease_connection nowhere = {.brokers = "127.0.0.1:1", .topic_prefix = "", .group = "g"};

static struct link *new_link(void) {
    struct link *link;
    struct error error = {0};
    assert_true(link_new(&nowhere, "cleanup", "w", 10, &link, &error));
    return link;
}

/* ---- a pool worker whose thread is the test ---- */

static int setup_worker(void **state) {
    struct lease_worker *worker = memory_alloc(sizeof *worker);
    worker->link = new_link();
    worker->terms = terms;
    worker->ttl_ms = TTL_MS;
    worker->wait_ms = 10000;
    worker->answer_us = TTL_MS * 1000;
    worker->look_us = INT64_MAX;
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->is_work, NULL);
    pthread_cond_init(&worker->is_quiet, NULL);
    TAILQ_INIT(&worker->hand);
    TAILQ_INIT(&worker->ready);
    TAILQ_INIT(&worker->decided);
    TAILQ_INIT(&worker->gone);
    TAILQ_INIT(&worker->sent);
    credit_init(&worker->credit, 10);
    *state = worker;
    return 0;
}

static int teardown_worker(void **state) {
    struct lease_worker *worker = *state;
    struct calls calls;
    struct lease_item *item;
    calls_init(&calls, worker);
    while (!TAILQ_EMPTY(&worker->sent))
        worker_forget(worker, TAILQ_FIRST(&worker->sent));
    while ((item = TAILQ_FIRST(&worker->hand)) != NULL)
        worker_settle(worker, item, NULL, &calls);
    calls_make(&calls);
    link_free(worker->link);
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->is_work);
    pthread_cond_destroy(&worker->is_quiet);
    free(worker);
    return 0;
}

static struct lease_item *add_ready(struct lease_worker *worker, const char *lease) {
    const struct lease_grant grant = {.kind = "cleanup", .lease = lease, .holder = link_holder(worker->link), .fence = 7,
                                      .claim_id = CLAIM_ID, .token = TOKEN, .attempt = 1};
    struct lease_item *item = item_new(worker, &grant);
    int64_t now_us = hold_clock_us();
    hold_init(&item->hold, &terms, now_us, now_us);
    TAILQ_INSERT_TAIL(&worker->hand, item, hand);
    worker->hand_count++;
    HASH_ADD_KEYPTR(by_lease, worker->by_lease, item->grant.lease, strlen(item->grant.lease), item);
    TAILQ_INSERT_TAIL(&worker->ready, item, queue);
    return item;
}

static struct lease_item *add_decided(struct lease_worker *worker, const char *lease, enum item_verdict verdict, const char *words) {
    struct lease_item *item = add_ready(worker, lease);
    worker_unqueue(worker, item);
    item_step(item, ITEM_TAKE);
    item_decide(item, verdict, words, words ? strlen(words) : 0);
    item_step(item, ITEM_DECIDE);
    worker_queue_decided(worker, item, hold_clock_us());
    return item;
}

static void take_answer(struct lease_worker *worker, uint64_t number, const char *items) {
    struct buf text = BUF_INIT, id = BUF_INIT;
    struct calls calls;
    const char *holder = link_holder(worker->link);
    buf_appendf(&id, "%s-%llu", strrchr(holder, '.') + 1, (unsigned long long)number);
    buf_appendf(&text, "{\"number\":9,\"outcome\":\"answered\",\"kind\":\"cleanup\",\"lease\":\"%s\",\"command\":{\"source\":"
                "\"/liblease-worker\",\"id\":\"%s\"},\"items\":[%s]}", holder, buf_text(&id), items);
    const struct message record = {.key = holder, .key_size = strlen(holder), .value = buf_text(&text), .value_size = text.size};
    calls_init(&calls, worker);
    worker_take_result(worker, &record, &calls);
    calls_make(&calls);
    buf_release(&text);
    buf_release(&id);
}

static void send(struct lease_worker *worker) {
    struct calls calls;
    calls_init(&calls, worker);
    worker_send(worker, &calls);
    calls_make(&calls);
}

static void test_worker__sends_again_what_an_answer_does_not_speak_of(void **state) {
    /* What is said of the second item. */
    static const char *const rows[] = {"", ",{\"lease\":\"b\",\"outcome\":\"of-another-version\",\"fence\":7}", ",7"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lease_worker *worker;
        setup_worker((void **)&worker);
        add_decided(worker, "a", ITEM_FINISH, NULL);
        struct lease_item *open = add_decided(worker, "b", ITEM_FINISH, NULL);
        send(worker);
        struct command_sent *command = TAILQ_FIRST(&worker->sent);
        assert_non_null(command);
        assert_int_equal(command->count, 2);
        char items[200];
        snprintf(items, sizeof items, "{\"lease\":\"a\",\"outcome\":\"finished\",\"fence\":7}%s", rows[i]);
        take_answer(worker, command->number, items);
        assert_int_equal(worker->stats.finished, 1);
        assert_int_equal(worker->hand_count, 1);
        send(worker); /* not at once: a newer coordinator would answer the same for ever */
        assert_int_equal(open->sendings, 1);
        command->sent_us -= worker->answer_us;
        send(worker);
        assert_int_equal(open->sendings, 2);
        take_answer(worker, open->sent_by, "{\"lease\":\"b\",\"outcome\":\"final\",\"fence\":7}");
        assert_int_equal(worker->hand_count, 0);
        teardown_worker((void **)&worker);
    }
    (void)state;
}

static void test_worker__forgets_a_command_that_was_answered_whole(void **state) {
    struct lease_worker *worker = *state;
    add_decided(worker, "a", ITEM_FINISH, NULL);
    send(worker);
    take_answer(worker, TAILQ_FIRST(&worker->sent)->number, "{\"lease\":\"a\",\"outcome\":\"finished\",\"fence\":7}");
    assert_true(TAILQ_EMPTY(&worker->sent));
    assert_int_equal(worker->hand_count, 0);
}

/* Each becomes two bytes in JSON. */
static void test_worker__counts_what_quoting_adds_to_reasons(void **state) {
    struct lease_worker *worker = *state;
    char reason[501];
    memset(reason, '"', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    for (int i = 0; i < 500; i++) {
        char lease[16];
        snprintf(lease, sizeof lease, "l%d", i);
        add_decided(worker, lease, ITEM_FAIL, reason);
    }
    send(worker);
    const struct command_sent *command;
    size_t count = 0;
    TAILQ_FOREACH(command, &worker->sent, all) {
        struct buf data = BUF_INIT;
        messages_begin_items(&data, link_holder(worker->link));
        for (size_t i = 0; i < command->count; i++) {
            const struct messages_words words = {.reason = command->items[i]->words, .delay_ms = -1};
            messages_add_item(&data, &command->items[i]->grant, &words);
        }
        messages_end_items(&data, 0);
        assert_true(data.size <= EVENT_VALUE_MAX);
        count += command->count;
        buf_release(&data);
    }
    assert_int_equal(count, 500);
}

/* ---- a stop, with its threads ---- */

static void count_work(void *context, struct lease_item *item) {
    atomic_fetch_add((_Atomic int *)context, 1);
    lease_item_finish(item, NULL);
}

/* Items are there and threads were told, and then comes the stop, before the handle's thread has looked. */
static void test_worker__begins_nothing_once_it_stops(void **state) {
    (void)state;
    _Atomic int begun = 0;
    struct lease_worker_options options;
    struct lease_worker *worker;
    struct lease_error error;
    lease_worker_options_init(&options);
    options.connection.brokers = nowhere.brokers;
    options.kind = "cleanup";
    options.work = count_work;
    options.context = &begun;
    assert_true(lease_worker_start(&options, &worker, &error));
    pthread_mutex_lock(&worker->lock);
    char lease[16];
    for (int i = 0; i < 100; i++) {
        snprintf(lease, sizeof lease, "l%d", i);
        add_ready(worker, lease);
    }
    worker->is_draining = true;
    pthread_cond_broadcast(&worker->is_work);
    pthread_mutex_unlock(&worker->lock);
    lease_worker_free(worker);
    assert_int_equal(begun, 0);
}

/* ---- runs ---- */

static void drop_farewell(struct lease_client *client) {
    struct farewell *farewell = TAILQ_FIRST(&client->farewells);
    TAILQ_REMOVE(&client->farewells, farewell, all);
    buf_release(&farewell->data);
    free(farewell->lease);
    free(farewell);
}

static void test_client__a_grant_that_comes_again_is_not_given_back(void **state) {
    (void)state;
    struct lease_client client = {.link = new_link()};
    struct lease_run run = {.client = &client, .lease = (char *)"l1", .has_grant = true,
                            .grant = {.kind = "cleanup", .lease = "l1", .fence = 7, .claim_id = CLAIM_ID}};
    struct call_list calls;
    struct buf id = BUF_INIT;
    pthread_mutex_init(&client.lock, NULL);
    TAILQ_INIT(&client.runs);
    TAILQ_INIT(&client.farewells);
    TAILQ_INIT(&calls);
    TAILQ_INSERT_TAIL(&client.runs, &run, all);
    buf_appendf(&id, "%s-1", strrchr(link_holder(client.link), '.') + 1);
    for (int fence = 7; fence <= 8; fence++) { /* 8: of a start that nobody waits for */
        struct buf text = BUF_INIT;
        buf_appendf(&text, "{\"kind\":\"cleanup\",\"lease\":\"l1\",\"holder\":\"h\",\"fence\":%d,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN
                    "\",\"command\":{\"source\":\"/liblease-worker\",\"id\":\"%s\"}}", fence, buf_text(&id));
        const struct message record = {.value = buf_text(&text), .value_size = text.size};
        client_take_grant(&client, &record, &calls);
        assert_int_equal(!TAILQ_EMPTY(&client.farewells), fence == 8);
        buf_release(&text);
    }
    drop_farewell(&client);
    buf_release(&id);
    pthread_mutex_destroy(&client.lock);
    link_free(client.link);
}

/* The coordinator may still take it for live, so it would cover, and begin, what we count as lost. */
static void test_client__a_large_start_that_is_lost_for_us_asks_for_nothing_more(void **state) {
    (void)state;
    const char *const names[] = {"album/1", "album/2"};
    struct lease_client client = {.link = new_link()};
    struct lease_run run = {.client = &client, .lease = (char *)"l1", .has_grant = true, .is_held = true, .is_covering = true,
                            .grant = {.kind = "settlement", .lease = "l1", .holder = "h", .fence = 7, .claim_id = CLAIM_ID, .token = TOKEN}};
    struct lease_run_options options;
    struct lease_error error;
    lease_run_options_init(&options);
    options.resources = names;
    options.resource_count = 2;
    pthread_mutex_init(&client.lock, NULL);
    TAILQ_INIT(&client.farewells);
    hold_init(&run.hold, &terms, hold_clock_us() - terms.ttl_us, hold_clock_us());
    assert_int_equal(cover_all(&run, &options, 60000, &error), LEASE_REFUSED);
    assert_string_equal(run.answer.outcome, "lapsed");
    assert_true(run.answer.is_refusal);
    assert_false(run.has_grant || run.is_held || run.is_covering);
    assert_string_equal(TAILQ_FIRST(&client.farewells)->lease, "l1");
    drop_farewell(&client);
    free(run.answer_texts);
    pthread_mutex_destroy(&client.lock);
    link_free(client.link);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worker__sends_again_what_an_answer_does_not_speak_of),
        cmocka_unit_test_setup_teardown(test_worker__forgets_a_command_that_was_answered_whole, setup_worker, teardown_worker),
        cmocka_unit_test_setup_teardown(test_worker__counts_what_quoting_adds_to_reasons, setup_worker, teardown_worker),
        cmocka_unit_test(test_worker__begins_nothing_once_it_stops),
        cmocka_unit_test(test_client__a_grant_that_comes_again_is_not_given_back),
        cmocka_unit_test(test_client__a_large_start_that_is_lost_for_us_asks_for_nothing_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
