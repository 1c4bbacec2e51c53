/* lane: what it does about each answer of the database, played by a scripted store; and its queue's bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <pthread.h>
#include <time.h>

#include "common/buf.h"
#include "coordinator/lane.h"

/* A database of one list of applied offsets, and faults by script. */
struct script {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct buf log;             /* what was done, as text: "apply 10..19" … */
    int64_t poison;             /* the database refuses this offset's data; -1: none */
    int refuses_dead_letters;
    size_t slow_above;          /* more messages than this run into the statement timeout; 0: none do */
    int failures_left;          /* passing failures to come */
    int in_doubt_left;          /* commits that happen and are reported as failures */
    int64_t next[4];            /* consumed offsets by partition */
    int lost_partition;         /* claims of this one are refused; -1: none */
    int fatal;
    int64_t tried_before;       /* the offset for which attempt answers `tries`; for others 0 */
    int tries;
    bool is_held;               /* apply waits */
    bool is_in_apply;
    int committed, dead, refused, rooms, failed, retries;
};

static void note(struct script *script, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct script *script, const char *format, ...) {
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    buf_appendf(&script->log, "%s%s", script->log.size > 0 ? ", " : "", text);
}

static bool scripted_open(void *context, struct error *error) {
    (void)context;
    (void)error;
    return true;
}

static void scripted_close(void *context) {
    (void)context;
}

static bool has_poison(const struct script *script, const struct batch *batch, size_t from, size_t upto) {
    for (size_t i = from; i < upto; i++) {
        const struct batch_entry *entry = &batch->entries[i];
        if (!entry->is_dropped && entry->message.offset == script->poison &&
            (entry->command.verdict != EVENT_DEAD_LETTER || script->refuses_dead_letters))
            return true;
    }
    return false;
}

static size_t live_count(const struct batch *batch, size_t from, size_t upto) {
    size_t live = 0;
    for (size_t i = from; i < upto; i++)
        live += !batch->entries[i].is_dropped;
    return live;
}

static enum store_result apply_scripted(struct script *script, struct batch *batch, size_t from, size_t upto,
                                        struct store_answer *answer, struct error *error) {
    struct batch_claim claims[8];
    size_t claim_count = batch_claims(batch, from, upto, claims);
    answer->count = answer->lost_count = 0;
    size_t standing = 0;
    for (size_t i = 0; i < claim_count; i++) {
        int32_t number = claims[i].slot->partition->number;
        bool is_lost = number == script->lost_partition;
        bool stands = !is_lost && script->next[number] == claims[i].next;
        standing += stands;
        if (is_lost || (!stands && script->next[number] != claims[i].expected))
            answer->lost_slots[answer->lost_count++] = claims[i].slot_index;
    }
    if (answer->lost_count > 0)
        return STORE_LOST;
    if (standing == claim_count) {
        for (size_t i = 0; i < claim_count; i++)
            answer->lost_slots[answer->lost_count++] = claims[i].slot_index;
        return STORE_STOOD;
    }
    if (script->fatal) {
        error_set(error, ERROR_FATAL, "LE007", "broken");
        return STORE_FATAL;
    }
    if (script->failures_left > 0) {
        script->failures_left--;
        error_set(error, ERROR_RETRY, "40P01", "deadlock");
        return STORE_RETRY;
    }
    if (script->slow_above > 0 && live_count(batch, from, upto) > script->slow_above) {
        error_set(error, ERROR_RETRY, "57014", "canceling statement due to statement timeout");
        return STORE_RETRY;
    }
    if (has_poison(script, batch, from, upto)) {
        error_set(error, ERROR_REJECT, "22003", "refused");
        return STORE_REJECTED;
    }
    for (size_t i = 0; i < claim_count; i++)
        script->next[claims[i].slot->partition->number] = claims[i].next;
    for (size_t i = from; i < upto; i++) {
        if (batch->entries[i].is_dropped)
            continue;
        bool is_dead = batch->entries[i].command.verdict == EVENT_DEAD_LETTER;
        answer->outcomes[answer->count++] = is_dead ? STORE_DEAD_LETTER : LEASE_OUTCOME_GRANTED;
    }
    answer->earliest_expiry_us = INT64_MAX;
    if (script->in_doubt_left > 0) {
        script->in_doubt_left--;
        error_set(error, ERROR_RETRY, "db_commit_in_doubt", "cut");
        return STORE_RETRY;
    }
    return STORE_DONE;
}

