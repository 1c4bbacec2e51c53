/* The Kafka clients against librdkafka's mock cluster, where single requests can be made to fail. */
#include "common/clock.h"
#include "common/kafka_consumer.h"
#include "common/kafka_producer.h"
#include "common/kafka_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#pragma GCC diagnostic pop

enum { PRODUCE_REQUEST = 0, FETCH_REQUEST = 1, SYNC_GROUP_REQUEST = 14, LIMIT_MS = 15000 };

enum { MOCK_JOIN_MS = 3000 }; /* the mock cluster waits so long for more members */

#define TOPIC "results"

struct fixture {
    rd_kafka_t *keeper;
    rd_kafka_mock_cluster_t *cluster;
    struct kafka_settings settings;
    struct kafka_producer *producer;
    struct kafka_reader *reader;
    struct kafka_consumer *consumer;

    /* delivery reports */
    uint64_t delivered[4096];
    int64_t offsets[4096];
    size_t delivered_count, failed_count;
    char failed_code[32];

    /* rebalances */
    size_t assigned, revoked, lost;
    int64_t start_at; /* KAFKA_OFFSET_NONE: not started in the callback */
};

/* In assert_done(call), the call's error is `&trouble`. */
#define assert_done(call)                                                                                      \
    do {                                                                                                       \
        struct error trouble = {0};                                                                            \
        if (!(call))                                                                                           \
            fail_msg("%s: %s: %s", #call, trouble.code, trouble.message);                                      \
    } while (0)

static void on_delivery(void *context, uint64_t number, int32_t partition, int64_t offset,
                        const struct error *error) {
    struct fixture *f = context;
    (void)partition;
    if (error) {
        f->failed_count++;
        if (!f->failed_code[0])
            snprintf(f->failed_code, sizeof f->failed_code, "%s", error->code);
        return;
    }
    assert_true(f->delivered_count < 4096);
    f->delivered[f->delivered_count] = number;
    f->offsets[f->delivered_count++] = offset;
}

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "log_level", "2", text, sizeof text);
    f->keeper = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    f->cluster = rd_kafka_mock_cluster_new(f->keeper, 1);
    rd_kafka_mock_topic_create(f->cluster, TOPIC, 1, 1);
    f->settings.brokers = rd_kafka_mock_cluster_bootstraps(f->cluster);
    f->start_at = KAFKA_OFFSET_BEGINNING;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    kafka_producer_free(f->producer);
    kafka_reader_free(f->reader);
    kafka_consumer_free(f->consumer);
    rd_kafka_mock_cluster_destroy(f->cluster);
    rd_kafka_destroy(f->keeper);
    free(f);
    return 0;
}

static void open_producer(struct fixture *f, struct kafka_producer_options options) {
    options.settings = &f->settings;
    options.delivered = on_delivery;
    options.context = f;
    assert_done(kafka_producer_new(&options, &f->producer, &trouble));
}

static bool send_number(struct fixture *f, uint64_t number, struct error *error) {
    char value[32];
    int size = snprintf(value, sizeof value, "%llu", (unsigned long long)number);
    struct kafka_record record = {
        .topic = TOPIC, .key = "k", .key_size = 1, .value = value, .value_size = (size_t)size, .number = number};
    return kafka_producer_send(f->producer, &record, 5000, error);
}

static void send_numbers(struct fixture *f, uint64_t first, uint64_t last) {
    for (uint64_t number = first; number <= last; number++)
        assert_done(send_number(f, number, &trouble));
}

static void fill_topic(struct fixture *f, uint64_t count) {
    open_producer(f, (struct kafka_producer_options){.queue_messages = 100000});
    for (uint64_t first = 1; first <= count; first += 1000) {
        uint64_t last = first + 999 < count ? first + 999 : count;
        send_numbers(f, first, last);
        f->delivered_count = 0;
        assert_done(kafka_producer_flush(f->producer, LIMIT_MS, &trouble));
    }
    f->delivered_count = 0;
}

static void open_reader(struct fixture *f) {
    struct kafka_reader_options options = {.settings = &f->settings, .group = "g"};
    assert_done(kafka_reader_new(&options, &f->reader, &trouble));
}

static uint64_t number_of(const struct message *message) {
    char text[32] = {0};
    memcpy(text, message->value, message->value_size < 31 ? message->value_size : 31);
    return strtoull(text, NULL, 10);
}

