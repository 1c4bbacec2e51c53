/* A thread that turns queued messages into committed transactions; see lane.h. */
#include "coordinator/lane.h"

#include "common/backoff.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCHES_KEPT = 3,       /* one in hand, one filling, one between */
    RETRY_BASE_MS = 20,     /* a deadlock is over in less */
    RETRY_MAXIMUM_MS = 2000, /* a restarted server is noticed within this */
    TIMEOUTS_MAX = 2,
    RANGES_MAX = 64,        /* halves waiting while one is tried: a batch of 2^63 messages */
};

struct range {
    size_t from, upto;
};

struct lane {
    struct lane_options options;
    size_t low_work, low_bytes;
    struct store_answer answer;
    size_t outcomes_capacity, slots_capacity;
    struct backoff backoff;
    int timeouts; /* in a row */

    pthread_mutex_t mutex;
    pthread_cond_t changed; /* queued, stopping, nudged, in hand done; CLOCK_MONOTONIC */
    struct batch *first, *last; /* queued; the intake fills the last */
    struct batch *spare;
    int spares;
    size_t queued_messages, queued_work, queued_bytes;
    bool was_full;
    bool is_in_hand;
    uint64_t done; /* batches that left the hand */
    uint64_t nudges;
    bool is_stopping;
    pthread_t thread;
};

/* ---- the queue ---- */

static struct batch *take_spare(struct lane *lane) {
    struct batch *batch = lane->spare;
    if (batch == NULL)
        return batch_new();
    lane->spare = batch->next;
    lane->spares--;
    batch->next = NULL;
    return batch;
}

static bool is_batch_full(const struct lane *lane, const struct batch *batch) {
    return batch->work >= lane->options.batch_messages || batch->bytes >= lane->options.batch_bytes;
}

static struct batch *batch_to_fill(struct lane *lane) {
    if (lane->last != NULL && !is_batch_full(lane, lane->last))
        return lane->last;
    struct batch *batch = take_spare(lane);
    if (lane->last != NULL)
        lane->last->next = batch;
    else
        lane->first = batch;
    lane->last = batch;
    return batch;
}

static bool is_above_marks(const struct lane *lane) {
    return lane->queued_work >= lane->options.queue_messages || lane->queued_bytes >= lane->options.queue_bytes;
}

static bool is_below_marks(const struct lane *lane) {
    return lane->queued_work <= lane->low_work && lane->queued_bytes <= lane->low_bytes;
}

bool lane_put(struct lane *lane, struct partition *partition, const struct message *message,
              struct command *take_command) {
    pthread_mutex_lock(&lane->mutex);
    struct batch *batch = batch_to_fill(lane);
    size_t bytes_before = batch->bytes, work_before = batch->work;
    batch_add(batch, partition, message, take_command);
    lane->queued_messages++;
    lane->queued_work += batch->work - work_before;
    lane->queued_bytes += batch->bytes - bytes_before;
    bool is_wanted = !lane->is_in_hand && (batch->count == 1 || is_batch_full(lane, batch));
    bool is_full = is_above_marks(lane);
    lane->was_full |= is_full;
    pthread_mutex_unlock(&lane->mutex);
    if (is_wanted)
        pthread_cond_broadcast(&lane->changed);
    return !is_full;
}

bool lane_is_full(struct lane *lane) {
    pthread_mutex_lock(&lane->mutex);
    /* Between the marks it stays as it was. */
    if (is_below_marks(lane))
        lane->was_full = false;
    bool is_full = lane->was_full;
    pthread_mutex_unlock(&lane->mutex);
    return is_full;
}

size_t lane_queued(struct lane *lane) {
    pthread_mutex_lock(&lane->mutex);
    size_t queued = lane->queued_messages;
    pthread_mutex_unlock(&lane->mutex);
    return queued;
}

bool lane_is_idle(struct lane *lane) {
    pthread_mutex_lock(&lane->mutex);
    bool is_idle = lane->first == NULL && !lane->is_in_hand;
    pthread_mutex_unlock(&lane->mutex);
    return is_idle;
}

static struct timespec moment_after(int64_t ms) {
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    int64_t ns = moment.tv_nsec + (ms % 1000) * 1000000;
    moment.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    moment.tv_nsec = (long)(ns % 1000000000);
    return moment;
}

