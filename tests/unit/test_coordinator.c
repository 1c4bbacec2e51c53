/* coordinator: which exit status tells whom to call. Its run is tested on real parts (tests/integration). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sysexits.h>

#include <cmocka.h>

#include "coordinator/coordinator.h"

static void test_coordinator__exit_status_says_what_to_look_at(void **state) {
    (void)state;
    static const struct {
        const char *code;
        int status;
    } rows[] = {
        {"usage", EX_USAGE},
        {"configuration", EX_CONFIG},
        {"secret_file", EX_CONFIG},
        {"db_conninfo", EX_CONFIG},
        {"db_lost", EX_UNAVAILABLE},
        {"db_deadline", EX_UNAVAILABLE},
        {"57P03", EX_UNAVAILABLE},
        {"28P01", EX_NOPERM},
        {"42501", EX_NOPERM},
        {"42883", EX_CONFIG},       /* not migrated */
        {"3F000", EX_CONFIG},
        {"LE004", EX_DATAERR},      /* topics ahead of the database */
        {"LE006", EX_CONFIG},
        {"LE007", EX_SOFTWARE},     /* a broken invariant */
        {"LE008", EX_CONFIG},
        {"topic_missing", EX_CONFIG},
        {"witness_topic_missing", EX_CONFIG},
        {"kafka_not_authorized", EX_NOPERM},
        {"kafka_timeout", EX_UNAVAILABLE},
        {"invariant", EX_SOFTWARE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error error = {0};
        error_set(&error, ERROR_FATAL, rows[i].code, "why");
        if (coordinator_exit_status(&error) != rows[i].status)
            fail_msg("%s: %d", rows[i].code, coordinator_exit_status(&error));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_coordinator__exit_status_says_what_to_look_at)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
