/* From a record to a command; see event.h. The only file that includes the JSON library.
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
        .elements = EVENT_ELEMENTS_MAX, /* twice the resources of the largest cover */
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

static bool is_number(const json_t *value) {
    return json_is_integer(value) ||
           (json_is_string(value) && json_text_is_quoted_number(json_string_value(value), json_string_length(value)));
}

/* A string that is one, not a quoted number. */
static bool take_text(const json_t *value, struct slice *ret) {
    if (!json_is_string(value) || is_number(value))
        return false;
    *ret = (struct slice){.data = json_string_value(value), .size = json_string_length(value)};
    return true;
}

/* ---- structured mode ---- */

static bool read_attribute(struct decoder *decoder, const json_t *root, const char *name, struct slice *ret) {
    const json_t *value = json_object_get(root, name);
    if (value == NULL || json_is_null(value)) /* null stands for an absent attribute, says CloudEvents */
        return true;
    return take_text(value, ret) || event_fault_text(decoder, EVENT_INVALID_ATTRIBUTE, name);
}

static bool read_attributes(struct decoder *decoder, const json_t *root) {
    struct attributes *attributes = &decoder->attributes;
    take_text(json_object_get(root, "traceparent"), &attributes->traceparent);
    const json_t *time = json_object_get(root, "time");
    if (time != NULL && !json_is_null(time) && !take_text(time, &attributes->time))
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
    if (type != NULL && !json_is_null(type) && (!take_text(type, &media) || !event_is_json_media(media)))
        return event_fault_text(decoder, EVENT_WRONG_TYPE, "datacontenttype");
    if (json_object_get(root, "data_base64") != NULL)
        return event_fault_text(decoder, EVENT_WRONG_TYPE, "data_base64");
    return true;
}

/* ---- members of data ---- */

struct reading {
    struct decoder *decoder;
    struct slice text; /* of the data object, as it came */
};

struct member {
    const char *name;
    bool (*read)(struct reading *reading, const struct member *member, const json_t *value);
    bool is_required;
    size_t offset; /* of the destination in struct command */
    int64_t min;
    int64_t max;
};

static bool fault_of(struct reading *reading, const struct member *member, enum event_reason reason) {
    return event_fault_text(reading->decoder, reason, member->name);
}

static void *destination(struct reading *reading, const struct member *member) {
    return (char *)reading->decoder->command + member->offset;
}

static bool is_integer_text(const char *text) {
    if (*text == '-')
        text++;
    return text[strspn(text, "0123456789")] == '\0';
}

static bool read_integer(struct reading *reading, const struct member *member, const json_t *value) {
    if (!is_number(value))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    if (!json_is_integer(value)) {
        const char *written = json_string_value(value) + 1;
        bool is_large = is_integer_text(written) && strcmp(written, "-0") != 0;
        return fault_of(reading, member, is_large ? EVENT_OUT_OF_RANGE : EVENT_WRONG_TYPE);
    }
    int64_t number = json_integer_value(value);
    if (number < member->min || number > member->max)
        return fault_of(reading, member, EVENT_OUT_OF_RANGE);
    *(int64_t *)destination(reading, member) = number;
    return true;
}

static bool read_boolean(struct reading *reading, const struct member *member, const json_t *value) {
    if (!json_is_boolean(value))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    *(int *)destination(reading, member) = json_is_true(value) ? 1 : 0;
    return true;
}

static bool read_checked(struct reading *reading, const struct member *member, const json_t *value,
                         enum event_reason (*check)(struct slice)) {
    struct slice text;
    if (!take_text(value, &text))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    enum event_reason reason = check(text);
    if (reason != EVENT_REASON_NONE)
        return fault_of(reading, member, reason);
    *(const char **)destination(reading, member) = command_copy(reading->decoder->command, text.data, text.size);
    return true;
}

static bool read_id(struct reading *reading, const struct member *member, const json_t *value) {
    return read_checked(reading, member, value, event_text_id);
}

