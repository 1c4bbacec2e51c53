/* messages: what a client writes is what the coordinator reads, and what the coordinator writes is what a client reads. */
#include "common/event.h"
#include "common/record.h"
#include "worker/messages.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define KEY "0123456789abcdef0123456789abcdef"
#define CLAIM_ID "0198c0de-0000-7000-8000-000000000001"
#define TOKEN "ac5aef25547bdb31f7f4f1f21c57b2b81b9002817d8b8234752b960c3a771439"
#define HOLDER "worker.00112233aabbccdd"

static const struct lease_grant grant = {.kind = "cleanup", .lease = "files/1", .holder = HOLDER, .fence = 17,
                                         .claim_id = CLAIM_ID, .token = TOKEN, .attempt = 1};

/* ---- out ---- */

static struct message_header header(const char *name, const char *value) {
    return (struct message_header){.name = name, .name_size = strlen(name), .value = value, .value_size = strlen(value)};
}

/* As link_send sends it. */
static void decode(const char *type, const char *subject, const struct buf *data, struct command *ret) {
    const struct message_header headers[] = {
        header("ce_specversion", "1.0"), header("ce_id", "i-1"), header("ce_source", "/liblease-worker"), header("ce_type", type),
        header("ce_subject", subject), header("content-type", "application/json")};
    const struct message message = {.topic = "cleanup.events", .key = subject, .key_size = strlen(subject), .value = buf_text(data),
                                    .value_size = data->size, .headers = headers,
                                    .header_count = sizeof headers / sizeof *headers};
    const struct event_limits limits = event_limits_default();
    if (!event_decode(&message, &limits, ret))
        fail_msg("%s: %s in %s: %s", type, event_reason_name(ret->reason), ret->field, buf_text(data));
}

static void test_messages__writes_claims_that_are_read(void **state) {
    (void)state;
    struct buf data = BUF_INIT;
    struct command command;
    messages_write_claim(&data, 12, 3, 10000, 30000);
    decode("cleanup.claim", HOLDER, &data, &command);
    assert_int_equal(command.amount, 12);
    assert_int_equal(command.refresh, 3);
    assert_int_equal(command.wait_ms, 10000);
    assert_int_equal(command.ttl_ms, 30000);
    command_release(&command);
    buf_release(&data);
}

static void test_messages__writes_starts_that_are_read(void **state) {
    (void)state;
    struct buf data = BUF_INIT;
    struct command command;
    const char *const resources[] = {"album/7", "album/8"};
    const struct messages_start start = {.holder = HOLDER, .ttl_ms = 1000, .resources = resources, .resource_count = 2,
                                         .payload = "{\"share\": 0.70}"};
    messages_write_start(&data, &start);
    decode("settlement.start", "run-1", &data, &command);
    assert_string_equal(command.holder, HOLDER);
    assert_int_equal(command.resource_count, 2);
    assert_string_equal(command.resources[1], "album/8");
    assert_string_equal(command.payload, "{\"share\":0.70}");
    command_release(&command);
    buf_reset(&data);
    messages_write_start(&data, &(struct messages_start){.holder = HOLDER, .ttl_ms = 1});
    decode("settlement.start", "run-1", &data, &command);
    assert_int_equal(command.resource_count, 0);
    command_release(&command);
    buf_release(&data);
}

static void test_messages__writes_large_starts_that_are_read(void **state) {
    (void)state;
    struct buf data = BUF_INIT;
    struct command command;
    const char *const tables[] = {"album", "track"};
    messages_write_start(&data, &(struct messages_start){.holder = HOLDER, .ttl_ms = 1, .more = true, .tables = tables, .table_count = 2});
    decode("settlement.start", "run-1", &data, &command);
    assert_int_equal(command.flag, 1);
    assert_int_equal(command.table_count, 2);
    assert_string_equal(command.tables[1], "track");
    command_release(&command);
    buf_reset(&data);
    messages_write_begin(&data, &grant, 25000);
    decode("settlement.begin", grant.lease, &data, &command);
    assert_int_equal(command.fence, 17);
    assert_string_equal(command.token, TOKEN);
    assert_int_equal(command.amount, 25000);
    command_release(&command);
    buf_release(&data);
}

