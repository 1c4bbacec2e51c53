/* One lane's way to PostgreSQL; see store.h. */
#include "coordinator/store.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"
#include "common/db.h"

#include <stdlib.h>
#include <string.h>

struct store {
    struct store_options options;
    struct db *db;
    struct db_params params; /* reused: a batch's arrays are about its size */
    bool was_open;
    int64_t lost_at_ms;
};

/* Memory of the parameters that is kept between batches. */
enum { PARAMS_KEPT_BYTES = 2 * 1024 * 1024 };

struct store *store_new(const struct store_options *options) {
    struct store *store = memory_alloc(sizeof *store);
    store->options = *options;
    db_params_init(&store->params);
    return store;
}

void store_free(struct store *store) {
    if (store == NULL)
        return;
    db_free(store->db);
    db_params_release(&store->params);
    free(store);
}

void store_close(struct store *store) {
    if (store->db == NULL)
        return;
    db_free(store->db);
    store->db = NULL;
    store->lost_at_ms = clock_monotonic_us() / 1000;
}

bool store_open(struct store *store, struct error *error) {
    if (db_is_usable(store->db))
        return true;
    store_close(store);
    const struct db_options options = {
        .conninfo = store->options.database,
        .application_name = store->options.application_name,
        .connect_ms = 3000,
        .deadline_ms = store->options.deadline_ms,
        .statement_timeout_ms = store->options.deadline_ms / 3 * 2, /* ended by the server, a user's slow trigger is one command's answer; by us, it is a lost connection */
        .idle_in_transaction_ms = store->options.idle_in_transaction_ms,
    };
    if (!db_connect(&options, &store->db, error))
        return false;
    if (!store->options.admit(store->options.context, store->db, store->lost_at_ms, error)) {
        db_free(store->db);
        store->db = NULL;
        return false;
    }
    if (store->was_open && CRASH_POINT("reconnect.after")) {
        store_close(store);
        return error_set(error, ERROR_RETRY, "crash_point", "reconnect.after");
    }
    store->was_open = true;
    return true;
}

/* ---- claims ---- */

static const char claim_sql[] = "SELECT topic, partition, epoch, next_offset"
                                " FROM lease.claim_offsets($1, $2, $3, $4, $5, $6, $7, $8)";

static void add_claims(struct db_params *params, const struct batch_claim *claims, size_t count) {
#define COLUMN(type, add, value)                                                                                      \
    db_array_begin(params, type);                                                                                     \
    for (size_t i = 0; i < count; i++) {                                                                              \
        const struct batch_claim *claim = &claims[i];                                                                 \
        add(params, value);                                                                                           \
    }                                                                                                                 \
    db_array_end(params)
    db_params_reset(params);
    COLUMN(DB_TEXT, db_item_text, claim->slot->partition->topic);
    COLUMN(DB_INT4, db_item_int4, claim->slot->partition->number);
    COLUMN(DB_INT8, db_item_int8, claim->slot->epoch);
    COLUMN(DB_INT8, db_item_int8, claim->expected);
    COLUMN(DB_INT8, db_item_int8, claim->next);
    COLUMN(DB_INT8, db_item_int8, claim->last->offset);
    COLUMN(DB_INT8, db_item_int8, claim->last->timestamp_ms);
    COLUMN(DB_INT8, db_item_int8, partition_checksum(claim->last));
#undef COLUMN
}

static const struct batch_claim *claim_named(const struct batch_claim *claims, size_t count, const char *topic,
                                             int32_t partition) {
    for (size_t i = 0; i < count; i++)
        if (claims[i].slot->partition->number == partition && strcmp(claims[i].slot->partition->topic, topic) == 0)
            return &claims[i];
    return NULL;
}

