/* What is believed of a record on an output topic. */
#include "common/stamp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEADER(name, text) ((struct message_header){name, sizeof(name) - 1, text, sizeof(text) - 1})

static struct stamp stamp_of(const struct message_header *headers, size_t count, const char *value) {
    struct stamp stamp;
    struct message message = {.headers = headers, .header_count = count, .value = value, .value_size = strlen(value)};
    stamp_read(&message, &stamp);
    return stamp;
}

static void test_stamp__reads_number_epoch_and_fence(void **state) {
    (void)state;
    const struct message_header headers[] = {HEADER("ce_id", "7"), HEADER("lease_number", "7"),
                                             HEADER("lease_epoch", "3"), HEADER("lease_fence", "4294967299")};
    struct stamp stamp = stamp_of(headers, 4, "{\"fence\":9}");
    assert_false(stamp.is_mark);
    assert_int_equal(stamp.number, 7);
    assert_int_equal(stamp.epoch, 3);
    assert_int_equal(stamp.fence, 4294967299);
}

static void test_stamp__takes_a_marks_fence_from_its_value(void **state) {
    (void)state;
    const struct message_header headers[] = {HEADER("lease_mark", "1"), HEADER("lease_number", "12"),
                                             HEADER("lease_epoch", "2")};
    struct stamp stamp = stamp_of(headers, 3, "{\"epoch\":2,\"number\":12,\"fence\":4294967300,\"timeline\":1}");
    assert_true(stamp.is_mark);
    assert_int_equal(stamp.fence, 4294967300);
    assert_int_equal(stamp_of(headers, 3, "{\"fence\":").fence, 0);
    assert_int_equal(stamp_of(headers, 3, "").fence, 0);
}

/* A dead letter keeps the headers that its sender chose. */
static void test_stamp__is_not_fooled_by_a_dead_letters_own_headers(void **state) {
    (void)state;
    const struct message_header headers[] = {
        HEADER("lease_mark", "1"),    HEADER("lease_number", "9999999999"), HEADER("lease_fence", "9007199254740991"),
        HEADER("lease_epoch", "9999"), HEADER("lease_dlq_at", "2026"),      HEADER("lease_number", "5"),
        HEADER("lease_epoch", "1"),
    };
    struct stamp stamp = stamp_of(headers, 7, "{\"fence\":9007199254740991}");
    assert_false(stamp.is_mark);
    assert_int_equal(stamp.number, 5);
    assert_int_equal(stamp.epoch, 1);
    assert_int_equal(stamp.fence, 0);
}

static void test_stamp__counts_no_header_that_is_not_a_number(void **state) {
    (void)state;
    static const char *const texts[] = {"", "-1", "+1", " 1", "1 ", "0x1", "1.0", "99999999999999999999"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct message_header header = {"lease_number", 12, texts[i], strlen(texts[i])};
        assert_int_equal(stamp_of(&header, 1, "").number, 0);
    }
    struct message_header null_header = {"lease_number", 12, NULL, 0};
    assert_int_equal(stamp_of(&null_header, 1, "").number, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stamp__reads_number_epoch_and_fence),
        cmocka_unit_test(test_stamp__takes_a_marks_fence_from_its_value),
        cmocka_unit_test(test_stamp__is_not_fooled_by_a_dead_letters_own_headers),
        cmocka_unit_test(test_stamp__counts_no_header_that_is_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
