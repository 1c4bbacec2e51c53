/* PostgreSQL through libpq, in text format: slow and easy to read, which is what a test wants. */
#include "database.h"

#include <glob.h>
#include <libpq-fe.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct database {
    char conninfo[512], name[64];
    PGconn *connection;
    int copies; /* of a template */
    int64_t *fences; /* by the model's fence; 0: not known */
    char (*claim_ids)[CLAIM_ID_SIZE];
    int64_t room;
    char error[600];
};

struct text {
    char *bytes;
    size_t length, room;
};

static void die(const char *what, const char *detail) {
    fprintf(stderr, "model: %s: %s\n", what, detail);
    exit(70);
}

static void append(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(struct text *text, const char *format, ...) {
    for (;;) {
        va_list list;
        va_start(list, format);
        int size = vsnprintf(text->bytes ? text->bytes + text->length : NULL, text->room - text->length, format, list);
        va_end(list);
        if (size < 0) abort();
        if (text->length + (size_t)size < text->room) {
            text->length += (size_t)size;
            return;
        }
        text->room = (text->room + (size_t)size) * 2 + 256;
        text->bytes = realloc(text->bytes, text->room);
        if (!text->bytes) abort();
    }
}

void name_lease(char *ret, int lease) { snprintf(ret, NAME_SIZE, "s%05d", lease); }
void name_worker(char *ret, int worker) { snprintf(ret, NAME_SIZE, "w%d", worker); }
void name_holder(char *ret, const struct model_kind *kind, int holder) {
    snprintf(ret, NAME_SIZE, "%s%d", kind->mode == MODE_RUN ? "run" : "w", holder);
}
static const char *const tables[MODEL_TABLES] = {"album_contract", "track_contract", "video_contract"};
void name_resource(char *ret, int resource) {
    int table = resource / MODEL_TABLE_SIZE;
    if (resource == MODEL_WHOLE_TABLE(table)) snprintf(ret, NAME_SIZE, "%s/*", tables[table]);
    else snprintf(ret, NAME_SIZE, "%s/%d", tables[table], resource % MODEL_TABLE_SIZE);
}
const char *name_step(int step) {
    static const char *const steps[] = {"", "calculated", "posted"};
    if (step < 1 || step > 2) return step == 0 ? "" : "elsewhere";
    return steps[step];
}

static PGconn *connect_to(const char *conninfo, const char *name) {
    const char *keys[] = {"dbname", "dbname", "application_name", NULL}; /* a later dbname overrides an earlier one */
    const char *values[] = {conninfo, name, "lease-model", NULL};
    if (!name) keys[1] = "application_name", values[1] = "lease-model", keys[2] = NULL;
    PGconn *connection = PQconnectdbParams(keys, values, 1);
    if (PQstatus(connection) != CONNECTION_OK) die("cannot connect", PQerrorMessage(connection));
    return connection;
}

static PGresult *must(PGconn *connection, PGresult *result, const char *what) {
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) die(what, PQerrorMessage(connection));
    return result;
}

static void run(PGconn *connection, const char *sql) { PQclear(must(connection, PQexec(connection, sql), sql)); }

static void run_file(PGconn *connection, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) die("cannot open", path);
    struct text text = {0};
    char line[4096];
    while (fgets(line, sizeof line, file)) append(&text, "%s", line);
    fclose(file);
    if (text.length > 0) PQclear(must(connection, PQexec(connection, text.bytes), path));
    free(text.bytes);
}

/* V2 before V10. */
static int by_version(const void *left, const void *right) {
    return strverscmp(*(char *const *)left, *(char *const *)right);
}

static void run_files(PGconn *connection, const char *folder, const char *pattern) {
    char path[1024];
    glob_t found = {0};
    snprintf(path, sizeof path, "%s/%s", folder, pattern);
    if (glob(path, GLOB_NOSORT, NULL, &found) == 0) {
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_version);
        for (size_t i = 0; i < found.gl_pathc; i++) run_file(connection, found.gl_pathv[i]);
    }
    globfree(&found);
}