/* Names of that length, as many as there is room for. Returns how many that were. */
static size_t cover_with(struct buf *data, int size) {
    char name[256];
    size_t count = 0;
    messages_begin_cover(data, &grant);
    for (; count < LEASE_RESOURCES_MAX; count++) {
        snprintf(name, sizeof name, "album/%0*zu", size - 6, count);
        if (!messages_has_room(data, name))
            break;
        messages_add_resource(data, name);
    }
    messages_end_cover(data);
    return count;
}

static void test_messages__writes_covers_up_to_the_last_byte_that_is_allowed(void **state) {
    (void)state;
    for (int size = 12; size <= 198; size++) {
        struct buf data = BUF_INIT;
        struct command command;
        size_t count = cover_with(&data, size);
        assert_true(count == LEASE_RESOURCES_MAX || data.size + (size_t)size + 3 > EVENT_VALUE_MAX);
        assert_true(data.size <= EVENT_VALUE_MAX);
        decode("settlement.cover", grant.lease, &data, &command);
        assert_int_equal(command.resource_count, count);
        command_release(&command);
        buf_release(&data);
    }
}

/* Words, and the type of the command that they belong to. */
static const struct {
    const char *name;
    struct messages_words words;
} said[] = {
    {"renew", {.ttl_ms = 5000, .delay_ms = -1}},
    {"advance", {.step = "calculated", .delay_ms = -1}},
    {"finish", {.result = "{\"rows\": [1, 2], \"name\": \"\\u00e9\"}", .delay_ms = -1}},
    {"finish", {.delay_ms = -1}},
    {"fail", {.reason = "the \"disk\" is full", .retry = true, .delay_ms = 100}},
    {"fail", {.reason = "no", .retry = false, .delay_ms = -1}},
    {"release", {.delay_ms = -1}},
};

static void test_messages__writes_what_holders_say_about_one_lease(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct buf data = BUF_INIT;
        struct command command;
        char type[32];
        snprintf(type, sizeof type, "settlement.%s", said[i].name);
        messages_write_one(&data, &grant, &said[i].words);
        decode(type, grant.lease, &data, &command);
        assert_string_equal(command.holder, HOLDER);
        assert_int_equal(command.fence, 17);
        assert_true(command.has_claim_id);
        assert_string_equal(command.token, TOKEN);
        if (said[i].words.reason) {
            assert_string_equal(command.word, said[i].words.reason);
            assert_int_equal(command.flag, said[i].words.retry);
            assert_int_equal(command.amount, said[i].words.delay_ms);
        }
        command_release(&command);
        buf_release(&data);
    }
}

static void test_messages__writes_what_holders_say_about_many(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct buf data = BUF_INIT;
        struct command command;
        char type[32];
        if (said[i].words.step)
            continue; /* steps are taken one by one */
        snprintf(type, sizeof type, "cleanup.%s", said[i].name);
        messages_begin_items(&data, HOLDER);
        for (int64_t n = 1; n <= 1000; n++) {
            char lease[32];
            struct lease_grant one = grant;
            struct messages_words words = said[i].words;
            snprintf(lease, sizeof lease, "files/%lld", (long long)n);
            one.lease = lease;
            one.fence = n;
            words.ttl_ms = 0;
            messages_add_item(&data, &one, &words);
        }
        messages_end_items(&data, said[i].words.ttl_ms);
        decode(type, HOLDER, &data, &command);
        assert_int_equal(command.item_count, 1000);
        assert_string_equal(command.items[999].lease, "files/1000");
        assert_int_equal(command.items[999].fence, 1000);
        assert_int_equal(command.ttl_ms, said[i].words.ttl_ms ? said[i].words.ttl_ms : COMMAND_ABSENT);
        if (said[i].words.result)
            assert_non_null(command.items[7].payload);
        command_release(&command);
        buf_release(&data);
    }
}

