/* stamp; see stamp.h. */
#include "common/stamp.h"

#include "common/record.h"

#include <string.h>

/* Digits only, as our encoder writes them; anything else is 0. */
static int64_t parse_number(const char *text, size_t size) {
    int64_t number = 0;
    if (size == 0 || size > 18)
        return 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        number = number * 10 + (text[i] - '0');
    }
    return number;
}

static int64_t header_number(const struct message_header *header) {
    return header->value ? parse_number(header->value, header->value_size) : 0;
}

/* A mark's fence stands in its value: {"epoch":…,"number":…,"fence":N,…}, written by record_encode_mark without spaces. */
static int64_t mark_fence(const struct message *message) {
    static const char name[] = "\"fence\":";
    const char *value = message->value;
    if (!value)
        return 0;
    const char *found = memmem(value, message->value_size, name, sizeof name - 1);
    if (!found)
        return 0;
    const char *digits = found + sizeof name - 1;
    size_t left = message->value_size - (size_t)(digits - value), size = 0;
    while (size < left && digits[size] >= '0' && digits[size] <= '9')
        size++;
    return parse_number(digits, size);
}

void stamp_read(const struct message *message, struct stamp *ret_stamp) {
    struct stamp stamp = {0};
    bool is_dead_letter = false;
    for (size_t i = 0; i < message->header_count; i++) {
        const struct message_header *header = &message->headers[i];
        if (strcmp(header->name, HEADER_NUMBER) == 0)
            stamp.number = header_number(header);
        else if (strcmp(header->name, HEADER_EPOCH) == 0)
            stamp.epoch = header_number(header);
        else if (strcmp(header->name, HEADER_FENCE) == 0)
            stamp.fence = header_number(header);
        else if (strcmp(header->name, HEADER_MARK) == 0)
            stamp.is_mark = true;
        else if (strcmp(header->name, "lease_dlq_at") == 0)
            is_dead_letter = true;
    }
    if (is_dead_letter) {
        stamp.is_mark = false;
        stamp.fence = 0;
    }
    if (stamp.is_mark)
        stamp.fence = mark_fence(message);
    *ret_stamp = stamp;
}
