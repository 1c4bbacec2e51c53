/* Properties of decoded commands; see commands.h. The bounds are stated anew, from the README, and not taken from the decoder's
 * tables. */
#include "commands.h"

#include "fuzz.h"

#include "common/event_text.h"
#include "common/json_text.h"

#include <stdlib.h>
#include <string.h>

static struct slice slice_of_text(const char *text) {
    return (struct slice){.data = text, .size = strlen(text)};
}

static bool is_zeroed(const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++)
        if (at[i] != 0)
            return false;
    return true;
}

static bool is_between(int64_t number, int64_t least, int64_t most) {
    return number >= least && number <= most;
}

/* ---- what it does not say ---- */

static void check_says_nothing(const struct command *command) {
    CHECK(command->holder == NULL && command->word == NULL && command->payload == NULL && command->old == NULL);
    CHECK(command->fence == COMMAND_ABSENT && command->ttl_ms == COMMAND_ABSENT && command->amount == COMMAND_ABSENT);
    CHECK(command->refresh == COMMAND_ABSENT && command->wait_ms == COMMAND_ABSENT && command->flag == -1);
    CHECK(!command->has_claim_id && is_zeroed(&command->claim_id, sizeof command->claim_id));
    CHECK(command->resources == NULL && command->resource_count == 0 && command->tables == NULL && command->table_count == 0);
    CHECK(command->items == NULL && command->item_count == 0);
    CHECK(!command->token_fits && is_zeroed(command->token, sizeof command->token));
}

/* ---- dead letters ---- */

static bool is_same_bytes(const void *left, size_t left_size, const void *right, size_t right_size) {
    if (left == NULL || right == NULL)
        return left == right;
    return left_size == right_size && memcmp(left, right, left_size) == 0;
}

static void check_kept_headers(const struct command *command, const struct message *message) {
    size_t position = 0, count = 0;
    struct message_header header;
    while (headers_next(command->raw_headers, command->raw_headers_size, &position, &header)) {
        CHECK(count < message->header_count);
        const struct message_header *original = &message->headers[count++];
        CHECK(is_same_bytes(header.name, header.name_size, original->name, original->name_size));
        CHECK(is_same_bytes(header.value, header.value_size, original->value, original->value_size));
    }
    CHECK(position == command->raw_headers_size && count == message->header_count);
}

/* The record is small enough here for nothing to be cut. */
static void check_dead_letter(const struct command *command, const struct message *message) {
    CHECK(command->kind == NULL && command->subject == NULL && command->source == NULL && command->message_id == NULL);
    CHECK(command->traceparent == NULL && is_zeroed(command->digest, sizeof command->digest));
    CHECK(is_same_bytes(command->raw_key, command->raw_key_size, message->key, message->key_size));
    CHECK(is_same_bytes(command->raw_value, command->raw_value_size, message->value, message->value_size));
    check_kept_headers(command, message);
    check_says_nothing(command);
}

/* ---- who and what ---- */

static bool is_mode_known(const struct command *command, const struct event_limits *limits, enum lease_mode *ret_mode) {
    for (size_t i = 0; i < limits->kind_count; i++)
        if (strcmp(limits->kinds[i].name, command->kind) == 0) {
            *ret_mode = limits->kinds[i].mode;
            return true;
        }
    return false;
}

static void check_identity(const struct command *command, const struct event_limits *limits) {
    enum lease_mode mode = LEASE_MODE_RUN;
    CHECK(command->kind != NULL && lease_kind_is_well_formed(command->kind, strlen(command->kind)));
    CHECK((unsigned)command->command < LEASE_COMMAND_COUNT);
    bool is_known = is_mode_known(command, limits, &mode);
    CHECK(limits->kind_count == 0 || is_known);
    CHECK(command->verdict != EVENT_ACCEPTED || !is_known || lease_command_is_of_mode(command->command, mode));
    CHECK(command->subject != NULL && event_text_id(slice_of_text(command->subject)) == EVENT_REASON_NONE);
    CHECK(command->source != NULL && event_text_attribute(slice_of_text(command->source)) == EVENT_REASON_NONE);
    CHECK(command->message_id != NULL && event_text_attribute(slice_of_text(command->message_id)) == EVENT_REASON_NONE);
    CHECK(command->traceparent == NULL || event_text_is_traceparent(slice_of_text(command->traceparent)));
    CHECK(!is_zeroed(command->digest, sizeof command->digest));
    CHECK(command->raw_key == NULL && command->raw_value == NULL && command->raw_headers == NULL);
}

static void check_token(const char *token) {
    CHECK(token_is_well_formed(token, strnlen(token, LEASE_TOKEN_TEXT_SIZE)));
}

