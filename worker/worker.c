/* A pool worker's handle, the threads that call `work`, and what they may ask of an item. Public functions; any thread. */
#include "worker/worker_private.h"

#include "common/buf.h"
#include "common/event.h"
#include "worker/options.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- items: where they are; under the lock ---- */

void worker_unqueue(struct lease_worker *worker, struct lease_item *item) {
    if (item->state == ITEM_READY)
        TAILQ_REMOVE(&worker->ready, item, queue);
    if (item->state == ITEM_DECIDED) {
        TAILQ_REMOVE(&worker->decided, item, queue);
        worker->decided_count--;
    }
}

void worker_drop(struct lease_worker *worker, struct lease_item *item) {
    assert(item->state == ITEM_GONE);
    TAILQ_REMOVE(&worker->hand, item, hand);
    worker->hand_count--;
    if (!item->is_superseded)
        HASH_DELETE(by_lease, worker->by_lease, item);
    item_unref(item);
    if (worker->hand_count == 0)
        pthread_cond_broadcast(&worker->is_quiet);
}

void worker_queue_decided(struct lease_worker *worker, struct lease_item *item, int64_t now_us) {
    assert(item->state == ITEM_DECIDED);
    TAILQ_INSERT_TAIL(&worker->decided, item, queue);
    if (worker->decided_count++ == 0)
        worker->decided_since_us = now_us;
}

void worker_settle(struct lease_worker *worker, struct lease_item *item, const char *outcome, struct calls *calls) {
    worker_unqueue(worker, item);
    item->state = ITEM_GONE;
    item->hold.is_told = true; /* nothing is left to lose */
    item->is_answered = outcome != NULL;
    snprintf(item->outcome, sizeof item->outcome, "%s", outcome ? outcome : "");
    if (item->was_begun) {
        item->references++;
        TAILQ_INSERT_TAIL(&calls->settled, item, settled_call);
    }
    worker_drop(worker, item);
}

void worker_announce(struct lease_worker *worker) {
    if (worker->unannounced > 1)
        pthread_cond_broadcast(&worker->is_work);
    else if (worker->unannounced == 1)
        pthread_cond_signal(&worker->is_work);
    worker->unannounced = 0;
}

void worker_give_back(struct lease_worker *worker, struct lease_item *item, int64_t now_us) {
    worker_unqueue(worker, item);
    item_decide(item, ITEM_RELEASE, NULL, 0);
    if (item_step(item, ITEM_GIVE_BACK) == ITEM_DECIDED)
        worker_queue_decided(worker, item, now_us);
    else
        worker_drop(worker, item);
}

void worker_lose(struct lease_worker *worker, struct lease_item *item, struct calls *calls) {
    item->is_lost = true;
    worker->stats.lost++;
    if (item->state == ITEM_RUNNING || item->was_lost_in_work) {
        item->references++;
        TAILQ_INSERT_TAIL(&calls->lost, item, lost_call);
    }
    if (item->state == ITEM_READY)
        worker_give_back(worker, item, hold_clock_us());
    else if (item_next(item->state, ITEM_LOSE, item->state != ITEM_RUNNING && item_is_pointless(item)) == ITEM_GONE)
        worker_settle(worker, item, NULL, calls);
}

void worker_send_again(struct lease_worker *worker, struct lease_item *item, int64_t now_us, struct calls *calls) {
    if (item->state != ITEM_SENT)
        return;
    if (item_step(item, ITEM_RESEND) == ITEM_DECIDED)
        worker_queue_decided(worker, item, now_us);
    else
        worker_settle(worker, item, NULL, calls);
}

/* ---- the threads ---- */

static struct lease_item *take_item(struct lease_worker *worker) {
    for (;;) {
        struct lease_item *item = TAILQ_FIRST(&worker->ready);
        if (!item || worker->is_draining) { /* what is ready then is given back by the handle's thread */
            if (worker->is_leaving)
                return NULL;
            pthread_cond_wait(&worker->is_work, &worker->lock);
            continue;
        }
        int64_t now_us = hold_clock_us();
        worker_unqueue(worker, item);
        if (hold_progress(&item->hold, now_us)) {
            item_step(item, ITEM_TAKE);
            item->was_begun = true;
            worker->stats.begun++;
            worker->running++;
            atomic_store(&worker->progress_us, now_us);
            return item;
        }
        /* Lost while it waited; the handle's thread has not looked yet. */
        TAILQ_INSERT_HEAD(&worker->ready, item, queue);
        item->hold.is_told = item->is_lost = true;
        worker->stats.lost++;
        worker_give_back(worker, item, now_us);
    }
}

