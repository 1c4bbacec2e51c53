/* What the fuzz targets share. Each target is one file fuzz_<name>.c with libFuzzer's entry point: it reads what the bytes say, runs the
 * code, and asserts what must hold of whatever came out. The same file linked with replay.c runs a corpus under any compiler.
 *
 * Inputs are text as far as they can be, so that a case can be read and written by hand. A record stands as
 *
 *     :offset 17          numbers that are no part of the record (optional)
 *     key A-1             without this line the key is null
 *     content-type: x     headers; a line without ": " is a header with a null value
 *                         an empty line; without it the value is null
 *     {"specversion":...  all the rest is the value
 *
 * In the lines before the value, \n, \0, \\ and \xNN stand for bytes. */
#ifndef LEASE_TESTS_FUZZ_H
#define LEASE_TESTS_FUZZ_H

#include "common/buf.h"
#include "common/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process with the place and the condition: libFuzzer keeps the input. */
#define CHECK(condition) ((condition) ? (void)0 : fuzz_failed(__FILE__, __LINE__, #condition))
_Noreturn void fuzz_failed(const char *file, int line, const char *condition);

/* An equal text, or both NULL? */
bool fuzz_same_text(const char *left, const char *right);

/* Steps through the lines of a text: false at its end. The line is without its line end and not NUL-terminated. */
bool fuzz_next_line(const uint8_t *data, size_t size, size_t *position, const char **ret_line, size_t *ret_size);

/* Appends the line's bytes, its escapes resolved. */
void fuzz_unescape(struct buf *buf, const char *line, size_t size);

enum { FUZZ_HEADERS_MAX = 100, FUZZ_NUMBERS_MAX = 8 };

struct fuzz_number {
    char name[16];
    int64_t value;
};

/* A record read from an input; owns copies of exactly the sizes that it tells, so that a sanitizer sees every step too far. */
struct fuzz_record {
    struct message message; /* topic "settlement.events", partition 3, offset 42 unless numbers say otherwise */
    struct message_header headers[FUZZ_HEADERS_MAX];
    struct fuzz_number numbers[FUZZ_NUMBERS_MAX];
    size_t number_count;
};
void fuzz_record_read(struct fuzz_record *record, const uint8_t *data, size_t size);
void fuzz_record_release(struct fuzz_record *record);
int64_t fuzz_record_number(const struct fuzz_record *record, const char *name, int64_t otherwise);

#endif
