/* What a reader of results hands out: each record once, whatever the relays did (F20). (With a broker: test_gates.py.) */
#include "common/results_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

struct arrival {
    int64_t number, epoch; /* number 0: no header */
    bool is_mark;
    enum results_kind kind;
};

static enum results_kind take(struct results_position *position, const struct arrival *arrival, int64_t offset) {
    char number[24], epoch[24];
    struct message_header headers[3];
    size_t count = 0;
    snprintf(number, sizeof number, "%lld", (long long)arrival->number);
    snprintf(epoch, sizeof epoch, "%lld", (long long)arrival->epoch);
    if (arrival->number > 0) {
        headers[count++] = (struct message_header){"lease_number", 12, number, strlen(number)};
        headers[count++] = (struct message_header){"lease_epoch", 11, epoch, strlen(epoch)};
    }
    if (arrival->is_mark)
        headers[count++] = (struct message_header){"lease_mark", 10, "1", 1};
    struct message message = {.topic = "lease.results", .offset = offset, .headers = headers, .header_count = count,
                              .value = "{}", .value_size = 2};
    return results_position_take(position, &message);
}

static void play(const struct arrival *arrivals, size_t count, struct results_position *position) {
    for (size_t i = 0; i < count; i++) {
        enum results_kind kind = take(position, &arrivals[i], (int64_t)i);
        if (kind != arrivals[i].kind)
            fail_msg("record %zu (number %lld) is %d, not %d", i, (long long)arrivals[i].number, (int)kind, (int)arrivals[i].kind);
        assert_int_equal(position->offset, (int64_t)i + 1);
    }
}

#define PLAY(position, ...) play((const struct arrival[]){__VA_ARGS__}, sizeof(const struct arrival[]){__VA_ARGS__} / sizeof(struct arrival), position)

static void test_results_reader__hands_out_what_rises(void **state) {
    (void)state;
    struct results_position position = {.topic = "lease.results"};
    PLAY(&position, {3, 1, false, RESULTS_NEW}, {4, 1, false, RESULTS_NEW}, {9, 1, false, RESULTS_NEW}, {8589934592, 1, false, RESULTS_NEW});
    assert_int_equal(position.number, 8589934592);
}

static void test_results_reader__skips_marks_and_does_not_take_their_number_for_a_records(void **state) {
    (void)state;
    struct results_position position = {.topic = "lease.results"};
    PLAY(&position, {3, 1, false, RESULTS_NEW}, {90, 1, true, RESULTS_MARK}, {4, 1, false, RESULTS_NEW}, {4, 2, true, RESULTS_MARK});
    assert_int_equal(position.number, 4);
    assert_int_equal(position.epoch, 2);
}

/* A relay that crashed had published what its successor publishes again. */
static void test_results_reader__drops_repeats(void **state) {
    (void)state;
    struct results_position position = {.topic = "lease.results"};
    PLAY(&position, {3, 1, false, RESULTS_NEW}, {4, 1, false, RESULTS_NEW}, {3, 1, false, RESULTS_REPEAT}, {3, 2, false, RESULTS_REPEAT},
         {4, 2, false, RESULTS_REPEAT}, {5, 2, false, RESULTS_NEW});
}

/* A relay that was paused sends what it had in hand, between the records of its successor: before, beside and ahead of them. */
static void test_results_reader__drops_stragglers_and_not_what_they_stand_for(void **state) {
    (void)state;
    struct results_position position = {.topic = "lease.results"};
    PLAY(&position, {3, 1, false, RESULTS_NEW}, {3, 2, true, RESULTS_MARK}, {4, 1, false, RESULTS_STRAGGLER}, {4, 2, false, RESULTS_NEW},
         {5, 1, false, RESULTS_STRAGGLER}, {6, 1, false, RESULTS_STRAGGLER}, {5, 2, false, RESULTS_NEW}, {6, 2, false, RESULTS_NEW},
         {6, 1, true, RESULTS_MARK}, {7, 2, false, RESULTS_NEW});
    assert_int_equal(position.epoch, 2);
}

/* The database was restored; the old relay still runs beside the old server. Its numbers are those of a history that is lost. */
static void test_results_reader__drops_what_a_lost_history_sends_late(void **state) {
    (void)state;
    struct results_position position = {.topic = "lease.results"};
    PLAY(&position, {70, 4, false, RESULTS_NEW}, {70, 9, true, RESULTS_MARK}, {71, 4, false, RESULTS_STRAGGLER}, {4294967400, 9, false, RESULTS_NEW});
}

static void test_results_reader__leaves_strangers_alone(void **state) {
    (void)state;
    struct results_position position = {.topic = "lease.results"};
    PLAY(&position, {0, 0, false, RESULTS_STRANGER}, {3, 1, false, RESULTS_NEW}, {0, 0, false, RESULTS_STRANGER}, {4, 1, false, RESULTS_NEW});
}

/* Two relays at random: the one publishes 1, 2, 3, … of a partition, is replaced at some moment, and what it had in hand then comes late,
 * in its order. The reader stops and starts again from what it stored, as often as it likes. */
static void test_results_reader__hands_out_each_once_whatever_relays_do(void **state) {
    (void)state;
    const char *given = getenv("LEASE_TEST_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("seed %u\n", seed);
    srandom(seed);
    for (int game = 0; game < 2000; game++) {
        struct results_position position = {.topic = "lease.results"};
        int64_t offset = 0, next = 1, handed_out = 0, late = 1, late_end = 1; /* [late, late_end): in the old relay's hand */
        int64_t epoch = 1, late_epoch = 0;
        for (int step = 0; step < 200; step++) {
            struct arrival arrival = {next, epoch, false, RESULTS_NEW};
            long roll = random() % 20;
            if (roll == 0) { /* replaced: its successor goes on where the partition stands */
                late = next;
                late_end = next + random() % 6;
                late_epoch = epoch;
                epoch += 1 + random() % 3;
                arrival = (struct arrival){next, epoch, true, RESULTS_MARK};
            } else if (roll < 5 && late < late_end) {
                arrival = (struct arrival){late++, late_epoch, false, RESULTS_STRAGGLER};
            } else {
                next++;
            }
            struct results_position stored = position;
            enum results_kind kind = take(&position, &arrival, offset);
            if (random() % 10 == 0) { /* died before it stored */
                position = stored;
                kind = take(&position, &arrival, offset);
            }
            offset++;
            assert_int_equal(kind, arrival.kind);
            if (kind == RESULTS_NEW)
                assert_int_equal(arrival.number, ++handed_out);
        }
        assert_int_equal(handed_out, next - 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_reader__hands_out_what_rises),
        cmocka_unit_test(test_results_reader__skips_marks_and_does_not_take_their_number_for_a_records),
        cmocka_unit_test(test_results_reader__drops_repeats),
        cmocka_unit_test(test_results_reader__drops_stragglers_and_not_what_they_stand_for),
        cmocka_unit_test(test_results_reader__drops_what_a_lost_history_sends_late),
        cmocka_unit_test(test_results_reader__leaves_strangers_alone),
        cmocka_unit_test(test_results_reader__hands_out_each_once_whatever_relays_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