bool lane_wait_in_hand(struct lane *lane, int wait_ms) {
    struct timespec deadline = moment_after(wait_ms);
    pthread_mutex_lock(&lane->mutex);
    uint64_t done = lane->done;
    bool is_in_time = true;
    while (lane->is_in_hand && lane->done == done && is_in_time)
        is_in_time = pthread_cond_timedwait(&lane->changed, &lane->mutex, &deadline) == 0;
    bool is_through = !lane->is_in_hand || lane->done != done;
    pthread_mutex_unlock(&lane->mutex);
    return is_through;
}

void lane_nudge(struct lane *lane) {
    pthread_mutex_lock(&lane->mutex);
    lane->nudges++;
    pthread_mutex_unlock(&lane->mutex);
    pthread_cond_broadcast(&lane->changed);
}

static void linger(struct lane *lane) {
    if (lane->options.batch_wait_ms <= 0)
        return;
    struct timespec deadline = moment_after(lane->options.batch_wait_ms);
    while (!lane->is_stopping && !is_batch_full(lane, lane->first) &&
           pthread_cond_timedwait(&lane->changed, &lane->mutex, &deadline) == 0)
        continue;
}

/* NULL when the lane is to stop. */
static struct batch *take_batch(struct lane *lane) {
    pthread_mutex_lock(&lane->mutex);
    while (lane->first == NULL && !lane->is_stopping)
        pthread_cond_wait(&lane->changed, &lane->mutex);
    if (!lane->is_stopping)
        linger(lane);
    struct batch *batch = lane->is_stopping ? NULL : lane->first;
    bool has_room = false;
    if (batch != NULL) {
        lane->first = batch->next;
        if (lane->first == NULL)
            lane->last = NULL;
        batch->next = NULL;
        lane->queued_messages -= batch->count;
        lane->queued_work -= batch->work;
        lane->queued_bytes -= batch->bytes;
        lane->is_in_hand = true;
        has_room = lane->was_full && is_below_marks(lane);
    }
    pthread_mutex_unlock(&lane->mutex);
    if (has_room)
        lane->options.events.has_room(lane->options.events.context, lane);
    return batch;
}

static void put_away(struct lane *lane, struct batch *batch) {
    batch_reset(batch);
    pthread_mutex_lock(&lane->mutex);
    lane->is_in_hand = false;
    lane->done++;
    if (lane->spares < BATCHES_KEPT) {
        batch->next = lane->spare;
        lane->spare = batch;
        lane->spares++;
        batch = NULL;
    }
    pthread_mutex_unlock(&lane->mutex);
    pthread_cond_broadcast(&lane->changed);
    batch_free(batch);
}

/* ---- working through one batch ---- */

static bool is_stopping(struct lane *lane) {
    pthread_mutex_lock(&lane->mutex);
    bool stopping = lane->is_stopping;
    pthread_mutex_unlock(&lane->mutex);
    return stopping;
}

static void wait_before_retry(struct lane *lane, const struct error *error) {
    lane->options.events.retries(lane->options.events.context, lane, error);
    struct timespec deadline = moment_after(backoff_next_ms(&lane->backoff));
    pthread_mutex_lock(&lane->mutex);
    uint64_t nudges = lane->nudges;
    while (!lane->is_stopping && lane->nudges == nudges &&
           pthread_cond_timedwait(&lane->changed, &lane->mutex, &deadline) == 0)
        continue;
    pthread_mutex_unlock(&lane->mutex);
}

static void make_room_for_answer(struct lane *lane, const struct batch *batch) {
    if (lane->outcomes_capacity < batch->count) {
        lane->outcomes_capacity = batch->count;
        lane->answer.outcomes =
            memory_resize(lane->answer.outcomes, lane->outcomes_capacity, sizeof *lane->answer.outcomes);
    }
    if (lane->slots_capacity < batch->slot_count) {
        lane->slots_capacity = batch->slot_count;
        lane->answer.lost_slots =
            memory_resize(lane->answer.lost_slots, lane->slots_capacity, sizeof *lane->answer.lost_slots);
    }
}

