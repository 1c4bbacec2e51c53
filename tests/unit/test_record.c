/* Records out, text against text: which rows give which record, what stands in it, and what never does. */
#include "common/clock.h"
#include "common/event.h"
#include "common/record.h"
#include "common/rfc3339.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define KEY "0123456789abcdef0123456789abcdef"
#define CLAIM_ID "0198c0de-0000-7000-8000-000000000001"
#define TOKEN "ac5aef25547bdb31f7f4f1f21c57b2b81b9002817d8b8234752b960c3a771439"
#define TRACEPARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#define AT INT64_C(1782864000123456) /* 2026-07-01T00:00:00.123456Z */
#define LENGTH(array) (sizeof(array) / sizeof *(array))

static struct token_keys *keys;

static int make_keys(void **state) {
    (void)state;
    struct error error;
    return token_keys_new(KEY, strlen(KEY), NULL, 0, &keys, &error) ? 0 : -1;
}

static int free_keys(void **state) {
    (void)state;
    token_keys_free(keys);
    return 0;
}

static struct journal_row granted_row(void) {
    struct journal_row row = JOURNAL_ROW_INIT;
    row.number = 4294967301;
    row.at_us = AT;
    row.event = "granted";
    row.kind = "settlement";
    row.subject = "settlement/2026-06";
    row.command = "start";
    row.source = "/producers/royalty";
    row.message_id = "message-1";
    row.traceparent = TRACEPARENT;
    row.origin_topic = "settlement.events";
    row.origin_partition = 3;
    row.origin_offset = 41;
    row.holder = "run-1";
    row.has_claim_id = claim_id_parse(CLAIM_ID, strlen(CLAIM_ID), &row.claim_id);
    row.fence = 4294967297;
    row.since_us = AT;
    row.lease_until_us = AT + 30000000;
    row.state = "held";
    row.payload = "{\"share\": 0.70, \"note\": \"a  b\"}";
    row.changes_lease = true;
    row.is_grant = true;
    return row;
}

static struct journal_row held_row(void) {
    struct journal_row row = granted_row();
    row.event = "held";
    row.has_claim_id = false;
    row.holder = NULL;
    row.fence = row.since_us = row.lease_until_us = ROW_NULL;
    row.state = NULL;
    row.payload = NULL;
    row.changes_lease = row.is_grant = false;
    row.blocker = "{\"kind\": \"settlement\", \"lease\": \"settlement/2026-05\", \"resource\": \"album/1\", \"holder\": \"run-0\", "
                  "\"fence\": 12, \"since\": \"2026-07-01T08:59:00+09:00\", \"until\": \"2026-07-01T00:00:10.5+00:00\", \"remaining_ms\": 99}";
    return row;
}

static struct journal_row dead_letter_row(void) {
    static const uint8_t headers[] = "\0\0\0\5trace\0\0\0\1a" "\0\0\0\4null\377\377\377\377" "\0\0\0\0\0\0\0\0";
    struct journal_row row = JOURNAL_ROW_INIT;
    row.number = 9;
    row.at_us = AT;
    row.event = "dead_letter";
    row.reason = "invalid_json";
    row.field = "not JSON, at byte 7";
    row.origin_topic = "settlement.events";
    row.origin_partition = 3;
    row.origin_offset = 41;
    row.raw_key = (const uint8_t *)"k\0y";
    row.raw_key_size = 3;
    row.raw_value = (const uint8_t *)"\xFF\0x";
    row.raw_value_size = 3;
    row.raw_headers = headers;
    row.raw_headers_size = sizeof headers - 1;
    return row;
}

static void assert_bytes(const void *got, size_t size, const char *expected) {
    if (got == NULL || size != strlen(expected) || memcmp(got, expected, size) != 0)
        fail_msg("expected %s\n     got %.*s", expected, (int)size, got == NULL ? "" : (const char *)got);
}

struct expected_header {
    const char *name;
    const char *value; /* NULL: null */
};