static bool read_step(struct reading *reading, const struct member *member, const json_t *value) {
    return read_checked(reading, member, value, event_text_step);
}

static bool read_reason(struct reading *reading, const struct member *member, const json_t *value) {
    return read_checked(reading, member, value, event_text_reason);
}

static bool read_claim_id(struct reading *reading, const struct member *member, const json_t *value) {
    struct command *command = reading->decoder->command;
    struct slice text;
    if (!take_text(value, &text) || !claim_id_parse(text.data, text.size, &command->claim_id))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    command->has_claim_id = true;
    return true;
}

static bool read_token(struct reading *reading, const struct member *member, const json_t *value) {
    struct slice text;
    if (!take_text(value, &text) || !token_is_well_formed(text.data, text.size))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    memcpy(reading->decoder->command->token, text.data, text.size);
    reading->decoder->command->token[text.size] = '\0';
    return true;
}

/* The object's own text, so that no number is changed by having been read. */
static bool read_object(struct reading *reading, const struct member *member, const json_t *value) {
    if (!json_is_object(value))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    struct json_member found;
    if (!json_text_find_member(reading->text.data, reading->text.size, member->name, &found))
        return fault_of(reading, member, EVENT_NOT_ALLOWED_CHARACTERS); /* its name was written with escapes */
    struct buf compact = BUF_INIT;
    json_text_compact(found.value, found.value_size, &compact);
    bool fits = compact.size <= LEASE_PAYLOAD_MAX;
    if (fits)
        *(const char **)destination(reading, member) =
            command_copy(reading->decoder->command, buf_text(&compact), compact.size);
    buf_release(&compact);
    return fits || fault_of(reading, member, EVENT_TOO_LONG);
}

/* ---- lists of names ---- */

struct list {
    const char **items;
    size_t count;
};

static bool fault_at_item(struct reading *reading, const struct member *member, enum event_reason reason, size_t i) {
    char field[64];
    snprintf(field, sizeof field, "%s[%zu]", member->name, i);
    return event_fault_text(reading->decoder, reason, field);
}

static int compare_items(const void *left, const void *right) {
    const char *const *a = *(const char *const *const *)left;
    const char *const *b = *(const char *const *const *)right;
    int order = strcmp(*a, *b);
    return order != 0 ? order : (a > b) - (a < b);
}

/* The index of the first item that stands before it already; `count` if all are distinct. Sorts pointers to the items,
 * so equal ones are neighbours in their order. */
static size_t first_repeated(const struct list *list) {
    const char ***sorted = memory_alloc_array(list->count, sizeof *sorted);
    for (size_t i = 0; i < list->count; i++)
        sorted[i] = &list->items[i];
    qsort(sorted, list->count, sizeof *sorted, compare_items);
    size_t first = list->count;
    for (size_t i = 1; i < list->count; i++) {
        size_t index = (size_t)(sorted[i] - list->items);
        if (index < first && strcmp(*sorted[i], *sorted[i - 1]) == 0)
            first = index;
    }
    free(sorted);
    return first;
}

static bool read_list(struct reading *reading, const struct member *member, const json_t *value,
                      enum event_reason (*check)(struct slice), struct list *ret_list) {
    struct command *command = reading->decoder->command;
    if (!json_is_array(value))
        return fault_of(reading, member, EVENT_WRONG_TYPE);
    size_t count = json_array_size(value);
    if (count == 0)
        return fault_of(reading, member, EVENT_EMPTY);
    if (count > (size_t)member->max)
        return fault_of(reading, member, EVENT_TOO_MANY);
    struct list list = {.items = command_take(command, count * sizeof(char *)), .count = count};
    for (size_t i = 0; i < count; i++) {
        struct slice text;
        if (!take_text(json_array_get(value, i), &text))
            return fault_at_item(reading, member, EVENT_WRONG_TYPE, i);
        enum event_reason reason = check(text);
        if (reason != EVENT_REASON_NONE)
            return fault_at_item(reading, member, reason, i);
        list.items[i] = command_copy(command, text.data, text.size);
    }
    size_t repeated = first_repeated(&list);
    if (repeated < count)
        return fault_at_item(reading, member, EVENT_REPEATED, repeated);
    *ret_list = list;
    return true;
}