/* What stands in the topic, as numbers. */
static size_t read_all(struct fixture *f, uint64_t *numbers, size_t limit) {
    if (!f->reader)
        open_reader(f);
    struct kafka_partition whole = {TOPIC, 0, KAFKA_OFFSET_BEGINNING};
    assert_done(kafka_reader_assign(f->reader, &whole, 1, &trouble));
    size_t count = 0;
    for (;;) {
        struct message message;
        struct error error;
        enum kafka_read what = kafka_reader_poll(f->reader, LIMIT_MS, &message, &error);
        if (what == KAFKA_READ_END)
            return count;
        assert_int_equal(what, KAFKA_READ_MESSAGE);
        assert_true(count < limit);
        numbers[count++] = number_of(&message);
    }
}

/* ---- configuration ---- */

static void test_kafka_config__says_which_keys_may_be_passed_through(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *code; /* NULL: allowed */
    } rows[] = {
        {"sasl.password", "secret", NULL},
        {"ssl.ca.location", "/etc/ca.pem", NULL},
        {"security.protocol", "sasl_ssl", NULL},
        {"security.protocol", "nonsense", "kafka_value"},
        {"enable.auto.commit", "true", "kafka_key_protocol"},
        {"enable.auto.offset.store", "true", "kafka_key_protocol"},
        {"auto.offset.reset", "earliest", "kafka_key_protocol"},
        {"acks", "1", "kafka_key_protocol"},
        {"enable.idempotence", "false", "kafka_key_protocol"},
        {"group.id", "other", "kafka_key_protocol"},
        {"plugin.library.paths", "/tmp/x.so", "kafka_key_refused"},
        {"ssl.engine.location", "/tmp/x.so", "kafka_key_refused"},
        {"sasl.kerberos.kinit.cmd", "rm", "kafka_key_refused"},
        {"no.such.key", "1", "kafka_key_unknown"},
        {"test.mock.num.brokers", "3", "kafka_key_unknown"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error error = {0};
        bool allowed = kafka_property_check(rows[i].key, rows[i].value, &error);
        assert_string_equal(allowed ? "allowed" : error.code, rows[i].code ? rows[i].code : "allowed");
        assert_null(strstr(error.message, rows[i].value));
    }
    assert_true(kafka_property_is_secret("sasl.password"));
    assert_false(kafka_property_is_secret("sasl.username"));
}

/* The vectors of Kafka's own tests of its murmur2: (hash & 0x7fffffff) % partitions. */
static void test_kafka_config__partitions_keys_as_kafkas_own_clients_do(void **state) {
    (void)state;
    assert_int_equal(kafka_partition_of_key("21", 2, 1000), (-973932308 & 0x7fffffff) % 1000);
    assert_int_equal(kafka_partition_of_key("foobar", 6, 1000), (-790332482 & 0x7fffffff) % 1000);
    assert_int_equal(kafka_partition_of_key("a-little-bit-long-string", 24, 12), (-985981536 & 0x7fffffff) % 12);
}

/* ---- producer ---- */

static void test_kafka_producer__keeps_order_over_passing_errors(void **state) {
    struct fixture *f = *state;
    rd_kafka_mock_push_request_errors(f->cluster, PRODUCE_REQUEST, 4, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
                                      RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, RD_KAFKA_RESP_ERR__TRANSPORT,
                                      RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS);
    open_producer(f, (struct kafka_producer_options){0});
    for (uint64_t number = 1; number <= 300; number += 10) { /* several requests */
        send_numbers(f, number, number + 9);
        kafka_producer_poll(f->producer, 5);
    }
    assert_done(kafka_producer_flush(f->producer, LIMIT_MS, &trouble));
    assert_int_equal(f->failed_count, 0);
    assert_int_equal(f->delivered_count, 300);
    for (size_t i = 0; i < 300; i++) {
        assert_int_equal(f->delivered[i], i + 1);
        assert_true(i == 0 || f->offsets[i] > f->offsets[i - 1]);
    }
    assert_int_equal(kafka_producer_in_flight(f->producer), 0);
}

