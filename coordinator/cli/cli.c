/* What every command has; see cli.h. */
#include "coordinator/cli/cli.h"

#include "common/buf.h"
#include "common/clock.h"
#include "coordinator/cli/text.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

/* ---- what an error means to whoever typed the command ---- */

/* The first row whose code begins the error's code counts; "" matches all. Kinds decide where no row speaks. */
static const struct {
    const char *code;
    enum cli_exit exit;
    const char *next;
} meanings[] = {
    {"usage", CLI_USAGE, NULL},
    {"unknown_option", CLI_USAGE, NULL},
    {"configuration", CLI_CONFIGURATION, "'leasectl --help' lists the settings and where they may stand"},
    {"secret_file", CLI_CONFIGURATION, NULL},
    {"no_brokers", CLI_CONFIGURATION, "name them with --brokers HOST:PORT or LEASE_BROKERS"},
    {"db_conninfo", CLI_CONFIGURATION, "give --database or LEASE_DATABASE a conninfo such as 'host=db dbname=leasehold user=me'"},
    {"db_lost", CLI_UNAVAILABLE,
     "is PostgreSQL running where --database or LEASE_DATABASE says? --wait SECONDS waits for it where a command has it"},
    {"db_deadline", CLI_UNAVAILABLE, "the server did not answer in time; try again, or look at what it is doing"},
    {"db_commit_in_doubt", CLI_TEMPORARY, "nobody knows whether it was committed: look, then run the command again"},
    {"08", CLI_UNAVAILABLE, "is PostgreSQL running where --database or LEASE_DATABASE says?"},
    {"57P03", CLI_UNAVAILABLE, "the server is starting or stopping; try again, or give --wait SECONDS"},
    {"3D000", CLI_CONFIGURATION, "create the database, or name another one in --database"},
    {"28", CLI_PERMISSION, "check user and password in --database, PGPASSWORD or the pass file"},
    {"42501", CLI_PERMISSION, "this role may not do that: lease_reader may read, lease_coordinator may also jump, the owner migrates"},
    {"3F000", CLI_CONFIGURATION, "this database has no Leasehold schema, or an older one: run 'leasectl migrate'"},
    {"42P01", CLI_CONFIGURATION, "this database has no Leasehold schema, or an older one: run 'leasectl migrate'"},
    {"42703", CLI_CONFIGURATION, "this database has another version's schema: run 'leasectl migrate --plan'"},
    {"42883", CLI_CONFIGURATION, "this database has another version's schema: run 'leasectl migrate --plan'"},
    {"55P03", CLI_TEMPORARY, "somebody else has it locked; try again"},
    {"migration_failed", CLI_DATA, "nothing of this file was kept, the files before it were: correct it and run this again"},
    {"LE", CLI_CONFIGURATION, NULL},
    {"kafka_not_authorized", CLI_PERMISSION, "the broker's access rules do not let this client do that"},
    {"kafka_unknown_topic", CLI_CONFIGURATION, "'leasectl topics' shows which topics are missing, --apply creates them"},
    {"witness_topic_missing", CLI_CONFIGURATION, "'leasectl topics' shows which topics are missing, --apply creates them"},
    {"kafka_key", CLI_CONFIGURATION, NULL},
    {"kafka_value", CLI_CONFIGURATION, NULL},
    {"kafka_too_large", CLI_DATA, "a message may have 262144 bytes"},
    {"kafka", CLI_UNAVAILABLE, "is Kafka running where --brokers or LEASE_BROKERS says? --wait SECONDS waits for it where a command has it"},
};

static size_t find_meaning(const struct error *error) {
    size_t count = sizeof meanings / sizeof meanings[0];
    for (size_t i = 0; i < count; i++)
        if (strncmp(error->code, meanings[i].code, strlen(meanings[i].code)) == 0)
            return i;
    return count;
}

