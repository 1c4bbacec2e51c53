/*
 * One connection to PostgreSQL: see db.h. Runs in whichever thread owns the struct db.
 * Not for: deciding anything about leases, retrying, logging.
 */
#include "common/db.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>

#include "common/buf.h"

/* Type oids are fixed for ever in PostgreSQL's pg_type.dat. */
enum {
    OID_BOOL = 16, OID_BYTEA = 17, OID_INT8 = 20, OID_INT2 = 21, OID_INT4 = 23, OID_TEXT = 25, OID_JSONB = 3802,
    OID_BOOL_ARRAY = 1000, OID_BYTEA_ARRAY = 1001, OID_INT4_ARRAY = 1007, OID_TEXT_ARRAY = 1009,
    OID_INT8_ARRAY = 1016, OID_TIMESTAMPTZ = 1184, OID_TIMESTAMPTZ_ARRAY = 1185, OID_UUID = 2950,
    OID_UUID_ARRAY = 2951, OID_JSONB_ARRAY = 3807,
};

/* PostgreSQL counts from 2000-01-01. */
#define EPOCH_2000_US INT64_C(946684800000000)

/* One statement per caller and purpose; a connection of ours uses fewer than ten. */
#define PREPARED_MAX 64
#define HOSTS_MAX 16
/* A transaction's statements. */
#define PIPELINE_MAX 8

struct db {
    PGconn *connection;
    int deadline_ms;
    bool is_broken;
    bool has_warned;     /* a WARNING came since the statement was sent */
    char warning[6];     /* its SQLSTATE */
    bool show_server_text;
    int error_position;
    int64_t pipeline_deadline;
    int pipeline_count, pipeline_read; /* statements added, answers read */
    const char *pipeline_names[PIPELINE_MAX]; /* names that the statement prepares; NULL: none */
    int prepared_count;
    char prepared[PREPARED_MAX][64];
};

struct db_result {
    PGresult *result;
    bool is_text;
};

/* ---- time ---- */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* -1 means for ever, as poll() reads it. */
static int64_t deadline_after(int ms)
{
    return ms < 0 ? -1 : now_ms() + ms;
}

static int ms_until(int64_t deadline)
{
    if (deadline < 0)
        return -1;
    int64_t left = deadline - now_ms();
    return left <= 0 ? 0 : (int)left;
}

/* ---- SQLSTATE → kind: the one table ---- */

static const struct {
    const char *prefix;
    enum error_kind kind;
    bool text_is_safe; /* the server's primary message holds no row values */
} sqlstates[] = {
    { "LE001", ERROR_RETRY, true },   /* server identity changed: the connect procedure again */
    { "LE002", ERROR_RETRY, true },   /* partition lost */
    { "LE003", ERROR_RETRY, true },   /* database clock went back: wait until it has caught up */
    { "LE005", ERROR_RETRY, true },   /* relay superseded */
    { "LE", ERROR_FATAL, true },
    { "08", ERROR_RETRY, true },      /* connection */
    { "25006", ERROR_RETRY, true },   /* read-only: a standby, or not promoted yet */
    { "25P03", ERROR_RETRY, true },   /* idle in transaction too long: we were stopped */
    { "40", ERROR_RETRY, true },      /* deadlock, serialization */
    { "53", ERROR_RETRY, true },      /* out of disk, memory, connections */
    { "55P03", ERROR_RETRY, true },   /* lock_timeout */
    { "57", ERROR_RETRY, true },      /* operator intervention, statement_timeout */
    { "58", ERROR_RETRY, true },      /* the system's I/O */
    { "22", ERROR_REJECT, false },    /* data */
    { "23", ERROR_REJECT, false },    /* constraints */
    { "54", ERROR_REJECT, false },    /* program limits */
    { "25", ERROR_FATAL, true },      /* transaction state: a bug */
    { "28", ERROR_FATAL, true },      /* authorization */
    { "3D", ERROR_FATAL, true },      /* no such database */
    { "3F", ERROR_FATAL, true },
    { "42", ERROR_FATAL, true },      /* names, types, rights: another schema */
};

static bool is_text_safe(const char *sqlstate)
{
    for (size_t i = 0; i < sizeof sqlstates / sizeof *sqlstates; i++)
        if (strncmp(sqlstate, sqlstates[i].prefix, strlen(sqlstates[i].prefix)) == 0)
            return sqlstates[i].text_is_safe;
    return false;
}

enum error_kind db_error_kind(const char *sqlstate)
{
    for (size_t i = 0; i < sizeof sqlstates / sizeof *sqlstates; i++)
        if (strncmp(sqlstate, sqlstates[i].prefix, strlen(sqlstates[i].prefix)) == 0)
            return sqlstates[i].kind;
    return ERROR_FATAL;
}

/* ---- errors ---- */

