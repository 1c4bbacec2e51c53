/* Calls into schema royalty; see store.h. Lists of names go as the text of an array: their characters need no quotes there. */
#include "worker/royalty/store.h"

#include "common/buf.h"
#include "common/db.h"

#include <stdlib.h>
#include <string.h>

/* The server gives up before we do, and a lock before the statement. Connecting has a least time, or it would never succeed. */
enum { CONNECT_MIN_MS = 1000, CONNECT_MAX_MS = 5000 };

struct royalty_store {
    struct db_options options;
    struct db *db; /* NULL: to be connected */
    royalty_retry_fn *may_retry;
    void *context;
};

struct royalty_rows {
    struct db_result *result;
};

struct royalty_store *royalty_store_new(const char *conninfo, int64_t call_ms, royalty_retry_fn *may_retry, void *context) {
    struct royalty_store *store = memory_alloc(sizeof *store);
    int ms = (int)call_ms, connect_ms = ms < CONNECT_MIN_MS ? CONNECT_MIN_MS : ms > CONNECT_MAX_MS ? CONNECT_MAX_MS : ms;
    store->options = (struct db_options){.conninfo = conninfo, .application_name = "lease-royalty", .connect_ms = connect_ms,
                                         .deadline_ms = ms, .statement_timeout_ms = ms * 3 / 4, .lock_timeout_ms = ms / 2};
    store->may_retry = may_retry;
    store->context = context;
    return store;
}

void royalty_store_free(struct royalty_store *store) {
    if (store == NULL)
        return;
    db_free(store->db);
    free(store);
}

/* ---- one call ---- */

static bool try_once(struct royalty_store *store, const char *name, const char *sql, const struct db_params *params,
                     struct db_result **ret_result, struct error *error) {
    if (store->db == NULL && !db_connect(&store->options, &store->db, error))
        return false;
    bool is_done = db_query(store->db, name, sql, params, ret_result, error);
    if (is_done && db_was_warned(store->db)) {
        db_result_free(*ret_result);
        *ret_result = NULL;
        is_done = error_set(error, ERROR_RETRY, "royalty_in_doubt", "%s: committed with a warning: a standby may lack it", name);
    }
    if (!is_done && !db_is_usable(store->db)) {
        db_free(store->db);
        store->db = NULL;
    }
    return is_done;
}

/* Releases the parameters. */
static bool call(struct royalty_store *store, const char *name, const char *sql, struct db_params *params,
                 struct db_result **ret_result, struct error *error) {
    bool is_done = false;
    int attempt = 1;
    *ret_result = NULL;
    do {
        error_clear(error);
        is_done = try_once(store, name, sql, params, ret_result, error);
    } while (!is_done && error->kind == ERROR_RETRY && store->may_retry(store->context, error, ++attempt));
    db_params_release(params);
    return is_done;
}

/* ---- parameters and verdicts ---- */

static void add_list(struct db_params *params, const char *names) {
    struct buf text = BUF_INIT;
    if (names != NULL)
        buf_appendf(&text, "{%s}", names);
    db_param_text(params, names != NULL ? buf_text(&text) : NULL);
    buf_release(&text);
}

static void begin_params(struct db_params *params, const struct royalty_grant *grant) {
    db_params_init(params);
    db_param_text(params, grant->settlement);
    db_param_int8(params, grant->fence);
    db_param_text(params, grant->claim_id);
}

static bool parse_verdict(const char *text, enum royalty_verdict *ret, struct error *error) {
    static const struct {
        const char *text;
        enum royalty_verdict verdict;
    } verdicts[] = {{"stale", ROYALTY_STALE}, {"differs", ROYALTY_DIFFERS}, {"ended", ROYALTY_ENDED}, {"begun", ROYALTY_DONE},
                    {"written", ROYALTY_DONE}, {"closed", ROYALTY_DONE},    {"noted", ROYALTY_DONE}};
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        if (strcmp(text, verdicts[i].text) == 0) {
            *ret = verdicts[i].verdict;
            return true;
        }
    return error_set(error, ERROR_FATAL, "royalty_answer", "the database answered \"%s\"", text);
}

