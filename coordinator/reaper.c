/* A thread that turns lapsed leases over; see reaper.h. */
#include "coordinator/reaper.h"

#include "common/backoff.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"
#include "common/db.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    HOUSEKEEP_MS = 60 * 1000,
    DEADLINE_MS = 20 * 1000,
    STATEMENT_MS = 10 * 1000, /* ends what a user's trigger does in an edit or a start, in time for its answer to be heard */
    HOUSEKEEP_DEADLINE_MS = 120 * 1000, /* dropping a partition may wait for a reader */
    SKIPPED_US = 5000, /* a lapse that is due and was not turned over is in another's hands: look again then */
    RETRY_BASE_MS = 20,
    RETRY_MAXIMUM_MS = 2000,
    LINE_LIMIT = 20,  /* starts in one transaction: each may stamp 10,000 rows */
    EDITS_LIMIT = 500,
    SERVE_ROUNDS = 10, /* of each, before the next look at lapses */
};

struct reaper {
    struct reaper_options options;
    struct db *db;
    struct backoff backoff;
    int64_t lost_at_ms;
    int64_t offset_us;   /* database clock − monotonic clock, as last seen */
    int64_t next_us;     /* database time of the earliest lapse known; INT64_MAX: none */
    int64_t looked_ms;   /* monotonic */
    int64_t housekept_ms;
    uint64_t findings;   /* a sum over what was last told of guarded tables */
    _Atomic int64_t noted_us; /* earliest expiry that lanes told since the last look */
    _Atomic bool is_stopping;
    int wake_fd;
    pthread_t thread;
};

static int64_t now_ms(void) {
    return clock_monotonic_us() / 1000;
}

static void wake(struct reaper *reaper) {
    const uint64_t one = 1;
    ssize_t written = write(reaper->wake_fd, &one, sizeof one);
    (void)written; /* full means that it is awake anyway */
}

void reaper_note(struct reaper *reaper, int64_t expiry_us) {
    int64_t known = atomic_load(&reaper->noted_us);
    while (expiry_us < known)
        if (atomic_compare_exchange_weak(&reaper->noted_us, &known, expiry_us)) {
            wake(reaper);
            return;
        }
}

int64_t reaper_parse_payload(const char *payload) {
    const char *space = strchr(payload, ' ');
    char *end;
    if (space == NULL || space[1] == '\0')
        return INT64_MAX;
    errno = 0;
    long long ms = strtoll(space + 1, &end, 10);
    if (errno != 0 || *end != '\0' || ms <= 0 || ms > INT64_MAX / 1000)
        return INT64_MAX;
    return (int64_t)ms * 1000;
}

int64_t reaper_next_look(int looked, int turned, int64_t next_us, int64_t now_us) {
    if (looked >= REAPER_LIMIT)
        return INT64_MIN;
    return turned == 0 && next_us <= now_us ? now_us + SKIPPED_US : next_us;
}

/* ---- the connection ---- */

static void drop_connection(struct reaper *reaper) {
    if (reaper->db != NULL)
        reaper->lost_at_ms = now_ms();
    db_free(reaper->db);
    reaper->db = NULL;
}

static bool open_connection(struct reaper *reaper, struct error *error) {
    if (db_is_usable(reaper->db))
        return true;
    drop_connection(reaper);
    const struct db_options options = {
        .conninfo = reaper->options.database,
        .application_name = reaper->options.application_name,
        .connect_ms = 3000,
        .deadline_ms = DEADLINE_MS,
        .statement_timeout_ms = STATEMENT_MS,
        .idle_in_transaction_ms = reaper->options.idle_in_transaction_ms,
    };
    reaper->next_us = INT64_MIN; /* whatever was known, others may have granted since */
    if (!db_connect(&options, &reaper->db, error))
        return false;
    if (reaper->options.admit(reaper->options.admit_context, reaper->db, reaper->lost_at_ms, error) &&
        db_execute(reaper->db, "LISTEN lease_journal", error))
        return true;
    db_free(reaper->db); /* not admitted: nothing may be done on it */
    reaper->db = NULL;
    return false;
}

/* ---- one look ---- */

