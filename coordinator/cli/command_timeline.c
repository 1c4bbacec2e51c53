/* leasectl timeline: what the journal says about one lease, in order. */
#include "coordinator/cli/commands.h"
#include "coordinator/cli/listing.h"

static const struct argument_option options[] = {
    {"limit", 'n', "N", "the last so many (100)"},
    {0},
};

static const struct output_column columns[] = {
    {"number", "NUMBER", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"at", "WHEN", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"command", "COMMAND", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"event", "EVENT", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"holder", "HOLDER", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"fence", "FENCE", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"claim_id", "CLAIM", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"lease_until", "EXPIRY", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"state", "STATE", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"attempt", "ATTEMPT", OUTPUT_NUMBER, OUTPUT_ONLY_JSON},
    {"step", "STEP", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"why", "WHY", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"reason", "REASON", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"field", "FIELD", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"held_by", "HELD BY", OUTPUT_VALUE, OUTPUT_ONLY_JSON},
    {"operator", "OPERATOR", OUTPUT_VALUE, OUTPUT_ONLY_JSON},
    {"source", "SOURCE", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"message_id", "ID", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"place", "FROM", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"topic", "TOPIC", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"partition", "PARTITION", OUTPUT_NUMBER, OUTPUT_ONLY_JSON},
    {"offset", "OFFSET", OUTPUT_NUMBER, OUTPUT_ONLY_JSON},
};

static enum cli_exit run(struct cli *cli) {
    const struct listing listing = {"timeline", columns, sizeof columns / sizeof columns[0],
                                    "the journal says nothing about it", true, NULL};
    const char *id = NULL;
    char kind[LISTING_NAME_SIZE];
    struct error error;
    if (!listing_split_lease(cli->arguments.words[0], kind, &id, &error))
        return cli_fail_usage(cli, &error);
    return listing_run(cli, &listing, (const char *const[]){kind, id}, 2);
}

const struct cli_command command_timeline = {
    .name = "timeline",
    .usage = "KIND/ID [--limit N]",
    .summary = "show what happened to one lease, in order",
    .help =
        "Shows the journal's rows about a lease, oldest first: every answer, lapse and operator's action, with holder, fence, and\n"
        "the message that asked for it (topic/partition@offset). Refusals stand there too, so a late finish shows as `stale`\n"
        "beside the grant that overtook it. Journal numbers order events across leases. The journal keeps its rows for a\n"
        "stated time; what is older is gone.\n",
    .examples =
        "$ leasectl timeline settlement/2026-10\n"
        "  the whole story of a settlement\n"
        "$ leasectl timeline cleanup/file-17 --limit 5 -o jsonl\n"
        "  the last five events, a line each\n",
    .options = options,
    .words_least = 1,
    .words_most = 1,
    .run = run,
};
