/* partition: when may reading go on where the database says, and what invalidates what was read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "coordinator/partition.h"

struct place_row {
    const char *name;
    struct partition_evidence evidence;
    const char *code; /* NULL: goes on */
    int64_t start;
    bool compares;
};

#define SAME .partitions_now = 12, .partitions_known = 12

static void test_partition__place_decides_whether_and_where_reading_goes_on(void **state) {
    (void)state;
    static const struct place_row rows[] = {
        {"never consumed begins at the log's begin",
         {SAME, .low = 7, .high = 9, .next_offset = PARTITION_NEVER, .last_offset = -1}, NULL, 7, false},
        {"first sight of the topic", {.partitions_now = 12, .low = 0, .high = 5, .next_offset = PARTITION_NEVER, .last_offset = -1}, NULL, 0, false},
        {"in the middle", {SAME, .low = 0, .high = 9, .next_offset = 5, .last_offset = 4}, NULL, 5, true},
        {"all was read", {SAME, .low = 0, .high = 5, .next_offset = 5, .last_offset = 4}, NULL, 5, true},
        {"retention took all that was read, and nothing more",
         {SAME, .low = 5, .high = 9, .next_offset = 5, .last_offset = 4}, NULL, 5, false},
        {"retention took what was not read", {SAME, .low = 6, .high = 9, .next_offset = 5, .last_offset = 4}, "offset_before_log", 0, false},
        {"the log is shorter than what was read", {SAME, .low = 0, .high = 4, .next_offset = 5, .last_offset = 4}, "offset_beyond_log", 0, false},
        {"the topic grew", {.partitions_now = 13, .partitions_known = 12, .high = 9, .next_offset = 5, .last_offset = 4}, "partition_count_changed", 0, false},
        {"the topic grew before this one was consumed",
         {.partitions_now = 13, .partitions_known = 12, .next_offset = PARTITION_NEVER, .last_offset = -1}, "partition_count_changed", 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error error = {0};
        int64_t start = 0;
        bool compares = false;
        bool goes_on = partition_judge_place(&rows[i].evidence, &start, &compares, &error);
        if (goes_on != (rows[i].code == NULL) || (!goes_on && strcmp(error.code, rows[i].code) != 0) ||
            (goes_on && (start != rows[i].start || compares != rows[i].compares)))
            fail_msg("%s: %s %lld", rows[i].name, error.code, (long long)start);
        assert_int_equal(error.kind, goes_on ? ERROR_NONE : ERROR_FATAL);
    }
}

/* F11: a topic recreated with a longer log looks right but for this. */
static void test_partition__another_record_where_the_last_one_was_halts(void **state) {
    (void)state;
    const struct partition_evidence same = {SAME, .low = 0, .high = 9, .next_offset = 5, .last_offset = 4, .last_timestamp = 1000,
                                            .last_checksum = 77, .has_record = true, .record_offset = 4,
                                            .record_timestamp = 1000, .record_checksum = 77};
    struct partition_evidence other[4] = {same, same, same, same};
    struct error error = {0};
    assert_true(partition_judge_record(&same, &error));
    other[0].record_timestamp++;
    other[1].record_checksum++;
    other[2].record_offset++;
    other[3].has_record = false;
    for (size_t i = 0; i < 4; i++) {
        error_clear(&error);
        assert_false(partition_judge_record(&other[i], &error));
        assert_string_equal(error.code, "topic_recreated");
        assert_int_equal(error.kind, ERROR_FATAL);
    }
}

static void test_partition__checksum_covers_key_and_value_and_takes_nulls(void **state) {
    (void)state;
    const struct message message = {.key = "k", .key_size = 1, .value = "value", .value_size = 5};
    const struct message other_key = {.key = "l", .key_size = 1, .value = "value", .value_size = 5};
    const struct message null_value = {.key = "k", .key_size = 1};
    const struct message nothing = {0};
    assert_int_equal(partition_checksum(&message), 0x08a4f113); /* crc32("kvalue") */
    assert_int_not_equal(partition_checksum(&message), partition_checksum(&other_key));
    assert_int_not_equal(partition_checksum(&message), partition_checksum(&null_value));
    assert_int_equal(partition_checksum(&nothing), 0);
}

static void test_partition__only_the_first_refusal_of_a_taking_counts(void **state) {
    (void)state;
    struct partition *partition = partition_new("settlement.events", 3, NULL);
    uint64_t generation = atomic_load(&partition->generation);
    assert_true(partition_is_current(partition, generation));
    partition_refuse(partition, generation);
    assert_false(partition_is_current(partition, generation));
    assert_true(atomic_exchange(&partition->is_refused, false));
    partition_refuse(partition, generation); /* a later batch of the same taking */
    assert_false(atomic_load(&partition->is_refused));
    partition_free(partition);
}

/* What is wrong with one partition, or passes, must not end the coordinator with all its others. */
static void test_partition__a_brokers_answer_about_it_halts_it_or_is_asked_again(void **state) {
    (void)state;
    static const struct {
        enum error_kind kind;
        const char *code;
        enum partition_answer answer;
    } rows[] = {
        {ERROR_FATAL, "kafka_offset_out_of_range", PARTITION_ANSWER_LATER},
        {ERROR_FATAL, "kafka_unknown_topic", PARTITION_ANSWER_LATER},
        {ERROR_FATAL, "kafka_not_authorized", PARTITION_ANSWER_HALT},
        {ERROR_FATAL, "kafka_corrupt", PARTITION_ANSWER_HALT},
        {ERROR_RETRY, "kafka_brokers_down", PARTITION_ANSWER_OTHER},
        {ERROR_RETRY, "kafka_timeout", PARTITION_ANSWER_OTHER},
        {ERROR_FATAL, "LE003", PARTITION_ANSWER_OTHER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error error = {0};
        error_set(&error, rows[i].kind, rows[i].code, "why");
        if (partition_judge_answer(&error) != rows[i].answer)
            fail_msg("%s: %d", rows[i].code, partition_judge_answer(&error));
    }
}

/* A record from another broker than the one whose record was compared, or read last, is compared first: once. */
static void test_partition__another_broker_is_followed_after_a_look_only(void **state) {
    (void)state;
    enum { TAKE = 1000 }; /* + the broker whose record was compared */
    static const struct {
        const char *name;
        int32_t steps[8]; /* brokers of records, takings */
        int64_t refused;  /* the numbers of the steps that are not followed, as bits */
    } rows[] = {
        {"the one that was compared", {TAKE + 1, 1, 1}, 0},
        {"nothing was there to compare with", {TAKE - 1, 2, 2}, 0},
        {"the leader moves", {TAKE + 1, 1, 2, TAKE + 2, 2, 2}, 1 << 2},
        {"it moves and comes back", {TAKE + 1, 1, 2, TAKE + 2, 2, 1}, 1 << 2 | 1 << 5},
        {"it moved between the comparison and the first record", {TAKE + 1, 2}, 1 << 1},
        {"the comparison is served by another copy, every time", {TAKE + 1, 2, TAKE + 1, 2, 2}, 1 << 1},
        {"and the leader moves then", {TAKE + 1, 2, TAKE + 1, 2, 3, TAKE + 1, 3, 1}, 1 << 1 | 1 << 4 | 1 << 7},
        {"a client that does not know", {TAKE + 1, -1, 1, -1}, 0},
        {"broker 0 is one as any other", {TAKE + 0, 0, 1}, 1 << 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct partition *partition = partition_new("t", 0, NULL);
        for (int step = 0; step < 8 && (rows[i].steps[step] != 0 || step < 2); step++) {
            if (rows[i].steps[step] >= TAKE - 1)
                partition->compared_at = rows[i].steps[step] - TAKE;
            else if (partition_follows(partition, rows[i].steps[step]) == ((rows[i].refused >> step & 1) != 0))
                fail_msg("%s: step %d", rows[i].name, step);
        }
        partition_free(partition);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partition__place_decides_whether_and_where_reading_goes_on),
        cmocka_unit_test(test_partition__another_record_where_the_last_one_was_halts),
        cmocka_unit_test(test_partition__checksum_covers_key_and_value_and_takes_nulls),
        cmocka_unit_test(test_partition__a_brokers_answer_about_it_halts_it_or_is_asked_again),
        cmocka_unit_test(test_partition__only_the_first_refusal_of_a_taking_counts),
        cmocka_unit_test(test_partition__another_broker_is_followed_after_a_look_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