static void insert_kinds(PGconn *connection, const struct model_kind *kinds, int count) {
    run(connection, "DELETE FROM lease.step");
    for (int i = 0; i < count; i++) {
        const struct model_kind *kind = &kinds[i];
        struct text text = {0};
        append(&text,
               "INSERT INTO lease.kind (kind, mode, ttl_ms, ttl_max_ms, attempts_max, backoff_base_ms, backoff_max_ms, summary) "
               "VALUES ('%s', '%s', %lld, %lld, %d, %lld, %lld, 'of the model') ON CONFLICT (kind) DO UPDATE SET mode = EXCLUDED.mode, "
               "ttl_ms = EXCLUDED.ttl_ms, ttl_max_ms = EXCLUDED.ttl_max_ms, attempts_max = EXCLUDED.attempts_max, "
               "backoff_base_ms = EXCLUDED.backoff_base_ms, backoff_max_ms = EXCLUDED.backoff_max_ms",
               kind->name, kind->mode == MODE_RUN ? "run" : "pool", (long long)kind->ttl_default_ms, (long long)kind->ttl_max_ms,
               kind->mode == MODE_RUN ? 1 : kind->attempts_max, (long long)kind->backoff_base_ms, (long long)kind->backoff_max_ms);
        run(connection, text.bytes);
        for (int step = 1; step <= kind->steps; step++) {
            text.length = 0;
            append(&text, "INSERT INTO lease.step (kind, step, after) VALUES ('%s', '%s', nullif('%s', ''))", kind->name, name_step(step),
                   name_step(step - 1));
            run(connection, text.bytes);
        }
        free(text.bytes);
    }
}

static struct database *database_new(const char *conninfo) {
    struct database *database = calloc(1, sizeof *database);
    if (!database) abort();
    snprintf(database->conninfo, sizeof database->conninfo, "%s", conninfo);
    return database;
}

static void create(const char *conninfo, const char *name, const char *template) {
    PGconn *connection = connect_to(conninfo, NULL);
    struct text text = {0};
    append(&text, "CREATE DATABASE %s TEMPLATE %s ENCODING 'UTF8'", name, template);
    run(connection, text.bytes);
    free(text.bytes);
    PQfinish(connection);
}

struct database *database_template_new(const char *conninfo, const char *sql_folder, const struct model_kind *kinds, int kind_count) {
    struct database *database = database_new(conninfo);
    snprintf(database->name, sizeof database->name, "lease_model_%d", (int)getpid());
    create(conninfo, database->name, "template0");
    PGconn *connection = connect_to(conninfo, database->name);
    run(connection, "SET client_min_messages = warning");
    run_files(connection, sql_folder, "migrations/V*.sql");
    run_files(connection, sql_folder, "functions/*.sql");
    run_files(connection, sql_folder, "triggers/*.sql");
    run_files(connection, sql_folder, "views/*.sql");
    run_files(connection, sql_folder, "grants.sql");
    insert_kinds(connection, kinds, kind_count);
    PQfinish(connection); /* a template must have no connection */
    return database;
}

struct database *database_copy_new(const struct database *template) {
    struct database *database = database_new(template->conninfo);
    static int copies;
    snprintf(database->name, sizeof database->name, "%.50s_%d", template->name, ++copies);
    create(template->conninfo, database->name, template->name);
    database->connection = connect_to(template->conninfo, database->name);
    run(database->connection, "SET client_min_messages = warning");
    run(database->connection, "SET synchronous_commit = off");
    return database;
}

void database_free(struct database *database) {
    if (!database) return;
    if (database->connection) PQfinish(database->connection);
    PGconn *connection = connect_to(database->conninfo, NULL);
    struct text text = {0};
    append(&text, "DROP DATABASE IF EXISTS %s", database->name);
    run(connection, text.bytes);
    PQfinish(connection);
    free(text.bytes);
    free(database->fences);
    free(database->claim_ids);
    free(database);
}