static const char *first_line(const char *text, char *line, size_t capacity)
{
    size_t size = strcspn(text ? text : "", "\n");
    if (size >= capacity)
        size = capacity - 1;
    memcpy(line, text ? text : "", size);
    line[size] = '\0';
    return line;
}

static bool set_lost(struct db *db, const char *what, struct error *error)
{
    char line[200];
    first_line(db->connection ? PQerrorMessage(db->connection) : "", line, sizeof line);
    db->is_broken = true;
    return error_set(error, ERROR_RETRY, "db_lost", "%s: connection lost: %s", what, line[0] ? line : "closed");
}

static bool set_deadline(struct db *db, const char *what, struct error *error)
{
    db->is_broken = true;
    return error_set(error, ERROR_RETRY, "db_deadline", "%s: no answer within %d ms", what, db->deadline_ms);
}

static bool set_from_result(struct db *db, const PGresult *result, const char *what, struct error *error)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (!state)
        return set_lost(db, what, error);
    if (PQstatus(db->connection) == CONNECTION_BAD)
        db->is_broken = true;
    const char *position = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
    db->error_position = position ? atoi(position) : 0;
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *constraint = PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME);
    const char *table = PQresultErrorField(result, PG_DIAG_TABLE_NAME);
    const char *detail = db->show_server_text ? PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL) : NULL;
    bool shows = db->show_server_text || is_text_safe(state);
    return error_set(error, db_error_kind(state), state, "%s: SQLSTATE %s%s%s%s%s%s%s%s%s", what, state,
                     shows && text ? ": " : "", shows && text ? text : "",
                     constraint ? ", constraint " : "", constraint ? constraint : "",
                     table ? ", table " : "", table ? table : "", detail ? ": " : "", detail ? detail : "");
}

int db_error_position(const struct db *db)
{
    return db ? db->error_position : 0;
}

static void note_notice(void *context, const PGresult *notice)
{
    struct db *db = context;
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *state = PQresultErrorField(notice, PG_DIAG_SQLSTATE);
    if (severity && strcmp(severity, "WARNING") == 0) {
        db->has_warned = true;
        snprintf(db->warning, sizeof db->warning, "%s", state ? state : "?");
    }
}

/* ---- waiting ---- */

static bool wait_socket(struct db *db, short events, int64_t deadline, const char *what, struct error *error)
{
    for (;;) {
        struct pollfd slot = { .fd = PQsocket(db->connection), .events = events };
        if (slot.fd < 0)
            return set_lost(db, what, error);
        int ready = poll(&slot, 1, ms_until(deadline));
        if (ready > 0)
            return true;
        if (ready == 0)
            return set_deadline(db, what, error);
        if (errno != EINTR)
            return set_lost(db, what, error);
    }
}

static bool flush_all(struct db *db, int64_t deadline, const char *what, struct error *error)
{
    for (;;) {
        int left = PQflush(db->connection);
        if (left == 0)
            return true;
        if (left < 0)
            return set_lost(db, what, error);
        /* The server may be sending too: read, or both sides wait for ever. */
        if (!wait_socket(db, POLLIN | POLLOUT, deadline, what, error))
            return false;
        if (!PQconsumeInput(db->connection))
            return set_lost(db, what, error);
    }
}

/* The next result of what was sent, NULL at its end. */
static bool next_result(struct db *db, int64_t deadline, const char *what, PGresult **ret_result, struct error *error)
{
    while (PQisBusy(db->connection)) {
        if (!wait_socket(db, POLLIN, deadline, what, error))
            return false;
        if (!PQconsumeInput(db->connection))
            return set_lost(db, what, error);
    }
    *ret_result = PQgetResult(db->connection);
    return true;
}

static bool is_good(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    /* A script of comments alone is an empty query. */
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY;
}

