/* clock: the text of a time, and clocks that tests move. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"

static void test_clock__text_is_rfc_3339_with_microseconds(void **state) {
    (void)state;
    static const struct {
        int64_t wall_us;
        const char *text;
    } rows[] = {
        {0, "1970-01-01T00:00:00.000000Z"},
        {INT64_C(1709210096789012), "2024-02-29T12:34:56.789012Z"},
        {-1, "1969-12-31T23:59:59.999999Z"},
        {INT64_C(253402300799999999), "9999-12-31T23:59:59.999999Z"},
        {INT64_MAX, "9999-12-31T23:59:59.999999Z"},
        {INT64_MIN, "0001-01-01T00:00:00.000000Z"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[CLOCK_TEXT_SIZE];
        assert_string_equal(clock_format(rows[i].wall_us, text), rows[i].text);
    }
}

static void test_clock__a_manual_clock_stands_still_until_moved(void **state) {
    (void)state;
    struct clock_manual manual = {.monotonic_us = 5000, .wall_us = 7};
    struct clock clock = clock_of_manual(&manual);
    assert_int_equal(clock_now_ms(&clock), 5);
    clock_manual_advance_ms(&manual, 1500);
    assert_int_equal(clock_now_us(&clock), 1505000);
    assert_int_equal(clock.wall_us(clock.context), 1500007);
}

static void test_clock__the_system_clock_never_runs_backwards(void **state) {
    (void)state;
    struct clock clock = clock_system();
    int64_t before = clock_now_us(&clock);
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_now_us(&clock);
        assert_true(now >= before);
        before = now;
    }
    assert_true(clock.wall_us(clock.context) > INT64_C(1700000000000000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock__text_is_rfc_3339_with_microseconds),
        cmocka_unit_test(test_clock__a_manual_clock_stands_still_until_moved),
        cmocka_unit_test(test_clock__the_system_clock_never_runs_backwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
