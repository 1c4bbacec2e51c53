/* Tokens: known values from another implementation of HMAC, rotation, and what does not fit. */
#include "common/token.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define KEY "0123456789abcdef0123456789abcdef"
#define OTHER_KEY "\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b"

static struct token_keys *make_keys(const char *current, const char *previous) {
    struct token_keys *keys = NULL;
    struct error error = {0};
    if (!token_keys_new(current, 32, previous, previous == NULL ? 0 : 32, &keys, &error))
        fail_msg("%s", error.message);
    return keys;
}

static struct claim_id claim(const char *text) {
    struct claim_id claim_id;
    assert_true(claim_id_parse(text, strlen(text), &claim_id));
    return claim_id;
}

static void token_derive__equals_what_python_hmac_says(void **state) {
    (void)state;
    static const struct {
        const char *key;
        const char *claim_id;
        const char *token;
    } rows[] = {
        {KEY, "0198c0de-0000-7000-8000-000000000001", "ac5aef25547bdb31f7f4f1f21c57b2b81b9002817d8b8234752b960c3a771439"},
        {OTHER_KEY, "ffffffff-ffff-ffff-ffff-ffffffffffff", "1e98d29a42b114bca1d6b5152d9a7b41d6322becdcb4f1c42b34ffda9f585ab8"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct token_keys *keys = make_keys(rows[i].key, NULL);
        struct claim_id claim_id = claim(rows[i].claim_id);
        char token[LEASE_TOKEN_TEXT_SIZE];
        for (int again = 0; again < 2; again++) {
            token_derive(keys, &claim_id, token);
            assert_string_equal(token, rows[i].token);
        }
        assert_true(token_is_well_formed(token, strlen(token)));
        token_keys_free(keys);
    }
}

static void token_fits__only_the_claims_own_token(void **state) {
    (void)state;
    struct token_keys *keys = make_keys(KEY, NULL);
    struct claim_id mine = claim("0198c0de-0000-7000-8000-000000000001");
    struct claim_id other = claim("0198c0de-0000-7000-8000-000000000002");
    char token[LEASE_TOKEN_TEXT_SIZE];
    token_derive(keys, &mine, token);
    assert_true(token_fits(keys, &mine, token));
    assert_false(token_fits(keys, &other, token));
    for (size_t i = 0; i < sizeof token - 1; i++) {
        char changed[LEASE_TOKEN_TEXT_SIZE];
        memcpy(changed, token, sizeof changed);
        changed[i] = changed[i] == '0' ? '1' : '0';
        assert_false(token_fits(keys, &mine, changed));
    }
    char cut[LEASE_TOKEN_TEXT_SIZE];
    memcpy(cut, token, sizeof cut);
    cut[63] = '\0';
    assert_false(token_fits(keys, &mine, cut));
    assert_false(token_fits(keys, &mine, ""));
    char longer[LEASE_TOKEN_TEXT_SIZE + 1];
    memcpy(longer, token, sizeof token);
    longer[64] = '0';
    longer[65] = '\0';
    assert_false(token_fits(keys, &mine, longer));
    token_keys_free(keys);
}

static void token_rotation__both_keys_are_accepted__the_new_one_derives(void **state) {
    (void)state;
    struct token_keys *before = make_keys(KEY, NULL);
    struct token_keys *during = make_keys(OTHER_KEY, KEY);
    struct token_keys *after = make_keys(OTHER_KEY, NULL);
    struct claim_id claim_id = claim("0198c0de-0000-7000-8000-000000000001");
    char old_token[LEASE_TOKEN_TEXT_SIZE], new_token[LEASE_TOKEN_TEXT_SIZE];
    token_derive(before, &claim_id, old_token);
    token_derive(during, &claim_id, new_token);
    assert_string_not_equal(old_token, new_token);
    assert_true(token_fits(during, &claim_id, old_token));
    assert_true(token_fits(during, &claim_id, new_token));
    assert_false(token_fits(after, &claim_id, old_token));
    assert_false(token_fits(before, &claim_id, new_token));
    token_keys_free(before);
    token_keys_free(during);
    token_keys_free(after);
}

static void token_keys__short_keys__are_refused(void **state) {
    (void)state;
    struct token_keys *keys = NULL;
    struct error error = {0};
    assert_false(token_keys_new(KEY, 31, NULL, 0, &keys, &error));
    assert_string_equal(error.code, "token_key_short");
    assert_int_equal(error.kind, ERROR_FATAL);
    assert_null(strstr(error.message, "0123"));
    assert_false(token_keys_new(NULL, 0, NULL, 0, &keys, &error));
    assert_false(token_keys_new(KEY, 32, KEY, 31, &keys, &error));
    assert_null(keys);
}

static void token_form__is_64_lower_case_digits(void **state) {
    (void)state;
    static const char right[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    assert_true(token_is_well_formed(right, 64));
    assert_false(token_is_well_formed(right, 63));
    assert_false(token_is_well_formed(right, 65));
    char wrong[65];
    memcpy(wrong, right, 65);
    wrong[10] = 'A';
    assert_false(token_is_well_formed(wrong, 64));
    wrong[10] = 'g';
    assert_false(token_is_well_formed(wrong, 64));
    wrong[10] = '\0';
    assert_false(token_is_well_formed(wrong, 64));
}

struct worker {
    const struct token_keys *keys;
    unsigned seed;
    int wrong;
};

static void *derive_often(void *argument) {
    struct worker *worker = argument;
    for (unsigned i = 0; i < 2000; i++) {
        struct claim_id claim_id = {{(uint8_t)worker->seed, (uint8_t)i, (uint8_t)(i >> 8), 1}};
        char token[LEASE_TOKEN_TEXT_SIZE];
        token_derive(worker->keys, &claim_id, token);
        worker->wrong += !token_fits(worker->keys, &claim_id, token);
        claim_id.bytes[15]++;
        worker->wrong += token_fits(worker->keys, &claim_id, token);
    }
    return NULL;
}

static void token_keys__are_shared_by_threads(void **state) {
    (void)state;
    struct token_keys *keys = make_keys(KEY, OTHER_KEY);
    struct worker workers[4] = {{0}};
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (struct worker){.keys = keys, .seed = i};
        assert_int_equal(pthread_create(&threads[i], NULL, derive_often, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    token_keys_free(keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_derive__equals_what_python_hmac_says),
        cmocka_unit_test(token_fits__only_the_claims_own_token),
        cmocka_unit_test(token_rotation__both_keys_are_accepted__the_new_one_derives),
        cmocka_unit_test(token_keys__short_keys__are_refused),
        cmocka_unit_test(token_form__is_64_lower_case_digits),
        cmocka_unit_test(token_keys__are_shared_by_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
