/* One connection to PostgreSQL: see db.h. Runs in whichever thread owns the struct db.
 * Not for: deciding anything about leases, retrying, logging. */
#include "common/db_private.h"

#include "common/buf.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- waiting ---- */

static bool wait_socket(struct db *db, short events, int64_t deadline, const char *what, struct error *error) {
    for (;;) {
        struct pollfd slot = { .fd = PQsocket(db->connection), .events = events };
        if (slot.fd < 0)
            return db_set_lost(db, what, error);
        int ready = poll(&slot, 1, db_ms_until(deadline));
        if (ready > 0)
            return true;
        if (ready == 0)
            return db_set_timed_out(db, what, error);
        if (errno != EINTR)
            return db_set_lost(db, what, error);
    }
}

static bool flush_all(struct db *db, int64_t deadline, const char *what, struct error *error) {
    for (;;) {
        int left = PQflush(db->connection);
        if (left == 0)
            return true;
        if (left < 0)
            return db_set_lost(db, what, error);
        /* The server may be sending too: read, or both sides wait for ever. */
        if (!wait_socket(db, POLLIN | POLLOUT, deadline, what, error))
            return false;
        if (!PQconsumeInput(db->connection))
            return db_set_lost(db, what, error);
    }
}

/* The next result of what was sent, NULL at its end. */
static bool next_result(struct db *db, int64_t deadline, const char *what, PGresult **ret_result, struct error *error) {
    *ret_result = NULL; /* a caller may clear it also after a failure */
    while (PQisBusy(db->connection)) {
        if (!wait_socket(db, POLLIN, deadline, what, error))
            return false;
        if (!PQconsumeInput(db->connection))
            return db_set_lost(db, what, error);
    }
    *ret_result = PQgetResult(db->connection);
    return true;
}

static bool is_good(const PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    /* A script of comments alone is an empty query. */
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY;
}

/* Reads all results, keeps the last, or the first error. */
static bool collect(struct db *db, int64_t deadline, const char *what, PGresult **ret_result, struct error *error) {
    PGresult *kept = NULL;
    for (;;) {
        PGresult *result = NULL;
        if (!next_result(db, deadline, what, &result, error)) {
            PQclear(kept);
            return false;
        }
        if (!result)
            break;
        if (kept && !is_good(kept)) {
            PQclear(result);
            continue;
        }
        PQclear(kept);
        kept = result;
    }
    if (!kept)
        return db_set_lost(db, what, error);
    if (!is_good(kept)) {
        db_set_from_result(db, kept, what, error);
        PQclear(kept);
        return false;
    }
    *ret_result = kept;
    return true;
}

static bool refuse_unusable(struct db *db, const char *what, struct error *error) {
    if (db_is_usable(db))
        return true;
    if (db)
        db->is_broken = true;
    return error_set(error, ERROR_RETRY, "db_lost", "%s: not connected", what);
}

/* ---- connection ---- */

static int setting_ms(int option, int otherwise) {
    return option < 0 ? 0 : option == 0 ? otherwise : option;
}

static bool set_session_up(struct db *db, const struct db_options *options, struct error *error) {
    char sql[700];
    /* jit: our statements are short and their row estimates wild. The connection check ends a statement whose client is gone. */
    snprintf(sql, sizeof sql,
             "SET search_path = pg_catalog, pg_temp; SET statement_timeout = %d; SET lock_timeout = %d;"
             " SET idle_in_transaction_session_timeout = %d; SET idle_session_timeout = 0;"
             " SET client_connection_check_interval = 2000; SET jit = off; SET standard_conforming_strings = on;"
             " SET DateStyle = 'ISO, YMD'; SET TimeZone = 'UTC'; SET IntervalStyle = 'iso_8601';"
             " SET default_transaction_isolation = 'read committed'; SET default_transaction_deferrable = off",
             setting_ms(options->statement_timeout_ms, 20000), setting_ms(options->lock_timeout_ms, 5000),
             setting_ms(options->idle_in_transaction_ms, 5000));
    return db_execute(db, sql, error);
}

