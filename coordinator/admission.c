/* May this process work on that server? See admission.h. */
#include "coordinator/admission.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"
#include "common/db.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A look at 39 partitions takes a fraction of a second; brokers that are just electing a leader take some. */
enum { WITNESS_MS = 10000 };

struct admission {
    struct admission_options options;
    pthread_mutex_t mutex; /* of all that follows: one thread at a time is admitted */
    int64_t witness_at_ms; /* when the look at the topics began; 0: none yet */
    int64_t number, fence;
    bool has_admitted;
    char known[128]; /* the server last admitted to, and its last jump */
};

struct verdict {
    int64_t journal_number, fence_high;
    char system_identifier[32];
    int timeline;
    bool is_jump_needed;
};

struct admission *admission_new(const struct admission_options *options) {
    struct admission *admission = memory_alloc(sizeof *admission);
    admission->options = *options;
    pthread_mutex_init(&admission->mutex, NULL);
    return admission;
}

void admission_free(struct admission *admission) {
    if (admission == NULL)
        return;
    pthread_mutex_destroy(&admission->mutex);
    free(admission);
}

static bool look_at_topics(struct admission *admission, int64_t since_ms, struct error *error) {
    const struct admission_options *options = &admission->options;
    bool is_empty;
    if (admission->witness_at_ms > since_ms)
        return true;
    int64_t begun_ms = clock_monotonic_us() / 1000;
    if (!options->read_witness(options->kafka, options->topic_prefix, options->group, WITNESS_MS, &admission->number,
                               &admission->fence, &is_empty, error))
        return false;
    admission->witness_at_ms = begun_ms;
    return true;
}

static const char check_sql[] = "SELECT journal_number, fence_high, system_identifier, timeline, jump_needed"
                                " FROM lease.check_server($1, $2, $3, $4)";

static bool check_server(struct admission *admission, struct db *db, struct verdict *ret_verdict, struct error *error) {
    struct db_params params;
    struct db_result *rows = NULL;
    db_params_init(&params);
    db_param_int4(&params, ADMISSION_SCHEMA_VERSION);
    db_param_int8(&params, admission->number);
    db_param_int8(&params, admission->fence);
    db_param_bool(&params, admission->options.is_throwaway);
    bool is_good = db_query(db, NULL, check_sql, &params, &rows, error);
    db_params_release(&params);
    if (!is_good)
        return false;
    ret_verdict->journal_number = db_int8(rows, 0, 0);
    ret_verdict->fence_high = db_int8(rows, 0, 1);
    strncpy(ret_verdict->system_identifier, db_text(rows, 0, 2, NULL), sizeof ret_verdict->system_identifier - 1);
    ret_verdict->timeline = db_int4(rows, 0, 3);
    ret_verdict->is_jump_needed = db_bool(rows, 0, 4);
    db_result_free(rows);
    return true;
}

static bool jump(struct admission *admission, struct db *db, const struct verdict *verdict, struct error *error) {
    struct db_params params;
    struct db_result *rows = NULL;
    db_params_init(&params);
    db_param_int8(&params, admission->number);
    db_param_int8(&params, admission->fence);
    db_param_text(&params, admission->options.instance);
    db_param_text(&params, "another server or timeline");
    bool is_good = db_query(db, NULL, "SELECT lease.jump($1, $2, $3, $4)", &params, &rows, error);
    db_params_release(&params);
    if (!is_good)
        return false;
    int64_t floor = db_is_null(rows, 0, 0) ? 0 : db_int8(rows, 0, 0); /* NULL: another coordinator has jumped meanwhile */
    db_result_free(rows);
    if (CRASH_POINT("fence.jumped"))
        return error_set(error, ERROR_RETRY, "crash_point", "fence.jumped");
    log_write(admission->options.log, LOG_WARNING, floor > 0 ? "fences jumped: another server" : "fences had jumped already",
              "floor", LOG_N(floor), "fence_before", LOG_N(verdict->fence_high), "fence_in_topics",
              LOG_N(admission->fence), "system_identifier", verdict->system_identifier, "timeline",
              LOG_N(verdict->timeline), NULL);
    return true;
}

/* Two promotions of one history can come to the same timeline number: the moment of the last jump tells them apart. */
static const char known_sql[] = "SELECT concat_ws('/', system_identifier, timeline, jumped_at) FROM lease.server_identity";

/* Another coordinator may have jumped: whether we did tells nothing about whether the server is the one we knew. */
static bool note_server(struct admission *admission, struct db *db, struct error *error) {
    struct db_result *rows = NULL;
    if (!db_query(db, NULL, known_sql, NULL, &rows, error))
        return false;
    const char *known = db_rows(rows) > 0 ? db_text(rows, 0, 0, NULL) : "";
    bool is_same = strcmp(admission->known, known) == 0;
    snprintf(admission->known, sizeof admission->known, "%s", known);
    db_result_free(rows);
    if (!is_same && admission->has_admitted && admission->options.moved != NULL)
        admission->options.moved(admission->options.moved_context);
    return true;
}

static bool admit(struct admission *admission, struct db *db, int64_t since_ms, struct error *error) {
    struct verdict verdict = {0};
    if (!look_at_topics(admission, since_ms, error) || !check_server(admission, db, &verdict, error))
        return false;
    return (!verdict.is_jump_needed || jump(admission, db, &verdict, error)) && note_server(admission, db, error);
}

bool admission_admit(void *context, struct db *db, int64_t since_ms, struct error *error) {
    struct admission *admission = context;
    pthread_mutex_lock(&admission->mutex);
    bool is_admitted = admit(admission, db, since_ms, error);
    admission->has_admitted |= is_admitted;
    if (!is_admitted && admission->has_admitted && strcmp(error->code, "LE008") == 0)
        error->kind = ERROR_RETRY;
    pthread_mutex_unlock(&admission->mutex);
    return is_admitted;
}