static void test_messages__takes_only_results_that_the_coordinator_takes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool is_payload;
    } rows[] = {
        {"{}", true},
        {"{\"a\": [1, 2.50, {\"b\": null}]}", true},
        {" {\"a\": 1} ", true},
        {"[]", false},
        {"\"a\"", false},
        {"", false},
        {"{\"a\": 1", false},
        {"{\"a\": 1} {}", false},
        {"{\"a\": 1, \"a\": 2}", false},
        {"{\"a\": \"\\u0000\"}", false},
        {"{\"a\": \"\xff\"}", false},
        {"{\"a\": 01}", false},
        {"{\"a\": [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}", false}, /* deeper than half of what a message may be */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (messages_is_payload(rows[i].text) != rows[i].is_payload)
            fail_msg("%s", rows[i].text);
    char *large = malloc(70000);
    assert_non_null(large);
    memset(large, ' ', 70000);
    memcpy(large, "{\"a\": \"", 7);
    memset(large + 7, 'x', 69000);
    memcpy(large + 69007, "\"}", 3);
    assert_false(messages_is_payload(large));
    free(large);
}

static void test_messages__cleans_reasons(void **state) {
    (void)state;
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {"the disk is full", "the disk is full"}, {"a\nb\tc\x7f", "a?b?c?"}, {"caf\xc3\xa9 \xff", "caf\xc3\xa9 ?"},
        {"\xc2\x85", "?"}, {"", "no reason given"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf reason = BUF_INIT;
        messages_clean_reason(&reason, rows[i].text);
        assert_string_equal(buf_text(&reason), rows[i].reason);
        buf_release(&reason);
    }
    char *large = malloc(2001);
    assert_non_null(large);
    for (size_t i = 0; i < 2000; i += 2)
        memcpy(large + i, "\xc3\xa9", 2);
    large[2000] = '\0';
    struct buf reason = BUF_INIT;
    messages_clean_reason(&reason, large);
    assert_int_equal(reason.size, 1000); /* 500 characters */
    buf_release(&reason);
    free(large);
}

/* ---- in ---- */

static struct journal_row row_of(const char *event) {
    struct journal_row row = JOURNAL_ROW_INIT;
    row.number = 7;
    row.at_us = INT64_C(1782864000123456);
    row.event = event;
    row.kind = "cleanup";
    row.subject = "files/1";
    row.command = "claim";
    row.source = "/liblease-worker";
    row.message_id = "00112233aabbccdd-5";
    row.holder = HOLDER;
    row.refresh = 4;
    return row;
}

static struct message message_of(const struct record *record) {
    return (struct message){.topic = "x", .key = record->key, .key_size = record->key_size, .value = record->value,
                            .value_size = record->value_size, .headers = record->headers, .header_count = record->header_count};
}

static void test_messages__reads_grants(void **state) {
    (void)state;
    struct token_keys *keys;
    struct error error;
    struct record record;
    struct messages_grant read;
    assert_true(token_keys_new(KEY, strlen(KEY), NULL, 0, &keys, &error));
    struct journal_row row = row_of("granted");
    row.has_claim_id = claim_id_parse(CLAIM_ID, strlen(CLAIM_ID), &row.claim_id);
    row.fence = 17;
    row.attempt = 2;
    row.since_us = row.at_us;
    row.lease_until_us = row.at_us + 30000000;
    row.payload = "{\"path\": \"a b\"}";
    row.is_grant = true;
    record_init(&record);
    assert_true(record_encode_grant(&record, &row, 1, keys));
    struct message message = message_of(&record);
    assert_true(messages_read_grant(&message, &read));
    assert_string_equal(read.grant.lease, "files/1");
    assert_string_equal(read.grant.holder, HOLDER);
    assert_string_equal(read.grant.claim_id, CLAIM_ID);
    assert_string_equal(read.grant.token, TOKEN);
    assert_int_equal(read.grant.fence, 17);
    assert_int_equal(read.grant.attempt, 2);
    assert_int_equal(read.refresh, 4);
    assert_string_equal(read.command.id, "00112233aabbccdd-5");
    assert_int_equal(read.grant.payload_size, strlen("{\"path\":\"a b\"}"));
    assert_memory_equal(read.grant.payload, "{\"path\":\"a b\"}", read.grant.payload_size);
    messages_free(read.document);
    record_release(&record);
    token_keys_free(keys);
}

