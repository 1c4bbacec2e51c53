/* What the C code makes of messages, for tests in Python to compare with the schemas.
 *
 *   message_probe topics            the table of topics, one JSON object a line
 *   message_probe names             outcomes, states, commands, reasons, limits: one JSON object
 *   message_probe event             reads messages, one JSON object a line; prints each one's decoding
 *   message_probe record            reads journal rows; prints the records that each one gives
 *
 * Bytes are hexadecimal in both directions. Test program: it ends at the first thing it does not understand. */
#include "common/event.h"
#include "common/record.h"
#include "common/topics.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define TEST_KEY "0123456789abcdef0123456789abcdef"

static void give_up(const char *what) {
    fprintf(stderr, "message_probe: %s\n", what);
    exit(64);
}

/* ---- bytes ---- */

struct bytes {
    uint8_t *data; /* NULL: null */
    size_t size;
};

static struct bytes from_hex(const json_t *value) {
    if (value == NULL || json_is_null(value))
        return (struct bytes){0};
    size_t digits = json_string_length(value);
    struct bytes bytes = {.data = memory_alloc(digits / 2 + 1), .size = digits / 2};
    for (size_t i = 0; i < bytes.size; i++) {
        unsigned byte;
        if (sscanf(json_string_value(value) + 2 * i, "%2x", &byte) != 1)
            give_up("not hexadecimal");
        bytes.data[i] = (uint8_t)byte;
    }
    return bytes;
}

static json_t *to_hex(const void *data, size_t size) {
    if (data == NULL)
        return json_null();
    struct buf text = BUF_INIT;
    for (size_t i = 0; i < size; i++)
        buf_appendf(&text, "%02x", ((const uint8_t *)data)[i]);
    json_t *hex = json_string(buf_text(&text));
    buf_release(&text);
    return hex;
}

static json_t *text_or_null(const char *text) {
    return text == NULL ? json_null() : json_string(text);
}

static json_t *number_or_null(int64_t number) {
    return number == COMMAND_ABSENT ? json_null() : json_integer(number);
}

static json_t *list_of(const char *const *texts, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_string(texts[i]));
    return list;
}

static json_t *headers_of(const struct message_header *headers, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("[so]", headers[i].name, to_hex(headers[i].value, headers[i].value_size)));
    return list;
}

static void print(json_t *line) {
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(line);
}

/* ---- topics, names ---- */

static void print_topics(void) {
    for (unsigned i = 0; i < TOPIC_COUNT; i++) {
        const struct topic *topic = topic_get((enum topic_id)i);
        json_t *configs = json_object();
        for (size_t c = 0; c < TOPIC_CONFIGS_MAX && topic->configs[c].name != NULL; c++)
            json_object_set_new(configs, topic->configs[c].name, json_string(topic->configs[c].value));
        print(json_pack("{sssbsisosssssb}", "name", topic->name, "input", (int)topic->is_input, "partitions",
                        (int)topic->partitions, "configs", configs, "key", topic->key, "contents", topic->contents,
                        "secret", (int)topic->is_secret));
    }
}

static json_t *reasons_of(enum event_verdict verdict) {
    json_t *list = json_array();
    for (unsigned i = EVENT_REASON_NONE + 1; i < EVENT_REASON_COUNT; i++)
        if (event_reason_verdict((enum event_reason)i) == verdict)
            json_array_append_new(list, json_string(event_reason_name((enum event_reason)i)));
    return list;
}

static void print_names(void) {
    json_t *outcomes = json_array();
    for (unsigned i = 0; i < LEASE_OUTCOME_COUNT; i++)
        json_array_append_new(outcomes, json_string(lease_outcome_name((enum lease_outcome)i)));
    json_t *states = json_array();
    for (unsigned i = 0; i < LEASE_STATE_COUNT; i++)
        json_array_append_new(states, json_string(lease_state_name((enum lease_state)i)));
    json_t *commands = json_array();
    for (unsigned i = 0; i < LEASE_COMMAND_COUNT; i++)
        json_array_append_new(commands, json_string(lease_command_name((enum lease_command)i)));
    json_t *limits = json_pack(
        "{sIsIsIsIsIsIsIsIsIsIsI}", "fence", (json_int_t)LEASE_FENCE_MAX, "id", (json_int_t)LEASE_ID_MAX, "message_id",
        (json_int_t)LEASE_MESSAGE_ID_MAX, "step", (json_int_t)LEASE_STEP_MAX, "reason", (json_int_t)LEASE_REASON_MAX,
        "resources", (json_int_t)LEASE_RESOURCES_MAX, "items", (json_int_t)LEASE_ITEMS_MAX, "tables", (json_int_t)LEASE_TABLES_MAX, "ttl_ms",
        (json_int_t)LEASE_TTL_MS_MAX, "wait_ms", (json_int_t)LEASE_WAIT_MS_MAX, "delay_ms", (json_int_t)LEASE_DELAY_MS_MAX);
    print(json_pack("{sosososososo}", "outcomes", outcomes, "states", states, "commands", commands, "dead_letter",
                    reasons_of(EVENT_DEAD_LETTER), "malformed", reasons_of(EVENT_MALFORMED), "limits", limits));
}

