/*
 * One connection to PostgreSQL. Only db*.c include libpq-fe.h.
 *
 * A struct db belongs to one thread. Every call has a deadline of its own: the socket is non-blocking and the
 * wait is ours, because statement_timeout does not bound a commit that waits for a standby.
 * A call that misses its deadline, and a COMMIT whose fate is unknown, leave the connection broken: free it and
 * connect again.
 *
 * Errors: `kind` says what to do next (RETRY, REJECT, FATAL), `code` is the SQLSTATE, or db_lost, db_deadline,
 * db_conninfo, db_commit_in_doubt, db_usage for what the server did not say. Messages carry SQLSTATE, constraint and table
 * names, never row values.
 *
 * Parameters and results travel in binary format. Times are microseconds since 1970-01-01 UTC.
 */
#ifndef LEASE_COMMON_DB_H
#define LEASE_COMMON_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct db;
struct db_result;

struct db_options {
    const char *conninfo;         /* as libpq reads it; several hosts are tried in turn, each with its share of the time */
    const char *application_name;
    int connect_ms;               /* for the whole connection, all hosts together; 0: 5000 */
    int deadline_ms;              /* our own bound on every call; 0: 30000, < 0: none (migrations) */
    int statement_timeout_ms;     /* 0: 20000, < 0: off */
    int lock_timeout_ms;          /* 0: 5000, < 0: off */
    int idle_in_transaction_ms;   /* keep it shorter than the group's session timeout, or a stopped process's locks
                                     outlive its partitions; 0: 5000, < 0: off */
    int tcp_user_timeout_ms;      /* 0: 10000 */
    bool show_server_text;        /* leasectl only: errors carry the server's whole primary message */
};

/* ---- connection ---- */

/* Connects and sets the session up (timeouts, search_path, UTF8). On success *ret_db is the caller's to db_free. */
bool db_connect(const struct db_options *options, struct db **ret_db, struct error *error);
void db_free(struct db *db);

/* False once the connection is lost, timed out or in doubt. Says nothing about a server that died unnoticed. */
bool db_is_usable(const struct db *db);
bool db_in_transaction(const struct db *db);
/* Where in its text the last statement that the server refused was wrong: characters from 1, 0 if it did not say. */
int db_error_position(const struct db *db);
/* Did a WARNING come with the last call? Outside of a transaction it means that the statement's own commit is in doubt: a wait for a
 * standby that was cancelled ends in success and a warning. */
bool db_was_warned(const struct db *db);
/* Changes the bound on every later call; < 0: none. */
void db_set_deadline(struct db *db, int deadline_ms);

/* ---- parameters ---- */

enum db_type { DB_BOOL, DB_INT4, DB_INT8, DB_TEXT, DB_BYTEA, DB_UUID, DB_TIMESTAMPTZ, DB_JSONB };
#define DB_PARAMS_MAX 48

/*
 * Builds the parameters of one call, in order. Reuse one struct for many calls: db_params_reset keeps the memory.
 * An array is begun, filled with db_item_*, and ended; nothing else may be added in between.
 */
struct db_params {
    unsigned char *bytes;
    size_t size, capacity;
    int count;
    size_t offset[DB_PARAMS_MAX];
    int length[DB_PARAMS_MAX];      /* -1: NULL */
    unsigned int type[DB_PARAMS_MAX]; /* type oid, array oid for arrays */
    /* the open array */
    enum db_type item_type;
    size_t items, header;
    bool is_array_open, has_null_item;
};

void db_params_init(struct db_params *params);
void db_params_release(struct db_params *params);
void db_params_reset(struct db_params *params);

void db_param_null(struct db_params *params, enum db_type type);
void db_param_bool(struct db_params *params, bool value);
void db_param_int4(struct db_params *params, int32_t value);
void db_param_int8(struct db_params *params, int64_t value);
void db_param_text(struct db_params *params, const char *text); /* NULL text: SQL NULL */

void db_array_begin(struct db_params *params, enum db_type item_type);
void db_array_end(struct db_params *params);
void db_item_null(struct db_params *params);
void db_item_bool(struct db_params *params, bool value);
void db_item_int4(struct db_params *params, int32_t value);
void db_item_int8(struct db_params *params, int64_t value);
void db_item_text(struct db_params *params, const char *text);                     /* NULL text: NULL item */
void db_item_text_sized(struct db_params *params, const char *text, size_t size);   /* NULL text: NULL item */
void db_item_bytea(struct db_params *params, const void *bytes, size_t size);       /* NULL bytes: NULL item */
void db_item_uuid(struct db_params *params, const uint8_t bytes[16]);               /* NULL: NULL item */

/* ---- statements ---- */

