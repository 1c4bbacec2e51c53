/* leasectl migrate: brings a database to this program's version. One session; every file in a transaction of its own
 * that also notes it in the history, so a crash leaves a file either applied and noted, or neither. */
#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/embedded.h"
#include "coordinator/cli/migration.h"

#include <stdlib.h>
#include <string.h>

/* Another migration of the same database is waited for this long: longer than ours take, shorter than a deployment's patience. */
enum { LOCK_WAIT_MS = 300000 };

static const struct argument_option options[] = {
    {"plan", 0, NULL, "show what would be done, do nothing"},
    {"validate", 0, NULL, "exit with 0 if nothing is to be done and nothing differs, else with 1"},
    {"sql-dir", 0, "DIR", "take the files from here instead of those inside the program"},
    {"wait", 'w', "SECONDS", "wait so long for the server to accept connections"},
    {0},
};

static const struct output_column plan_columns[] = {
    {"state", "STATE", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"version", "VERSION", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"description", "DESCRIPTION", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"script", "FILE", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"checksum", "CHECKSUM", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"meaning", "MEANING", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
};
static const struct output_column applied_columns[] = {
    {"version", "VERSION", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"description", "DESCRIPTION", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"script", "FILE", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"checksum", "CHECKSUM", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"execution_time_ms", "MS", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
};
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct migrate {
    struct cli *cli;
    struct db *db;
    struct migration_set set;
    struct migration_history history;
    struct migration_plan plan;
    struct output output;
};

/* ---- what the database says ---- */

static bool ask_flag(struct db *db, const char *query, bool *ret_flag, struct error *error) {
    struct db_result *result = NULL;
    if (!db_query(db, NULL, embedded_query(query), NULL, &result, error))
        return false;
    *ret_flag = db_bool(result, 0, 0);
    db_result_free(result);
    return true;
}

static char *copy_column(const struct db_result *result, size_t row, size_t column) {
    return db_is_null(result, row, column) ? NULL : memory_copy_text(db_text(result, row, column, NULL));
}

static bool read_history(struct migrate *migrate, struct error *error) {
    bool is_there = false;
    struct db_result *result = NULL;
    migration_history_release(&migrate->history);
    if (!ask_flag(migrate->db, "history_exists", &is_there, error))
        return false;
    if (!is_there)
        return true;
    if (!db_query(migrate->db, NULL, embedded_query("history_read"), NULL, &result, error))
        return false;
    struct migration_history *history = &migrate->history;
    history->count = db_rows(result);
    history->rows = memory_alloc_array(history->count + 1, sizeof *history->rows);
    for (size_t i = 0; i < history->count; i++)
        history->rows[i] = (struct migration_row){
            .rank = db_int4(result, i, 0),
            .version = copy_column(result, i, 1),
            .description = copy_column(result, i, 2),
            .type = copy_column(result, i, 3),
            .script = copy_column(result, i, 4),
            .has_checksum = !db_is_null(result, i, 5),
            .checksum = db_int4(result, i, 5),
            .is_success = db_bool(result, i, 6),
        };
    db_result_free(result);
    return true;
}

static bool make_plan(struct migrate *migrate, struct error *error) {
    if (!read_history(migrate, error))
        return false;
    migration_plan_release(&migrate->plan);
    migration_plan_make(&migrate->plan, &migrate->set, &migrate->history);
    return true;
}

/* ---- showing ---- */

static void show_step(struct output *output, const struct migration_step *step) {
    char checksum[16] = "";
    bool has_checksum = step->file != NULL || step->row->has_checksum;
    snprintf(checksum, sizeof checksum, "%d", step->file ? step->file->checksum : step->row->checksum);
    const char *version = step->file ? step->file->version : step->row->version;
    output_row(output, (const char *const[]){migration_state_name(step->state), version,
                                             step->file ? step->file->description : step->row->description,
                                             step->file ? step->file->script : step->row->script,
                                             has_checksum ? checksum : NULL, migration_state_meaning(step->state)});
}

static void show_plan(struct migrate *migrate, bool only_differences) {
    struct cli *cli = migrate->cli;
    output_begin(&migrate->output, cli->out, cli->format, cli->colored, plan_columns, COUNT_OF(plan_columns));
    for (size_t i = 0; i < migrate->plan.count; i++) {
        const struct migration_step *step = &migrate->plan.steps[i];
        if (!only_differences || (step->state != MIGRATION_APPLIED && step->state != MIGRATION_GONE))
            show_step(&migrate->output, step);
    }
    output_end(&migrate->output);
}

static void show_applied(struct migrate *migrate, const struct migration *file, int64_t took_ms) {
    struct cli *cli = migrate->cli;
    char checksum[16], took[24];
    snprintf(checksum, sizeof checksum, "%d", file->checksum);
    snprintf(took, sizeof took, "%lld", (long long)took_ms);
    if (cli->format == OUTPUT_TABLE) {
        fprintf(cli->out, "applied %s (%s ms)\n", file->script, took);
        fflush(cli->out);
    } else {
        output_row(&migrate->output,
                   (const char *const[]){file->version, file->description, file->script, checksum, took});
    }
}

static enum cli_exit refuse(struct migrate *migrate) {
    const struct migration_step *step = migrate->plan.refusal;
    return cli_fail(migrate->cli, CLI_CONFIGURATION, migration_state_meaning(step->state),
                    "nothing was applied: %s is %s ('leasectl migrate --plan' shows all)",
                    step->file ? step->file->script : step->row->script, migration_state_name(step->state));
}

/* ---- applying ---- */

/* Waits in short tries, so that the other one's name can be said and the wait has an end. */
static bool take_lock(struct migrate *migrate, struct error *error) {
    int64_t until = clock_monotonic_us() + LOCK_WAIT_MS * INT64_C(1000);
    bool is_taken = false, has_said = false;
    while (!is_taken) {
        if (!ask_flag(migrate->db, "history_lock", &is_taken, error))
            return false;
        if (is_taken)
            return true;
        if (clock_monotonic_us() > until)
            return error_set(error, ERROR_RETRY, "locked", "another migration of this database has been at work for %d s",
                             LOCK_WAIT_MS / 1000);
        if (!has_said)
            cli_note(migrate->cli, "another migration of this database is at work; waiting for it");
        has_said = true;
        cli_pause_ms(CLI_RETRY_MS);
    }
    return true;
}

static bool create_history(struct db *db, struct error *error) {
    if (!db_begin(db, error))
        return false;
    if (!db_execute(db, embedded_query("history_create"), error))
        return false;
    return db_commit(db, error) == COMMIT_DONE;
}

/* What a script did wrong is not what the same SQLSTATE means elsewhere; what will pass, and a missing right, are. */
static void call_it_the_files(struct error *error) {
    struct error cause = *error;
    if (cause.kind != ERROR_RETRY && strcmp(cause.code, "42501") != 0)
        error_set(error, cause.kind, "migration_failed", "%s", cause.message);
}

/* "sql/x.sql, line 12: …": the server counts characters, people count lines. */
static bool place_error(struct db *db, const struct migration *file, struct error *error) {
    int position = db_error_position(db), line = 1, character = 1;
    call_it_the_files(error);
    for (const char *at = file->text; *at != '\0' && character < position; at++) {
        line += *at == '\n';
        character += (*at & 0xC0) != 0x80;
    }
    return position > 0 ? error_prefix(error, "%s, line %d", file->script, line) : error_prefix(error, "%s", file->script);
}

static bool read_transaction(struct db *db, int64_t *ret_id, struct error *error) {
    struct db_result *result = NULL;
    if (!db_query(db, NULL, embedded_query("transaction_id"), NULL, &result, error))
        return false;
    *ret_id = db_int8(result, 0, 0);
    db_result_free(result);
    return true;
}

static bool run_file(struct db *db, const struct migration *file, struct error *error) {
    int64_t before = 0, after = 0;
    if (!read_transaction(db, &before, error))
        return false;
    const char *text = strncmp(file->text, "\xEF\xBB\xBF", 3) == 0 ? file->text + 3 : file->text;
    if (!db_execute(db, text, error))
        return place_error(db, file, error);
    if (!db_in_transaction(db) || !read_transaction(db, &after, error) || before != after)
        return error_set(error, ERROR_REJECT, "migration_failed",
                         "%s ends the transaction that it runs in: take BEGIN, COMMIT and ROLLBACK out of it", file->script);
    return true;
}

static bool note_file(struct db *db, const struct migration *file, int64_t took_ms, struct error *error) {
    struct db_params params;
    db_params_init(&params);
    db_param_text(&params, file->version);
    db_param_text(&params, file->description);
    db_param_text(&params, file->script);
    db_param_int4(&params, file->checksum);
    db_param_int4(&params, (int32_t)took_ms);
    /* A file may have become another role for the rest of its transaction. */
    bool is_ok = db_execute(db, "RESET ROLE", error) &&
                 db_query(db, NULL, embedded_query("history_add"), &params, NULL, error);
    db_params_release(&params);
    return is_ok;
}

static bool apply_file(struct migrate *migrate, const struct migration *file, struct error *error) {
    struct db *db = migrate->db;
    struct error ignored;
    int64_t start_us = clock_monotonic_us(), took_ms = 0;
    if (!db_begin(db, error))
        return false;
    bool is_ok = run_file(db, file, error);
    if (is_ok && CRASH_POINT("migrate.mid"))
        is_ok = error_set(error, ERROR_RETRY, "db_lost", "%s: crash point", file->script);
    took_ms = (clock_monotonic_us() - start_us) / 1000;
    if (!is_ok || !note_file(db, file, took_ms, error)) {
        if (!db_rollback(db, &ignored))
            cli_note(migrate->cli, "the connection was lost while undoing %s; the server undoes it", file->script);
        return false;
    }
    if (db_commit(db, error) != COMMIT_DONE)
        return error_prefix(error, "%s: run 'leasectl migrate' again, it sees whether this file was committed", file->script);
    show_applied(migrate, file, took_ms);
    return true;
}

static bool apply_all(struct migrate *migrate, struct error *error) {
    for (size_t i = 0; i < migrate->plan.count; i++) {
        const struct migration_step *step = &migrate->plan.steps[i];
        bool is_due = step->state == MIGRATION_PENDING || step->state == MIGRATION_AGAIN;
        if (is_due && !apply_file(migrate, step->file, error))
            return false;
    }
    return true;
}

static enum cli_exit bring_up(struct migrate *migrate) {
    struct cli *cli = migrate->cli;
    struct error error;
    if (!take_lock(migrate, &error) || !make_plan(migrate, &error))
        return cli_fail_with(cli, &error);
    if (migrate->plan.refusal != NULL)
        return refuse(migrate);
    if (migrate->history.rows == NULL && !create_history(migrate->db, &error))
        return cli_fail_with(cli, &error);
    if (cli->format != OUTPUT_TABLE)
        output_begin(&migrate->output, cli->out, cli->format, false, applied_columns, COUNT_OF(applied_columns));
    bool is_ok = apply_all(migrate, &error);
    if (cli->format != OUTPUT_TABLE)
        output_end(&migrate->output);
    if (!is_ok)
        return cli_fail_with(cli, &error);
    cli_note(cli, migrate->plan.pending == 0 ? "nothing to do: the database is up to date (%zu files)"
                                             : "%zu files applied; the database is up to date", 
             migrate->plan.pending == 0 ? migrate->set.count : migrate->plan.pending);
    return CLI_YES;
}

static enum cli_exit look(struct migrate *migrate) {
    struct cli *cli = migrate->cli;
    struct error error;
    bool validates = arguments_has(&cli->arguments, "validate");
    if (!make_plan(migrate, &error))
        return cli_fail_with(cli, &error);
    show_plan(migrate, validates);
    bool is_same = migrate->plan.refusal == NULL && migrate->plan.pending == 0;
    if (migrate->plan.refusal != NULL)
        cli_note(cli, "nothing would be applied: %s is %s", 
                 migrate->plan.refusal->file ? migrate->plan.refusal->file->script : migrate->plan.refusal->row->script,
                 migration_state_name(migrate->plan.refusal->state));
    else
        cli_note(cli, is_same ? "nothing to do: the database is up to date" : "%zu files to apply", migrate->plan.pending);
    return migrate->plan.refusal != NULL || (validates && !is_same) ? CLI_NO : CLI_YES;
}

static enum cli_exit run(struct cli *cli) {
    struct migrate migrate = {.cli = cli};
    struct error error;
    int64_t wait_ms = 0;
    const char *folder = arguments_text(&cli->arguments, "sql-dir");
    if (!arguments_duration_ms(&cli->arguments, "wait", &wait_ms, &error))
        return cli_fail_usage(cli, &error);
    bool is_loaded = folder ? migration_set_load_folder(&migrate.set, folder, &error)
                            : migration_set_load(&migrate.set, embedded_sql, embedded_sql_count, &error);
    if (!is_loaded)
        return cli_fail_with(cli, &error);
    bool only_looks = arguments_has(&cli->arguments, "plan") || arguments_has(&cli->arguments, "validate");
    enum cli_exit code = CLI_YES;
    if (!cli_connect(cli, wait_ms, CLI_UNBOUNDED, &migrate.db, &error))
        code = cli_fail_with(cli, &error);
    else
        code = only_looks ? look(&migrate) : bring_up(&migrate);
    db_free(migrate.db); /* which gives the lock back */
    migration_plan_release(&migrate.plan);
    migration_history_release(&migrate.history);
    migration_set_release(&migrate.set);
    return code;
}

const struct cli_command command_migrate = {
    .name = "migrate",
    .usage = "[--plan | --validate] [--sql-dir DIR] [--wait SECONDS]",
    .summary = "bring a database to this version's schema",
    .help =
        "Applies the SQL files that this program carries (or those of --sql-dir) to the database: V<n>__*.sql once and\n"
        "in order, then R__*.sql whenever their text changed. Each runs in a transaction of its own, which also notes it in\n"
        "lease.flyway_schema_history; so a run that was cut short is simply repeated, and a second run finds nothing to do.\n"
        "The files and the table follow Flyway's rules: Flyway itself may be used on them instead (default schema: lease).\n"
        "\n"
        "Nothing at all is applied when a V file was changed after it had been applied, when one comes before a version that\n"
        "is already there, or when the database is newer than this program. Two migrations of one database wait for\n"
        "each other. The role needs CREATE on the database and, the first time, CREATEROLE.\n"
        "\n"
        "Stop the coordinators before a newer version is applied: between two files, functions and tables are of two versions.\n"
        "Messages wait in their topics meanwhile; leases that nobody can renew for longer than their ttl lapse.\n",
    .examples =
        "$ leasectl migrate --database 'host=db dbname=leasehold user=postgres' --wait 30\n"
        "  waits for the server, then applies what is missing\n"
        "$ leasectl migrate --plan\n"
        "  shows every file and what would become of it\n"
        "$ leasectl migrate --validate\n"
        "  for scripts: exit code 0 if the database is just as this program wants it, else 1\n",
    .options = options,
    .run = run,
};
