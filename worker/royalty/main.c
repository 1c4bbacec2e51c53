/* lease-royalty: reads its settings, turns signals into a stop, and does one settlement. Exit statuses are those of sysexits.h; see
 * royalty.h. */
#include "common/process.h"
#include "worker/royalty/royalty.h"

static const char usage[] =
    "usage: lease-royalty --settlement NAME --period YYYY-MM [options]\n\n"
    "Settles the royalties of one month: takes the lease of the settlement over its contracts, computes what each work comes to,\n"
    "writes the lines behind the gate, and finishes with the total, which it prints as JSON. One that dies, sleeps or is cut off\n"
    "is replaced by starting it again: what is written is used if it still holds, and no line is there twice.\n\n"
    "  lease-royalty --settlement royalty-2026-06 --period 2026-06 --brokers kafka:9092 --royalty-database 'host=db dbname=royalty'\n"
    "      settles all contracts that there are\n"
    "  lease-royalty … --contracts track-contract/A,album-contract/17\n"
    "      settles these\n\n"
    "SIGTERM stops before the next chunk and gives the lease back. A second one ends it at once.\n"
    "Exit status: 0 settled, 64 usage, 65 it has ended already or the base data was changed, 69 what it needs is away,\n"
    "75 somebody else has it, or the lease was lost: start it again, 78 configuration.\n\n";

static int run_royalty(void *royalty) {
    return royalty_run(royalty);
}

static void stop_royalty(void *royalty) {
    royalty_stop(royalty);
}

static int run(const void *settings) {
    struct royalty *royalty = royalty_new(settings);
    int status = process_run(run_royalty, stop_royalty, royalty);
    royalty_free(royalty);
    return status;
}

int main(int argc, char **argv) {
    struct royalty_settings settings = {0};
    const struct program program = {.name = "lease-royalty", .usage = usage, .rows = royalty_settings_rows, .row_count = royalty_settings_row_count, .run = run};
    return program_main(&program, &settings, argc, argv);
}