static bool is_grant_command(enum lease_command command) {
    switch (command) {
    case LEASE_COMMAND_COVER:
    case LEASE_COMMAND_BEGIN:
    case LEASE_COMMAND_RENEW:
    case LEASE_COMMAND_ADVANCE:
    case LEASE_COMMAND_FINISH:
    case LEASE_COMMAND_FAIL:
    case LEASE_COMMAND_RELEASE: return true;
    default: return false;
    }
}

static void check_object_text(const char *text, size_t most) {
    CHECK(text[0] == '{' && text[strlen(text) - 1] == '}' && strlen(text) <= most);
    const struct json_bounds bounds = {.depth = EVENT_DEPTH_MAX, .elements = EVENT_ELEMENTS_MAX, .gap_bytes = 0};
    struct json_check check;
    CHECK(json_text_check(text, strlen(text), &bounds, &check));
}

static void check_items(const struct command *command) {
    CHECK(command->item_count <= LEASE_ITEMS_MAX && strcmp(command->holder, command->subject) == 0);
    for (size_t i = 0; i < command->item_count; i++) {
        const struct command_item *item = &command->items[i];
        CHECK(event_text_id(slice_of_text(item->lease)) == EVENT_REASON_NONE);
        CHECK(is_between(item->fence, 1, LEASE_FENCE_MAX) && !item->token_fits);
        CHECK(!is_zeroed(&item->claim_id, sizeof item->claim_id));
        check_token(item->token);
        CHECK(command->command == LEASE_COMMAND_FAIL ? item->word != NULL && is_between(item->flag, 0, 1)
                                                     : item->word == NULL && item->flag == -1);
        CHECK(item->word == NULL || event_text_reason(slice_of_text(item->word)) == EVENT_REASON_NONE);
        CHECK(is_between(item->amount, COMMAND_ABSENT, LEASE_DELAY_MS_MAX));
        if (item->payload != NULL)
            check_object_text(item->payload, LEASE_PAYLOAD_MAX);
        for (size_t other = 0; other < i && command->item_count < 100; other++)
            CHECK(strcmp(command->items[other].lease, item->lease) != 0);
    }
}

static void check_names(const char *const *names, size_t count, size_t most, enum event_reason (*check)(struct slice)) {
    CHECK(count <= most && (count == 0) == (names == NULL));
    for (size_t i = 0; i < count; i++)
        CHECK(check(slice_of_text(names[i])) == EVENT_REASON_NONE);
}

static void check_accepted(const struct command *command) {
    bool is_over_many = command->item_count > 0;
    bool has_grant = is_grant_command(command->command) && !is_over_many;
    CHECK(command->holder == NULL || event_text_id(slice_of_text(command->holder)) == EVENT_REASON_NONE);
    CHECK(has_grant == command->has_claim_id && (command->token[0] != '\0') == has_grant && !command->token_fits);
    CHECK(!has_grant || (command->holder != NULL && is_between(command->fence, 1, LEASE_FENCE_MAX)));
    CHECK(is_between(command->fence, COMMAND_ABSENT, LEASE_FENCE_MAX) && command->fence != 0);
    CHECK(is_between(command->ttl_ms, COMMAND_ABSENT, LEASE_TTL_MS_MAX) && command->ttl_ms != 0);
    CHECK(is_between(command->amount, COMMAND_ABSENT, LEASE_FENCE_MAX));
    CHECK(is_between(command->refresh, COMMAND_ABSENT, LEASE_FENCE_MAX));
    CHECK(is_between(command->wait_ms, COMMAND_ABSENT, command->command == LEASE_COMMAND_EDIT ? LEASE_DELAY_MS_MAX : LEASE_WAIT_MS_MAX));
    CHECK(is_between(command->flag, -1, 1));
    CHECK(command->word == NULL || command->word[0] != '\0');
    if (has_grant)
        check_token(command->token);
    if (command->payload != NULL)
        check_object_text(command->payload, command->command == LEASE_COMMAND_EDIT ? 2 * LEASE_PAYLOAD_MAX + 20 : LEASE_PAYLOAD_MAX);
    check_names(command->resources, command->resource_count, LEASE_RESOURCES_MAX, event_text_resource);
    check_names(command->tables, command->table_count, LEASE_TABLES_MAX, event_text_table);
    if (is_over_many)
        check_items(command);
}

static bool is_decoders_own(enum event_reason reason) {
    return reason != EVENT_KILLED_PROCESS && reason != EVENT_DATABASE_REFUSED && reason != EVENT_UNKNOWN_KIND &&
           reason != EVENT_ID_REUSED && reason != EVENT_TTL_ABOVE_MAXIMUM;
}