/* F14: nothing that stands behind a refused record may overtake it. */
static void test_kafka_producer__stops_at_the_first_refused_record(void **state) {
    struct fixture *f = *state;
    open_producer(f, (struct kafka_producer_options){0});
    send_numbers(f, 1, 5);
    assert_done(kafka_producer_flush(f->producer, LIMIT_MS, &trouble));

    rd_kafka_mock_push_request_errors(f->cluster, PRODUCE_REQUEST, 1, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    struct error error = {0};
    for (uint64_t number = 6; number <= 400; number++) {
        if (!send_number(f, number, &error))
            break;
        kafka_producer_poll(f->producer, 1);
    }
    assert_false(kafka_producer_flush(f->producer, LIMIT_MS, &error));
    assert_int_equal(error.kind, ERROR_FATAL);
    assert_string_equal(f->failed_code, "kafka_too_large");
    assert_non_null(kafka_producer_stopped(f->producer));
    assert_false(send_number(f, 1000, &error));
    assert_int_equal(error.kind, ERROR_FATAL);

    uint64_t numbers[512];
    size_t count = read_all(f, numbers, 512);
    assert_int_equal(count, 5);
    assert_int_equal(f->delivered_count, 5);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(numbers[i], i + 1);
}

static void test_kafka_producer__refuses_a_record_that_is_too_large_and_goes_on(void **state) {
    struct fixture *f = *state;
    open_producer(f, (struct kafka_producer_options){.record_bytes = 2000});
    static char large[2001];
    struct kafka_record record = {.topic = TOPIC, .value = large, .value_size = sizeof large, .number = 1};
    struct error error = {0};
    assert_false(kafka_producer_send(f->producer, &record, 0, &error));
    assert_int_equal(error.kind, ERROR_REJECT);
    assert_string_equal(error.code, "kafka_too_large");
    record.value_size = 2000;
    record.number = 2;
    assert_true(kafka_producer_send(f->producer, &record, 0, &error));
    assert_done(kafka_producer_flush(f->producer, LIMIT_MS, &trouble));
    assert_int_equal(f->delivered_count, 1);
    assert_int_equal(f->delivered[0], 2);
}

static void test_kafka_producer__waits_no_longer_than_told_for_room(void **state) {
    struct fixture *f = *state;
    rd_kafka_mock_broker_set_down(f->cluster, 1);
    open_producer(f, (struct kafka_producer_options){.queue_messages = 10});
    send_numbers(f, 1, 10);
    struct error error = {0};
    int64_t before_us = clock_monotonic_us();
    struct kafka_record record = {.topic = TOPIC, .value = "x", .value_size = 1, .number = 11};
    assert_false(kafka_producer_send(f->producer, &record, 200, &error));
    int64_t waited_ms = (clock_monotonic_us() - before_us) / 1000;
    assert_int_equal(error.kind, ERROR_RETRY);
    assert_string_equal(error.code, "kafka_queue_full");
    assert_in_range(waited_ms, 190, LIMIT_MS); /* nobody would ever make room */

    rd_kafka_mock_broker_set_up(f->cluster, 1);
    assert_true(kafka_producer_send(f->producer, &record, LIMIT_MS, &error));
    assert_done(kafka_producer_flush(f->producer, LIMIT_MS, &trouble));
    assert_int_equal(f->delivered_count, 11);
}

static void test_kafka_producer__reports_what_a_purge_dropped(void **state) {
    struct fixture *f = *state;
    rd_kafka_mock_broker_set_down(f->cluster, 1);
    open_producer(f, (struct kafka_producer_options){0});
    send_numbers(f, 1, 20);
    kafka_producer_purge(f->producer);
    for (int64_t until_us = clock_monotonic_us() + LIMIT_MS * 1000LL;
         kafka_producer_in_flight(f->producer) && clock_monotonic_us() < until_us;)
        kafka_producer_poll(f->producer, 50);
    assert_int_equal(f->failed_count, 20);
    assert_string_equal(f->failed_code, "kafka_purged");
}

/* ---- reader ---- */

/* The record at exactly this offset; *ret_found is false if none stands there. */
static bool read_at(struct kafka_reader *reader, const char *topic, int32_t partition, int64_t offset,
                    int timeout_ms, struct message *ret_message, bool *ret_found, struct error *error) {
    struct kafka_partition wanted = {topic, partition, offset};
    if (!kafka_reader_assign(reader, &wanted, 1, error))
        return false;
    int64_t deadline_us = clock_monotonic_us() + (int64_t)timeout_ms * 1000;
    for (;;) {
        int64_t left_ms = (deadline_us - clock_monotonic_us()) / 1000;
        if (left_ms <= 0)
            return error_set(error, ERROR_RETRY, "kafka_timeout", "%s[%d] was not read in %d ms", topic, partition,
                             timeout_ms);
        switch (kafka_reader_poll(reader, (int)left_ms, ret_message, error)) {
        case KAFKA_READ_MESSAGE:
            *ret_found = ret_message->offset == offset;
            return true;
        case KAFKA_READ_END:
            *ret_found = false;
            return true;
        case KAFKA_READ_PARTITION_ERROR:
            return error_prefix(error, "%s[%d] at %lld", topic, partition, (long long)offset);
        case KAFKA_READ_ERROR: /* brokers away: the deadline decides */
            if (error->kind == ERROR_FATAL)
                return false;
            break;
        case KAFKA_READ_NOTHING:
            break;
        }
    }
}

static void test_kafka_reader__shows_records_byte_for_byte(void **state) {
    struct fixture *f = *state;
    open_producer(f, (struct kafka_producer_options){0});
    const struct message_header headers[] = {
        {"one", 3, "1", 1}, {"null", 4, NULL, 0}, {"empty", 5, "", 0}, {"one", 3, "a\0b", 3}};
    struct kafka_record records[] = {
        {.topic = TOPIC, .key = NULL, .value = NULL, .headers = headers, .header_count = 4},
        {.topic = TOPIC, .key = "", .key_size = 0, .value = "", .value_size = 0},
        {.topic = TOPIC, .key = "k\0y", .key_size = 3, .value = "v\0", .value_size = 2},
    };
    for (size_t i = 0; i < 3; i++)
        assert_done(kafka_producer_send(f->producer, &records[i], 1000, &trouble));
    assert_done(kafka_producer_flush(f->producer, LIMIT_MS, &trouble));

    open_reader(f);
    struct message message;
    bool found;
    assert_done(read_at(f->reader, TOPIC, 0, 0, LIMIT_MS, &message, &found, &trouble));
    assert_true(found);
    assert_null(message.key);
    assert_null(message.value);
    assert_int_equal(message.header_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(message.headers[i].name, headers[i].name);
        assert_int_equal(message.headers[i].value_size, headers[i].value_size);
        assert_true((message.headers[i].value == NULL) == (headers[i].value == NULL));
        if (headers[i].value_size)
            assert_memory_equal(message.headers[i].value, headers[i].value, headers[i].value_size);
    }
    assert_done(read_at(f->reader, TOPIC, 0, 1, LIMIT_MS, &message, &found, &trouble));
    assert_non_null(message.key);
    assert_int_equal(message.key_size, 0);
    assert_non_null(message.value);
    assert_int_equal(message.value_size, 0);
    assert_done(read_at(f->reader, TOPIC, 0, 2, LIMIT_MS, &message, &found, &trouble));
    assert_memory_equal(message.key, "k\0y", 3);
    assert_memory_equal(message.value, "v\0", 2);
}

static void test_kafka_reader__reads_tails_and_reports_ends_and_lost_offsets(void **state) {
    struct fixture *f = *state;
    fill_topic(f, 50);
    open_reader(f);
    struct message message;
    struct error error = {0};
    struct kafka_partition tail = {TOPIC, 0, KAFKA_OFFSET_TAIL(3)};
    assert_done(kafka_reader_assign(f->reader, &tail, 1, &trouble));
    for (uint64_t number = 48; number <= 50; number++) {
        assert_int_equal(kafka_reader_poll(f->reader, LIMIT_MS, &message, &error), KAFKA_READ_MESSAGE);
        assert_int_equal(number_of(&message), number);
    }
    assert_int_equal(kafka_reader_poll(f->reader, LIMIT_MS, &message, &error), KAFKA_READ_END);
    assert_string_equal(message.topic, TOPIC);
    assert_int_equal(message.offset, 50);

    bool found;
    assert_done(read_at(f->reader, TOPIC, 0, 50, LIMIT_MS, &message, &found, &trouble));
    assert_false(found);
    assert_false(read_at(f->reader, TOPIC, 0, 51, LIMIT_MS, &message, &found, &error));
    assert_string_equal(error.code, "kafka_offset_out_of_range");
    assert_int_equal(error.kind, ERROR_FATAL);

    int64_t low, high;
    assert_done(kafka_reader_watermarks(f->reader, TOPIC, 0, LIMIT_MS, &low, &high, &trouble));
    assert_int_equal(low, 0);
    assert_int_equal(high, 50);
    int32_t partitions;
    assert_done(kafka_reader_partition_count(f->reader, TOPIC, LIMIT_MS, &partitions, &trouble));
    assert_int_equal(partitions, 1);
}

/* The client library ends the process (rktp_started) when a partition is taken away again before it has stopped. */
static void test_kafka_reader__is_assigned_anew_before_anything_has_come(void **state) {
    struct fixture *f = *state;
    fill_topic(f, 20);
    open_reader(f);
    struct kafka_partition whole = {TOPIC, 0, KAFKA_OFFSET_BEGINNING};
    struct message message;
    struct error error = {0};
    for (int round = 0; round < 10; round++) {
        assert_done(kafka_reader_assign(f->reader, &whole, 1, &trouble));
        enum kafka_read what = KAFKA_READ_NOTHING; /* also when somebody has woken it */
        while (round % 3 == 0 && what == KAFKA_READ_NOTHING)
            what = kafka_reader_poll(f->reader, LIMIT_MS, &message, &error);
        assert_true(round % 3 != 0 || what == KAFKA_READ_MESSAGE);
        assert_done(kafka_reader_assign(f->reader, NULL, 0, &trouble));
        assert_done(kafka_reader_assign(f->reader, &whole, 1, &trouble));
        assert_done(kafka_reader_assign(f->reader, NULL, 0, &trouble));
    }
    uint64_t numbers[32];
    assert_int_equal(read_all(f, numbers, 32), 20);
}

/* The same, at its end: two stops of one partition would be under way. */
static void test_kafka_reader__may_go_right_after_it_was_assigned_anew(void **state) {
    struct fixture *f = *state;
    fill_topic(f, 20);
    struct kafka_partition whole = {TOPIC, 0, KAFKA_OFFSET_BEGINNING};
    struct message message;
    struct error error = {0};
    for (int round = 0; round < 4; round++) {
        open_reader(f);
        assert_done(kafka_reader_assign(f->reader, &whole, 1, &trouble));
        assert_int_equal(kafka_reader_poll(f->reader, LIMIT_MS, &message, &error), KAFKA_READ_MESSAGE);
        assert_done(kafka_reader_assign(f->reader, &whole, 1, &trouble));
        kafka_reader_free(f->reader);
        f->reader = NULL;
    }
}

/* ---- consumer ---- */

static void on_rebalance(void *context, enum kafka_rebalance what, const struct kafka_partition *partitions,
                         size_t count) {
    struct fixture *f = context;
    *(what == KAFKA_ASSIGNED ? &f->assigned : what == KAFKA_REVOKED ? &f->revoked : &f->lost) += count;
    for (size_t i = 0; what == KAFKA_ASSIGNED && f->start_at != KAFKA_OFFSET_NONE && i < count; i++) {
        struct kafka_partition start = partitions[i];
        start.offset = f->start_at;
        assert_done(kafka_consumer_start(f->consumer, &start, 1, &trouble));
    }
}

static void open_consumer(struct fixture *f, size_t queue_messages) {
    static const char *const topics[] = {TOPIC};
    struct kafka_consumer_options options = {.settings = &f->settings,
                                             .group = "g",
                                             .topics = topics,
                                             .topic_count = 1,
                                             .session_timeout_ms = 6000,
                                             .queue_messages = queue_messages,
                                             .rebalance = on_rebalance,
                                             .context = f};
    assert_done(kafka_consumer_new(&options, &f->consumer, &trouble));
}

/* The next record's number; 0 if none comes within the limit. */
static uint64_t next_number(struct fixture *f, int limit_ms) {
    int64_t until_us = clock_monotonic_us() + limit_ms * 1000LL;
    while (clock_monotonic_us() < until_us) {
        struct message message;
        struct error error;
        enum kafka_polled what = kafka_consumer_poll(f->consumer, 20, &message, &error);
        if (what == KAFKA_POLL_MESSAGE) {
            assert_true(message.broker > 0);
            return number_of(&message);
        }
        if (what == KAFKA_POLL_PARTITION_ERROR)
            fail_msg("%s: %s", error.code, error.message);
    }
    return 0;
}

static void expect_numbers(struct fixture *f, uint64_t first, uint64_t last) {
    for (uint64_t number = first; number <= last; number++)
        assert_int_equal(next_number(f, LIMIT_MS), number);
}

static void test_kafka_consumer__starts_where_its_owner_says(void **state) {
    struct fixture *f = *state;
    fill_topic(f, 30);
    f->start_at = 10;
    open_consumer(f, 0);
    expect_numbers(f, 11, 30);
    assert_int_equal(f->assigned, 1);
    kafka_consumer_close(f->consumer, LIMIT_MS);
    assert_int_equal(f->revoked, 1);
    assert_int_equal(f->lost, 0);
}

/* librdkafka 2.0.2 aborts the process if the member goes while its first assignment is on its way. */
static void join_slowly(struct fixture *f) {
    struct message message;
    struct error error;
    rd_kafka_mock_broker_push_request_error_rtts(f->cluster, 1, SYNC_GROUP_REQUEST, 1, RD_KAFKA_RESP_ERR_NO_ERROR,
                                                 2 * MOCK_JOIN_MS);
    open_consumer(f, 0);
    int64_t joined_us = clock_monotonic_us() + (MOCK_JOIN_MS + MOCK_JOIN_MS / 2) * 1000LL;
    while (clock_monotonic_us() < joined_us)
        assert_int_equal(kafka_consumer_poll(f->consumer, 20, &message, &error), KAFKA_POLL_NOTHING);
    assert_int_equal(f->assigned, 0);
}

static void test_kafka_consumer__can_be_closed_while_it_joins(void **state) {
    struct fixture *f = *state;
    join_slowly(f);
    kafka_consumer_close(f->consumer, LIMIT_MS);
    assert_int_equal(f->assigned, 1);
}

/* In a group that comes to no rest the first assignment may be later than anybody waits. */
static void test_kafka_consumer__can_be_closed_before_its_first_assignment(void **state) {
    struct fixture *f = *state;
    join_slowly(f);
    kafka_consumer_close(f->consumer, 20);
    assert_int_equal(f->assigned, 0);
    kafka_consumer_free(f->consumer);
    f->consumer = NULL;
}

static void test_kafka_consumer__fetches_nothing_before_it_is_told_where(void **state) {
    struct fixture *f = *state;
    fill_topic(f, 30);
    f->start_at = KAFKA_OFFSET_NONE;
    open_consumer(f, 0);
    while (f->assigned == 0)
        assert_int_equal(next_number(f, 50), 0);
    assert_int_equal(next_number(f, 300), 0);
    struct kafka_partition start = {TOPIC, 0, 25};
    assert_done(kafka_consumer_start(f->consumer, &start, 1, &trouble));
    expect_numbers(f, 26, 30);
    struct error error;
    start.partition = 7;
    assert_false(kafka_consumer_start(f->consumer, &start, 1, &error));
    assert_string_equal(error.code, "kafka_not_assigned");
}

/* Whatever was read ahead, a restart gives the records from the new offset on, and no other. */
static void test_kafka_consumer__starts_again_at_any_offset(void **state) {
    struct fixture *f = *state;
    fill_topic(f, 3000);
    open_consumer(f, 0);
    expect_numbers(f, 1, 700);
    static const int64_t offsets[] = {10, 2500, 0, 699, 700, 2999, 5};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        struct kafka_partition start = {TOPIC, 0, offsets[i]};
        assert_done(kafka_consumer_start(f->consumer, &start, 1, &trouble));
        uint64_t first = (uint64_t)offsets[i] + 1;
        expect_numbers(f, first, first + 200 < 3000 ? first + 200 : 3000);
    }
    assert_done(kafka_consumer_stop(f->consumer, TOPIC, 0, &trouble));
    assert_int_equal(next_number(f, 200), 0);
}