bool db_connect(const struct db_options *options, struct db **ret_db, struct error *error) {
    struct db *db = calloc(1, sizeof *db);
    if (!db)
        return error_set(error, ERROR_RETRY, "db_lost", "connect: out of memory");
    db->deadline_ms = options->deadline_ms == 0 ? 30000 : options->deadline_ms;
    db->show_server_text = options->show_server_text;
    if (!db_open_connection(options, &db->connection, error))
        goto failed;
    PQsetNoticeReceiver(db->connection, db_note_notice, db);
    if (PQsetnonblocking(db->connection, 1) != 0) {
        db_set_lost(db, "connect", error);
        goto failed;
    }
    if (!set_session_up(db, options, error))
        goto failed;
    *ret_db = db;
    return true;
failed:
    db_free(db);
    return false;
}

void db_free(struct db *db) {
    if (!db)
        return;
    PQfinish(db->connection);
    free(db);
}

bool db_is_usable(const struct db *db) {
    return db && db->connection && !db->is_broken && PQstatus(db->connection) == CONNECTION_OK;
}

bool db_in_transaction(const struct db *db) {
    if (!db_is_usable(db))
        return false;
    PGTransactionStatusType status = PQtransactionStatus(db->connection);
    return status == PQTRANS_INTRANS || status == PQTRANS_INERROR;
}

bool db_was_warned(const struct db *db) {
    return db->has_warned;
}

void db_set_deadline(struct db *db, int deadline_ms) {
    db->deadline_ms = deadline_ms;
}

/* ---- statements ---- */

static bool is_prepared(const struct db *db, const char *name) {
    for (int i = 0; i < db->prepared_count; i++)
        if (strcmp(db->prepared[i], name) == 0)
            return true;
    return false;
}

static void note_prepared(struct db *db, const char *name) {
    assert(db->prepared_count < PREPARED_MAX && strlen(name) < sizeof db->prepared[0]);
    snprintf(db->prepared[db->prepared_count++], sizeof db->prepared[0], "%s", name);
}

static void point_at(const struct db_params *params, const char *values[DB_PARAMS_MAX], int formats[DB_PARAMS_MAX]) {
    for (int i = 0; i < params->count; i++) {
        values[i] = params->length[i] < 0 ? NULL : (const char *)params->bytes + params->offset[i];
        formats[i] = 1;
    }
}

static bool prepare(struct db *db, const char *name, const char *sql, const struct db_params *params,
                    int64_t deadline, struct error *error) {
    PGresult *result = NULL;
    if (!PQsendPrepare(db->connection, name, sql, params->count, params->type))
        return db_set_lost(db, name, error);
    if (!flush_all(db, deadline, name, error) || !collect(db, deadline, name, &result, error))
        return false;
    PQclear(result);
    note_prepared(db, name);
    return true;
}

static struct db_result *wrap(PGresult *result, bool is_text) {
    struct db_result *wrapped = memory_or_exit(calloc(1, sizeof *wrapped));
    wrapped->result = result;
    wrapped->is_text = is_text;
    return wrapped;
}

static bool run(struct db *db, const char *name, const char *sql, const struct db_params *params, bool is_text,
                struct db_result **ret_result, struct error *error) {
    static const struct db_params none;
    const char *what = name ? name : "statement";
    int64_t deadline = db_deadline_after(db->deadline_ms);
    if (!params)
        params = &none;
    assert(!params->is_array_open);
    if (!refuse_unusable(db, what, error))
        return false;
    if (name && !is_prepared(db, name) && !prepare(db, name, sql, params, deadline, error))
        return false;
    const char *values[DB_PARAMS_MAX];
    int formats[DB_PARAMS_MAX];
    point_at(params, values, formats);
    db->has_warned = false;
    int sent = name ? PQsendQueryPrepared(db->connection, name, params->count, values, params->length, formats, !is_text)
                    : PQsendQueryParams(db->connection, sql, params->count, params->type, values, params->length,
                                        formats, !is_text);
    if (!sent)
        return db_set_lost(db, what, error);
    PGresult *result = NULL;
    if (!flush_all(db, deadline, what, error) || !collect(db, deadline, what, &result, error))
        return false;
    if (!ret_result) {
        PQclear(result);
        return true;
    }
    *ret_result = wrap(result, is_text);
    return true;
}

