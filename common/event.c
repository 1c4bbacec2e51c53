/* From a record to a command; see event.h. This file and event_members.c are the only ones that include the JSON
 * library.
 *
 * The order of the questions is the precedence of the answers: framing, mode, (binary) attributes, JSON, (structured)
 * attributes: dead letters; then key, kind, time, members: malformed. */
#include "common/event.h"

#include "common/event_private.h"
#include "common/json_text.h"

#include <assert.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct event_limits event_limits_default(void) {
    return (struct event_limits){
        .value_bytes = EVENT_VALUE_MAX,
        .key_bytes = 256,
        .header_count = 64,     /* a handful of attributes, and what tracing adds */
        .header_bytes = 8192,   /* many times what attributes need */
        .depth = EVENT_DEPTH_MAX,
        .elements = EVENT_ELEMENTS_MAX, /* twice the resources of the largest cover, and what 1000 items say */
        .gap_bytes = 4096,
    };
}

/* ---- JSON ---- */

struct fault_row {
    enum event_reason reason;
    const char *detail;
};
static const struct fault_row fault_rows[] = {
    [JSON_FAULT_BYTE_ORDER_MARK] = {EVENT_INVALID_ENCODING, "byte order mark"},
    [JSON_FAULT_NUL] = {EVENT_INVALID_ENCODING, "NUL byte"},
    [JSON_FAULT_UTF8] = {EVENT_INVALID_ENCODING, "not UTF-8"},
    [JSON_FAULT_CONTROL] = {EVENT_INVALID_JSON, "control character in a string"},
    [JSON_FAULT_ESCAPED_NUL] = {EVENT_INVALID_JSON, "\\u0000 in a string"},
    [JSON_FAULT_NUMBER] = {EVENT_INVALID_JSON, "not a number"},
    [JSON_FAULT_DEPTH] = {EVENT_TOO_DEEP, "nested too deep"},
    [JSON_FAULT_ELEMENTS] = {EVENT_TOO_COMPLEX, "too many members and elements"},
    [JSON_FAULT_GAP] = {EVENT_TOO_COMPLEX, "too much white space"},
    [JSON_FAULT_NUMBER_RANGE] = {EVENT_TOO_COMPLEX, "a number too long"},
};

/* Says where, never what stands there: it may be a token. */
static bool json_fault_at(struct decoder *decoder, enum event_reason reason, const char *what, size_t at) {
    char detail[96];
    snprintf(detail, sizeof detail, "%s, at byte %zu", what, at);
    return event_fault_text(decoder, reason, detail);
}

static bool parser_fault(struct decoder *decoder, const json_error_t *error, bool is_position_known) {
    enum json_error_code code = json_error_code(error);
    enum event_reason reason = code == json_error_duplicate_key  ? EVENT_DUPLICATE_MEMBER
                               : code == json_error_invalid_utf8 ? EVENT_INVALID_ENCODING
                                                                 : EVENT_INVALID_JSON;
    const char *what = code == json_error_duplicate_key             ? "a member's name stands twice"
                       : code == json_error_premature_end_of_input  ? "the text ends early"
                       : code == json_error_end_of_input_expected   ? "text behind the end"
                                                                    : "not JSON";
    if (is_position_known && error->position >= 0)
        return json_fault_at(decoder, reason, what, (size_t)error->position);
    return event_fault_text(decoder, reason, what);
}

static json_t *load(const char *text, size_t size, json_error_t *error) {
    return json_loadb(text, size, JSON_REJECT_DUPLICATES, error);
}

static void *parser_memory(size_t size) {
    return memory_or_exit(malloc(size));
}

void event_prepare(void) {
    json_set_alloc_funcs(parser_memory, free);
}

