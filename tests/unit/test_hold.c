/* hold: until when a lease is ours, when it is lost, when it is renewed; with a clock that the test moves. */
#include "worker/hold.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MS = 1000 };
static const struct hold_terms terms = {.ttl_us = 24000 * MS, .margin_us = 2000 * MS};

static struct hold held(int64_t asked_us, int64_t now_us) {
    struct hold hold;
    hold_init(&hold, &terms, asked_us, now_us);
    return hold;
}

/* asked: when the request was sent; now: when it is looked at. */
static void test_hold__is_mine_until_the_margin_before_the_deadline(void **state) {
    (void)state;
    static const struct {
        int64_t asked_ms, now_ms;
        bool is_mine;
        int64_t remaining_ms;
    } rows[] = {
        {0, 0, true, 22000},
        {0, 21999, true, 1},
        {0, 22000, false, 0},         /* the margin */
        {0, 24000, false, 0},         /* the deadline itself */
        {5000, 26999, true, 1},       /* counted from when it was asked */
        {-30000, 0, false, 0},        /* the grant came after its own deadline */
        {-1000, 100000, false, 0},    /* stopped for long */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hold hold = held(rows[i].asked_ms * MS, rows[i].now_ms * MS);
        assert_int_equal(hold_remaining_us(&hold, rows[i].now_ms * MS), rows[i].remaining_ms * MS);
        assert_int_equal(hold_is_mine(&hold, rows[i].now_ms * MS), rows[i].is_mine);
        assert_int_equal(hold_take_loss(&hold, rows[i].now_ms * MS), !rows[i].is_mine);
        assert_false(hold_take_loss(&hold, rows[i].now_ms * MS)); /* once */
    }
}

static void test_hold__stays_lost(void **state) {
    (void)state;
    struct hold hold = held(0, 0);
    assert_false(hold_is_mine(&hold, 22000 * MS)); /* the work looked, before anybody else */
    hold_renewed(&hold, &terms, 20000 * MS, 21000 * MS); /* sent in time, accepted, and read late */
    assert_false(hold_is_mine(&hold, 21000 * MS));
    assert_int_equal(hold_remaining_us(&hold, 0), 0);
    assert_true(hold_take_loss(&hold, 22000 * MS));
    assert_false(hold_take_loss(&hold, 90000 * MS));
    assert_int_equal(hold_next_us(&hold), INT64_MAX);
}

static void test_hold__is_lost_when_it_is_refused(void **state) {
    (void)state;
    struct hold hold = held(0, 0);
    assert_false(hold_take_loss(&hold, 1000 * MS));
    hold_lose(&hold);
    assert_false(hold_is_mine(&hold, 1000 * MS));
    assert_true(hold_take_loss(&hold, 1000 * MS));
    assert_false(hold_take_loss(&hold, 1000 * MS));
}

static void test_hold__counts_a_renewal_from_when_it_was_sent(void **state) {
    (void)state;
    struct hold hold = held(0, 0);
    hold_renewed(&hold, &terms, 8000 * MS, 15000 * MS); /* the answer took seven seconds */
    assert_int_equal(hold_remaining_us(&hold, 15000 * MS), 15000 * MS);
    hold_renewed(&hold, &terms, 3000 * MS, 16000 * MS); /* an earlier one, answered later, shortens nothing */
    assert_int_equal(hold_remaining_us(&hold, 16000 * MS), 14000 * MS);
    assert_true(hold_is_mine(&hold, 29999 * MS));
    assert_false(hold_is_mine(&hold, 30000 * MS));
}

static void test_hold__is_renewed_at_a_third_if_there_was_progress(void **state) {
    (void)state;
    static const struct {
        int64_t progress_ms, now_ms;
        bool is_alive;
        enum hold_wish wish;
    } rows[] = {
        {0, 6999, false, HOLD_WAIT},
        {0, 7000, false, HOLD_RENEW},      /* ttl/24 early, to share a message */
        {0, 8000, false, HOLD_RENEW},
        {0, 8001, false, HOLD_STUCK},      /* nothing for more than a third */
        {1, 8001, false, HOLD_RENEW},
        {7999, 8000, false, HOLD_RENEW},
        {0, 20000, false, HOLD_STUCK},
        {0, 20000, true, HOLD_RENEW},      /* somebody vouches for it */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hold hold = held(0, 0);
        assert_true(hold_progress(&hold, rows[i].progress_ms * MS));
        assert_int_equal(hold_wish(&hold, &terms, rows[i].is_alive, rows[i].now_ms * MS), rows[i].wish);
    }
}

