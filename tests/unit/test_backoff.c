/* backoff: the schedule, its bounds, and jitter that keeps processes apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/backoff.h"

static void test_backoff__doubles_up_to_the_maximum(void **state) {
    (void)state;
    static const struct {
        int64_t base_ms, maximum_ms, attempt, wait_ms;
    } rows[] = {
        {1000, 300000, 1, 1000},   {1000, 300000, 2, 2000},   {1000, 300000, 9, 256000},
        {1000, 300000, 10, 300000}, {1000, 300000, INT64_MAX, 300000}, {1000, 300000, 0, 1000},
        {5, 5, 3, 5},              {1, INT64_MAX, 63, INT64_C(4611686018427387904)}, {1, INT64_MAX, 64, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(backoff_of_attempt(rows[i].base_ms, rows[i].maximum_ms, rows[i].attempt) == rows[i].wait_ms);
}

static void test_backoff__waits_between_half_and_the_whole_of_the_schedule(void **state) {
    (void)state;
    struct backoff backoff;
    backoff_init(&backoff, 100, 10000, 42);
    for (int attempt = 1; attempt <= 1000; attempt++) {
        int64_t whole_ms = backoff_of_attempt(100, 10000, attempt);
        int64_t wait_ms = backoff_next_ms(&backoff);
        assert_in_range(wait_ms, whole_ms / 2, whole_ms);
    }
}

static void test_backoff__reset_starts_again(void **state) {
    (void)state;
    struct backoff backoff;
    backoff_init(&backoff, 10, 10000, 1);
    for (int i = 0; i < 8; i++)
        backoff_next_ms(&backoff);
    backoff_reset(&backoff);
    assert_in_range(backoff_next_ms(&backoff), 5, 10);
}

static void test_backoff__other_seeds_wait_otherwise_and_the_same_seed_the_same(void **state) {
    (void)state;
    struct backoff one, same, other;
    backoff_init(&one, 1000, 100000, 1);
    backoff_init(&same, 1000, 100000, 1);
    backoff_init(&other, 1000, 100000, 2);
    int differences = 0;
    for (int i = 0; i < 20; i++) {
        int64_t wait_ms = backoff_next_ms(&one);
        assert_int_equal(wait_ms, backoff_next_ms(&same));
        differences += wait_ms != backoff_next_ms(&other);
    }
    assert_true(differences > 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backoff__doubles_up_to_the_maximum),
        cmocka_unit_test(test_backoff__waits_between_half_and_the_whole_of_the_schedule),
        cmocka_unit_test(test_backoff__reset_starts_again),
        cmocka_unit_test(test_backoff__other_seeds_wait_otherwise_and_the_same_seed_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