static void assert_headers(const struct record *record, const struct expected_header *expected, size_t count) {
    for (size_t i = 0; i < count && i < record->header_count; i++) {
        const struct message_header *header = &record->headers[i];
        assert_string_equal(header->name, expected[i].name);
        assert_int_equal(header->name_size, strlen(expected[i].name));
        if (expected[i].value == NULL)
            assert_null(header->value);
        else
            assert_bytes(header->value, header->value_size, expected[i].value);
    }
    assert_int_equal(record->header_count, count);
}

static void record_result__of_a_grant__says_all_but_the_token(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = granted_row();
    record_init(&record);
    assert_true(record_encode_result(&record, &row, 7));
    assert_int_equal(record.topic, TOPIC_RESULTS);
    assert_bytes(record.key, record.key_size, "settlement/2026-06");
    assert_bytes(record.value, record.value_size,
                 "{\"number\":4294967301,\"outcome\":\"granted\",\"kind\":\"settlement\",\"lease\":\"settlement/2026-06\","
                 "\"command\":{\"type\":\"settlement.start\",\"source\":\"/producers/royalty\",\"id\":\"message-1\"},"
                 "\"origin\":{\"topic\":\"settlement.events\",\"partition\":3,\"offset\":41},\"fence\":4294967297,"
                 "\"claim_id\":\"" CLAIM_ID "\",\"holder\":\"run-1\",\"since\":\"2026-07-01T00:00:00.123456Z\","
                 "\"until\":\"2026-07-01T00:00:30.123456Z\",\"remaining_ms\":30000,\"state\":\"held\"}");
    static const struct expected_header headers[] = {
        {"ce_specversion", "1.0"},
        {"ce_id", "4294967301"},
        {"ce_source", "/leasehold"},
        {"ce_type", "settlement.granted"},
        {"ce_subject", "settlement/2026-06"},
        {"ce_time", "2026-07-01T00:00:00.123456Z"},
        {"content-type", "application/json"},
        {"ce_traceparent", TRACEPARENT},
        {"lease_number", "4294967301"},
        {"lease_epoch", "7"},
        {"lease_outcome", "granted"},
        {"lease_fence", "4294967297"},
    };
    assert_headers(&record, headers, LENGTH(headers));
    record_release(&record);
}

static void record_result__of_a_refusal__says_who_holds_it_and_how_long(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = held_row();
    record_init(&record);
    assert_true(record_encode_result(&record, &row, 7));
    assert_bytes(record.value, record.value_size,
                 "{\"number\":4294967301,\"outcome\":\"held\",\"kind\":\"settlement\",\"lease\":\"settlement/2026-06\","
                 "\"command\":{\"type\":\"settlement.start\",\"source\":\"/producers/royalty\",\"id\":\"message-1\"},"
                 "\"origin\":{\"topic\":\"settlement.events\",\"partition\":3,\"offset\":41},"
                 "\"held_by\":{\"kind\":\"settlement\",\"lease\":\"settlement/2026-05\",\"resource\":\"album/1\",\"holder\":\"run-0\","
                 "\"fence\":12,\"since\":\"2026-06-30T23:59:00.000000Z\",\"until\":\"2026-07-01T00:00:10.500000Z\","
                 "\"remaining_ms\":10376}}");
    assert_int_equal(record.header_count, 11); /* no fence */
    record_release(&record);
}

static void record_result__fence_that_a_refused_command_claimed__is_in_no_header(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = held_row();
    row.event = "stale";
    row.command = "finish";
    row.blocker = NULL;
    row.fence = INT64_C(8589934881);
    record_init(&record);
    assert_true(record_encode_result(&record, &row, 7));
    for (size_t i = 0; i < record.header_count; i++)
        assert_string_not_equal(record.headers[i].name, "lease_fence");
    row.event = "lapsed"; /* nobody asked: the lease's own fence */
    row.command = NULL;
    assert_true(record_encode_result(&record, &row, 7));
    assert_string_equal(record.headers[record.header_count - 1].name, "lease_fence");
    record_release(&record);
}

