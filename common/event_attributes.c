/* From a record's headers to the attributes that identify an event; see event_private.h. No JSON here. */
#include "common/event_private.h"

#include <string.h>
#include <strings.h>

static struct slice slice_of(const void *bytes, size_t size) {
    return (struct slice){.data = bytes, .size = size};
}

/* ---- framing ---- */

static bool headers_are_within(const struct message *message, const struct event_limits *limits) {
    if (message->has_lost_headers || message->header_count > limits->header_count)
        return false;
    size_t bytes = 0;
    for (size_t i = 0; i < message->header_count; i++)
        bytes += message->headers[i].name_size + message->headers[i].value_size;
    return bytes <= limits->header_bytes;
}

bool event_check_framing(struct decoder *decoder) {
    const struct message *message = decoder->message;
    const struct event_limits *limits = decoder->limits;
    if (message->value == NULL)
        return event_fault_text(decoder, EVENT_NULL_VALUE, NULL);
    if (message->value_size == 0)
        return event_fault_text(decoder, EVENT_EMPTY_VALUE, NULL);
    if (message->key == NULL)
        return event_fault_text(decoder, EVENT_NULL_KEY, NULL);
    if (message->key_size > limits->key_bytes)
        return event_fault_text(decoder, EVENT_KEY_TOO_LONG, NULL);
    if (message->value_size > limits->value_bytes)
        return event_fault_text(decoder, EVENT_VALUE_TOO_LARGE, NULL);
    if (!headers_are_within(message, limits))
        return event_fault_text(decoder, EVENT_HEADERS_TOO_LARGE, NULL);
    return true;
}

/* ---- media types ---- */

/* The media type without its parameters and the space around it. */
static struct slice media_type(struct slice media) {
    const char *semicolon = memchr(media.data, ';', media.size);
    if (semicolon != NULL)
        media.size = (size_t)(semicolon - media.data);
    while (media.size > 0 && media.data[media.size - 1] == ' ')
        media.size--;
    while (media.size > 0 && media.data[0] == ' ') {
        media.data++;
        media.size--;
    }
    return media;
}

static bool starts_with(struct slice text, const char *start) {
    size_t size = strlen(start);
    return text.size >= size && strncasecmp(text.data, start, size) == 0;
}

static bool is_text(struct slice text, const char *other) {
    return text.size == strlen(other) && starts_with(text, other);
}

static bool ends_with(struct slice text, const char *end) {
    size_t size = strlen(end);
    return text.size >= size && strncasecmp(text.data + text.size - size, end, size) == 0;
}

/* The value of the parameter charset, if there is one. */
static bool charset_is_utf8(struct slice media) {
    for (size_t i = 0; i < media.size; i++) {
        struct slice rest = slice_of(media.data + i, media.size - i);
        if (!starts_with(rest, "charset="))
            continue;
        rest = slice_of(rest.data + 8, rest.size - 8);
        return starts_with(rest, "utf-8") || starts_with(rest, "\"utf-8\"") || starts_with(rest, "us-ascii");
    }
    return true;
}

bool event_is_json_media(struct slice media) {
    struct slice type = media_type(media);
    bool is_json = is_text(type, "application/json") || is_text(type, "text/json") || ends_with(type, "+json");
    return is_json && charset_is_utf8(media);
}

/* ---- headers ---- */

static bool is_header(const struct message_header *header, const char *name) {
    return header->name_size == strlen(name) && memcmp(header->name, name, header->name_size) == 0;
}

static bool is_content_type(const struct message_header *header) {
    static const char name[] = "content-type"; /* written in upper case by some producers */
    return header->name_size == sizeof name - 1 && strncasecmp(header->name, name, sizeof name - 1) == 0;
}

static bool take_once(struct decoder *decoder, const struct message_header *header, struct slice *slice,
                      const char *name) {
    if (slice->data != NULL)
        return event_fault_text(decoder, EVENT_INVALID_ATTRIBUTE, name);
    *slice = slice_of(header->value, header->value_size);
    return true;
}