/* A JSON object, checked, every odd number quoted. */
static bool parse_object(struct decoder *decoder, const char *text, size_t size, json_t **ret_root) {
    const struct json_bounds bounds = {
        .depth = decoder->limits->depth,
        .elements = decoder->limits->elements,
        .gap_bytes = decoder->limits->gap_bytes,
    };
    struct json_check check;
    if (!json_text_check(text, size, &bounds, &check))
        return json_fault_at(decoder, fault_rows[check.fault].reason, fault_rows[check.fault].detail, check.fault_at);

    json_error_t error;
    if (check.odd_numbers == 0) {
        *ret_root = load(text, size, &error);
    } else {
        struct buf quoted = BUF_INIT;
        json_text_quote_numbers(text, size, &quoted);
        *ret_root = load(quoted.data, quoted.size, &error);
        token_wipe(quoted.data, quoted.size);
        buf_release(&quoted);
    }
    if (*ret_root == NULL)
        return parser_fault(decoder, &error, check.odd_numbers == 0);
    if (!json_is_object(*ret_root))
        return event_fault_text(decoder, EVENT_INVALID_JSON, "the top level is not an object");
    return true;
}

/* ---- structured mode ---- */

static bool read_attribute(struct decoder *decoder, const json_t *root, const char *name, struct slice *ret) {
    const json_t *value = json_object_get(root, name);
    if (value == NULL || json_is_null(value)) /* null stands for an absent attribute, says CloudEvents */
        return true;
    return event_take_text(value, ret) || event_fault_text(decoder, EVENT_INVALID_ATTRIBUTE, name);
}

static bool read_attributes(struct decoder *decoder, const json_t *root) {
    struct attributes *attributes = &decoder->attributes;
    event_take_text(json_object_get(root, "traceparent"), &attributes->traceparent);
    const json_t *time = json_object_get(root, "time");
    if (time != NULL && !json_is_null(time) && !event_take_text(time, &attributes->time))
        attributes->time = (struct slice){.data = ""}; /* no time at all: found later, when the event is identified */
    return read_attribute(decoder, root, "specversion", &attributes->specversion) &&
           read_attribute(decoder, root, "id", &attributes->id) &&
           read_attribute(decoder, root, "source", &attributes->source) &&
           read_attribute(decoder, root, "type", &attributes->type) &&
           read_attribute(decoder, root, "subject", &attributes->subject);
}

/* What is wrong with the envelope although the event is identified. */
static bool check_envelope(struct decoder *decoder, const json_t *root) {
    struct slice media;
    const json_t *type = json_object_get(root, "datacontenttype");
    if (type != NULL && !json_is_null(type) && (!event_take_text(type, &media) || !event_is_json_media(media)))
        return event_fault_text(decoder, EVENT_WRONG_TYPE, "datacontenttype");
    if (json_object_get(root, "data_base64") != NULL)
        return event_fault_text(decoder, EVENT_WRONG_TYPE, "data_base64");
    return true;
}

/* ---- digest ---- */

static void append_with_nul(struct buf *buf, struct slice text) {
    buf_append(buf, text.data, text.size);
    buf_append_byte(buf, '\0');
}

static int append_dump(const char *bytes, size_t size, void *buf) {
    buf_append(buf, bytes, size);
    return 0;
}

/* Over the sorted compact form, so that white space, order, escapes and mode make no other event of it. */
static void make_digest(struct decoder *decoder, const json_t *data) {
    struct buf bytes = BUF_INIT;
    buf_reserve(&bytes, decoder->message->value_size + 256);
    append_with_nul(&bytes, decoder->attributes.type);
    append_with_nul(&bytes, decoder->attributes.subject);
    /* It sorts in memory of its own: half a text would make another event of it. */
    if (data != NULL && json_dump_callback(data, append_dump, &bytes, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) != 0)
        memory_or_exit(NULL);
    unsigned char digest[EVP_MAX_MD_SIZE];
    int is_done = EVP_Digest(bytes.data, bytes.size, digest, NULL, EVP_sha256(), NULL);
    assert(is_done == 1);
    (void)is_done;
    memcpy(decoder->command->digest, digest, sizeof decoder->command->digest);
    token_wipe(bytes.data, bytes.size);
    buf_release(&bytes);
}

/* ---- the whole ---- */