static void test_kafka_consumer__loses_nothing_over_pause_and_resume(void **state) {
    struct fixture *f = *state;
    fill_topic(f, 2000);
    open_consumer(f, 0);
    for (uint64_t number = 1; number <= 2000; number += 100) {
        expect_numbers(f, number, number + 99);
        assert_done(kafka_consumer_pause(f->consumer, NULL, 0, &trouble));
        assert_int_equal(next_number(f, number % 300 == 1 ? 60 : 1), 0);
        assert_done(kafka_consumer_resume(f->consumer, NULL, 0, &trouble));
    }
}

/* librdkafka 2.0.2 looks at a queue that was full only once a second: 20 queues would take 20 s. */
static void test_kafka_consumer__is_not_slowed_by_a_small_read_ahead(void **state) {
    struct fixture *f = *state;
    fill_topic(f, 10000);
    open_consumer(f, 500);
    expect_numbers(f, 1, 1);
    int64_t before_us = clock_monotonic_us();
    expect_numbers(f, 2, 10000);
    int64_t took_ms = (clock_monotonic_us() - before_us) / 1000;
    assert_in_range(took_ms, 0, 12000);
}

static void test_kafka_consumer__reports_an_offset_that_the_log_does_not_have(void **state) {
    struct fixture *f = *state;
    fill_topic(f, 10);
    f->start_at = 500;
    open_consumer(f, 0);
    struct message message;
    struct error error = {0};
    enum kafka_polled what;
    int64_t until_us = clock_monotonic_us() + LIMIT_MS * 1000LL;
    do
        what = kafka_consumer_poll(f->consumer, 50, &message, &error);
    while (what == KAFKA_POLL_NOTHING && clock_monotonic_us() < until_us);
    assert_int_equal(what, KAFKA_POLL_PARTITION_ERROR);
    assert_string_equal(error.code, "kafka_offset_out_of_range");
    assert_int_equal(error.kind, ERROR_FATAL);
    assert_string_equal(message.topic, TOPIC);
    assert_int_equal(message.partition, 0);
}

