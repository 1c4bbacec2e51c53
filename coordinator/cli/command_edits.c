/* leasectl edits: edits that are parked until a lease ends. */
#include "coordinator/cli/commands.h"
#include "coordinator/cli/listing.h"

static const struct argument_option options[] = {
    {"limit", 'n', "N", "at most so many (100)"},
    {0},
};

static const struct output_column columns[] = {
    {"no", "NO", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"row", "ROW", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"type", "TYPE", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"id", "ID", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"editor", "EDITOR", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"change", "CHANGE", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"old", "OLD", OUTPUT_VALUE, OUTPUT_ONLY_JSON},
    {"new", "NEW", OUTPUT_VALUE, OUTPUT_ONLY_JSON},
    {"held_by", "WAITS FOR", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"source", "SOURCE", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"message_id", "MESSAGE", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"asked_at", "ASKED", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"expires_at", "UNTIL", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"remaining_ms", "EXPIRES", OUTPUT_REMAINING, OUTPUT_EVERYWHERE},
    {"tries", "TRIES", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
};

static enum cli_exit run(struct cli *cli) {
    const struct listing listing = {"edits", columns, sizeof columns / sizeof columns[0], "no edit is parked", false, NULL};
    const struct arguments *arguments = &cli->arguments;
    const char *const words[] = {arguments->word_count > 0 ? arguments->words[0] : NULL};
    char type[LISTING_NAME_SIZE];
    const char *id = NULL;
    struct error error;
    if (words[0] != NULL && !listing_split_lease(words[0], type, &id, &error))
        return cli_fail_usage(cli, &error);
    return listing_run(cli, &listing, (const char *const[]){words[0] != NULL ? type : NULL, id}, 2);
}

const struct cli_command command_edits = {
    .name = "edits",
    .usage = "[TYPE/ID] [--limit N]",
    .summary = "list edits that are parked until a lease ends",
    .help =
        "Lists edits of guarded rows that were asked for while a lease covered the row, in the order in which they will be made: of\n"
        "which row, by whom, what is to become of its columns, and the lease that they wait for. An edit is made when that ends or\n"
        "lapses, if the row is still as the edit was made on, and bounced otherwise; after EXPIRES it is bounced, too. The message named\n"
        "here is what `contract.cancel` takes back.\n",
    .examples =
        "$ leasectl edits\n"
        "  what is parked\n"
        "$ leasectl edits album-contract/42 -o json\n"
        "  of one row, for a program\n",
    .options = options,
    .words_most = 1,
    .run = run,
};
