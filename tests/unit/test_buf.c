/* buf: growth, JSON strings that are valid whatever went in, out of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/buf.h"

static void test_buf__grows_and_stays_terminated(void **state) {
    (void)state;
    struct buf buf = BUF_INIT;
    assert_string_equal(buf_text(&buf), "");
    for (int i = 0; i < 1000; i++)
        buf_appendf(&buf, "%03d", i);
    assert_int_equal(buf.size, 3000);
    assert_int_equal(strlen(buf.data), 3000);
    assert_memory_equal(buf.data + 2997, "999", 4);
    buf_release(&buf);
    assert_null(buf.data);
}

static void test_buf__reset_keeps_the_memory(void **state) {
    (void)state;
    struct buf buf = BUF_INIT;
    buf_append_text(&buf, "one");
    char *before = buf.data;
    buf_reset(&buf);
    assert_string_equal(buf_text(&buf), "");
    buf_append(&buf, "a\0b", 3);
    assert_ptr_equal(buf.data, before);
    assert_memory_equal(buf.data, "a\0b", 4);
    buf_release(&buf);
}

static void test_buf__numbers_are_exact_at_the_ends(void **state) {
    (void)state;
    static const struct {
        int64_t number;
        const char *text;
    } rows[] = {{0, "0"}, {-1, "-1"}, {INT64_MAX, "9223372036854775807"}, {INT64_MIN, "-9223372036854775808"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf buf = BUF_INIT;
        buf_append_number(&buf, rows[i].number);
        assert_string_equal(buf_text(&buf), rows[i].text);
        buf_release(&buf);
    }
}

static void test_buf__u32_is_big_endian(void **state) {
    (void)state;
    struct buf buf = BUF_INIT;
    buf_append_u32(&buf, 0x01020304);
    assert_memory_equal(buf.data, "\1\2\3\4", 4);
    buf_release(&buf);
}

static void test_buf__take_hands_over_and_leaves_nothing(void **state) {
    (void)state;
    struct buf buf = BUF_INIT;
    size_t size;
    char *empty = buf_take(&buf, &size);
    assert_string_equal(empty, "");
    assert_int_equal(size, 0);
    buf_append_text(&buf, "mine");
    char *taken = buf_take(&buf, NULL);
    assert_string_equal(taken, "mine");
    assert_null(buf.data);
    free(empty);
    free(taken);
}

/* Ill-formed UTF-8 by the rows of Unicode's table 3-7: overlong, surrogate, above U+10FFFF, cut, stray continuation. */
static void test_buf__json_strings_are_valid_whatever_goes_in(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *json;
    } rows[] = {
        {"", 0, "\"\""},
        {"plain", 5, "\"plain\""},
        {"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
        {"\n\r\t", 3, "\"\\n\\r\\t\""},
        {"\0\x1f\x7f", 3, "\"\\u0000\\u001f\\u007f\""},
        {"\xC2\x9B"
         "2J",
         4, "\"\\u009b2J\""}, /* C1: a terminal clears its screen */
        {"\xC2\xA0", 2, "\"\xC2\xA0\""},
        {"é€🙂", 9, "\"é€🙂\""},
        {"\xC0\xAF", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xE0\x9F\xBF", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xF4\x90\x80\x80", 4, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xF0\x8F\xBF\xBF", 4, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xE2\x82", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"x\x80y", 3, "\"x\xEF\xBF\xBDy\""},
        {"\xF5", 1, "\"\xEF\xBF\xBD\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf buf = BUF_INIT;
        buf_json_string(&buf, rows[i].bytes, rows[i].size);
        assert_string_equal(buf_text(&buf), rows[i].json);
        buf_release(&buf);
    }
}

static void test_buf__out_of_memory_ends_the_process_with_70(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        memory_resize(NULL, SIZE_MAX / 2, 4);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 70);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buf__grows_and_stays_terminated),
        cmocka_unit_test(test_buf__reset_keeps_the_memory),
        cmocka_unit_test(test_buf__numbers_are_exact_at_the_ends),
        cmocka_unit_test(test_buf__u32_is_big_endian),
        cmocka_unit_test(test_buf__take_hands_over_and_leaves_nothing),
        cmocka_unit_test(test_buf__json_strings_are_valid_whatever_goes_in),
        cmocka_unit_test(test_buf__out_of_memory_ends_the_process_with_70),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
