/* leasectl ls: leases, with what is left of them beside their expiry. */
#include "coordinator/cli/commands.h"
#include "coordinator/cli/listing.h"

static const struct argument_option options[] = {
    {"kind", 'k', "KIND", "only this kind"},
    {"state", 's', "STATE", "only this stored state: free, ready, held, finished, failed, dead"},
    {"condition", 'c', "CONDITION", "only this condition: the state, and covering, lapsed, unfenced as of now"},
    {"holder", 0, "NAME", "only what this one has, or had last"},
    {"expiring", 'e', "DURATION", "only what lapses within this time; soonest first"},
    {"limit", 'n', "N", "at most so many (100)"},
    {0},
};

static const struct output_column columns[] = {
    {"id", "LEASE", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"kind", "KIND", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"lease", "LEASE", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"state", "STATE", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"condition", "CONDITION", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"holder", "HOLDER", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"fence", "FENCE", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"claim_id", "CLAIM", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"remaining_ms", "LAPSES", OUTPUT_REMAINING, OUTPUT_EVERYWHERE},
    {"lease_until", "EXPIRY", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"since", "SINCE", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"attempt", "ATTEMPT", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"step", "STEP", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"resources_covered", "COVERS", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"ready_at", "READY", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"overtaken", "OVERTAKEN", OUTPUT_VALUE, OUTPUT_ONLY_JSON},
    {"ended_at", "ENDED", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
};

static enum cli_exit run(struct cli *cli) {
    const struct listing listing = {"leases", columns, sizeof columns / sizeof columns[0], "no lease is like that", false, NULL};
    const struct arguments *arguments = &cli->arguments;
    struct error error;
    int64_t expiring_ms = 0;
    char expiring[24];
    if (!arguments_duration_ms(arguments, "expiring", &expiring_ms, &error))
        return cli_fail_usage(cli, &error);
    snprintf(expiring, sizeof expiring, "%lld", (long long)expiring_ms);
    const char *const parameters[] = {arguments_text(arguments, "kind"), arguments_text(arguments, "state"),
                                      arguments_text(arguments, "condition"), arguments_text(arguments, "holder"),
                                      arguments_has(arguments, "expiring") ? expiring : NULL};
    return listing_run(cli, &listing, parameters, sizeof parameters / sizeof parameters[0]);
}

const struct cli_command command_ls = {
    .name = "ls",
    .usage = "[--kind KIND] [--state STATE] [--condition CONDITION] [--holder NAME] [--expiring DURATION] [--limit N]",
    .summary = "list leases and what is left of them",
    .help =
        "Lists leases as the database has them at this moment. The condition is what counts: `held` is live, `lapsed` is past\n"
        "its expiry (nobody's any more, whether the reaper has been there or not), `covering` still gathers its resources,\n"
        "`unfenced` was claimed before fencing and waits for an operator. Remaining time is the database's, at the query.\n",
    .examples =
        "$ leasectl ls --expiring 30s\n"
        "  what lapses within half a minute, soonest first\n"
        "$ leasectl ls --kind settlement --condition held -o json\n"
        "  the settlements that run now, for a program\n"
        "$ leasectl ls --holder run-a\n"
        "  what run-a has, or had last\n",
    .options = options,
    .run = run,
};
