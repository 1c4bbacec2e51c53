/* contracts: names as somebody types them become a list in order, each once; what is no contract is refused. */
#include "worker/royalty/contracts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_joined(const struct contracts *contracts, const char *type, const char *expected) {
    char *joined = contracts_join(contracts, type);
    assert_string_equal(joined, expected);
    free(joined);
}

static void test_contracts__are_sorted_and_each_there_once(void **state) {
    (void)state;
    struct contracts contracts;
    struct error error = {0};
    assert_true(contracts_parse(&contracts, "track-contract/b,album-contract/17,track-contract/a,track-contract/b", &error));
    assert_int_equal(contracts.count, 3);
    assert_joined(&contracts, NULL, "album-contract/17,track-contract/a,track-contract/b");
    assert_joined(&contracts, "track-contract", "a,b");
    assert_joined(&contracts, "video-contract", "");
    assert_true(contracts_have(&contracts, "album-contract"));
    assert_false(contracts_have(&contracts, "video-contract"));
    contracts_release(&contracts);
}

static void test_contracts__are_all_where_none_is_named(void **state) {
    (void)state;
    struct contracts contracts;
    struct error error = {0};
    assert_true(contracts_parse(&contracts, NULL, &error));
    assert_null(contracts_join(&contracts, NULL));
    assert_true(contracts_have(&contracts, "video-contract"));
    contracts_release(&contracts);
}

static void test_contracts__that_are_none_are_refused(void **state) {
    (void)state;
    static const char *const lists[] = {"",       "a",           "track-contract", "track-contract/", "song/1", "track-contract/a,",
                                        ",",      "track/a",     "track-contract/a b", "track-contract/{a}", "track-contract/a\"", "track-contractor/a"};
    char longest[200] = "track-contract/";
    struct contracts contracts;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct error error = {0};
        assert_false(contracts_parse(&contracts, lists[i], &error));
        assert_string_equal(error.code, "configuration");
        assert_int_equal(contracts.count, 0);
    }
    struct error error = {0};
    memset(longest + strlen(longest), 'a', 100);
    assert_true(contracts_parse(&contracts, longest, &error));
    contracts_release(&contracts);
    memset(longest + strlen("track-contract/"), 'a', 101);
    assert_false(contracts_parse(&contracts, longest, &error));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contracts__are_sorted_and_each_there_once),
        cmocka_unit_test(test_contracts__are_all_where_none_is_named),
        cmocka_unit_test(test_contracts__that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
