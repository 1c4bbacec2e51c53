/* item: every state and event, with what comes of it. */
#include "worker/item.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define NEVER ITEM_STATES

static void test_item__moves_as_the_table_says(void **state) {
    (void)state;
    /* state, event → next, next when nothing that is sent could change anything */
    static const struct {
        enum item_state state;
        enum item_event event;
        enum item_state next, pointless;
    } rows[] = {
        {ITEM_READY, ITEM_TAKE, ITEM_RUNNING, NEVER},
        {ITEM_READY, ITEM_GIVE_BACK, ITEM_DECIDED, ITEM_GONE},
        {ITEM_READY, ITEM_DECIDE, NEVER, NEVER},
        {ITEM_READY, ITEM_SEND, NEVER, NEVER},
        {ITEM_READY, ITEM_RESEND, NEVER, NEVER},
        {ITEM_READY, ITEM_ANSWER, NEVER, NEVER},
        {ITEM_READY, ITEM_LOSE, NEVER, NEVER}, /* it is given back */
        {ITEM_RUNNING, ITEM_TAKE, NEVER, NEVER},
        {ITEM_RUNNING, ITEM_GIVE_BACK, NEVER, NEVER},
        {ITEM_RUNNING, ITEM_DECIDE, ITEM_DECIDED, ITEM_GONE}, /* a lost one's fail is not sent, its finish is */
        {ITEM_RUNNING, ITEM_SEND, NEVER, NEVER},
        {ITEM_RUNNING, ITEM_RESEND, NEVER, NEVER},
        {ITEM_RUNNING, ITEM_ANSWER, NEVER, NEVER},
        {ITEM_RUNNING, ITEM_LOSE, ITEM_RUNNING, ITEM_RUNNING}, /* the work is told, and returns when it does */
        {ITEM_DECIDED, ITEM_TAKE, NEVER, NEVER},
        {ITEM_DECIDED, ITEM_GIVE_BACK, NEVER, NEVER},
        {ITEM_DECIDED, ITEM_DECIDE, NEVER, NEVER},
        {ITEM_DECIDED, ITEM_SEND, ITEM_SENT, NEVER},
        {ITEM_DECIDED, ITEM_RESEND, NEVER, NEVER},
        {ITEM_DECIDED, ITEM_ANSWER, ITEM_GONE, ITEM_GONE}, /* a late answer to an earlier sending */
        {ITEM_DECIDED, ITEM_LOSE, ITEM_DECIDED, ITEM_GONE},
        {ITEM_SENT, ITEM_TAKE, NEVER, NEVER},
        {ITEM_SENT, ITEM_GIVE_BACK, NEVER, NEVER},
        {ITEM_SENT, ITEM_DECIDE, NEVER, NEVER},
        {ITEM_SENT, ITEM_SEND, NEVER, NEVER},
        {ITEM_SENT, ITEM_RESEND, ITEM_DECIDED, ITEM_GONE},
        {ITEM_SENT, ITEM_ANSWER, ITEM_GONE, ITEM_GONE},
        {ITEM_SENT, ITEM_LOSE, ITEM_SENT, ITEM_SENT},
        {ITEM_GONE, ITEM_TAKE, NEVER, NEVER},
        {ITEM_GONE, ITEM_GIVE_BACK, NEVER, NEVER},
        {ITEM_GONE, ITEM_DECIDE, NEVER, NEVER},
        {ITEM_GONE, ITEM_SEND, NEVER, NEVER},
        {ITEM_GONE, ITEM_RESEND, NEVER, NEVER},
        {ITEM_GONE, ITEM_ANSWER, ITEM_GONE, ITEM_GONE}, /* the answer came twice */
        {ITEM_GONE, ITEM_LOSE, ITEM_GONE, ITEM_GONE},
    };
    assert_int_equal(sizeof rows / sizeof *rows, ITEM_STATES * ITEM_EVENTS);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(rows[i].state, i / ITEM_EVENTS);
        assert_int_equal(rows[i].event, i % ITEM_EVENTS);
        assert_int_equal(item_next(rows[i].state, rows[i].event, false), rows[i].next);
        assert_int_equal(item_next(rows[i].state, rows[i].event, true), rows[i].pointless);
    }
}

static struct lease_item *new_item(void) {
    struct lease_grant grant = {.kind = "cleanup", .lease = "file-1", .holder = "w.1", .fence = 7, .claim_id = "c", .token = "t",
                                .payload = "{\"a\": 1} and more", .payload_size = 8};
    return item_new(NULL, &grant);
}

static void test_item__has_its_own_copy_of_the_grant(void **state) {
    (void)state;
    struct lease_item *item = new_item();
    assert_string_equal(item->grant.lease, "file-1");
    assert_string_equal(item->grant.payload, "{\"a\": 1}");
    assert_int_equal(item->grant.fence, 7);
    item->references++;
    item_unref(item);
    assert_string_equal(item->grant.token, "t");
    item_unref(item);
}

static void test_item__knows_what_is_pointless(void **state) {
    (void)state;
    static const struct {
        enum item_verdict verdict;
        bool was_begun, is_lost, is_superseded, is_pointless;
    } rows[] = {
        {ITEM_FINISH, true, false, false, false},  {ITEM_FAIL, true, false, false, false},
        {ITEM_RELEASE, true, false, false, false}, {ITEM_FINISH, true, true, false, false}, /* done work counts */
        {ITEM_FAIL, true, true, false, true},      {ITEM_RELEASE, true, true, false, true},
        {ITEM_RELEASE, false, true, false, false}, /* may still come in time, and burns no attempt then */
        {ITEM_FINISH, true, true, true, true},     /* it was granted since: to ourselves */
        {ITEM_RELEASE, false, true, true, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lease_item *item = new_item();
        item_decide(item, rows[i].verdict, "words", 5);
        item->was_begun = rows[i].was_begun;
        item->is_lost = rows[i].is_lost;
        item->is_superseded = rows[i].is_superseded;
        assert_int_equal(item_is_pointless(item), rows[i].is_pointless);
        item_unref(item);
    }
}

static void test_item__counts_the_elements_of_a_result(void **state) {
    (void)state;
    struct lease_item *item = new_item();
    item_decide(item, ITEM_FINISH, "{\"a\":[1,2,3]}", 13);
    assert_true(item->elements >= 5); /* the object, the member, the array and its three */
    item_decide(item, ITEM_RELEASE, NULL, 0);
    assert_null(item->words);
    assert_int_equal(item->elements, 0);
    item_unref(item);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_item__moves_as_the_table_says),
        cmocka_unit_test(test_item__has_its_own_copy_of_the_grant),
        cmocka_unit_test(test_item__knows_what_is_pointless),
        cmocka_unit_test(test_item__counts_the_elements_of_a_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
