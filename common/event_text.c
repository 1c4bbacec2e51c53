/* Which characters and lengths a text of a message may have; see event_text.h. The same rules stand in schemas/ as
 * patterns, and tests/messages compares the two. Allow-lists: whatever is not named is refused, never changed. */
#include "common/event_text.h"
#include "common/rfc3339.h"

#include <string.h>

static bool is_alphanumeric(char byte) {
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9');
}

static bool is_of_id(char byte) {
    return is_alphanumeric(byte) || (byte != '\0' && strchr("._:@/+=-", byte) != NULL);
}

/* No empty segment between slashes, no segment `..`. */
static bool has_sound_segments(struct slice text) {
    size_t start = 0;
    for (size_t i = 0; i <= text.size; i++) {
        if (i < text.size && text.data[i] != '/')
            continue;
        size_t size = i - start;
        if (size == 2 && memcmp(text.data + start, "..", 2) == 0)
            return false;
        if (size == 0 && i < text.size)
            return false;
        start = i + 1;
    }
    return true;
}

enum event_reason event_text_id(struct slice text) {
    if (text.size == 0)
        return EVENT_EMPTY;
    if (text.size > LEASE_ID_MAX)
        return EVENT_TOO_LONG;
    if (!is_alphanumeric(text.data[0]))
        return EVENT_NOT_ALLOWED_CHARACTERS;
    for (size_t i = 1; i < text.size; i++)
        if (!is_of_id(text.data[i]))
            return EVENT_NOT_ALLOWED_CHARACTERS;
    return has_sound_segments(text) ? EVENT_REASON_NONE : EVENT_NOT_ALLOWED_CHARACTERS;
}

enum event_reason event_text_resource(struct slice text) {
    enum event_reason reason = event_text_id(text);
    if (reason != EVENT_REASON_NONE)
        return reason;
    const char *slash = memchr(text.data, '/', text.size);
    if (slash == NULL || slash == text.data + text.size - 1)
        return EVENT_NOT_ALLOWED_CHARACTERS;
    return EVENT_REASON_NONE;
}

enum event_reason event_text_table(struct slice text) {
    enum event_reason reason = event_text_id(text);
    if (reason != EVENT_REASON_NONE)
        return reason;
    return memchr(text.data, '/', text.size) == NULL ? EVENT_REASON_NONE : EVENT_NOT_ALLOWED_CHARACTERS;
}

enum event_reason event_text_step(struct slice text) {
    if (text.size == 0)
        return EVENT_EMPTY;
    if (text.size > LEASE_STEP_MAX)
        return EVENT_TOO_LONG;
    for (size_t i = 0; i < text.size; i++) {
        char byte = text.data[i];
        bool is_letter = byte >= 'a' && byte <= 'z';
        if (!is_letter && (i == 0 || !((byte >= '0' && byte <= '9') || byte == '_' || byte == '-')))
            return EVENT_NOT_ALLOWED_CHARACTERS;
    }
    return EVENT_REASON_NONE;
}

enum event_reason event_text_reason(struct slice text) {
    if (text.size == 0)
        return EVENT_EMPTY;
    size_t characters = 0;
    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        bool is_c1 = byte == 0xC2 && i + 1 < text.size && (unsigned char)text.data[i + 1] < 0xA0;
        if (byte < 0x20 || byte == 0x7F || is_c1)
            return EVENT_NOT_ALLOWED_CHARACTERS;
        characters += (byte & 0xC0) != 0x80;
    }
    return characters <= LEASE_REASON_MAX ? EVENT_REASON_NONE : EVENT_TOO_LONG;
}

enum event_reason event_text_attribute(struct slice text) {
    if (text.size == 0)
        return EVENT_EMPTY;
    if (text.size > LEASE_MESSAGE_ID_MAX)
        return EVENT_TOO_LONG;
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] < '!' || text.data[i] > '~')
            return EVENT_NOT_ALLOWED_CHARACTERS;
    return EVENT_REASON_NONE;
}

enum event_reason event_text_time(struct slice text) {
    int64_t ignored;
    switch (rfc3339_parse(text.data, text.size, &ignored)) {
    case RFC3339_FORM: return EVENT_WRONG_TYPE;
    case RFC3339_RANGE: return EVENT_OUT_OF_RANGE;
    case RFC3339_OK: break;
    }
    return EVENT_REASON_NONE;
}

static bool is_hex(const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!((bytes[i] >= '0' && bytes[i] <= '9') || (bytes[i] >= 'a' && bytes[i] <= 'f')))
            return false;
    return true;
}

static bool is_all(const char *bytes, size_t size, char byte) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != byte)
            return false;
    return true;
}

/* W3C Trace Context, version 00's form: version-trace-parent-flags. */
bool event_text_is_traceparent(struct slice text) {
    enum { VERSION = 0, TRACE = 3, PARENT = 36, FLAGS = 53, SIZE = 55 };
    const char *bytes = text.data;
    return text.size == SIZE && is_hex(bytes + VERSION, 2) && memcmp(bytes + VERSION, "ff", 2) != 0 &&
           bytes[TRACE - 1] == '-' && is_hex(bytes + TRACE, 32) && !is_all(bytes + TRACE, 32, '0') &&
           bytes[PARENT - 1] == '-' && is_hex(bytes + PARENT, 16) && !is_all(bytes + PARENT, 16, '0') &&
           bytes[FLAGS - 1] == '-' && is_hex(bytes + FLAGS, 2);
}