static void note_committed(struct batch *batch, size_t from, size_t upto) {
    for (size_t i = from; i < upto; i++) {
        const struct batch_entry *entry = &batch->entries[i];
        const struct batch_slot *slot = &batch->slots[entry->slot];
        if (!entry->is_dropped && partition_is_current(slot->partition, slot->generation))
            atomic_store(&slot->partition->committed, entry->message.offset + 1);
    }
}

static void finish_range(struct lane *lane, struct batch *batch, struct range range, int64_t begun_us) {
    note_committed(batch, range.from, range.upto);
    const struct lane_commit commit = {.batch = batch, .from = range.from, .upto = range.upto, .answer = &lane->answer,
                                       .took_us = clock_monotonic_us() - begun_us};
    lane->options.events.committed(lane->options.events.context, lane, &commit);
    for (size_t i = range.from; i < range.upto; i++)
        batch->entries[i].is_dropped = true;
}

static void drop_lost(struct lane *lane, struct batch *batch, struct range range) {
    for (size_t i = 0; i < lane->answer.lost_count; i++) {
        uint32_t index = lane->answer.lost_slots[i];
        const struct batch_slot *slot = &batch->slots[index];
        batch_drop_slot(batch, index, range.from, batch->count);
        /* Counted also if the group has told the intake meanwhile; only a partition still believed to be ours is paused. */
        partition_refuse(slot->partition, slot->generation);
        lane->options.events.refused(lane->options.events.context, lane, slot->partition);
    }
}

static void drop_standing(struct lane *lane, struct batch *batch, struct range range) {
    note_committed(batch, range.from, range.upto);
    for (size_t i = 0; i < lane->answer.lost_count; i++)
        batch_drop_slot(batch, lane->answer.lost_slots[i], range.from, range.upto);
    log_write(lane->options.log, LOG_INFO, "a commit that was in doubt stands", "lane", lane->options.name, NULL);
}

/* The one message that the database refuses. False if it is refused even as a dead letter: then nothing helps. */
static bool give_up_message(struct batch *batch, struct range range, struct error *error) {
    for (size_t i = range.from; i < range.upto; i++) {
        struct batch_entry *entry = &batch->entries[i];
        if (entry->is_dropped)
            continue;
        if (entry->command.verdict == EVENT_DEAD_LETTER) {
            char code[sizeof error->code];
            strcpy(code, error->code);
            return error_set(error, ERROR_FATAL, code, "a dead letter was refused too: %s", error->message);
        }
        command_to_dead_letter(&entry->command, &entry->message, EVENT_DATABASE_REFUSED, error->code);
    }
    return true;
}

enum progress { PROGRESS_DONE, PROGRESS_AGAIN, PROGRESS_SPLIT, PROGRESS_STOP };

/* What takes too long twice takes too long always: in halves it may not. A commit in doubt among them is found by the taking anew
 * that a claim of half the batch then leads to. */
static bool is_too_slow(struct lane *lane, const struct error *error) {
    bool is_timeout = strcmp(error->code, "57014") == 0 || strcmp(error->code, "db_deadline") == 0;
    lane->timeouts = is_timeout ? lane->timeouts + 1 : 0;
    return lane->timeouts >= TIMEOUTS_MAX;
}

/* One try of one range. */
static enum progress try_range(struct lane *lane, struct batch *batch, struct range range, struct error *error) {
    size_t left = batch_drop_outdated(batch, range.from, range.upto);
    if (left == 0) {
        lane->options.events.works(lane->options.events.context, lane); /* at least there is nothing left that does not */
        return PROGRESS_DONE;
    }
    if (is_stopping(lane))
        return PROGRESS_STOP;
    enum store_result result = STORE_RETRY;
    int64_t begun_us = clock_monotonic_us();
    if (lane->options.store.open(lane->options.store.context, error)) {
        if (CRASH_POINT("batch.in_hand"))
            error_set(error, ERROR_RETRY, "crash_point", "batch.in_hand");
        else
            result = lane->options.store.apply(lane->options.store.context, batch, range.from, range.upto, &lane->answer, error);
    } else if (error->kind == ERROR_FATAL) {
        return PROGRESS_STOP;
    }
    switch (result) {
    case STORE_DONE:
        backoff_reset(&lane->backoff);
        lane->timeouts = 0;
        lane->options.events.works(lane->options.events.context, lane);
        finish_range(lane, batch, range, begun_us);
        return PROGRESS_DONE;
    case STORE_LOST:
        drop_lost(lane, batch, range);
        return PROGRESS_AGAIN;
    case STORE_STOOD:
        drop_standing(lane, batch, range);
        return PROGRESS_DONE;
    case STORE_REJECTED:
        if (left > 1)
            return PROGRESS_SPLIT;
        return give_up_message(batch, range, error) ? PROGRESS_AGAIN : PROGRESS_STOP;
    case STORE_RETRY:
        wait_before_retry(lane, error);
        if (!is_too_slow(lane, error) || left == 1)
            return PROGRESS_AGAIN;
        lane->timeouts = 0;
        return PROGRESS_SPLIT;
    case STORE_FATAL:
        break;
    }
    return PROGRESS_STOP;
}