void database_map_grant(struct database *database, int64_t model_fence, int64_t fence, const char *claim_id) {
    if (model_fence >= database->room) {
        int64_t room = model_fence * 2 + 1024;
        database->fences = realloc(database->fences, (size_t)room * sizeof *database->fences);
        database->claim_ids = realloc(database->claim_ids, (size_t)room * sizeof *database->claim_ids);
        if (!database->fences || !database->claim_ids) abort();
        memset(database->fences + database->room, 0, (size_t)(room - database->room) * sizeof *database->fences);
        database->room = room;
    }
    database->fences[model_fence] = fence;
    snprintf(database->claim_ids[model_fence], CLAIM_ID_SIZE, "%s", claim_id);
}

int64_t database_fence(const struct database *database, int64_t model_fence) {
    return model_fence > 0 && model_fence < database->room ? database->fences[model_fence] : 0;
}

/* The arrays of lease.apply, in the order of its parameters. */
enum {
    P_ORIGIN_TOPIC, P_ORIGIN_PARTITION, P_ORIGIN_OFFSET, P_KIND, P_COMMAND, P_SUBJECT, P_SOURCE, P_MESSAGE_ID, P_DIGEST,
    P_TRACEPARENT, P_HOLDER, P_FENCE, P_CLAIM_ID, P_TOKEN_FITS, P_TTL_MS, P_AMOUNT, P_REFRESH, P_WAIT_MS, P_WORD, P_FLAG,
    P_RESOURCE_UPTO, P_RESOURCE, P_TABLE_UPTO, P_TABLE, P_PAYLOAD, P_VERDICT, P_REASON, P_FIELD, P_RAW_KEY, P_RAW_VALUE,
    P_RAW_HEADERS, P_MEMBER, P_COUNT
};
static const char *const parameter_types[P_COUNT] = {
    "text", "int", "bigint", "text", "text", "text", "text", "text", "bytea", "text", "text", "bigint", "uuid", "boolean", "bigint",
    "bigint", "bigint", "bigint", "text", "boolean", "int", "text", "int", "text", "text", "text", "text", "text", "bytea", "bytea",
    "bytea", "boolean"};

/* Everything that is put here is free of quotes and backslashes, but for a bytea's prefix and a payload. */
static void add(struct text *array, const char *value) {
    append(array, array->length == 0 ? "{" : ",");
    if (!value) append(array, "NULL");
    else append(array, "\"%s\"", value);
}
static void add_number(struct text *array, int64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    add(array, value == MODEL_NONE ? NULL : digits);
}
static void add_boolean(struct text *array, bool value) { add(array, value ? "t" : "f"); }

void database_insert_unfenced(struct database *database, const struct model_kind *kinds, int kind, int lease) {
    struct text text = {0};
    append(&text, "INSERT INTO lease.lease (kind, lease, state, holder, attempt) VALUES ('%s', 's%05d', 'held', 'somebody', 1)", kinds[kind].name, lease);
    run(database->connection, text.bytes);
    free(text.bytes);
}

static const char *claim_id_of(const struct database *database, int64_t model_fence) {
    if (database_fence(database, model_fence) == 0) return "00000000-0000-4000-8000-000000000001";
    return database->claim_ids[model_fence];
}

static int64_t fence_of(const struct database *database, int64_t model_fence) {
    if (model_fence == MODEL_NONE || model_fence > SCRIPT_FOREIGN_FENCE / 2) return model_fence;
    int64_t fence = database_fence(database, model_fence);
    return fence ? fence : SCRIPT_FOREIGN_FENCE + model_fence; /* not granted yet: to the database a foreign one */
}

static const char *const verdicts[VERDICT_COUNT] = {"done", "not_done", "extend"};

static bool is_from_holder(enum model_command command) { return command >= COMMAND_COVER && command <= COMMAND_RELEASE; }