/* A claim that failed because the row already says what we were about to write can only have been written by us. */
static enum store_result judge_refusals(const struct db_result *rows, const struct batch_claim *claims, size_t count,
                                        struct store_answer *answer, struct error *error) {
    size_t standing = 0;
    answer->lost_count = 0;
    for (size_t row = 0; row < db_rows(rows); row++) {
        const struct batch_claim *claim = claim_named(claims, count, db_text(rows, row, 0, NULL), db_int4(rows, row, 1));
        if (claim == NULL) {
            error_set(error, ERROR_FATAL, "invariant", "claim_offsets refused a partition that was not claimed");
            return STORE_FATAL;
        }
        bool stands = db_int8(rows, row, 2) == claim->slot->epoch && !db_is_null(rows, row, 3) &&
                      db_int8(rows, row, 3) == claim->next;
        standing += stands;
        if (!stands)
            answer->lost_slots[answer->lost_count++] = claim->slot_index;
    }
    if (answer->lost_count > 0 || standing == 0)
        return STORE_LOST;
    if (standing != count) {
        error_set(error, ERROR_FATAL, "invariant", "of %zu claims that were written together %zu stand", count, standing);
        return STORE_FATAL;
    }
    for (size_t i = 0; i < count; i++)
        answer->lost_slots[answer->lost_count++] = claims[i].slot_index;
    return STORE_STOOD;
}

/* ---- apply ---- */

static const char apply_sql[] =
    "SELECT outcome, lease_until, ord FROM lease.apply($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
    " $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, p_member => $32)";

struct range {
    const struct batch *batch;
    size_t from, upto;
};

static const struct command *next_command(const struct range *range, size_t *at) {
    for (; *at < range->upto; (*at)++)
        if (!range->batch->entries[*at].is_dropped)
            return &range->batch->entries[(*at)++].command;
    return NULL;
}

/* One element of each array: a command, and behind one over many items each of those. */
struct row {
    const struct command *command;
    const struct command_item *item; /* NULL: the command itself */
    size_t at, items;                /* private: the next command, the command's items so far */
};

static struct row before_first_row(const struct range *range) {
    return (struct row){.at = range->from};
}

static bool next_row(const struct range *range, struct row *row) {
    if (row->command != NULL && row->items < row->command->item_count) {
        row->item = &row->command->items[row->items++];
        return true;
    }
    row->item = NULL;
    row->items = 0;
    row->command = next_command(range, &row->at);
    return row->command != NULL;
}

static void item_number(struct db_params *params, int64_t number) {
    if (number == COMMAND_ABSENT)
        db_item_null(params);
    else
        db_item_int8(params, number);
}

static void item_flag(struct db_params *params, int flag) {
    if (flag < 0)
        db_item_null(params);
    else
        db_item_bool(params, flag != 0);
}

static void add_lists(struct db_params *params, const struct range *range, bool is_tables) {
    int32_t upto = 0;
    db_array_begin(params, DB_INT4);
    for (struct row row = before_first_row(range); next_row(range, &row);) {
        if (row.item == NULL)
            upto += (int32_t)(is_tables ? row.command->table_count : row.command->resource_count);
        db_item_int4(params, upto);
    }
    db_array_end(params);
    db_array_begin(params, DB_TEXT);
    for (size_t at = range->from; true;) {
        const struct command *command = next_command(range, &at);
        if (command == NULL)
            break;
        const char **items = is_tables ? command->tables : command->resources;
        size_t count = is_tables ? command->table_count : command->resource_count;
        for (size_t i = 0; i < count; i++)
            db_item_text(params, items[i]);
    }
    db_array_end(params);
}

static const uint8_t *claim_id_of(const struct command *command, const struct command_item *item) {
    if (item != NULL)
        return item->claim_id.bytes;
    return command->has_claim_id ? command->claim_id.bytes : NULL;
}

/* An item is deduplicated with its command. */
static const uint8_t *digest_of(const struct command *command, const struct command_item *item) {
    return command->kind != NULL && item == NULL ? command->digest : NULL;
}

