/* Kind cleanup: the file effect, and what becomes of the item; see daemon.h. Runs in the library's threads. */
#include "worker/daemon/daemon_private.h"

#include "common/backoff.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"
#include "worker/effects/file_effect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Between two tries of an item whose database or disk is away. */
enum { RETRY_FIRST_MS = 50, RETRY_MOST_MS = 2000 };

static bool start(struct daemon *daemon, struct error *error) {
    if (daemon->root == NULL && !file_root_open(daemon->settings->file_root, &daemon->root, error))
        return false;
    if (daemon->store == NULL)
        daemon->store = file_store_new(daemon->settings->file_database, "lease-worker", daemon->settings->ttl_ms / 3);
    return file_store_check(daemon->store, error);
}

static void release(struct daemon *daemon) {
    file_store_free(daemon->store);
    file_root_free(daemon->root);
}

static void finish(struct lease_item *item, const struct file_outcome *outcome) {
    struct buf result = BUF_INIT;
    buf_appendf(&result, "{\"file\":\"%s\",\"bytes\":%" PRId64 ",\"settled_by\":%" PRId64 "}",
                file_verdict_name(outcome->verdict), outcome->bytes, outcome->settled_by);
    CRASH_POINT("worker.done");
    lease_item_finish(item, buf_text(&result));
    buf_release(&result);
}

static void report(struct daemon *daemon, struct lease_item *item, const struct file_outcome *outcome) {
    const struct lease_grant *grant = lease_item_grant(item);
    log_write(&daemon->log, outcome->verdict == FILE_REMOVED ? LOG_DEBUG : LOG_WARNING, "file", "verdict",
              file_verdict_name(outcome->verdict), "file", grant->lease, "fence", LOG_N(grant->fence), NULL);
    switch (outcome->verdict) {
    case FILE_REMOVED:
    case FILE_MISSING:
        finish(item, outcome);
        break;
    case FILE_UNKNOWN:
        lease_item_fail(item, "the file server has no such file", false, -1);
        break;
    case FILE_STALE:
        lease_item_fail(item, "the gate has seen a higher fence", true, -1);
        break;
    case FILE_LOST:
        break;
    }
}

static void report_error(struct daemon *daemon, struct lease_item *item, const struct error *error) {
    const struct lease_grant *grant = lease_item_grant(item);
    log_error(&daemon->log, LOG_WARNING, "file", error, "file", grant->lease, "fence", LOG_N(grant->fence), NULL);
    if (error->kind == ERROR_REJECT) {
        /* What is denied may be permitted by the next attempt; the rest will not change. */
        lease_item_fail(item, error->message, strcmp(error->code, "file_denied") == 0, -1);
        return;
    }
    lease_item_release(item);
    if (error->kind == ERROR_FATAL)
        daemon_fail(daemon, error);
}

/* False: the time is up, the lease is lost or the daemon is to stop. */
static bool wait_for_another_try(struct daemon *daemon, struct lease_item *item, struct backoff *backoff, int64_t deadline_ms) {
    int64_t ms = backoff_next_ms(backoff), most = daemon->settings->ttl_ms / 6; /* well within what is a pause of progress */
    if (clock_monotonic_us() / 1000 + ms > deadline_ms)
        return false;
    return daemon_pause(daemon, ms < most ? ms : most) && lease_item_progress(item);
}

static void work(struct daemon *daemon, struct lease_item *item) {
    const struct file_effect effect = {.root = daemon->root, .store = daemon->store, .is_mine = daemon_item_is_mine};
    const struct lease_grant *granted = lease_item_grant(item);
    const struct file_grant grant = {.file = granted->lease, .fence = granted->fence, .claim_id = granted->claim_id};
    const int64_t deadline_ms = clock_monotonic_us() / 1000 + daemon->settings->patience_ms;
    struct file_outcome outcome;
    struct error error = {0};
    struct backoff backoff;
    backoff_init(&backoff, RETRY_FIRST_MS, RETRY_MOST_MS, (uint64_t)granted->fence);
    CRASH_POINT("worker.granted");
    while (!file_effect_run(&effect, &grant, item, &outcome, &error))
        if (error.kind != ERROR_RETRY || !wait_for_another_try(daemon, item, &backoff, deadline_ms)) {
            report_error(daemon, item, &error);
            return;
        }
    report(daemon, item, &outcome);
}

const struct job job_cleanup = {.start = start, .work = work, .release = release};
