/* Reading a statement's rows; see db.h. */
#include "common/db_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void db_result_free(struct db_result *result) {
    if (!result)
        return;
    PQclear(result->result);
    free(result);
}

size_t db_rows(const struct db_result *result) {
    return (size_t)PQntuples(result->result);
}

size_t db_result_bytes(const struct db_result *result) {
    return PQresultMemorySize(result->result);
}

size_t db_columns(const struct db_result *result) {
    return (size_t)PQnfields(result->result);
}

bool db_is_null(const struct db_result *result, size_t row, size_t column) {
    return PQgetisnull(result->result, (int)row, (int)column);
}

static const unsigned char *value(const struct db_result *result, size_t row, size_t column) {
    assert(row < db_rows(result) && column < db_columns(result));
    return (const unsigned char *)PQgetvalue(result->result, (int)row, (int)column);
}

static size_t value_size(const struct db_result *result, size_t row, size_t column) {
    return (size_t)PQgetlength(result->result, (int)row, (int)column);
}

static unsigned int type_of(const struct db_result *result, size_t column) {
    return PQftype(result->result, (int)column);
}

bool db_bool(const struct db_result *result, size_t row, size_t column) {
    assert(!result->is_text && type_of(result, column) == OID_BOOL);
    return !db_is_null(result, row, column) && value(result, row, column)[0] != 0;
}

int32_t db_int4(const struct db_result *result, size_t row, size_t column) {
    assert(!result->is_text && type_of(result, column) == OID_INT4);
    return db_is_null(result, row, column) ? 0 : (int32_t)get_u32(value(result, row, column));
}

int64_t db_int8(const struct db_result *result, size_t row, size_t column) {
    assert(!result->is_text);
    if (db_is_null(result, row, column))
        return 0;
    const unsigned char *at = value(result, row, column);
    switch (type_of(result, column)) {
    case OID_INT8:
        return (int64_t)get_u64(at);
    case OID_INT4:
        return (int32_t)get_u32(at);
    default:
        assert(type_of(result, column) == OID_INT2);
        return (int16_t)(at[0] << 8 | at[1]);
    }
}

const char *db_text(const struct db_result *result, size_t row, size_t column, size_t *ret_size) {
    const char *text = (const char *)value(result, row, column);
    size_t size = value_size(result, row, column);
    if (!result->is_text && type_of(result, column) == OID_JSONB && size > 0) {
        text++; /* version of jsonb's wire format */
        size--;
    }
    if (ret_size)
        *ret_size = size;
    return text;
}

const uint8_t *db_bytea(const struct db_result *result, size_t row, size_t column, size_t *ret_size) {
    assert(!result->is_text && type_of(result, column) == OID_BYTEA);
    *ret_size = value_size(result, row, column);
    return value(result, row, column);
}

const uint8_t *db_uuid(const struct db_result *result, size_t row, size_t column) {
    static const uint8_t nil[16];
    assert(!result->is_text && type_of(result, column) == OID_UUID);
    return db_is_null(result, row, column) ? nil : value(result, row, column);
}

int64_t db_timestamptz(const struct db_result *result, size_t row, size_t column) {
    assert(!result->is_text && type_of(result, column) == OID_TIMESTAMPTZ);
    if (db_is_null(result, row, column))
        return 0;
    int64_t us = (int64_t)get_u64(value(result, row, column));
    return us == INT64_MAX || us == INT64_MIN ? us : us + EPOCH_2000_US;
}

size_t db_array_items(const struct db_result *result, size_t row, size_t column) {
    assert(!result->is_text);
    if (db_is_null(result, row, column))
        return 0;
    const unsigned char *at = value(result, row, column);
    assert(get_u32(at) <= 1); /* dimensions */
    return get_u32(at) == 0 ? 0 : get_u32(at + 12);
}

/* The item's bytes; *ret_size SIZE_MAX for NULL. */
static const unsigned char *array_item(const struct db_result *result, size_t row, size_t column, size_t item,
                                       size_t *ret_size) {
    assert(item < db_array_items(result, row, column));
    const unsigned char *at = value(result, row, column) + 20;
    for (;; item--) {
        uint32_t size = get_u32(at);
        bool is_null = size == UINT32_MAX;
        if (item == 0) {
            *ret_size = is_null ? SIZE_MAX : size;
            return at + 4;
        }
        at += 4 + (is_null ? 0 : size);
    }
}

int64_t db_array_int8(const struct db_result *result, size_t row, size_t column, size_t item) {
    size_t size;
    const unsigned char *at = array_item(result, row, column, item, &size);
    assert(size == 8 || size == 4 || size == SIZE_MAX);
    return size == SIZE_MAX ? 0 : size == 8 ? (int64_t)get_u64(at) : (int32_t)get_u32(at);
}

const char *db_array_text(const struct db_result *result, size_t row, size_t column, size_t item, size_t *ret_size) {
    const unsigned char *at = array_item(result, row, column, item, ret_size);
    if (*ret_size == SIZE_MAX)
        *ret_size = 0;
    return (const char *)at;
}
