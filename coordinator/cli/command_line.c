/* leasectl line: starts that wait in line. */
#include "coordinator/cli/commands.h"
#include "coordinator/cli/listing.h"

static const struct argument_option options[] = {
    {"kind", 'k', "KIND", "only starts of this kind"},
    {"resource", 'r', "TYPE/ID", "only starts that want this resource"},
    {"limit", 'n', "N", "at most so many (100)"},
    {0},
};

static const struct output_column columns[] = {
    {"place", "PLACE", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"id", "LEASE", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"kind", "KIND", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"lease", "LEASE", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"holder", "FOR", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"resources", "RESOURCES", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"in_the_way", "WAITS FOR", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"held_by", "HELD BY", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"behind", "BEHIND", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"asked_at", "ASKED", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"open_until", "UNTIL", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"remaining_ms", "LEAVES", OUTPUT_REMAINING, OUTPUT_EVERYWHERE},
    {"tries", "TRIES", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
};

static enum cli_exit run(struct cli *cli) {
    const struct listing listing = {"line", columns, sizeof columns / sizeof columns[0], "nobody waits in line", false, NULL};
    const struct arguments *arguments = &cli->arguments;
    return listing_run(cli, &listing,
                       (const char *const[]){arguments_text(arguments, "kind"), arguments_text(arguments, "resource")}, 2);
}

const struct cli_command command_line = {
    .name = "line",
    .usage = "[--kind KIND] [--resource TYPE/ID] [--limit N]",
    .summary = "list starts that wait in line, in the order in which they are served",
    .help =
        "Lists starts with wait_ms that met somebody, in the order of their tickets: for whom, over how many resources, and what was in the\n"
        "way at the last try: the lease that holds a resource, or the start ahead that wants the same one. LEAVES is when a start is passed\n"
        "over unless it is asked again; who asks again without wait_ms leaves at once.\n",
    .examples =
        "$ leasectl line\n"
        "  who waits\n"
        "$ leasectl line --resource album-contract/42\n"
        "  who waits for one contract\n",
    .options = options,
    .run = run,
};