static int flag_of(const struct command *command, const struct command_item *item) {
    if (item != NULL)
        return item->flag;
    return command->kind != NULL ? command->flag : -1;
}

/* NULL for a command over its subject alone, false for one over many items, true for each of these; empty where there
 * are none of them. */
static void add_members(struct db_params *params, const struct range *range) {
    bool has_items = false;
    for (size_t at = range->from; !has_items;) {
        const struct command *command = next_command(range, &at);
        if (command == NULL)
            break;
        has_items = command->item_count > 0;
    }
    db_array_begin(params, DB_BOOL);
    for (struct row row = before_first_row(range); has_items && next_row(range, &row);)
        item_flag(params, row.command->item_count == 0 ? -1 : row.item != NULL);
    db_array_end(params);
}

/* One column after the other: the parameters are column-wise on the wire. */
static void add_commands(struct db_params *params, const struct range *range) {
#define COLUMN(type, add, ...)                                                                                        \
    db_array_begin(params, type);                                                                                     \
    for (struct row row = before_first_row(range); next_row(range, &row);) {                                          \
        const struct command *c = row.command;                                                                        \
        add(params, __VA_ARGS__);                                                                                     \
    }                                                                                                                 \
    db_array_end(params)
/* What an item says itself, or what only a command over its subject alone says. */
#define OWN(of_item, of_command) (row.item != NULL ? row.item->of_item : c->of_command)
    db_params_reset(params);
    COLUMN(DB_TEXT, db_item_text, c->topic);
    COLUMN(DB_INT4, db_item_int4, c->partition);
    COLUMN(DB_INT8, db_item_int8, c->offset);
    COLUMN(DB_TEXT, db_item_text, c->kind);
    COLUMN(DB_TEXT, db_item_text, c->kind != NULL ? lease_command_name(c->command) : NULL);
    COLUMN(DB_TEXT, db_item_text, OWN(lease, subject));
    COLUMN(DB_TEXT, db_item_text, c->source);
    COLUMN(DB_TEXT, db_item_text, c->message_id);
    COLUMN(DB_BYTEA, db_item_bytea, digest_of(c, row.item), sizeof c->digest);
    COLUMN(DB_TEXT, db_item_text, c->traceparent);
    COLUMN(DB_TEXT, db_item_text, c->holder);
    COLUMN(DB_INT8, item_number, OWN(fence, fence));
    COLUMN(DB_UUID, db_item_uuid, claim_id_of(c, row.item));
    COLUMN(DB_BOOL, db_item_bool, OWN(token_fits, token_fits));
    COLUMN(DB_INT8, item_number, c->ttl_ms);
    COLUMN(DB_INT8, item_number, OWN(amount, amount));
    COLUMN(DB_INT8, item_number, c->refresh);
    COLUMN(DB_INT8, item_number, c->wait_ms);
    COLUMN(DB_TEXT, db_item_text, OWN(word, word));
    COLUMN(DB_BOOL, item_flag, flag_of(c, row.item));
    add_lists(params, range, false);
    add_lists(params, range, true);
    COLUMN(DB_TEXT, db_item_text, OWN(payload, payload));
    COLUMN(DB_TEXT, db_item_text, event_verdict_name(c->verdict));
    COLUMN(DB_TEXT, db_item_text, event_reason_name(c->reason));
    COLUMN(DB_TEXT, db_item_text, c->field);
    COLUMN(DB_BYTEA, db_item_bytea, c->raw_key, c->raw_key_size);
    COLUMN(DB_BYTEA, db_item_bytea, c->raw_value, c->raw_value_size);
    COLUMN(DB_BYTEA, db_item_bytea, c->raw_headers, c->raw_headers_size);
#undef OWN
#undef COLUMN
    add_members(params, range);
}

