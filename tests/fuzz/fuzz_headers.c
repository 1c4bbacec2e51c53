/* Headers: of CloudEvents in binary mode, packed for the journal, and on their way into a dead letter. Input: one record (fuzz.h); its
 * value is also read as packed headers.
 *
 * Holds: packing and reading back gives the same; whatever is read of any bytes packs to the bytes that were read; the order of
 * headers and one more unknown one change no command; a dead letter's headers are the original's, then ours, and whatever the original
 * claimed, the stamp that readers see is ours and no mark. */
#include "commands.h"
#include "fuzz.h"

#include "common/headers.h"
#include "common/record.h"
#include "common/stamp.h"

#include <stdlib.h>
#include <string.h>

static void check_packed_bytes(const uint8_t *bytes, size_t size) {
    struct buf anew = BUF_INIT;
    struct message_header header;
    size_t position = 0;
    for (size_t before = 0; headers_next(bytes, size, &position, &header); before = position) {
        CHECK(position >= before + 8 && position <= size);
        headers_pack(&header, 1, &anew);
    }
    CHECK(anew.size == position && memcmp(buf_text(&anew), bytes, position) == 0);
    buf_release(&anew);
}

static void check_packing(const struct message *message) {
    struct buf packed = BUF_INIT;
    headers_pack(message->headers, message->header_count, &packed);
    size_t position = 0, wire_size = 0;
    struct message_header header;
    for (size_t i = 0; i < message->header_count; i++) {
        const struct message_header *original = &message->headers[i];
        CHECK(headers_next((const uint8_t *)buf_text(&packed), packed.size, &position, &header));
        CHECK(header.name_size == original->name_size && memcmp(header.name, original->name, header.name_size) == 0);
        CHECK((header.value == NULL) == (original->value == NULL) && header.value_size == original->value_size);
        CHECK(header.value == NULL || memcmp(header.value, original->value, header.value_size) == 0);
        wire_size += headers_wire_size(original, 1);
    }
    CHECK(position == packed.size && !headers_next((const uint8_t *)buf_text(&packed), packed.size, &position, &header));
    CHECK(wire_size == headers_wire_size(message->headers, message->header_count));
    check_packed_bytes((const uint8_t *)buf_text(&packed), packed.size);
    buf_release(&packed);
}

/* ---- meaning ---- */

static bool has_one_traceparent(const struct message *message) {
    size_t count = 0;
    for (size_t i = 0; i < message->header_count; i++)
        count += strcmp(message->headers[i].name, "traceparent") == 0;
    return count <= 1;
}

static void check_with_headers(const struct command *command, const struct message *message, const struct message_header *headers,
                               size_t count) {
    struct event_limits limits = event_limits_default();
    limits.header_count++;
    limits.header_bytes += 64;
    struct message other = *message;
    struct command again;
    other.headers = headers;
    other.header_count = count;
    CHECK(event_decode(&other, &limits, &again));
    commands_check_same(command, &again, true);
    command_release(&again);
}

static void check_order(const struct command *command, const struct message *message) {
    struct message_header headers[FUZZ_HEADERS_MAX + 1];
    for (size_t i = 0; i < message->header_count; i++)
        headers[i] = message->headers[message->header_count - 1 - i];
    if (has_one_traceparent(message))
        check_with_headers(command, message, headers, message->header_count);
    headers[message->header_count] = (struct message_header){.name = "x-unknown", .name_size = 9, .value = "1", .value_size = 1};
    memcpy(headers, message->headers, message->header_count * sizeof *headers);
    check_with_headers(command, message, headers, message->header_count + 1);
}

/* ---- dead letters ---- */

static const struct message_header *last_named(const struct message_header *headers, size_t count, const char *name) {
    const struct message_header *found = NULL;
    for (size_t i = 0; i < count; i++)
        if (strcmp(headers[i].name, name) == 0)
            found = &headers[i];
    return found;
}

static void check_letter(const struct message *message, const struct record *letter) {
    CHECK(letter->header_count > message->header_count);
    for (size_t i = 0; i < message->header_count; i++) {
        CHECK(strcmp(letter->headers[i].name, message->headers[i].name) == 0);
        CHECK((letter->headers[i].value == NULL) == (message->headers[i].value == NULL));
        CHECK(letter->headers[i].value_size == message->headers[i].value_size);
    }
    const struct message_header *reason = last_named(letter->headers, letter->header_count, "lease_dlq_reason");
    CHECK(reason != NULL && reason->value_size == strlen("database_refused") &&
          memcmp(reason->value, "database_refused", reason->value_size) == 0);
    struct message read = {.topic = "lease.dead-letters",
                           .value = letter->value,
                           .value_size = letter->value_size,
                           .headers = letter->headers,
                           .header_count = letter->header_count};
    struct stamp stamp;
    stamp_read(&read, &stamp);
    CHECK(!stamp.is_mark && stamp.fence == 0 && stamp.number == 77 && stamp.epoch == 7);
}

static void check_dead_letter(struct command *command, const struct message *message) {
    command_to_dead_letter(command, message, EVENT_DATABASE_REFUSED, "22P02");
    struct journal_row row = JOURNAL_ROW_INIT;
    row.number = 77;
    row.event = "dead_letter";
    row.reason = event_reason_name(command->reason);
    row.field = command->field;
    row.origin_topic = command->topic;
    row.origin_partition = command->partition;
    row.origin_offset = command->offset;
    row.raw_key = command->raw_key;
    row.raw_key_size = command->raw_key_size;
    row.raw_value = command->raw_value;
    row.raw_value_size = command->raw_value_size;
    row.raw_headers = command->raw_headers;
    row.raw_headers_size = command->raw_headers_size;
    struct record letter;
    record_init(&letter);
    CHECK(record_encode_dead_letter(&letter, &row, 7));
    check_letter(message, &letter);
    record_release(&letter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_record record;
    struct command command;
    fuzz_record_read(&record, data, size);
    const struct message *message = &record.message;
    struct event_limits limits = event_limits_default();
    check_packing(message);
    if (message->value != NULL)
        check_packed_bytes(message->value, message->value_size);
    bool is_accepted = event_decode(message, &limits, &command);
    commands_check(&command, message, &limits);
    if (is_accepted)
        check_order(&command, message);
    check_dead_letter(&command, message);
    command_release(&command);
    fuzz_record_release(&record);
    return 0;
}