/* A call that answers with a verdict and nothing else. */
static bool ask(struct royalty_store *store, const char *name, const char *sql, struct db_params *params,
                enum royalty_verdict *ret_verdict, struct error *error) {
    struct db_result *result;
    bool is_done = call(store, name, sql, params, &result, error) && parse_verdict(db_text(result, 0, 0, NULL), ret_verdict, error);
    db_result_free(result);
    return is_done;
}

/* ---- what there is ---- */

bool royalty_store_check(struct royalty_store *store, struct error *error) {
    struct db_params params;
    struct db_result *result;
    db_params_init(&params);
    if (!call(store, NULL, "SELECT to_regprocedure('royalty.note_basis(text, bigint, uuid, text)') IS NOT NULL", &params, &result, error))
        return false;
    bool is_there = db_bool(result, 0, 0);
    db_result_free(result);
    return is_there || error_set(error, ERROR_FATAL, "royalty_missing", "the database has no sql/royalty/royalty.sql in it");
}

static void copy_place(struct royalty_place *place, const struct db_result *result) {
    *place = (struct royalty_place){.work = db_int4(result, 0, 3), .number = INT64_MAX};
    strncpy(place->type, db_text(result, 0, 1, NULL), sizeof place->type - 1);
    strncpy(place->contract, db_text(result, 0, 2, NULL), sizeof place->contract - 1);
}

bool royalty_store_begin(struct royalty_store *store, const struct royalty_grant *grant, const char *period, const char *contracts,
                         enum royalty_verdict *ret_verdict, struct royalty_begun *ret_begun, struct error *error) {
    struct db_params params;
    struct db_result *result;
    begin_params(&params, grant);
    db_param_text(&params, period);
    add_list(&params, contracts);
    bool is_done = call(store, "begin_settlement",
                        "SELECT verdict, type, contract, work, lines, total"
                        " FROM royalty.begin_settlement($1, $2, $3::text::uuid, $4, $5::text::text[])",
                        &params, &result, error) &&
                   parse_verdict(db_text(result, 0, 0, NULL), ret_verdict, error);
    if (is_done) {
        copy_place(&ret_begun->behind, result);
        ret_begun->lines = db_int8(result, 0, 4);
        ret_begun->total = db_int8(result, 0, 5);
    }
    db_result_free(result);
    return is_done;
}

/* ---- rows ---- */

static bool read_rows(struct royalty_store *store, const char *name, const char *sql, struct db_params *params,
                      struct royalty_rows **ret_rows, struct error *error) {
    struct db_result *result;
    if (!call(store, name, sql, params, &result, error))
        return false;
    *ret_rows = memory_alloc(sizeof **ret_rows);
    (*ret_rows)->result = result;
    return true;
}

void royalty_rows_free(struct royalty_rows *rows) {
    if (rows == NULL)
        return;
    db_result_free(rows->result);
    free(rows);
}

size_t royalty_rows_count(const struct royalty_rows *rows) {
    return db_rows(rows->result);
}

bool royalty_store_sales(struct royalty_store *store, const char *period, const char *contracts, const struct royalty_place *behind,
                         int32_t most, struct royalty_rows **ret_rows, struct error *error) {
    struct db_params params;
    db_params_init(&params);
    db_param_text(&params, behind->type);
    db_param_text(&params, period);
    add_list(&params, contracts);
    db_param_text(&params, behind->contract);
    db_param_int4(&params, behind->work);
    db_param_int8(&params, behind->number);
    db_param_int4(&params, most);
    return read_rows(store, "sales", "SELECT contract, work, number, amount FROM royalty.sales($1, $2, $3::text::text[], $4, $5, $6, $7)",
                     &params, ret_rows, error);
}

struct royalty_sale royalty_rows_sale(const struct royalty_rows *rows, size_t row) {
    return (struct royalty_sale){.contract = db_text(rows->result, row, 0, NULL), .work = db_int4(rows->result, row, 1),
                                 .number = db_int8(rows->result, row, 2), .amount = db_int8(rows->result, row, 3)};
}

bool royalty_store_contracts(struct royalty_store *store, const char *type, const char *behind, int32_t most,
                             struct royalty_rows **ret_rows, struct error *error) {
    struct db_params params;
    db_params_init(&params);
    db_param_text(&params, type);
    db_param_text(&params, behind);
    db_param_int4(&params, most);
    return read_rows(store, "contracts", "SELECT contract FROM royalty.contracts($1, $2, $3)", &params, ret_rows, error);
}

