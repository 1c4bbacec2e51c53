/* relay; see relay.h. One thread goes round: connect, wait for the role, take it, publish, step down. The database connection ends
 * with every step down, because the role's lock does; the reader of the output topics stays. */
#include "coordinator/relay.h"

#include "common/backoff.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"
#include "coordinator/publisher.h"
#include "coordinator/witness.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    ROLE_RETRY_MS = 200,    /* how soon a dead relay is replaced */
    BACKOFF_MS = 50,
    BACKOFF_MAX_MS = 2000,
    BROKER_MS = 10000,      /* for metadata and the witness at a take-over */
    READER_WAIT_MS = 20,    /* of a fetch that finds nothing: 50 a second while lease.state is quiet */
    READER_KBYTES = 1024,
};

struct relay {
    struct relay_options options;
    pthread_t thread;
    int wake_fd;
    atomic_bool is_signaled, is_stopping;
    _Atomic int64_t stop_by_us;
    struct relay_counts counts;
    pthread_mutex_t mutex;
    struct error error; /* of the last step down; under the mutex */

    /* of the thread */
    struct relay_store store;
    struct kafka_reader *reader;
    struct outputs outputs;
    struct backoff backoff;
};

/* ---- waiting ---- */

static void relay_poke(struct relay *relay) {
    static const uint64_t one = 1;
    if (write(relay->wake_fd, &one, sizeof one) < 0)
        return; /* full: it wakes anyway */
}

/* Sleeps, unless it is told to stop. */
static void relay_pause(struct relay *relay, int64_t ms) {
    int64_t until_us = clock_monotonic_us() + ms * 1000;
    while (!atomic_load(&relay->is_stopping)) {
        int64_t left_ms = (until_us - clock_monotonic_us()) / 1000;
        struct pollfd wake = {.fd = relay->wake_fd, .events = POLLIN};
        uint64_t count;
        if (left_ms <= 0)
            return;
        if (poll(&wake, 1, (int)left_ms) > 0 && read(relay->wake_fd, &count, sizeof count) < 0)
            return;
    }
}

/* ---- a term ---- */

static bool relay_open_reader(struct relay *relay, struct error *error) {
    if (relay->reader)
        return true;
    const struct kafka_reader_options options = {.settings = relay->options.kafka,
                                                 .group = relay->options.group,
                                                 .wait_ms = READER_WAIT_MS,
                                                 .queue_kbytes = READER_KBYTES};
    return kafka_reader_new(&options, &relay->reader, error);
}

/* A missing topic is the operator's to create; the coordinator has said so when it started. */
static bool relay_know_outputs(struct relay *relay, struct error *error) {
    outputs_release(&relay->outputs);
    if (relay_open_reader(relay, error) &&
        outputs_init(&relay->outputs, relay->options.topic_prefix, relay->reader, BROKER_MS, error))
        return true;
    error->kind = ERROR_RETRY;
    return false;
}

static bool relay_open(struct relay *relay, struct error *error) {
    return relay_store_open(&relay->store, relay->options.database, relay->options.admit, relay->options.admit_context,
                            error);
}

/* Whatever ended the last term is over. */
static void relay_forget_failure(struct relay *relay) {
    pthread_mutex_lock(&relay->mutex);
    error_clear(&relay->error);
    pthread_mutex_unlock(&relay->mutex);
}

/* Waits until the role is free. False: it was told to stop (code relay_stopped), or something failed. */
static bool relay_await_role(struct relay *relay, struct relay_progress *ret_progress, struct error *error) {
    for (;;) {
        bool is_taken;
        if (atomic_load(&relay->is_stopping))
            return error_set(error, ERROR_RETRY, "relay_stopped", "stopping");
        if (!relay_store_take(&relay->store, relay->options.owner, 0, &relay->outputs, &is_taken, ret_progress, error))
            return false;
        if (is_taken)
            return true;
        relay_forget_failure(relay); /* another has it, and to wait for it is no failure: this coordinator is ready */
        relay_pause(relay, ROLE_RETRY_MS);
    }
}

static void relay_announce(struct relay *relay, const struct relay_progress *progress) {
    relay_forget_failure(relay);
    atomic_fetch_add(&relay->counts.takes, 1);
    atomic_store(&relay->counts.epoch, relay->store.epoch);
    atomic_store(&relay->counts.published, progress->published);
    atomic_store(&relay->counts.progress_us, clock_monotonic_us());
    atomic_store(&relay->counts.has_role, true);
    log_write(relay->options.log, LOG_INFO, "relay role taken", "epoch", LOG_N(relay->store.epoch), "published",
              LOG_N(progress->published), NULL);
}

/* A database that was restored, or failed over, has forgotten epochs: records of ours would pass for those of a forgotten relay. */
static bool relay_exceed_epoch(struct relay *relay, int64_t seen, struct relay_progress *progress, struct error *error) {
    bool is_taken = false;
    if (seen < relay->store.epoch)
        return true;
    relay_progress_release(progress);
    if (!relay_store_take(&relay->store, relay->options.owner, seen, &relay->outputs, &is_taken, progress, error))
        return false;
    if (!is_taken)
        return error_set(error, ERROR_RETRY, "relay_role", "the role was lost");
    atomic_store(&relay->counts.epoch, relay->store.epoch);
    log_write(relay->options.log, LOG_WARNING, "the topics show epochs that the database has forgotten", "seen", LOG_N(seen),
              "epoch", LOG_N(relay->store.epoch), NULL);
    return true;
}

