/* What the fuzz targets share; see fuzz.h. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void fuzz_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

bool fuzz_same_text(const char *left, const char *right) {
    return left == NULL || right == NULL ? left == right : strcmp(left, right) == 0;
}

bool fuzz_next_line(const uint8_t *data, size_t size, size_t *position, const char **ret_line, size_t *ret_size) {
    if (*position >= size)
        return false;
    const uint8_t *line = data + *position;
    const uint8_t *end = memchr(line, '\n', size - *position);
    *ret_line = (const char *)line;
    *ret_size = end != NULL ? (size_t)(end - line) : size - *position;
    *position += *ret_size + (end != NULL ? 1 : 0);
    return true;
}

static int hex_digit(char byte) {
    return byte >= '0' && byte <= '9' ? byte - '0' : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

void fuzz_unescape(struct buf *buf, const char *line, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (line[i] != '\\' || i + 1 == size) {
            buf_append_byte(buf, line[i]);
            continue;
        }
        char next = line[++i];
        if (next == 'x' && i + 2 < size && hex_digit(line[i + 1]) >= 0 && hex_digit(line[i + 2]) >= 0) {
            buf_append_byte(buf, (char)(hex_digit(line[i + 1]) << 4 | hex_digit(line[i + 2])));
            i += 2;
        } else {
            buf_append_byte(buf, next == 'n' ? '\n' : next == '0' ? '\0' : next);
        }
    }
}

/* An allocation of exactly this size; of one byte for an empty one, which is not null. */
static void *exact_copy(const void *bytes, size_t size) {
    void *copy = memory_or_exit(malloc(size > 0 ? size : 1));
    if (size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

static void *unescaped(const char *line, size_t size, size_t *ret_size) {
    struct buf text = BUF_INIT;
    fuzz_unescape(&text, line, size);
    void *copy = exact_copy(buf_text(&text), text.size);
    *ret_size = text.size;
    buf_release(&text);
    return copy;
}

static void read_number(struct fuzz_record *record, const char *line, size_t size) {
    const char *space = memchr(line, ' ', size);
    if (space == NULL || record->number_count == FUZZ_NUMBERS_MAX)
        return;
    struct fuzz_number *number = &record->numbers[record->number_count++];
    snprintf(number->name, sizeof number->name, "%.*s", (int)(space - line), line);
    char digits[24];
    snprintf(digits, sizeof digits, "%.*s", (int)(size - (size_t)(space - line)), space);
    number->value = strtoll(digits, NULL, 10);
}

static void read_header(struct fuzz_record *record, const char *line, size_t size) {
    if (record->message.header_count == FUZZ_HEADERS_MAX)
        return;
    struct message_header *header = &record->headers[record->message.header_count++];
    const char *colon = memmem(line, size, ": ", 2);
    struct buf name = BUF_INIT;
    fuzz_unescape(&name, line, colon == NULL ? size : (size_t)(colon - line));
    header->name = exact_copy(buf_text(&name), name.size + 1); /* with its NUL */
    header->name_size = name.size;
    buf_release(&name);
    if (colon != NULL)
        header->value = unescaped(colon + 2, size - (size_t)(colon + 2 - line), &header->value_size);
}

void fuzz_record_read(struct fuzz_record *record, const uint8_t *data, size_t size) {
    *record = (struct fuzz_record){0};
    struct message *message = &record->message;
    const char *line;
    size_t length, position = 0;
    while (fuzz_next_line(data, size, &position, &line, &length)) {
        if (length == 0) {
            message->value_size = size - position;
            message->value = exact_copy(data + position, message->value_size);
            break;
        }
        if (line[0] == ':')
            read_number(record, line + 1, length - 1);
        else if (message->key == NULL && length >= 4 && memcmp(line, "key ", 4) == 0)
            message->key = unescaped(line + 4, length - 4, &message->key_size);
        else
            read_header(record, line, length);
    }
    message->headers = record->headers;
    message->topic = "settlement.events";
    message->partition = (int32_t)fuzz_record_number(record, "partition", 3);
    message->offset = fuzz_record_number(record, "offset", 42);
    message->timestamp_ms = -1;
    if (fuzz_record_number(record, "lost_headers", 0) != 0) {
        message->has_lost_headers = true;
        message->header_count = 0;
    }
}

void fuzz_record_release(struct fuzz_record *record) {
    for (size_t i = 0; i < FUZZ_HEADERS_MAX && record->headers[i].name != NULL; i++) {
        free((void *)(uintptr_t)record->headers[i].name);
        free((void *)(uintptr_t)record->headers[i].value);
    }
    free((void *)(uintptr_t)record->message.key);
    free((void *)(uintptr_t)record->message.value);
    *record = (struct fuzz_record){0};
}

int64_t fuzz_record_number(const struct fuzz_record *record, const char *name, int64_t otherwise) {
    for (size_t i = 0; i < record->number_count; i++)
        if (strcmp(record->numbers[i].name, name) == 0)
            return record->numbers[i].value;
    return otherwise;
}
