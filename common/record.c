/* Records out; see record.h. */
#include "common/record.h"

#include "common/clock.h"
#include "common/json_text.h"
#include "common/rfc3339.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE "/leasehold"

void record_init(struct record *record) {
    *record = (struct record){0};
}

static void wipe_buf(struct buf *buf) {
    if (buf->data != NULL)
        token_wipe(buf->data, buf->capacity);
    buf_release(buf);
}

void record_release(struct record *record) {
    if (record == NULL)
        return;
    wipe_buf(&record->value_text);
    buf_release(&record->key_text);
    buf_release(&record->header_text);
    free(record->slots);
    *record = (struct record){0};
}

static size_t text_size(const char *text) {
    return text == NULL ? 0 : strlen(text);
}

/* ---- building a record ---- */

/* header_text gets room for everything at once, because headers point into it. */
static void begin_record(struct record *record, enum topic_id topic, size_t header_bytes) {
    record->topic = topic;
    record->key = record->value = NULL;
    record->key_size = record->value_size = 0;
    record->headers = NULL;
    record->header_count = 0;
    buf_reset(&record->key_text);
    buf_reset(&record->value_text);
    buf_reset(&record->header_text);
    buf_reserve(&record->header_text, header_bytes);
}

static void end_record(struct record *record) {
    if (record->key == NULL) {
        record->key = buf_text(&record->key_text);
        record->key_size = record->key_text.size;
    }
    if (record->value == NULL) {
        record->value = buf_text(&record->value_text);
        record->value_size = record->value_text.size;
    }
    record->headers = record->slots;
}

static bool no_record(struct record *record) {
    begin_record(record, record->topic, 0);
    return false;
}

/* ---- headers ---- */

static void add_header(struct record *record, const char *name, size_t name_size, const void *value, size_t size) {
    if (record->header_count == record->slot_capacity) {
        record->slot_capacity = record->slot_capacity > 0 ? record->slot_capacity * 2 : 32;
        record->slots = memory_resize(record->slots, record->slot_capacity, sizeof *record->slots);
    }
    record->slots[record->header_count++] =
        (struct message_header){.name = name, .name_size = name_size, .value = value, .value_size = size};
}

static void header_constant(struct record *record, const char *name, const char *value) {
    add_header(record, name, strlen(name), value, strlen(value));
}

/* The pieces of a value as one text. */
static void header_pieces(struct record *record, const char *name, const char *first, const char *second,
                          const char *third) {
    struct buf *text = &record->header_text;
    size_t start = text->size;
    assert(text->capacity - start > strlen(first) + strlen(second) + strlen(third)); /* room was made: it stays here */
    buf_append_text(text, first);
    buf_append_text(text, second);
    buf_append_text(text, third);
    add_header(record, name, strlen(name), text->data + start, text->size - start);
}

static void header_text(struct record *record, const char *name, const char *value) {
    header_pieces(record, name, value, "", "");
}

static void header_number(struct record *record, const char *name, int64_t value) {
    struct buf *text = &record->header_text;
    size_t start = text->size;
    assert(text->capacity - start > 24);
    buf_append_number(text, value);
    add_header(record, name, strlen(name), text->data + start, text->size - start);
}

static void header_time(struct record *record, const char *name, int64_t us) {
    char text[CLOCK_TEXT_SIZE];
    header_text(record, name, clock_format(us, text));
}

/* Numbers, times and the fixed parts of all headers of ours together. */
enum { FIXED_HEADER_BYTES = 512 };

static size_t event_header_bytes(const struct journal_row *row) {
    return FIXED_HEADER_BYTES + text_size(row->kind) + 2 * text_size(row->event) + text_size(row->subject) +
           text_size(row->traceparent);
}

static void event_headers(struct record *record, const struct journal_row *row, const char *event, int64_t epoch) {
    header_constant(record, "ce_specversion", "1.0");
    header_number(record, "ce_id", row->number);
    header_constant(record, "ce_source", SOURCE);
    header_pieces(record, "ce_type", row->kind, ".", event);
    header_text(record, "ce_subject", row->subject);
    header_time(record, "ce_time", row->at_us);
    header_constant(record, "content-type", "application/json");
    if (row->traceparent != NULL)
        header_text(record, "ce_traceparent", row->traceparent);
    header_number(record, HEADER_NUMBER, row->number);
    header_number(record, HEADER_EPOCH, epoch);
}

/* ---- JSON ---- */

static void open_object(struct buf *json) {
    buf_append_byte(json, '{');
}

static void close_object(struct buf *json) {
    buf_append_byte(json, '}');
}