static void test_messages__refuses_what_is_no_grant(void **state) {
    (void)state;
    static const char *const texts[] = {
        "", "{", "[]", "{}", "{\"kind\": \"cleanup\"}",
        "{\"kind\":\"c\",\"lease\":\"l\",\"holder\":\"h\",\"fence\":0,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\"}",
        "{\"kind\":\"c\",\"lease\":\"l\",\"holder\":\"h\",\"fence\":1,\"claim_id\":\"x\",\"token\":\"" TOKEN "\"}",
        "{\"kind\":\"c\",\"lease\":\"l\",\"holder\":\"h\",\"fence\":1,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"x\"}",
        "{\"kind\":\"c\",\"lease\":7,\"holder\":\"h\",\"fence\":1,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\"}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct message message = {.value = texts[i], .value_size = strlen(texts[i])};
        struct messages_grant read;
        struct messages_result result;
        assert_false(messages_read_grant(&message, &read));
        assert_false(messages_read_result(&message, &result));
    }
    struct message none = {0};
    struct messages_grant read;
    assert_false(messages_read_grant(&none, &read));
}

static int allocations_left;

static void *allocate_so_often(size_t size) {
    if (allocations_left-- > 0)
        return malloc(size);
    errno = ENOMEM;
    return NULL;
}