static void add_message(const struct database *database, struct text *p, const struct model_kind *kinds,
                        const struct model_message *message, int64_t offset, int *resources, int *table_count) {
    const struct model_kind *kind = &kinds[message->kind];
    char name[NAME_SIZE];
    add(&p[P_ORIGIN_TOPIC], "model.events");
    add_number(&p[P_ORIGIN_PARTITION], 0);
    add_number(&p[P_ORIGIN_OFFSET], offset);
    add(&p[P_KIND], kind->name);
    add(&p[P_COMMAND], model_command_names[message->command]);
    bool is_head = message->role == ROLE_HEAD, is_member = message->role == ROLE_MEMBER;
    bool is_from_grant = is_from_holder(message->command) && !is_head;
    if (message->command == COMMAND_CLAIM || is_head) name_worker(name, message->subject);
    else name_lease(name, message->subject);
    add(&p[P_SUBJECT], name);
    add(&p[P_SOURCE], "/model");
    snprintf(name, sizeof name, "m%lld", (long long)message->id);
    add(&p[P_MESSAGE_ID], name);
    snprintf(name, sizeof name, "\\\\x%024llx%08x", (long long)message->id, (unsigned)message->digest);
    add(&p[P_DIGEST], is_member ? NULL : name);
    add(&p[P_TRACEPARENT], NULL);
    name_holder(name, kind, message->holder);
    if (message->command == COMMAND_CLAIM || is_head) name_worker(name, message->holder);
    add(&p[P_HOLDER], message->holder == MODEL_NONE ? NULL : name);
    add_number(&p[P_FENCE], fence_of(database, message->fence));
    add(&p[P_CLAIM_ID], is_from_grant ? claim_id_of(database, message->claim) : NULL);
    if (is_from_grant) add_boolean(&p[P_TOKEN_FITS], message->token_fits);
    else add(&p[P_TOKEN_FITS], NULL);
    add_number(&p[P_TTL_MS], message->ttl_ms);
    add_number(&p[P_AMOUNT], message->amount);
    add_number(&p[P_REFRESH], message->refresh);
    add_number(&p[P_WAIT_MS], message->wait_ms);
    if (message->command == COMMAND_ADVANCE) add(&p[P_WORD], message->step < 1 ? "nonsense" : name_step(message->step));
    else if (message->command == COMMAND_RESOLVE) add(&p[P_WORD], verdicts[message->verdict]);
    else add(&p[P_WORD], message->command == COMMAND_FAIL ? "broken" : NULL);
    if (message->command == COMMAND_START || message->command == COMMAND_FAIL) add_boolean(&p[P_FLAG], message->flag);
    else add(&p[P_FLAG], NULL);
    for (int i = 0; i < message->resource_count; i++) {
        name_resource(name, message->resources[i]);
        add(&p[P_RESOURCE], name);
    }
    for (int i = 0; i < message->table_count; i++) add(&p[P_TABLE], tables[message->tables[i]]);
    add_number(&p[P_RESOURCE_UPTO], *resources += message->resource_count);
    add_number(&p[P_TABLE_UPTO], *table_count += message->table_count);
    snprintf(name, sizeof name, "[%lld]", (long long)message->id);
    bool has_payload = message->command == COMMAND_START || message->command == COMMAND_REQUEST || message->command == COMMAND_RESOLVE;
    add(&p[P_PAYLOAD], has_payload ? name : NULL);
    add(&p[P_VERDICT], message->malformed ? "malformed" : NULL);
    add(&p[P_REASON], message->malformed ? "wrong_type" : NULL);
    add(&p[P_FIELD], message->malformed ? "holder" : NULL);
    add(&p[P_RAW_KEY], NULL);
    add(&p[P_RAW_VALUE], NULL);
    add(&p[P_RAW_HEADERS], NULL);
    add(&p[P_MEMBER], message->role == ROLE_ALONE ? NULL : is_member ? "t" : "f");
}

static void build(struct database *database, struct text *p, const struct model_kind *kinds, const struct model_message *messages,
                  size_t count) {
    int resources = 0, table_count = 0;
    for (size_t i = 0; i < count; i++) add_message(database, p, kinds, &messages[i], (int64_t)i, &resources, &table_count);
    for (int i = 0; i < P_COUNT; i++) append(&p[i], p[i].length ? "}" : "{}");
}

