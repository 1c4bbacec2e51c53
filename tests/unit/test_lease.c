/* The words of the protocol: every value has a name that can be read back, in the order of precedence; and claim ids. */
#include "common/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static void lease_outcomes__stand_in_their_order_of_precedence(void **state) {
    (void)state;
    static const char *const names[] = {
        "malformed", "duplicate",  "unknown", "final",  "stale",   "lapsed",  "held",    "busy",     "incomplete", "out_of_step",
        "waiting",   "parked",     "empty",   "granted", "covered", "renewed", "advanced", "finished", "failed",     "released",
        "requested", "answered",   "applied", "bounced", "cancelled",
    };
    assert_int_equal(LENGTH(names), LEASE_OUTCOME_COUNT);
    for (unsigned i = 0; i < LEASE_OUTCOME_COUNT; i++) {
        assert_string_equal(lease_outcome_name((enum lease_outcome)i), names[i]);
        enum lease_outcome parsed;
        assert_true(lease_outcome_parse(names[i], strlen(names[i]), &parsed));
        assert_int_equal(parsed, i);
        assert_int_equal(lease_outcome_is_refusal(parsed), i < 10 || parsed == LEASE_OUTCOME_BOUNCED);
    }
}

static void lease_names__are_read_back(void **state) {
    (void)state;
    static const char *const modes[] = {"run", "pool", "edit"};
    for (unsigned i = 0; i < LEASE_MODE_COUNT; i++) {
        enum lease_mode parsed;
        assert_true(lease_mode_parse(modes[i], strlen(modes[i]), &parsed));
        assert_int_equal(parsed, i);
    }
    for (unsigned i = 0; i < LEASE_COMMAND_COUNT; i++) {
        enum lease_command parsed;
        const char *name = lease_command_name((enum lease_command)i);
        assert_true(lease_command_parse(name, strlen(name), &parsed));
        assert_int_equal(parsed, i);
    }
}

static void lease_parse__other_texts__are_refused_and_leave_the_result(void **state) {
    (void)state;
    static const char *const texts[] = {"", "HELD", "held ", "hel", "helds", "unknown_thing"};
    for (size_t i = 0; i < LENGTH(texts); i++) {
        enum lease_outcome outcome = LEASE_OUTCOME_BUSY;
        assert_false(lease_outcome_parse(texts[i], strlen(texts[i]), &outcome));
        assert_int_equal(outcome, LEASE_OUTCOME_BUSY);
    }
    enum lease_command command;
    assert_false(lease_command_parse("starter", 7, &command));
    assert_true(lease_command_parse("starter", 5, &command));
}

static void lease_commands__have_their_modes(void **state) {
    (void)state;
    static const struct {
        enum lease_command command;
        bool is_run, is_pool, is_edit;
    } rows[] = {
        {LEASE_COMMAND_START, true, false, false},  {LEASE_COMMAND_COVER, true, false, false},
        {LEASE_COMMAND_BEGIN, true, false, false},   {LEASE_COMMAND_REQUEST, false, true, false},
        {LEASE_COMMAND_CLAIM, false, true, false},  {LEASE_COMMAND_RENEW, true, true, false},
        {LEASE_COMMAND_ADVANCE, true, false, false}, {LEASE_COMMAND_FINISH, true, true, false},
        {LEASE_COMMAND_FAIL, true, true, false},     {LEASE_COMMAND_RELEASE, true, true, false},
        {LEASE_COMMAND_RESOLVE, true, true, false},
        {LEASE_COMMAND_EDIT, false, false, true}, {LEASE_COMMAND_CANCEL, false, false, true},
    };
    assert_int_equal(LENGTH(rows), LEASE_COMMAND_COUNT);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        assert_int_equal(lease_command_is_of_mode(rows[i].command, LEASE_MODE_RUN), rows[i].is_run);
        assert_int_equal(lease_command_is_of_mode(rows[i].command, LEASE_MODE_POOL), rows[i].is_pool);
        assert_int_equal(lease_command_is_of_mode(rows[i].command, LEASE_MODE_EDIT), rows[i].is_edit);
    }
}

static void lease_kind__names(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool is_well_formed;
    } rows[] = {
        {"settlement", true}, {"share_ratio", true}, {"share-ratio", true}, {"-a", false}, {"a1", true}, {"", false}, {"1a", false}, {"_a", false},
        {"Settlement", false}, {"a.b", false}, {"a b", false}, {"caf\xC3\xA9", false},
        {"abcdefghijklmnopqrstuvwxyzabcdef", true}, {"abcdefghijklmnopqrstuvwxyzabcdefg", false},
    };
    for (size_t i = 0; i < LENGTH(rows); i++)
        if (lease_kind_is_well_formed(rows[i].name, strlen(rows[i].name)) != rows[i].is_well_formed)
            fail_msg("%s", rows[i].name);
}

static void claim_id__canonical_text__is_read_and_written(void **state) {
    (void)state;
    static const char text[] = "0198c0de-1234-7abc-8def-0123456789ab";
    struct claim_id claim_id;
    char written[CLAIM_ID_TEXT_SIZE];
    assert_true(claim_id_parse(text, strlen(text), &claim_id));
    assert_memory_equal(claim_id.bytes, "\x01\x98\xc0\xde\x12\x34\x7a\xbc\x8d\xef\x01\x23\x45\x67\x89\xab", 16);
    assert_string_equal(claim_id_format(&claim_id, written), text);
}

static void claim_id__other_texts__are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "00000000-0000-0000-0000-000000000000", "0198C0DE-1234-7abc-8def-0123456789ab",
        "{0198c0de-1234-7abc-8def-0123456789a}", "0198c0de-1234-7abc-8def-0123456789a", "0198c0de-1234-7abc-8def-0123456789abc",
        "0198c0de11234-7abc-8def-0123456789ab", "0198c0de-1234-7abc-8def-0123456789ag", "-198c0de-1234-7abc-8def-0123456789ab", "",
    };
    for (size_t i = 0; i < LENGTH(texts); i++) {
        struct claim_id claim_id = {{7}};
        if (claim_id_parse(texts[i], strlen(texts[i]), &claim_id))
            fail_msg("%s", texts[i]);
        assert_int_equal(claim_id.bytes[0], 7);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lease_outcomes__stand_in_their_order_of_precedence),
        cmocka_unit_test(lease_names__are_read_back),
        cmocka_unit_test(lease_parse__other_texts__are_refused_and_leave_the_result),
        cmocka_unit_test(lease_commands__have_their_modes),
        cmocka_unit_test(lease_kind__names),
        cmocka_unit_test(claim_id__canonical_text__is_read_and_written),
        cmocka_unit_test(claim_id__other_texts__are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
