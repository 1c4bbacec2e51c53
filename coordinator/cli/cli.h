/* What every command of leasectl has: its arguments, its settings, its two streams, its way of failing.
 *
 * stdout carries data only, stderr messages. Exit codes: 0 yes, 1 no (a refusal, nothing found), from 64 on sysexits. */
#ifndef LEASE_CLI_CLI_H
#define LEASE_CLI_CLI_H

#include "common/db.h"
#include "common/error.h"
#include "common/kafka_config.h"
#include "coordinator/cli/arguments.h"
#include "coordinator/cli/output.h"
#include "coordinator/options.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum cli_exit {
    CLI_YES = 0,
    CLI_NO = 1,
    CLI_USAGE = 64,
    CLI_DATA = 65,
    CLI_UNAVAILABLE = 69,
    CLI_SOFTWARE = 70,
    CLI_TEMPORARY = 75,
    CLI_PERMISSION = 77,
    CLI_CONFIGURATION = 78,
};

struct cli;

/* One row of the command table: it drives dispatch, parsing and help. */
struct cli_command {
    const char *name;     /* one word, or two: "dlq ls" */
    const char *usage;    /* what stands behind the name */
    const char *summary;  /* one line, for the list of commands */
    const char *help;     /* paragraphs */
    const char *examples; /* "$ command" lines, each followed by what it does */
    const struct argument_option *options;
    size_t words_least, words_most;
    enum cli_exit (*run)(struct cli *cli);
};

extern const struct cli_command *const cli_commands[]; /* commands.c; ends with NULL */

struct cli {
    const struct cli_command *command;
    struct arguments arguments;
    struct options options; /* the coordinator's own table, less what only it needs */
    FILE *out, *err;
    enum output_format format;
    char group[160];
    bool colored; /* stdout is a terminal and nobody asked for plain text */
};

/* ---- failing: each prints "leasectl <command>: …" on stderr, and what to do next, and returns the code ---- */

enum cli_exit cli_fail(struct cli *cli, enum cli_exit code, const char *next, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* An error of another module; the table in cli.c says which code it means and what to do next. */
enum cli_exit cli_fail_with(struct cli *cli, const struct error *error);
/* A mistake on the command line. */
enum cli_exit cli_fail_usage(struct cli *cli, const struct error *error);
enum cli_exit cli_exit_of(const struct error *error);

/* A line for the person at the terminal; nothing that a program would want. */
void cli_note(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- connecting ---- */

/* Longest --wait. */
enum { CLI_WAIT_MS_MAX = 24 * 3600 * 1000 };

/* Tries until it works, or wait_ms have passed, or it can never work. deadline_ms and statement bounds as in db.h;
 * lists and single rows use CLI_QUERY_MS, migrations none. */
enum { CLI_QUERY_MS = 30000, CLI_UNBOUNDED = -1 };
bool cli_connect(struct cli *cli, int64_t wait_ms, int deadline_ms, struct db **ret_db, struct error *error) MUST_USE;

/* Borrowed from the settings. False (FATAL) when no brokers are configured. */
bool cli_get_kafka(struct cli *cli, struct kafka_settings *ret_settings, struct error *error) MUST_USE;
const char *cli_topic_prefix(const struct cli *cli); /* never NULL */
/* Named to the broker by readers, never joined: the coordinators' own, which the access rules know. With its prefix. */
const char *cli_group(struct cli *cli);

/* Between two tries of anything; long enough to be no load, short enough to be no wait. */
enum { CLI_RETRY_MS = 200 };
void cli_pause_ms(int64_t ms);

#endif