const char *royalty_rows_contract(const struct royalty_rows *rows, size_t row) {
    return db_text(rows->result, row, 0, NULL);
}

/* ---- rates ---- */

static bool is_new_contract(const struct tally_line *lines, size_t i) {
    return i == 0 || strcmp(lines[i].contract, lines[i - 1].contract) != 0;
}

/* Both are in the order of the names; a contract that has gone has no rate. */
static bool share(const struct db_result *rates, struct tally_line *lines, size_t count, struct error *error) {
    size_t row = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && is_new_contract(lines, i))
            row++;
        if (row == db_rows(rates) || strcmp(db_text(rates, row, 0, NULL), lines[i].contract) != 0)
            return error_set(error, ERROR_REJECT, "royalty_no_contract", "contract %s is not there", lines[i].contract);
        if (!tally_share(&lines[i], db_int8(rates, row, 1), error))
            return false;
    }
    return true;
}

bool royalty_store_share(struct royalty_store *store, const char *type, struct tally_line *lines, size_t count,
                         struct error *error) {
    struct db_params params;
    struct db_result *rates;
    db_params_init(&params);
    db_param_text(&params, type);
    db_array_begin(&params, DB_TEXT);
    for (size_t i = 0; i < count; i++)
        if (is_new_contract(lines, i))
            db_item_text(&params, lines[i].contract);
    db_array_end(&params);
    if (!call(store, "rates", "SELECT contract, rate FROM royalty.rates($1, $2)", &params, &rates, error))
        return false;
    bool is_done = share(rates, lines, count, error);
    db_result_free(rates);
    return is_done;
}

/* ---- writing ---- */

static void add_numbers(struct db_params *params, const struct tally_line *lines, size_t count, size_t offset) {
    db_array_begin(params, DB_INT8);
    for (size_t i = 0; i < count; i++) {
        int64_t number;
        memcpy(&number, (const char *)&lines[i] + offset, sizeof number);
        db_item_int8(params, number);
    }
    db_array_end(params);
}

static void add_counts(struct db_params *params, const struct tally_line *lines, size_t count, size_t offset) {
    db_array_begin(params, DB_INT4);
    for (size_t i = 0; i < count; i++) {
        int32_t number;
        memcpy(&number, (const char *)&lines[i] + offset, sizeof number);
        db_item_int4(params, number);
    }
    db_array_end(params);
}

bool royalty_store_write(struct royalty_store *store, const struct royalty_grant *grant, const char *type,
                         const struct tally_line *lines, size_t count, enum royalty_verdict *ret_verdict, struct error *error) {
    struct db_params params;
    begin_params(&params, grant);
    db_param_text(&params, type);
    db_array_begin(&params, DB_TEXT);
    for (size_t i = 0; i < count; i++)
        db_item_text(&params, lines[i].contract);
    db_array_end(&params);
    add_counts(&params, lines, count, offsetof(struct tally_line, work));
    add_counts(&params, lines, count, offsetof(struct tally_line, sales));
    add_numbers(&params, lines, count, offsetof(struct tally_line, gross));
    add_numbers(&params, lines, count, offsetof(struct tally_line, rate));
    add_numbers(&params, lines, count, offsetof(struct tally_line, royalty));
    return ask(store, "write_lines", "SELECT royalty.write_lines($1, $2, $3::text::uuid, $4, $5, $6, $7, $8, $9, $10)", &params,
               ret_verdict, error);
}

bool royalty_store_close(struct royalty_store *store, const struct royalty_grant *grant, int64_t lines, int64_t total,
                         enum royalty_verdict *ret_verdict, struct error *error) {
    struct db_params params;
    begin_params(&params, grant);
    db_param_int8(&params, lines);
    db_param_int8(&params, total);
    return ask(store, "close_settlement", "SELECT royalty.close_settlement($1, $2, $3::text::uuid, $4, $5)", &params, ret_verdict,
               error);
}

bool royalty_store_note_basis(struct royalty_store *store, const struct royalty_grant *grant, const char *basis,
                              enum royalty_verdict *ret_verdict, struct error *error) {
    struct db_params params;
    begin_params(&params, grant);
    db_param_text(&params, basis);
    return ask(store, "note_basis", "SELECT royalty.note_basis($1, $2, $3::text::uuid, $4)", &params, ret_verdict, error);
}
