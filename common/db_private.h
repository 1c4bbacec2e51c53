/* What the files of db share: the connection's state, and the bytes of PostgreSQL's binary formats. Only db*.c include this, and
 * with it libpq-fe.h. */
#ifndef LEASE_DB_PRIVATE_H
#define LEASE_DB_PRIVATE_H

#include "common/db.h"

#include <libpq-fe.h>

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

static inline void put_u32(unsigned char *at, uint32_t value) {
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

static inline void put_u64(unsigned char *at, uint64_t value) {
    put_u32(at, (uint32_t)(value >> 32));
    put_u32(at + 4, (uint32_t)value);
}

static inline uint32_t get_u32(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static inline uint64_t get_u64(const unsigned char *at) {
    return (uint64_t)get_u32(at) << 32 | get_u32(at + 4);
}

/* db_error.c. All but the last two return false; those that set db_lost or db_deadline leave the connection broken. */
bool db_set_lost(struct db *db, const char *what, struct error *error);
bool db_set_timed_out(struct db *db, const char *what, struct error *error);
bool db_set_from_result(struct db *db, const PGresult *result, const char *what, struct error *error);
const char *db_first_line(const char *text, char *line, size_t capacity);
void db_note_notice(void *context, const PGresult *notice);

/* Deadlines: monotonic ms, -1 for none. */
int64_t db_deadline_after(int ms);
int db_ms_until(int64_t deadline); /* as poll() reads it */

/* db_connect.c */
bool db_open_connection(const struct db_options *options, PGconn **ret_connection, struct error *error);

#endif