static void member_name(struct buf *json, const char *name) {
    buf_append_text(json, json->data[json->size - 1] == '{' ? "\"" : ",\"");
    buf_append_text(json, name);
    buf_append(json, "\":", 2);
}

static void member_text(struct buf *json, const char *name, const char *text) {
    if (text == NULL)
        return;
    member_name(json, name);
    buf_json_string(json, text, strlen(text));
}

static void member_number(struct buf *json, const char *name, int64_t number) {
    if (number == ROW_NULL)
        return;
    member_name(json, name);
    buf_append_number(json, number);
}

static void append_time(struct buf *json, int64_t us) {
    char text[CLOCK_TEXT_SIZE];
    buf_append_byte(json, '"');
    buf_append_text(json, clock_format(us, text));
    buf_append_byte(json, '"');
}

static void member_time(struct buf *json, const char *name, int64_t us) {
    if (us == ROW_NULL)
        return;
    member_name(json, name);
    append_time(json, us);
}

static void member_claim_id(struct buf *json, const struct journal_row *row) {
    char text[CLAIM_ID_TEXT_SIZE];
    if (row->has_claim_id)
        member_text(json, "claim_id", claim_id_format(&row->claim_id, text));
}

/* Whole milliseconds that were left at the row's moment; a lapsed lease has none. */
static int64_t remaining_ms(const struct journal_row *row, int64_t until_us) {
    return until_us > row->at_us ? (until_us - row->at_us) / 1000 : 0;
}

static void member_remaining(struct buf *json, const struct journal_row *row, int64_t until_us) {
    if (until_us != ROW_NULL)
        member_number(json, "remaining_ms", remaining_ms(row, until_us));
}

/* A grant out of the line has no command of its own, but names the claim that it serves. */
static void member_command(struct buf *json, const struct journal_row *row) {
    if (row->source == NULL || row->message_id == NULL)
        return;
    member_name(json, "command");
    open_object(json);
    if (row->command != NULL) {
        member_name(json, "type");
        buf_append_byte(json, '"'); /* kinds and commands have no characters to escape */
        buf_append_text(json, row->kind);
        buf_append_byte(json, '.');
        buf_append_text(json, row->command);
        buf_append_byte(json, '"');
    }
    member_text(json, "source", row->source);
    member_text(json, "id", row->message_id);
    close_object(json);
}

static void member_origin(struct buf *json, const struct journal_row *row) {
    if (row->origin_topic == NULL)
        return;
    member_name(json, "origin");
    open_object(json);
    member_text(json, "topic", row->origin_topic);
    member_number(json, "partition", row->origin_partition);
    member_number(json, "offset", row->origin_offset);
    close_object(json);
}

static bool is_named(const struct json_member *member, const char *name) {
    return member->name_size == strlen(name) && memcmp(member->name, name, member->name_size) == 0;
}

/* A member of an object that PostgreSQL printed; a time is written as all others are. */
static void copy_member(struct buf *json, const struct json_member *member, int64_t *ret_until_us) {
    bool is_time = is_named(member, "since") || is_named(member, "until");
    int64_t us;
    buf_append_text(json, json->data[json->size - 1] == '{' ? "\"" : ",\"");
    buf_append(json, member->name, member->name_size);
    buf_append(json, "\":", 2);
    if (is_time && member->value_size > 2 &&
        rfc3339_parse(member->value + 1, member->value_size - 2, &us) == RFC3339_OK) {
        append_time(json, us);
        if (is_named(member, "until"))
            *ret_until_us = us;
        return;
    }
    json_text_compact(member->value, member->value_size, json);
}

static bool is_null(const struct json_member *member) {
    return member->value_size == 4 && memcmp(member->value, "null", 4) == 0;
}

/* An object from the journal, nulls left out; and remaining_ms, which is counted here as everywhere. Returns its
 * `until`, or ROW_NULL. */
static int64_t copy_object(struct buf *json, const char *object) {
    size_t size = strlen(object);
    size_t position = 0;
    int64_t until_us = ROW_NULL;
    struct json_member member;
    while (json_text_next_member(object, size, &position, &member))
        if (!is_null(&member) && !is_named(&member, "remaining_ms"))
            copy_member(json, &member, &until_us);
    return until_us;
}

static void member_blocker(struct buf *json, const struct journal_row *row) {
    if (row->blocker == NULL)
        return;
    member_name(json, "held_by");
    open_object(json);
    int64_t until_us = copy_object(json, row->blocker);
    member_remaining(json, row, until_us);
    close_object(json);
}

