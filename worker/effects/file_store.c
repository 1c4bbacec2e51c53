/* Calls into schema fileserver; see file_store.h. */
#include "worker/effects/file_store.h"

#include "common/buf.h"
#include "worker/effects/db_pool.h"

#include <stdlib.h>
#include <string.h>

/* A call that waits longer gives its lease's renewal no chance; it is then made again, with a new connection. The server gives up
 * before we do, and a lock before the statement. Connecting has a least time, or it would never succeed. */
enum { CALL_MAX_MS = 8000, CONNECT_MIN_MS = 1000, CONNECT_MAX_MS = 5000 };

struct file_store {
    struct db_pool *pool;
};

struct file_store *file_store_new(const char *conninfo, const char *application_name, int64_t call_ms) {
    int most_ms = call_ms < CALL_MAX_MS ? (int)call_ms : CALL_MAX_MS;
    int connect_ms = most_ms < CONNECT_MIN_MS ? CONNECT_MIN_MS : most_ms;
    const struct db_options options = {
        .conninfo = conninfo,
        .application_name = application_name,
        .connect_ms = connect_ms < CONNECT_MAX_MS ? connect_ms : CONNECT_MAX_MS,
        .deadline_ms = most_ms,
        .statement_timeout_ms = most_ms * 3 / 4,
        .lock_timeout_ms = most_ms / 2,
    };
    struct file_store *store = memory_alloc(sizeof *store);
    store->pool = db_pool_new(&options);
    return store;
}

void file_store_free(struct file_store *store) {
    if (store == NULL)
        return;
    db_pool_free(store->pool);
    free(store);
}

static bool query(struct file_store *store, const char *name, const char *sql, const struct db_params *params,
                  struct db_result **ret_rows, struct error *error) {
    struct db *db = NULL;
    if (!db_pool_take(store->pool, &db, error))
        return false;
    bool is_done = db_query(db, name, sql, params, ret_rows, error);
    if (is_done && db_was_warned(db)) {
        db_result_free(*ret_rows);
        *ret_rows = NULL;
        is_done = error_set(error, ERROR_RETRY, "file_store_in_doubt", "%s: committed with a warning: a standby may lack it",
                            name != NULL ? name : "query");
    }
    db_pool_give(store->pool, db);
    return is_done;
}

bool file_store_check(struct file_store *store, struct error *error) {
    struct db_result *rows = NULL;
    if (!query(store, NULL,
               "SELECT to_regprocedure('fileserver.settle_cleanup(text, bigint, uuid, boolean)') IS NOT NULL", NULL, &rows, error))
        return false;
    bool is_there = db_bool(rows, 0, 0);
    db_result_free(rows);
    return is_there || error_set(error, ERROR_FATAL, "file_store_missing",
                                 "the file server's tables are not in this database: load sql/gate/gate.sql and "
                                 "sql/fileserver/fileserver.sql");
}

static void add_grant(struct db_params *params, const struct file_grant *grant) {
    db_params_init(params);
    db_param_text(params, grant->file);
    db_param_int8(params, grant->fence);
    db_param_text(params, grant->claim_id);
}

/* ---- begin ---- */

static bool parse_begun(const char *verdict, enum file_begun *ret_begun, struct error *error) {
    static const char *const names[] = {"stale", "unknown", "deleting", "deleted"}; /* enum file_begun */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(verdict, names[i]) == 0) {
            *ret_begun = (enum file_begun)i;
            return true;
        }
    return error_set(error, ERROR_FATAL, "file_store_answer", "begin_cleanup answered \"%s\"", verdict);
}

static void read_facts(const struct db_result *rows, struct file_facts *facts) {
    facts->name = memory_copy_text(db_text(rows, 0, 1, NULL));
    facts->earlier_count = db_array_items(rows, 0, 2);
    facts->earlier = memory_alloc_array(facts->earlier_count + 1, sizeof *facts->earlier);
    for (size_t i = 0; i < facts->earlier_count; i++)
        facts->earlier[i] = db_array_int8(rows, 0, 2, i);
    facts->former_count = db_array_items(rows, 0, 3);
    facts->former = memory_alloc_array(facts->former_count + 1, sizeof *facts->former);
    for (size_t i = 0; i < facts->former_count; i++) {
        size_t size;
        const char *name = db_array_text(rows, 0, 3, i, &size);
        facts->former[i] = memory_copy_bytes(name, size);
    }
    facts->was_missing = db_bool(rows, 0, 4);
}

bool file_store_begin(struct file_store *store, const struct file_grant *grant, enum file_begun *ret_begun,
                      struct file_facts *ret_facts, struct error *error) {
    struct db_params params;
    struct db_result *rows = NULL;
    memset(ret_facts, 0, sizeof *ret_facts);
    add_grant(&params, grant);
    bool is_done = query(store, "begin_cleanup",
                         "SELECT verdict, physical_name, earlier, former, missing"
                         " FROM fileserver.begin_cleanup($1, $2, $3::text::uuid)",
                         &params, &rows, error);
    db_params_release(&params);
    if (!is_done)
        return false;
    is_done = parse_begun(db_text(rows, 0, 0, NULL), ret_begun, error);
    if (is_done && *ret_begun >= FILE_BEGUN)
        read_facts(rows, ret_facts);
    db_result_free(rows);
    return is_done;
}

void file_facts_release(struct file_facts *facts) {
    free(facts->name);
    free(facts->earlier);
    for (size_t i = 0; i < facts->former_count; i++)
        free(facts->former[i]);
    free(facts->former);
    memset(facts, 0, sizeof *facts);
}

/* ---- settle ---- */

bool file_store_settle(struct file_store *store, const struct file_grant *grant, bool is_missing,
                       struct file_settlement *ret_settlement, struct error *error) {
    struct db_params params;
    struct db_result *rows = NULL;
    add_grant(&params, grant);
    db_param_bool(&params, is_missing);
    bool is_done = query(store, "settle_cleanup",
                         "SELECT verdict, bytes, settled_by, missing"
                         " FROM fileserver.settle_cleanup($1, $2, $3::text::uuid, $4)",
                         &params, &rows, error);
    db_params_release(&params);
    if (!is_done)
        return false;
    const char *verdict = db_text(rows, 0, 0, NULL);
    bool is_settled = strcmp(verdict, "settled") == 0 || strcmp(verdict, "already") == 0;
    *ret_settlement = (struct file_settlement){
        .is_stale = strcmp(verdict, "stale") == 0,
        .bytes = db_int8(rows, 0, 1),
        .settled_by = db_int8(rows, 0, 2),
        .was_missing = db_bool(rows, 0, 3),
    };
    if (!is_settled && !ret_settlement->is_stale)
        is_done = error_set(error, ERROR_FATAL, "file_store_answer", "settle_cleanup answered \"%s\"", verdict);
    db_result_free(rows);
    return is_done;
}