static enum store_result scripted_apply(void *context, struct batch *batch, size_t from, size_t upto,
                                        struct store_answer *answer, struct error *error) {
    struct script *script = context;
    pthread_mutex_lock(&script->mutex);
    script->is_in_apply = true;
    pthread_cond_broadcast(&script->changed);
    while (script->is_held)
        pthread_cond_wait(&script->changed, &script->mutex);
    script->is_in_apply = false;
    enum store_result result = apply_scripted(script, batch, from, upto, answer, error);
    size_t live = live_count(batch, from, upto);
    static const char *const words[] = {"done", "lost", "stood", "retry", "rejected", "fatal"};
    note(script, "%zu %s", live, words[result]);
    pthread_mutex_unlock(&script->mutex);
    return result;
}

static bool scripted_attempt(void *context, const char *topic, int32_t partition, int64_t offset, int *ret_tries,
                             struct error *error) {
    struct script *script = context;
    (void)topic;
    (void)partition;
    (void)error;
    pthread_mutex_lock(&script->mutex);
    *ret_tries = offset == script->tried_before ? script->tries : 0;
    note(script, "attempt");
    pthread_mutex_unlock(&script->mutex);
    return true;
}

static void on_committed(void *context, struct lane *lane, const struct lane_commit *commit) {
    struct script *script = context;
    (void)lane;
    pthread_mutex_lock(&script->mutex);
    for (size_t i = 0; i < commit->answer->count; i++)
        *(commit->answer->outcomes[i] == STORE_DEAD_LETTER ? &script->dead : &script->committed) += 1;
    pthread_cond_broadcast(&script->changed);
    pthread_mutex_unlock(&script->mutex);
}

static void bump(struct script *script, int *counter) {
    pthread_mutex_lock(&script->mutex);
    ++*counter;
    pthread_cond_broadcast(&script->changed);
    pthread_mutex_unlock(&script->mutex);
}

static void on_refused(void *context, struct lane *lane, const struct partition *partition) {
    struct script *script = context;
    (void)lane;
    (void)partition;
    bump(script, &script->refused);
}

static void on_has_room(void *context, struct lane *lane) {
    struct script *script = context;
    (void)lane;
    bump(script, &script->rooms);
}

static void on_retries(void *context, struct lane *lane, const struct error *error) {
    struct script *script = context;
    (void)lane;
    (void)error;
    bump(script, &script->retries);
}

static void on_works(void *context, struct lane *lane) {
    (void)context;
    (void)lane;
}

static void on_failed(void *context, struct lane *lane, const struct error *error) {
    struct script *script = context;
    (void)lane;
    assert_int_equal(error->kind, ERROR_FATAL);
    bump(script, &script->failed);
}

static void decode(void *context, const struct message *message, struct command *ret_command) {
    (void)context;
    memset(ret_command, 0, sizeof *ret_command);
    ret_command->topic = message->topic;
    ret_command->partition = message->partition;
    ret_command->offset = message->offset;
    ret_command->kind = "settlement";
}

/* ---- the stage ---- */

struct stage {
    struct script script;
    struct lane *lane;
    struct partition *partitions[4];
};

