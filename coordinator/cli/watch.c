/* Output topics as leasectl reads them; see watch.h. */
#include "coordinator/cli/watch.h"

#include "common/kafka_reader.h"
#include "common/lease.h"
#include "common/record.h"
#include "coordinator/cli/text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* How long a broker may take to say how many partitions a topic has. */
enum { METADATA_MS = 5000 };

struct watched {
    enum topic_id topic;
    int32_t partition;
    int64_t last_number;
    bool has_ended;
};

struct watch {
    struct kafka_reader *reader;
    const char *prefix;
    struct buf names[TOPIC_COUNT]; /* full ones of the topics watched */
    struct watched *partitions;
    size_t count, ended;
    bool is_caught_up;
    struct document *value; /* of the last record */
    struct buf time, type;
};

void watch_free(struct watch *watch) {
    if (watch == NULL)
        return;
    kafka_reader_free(watch->reader);
    for (size_t i = 0; i < TOPIC_COUNT; i++)
        buf_release(&watch->names[i]);
    free(watch->partitions);
    document_free(watch->value);
    buf_release(&watch->time);
    buf_release(&watch->type);
    free(watch);
}

static bool add_topic(struct watch *watch, enum topic_id topic, struct error *error) {
    int32_t partitions = 0;
    topic_full_name(&watch->names[topic], watch->prefix, topic);
    if (!kafka_reader_partition_count(watch->reader, buf_text(&watch->names[topic]), METADATA_MS, &partitions, error))
        return false;
    watch->partitions =
        memory_resize(watch->partitions, watch->count + (size_t)partitions, sizeof *watch->partitions);
    for (int32_t i = 0; i < partitions; i++)
        watch->partitions[watch->count++] = (struct watched){.topic = topic, .partition = i};
    return true;
}

static bool assign(struct watch *watch, bool from_end, struct error *error) {
    struct kafka_partition *wanted = memory_alloc_array(watch->count, sizeof *wanted);
    for (size_t i = 0; i < watch->count; i++)
        wanted[i] = (struct kafka_partition){buf_text(&watch->names[watch->partitions[i].topic]),
                                             watch->partitions[i].partition,
                                             from_end ? KAFKA_OFFSET_END : KAFKA_OFFSET_BEGINNING};
    bool is_ok = kafka_reader_assign(watch->reader, wanted, watch->count, error);
    free(wanted);
    return is_ok;
}

bool watch_open(struct cli *cli, const enum topic_id *topics, size_t count, bool from_end, struct watch **ret_watch,
                struct error *error) {
    struct kafka_settings settings;
    if (!cli_get_kafka(cli, &settings, error))
        return false;
    struct watch *watch = memory_alloc(sizeof *watch);
    const struct kafka_reader_options options = {.settings = &settings, .group = cli_group(cli)};
    watch->prefix = cli_topic_prefix(cli);
    bool is_ok = kafka_reader_new(&options, &watch->reader, error);
    for (size_t i = 0; i < count && is_ok; i++)
        is_ok = add_topic(watch, topics[i], error);
    if (!is_ok || !assign(watch, from_end, error)) {
        watch_free(watch);
        return false;
    }
    *ret_watch = watch;
    return true;
}

/* ---- one message ---- */

static const struct message_header *find_header(const struct message *message, const char *name) {
    for (size_t i = 0; i < message->header_count; i++)
        if (message->headers[i].name_size == strlen(name) &&
            memcmp(message->headers[i].name, name, message->headers[i].name_size) == 0)
            return &message->headers[i];
    return NULL;
}

/* The text of a header, in `buf`; "" when there is none. */
static const char *header_text(const struct message *message, const char *name, struct buf *buf) {
    const struct message_header *header = find_header(message, name);
    buf_reset(buf);
    if (header != NULL && header->value != NULL)
        buf_append(buf, header->value, header->value_size);
    return buf_text(buf);
}

static int64_t header_number(const struct message *message, const char *name, int64_t otherwise) {
    struct buf text = BUF_INIT;
    int64_t number = otherwise;
    if (!text_parse_number(header_text(message, name, &text), &number))
        number = otherwise;
    buf_release(&text);
    return number;
}

