/* relay_store; see relay_store.h.
 *
 * The session commits asynchronously: what it notes most (how far everything is published) is a hint, and the topics are read anyway
 * when somebody takes over. The role, the barrier and restatements commit as the server is set up to. */
#include "coordinator/relay_store.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STORE_DEADLINE_MS = 10000,
    STORE_IDLE_MS = 10000, /* the server ends the session of a relay that is stopped: another can take the role */
};

/* Entries beside the partitions' own in what lease.relay_advance keeps. No topic can be called so. */
#define READ_BACK "~read-back/"
#define EPOCH "~epoch"

/* ---- connection ---- */

static bool store_remember_setting(struct relay_store *store, struct error *error) {
    struct db_result *rows;
    if (!db_query(store->db, NULL, "SELECT current_setting('synchronous_commit')", NULL, &rows, error))
        return false;
    snprintf(store->synchronous_commit, sizeof store->synchronous_commit, "%s", db_text(rows, 0, 0, NULL));
    db_result_free(rows);
    return true;
}

static bool store_read_identity(struct relay_store *store, struct error *error) {
    struct db_result *rows;
    if (!db_query(store->db, NULL, "SELECT system_identifier::text, timeline FROM lease.server_identity", NULL, &rows,
                  error))
        return false;
    bool found = db_rows(rows) == 1;
    if (found) {
        snprintf(store->system_identifier, sizeof store->system_identifier, "%s", db_text(rows, 0, 0, NULL));
        store->timeline = db_int4(rows, 0, 1);
    }
    db_result_free(rows);
    return found || error_set(error, ERROR_FATAL, "relay_identity", "lease.server_identity has no row");
}

static bool store_set_up(struct relay_store *store, struct error *error) {
    char sql[128];
    snprintf(sql, sizeof sql, "SET synchronous_commit = off; SET idle_session_timeout = %d", STORE_IDLE_MS);
    return store_remember_setting(store, error) && db_execute(store->db, sql, error);
}

bool relay_store_open(struct relay_store *store, const char *conninfo,
                      bool (*admit)(void *context, struct db *db, int64_t since_ms, struct error *error), void *context,
                      struct error *error) {
    *store = (struct relay_store){0};
    db_params_init(&store->params);
    const struct db_options options = {
        .conninfo = conninfo, .application_name = "lease-relay", .deadline_ms = STORE_DEADLINE_MS};
    int64_t since_ms = clock_monotonic_us() / 1000;
    if (db_connect(&options, &store->db, error) && (!admit || admit(context, store->db, since_ms, error)) &&
        store_set_up(store, error))
        return true;
    relay_store_close(store);
    return false;
}

void relay_store_close(struct relay_store *store) {
    db_free(store->db);
    db_params_release(&store->params);
    *store = (struct relay_store){0};
}

static bool store_call(struct relay_store *store, const char *name, const char *sql, struct db_result **ret_rows,
                       struct error *error) {
    if (!db_query(store->db, name, sql, &store->params, ret_rows, error))
        return false;
    store->called_us = clock_monotonic_us();
    return true;
}

/* ---- taking the role ---- */

static bool store_commit_surely(struct relay_store *store, struct error *error) {
    if (db_commit(store->db, error) != COMMIT_DONE)
        return error_prefix(error, "relay");
    store->called_us = clock_monotonic_us();
    return true;
}

static bool store_begin_surely(struct relay_store *store, struct error *error) {
    char sql[64];
    snprintf(sql, sizeof sql, "SET LOCAL synchronous_commit = '%s'", store->synchronous_commit);
    return db_begin(store->db, error) && db_execute(store->db, sql, error);
}

static int64_t *filled(int32_t count) {
    int64_t *array = memory_alloc_array((size_t)count + 1, sizeof *array);
    for (int32_t i = 0; i < count; i++)
        array[i] = -1;
    return array;
}

void relay_progress_release(struct relay_progress *progress) {
    free(progress->position);
    free(progress->read_back);
    *progress = (struct relay_progress){0};
}

static void progress_note(struct relay_progress *progress, const struct outputs *outputs, const char *topic,
                          int32_t partition, int64_t offset) {
    bool is_read_back = strncmp(topic, READ_BACK, strlen(READ_BACK)) == 0;
    if (strcmp(topic, EPOCH) == 0) {
        progress->epoch = offset;
        return;
    }
    int32_t index = outputs_index(outputs, is_read_back ? topic + strlen(READ_BACK) : topic, partition);
    if (index >= 0)
        (is_read_back ? progress->read_back : progress->position)[index] = offset;
}