static bool find_content_type(struct decoder *decoder, struct slice *ret) {
    const struct message *message = decoder->message;
    *ret = (struct slice){0};
    for (size_t i = 0; i < message->header_count; i++)
        if (is_content_type(&message->headers[i]) && !take_once(decoder, &message->headers[i], ret, "content-type"))
            return false;
    return true;
}

/* Any of the four says that the producer meant binary mode; then the others must not be missing. */
static bool has_event_headers(const struct message *message) {
    static const char *const names[] = {"ce_specversion", "ce_id", "ce_source", "ce_type"};
    for (size_t i = 0; i < message->header_count; i++)
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            if (is_header(&message->headers[i], names[n]))
                return true;
    return false;
}

bool event_find_mode(struct decoder *decoder, enum event_mode *ret_mode) {
    struct slice content_type;
    if (!find_content_type(decoder, &content_type))
        return false;
    struct slice type = content_type.data != NULL ? media_type(content_type) : content_type;
    if (type.data != NULL && starts_with(type, "application/cloudevents-batch"))
        return event_fault_text(decoder, EVENT_BATCH_MODE, NULL);
    if (type.data != NULL && starts_with(type, "application/cloudevents")) {
        if (!is_text(type, "application/cloudevents+json") && !is_text(type, "application/cloudevents"))
            return event_fault_text(decoder, EVENT_NOT_CLOUDEVENTS, "content-type is not application/cloudevents+json");
        if (!charset_is_utf8(content_type))
            return event_fault_text(decoder, EVENT_INVALID_ENCODING, "content-type names a charset other than UTF-8");
        *ret_mode = EVENT_MODE_STRUCTURED;
        return true;
    }
    *ret_mode = has_event_headers(decoder->message) ? EVENT_MODE_BINARY : EVENT_MODE_UNDECLARED;
    if (*ret_mode == EVENT_MODE_BINARY && type.data != NULL && !event_is_json_media(content_type))
        return event_fault_text(decoder, EVENT_INVALID_ENCODING, "content-type is not JSON in UTF-8");
    return true;
}

struct attribute_row {
    const char *header;
    size_t offset; /* of the slice in struct attributes */
};
static const struct attribute_row attribute_rows[] = {
    {"ce_specversion", offsetof(struct attributes, specversion)},
    {"ce_id", offsetof(struct attributes, id)},
    {"ce_source", offsetof(struct attributes, source)},
    {"ce_type", offsetof(struct attributes, type)},
    {"ce_subject", offsetof(struct attributes, subject)},
    {"ce_time", offsetof(struct attributes, time)},
    {"ce_traceparent", offsetof(struct attributes, traceparent)},
};

static bool read_header(struct decoder *decoder, const struct message_header *header) {
    for (size_t i = 0; i < sizeof attribute_rows / sizeof *attribute_rows; i++) {
        const struct attribute_row *row = &attribute_rows[i];
        if (is_header(header, row->header))
            return take_once(decoder, header, (struct slice *)((char *)&decoder->attributes + row->offset),
                             row->header + strlen("ce_"));
    }
    return true;
}

bool event_read_headers(struct decoder *decoder) {
    const struct message *message = decoder->message;
    for (size_t i = 0; i < message->header_count; i++)
        if (!read_header(decoder, &message->headers[i]))
            return false;
    return true;
}

/* ---- identity ---- */

static bool check_attribute(struct decoder *decoder, struct slice value, const char *name,
                            enum event_reason (*check)(struct slice)) {
    if (value.data == NULL)
        return event_fault_text(decoder, EVENT_MISSING_ATTRIBUTE, name);
    enum event_reason reason = check(value);
    if (reason == EVENT_EMPTY)
        return event_fault_text(decoder, EVENT_MISSING_ATTRIBUTE, name);
    return reason == EVENT_REASON_NONE || event_fault_text(decoder, EVENT_INVALID_ATTRIBUTE, name);
}