/* The arrays, and the moment, which is parameter P_COUNT. */
static void append_arguments(struct text *sql, const struct text *p, const char *moment) {
    for (int i = 0; i < P_MEMBER; i++) {
        if (p) append(sql, "'%s'::%s[], ", p[i].bytes, parameter_types[i]);
        else append(sql, "$%d::%s[], ", i + 1, parameter_types[i]);
    }
    append(sql, "%s, p_member => ", moment);
    if (p) append(sql, "'%s'::boolean[])", p[P_MEMBER].bytes);
    else append(sql, "$%d::boolean[])", P_MEMBER + 1);
}

static const char *text_of(const PGresult *result, int row, int column) { return PQgetvalue(result, row, column); }
static int64_t number_of(const PGresult *result, int row, int column) {
    return PQgetisnull(result, row, column) ? MODEL_NONE : strtoll(PQgetvalue(result, row, column), NULL, 10);
}
static bool boolean_of(const PGresult *result, int row, int column) { return *PQgetvalue(result, row, column) == 't'; }
static void copy_text(char *ret, size_t size, const PGresult *result, int row, int column) {
    snprintf(ret, size, "%s", text_of(result, row, column));
}
#define COPY(member, column) copy_text(member, sizeof(member), result, row, column)

#define MICROSECONDS(column) "(extract(epoch from " column ") * 1000000)::bigint"
#define MOMENT(parameter) "'epoch'::timestamptz + " parameter "::bigint * interval '1 microsecond'"

static bool is_fine(struct database *database, PGresult *result) {
    if (PQresultStatus(result) == PGRES_TUPLES_OK) return true;
    snprintf(database->error, sizeof database->error, "%.590s", PQresultErrorMessage(result));
    PQclear(result);
    return false;
}

const char *database_error(const struct database *database) { return database->error; }

static PGresult *query(struct database *database, const char *sql, int count, ...) {
    const char *values[4];
    va_list list;
    va_start(list, count);
    for (int i = 0; i < count; i++) values[i] = va_arg(list, const char *);
    va_end(list);
    return must(database->connection, PQexecParams(database->connection, sql, count, NULL, values, NULL, NULL, 0), sql);
}

static bool are_all_alone(const struct model_message *messages, size_t count) {
    bool is_so = true;
    for (size_t i = 0; i < count; i++) is_so = is_so && messages[i].role == ROLE_ALONE;
    return is_so;
}

/* What the answers over many tell of each item. */
static void read_items(struct database *database, const struct model_message *messages, size_t count, struct database_answer *answers) {
    for (size_t head = 0; head < count; head++) {
        if (messages[head].role != ROLE_HEAD || strcmp(answers[head].outcome, "answered") != 0) continue;
        char number[24], name[NAME_SIZE];
        snprintf(number, sizeof number, "%lld", (long long)answers[head].number);
        PGresult *result = query(database,
            "SELECT i->>'lease', i->>'outcome', " MICROSECONDS("(i->>'until')::timestamptz") " FROM lease.journal j, "
            "json_array_elements(j.payload::json) WITH ORDINALITY AS u (i, no) WHERE j.number = $1::bigint ORDER BY no", 1, number);
        int row = 0;
        for (size_t i = head + 1; i < count && messages[i].role == ROLE_MEMBER; i++, row++) {
            name_lease(name, messages[i].subject);
            if (row == PQntuples(result) || strcmp(text_of(result, row, 0), name) != 0) die("the answer of a command over many", "tells of other items");
            copy_text(answers[i].outcome, sizeof answers[i].outcome, result, row, 1);
            answers[i].until = number_of(result, row, 2);
        }
        if (row != PQntuples(result)) die("the answer of a command over many", "tells of more items");
        PQclear(result);
    }
}

