/* What PostgreSQL and libpq say went wrong, as errors of ours, classified in one table; and the deadlines. See db.h. */
#include "common/db_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- time ---- */

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* -1 means for ever, as poll() reads it. */
int64_t db_deadline_after(int ms) {
    return ms < 0 ? -1 : now_ms() + ms;
}

int db_ms_until(int64_t deadline) {
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

static bool is_text_safe(const char *sqlstate) {
    for (size_t i = 0; i < sizeof sqlstates / sizeof *sqlstates; i++)
        if (strncmp(sqlstate, sqlstates[i].prefix, strlen(sqlstates[i].prefix)) == 0)
            return sqlstates[i].text_is_safe;
    return false;
}

enum error_kind db_error_kind(const char *sqlstate) {
    for (size_t i = 0; i < sizeof sqlstates / sizeof *sqlstates; i++)
        if (strncmp(sqlstate, sqlstates[i].prefix, strlen(sqlstates[i].prefix)) == 0)
            return sqlstates[i].kind;
    return ERROR_FATAL;
}

/* ---- errors ---- */

const char *db_first_line(const char *text, char *line, size_t capacity) {
    size_t size = strcspn(text ? text : "", "\n");
    if (size >= capacity)
        size = capacity - 1;
    memcpy(line, text ? text : "", size);
    line[size] = '\0';
    return line;
}

bool db_set_lost(struct db *db, const char *what, struct error *error) {
    char line[200];
    db_first_line(db->connection ? PQerrorMessage(db->connection) : "", line, sizeof line);
    db->is_broken = true;
    return error_set(error, ERROR_RETRY, "db_lost", "%s: connection lost: %s", what, line[0] ? line : "closed");
}

bool db_set_timed_out(struct db *db, const char *what, struct error *error) {
    db->is_broken = true;
    return error_set(error, ERROR_RETRY, "db_deadline", "%s: no answer within %d ms", what, db->deadline_ms);
}

bool db_set_from_result(struct db *db, const PGresult *result, const char *what, struct error *error) {
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (!state)
        return db_set_lost(db, what, error);
    if (PQstatus(db->connection) == CONNECTION_BAD)
        db->is_broken = true;
    const char *position = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
    db->error_position = position ? atoi(position) : 0;
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *constraint = PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME);
    const char *table = PQresultErrorField(result, PG_DIAG_TABLE_NAME);
    const char *detail = db->show_server_text ? PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL) : NULL;
    bool shows = db->show_server_text || is_text_safe(state);
    /* Our own functions' hints say what to do: an operator who reads the log must not have to look it up. */
    const char *hint = strncmp(state, "LE", 2) == 0 ? PQresultErrorField(result, PG_DIAG_MESSAGE_HINT) : NULL;
    return error_set(error, db_error_kind(state), state, "%s: SQLSTATE %s%s%s%s%s%s%s%s%s%s%s", what, state,
                     shows && text ? ": " : "", shows && text ? text : "",
                     constraint ? ", constraint " : "", constraint ? constraint : "",
                     table ? ", table " : "", table ? table : "", detail ? ": " : "", detail ? detail : "",
                     hint ? ". " : "", hint ? hint : "");
}

int db_error_position(const struct db *db) {
    return db ? db->error_position : 0;
}

void db_note_notice(void *context, const PGresult *notice) {
    struct db *db = context;
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *state = PQresultErrorField(notice, PG_DIAG_SQLSTATE);
    if (severity && strcmp(severity, "WARNING") == 0) {
        db->has_warned = true;
        snprintf(db->warning, sizeof db->warning, "%s", state ? state : "?");
    }
}
