/* A decoded command's memory, and the names of verdicts and reasons; see event.h. */
#include "common/event_private.h"
#include "common/topics.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A bump allocator: most commands fit one block, made large enough for their record. */
struct command_block {
    struct command_block *next;
    size_t capacity;
    size_t used;
    max_align_t bytes[];
};
enum { BLOCK_MIN = 512, ALIGNMENT = sizeof(void *) };

static struct command_block *add_block(struct command *command, size_t size) {
    size_t capacity = size > BLOCK_MIN ? size : BLOCK_MIN;
    struct command_block *block = memory_or_exit(malloc(sizeof *block + capacity));
    *block = (struct command_block){.next = command->blocks, .capacity = capacity};
    command->blocks = block;
    return block;
}

void command_reserve(struct command *command, size_t size) {
    add_block(command, size);
}

void *command_take(struct command *command, size_t size) {
    size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct command_block *block = command->blocks;
    if (block == NULL || block->capacity - block->used < rounded)
        block = add_block(command, rounded);
    void *taken = (char *)block->bytes + block->used;
    block->used += rounded;
    return taken;
}

const char *command_copy(struct command *command, const void *bytes, size_t size) {
    char *copy = command_take(command, size + 1);
    if (size > 0)
        memcpy(copy, bytes, size);
    copy[size] = '\0';
    return copy;
}

size_t command_size(const struct command *command) {
    size_t size = 0;
    for (const struct command_block *block = command->blocks; block != NULL; block = block->next)
        size += sizeof *block + block->capacity;
    return size;
}

static void wipe_tokens(struct command *command) {
    token_wipe(command->token, sizeof command->token);
    for (size_t i = 0; i < command->item_count; i++)
        token_wipe(command->items[i].token, sizeof command->items[i].token);
}

void command_release(struct command *command) {
    if (command == NULL)
        return;
    wipe_tokens(command);
    while (command->blocks != NULL) {
        struct command_block *next = command->blocks->next;
        free(command->blocks);
        command->blocks = next;
    }
    memset(command, 0, sizeof *command);
}

void command_check_token(struct command *command, const struct token_keys *keys) {
    if (command->has_claim_id && command->token[0] != '\0')
        command->token_fits = token_fits(keys, &command->claim_id, command->token);
    for (size_t i = 0; i < command->item_count; i++) {
        struct command_item *item = &command->items[i];
        item->token_fits = item->token[0] != '\0' && token_fits(keys, &item->claim_id, item->token);
    }
    wipe_tokens(command);
}

void command_say_nothing(struct command *command) {
    command->holder = NULL;
    command->fence = COMMAND_ABSENT;
    command->has_claim_id = false;
    memset(&command->claim_id, 0, sizeof command->claim_id);
    command->ttl_ms = COMMAND_ABSENT;
    command->amount = COMMAND_ABSENT;
    command->refresh = COMMAND_ABSENT;
    command->wait_ms = COMMAND_ABSENT;
    command->word = NULL;
    command->old = NULL;
    command->flag = -1;
    command->resources = NULL;
    command->resource_count = 0;
    command->tables = NULL;
    command->table_count = 0;
    command->payload = NULL;
    wipe_tokens(command);
    command->items = NULL;
    command->item_count = 0;
}

/* ---- verdicts ---- */

static const char *const verdict_names[EVENT_VERDICT_COUNT] = {
    [EVENT_ACCEPTED] = NULL,
    [EVENT_MALFORMED] = "malformed",
    [EVENT_DEAD_LETTER] = "dead_letter",
};

static const char *const reason_names[EVENT_REASON_COUNT] = {
    [EVENT_REASON_NONE] = NULL,
    [EVENT_NULL_VALUE] = "null_value",
    [EVENT_EMPTY_VALUE] = "empty_value",
    [EVENT_NULL_KEY] = "null_key",
    [EVENT_KEY_TOO_LONG] = "key_too_long",
    [EVENT_VALUE_TOO_LARGE] = "value_too_large",
    [EVENT_HEADERS_TOO_LARGE] = "headers_too_large",
    [EVENT_BATCH_MODE] = "batch_mode",
    [EVENT_NOT_CLOUDEVENTS] = "not_cloudevents",
    [EVENT_UNKNOWN_SPECVERSION] = "unknown_specversion",
    [EVENT_MISSING_ATTRIBUTE] = "missing_attribute",
    [EVENT_INVALID_ATTRIBUTE] = "invalid_attribute",
    [EVENT_UNKNOWN_TYPE] = "unknown_type",
    [EVENT_INVALID_ENCODING] = "invalid_encoding",
    [EVENT_INVALID_JSON] = "invalid_json",
    [EVENT_DUPLICATE_MEMBER] = "duplicate_member",
    [EVENT_TOO_DEEP] = "too_deep",
    [EVENT_TOO_COMPLEX] = "too_complex",
    [EVENT_KILLED_PROCESS] = "killed_process",
    [EVENT_DATABASE_REFUSED] = "database_refused",
    [EVENT_KEY_MISMATCH] = "key_mismatch",
    [EVENT_WRONG_KIND] = "wrong_kind",
    [EVENT_WRONG_TYPE] = "wrong_type",
    [EVENT_OUT_OF_RANGE] = "out_of_range",
    [EVENT_NOT_ALLOWED_CHARACTERS] = "not_allowed_characters",
    [EVENT_MISSING] = "missing",
    [EVENT_UNKNOWN_MEMBER] = "unknown_member",
    [EVENT_TOO_LONG] = "too_long",
    [EVENT_TOO_MANY] = "too_many",
    [EVENT_EMPTY] = "empty",
    [EVENT_REPEATED] = "repeated",
    [EVENT_UNKNOWN_KIND] = "unknown_kind",
    [EVENT_ID_REUSED] = "id_reused",
    [EVENT_TTL_ABOVE_MAXIMUM] = "ttl_above_maximum",
};