/* Does the handle's thread have to be woken for this? It looks by itself at sleep_until_us. */
static bool must_wake(const struct lease_worker *worker, int64_t now_us) {
    bool is_last = worker->running == 0 && TAILQ_EMPTY(&worker->ready);
    int64_t due_us = is_last || worker->decided_count >= SEND_ITEMS / 2 ? now_us : now_us + worker->linger_us;
    return worker->sleep_until_us > due_us;
}

/* Returns true if the handle's thread must be woken. */
static bool put_item(struct lease_worker *worker, struct lease_item *item) {
    int64_t now_us = hold_clock_us();
    if (item->verdict == ITEM_NO_VERDICT) {
        static const char reason[] = "the work returned without a verdict";
        item_decide(item, ITEM_FAIL, reason, sizeof reason - 1);
        item->retry = true;
    }
    worker->running--;
    item->was_lost_in_work = !hold_is_mine(&item->hold, now_us);
    atomic_store(&worker->progress_us, now_us);
    if (item_step(item, ITEM_DECIDE) == ITEM_DECIDED)
        worker_queue_decided(worker, item, now_us);
    else
        TAILQ_INSERT_TAIL(&worker->gone, item, queue);
    bool wakes = must_wake(worker, now_us);
    if (wakes)
        worker->sleep_until_us = now_us; /* once is enough */
    return wakes;
}

static void *work_thread(void *context) {
    struct lease_worker *worker = context;
    pthread_mutex_lock(&worker->lock);
    struct lease_item *item;
    while ((item = take_item(worker)) != NULL) {
        pthread_mutex_unlock(&worker->lock);
        worker->work(worker->context, item);
        pthread_mutex_lock(&worker->lock);
        if (put_item(worker, item)) {
            pthread_mutex_unlock(&worker->lock);
            link_wake(worker->link);
            pthread_mutex_lock(&worker->lock);
        }
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

/* ---- start, stop, free ---- */

static void worker_init(struct lease_worker *worker, const struct lease_worker_options *options, struct link *link) {
    worker->link = link;
    worker->work = options->work;
    worker->lost = options->lost;
    worker->settled = options->settled;
    worker->context = options->context;
    worker->concurrency = options->concurrency;
    worker->ttl_ms = options->ttl_ms;
    worker->wait_ms = options->wait_ms;
    worker->linger_us = (int64_t)options->linger_ms * 1000;
    worker->answer_us = (int64_t)options->answer_ms * 1000;
    worker->terms = (struct hold_terms){.ttl_us = (int64_t)options->ttl_ms * 1000,
                                        .margin_us = (int64_t)options->margin_ms * 1000};
    worker->threads = memory_alloc_array(options->concurrency, sizeof *worker->threads);
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->is_work, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->is_quiet, &attributes);
    pthread_condattr_destroy(&attributes);
    TAILQ_INIT(&worker->hand);
    TAILQ_INIT(&worker->ready);
    TAILQ_INIT(&worker->decided);
    TAILQ_INIT(&worker->gone);
    TAILQ_INIT(&worker->sent);
    credit_init(&worker->credit, options->credit);
    worker->look_us = INT64_MAX;
}

static void worker_release(struct lease_worker *worker) {
    link_free(worker->link);
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->is_work);
    pthread_cond_destroy(&worker->is_quiet);
    free(worker->threads);
    free(worker);
}

static void end_threads(struct lease_worker *worker) {
    pthread_mutex_lock(&worker->lock);
    worker->is_leaving = true;
    pthread_cond_broadcast(&worker->is_work);
    pthread_mutex_unlock(&worker->lock);
    for (unsigned i = 0; i < worker->thread_count; i++)
        pthread_join(worker->threads[i], NULL);
}

static bool start_threads(struct lease_worker *worker) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_ok = true;
    while (is_ok && worker->thread_count < worker->concurrency) {
        is_ok = pthread_create(&worker->threads[worker->thread_count], NULL, work_thread, worker) == 0;
        worker->thread_count += is_ok;
    }
    is_ok = is_ok && pthread_create(&worker->loop, NULL, worker_loop, worker) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_ok;
}