static int set_up(void **state) {
    struct stage *stage = calloc(1, sizeof *stage);
    pthread_mutex_init(&stage->script.mutex, NULL);
    pthread_cond_init(&stage->script.changed, NULL);
    stage->script.poison = stage->script.tried_before = stage->script.lost_partition = -1;
    const struct lane_options options = {
        .name = "test", .store = {&stage->script, scripted_open, scripted_close, scripted_apply, scripted_attempt},
        .events = {&stage->script, on_committed, on_refused, on_has_room, on_retries, on_works, on_failed},
        .decode = decode, .batch_messages = 10, .batch_bytes = 100000, .queue_messages = 20, .queue_bytes = 10000000};
    stage->lane = lane_new(&options);
    for (int32_t i = 0; i < 4; i++) {
        stage->partitions[i] = partition_new("settlement.events", i, stage->lane);
        stage->partitions[i]->taken = atomic_load(&stage->partitions[i]->generation);
    }
    *state = stage;
    return 0;
}

static int tear_down(void **state) {
    struct stage *stage = *state;
    lane_free(stage->lane);
    for (int i = 0; i < 4; i++)
        partition_free(stage->partitions[i]);
    buf_release(&stage->script.log);
    pthread_mutex_destroy(&stage->script.mutex);
    pthread_cond_destroy(&stage->script.changed);
    free(stage);
    return 0;
}

static bool put_as(struct stage *stage, int partition, bool is_decoded) {
    struct partition *target = stage->partitions[partition];
    struct command command;
    const struct message message = {.topic = target->topic, .partition = partition, .offset = target->handed,
                                    .key = "key", .key_size = 3, .value = "value", .value_size = 5};
    decode(NULL, &message, &command);
    bool has_room = lane_put(stage->lane, target, &message, is_decoded ? &command : NULL);
    target->handed++;
    return has_room;
}

static void put(struct stage *stage, int partition, int count) {
    for (int i = 0; i < count; i++)
        put_as(stage, partition, true);
}

/* While held, everything put gathers behind the batch in hand. */
static void hold(struct stage *stage, bool is_held) {
    pthread_mutex_lock(&stage->script.mutex);
    stage->script.is_held = is_held;
    pthread_cond_broadcast(&stage->script.changed);
    pthread_mutex_unlock(&stage->script.mutex);
}

static void wait_until_in_apply(struct stage *stage) {
    pthread_mutex_lock(&stage->script.mutex);
    while (!stage->script.is_in_apply)
        pthread_cond_wait(&stage->script.changed, &stage->script.mutex);
    pthread_mutex_unlock(&stage->script.mutex);
}

static void wait_for(struct stage *stage, const int *counter, int wanted) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 30;
    pthread_mutex_lock(&stage->script.mutex);
    while (*counter < wanted)
        if (pthread_cond_timedwait(&stage->script.changed, &stage->script.mutex, &deadline) != 0) {
            pthread_mutex_unlock(&stage->script.mutex);
            fail_msg("%d of %d after 30 s; so far: %s", *counter, wanted, buf_text(&stage->script.log));
        }
    pthread_mutex_unlock(&stage->script.mutex);
}

/* One message in hand and the rest behind it, so that the rest is one batch. */
static void put_one_batch(struct stage *stage, int partition, int count) {
    hold(stage, true);
    put(stage, 3, 1);
    wait_until_in_apply(stage);
    put(stage, partition, count);
    hold(stage, false);
}

/* ---- the tests ---- */

static void test_lane__what_gathers_meanwhile_is_one_batch(void **state) {
    struct stage *stage = *state;
    put_one_batch(stage, 0, 7);
    wait_for(stage, &stage->script.committed, 8);
    assert_string_equal(buf_text(&stage->script.log), "1 done, 7 done");
    assert_int_equal(atomic_load(&stage->partitions[0]->committed), 7);
}

static void test_lane__a_passing_failure_repeats_the_same_batch(void **state) {
    struct stage *stage = *state;
    stage->script.failures_left = 2;
    put(stage, 0, 1);
    wait_for(stage, &stage->script.committed, 1);
    assert_string_equal(buf_text(&stage->script.log), "1 retry, 1 retry, 1 done");
    assert_int_equal(stage->script.retries, 2);
}

