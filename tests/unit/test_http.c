/* http: what is answered, and what a peer that is slow, large or wrong cannot do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>

#include "common/clock.h"
#include "common/http.h"
#include "tests/unit/support/http_client.h"

static void say_hello(void *context, struct http_reply *reply) {
    buf_append_text(&reply->body, context);
}

static void say_no(void *context, struct http_reply *reply) {
    (void)context;
    reply->status = 503;
    reply->content_type = "text/odd";
    buf_append_text(&reply->body, "no\n");
}

static char hello[] = "hello\n";

static int set_up(void **state) {
    const struct http_route routes[] = {{"/hello", say_hello, hello}, {"/no", say_no, NULL}};
    struct error error;
    return !http_start("127.0.0.1:0", routes, 2, (struct http_server **)state, &error);
}

static int tear_down(void **state) {
    http_stop(*state);
    return 0;
}

enum { ANSWER_SIZE = 8192 };

#define HOST "Host: x\r\n\r\n"

static void test_http__each_request_has_its_answer(void **state) {
    static const struct {
        const char *request;
        int status;
        const char *body;
    } rows[] = {
        {"GET /hello HTTP/1.1\r\n" HOST, 200, "hello\n"},
        {"GET /hello?a=b HTTP/1.1\r\n" HOST, 200, "hello\n"},
        {"GET /hello HTTP/1.0\r\n\r\n", 200, "hello\n"},
        {"GET /no HTTP/1.1\r\n" HOST, 503, "no\n"},
        {"GET / HTTP/1.1\r\n" HOST, 404, "no such page\n"},
        {"GET /hello/ HTTP/1.1\r\n" HOST, 404, "no such page\n"},
        {"GET /../hello HTTP/1.1\r\n" HOST, 404, "no such page\n"},
        {"POST /hello HTTP/1.1\r\nContent-Length: 3\r\n" HOST "abc", 405, "only GET\n"},
        {"HEAD /hello HTTP/1.1\r\n" HOST, 405, ""},
        {"DELETE /hello HTTP/1.1\r\n" HOST, 405, "only GET\n"},
        {"GET /hello HTTP/1.1\r\nContent-Length: 3\r\n" HOST "abc", 400, "no body here\n"},
        {"GET /hello HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" HOST "3\r\nabc\r\n0\r\n\r\n", 400, "no body here\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char answer[ANSWER_SIZE];
        int status = http_client_send(http_port(*state), rows[i].request, answer, sizeof answer);
        if (status != rows[i].status)
            fail_msg("%s was answered %d, not %d", rows[i].request, status, rows[i].status);
        assert_string_equal(http_client_body(answer), rows[i].body);
    }
}

static void test_http__an_answer_carries_its_headers(void **state) {
    char answer[ANSWER_SIZE];
    http_client_send(http_port(*state), "GET /hello HTTP/1.1\r\n" HOST, answer, sizeof answer);
    assert_non_null(strstr(answer, "Content-Type: text/plain; charset=utf-8\r\n"));
    assert_non_null(strstr(answer, "Cache-Control: no-store\r\n"));
    assert_non_null(strcasestr(answer, "Connection: close\r\n"));
    assert_non_null(strstr(answer, "Content-Length: 6\r\n"));
    http_client_send(http_port(*state), "GET /no HTTP/1.1\r\n" HOST, answer, sizeof answer);
    assert_non_null(strstr(answer, "Content-Type: text/odd\r\n"));
    http_client_send(http_port(*state), "PUT /no HTTP/1.1\r\n" HOST, answer, sizeof answer);
    assert_non_null(strstr(answer, "Allow: GET\r\n"));
}

static void test_http__headers_beyond_the_cap_are_refused(void **state) {
    char request[3 * HTTP_HEADER_BYTES_MAX] = "GET /hello HTTP/1.1\r\nX: ";
    memset(request + strlen(request), 'x', 2 * HTTP_HEADER_BYTES_MAX);
    strcat(request, "\r\n" HOST);
    char answer[ANSWER_SIZE];
    int status = http_client_send(http_port(*state), request, answer, sizeof answer);
    assert_true(status == 431 || status == 413 || status == -1); /* -1: the answer was lost in the reset */
    assert_null(strstr(answer, "hello\n"));
    assert_int_equal(http_client_send(http_port(*state), "GET /hello HTTP/1.1\r\n" HOST, answer, sizeof answer), 200);
}

static void test_http__noise_is_no_harm(void **state) {
    static const char *const noise[] = {"\r\n\r\n", "x\r\n\r\n", "GET\r\n\r\n", "GET  HTTP/9.9\r\n\r\n", "\x16\x03\x01\x02", "\xff\xfe\n\n"};
    char answer[ANSWER_SIZE];
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++) {
        int file = http_client_connect(http_port(*state));
        send(file, noise[i], strlen(noise[i]), MSG_NOSIGNAL);
        shutdown(file, SHUT_WR);
        http_client_read(file, answer, sizeof answer);
        close(file);
        assert_null(strstr(answer, "hello\n"));
    }
    assert_int_equal(http_client_send(http_port(*state), "GET /hello HTTP/1.1\r\n" HOST, answer, sizeof answer), 200);
}