static void member_original(struct buf *json, const struct journal_row *row) {
    if (row->original == NULL)
        return;
    member_name(json, "original");
    open_object(json);
    copy_object(json, row->original);
    close_object(json);
}

/* Its members, not an object of their own: basis, edits, changes. */
static void members_of_basis(struct buf *json, const struct journal_row *row) {
    if (row->basis != NULL)
        copy_object(json, row->basis);
}

static void member_payload(struct buf *json, const struct journal_row *row, const char *name) {
    if (row->payload == NULL)
        return;
    member_name(json, name);
    json_text_compact(row->payload, strlen(row->payload), json);
}

static void members_of_lease(struct buf *json, const struct journal_row *row) {
    member_text(json, "kind", row->kind);
    member_text(json, "lease", row->subject);
}

/* ---- the records ---- */

static bool is_event(const struct journal_row *row, const char *name) {
    return strcmp(row->event, name) == 0;
}

static bool names_lease(const struct journal_row *row) {
    return row->kind != NULL && row->subject != NULL;
}

/* The fence of a refusal is what the command claimed: it may never have been given out, and the witness, which believes
 * the header, would take it for one that was. */
static bool is_refusal(const struct journal_row *row) {
    enum lease_outcome outcome;
    return row->command != NULL && lease_outcome_parse(row->event, strlen(row->event), &outcome) &&
           lease_outcome_is_refusal(outcome);
}

/* What an operator said: who, why, and what he saw. */
static bool is_operators(const struct journal_row *row) {
    return is_event(row, "imported") || (row->command != NULL && strcmp(row->command, "resolve") == 0);
}

static bool is_internal(const struct journal_row *row) {
    static const char *const names[] = {"dead_letter", "jumped", "restated", "excepted", "exception_ended"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_event(row, names[i]))
            return true;
    return false;
}

bool record_encode_result(struct record *record, const struct journal_row *row, int64_t epoch) {
    if (is_internal(row) || !names_lease(row))
        return no_record(record);
    begin_record(record, TOPIC_RESULTS, event_header_bytes(row));
    event_headers(record, row, row->event, epoch);
    header_text(record, HEADER_OUTCOME, row->event);
    if (row->fence != ROW_NULL && !is_refusal(row))
        header_number(record, HEADER_FENCE, row->fence);
    buf_append_text(&record->key_text, row->subject);

    struct buf *json = &record->value_text;
    open_object(json);
    member_number(json, "number", row->number);
    member_text(json, "outcome", row->event);
    members_of_lease(json, row);
    member_command(json, row);
    member_origin(json, row);
    member_number(json, "fence", row->fence);
    member_claim_id(json, row);
    member_text(json, "holder", row->holder);
    member_time(json, "since", row->since_us);
    member_time(json, "until", row->lease_until_us);
    member_remaining(json, row, row->lease_until_us);
    member_text(json, "state", row->state);
    member_number(json, "min_fence", row->min_fence);
    member_number(json, "attempt", row->attempt);
    member_text(json, "step", row->step);
    member_number(json, "count", row->amount);
    member_number(json, "refresh", row->refresh);
    member_text(json, "reason", row->reason);
    member_text(json, "field", row->field);
    member_blocker(json, row);
    member_original(json, row);
    members_of_basis(json, row);
    if (is_operators(row))
        member_payload(json, row, "operator");
    else if (is_event(row, "finished"))
        member_payload(json, row, "result");
    if (is_event(row, "answered"))
        member_payload(json, row, "items");
    close_object(json);
    end_record(record);
    return true;
}

static void member_token(struct buf *json, const struct journal_row *row, const struct token_keys *keys) {
    char token[LEASE_TOKEN_TEXT_SIZE];
    token_derive(keys, &row->claim_id, token);
    member_text(json, "token", token);
    token_wipe(token, sizeof token);
}

bool record_encode_grant(struct record *record, const struct journal_row *row, int64_t epoch,
                         const struct token_keys *keys) {
    if (!row->is_grant || !names_lease(row) || row->holder == NULL || !row->has_claim_id)
        return no_record(record);
    begin_record(record, TOPIC_GRANTS, event_header_bytes(row));
    event_headers(record, row, "granted", epoch);
    buf_append_text(&record->key_text, row->holder);

    struct buf *json = &record->value_text;
    open_object(json);
    member_number(json, "number", row->number);
    members_of_lease(json, row);
    member_text(json, "holder", row->holder);
    member_number(json, "fence", row->fence);
    member_claim_id(json, row);
    member_token(json, row, keys);
    member_time(json, "since", row->since_us);
    member_time(json, "until", row->lease_until_us);
    if (row->since_us != ROW_NULL && row->lease_until_us != ROW_NULL)
        member_number(json, "ttl_ms", (row->lease_until_us - row->since_us) / 1000);
    member_number(json, "attempt", row->attempt);
    member_text(json, "step", row->step);
    member_number(json, "refresh", row->refresh);
    member_command(json, row);
    member_payload(json, row, "payload");
    close_object(json);
    end_record(record);
    return true;
}

