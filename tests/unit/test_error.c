/* error: what is kept when text is longer than its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/error.h"

static void test_error__set_fills_kind_code_and_message(void **state) {
    (void)state;
    struct error error;
    assert_false(error_set(&error, ERROR_RETRY, "tx_conflict", "lane %d", 3));
    assert_int_equal(error.kind, ERROR_RETRY);
    assert_string_equal(error.code, "tx_conflict");
    assert_string_equal(error.message, "lane 3");
}

static void test_error__a_message_that_just_fits_is_kept_whole(void **state) {
    (void)state;
    struct error error;
    char text[sizeof error.message];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    error_set(&error, ERROR_FATAL, "c", "%s", text);
    assert_string_equal(error.message, text);
}

/* Each length of a UTF-8 sequence, at each place relative to the cut. */
static void test_error__a_cut_message_ends_at_a_whole_character(void **state) {
    (void)state;
    static const char *const characters[] = {"é", "…", "🙂"};
    for (size_t i = 0; i < 3; i++)
        for (size_t before = 470; before < 480; before++) {
            struct error error;
            char text[600];
            memset(text, 'x', before);
            strcpy(text + before, characters[i]);
            memset(text + strlen(text), 'y', 80);
            text[before + strlen(characters[i]) + 80] = '\0';
            error_set(&error, ERROR_FATAL, "c", "%s", text);
            size_t length = strlen(error.message);
            bool is_whole = length >= before + strlen(characters[i]);
            assert_true(is_whole || length == before || before > 479);
            if (is_whole)
                assert_memory_equal(error.message + before, characters[i], strlen(characters[i]));
        }
}

static void test_error__prefix_keeps_kind_and_code(void **state) {
    (void)state;
    struct error error;
    error_set(&error, ERROR_REJECT, "bad_json", "line %d", 7);
    assert_false(error_prefix(&error, "message %s", "a/0/5"));
    assert_int_equal(error.kind, ERROR_REJECT);
    assert_string_equal(error.code, "bad_json");
    assert_string_equal(error.message, "message a/0/5: line 7");
}

static void test_error__arguments_may_be_the_error_itself(void **state) {
    (void)state;
    struct error error;
    error_set(&error, ERROR_RETRY, "first", "one");
    error_set(&error, ERROR_FATAL, error.code, "after %s", error.message);
    assert_string_equal(error.code, "first");
    assert_string_equal(error.message, "after one");
}

static void test_error__a_code_that_is_too_long_is_cut(void **state) {
    (void)state;
    struct error error;
    error_set(&error, ERROR_RETRY, "0123456789012345678901234567890123456789", "m");
    assert_string_equal(error.code, "0123456789012345678901234567890");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error__set_fills_kind_code_and_message),
        cmocka_unit_test(test_error__a_message_that_just_fits_is_kept_whole),
        cmocka_unit_test(test_error__a_cut_message_ends_at_a_whole_character),
        cmocka_unit_test(test_error__prefix_keeps_kind_and_code),
        cmocka_unit_test(test_error__arguments_may_be_the_error_itself),
        cmocka_unit_test(test_error__a_code_that_is_too_long_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
