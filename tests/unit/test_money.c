/* money, tally: exact sums and shares, one rule for halves, and nothing too large that goes unnoticed. */
#include "worker/royalty/money.h"
#include "worker/royalty/tally.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- money ---- */

#define MOST INT64_MAX
#define LEAST INT64_MIN

static const struct {
    int64_t amount, rate, share;
    bool fits;
} shares[] = {
    {1000000, 700000, 700000, true},  /* 70 % of one */
    {1234567, 700000, 864197, true},  /* 0.8641969 */
    {1, 500000, 1, true},             /* a half, away from zero */
    {-1, 500000, -1, true},
    {1, 499999, 0, true},
    {-1, 499999, 0, true},
    {3, 500000, 2, true},             /* 1.5, not to the even one */
    {5, 500000, 3, true},             /* 2.5 */
    {-3, 500000, -2, true},
    {1, 100000, 0, true},
    {333333, 333333, 111111, true},   /* 0.111110888889 */
    {0, 1000000, 0, true},
    {1000000, 0, 0, true},
    {MOST, 1000000, MOST, true},      /* all of it */
    {LEAST, 1000000, LEAST, true},
    {MOST, 500000, MOST / 2 + 1, true},
    {MOST, 999999, 9223362813482738952, true},
    {MOST, 1000001, 0, false},
    {LEAST, 1000001, 0, false},
    {MOST, MOST, 0, false},
    {LEAST, MOST, 0, false},
    {LEAST, LEAST, 0, false},
};

static void test_money__shares_are_rounded_to_the_nearest_and_halves_away_from_zero(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        int64_t share = 42;
        if (money_share(shares[i].amount, shares[i].rate, &share) != shares[i].fits || share != (shares[i].fits ? shares[i].share : 42))
            fail_msg("%lld * %lld: %lld", (long long)shares[i].amount, (long long)shares[i].rate, (long long)share);
    }
}

static void test_money__sums_that_do_not_fit_are_refused(void **state) {
    (void)state;
    int64_t sum = MOST - 1;
    assert_true(money_add(&sum, 1));
    assert_false(money_add(&sum, 1));
    assert_true(sum == MOST);
    assert_true(money_add(&sum, LEAST));
    assert_int_equal(sum, -1);
    assert_true(money_add(&sum, LEAST + 1));
    assert_false(money_add(&sum, -1));
    assert_true(sum == LEAST);
}

static const struct {
    int64_t amount;
    const char *text;
} texts[] = {{0, "0.000000"},       {1, "0.000001"},   {-1, "-0.000001"}, {12340000, "12.340000"}, {-1000000, "-1.000000"},
             {MOST, "9223372036854.775807"}, {LEAST, "-9223372036854.775808"}};

static void test_money__is_written_with_six_decimals(void **state) {
    (void)state;
    char text[MONEY_TEXT_SIZE];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_string_equal(money_format(text, texts[i].amount), texts[i].text);
}

/* ---- tally ---- */

static void add(struct tally *tally, const char *contract, int32_t work, int64_t amount) {
    struct error error = {0};
    assert_true(tally_add(tally, contract, work, amount, &error));
}

static void test_tally__adds_up_each_work_of_each_contract(void **state) {
    (void)state;
    struct tally tally = {0};
    add(&tally, "A", 1, 10);
    add(&tally, "A", 1, -3);
    assert_int_equal(tally_complete(&tally), 0);
    add(&tally, "A", 2, 5);
    add(&tally, "B", 2, 7);
    assert_int_equal(tally_complete(&tally), 2);
    assert_int_equal(tally.lines[0].gross, 7);
    assert_int_equal(tally.lines[0].sales, 2);
    assert_int_equal(tally.lines[1].gross, 5);
    tally_close(&tally);
    assert_int_equal(tally_complete(&tally), 3);
    assert_string_equal(tally.lines[2].contract, "B");
    tally_release(&tally);
}

static void test_tally__goes_on_with_a_work_that_lies_in_two_chunks(void **state) {
    (void)state;
    struct tally tally = {0};
    add(&tally, "A", 1, 10);
    add(&tally, "A", 2, 20);
    assert_true(tally_continues(&tally, "A", 2));
    assert_false(tally_continues(&tally, "A", 3));
    assert_false(tally_continues(&tally, "B", 2));
    tally_drop_complete(&tally);
    assert_int_equal(tally.count, 1);
    add(&tally, "A", 2, 2);
    tally_close(&tally);
    assert_int_equal(tally_complete(&tally), 1);
    assert_int_equal(tally.lines[0].gross, 22);
    tally_drop_complete(&tally);
    assert_int_equal(tally.count, 0);
    add(&tally, "A", 2, 1); /* a line of its own: the other one was closed */
    assert_int_equal(tally.lines[0].sales, 1);
    tally_release(&tally);
}

static void test_tally__refuses_what_is_too_large(void **state) {
    (void)state;
    struct tally tally = {0};
    struct error error = {0};
    add(&tally, "A", 9, MOST);
    assert_false(tally_add(&tally, "A", 9, 1, &error));
    assert_int_equal(error.kind, ERROR_REJECT);
    assert_string_equal(error.code, "royalty_overflow");
    assert_non_null(strstr(error.message, "work 9 of contract A"));
    assert_true(tally_share(&tally.lines[0], 1000000, &error));
    assert_true(tally.lines[0].royalty == MOST);
    assert_false(tally_share(&tally.lines[0], 1000001, &error));
    tally_release(&tally);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_money__shares_are_rounded_to_the_nearest_and_halves_away_from_zero),
        cmocka_unit_test(test_money__sums_that_do_not_fit_are_refused),
        cmocka_unit_test(test_money__is_written_with_six_decimals),
        cmocka_unit_test(test_tally__adds_up_each_work_of_each_contract),
        cmocka_unit_test(test_tally__goes_on_with_a_work_that_lies_in_two_chunks),
        cmocka_unit_test(test_tally__refuses_what_is_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
