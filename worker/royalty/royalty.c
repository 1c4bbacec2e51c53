/* One settlement run; see royalty.h. In main's thread; only what says `lost` and what the library logs comes from the library's. */
#include "worker/royalty/royalty.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"
#include "common/log.h"
#include "worker/lease_worker.h"
#include "worker/royalty/contracts.h"
#include "worker/royalty/money.h"
#include "worker/royalty/store.h"
#include "worker/royalty/tally.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

/* A database that is away is waited for: 50 ms, doubled up to 2 s, about a minute in all; no longer than the lease anyhow. */
enum { RETRY_FIRST_MS = 50, RETRY_MOST_MS = 2000, ATTEMPTS_MAX = 35 };

struct royalty {
    const struct royalty_settings *settings;
    struct log log;
    struct contracts contracts;
    struct contracts_listing listing;
    struct royalty_store *store;
    struct lease_client *client;
    struct lease_run *run;
    struct royalty_grant grant;
    struct tally tally;
    int64_t lines, total; /* written so far, by a predecessor too */
    int status;           /* of the exit, once something has ended the run */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t stopping;
    bool is_stopping;
};

/* ---- ends ---- */

/* Each of them returns false, so that steps can be chained. */
static bool end(struct royalty *royalty, int status) {
    royalty->status = status;
    return false;
}

static bool end_with(struct royalty *royalty, const char *what, const struct error *error) {
    static const int statuses[] = {[ERROR_NONE] = EX_SOFTWARE, [ERROR_RETRY] = EX_UNAVAILABLE, [ERROR_REJECT] = EX_DATAERR,
                                   [ERROR_FATAL] = EX_CONFIG};
    log_error(&royalty->log, LOG_ERROR, what, error, NULL);
    return end(royalty, statuses[error->kind]);
}

/* Where a test asks for it; what follows the point has failed then. */
static bool end_at_crash_point(struct royalty *royalty, const char *what, const char *point) {
    struct error error;
    error_set(&error, ERROR_RETRY, "crash_point", "%s", point);
    return end_with(royalty, what, &error);
}

static bool end_with_library(struct royalty *royalty, const char *what, const struct lease_error *failure) {
    static const enum error_kind kinds[] = {[LEASE_ERROR_NONE] = ERROR_NONE, [LEASE_ERROR_RETRY] = ERROR_RETRY,
                                            [LEASE_ERROR_REJECT] = ERROR_REJECT, [LEASE_ERROR_FATAL] = ERROR_FATAL};
    struct error error;
    error_set(&error, kinds[failure->kind], failure->code, "%s", failure->message);
    return end_with(royalty, what, &error);
}

static bool end_with_answer(struct royalty *royalty, const char *what, enum lease_status status, const struct lease_error *failure) {
    if (status == LEASE_FAILED)
        return end_with_library(royalty, what, failure);
    if (status == LEASE_UNANSWERED) {
        log_write(&royalty->log, LOG_ERROR, what, "outcome", "unanswered", NULL);
        return end(royalty, EX_UNAVAILABLE);
    }
    const struct lease_answer *answer = lease_run_answer(royalty->run);
    const struct lease_blocker *by = &answer->held_by;
    log_write(&royalty->log, LOG_ERROR, what, "outcome", answer->outcome, "held_by", by->lease, "resource", by->resource, "holder",
              by->holder, "since", by->since, "until", by->until, NULL);
    return end(royalty, strcmp(answer->outcome, "final") == 0 ? EX_DATAERR : EX_TEMPFAIL);
}

static bool end_with_verdict(struct royalty *royalty, const char *what, enum royalty_verdict verdict) {
    static const struct {
        const char *name;
        int status;
    } verdicts[] = {[ROYALTY_STALE] = {"stale", EX_TEMPFAIL}, [ROYALTY_DIFFERS] = {"differs", EX_DATAERR},
                    [ROYALTY_ENDED] = {"ended", EX_DATAERR}, [ROYALTY_DONE] = {"done", EX_SOFTWARE}};
    log_write(&royalty->log, LOG_ERROR, what, "verdict", verdicts[verdict].name, NULL);
    return end(royalty, verdicts[verdict].status);
}

/* ---- stopping and waiting ---- */

void royalty_stop(struct royalty *royalty) {
    pthread_mutex_lock(&royalty->mutex);
    royalty->is_stopping = true;
    pthread_cond_broadcast(&royalty->stopping);
    pthread_mutex_unlock(&royalty->mutex);
}