bool database_apply(struct database *database, const struct model_kind *kinds, const struct model_message *messages, size_t count,
                    int64_t at, struct database_answer *answers) {
    struct text p[P_COUNT + 1] = {0}, sql = {0}, moment = {0};
    const char *values[P_COUNT + 1];
    build(database, p, kinds, messages, count);
    append(&p[P_COUNT], "%lld", (long long)at);
    append(&sql, "SELECT ord, outcome, number, fence, claim_id, " MICROSECONDS("lease_until") " FROM lease.apply(");
    append(&moment, MOMENT("$%d"), P_COUNT + 1);
    append_arguments(&sql, NULL, moment.bytes);
    free(moment.bytes);
    append(&sql, " WHERE ord > 0 ORDER BY ord");
    for (int i = 0; i <= P_COUNT; i++) values[i] = p[i].bytes;
    if (are_all_alone(messages, count)) values[P_MEMBER] = NULL;
    PGresult *result = PQexecParams(database->connection, sql.bytes, P_COUNT + 1, NULL, values, NULL, NULL, 0);
    for (int i = 0; i <= P_COUNT; i++) free(p[i].bytes);
    free(sql.bytes);
    if (!is_fine(database, result)) return false;
    int row = 0;
    for (size_t i = 0; i < count; i++) {
        struct database_answer *answer = &answers[i];
        *answer = (struct database_answer){.number = MODEL_NONE, .fence = MODEL_NONE, .until = MODEL_NONE};
        if (messages[i].role == ROLE_MEMBER) continue;
        if (row == PQntuples(result) || number_of(result, row, 0) != (int64_t)i + 1) die("lease.apply", "not a row for each command, in order");
        COPY(answer->outcome, 1);
        answer->number = number_of(result, row, 2);
        answer->fence = number_of(result, row, 3);
        COPY(answer->claim_id, 4);
        answer->until = number_of(result, row, 5);
        row++;
    }
    if (row != PQntuples(result)) die("lease.apply", "more rows than commands");
    PQclear(result);
    read_items(database, messages, count, answers);
    return true;
}

void database_print_apply(struct database *database, const struct model_kind *kinds, const struct model_message *messages,
                          size_t count, int64_t at) {
    struct text p[P_COUNT] = {0};
    build(database, p, kinds, messages, count);
    struct text sql = {0}, moment = {0};
    append(&moment, MOMENT("%lld"), (long long)at);
    append_arguments(&sql, p, moment.bytes);
    printf("SELECT * FROM lease.apply(%s;\n", sql.bytes);
    free(sql.bytes);
    free(moment.bytes);
    for (int i = 0; i < P_COUNT; i++) free(p[i].bytes);
}

bool database_reap(struct database *database, int limit, int64_t at, int *ret_turned) {
    char limit_text[16], at_text[24];
    snprintf(limit_text, sizeof limit_text, "%d", limit);
    snprintf(at_text, sizeof at_text, "%lld", (long long)at);
    const char *values[] = {limit_text, at_text};
    PGresult *result = PQexecParams(database->connection, "SELECT turned FROM lease.reap($1::int, " MOMENT("$2") ")", 2, NULL, values,
                                    NULL, NULL, 0);
    if (!is_fine(database, result)) return false;
    *ret_turned = (int)number_of(result, 0, 0);
    PQclear(result);
    return true;
}

static void *rows(const PGresult *result, size_t size, size_t *ret_count) {
    *ret_count = (size_t)PQntuples(result);
    void *memory = calloc(*ret_count + 1, size);
    if (!memory) abort();
    return memory;
}