/* F3, F4, F5: the offset row is the truth. */
static void test_lane__a_commit_in_doubt_that_happened_is_not_done_again(void **state) {
    struct stage *stage = *state;
    stage->script.in_doubt_left = 1;
    put(stage, 0, 1);
    put(stage, 1, 1);
    wait_for(stage, &stage->script.retries, 1);
    put(stage, 2, 1);
    wait_for(stage, &stage->script.committed, 1);
    pthread_mutex_lock(&stage->script.mutex); /* the third message may still be on its way */
    bool has_stood = strstr(buf_text(&stage->script.log), "stood") != NULL;
    pthread_mutex_unlock(&stage->script.mutex);
    assert_true(has_stood);
    assert_int_equal(stage->script.refused, 0);
    assert_int_equal(atomic_load(&stage->partitions[0]->committed), 1);
}

static void test_lane__halves_until_the_one_refused_message_is_a_dead_letter(void **state) {
    struct stage *stage = *state;
    stage->script.poison = 5;
    put_one_batch(stage, 0, 8);
    wait_for(stage, &stage->script.committed, 8);
    wait_for(stage, &stage->script.dead, 1);
    assert_string_equal(buf_text(&stage->script.log),
                        "1 done, 8 rejected, 4 done, 4 rejected, 2 rejected, 1 done, 1 rejected, 1 done, 2 done");
}

static void test_lane__a_batch_that_takes_too_long_twice_is_halved(void **state) {
    struct stage *stage = *state;
    stage->script.slow_above = 2;
    put_one_batch(stage, 0, 8);
    wait_for(stage, &stage->script.committed, 9);
    assert_string_equal(buf_text(&stage->script.log),
                        "1 done, 8 retry, 8 retry, 4 retry, 4 retry, 2 done, 2 done, 4 retry, 4 retry, 2 done, 2 done");
}

static void test_lane__a_refused_dead_letter_stops_it(void **state) {
    struct stage *stage = *state;
    stage->script.poison = 0;
    stage->script.refuses_dead_letters = 1;
    put(stage, 0, 1);
    wait_for(stage, &stage->script.failed, 1);
    assert_string_equal(buf_text(&stage->script.log), "1 rejected, 1 rejected");
}

static void test_lane__a_broken_invariant_stops_it(void **state) {
    struct stage *stage = *state;
    stage->script.fatal = 1;
    put(stage, 0, 1);
    wait_for(stage, &stage->script.failed, 1);
    assert_string_equal(buf_text(&stage->script.log), "1 fatal");
}

/* F13: the batch fails whole, and only that partition's messages are given up. */
static void test_lane__a_refused_claim_drops_only_that_partition(void **state) {
    struct stage *stage = *state;
    stage->script.lost_partition = 1;
    hold(stage, true);
    put(stage, 3, 1);
    wait_until_in_apply(stage);
    put(stage, 0, 2);
    put(stage, 1, 3);
    put(stage, 2, 1);
    hold(stage, false);
    wait_for(stage, &stage->script.committed, 4);
    assert_string_equal(buf_text(&stage->script.log), "1 done, 6 lost, 3 done");
    assert_int_equal(stage->script.refused, 1);
    assert_true(atomic_load(&stage->partitions[1]->is_refused));
    assert_false(atomic_load(&stage->partitions[0]->is_refused));
}

static void test_lane__what_is_no_longer_ours_is_dropped_unseen(void **state) {
    struct stage *stage = *state;
    hold(stage, true);
    put(stage, 3, 1);
    wait_until_in_apply(stage);
    put(stage, 0, 5);
    put(stage, 1, 1);
    partition_invalidate(stage->partitions[0]);
    hold(stage, false);
    wait_for(stage, &stage->script.committed, 2);
    assert_string_equal(buf_text(&stage->script.log), "1 done, 1 done");
}

