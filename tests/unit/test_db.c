/* db without a server: the SQLSTATE table, and the bytes that parameters become. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/db.h"

static void test_db__sqlstate_says_what_to_do_next(void **state)
{
    (void)state;
    static const struct {
        const char *sqlstate;
        enum error_kind kind;
    } rows[] = {
        { "08006", ERROR_RETRY }, { "40001", ERROR_RETRY }, { "40P01", ERROR_RETRY }, { "53100", ERROR_RETRY },
        { "57014", ERROR_RETRY }, { "57P01", ERROR_RETRY }, { "55P03", ERROR_RETRY }, { "25006", ERROR_RETRY },
        { "58030", ERROR_RETRY }, { "22001", ERROR_REJECT }, { "22P02", ERROR_REJECT }, { "23505", ERROR_REJECT },
        { "54000", ERROR_REJECT }, { "42883", ERROR_FATAL }, { "42501", ERROR_FATAL }, { "28P01", ERROR_FATAL },
        { "3D000", ERROR_FATAL }, { "P0001", ERROR_FATAL }, { "XX000", ERROR_FATAL }, { "LE001", ERROR_RETRY },
        { "LE003", ERROR_RETRY }, { "LE004", ERROR_FATAL }, { "LE005", ERROR_RETRY },
        { "LE006", ERROR_FATAL }, { "LE007", ERROR_FATAL }, { "LE008", ERROR_FATAL }, { "25P02", ERROR_FATAL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (db_error_kind(rows[i].sqlstate) != rows[i].kind)
            fail_msg("%s is classified as %s", rows[i].sqlstate, error_kind_name(db_error_kind(rows[i].sqlstate)));
}

static void test_db__scalars_are_big_endian(void **state)
{
    (void)state;
    struct db_params params;
    db_params_init(&params);
    db_param_int4(&params, -2);
    db_param_int8(&params, INT64_C(0x0102030405060708));
    db_param_bool(&params, true);
    db_param_text(&params, "a");
    db_param_text(&params, NULL);
    db_param_text(&params, "");
    static const unsigned char wanted[] = { 0xff, 0xff, 0xff, 0xfe, 1, 2, 3, 4, 5, 6, 7, 8, 1, 'a' };
    assert_memory_equal(params.bytes, wanted, sizeof wanted);
    assert_int_equal(params.count, 6);
    assert_int_equal(params.length[4], -1);
    assert_int_equal(params.length[5], 0);
    db_params_release(&params);
}

static void test_db__an_array_carries_nulls_and_bytes_with_nul(void **state)
{
    (void)state;
    struct db_params params;
    db_params_init(&params);
    db_array_begin(&params, DB_TEXT);
    db_item_text_sized(&params, "a\0b", 3);
    db_item_null(&params);
    db_array_end(&params);
    static const unsigned char wanted[] = { 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 25, 0, 0, 0, 2, 0, 0, 0, 1,
                                            0, 0, 0, 3, 'a', 0, 'b', 0xff, 0xff, 0xff, 0xff };
    assert_int_equal(params.length[0], sizeof wanted);
    assert_memory_equal(params.bytes, wanted, sizeof wanted);
    assert_int_equal(params.type[0], 1009);
    db_params_release(&params);
}

static void test_db__an_empty_array_has_no_dimension(void **state)
{
    (void)state;
    struct db_params params;
    db_params_init(&params);
    db_array_begin(&params, DB_INT8);
    db_array_end(&params);
    db_param_bool(&params, false);
    static const unsigned char wanted[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0 };
    assert_int_equal(params.length[0], 12);
    assert_memory_equal(params.bytes, wanted, sizeof wanted);
    db_params_release(&params);
}

static void test_db__a_conninfo_that_cannot_be_read_is_fatal(void **state)
{
    (void)state;
    static const char *const bad[] = { "host=localhost port", "host=localhost nonsense=1", "host=localhost sslmode=maybe",
        "host=localhost password=one secret", "password=one secret=two", "host=localhost port=secret", "postgresql://u:secret%zz@h/d" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error error = { 0 };
        struct db *db = NULL;
        assert_false(db_connect(&(struct db_options){ .conninfo = bad[i], .connect_ms = 1000 }, &db, &error));
        assert_int_equal(error.kind, ERROR_FATAL);
        assert_string_equal(error.code, "db_conninfo");
        assert_null(strstr(error.message, "secret"));
    }
}

static void test_db__nobody_listening_is_retried(void **state)
{
    (void)state;
    struct error error = { 0 };
    struct db *db = NULL;
    assert_false(db_connect(&(struct db_options){ .conninfo = "host=/nonexistent,/nowhere", .connect_ms = 2000 }, &db, &error));
    assert_int_equal(error.kind, ERROR_RETRY);
    assert_null(db);
    assert_false(db_is_usable(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_db__sqlstate_says_what_to_do_next),
        cmocka_unit_test(test_db__scalars_are_big_endian),
        cmocka_unit_test(test_db__an_array_carries_nulls_and_bytes_with_nul),
        cmocka_unit_test(test_db__an_empty_array_has_no_dimension),
        cmocka_unit_test(test_db__a_conninfo_that_cannot_be_read_is_fatal),
        cmocka_unit_test(test_db__nobody_listening_is_retried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