static bool read_resources(struct reading *reading, const struct member *member, const json_t *value) {
    struct list list;
    if (!read_list(reading, member, value, event_text_resource, &list))
        return false;
    reading->decoder->command->resources = list.items;
    reading->decoder->command->resource_count = list.count;
    return true;
}

static bool read_tables(struct reading *reading, const struct member *member, const json_t *value) {
    struct list list;
    if (!read_list(reading, member, value, event_text_table, &list))
        return false;
    reading->decoder->command->tables = list.items;
    reading->decoder->command->table_count = list.count;
    return true;
}

/* ---- the members of each command ---- */

#define AT(member) offsetof(struct command, member)
#define HOLDER {"holder", read_id, true, AT(holder), 0, 0}
#define TTL {"ttl_ms", read_integer, false, AT(ttl_ms), 1, LEASE_TTL_MS_MAX}
/* What only the holder of a grant knows. */
#define GRANT                                                                                                          \
    HOLDER, {"fence", read_integer, true, AT(fence), 1, LEASE_FENCE_MAX},                                              \
        {"claim_id", read_claim_id, true, AT(claim_id), 0, 0}, {"token", read_token, true, AT(token), 0, 0}
#define COUNT(name, where, is_required) {name, read_integer, is_required, AT(where), 0, LEASE_FENCE_MAX}
#define DELAY {"delay_ms", read_integer, false, AT(amount), 0, LEASE_DELAY_MS_MAX}
#define OBJECT(name) {name, read_object, false, AT(payload), 0, 0}

static const struct member start_members[] = {
    HOLDER, TTL,
    {"resources", read_resources, false, AT(resources), 1, LEASE_RESOURCES_MAX},
    {"more", read_boolean, false, AT(flag), 0, 0},
    {"tables", read_tables, false, AT(tables), 1, LEASE_TABLES_MAX},
    OBJECT("payload"),
};
static const struct member cover_members[] = {
    GRANT, {"resources", read_resources, true, AT(resources), 1, LEASE_RESOURCES_MAX},
};
static const struct member begin_members[] = {GRANT, COUNT("count", amount, true)};
static const struct member request_members[] = {OBJECT("payload"), DELAY};
static const struct member claim_members[] = {
    {"holder", read_id, false, AT(holder), 0, 0},
    COUNT("credit_total", amount, true),
    COUNT("refresh", refresh, true),
    {"wait_ms", read_integer, false, AT(wait_ms), 0, LEASE_WAIT_MS_MAX},
    TTL,
};
static const struct member renew_members[] = {GRANT, TTL};
static const struct member advance_members[] = {GRANT, {"step", read_step, true, AT(word), 0, 0}};
static const struct member finish_members[] = {GRANT, OBJECT("result")};
static const struct member fail_members[] = {
    GRANT, {"reason", read_reason, true, AT(word), 0, 0}, {"retry", read_boolean, false, AT(flag), 0, 0}, DELAY,
};
static const struct member release_members[] = {GRANT};

/* What stands between members, and defaults. */
static bool finish_start(struct reading *reading) {
    struct command *command = reading->decoder->command;
    if (command->flag < 0)
        command->flag = 0;
    if (command->table_count > 0 && command->flag == 0)
        return event_fault_text(reading->decoder, EVENT_MISSING, "more");
    return true;
}

static bool finish_claim(struct reading *reading) {
    struct command *command = reading->decoder->command;
    if (command->holder == NULL)
        command->holder = command->subject;
    return strcmp(command->holder, command->subject) == 0 ||
           event_fault_text(reading->decoder, EVENT_KEY_MISMATCH, "holder");
}

