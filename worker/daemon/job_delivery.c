/* Kind delivery: one post per attempt, and what becomes of the item; see daemon.h. Runs in the library's threads. */
#include "worker/daemon/daemon_private.h"

#include "common/buf.h"
#include "common/crash.h"
#include "worker/effects/delivery.h"

#include <stdio.h>

static bool start(struct daemon *daemon, struct error *error) {
    const struct delivery_options options = {
        .url = daemon->settings->delivery_url,
        .authorization = daemon->settings->delivery_authorization,
        .timeout_ms = daemon->settings->delivery_timeout_ms,
        .is_mine = daemon_item_is_mine,
    };
    return daemon->delivery != NULL || delivery_new(&options, &daemon->delivery, error);
}

static void release(struct daemon *daemon) {
    delivery_free(daemon->delivery);
}

static void report(struct daemon *daemon, struct lease_item *item, const struct delivery_outcome *outcome) {
    const struct lease_grant *grant = lease_item_grant(item);
    log_write(&daemon->log, outcome->verdict == DELIVERY_DONE ? LOG_DEBUG : LOG_WARNING, "delivery", "item", grant->lease, "fence",
              LOG_N(grant->fence), "status", LOG_N(outcome->status), "reason", outcome->reason, NULL);
    char result[48];
    switch (outcome->verdict) {
    case DELIVERY_DONE:
        snprintf(result, sizeof result, "{\"status\":%ld}", outcome->status);
        CRASH_POINT("worker.delivered");
        lease_item_finish(item, result);
        break;
    case DELIVERY_RETRY:
        lease_item_fail(item, outcome->reason, true, outcome->delay_ms);
        break;
    case DELIVERY_REFUSED:
        lease_item_fail(item, outcome->reason, false, -1);
        break;
    case DELIVERY_LOST:
        break;
    }
}

static void work(struct daemon *daemon, struct lease_item *item) {
    const struct lease_grant *grant = lease_item_grant(item);
    const struct delivery_message message = {
        .kind = grant->kind,
        .item = grant->lease,
        .fence = grant->fence,
        .claim_id = grant->claim_id,
        .attempt = grant->attempt,
        .payload = grant->payload,
        .payload_size = grant->payload_size,
    };
    struct delivery_outcome outcome;
    if (CRASH_POINT("worker.sending"))
        outcome = (struct delivery_outcome){.verdict = DELIVERY_RETRY, .delay_ms = -1, .reason = "crash_point"};
    else
        delivery_run(daemon->delivery, &message, item, &outcome);
    report(daemon, item, &outcome);
}

const struct job job_delivery = {.start = start, .work = work, .release = release};