void commands_check(const struct command *command, const struct message *message, const struct event_limits *limits) {
    CHECK((unsigned)command->verdict < EVENT_VERDICT_COUNT && (unsigned)command->reason < EVENT_REASON_COUNT);
    CHECK(event_reason_verdict(command->reason) == command->verdict && is_decoders_own(command->reason));
    CHECK((event_reason_name(command->reason) == NULL) == (command->verdict == EVENT_ACCEPTED));
    CHECK(command->field == NULL || strlen(command->field) <= 128);
    CHECK(strcmp(command->topic, message->topic) == 0 && command->partition == message->partition);
    CHECK(command->offset == message->offset);
    /* Items take their place before they are looked at; all else is a copy of the record, at most a few times. */
    CHECK(command_size(command) <= 8192 + 8 * (message->value_size + message->key_size) + 16384 +
                                       LEASE_ITEMS_MAX * sizeof(struct command_item));
    switch (command->verdict) {
    case EVENT_ACCEPTED:
        CHECK(command->field == NULL);
        check_identity(command, limits);
        check_accepted(command);
        break;
    case EVENT_MALFORMED:
        CHECK(command->field != NULL);
        check_identity(command, limits);
        check_says_nothing(command);
        break;
    default: check_dead_letter(command, message);
    }
}

/* ---- the same ---- */

static void check_same_names(const char *const *left, size_t left_count, const char *const *right, size_t right_count) {
    CHECK(left_count == right_count);
    for (size_t i = 0; i < left_count; i++)
        CHECK(strcmp(left[i], right[i]) == 0);
}

static void check_same_item(const struct command_item *left, const struct command_item *right) {
    CHECK(strcmp(left->lease, right->lease) == 0 && left->fence == right->fence && left->amount == right->amount);
    CHECK(memcmp(&left->claim_id, &right->claim_id, sizeof left->claim_id) == 0 && left->flag == right->flag);
    CHECK(fuzz_same_text(left->word, right->word) && fuzz_same_text(left->payload, right->payload));
    CHECK(strcmp(left->token, right->token) == 0);
}

void commands_check_same(const struct command *left, const struct command *right, bool with_digest) {
    CHECK(left->verdict == right->verdict && left->reason == right->reason && fuzz_same_text(left->field, right->field));
    CHECK(fuzz_same_text(left->kind, right->kind) && left->command == right->command);
    CHECK(fuzz_same_text(left->subject, right->subject) && fuzz_same_text(left->source, right->source));
    CHECK(fuzz_same_text(left->message_id, right->message_id) && fuzz_same_text(left->traceparent, right->traceparent));
    CHECK(!with_digest || memcmp(left->digest, right->digest, sizeof left->digest) == 0);
    CHECK(fuzz_same_text(left->holder, right->holder) && left->fence == right->fence);
    CHECK(left->has_claim_id == right->has_claim_id);
    CHECK(memcmp(&left->claim_id, &right->claim_id, sizeof left->claim_id) == 0);
    CHECK(left->ttl_ms == right->ttl_ms && left->amount == right->amount && left->refresh == right->refresh);
    CHECK(left->wait_ms == right->wait_ms && left->flag == right->flag && fuzz_same_text(left->word, right->word));
    CHECK(fuzz_same_text(left->payload, right->payload) && strcmp(left->token, right->token) == 0);
    check_same_names(left->resources, left->resource_count, right->resources, right->resource_count);
    check_same_names(left->tables, left->table_count, right->tables, right->table_count);
    CHECK(left->item_count == right->item_count);
    for (size_t i = 0; i < left->item_count; i++)
        check_same_item(&left->items[i], &right->items[i]);
}

/* ---- as JSON ---- */

static void name_member(struct buf *json, const char *name) {
    if (json->data[json->size - 1] != '{')
        buf_append_byte(json, ',');
    buf_json_string(json, name, strlen(name));
    buf_append_byte(json, ':');
}

static void write_text(struct buf *json, const char *name, const char *text) {
    if (text == NULL)
        return;
    name_member(json, name);
    buf_json_string(json, text, strlen(text));
}

static void write_json(struct buf *json, const char *name, const char *text) {
    if (text == NULL)
        return;
    name_member(json, name);
    buf_append_text(json, text);
}

static void write_number(struct buf *json, const char *name, int64_t number) {
    if (number == COMMAND_ABSENT)
        return;
    name_member(json, name);
    buf_append_number(json, number);
}

static void write_boolean(struct buf *json, const char *name, int flag) {
    if (flag >= 0)
        write_json(json, name, flag != 0 ? "true" : "false");
}

