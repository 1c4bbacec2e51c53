/* log: one event is one line, whatever the values hold and however many threads write. jansson is the oracle for JSON. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>
#include <pthread.h>

#include "common/buf.h"
#include "common/log.h"

struct fixture {
    struct log log;
    int file;
    char text[1 << 20];
};

static void open_log(struct fixture *fixture, enum log_format format, enum log_level level) {
    fixture->file = memfd_create("log", MFD_CLOEXEC);
    assert_true(fixture->file >= 0);
    log_init(&fixture->log, fixture->file, format, level);
}

/* What was written so far, less the time at the front of a logfmt line. */
static const char *written(struct fixture *fixture) {
    ssize_t size = pread(fixture->file, fixture->text, sizeof fixture->text - 1, 0);
    assert_true(size >= 0);
    fixture->text[size] = '\0';
    return fixture->text;
}

static const char *without_time(const char *line) {
    assert_int_equal(strncmp(line, "time=", 5), 0);
    return strchr(line, ' ') + 1;
}

static int set_up(void **state) {
    *state = calloc(1, sizeof(struct fixture));
    return *state == NULL;
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    log_release(&fixture->log);
    close(fixture->file);
    free(fixture);
    return 0;
}

static void test_log__logfmt_quotes_only_what_needs_it(void **state) {
    struct fixture *fixture = *state;
    open_log(fixture, LOG_FORMAT_LOGFMT, LOG_INFO);
    log_write(&fixture->log, LOG_INFO, "batch committed", "topic", "a.b-c/0", "count", LOG_N(-7), "empty", "", "pair", "a=b",
              NULL);
    assert_string_equal(without_time(written(fixture)),
                        "level=info event=\"batch committed\" topic=a.b-c/0 count=-7 empty=\"\" pair=\"a=b\"\n");
}

static void test_log__a_value_cannot_forge_a_second_line(void **state) {
    struct fixture *fixture = *state;
    open_log(fixture, LOG_FORMAT_LOGFMT, LOG_INFO);
    log_write(&fixture->log, LOG_WARNING, "refused", "why", "x\ntime=now level=error event=\"\x1b[2J\xff", NULL);
    assert_string_equal(
        without_time(written(fixture)),
        "level=warning event=refused why=\"x\\ntime=now level=error event=\\\"\\u001b[2J\xEF\xBF\xBD\"\n");
}

static void test_log__json_lines_are_objects(void **state) {
    struct fixture *fixture = *state;
    open_log(fixture, LOG_FORMAT_JSON, LOG_DEBUG);
    log_write(&fixture->log, LOG_DEBUG, "event \"1\"", "a", "\\\n\x01", "b", "ü\xC3", NULL);
    json_error_t why;
    json_t *line = json_loads(written(fixture), JSON_REJECT_DUPLICATES, &why);
    assert_non_null(line);
    assert_string_equal(json_string_value(json_object_get(line, "level")), "debug");
    assert_string_equal(json_string_value(json_object_get(line, "event")), "event \"1\"");
    assert_string_equal(json_string_value(json_object_get(line, "a")), "\\\n\x01");
    assert_string_equal(json_string_value(json_object_get(line, "b")), "ü\xEF\xBF\xBD");
    assert_int_equal(strlen(json_string_value(json_object_get(line, "time"))), 27);
    json_decref(line);
}

static void test_log__lines_below_the_level_are_not_written(void **state) {
    struct fixture *fixture = *state;
    open_log(fixture, LOG_FORMAT_LOGFMT, LOG_WARNING);
    log_write(&fixture->log, LOG_INFO, "quiet", NULL);
    assert_string_equal(written(fixture), "");
    assert_false(log_is_enabled(&fixture->log, LOG_INFO));
    assert_true(log_is_enabled(&fixture->log, LOG_WARNING));
    log_write(&fixture->log, LOG_WARNING, "loud", NULL);
    assert_string_equal(without_time(written(fixture)), "level=warning event=loud\n");
}

static void test_log__a_pair_without_value_is_left_out(void **state) {
    struct fixture *fixture = *state;
    open_log(fixture, LOG_FORMAT_LOGFMT, LOG_INFO);
    log_write(&fixture->log, LOG_INFO, "e", "gone", NULL, "kept", "1", NULL);
    assert_string_equal(without_time(written(fixture)), "level=info event=e kept=1\n");
}

