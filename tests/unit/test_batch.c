/* batch: what its claims say for any part of it, and that it keeps its own copy of every record. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coordinator/batch.h"

static struct partition *taken(const char *topic, int32_t number, int64_t epoch, int64_t handed) {
    struct partition *partition = partition_new(topic, number, NULL);
    partition->taken = atomic_load(&partition->generation);
    partition->epoch = epoch;
    partition->handed = handed;
    return partition;
}

static void put(struct batch *batch, struct partition *partition, int64_t offset) {
    const struct message message = {.topic = partition->topic, .partition = partition->number, .offset = offset,
                                    .timestamp_ms = 1000 + offset, .key = "key", .key_size = 3, .value = "value", .value_size = 5};
    batch_add(batch, partition, &message, NULL);
    partition->handed = offset + 1;
}

static void test_batch__claims_go_from_what_was_handed_to_behind_the_last(void **state) {
    (void)state;
    struct partition *one = taken("a.events", 1, 4, PARTITION_NEVER), *two = taken("b.events", 2, 9, 50);
    struct batch *batch = batch_new();
    struct batch_claim claims[4];
    put(batch, one, 0);
    put(batch, two, 50);
    put(batch, one, 3); /* offsets are not dense */
    assert_int_equal(batch_claims(batch, 0, batch->count, claims), 2);
    assert_ptr_equal(claims[0].slot->partition, one);
    assert_int_equal(claims[0].slot->epoch, 4);
    assert_int_equal(claims[0].expected, PARTITION_NEVER);
    assert_int_equal(claims[0].next, 4);
    assert_int_equal(claims[0].last->offset, 3);
    assert_int_equal(claims[1].expected, 50);
    assert_int_equal(claims[1].next, 51);
    batch_free(batch);
    partition_free(one);
    partition_free(two);
}

static void test_batch__halves_claim_one_after_the_other(void **state) {
    (void)state;
    struct partition *one = taken("a.events", 1, 4, 10);
    struct batch *batch = batch_new();
    struct batch_claim first, second;
    for (int64_t offset = 10; offset < 20; offset++)
        put(batch, one, offset);
    assert_int_equal(batch_claims(batch, 0, 5, &first), 1);
    assert_int_equal(batch_claims(batch, 5, 10, &second), 1);
    assert_int_equal(first.expected, 10);
    assert_int_equal(first.next, 15);
    assert_int_equal(second.expected, 15);
    assert_int_equal(second.next, 20);
    batch_free(batch);
    partition_free(one);
}

static void test_batch__a_partition_taken_anew_has_a_claim_of_its_own(void **state) {
    (void)state;
    struct partition *one = taken("a.events", 1, 4, 10);
    struct batch *batch = batch_new();
    struct batch_claim claims[2];
    put(batch, one, 10);
    partition_invalidate(one);
    one->taken = atomic_load(&one->generation);
    one->epoch = 5;
    one->handed = 10;
    put(batch, one, 10);
    assert_int_equal(batch->slot_count, 2);
    assert_int_equal(batch_drop_outdated(batch, 0, 2), 1);
    assert_int_equal(batch_claims(batch, 0, 2, claims), 1);
    assert_int_equal(claims[0].slot->epoch, 5);
    assert_int_equal(claims[0].expected, 10);
    batch_free(batch);
    partition_free(one);
}

static void test_batch__dropping_one_slot_leaves_the_others(void **state) {
    (void)state;
    struct partition *one = taken("a.events", 1, 4, 0), *two = taken("a.events", 2, 4, 0);
    struct batch *batch = batch_new();
    struct batch_claim claims[2];
    put(batch, one, 0);
    put(batch, two, 0);
    put(batch, two, 1);
    batch_drop_slot(batch, 1, 0, 3);
    assert_int_equal(batch_drop_outdated(batch, 0, 3), 1);
    assert_int_equal(batch_claims(batch, 0, 3, claims), 1);
    assert_ptr_equal(claims[0].slot->partition, one);
    batch_free(batch);
    partition_free(one);
    partition_free(two);
}

