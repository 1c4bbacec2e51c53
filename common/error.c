/* Errors as values; see error.h. Runs in any thread. */
#include "common/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A cut must not leave half a UTF-8 sequence behind, or the log line that carries it is not UTF-8. */
static void drop_broken_tail(char *text, size_t length) {
    size_t start = length;
    while (start > 0 && length - start < 3 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start == 0)
        return;
    unsigned char lead = (unsigned char)text[start - 1];
    size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (length - start + 1 < wanted)
        text[start - 1] = '\0';
}

static void copy_cut(char *target, size_t capacity, const char *text) {
    size_t length = strnlen(text, capacity);
    bool is_cut = length == capacity;
    if (is_cut)
        length = capacity - 1;
    memcpy(target, text, length);
    target[length] = '\0';
    if (is_cut)
        drop_broken_tail(target, length);
}

bool (error_set)(struct error *error, enum error_kind kind, const char *code, const char *format, ...) {
    assert(error != NULL && code != NULL && kind != ERROR_NONE);
    /* One byte more than fits, so that copy_cut can tell a cut from a text that just fits. */
    char message[sizeof error->message + 1];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    copy_cut(error->code, sizeof error->code, code);
    copy_cut(error->message, sizeof error->message, message);
    error->kind = kind;
    return false;
}

bool (error_prefix)(struct error *error, const char *format, ...) {
    assert(error != NULL && error->kind != ERROR_NONE);
    char message[2 * sizeof error->message];
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(message, sizeof error->message, format, arguments);
    va_end(arguments);
    size_t length = written < 0 ? 0 : (size_t)written;
    if (length >= sizeof error->message)
        length = sizeof error->message - 1;
    snprintf(message + length, sizeof message - length, ": %s", error->message);
    copy_cut(error->message, sizeof error->message, message);
    return false;
}

void error_clear(struct error *error) {
    assert(error != NULL);
    error->kind = ERROR_NONE;
    error->code[0] = '\0';
    error->message[0] = '\0';
}

const char *error_kind_name(enum error_kind kind) {
    switch (kind) {
    case ERROR_NONE: return "none";
    case ERROR_RETRY: return "retry";
    case ERROR_REJECT: return "reject";
    case ERROR_FATAL: return "fatal";
    }
    return "none";
}