/* False as soon as it is to stop. */
static bool pause_ms(struct royalty *royalty, int64_t ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nanoseconds = until.tv_nsec + ms % 1000 * 1000000;
    until.tv_sec += (time_t)(ms / 1000 + nanoseconds / 1000000000);
    until.tv_nsec = (long)(nanoseconds % 1000000000);
    pthread_mutex_lock(&royalty->mutex);
    int waited = 0;
    while (!royalty->is_stopping && waited == 0)
        waited = pthread_cond_timedwait(&royalty->stopping, &royalty->mutex, &until);
    bool may_go_on = !royalty->is_stopping;
    pthread_mutex_unlock(&royalty->mutex);
    return may_go_on;
}

/* Waiting for the database counts as progress: it has a bound of its own. */
static bool may_retry(void *context, const struct error *error, int attempt) {
    struct royalty *royalty = context;
    int64_t ms = RETRY_FIRST_MS << (attempt < 10 ? attempt - 2 : 8), most = royalty->settings->ttl_ms / 6;
    ms = ms < RETRY_MOST_MS ? ms : RETRY_MOST_MS;
    log_error(&royalty->log, LOG_WARNING, "database", error, "attempt", LOG_N(attempt), NULL);
    return attempt <= ATTEMPTS_MAX && pause_ms(royalty, ms < most ? ms : most) &&
           (royalty->run == NULL || lease_run_progress(royalty->run));
}

/* Before every chunk. */
static bool may_go_on(struct royalty *royalty) {
    bool is_mine = lease_run_progress(royalty->run);
    if (is_mine && pause_ms(royalty, 0))
        return true;
    log_write(&royalty->log, LOG_WARNING, "stopped before the next chunk", "because", is_mine ? "asked to" : "the lease is lost", "lines",
              LOG_N(royalty->lines), NULL);
    return end(royalty, EX_TEMPFAIL);
}

/* ---- what the library calls ---- */

static void on_lost(void *context, struct lease_run *run) {
    struct royalty *royalty = context;
    (void)run;
    log_write(&royalty->log, LOG_WARNING, "lease lost", "settlement", royalty->settings->settlement, NULL);
}

static void on_log(void *context, enum lease_log_level level, const char *text) {
    static const enum log_level levels[] = {LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR}; /* enum lease_log_level */
    struct royalty *royalty = context;
    log_write(&royalty->log, levels[level], "library", "text", text, NULL);
}

/* ---- start ---- */

static const char *next_contract(void *context, struct lease_error *ret_error) {
    static const enum lease_error_kind kinds[] = {[ERROR_NONE] = LEASE_ERROR_NONE, [ERROR_RETRY] = LEASE_ERROR_RETRY,
                                                  [ERROR_REJECT] = LEASE_ERROR_REJECT, [ERROR_FATAL] = LEASE_ERROR_FATAL};
    struct royalty *royalty = context;
    const struct contracts_listing *listing = &royalty->listing;
    const char *name = contracts_next(&royalty->listing);
    ret_error->kind = kinds[listing->error.kind];
    snprintf(ret_error->code, sizeof ret_error->code, "%s", listing->error.code);
    snprintf(ret_error->message, sizeof ret_error->message, "%s", listing->error.message);
    return name;
}

static bool make_client(struct royalty *royalty) {
    const struct royalty_settings *settings = royalty->settings;
    struct lease_client_options options;
    struct lease_error failure = {0};
    lease_client_options_init(&options);
    struct lease_property *properties = program_connect(&settings->common, &options.connection);
    options.connection.log = on_log;
    options.connection.log_context = royalty;
    options.kind = "settlement";
    options.name = settings->common.name;
    options.ttl_ms = (unsigned)settings->ttl_ms;
    bool is_made = lease_client_new(&options, &royalty->client, &failure);
    free(properties);
    return is_made || end_with_library(royalty, "client", &failure);
}

static bool start(struct royalty *royalty) {
    const struct royalty_settings *settings = royalty->settings;
    struct lease_run_options options;
    struct lease_error failure = {0};
    struct buf payload = BUF_INIT;
    buf_appendf(&payload, "{\"period\":\"%s\"}", settings->period);
    lease_run_options_init(&options);
    options.lease = settings->settlement;
    options.payload = buf_text(&payload);
    options.lost = on_lost;
    options.context = royalty;
    options.resources = (const char *const *)royalty->contracts.names;
    options.resource_count = royalty->contracts.count;
    if (royalty->contracts.count == 0) {
        royalty->listing.store = royalty->store;
        options.next = next_contract;
        options.tables = contract_types;
        options.table_count = CONTRACT_TYPES;
    }
    enum lease_status status = lease_run_start(royalty->client, &options, (unsigned)settings->answer_ms, &royalty->run, &failure);
    contracts_listing_release(&royalty->listing);
    buf_release(&payload);
    if (status != LEASE_ACCEPTED)
        return end_with_answer(royalty, "not started", status, &failure);
    const struct lease_grant *grant = lease_run_grant(royalty->run);
    royalty->grant = (struct royalty_grant){.settlement = settings->settlement, .fence = grant->fence, .claim_id = grant->claim_id};
    log_write(&royalty->log, LOG_INFO, "started", "settlement", settings->settlement, "fence", LOG_N(grant->fence), "holder", grant->holder,
              NULL);
    return true;
}