bool record_encode_state(struct record *record, const struct journal_row *row, int64_t epoch) {
    if (!row->changes_lease || !names_lease(row))
        return no_record(record);
    begin_record(record, TOPIC_STATE, event_header_bytes(row));
    event_headers(record, row, row->event, epoch);
    buf_append_text(&record->key_text, row->kind);
    buf_append_byte(&record->key_text, '/');
    buf_append_text(&record->key_text, row->subject);

    struct buf *json = &record->value_text;
    open_object(json);
    member_number(json, "number", row->number);
    members_of_lease(json, row);
    member_text(json, "state", row->state);
    member_number(json, "fence", row->fence);
    member_number(json, "min_fence", row->min_fence);
    member_claim_id(json, row);
    member_text(json, "holder", row->holder);
    member_time(json, "since", row->since_us);
    close_object(json);
    end_record(record);
    return true;
}

/* ---- dead letters ---- */

/* Names get a NUL behind, which takes one byte of the four that stood before the value. */
static void copy_headers(struct record *record, const struct journal_row *row) {
    size_t position = 0;
    struct message_header header;
    while (headers_next(row->raw_headers, row->raw_headers_size, &position, &header)) {
        struct buf *text = &record->header_text;
        size_t start = text->size;
        buf_append(text, header.name, header.name_size);
        buf_append_byte(text, '\0');
        /* The value stays in the row: it is borrowed as long as the raw key and value are. */
        add_header(record, text->data + start, header.name_size, header.value, header.value_size);
    }
}

static void dead_letter_headers(struct record *record, const struct journal_row *row, int64_t epoch) {
    if (row->reason != NULL)
        header_text(record, "lease_dlq_reason", row->reason);
    if (row->field != NULL)
        header_text(record, "lease_dlq_detail", row->field);
    if (row->origin_topic != NULL) {
        header_text(record, "lease_dlq_topic", row->origin_topic);
        header_number(record, "lease_dlq_partition", row->origin_partition);
        header_number(record, "lease_dlq_offset", row->origin_offset);
        header_text(record, "kafka_dlt-original-topic", row->origin_topic);
    }
    header_time(record, "lease_dlq_at", row->at_us);
    header_number(record, HEADER_NUMBER, row->number);
    header_number(record, HEADER_EPOCH, epoch);
}

bool record_encode_dead_letter(struct record *record, const struct journal_row *row, int64_t epoch) {
    if (!is_event(row, "dead_letter"))
        return no_record(record);
    size_t texts = text_size(row->reason) + text_size(row->field) + 2 * text_size(row->origin_topic);
    begin_record(record, TOPIC_DEAD_LETTERS, FIXED_HEADER_BYTES + texts + row->raw_headers_size);
    copy_headers(record, row);
    dead_letter_headers(record, row, epoch);
    end_record(record);
    record->key = row->raw_key;
    record->key_size = row->raw_key == NULL ? 0 : row->raw_key_size;
    record->value = row->raw_value;
    record->value_size = row->raw_value == NULL ? 0 : row->raw_value_size;
    return true;
}

/* ---- marks ---- */

void record_witness_key(struct buf *buf, const char *topic_name, int32_t partition) {
    buf_append_text(buf, MARK_KEY "/");
    buf_append_text(buf, topic_name);
    buf_append_byte(buf, '/');
    buf_append_number(buf, partition);
}

void record_encode_mark(struct record *record, enum topic_id topic, const struct mark *mark, const char *topic_name,
                        int32_t partition) {
    begin_record(record, topic, FIXED_HEADER_BYTES);
    header_constant(record, HEADER_MARK, "1");
    header_number(record, HEADER_NUMBER, mark->number);
    header_number(record, HEADER_EPOCH, mark->epoch);
    if (topic == TOPIC_STATE)
        record_witness_key(&record->key_text, topic_name, partition);
    else
        buf_append_text(&record->key_text, MARK_KEY);

    struct buf *json = &record->value_text;
    open_object(json);
    member_number(json, "epoch", mark->epoch);
    member_number(json, "number", mark->number);
    member_number(json, "fence", mark->fence);
    member_text(json, "system_identifier", mark->system_identifier);
    member_number(json, "timeline", mark->timeline);
    close_object(json);
    end_record(record);
}
