/* Packed headers; see headers.h. */
#include "common/headers.h"

static const uint32_t NULL_SIZE = UINT32_MAX; /* -1 as an i32 */

void headers_pack(const struct message_header *headers, size_t count, struct buf *buf) {
    for (size_t i = 0; i < count; i++) {
        buf_append_u32(buf, (uint32_t)headers[i].name_size);
        buf_append(buf, headers[i].name, headers[i].name_size);
        buf_append_u32(buf, headers[i].value == NULL ? NULL_SIZE : (uint32_t)headers[i].value_size);
        if (headers[i].value != NULL)
            buf_append(buf, headers[i].value, headers[i].value_size);
    }
}

/* Of a length or -1, zigzag. */
static size_t varint_size(size_t value) {
    size_t size = 1;
    for (value <<= 1; value >= 0x80; value >>= 7)
        size++;
    return size;
}

size_t headers_wire_size(const struct message_header *headers, size_t count) {
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size_t value_size = headers[i].value == NULL ? 0 : headers[i].value_size; /* no value: -1, a byte too */
        size += varint_size(headers[i].name_size) + headers[i].name_size + varint_size(value_size) + value_size;
    }
    return size;
}

static bool take_u32(const uint8_t *packed, size_t size, size_t *position, uint32_t *ret) {
    if (size - *position < 4)
        return false;
    const uint8_t *bytes = packed + *position;
    *ret = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    *position += 4;
    return true;
}

bool headers_next(const uint8_t *packed, size_t size, size_t *position, struct message_header *ret_header) {
    size_t at = *position;
    uint32_t name_size;
    uint32_t value_size;
    if (!take_u32(packed, size, &at, &name_size) || name_size > size - at)
        return false;
    struct message_header header = {.name = (const char *)packed + at, .name_size = name_size};
    at += name_size;
    if (!take_u32(packed, size, &at, &value_size))
        return false;
    if (value_size != NULL_SIZE) {
        if (value_size > size - at)
            return false;
        header.value = packed + at;
        header.value_size = value_size;
        at += value_size;
    }
    *position = at;
    *ret_header = header;
    return true;
}