/* ---- events ---- */

enum { HEADERS_MAX = 256 };

static json_t *describe_item(const struct command_item *item) {
    char claim_id[CLAIM_ID_TEXT_SIZE];
    json_t *object = json_object();
    json_object_set_new(object, "lease", text_or_null(item->lease));
    json_object_set_new(object, "fence", number_or_null(item->fence));
    json_object_set_new(object, "claim_id", json_string(claim_id_format(&item->claim_id, claim_id)));
    json_object_set_new(object, "amount", number_or_null(item->amount));
    json_object_set_new(object, "word", text_or_null(item->word));
    json_object_set_new(object, "flag", number_or_null(item->flag));
    json_object_set_new(object, "payload", text_or_null(item->payload));
    return object;
}

static json_t *describe(const struct command *command) {
    char claim_id[CLAIM_ID_TEXT_SIZE];
    const char *verdict = event_verdict_name(command->verdict);
    json_t *object = json_object();
    json_object_set_new(object, "verdict", json_string(verdict == NULL ? "accepted" : verdict));
    json_object_set_new(object, "reason", text_or_null(event_reason_name(command->reason)));
    json_object_set_new(object, "field", text_or_null(command->field));
    json_object_set_new(object, "kind", text_or_null(command->kind));
    json_object_set_new(object, "command",
                        text_or_null(command->kind == NULL ? NULL : lease_command_name(command->command)));
    json_object_set_new(object, "subject", text_or_null(command->subject));
    json_object_set_new(object, "source", text_or_null(command->source));
    json_object_set_new(object, "id", text_or_null(command->message_id));
    json_object_set_new(object, "digest", to_hex(command->digest, sizeof command->digest));
    json_object_set_new(object, "traceparent", text_or_null(command->traceparent));
    json_object_set_new(object, "holder", text_or_null(command->holder));
    json_object_set_new(object, "fence", number_or_null(command->fence));
    json_object_set_new(object, "claim_id",
                        command->has_claim_id ? json_string(claim_id_format(&command->claim_id, claim_id)) : json_null());
    json_object_set_new(object, "ttl_ms", number_or_null(command->ttl_ms));
    json_object_set_new(object, "amount", number_or_null(command->amount));
    json_object_set_new(object, "refresh", number_or_null(command->refresh));
    json_object_set_new(object, "wait_ms", number_or_null(command->wait_ms));
    json_object_set_new(object, "word", text_or_null(command->word));
    json_object_set_new(object, "flag", number_or_null(command->flag));
    json_object_set_new(object, "resources", list_of(command->resources, command->resource_count));
    json_object_set_new(object, "tables", list_of(command->tables, command->table_count));
    json_object_set_new(object, "payload", text_or_null(command->payload));
    json_t *items = json_array();
    for (size_t i = 0; i < command->item_count; i++)
        json_array_append_new(items, describe_item(&command->items[i]));
    json_object_set_new(object, "items", items);
    return object;
}

static void decode_line(const json_t *line) {
    struct message_header headers[HEADERS_MAX];
    struct bytes values[HEADERS_MAX];
    struct bytes key = from_hex(json_object_get(line, "key"));
    struct bytes value = from_hex(json_object_get(line, "value"));
    const json_t *list = json_object_get(line, "headers");
    size_t count = json_array_size(list);
    if (count > HEADERS_MAX)
        give_up("too many headers");
    for (size_t i = 0; i < count; i++) {
        const json_t *name = json_array_get(json_array_get(list, i), 0);
        values[i] = from_hex(json_array_get(json_array_get(list, i), 1));
        headers[i] = (struct message_header){.name = json_string_value(name),
                                             .name_size = json_string_length(name),
                                             .value = values[i].data,
                                             .value_size = values[i].size};
    }
    struct message message = {.topic = "settlement.events",
                              .key = key.data,
                              .key_size = key.size,
                              .value = value.data,
                              .value_size = value.size,
                              .headers = headers,
                              .header_count = count};
    struct event_limits limits = event_limits_default();
    struct command command;
    event_decode(&message, &limits, &command);
    print(describe(&command));
    command_release(&command);
    for (size_t i = 0; i < count; i++)
        free(values[i].data);
    free(key.data);
    free(value.data);
}

/* ---- records ---- */