const char *event_verdict_name(enum event_verdict verdict) {
    assert((unsigned)verdict < EVENT_VERDICT_COUNT);
    return verdict_names[verdict];
}

const char *event_reason_name(enum event_reason reason) {
    assert((unsigned)reason < EVENT_REASON_COUNT);
    return reason_names[reason];
}

enum event_verdict event_reason_verdict(enum event_reason reason) {
    if (reason == EVENT_REASON_NONE)
        return EVENT_ACCEPTED;
    return reason < EVENT_KEY_MISMATCH ? EVENT_DEAD_LETTER : EVENT_MALFORMED;
}

/* Names of members come from outside and may be long; who reads the answer needs their beginning. */
enum { FIELD_MAX = 128 };

static size_t cut_at_character(const char *text, size_t size) {
    if (size <= FIELD_MAX)
        return size;
    size = FIELD_MAX;
    while (size > 0 && ((unsigned char)text[size] & 0xC0) == 0x80)
        size--;
    return size;
}

bool event_fault(struct decoder *decoder, enum event_reason reason, const char *field, size_t field_size) {
    struct command *command = decoder->command;
    command->reason = reason;
    command->verdict = event_reason_verdict(reason);
    command->field = field == NULL ? NULL : command_copy(command, field, cut_at_character(field, field_size));
    return false;
}

bool event_fault_text(struct decoder *decoder, enum event_reason reason, const char *field) {
    return event_fault(decoder, reason, field, field == NULL ? 0 : strlen(field));
}

static const uint8_t *copy_raw(struct command *command, const void *bytes, size_t size) {
    return bytes == NULL ? NULL : (const uint8_t *)command_copy(command, bytes, size);
}

/* What of a record is kept. Inputs take no larger ones, unless somebody changed their settings. */
struct cut {
    size_t key_size, value_size, header_count;
    char text[FIELD_MAX];
};

static size_t at_most(size_t size, size_t limit) {
    return size < limit ? size : limit;
}

/* The key goes first, up to half of what the inputs take, then the headers, up to half of what is left, then the value. */
static bool cut_record(const struct message *message, struct cut *ret_cut) {
    size_t left = strtoul(topic_config_get(topic_get(TOPIC_SETTLEMENT_EVENTS), "max.message.bytes"), NULL, 10);
    size_t headers_size = headers_wire_size(message->headers, message->header_count);
    *ret_cut = (struct cut){message->key_size, message->value_size, message->header_count, ""};
    if (message->has_lost_headers)
        strcpy(ret_cut->text, "cut: there are too many headers to read them");
    if (message->key_size <= left && headers_size <= left && message->value_size <= left &&
        message->key_size + headers_size + message->value_size <= left)
        return message->has_lost_headers;
    ret_cut->key_size = at_most(message->key_size, left / 2);
    left -= ret_cut->key_size;
    if (headers_size > left / 2) {
        headers_size = 0;
        for (size_t i = 0; i < message->header_count; i++) {
            size_t size = headers_wire_size(&message->headers[i], 1);
            if (size > left / 2 - headers_size) {
                ret_cut->header_count = i;
                break;
            }
            headers_size += size;
        }
    }
    ret_cut->value_size = at_most(message->value_size, left - headers_size);
    snprintf(ret_cut->text, sizeof ret_cut->text, "cut from key %zu, value %zu bytes, %zu headers to %zu, %zu, %zu",
             message->key_size, message->value_size, message->header_count, ret_cut->key_size, ret_cut->value_size,
             ret_cut->header_count);
    return true;
}

void command_to_dead_letter(struct command *command, const struct message *message, enum event_reason reason,
                            const char *detail) {
    assert(event_reason_verdict(reason) == EVENT_DEAD_LETTER);
    struct cut cut;
    if (cut_record(message, &cut))
        detail = cut.text;
    struct command letter = {
        .partition = message->partition,
        .offset = message->offset,
        .verdict = EVENT_DEAD_LETTER,
        .reason = reason,
        .raw_key_size = cut.key_size,
        .raw_value_size = cut.value_size,
    };
    command_say_nothing(&letter);
    struct buf headers = BUF_INIT;
    headers_pack(message->headers, cut.header_count, &headers);
    letter.topic = command_copy(&letter, message->topic, strlen(message->topic));
    letter.field = detail == NULL ? NULL : command_copy(&letter, detail, strlen(detail));
    letter.raw_key = copy_raw(&letter, message->key, cut.key_size);
    letter.raw_value = copy_raw(&letter, message->value, cut.value_size);
    letter.raw_headers = copy_raw(&letter, buf_text(&headers), headers.size);
    letter.raw_headers_size = headers.size;
    buf_release(&headers);
    command_release(command); /* only now: the detail may have been its own */
    *command = letter;
}