static void record_result__blocker_without_expiry__has_no_remaining_time(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = held_row();
    row.blocker = "{\"kind\": \"settlement\", \"lease\": \"a \\\" b\", \"resource\": null, \"fence\": 12, \"until\": null}";
    record_init(&record);
    assert_true(record_encode_result(&record, &row, 7));
    assert_non_null(strstr(record.value, "\"held_by\":{\"kind\":\"settlement\",\"lease\":\"a \\\" b\",\"fence\":12}}"));
    record_release(&record);
}

static void record_result__of_a_lapse__names_no_command_and_no_time_left(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = granted_row();
    row.event = "lapsed";
    row.command = row.source = row.message_id = row.traceparent = row.origin_topic = NULL;
    row.state = "free";
    row.min_fence = row.fence + 1;
    row.lease_until_us = AT - 90900;
    row.is_grant = false;
    record_init(&record);
    assert_true(record_encode_result(&record, &row, 7));
    assert_bytes(record.value, record.value_size,
                 "{\"number\":4294967301,\"outcome\":\"lapsed\",\"kind\":\"settlement\",\"lease\":\"settlement/2026-06\","
                 "\"fence\":4294967297,\"claim_id\":\"" CLAIM_ID "\",\"holder\":\"run-1\",\"since\":\"2026-07-01T00:00:00.123456Z\","
                 "\"until\":\"2026-07-01T00:00:00.032556Z\",\"remaining_ms\":0,\"state\":\"free\",\"min_fence\":4294967298}");
    record_release(&record);
}

static void record_result__of_a_grant_out_of_the_line__names_its_claim(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = granted_row();
    row.command = NULL;
    record_init(&record);
    assert_true(record_encode_result(&record, &row, 7));
    assert_non_null(strstr(record.value, ",\"command\":{\"source\":\"/producers/royalty\",\"id\":\"message-1\"},"));
    assert_true(record_encode_grant(&record, &row, 7, keys));
    assert_non_null(strstr(record.value, ",\"command\":{\"source\":\"/producers/royalty\",\"id\":\"message-1\"},"));
    record_release(&record);
}

static void record_result__of_a_run_over_guarded_rows__says_what_became_of_them(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = held_row();
    record_init(&record);
    row.event = "finished";
    row.basis = "{\"basis\": \"changed\", \"edits\": 1, \"changes\": [{\"at\": \"2026-01-02T03:04:05.000006Z\", \"resource\": \"contract/1\"}]}";
    assert_true(record_encode_result(&record, &row, 3));
    assert_non_null(strstr(record.value, ",\"basis\":\"changed\",\"edits\":1,\"changes\":[{\"at\":\"2026-01-02T03:04:05.000006Z\",\"resource\":\"contract/1\"}]"));
    record_release(&record);
}

static void record_result__of_a_duplicate__carries_the_original(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = held_row();
    row.event = "duplicate";
    row.blocker = NULL;
    row.original = "{\"outcome\": \"granted\", \"fence\": 5, \"claim_id\": null}";
    record_init(&record);
    assert_true(record_encode_result(&record, &row, 7));
    assert_non_null(strstr(record.value, ",\"original\":{\"outcome\":\"granted\",\"fence\":5}}"));
    record_release(&record);
}

static void record_result__text_from_outside__is_escaped(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = held_row();
    row.event = "malformed";
    row.blocker = NULL;
    row.reason = "unknown_member";
    row.field = "a\"b\n\x1b[2J";
    record_init(&record);
    assert_true(record_encode_result(&record, &row, 7));
    assert_non_null(strstr(record.value, "\"reason\":\"unknown_member\",\"field\":\"a\\\"b\\n\\u001b[2J\"}"));
    record_release(&record);
}

