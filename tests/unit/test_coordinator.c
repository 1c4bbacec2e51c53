/* coordinator: which exit status tells whom to call. Its run is tested on real parts (tests/integration). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sysexits.h>
#include <unistd.h>

#include <cmocka.h>

#include "coordinator/coordinator_private.h"

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

static bool open_nothing(void *context, struct error *error) {
    (void)context;
    (void)error;
    return false;
}

static void close_nothing(void *context) {
    (void)context;
}

static void start_idle_lanes(struct coordinator *coordinator, struct lane *lanes[], size_t count) {
    const struct lane_options options = {.name = "idle", .store = {.open = open_nothing, .close = close_nothing}, .batch_messages = 10,
                                         .batch_bytes = 1000, .queue_messages = 10, .queue_bytes = 1000};
    for (size_t i = 0; i < count; i++)
        lanes[i] = lane_new(&options);
    coordinator->lane_pointers = lanes;
    coordinator->lane_count = count;
}

/* A server whose disk is full answers every look of the reaper, and no lane can commit. */
static void test_coordinator__the_database_works_when_all_say_so_who_found_that_it_does_not(void **state) {
    (void)state;
    struct coordinator coordinator = {0};
    struct lane *lanes[2];
    struct error full = {0};
    error_set(&full, ERROR_RETRY, "53100", "could not extend file: No space left on device");
    log_init(&coordinator.log, STDERR_FILENO, LOG_FORMAT_LOGFMT, LOG_ERROR);
    coordinator.clock = clock_system();
    coordinator.counts = counts_new(NULL, 0);
    coordinator.status = status_new(NULL, &coordinator.clock);
    coordinator.reaper_pulse = status_add_pulse(coordinator.status, "reaper", 1000);
    start_idle_lanes(&coordinator, lanes, 2);
    for (int i = 0; i < STATUS_CONDITIONS; i++)
        status_meet(coordinator.status, (enum status_condition)i);
    const struct lane_events lane = coordinator_lane_events(&coordinator);
    const struct reaper_events reaper = coordinator_reaper_events(&coordinator);

    lane.retries(&coordinator, lanes[0], &full);
    lane.retries(&coordinator, lanes[1], &full);
    int64_t since_ms = coordinator_away_since_ms(&coordinator);
    assert_true(since_ms > 0);
    reaper.looked(&coordinator);
    lane.works(&coordinator, lanes[0]);
    assert_int_equal(coordinator_away_since_ms(&coordinator), since_ms);
    assert_false(status_is_ready(coordinator.status));
    lane.works(&coordinator, lanes[1]);
    assert_int_equal(coordinator_away_since_ms(&coordinator), 0);
    assert_true(status_is_ready(coordinator.status));

    reaper.retries(&coordinator, &full);
    assert_false(status_is_ready(coordinator.status));
    reaper.looked(&coordinator);
    assert_true(status_is_ready(coordinator.status));
    for (size_t i = 0; i < 2; i++)
        lane_free(lanes[i]);
    status_free(coordinator.status);
    counts_free(coordinator.counts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coordinator__exit_status_says_what_to_look_at),
        cmocka_unit_test(test_coordinator__the_database_works_when_all_say_so_who_found_that_it_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
