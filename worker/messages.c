/* JSON out and in; see messages.h. */
#include "worker/messages.h"

#include "common/event_text.h"
#include "common/json_text.h"
#include "common/token.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- out ---- */

static void put_text(struct buf *data, const char *name, const char *text) {
    buf_appendf(data, "\"%s\":", name);
    buf_json_string(data, text, strlen(text));
}

static void put_number(struct buf *data, const char *name, int64_t number) {
    buf_appendf(data, ",\"%s\":", name);
    buf_append_number(data, number);
}

void messages_write_claim(struct buf *data, uint64_t credit_total, uint64_t refresh, unsigned wait_ms, unsigned ttl_ms) {
    buf_appendf(data, "{\"credit_total\":%llu,\"refresh\":%llu,\"wait_ms\":%u,\"ttl_ms\":%u}",
                (unsigned long long)credit_total, (unsigned long long)refresh, wait_ms, ttl_ms);
}

static void put_texts(struct buf *data, const char *name, const char *const *texts, size_t count) {
    if (count == 0)
        return;
    buf_appendf(data, ",\"%s\":", name);
    for (size_t i = 0; i < count; i++) {
        buf_append_byte(data, i == 0 ? '[' : ',');
        buf_json_string(data, texts[i], strlen(texts[i]));
    }
    buf_append_byte(data, ']');
}

void messages_write_start(struct buf *data, const struct messages_start *start) {
    buf_append_byte(data, '{');
    put_text(data, "holder", start->holder);
    put_number(data, "ttl_ms", start->ttl_ms);
    put_texts(data, "resources", start->resources, start->resource_count);
    if (start->more)
        buf_append_text(data, ",\"more\":true");
    put_texts(data, "tables", start->tables, start->table_count);
    if (start->payload) {
        buf_append_text(data, ",\"payload\":");
        buf_append_text(data, start->payload);
    }
    buf_append_byte(data, '}');
}

void messages_write_patient(struct buf *data, const struct buf *start, uint64_t refresh, unsigned wait_ms) {
    buf_append(data, start->data, start->size - strlen("}"));
    buf_appendf(data, ",\"refresh\":%" PRIu64 ",\"wait_ms\":%u}", refresh, wait_ms);
}

static void put_claim(struct buf *data, const struct lease_grant *grant) {
    put_number(data, "fence", grant->fence);
    buf_append_byte(data, ',');
    put_text(data, "claim_id", grant->claim_id);
    buf_append_byte(data, ',');
    put_text(data, "token", grant->token);
}

void messages_begin_cover(struct buf *data, const struct lease_grant *grant) {
    buf_append_byte(data, '{');
    put_text(data, "holder", grant->holder);
    put_claim(data, grant);
    buf_append_text(data, ",\"resources\":[");
}

/* Their characters need no escapes: quotes and a comma more than the text. */
bool messages_has_room(const struct buf *data, const char *resource) {
    return data->size + strlen(resource) + strlen("\"\",]}") <= EVENT_VALUE_MAX;
}

void messages_add_resource(struct buf *data, const char *resource) {
    if (data->data[data->size - 1] != '[')
        buf_append_byte(data, ',');
    buf_json_string(data, resource, strlen(resource));
}

void messages_end_cover(struct buf *data) {
    buf_append_text(data, "]}");
}

void messages_write_begin(struct buf *data, const struct lease_grant *grant, int64_t count) {
    buf_append_byte(data, '{');
    put_text(data, "holder", grant->holder);
    put_claim(data, grant);
    put_number(data, "count", count);
    buf_append_byte(data, '}');
}

static void put_words(struct buf *data, const struct messages_words *words) {
    if (words->step) {
        buf_append_byte(data, ',');
        put_text(data, "step", words->step);
    }
    if (words->result) {
        buf_append_text(data, ",\"result\":");
        buf_append_text(data, words->result);
    }
    if (!words->reason)
        return;
    buf_append_byte(data, ',');
    put_text(data, "reason", words->reason);
    buf_append_text(data, words->retry ? ",\"retry\":true" : ",\"retry\":false");
    if (words->delay_ms >= 0)
        put_number(data, "delay_ms", words->delay_ms);
}

