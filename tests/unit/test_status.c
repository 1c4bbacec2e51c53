/* status: /readyz says what is missing, /livez which loop is silent, /metrics is what Prometheus takes. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "coordinator/status.h"
#include "tests/unit/support/http_client.h"

static const struct metric_row rows[] = {{.name = "lease_queue_messages", .type = METRIC_GAUGE, .help = "Waiting"}};

struct fixture {
    struct clock_manual manual;
    struct clock clock;
    struct metrics *metrics;
    struct status *status;
    char answer[1 << 16];
};

static int set_up(void **state) {
    struct fixture *fixture = calloc(1, sizeof *fixture);
    fixture->clock = clock_of_manual(&fixture->manual);
    fixture->metrics = metrics_new(rows, 1);
    fixture->status = status_new(fixture->metrics, &fixture->clock);
    struct error error;
    *state = fixture;
    return !status_serve(fixture->status, "127.0.0.1:0", &error);
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    status_free(fixture->status);
    metrics_free(fixture->metrics);
    free(fixture);
    return 0;
}

static int get(struct fixture *fixture, const char *path) {
    char request[128];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    return http_client_send(status_port(fixture->status), request, fixture->answer, sizeof fixture->answer);
}

static void meet_all(struct status *status) {
    for (int i = 0; i < STATUS_CONDITIONS; i++)
        status_meet(status, (enum status_condition)i);
}

static void test_status__nothing_is_ready_before_it_was_checked(void **state) {
    struct fixture *fixture = *state;
    assert_int_equal(get(fixture, "/readyz"), 503);
    assert_string_equal(http_client_body(fixture->answer),
                        "not ready\n"
                        "database: not checked yet\nkafka: not checked yet\ntopics: not checked yet\nrelay: not checked yet\n"
                        "reaper: not checked yet\nintake: not checked yet\nrunning: not checked yet\n");
}

static void test_status__ready_when_every_condition_is_met(void **state) {
    struct fixture *fixture = *state;
    meet_all(fixture->status);
    assert_int_equal(get(fixture, "/readyz"), 200);
    assert_string_equal(http_client_body(fixture->answer),
                        "ready\ndatabase: ok\nkafka: ok\ntopics: ok\nrelay: ok\nreaper: ok\nintake: ok\nrunning: ok\n");
}

static void test_status__each_condition_alone_is_enough_to_be_unready(void **state) {
    struct fixture *fixture = *state;
    for (int i = 0; i < STATUS_CONDITIONS; i++) {
        meet_all(fixture->status);
        assert_true(status_is_ready(fixture->status));
        status_miss(fixture->status, (enum status_condition)i, "missing");
        assert_false(status_is_ready(fixture->status));
    }
}

static void test_status__the_reason_is_one_line_of_bounded_length(void **state) {
    struct fixture *fixture = *state;
    meet_all(fixture->status);
    status_miss(fixture->status, STATUS_KAFKA, "broker %s\nrunning: ok", "a:1");
    assert_int_equal(get(fixture, "/readyz"), 503);
    assert_non_null(strstr(fixture->answer, "\nkafka: broker a:1 running: ok\n"));
    char reason[1000];
    memset(reason, 'x', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    status_miss(fixture->status, STATUS_KAFKA, "%s", reason);
    assert_int_equal(get(fixture, "/readyz"), 503);
    assert_true(strlen(http_client_body(fixture->answer)) < 400);
}

static void test_status__a_silent_loop_is_not_alive_until_it_beats_again(void **state) {
    struct fixture *fixture = *state;
    assert_int_equal(get(fixture, "/livez"), 200);
    struct status_pulse *lane = status_add_pulse(fixture->status, "lane 0", 5000);
    struct status_pulse *relay = status_add_pulse(fixture->status, "relay", 60000);
    clock_manual_advance_ms(&fixture->manual, 5000);
    assert_int_equal(get(fixture, "/livez"), 200);
    assert_string_equal(http_client_body(fixture->answer), "alive\nlane 0: ok\nrelay: ok\n");
    clock_manual_advance_ms(&fixture->manual, 1);
    assert_int_equal(get(fixture, "/livez"), 503);
    assert_string_equal(http_client_body(fixture->answer), "not alive\nlane 0: silent for 5001 ms\nrelay: ok\n");
    status_beat(lane);
    assert_int_equal(get(fixture, "/livez"), 200);
    clock_manual_advance_ms(&fixture->manual, 6000);
    status_end_pulse(lane);
    assert_int_equal(get(fixture, "/livez"), 200);
    status_end_pulse(relay);
}

/* An outage of the database must not have every coordinator restarted. */
static void test_status__alive_does_not_depend_on_ready(void **state) {
    struct fixture *fixture = *state;
    status_miss(fixture->status, STATUS_DATABASE, "away");
    assert_int_equal(get(fixture, "/livez"), 200);
}

