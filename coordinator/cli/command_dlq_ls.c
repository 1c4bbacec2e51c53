/* leasectl dlq ls: messages that could not be identified. */
#include "coordinator/cli/commands.h"
#include "coordinator/cli/listing.h"

static const struct argument_option options[] = {
    {"reason", 'r', "CODE", "only this reason, such as invalid_json"},
    {"topic", 't', "TOPIC", "only from this topic"},
    {"limit", 'n', "N", "the last so many (100)"},
    {0},
};

static const struct output_column columns[] = {
    {"number", "NUMBER", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"at", "WHEN", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"reason", "REASON", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"detail", "DETAIL", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"topic", "TOPIC", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"partition", "PARTITION", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"offset", "OFFSET", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"bytes", "BYTES", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
};

static enum cli_exit run(struct cli *cli) {
    const struct listing listing = {"dead_letters", columns, sizeof columns / sizeof columns[0],
                                    "there is no such dead letter", true, NULL};
    const struct arguments *arguments = &cli->arguments;
    return listing_run(cli, &listing,
                       (const char *const[]){arguments_text(arguments, "reason"), arguments_text(arguments, "topic")}, 2);
}

const struct cli_command command_dlq_ls = {
    .name = "dlq ls",
    .usage = "[--reason CODE] [--topic TOPIC] [--limit N]",
    .summary = "list dead letters: messages that could not be identified",
    .help =
        "Lists what became a dead letter: which message, from where, how large, and why, by a stable code. A message that could be\n"
        "identified but not understood is no dead letter; it was answered `malformed` on lease.results.\n"
        "The messages themselves, byte for byte, are on the topic lease.dead-letters: 'leasectl tail dead-letters'.\n",
    .examples =
        "$ leasectl dlq ls\n"
        "  the last hundred, oldest first\n"
        "$ leasectl dlq ls --reason invalid_json -o jsonl\n"
        "  those whose JSON was broken, a line each\n",
    .options = options,
    .run = run,
};