void messages_write_one(struct buf *data, const struct lease_grant *grant, const struct messages_words *words) {
    buf_append_byte(data, '{');
    put_text(data, "holder", grant->holder);
    put_claim(data, grant);
    if (words->ttl_ms > 0)
        put_number(data, "ttl_ms", words->ttl_ms);
    put_words(data, words);
    buf_append_byte(data, '}');
}

void messages_begin_items(struct buf *data, const char *holder) {
    buf_append_byte(data, '{');
    put_text(data, "holder", holder);
    buf_append_text(data, ",\"items\":[");
}

void messages_add_item(struct buf *data, const struct lease_grant *grant, const struct messages_words *words) {
    if (data->data[data->size - 1] != '[')
        buf_append_byte(data, ',');
    buf_append_byte(data, '{');
    put_text(data, "lease", grant->lease);
    put_claim(data, grant);
    put_words(data, words);
    buf_append_byte(data, '}');
}

void messages_end_items(struct buf *data, unsigned ttl_ms) {
    buf_append_byte(data, ']');
    if (ttl_ms > 0)
        put_number(data, "ttl_ms", ttl_ms);
    buf_append_byte(data, '}');
}

/* A text for which there was no memory is not malformed: a grant that is taken for junk would be out of everybody's hands until it
 * lapses. The parser cannot be given an allocator that ends the process, as the coordinator's is: here it belongs to the host as well. */
static json_t *load(const char *text, size_t size, size_t flags) {
    errno = 0;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES | flags, NULL);
    if (root == NULL && errno == ENOMEM)
        memory_or_exit(NULL);
    return root;
}

/* A payload shares its message with others' members: half of the depth and of the elements are left to those. */
bool messages_is_payload(const char *text) {
    static const struct json_bounds bounds = {
        .depth = EVENT_DEPTH_MAX / 2, .elements = EVENT_ELEMENTS_MAX / 2, .gap_bytes = 1024};
    size_t size = strlen(text);
    struct json_check check;
    if (size > LEASE_PAYLOAD_MAX || !json_text_check(text, size, &bounds, &check))
        return false;
    json_t *value = load(text, size, JSON_DECODE_INT_AS_REAL);
    bool is_object = json_is_object(value);
    json_decref(value);
    return is_object;
}

void messages_clean_reason(struct buf *reason, const char *text) {
    size_t size = strlen(text), characters = 0;
    for (size_t at = 0; at < size && characters < LEASE_REASON_MAX; characters++) {
        size_t length = utf8_sequence((const unsigned char *)text + at, size - at);
        struct slice one = {text + at, length};
        if (length > 0 && event_text_reason(one) == EVENT_REASON_NONE)
            buf_append(reason, text + at, length);
        else
            buf_append_byte(reason, '?');
        at += length > 0 ? length : 1;
    }
    if (characters == 0)
        buf_append_text(reason, "no reason given");
}

/* ---- in ---- */

struct messages_document {
    json_t *root;
};

void messages_free(struct messages_document *document) {
    if (!document)
        return;
    json_decref(document->root);
    free(document);
}

static struct messages_document *parse(const struct message *record) {
    if (!record->value)
        return NULL;
    json_t *root = load(record->value, record->value_size, 0);
    if (!json_is_object(root)) {
        json_decref(root);
        return NULL;
    }
    struct messages_document *document = memory_alloc(sizeof *document);
    document->root = root;
    return document;
}

static const char *text_of(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

static int64_t number_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
}

static struct messages_command command_of(const json_t *root) {
    const json_t *command = json_object_get(root, "command");
    return (struct messages_command){.source = text_of(command, "source"), .id = text_of(command, "id")};
}

static bool is_sound(const struct lease_grant *grant) {
    struct claim_id ignored;
    return grant->kind && grant->lease && grant->holder && grant->claim_id && grant->token && grant->fence >= 1 &&
           grant->fence <= LEASE_FENCE_MAX && claim_id_parse(grant->claim_id, strlen(grant->claim_id), &ignored) &&
           token_is_well_formed(grant->token, strlen(grant->token));
}

