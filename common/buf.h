/* A growable byte buffer, and the one answer to "out of memory".
 *
 * The bytes are always followed by a NUL that is not counted in `size`, so a buffer of text can be passed as a C
 * string once it has been written to (buf_text works on an empty one too). Pointers into the buffer are borrowed and
 * die with the next append. Not shared between threads. */
#ifndef LEASE_BUF_H
#define LEASE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; /* NULL until the first append */
    size_t size;
    size_t capacity;
};

#define BUF_INIT ((struct buf){0})

void buf_release(struct buf *buf); /* NULL allowed; leaves an empty, usable buffer */
void buf_reset(struct buf *buf);   /* size 0, memory kept */

void buf_reserve(struct buf *buf, size_t more); /* room for `more` bytes and the NUL */
void buf_append(struct buf *buf, const void *bytes, size_t size);
void buf_append_byte(struct buf *buf, char byte);
void buf_append_text(struct buf *buf, const char *text);
void buf_append_number(struct buf *buf, int64_t number);
void buf_appendf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Big-endian, as in Kafka's own formats. */
void buf_append_u32(struct buf *buf, uint32_t number);

/* Appends the bytes as a JSON string with its quotes. Control characters (C0, DEL, C1) are escaped, bytes that are
 * not UTF-8 become U+FFFD: the result is always valid JSON in UTF-8, and safe on a terminal. */
void buf_json_string(struct buf *buf, const char *bytes, size_t size);

/* Length of the well-formed UTF-8 sequence at the start of `size` > 0 bytes (no surrogates, nothing overlong, at most
 * U+10FFFF), 0 if there is none. */
size_t utf8_sequence(const unsigned char *bytes, size_t size);

/* Borrowed, never NULL. */
const char *buf_text(const struct buf *buf);

/* Hands the bytes (NUL-terminated, free() them) to the caller and leaves the buffer empty. Never NULL. */
char *buf_take(struct buf *buf, size_t *ret_size);

/* Returns its argument, or, when that is NULL, prints one line and ends the process with status 70 at once: a
 * transaction that was open is rolled back, so nothing is left half done. Only for results of malloc and its kind. */
void *memory_or_exit(void *allocated);
void *memory_alloc(size_t size);                     /* zeroed; free() */
void *memory_alloc_array(size_t count, size_t size); /* zeroed, overflow checked; free() */
void *memory_resize(void *old, size_t count, size_t size); /* overflow checked; new bytes undefined */
char *memory_copy_text(const char *text);            /* NULL gives NULL */
char *memory_copy_bytes(const void *bytes, size_t size); /* NUL added behind */

#endif