static void record_grant__is_for_its_holder__with_the_token(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = granted_row();
    row.attempt = 1;
    row.step = "calculated";
    row.refresh = 3;
    record_init(&record);
    assert_true(record_encode_grant(&record, &row, 7, keys));
    assert_int_equal(record.topic, TOPIC_GRANTS);
    assert_bytes(record.key, record.key_size, "run-1");
    assert_bytes(record.value, record.value_size,
                 "{\"number\":4294967301,\"kind\":\"settlement\",\"lease\":\"settlement/2026-06\",\"holder\":\"run-1\","
                 "\"fence\":4294967297,\"claim_id\":\"" CLAIM_ID "\",\"token\":\"" TOKEN "\","
                 "\"since\":\"2026-07-01T00:00:00.123456Z\",\"until\":\"2026-07-01T00:00:30.123456Z\",\"ttl_ms\":30000,"
                 "\"attempt\":1,\"step\":\"calculated\",\"refresh\":3,"
                 "\"command\":{\"type\":\"settlement.start\",\"source\":\"/producers/royalty\",\"id\":\"message-1\"},"
                 "\"payload\":{\"share\":0.70,\"note\":\"a  b\"}}");
    record_release(&record);
}

static void record_state__is_keyed_by_kind_and_lease__without_expiry(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = granted_row();
    row.min_fence = row.fence;
    record_init(&record);
    assert_true(record_encode_state(&record, &row, 7));
    assert_int_equal(record.topic, TOPIC_STATE);
    assert_bytes(record.key, record.key_size, "settlement/settlement/2026-06");
    assert_bytes(record.value, record.value_size,
                 "{\"number\":4294967301,\"kind\":\"settlement\",\"lease\":\"settlement/2026-06\",\"state\":\"held\","
                 "\"fence\":4294967297,\"min_fence\":4294967297,\"claim_id\":\"" CLAIM_ID "\",\"holder\":\"run-1\","
                 "\"since\":\"2026-07-01T00:00:00.123456Z\"}");
    record_release(&record);
}

static void record_dead_letter__is_the_original_and_our_headers(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = dead_letter_row();
    record_init(&record);
    assert_true(record_encode_dead_letter(&record, &row, 7));
    assert_int_equal(record.topic, TOPIC_DEAD_LETTERS);
    assert_int_equal(record.key_size, 3);
    assert_memory_equal(record.key, "k\0y", 3);
    assert_int_equal(record.value_size, 3);
    assert_memory_equal(record.value, "\xFF\0x", 3);
    static const struct expected_header headers[] = {
        {"trace", "a"},
        {"null", NULL},
        {"", ""},
        {"lease_dlq_reason", "invalid_json"},
        {"lease_dlq_detail", "not JSON, at byte 7"},
        {"lease_dlq_topic", "settlement.events"},
        {"lease_dlq_partition", "3"},
        {"lease_dlq_offset", "41"},
        {"kafka_dlt-original-topic", "settlement.events"},
        {"lease_dlq_at", "2026-07-01T00:00:00.123456Z"},
        {"lease_number", "9"},
        {"lease_epoch", "7"},
    };
    assert_headers(&record, headers, LENGTH(headers));

    size_t extra = 0;
    for (size_t i = 3; i < record.header_count; i++)
        extra += record.headers[i].name_size + record.headers[i].value_size + 16;
    assert_true(extra + 2 * 249 + 128 < RECORD_DEAD_LETTER_EXTRA); /* with the longest topic names and details */
    record_release(&record);
}

static void record_dead_letter__null_key_and_value__stay_null(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = dead_letter_row();
    row.raw_key = row.raw_value = NULL;
    row.raw_key_size = row.raw_value_size = 0;
    record_init(&record);
    assert_true(record_encode_dead_letter(&record, &row, 7));
    assert_null(record.key);
    assert_null(record.value);
    row.raw_key = row.raw_value = (const uint8_t *)"";
    assert_true(record_encode_dead_letter(&record, &row, 7));
    assert_non_null(record.key);
    assert_non_null(record.value);
    assert_int_equal(record.key_size + record.value_size, 0);
    record_release(&record);
}