static void test_hold__is_looked_at_again_while_it_is_stuck_and_renewed_when_it_gets_on(void **state) {
    (void)state;
    struct hold hold = held(0, 0);
    assert_int_equal(hold_wish(&hold, &terms, false, 9000 * MS), HOLD_STUCK);
    assert_int_equal(hold_next_us(&hold), 11000 * MS); /* a twelfth later */
    assert_int_equal(hold_wish(&hold, &terms, false, 9500 * MS), HOLD_WAIT);
    hold_progress(&hold, 10500 * MS);
    assert_int_equal(hold_wish(&hold, &terms, false, 11000 * MS), HOLD_RENEW);
}

static void test_hold__renews_again_without_an_answer(void **state) {
    (void)state;
    struct hold hold = held(0, 8000 * MS);
    assert_int_equal(hold_wish(&hold, &terms, false, 8000 * MS), HOLD_RENEW);
    hold_asked(&hold, &terms, 8000 * MS);
    assert_int_equal(hold_wish(&hold, &terms, false, 10000 * MS), HOLD_WAIT);
    assert_int_equal(hold_wish(&hold, &terms, false, 12000 * MS), HOLD_RENEW);
    hold_asked(&hold, &terms, 12000 * MS);
    hold_renewed(&hold, &terms, 12000 * MS, 12100 * MS);
    assert_int_equal(hold_next_us(&hold), 20000 * MS); /* a third after the one that was accepted */
}

static void test_hold__is_next_looked_at_when_it_ends(void **state) {
    (void)state;
    struct hold hold = held(0, 0);
    hold_asked(&hold, &terms, 21000 * MS);
    assert_int_equal(hold_next_us(&hold), 22000 * MS);
}

/* A thread asks all the time while another renews and the clock passes the deadline: what it hears is yes, and then no. */
struct race {
    struct hold hold;
    _Atomic int64_t now_us;
    _Atomic bool is_over;
    bool came_back;
};

static void *ask(void *context) {
    struct race *race = context;
    bool was_mine = true;
    while (!atomic_load(&race->is_over)) {
        bool is_mine = hold_is_mine(&race->hold, atomic_load(&race->now_us));
        race->came_back |= is_mine && !was_mine;
        was_mine = is_mine;
    }
    return NULL;
}

static void test_hold__never_comes_back_in_a_race(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct race race = {0};
        pthread_t thread;
        hold_init(&race.hold, &terms, 0, 0);
        assert_int_equal(pthread_create(&thread, NULL, ask, &race), 0);
        for (int64_t ms = 21900; ms < 22100; ms++) {
            hold_renewed(&race.hold, &terms, ms == 21999 ? 100 * MS : 0, ms * MS);
            atomic_store(&race.now_us, ms * MS);
        }
        atomic_store(&race.now_us, 23000 * MS);
        atomic_store(&race.is_over, true);
        pthread_join(thread, NULL);
        assert_false(race.came_back);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hold__is_mine_until_the_margin_before_the_deadline),
        cmocka_unit_test(test_hold__stays_lost),
        cmocka_unit_test(test_hold__is_lost_when_it_is_refused),
        cmocka_unit_test(test_hold__counts_a_renewal_from_when_it_was_sent),
        cmocka_unit_test(test_hold__is_renewed_at_a_third_if_there_was_progress),
        cmocka_unit_test(test_hold__is_looked_at_again_while_it_is_stuck_and_renewed_when_it_gets_on),
        cmocka_unit_test(test_hold__renews_again_without_an_answer),
        cmocka_unit_test(test_hold__is_next_looked_at_when_it_ends),
        cmocka_unit_test(test_hold__never_comes_back_in_a_race),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
