/* A command line against a table of options: what was given, what are words, and the help that the table prints.
 *
 * Options may stand anywhere; "--" ends them; "-" alone is a word. `--name VALUE` and `--name=VALUE` are the same, and
 * so are `-o VALUE` and `-oVALUE`. An option whose value may be left out takes it only as `--name=VALUE`. Everything
 * points into argv, which outlives the arguments. */
#ifndef LEASE_CLI_ARGUMENTS_H
#define LEASE_CLI_ARGUMENTS_H

#include "common/buf.h"
#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct argument_option {
    const char *name;  /* long name without dashes; NULL ends a table */
    char letter;       /* short form, or 0 */
    const char *value; /* what help calls the value; NULL: takes none; "[X]": may be left out */
    const char *help;  /* one line */
};

/* More than any command takes; a line with more is a mistake, not a use. */
enum { ARGUMENTS_OPTIONS_MAX = 64, ARGUMENTS_WORDS_MAX = 256, ARGUMENTS_TABLES_MAX = 2 };

struct argument_given {
    const struct argument_option *option;
    const char *value; /* NULL when the option takes none or it was left out */
};

struct arguments {
    const struct argument_option *tables[ARGUMENTS_TABLES_MAX];
    struct argument_given given[ARGUMENTS_OPTIONS_MAX]; /* in the order of the line */
    size_t given_count;
    const char *words[ARGUMENTS_WORDS_MAX];
    size_t word_count;
};

/* Either table may be NULL. ERROR_REJECT with a message that names the option and, where one is near, the right one. */
bool arguments_parse(struct arguments *arguments, int count, char *const *texts, const struct argument_option *own,
                     const struct argument_option *common, struct error *error) MUST_USE;

/* The last one given counts. `name` must be in one of the tables. */
bool arguments_has(const struct arguments *arguments, const char *name);
const char *arguments_text(const struct arguments *arguments, const char *name); /* NULL: not given, or no value */

/* Not given: *ret_number stays as it is. */
bool arguments_number(const struct arguments *arguments, const char *name, int64_t least, int64_t most,
                      int64_t *ret_number, struct error *error) MUST_USE;
bool arguments_duration_ms(const struct arguments *arguments, const char *name, int64_t *ret_ms,
                           struct error *error) MUST_USE;

/* One line for each option of a table, in columns. */
void arguments_format_options(const struct argument_option *table, struct buf *buf);

/* The candidate nearest to `text`, or NULL when none is near enough to be a slip of the finger. */
const char *arguments_nearest(const char *text, const char *const *candidates, size_t count);

#endif
