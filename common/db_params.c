/* Parameters of a statement in PostgreSQL's binary formats; see db.h. */
#include "common/db_private.h"

#include "common/buf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    unsigned int scalar, array;
} oids[] = {
    [DB_BOOL] = { OID_BOOL, OID_BOOL_ARRAY },
    [DB_INT4] = { OID_INT4, OID_INT4_ARRAY },
    [DB_INT8] = { OID_INT8, OID_INT8_ARRAY },
    [DB_TEXT] = { OID_TEXT, OID_TEXT_ARRAY },
    [DB_BYTEA] = { OID_BYTEA, OID_BYTEA_ARRAY },
    [DB_UUID] = { OID_UUID, OID_UUID_ARRAY },
    [DB_TIMESTAMPTZ] = { OID_TIMESTAMPTZ, OID_TIMESTAMPTZ_ARRAY },
    [DB_JSONB] = { OID_JSONB, OID_JSONB_ARRAY },
};

void db_params_init(struct db_params *params) {
    memset(params, 0, sizeof *params);
}

void db_params_release(struct db_params *params) {
    if (!params)
        return;
    free(params->bytes);
    memset(params, 0, sizeof *params);
}

void db_params_reset(struct db_params *params) {
    params->size = 0;
    params->count = 0;
    params->is_array_open = false;
}

static unsigned char *grow(struct db_params *params, size_t size) {
    if (params->size + size > params->capacity) {
        size_t capacity = params->capacity ? params->capacity : 1024;
        while (capacity < params->size + size)
            capacity *= 2;
        params->bytes = memory_or_exit(realloc(params->bytes, capacity));
        params->capacity = capacity;
    }
    unsigned char *at = params->bytes + params->size;
    params->size += size;
    return at;
}

/* Room for a scalar of `size` bytes; length -1 for NULL. */
static unsigned char *add_scalar(struct db_params *params, enum db_type type, size_t size) {
    assert(params->count < DB_PARAMS_MAX && !params->is_array_open);
    assert(size <= INT32_MAX);
    params->offset[params->count] = params->size;
    params->length[params->count] = (int)size;
    params->type[params->count++] = oids[type].scalar;
    return grow(params, size ? size : 1);
}

void db_param_null(struct db_params *params, enum db_type type) {
    add_scalar(params, type, 0);
    params->length[params->count - 1] = -1;
}

void db_param_bool(struct db_params *params, bool value) {
    *add_scalar(params, DB_BOOL, 1) = value;
}

void db_param_int4(struct db_params *params, int32_t value) {
    put_u32(add_scalar(params, DB_INT4, 4), (uint32_t)value);
}

void db_param_int8(struct db_params *params, int64_t value) {
    put_u64(add_scalar(params, DB_INT8, 8), (uint64_t)value);
}

void db_param_text(struct db_params *params, const char *text) {
    if (!text) {
        db_param_null(params, DB_TEXT);
        return;
    }
    size_t size = strlen(text);
    unsigned char *at = add_scalar(params, DB_TEXT, size);
    if (size)
        memcpy(at, text, size); /* NOLINT(bugprone-not-null-terminated-result): parameters go with their sizes */
}

/*
 * Array on the wire: dimensions, has-null flag, item type, then per dimension its size and lower bound, then per item
 * its length (-1: NULL) and bytes. An empty array has no dimension.
 */
void db_array_begin(struct db_params *params, enum db_type item_type) {
    assert(params->count < DB_PARAMS_MAX && !params->is_array_open);
    params->is_array_open = true;
    params->has_null_item = false;
    params->items = 0;
    params->item_type = item_type;
    params->header = params->size;
    params->offset[params->count] = params->size;
    params->type[params->count] = oids[item_type].array;
    grow(params, 20);
}

void db_array_end(struct db_params *params) {
    assert(params->is_array_open && params->items <= INT32_MAX);
    unsigned char *header = params->bytes + params->header;
    put_u32(header, params->items ? 1 : 0);
    put_u32(header + 4, params->has_null_item);
    put_u32(header + 8, oids[params->item_type].scalar);
    if (params->items) {
        put_u32(header + 12, (uint32_t)params->items);
        put_u32(header + 16, 1);
    } else {
        params->size = params->header + 12;
    }
    size_t length = params->size - params->header;
    assert(length <= INT32_MAX);
    params->length[params->count++] = (int)length;
    params->is_array_open = false;
}

static unsigned char *add_item(struct db_params *params, enum db_type type, size_t size) {
    assert(params->is_array_open && params->item_type == type && size <= INT32_MAX);
    params->items++;
    unsigned char *at = grow(params, 4 + size);
    put_u32(at, (uint32_t)size);
    return at + 4;
}

void db_item_null(struct db_params *params) {
    assert(params->is_array_open);
    params->items++;
    params->has_null_item = true;
    put_u32(grow(params, 4), UINT32_MAX);
}

void db_item_bool(struct db_params *params, bool value) {
    *add_item(params, DB_BOOL, 1) = value;
}

void db_item_int4(struct db_params *params, int32_t value) {
    put_u32(add_item(params, DB_INT4, 4), (uint32_t)value);
}

void db_item_int8(struct db_params *params, int64_t value) {
    put_u64(add_item(params, DB_INT8, 8), (uint64_t)value);
}

static void item_bytes(struct db_params *params, enum db_type type, const void *bytes, size_t size) {
    if (!bytes) {
        db_item_null(params);
        return;
    }
    unsigned char *at = add_item(params, type, size);
    if (size)
        memcpy(at, bytes, size);
}

void db_item_text(struct db_params *params, const char *text) {
    item_bytes(params, DB_TEXT, text, text ? strlen(text) : 0);
}

void db_item_text_sized(struct db_params *params, const char *text, size_t size) {
    item_bytes(params, DB_TEXT, text, size);
}

void db_item_bytea(struct db_params *params, const void *bytes, size_t size) {
    item_bytes(params, DB_BYTEA, bytes, size);
}

void db_item_uuid(struct db_params *params, const uint8_t bytes[16]) {
    item_bytes(params, DB_UUID, bytes, 16);
}
