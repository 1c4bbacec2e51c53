/* Text for people; see text.h. */
#include "coordinator/cli/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SECOND_MS = 1000, MINUTE_MS = 60 * SECOND_MS, HOUR_MS = 60 * MINUTE_MS, DAY_MS = 24 * HOUR_MS };

bool text_parse_number(const char *text, int64_t *ret_number) {
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (!isdigit((unsigned char)digits[0]))
        return false;
    char *end = NULL;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *ret_number = number;
    return true;
}

static const struct {
    const char *name;
    int64_t ms;
} units[] = {{"", SECOND_MS}, {"ms", 1}, {"s", SECOND_MS}, {"m", MINUTE_MS}, {"min", MINUTE_MS}, {"h", HOUR_MS}, {"d", DAY_MS}};

bool text_parse_duration_ms(const char *text, int64_t *ret_ms) {
    const double most_ms = 3650.0 * DAY_MS;
    size_t digits = strspn(text, "0123456789.");
    if (digits == 0 || digits > 15 || !isdigit((unsigned char)text[0]) || !isdigit((unsigned char)text[digits - 1]))
        return false;
    char *end = NULL;
    double amount = strtod(text, &end);
    if (end != text + digits)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        double ms = amount * (double)units[i].ms;
        if (ms > most_ms)
            return false;
        *ret_ms = (int64_t)llround(ms);
        return true;
    }
    return false;
}

static void append_two_units(struct buf *buf, int64_t ms, int64_t large, const char *large_name, int64_t small,
                             const char *small_name) {
    buf_appendf(buf, "%lld %s", (long long)(ms / large), large_name);
    if (ms % large / small > 0)
        buf_appendf(buf, " %lld %s", (long long)(ms % large / small), small_name);
}

void text_format_duration_ms(int64_t ms, struct buf *buf) {
    if (ms < 0)
        ms = ms == INT64_MIN ? INT64_MAX : -ms;
    if (ms < SECOND_MS)
        buf_appendf(buf, "%lld ms", (long long)ms);
    else if (ms < MINUTE_MS)
        buf_appendf(buf, "%lld.%lld s", (long long)(ms / SECOND_MS), (long long)(ms % SECOND_MS / 100));
    else if (ms < HOUR_MS)
        append_two_units(buf, ms, MINUTE_MS, "min", SECOND_MS, "s");
    else if (ms < DAY_MS)
        append_two_units(buf, ms, HOUR_MS, "h", MINUTE_MS, "min");
    else
        append_two_units(buf, ms, DAY_MS, "d", HOUR_MS, "h");
}

void text_format_remaining_ms(int64_t ms, struct buf *buf) {
    if (ms >= 0)
        buf_append_text(buf, "in ");
    text_format_duration_ms(ms, buf);
    if (ms < 0)
        buf_append_text(buf, " ago");
}

/* Length of the UTF-8 sequence at `bytes`, its code point in *ret_point; 0 when it is not one. */
static size_t decode_point(const unsigned char *bytes, size_t size, uint32_t *ret_point) {
    unsigned char lead = bytes[0];
    size_t length = lead < 0x80 ? 1 : (lead & 0xE0) == 0xC0 ? 2 : (lead & 0xF0) == 0xE0 ? 3 : (lead & 0xF8) == 0xF0 ? 4 : 0;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (length == 0 || length > size)
        return 0;
    uint32_t point = length == 1 ? lead : lead & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
        point = point << 6 | (bytes[i] & 0x3Fu);
    }
    if (point < least[length] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
        return 0;
    *ret_point = point;
    return length;
}

static bool point_is_shown(uint32_t point) {
    if (point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0xAD || point == 0xFEFF)
        return false;
    bool turns_or_hides = (point >= 0x200B && point <= 0x200F) || (point >= 0x2028 && point <= 0x202E) ||
                          (point >= 0x2060 && point <= 0x206F) || point == 0x061C;
    return !turns_or_hides;
}

static void append_point_escaped(struct buf *buf, uint32_t point) {
    switch (point) {
    case '\n': buf_append_text(buf, "\\n"); return;
    case '\r': buf_append_text(buf, "\\r"); return;
    case '\t': buf_append_text(buf, "\\t"); return;
    }
    if (point < 0x80)
        buf_appendf(buf, "\\x%02x", (unsigned)point);
    else
        buf_appendf(buf, "\\u{%04x}", (unsigned)point);
}

void text_append_escaped(struct buf *buf, const char *bytes, size_t size) {
    for (size_t i = 0; i < size;) {
        uint32_t point = 0;
        size_t length = decode_point((const unsigned char *)bytes + i, size - i, &point);
        if (length == 0) {
            buf_appendf(buf, "\\x%02x", (unsigned char)bytes[i]);
            length = 1;
        } else if (!point_is_shown(point)) {
            append_point_escaped(buf, point);
        } else {
            buf_append(buf, bytes + i, length);
        }
        i += length;
    }
}

bool text_is_utf8(const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    for (size_t i = 0, length = 0; i < size; i += length) {
        uint32_t point = 0;
        length = decode_point(at + i, size - i, &point);
        if (length == 0 || point == 0)
            return false;
    }
    return true;
}

void text_append_base64(struct buf *buf, const void *bytes, size_t size) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t three = (uint32_t)at[i] << 16 | (left > 1 ? (uint32_t)at[i + 1] << 8 : 0) | (left > 2 ? at[i + 2] : 0u);
        buf_append_byte(buf, letters[three >> 18]);
        buf_append_byte(buf, letters[three >> 12 & 63]);
        buf_append_byte(buf, left > 1 ? letters[three >> 6 & 63] : '=');
        buf_append_byte(buf, left > 2 ? letters[three & 63] : '=');
    }
}

size_t text_width(const char *text, size_t size) {
    size_t width = 0;
    for (size_t i = 0; i < size; i++)
        width += ((unsigned char)text[i] & 0xC0) != 0x80;
    return width;
}