static bool finish_fail(struct reading *reading) {
    struct command *command = reading->decoder->command;
    if (command->flag < 0)
        command->flag = 1;
    return true;
}

struct members {
    const struct member *rows;
    size_t count;
    bool (*finish)(struct reading *reading); /* NULL: nothing more */
};
#define ROWS(rows) rows, sizeof rows / sizeof *rows
static const struct members members_of[LEASE_COMMAND_COUNT] = {
    [LEASE_COMMAND_START] = {ROWS(start_members), finish_start},
    [LEASE_COMMAND_COVER] = {ROWS(cover_members), NULL},
    [LEASE_COMMAND_BEGIN] = {ROWS(begin_members), NULL},
    [LEASE_COMMAND_REQUEST] = {ROWS(request_members), NULL},
    [LEASE_COMMAND_CLAIM] = {ROWS(claim_members), finish_claim},
    [LEASE_COMMAND_RENEW] = {ROWS(renew_members), NULL},
    [LEASE_COMMAND_ADVANCE] = {ROWS(advance_members), NULL},
    [LEASE_COMMAND_FINISH] = {ROWS(finish_members), NULL},
    [LEASE_COMMAND_FAIL] = {ROWS(fail_members), finish_fail},
    [LEASE_COMMAND_RELEASE] = {ROWS(release_members), NULL},
};
enum { MEMBERS_MAX = 8 };

static size_t find_member(const struct members *members, const char *name) {
    for (size_t i = 0; i < members->count; i++)
        if (strcmp(members->rows[i].name, name) == 0)
            return i;
    return members->count;
}

/* Unknown names come first: a misspelt one explains the one that is missing. */
static bool read_members(struct reading *reading, json_t *data) {
    struct decoder *decoder = reading->decoder;
    const struct members *members = &members_of[decoder->command->command];
    const json_t *found[MEMBERS_MAX] = {NULL};
    assert(members->count <= MEMBERS_MAX);
    for (void *at = json_object_iter(data); at != NULL; at = json_object_iter_next(data, at)) {
        const char *name = json_object_iter_key(at);
        size_t i = find_member(members, name);
        if (i == members->count)
            return event_fault_text(decoder, EVENT_UNKNOWN_MEMBER, name);
        found[i] = json_object_iter_value(at);
    }
    for (size_t i = 0; i < members->count; i++) {
        const struct member *member = &members->rows[i];
        if (found[i] != NULL && !member->read(reading, member, found[i]))
            return false;
        if (found[i] == NULL && member->is_required)
            return fault_of(reading, member, EVENT_MISSING);
    }
    return members->finish == NULL || members->finish(reading);
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
    if (data != NULL)
        json_dump_callback(data, append_dump, &bytes, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
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
    struct reading reading = {.decoder = decoder, .text = text};
    return read_members(&reading, data);
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
    json_text_find_member(message->value, message->value_size, "data", &member);
    return decode_data(decoder, data, (struct slice){.data = member.value, .size = member.value_size});
}

static bool decode(struct decoder *decoder, json_t **ret_root) {
    enum event_mode mode;
    if (!event_check_framing(decoder) || !event_find_mode(decoder, &mode))
        return false;
    return mode == EVENT_MODE_BINARY ? decode_binary(decoder, ret_root) : decode_structured(decoder, mode, ret_root);
}

/* The parser's copy of the token: its memory goes back to malloc, and may come up anywhere. */
static void wipe_token(json_t *root) {
    json_t *data = json_object_get(root, "data");
    json_t *token = json_object_get(data != NULL ? data : root, "token");
    if (json_is_string(token))
        token_wipe((char *)(uintptr_t)json_string_value(token), json_string_length(token));
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
    wipe_token(root);
    json_decref(root);
    if (!is_accepted)
        command_say_nothing(ret_command);
    if (ret_command->verdict == EVENT_DEAD_LETTER)
        command_to_dead_letter(ret_command, message, ret_command->reason, ret_command->field);
    return is_accepted;
}