/* A member "name": text, or "name_base64" when the bytes are no text; left out for NULL. */
static void append_bytes(struct buf *buf, const char *name, const void *bytes, size_t size) {
    if (bytes == NULL)
        return;
    bool is_text = text_is_utf8(bytes, size);
    buf_appendf(buf, ",\"%s%s\":", name, is_text ? "" : "_base64");
    if (is_text) {
        buf_json_string(buf, bytes, size);
        return;
    }
    buf_append_byte(buf, '"');
    text_append_base64(buf, bytes, size);
    buf_append_byte(buf, '"');
}

static bool is_own_header(const struct message_header *header) {
    static const char *const own[] = {"lease_dlq_", "lease_number", "lease_epoch", "kafka_dlt-"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strncmp(header->name, own[i], strlen(own[i])) == 0)
            return true;
    return false;
}

static void append_headers(struct buf *buf, const struct message *message) {
    const char *separator = "";
    buf_append_text(buf, ",\"headers\":[");
    for (size_t i = 0; i < message->header_count; i++) {
        const struct message_header *header = &message->headers[i];
        if (is_own_header(header))
            continue;
        buf_appendf(buf, "%s{\"name\":", separator);
        buf_json_string(buf, header->name, header->name_size);
        append_bytes(buf, "value", header->value, header->value_size);
        buf_append_byte(buf, '}');
        separator = ",";
    }
    buf_append_byte(buf, ']');
}

/* A dead letter carries somebody else's bytes; what we know of it stands in its headers. */
static void describe_dead_letter(const struct message *message, struct buf *json) {
    static const char *const texts[][2] = {
        {"reason", "lease_dlq_reason"}, {"detail", "lease_dlq_detail"}, {"topic", "lease_dlq_topic"}, {"at", "lease_dlq_at"}};
    static const char *const numbers[][2] = {{"partition", "lease_dlq_partition"}, {"offset", "lease_dlq_offset"}};
    struct buf text = BUF_INIT;
    buf_appendf(json, "{\"number\":%lld", (long long)header_number(message, HEADER_NUMBER, 0));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        header_text(message, texts[i][1], &text);
        if (text.size > 0)
            append_bytes(json, texts[i][0], text.data, text.size);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        buf_appendf(json, ",\"%s\":%lld", numbers[i][0], (long long)header_number(message, numbers[i][1], -1));
    buf_appendf(json, ",\"bytes\":%zu", message->value_size);
    append_bytes(json, "key", message->key, message->key_size);
    append_bytes(json, "value", message->value, message->value_size);
    append_headers(json, message);
    buf_append_byte(json, '}');
    buf_release(&text);
}

/* A value that is no JSON object is nothing that the relay writes: shown as what it is. */
static struct document *read_value(const struct message *message, enum topic_id topic) {
    struct document *document = NULL;
    struct error error;
    struct buf json = BUF_INIT;
    if (topic == TOPIC_DEAD_LETTERS) {
        describe_dead_letter(message, &json);
    } else if (message->value != NULL && document_parse(message->value, message->value_size, &document, &error)) {
        if (document_is_object(document))
            return document;
        document_free(document);
    }
    if (json.size == 0) {
        buf_append_text(&json, "{\"unreadable\":true");
        append_bytes(&json, "key", message->key, message->key_size);
        append_bytes(&json, "value", message->value, message->value_size);
        buf_append_byte(&json, '}');
    }
    bool is_made = document_parse(buf_text(&json), json.size, &document, &error);
    buf_release(&json);
    /* Our own text, all of it escaped; only a header's U+0000 can be too much for the parser. */
    return is_made ? document : document_new();
}

static struct watched *find_partition(struct watch *watch, const struct message *message) {
    for (size_t i = 0; i < watch->count; i++)
        if (watch->partitions[i].partition == message->partition &&
            strcmp(buf_text(&watch->names[watch->partitions[i].topic]), message->topic) == 0)
            return &watch->partitions[i];
    return NULL;
}

