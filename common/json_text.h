/* JSON as text: what must be known about it before a parser may see it, and the few things that are done to it without
 * one (a member's own text, compact text). Knows bounds and tokens, not grammar: whether the whole is JSON is the
 * parser's judgement.
 *
 * Why: the parser takes forty times the text in memory, recurses, and forgets how a number was written. Linear time,
 * no recursion, no allocation but in the buffers given. Safe from any thread. */
#ifndef LEASE_JSON_TEXT_H
#define LEASE_JSON_TEXT_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum json_fault {
    JSON_FAULT_NONE,
    JSON_FAULT_BYTE_ORDER_MARK,
    JSON_FAULT_NUL,          /* a raw one (UTF-16 has them too) */
    JSON_FAULT_UTF8,         /* invalid, overlong, surrogate */
    JSON_FAULT_CONTROL,      /* raw control character in a string */
    JSON_FAULT_ESCAPED_NUL,  /* \u0000, which neither text nor jsonb can hold */
    JSON_FAULT_NUMBER,       /* +1, 01, 1., .5, 1e */
    JSON_FAULT_DEPTH,
    JSON_FAULT_ELEMENTS,
    JSON_FAULT_GAP,          /* white space without end */
    JSON_FAULT_NUMBER_RANGE, /* digits or exponent beyond what any reader of ours can hold */
};

struct json_bounds {
    unsigned depth;
    size_t elements; /* containers, members and array elements */
    size_t gap_bytes;
};

struct json_check {
    enum json_fault fault;
    size_t fault_at;    /* offset in bytes */
    size_t odd_numbers; /* numbers that are no plain integers: reals, exponents, -0, more than 18 digits */
};

/* True if nothing is wrong as far as this looks. */
bool json_text_check(const char *text, size_t size, const struct json_bounds *bounds, struct json_check *ret_check);

/* Appends the checked text with every odd number turned into a string: JSON_NUMBER_MARK and the number as it was
 * written. A parser then keeps it, and a reader of a member can tell it from any text that it would accept. */
#define JSON_NUMBER_MARK '\x01'
void json_text_quote_numbers(const char *text, size_t size, struct buf *buf);

/* Does the text (as parsed) stand for a number? */
bool json_text_is_quoted_number(const char *text, size_t size);

/* Appends the valid JSON text without the white space between its tokens. */
void json_text_compact(const char *text, size_t size, struct buf *buf);

/* Steps through the members of a valid JSON object's text; *position starts at 0. Names without their quotes, escapes
 * left as they are; values as they stand. False at the end, or where the text is not what it should be. */
struct json_member {
    const char *name;
    size_t name_size;
    const char *value;
    size_t value_size;
};
bool json_text_next_member(const char *text, size_t size, size_t *position, struct json_member *ret_member);

/* The same for the elements of a valid JSON array's text. */
struct json_element {
    const char *value;
    size_t value_size;
};
bool json_text_next_element(const char *text, size_t size, size_t *position, struct json_element *ret_element);

/* The member of that name (written without escapes). */
bool json_text_find_member(const char *text, size_t size, const char *name, struct json_member *ret_member);

#endif