bool db_query(struct db *db, const char *name, const char *sql, const struct db_params *params,
              struct db_result **ret_result, struct error *error) {
    return run(db, name, sql, params, false, ret_result, error);
}

bool db_query_text(struct db *db, const char *sql, const struct db_params *params, struct db_result **ret_result,
                   struct error *error) {
    return run(db, NULL, sql, params, true, ret_result, error);
}

/* ---- several statements, one round trip ---- */

bool db_pipeline_begin(struct db *db, struct error *error) {
    if (!refuse_unusable(db, "pipeline", error))
        return false;
    if (!PQenterPipelineMode(db->connection))
        return db_set_lost(db, "pipeline", error);
    db->pipeline_count = db->pipeline_read = 0;
    db->has_warned = false;
    return true;
}

bool db_pipeline_add(struct db *db, const char *name, const char *sql, const struct db_params *params, struct error *error) {
    static const struct db_params none;
    const char *values[DB_PARAMS_MAX] = { NULL };
    int formats[DB_PARAMS_MAX] = { 0 };
    if (!params)
        params = &none;
    assert(db->pipeline_count < PIPELINE_MAX && !params->is_array_open);
    bool prepares = name && !is_prepared(db, name);
    if (prepares && !PQsendPrepare(db->connection, name, sql, params->count, params->type))
        return db_set_lost(db, name, error);
    point_at(params, values, formats);
    int sent = name ? PQsendQueryPrepared(db->connection, name, params->count, values, params->length, formats, 1)
                    : PQsendQueryParams(db->connection, sql, params->count, params->type, values, params->length, formats, 1);
    if (!sent)
        return db_set_lost(db, name ? name : "statement", error);
    db->pipeline_names[db->pipeline_count++] = prepares ? name : NULL;
    return true;
}

bool db_pipeline_send(struct db *db, struct error *error) {
    db->pipeline_deadline = db_deadline_after(db->deadline_ms);
    if (!PQpipelineSync(db->connection))
        return db_set_lost(db, "pipeline", error);
    return flush_all(db, db->pipeline_deadline, "pipeline", error);
}

/* The one result of one message of the pipeline; what it stands for was skipped if an earlier one failed. */
static bool pipeline_result(struct db *db, const char *what, PGresult **ret_result, struct error *error) {
    PGresult *result, *end;
    if (!next_result(db, db->pipeline_deadline, what, &result, error))
        return false;
    if (!result)
        return db_set_lost(db, what, error);
    if (!next_result(db, db->pipeline_deadline, what, &end, error)) {
        PQclear(result);
        return false;
    }
    PQclear(end); /* NULL behind each answer */
    if (PQresultStatus(result) == PGRES_PIPELINE_ABORTED) {
        PQclear(result);
        return error_set(error, ERROR_RETRY, "db_skipped", "%s: an earlier statement failed", what);
    }
    if (!is_good(result)) {
        db_set_from_result(db, result, what, error);
        PQclear(result);
        return false;
    }
    *ret_result = result;
    return true;
}