static bool read_outcome(const struct db_result *rows, size_t row, int *ret_outcome) {
    size_t size;
    const char *text = db_text(rows, row, 0, &size);
    enum lease_outcome outcome;
    if (lease_outcome_parse(text, size, &outcome)) {
        *ret_outcome = (int)outcome;
        return true;
    }
    *ret_outcome = STORE_DEAD_LETTER;
    return strcmp(text, "dead_letter") == 0;
}

static bool read_answers(const struct db_result *rows, size_t wanted, struct store_answer *answer, struct error *error) {
    /* Behind the answers stands a row with ord 0 for each grant out of open demand: it only matters when it lapses. */
    size_t answered = 0;
    answer->count = wanted;
    answer->earliest_expiry_us = INT64_MAX;
    for (size_t row = 0; row < db_rows(rows); row++) {
        if (db_int4(rows, row, 2) > 0 && (answered == wanted || !read_outcome(rows, row, &answer->outcomes[answered++])))
            return error_set(error, ERROR_FATAL, "invariant", "apply gave an outcome that is none of ours");
        if (!db_is_null(rows, row, 1) && db_timestamptz(rows, row, 1) < answer->earliest_expiry_us)
            answer->earliest_expiry_us = db_timestamptz(rows, row, 1);
    }
    if (answered != wanted)
        return error_set(error, ERROR_FATAL, "invariant", "apply answered %zu of %zu commands", answered, wanted);
    return true;
}

/* ---- the transaction ---- */

static enum store_result result_of(const struct error *error) {
    switch (error->kind) {
    case ERROR_REJECT: return STORE_REJECTED;
    case ERROR_FATAL: return STORE_FATAL;
    default: return STORE_RETRY;
    }
}

/* Nothing of the transaction stays. A server whose identity changed is looked at again. */
static void abandon(struct store *store, const struct error *error) {
    struct error ignored = {0};
    if (strcmp(error->code, "LE001") == 0 || !db_rollback(store->db, &ignored))
        store_close(store);
}

static bool crash_error(const char *point, struct error *error) {
    return error_set(error, ERROR_RETRY, "crash_point", "%s", point);
}

static size_t live_entries(const struct range *range) {
    size_t count = 0;
    for (size_t at = range->from; next_command(range, &at) != NULL;)
        count++;
    return count;
}

static enum store_result commit(struct store *store, struct error *error) {
    if (CRASH_POINT("commit.before_send")) {
        crash_error("commit.before_send", error);
        abandon(store, error);
        return STORE_RETRY;
    }
    enum db_commit commit = db_commit_send(store->db, error);
    if (commit == COMMIT_DONE) {
        if (CRASH_POINT("commit.sent_no_reply")) {
            crash_error("commit.sent_no_reply", error);
            store_close(store);
            return STORE_RETRY;
        }
        commit = db_commit_wait(store->db, error);
    }
    if (commit == COMMIT_DONE)
        return STORE_DONE;
    if (commit == COMMIT_IN_DOUBT || !db_is_usable(store->db)) {
        store_close(store);
        return STORE_RETRY;
    }
    return result_of(error);
}

/* BEGIN, claim and apply go out together: one round trip. An apply behind a refused claim is rolled back with it. */
static bool send(struct store *store, const struct range *range, const struct batch_claim *claims, size_t claim_count,
                 struct error *error) {
    add_claims(&store->params, claims, claim_count);
    if (!db_pipeline_add(store->db, NULL, "BEGIN", NULL, error) ||
        !db_pipeline_add(store->db, "claim_offsets", claim_sql, &store->params, error))
        return false;
    add_commands(&store->params, range);
    return db_pipeline_add(store->db, "apply", apply_sql, &store->params, error) && db_pipeline_send(store->db, error);
}

