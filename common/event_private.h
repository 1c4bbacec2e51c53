/* Between the files of event: attributes (event_attributes.c), members of data
 * (event_members.c), memory and verdicts of a command (event_command.c), the whole (event.c). Not for anybody else. */
#ifndef LEASE_EVENT_PRIVATE_H
#define LEASE_EVENT_PRIVATE_H

#include "common/event.h"
#include "common/event_text.h"

#include <stdbool.h>
#include <stddef.h>

struct attributes {
    struct slice specversion;
    struct slice id;
    struct slice source;
    struct slice type;
    struct slice subject;
    struct slice time;
    struct slice traceparent;
};

/* One decoding under way. */
struct decoder {
    const struct message *message;
    const struct event_limits *limits;
    struct command *command;
    struct attributes attributes;
};

/* Notes the verdict and returns false. `field` is copied (and cut at 128 bytes); NULL allowed. */
bool event_fault(struct decoder *decoder, enum event_reason reason, const char *field, size_t field_size);
bool event_fault_text(struct decoder *decoder, enum event_reason reason, const char *field);

/* ---- event_attributes.c ---- */

enum event_mode { EVENT_MODE_BINARY, EVENT_MODE_STRUCTURED, EVENT_MODE_UNDECLARED };

/* What can be said without looking into key and value: sizes, nulls. */
bool event_check_framing(struct decoder *decoder);
/* From the headers. Faults: batch mode, a content-type that is not ours. */
bool event_find_mode(struct decoder *decoder, enum event_mode *ret_mode);
/* Binary mode: fills decoder->attributes from ce_* headers; and checks that the data is declared as JSON. */
bool event_read_headers(struct decoder *decoder);
/* Is this media type JSON in UTF-8? */
bool event_is_json_media(struct slice media);
/* Checks the attributes that identify, and copies them to the command. Faults are dead letters. */
bool event_identify(struct decoder *decoder);
/* What is wrong although it is identified: key, kind's mode, time. Faults are `malformed`. */
bool event_check_identified(struct decoder *decoder);

/* ---- event_members.c ---- */

struct json_t; /* the JSON library's value */
/* A string that is one: not a number in quotes (json_text.h). NULL value allowed. */
bool event_take_text(const struct json_t *value, struct slice *ret);
/* Reads the data object into the command; `text` is the object as it came. Faults are `malformed`. */
bool event_read_members(struct decoder *decoder, struct json_t *data, struct slice text);

/* ---- event_command.c ---- */

/* Room for `size` bytes in one piece, before anything is taken. */
void command_reserve(struct command *command, size_t size);
void *command_take(struct command *command, size_t size); /* owned by the command, aligned for pointers, not zeroed */
const char *command_copy(struct command *command, const void *bytes, size_t size); /* NUL behind */
/* Makes everything absent that an accepted command says beyond who it is. */
void command_say_nothing(struct command *command);

#endif