static const char reap_sql[] = "SELECT turned, granted, next_check, now, looked, has_line, has_edits FROM lease.reap($1)";

struct look {
    int turned, granted;
    int looked; /* at how many due leases, turned over or not */
    int64_t next_us, now_us;
    bool has_line;  /* starts wait for what others hold */
    bool has_edits; /* edits are parked, or asked for in SQL */
};

static bool reap_in_transaction(struct reaper *reaper, void *ret, struct error *error) {
    struct look *ret_look = ret;
    struct db_params params;
    struct db_result *rows = NULL;
    db_params_init(&params);
    db_param_int4(&params, REAPER_LIMIT);
    bool is_good = db_query(reaper->db, "reap", reap_sql, &params, &rows, error);
    db_params_release(&params);
    if (!is_good)
        return false;
    ret_look->turned = db_int4(rows, 0, 0);
    ret_look->granted = db_int4(rows, 0, 1);
    ret_look->next_us = db_is_null(rows, 0, 2) ? INT64_MAX : db_timestamptz(rows, 0, 2);
    ret_look->now_us = db_timestamptz(rows, 0, 3);
    ret_look->looked = db_int4(rows, 0, 4);
    ret_look->has_line = db_bool(rows, 0, 5);
    ret_look->has_edits = db_bool(rows, 0, 6);
    db_result_free(rows);
    if (ret_look->looked > 0 && CRASH_POINT("reaper.picked"))
        return error_set(error, ERROR_RETRY, "crash_point", "reaper.picked");
    return true;
}

static bool in_transaction(struct reaper *reaper, bool (*step)(struct reaper *reaper, void *ret, struct error *error), void *ret,
                           struct error *error) {
    if (!db_begin(reaper->db, error))
        return false;
    if (!step(reaper, ret, error)) {
        struct error ignored = {0};
        if (!db_rollback(reaper->db, &ignored))
            drop_connection(reaper);
        return false;
    }
    /* A commit in doubt needs no answer here: what was turned over, or not, is seen at the next look. */
    return db_commit(reaper->db, error) == COMMIT_DONE;
}

/* What waits for the end of a lease, and how many of it are tried at once. `sql` returns how many it answered, and at how many it looked. */
struct waiting {
    const char *name, *sql;
    int limit;
    int served, looked;
};

static bool serve_in_transaction(struct reaper *reaper, void *ret, struct error *error) {
    struct waiting *waiting = ret;
    struct db_params params;
    struct db_result *rows = NULL;
    db_params_init(&params);
    db_param_int4(&params, waiting->limit);
    bool is_good = db_query(reaper->db, waiting->name, waiting->sql, &params, &rows, error);
    db_params_release(&params);
    if (is_good) {
        waiting->served = db_int4(rows, 0, 0);
        waiting->looked = db_int4(rows, 0, 1);
    }
    db_result_free(rows);
    return is_good;
}

/* Whoever was served may have made way for others, and behind as many as were looked at there may be more that are due. */
static bool may_be_more(const struct waiting *waiting) {
    return waiting->served > 0 || waiting->looked >= waiting->limit;
}

/* Tries them while that gets on. Not for ever: lapses wait for us too. */
static bool serve(struct reaper *reaper, struct waiting waiting, struct error *error) {
    for (int rounds = 0; rounds < SERVE_ROUNDS; rounds++) {
        if (!in_transaction(reaper, serve_in_transaction, &waiting, error))
            return false;
        if (waiting.served > 0)
            reaper->options.events.reaped(reaper->options.events.context, 0, waiting.served, 0);
        if (!may_be_more(&waiting))
            return true;
    }
    reaper->next_us = INT64_MIN;
    return true;
}

static bool serve_line(struct reaper *reaper, struct error *error) {
    return serve(reaper, (struct waiting){"serve_line", "SELECT served, tried FROM lease.serve_line($1)", LINE_LIMIT, 0, 0}, error);
}

static bool serve_edits(struct reaper *reaper, struct error *error) {
    return serve(reaper, (struct waiting){"serve_edits", "SELECT served, tried FROM lease.serve_edits($1)", EDITS_LIMIT, 0, 0}, error);
}