/* False: a mark, or seen before. */
static bool take_message(struct watch *watch, const struct message *message, struct watch_record *ret_record) {
    struct watched *watched = find_partition(watch, message);
    assert(watched != NULL);
    int64_t number = header_number(message, HEADER_NUMBER, 0);
    if (find_header(message, HEADER_MARK) != NULL || (number > 0 && number <= watched->last_number))
        return false;
    watched->last_number = number > 0 ? number : watched->last_number;
    document_free(watch->value);
    watch->value = read_value(message, watched->topic);
    bool is_dead = watched->topic == TOPIC_DEAD_LETTERS;
    *ret_record = (struct watch_record){
        .topic = watched->topic,
        .number = number,
        .value = watch->value,
        .time = header_text(message, is_dead ? "lease_dlq_at" : "ce_time", &watch->time),
        .type = is_dead ? "" : header_text(message, "ce_type", &watch->type),
    };
    return true;
}

static void note_end(struct watch *watch, const struct message *message) {
    struct watched *watched = find_partition(watch, message);
    if (watched != NULL && !watched->has_ended) {
        watched->has_ended = true;
        watch->ended++;
    }
}

enum watch_event watch_next(struct watch *watch, int timeout_ms, struct watch_record *ret_record, struct error *error) {
    struct message message;
    switch (kafka_reader_poll(watch->reader, timeout_ms, &message, error)) {
    case KAFKA_READ_MESSAGE: return take_message(watch, &message, ret_record) ? WATCH_RECORD : WATCH_NOTHING;
    case KAFKA_READ_END: note_end(watch, &message); break;
    case KAFKA_READ_PARTITION_ERROR: error_prefix(error, "%s/%d", message.topic, message.partition); return WATCH_ERROR;
    case KAFKA_READ_ERROR: return WATCH_ERROR;
    case KAFKA_READ_NOTHING: break;
    }
    if (watch->is_caught_up || watch->ended < watch->count)
        return WATCH_NOTHING;
    watch->is_caught_up = true;
    return WATCH_CAUGHT_UP;
}

/* ---- for people ---- */

static void append_text(struct buf *buf, const char *before, const char *text) {
    if (text == NULL)
        return;
    buf_append_text(buf, before);
    text_append_escaped(buf, text, strlen(text));
}

static void append_number(struct buf *buf, const char *before, const struct document *value, const char *path) {
    int64_t number = 0;
    if (document_number(value, path, &number))
        buf_appendf(buf, "%s%lld", before, (long long)number);
}

/* The floor, where it says more than the fence does. */
static void append_floor(struct buf *buf, const struct document *value) {
    int64_t fence = 0, floor = 0;
    document_number(value, "fence", &fence);
    if (document_number(value, "min_fence", &floor) && floor != fence)
        buf_appendf(buf, "  floor %lld", (long long)floor);
}

static void append_duration(struct buf *buf, const char *before, const struct document *value, const char *path) {
    int64_t ms = 0;
    if (!document_number(value, path, &ms) || ms <= 0) /* what has lapsed has nothing left */
        return;
    buf_append_text(buf, before);
    text_format_duration_ms(ms, buf);
}

/* "2026-11-30T10:29:42.337565Z" → "2026-11-30 10:29:42.337": what a person reads; JSON keeps it whole. */
static void append_time(struct buf *buf, const char *time) {
    enum { SHOWN = 23, SEPARATOR = 10 };
    size_t start = buf->size;
    if (strlen(time) < SHOWN)
        return;
    text_append_escaped(buf, time, SHOWN);
    if (buf->size == start + SHOWN)
        buf->data[start + SEPARATOR] = ' ';
    buf_append_text(buf, "  ");
}

static void append_colored(struct buf *buf, bool colored, const char *color, const char *text) {
    if (colored)
        buf_append_text(buf, color);
    text_append_escaped(buf, text, strlen(text));
    if (colored)
        buf_append_text(buf, "\033[0m");
}

static const char *color_of(const char *outcome_name) {
    enum lease_outcome outcome = LEASE_OUTCOME_COUNT;
    if (!lease_outcome_parse(outcome_name, strlen(outcome_name), &outcome))
        return "\033[35m"; /* an event that answers nobody */
    return lease_outcome_is_refusal(outcome) ? "\033[33m" : "\033[32m";
}