/* ---- compute ---- */

/* The complete lines: what they come to is written behind the gate. */
static bool write_lines(struct royalty *royalty, const char *type) {
    struct tally_line *lines = royalty->tally.lines;
    size_t count = tally_complete(&royalty->tally);
    enum royalty_verdict verdict = ROYALTY_DONE;
    struct error error = {0};
    if (count == 0)
        return true;
    if (!royalty_store_share(royalty->store, type, lines, count, &error))
        return end_with(royalty, "rates", &error);
    for (size_t i = 0; i < count; i++)
        if (!money_add(&royalty->total, lines[i].royalty)) {
            error_set(&error, ERROR_REJECT, "royalty_overflow", "the total is too large");
            return end_with(royalty, "total", &error);
        }
    if (CRASH_POINT("royalty.computed"))
        return end_at_crash_point(royalty, "lines", "royalty.computed");
    if (!royalty_store_write(royalty->store, &royalty->grant, type, lines, count, &verdict, &error))
        return end_with(royalty, "lines", &error);
    if (verdict != ROYALTY_DONE)
        return end_with_verdict(royalty, "lines", verdict);
    royalty->lines += (int64_t)count;
    tally_drop_complete(&royalty->tally);
    if (CRASH_POINT("royalty.written"))
        return end_at_crash_point(royalty, "sales", "royalty.written");
    return true;
}

static bool add_sales(struct royalty *royalty, const struct royalty_rows *rows, size_t count, struct royalty_place *place) {
    struct error error = {0};
    for (size_t i = 0; i < count; i++) {
        struct royalty_sale sale = royalty_rows_sale(rows, i);
        if (!tally_add(&royalty->tally, sale.contract, sale.work, sale.amount, &error))
            return end_with(royalty, "sum", &error);
        if (i + 1 == count) {
            snprintf(place->contract, sizeof place->contract, "%s", sale.contract);
            place->work = sale.work;
            place->number = sale.number;
        }
    }
    return true;
}

/* One sale more than a chunk is read, to see whether its last work goes on behind it. */
static bool compute_chunk(struct royalty *royalty, const char *contracts, struct royalty_place *place, bool *ret_is_last) {
    const size_t most = (size_t)royalty->settings->chunk_sales;
    struct royalty_rows *rows = NULL;
    struct error error = {0};
    if (!may_go_on(royalty))
        return false;
    if (!royalty_store_sales(royalty->store, royalty->settings->period, contracts, place, (int32_t)most + 1, &rows, &error))
        return end_with(royalty, "sales", &error);
    size_t count = royalty_rows_count(rows);
    *ret_is_last = count <= most;
    bool is_done = add_sales(royalty, rows, *ret_is_last ? count : most, place);
    struct royalty_sale beyond = *ret_is_last ? (struct royalty_sale){0} : royalty_rows_sale(rows, most);
    if (*ret_is_last || !tally_continues(&royalty->tally, beyond.contract, beyond.work))
        tally_close(&royalty->tally);
    royalty_rows_free(rows);
    return is_done && write_lines(royalty, place->type);
}

static bool compute_type(struct royalty *royalty, struct royalty_place *place) {
    char *contracts = contracts_join(&royalty->contracts, place->type);
    bool is_last = !contracts_have(&royalty->contracts, place->type), is_done = true;
    while (is_done && !is_last)
        is_done = compute_chunk(royalty, contracts, place, &is_last);
    free(contracts);
    return is_done;
}

static bool compute(struct royalty *royalty, const struct royalty_place *behind) {
    for (size_t i = 0; i < CONTRACT_TYPES; i++) {
        struct royalty_place place = {.number = 0};
        int order = strcmp(contract_types[i], behind->type);
        if (order < 0)
            continue;
        if (order == 0)
            place = *behind;
        snprintf(place.type, sizeof place.type, "%s", contract_types[i]);
        if (!compute_type(royalty, &place))
            return false;
    }
    return true;
}

static bool begin_and_compute(struct royalty *royalty) {
    const struct royalty_settings *settings = royalty->settings;
    char *contracts = contracts_join(&royalty->contracts, NULL);
    enum royalty_verdict verdict = ROYALTY_DONE;
    struct royalty_begun begun = {0};
    struct error error = {0};
    bool is_done = royalty_store_begin(royalty->store, &royalty->grant, settings->period, contracts, &verdict, &begun, &error);
    free(contracts);
    if (!is_done)
        return end_with(royalty, "begin", &error);
    if (verdict != ROYALTY_DONE)
        return end_with_verdict(royalty, "begin", verdict);
    royalty->lines = begun.lines;
    royalty->total = begun.total;
    if (begun.lines > 0)
        log_write(&royalty->log, LOG_INFO, "going on", "lines", LOG_N(begun.lines), "type", begun.behind.type, "contract",
                  begun.behind.contract, "work", LOG_N(begun.behind.work), NULL);
    return compute(royalty, &begun.behind);
}

