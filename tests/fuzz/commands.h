/* What must hold of a decoded command, whatever it was decoded from; and a command written as the event that says it. */
#ifndef LEASE_TESTS_FUZZ_COMMANDS_H
#define LEASE_TESTS_FUZZ_COMMANDS_H

#include "common/event.h"

/* Verdict, reason and field fit each other and the record; who and what is there or absent as event.h says; everything within its
 * bounds. */
void commands_check(const struct command *command, const struct message *message, const struct event_limits *limits);

/* Ends the process if they differ in anything but where they came from. */
void commands_check_same(const struct command *left, const struct command *right, bool with_digest);

/* Appends the data of an accepted command, member by member from what it says (tokens unchecked yet). */
void commands_write_data(const struct command *command, struct buf *json);

/* Is the digest of what commands_write_data writes the command's own? Not where a default was filled in. */
bool commands_keep_digest(const struct command *command);

/* Appends a structured event of the command's attributes around the text of its data. */
void commands_write_event(const struct command *command, const char *data, size_t data_size, struct buf *json);

#endif