static bool look_once(struct reaper *reaper, struct error *error) {
    struct look found = {0};
    atomic_store(&reaper->noted_us, INT64_MAX);
    int64_t due_us = reaper->next_us;
    if (!in_transaction(reaper, reap_in_transaction, &found, error))
        return false;
    reaper->looked_ms = now_ms();
    reaper->offset_us = found.now_us - clock_monotonic_us();
    reaper->next_us = reaper_next_look(found.looked, found.turned, found.next_us, found.now_us);
    reaper->options.events.looked(reaper->options.events.context);
    if (found.turned > 0 || found.granted > 0) {
        int64_t late_us = due_us > 0 && due_us < found.now_us ? found.now_us - due_us : 0;
        reaper->options.events.reaped(reaper->options.events.context, found.turned, found.granted, late_us);
    }
    return (!found.has_line || serve_line(reaper, error)) && (!found.has_edits || serve_edits(reaper, error));
}

/* ---- guarded tables ---- */

static const char findings_sql[] =
    "SELECT coalesce(type, ''), table_name, code, finding, remedy, stops_starts FROM lease.guard_findings ORDER BY table_name, code, finding LIMIT 200";

static uint64_t add_to_sum(uint64_t sum, const char *text) {
    for (; *text != '\0'; text++)
        sum = (sum ^ (unsigned char)*text) * UINT64_C(1099511628211); /* FNV-1a */
    return sum;
}

static uint64_t sum_of(const struct db_result *rows) {
    uint64_t sum = UINT64_C(14695981039346656037);
    for (size_t row = 0; row < db_rows(rows); row++)
        for (size_t column = 0; column < 4; column++)
            sum = add_to_sum(sum, db_text(rows, row, column, NULL));
    return db_rows(rows) > 0 ? sum : 0;
}

/* Says what is wrong with guarded tables, or with one that should be guarded: at the start, and when it has changed. */
static bool look_at_guards(struct reaper *reaper, struct error *error) {
    struct db_result *rows = NULL;
    int stopping = 0;
    if (!db_query(reaper->db, "guard_findings", findings_sql, NULL, &rows, error))
        return false;
    bool is_news = sum_of(rows) != reaper->findings;
    for (size_t row = 0; row < db_rows(rows); row++) {
        stopping += db_bool(rows, row, 5);
        if (is_news)
            log_write(reaper->options.log, LOG_WARNING, "guard", "code", db_text(rows, row, 2, NULL), "table", db_text(rows, row, 1, NULL), "type",
                      db_text(rows, row, 0, NULL), "finding", db_text(rows, row, 3, NULL), "remedy", db_text(rows, row, 4, NULL), NULL);
    }
    reaper->findings = sum_of(rows);
    reaper->options.events.guarded(reaper->options.events.context, stopping, (int)db_rows(rows) - stopping);
    db_result_free(rows);
    return true;
}

/* ---- once a minute ---- */

static bool limit_statements(struct reaper *reaper, int ms, struct error *error) {
    struct buf sql = BUF_INIT;
    buf_appendf(&sql, "SET statement_timeout = %d", ms);
    bool is_good = db_execute(reaper->db, buf_text(&sql), error);
    buf_release(&sql);
    return is_good;
}

static bool housekeep_when_due(struct reaper *reaper, struct error *error) {
    if (now_ms() < reaper->housekept_ms + HOUSEKEEP_MS)
        return true;
    reaper->housekept_ms = now_ms();
    if (!limit_statements(reaper, HOUSEKEEP_DEADLINE_MS, error))
        return false;
    db_set_deadline(reaper->db, HOUSEKEEP_DEADLINE_MS);
    bool is_good = db_execute(reaper->db, "SELECT lease.housekeep()", error);
    db_set_deadline(reaper->db, DEADLINE_MS);
    if (!is_good) {
        drop_connection(reaper); /* it has another limit than it should */
        return false;
    }
    return limit_statements(reaper, STATEMENT_MS, error) && look_at_guards(reaper, error);
}

/* ---- between two looks ---- */