static bool relay_publish(struct relay *relay, struct relay_progress *progress, struct error *error) {
    struct witness seen;
    if (!witness_look(relay->reader, relay->options.topic_prefix, BROKER_MS, &seen, error)) {
        error->kind = ERROR_RETRY;
        return false;
    }
    if (!relay_exceed_epoch(relay, seen.epoch, progress, error))
        return false;
    const struct publisher_options options = {
        .relay = &relay->options,
        .store = &relay->store,
        .reader = relay->reader,
        .outputs = &relay->outputs,
        .counts = &relay->counts,
        .is_signaled = &relay->is_signaled,
        .is_stopping = &relay->is_stopping,
        .stop_by_us = &relay->stop_by_us,
        .wake_fd = relay->wake_fd,
        .fence = seen.fence,
    };
    struct publisher publisher;
    if (!publisher_init(&publisher, &options, progress, error))
        return false;
    bool done = publisher_take_over(&publisher, error);
    if (done) {
        backoff_reset(&relay->backoff);
        done = publisher_run(&publisher, error);
    }
    publisher_release(&publisher);
    return done;
}

/* From the connection to the step down. True: it was told to stop, and everything is published. */
static bool relay_serve_term(struct relay *relay, struct error *error) {
    struct relay_progress progress = {0};
    bool done = relay_open(relay, error) && relay_know_outputs(relay, error) &&
                relay_await_role(relay, &progress, error);
    if (done) {
        relay_announce(relay, &progress);
        if (CRASH_POINT("role.taken"))
            done = error_set(error, ERROR_RETRY, "crash_point", "role.taken");
        else
            done = relay_publish(relay, &progress, error);
    }
    relay_progress_release(&progress);
    atomic_store(&relay->counts.has_role, false);
    atomic_store(&relay->counts.in_flight, 0);
    atomic_store(&relay->counts.oldest_us, 0);
    relay_store_close(&relay->store);
    return done;
}

/* ---- the thread ---- */

static void relay_note_failure(struct relay *relay, const struct error *error) {
    pthread_mutex_lock(&relay->mutex);
    relay->error = *error;
    pthread_mutex_unlock(&relay->mutex);
    atomic_fetch_add(&relay->counts.step_downs, 1);
    log_error(relay->options.log, error->kind == ERROR_FATAL ? LOG_ERROR : LOG_WARNING, "relay stepped down", error, NULL);
}

static void *relay_main(void *argument) {
    struct relay *relay = argument;
    while (!atomic_load(&relay->is_stopping)) {
        struct error error = {0};
        if (relay_serve_term(relay, &error) || strcmp(error.code, "relay_stopped") == 0)
            continue;
        relay_note_failure(relay, &error);
        if (error.kind == ERROR_FATAL) {
            if (relay->options.failed)
                relay->options.failed(relay->options.context, &error);
            break;
        }
        relay_pause(relay, backoff_next_ms(&relay->backoff));
    }
    return NULL;
}

/* ---- public ---- */

bool relay_new(const struct relay_options *options, struct relay **ret_relay, struct error *error) {
    struct relay *relay = memory_alloc(sizeof *relay);
    relay->options = *options;
    relay->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (relay->wake_fd < 0) {
        free(relay);
        return error_set(error, ERROR_RETRY, "system", "eventfd: %m");
    }
    pthread_mutex_init(&relay->mutex, NULL);
    backoff_init(&relay->backoff, BACKOFF_MS, BACKOFF_MAX_MS, (uint64_t)clock_wall_us());
    if (pthread_create(&relay->thread, NULL, relay_main, relay) != 0) {
        pthread_mutex_destroy(&relay->mutex);
        close(relay->wake_fd);
        free(relay);
        return error_set(error, ERROR_RETRY, "system", "no thread for the relay");
    }
    pthread_setname_np(relay->thread, "relay");
    *ret_relay = relay;
    return true;
}

void relay_free(struct relay *relay, int wait_ms) {
    if (!relay)
        return;
    atomic_store(&relay->stop_by_us, clock_monotonic_us() + (int64_t)wait_ms * 1000);
    atomic_store(&relay->is_stopping, true);
    relay_poke(relay);
    pthread_join(relay->thread, NULL);
    kafka_reader_free(relay->reader);
    outputs_release(&relay->outputs);
    pthread_mutex_destroy(&relay->mutex);
    close(relay->wake_fd);
    free(relay);
}

void relay_wake(struct relay *relay) {
    if (!atomic_exchange(&relay->is_signaled, true))
        relay_poke(relay);
}

void relay_get_status(struct relay *relay, struct relay_status *ret_status) {
    struct relay_counts *counts = &relay->counts;
    *ret_status = (struct relay_status){
        .has_role = atomic_load(&counts->has_role),
        .epoch = atomic_load(&counts->epoch),
        .published = atomic_load(&counts->published),
        .records_total = atomic_load(&counts->records),
        .bytes_total = atomic_load(&counts->bytes),
        .takes_total = atomic_load(&counts->takes),
        .skipped_total = atomic_load(&counts->skipped),
        .restated_total = atomic_load(&counts->restated),
        .step_downs_total = atomic_load(&counts->step_downs),
        .in_flight = atomic_load(&counts->in_flight),
        .oldest_unacknowledged_us = atomic_load(&counts->oldest_us),
    };
    if (ret_status->has_role)
        ret_status->blocked_ms = (clock_monotonic_us() - atomic_load(&counts->progress_us)) / 1000;
    if (ret_status->oldest_unacknowledged_us == 0)
        ret_status->blocked_ms = 0;
    pthread_mutex_lock(&relay->mutex);
    ret_status->error = relay->error;
    pthread_mutex_unlock(&relay->mutex);
}