static void append_blocker(struct buf *buf, const struct document *value) {
    if (!document_has(value, "held_by"))
        return;
    append_text(buf, "  held by ", document_text(value, "held_by.holder"));
    append_text(buf, " (", document_text(value, "held_by.kind"));
    append_text(buf, "/", document_text(value, "held_by.lease"));
    append_number(buf, ", fence ", value, "held_by.fence");
    append_text(buf, ", on ", document_text(value, "held_by.resource"));
    buf_append_text(buf, ")");
    append_duration(buf, " for another ", value, "held_by.remaining_ms");
}

/* "settlement.start": the part behind the last dot, or the whole. */
static const char *command_of(const char *type) {
    const char *dot = type ? strrchr(type, '.') : NULL;
    return dot ? dot + 1 : type;
}

static void describe_result(const struct document *value, bool colored, struct buf *buf) {
    const char *outcome = document_text(value, "outcome");
    const char *command = command_of(document_text(value, "command.type"));
    append_text(buf, "", document_text(value, "kind"));
    append_text(buf, "/", document_text(value, "lease"));
    append_text(buf, "  ", command);
    buf_append_text(buf, command ? " → " : "  ");
    append_colored(buf, colored, color_of(outcome ? outcome : ""), outcome ? outcome : "?");
    append_text(buf, "  ", document_text(value, "holder"));
    append_number(buf, "  fence ", value, "fence");
    append_floor(buf, value);
    append_text(buf, "  step ", document_text(value, "step"));
    append_number(buf, "  count ", value, "count");
    append_duration(buf, "  lapses in ", value, "remaining_ms");
    append_blocker(buf, value);
    append_text(buf, "  originally ", document_text(value, "original.outcome"));
    append_text(buf, "  ", document_text(value, "reason"));
    append_text(buf, " in ", document_text(value, "field"));
}

static void describe_grant(const struct document *value, bool colored, struct buf *buf) {
    append_text(buf, "", document_text(value, "kind"));
    append_text(buf, "/", document_text(value, "lease"));
    buf_append_text(buf, "  ");
    append_colored(buf, colored, "\033[32m", "granted");
    append_text(buf, " to ", document_text(value, "holder"));
    append_number(buf, "  fence ", value, "fence");
    append_duration(buf, "  for ", value, "ttl_ms");
    append_number(buf, "  attempt ", value, "attempt");
    append_text(buf, "  claim ", document_text(value, "claim_id"));
}

static void describe_state(const struct document *value, bool colored, struct buf *buf) {
    const char *state = document_text(value, "state");
    append_text(buf, "", document_text(value, "kind"));
    append_text(buf, "/", document_text(value, "lease"));
    buf_append_text(buf, "  ");
    append_colored(buf, colored, "\033[36m", state ? state : "?");
    append_text(buf, "  ", document_text(value, "holder"));
    append_number(buf, "  fence ", value, "fence");
    append_floor(buf, value);
}

static void describe_dead(const struct document *value, bool colored, struct buf *buf) {
    const char *reason = document_text(value, "reason");
    append_colored(buf, colored, "\033[31m", reason ? reason : "?");
    append_text(buf, "  ", document_text(value, "topic"));
    append_number(buf, "/", value, "partition");
    append_number(buf, "@", value, "offset");
    append_number(buf, "  bytes ", value, "bytes");
    append_text(buf, "  ", document_text(value, "detail"));
}

void watch_describe(const struct watch_record *record, bool colored, struct buf *buf) {
    buf_appendf(buf, "#%lld  ", (long long)record->number);
    append_time(buf, record->time);
    if (document_has(record->value, "unreadable")) {
        buf_append_text(buf, "not a record of ours; -o json shows it");
        return;
    }
    switch (record->topic) {
    case TOPIC_GRANTS: describe_grant(record->value, colored, buf); break;
    case TOPIC_STATE: describe_state(record->value, colored, buf); break;
    case TOPIC_DEAD_LETTERS: describe_dead(record->value, colored, buf); break;
    default: describe_result(record->value, colored, buf); break;
    }
}