bool messages_read_grant(const struct message *record, struct messages_grant *ret) {
    struct messages_document *document = parse(record);
    if (!document)
        return false;
    const json_t *root = document->root;
    int64_t attempt = number_of(root, "attempt"), refresh = number_of(root, "refresh");
    *ret = (struct messages_grant){
        .grant = {.kind = text_of(root, "kind"), .lease = text_of(root, "lease"), .holder = text_of(root, "holder"),
                  .fence = number_of(root, "fence"), .claim_id = text_of(root, "claim_id"), .token = text_of(root, "token"),
                  .attempt = attempt > 0 && attempt < INT32_MAX ? (int)attempt : 0},
        .command = command_of(root),
        .refresh = refresh > 0 ? (uint64_t)refresh : 0,
        .until = text_of(root, "until"),
        .document = document,
    };
    struct json_member payload;
    if (json_is_object(json_object_get(root, "payload")) &&
        json_text_find_member(record->value, record->value_size, "payload", &payload)) {
        ret->grant.payload = payload.value;
        ret->grant.payload_size = payload.value_size;
    }
    if (is_sound(&ret->grant))
        return true;
    messages_free(document);
    return false;
}

static bool read_outcome(const char *name, enum lease_outcome *ret) {
    return name && lease_outcome_parse(name, strlen(name), ret);
}

static void read_blocker(const json_t *root, struct lease_answer *answer) {
    const json_t *found = json_object_get(root, "held_by");
    answer->held_by.fence = answer->held_by.remaining_ms = -1;
    if (!json_is_object(found))
        return;
    answer->has_blocker = true;
    answer->held_by = (struct lease_blocker){
        .kind = text_of(found, "kind"), .lease = text_of(found, "lease"), .resource = text_of(found, "resource"),
        .holder = text_of(found, "holder"), .since = text_of(found, "since"), .until = text_of(found, "until"),
        .fence = number_of(found, "fence"), .remaining_ms = number_of(found, "remaining_ms"),
    };
}

bool messages_read_result(const struct message *record, struct messages_result *ret) {
    struct messages_document *document = parse(record);
    if (!document)
        return false;
    const json_t *root = document->root;
    int64_t refresh = number_of(root, "refresh");
    *ret = (struct messages_result){
        .outcome_name = text_of(root, "outcome"),
        .lease = text_of(root, "lease"),
        .command = command_of(root),
        .answer = {.outcome = text_of(root, "outcome"), .state = text_of(root, "state"), .reason = text_of(root, "reason"),
                   .field = text_of(root, "field"), .step = text_of(root, "step"), .until = text_of(root, "until"),
                   .remaining_ms = number_of(root, "remaining_ms"), .fence = number_of(root, "fence"),
                   .basis = text_of(root, "basis")},
        .refresh = refresh > 0 ? (uint64_t)refresh : 0,
        .item_count = json_array_size(json_object_get(root, "items")),
        .document = document,
    };
    read_blocker(root, &ret->answer);
    ret->is_answered = ret->outcome_name && strcmp(ret->outcome_name, "answered") == 0;
    if (ret->lease && ret->command.id && (ret->is_answered || read_outcome(ret->outcome_name, &ret->outcome)))
        return true;
    messages_free(document);
    return false;
}

bool messages_get_item(const struct messages_result *result, size_t index, struct messages_item *ret) {
    const json_t *item = json_array_get(json_object_get(result->document->root, "items"), index);
    *ret = (struct messages_item){
        .lease = text_of(item, "lease"), .outcome_name = text_of(item, "outcome"), .fence = number_of(item, "fence")};
    return ret->lease && read_outcome(ret->outcome_name, &ret->outcome);
}

bool messages_get_original(struct messages_result *result) {
    const char *name = text_of(json_object_get(result->document->root, "original"), "outcome");
    if (!read_outcome(name, &result->outcome))
        return false;
    result->outcome_name = result->answer.outcome = name;
    return true;
}
