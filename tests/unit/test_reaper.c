/* reaper: what it reads out of a notification. Its work is tested on a real server (tests/integration). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coordinator/reaper.h"

static void test_reaper__a_notification_names_the_earliest_expiry_or_none(void **state) {
    (void)state;
    static const struct {
        const char *payload;
        int64_t expiry_us;
    } rows[] = {
        {"17 1700000000123", INT64_C(1700000000123000)},
        {"17 ", INT64_MAX},
        {"17", INT64_MAX},
        {"", INT64_MAX},
        {"17 0", INT64_MAX},
        {"17 -5", INT64_MAX},
        {"17 12x", INT64_MAX},
        {"17 99999999999999999999", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (reaper_parse_payload(rows[i].payload) != rows[i].expiry_us)
            fail_msg("\"%s\"", rows[i].payload);
}

/* Leases that were renewed are due too, and are no lapses: real ones may stand behind a thousand of them. */
static void test_reaper__looks_again_at_once_while_there_may_be_more(void **state) {
    (void)state;
    enum { NOW = 1000000 };
    assert_true(reaper_next_look(REAPER_LIMIT, 0, NOW - 1, NOW) == INT64_MIN);
    assert_true(reaper_next_look(REAPER_LIMIT, REAPER_LIMIT, NOW + 500, NOW) == INT64_MIN);
    assert_true(reaper_next_look(REAPER_LIMIT - 1, 1, NOW + 500, NOW) == NOW + 500);
    assert_true(reaper_next_look(0, 0, INT64_MAX, NOW) == INT64_MAX);
    int64_t skipped = reaper_next_look(0, 0, NOW - 1, NOW); /* somebody else has them locked */
    assert_true(skipped > NOW && skipped < NOW + 50000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reaper__a_notification_names_the_earliest_expiry_or_none),
        cmocka_unit_test(test_reaper__looks_again_at_once_while_there_may_be_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