static void write_names(struct buf *json, const char *name, const char *const *names, size_t count) {
    if (count == 0)
        return;
    name_member(json, name);
    for (size_t i = 0; i < count; i++) {
        buf_append_byte(json, i == 0 ? '[' : ',');
        buf_json_string(json, names[i], strlen(names[i]));
    }
    buf_append_byte(json, ']');
}

static void write_grant(struct buf *json, int64_t fence, const struct claim_id *claim_id, const char *token) {
    char text[CLAIM_ID_TEXT_SIZE];
    write_number(json, "fence", fence);
    write_text(json, "claim_id", claim_id_format(claim_id, text));
    write_text(json, "token", token);
}

static void write_items(const struct command *command, struct buf *json) {
    name_member(json, "items");
    for (size_t i = 0; i < command->item_count; i++) {
        const struct command_item *item = &command->items[i];
        buf_append_text(json, i == 0 ? "[{" : ",{");
        write_text(json, "lease", item->lease);
        write_grant(json, item->fence, &item->claim_id, item->token);
        write_json(json, "result", item->payload);
        write_text(json, "reason", item->word);
        write_boolean(json, "retry", item->flag);
        write_number(json, "delay_ms", item->amount);
        buf_append_byte(json, '}');
    }
    buf_append_byte(json, ']');
}

/* The payload of an edit is {"new":…,"old":…}. */
static void write_edit(const struct command *command, struct buf *json) {
    size_t position = 0;
    struct json_member member;
    while (json_text_next_member(command->payload, strlen(command->payload), &position, &member)) {
        char *name = memory_copy_bytes(member.name, member.name_size), *value = memory_copy_bytes(member.value, member.value_size);
        write_json(json, name, value);
        free(name);
        free(value);
    }
    write_text(json, "editor", command->holder);
    write_text(json, "follows", command->word);
    write_number(json, "park_ms", command->wait_ms);
}

static void write_members(const struct command *command, struct buf *json) {
    switch (command->command) {
    case LEASE_COMMAND_START:
        write_boolean(json, "more", command->flag);
        write_json(json, "payload", command->payload);
        break;
    case LEASE_COMMAND_BEGIN: write_number(json, "count", command->amount); break;
    case LEASE_COMMAND_REQUEST:
        write_json(json, "payload", command->payload);
        write_number(json, "delay_ms", command->amount);
        break;
    case LEASE_COMMAND_CLAIM: write_number(json, "credit_total", command->amount); break;
    case LEASE_COMMAND_ADVANCE: write_text(json, "step", command->word); break;
    case LEASE_COMMAND_FINISH: write_json(json, "result", command->payload); break;
    case LEASE_COMMAND_FAIL:
        write_text(json, "reason", command->word);
        write_boolean(json, "retry", command->flag);
        write_number(json, "delay_ms", command->amount);
        break;
    default: break;
    }
}

void commands_write_data(const struct command *command, struct buf *json) {
    if (command->command == LEASE_COMMAND_RESOLVE) {
        buf_append_text(json, command->payload);
        return;
    }
    buf_append_byte(json, '{');
    if (command->command == LEASE_COMMAND_EDIT) {
        write_edit(command, json);
    } else if (command->command == LEASE_COMMAND_CANCEL) {
        write_text(json, "editor", command->holder);
        write_text(json, "edit", command->word);
    } else {
        if (command->has_claim_id)
            write_grant(json, command->fence, &command->claim_id, command->token);
        if (command->item_count > 0)
            write_items(command, json);
        else
            write_members(command, json);
        write_text(json, "holder", command->holder);
        write_number(json, "ttl_ms", command->ttl_ms);
        write_names(json, "resources", command->resources, command->resource_count);
        write_names(json, "tables", command->tables, command->table_count);
        write_number(json, "wait_ms", command->wait_ms);
        write_number(json, "refresh", command->refresh);
    }
    buf_append_byte(json, '}');
}

bool commands_keep_digest(const struct command *command) {
    return command->command != LEASE_COMMAND_START && command->command != LEASE_COMMAND_CLAIM &&
           command->command != LEASE_COMMAND_FAIL;
}

void commands_write_event(const struct command *command, const char *data, size_t data_size, struct buf *json) {
    struct buf type = BUF_INIT;
    buf_appendf(&type, "%s.%s", command->kind, lease_command_name(command->command));
    buf_append_byte(json, '{');
    write_text(json, "specversion", "1.0");
    write_text(json, "id", command->message_id);
    write_text(json, "source", command->source);
    write_text(json, "type", buf_text(&type));
    write_text(json, "subject", command->subject);
    write_text(json, "traceparent", command->traceparent);
    name_member(json, "data");
    buf_append(json, data, data_size);
    buf_append_byte(json, '}');
    buf_release(&type);
}