static bool decode_data(struct decoder *decoder, json_t *data, struct slice text) {
    if (data == NULL)
        return event_fault_text(decoder, EVENT_MISSING, "data");
    if (!json_is_object(data))
        return event_fault_text(decoder, EVENT_WRONG_TYPE, "data");
    return event_read_members(decoder, data, text);
}

static bool decode_binary(struct decoder *decoder, json_t **ret_root) {
    const struct message *message = decoder->message;
    if (!event_read_headers(decoder) || !event_identify(decoder) ||
        !parse_object(decoder, message->value, message->value_size, ret_root))
        return false;
    make_digest(decoder, *ret_root);
    struct slice text = {.data = message->value, .size = message->value_size};
    return event_check_identified(decoder) && decode_data(decoder, *ret_root, text);
}

static bool decode_structured(struct decoder *decoder, enum event_mode mode, json_t **ret_root) {
    const struct message *message = decoder->message;
    if (!parse_object(decoder, message->value, message->value_size, ret_root))
        return false;
    if (mode == EVENT_MODE_UNDECLARED && json_object_get(*ret_root, "specversion") == NULL)
        return event_fault_text(decoder, EVENT_NOT_CLOUDEVENTS, "neither ce_* headers nor a member specversion");
    if (!read_attributes(decoder, *ret_root) || !event_identify(decoder))
        return false;
    json_t *data = json_object_get(*ret_root, "data");
    make_digest(decoder, data);
    if (!event_check_identified(decoder) || !check_envelope(decoder, *ret_root))
        return false;
    struct json_member member = {0};
    if (data != NULL && !json_text_find_member(message->value, message->value_size, "data", &member))
        return event_fault_text(decoder, EVENT_NOT_ALLOWED_CHARACTERS, "data"); /* its name was written with escapes */
    return decode_data(decoder, data, (struct slice){.data = member.value, .size = member.value_size});
}

static bool decode(struct decoder *decoder, json_t **ret_root) {
    enum event_mode mode;
    if (!event_check_framing(decoder) || !event_find_mode(decoder, &mode))
        return false;
    return mode == EVENT_MODE_BINARY ? decode_binary(decoder, ret_root) : decode_structured(decoder, mode, ret_root);
}

static void wipe_token(const json_t *object) {
    const json_t *token = json_object_get(object, "token");
    if (json_is_string(token))
        token_wipe((char *)(uintptr_t)json_string_value(token), json_string_length(token));
}

/* The parser's copies of the tokens: their memory goes back to malloc, and may come up anywhere. */
static void wipe_tokens(const json_t *root) {
    const json_t *member = json_object_get(root, "data");
    const json_t *data = member != NULL ? member : root;
    wipe_token(data);
    const json_t *items = json_object_get(data, "items");
    for (size_t i = 0; i < json_array_size(items); i++)
        wipe_token(json_array_get(items, i));
}

static void begin_command(struct command *command, const struct message *message) {
    *command = (struct command){.partition = message->partition, .offset = message->offset};
    command_say_nothing(command);
    /* Room for nearly every command in one piece: its texts are parts of the record's. */
    size_t topic_size = strlen(message->topic);
    size_t value_size = message->value_size < 4096 ? message->value_size : 4096;
    command_reserve(command, topic_size + value_size + 512);
    command->topic = command_copy(command, message->topic, topic_size);
}

bool event_decode(const struct message *message, const struct event_limits *limits, struct command *ret_command) {
    assert(limits->depth <= EVENT_DEPTH_MAX);
    begin_command(ret_command, message);
    struct decoder decoder = {.message = message, .limits = limits, .command = ret_command};
    json_t *root = NULL;
    bool is_accepted = decode(&decoder, &root);
    wipe_tokens(root);
    json_decref(root);
    if (!is_accepted)
        command_say_nothing(ret_command);
    if (ret_command->verdict == EVENT_DEAD_LETTER)
        command_to_dead_letter(ret_command, message, ret_command->reason, ret_command->field);
    return is_accepted;
}