bool db_pipeline_next(struct db *db, struct db_result **ret_result, struct error *error) {
    assert(db->pipeline_read < db->pipeline_count);
    const char *prepares = db->pipeline_names[db->pipeline_read++];
    PGresult *result = NULL;
    if (prepares) {
        if (!pipeline_result(db, prepares, &result, error))
            return false;
        PQclear(result);
        note_prepared(db, prepares);
    }
    if (!pipeline_result(db, "pipeline", &result, error))
        return false;
    if (!ret_result) {
        PQclear(result);
        return true;
    }
    *ret_result = wrap(result, false);
    return true;
}

bool db_pipeline_end(struct db *db, struct error *error) {
    struct error ignored = { 0 };
    /* Answers that nobody wanted say which statements are prepared now. */
    while (db_is_usable(db) && db->pipeline_read < db->pipeline_count)
        db_pipeline_next(db, NULL, &ignored);
    for (int empty = 0; db_is_usable(db) && empty < 2;) {
        PGresult *result = NULL;
        if (!next_result(db, db->pipeline_deadline, "pipeline", &result, error))
            return false;
        empty = result ? 0 : empty + 1;
        bool is_sync = result && PQresultStatus(result) == PGRES_PIPELINE_SYNC;
        PQclear(result);
        if (!is_sync)
            continue;
        if (!PQexitPipelineMode(db->connection))
            return db_set_lost(db, "pipeline", error);
        return true;
    }
    return db_set_lost(db, "pipeline", error);
}

static bool simple(struct db *db, const char *sql, const char *what, PGresult **ret_result, struct error *error) {
    int64_t deadline = db_deadline_after(db->deadline_ms);
    if (!refuse_unusable(db, what, error))
        return false;
    db->has_warned = false;
    if (!PQsendQuery(db->connection, sql))
        return db_set_lost(db, what, error);
    return flush_all(db, deadline, what, error) && collect(db, deadline, what, ret_result, error);
}

bool db_execute(struct db *db, const char *sql, struct error *error) {
    PGresult *result = NULL;
    if (!simple(db, sql, "execute", &result, error))
        return false;
    PQclear(result);
    return true;
}

/* ---- transactions ---- */

bool db_begin(struct db *db, struct error *error) {
    PGresult *result = NULL;
    if (!refuse_unusable(db, "begin", error))
        return false;
    if (PQtransactionStatus(db->connection) != PQTRANS_IDLE)
        return error_set(error, ERROR_FATAL, "db_usage", "begin: already in a transaction");
    if (!simple(db, "BEGIN", "begin", &result, error))
        return false;
    PQclear(result);
    return true;
}

static enum db_commit set_in_doubt(struct db *db, const char *why, struct error *error) {
    db->is_broken = true;
    error_set(error, ERROR_RETRY, "db_commit_in_doubt", "commit: in doubt: %s", why);
    return COMMIT_IN_DOUBT;
}

/* An answer to COMMIT that is an error: surely refused only if the server lives on and the transaction is over. */
static enum db_commit judge_commit_error(struct db *db, const PGresult *result, struct error *error) {
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (!severity || strcmp(severity, "ERROR") != 0 || PQstatus(db->connection) != CONNECTION_OK || db->has_warned)
        return set_in_doubt(db, PQresultErrorField(result, PG_DIAG_SQLSTATE) ? "ended by the server" : "no answer", error);
    db_set_from_result(db, result, "commit", error);
    return COMMIT_REFUSED;
}

static enum db_commit judge_commit(struct db *db, const PGresult *result, struct error *error) {
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        return judge_commit_error(db, result, error);
    const char *tag = PQcmdStatus((PGresult *)(uintptr_t)result);
    if (strcmp(tag, "ROLLBACK") == 0) {
        error_set(error, ERROR_RETRY, "25P02", "commit: the transaction had failed");
        return COMMIT_REFUSED;
    }
    if (strcmp(tag, "COMMIT") != 0)
        return set_in_doubt(db, tag, error);
    if (db->has_warned)
        return set_in_doubt(db, db->warning, error);
    return COMMIT_DONE;
}