static void test_status__pulses_can_be_reused(void **state) {
    struct fixture *fixture = *state;
    for (int i = 0; i < 3 * STATUS_PULSES_MAX; i++)
        status_end_pulse(status_add_pulse(fixture->status, "loop", 1));
    assert_true(status_is_alive(fixture->status));
}

static void fill_queue(void *context) {
    metric_set(metrics_get(context, 0, NULL), 77);
}

static void test_status__metrics_have_the_exact_content_type_and_both_tables(void **state) {
    struct fixture *fixture = *state;
    status_before_scrape(fixture->status, fill_queue, fixture->metrics);
    status_meet(fixture->status, STATUS_RELAY);
    assert_int_equal(get(fixture, "/metrics"), 200);
    assert_non_null(strstr(fixture->answer, "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert_non_null(strstr(fixture->answer, "\nlease_queue_messages 77\n"));
    assert_non_null(strstr(fixture->answer, "\nlease_ready{condition=\"relay\"} 1\n"));
    assert_non_null(strstr(fixture->answer, "\nlease_ready{condition=\"database\"} 0\n"));
    assert_non_null(strstr(fixture->answer, "\nlease_alive 1\n"));
    assert_non_null(strstr(fixture->answer, "\nlease_build_info{version=\"" LEASE_VERSION "\"} 1\n"));
    const char *resident = strstr(fixture->answer, "\nprocess_resident_memory_bytes ");
    assert_non_null(resident);
    assert_true(atoll(resident + strlen("\nprocess_resident_memory_bytes ")) > 1 << 20);
}

struct slow {
    _Atomic bool has_begun, has_ended;
};

static void refresh_slowly(void *context) {
    struct slow *slow = context;
    atomic_store(&slow->has_begun, true);
    poll(NULL, 0, 100);
    atomic_store(&slow->has_ended, true);
}

static void *scrape(void *context) {
    get(context, "/metrics");
    return NULL;
}

/* What it reads is freed next. */
static void test_status__a_refresh_that_is_taken_away_has_returned(void **state) {
    struct fixture *fixture = *state;
    struct slow slow = {false, false};
    pthread_t scraper;
    status_before_scrape(fixture->status, refresh_slowly, &slow);
    assert_int_equal(pthread_create(&scraper, NULL, scrape, fixture), 0);
    while (!atomic_load(&slow.has_begun))
        sched_yield();
    status_before_scrape(fixture->status, NULL, NULL);
    assert_true(atomic_load(&slow.has_ended));
    pthread_join(scraper, NULL);
}

static void test_status__promtool_accepts_metrics(void **state) {
    struct fixture *fixture = *state;
    if (system("command -v promtool >/dev/null 2>&1") != 0) {
        print_message("promtool is not installed\n");
        skip();
    }
    assert_int_equal(get(fixture, "/metrics"), 200);
    FILE *promtool = popen("promtool check metrics", "w");
    fputs(http_client_body(fixture->answer), promtool);
    assert_int_equal(pclose(promtool), 0);
}

#define STATUS_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        STATUS_TEST(test_status__nothing_is_ready_before_it_was_checked),
        STATUS_TEST(test_status__ready_when_every_condition_is_met),
        STATUS_TEST(test_status__each_condition_alone_is_enough_to_be_unready),
        STATUS_TEST(test_status__the_reason_is_one_line_of_bounded_length),
        STATUS_TEST(test_status__a_silent_loop_is_not_alive_until_it_beats_again),
        STATUS_TEST(test_status__alive_does_not_depend_on_ready),
        STATUS_TEST(test_status__pulses_can_be_reused),
        STATUS_TEST(test_status__metrics_have_the_exact_content_type_and_both_tables),
        STATUS_TEST(test_status__a_refresh_that_is_taken_away_has_returned),
        STATUS_TEST(test_status__promtool_accepts_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