struct database_event *database_events(struct database *database, int64_t after, size_t *ret_count) {
    char after_text[24];
    snprintf(after_text, sizeof after_text, "%lld", (long long)after);
    PGresult *result = query(database,
        "SELECT number, fence, min_fence, " MICROSECONDS("lease_until") ", amount, refresh, attempt, event, kind, subject, message_id, "
        "holder, state, step, claim_id, blocker->>'kind', blocker->>'lease', original->>'outcome', payload, changes_lease, is_grant "
        "FROM lease.journal WHERE number > $1::bigint ORDER BY number", 1, after_text);
    struct database_event *events = rows(result, sizeof *events, ret_count);
    for (int row = 0; row < PQntuples(result); row++) {
        struct database_event *event = &events[row];
        event->number = number_of(result, row, 0);
        event->fence = number_of(result, row, 1);
        event->min_fence = number_of(result, row, 2);
        event->until = number_of(result, row, 3);
        event->amount = number_of(result, row, 4);
        event->refresh = number_of(result, row, 5);
        event->attempt = number_of(result, row, 6);
        COPY(event->event, 7);
        COPY(event->kind, 8);
        COPY(event->subject, 9);
        COPY(event->message_id, 10);
        COPY(event->holder, 11);
        COPY(event->state, 12);
        COPY(event->step, 13);
        COPY(event->claim_id, 14);
        COPY(event->blocker_kind, 15);
        COPY(event->blocker_lease, 16);
        COPY(event->original, 17);
        COPY(event->payload, 18);
        event->changes_lease = boolean_of(result, row, 19);
        event->is_grant = boolean_of(result, row, 20);
    }
    PQclear(result);
    return events;
}

#define LEASES                                                                                                             \
    "SELECT kind, lease, state, condition, holder, step, fence, " MICROSECONDS("lease_until") ", attempt, resources_covered, " \
    MICROSECONDS("ready_at") ", overtaken FROM lease.leases"

static struct database_lease *leases_of(PGresult *result, size_t *ret_count) {
    struct database_lease *leases = rows(result, sizeof *leases, ret_count);
    for (int row = 0; row < PQntuples(result); row++) {
        struct database_lease *lease = &leases[row];
        COPY(lease->kind, 0);
        COPY(lease->lease, 1);
        COPY(lease->state, 2);
        COPY(lease->condition, 3);
        COPY(lease->holder, 4);
        COPY(lease->step, 5);
        lease->fence = number_of(result, row, 6);
        lease->until = number_of(result, row, 7);
        lease->attempt = number_of(result, row, 8);
        lease->covered = number_of(result, row, 9);
        lease->ready_at = number_of(result, row, 10);
        lease->is_overtaken = boolean_of(result, row, 11);
    }
    PQclear(result);
    return leases;
}

struct database_lease *database_leases(struct database *database, size_t *ret_count) {
    return leases_of(query(database, LEASES, 0), ret_count);
}

struct database_lease *database_some_leases(struct database *database, const char *kinds, const char *leases, size_t *ret_count) {
    return leases_of(query(database, LEASES " WHERE (kind, lease) IN (SELECT * FROM unnest($1::text[], $2::text[]))", 2, kinds, leases),
                     ret_count);
}

struct database_resource *database_resources(struct database *database, size_t *ret_count) {
    PGresult *result = query(database, "SELECT resource, fence FROM lease.resources", 0);
    struct database_resource *resources = rows(result, sizeof *resources, ret_count);
    for (int row = 0; row < PQntuples(result); row++) {
        COPY(resources[row].resource, 0);
        resources[row].fence = number_of(result, row, 1);
    }
    PQclear(result);
    return resources;
}

struct database_demand *database_demands(struct database *database, size_t *ret_count) {
    PGresult *result = query(database, "SELECT kind, worker, credit_total, granted_total, refresh, " MICROSECONDS("nullif(open_until, '-infinity')") " FROM lease.demands", 0);
    struct database_demand *demands = rows(result, sizeof *demands, ret_count);
    for (int row = 0; row < PQntuples(result); row++) {
        COPY(demands[row].kind, 0);
        COPY(demands[row].worker, 1);
        demands[row].credit_total = number_of(result, row, 2);
        demands[row].granted = number_of(result, row, 3);
        demands[row].refresh = number_of(result, row, 4);
        demands[row].wait_until = number_of(result, row, 5);
    }
    PQclear(result);
    return demands;
}