/* Reads all results, keeps the last, or the first error. */
static bool collect(struct db *db, int64_t deadline, const char *what, PGresult **ret_result, struct error *error)
{
    PGresult *kept = NULL;
    for (;;) {
        PGresult *result;
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
        return set_lost(db, what, error);
    if (!is_good(kept)) {
        set_from_result(db, kept, what, error);
        PQclear(kept);
        return false;
    }
    *ret_result = kept;
    return true;
}

static bool refuse_unusable(struct db *db, const char *what, struct error *error)
{
    if (db_is_usable(db))
        return true;
    if (db)
        db->is_broken = true;
    return error_set(error, ERROR_RETRY, "db_lost", "%s: not connected", what);
}

/* ---- connect ---- */

struct conninfo_override {
    char host[256], hostaddr[64], port[16];
};

static bool wait_connected(PGconn *connection, int64_t deadline, struct error *error)
{
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;
    while (state != PGRES_POLLING_OK) {
        struct pollfd slot = { .fd = PQsocket(connection), .events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT };
        int ready = slot.fd < 0 ? -1 : poll(&slot, 1, ms_until(deadline));
        if (ready == 0)
            return error_set(error, ERROR_RETRY, "db_deadline", "connect: no answer in time");
        if (ready < 0 && (slot.fd < 0 || errno != EINTR))
            return error_set(error, ERROR_RETRY, "db_lost", "connect: no socket");
        if (ready > 0)
            state = PQconnectPoll(connection);
        if (state == PGRES_POLLING_FAILED) {
            char line[300];
            first_line(PQerrorMessage(connection), line, sizeof line);
            return error_set(error, ERROR_RETRY, "db_lost", "connect: %s", line);
        }
    }
    return true;
}

static PGconn *start_connection(const struct db_options *options, const struct conninfo_override *host)
{
    char tcp_user_timeout[16];
    snprintf(tcp_user_timeout, sizeof tcp_user_timeout, "%d",
             options->tcp_user_timeout_ms > 0 ? options->tcp_user_timeout_ms : 10000);
    /* Later words win over those in the conninfo; empty ones count for nothing. */
    const char *keywords[] = { "tcp_user_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count",
                               "dbname", "application_name", "client_encoding", "host", "hostaddr", "port", NULL };
    const char *values[] = { tcp_user_timeout, "10", "5", "3",
                             options->conninfo, options->application_name, "UTF8",
                             host ? host->host : "", host ? host->hostaddr : "", host ? host->port : "", NULL };
    return PQconnectStartParams(keywords, values, 1);
}

static const char *option_value(const PQconninfoOption *options, const char *keyword)
{
    for (; options && options->keyword; options++)
        if (strcmp(options->keyword, keyword) == 0)
            return options->val ? options->val : "";
    return "";
}

/* The n-th word of a comma-separated list; a list of one serves all. */
static void list_item(const char *list, int n, char *item, size_t capacity)
{
    if (!strchr(list, ','))
        n = 0;
    for (; n > 0; n--) {
        list = strchr(list, ',');
        if (!list)
            break;
        list++;
    }
    size_t size = list ? strcspn(list, ",") : 0;
    if (size >= capacity)
        size = capacity - 1;
    memcpy(item, list ? list : "", size);
    item[size] = '\0';
}

static int list_items(const char *list)
{
    int items = 1;
    for (; *list; list++)
        items += *list == ',';
    return items;
}

static int find_hosts(PGconn *connection, struct conninfo_override hosts[HOSTS_MAX])
{
    PQconninfoOption *options = PQconninfo(connection);
    const char *host = option_value(options, "host"), *hostaddr = option_value(options, "hostaddr");
    const char *port = option_value(options, "port");
    int count = list_items(*hostaddr ? hostaddr : host);
    if (count > HOSTS_MAX)
        count = HOSTS_MAX;
    for (int i = 0; i < count; i++) {
        list_item(host, i, hosts[i].host, sizeof hosts[i].host);
        list_item(hostaddr, i, hosts[i].hostaddr, sizeof hosts[i].hostaddr);
        list_item(port, i, hosts[i].port, sizeof hosts[i].port);
    }
    PQconninfoFree(options);
    return count;
}

/*
 * libpq's asynchronous connect tries the hosts in turn but has no deadline for each, so that a silent first host
 * would eat all the time. With several hosts each gets its share.
 */
static bool open_connection(const struct db_options *options, PGconn **ret_connection, struct error *error)
{
    int total_ms = options->connect_ms > 0 ? options->connect_ms : 5000;
    PGconn *connection = start_connection(options, NULL);
    if (!connection)
        return error_set(error, ERROR_RETRY, "db_lost", "connect: out of memory");
    if (PQstatus(connection) == CONNECTION_BAD) {
        char line[300];
        first_line(PQerrorMessage(connection), line, sizeof line);
        /* A socket that is refused at once is passing; a conninfo that cannot be read is not. */
        PQconninfoOption *parsed = PQconninfo(connection);
        bool is_readable = *option_value(parsed, "dbname") && strncmp(line, "invalid ", 8) && strncmp(line, "could not match", 15);
        PQconninfoFree(parsed);
        if (!is_readable) {
            PQfinish(connection);
            return error_set(error, ERROR_FATAL, "db_conninfo", "connect: %s", line);
        }
        error_set(error, ERROR_RETRY, "db_lost", "connect: %s", line);
    }
    struct conninfo_override hosts[HOSTS_MAX];
    int count = find_hosts(connection, hosts);
    if (count <= 1) {
        if (PQstatus(connection) != CONNECTION_BAD &&
            wait_connected(connection, deadline_after(total_ms), error)) {
            *ret_connection = connection;
            return true;
        }
        PQfinish(connection);
        return false;
    }
    PQfinish(connection);
    for (int i = 0; i < count; i++) {
        connection = start_connection(options, &hosts[i]);
        if (connection && PQstatus(connection) != CONNECTION_BAD &&
            wait_connected(connection, deadline_after(total_ms / count), error)) {
            *ret_connection = connection;
            return true;
        }
        PQfinish(connection);
    }
    if (error->kind == ERROR_NONE)
        error_set(error, ERROR_RETRY, "db_lost", "connect: no host answered");
    return false;
}

static int setting_ms(int option, int otherwise)
{
    return option < 0 ? 0 : option == 0 ? otherwise : option;
}

static bool set_session_up(struct db *db, const struct db_options *options, struct error *error)
{
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

bool db_connect(const struct db_options *options, struct db **ret_db, struct error *error)
{
    struct db *db = calloc(1, sizeof *db);
    if (!db)
        return error_set(error, ERROR_RETRY, "db_lost", "connect: out of memory");
    db->deadline_ms = options->deadline_ms == 0 ? 30000 : options->deadline_ms;
    db->show_server_text = options->show_server_text;
    if (!open_connection(options, &db->connection, error))
        goto failed;
    PQsetNoticeReceiver(db->connection, note_notice, db);
    if (PQsetnonblocking(db->connection, 1) != 0) {
        set_lost(db, "connect", error);
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

void db_free(struct db *db)
{
    if (!db)
        return;
    PQfinish(db->connection);
    free(db);
}

bool db_is_usable(const struct db *db)
{
    return db && db->connection && !db->is_broken && PQstatus(db->connection) == CONNECTION_OK;
}

bool db_in_transaction(const struct db *db)
{
    if (!db_is_usable(db))
        return false;
    PGTransactionStatusType status = PQtransactionStatus(db->connection);
    return status == PQTRANS_INTRANS || status == PQTRANS_INERROR;
}

int db_server_version(const struct db *db)
{
    return db_is_usable(db) ? PQserverVersion(db->connection) : 0;
}

void db_set_deadline(struct db *db, int deadline_ms)
{
    db->deadline_ms = deadline_ms;
}

/* ---- parameters ---- */

static const struct {
    unsigned int scalar, array;
} oids[] = {
    [DB_BOOL] = { OID_BOOL, OID_BOOL_ARRAY },
    [DB_INT4] = { OID_INT4, OID_INT4_ARRAY },
    [DB_INT8] = { OID_INT8, OID_INT8_ARRAY },
    [DB_TEXT] = { OID_TEXT, OID_TEXT_ARRAY },
    [DB_BYTEA] = { OID_BYTEA, OID_BYTEA_ARRAY },
    [DB_UUID] = { OID_UUID, OID_UUID_ARRAY },
    [DB_TIMESTAMPTZ] = { OID_TIMESTAMPTZ, OID_TIMESTAMPTZ_ARRAY },
    [DB_JSONB] = { OID_JSONB, OID_JSONB_ARRAY },
};

void db_params_init(struct db_params *params)
{
    memset(params, 0, sizeof *params);
}

void db_params_release(struct db_params *params)
{
    if (!params)
        return;
    free(params->bytes);
    memset(params, 0, sizeof *params);
}

void db_params_reset(struct db_params *params)
{
    params->size = 0;
    params->count = 0;
    params->is_array_open = false;
}

static unsigned char *grow(struct db_params *params, size_t size)
{
    if (params->size + size > params->capacity) {
        size_t capacity = params->capacity ? params->capacity : 1024;
        while (capacity < params->size + size)
            capacity *= 2;
        params->bytes = memory_or_exit(realloc(params->bytes, capacity));
        params->capacity = capacity;
    }
    unsigned char *at = params->bytes + params->size;
    params->size += size;
    return at;
}

static void put_u32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

static void put_u64(unsigned char *at, uint64_t value)
{
    put_u32(at, (uint32_t)(value >> 32));
    put_u32(at + 4, (uint32_t)value);
}

static uint32_t get_u32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static uint64_t get_u64(const unsigned char *at)
{
    return (uint64_t)get_u32(at) << 32 | get_u32(at + 4);
}

/* Room for a scalar of `size` bytes; length -1 for NULL. */
static unsigned char *add_scalar(struct db_params *params, enum db_type type, size_t size)
{
    assert(params->count < DB_PARAMS_MAX && !params->is_array_open);
    assert(size <= INT32_MAX);
    params->offset[params->count] = params->size;
    params->length[params->count] = (int)size;
    params->type[params->count++] = oids[type].scalar;
    return grow(params, size ? size : 1);
}

void db_param_null(struct db_params *params, enum db_type type)
{
    add_scalar(params, type, 0);
    params->length[params->count - 1] = -1;
}

void db_param_bool(struct db_params *params, bool value)
{
    *add_scalar(params, DB_BOOL, 1) = value;
}

void db_param_int4(struct db_params *params, int32_t value)
{
    put_u32(add_scalar(params, DB_INT4, 4), (uint32_t)value);
}

void db_param_int8(struct db_params *params, int64_t value)
{
    put_u64(add_scalar(params, DB_INT8, 8), (uint64_t)value);
}

static void param_bytes(struct db_params *params, enum db_type type, const void *bytes, size_t size)
{
    if (!bytes) {
        db_param_null(params, type);
        return;
    }
    unsigned char *at = add_scalar(params, type, size);
    if (size)
        memcpy(at, bytes, size);
}

void db_param_text(struct db_params *params, const char *text)
{
    param_bytes(params, DB_TEXT, text, text ? strlen(text) : 0);
}

void db_param_text_sized(struct db_params *params, const char *text, size_t size)
{
    param_bytes(params, DB_TEXT, text, size);
}

void db_param_json(struct db_params *params, const char *text)
{
    if (!text) {
        db_param_null(params, DB_JSONB);
        return;
    }
    size_t size = strlen(text);
    unsigned char *at = add_scalar(params, DB_JSONB, size + 1);
    at[0] = 1; /* version of jsonb's wire format */
    memcpy(at + 1, text, size);
}

void db_param_bytea(struct db_params *params, const void *bytes, size_t size)
{
    param_bytes(params, DB_BYTEA, bytes, size);
}

void db_param_uuid(struct db_params *params, const uint8_t bytes[16])
{
    param_bytes(params, DB_UUID, bytes, 16);
}

void db_param_timestamptz(struct db_params *params, int64_t unix_us)
{
    put_u64(add_scalar(params, DB_TIMESTAMPTZ, 8), (uint64_t)(unix_us - EPOCH_2000_US));
}

/*
 * Array on the wire: dimensions, has-null flag, item type, then per dimension its size and lower bound, then per item
 * its length (-1: NULL) and bytes. An empty array has no dimension.
 */
void db_array_begin(struct db_params *params, enum db_type item_type)
{
    assert(params->count < DB_PARAMS_MAX && !params->is_array_open);
    params->is_array_open = true;
    params->has_null_item = false;
    params->items = 0;
    params->item_type = item_type;
    params->header = params->size;
    params->offset[params->count] = params->size;
    params->type[params->count] = oids[item_type].array;
    grow(params, 20);
}

void db_array_end(struct db_params *params)
{
    assert(params->is_array_open && params->items <= INT32_MAX);
    unsigned char *header = params->bytes + params->header;
    put_u32(header, params->items ? 1 : 0);
    put_u32(header + 4, params->has_null_item);
    put_u32(header + 8, oids[params->item_type].scalar);
    if (params->items) {
        put_u32(header + 12, (uint32_t)params->items);
        put_u32(header + 16, 1);
    } else {
        params->size = params->header + 12;
    }
    size_t length = params->size - params->header;
    assert(length <= INT32_MAX);
    params->length[params->count++] = (int)length;
    params->is_array_open = false;
}

static unsigned char *add_item(struct db_params *params, enum db_type type, size_t size)
{
    assert(params->is_array_open && params->item_type == type && size <= INT32_MAX);
    params->items++;
    unsigned char *at = grow(params, 4 + size);
    put_u32(at, (uint32_t)size);
    return at + 4;
}

void db_item_null(struct db_params *params)
{
    assert(params->is_array_open);
    params->items++;
    params->has_null_item = true;
    put_u32(grow(params, 4), UINT32_MAX);
}

void db_item_bool(struct db_params *params, bool value)
{
    *add_item(params, DB_BOOL, 1) = value;
}

void db_item_int4(struct db_params *params, int32_t value)
{
    put_u32(add_item(params, DB_INT4, 4), (uint32_t)value);
}

void db_item_int8(struct db_params *params, int64_t value)
{
    put_u64(add_item(params, DB_INT8, 8), (uint64_t)value);
}

static void item_bytes(struct db_params *params, enum db_type type, const void *bytes, size_t size)
{
    if (!bytes) {
        db_item_null(params);
        return;
    }
    unsigned char *at = add_item(params, type, size);
    if (size)
        memcpy(at, bytes, size);
}

void db_item_text(struct db_params *params, const char *text)
{
    item_bytes(params, DB_TEXT, text, text ? strlen(text) : 0);
}

void db_item_text_sized(struct db_params *params, const char *text, size_t size)
{
    item_bytes(params, DB_TEXT, text, size);
}

void db_item_bytea(struct db_params *params, const void *bytes, size_t size)
{
    item_bytes(params, DB_BYTEA, bytes, size);
}

void db_item_uuid(struct db_params *params, const uint8_t bytes[16])
{
    item_bytes(params, DB_UUID, bytes, 16);
}

/* ---- statements ---- */

static bool is_prepared(const struct db *db, const char *name)
{
    for (int i = 0; i < db->prepared_count; i++)
        if (strcmp(db->prepared[i], name) == 0)
            return true;
    return false;
}

static void note_prepared(struct db *db, const char *name)
{
    assert(db->prepared_count < PREPARED_MAX && strlen(name) < sizeof db->prepared[0]);
    snprintf(db->prepared[db->prepared_count++], sizeof db->prepared[0], "%s", name);
}

static void point_at(const struct db_params *params, const char *values[DB_PARAMS_MAX], int formats[DB_PARAMS_MAX])
{
    for (int i = 0; i < params->count; i++) {
        values[i] = params->length[i] < 0 ? NULL : (const char *)params->bytes + params->offset[i];
        formats[i] = 1;
    }
}

static bool prepare(struct db *db, const char *name, const char *sql, const struct db_params *params,
                    int64_t deadline, struct error *error)
{
    PGresult *result;
    if (!PQsendPrepare(db->connection, name, sql, params->count, params->type))
        return set_lost(db, name, error);
    if (!flush_all(db, deadline, name, error) || !collect(db, deadline, name, &result, error))
        return false;
    PQclear(result);
    note_prepared(db, name);
    return true;
}

static struct db_result *wrap(PGresult *result, bool is_text)
{
    struct db_result *wrapped = memory_or_exit(calloc(1, sizeof *wrapped));
    wrapped->result = result;
    wrapped->is_text = is_text;
    return wrapped;
}

static bool run(struct db *db, const char *name, const char *sql, const struct db_params *params, bool is_text,
                struct db_result **ret_result, struct error *error)
{
    static const struct db_params none;
    const char *what = name ? name : "statement";
    int64_t deadline = deadline_after(db->deadline_ms);
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
        return set_lost(db, what, error);
    PGresult *result;
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
              struct db_result **ret_result, struct error *error)
{
    return run(db, name, sql, params, false, ret_result, error);
}

bool db_query_text(struct db *db, const char *sql, const struct db_params *params, struct db_result **ret_result,
                   struct error *error)
{
    return run(db, NULL, sql, params, true, ret_result, error);
}

/* ---- several statements, one round trip ---- */

bool db_pipeline_begin(struct db *db, struct error *error)
{
    if (!refuse_unusable(db, "pipeline", error))
        return false;
    if (!PQenterPipelineMode(db->connection))
        return set_lost(db, "pipeline", error);
    db->pipeline_count = db->pipeline_read = 0;
    db->has_warned = false;
    return true;
}

bool db_pipeline_add(struct db *db, const char *name, const char *sql, const struct db_params *params, struct error *error)
{
    static const struct db_params none;
    const char *values[DB_PARAMS_MAX] = { NULL };
    int formats[DB_PARAMS_MAX] = { 0 };
    if (!params)
        params = &none;
    assert(db->pipeline_count < PIPELINE_MAX && !params->is_array_open);
    bool prepares = name && !is_prepared(db, name);
    if (prepares && !PQsendPrepare(db->connection, name, sql, params->count, params->type))
        return set_lost(db, name, error);
    point_at(params, values, formats);
    int sent = name ? PQsendQueryPrepared(db->connection, name, params->count, values, params->length, formats, 1)
                    : PQsendQueryParams(db->connection, sql, params->count, params->type, values, params->length, formats, 1);
    if (!sent)
        return set_lost(db, name ? name : "statement", error);
    db->pipeline_names[db->pipeline_count++] = prepares ? name : NULL;
    return true;
}

bool db_pipeline_send(struct db *db, struct error *error)
{
    db->pipeline_deadline = deadline_after(db->deadline_ms);
    if (!PQpipelineSync(db->connection))
        return set_lost(db, "pipeline", error);
    return flush_all(db, db->pipeline_deadline, "pipeline", error);
}

/* The one result of one message of the pipeline; what it stands for was skipped if an earlier one failed. */
static bool pipeline_result(struct db *db, const char *what, PGresult **ret_result, struct error *error)
{
    PGresult *result, *end;
    if (!next_result(db, db->pipeline_deadline, what, &result, error))
        return false;
    if (!result)
        return set_lost(db, what, error);
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
        set_from_result(db, result, what, error);
        PQclear(result);
        return false;
    }
    *ret_result = result;
    return true;
}

bool db_pipeline_next(struct db *db, struct db_result **ret_result, struct error *error)
{
    assert(db->pipeline_read < db->pipeline_count);
    const char *prepares = db->pipeline_names[db->pipeline_read++];
    PGresult *result;
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

bool db_pipeline_end(struct db *db, struct error *error)
{
    struct error ignored = { 0 };
    /* Answers that nobody wanted say which statements are prepared now. */
    while (db_is_usable(db) && db->pipeline_read < db->pipeline_count)
        db_pipeline_next(db, NULL, &ignored);
    for (int empty = 0; db_is_usable(db) && empty < 2;) {
        PGresult *result;
        if (!next_result(db, db->pipeline_deadline, "pipeline", &result, error))
            return false;
        empty = result ? 0 : empty + 1;
        bool is_sync = result && PQresultStatus(result) == PGRES_PIPELINE_SYNC;
        PQclear(result);
        if (!is_sync)
            continue;
        if (!PQexitPipelineMode(db->connection))
            return set_lost(db, "pipeline", error);
        return true;
    }
    return set_lost(db, "pipeline", error);
}

static bool simple(struct db *db, const char *sql, const char *what, PGresult **ret_result, struct error *error)
{
    int64_t deadline = deadline_after(db->deadline_ms);
    if (!refuse_unusable(db, what, error))
        return false;
    db->has_warned = false;
    if (!PQsendQuery(db->connection, sql))
        return set_lost(db, what, error);
    return flush_all(db, deadline, what, error) && collect(db, deadline, what, ret_result, error);
}

bool db_execute(struct db *db, const char *sql, struct error *error)
{
    PGresult *result;
    if (!simple(db, sql, "execute", &result, error))
        return false;
    PQclear(result);
    return true;
}

/* ---- transactions ---- */

bool db_begin(struct db *db, struct error *error)
{
    PGresult *result;
    if (!refuse_unusable(db, "begin", error))
        return false;
    if (PQtransactionStatus(db->connection) != PQTRANS_IDLE)
        return error_set(error, ERROR_FATAL, "db_usage", "begin: already in a transaction");
    if (!simple(db, "BEGIN", "begin", &result, error))
        return false;
    PQclear(result);
    return true;
}

static enum db_commit set_in_doubt(struct db *db, const char *why, struct error *error)
{
    db->is_broken = true;
    error_set(error, ERROR_RETRY, "db_commit_in_doubt", "commit: in doubt: %s", why);
    return COMMIT_IN_DOUBT;
}

/* An answer to COMMIT that is an error: surely refused only if the server lives on and the transaction is over. */
static enum db_commit judge_commit_error(struct db *db, const PGresult *result, struct error *error)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (!severity || strcmp(severity, "ERROR") != 0 || PQstatus(db->connection) != CONNECTION_OK || db->has_warned)
        return set_in_doubt(db, PQresultErrorField(result, PG_DIAG_SQLSTATE) ? "ended by the server" : "no answer", error);
    set_from_result(db, result, "commit", error);
    return COMMIT_REFUSED;
}

static enum db_commit judge_commit(struct db *db, const PGresult *result, struct error *error)
{
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

enum db_commit db_commit_send(struct db *db, struct error *error)
{
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
        !flush_all(db, deadline_after(db->deadline_ms), "commit", error))
        return set_in_doubt(db, "could not be sent whole", error);
    return COMMIT_DONE;
}

enum db_commit db_commit_wait(struct db *db, struct error *error)
{
    int64_t deadline = deadline_after(db->deadline_ms);
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

enum db_commit db_commit(struct db *db, struct error *error)
{
    enum db_commit sent = db_commit_send(db, error);
    return sent == COMMIT_DONE ? db_commit_wait(db, error) : sent;
}

bool db_rollback(struct db *db, struct error *error)
{
    PGresult *result;
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

/* ---- results ---- */

void db_result_free(struct db_result *result)
{
    if (!result)
        return;
    PQclear(result->result);
    free(result);
}

size_t db_rows(const struct db_result *result)
{
    return (size_t)PQntuples(result->result);
}

size_t db_columns(const struct db_result *result)
{
    return (size_t)PQnfields(result->result);
}

size_t db_rows_affected(const struct db_result *result)
{
    return (size_t)strtoull(PQcmdTuples(result->result), NULL, 10);
}

const char *db_column_name(const struct db_result *result, size_t column)
{
    return PQfname(result->result, (int)column);
}

int db_column(const struct db_result *result, const char *name, struct error *error)
{
    int columns = PQnfields(result->result);
    for (int i = 0; i < columns; i++)
        if (strcmp(PQfname(result->result, i), name) == 0)
            return i;
    error_set(error, ERROR_FATAL, "db_usage", "the server's answer has no column %s", name);
    return -1;
}

bool db_is_null(const struct db_result *result, size_t row, size_t column)
{
    return PQgetisnull(result->result, (int)row, (int)column);
}

static const unsigned char *value(const struct db_result *result, size_t row, size_t column)
{
    assert(row < db_rows(result) && column < db_columns(result));
    return (const unsigned char *)PQgetvalue(result->result, (int)row, (int)column);
}

static size_t value_size(const struct db_result *result, size_t row, size_t column)
{
    return (size_t)PQgetlength(result->result, (int)row, (int)column);
}

static unsigned int type_of(const struct db_result *result, size_t column)
{
    return PQftype(result->result, (int)column);
}

bool db_bool(const struct db_result *result, size_t row, size_t column)
{
    assert(!result->is_text && type_of(result, column) == OID_BOOL);
    return !db_is_null(result, row, column) && value(result, row, column)[0] != 0;
}

int32_t db_int4(const struct db_result *result, size_t row, size_t column)
{
    assert(!result->is_text && type_of(result, column) == OID_INT4);
    return db_is_null(result, row, column) ? 0 : (int32_t)get_u32(value(result, row, column));
}

int64_t db_int8(const struct db_result *result, size_t row, size_t column)
{
    assert(!result->is_text);
    if (db_is_null(result, row, column))
        return 0;
    const unsigned char *at = value(result, row, column);
    switch (type_of(result, column)) {
    case OID_INT8:
        return (int64_t)get_u64(at);
    case OID_INT4:
        return (int32_t)get_u32(at);
    default:
        assert(type_of(result, column) == OID_INT2);
        return (int16_t)(at[0] << 8 | at[1]);
    }
}

const char *db_text(const struct db_result *result, size_t row, size_t column, size_t *ret_size)
{
    const char *text = (const char *)value(result, row, column);
    size_t size = value_size(result, row, column);
    if (!result->is_text && type_of(result, column) == OID_JSONB && size > 0) {
        text++; /* version of jsonb's wire format */
        size--;
    }
    if (ret_size)
        *ret_size = size;
    return text;
}

const uint8_t *db_bytea(const struct db_result *result, size_t row, size_t column, size_t *ret_size)
{
    assert(!result->is_text && type_of(result, column) == OID_BYTEA);
    *ret_size = value_size(result, row, column);
    return value(result, row, column);
}

const uint8_t *db_uuid(const struct db_result *result, size_t row, size_t column)
{
    static const uint8_t nil[16];
    assert(!result->is_text && type_of(result, column) == OID_UUID);
    return db_is_null(result, row, column) ? nil : value(result, row, column);
}

int64_t db_timestamptz(const struct db_result *result, size_t row, size_t column)
{
    assert(!result->is_text && type_of(result, column) == OID_TIMESTAMPTZ);
    if (db_is_null(result, row, column))
        return 0;
    int64_t us = (int64_t)get_u64(value(result, row, column));
    return us == INT64_MAX || us == INT64_MIN ? us : us + EPOCH_2000_US;
}

size_t db_array_items(const struct db_result *result, size_t row, size_t column)
{
    assert(!result->is_text);
    if (db_is_null(result, row, column))
        return 0;
    const unsigned char *at = value(result, row, column);
    assert(get_u32(at) <= 1); /* dimensions */
    return get_u32(at) == 0 ? 0 : get_u32(at + 12);
}

/* The item's bytes; *ret_size SIZE_MAX for NULL. */
static const unsigned char *array_item(const struct db_result *result, size_t row, size_t column, size_t item,
                                       size_t *ret_size)
{
    assert(item < db_array_items(result, row, column));
    const unsigned char *at = value(result, row, column) + 20;
    for (;; item--) {
        uint32_t size = get_u32(at);
        bool is_null = size == UINT32_MAX;
        if (item == 0) {
            *ret_size = is_null ? SIZE_MAX : size;
            return at + 4;
        }
        at += 4 + (is_null ? 0 : size);
    }
}

int64_t db_array_int8(const struct db_result *result, size_t row, size_t column, size_t item)
{
    size_t size;
    const unsigned char *at = array_item(result, row, column, item, &size);
    assert(size == 8 || size == 4 || size == SIZE_MAX);
    return size == SIZE_MAX ? 0 : size == 8 ? (int64_t)get_u64(at) : (int32_t)get_u32(at);
}

const char *db_array_text(const struct db_result *result, size_t row, size_t column, size_t item, size_t *ret_size)
{
    const unsigned char *at = array_item(result, row, column, item, ret_size);
    if (*ret_size == SIZE_MAX)
        *ret_size = 0;
    return (const char *)at;
}

/* ---- notifications ---- */

static bool take_notification(struct db *db, struct db_notification *ret_notification)
{
    PGnotify *notify = PQnotifies(db->connection);
    if (!notify)
        return false;
    snprintf(ret_notification->channel, sizeof ret_notification->channel, "%s", notify->relname);
    snprintf(ret_notification->payload, sizeof ret_notification->payload, "%s", notify->extra ? notify->extra : "");
    PQfreemem(notify);
    return true;
}

enum db_wait db_wait(struct db *db, int timeout_ms, int wake_fd, struct db_notification *ret_notification,
                     struct error *error)
{
    int64_t deadline = deadline_after(timeout_ms);
    if (!refuse_unusable(db, "wait", error))
        return DB_WAIT_LOST;
    for (;;) {
        if (take_notification(db, ret_notification))
            return DB_WAIT_NOTIFIED;
        struct pollfd slots[2] = { { .fd = PQsocket(db->connection), .events = POLLIN },
                                   { .fd = wake_fd, .events = POLLIN } };
        int ready = poll(slots, 2, ms_until(deadline));
        if (ready == 0)
            return DB_WAIT_TIMEOUT;
        if (ready < 0 && errno != EINTR) {
            set_lost(db, "wait", error);
            return DB_WAIT_LOST;
        }
        if (ready > 0 && slots[0].revents && (!PQconsumeInput(db->connection) || PQstatus(db->connection) == CONNECTION_BAD)) {
            set_lost(db, "wait", error);
            return DB_WAIT_LOST;
        }
        if (ready > 0 && slots[1].revents && !take_notification(db, ret_notification))
            return DB_WAIT_WOKEN;
    }
}