static enum store_result read_claim(struct store *store, const struct batch_claim *claims, size_t count,
                                    struct store_answer *answer, struct error *error) {
    struct db_result *rows = NULL;
    if (!db_pipeline_next(store->db, &rows, error))
        return result_of(error);
    enum store_result result = db_rows(rows) > 0 ? judge_refusals(rows, claims, count, answer, error) : STORE_DONE;
    db_result_free(rows);
    return result;
}

static enum store_result read_apply(struct store *store, const struct range *range, struct store_answer *answer,
                                    struct error *error) {
    struct db_result *rows = NULL;
    if (!db_pipeline_next(store->db, &rows, error))
        return result_of(error);
    bool is_read = read_answers(rows, live_entries(range), answer, error);
    db_result_free(rows);
    return is_read ? STORE_DONE : result_of(error);
}

static enum store_result read_all(struct store *store, const struct range *range, const struct batch_claim *claims,
                                  size_t claim_count, struct store_answer *answer, struct error *error) {
    if (!db_pipeline_next(store->db, NULL, error))
        return result_of(error);
    if (CRASH_POINT("tx.begun") && !crash_error("tx.begun", error))
        return STORE_RETRY;
    enum store_result result = read_claim(store, claims, claim_count, answer, error);
    if (result != STORE_DONE)
        return result;
    if (CRASH_POINT("tx.offset_locked") && !crash_error("tx.offset_locked", error))
        return STORE_RETRY;
    result = read_apply(store, range, answer, error);
    if (result != STORE_DONE)
        return result;
    /* One function applies and journals: both points stand behind it. */
    if ((CRASH_POINT("tx.applied") || CRASH_POINT("tx.journaled")) && !crash_error("tx.applied", error))
        return STORE_RETRY;
    return STORE_DONE;
}

static enum store_result run(struct store *store, const struct range *range, const struct batch_claim *claims,
                             size_t claim_count, struct store_answer *answer, struct error *error) {
    struct error ignored = {0};
    if (!db_pipeline_begin(store->db, error))
        return result_of(error);
    enum store_result result = send(store, range, claims, claim_count, error)
                                   ? read_all(store, range, claims, claim_count, answer, error)
                                   : result_of(error);
    if (!db_pipeline_end(store->db, &ignored) && result == STORE_DONE) {
        *error = ignored;
        result = STORE_RETRY;
    }
    if (result == STORE_DONE)
        result = commit(store, error);
    else
        abandon(store, error);
    if (result == STORE_DONE)
        CRASH_POINT("commit.acked");
    return result;
}

enum store_result store_apply(struct store *store, struct batch *batch, size_t from, size_t upto,
                              struct store_answer *ret_answer, struct error *error) {
    ret_answer->count = ret_answer->lost_count = 0;
    if (!db_is_usable(store->db)) {
        error_set(error, ERROR_RETRY, "db_lost", "not connected");
        return STORE_RETRY;
    }
    struct batch_claim *claims = memory_alloc_array(batch->slot_count + 1, sizeof *claims);
    size_t claim_count = batch_claims(batch, from, upto, claims);
    enum store_result result =
        run(store, &(struct range){batch, from, upto}, claims, claim_count, ret_answer, error);
    free(claims);
    if (!db_is_usable(store->db))
        store_close(store);
    if (store->params.capacity > PARAMS_KEPT_BYTES) {
        db_params_release(&store->params);
        db_params_init(&store->params);
    }
    return result;
}

bool store_attempt(struct store *store, const char *topic, int32_t partition, int64_t offset, int *ret_tries,
                   struct error *error) {
    struct db_result *rows = NULL;
    db_params_reset(&store->params);
    db_param_text(&store->params, topic);
    db_param_int4(&store->params, partition);
    db_param_int8(&store->params, offset);
    if (!db_query(store->db, "attempt_begin", "SELECT lease.attempt_begin($1, $2, $3)", &store->params, &rows, error))
        return false;
    *ret_tries = db_rows(rows) > 0 ? db_int4(rows, 0, 0) : 0;
    db_result_free(rows);
    return true;
}
