/* leasectl jump: after a restore or a failover, lifts fences and journal numbers above everything ever published. */
#include "coordinator/cli/commands.h"
#include "coordinator/cli/embedded.h"
#include "coordinator/witness.h"

#include <stdlib.h>
#include <string.h>

/* For reading the tails of all output topics. */
enum { WITNESS_MS = 10000 };

static const struct argument_option options[] = {
    {"who", 0, "NAME", "who decides this; goes into the journal (required)"},
    {"why", 0, "TEXT", "why; goes into the journal (required)"},
    {"plan", 0, NULL, "show what topics and database say, change nothing"},
    {0},
};

static const struct output_column columns[] = {
    {"topics_number", "topics: last journal number", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"topics_fence", "topics: highest fence", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"journal_number", "database: last journal number", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"fence_high", "database: highest fence in use", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"known_server", "database: last jumped or made on server/timeline", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"server", "database: now on server/timeline", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"jumped", "jumped", OUTPUT_VALUE, OUTPUT_EVERYWHERE},
    {"fence_floor", "new fences start above", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
};

struct jump {
    struct cli *cli;
    struct db *db;
    int64_t topics_number, topics_fence;
    struct db_result *state, *result;
};

static bool read_topics(struct jump *jump, struct error *error) {
    struct kafka_settings settings;
    bool is_empty = false;
    if (!cli_get_kafka(jump->cli, &settings, error) ||
        !witness_read(&settings, cli_topic_prefix(jump->cli), cli_group(jump->cli), WITNESS_MS, &jump->topics_number,
                      &jump->topics_fence, &is_empty, error))
        return error_prefix(error, "reading the witness");
    if (is_empty)
        cli_note(jump->cli, "the output topics are empty: they witness nothing");
    return true;
}

static bool read_state(struct jump *jump, struct error *error) {
    return cli_connect(jump->cli, 0, CLI_QUERY_MS, &jump->db, error) &&
           db_query_text(jump->db, embedded_query("jump_state"), NULL, &jump->state, error);
}

static bool leap(struct jump *jump, const char *who, const char *why, struct error *error) {
    struct db_params params;
    db_params_init(&params);
    db_param_int8(&params, jump->topics_number);
    db_param_int8(&params, jump->topics_fence);
    db_param_text(&params, who);
    db_param_text(&params, why);
    bool is_ok = db_query_text(jump->db, embedded_query("jump"), &params, &jump->result, error);
    db_params_release(&params);
    return is_ok;
}

static const char *cell(const struct db_result *result, size_t column) {
    return result == NULL || db_rows(result) == 0 || db_is_null(result, 0, column) ? NULL : db_text(result, 0, column, NULL);
}

static void show(struct jump *jump) {
    char number[24], fence[24];
    struct cli *cli = jump->cli;
    const char *floor = cell(jump->result, 0);
    snprintf(number, sizeof number, "%lld", (long long)jump->topics_number);
    snprintf(fence, sizeof fence, "%lld", (long long)jump->topics_fence);
    output_record(cli->out, cli->format, cli->colored, columns, sizeof columns / sizeof columns[0],
                  (const char *const[]){number, fence, cell(jump->state, 0), cell(jump->state, 1), cell(jump->state, 2),
                                        cell(jump->state, 3), floor ? "true" : "false", floor});
}

static enum cli_exit run(struct cli *cli) {
    struct jump jump = {.cli = cli};
    struct error error;
    const char *who = arguments_text(&cli->arguments, "who"), *why = arguments_text(&cli->arguments, "why");
    bool only_looks = arguments_has(&cli->arguments, "plan");
    if (!only_looks && (who == NULL || why == NULL || who[0] == '\0' || why[0] == '\0')) {
        error_set(&error, ERROR_REJECT, "usage", "a jump is journaled: say --who decides it, and --why");
        return cli_fail_usage(cli, &error);
    }
    bool is_ok = read_topics(&jump, &error) && read_state(&jump, &error) && (only_looks || leap(&jump, who, why, &error));
    if (is_ok)
        show(&jump);
    enum cli_exit code = is_ok ? CLI_YES : cli_fail_with(cli, &error);
    if (is_ok && !only_looks)
        cli_note(cli, cell(jump.result, 0) ? "jumped; coordinators that refused to work will go on"
                                           : "no jump was needed: the server is the one the journal knows, and the topics are not ahead");
    db_result_free(jump.state);
    db_result_free(jump.result);
    db_free(jump.db);
    return code;
}

const struct cli_command command_jump = {
    .name = "jump",
    .usage = "--who NAME --why TEXT | --plan",
    .summary = "after a restore: lift fences above everything ever published",
    .help =
        "A database that was restored, or failed over to a standby that lacked the last commits, could give out fences a second\n"
        "time. The topics are the witness of what was published: this reads them, and lifts fences and journal numbers above\n"
        "both theirs and the database's, with room to spare. Coordinators jump by themselves when the server is another one; when\n"
        "the topics are ahead of the journal of the same server (a base backup started without recovery), they refuse to work until\n"
        "somebody has looked and runs this. It is a row in the journal, with who and why. Where no jump is needed, nothing\n"
        "happens. Leases that the database knows go on under their fences; whoever holds a grant that only the topics know is told\n"
        "that it is stale, and what was sent since the copy was made is decided again.\n",
    .examples =
        "$ leasectl jump --plan\n"
        "  what topics and database say\n"
        "$ leasectl jump --who kim --why 'restored the dump of 02:00 after the disk failed'\n"
        "  jumps, if it is needed\n",
    .options = options,
    .run = run,
};