static int64_t ms_until_next_look(const struct reaper *reaper) {
    int64_t poll_left_ms = reaper->looked_ms + reaper->options.poll_ms - now_ms();
    int64_t noted_us = atomic_load(&reaper->noted_us);
    int64_t next_us = noted_us < reaper->next_us ? noted_us : reaper->next_us;
    if (next_us == INT64_MIN || poll_left_ms <= 0)
        return 0;
    if (next_us == INT64_MAX)
        return poll_left_ms;
    int64_t left_us = next_us - (clock_monotonic_us() + reaper->offset_us);
    if (left_us <= 0)
        return 0;
    int64_t left_ms = (left_us + 999) / 1000;
    return left_ms < poll_left_ms ? left_ms : poll_left_ms;
}

static void clear_wake(struct reaper *reaper) {
    uint64_t count;
    ssize_t size = read(reaper->wake_fd, &count, sizeof count);
    (void)size;
}

/* Until it is time for the next look. False when the connection is lost. */
static bool wait_for_next_look(struct reaper *reaper, struct error *error) {
    for (;;) {
        int64_t left_ms = ms_until_next_look(reaper);
        struct db_notification notification;
        if (left_ms <= 0 || atomic_load(&reaper->is_stopping))
            return true;
        switch (db_wait(reaper->db, (int)left_ms, reaper->wake_fd, &notification, error)) {
        case DB_WAIT_NOTIFIED: {
            int64_t expiry_us = reaper_parse_payload(notification.payload);
            if (expiry_us < reaper->next_us)
                reaper->next_us = expiry_us;
            break;
        }
        case DB_WAIT_WOKEN:
            clear_wake(reaper);
            break;
        case DB_WAIT_TIMEOUT:
            break;
        case DB_WAIT_LOST:
            return false;
        }
    }
}

static void wait_before_retry(struct reaper *reaper, const struct error *error) {
    reaper->options.events.retries(reaper->options.events.context, error);
    int64_t until_ms = now_ms() + backoff_next_ms(&reaper->backoff);
    for (int64_t left; !atomic_load(&reaper->is_stopping) && (left = until_ms - now_ms()) > 0;) {
        struct pollfd slot = {.fd = reaper->wake_fd, .events = POLLIN};
        if (poll(&slot, 1, (int)left) > 0)
            clear_wake(reaper);
    }
}

static bool turn(struct reaper *reaper, struct error *error) {
    return open_connection(reaper, error) && look_once(reaper, error) && housekeep_when_due(reaper, error) &&
           wait_for_next_look(reaper, error);
}

static void *reaper_main(void *argument) {
    struct reaper *reaper = argument;
    while (!atomic_load(&reaper->is_stopping)) {
        struct error error = {0};
        if (turn(reaper, &error)) {
            backoff_reset(&reaper->backoff);
            continue;
        }
        if (error.kind == ERROR_FATAL) {
            reaper->options.events.failed(reaper->options.events.context, &error);
            break;
        }
        if (!db_is_usable(reaper->db) || strcmp(error.code, "LE001") == 0)
            drop_connection(reaper);
        wait_before_retry(reaper, &error);
    }
    drop_connection(reaper);
    return NULL;
}

struct reaper *reaper_new(const struct reaper_options *options) {
    struct reaper *reaper = memory_alloc(sizeof *reaper);
    reaper->options = *options;
    reaper->next_us = INT64_MIN;
    reaper->housekept_ms = now_ms() - HOUSEKEEP_MS; /* once at the start */
    atomic_init(&reaper->noted_us, INT64_MAX);
    atomic_init(&reaper->is_stopping, false);
    backoff_init(&reaper->backoff, RETRY_BASE_MS, RETRY_MAXIMUM_MS, (uint64_t)clock_monotonic_us());
    reaper->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    memory_or_exit(reaper->wake_fd < 0 ? NULL : reaper);
    int failed = pthread_create(&reaper->thread, NULL, reaper_main, reaper);
    if (failed == 0)
        pthread_setname_np(reaper->thread, "reaper");
    memory_or_exit(failed != 0 ? NULL : reaper);
    return reaper;
}

void reaper_free(struct reaper *reaper) {
    if (reaper == NULL)
        return;
    atomic_store(&reaper->is_stopping, true);
    wake(reaper);
    pthread_join(reaper->thread, NULL);
    close(reaper->wake_fd);
    free(reaper);
}