/* In a process of its own: it may end there. */
static int read_with_allocations(const struct message *message, int allocations) {
    pid_t child = fork();
    if (child == 0) {
        struct messages_grant read;
        allocations_left = allocations;
        json_set_alloc_funcs(allocate_so_often, free);
        _exit(messages_read_grant(message, &read) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_messages__takes_no_grant_for_junk_because_memory_is_short(void **state) {
    (void)state;
    static const char text[] = "{\"kind\":\"c\",\"lease\":\"l\",\"holder\":\"h\",\"fence\":1,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\"}";
    const struct message message = {.value = text, .value_size = sizeof text - 1};
    int allocations = 0, status;
    while ((status = read_with_allocations(&message, allocations)) == 70)
        allocations++;
    assert_int_equal(status, 0);
    assert_true(allocations > 10);
}

static void test_messages__reads_who_is_in_the_way(void **state) {
    (void)state;
    struct record record;
    struct messages_result read;
    struct journal_row row = row_of("held");
    row.command = "start";
    row.refresh = ROW_NULL;
    row.blocker = "{\"kind\": \"settlement\", \"lease\": \"old\", \"resource\": \"album/1\", \"holder\": \"run-0\", \"fence\": 12, "
                  "\"since\": \"2026-07-01T08:59:00+09:00\", \"until\": \"2026-07-01T00:00:10.5+00:00\", \"remaining_ms\": 99}";
    record_init(&record);
    assert_true(record_encode_result(&record, &row, 1));
    struct message message = message_of(&record);
    assert_true(messages_read_result(&message, &read));
    assert_int_equal(read.outcome, LEASE_OUTCOME_HELD);
    assert_true(read.answer.has_blocker);
    assert_string_equal(read.answer.held_by.holder, "run-0");
    assert_string_equal(read.answer.held_by.resource, "album/1");
    assert_int_equal(read.answer.held_by.fence, 12);
    assert_true(read.answer.held_by.remaining_ms >= 0);
    assert_int_equal(read.refresh, 0);
    messages_free(read.document);
    record_release(&record);
}

static void test_messages__reads_answers_about_many(void **state) {
    (void)state;
    static const char text[] =
        "{\"number\":9,\"outcome\":\"answered\",\"kind\":\"cleanup\",\"lease\":\"" HOLDER "\",\"command\":{\"source\":\"/s\",\"id\":\"i\"},"
        "\"items\":[{\"lease\":\"a\",\"outcome\":\"renewed\",\"fence\":3,\"claim_id\":\"" CLAIM_ID "\"},"
        "{\"lease\":\"b\",\"outcome\":\"stale\",\"fence\":4,\"claim_id\":\"" CLAIM_ID "\"},{\"lease\":\"c\",\"outcome\":\"odd\"},7]}";
    struct message message = {.value = text, .value_size = sizeof text - 1};
    struct messages_result read;
    struct messages_item item;
    assert_true(messages_read_result(&message, &read));
    assert_true(read.is_answered);
    assert_int_equal(read.item_count, 4);
    assert_true(messages_get_item(&read, 0, &item));
    assert_string_equal(item.lease, "a");
    assert_int_equal(item.outcome, LEASE_OUTCOME_RENEWED);
    assert_int_equal(item.fence, 3);
    assert_true(messages_get_item(&read, 1, &item));
    assert_int_equal(item.outcome, LEASE_OUTCOME_STALE);
    assert_false(messages_get_item(&read, 2, &item)); /* an outcome of another version */
    assert_false(messages_get_item(&read, 3, &item));
    messages_free(read.document);
}

static void test_messages__finds_the_first_answer_in_a_duplicate(void **state) {
    (void)state;
    static const char text[] = "{\"number\":9,\"outcome\":\"duplicate\",\"kind\":\"settlement\",\"lease\":\"a\",\"command\":{\"source\":\"/s\","
                               "\"id\":\"i\"},\"original\":{\"outcome\":\"advanced\"}}";
    struct message message = {.value = text, .value_size = sizeof text - 1};
    struct messages_result read;
    assert_true(messages_read_result(&message, &read));
    assert_int_equal(read.outcome, LEASE_OUTCOME_DUPLICATE);
    assert_true(messages_get_original(&read));
    assert_int_equal(read.outcome, LEASE_OUTCOME_ADVANCED);
    assert_string_equal(read.answer.outcome, "advanced");
    messages_free(read.document);
}

static void test_messages__overlooks_events_that_answer_nothing(void **state) {
    (void)state;
    static const char *const events[] = {"lapsed", "dead"};
    for (size_t i = 0; i < 2; i++) {
        struct record record;
        struct messages_result read;
        struct journal_row row = row_of(events[i]);
        row.command = row.source = row.message_id = NULL;
        row.min_fence = 18;
        record_init(&record);
        assert_true(record_encode_result(&record, &row, 1));
        struct message message = message_of(&record);
        assert_false(messages_read_result(&message, &read));
        record_release(&record);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages__writes_claims_that_are_read),
        cmocka_unit_test(test_messages__writes_starts_that_are_read),
        cmocka_unit_test(test_messages__writes_large_starts_that_are_read),
        cmocka_unit_test(test_messages__writes_covers_up_to_the_last_byte_that_is_allowed),
        cmocka_unit_test(test_messages__writes_what_holders_say_about_one_lease),
        cmocka_unit_test(test_messages__writes_what_holders_say_about_many),
        cmocka_unit_test(test_messages__takes_only_results_that_the_coordinator_takes),
        cmocka_unit_test(test_messages__cleans_reasons),
        cmocka_unit_test(test_messages__reads_grants),
        cmocka_unit_test(test_messages__refuses_what_is_no_grant),
        cmocka_unit_test(test_messages__takes_no_grant_for_junk_because_memory_is_short),
        cmocka_unit_test(test_messages__reads_who_is_in_the_way),
        cmocka_unit_test(test_messages__reads_answers_about_many),
        cmocka_unit_test(test_messages__finds_the_first_answer_in_a_duplicate),
        cmocka_unit_test(test_messages__overlooks_events_that_answer_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
