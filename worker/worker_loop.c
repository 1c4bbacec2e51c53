/* A pool worker's own thread: reads, sends what is due, calls back. Everything that waits has a moment at which it is looked
 * at again, so the thread sleeps until the first of them, or a record, or somebody who wakes it. */
#include "worker/worker_private.h"

#include <stdlib.h>

/* READ_MAX: records taken before it is sent again. SLEEP_MAX_MS: bounds an error in the reckoning of what is due. */
enum { READ_MAX = 2000, SLEEP_MAX_MS = 1000 };

void calls_init(struct calls *calls, struct lease_worker *worker) {
    TAILQ_INIT(&calls->lost);
    TAILQ_INIT(&calls->settled);
    calls->worker = worker;
}

static void call_done(struct calls *calls, struct lease_item *item) {
    pthread_mutex_lock(&calls->worker->lock);
    item_unref(item);
    pthread_mutex_unlock(&calls->worker->lock);
}

/* Losses first: they are the ones that cannot wait. */
void calls_make(struct calls *calls) {
    struct lease_worker *worker = calls->worker;
    struct lease_item *item;
    while ((item = TAILQ_FIRST(&calls->lost)) != NULL) {
        TAILQ_REMOVE(&calls->lost, item, lost_call);
        if (worker->lost)
            worker->lost(worker->context, item);
        call_done(calls, item);
    }
    while ((item = TAILQ_FIRST(&calls->settled)) != NULL) {
        TAILQ_REMOVE(&calls->settled, item, settled_call);
        if (worker->settled)
            worker->settled(worker->context, &item->grant, item->is_answered ? item->outcome : NULL);
        call_done(calls, item);
    }
}

static void take_record(struct lease_worker *worker, enum link_got got, const struct message *record, struct calls *calls) {
    if (got == LINK_GRANT)
        worker_take_grant(worker, record, calls);
    else if (got == LINK_RESULT)
        worker_take_result(worker, record, calls);
}

static void read_records(struct lease_worker *worker, int timeout_ms, struct calls *calls) {
    struct message record;
    enum link_got got = link_poll(worker->link, timeout_ms, &record);
    pthread_mutex_lock(&worker->lock);
    worker->sleep_until_us = 0; /* awake: nobody need wake us */
    pthread_mutex_unlock(&worker->lock);
    for (int i = 1; got != LINK_NOTHING; i++) {
        take_record(worker, got, &record, calls);
        if (i == READ_MAX)
            break;
        got = link_poll(worker->link, 0, &record);
    }
    pthread_mutex_lock(&worker->lock);
    worker_announce(worker);
    pthread_mutex_unlock(&worker->lock);
}

static int sleep_ms(int64_t next_us) {
    int64_t ms = (next_us - hold_clock_us() + 999) / 1000;
    return ms < 0 ? 0 : ms > SLEEP_MAX_MS ? SLEEP_MAX_MS : (int)ms;
}

static bool is_over(struct lease_worker *worker) {
    pthread_mutex_lock(&worker->lock);
    bool is = worker->is_over;
    pthread_mutex_unlock(&worker->lock);
    return is;
}

/* Nobody works any more: what was never answered is given up, after a last try. */
static void leave(struct lease_worker *worker) {
    enum { LAST_MS = 1000 };
    struct calls calls;
    struct lease_item *item;
    calls_init(&calls, worker);
    pthread_mutex_lock(&worker->lock);
    while ((item = TAILQ_FIRST(&worker->ready)) != NULL)
        worker_give_back(worker, item, hold_clock_us());
    pthread_mutex_unlock(&worker->lock);
    worker_send_last(worker, &calls);
    link_flush(worker->link, LAST_MS);
    while (!TAILQ_EMPTY(&worker->sent))
        worker_forget(worker, TAILQ_FIRST(&worker->sent));
    pthread_mutex_lock(&worker->lock);
    while ((item = TAILQ_FIRST(&worker->hand)) != NULL) {
        worker->stats.unanswered++;
        worker_settle(worker, item, NULL, &calls);
    }
    pthread_mutex_unlock(&worker->lock);
    calls_make(&calls);
}

void *worker_loop(void *context) {
    struct lease_worker *worker = context;
    int64_t next_us = 0;
    while (!is_over(worker)) {
        struct calls calls;
        calls_init(&calls, worker);
        read_records(worker, sleep_ms(next_us), &calls);
        next_us = worker_send(worker, &calls);
        calls_make(&calls);
    }
    leave(worker);
    return NULL;
}