/* A cover of thousands, a renewal of hundreds must not be one among a thousand. */
static void test_batch__counts_resources_and_items_as_work(void **state) {
    (void)state;
    struct partition *one = taken("a.events", 1, 4, 0);
    struct batch *batch = batch_new();
    const struct message message = {.topic = one->topic, .partition = 1, .key = "key", .key_size = 3};
    struct command renewal = {0}, cover = {.resource_count = 10000}, many = {.item_count = 1000};
    assert_int_equal(batch_work_of(NULL), 1);
    assert_int_equal(batch_work_of(&renewal), 1);
    assert_int_equal(batch_work_of(&many), 1001);
    size_t work = batch_work_of(&cover);
    assert_true(work >= 1000); /* a whole batch, as batches are by default */
    cover.resource_count = 0;  /* there is no list behind it */
    batch_add(batch, one, &message, &renewal);
    batch_add(batch, one, &message, &cover);
    assert_int_equal(batch->work, 2);
    batch_reset(batch);
    assert_int_equal(batch->work, 0);
    batch_free(batch);
    partition_free(one);
}

static void test_batch__keeps_a_copy_of_key_value_and_headers(void **state) {
    (void)state;
    struct partition *one = taken("a.events", 1, 4, 0);
    struct batch *batch = batch_new();
    char key[] = "k\0y", value[] = "v\0lue", name[] = "name", header_value[] = "hv";
    struct message_header headers[] = {{name, 4, header_value, 2}, {"null", 4, NULL, 0}, {"", 0, "", 0}};
    const struct message message = {.topic = "other pointer", .partition = 1, .offset = 7, .timestamp_ms = 5, .key = key, .key_size = 3,
                                    .value = value, .value_size = 5, .headers = headers, .header_count = 3};
    batch_add(batch, one, &message, NULL);
    memset(key, 'x', sizeof key);
    memset(value, 'x', sizeof value);
    memset(name, 'x', sizeof name);
    memset(header_value, 'x', sizeof header_value);
    memset(headers, 0, sizeof headers);
    const struct message *copy = &batch->entries[0].message;
    assert_string_equal(copy->topic, "a.events");
    assert_memory_equal(copy->key, "k\0y", 3);
    assert_memory_equal(copy->value, "v\0lue", 5);
    assert_string_equal(copy->headers[0].name, "name");
    assert_memory_equal(copy->headers[0].value, "hv", 2);
    assert_null(copy->headers[1].value);
    assert_non_null(copy->headers[2].value);
    assert_int_equal(copy->header_count, 3);
    batch_free(batch);
    partition_free(one);
}

static void test_batch__a_null_value_stays_null(void **state) {
    (void)state;
    struct partition *one = taken("a.events", 1, 4, 0);
    struct batch *batch = batch_new();
    const struct message message = {.topic = "a.events", .partition = 1, .key = "", .key_size = 0};
    batch_add(batch, one, &message, NULL);
    assert_null(batch->entries[0].message.value);
    assert_non_null(batch->entries[0].message.key);
    batch_free(batch);
    partition_free(one);
}

/* A batch is used again and again: what it keeps must not grow with the largest it ever was. */
static void test_batch__reset_empties_it_and_it_can_be_filled_again(void **state) {
    (void)state;
    struct partition *one = taken("a.events", 1, 4, 0);
    struct batch *batch = batch_new();
    char *large = calloc(1, 262144);
    for (int round = 0; round < 3; round++) {
        for (int64_t i = 0; i < 3000; i++)
            put(batch, one, one->handed);
        const struct message message = {.topic = "a.events", .partition = 1, .offset = one->handed, .value = large, .value_size = 262144};
        batch_add(batch, one, &message, NULL);
        one->handed++;
        assert_int_equal(batch->count, 3001);
        assert_in_range(batch->bytes, 262144 + 3000 * 8, 262144 + 3000 * 64);
        batch_reset(batch);
        assert_int_equal(batch->count, 0);
        assert_int_equal(batch->bytes, 0);
        assert_int_equal(batch->slot_count, 0);
    }
    free(large);
    batch_free(batch);
    partition_free(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch__claims_go_from_what_was_handed_to_behind_the_last),
        cmocka_unit_test(test_batch__halves_claim_one_after_the_other),
        cmocka_unit_test(test_batch__a_partition_taken_anew_has_a_claim_of_its_own),
        cmocka_unit_test(test_batch__dropping_one_slot_leaves_the_others),
        cmocka_unit_test(test_batch__counts_resources_and_items_as_work),
        cmocka_unit_test(test_batch__keeps_a_copy_of_key_value_and_headers),
        cmocka_unit_test(test_batch__a_null_value_stays_null),
        cmocka_unit_test(test_batch__reset_empties_it_and_it_can_be_filled_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