static void test_kafka_consumer__goes_on_over_passing_fetch_errors(void **state) {
    struct fixture *f = *state;
    fill_topic(f, 100);
    rd_kafka_mock_push_request_errors(f->cluster, FETCH_REQUEST, 3, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
                                      RD_KAFKA_RESP_ERR__TRANSPORT, RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE);
    open_consumer(f, 0);
    expect_numbers(f, 1, 100);
}

static void test_kafka_consumer__wakes_for_whoever_asks(void **state) {
    struct fixture *f = *state;
    open_consumer(f, 0);
    while (f->assigned == 0)
        assert_int_equal(next_number(f, 50), 0);
    struct message message;
    struct error error;
    int quick = 0; /* a wait that nobody ends takes 90 ms; one that was ended may, on a machine that is busy, now and then */
    for (int round = 0; round < 9; round++) {
        kafka_consumer_wake(f->consumer);
        int64_t before_us = clock_monotonic_us();
        assert_int_equal(kafka_consumer_poll(f->consumer, 90, &message, &error), KAFKA_POLL_NOTHING);
        quick += clock_monotonic_us() - before_us < 50000;
    }
    assert_true(quick >= 5);
}

int main(void) {
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kafka_config__says_which_keys_may_be_passed_through),
        cmocka_unit_test(test_kafka_config__partitions_keys_as_kafkas_own_clients_do),
        CASE(test_kafka_producer__keeps_order_over_passing_errors),
        CASE(test_kafka_producer__stops_at_the_first_refused_record),
        CASE(test_kafka_producer__refuses_a_record_that_is_too_large_and_goes_on),
        CASE(test_kafka_producer__waits_no_longer_than_told_for_room),
        CASE(test_kafka_producer__reports_what_a_purge_dropped),
        CASE(test_kafka_reader__shows_records_byte_for_byte),
        CASE(test_kafka_reader__is_assigned_anew_before_anything_has_come),
        CASE(test_kafka_reader__may_go_right_after_it_was_assigned_anew),
        CASE(test_kafka_reader__reads_tails_and_reports_ends_and_lost_offsets),
        CASE(test_kafka_consumer__starts_where_its_owner_says),
        CASE(test_kafka_consumer__can_be_closed_while_it_joins),
        CASE(test_kafka_consumer__can_be_closed_before_its_first_assignment),
        CASE(test_kafka_consumer__fetches_nothing_before_it_is_told_where),
        CASE(test_kafka_consumer__starts_again_at_any_offset),
        CASE(test_kafka_consumer__loses_nothing_over_pause_and_resume),
        CASE(test_kafka_consumer__is_not_slowed_by_a_small_read_ahead),
        CASE(test_kafka_consumer__reports_an_offset_that_the_log_does_not_have),
        CASE(test_kafka_consumer__goes_on_over_passing_fetch_errors),
        CASE(test_kafka_consumer__wakes_for_whoever_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
