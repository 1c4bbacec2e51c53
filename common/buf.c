/* Growable bytes; see buf.h. Runs in any thread, one thread per buffer. */
#include "common/buf.h"

#include <assert.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Small enough for a log line, large enough that a record needs few steps. */
enum { FIRST_CAPACITY = 256 };

void *memory_or_exit(void *allocated) {
    if (allocated != NULL)
        return allocated;
    static const char line[] = "level=error event=\"out of memory\"\n";
    ssize_t ignored = write(STDERR_FILENO, line, sizeof line - 1);
    (void)ignored;
    _exit(70);
}

void *memory_alloc_array(size_t count, size_t size) {
    return memory_or_exit(calloc(count > 0 ? count : 1, size > 0 ? size : 1));
}

void *memory_alloc(size_t size) {
    return memory_alloc_array(1, size);
}

void *memory_resize(void *old, size_t count, size_t size) {
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        memory_or_exit(NULL);
    return memory_or_exit(realloc(old, total > 0 ? total : 1));
}

char *memory_copy_bytes(const void *bytes, size_t size) {
    size_t with_end;
    if (__builtin_add_overflow(size, (size_t)1, &with_end))
        memory_or_exit(NULL);
    char *copy = memory_or_exit(malloc(with_end));
    if (size > 0)
        memcpy(copy, bytes, size);
    copy[size] = '\0';
    return copy;
}

char *memory_copy_text(const char *text) {
    return text == NULL ? NULL : memory_copy_bytes(text, strlen(text));
}

void buf_release(struct buf *buf) {
    if (buf == NULL)
        return;
    free(buf->data);
    *buf = BUF_INIT;
}

void buf_reset(struct buf *buf) {
    buf->size = 0;
    if (buf->data != NULL)
        buf->data[0] = '\0';
}

void buf_reserve(struct buf *buf, size_t more) {
    size_t needed;
    if (__builtin_add_overflow(buf->size, more, &needed) || __builtin_add_overflow(needed, (size_t)1, &needed))
        memory_or_exit(NULL);
    if (needed <= buf->capacity)
        return;
    size_t capacity = buf->capacity > 0 ? buf->capacity : FIRST_CAPACITY;
    while (capacity < needed)
        if (__builtin_mul_overflow(capacity, (size_t)2, &capacity))
            memory_or_exit(NULL);
    buf->data = memory_resize(buf->data, capacity, 1);
    buf->data[buf->size] = '\0';
    buf->capacity = capacity;
}

void buf_append(struct buf *buf, const void *bytes, size_t size) {
    buf_reserve(buf, size);
    if (size > 0)
        memcpy(buf->data + buf->size, bytes, size);
    buf->size += size;
    buf->data[buf->size] = '\0';
}

void buf_append_byte(struct buf *buf, char byte) {
    buf_append(buf, &byte, 1);
}

void buf_append_text(struct buf *buf, const char *text) {
    buf_append(buf, text, strlen(text));
}

void buf_append_number(struct buf *buf, int64_t number) {
    char digits[24]; /* 20 digits, sign, NUL */
    char *end = digits + sizeof digits;
    char *start = end;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do {
        *--start = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0)
        *--start = '-';
    buf_append(buf, start, (size_t)(end - start));
}

void buf_appendf(struct buf *buf, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    buf_reserve(buf, (size_t)length);
    vsnprintf(buf->data + buf->size, (size_t)length + 1, format, again);
    va_end(again);
    buf->size += (size_t)length;
}

void buf_append_u32(struct buf *buf, uint32_t number) {
    unsigned char bytes[4] = {(unsigned char)(number >> 24), (unsigned char)(number >> 16),
                              (unsigned char)(number >> 8), (unsigned char)number};
    buf_append(buf, bytes, sizeof bytes);
}

/* Unicode 15, table 3-7. */
size_t utf8_sequence(const unsigned char *bytes, size_t size) {
    unsigned char lead = bytes[0];
    if (lead < 0x80)
        return 1;
    size_t length = lead >= 0xC2 && lead <= 0xDF ? 2 : lead >= 0xE0 && lead <= 0xEF ? 3
                  : lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
    if (length == 0 || length > size)
        return 0;
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (bytes[1] < low || bytes[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

static void append_escaped(struct buf *buf, unsigned int code) {
    switch (code) {
    case '"': buf_append(buf, "\\\"", 2); return;
    case '\\': buf_append(buf, "\\\\", 2); return;
    case '\n': buf_append(buf, "\\n", 2); return;
    case '\r': buf_append(buf, "\\r", 2); return;
    case '\t': buf_append(buf, "\\t", 2); return;
    default: buf_appendf(buf, "\\u%04x", code);
    }
}

static bool is_plain(unsigned char byte) {
    return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
}

void buf_json_string(struct buf *buf, const char *text, size_t size) {
    const unsigned char *bytes = (const unsigned char *)text;
    buf_reserve(buf, size + 2);
    buf_append_byte(buf, '"');
    size_t at = 0;
    while (at < size) {
        size_t plain = at;
        while (plain < size && is_plain(bytes[plain]))
            plain++;
        if (plain > at) {
            buf_append(buf, bytes + at, plain - at);
            at = plain;
            continue;
        }
        size_t length = utf8_sequence(bytes + at, size - at);
        if (length == 0) {
            buf_append(buf, "\xEF\xBF\xBD", 3);
            at++;
            continue;
        }
        if (length == 1)
            append_escaped(buf, bytes[at]);
        else if (length == 2 && bytes[at] == 0xC2 && bytes[at + 1] < 0xA0)
            append_escaped(buf, bytes[at + 1]); /* C1 controls move a terminal's cursor too */
        else
            buf_append(buf, bytes + at, length);
        at += length;
    }
    buf_append_byte(buf, '"');
}

const char *buf_text(const struct buf *buf) {
    return buf->data != NULL ? buf->data : "";
}

char *buf_take(struct buf *buf, size_t *ret_size) {
    buf_reserve(buf, 0);
    char *data = buf->data;
    if (ret_size != NULL)
        *ret_size = buf->size;
    *buf = BUF_INIT;
    return data;
}
