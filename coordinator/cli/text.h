/* Text for people: numbers and durations read from a command line, remaining time and untrusted bytes shown on a
 * terminal. Pure functions. */
#ifndef LEASE_CLI_TEXT_H
#define LEASE_CLI_TEXT_H

#include "common/buf.h"
#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A decimal number and nothing else: no blanks, no '+', no overflow. */
bool text_parse_number(const char *text, int64_t *ret_number) MUST_USE;

/* "500ms", "1.5s", "30" (seconds), "5m", "2h", "7d"; not negative, at most ten years. */
bool text_parse_duration_ms(const char *text, int64_t *ret_ms) MUST_USE;

/* "850 ms", "4.2 s", "3 min 20 s", "2 h 5 min", "3 d 4 h": two units at most, which is what a person compares. */
void text_format_duration_ms(int64_t ms, struct buf *buf);

/* "in 4.2 s" or "4.2 s ago". */
void text_format_remaining_ms(int64_t ms, struct buf *buf);

/* Appends bytes so that a terminal shows them and does nothing else: control characters (C0, DEL, C1), bytes that are
 * not UTF-8, and the marks that turn or hide text (bidirectional, zero width) become \n, \t, \xNN or \u{NNNN}. */
void text_append_escaped(struct buf *buf, const char *bytes, size_t size);

bool text_is_utf8(const void *bytes, size_t size); /* U+0000 is not text here: JSON parsers choke on it */
void text_append_base64(struct buf *buf, const void *bytes, size_t size);

/* Columns that the text takes, counted in code points: our ids are ASCII, so this is exact where it matters. */
size_t text_width(const char *text, size_t size);

#endif
