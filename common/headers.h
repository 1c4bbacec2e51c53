/* Record headers as one byte string, the form in which the journal keeps a dead letter's:
 * repeat { u32 name_size, name, i32 value_size (-1 = null), value }, numbers big-endian.
 *
 * Pure functions; safe from any thread. */
#ifndef LEASE_HEADERS_H
#define LEASE_HEADERS_H

#include "common/buf.h"
#include "common/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Appends. */
void headers_pack(const struct message_header *headers, size_t count, struct buf *buf);

/* Bytes that the headers take in a record on the wire. */
size_t headers_wire_size(const struct message_header *headers, size_t count);

/* Steps through packed headers: *position starts at 0. Fills a borrowed view (its name is NOT NUL-terminated: use
 * name_size) and returns true; false at the end, or where the bytes are not well-formed (then *position < size). */
bool headers_next(const uint8_t *packed, size_t size, size_t *position, struct message_header *ret_header);

#endif