struct text_field {
    const char *name;
    size_t offset;
};
#define TEXT(member) {#member, offsetof(struct journal_row, member)}
static const struct text_field text_fields[] = {
    TEXT(event),  TEXT(kind),   TEXT(subject), TEXT(command),      TEXT(source), TEXT(message_id), TEXT(traceparent), TEXT(origin_topic),
    TEXT(holder), TEXT(state),  TEXT(step),    TEXT(reason),       TEXT(field),  TEXT(blocker),    TEXT(original),    TEXT(payload),
};
static const struct text_field number_fields[] = {
    TEXT(number),   TEXT(at_us),          TEXT(origin_partition), TEXT(origin_offset), TEXT(fence),  TEXT(since_us),
    TEXT(min_fence), TEXT(lease_until_us), TEXT(attempt),          TEXT(amount),        TEXT(refresh), TEXT(previous_number),
};

static struct journal_row read_row(const json_t *line) {
    struct journal_row row = JOURNAL_ROW_INIT;
    for (size_t i = 0; i < LENGTH(text_fields); i++) {
        const json_t *value = json_object_get(line, text_fields[i].name);
        if (value != NULL)
            *(const char **)((char *)&row + text_fields[i].offset) = json_string_value(value);
    }
    for (size_t i = 0; i < LENGTH(number_fields); i++) {
        const json_t *value = json_object_get(line, number_fields[i].name);
        if (value != NULL)
            *(int64_t *)((char *)&row + number_fields[i].offset) = json_integer_value(value);
    }
    const json_t *claim_id = json_object_get(line, "claim_id");
    if (claim_id != NULL)
        row.has_claim_id = claim_id_parse(json_string_value(claim_id), json_string_length(claim_id), &row.claim_id);
    row.changes_lease = json_is_true(json_object_get(line, "changes_lease"));
    row.is_grant = json_is_true(json_object_get(line, "is_grant"));
    return row;
}

static json_t *describe_record(const struct record *record, bool is_there) {
    if (!is_there)
        return json_null();
    return json_pack("{sssososo}", "topic", topic_get(record->topic)->name, "key", to_hex(record->key, record->key_size),
                     "value", to_hex(record->value, record->value_size), "headers",
                     headers_of(record->headers, record->header_count));
}

static void encode_line(const json_t *line, const struct token_keys *keys) {
    struct journal_row row = read_row(line);
    struct bytes raw_key = from_hex(json_object_get(line, "raw_key"));
    struct bytes raw_value = from_hex(json_object_get(line, "raw_value"));
    struct bytes raw_headers = from_hex(json_object_get(line, "raw_headers"));
    row.raw_key = raw_key.data;
    row.raw_key_size = raw_key.size;
    row.raw_value = raw_value.data;
    row.raw_value_size = raw_value.size;
    row.raw_headers = raw_headers.data;
    row.raw_headers_size = raw_headers.size;

    struct mark mark = {.epoch = 7, .number = row.number, .fence = 3, .system_identifier = "7300000000000000001", .timeline = 1};
    struct record record;
    record_init(&record);
    json_t *object = json_object();
    json_object_set_new(object, "result", describe_record(&record, record_encode_result(&record, &row, 7)));
    json_object_set_new(object, "grant", describe_record(&record, record_encode_grant(&record, &row, 7, keys)));
    json_object_set_new(object, "state", describe_record(&record, record_encode_state(&record, &row, 7)));
    json_object_set_new(object, "dead_letter", describe_record(&record, record_encode_dead_letter(&record, &row, 7)));
    record_encode_mark(&record, TOPIC_STATE, &mark, "lease.results", 3);
    json_object_set_new(object, "mark", describe_record(&record, true));
    print(object);
    record_release(&record);
    free(raw_key.data);
    free(raw_value.data);
    free(raw_headers.data);
}

/* ---- lines ---- */

static json_t *read_line(void) {
    static char *line;
    static size_t capacity;
    ssize_t size = getline(&line, &capacity, stdin);
    if (size < 0) {
        free(line);
        line = NULL;
        return NULL;
    }
    json_t *object = json_loadb(line, (size_t)size, JSON_ALLOW_NUL, NULL);
    if (object == NULL)
        give_up("a line is not JSON");
    return object;
}

static void decode_lines(void) {
    for (json_t *line = read_line(); line != NULL; line = read_line()) {
        decode_line(line);
        json_decref(line);
    }
}

static void encode_lines(void) {
    struct token_keys *keys;
    struct error error;
    if (!token_keys_new(TEST_KEY, strlen(TEST_KEY), NULL, 0, &keys, &error))
        give_up(error.message);
    for (json_t *line = read_line(); line != NULL; line = read_line()) {
        encode_line(line, keys);
        json_decref(line);
    }
    token_keys_free(keys);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {{"topics", print_topics}, {"names", print_names}, {"event", decode_lines}, {"record", encode_lines}};
    for (size_t i = 0; argc == 2 && i < LENGTH(modes); i++)
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run();
            return 0;
        }
    give_up("topics, names, event or record?");
}