static void record_dead_letter__thousands_of_headers__all_return(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    struct buf packed = BUF_INIT;
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "h%d", i);
        headers_pack(&(struct message_header){.name = name, .name_size = strlen(name), .value = "v", .value_size = 1}, 1, &packed);
    }
    struct record record;
    struct journal_row row = dead_letter_row();
    row.raw_headers = (const uint8_t *)packed.data;
    row.raw_headers_size = packed.size;
    record_init(&record);
    assert_true(record_encode_dead_letter(&record, &row, 7));
    assert_int_equal(record.header_count, COUNT + 9);
    assert_string_equal(record.headers[0].name, "h0");
    assert_string_equal(record.headers[COUNT - 1].name, "h4999");
    record_release(&record);
    buf_release(&packed);
}

/* One row per kind of journal row, and which records it gives. */
static void record_encode__each_event__gives_its_records(void **state) {
    (void)state;
    static const struct {
        const char *event;
        bool changes_lease, is_grant;
        bool result, grant, is_state, dead_letter;
    } rows[] = {
        {"granted", true, true, true, true, true, false},     {"granted", false, false, true, false, false, false},
        {"renewed", false, false, true, false, false, false}, {"held", false, false, true, false, false, false},
        {"lapsed", true, false, true, false, true, false},    {"dead", true, false, true, false, true, false},
        {"restated", true, false, false, false, true, false}, {"jumped", false, false, false, false, false, false},
        {"dead_letter", false, false, false, false, false, true},
    };
    struct record record;
    record_init(&record);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct journal_row row = granted_row();
        row.event = rows[i].event;
        row.changes_lease = rows[i].changes_lease;
        row.is_grant = rows[i].is_grant;
        assert_int_equal(record_encode_result(&record, &row, 7), rows[i].result);
        assert_int_equal(record_encode_grant(&record, &row, 7, keys), rows[i].grant);
        assert_int_equal(record_encode_state(&record, &row, 7), rows[i].is_state);
        assert_int_equal(record_encode_dead_letter(&record, &row, 7), rows[i].dead_letter);
    }
    record_release(&record);
}

static bool contains(const void *bytes, size_t size, const char *text) {
    return bytes != NULL && memmem(bytes, size, text, strlen(text)) != NULL;
}

static void record_encode__token__stands_in_grants_only(void **state) {
    (void)state;
    struct record record;
    struct journal_row row = granted_row();
    record_init(&record);
    assert_true(record_encode_grant(&record, &row, 7, keys));
    assert_true(contains(record.value, record.value_size, TOKEN));
    assert_false(contains(record.header_text.data, record.header_text.size, TOKEN));
    assert_true(record_encode_result(&record, &row, 7));
    assert_false(contains(record.value, record.value_size, TOKEN));
    assert_true(record_encode_state(&record, &row, 7));
    assert_false(contains(record.value, record.value_size, TOKEN));
    record_release(&record);
}

static void record_mark__has_its_key_per_topic(void **state) {
    (void)state;
    static const struct mark mark = {
        .epoch = 7, .number = 100, .fence = 4294967297, .system_identifier = "7300000000000000001", .timeline = 2};
    static const struct expected_header headers[] = {{"lease_mark", "1"}, {"lease_number", "100"}, {"lease_epoch", "7"}};
    static const char value[] =
        "{\"epoch\":7,\"number\":100,\"fence\":4294967297,\"system_identifier\":\"7300000000000000001\",\"timeline\":2}";
    struct record record;
    record_init(&record);
    record_encode_mark(&record, TOPIC_RESULTS, &mark, NULL, 0);
    assert_int_equal(record.topic, TOPIC_RESULTS);
    assert_bytes(record.key, record.key_size, "~mark");
    assert_bytes(record.value, record.value_size, value);
    assert_headers(&record, headers, LENGTH(headers));
    record_encode_mark(&record, TOPIC_STATE, &mark, "t.lease.results", 11);
    assert_bytes(record.key, record.key_size, "~mark/t.lease.results/11");
    assert_bytes(record.value, record.value_size, value);
    record_release(&record);
}