enum db_commit db_commit_send(struct db *db, struct error *error) {
    if (!refuse_unusable(db, "commit", error))
        return COMMIT_REFUSED; /* nothing was sent: a transaction that lost its connection before COMMIT is gone */
    PGTransactionStatusType status = PQtransactionStatus(db->connection);
    if (status != PQTRANS_INTRANS) {
        error_set(error, status == PQTRANS_INERROR ? ERROR_RETRY : ERROR_FATAL, "db_usage",
                  status == PQTRANS_INERROR ? "commit: the transaction had failed" : "commit: not in a transaction");
        struct error ignored = { 0 };
        db_rollback(db, &ignored);
        return COMMIT_REFUSED;
    }
    db->has_warned = false;
    if (!PQsendQuery(db->connection, "COMMIT") ||
        !flush_all(db, db_deadline_after(db->deadline_ms), "commit", error))
        return set_in_doubt(db, "could not be sent whole", error);
    return COMMIT_DONE;
}

enum db_commit db_commit_wait(struct db *db, struct error *error) {
    int64_t deadline = db_deadline_after(db->deadline_ms);
    PGresult *result, *end = NULL;
    if (!next_result(db, deadline, "commit", &result, error) || !result)
        return set_in_doubt(db, "no answer", error);
    enum db_commit outcome = judge_commit(db, result, error);
    PQclear(result);
    /* The rest, up to ReadyForQuery: a connection lost here has told its answer, but must not be used again. */
    struct error ignored = { 0 };
    while (next_result(db, deadline, "commit", &end, &ignored) && end)
        PQclear(end);
    return outcome;
}

enum db_commit db_commit(struct db *db, struct error *error) {
    enum db_commit sent = db_commit_send(db, error);
    return sent == COMMIT_DONE ? db_commit_wait(db, error) : sent;
}

bool db_rollback(struct db *db, struct error *error) {
    PGresult *result = NULL;
    if (!refuse_unusable(db, "rollback", error))
        return false;
    if (PQtransactionStatus(db->connection) == PQTRANS_IDLE)
        return true;
    if (!simple(db, "ROLLBACK", "rollback", &result, error)) {
        db->is_broken = true;
        return false;
    }
    PQclear(result);
    return true;
}

/* ---- notifications ---- */

static bool take_notification(struct db *db, struct db_notification *ret_notification) {
    PGnotify *notify = PQnotifies(db->connection);
    if (!notify)
        return false;
    snprintf(ret_notification->channel, sizeof ret_notification->channel, "%s", notify->relname);
    snprintf(ret_notification->payload, sizeof ret_notification->payload, "%s", notify->extra ? notify->extra : "");
    PQfreemem(notify);
    return true;
}

enum db_wait db_wait(struct db *db, int timeout_ms, int wake_fd, struct db_notification *ret_notification,
                     struct error *error) {
    int64_t deadline = db_deadline_after(timeout_ms);
    if (!refuse_unusable(db, "wait", error))
        return DB_WAIT_LOST;
    for (;;) {
        if (take_notification(db, ret_notification))
            return DB_WAIT_NOTIFIED;
        struct pollfd slots[2] = { { .fd = PQsocket(db->connection), .events = POLLIN },
                                   { .fd = wake_fd, .events = POLLIN } };
        int ready = poll(slots, 2, db_ms_until(deadline));
        if (ready == 0)
            return DB_WAIT_TIMEOUT;
        if (ready < 0 && errno != EINTR) {
            db_set_lost(db, "wait", error);
            return DB_WAIT_LOST;
        }
        if (ready > 0 && slots[0].revents && (!PQconsumeInput(db->connection) || PQstatus(db->connection) == CONNECTION_BAD)) {
            db_set_lost(db, "wait", error);
            return DB_WAIT_LOST;
        }
        if (ready > 0 && slots[1].revents && !take_notification(db, ret_notification))
            return DB_WAIT_WOKEN;
    }
}