static void progress_read(struct relay_progress *progress, const struct outputs *outputs, const struct db_result *rows) {
    progress->published = db_int8(rows, 0, 1);
    progress->lost_after = db_int8(rows, 0, 5); /* NULL reads as 0 */
    progress->lost_before = db_int8(rows, 0, 6);
    size_t count = db_array_items(rows, 0, 2);
    for (size_t i = 0; i < count; i++) {
        size_t size;
        const char *item = db_array_text(rows, 0, 2, i, &size);
        char *topic = memory_copy_bytes(item, size);
        progress_note(progress, outputs, topic, (int32_t)db_array_int8(rows, 0, 3, i), db_array_int8(rows, 0, 4, i));
        free(topic);
    }
}

static const char take_sql[] = "SELECT epoch, published, topics, partitions, offsets, lost_after, lost_before"
                               " FROM lease.relay_take($1, $2)";

bool relay_store_take(struct relay_store *store, const char *owner, int64_t epoch_seen, const struct outputs *outputs,
                      bool *ret_taken, struct relay_progress *ret_progress, struct error *error) {
    struct db_result *rows;
    db_params_reset(&store->params);
    db_param_text(&store->params, owner);
    db_param_int8(&store->params, epoch_seen);
    if (!store_begin_surely(store, error) || !store_call(store, "relay_take", take_sql, &rows, error))
        return false;
    *ret_taken = db_rows(rows) > 0;
    if (*ret_taken) {
        store->epoch = db_int8(rows, 0, 0);
        *ret_progress = (struct relay_progress){.position = filled(outputs->total), .read_back = filled(outputs->total)};
        progress_read(ret_progress, outputs, rows);
    }
    db_result_free(rows);
    return store_commit_surely(store, error) &&
           (!*ret_taken || (store_read_identity(store, error) && db_execute(store->db, "LISTEN lease_journal", error)));
}

/* ---- reading the journal ---- */

enum journal_column {
    COLUMN_NUMBER, COLUMN_AT, COLUMN_EVENT, COLUMN_KIND, COLUMN_SUBJECT, COLUMN_COMMAND, COLUMN_SOURCE, COLUMN_MESSAGE_ID,
    COLUMN_TRACEPARENT, COLUMN_ORIGIN_TOPIC, COLUMN_ORIGIN_PARTITION, COLUMN_ORIGIN_OFFSET, COLUMN_HOLDER, COLUMN_CLAIM_ID,
    COLUMN_FENCE, COLUMN_SINCE, COLUMN_LEASE_UNTIL, COLUMN_MIN_FENCE, COLUMN_STATE, COLUMN_ATTEMPT, COLUMN_STEP,
    COLUMN_AMOUNT, COLUMN_REFRESH, COLUMN_REASON, COLUMN_FIELD, COLUMN_BLOCKER, COLUMN_ORIGINAL, COLUMN_BASIS, COLUMN_PAYLOAD,
    COLUMN_CHANGES_LEASE, COLUMN_IS_GRANT, COLUMN_RAW_KEY, COLUMN_RAW_VALUE, COLUMN_RAW_HEADERS, COLUMN_PREVIOUS_NUMBER,
    COLUMN_IS_SYNCHRONOUS, COLUMN_COUNT
};

static const char read_sql[] =
    "SELECT number, at, event, kind, subject, command, source, message_id, traceparent, origin_topic, origin_partition,"
    " origin_offset, holder, claim_id, fence, since, lease_until, min_fence, state, attempt, step, amount, refresh, reason,"
    " field, blocker, original, basis, payload, changes_lease, is_grant, raw_key, raw_value, raw_headers, previous_number,"
    " current_setting('synchronous_standby_names') <> ''"
    " FROM lease.relay_read($1, $2, $3, $4)";

/* Its commit returns when the standby has everything that was visible before it. */
static bool store_barrier(struct relay_store *store, struct error *error) {
    db_params_reset(&store->params);
    db_param_int8(&store->params, store->epoch);
    bool done = store_begin_surely(store, error) &&
                store_call(store, "relay_barrier", "SELECT lease.relay_barrier($1)", NULL, error) &&
                store_commit_surely(store, error);
    if (CRASH_POINT("relay.barrier"))
        return error_set(error, ERROR_RETRY, "crash_point", "relay.barrier");
    return done;
}

