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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reaper__a_notification_names_the_earliest_expiry_or_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
