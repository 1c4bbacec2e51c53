/* credit: what a worker asks for in its claims, and what a grant says about when it was asked. */
#include "worker/credit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct credit *credit_of(uint64_t limit) {
    struct credit *credit = malloc(sizeof *credit);
    assert_non_null(credit);
    credit_init(credit, limit);
    return credit;
}

static void test_credit__asks_for_what_is_missing(void **state) {
    (void)state;
    struct credit *credit = credit_of(8);
    int64_t sent_us;
    assert_int_equal(credit_wanted(credit, 0), 8);
    assert_int_equal(credit_claim(credit, 8, 100), 1);
    assert_int_equal(credit_wanted(credit, 0), 0); /* all asked for */
    assert_true(credit_grant(credit, 1, &sent_us));
    assert_int_equal(credit_open(credit), 7);
    assert_int_equal(credit_wanted(credit, 1), 0); /* one in hand, seven open */
    assert_int_equal(credit_wanted(credit, 0), 1); /* it is done */
    assert_int_equal(credit_claim(credit, 1, 200), 2);
    assert_int_equal(credit->asked, 9); /* the total only rises */
    assert_int_equal(credit_wanted(credit, 20), 0);
    free(credit);
}

static void test_credit__tells_when_the_refresh_was_sent(void **state) {
    (void)state;
    struct credit *credit = credit_of(8);
    int64_t sent_us = -1;
    for (int i = 1; i <= 3; i++)
        assert_int_equal(credit_claim(credit, 1, i * 100), i);
    assert_true(credit_grant(credit, 2, &sent_us));
    assert_int_equal(sent_us, 200);
    assert_false(credit_grant(credit, 4, &sent_us)); /* none of ours */
    assert_false(credit_grant(credit, 0, &sent_us)); /* none at all */
    for (int i = 0; i < CREDIT_REFRESHES; i++)
        credit_claim(credit, 0, 1000);
    assert_false(credit_grant(credit, 3, &sent_us)); /* forgotten */
    assert_true(credit_grant(credit, 4, &sent_us));
    free(credit);
}

static void test_credit__gives_up_grants_that_never_come(void **state) {
    (void)state;
    struct credit *credit = credit_of(4);
    int64_t sent_us;
    credit_claim(credit, 4, 0);
    credit_grant(credit, 1, &sent_us);
    assert_int_equal(credit_empty(credit, 1), 0); /* they may be on their way */
    credit_grant(credit, 1, &sent_us);
    credit_claim(credit, 0, 10);
    assert_int_equal(credit_empty(credit, 2), 0); /* one has come since */
    credit_claim(credit, 0, 20);
    assert_int_equal(credit_empty(credit, 2), 0); /* an older claim's answer says nothing about the newest */
    assert_int_equal(credit_empty(credit, 3), 0);
    credit_claim(credit, 0, 30);
    assert_int_equal(credit_empty(credit, 4), 2);
    assert_int_equal(credit_open(credit), 0);
    assert_int_equal(credit_wanted(credit, 2), 2); /* asked for anew */
    assert_int_equal(credit_claim(credit, 2, 40), 5);
    assert_int_equal(credit->asked, 6);
    free(credit);
}

static void test_credit__bears_more_grants_than_were_asked_for(void **state) {
    (void)state;
    struct credit *credit = credit_of(2);
    int64_t sent_us;
    credit_claim(credit, 2, 0);
    for (int i = 0; i < 5; i++)
        credit_grant(credit, 1, &sent_us);
    assert_int_equal(credit_open(credit), 0);
    assert_int_equal(credit_wanted(credit, 5), 0);
    assert_int_equal(credit_wanted(credit, 1), 1);
    assert_int_equal(credit->asked, 5);
    free(credit);
}

static void test_credit__is_said_again_also_when_nothing_is_open(void **state) {
    (void)state;
    struct credit *credit = credit_of(2);
    int64_t sent_us;
    credit_claim(credit, 1, 0);
    assert_int_equal(credit_say_again_us(credit, 7, 1000), 507);
    credit_grant(credit, 1, &sent_us);
    assert_int_equal(credit_say_again_us(credit, 7, 1000), INT64_C(3600000007)); /* well within a day */
    free(credit);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_credit__asks_for_what_is_missing),
        cmocka_unit_test(test_credit__tells_when_the_refresh_was_sent),
        cmocka_unit_test(test_credit__gives_up_grants_that_never_come),
        cmocka_unit_test(test_credit__is_said_again_also_when_nothing_is_open),
        cmocka_unit_test(test_credit__bears_more_grants_than_were_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