static void test_lane__says_full_and_says_room_again(void **state) {
    struct stage *stage = *state;
    hold(stage, true);
    put(stage, 3, 1);
    wait_until_in_apply(stage);
    for (int i = 0; i < 19; i++)
        assert_true(put_as(stage, 0, true));
    assert_false(put_as(stage, 0, true));
    assert_true(lane_is_full(stage->lane));
    assert_int_equal(lane_queued(stage->lane), 20);
    hold(stage, false);
    wait_for(stage, &stage->script.committed, 21);
    wait_for(stage, &stage->script.rooms, 1);
    assert_false(lane_is_full(stage->lane));
    assert_string_equal(buf_text(&stage->script.log), "1 done, 10 done, 10 done");
}

static void test_lane__a_few_cautious_messages_are_noted_and_tried_together(void **state) {
    struct stage *stage = *state;
    hold(stage, true);
    put(stage, 3, 1);
    wait_until_in_apply(stage);
    put_as(stage, 0, false);
    put_as(stage, 0, false);
    put_as(stage, 1, false); /* another partition has attempts of its own */
    put_as(stage, 2, true);  /* and needs none where nothing is suspected */
    hold(stage, false);
    wait_for(stage, &stage->script.committed, 5);
    assert_string_equal(buf_text(&stage->script.log), "1 done, attempt, 2 done, attempt, 1 done, 1 done");
}

static void test_lane__where_the_process_died_each_message_is_tried_alone(void **state) {
    struct stage *stage = *state;
    stage->script.tried_before = 0;
    stage->script.tries = 1;
    hold(stage, true);
    put(stage, 3, 1);
    wait_until_in_apply(stage);
    for (int i = 0; i < 3; i++)
        put_as(stage, 0, false);
    hold(stage, false);
    wait_for(stage, &stage->script.committed, 4);
    assert_string_equal(buf_text(&stage->script.log), "1 done, attempt, 1 done, attempt, 1 done, attempt, 1 done");
}

static void test_lane__a_message_tried_too_often_becomes_a_dead_letter(void **state) {
    struct stage *stage = *state;
    stage->script.tried_before = 0;
    stage->script.tries = LANE_ATTEMPTS_MAX + 1;
    put_as(stage, 0, false);
    wait_for(stage, &stage->script.dead, 1);
    assert_string_equal(buf_text(&stage->script.log), "attempt, 1 done");
}

static void test_lane__freeing_it_ends_a_retry_at_once(void **state) {
    struct stage *stage = *state;
    stage->script.failures_left = INT32_MAX;
    put(stage, 0, 1);
    wait_for(stage, &stage->script.retries, 3);
    /* tear_down frees it: a lane that waited on would hang there */
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_lane__what_gathers_meanwhile_is_one_batch),
        TEST(test_lane__a_passing_failure_repeats_the_same_batch),
        TEST(test_lane__a_commit_in_doubt_that_happened_is_not_done_again),
        TEST(test_lane__halves_until_the_one_refused_message_is_a_dead_letter),
        TEST(test_lane__a_batch_that_takes_too_long_twice_is_halved),
        TEST(test_lane__a_refused_dead_letter_stops_it),
        TEST(test_lane__a_broken_invariant_stops_it),
        TEST(test_lane__a_refused_claim_drops_only_that_partition),
        TEST(test_lane__what_is_no_longer_ours_is_dropped_unseen),
        TEST(test_lane__says_full_and_says_room_again),
        TEST(test_lane__a_few_cautious_messages_are_noted_and_tried_together),
        TEST(test_lane__where_the_process_died_each_message_is_tried_alone),
        TEST(test_lane__a_message_tried_too_often_becomes_a_dead_letter),
        TEST(test_lane__freeing_it_ends_a_retry_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
