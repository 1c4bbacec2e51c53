/* leasectl show: everything about one lease. */
#include "coordinator/cli/commands.h"
#include "coordinator/cli/listing.h"

static const struct output_column columns[] = {
    {"id", "lease", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"kind", "kind", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"lease", "lease", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"state", "state", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"condition", "condition", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"holder", "holder", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"claim_id", "claim id", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"fence", "fence", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"since", "since", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"lease_until", "expiry", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"remaining_ms", "lapses", OUTPUT_REMAINING, OUTPUT_EVERYWHERE},
    {"attempt", "attempt", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"step", "step", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"ready_at", "ready", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"overtaken", "overtaken", OUTPUT_VALUE, OUTPUT_EVERYWHERE},
    {"ended_at", "ended", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"resources_covered", "covers", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"some_resources", "among them", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"resources", "resources", OUTPUT_VALUE, OUTPUT_ONLY_JSON},
};

static enum cli_exit run(struct cli *cli) {
    const struct listing listing = {"lease", columns, sizeof columns / sizeof columns[0], "", false, NULL};
    const char *const name = cli->arguments.words[0];
    const char *id = NULL;
    char kind[LISTING_NAME_SIZE];
    struct error error;
    bool is_found = false;
    if (!listing_split_lease(name, kind, &id, &error))
        return cli_fail_usage(cli, &error);
    if (!listing_show(cli, &listing, (const char *const[]){kind, id}, 2, &is_found, &error))
        return cli_fail_with(cli, &error);
    if (!is_found)
        return cli_fail(cli, CLI_NO, "'leasectl ls' lists those there are; final ones are purged after a while, "
                                     "'leasectl timeline' may still know them", "there is no lease %s", name);
    return CLI_YES;
}

const struct cli_command command_show = {
    .name = "show",
    .usage = "KIND/ID",
    .summary = "show everything about one lease",
    .help =
        "Shows one lease as the database has it at this moment: who has it, under which fence, until when, and what it covers\n"
        "(the first 20 resources; the first 1000 in JSON). No token is shown, because none is stored.\n"
        "Exit code 1 if there is no such lease.\n",
    .examples =
        "$ leasectl show settlement/2026-10\n"
        "  who runs the October settlement, and how long its lease still lasts\n"
        "$ leasectl show cleanup/file-17 -o json | jq .fence\n"
        "  its fence, for a script\n",
    .words_least = 1,
    .words_most = 1,
    .run = run,
};