/* No lease's key in lease.state can be a witness's: kinds start with a letter. */
static void record_witness_key__is_no_leases_key(void **state) {
    (void)state;
    assert_false(lease_kind_is_well_formed("~mark", 5));
}

static void rfc3339__what_the_clock_writes__is_read_back(void **state) {
    (void)state;
    static const int64_t times[] = {0,
                                    AT,
                                    -1,
                                    -62135596800000000,  /* 0001-01-01 */
                                    253402300799999999,  /* the last of 9999 */
                                    951782399999999,     /* 2000-02-28 */
                                    951782400000000,     /* 2000-02-29 */
                                    -2203891200000000,   /* 1900-03-01 */
                                    4107542400000000};   /* 2100-03-01 */
    for (size_t i = 0; i < LENGTH(times); i++) {
        char text[CLOCK_TEXT_SIZE];
        int64_t read;
        clock_format(times[i], text);
        assert_int_equal(rfc3339_parse(text, strlen(text), &read), RFC3339_OK);
        assert_true(read == times[i]);
    }
    for (int64_t us = -62135596800000000; us < 253402300800000000; us += 86399999999 * 97) {
        char text[CLOCK_TEXT_SIZE];
        int64_t read;
        clock_format(us, text);
        assert_int_equal(rfc3339_parse(text, strlen(text), &read), RFC3339_OK);
        assert_true(read == us);
    }
    int64_t read;
    assert_int_equal(rfc3339_parse("2026-07-01T09:00:00.1234567+09:00", 33, &read), RFC3339_OK);
    assert_true(read == AT);
    assert_int_equal(rfc3339_parse("2026-06-30T14:30:00.1-09:30", 27, &read), RFC3339_OK);
    assert_true(read == AT - 23456);
}

/* Printed, not asserted: the machine is shared. */
static void record_encode__a_result__says_how_long_it_takes(void **state) {
    (void)state;
    enum { TIMES = 50000 };
    struct record record;
    record_init(&record);
    struct journal_row rows[] = {granted_row(), held_row()};
    static const char *const names[] = {"granted", "held"};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        clock_t start = clock();
        for (int n = 0; n < TIMES; n++)
            assert_true(record_encode_result(&record, &rows[i], 7));
        print_message("%.2f us of CPU for the result %s\n", (double)(clock() - start) * 1e6 / CLOCKS_PER_SEC / TIMES, names[i]);
    }
    record_release(&record);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_result__of_a_grant__says_all_but_the_token),
        cmocka_unit_test(record_result__of_a_refusal__says_who_holds_it_and_how_long),
        cmocka_unit_test(record_result__fence_that_a_refused_command_claimed__is_in_no_header),
        cmocka_unit_test(record_result__blocker_without_expiry__has_no_remaining_time),
        cmocka_unit_test(record_result__of_a_lapse__names_no_command_and_no_time_left),
        cmocka_unit_test(record_result__of_a_grant_out_of_the_line__names_its_claim),
        cmocka_unit_test(record_result__of_a_run_over_guarded_rows__says_what_became_of_them),
        cmocka_unit_test(record_result__of_a_duplicate__carries_the_original),
        cmocka_unit_test(record_result__text_from_outside__is_escaped),
        cmocka_unit_test(record_grant__is_for_its_holder__with_the_token),
        cmocka_unit_test(record_state__is_keyed_by_kind_and_lease__without_expiry),
        cmocka_unit_test(record_dead_letter__is_the_original_and_our_headers),
        cmocka_unit_test(record_dead_letter__null_key_and_value__stay_null),
        cmocka_unit_test(record_dead_letter__thousands_of_headers__all_return),
        cmocka_unit_test(record_encode__each_event__gives_its_records),
        cmocka_unit_test(record_encode__token__stands_in_grants_only),
        cmocka_unit_test(record_mark__has_its_key_per_topic),
        cmocka_unit_test(record_witness_key__is_no_leases_key),
        cmocka_unit_test(rfc3339__what_the_clock_writes__is_read_back),
        cmocka_unit_test(record_encode__a_result__says_how_long_it_takes),
    };
    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