bool relay_store_read(struct relay_store *store, int64_t after, int limit, int bytes, struct db_result **ret_rows,
                      struct error *error) {
    struct db_result *rows;
    db_params_reset(&store->params);
    db_param_int8(&store->params, store->epoch);
    db_param_int8(&store->params, after);
    db_param_int4(&store->params, limit);
    db_param_int4(&store->params, bytes);
    if (!store_call(store, "relay_read", read_sql, &rows, error))
        return false;
    if (db_rows(rows) > 0 && CRASH_POINT("relay.read")) {
        db_result_free(rows);
        return error_set(error, ERROR_RETRY, "crash_point", "relay.read");
    }
    if (db_rows(rows) > 0 && db_bool(rows, 0, COLUMN_IS_SYNCHRONOUS) && !store_barrier(store, error)) {
        db_result_free(rows);
        return false;
    }
    *ret_rows = rows;
    return true;
}

static const char *text_of(const struct db_result *rows, size_t row, enum journal_column column) {
    return db_is_null(rows, row, column) ? NULL : db_text(rows, row, column, NULL);
}

static int64_t number_of(const struct db_result *rows, size_t row, enum journal_column column) {
    return db_is_null(rows, row, column) ? ROW_NULL : db_int8(rows, row, column);
}

static int64_t time_of(const struct db_result *rows, size_t row, enum journal_column column) {
    return db_is_null(rows, row, column) ? ROW_NULL : db_timestamptz(rows, row, column);
}

static const uint8_t *bytes_of(const struct db_result *rows, size_t row, enum journal_column column, size_t *ret_size) {
    *ret_size = 0;
    return db_is_null(rows, row, column) ? NULL : db_bytea(rows, row, column, ret_size);
}

static void row_claim_id(const struct db_result *rows, size_t row, struct journal_row *ret_row) {
    ret_row->has_claim_id = !db_is_null(rows, row, COLUMN_CLAIM_ID);
    if (ret_row->has_claim_id)
        memcpy(ret_row->claim_id.bytes, db_uuid(rows, row, COLUMN_CLAIM_ID), sizeof ret_row->claim_id.bytes);
}

void relay_store_row(const struct db_result *rows, size_t row, struct journal_row *ret_row) {
    *ret_row = (struct journal_row){
        .number = db_int8(rows, row, COLUMN_NUMBER),
        .at_us = db_timestamptz(rows, row, COLUMN_AT),
        .event = db_text(rows, row, COLUMN_EVENT, NULL),
        .kind = text_of(rows, row, COLUMN_KIND),
        .subject = text_of(rows, row, COLUMN_SUBJECT),
        .command = text_of(rows, row, COLUMN_COMMAND),
        .source = text_of(rows, row, COLUMN_SOURCE),
        .message_id = text_of(rows, row, COLUMN_MESSAGE_ID),
        .traceparent = text_of(rows, row, COLUMN_TRACEPARENT),
        .origin_topic = text_of(rows, row, COLUMN_ORIGIN_TOPIC),
        .origin_partition = number_of(rows, row, COLUMN_ORIGIN_PARTITION),
        .origin_offset = number_of(rows, row, COLUMN_ORIGIN_OFFSET),
        .holder = text_of(rows, row, COLUMN_HOLDER),
        .fence = number_of(rows, row, COLUMN_FENCE),
        .since_us = time_of(rows, row, COLUMN_SINCE),
        .lease_until_us = time_of(rows, row, COLUMN_LEASE_UNTIL),
        .min_fence = number_of(rows, row, COLUMN_MIN_FENCE),
        .state = text_of(rows, row, COLUMN_STATE),
        .attempt = number_of(rows, row, COLUMN_ATTEMPT),
        .step = text_of(rows, row, COLUMN_STEP),
        .amount = number_of(rows, row, COLUMN_AMOUNT),
        .refresh = number_of(rows, row, COLUMN_REFRESH),
        .reason = text_of(rows, row, COLUMN_REASON),
        .field = text_of(rows, row, COLUMN_FIELD),
        .blocker = text_of(rows, row, COLUMN_BLOCKER),
        .original = text_of(rows, row, COLUMN_ORIGINAL),
        .basis = text_of(rows, row, COLUMN_BASIS),
        .payload = text_of(rows, row, COLUMN_PAYLOAD),
        .changes_lease = db_bool(rows, row, COLUMN_CHANGES_LEASE),
        .is_grant = db_bool(rows, row, COLUMN_IS_GRANT),
        .previous_number = number_of(rows, row, COLUMN_PREVIOUS_NUMBER),
    };
    ret_row->raw_key = bytes_of(rows, row, COLUMN_RAW_KEY, &ret_row->raw_key_size);
    ret_row->raw_value = bytes_of(rows, row, COLUMN_RAW_VALUE, &ret_row->raw_value_size);
    ret_row->raw_headers = bytes_of(rows, row, COLUMN_RAW_HEADERS, &ret_row->raw_headers_size);
    row_claim_id(rows, row, ret_row);
}

