/* Queries printed as rows; see listing.h. */
#include "coordinator/cli/listing.h"

#include "coordinator/cli/embedded.h"

#include <assert.h>
#include <string.h>

static const char *cell(const struct db_result *result, size_t row, size_t column) {
    return db_is_null(result, row, column) ? NULL : db_text(result, row, column, NULL);
}

static void read_row(const struct listing *listing, const struct db_result *result, size_t row, const char **ret_values) {
    for (size_t i = 0; i < listing->column_count; i++)
        ret_values[i] = cell(result, row, i);
    if (listing->fill != NULL)
        listing->fill->fill(listing->fill->context, ret_values);
}

static bool ask(struct cli *cli, const struct listing *listing, const char *const *parameters, size_t parameter_count,
                int64_t limit, struct db **ret_db, struct db_result **ret_result, struct error *error) {
    struct db_params params;
    if (!cli_connect(cli, 0, CLI_QUERY_MS, ret_db, error))
        return false;
    db_params_init(&params);
    for (size_t i = 0; i < parameter_count; i++)
        db_param_text(&params, parameters[i]);
    db_param_int8(&params, limit);
    bool is_ok = db_query_text(*ret_db, embedded_query(listing->query), &params, ret_result, error);
    db_params_release(&params);
    if (is_ok && db_columns(*ret_result) != listing->column_count)
        return error_set(error, ERROR_FATAL, "db_usage", "%s.sql returns another number of columns", listing->query);
    return is_ok;
}

enum cli_exit listing_run(struct cli *cli, const struct listing *listing, const char *const *parameters,
                          size_t parameter_count) {
    struct error error;
    struct db *db = NULL;
    struct db_result *result = NULL;
    int64_t limit = LISTING_ROWS;
    const char *values[OUTPUT_COLUMNS_MAX];
    if (!arguments_number(&cli->arguments, "limit", 1, LISTING_ROWS_MAX, &limit, &error))
        return cli_fail_usage(cli, &error);
    if (!ask(cli, listing, parameters, parameter_count, limit + 1, &db, &result, &error)) {
        db_result_free(result);
        db_free(db);
        return cli_fail_with(cli, &error);
    }
    struct output output;
    size_t rows = db_rows(result), shown = rows > (size_t)limit ? (size_t)limit : rows;
    output_begin(&output, cli->out, cli->format, cli->colored, listing->columns, listing->column_count);
    for (size_t i = 0; i < shown; i++) {
        read_row(listing, result, listing->is_tail ? rows - shown + i : i, values);
        output_row(&output, values);
    }
    output_end(&output);
    if (rows == 0)
        cli_note(cli, "%s", listing->nothing);
    if (rows > shown)
        cli_note(cli, "only the %s %zu are shown; --limit N shows more", listing->is_tail ? "last" : "first", shown);
    db_result_free(result);
    db_free(db);
    return CLI_YES;
}

bool listing_show(struct cli *cli, const struct listing *listing, const char *const *parameters, size_t parameter_count,
                  bool *ret_found, struct error *error) {
    struct db *db = NULL;
    struct db_result *result = NULL;
    const char *values[OUTPUT_COLUMNS_MAX];
    bool is_ok = ask(cli, listing, parameters, parameter_count, 1, &db, &result, error);
    *ret_found = is_ok && db_rows(result) > 0;
    if (*ret_found) {
        read_row(listing, result, 0, values);
        output_record(cli->out, cli->format, cli->colored, listing->columns, listing->column_count, values);
    }
    db_result_free(result);
    db_free(db);
    return is_ok;
}

bool listing_split_lease(const char *text, char ret_kind[static LISTING_NAME_SIZE], const char **ret_id,
                         struct error *error) {
    const char *slash = strchr(text, '/');
    size_t size = slash ? (size_t)(slash - text) : 0;
    if (slash == NULL || size == 0 || slash[1] == '\0' || size >= LISTING_NAME_SIZE)
        return error_set(error, ERROR_REJECT, "usage", "a lease is named KIND/ID, such as settlement/2026-10, not '%s'", text);
    memcpy(ret_kind, text, size);
    ret_kind[size] = '\0';
    *ret_id = slash + 1;
    return true;
}
