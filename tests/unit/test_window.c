/* How far the relay is published, and where each partition stands for that. */
#include "coordinator/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_window__publishes_in_order_whatever_is_acknowledged_first(void **state) {
    (void)state;
    struct window window;
    window_init(&window, 8, 3, 10);
    uint64_t first = window_open(&window, 11, 1100), a = window_add(&window, first, 0), b = window_add(&window, first, 2);
    window_seal(&window, first);
    uint64_t second = window_open(&window, 12, 1200), c = window_add(&window, second, 0);
    window_seal(&window, second);

    window_acknowledge(&window, c, 51);
    window_acknowledge(&window, b, 7);
    assert_int_equal(window_collect(&window), 0);
    assert_int_equal(window.published, 10);
    assert_int_equal(window_oldest_us(&window), 1100);
    window_acknowledge(&window, a, 50);
    assert_int_equal(window_collect(&window), 2);
    assert_int_equal(window.published, 12);
    assert_int_equal(window.position[0], 52);
    assert_int_equal(window.position[1], -1);
    assert_int_equal(window.position[2], 8);
    assert_int_equal(window_oldest_us(&window), 0);
    window_release(&window);
}

/* A successor takes what stands at or behind a position for numbers above the watermark: so a position must not run ahead. */
static void test_window__positions_belong_to_the_watermark(void **state) {
    (void)state;
    struct window window;
    window_init(&window, 8, 1, 0);
    uint64_t tickets[3];
    for (int64_t number = 1; number <= 3; number++) {
        uint64_t row = window_open(&window, number, number);
        tickets[number - 1] = window_add(&window, row, 0);
        window_seal(&window, row);
    }
    window_acknowledge(&window, tickets[0], 100);
    window_acknowledge(&window, tickets[2], 102);
    assert_int_equal(window_collect(&window), 1);
    assert_int_equal(window.position[0], 101);
    window_acknowledge(&window, tickets[1], 101);
    assert_int_equal(window_collect(&window), 2);
    assert_int_equal(window.position[0], 103);
    window_release(&window);
}

static void test_window__waits_for_rows_that_are_not_handed_over_whole(void **state) {
    (void)state;
    struct window window;
    window_init(&window, 4, 2, 0);
    uint64_t row = window_open(&window, 1, 1), ticket = window_add(&window, row, 0);
    window_acknowledge(&window, ticket, 5);
    assert_int_equal(window_collect(&window), 0);
    uint64_t undone = window_add(&window, row, 1);
    window_undo(&window, undone);
    uint64_t mark = window_add_mark(&window, row, 1);
    window_seal(&window, row);
    assert_int_equal(window_collect(&window), 0);
    assert_int_equal(window_acknowledge(&window, mark, 77), 1);
    assert_int_equal(window_collect(&window), 1);
    assert_int_equal(window.position[0], 6);
    assert_int_equal(window.position[1], -1);
    window_release(&window);
}

/* A broker that had accepted a request before, and is asked again, may not say where. */
static void test_window__keeps_a_position_when_the_offset_is_not_known(void **state) {
    (void)state;
    struct window window;
    window_init(&window, 4, 1, 0);
    for (int64_t number = 1; number <= 2; number++) {
        uint64_t row = window_open(&window, number, number), ticket = window_add(&window, row, 0);
        window_seal(&window, row);
        window_acknowledge(&window, ticket, number == 1 ? 30 : -1001);
    }
    assert_int_equal(window_collect(&window), 2);
    assert_int_equal(window.published, 2);
    assert_int_equal(window.position[0], 31);
    window_release(&window);
}

static void test_window__has_no_records_of_rows_published_before(void **state) {
    (void)state;
    struct window window;
    window_init(&window, 4, 1, 41);
    uint64_t row = window_open(&window, 42, 1); /* all its records were found on the topics */
    window_seal(&window, row);
    assert_int_equal(window_collect(&window), 1);
    assert_int_equal(window.published, 42);
    assert_int_equal(window.position[0], -1);
    window_release(&window);
}

static void test_window__goes_round_its_ring(void **state) {
    (void)state;
    struct window window;
    uint64_t tickets[4];
    window_init(&window, 3, 1, 0); /* rounded up to 4 */
    assert_int_equal(window_room(&window), 4);
    for (int64_t number = 1; number <= 1000; number++) {
        uint64_t row = window_open(&window, number, number);
        tickets[row % 4] = window_add(&window, row, 0);
        window_seal(&window, row);
        if (number % 4)
            continue; /* fills up first */
        assert_int_equal(window_room(&window), 0);
        for (uint64_t sequence = row - 3; sequence <= row; sequence++)
            window_acknowledge(&window, tickets[sequence % 4], (int64_t)sequence);
        assert_int_equal(window_collect(&window), 4);
        assert_int_equal(window.published, number);
    }
    window_release(&window);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window__publishes_in_order_whatever_is_acknowledged_first),
        cmocka_unit_test(test_window__positions_belong_to_the_watermark),
        cmocka_unit_test(test_window__waits_for_rows_that_are_not_handed_over_whole),
        cmocka_unit_test(test_window__keeps_a_position_when_the_offset_is_not_known),
        cmocka_unit_test(test_window__has_no_records_of_rows_published_before),
        cmocka_unit_test(test_window__goes_round_its_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