/*
 * Runs one statement. `name` (a literal, ≤ 63 bytes, one per statement text) prepares it once per connection and
 * reuses it; NULL prepares nothing. `params` may be NULL. *ret_result is the caller's to db_result_free; ret_result
 * itself may be NULL when the rows don't matter.
 */
bool db_query(struct db *db, const char *name, const char *sql, const struct db_params *params,
              struct db_result **ret_result, struct error *error);

/* The same with every column as text, as psql would show it: read them with db_text. For listings. */
bool db_query_text(struct db *db, const char *sql, const struct db_params *params, struct db_result **ret_result,
                   struct error *error);

/* Simple protocol: one or several statements, no parameters, no rows kept. For LISTEN, scripts, migrations. */
bool db_execute(struct db *db, const char *sql, struct error *error);

/* ---- several statements, one round trip ---- */

/*
 * begin, add as often as needed, send, then next once per statement in order, then end. The server stops at the first
 * statement that fails; the later ones fail with it. end must follow a successful begin, whatever happened between; only
 * after it may the connection be used otherwise. Parameters may be reused after add.
 */
bool db_pipeline_begin(struct db *db, struct error *error);
bool db_pipeline_add(struct db *db, const char *name, const char *sql, const struct db_params *params, struct error *error);
bool db_pipeline_send(struct db *db, struct error *error);
bool db_pipeline_next(struct db *db, struct db_result **ret_result, struct error *error);
/* False, with the connection broken, if it could not be brought in order. */
bool db_pipeline_end(struct db *db, struct error *error);

/* ---- transactions ---- */

enum db_commit {
    COMMIT_DONE,     /* the server surely committed */
    COMMIT_REFUSED,  /* the server surely did not; the error says why */
    COMMIT_IN_DOUBT, /* nobody knows (cut off, cancelled, a warning): connect again and read the consumed offset */
};

bool db_begin(struct db *db, struct error *error);
/* Sends COMMIT and waits for its answer: both calls below in one. */
enum db_commit db_commit(struct db *db, struct error *error);
/* COMMIT_DONE here means sent whole; anything else is final. For those who want to look up between the two. */
enum db_commit db_commit_send(struct db *db, struct error *error);
enum db_commit db_commit_wait(struct db *db, struct error *error);
/* Ends the transaction if there is one and the connection works. After false the connection is broken. */
bool db_rollback(struct db *db, struct error *error);

/* ---- results: every pointer is borrowed from the result ---- */

void db_result_free(struct db_result *result);
size_t db_rows(const struct db_result *result);
size_t db_columns(const struct db_result *result);
/* Memory that the rows take. */
size_t db_result_bytes(const struct db_result *result);

bool db_is_null(const struct db_result *result, size_t row, size_t column);
/* NULL reads as false, 0, "" or an all-zero uuid. The column must have the type asked for (asserted). */
bool db_bool(const struct db_result *result, size_t row, size_t column);
int32_t db_int4(const struct db_result *result, size_t row, size_t column);
int64_t db_int8(const struct db_result *result, size_t row, size_t column); /* int2, int4 or int8 */
/* text, varchar, name, json, jsonb, enum …; NUL-terminated. ret_size may be NULL. */
const char *db_text(const struct db_result *result, size_t row, size_t column, size_t *ret_size);
const uint8_t *db_bytea(const struct db_result *result, size_t row, size_t column, size_t *ret_size);
const uint8_t *db_uuid(const struct db_result *result, size_t row, size_t column);
/* INT64_MAX for infinity, INT64_MIN for -infinity. */
int64_t db_timestamptz(const struct db_result *result, size_t row, size_t column);

/* One-dimensional arrays of text, int4, int8. NULL and empty arrays have no items. */
size_t db_array_items(const struct db_result *result, size_t row, size_t column);
int64_t db_array_int8(const struct db_result *result, size_t row, size_t column, size_t item);
/* Not NUL-terminated: use *ret_size. */
const char *db_array_text(const struct db_result *result, size_t row, size_t column, size_t item, size_t *ret_size);

/* ---- notifications ---- */

enum db_wait { DB_WAIT_NOTIFIED, DB_WAIT_TIMEOUT, DB_WAIT_WOKEN, DB_WAIT_LOST };

struct db_notification {
    char channel[64];
    char payload[256]; /* cut when longer */
};

/*
 * Waits for a notification (after db_execute "LISTEN …"), for `wake_fd` to become readable (-1: none; it is not read
 * from), or for the time to pass. Notifications that came with an earlier statement count. DB_WAIT_LOST sets *error.
 */
enum db_wait db_wait(struct db *db, int timeout_ms, int wake_fd, struct db_notification *ret_notification,
                     struct error *error);

/* Kind of error of a SQLSTATE: the one table of that. Exposed for its test. */
enum error_kind db_error_kind(const char *sqlstate);

#endif