/* ---- close and finish ---- */

static bool close_it(struct royalty *royalty) {
    enum royalty_verdict verdict = ROYALTY_DONE;
    struct error error = {0};
    if (!may_go_on(royalty))
        return false;
    if (!royalty_store_close(royalty->store, &royalty->grant, royalty->lines, royalty->total, &verdict, &error))
        return end_with(royalty, "close", &error);
    if (CRASH_POINT("royalty.closed"))
        return end_at_crash_point(royalty, "finish", "royalty.closed");
    return verdict == ROYALTY_DONE || end_with_verdict(royalty, "close", verdict);
}

static void print(const struct royalty *royalty, const char *basis) {
    char total[MONEY_TEXT_SIZE];
    printf("{\"settlement\":\"%s\",\"fence\":%" PRId64 ",\"lines\":%" PRId64 ",\"total\":\"%s\",\"basis\":%s%s%s}\n",
           royalty->settings->settlement, royalty->grant.fence, royalty->lines, money_format(total, royalty->total),
           basis != NULL ? "\"" : "", basis != NULL ? basis : "null", basis != NULL ? "\"" : "");
    fflush(stdout);
}

static bool note_basis(struct royalty *royalty, const char *basis) {
    enum royalty_verdict verdict = ROYALTY_DONE;
    struct error error = {0};
    print(royalty, basis);
    if (!royalty_store_note_basis(royalty->store, &royalty->grant, basis, &verdict, &error))
        return end_with(royalty, "basis", &error);
    if (verdict != ROYALTY_DONE)
        return end_with_verdict(royalty, "basis", verdict);
    if (basis == NULL || strcmp(basis, "changed") != 0)
        return end(royalty, EX_OK);
    log_write(&royalty->log, LOG_ERROR, "the base data was changed while nobody held it: settle anew, under another name", NULL);
    return end(royalty, EX_DATAERR);
}

static bool finish(struct royalty *royalty) {
    char total[MONEY_TEXT_SIZE];
    struct lease_error failure = {0};
    struct buf result = BUF_INIT;
    buf_appendf(&result, "{\"lines\":%" PRId64 ",\"total\":\"%s\"}", royalty->lines, money_format(total, royalty->total));
    enum lease_status status = lease_run_finish(royalty->run, buf_text(&result), (unsigned)royalty->settings->answer_ms, &failure);
    buf_release(&result);
    if (status != LEASE_ACCEPTED)
        return end_with_answer(royalty, "not finished", status, &failure);
    const char *basis = lease_run_answer(royalty->run)->basis;
    log_write(&royalty->log, LOG_INFO, "finished", "lines", LOG_N(royalty->lines), "total", money_format(total, royalty->total), "basis",
              basis, NULL);
    return note_basis(royalty, basis);
}

int royalty_run(struct royalty *royalty) {
    struct error error = {0};
    log_write(&royalty->log, LOG_INFO, "starting", "version", LEASE_VERSION, "settlement", royalty->settings->settlement, "period",
              royalty->settings->period, NULL);
    if (!contracts_parse(&royalty->contracts, royalty->settings->contracts, &error) ||
        !royalty_store_check(royalty->store, &error))
        end_with(royalty, "not started", &error);
    else if (make_client(royalty) && start(royalty) && begin_and_compute(royalty) && close_it(royalty))
        finish(royalty);
    return royalty->status;
}

/* ---- life ---- */

struct royalty *royalty_new(const struct royalty_settings *settings) {
    struct royalty *royalty = memory_alloc(sizeof *royalty);
    pthread_condattr_t attributes;
    royalty->settings = settings;
    log_init(&royalty->log, STDERR_FILENO, (enum log_format)settings->common.log_format, (enum log_level)settings->common.log_level);
    royalty->store = royalty_store_new(settings->royalty_database, settings->ttl_ms / 3, may_retry, royalty);
    pthread_mutex_init(&royalty->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&royalty->stopping, &attributes);
    pthread_condattr_destroy(&attributes);
    return royalty;
}

/* A lease that is still held is given back. */
void royalty_free(struct royalty *royalty) {
    if (royalty == NULL)
        return;
    lease_run_free(royalty->run);
    lease_client_free(royalty->client);
    royalty_store_free(royalty->store);
    contracts_release(&royalty->contracts);
    tally_release(&royalty->tally);
    pthread_cond_destroy(&royalty->stopping);
    pthread_mutex_destroy(&royalty->mutex);
    log_release(&royalty->log);
    free(royalty);
}
