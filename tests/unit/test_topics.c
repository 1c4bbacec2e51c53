/* The table of topics holds together: names found again, bounds in line with what the messages may be. */
#include "common/event.h"
#include "common/record.h"
#include "common/topics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static long number_of(const struct topic *topic, const char *config) {
    const char *value = topic_config_get(topic, config);
    assert_non_null(value);
    char *end;
    long number = strtol(value, &end, 10);
    assert_true(end != value && *end == '\0' && number > 0);
    return number;
}

static void topics__each_row__is_complete(void **state) {
    (void)state;
    for (unsigned i = 0; i < TOPIC_COUNT; i++) {
        const struct topic *topic = topic_get((enum topic_id)i);
        assert_non_null(topic->name);
        assert_non_null(topic->key);
        assert_non_null(topic->contents);
        assert_in_range(topic->partitions, 1, 1000);
        assert_string_equal(topic->configs[0].name, "cleanup.policy");
        bool is_compacted = strcmp(topic->configs[0].value, "compact") == 0;
        assert_int_equal(is_compacted, i == TOPIC_STATE);
        if (is_compacted)
            assert_true(number_of(topic, "min.compaction.lag.ms") >= 60000); /* exceeds the relay's repair */
        else
            number_of(topic, "retention.ms");
        assert_null(topic_config_get(topic, "no.such.config"));
    }
}

static void topics__sizes__fit_what_may_be_sent(void **state) {
    (void)state;
    struct event_limits limits = event_limits_default();
    long input = number_of(topic_get(TOPIC_SETTLEMENT_EVENTS), "max.message.bytes");
    for (unsigned i = 0; i < TOPIC_COUNT; i++) {
        const struct topic *topic = topic_get((enum topic_id)i);
        if (topic->is_input)
            assert_int_equal(number_of(topic, "max.message.bytes"), input);
    }
    assert_true((size_t)input >= limits.value_bytes + limits.key_bytes + limits.header_bytes);
    assert_true(input >= 1000000); /* the whole batch of an ordinary producer */
    long letter = number_of(topic_get(TOPIC_DEAD_LETTERS), "max.message.bytes");
    assert_int_equal(letter - input, 65536);
    assert_true(letter - input > RECORD_DEAD_LETTER_EXTRA);
    assert_true(number_of(topic_get(TOPIC_GRANTS), "max.message.bytes") > 2 * LEASE_PAYLOAD_MAX);
}

static void topics__full_names__are_found_again(void **state) {
    (void)state;
    static const char *const prefixes[] = {"", "test-7.", "lease."};
    for (size_t p = 0; p < 3; p++)
        for (unsigned i = 0; i < TOPIC_COUNT; i++) {
            struct buf name = BUF_INIT;
            enum topic_id found;
            topic_full_name(&name, prefixes[p], (enum topic_id)i);
            assert_true(topic_find(prefixes[p], buf_text(&name), &found));
            assert_int_equal(found, i);
            buf_release(&name);
        }
    enum topic_id untouched = TOPIC_GRANTS;
    assert_false(topic_find("", "lease.resultss", &untouched));
    assert_false(topic_find("x.", "lease.results", &untouched));
    assert_false(topic_find("", "", &untouched));
    assert_int_equal(untouched, TOPIC_GRANTS);
}

static void topics__with_tokens__are_marked_secret(void **state) {
    (void)state;
    for (unsigned i = 0; i < TOPIC_COUNT; i++) {
        bool is_open = i == TOPIC_RESULTS || i == TOPIC_STATE;
        assert_int_equal(topic_get((enum topic_id)i)->is_secret, !is_open);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topics__each_row__is_complete),
        cmocka_unit_test(topics__sizes__fit_what_may_be_sent),
        cmocka_unit_test(topics__full_names__are_found_again),
        cmocka_unit_test(topics__with_tokens__are_marked_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