enum cli_exit cli_exit_of(const struct error *error) {
    size_t meaning = find_meaning(error);
    if (meaning < sizeof meanings / sizeof meanings[0])
        return meanings[meaning].exit;
    switch (error->kind) {
    case ERROR_RETRY: return CLI_TEMPORARY;
    case ERROR_REJECT: return CLI_DATA;
    case ERROR_NONE:
    case ERROR_FATAL: break;
    }
    return CLI_SOFTWARE;
}

/* ---- saying it ---- */

/* Text of the data may be inside a message: a terminal must not obey it. */
static void print_escaped(FILE *file, const char *text) {
    struct buf buf = BUF_INIT;
    text_append_escaped(&buf, text, strlen(text));
    fputs(buf_text(&buf), file);
    buf_release(&buf);
}

static void print_failure(struct cli *cli, const char *message, const char *next) {
    fflush(cli->out);
    fprintf(cli->err, "leasectl%s%s: ", cli->command ? " " : "", cli->command ? cli->command->name : "");
    print_escaped(cli->err, message);
    fputc('\n', cli->err);
    if (next != NULL)
        fprintf(cli->err, "  what to do: %s\n", next);
    fflush(cli->err);
}

enum cli_exit cli_fail(struct cli *cli, enum cli_exit code, const char *next, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    print_failure(cli, message, next);
    return code;
}

enum cli_exit cli_fail_with(struct cli *cli, const struct error *error) {
    size_t meaning = find_meaning(error);
    const char *next = meaning < sizeof meanings / sizeof meanings[0] ? meanings[meaning].next : NULL;
    if (next == NULL && error->kind == ERROR_RETRY)
        next = "it may pass by itself: try again";
    print_failure(cli, error->message, next);
    return cli_exit_of(error);
}

enum cli_exit cli_fail_usage(struct cli *cli, const struct error *error) {
    char next[128];
    snprintf(next, sizeof next, "'leasectl %s --help' shows how it is used", cli->command ? cli->command->name : "");
    print_failure(cli, error->message, cli->command ? next : "'leasectl --help' lists the commands");
    return CLI_USAGE;
}

void cli_note(struct cli *cli, const char *format, ...) {
    va_list arguments;
    fflush(cli->out); /* the two streams may be one terminal */
    va_start(arguments, format);
    fprintf(cli->err, "leasectl: ");
    vfprintf(cli->err, format, arguments);
    fputc('\n', cli->err);
    va_end(arguments);
    fflush(cli->err);
}

/* ---- connecting ---- */

void cli_pause_ms(int64_t ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

bool cli_connect(struct cli *cli, int64_t wait_ms, int deadline_ms, struct db **ret_db, struct error *error) {
    const struct db_options options = {
        .conninfo = cli->options.database ? cli->options.database : "", /* then libpq's own defaults */
        .application_name = "leasectl",
        .deadline_ms = deadline_ms,
        .statement_timeout_ms = deadline_ms,
        .show_server_text = true,
    };
    int64_t until_us = clock_monotonic_us() + wait_ms * 1000;
    bool has_said = false;
    while (!db_connect(&options, ret_db, error)) {
        if (error->kind != ERROR_RETRY || clock_monotonic_us() >= until_us)
            return false;
        if (!has_said)
            cli_note(cli, "waiting for PostgreSQL");
        has_said = true;
        cli_pause_ms(CLI_RETRY_MS);
    }
    return true;
}

bool cli_get_kafka(struct cli *cli, struct kafka_settings *ret_settings, struct error *error) {
    *ret_settings = (struct kafka_settings){.brokers = cli->options.brokers, .client_id = "leasectl",
                                            .properties = cli->options.kafka, .property_count = cli->options.kafka_count};
    if (ret_settings->brokers == NULL)
        return error_set(error, ERROR_FATAL, "no_brokers", "no Kafka brokers are named");
    return true;
}

const char *cli_topic_prefix(const struct cli *cli) {
    return cli->options.topic_prefix;
}

const char *cli_group(struct cli *cli) {
    snprintf(cli->group, sizeof cli->group, "%slease-coordinator", cli_topic_prefix(cli));
    return cli->group;
}
