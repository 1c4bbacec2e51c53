/* event_decode over records of any kind. Input: one record (fuzz.h); `:kinds 1` lets only three kinds be known.
 *
 * Holds: what commands.h says of any decoding; the same bytes decode the same again; an accepted command is decoded again from the
 * same data in either mode with the same digest, and from data that is written anew from what was understood; a token fits if it
 * is the right one, and is gone afterwards. */
#include "commands.h"
#include "fuzz.h"

#include "common/json_text.h"

#include <string.h>

static const struct event_kind kinds[] = {{"settlement", LEASE_MODE_RUN}, {"cleanup", LEASE_MODE_POOL}, {"contract", LEASE_MODE_EDIT}};

/* A little less than the protocol's own, so that the same event in the other mode, or written anew, has room. */
static struct event_limits limits_of(const struct fuzz_record *record) {
    struct event_limits limits = event_limits_default();
    limits.depth -= 2;
    limits.elements -= 64;
    limits.value_bytes -= 8192;
    if (fuzz_record_number(record, "kinds", 0) != 0) {
        limits.kinds = kinds;
        limits.kind_count = sizeof kinds / sizeof *kinds;
    }
    return limits;
}

static struct message_header header_of(const char *name, const char *value) {
    return (struct message_header){.name = name, .name_size = strlen(name), .value = value, .value_size = strlen(value)};
}

/* In a record of this value and these headers, the command must come out again. */
static void check_again(const struct command *command, const struct message_header *headers, size_t header_count, const char *value,
                        size_t value_size, bool with_digest) {
    struct message message = {.topic = "settlement.events",
                              .partition = 3,
                              .offset = 42,
                              .key = command->subject,
                              .key_size = strlen(command->subject),
                              .value = value,
                              .value_size = value_size,
                              .headers = headers,
                              .header_count = header_count};
    struct event_limits limits = event_limits_default();
    struct command again;
    CHECK(event_decode(&message, &limits, &again));
    commands_check_same(command, &again, with_digest);
    command_release(&again);
}

static void check_structured(const struct command *command, const char *data, size_t data_size, bool with_digest) {
    struct message_header header = header_of("content-type", "application/cloudevents+json; charset=utf-8");
    struct buf json = BUF_INIT;
    commands_write_event(command, data, data_size, &json);
    check_again(command, &header, 1, buf_text(&json), json.size, with_digest);
    check_again(command, NULL, 0, buf_text(&json), json.size, with_digest);
    buf_release(&json);
}

static void check_binary(const struct command *command, const char *data, size_t data_size) {
    struct buf type = BUF_INIT;
    buf_appendf(&type, "%s.%s", command->kind, lease_command_name(command->command));
    struct message_header headers[] = {
        header_of("ce_specversion", "1.0"),
        header_of("ce_id", command->message_id),
        header_of("ce_source", command->source),
        header_of("ce_type", buf_text(&type)),
        header_of("ce_subject", command->subject),
        header_of("ce_traceparent", command->traceparent != NULL ? command->traceparent : ""),
    };
    check_again(command, headers, command->traceparent != NULL ? 6 : 5, data, data_size, true);
    buf_release(&type);
}

/* The text of data as it came: the value, or the member of it. */
static bool find_data(const struct message *message, struct json_member *ret_data) {
    for (size_t i = 0; i < message->header_count; i++)
        if (strcmp(message->headers[i].name, "ce_id") == 0) {
            bool is_structured = json_text_find_member(message->value, message->value_size, "specversion", ret_data);
            *ret_data = (struct json_member){.value = message->value, .value_size = message->value_size};
            return !is_structured; /* both: whichever it was, is not for us to say */
        }
    return json_text_find_member(message->value, message->value_size, "data", ret_data);
}

static void check_meaning(const struct command *command, const struct message *message) {
    struct json_member data;
    if (find_data(message, &data)) {
        check_structured(command, data.value, data.value_size, true);
        check_binary(command, data.value, data.value_size);
    }
    struct buf anew = BUF_INIT;
    commands_write_data(command, &anew);
    check_structured(command, buf_text(&anew), anew.size, commands_keep_digest(command));
    buf_release(&anew);
}

/* ---- tokens ---- */

static struct token_keys *test_keys(void) {
    static struct token_keys *keys;
    struct error error;
    if (keys == NULL)
        CHECK(token_keys_new("0123456789abcdef0123456789abcdef", 32, NULL, 0, &keys, &error));
    return keys;
}

static bool is_right(const struct claim_id *claim_id, const char *token) {
    char right[LEASE_TOKEN_TEXT_SIZE];
    token_derive(test_keys(), claim_id, right);
    return strcmp(right, token) == 0;
}

static void check_tokens(struct command *command) {
    bool fits = command->has_claim_id && is_right(&command->claim_id, command->token);
    bool item_fits = command->item_count > 0 && is_right(&command->items[0].claim_id, command->items[0].token);
    command_check_token(command, test_keys());
    CHECK(command->token_fits == fits && command->token[0] == '\0');
    CHECK(command->item_count == 0 || (command->items[0].token_fits == item_fits && command->items[0].token[0] == '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_record record;
    struct command command, again;
    fuzz_record_read(&record, data, size);
    struct event_limits limits = limits_of(&record);
    bool is_accepted = event_decode(&record.message, &limits, &command);
    CHECK(is_accepted == (command.verdict == EVENT_ACCEPTED));
    commands_check(&command, &record.message, &limits);
    CHECK(event_decode(&record.message, &limits, &again) == is_accepted);
    commands_check_same(&command, &again, true);
    command_release(&again);
    if (is_accepted)
        check_meaning(&command, &record.message);
    check_tokens(&command);

    command_to_dead_letter(&command, &record.message, EVENT_KILLED_PROCESS, command.field);
    CHECK(command.verdict == EVENT_DEAD_LETTER && command.reason == EVENT_KILLED_PROCESS && command.kind == NULL);
    CHECK((command.raw_value == NULL) == (record.message.value == NULL));
    command_release(&command);
    CHECK(command.blocks == NULL && command.topic == NULL);
    fuzz_record_release(&record);
    return 0;
}