/* False when the lane is to stop; then nothing of the rest was committed. */
static bool work_range(struct lane *lane, struct batch *batch, struct range whole, struct error *error) {
    struct range ranges[RANGES_MAX] = {whole};
    size_t count = 1;
    while (count > 0) {
        struct range range = ranges[--count];
        switch (try_range(lane, batch, range, error)) {
        case PROGRESS_DONE:
            break;
        case PROGRESS_AGAIN:
            ranges[count++] = range;
            break;
        case PROGRESS_SPLIT: {
            size_t middle = range.from + (range.upto - range.from) / 2;
            assert(count + 2 <= RANGES_MAX && middle > range.from);
            ranges[count++] = (struct range){middle, range.upto};
            ranges[count++] = (struct range){range.from, middle};
            break;
        }
        case PROGRESS_STOP:
            return false;
        }
    }
    return true;
}

/* ---- caution: something here may have killed the process ---- */

/* Entries that may be tried together from `at` on: of one taking, not decoded yet, and not where a try together died. */
static size_t cautious_extent(const struct batch *batch, size_t at) {
    const struct batch_entry *first = &batch->entries[at];
    const struct partition *partition = batch->slots[first->slot].partition;
    size_t upto = at + 1;
    if (first->message.offset < partition->alone_until)
        return upto;
    while (upto < batch->count && !batch->entries[upto].is_decoded && batch->entries[upto].slot == first->slot &&
           batch->entries[upto].message.offset < first->message.offset + LANE_CAUTIOUS_MESSAGES)
        upto++;
    return upto;
}

/* Notes the try of what begins at `at`; how often it was noted before. False when the lane is to stop. */
static bool note_attempt(struct lane *lane, struct batch *batch, size_t at, int *ret_tries, struct error *error) {
    const struct lane_store *store = &lane->options.store;
    const struct message *message = &batch->entries[at].message;
    *ret_tries = 0;
    while (batch_drop_outdated(batch, at, at + 1) > 0) {
        if (is_stopping(lane))
            return false;
        if (store->open(store->context, error) &&
            store->attempt(store->context, message->topic, message->partition, message->offset, ret_tries, error))
            return true;
        if (error->kind == ERROR_FATAL)
            return false;
        store->close(store->context);
        wait_before_retry(lane, error);
    }
    return true;
}

static void decode_entries(struct lane *lane, struct batch *batch, size_t from, size_t upto) {
    for (size_t i = from; i < upto; i++) {
        lane->options.decode(lane->options.decode_context, &batch->entries[i].message, &batch->entries[i].command);
        batch->entries[i].is_decoded = true;
    }
}

static void give_up_killer(struct batch_entry *entry) {
    entry->command.topic = entry->message.topic;
    entry->command.partition = entry->message.partition;
    entry->command.offset = entry->message.offset;
    command_to_dead_letter(&entry->command, &entry->message, EVENT_KILLED_PROCESS, NULL);
    entry->is_decoded = true;
}

/* A few messages are tried together first; if the process dies of them, they are tried one by one, and the one that it
 * dies of too often is given up. */