/* ---- noting ---- */

/* What one entry of the three arrays says. */
struct entry {
    const char *prefix, *topic;
    int32_t partition;
    int64_t offset;
};

/* The i-th entry: the partitions' positions, then how far they were read back, then the epoch. False behind the last. */
static bool entry_get(const struct relay_progress *progress, const struct outputs *outputs, int32_t i,
                      struct entry *ret_entry) {
    if (i > 2 * outputs->total)
        return false;
    if (i == 2 * outputs->total) {
        *ret_entry = (struct entry){"", EPOCH, 0, progress->epoch};
        return true;
    }
    bool is_read_back = i >= outputs->total;
    int32_t index = is_read_back ? i - outputs->total : i;
    int64_t offset = (is_read_back ? progress->read_back : progress->position)[index];
    struct kafka_partition partition = outputs_partition(outputs, index, offset);
    *ret_entry = (struct entry){is_read_back ? READ_BACK : "", partition.topic, partition.partition, offset};
    return true;
}

static void param_topics(struct db_params *params, const struct relay_progress *progress, const struct outputs *outputs) {
    struct buf text = BUF_INIT;
    struct entry entry;
    db_array_begin(params, DB_TEXT);
    for (int32_t i = 0; entry_get(progress, outputs, i, &entry); i++) {
        if (entry.offset < 0)
            continue;
        buf_reset(&text);
        buf_append_text(&text, entry.prefix);
        buf_append_text(&text, entry.topic);
        db_item_text_sized(params, text.data, text.size);
    }
    db_array_end(params);
    buf_release(&text);
}

static void param_partitions(struct db_params *params, const struct relay_progress *progress,
                             const struct outputs *outputs) {
    struct entry entry;
    db_array_begin(params, DB_INT4);
    for (int32_t i = 0; entry_get(progress, outputs, i, &entry); i++)
        if (entry.offset >= 0)
            db_item_int4(params, entry.partition);
    db_array_end(params);
}

static void param_offsets(struct db_params *params, const struct relay_progress *progress, const struct outputs *outputs) {
    struct entry entry;
    db_array_begin(params, DB_INT8);
    for (int32_t i = 0; entry_get(progress, outputs, i, &entry); i++)
        if (entry.offset >= 0)
            db_item_int8(params, entry.offset);
    db_array_end(params);
}

bool relay_store_advance(struct relay_store *store, const struct relay_progress *progress, const struct outputs *outputs,
                         struct error *error) {
    struct db_params *params = &store->params;
    db_params_reset(params);
    db_param_int8(params, store->epoch);
    db_param_int8(params, progress->published);
    param_topics(params, progress, outputs);
    param_partitions(params, progress, outputs);
    param_offsets(params, progress, outputs);
    if (!store_call(store, "relay_advance", "SELECT lease.relay_advance($1, $2, $3, $4, $5)", NULL, error))
        return false;
    if (CRASH_POINT("relay.watermark"))
        return error_set(error, ERROR_RETRY, "crash_point", "relay.watermark");
    return true;
}

/* ---- restating ---- */

static void param_halves(struct db_params *params, char *const *keys, size_t count, bool is_kind) {
    db_array_begin(params, DB_TEXT);
    for (size_t i = 0; i < count; i++) {
        const char *slash = strchr(keys[i], '/');
        if (is_kind)
            db_item_text_sized(params, keys[i], (size_t)(slash - keys[i]));
        else
            db_item_text(params, slash + 1);
    }
    db_array_end(params);
}

bool relay_store_restate(struct relay_store *store, char *const *keys, size_t count, struct error *error) {
    db_params_reset(&store->params);
    db_param_int8(&store->params, store->epoch);
    param_halves(&store->params, keys, count, true);
    param_halves(&store->params, keys, count, false);
    return store_begin_surely(store, error) &&
           store_call(store, "relay_restate", "SELECT lease.restate($1, $2, $3)", NULL, error) &&
           store_commit_surely(store, error);
}

bool relay_store_check(struct relay_store *store, struct error *error) {
    db_params_reset(&store->params);
    db_param_int8(&store->params, store->epoch);
    return store_call(store, "relay_check", "SELECT FROM lease.relay_read($1, 9223372036854775807, 1, 1)", NULL, error);
}