bool lease_worker_start(const struct lease_worker_options *given, struct lease_worker **ret_worker,
                        struct lease_error *ret_error) {
    struct lease_worker_options options;
    struct link *link;
    struct error error = {0};
    if (!options_settle_worker(given, &options, &error) ||
        !link_new(&options.connection, options.kind, options.name, options_fetch_wait_ms(options.ttl_ms), &link, &error))
        return options_fail(ret_error, &error);
    struct lease_worker *worker = memory_alloc(sizeof *worker);
    worker_init(worker, &options, link);
    if (!start_threads(worker)) {
        end_threads(worker);
        worker_release(worker);
        error_set(&error, ERROR_RETRY, "threads", "cannot start %u threads", options.concurrency + 1);
        return options_fail(ret_error, &error);
    }
    *ret_worker = worker;
    return true;
}

static struct timespec moment_after(unsigned wait_ms) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += wait_ms / 1000;
    at.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

unsigned lease_worker_stop(struct lease_worker *worker, unsigned wait_ms) {
    struct timespec until = moment_after(wait_ms);
    pthread_mutex_lock(&worker->lock);
    worker->is_draining = true;
    pthread_mutex_unlock(&worker->lock);
    link_wake(worker->link);
    pthread_mutex_lock(&worker->lock);
    int waited = 0;
    while (waited == 0 && !(worker->is_closed && worker->hand_count == 0))
        waited = pthread_cond_timedwait(&worker->is_quiet, &worker->lock, &until);
    worker->is_late = true;
    unsigned running = worker->running;
    pthread_mutex_unlock(&worker->lock);
    link_wake(worker->link);
    return running;
}

void lease_worker_free(struct lease_worker *worker) {
    if (!worker)
        return;
    lease_worker_stop(worker, 0);
    end_threads(worker);
    pthread_mutex_lock(&worker->lock);
    worker->is_over = true;
    pthread_mutex_unlock(&worker->lock);
    link_wake(worker->link);
    pthread_join(worker->loop, NULL);
    worker_release(worker);
}

const char *lease_worker_holder(const struct lease_worker *worker) {
    return link_holder(worker->link);
}

void lease_worker_get_stats(struct lease_worker *worker, struct lease_worker_stats *stats) {
    size_t size = stats->size < sizeof *stats ? stats->size : sizeof *stats;
    pthread_mutex_lock(&worker->lock);
    struct lease_worker_stats now = worker->stats;
    now.in_hand = worker->hand_count;
    now.asked = credit_open(&worker->credit);
    pthread_mutex_unlock(&worker->lock);
    now.size = stats->size;
    memcpy(stats, &now, size);
}

/* ---- an item ---- */

const struct lease_grant *lease_item_grant(const struct lease_item *item) {
    return &item->grant;
}

bool lease_item_progress(struct lease_item *item) {
    int64_t now_us = hold_clock_us();
    atomic_store_explicit(&item->worker->progress_us, now_us, memory_order_relaxed);
    return hold_progress(&item->hold, now_us);
}

bool lease_item_is_mine(struct lease_item *item) {
    return hold_is_mine(&item->hold, hold_clock_us());
}

int64_t lease_item_remaining_ms(struct lease_item *item) {
    return hold_remaining_us(&item->hold, hold_clock_us()) / 1000;
}

bool lease_item_finish(struct lease_item *item, const char *result) {
    if (result && !messages_is_payload(result))
        return false;
    item_decide(item, ITEM_FINISH, result, result ? strlen(result) : 0);
    return true;
}

void lease_item_fail(struct lease_item *item, const char *reason, bool retry, int64_t delay_ms) {
    struct buf text = BUF_INIT;
    messages_clean_reason(&text, reason ? reason : "");
    item_decide(item, ITEM_FAIL, buf_text(&text), text.size);
    buf_release(&text);
    item->retry = retry;
    item->delay_ms = delay_ms > LEASE_DELAY_MS_MAX ? LEASE_DELAY_MS_MAX : delay_ms;
}

void lease_item_release(struct lease_item *item) {
    item_decide(item, ITEM_RELEASE, NULL, 0);
}