static bool work_with_caution(struct lane *lane, struct batch *batch, size_t from, size_t *ret_upto, struct error *error) {
    struct batch_entry *first = &batch->entries[from];
    struct partition *partition = batch->slots[first->slot].partition;
    size_t upto = cautious_extent(batch, from);
    int tries;
    if (!note_attempt(lane, batch, from, &tries, error))
        return false;
    if (tries > 0) {
        if (first->message.offset >= partition->alone_until)
            partition->alone_until = first->message.offset + LANE_CAUTIOUS_MESSAGES;
        upto = from + 1;
    }
    if (tries > LANE_ATTEMPTS_MAX)
        give_up_killer(first);
    else
        decode_entries(lane, batch, from, upto);
    *ret_upto = upto;
    return work_range(lane, batch, (struct range){from, upto}, error);
}

static size_t decoded_extent(const struct batch *batch, size_t at) {
    while (at < batch->count && batch->entries[at].is_decoded)
        at++;
    return at;
}

static bool work_batch(struct lane *lane, struct batch *batch, struct error *error) {
    for (size_t from = 0, upto; from < batch->count; from = upto) {
        upto = decoded_extent(batch, from);
        bool goes_on = upto > from ? work_range(lane, batch, (struct range){from, upto}, error)
                                   : work_with_caution(lane, batch, from, &upto, error);
        if (!goes_on)
            return false;
    }
    return true;
}

static void *lane_main(void *argument) {
    struct lane *lane = argument;
    struct error error = {0};
    /* Connected before the first message comes; a failure is met again then. */
    if (lane->options.store.open(lane->options.store.context, &error))
        lane->options.events.works(lane->options.events.context, lane);
    for (struct batch *batch; (batch = take_batch(lane)) != NULL;) {
        make_room_for_answer(lane, batch);
        bool is_done = work_batch(lane, batch, &error);
        put_away(lane, batch);
        if (!is_done && !is_stopping(lane)) {
            lane->options.events.failed(lane->options.events.context, lane, &error);
            break;
        }
    }
    lane->options.store.close(lane->options.store.context);
    return NULL;
}

/* ---- life ---- */

static bool store_open_of(void *context, struct error *error) {
    return store_open(context, error);
}

static void store_close_of(void *context) {
    store_close(context);
}

static enum store_result store_apply_of(void *context, struct batch *batch, size_t from, size_t upto,
                                        struct store_answer *ret_answer, struct error *error) {
    return store_apply(context, batch, from, upto, ret_answer, error);
}

static bool store_attempt_of(void *context, const char *topic, int32_t partition, int64_t offset, int *ret_tries,
                             struct error *error) {
    return store_attempt(context, topic, partition, offset, ret_tries, error);
}

struct lane_store lane_store_of(struct store *store) {
    return (struct lane_store){.context = store, .open = store_open_of, .close = store_close_of, .apply = store_apply_of,
                               .attempt = store_attempt_of};
}

struct lane *lane_new(const struct lane_options *options) {
    struct lane *lane = memory_alloc(sizeof *lane);
    lane->options = *options;
    lane->low_work = options->queue_messages / 2;
    lane->low_bytes = options->queue_bytes / 2;
    backoff_init(&lane->backoff, RETRY_BASE_MS, RETRY_MAXIMUM_MS, (uint64_t)clock_monotonic_us() ^ (uintptr_t)lane);
    pthread_mutex_init(&lane->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lane->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failed = pthread_create(&lane->thread, NULL, lane_main, lane);
    if (failed == 0)
        pthread_setname_np(lane->thread, lane->options.name);
    memory_or_exit(failed != 0 ? NULL : lane); /* no thread at start: as hopeless as no memory */
    return lane;
}

static void free_batches(struct batch *batch) {
    while (batch != NULL) {
        struct batch *next = batch->next;
        batch_free(batch);
        batch = next;
    }
}

void lane_free(struct lane *lane) {
    if (lane == NULL)
        return;
    pthread_mutex_lock(&lane->mutex);
    lane->is_stopping = true;
    pthread_mutex_unlock(&lane->mutex);
    pthread_cond_broadcast(&lane->changed);
    pthread_join(lane->thread, NULL);
    free_batches(lane->first);
    free_batches(lane->spare);
    free(lane->answer.outcomes);
    free(lane->answer.lost_slots);
    pthread_cond_destroy(&lane->changed);
    pthread_mutex_destroy(&lane->mutex);
    free(lane);
}

const char *lane_name(const struct lane *lane) {
    return lane->options.name;
}