/* Peers that keep all connections busy with a byte now and then: the server's own timeout, which starts again with each
 * byte, would never end them, and no probe would be answered any more. */
static void test_http__peers_that_drip_are_ended_by_the_deadline(void **state) {
    int files[HTTP_CONNECTIONS_MAX];
    int64_t start_us = clock_monotonic_us();
    for (int i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        files[i] = http_client_connect(http_port(*state));
        assert_true(files[i] >= 0);
        send(files[i], "GET /hello HTTP/1.1\r\nX: ", 24, MSG_NOSIGNAL);
    }
    char answer[ANSWER_SIZE];
    int waiting = http_client_connect(http_port(*state));
    send(waiting, "GET /hello HTTP/1.1\r\n" HOST, 32, MSG_NOSIGNAL);
    struct pollfd answered = {.fd = waiting, .events = POLLIN};
    while (poll(&answered, 1, 500) == 0) {
        assert_true(clock_monotonic_us() - start_us < (HTTP_DEADLINE_MS + 15000) * 1000);
        for (int i = 0; i < HTTP_CONNECTIONS_MAX; i++)
            send(files[i], "x", 1, MSG_NOSIGNAL);
    }
    http_client_read(waiting, answer, sizeof answer);
    assert_string_equal(http_client_body(answer), "hello\n");
    assert_true(clock_monotonic_us() - start_us >= (HTTP_DEADLINE_MS - 500) * 1000);
    for (int i = 0; i < HTTP_CONNECTIONS_MAX; i++)
        close(files[i]);
    close(waiting);
}

static void *ask_often(void *context) {
    char answer[ANSWER_SIZE];
    intptr_t good = 0;
    for (int i = 0; i < 100; i++)
        good += http_client_send(http_port(context), "GET /hello HTTP/1.1\r\n" HOST, answer, sizeof answer) == 200;
    return (void *)good;
}

static void test_http__many_at_once_are_all_answered(void **state) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, ask_often, *state);
    for (int i = 0; i < 8; i++) {
        void *good;
        pthread_join(threads[i], &good);
        assert_int_equal((intptr_t)good, 100);
    }
}

static void test_http__stop_does_not_wait_for_an_open_connection(void **state) {
    int file = http_client_connect(http_port(*state));
    send(file, "GET /he", 7, MSG_NOSIGNAL);
    int64_t start_us = clock_monotonic_us();
    http_stop(*state);
    *state = NULL;
    assert_true(clock_monotonic_us() - start_us < (HTTP_DEADLINE_MS - 2000) * 1000); /* the connection would have lasted until then */
    close(file);
}

static void test_http__an_address_in_use_is_named(void **state) {
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)http_port(*state));
    struct http_server *second;
    struct error error;
    assert_false(http_start(address, NULL, 0, &second, &error));
    assert_string_equal(error.code, "http_listen");
    char wanted[96];
    snprintf(wanted, sizeof wanted, "cannot listen on %s: Address already in use", address);
    assert_string_equal(error.message, wanted);
}

static void test_http__addresses_are_numeric_with_a_port(void **state) {
    (void)state;
    static const struct {
        const char *address;
        bool is_good;
    } rows[] = {
        {"127.0.0.1:9464", true}, {"0.0.0.0:0", true},      {"[::1]:80", true},  {"[::]:65535", true}, {"localhost:1", true},
        {"*:9464", true},         {"127.0.0.1", false},     {":9464", false},    {"::1:80", false},    {"127.0.0.1:65536", false},
        {"127.0.0.1:", false},    {"127.0.0.1:x", false},   {"example.org:80", false}, {"[::1:80", false}, {"127.0.0.1:-1", false},
        {"127.0.0.1:000080", false}, {"", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error error;
        if (http_address_check(rows[i].address, &error) != rows[i].is_good)
            fail_msg("%s is%s good", rows[i].address, rows[i].is_good ? "" : " not");
    }
}

#define HTTP_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_http__each_request_has_its_answer),
        HTTP_TEST(test_http__an_answer_carries_its_headers),
        HTTP_TEST(test_http__headers_beyond_the_cap_are_refused),
        HTTP_TEST(test_http__noise_is_no_harm),
        HTTP_TEST(test_http__peers_that_drip_are_ended_by_the_deadline),
        HTTP_TEST(test_http__many_at_once_are_all_answered),
        HTTP_TEST(test_http__stop_does_not_wait_for_an_open_connection),
        HTTP_TEST(test_http__an_address_in_use_is_named),
        cmocka_unit_test(test_http__addresses_are_numeric_with_a_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
