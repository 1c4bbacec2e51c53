/* JSON as text; see json_text.h. */
#include "common/json_text.h"

#include <stdint.h>
#include <string.h>

/* 64 bytes hold every double and every amount of money; four digits of exponent are within PostgreSQL's numeric. */
enum { NUMBER_MAX = 64, EXPONENT_DIGITS_MAX = 4, PLAIN_DIGITS_MAX = 18 };

static bool is_gap(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static size_t skip_gap(const char *text, size_t size, size_t at) {
    while (at < size && is_gap(text[at]))
        at++;
    return at;
}

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

static bool is_of_number(char byte) {
    return is_digit(byte) || byte == '-' || byte == '+' || byte == '.' || byte == 'e' || byte == 'E';
}

static bool starts_number(char byte) {
    return is_digit(byte) || byte == '-' || byte == '+' || byte == '.';
}

static size_t number_size(const char *text, size_t size) {
    size_t at = 0;
    while (at < size && is_of_number(text[at]))
        at++;
    return at;
}

static size_t digits_at(const char *text, size_t size, size_t at) {
    size_t start = at;
    while (at < size && is_digit(text[at]))
        at++;
    return at - start;
}

enum number_form { NUMBER_PLAIN, NUMBER_ODD, NUMBER_BAD, NUMBER_BEYOND };

static enum number_form number_form(const char *text, size_t size) {
    size_t at = size > 0 && text[0] == '-' ? 1 : 0;
    size_t whole = digits_at(text, size, at);
    if (whole == 0 || (whole > 1 && text[at] == '0'))
        return NUMBER_BAD;
    bool is_minus_zero = at == 1 && text[at] == '0';
    at += whole;
    if (at == size && size <= NUMBER_MAX)
        return is_minus_zero || whole > PLAIN_DIGITS_MAX ? NUMBER_ODD : NUMBER_PLAIN;
    if (at < size && text[at] == '.') {
        size_t fraction = digits_at(text, size, at + 1);
        if (fraction == 0)
            return NUMBER_BAD;
        at += 1 + fraction;
    }
    size_t exponent = 0;
    if (at < size && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        if (at < size && (text[at] == '-' || text[at] == '+'))
            at++;
        exponent = digits_at(text, size, at);
        if (exponent == 0)
            return NUMBER_BAD;
        at += exponent;
    }
    if (at != size)
        return NUMBER_BAD;
    return size > NUMBER_MAX || exponent > EXPONENT_DIGITS_MAX ? NUMBER_BEYOND : NUMBER_ODD;
}

/* ---- checking ---- */

struct walk {
    const char *text;
    size_t size;
    size_t at;
    unsigned depth;
    size_t elements;
    const struct json_bounds *bounds;
    struct json_check *check;
};

static bool fault(struct walk *walk, enum json_fault what) {
    walk->check->fault = what;
    walk->check->fault_at = walk->at;
    return false;
}

static bool check_not_ascii(struct walk *walk) {
    const unsigned char *bytes = (const unsigned char *)walk->text + walk->at;
    if (walk->at == 0 && walk->size >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0)
        return fault(walk, JSON_FAULT_BYTE_ORDER_MARK);
    size_t length = utf8_sequence(bytes, walk->size - walk->at);
    if (length == 0)
        return fault(walk, JSON_FAULT_UTF8);
    walk->at += length;
    return true;
}

static bool check_escape(struct walk *walk) {
    const char *escape = walk->text + walk->at;
    if (walk->size - walk->at >= 6 && memcmp(escape, "\\u0000", 6) == 0)
        return fault(walk, JSON_FAULT_ESCAPED_NUL);
    if (walk->size - walk->at >= 2 && escape[1] != '\0' && (unsigned char)escape[1] < 0x80)
        walk->at++;
    walk->at++;
    return true;
}

/* At the opening quote; ends behind the closing one, or at the end of the text. */
static bool check_string(struct walk *walk) {
    walk->at++;
    while (walk->at < walk->size) {
        unsigned char byte = (unsigned char)walk->text[walk->at];
        if (byte == '"') {
            walk->at++;
            return true;
        }
        if (byte >= 0x80) {
            if (!check_not_ascii(walk))
                return false;
        } else if (byte == '\\') {
            if (!check_escape(walk))
                return false;
        } else if (byte < 0x20) {
            return fault(walk, byte == 0 ? JSON_FAULT_NUL : JSON_FAULT_CONTROL);
        } else {
            walk->at++;
        }
    }
    return true;
}

static bool check_number(struct walk *walk) {
    const char *number = walk->text + walk->at;
    size_t size = number_size(number, walk->size - walk->at);
    switch (number_form(number, size)) {
    case NUMBER_BAD: return fault(walk, JSON_FAULT_NUMBER);
    case NUMBER_BEYOND: return fault(walk, JSON_FAULT_NUMBER_RANGE);
    case NUMBER_ODD: walk->check->odd_numbers++; break;
    case NUMBER_PLAIN: break;
    }
    /* A number as a member's name would become a valid one by being quoted. */
    size_t next = skip_gap(walk->text, walk->size, walk->at + size);
    if (next < walk->size && walk->text[next] == ':')
        return fault(walk, JSON_FAULT_NUMBER);
    walk->at += size;
    return true;
}

static bool check_gap(struct walk *walk) {
    size_t start = walk->at;
    while (walk->at < walk->size && is_gap(walk->text[walk->at]))
        walk->at++;
    return walk->at - start <= walk->bounds->gap_bytes || fault(walk, JSON_FAULT_GAP);
}

static bool check_element(struct walk *walk) {
    if (++walk->elements > walk->bounds->elements)
        return fault(walk, JSON_FAULT_ELEMENTS);
    walk->at++;
    return true;
}

static bool check_token(struct walk *walk) {
    char byte = walk->text[walk->at];
    switch (byte) {
    case '{':
    case '[':
        if (++walk->depth > walk->bounds->depth)
            return fault(walk, JSON_FAULT_DEPTH);
        return check_element(walk);
    case ',':
        return check_element(walk);
    case '}':
    case ']':
        if (walk->depth > 0)
            walk->depth--;
        walk->at++;
        return true;
    case '"': return check_string(walk);
    case '\0': return fault(walk, JSON_FAULT_NUL);
    default:
        if (is_gap(byte))
            return check_gap(walk);
        if (starts_number(byte))
            return check_number(walk);
        if ((unsigned char)byte >= 0x80)
            return check_not_ascii(walk);
        walk->at++;
        return true;
    }
}

bool json_text_check(const char *text, size_t size, const struct json_bounds *bounds, struct json_check *ret_check) {
    *ret_check = (struct json_check){0};
    struct walk walk = {.text = text, .size = size, .bounds = bounds, .check = ret_check};
    while (walk.at < size)
        if (!check_token(&walk))
            return false;
    return true;
}

/* ---- text that has been checked ---- */

/* Size of the string at the opening quote, with its quotes. */
static size_t string_size(const char *text, size_t size) {
    size_t at = 1;
    while (at < size && text[at] != '"')
        at += text[at] == '\\' ? 2 : 1;
    return at < size ? at + 1 : size;
}

/* Size of the token that is neither white space nor longer than it must be. */
static size_t token_size(const char *text, size_t size) {
    if (text[0] == '"')
        return string_size(text, size);
    if (starts_number(text[0]))
        return number_size(text, size);
    return 1;
}

void json_text_quote_numbers(const char *text, size_t size, struct buf *buf) {
    buf_reserve(buf, size + size / 4);
    size_t at = 0;
    size_t kept = 0; /* everything before stands in the buffer */
    while (at < size) {
        size_t token = token_size(text + at, size - at);
        if (starts_number(text[at]) && number_form(text + at, token) != NUMBER_PLAIN) {
            buf_append(buf, text + kept, at - kept);
            buf_append_text(buf, "\"\\u0001");
            buf_append(buf, text + at, token);
            buf_append_byte(buf, '"');
            kept = at + token;
        }
        at += token;
    }
    buf_append(buf, text + kept, size - kept);
}

bool json_text_is_quoted_number(const char *text, size_t size) {
    return size > 0 && text[0] == JSON_NUMBER_MARK;
}

void json_text_compact(const char *text, size_t size, struct buf *buf) {
    buf_reserve(buf, size);
    for (size_t at = 0; at < size;) {
        size_t token = token_size(text + at, size - at);
        if (!is_gap(text[at]))
            buf_append(buf, text + at, token);
        at += token;
    }
}

/* Where the value at `at` ends: at a comma or a closing bracket of its own level. */
static size_t value_end(const char *text, size_t size, size_t at) {
    size_t depth = 0;
    size_t end = at; /* behind the last token that is no white space */
    while (at < size) {
        char byte = text[at];
        if (depth == 0 && (byte == ',' || byte == '}' || byte == ']'))
            break;
        if (byte == '{' || byte == '[')
            depth++;
        if (byte == '}' || byte == ']')
            depth--;
        at += token_size(text + at, size - at);
        if (!is_gap(byte))
            end = at;
    }
    return end;
}

bool json_text_next_member(const char *text, size_t size, size_t *position, struct json_member *ret_member) {
    size_t at = skip_gap(text, size, *position);
    if (at >= size || text[at] != (*position == 0 ? '{' : ','))
        return false;
    at = skip_gap(text, size, at + 1);
    if (at >= size || text[at] != '"')
        return false;
    size_t name = string_size(text + at, size - at);
    if (name < 2)
        return false;
    struct json_member member = {.name = text + at + 1, .name_size = name - 2};
    at = skip_gap(text, size, at + name);
    if (at >= size || text[at] != ':')
        return false;
    at = skip_gap(text, size, at + 1);
    size_t end = value_end(text, size, at);
    if (end == at)
        return false;
    member.value = text + at;
    member.value_size = end - at;
    *position = end;
    *ret_member = member;
    return true;
}

bool json_text_next_element(const char *text, size_t size, size_t *position, struct json_element *ret_element) {
    size_t at = skip_gap(text, size, *position);
    if (at >= size || text[at] != (*position == 0 ? '[' : ','))
        return false;
    at = skip_gap(text, size, at + 1);
    size_t end = value_end(text, size, at);
    if (end == at)
        return false;
    *ret_element = (struct json_element){.value = text + at, .value_size = end - at};
    *position = end;
    return true;
}

bool json_text_find_member(const char *text, size_t size, const char *name, struct json_member *ret_member) {
    size_t position = 0;
    struct json_member member;
    size_t name_size = strlen(name);
    while (json_text_next_member(text, size, &position, &member))
        if (member.name_size == name_size && memcmp(member.name, name, name_size) == 0) {
            *ret_member = member;
            return true;
        }
    return false;
}