static void test_log__a_long_value_is_cut_at_a_character(void **state) {
    struct fixture *fixture = *state;
    open_log(fixture, LOG_FORMAT_LOGFMT, LOG_INFO);
    char value[3 * LOG_VALUE_MAX];
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    memcpy(value + LOG_VALUE_MAX - 1, "🙂", 4);
    log_write(&fixture->log, LOG_INFO, "e", "v", value, NULL);
    const char *line = without_time(written(fixture));
    assert_null(strstr(line, "\xEF\xBF\xBD"));
    assert_string_equal(line + strlen(line) - strlen("x…\"\n"), "x…\"\n");
    assert_true(strlen(line) < LOG_VALUE_MAX + 64);
}

static void test_log__an_error_brings_its_kind_code_and_message(void **state) {
    struct fixture *fixture = *state;
    open_log(fixture, LOG_FORMAT_LOGFMT, LOG_INFO);
    struct error error;
    error_set(&error, ERROR_RETRY, "connection_lost", "gone away");
    log_error(&fixture->log, LOG_ERROR, "lane stops", &error, "lane", "2", NULL);
    assert_string_equal(without_time(written(fixture)),
                        "level=error event=\"lane stops\" kind=retry code=connection_lost error=\"gone away\" lane=2\n");
}

enum { THREADS = 4, LINES = 200, ROUNDS = 10 };

static void *write_lines(void *context) {
    char value[1500];
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < LINES; i++)
        log_write(context, LOG_INFO, "e", "a", value, "b", value, "c", value, "d", value, NULL);
    return NULL;
}

struct reading {
    int file;
    struct buf text;
};

static void *read_to_the_end(void *context) {
    struct reading *reading = context;
    char part[1 << 16];
    for (ssize_t size; (size = read(reading->file, part, sizeof part)) > 0;)
        buf_append(&reading->text, part, (size_t)size);
    return NULL;
}

/* Several threads write through one pipe; what came out, and how many lines were lost. */
static uint64_t write_through_a_pipe(struct fixture *fixture, struct buf *ret_text) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    log_init(&fixture->log, ends[1], LOG_FORMAT_JSON, LOG_INFO);
    struct reading reading = {ends[0], BUF_INIT};
    pthread_t reader, threads[THREADS];
    pthread_create(&reader, NULL, read_to_the_end, &reading);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, write_lines, &fixture->log);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    close(ends[1]);
    pthread_join(reader, NULL);
    close(ends[0]);
    *ret_text = reading.text;
    return (uint64_t)fixture->log.lost;
}

static int count_whole_lines(const struct buf *text) {
    int count = 0;
    const char *line = text->data, *end;
    for (; (end = memchr(line, '\n', (size_t)(text->data + text->size - line))) != NULL; line = end + 1, count++) {
        json_error_t why;
        json_t *object = json_loadb(line, (size_t)(end - line), 0, &why);
        assert_non_null(object);
        json_decref(object);
    }
    assert_ptr_equal(line, text->data + text->size);
    return count;
}

/* Lines longer than what a pipe takes in one piece (PIPE_BUF), and a pipe that is full: they wait, and are whole. They do not wait for ever:
 * a round in which our own reader was kept from the processor for that long shows nothing. */
static void test_log__threads_do_not_mix_lines_on_a_full_pipe(void **state) {
    struct fixture *fixture = *state;
    fixture->file = memfd_create("unused", MFD_CLOEXEC);
    struct buf text = BUF_INIT;
    uint64_t lost = 1;
    for (int round = 0; lost > 0 && round < ROUNDS; round++) {
        if (round > 0)
            log_release(&fixture->log);
        buf_release(&text);
        lost = write_through_a_pipe(fixture, &text);
    }
    assert_int_equal(lost, 0);
    assert_int_equal(count_whole_lines(&text), THREADS * LINES);
    buf_release(&text);
}

static void test_log__a_line_that_cannot_be_written_is_counted(void **state) {
    struct fixture *fixture = *state;
    open_log(fixture, LOG_FORMAT_LOGFMT, LOG_INFO);
    fixture->log.file = -1;
    log_write(&fixture->log, LOG_INFO, "e", NULL);
    assert_int_equal(fixture->log.lost, 1);
    log_write(NULL, LOG_ERROR, "no log is no crash", NULL);
}

#define LOG_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        LOG_TEST(test_log__logfmt_quotes_only_what_needs_it),
        LOG_TEST(test_log__a_value_cannot_forge_a_second_line),
        LOG_TEST(test_log__json_lines_are_objects),
        LOG_TEST(test_log__lines_below_the_level_are_not_written),
        LOG_TEST(test_log__a_pair_without_value_is_left_out),
        LOG_TEST(test_log__a_long_value_is_cut_at_a_character),
        LOG_TEST(test_log__an_error_brings_its_kind_code_and_message),
        LOG_TEST(test_log__threads_do_not_mix_lines_on_a_full_pipe),
        LOG_TEST(test_log__a_line_that_cannot_be_written_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