static const struct event_kind *find_kind(const struct event_limits *limits, struct slice name) {
    for (size_t i = 0; i < limits->kind_count; i++)
        if (strlen(limits->kinds[i].name) == name.size && memcmp(limits->kinds[i].name, name.data, name.size) == 0)
            return &limits->kinds[i];
    return NULL;
}

/* `<kind>.<command>`. */
static bool split_type(struct decoder *decoder) {
    struct slice type = decoder->attributes.type;
    const char *dot = memrchr(type.data, '.', type.size);
    struct command *command = decoder->command;
    if (dot == NULL)
        return event_fault(decoder, EVENT_UNKNOWN_TYPE, type.data, type.size);
    struct slice kind = slice_of(type.data, (size_t)(dot - type.data));
    size_t rest = type.size - kind.size - 1;
    if (!lease_kind_is_well_formed(kind.data, kind.size) || !lease_command_parse(dot + 1, rest, &command->command) ||
        (decoder->limits->kind_count > 0 && find_kind(decoder->limits, kind) == NULL))
        return event_fault(decoder, EVENT_UNKNOWN_TYPE, type.data, type.size);
    command->kind = command_copy(command, kind.data, kind.size);
    return true;
}

/* Not part of the event's meaning, so a bad one is dropped. Tracing libraries write the header without ce_. */
static void keep_traceparent(struct decoder *decoder) {
    struct slice found = decoder->attributes.traceparent;
    const struct message *message = decoder->message;
    for (size_t i = 0; found.data == NULL && i < message->header_count; i++)
        if (is_header(&message->headers[i], "traceparent"))
            found = slice_of(message->headers[i].value, message->headers[i].value_size);
    if (found.data != NULL && event_text_is_traceparent(found))
        decoder->command->traceparent = command_copy(decoder->command, found.data, found.size);
}

bool event_identify(struct decoder *decoder) {
    const struct attributes *attributes = &decoder->attributes;
    if (attributes->specversion.data == NULL)
        return event_fault_text(decoder, EVENT_MISSING_ATTRIBUTE, "specversion");
    if (attributes->specversion.size != 3 || memcmp(attributes->specversion.data, "1.0", 3) != 0)
        return event_fault_text(decoder, EVENT_UNKNOWN_SPECVERSION, NULL);
    if (!check_attribute(decoder, attributes->id, "id", event_text_attribute) ||
        !check_attribute(decoder, attributes->source, "source", event_text_attribute) ||
        !check_attribute(decoder, attributes->type, "type", event_text_attribute) ||
        !check_attribute(decoder, attributes->subject, "subject", event_text_id) || !split_type(decoder))
        return false;
    struct command *command = decoder->command;
    command->subject = command_copy(command, attributes->subject.data, attributes->subject.size);
    command->source = command_copy(command, attributes->source.data, attributes->source.size);
    command->message_id = command_copy(command, attributes->id.data, attributes->id.size);
    keep_traceparent(decoder);
    return true;
}

bool event_check_identified(struct decoder *decoder) {
    const struct message *message = decoder->message;
    const struct attributes *attributes = &decoder->attributes;
    if (message->key_size != attributes->subject.size ||
        memcmp(message->key, attributes->subject.data, message->key_size) != 0)
        return event_fault_text(decoder, EVENT_KEY_MISMATCH, "key");
    struct slice kind_name = slice_of(decoder->command->kind, strlen(decoder->command->kind));
    const struct event_kind *kind = find_kind(decoder->limits, kind_name);
    if (kind != NULL && !lease_command_is_of_mode(decoder->command->command, kind->mode))
        return event_fault_text(decoder, EVENT_WRONG_KIND, "type");
    if (attributes->time.data == NULL)
        return true;
    enum event_reason reason = event_text_time(attributes->time);
    return reason == EVENT_REASON_NONE || event_fault_text(decoder, reason, "time");
}
