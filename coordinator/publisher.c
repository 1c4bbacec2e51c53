/* publisher; see publisher.h. */
#include "coordinator/publisher.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/crash.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BATCH_ROWS = 2000,
    BATCH_BYTES = 2 * 1024 * 1024, /* of the journal in memory at once; a single larger row still passes */
    FULL_BYTES = 512 * 1024,       /* a read that fetched this much may have left a large row behind */
    QUEUE_KBYTES = 4096,
    WINDOW_BATCHES = 4,            /* rows in flight, in batches */
    MARK_INTERVAL_MS = 60000,
    STATE_MARK_MS = 5000, /* a straggler shows as a gap before our next record: there is one this often */
    TAKE_OVER_MS = 30000, /* marks acknowledged, then read back */
    READ_MS = 100,        /* one wait for a record of them */
    MARK_WAIT_MS = 10000, /* for room in the producer's queue */
    DELIVERY_MS = 60000,
    NOTE_MS = 100,        /* how far it is published is noted this often: so much is read again by a successor */
    POLL_MS = 500,        /* the journal is read this often although nobody said that there is anything */
    LOOK_MS = 10,         /* between looks at what the reader has, while a gap is looked into */
    STALE_MS = 1000,      /* after a pause this long, ask whether we still are the relay before producing */
    FRAMING_BYTES = 128,  /* of a batch with one record */
};

/* Tickets of marks that belong to no row carry the partition's number. */
#define TICKET_TAKE_OVER ((uint64_t)1 << 62)
#define TICKET_WITNESS   ((uint64_t)1 << 61)

/* ---- creation ---- */

static void on_delivery(void *context, uint64_t ticket, int32_t partition, int64_t offset, const struct error *error) {
    struct publisher *publisher = context;
    (void)partition;
    if (error) { /* the producer has stopped: serve_producer sees it. The first to fail is the one; those behind it are purged */
        if (publisher->failed_number == 0 && !(ticket & (TICKET_TAKE_OVER | TICKET_WITNESS)))
            publisher->failed_number = window_number(&publisher->window, ticket);
        return;
    }
    atomic_fetch_add(&publisher->options.counts->records, 1);
    if (ticket & TICKET_TAKE_OVER) {
        publisher->mark[ticket & ~TICKET_TAKE_OVER] = offset;
        publisher->marks_missing--;
        return;
    }
    int32_t index = ticket & TICKET_WITNESS ? (int32_t)(ticket & ~TICKET_WITNESS)
                                            : window_acknowledge(&publisher->window, ticket, offset);
    if (publisher->readback.before_mark == 0 && publisher->readback.outputs)
        readback_acknowledged(&publisher->readback, index, offset);
}

static int batch_rows(const struct publisher *publisher) {
    return publisher->options.relay->batch > 0 ? publisher->options.relay->batch : BATCH_ROWS;
}

/* The largest record that any output topic takes: a dead letter's. */
static size_t record_bytes(void) {
    const char *limit = topic_config_get(topic_get(TOPIC_DEAD_LETTERS), "max.message.bytes");
    return limit ? (size_t)strtoul(limit, NULL, 10) - FRAMING_BYTES : 0;
}

bool publisher_init(struct publisher *publisher, const struct publisher_options *options,
                    struct relay_progress *take_progress, struct error *error) {
    *publisher = (struct publisher){.options = *options, .noted = *take_progress, .fence = options->fence};
    *take_progress = (struct relay_progress){0};
    int32_t total = options->outputs->total;
    const struct kafka_producer_options producer = {
        .settings = options->relay->kafka,
        .delivery_ms = DELIVERY_MS,
        .record_bytes = record_bytes(),
        .queue_messages = PUBLISHER_QUEUE_MESSAGES,
        .queue_kbytes = QUEUE_KBYTES,
        .delivered = on_delivery,
        .context = publisher,
    };
    if (!kafka_producer_new(&producer, &publisher->producer, error)) {
        publisher_release(publisher);
        return false;
    }
    kafka_producer_set_wake_fd(publisher->producer, options->wake_fd);
    window_init(&publisher->window, (size_t)batch_rows(publisher) * WINDOW_BATCHES, total, publisher->noted.published);
    record_init(&publisher->record);
    publisher->read_upto = publisher->noted.published;
    publisher->mark = memory_alloc_array((size_t)total + 1, sizeof *publisher->mark);
    publisher->start = memory_alloc_array((size_t)total + 1, sizeof *publisher->start);
    memcpy(publisher->start, publisher->noted.position, (size_t)total * sizeof *publisher->start);
    return true;
}

void publisher_release(struct publisher *publisher) {
    kafka_producer_free(publisher->producer);
    db_result_free(publisher->rows);
    readback_release(&publisher->readback);
    window_release(&publisher->window);
    record_release(&publisher->record);
    relay_progress_release(&publisher->noted);
    free(publisher->mark);
    free(publisher->start);
    *publisher = (struct publisher){0};
}

/* ---- producing ---- */

static bool is_too_large(const struct error *error) {
    return strcmp(error->code, "kafka_too_large") == 0;
}

/* What is wrong with the brokers or the topics passes, or an operator helps; meanwhile the role is taken again and again. Not
 * so a record that is too large: whoever takes over meets it again, so it stops us, and says so. */
static bool publisher_lost(struct error *error) {
    error->kind = is_too_large(error) ? ERROR_FATAL : ERROR_RETRY;
    return false;
}

/* number: the row in the journal, 0 = a mark. */
static bool publisher_lost_row(struct error *error, int64_t number) {
    if (is_too_large(error) && number > 0) {
        struct error why = *error;
        error_set(error, ERROR_FATAL, "kafka_too_large", "row %lld of the journal: %s", (long long)number, why.message);
    }
    return publisher_lost(error);
}

static bool publisher_send(struct publisher *publisher, int32_t index, uint64_t ticket, int wait_ms,
                           struct error *error) {
    const struct record *record = &publisher->record;
    struct kafka_partition place = outputs_partition(publisher->options.outputs, index, 0);
    struct kafka_record send = {
        .topic = place.topic,
        .partition = place.partition,
        .key = record->key,
        .key_size = record->key_size,
        .value = record->value,
        .value_size = record->value_size,
        .headers = record->headers,
        .header_count = record->header_count,
        .number = ticket,
    };
    if (!kafka_producer_send(publisher->producer, &send, wait_ms, error))
        return false;
    atomic_fetch_add(&publisher->options.counts->bytes, (int64_t)(record->key_size + record->value_size));
    return true;
}

/* ---- marks ---- */

enum marks {
    MARKS_TAKE_OVER, /* in every output partition, and under every witness key */
    MARKS_JUMP,      /* the same, as the records of the jump's row */
    MARKS_WITNESS,   /* under every witness key */
    MARKS_STATE,     /* under the witness keys of lease.state's own partitions */
};

/* `to` is the output partition that the mark is written to; is_own: the one that it speaks of. */
static uint64_t mark_ticket(struct publisher *publisher, enum marks why, bool is_own, int32_t to) {
    if (why == MARKS_JUMP)
        return window_add_mark(&publisher->window, publisher->sequence, to);
    return (why == MARKS_TAKE_OVER && is_own ? TICKET_TAKE_OVER : TICKET_WITNESS) | (uint64_t)to;
}

/* The mark of a partition in lease.state, under its witness key; in a partition of lease.state itself it is both. */
static bool send_witness(struct publisher *publisher, enum marks why, const struct mark *mark, int32_t index,
                         struct error *error) {
    const struct outputs *outputs = publisher->options.outputs;
    const struct output_topic *state = outputs_topic(outputs, TOPIC_STATE);
    struct kafka_partition place = outputs_partition(outputs, index, 0);
    struct record *record = &publisher->record;
    record_encode_mark(record, TOPIC_STATE, mark, place.topic, place.partition);
    bool is_own = index >= state->first && index < state->first + state->count;
    int32_t to = is_own ? index : outputs_index_of_key(outputs, TOPIC_STATE, record->key, record->key_size, 0);
    return publisher_send(publisher, to, mark_ticket(publisher, why, is_own, to), MARK_WAIT_MS, error);
}

static bool send_own_mark(struct publisher *publisher, enum marks why, const struct mark *mark, int32_t index,
                          const struct output_topic *topic, struct error *error) {
    if (topic->id == TOPIC_STATE || why == MARKS_WITNESS || why == MARKS_STATE)
        return true;
    record_encode_mark(&publisher->record, topic->id, mark, NULL, 0);
    return publisher_send(publisher, index, mark_ticket(publisher, why, true, index), MARK_WAIT_MS, error);
}

static bool send_marks(struct publisher *publisher, enum marks why, int64_t number, struct error *error) {
    const struct relay_store *store = publisher->options.store;
    const struct outputs *outputs = publisher->options.outputs;
    const struct mark mark = {store->epoch, number, publisher->fence, store->system_identifier, store->timeline};
    for (size_t t = 0; t < OUTPUT_TOPICS; t++) {
        const struct output_topic *topic = &outputs->topics[t];
        if (why == MARKS_STATE && topic->id != TOPIC_STATE)
            continue;
        for (int32_t i = topic->first; i < topic->first + topic->count; i++)
            if (!send_own_mark(publisher, why, &mark, i, topic, error) ||
                !send_witness(publisher, why, &mark, i, error))
                return publisher_lost(error);
    }
    publisher->state_marked_at_us = clock_monotonic_us();
    if (why != MARKS_STATE)
        publisher->marked_at_us = publisher->state_marked_at_us;
    return true;
}

/* ---- taking over ---- */

static bool is_stopping(const struct publisher *publisher) {
    return atomic_load(publisher->options.is_stopping);
}

static bool producer_is_good(const struct publisher *publisher, struct error *error) {
    const struct error *stopped = kafka_producer_stopped(publisher->producer);
    if (!stopped)
        return true;
    *error = *stopped;
    return publisher_lost_row(error, publisher->failed_number);
}

/* A term that has begun is brought to its end if there is time: what is journaled shall be published. */
static bool may_go_on(const struct publisher *publisher, int64_t deadline_us, const char *what, struct error *error) {
    int64_t now_us = clock_monotonic_us();
    if (is_stopping(publisher) && now_us >= atomic_load(publisher->options.stop_by_us))
        return error_set(error, ERROR_RETRY, "relay_stopped", "stopping");
    if (now_us >= deadline_us)
        return error_set(error, ERROR_RETRY, "relay_take_over", "%s in time", what);
    return true;
}

static bool await_marks(struct publisher *publisher, int64_t deadline_us, struct error *error) {
    while (publisher->marks_missing > 0) {
        kafka_producer_poll(publisher->producer, 50);
        if (!producer_is_good(publisher, error) ||
            !may_go_on(publisher, deadline_us, "the marks were not acknowledged", error))
            return false;
    }
    return true;
}

static bool restate_keys(struct publisher *publisher, struct error *error) {
    struct readback *readback = &publisher->readback;
    if (!relay_store_restate(publisher->options.store, readback->keys, readback->key_count, error))
        return false;
    atomic_fetch_add(&publisher->options.counts->restated, (int64_t)readback->key_count);
    log_write(publisher->options.relay->log, LOG_WARNING, "lease.state repaired after a paused relay", "keys",
              LOG_N(readback->key_count), NULL);
    readback_forget_keys(readback);
    atomic_store(publisher->options.is_signaled, true);
    return true;
}

bool publisher_take_over(struct publisher *publisher, struct error *error) {
    const struct publisher_options *options = &publisher->options;
    int64_t deadline_us = clock_monotonic_us() + TAKE_OVER_MS * 1000LL;
    publisher->marks_missing = options->outputs->total;
    if (!send_marks(publisher, MARKS_TAKE_OVER, publisher->noted.published, error) ||
        !await_marks(publisher, deadline_us, error))
        return false;

    struct readback *readback = &publisher->readback;
    readback_init(readback, options->reader, options->outputs, options->store->epoch, publisher->noted.epoch,
                  publisher->noted.position, publisher->noted.read_back, publisher->mark);
    readback->lost_after = publisher->noted.lost_after;
    readback->lost_before = publisher->noted.lost_before;
    if (!readback_start(readback, error))
        return publisher_lost(error);
    while (readback->before_mark > 0) {
        if (!readback_to_marks(readback, READ_MS, error))
            return publisher_lost(error);
        if (!may_go_on(publisher, deadline_us, "the output topics were not read up to the marks", error))
            return false;
        if (readback->key_count > 0 && !restate_keys(publisher, error))
            return false;
    }
    if (readback->fence > publisher->fence)
        publisher->fence = readback->fence;
    publisher->noted.epoch = options->store->epoch;
    return true;
}

/* ---- rows ---- */

/* Numbers have no gap but where a jump says so. */
static bool check_number(const struct publisher *publisher, const struct journal_row *row, struct error *error) {
    bool is_jump = strcmp(row->event, "jumped") == 0;
    int64_t before = is_jump && row->previous_number != ROW_NULL ? row->previous_number : row->number - 1;
    if (before == publisher->read_upto)
        return true;
    return error_set(error, ERROR_FATAL, "relay_journal_gap", "the journal goes on with %lld after %lld",
                     (long long)row->number, (long long)publisher->read_upto);
}

enum { STAGE_RESULT, STAGE_GRANT, STAGE_STATE, STAGE_DEAD_LETTER, STAGE_MARKS, STAGES };

static bool encode_stage(struct publisher *publisher, const struct journal_row *row) {
    int64_t epoch = publisher->options.store->epoch;
    switch (publisher->stage) {
    case STAGE_RESULT:
        return record_encode_result(&publisher->record, row, epoch);
    case STAGE_GRANT:
        return record_encode_grant(&publisher->record, row, epoch, publisher->options.relay->token_keys);
    case STAGE_STATE:
        return record_encode_state(&publisher->record, row, epoch);
    case STAGE_DEAD_LETTER:
        return record_encode_dead_letter(&publisher->record, row, epoch);
    default:
        return false;
    }
}

/* *ret_full: the producer takes no more for now; the stage is to be done again. */
static bool send_stage(struct publisher *publisher, const struct journal_row *row, bool *ret_full,
                       struct error *error) {
    const struct record *record = &publisher->record;
    if (publisher->stage == STAGE_MARKS)
        return strcmp(row->event, "jumped") != 0 || send_marks(publisher, MARKS_JUMP, row->number, error);
    if (!encode_stage(publisher, row))
        return true;
    int32_t index = outputs_index_of_key(publisher->options.outputs, record->topic, record->key, record->key_size,
                                         row->number);
    if (row->number <= publisher->readback.published[index]) {
        atomic_fetch_add(&publisher->options.counts->skipped, 1);
        return true;
    }
    uint64_t ticket = window_add(&publisher->window, publisher->sequence, index);
    if (publisher_send(publisher, index, ticket, 0, error))
        return true;
    window_undo(&publisher->window, ticket);
    *ret_full = strcmp(error->code, "kafka_queue_full") == 0;
    return *ret_full || publisher_lost_row(error, row->number);
}

/* Only fences that were given out: a refusal has the one that its command claimed, and marks with it would make the witness
 * tell of fences that no database knows. */
static void note_fence(struct publisher *publisher, const struct journal_row *row) {
    bool is_given_out = row->is_grant || strcmp(row->event, "jumped") == 0;
    if (is_given_out && row->fence != ROW_NULL && row->fence > publisher->fence)
        publisher->fence = row->fence;
}

static bool send_row(struct publisher *publisher, const struct journal_row *row, bool *ret_full, struct error *error) {
    if (!publisher->is_row_open) {
        publisher->sequence = window_open(&publisher->window, row->number, row->at_us);
        publisher->stage = STAGE_RESULT;
        publisher->is_row_open = true;
        note_fence(publisher, row);
    }
    for (; publisher->stage < STAGES; publisher->stage++) {
        if (!send_stage(publisher, row, ret_full, error))
            return false;
        if (*ret_full)
            return true;
    }
    window_seal(&publisher->window, publisher->sequence);
    publisher->is_row_open = false;
    return true;
}

/* A process that was stopped, or waited long for room, may have been replaced: what it still holds would be stragglers. */
static bool check_role_if_stale(struct publisher *publisher, struct error *error) {
    if (clock_monotonic_us() - publisher->options.store->called_us < STALE_MS * 1000LL)
        return true;
    return relay_store_check(publisher->options.store, error);
}

static bool send_rows(struct publisher *publisher, struct error *error) {
    if (!publisher->rows)
        return true;
    bool is_full = false;
    if (!check_role_if_stale(publisher, error))
        return false;
    for (; publisher->row < db_rows(publisher->rows); publisher->row++) {
        struct journal_row row;
        if (!publisher->is_row_open && window_room(&publisher->window) == 0)
            return true;
        relay_store_row(publisher->rows, publisher->row, &row);
        if (!publisher->is_row_open && !check_number(publisher, &row, error))
            return false;
        if (!send_row(publisher, &row, &is_full, error))
            return false;
        if (is_full)
            return true;
        publisher->read_upto = row.number;
    }
    db_result_free(publisher->rows);
    publisher->rows = NULL;
    if (CRASH_POINT("relay.produced"))
        return error_set(error, ERROR_RETRY, "crash_point", "relay.produced");
    return true;
}

/* ---- the journal ---- */

static bool is_read_due(struct publisher *publisher, int64_t now_us) {
    if (publisher->rows || window_room(&publisher->window) < (size_t)batch_rows(publisher))
        return false;
    return atomic_load(publisher->options.is_signaled) || publisher->has_more ||
           now_us - publisher->polled_at_us >= POLL_MS * 1000LL;
}

static bool read_rows(struct publisher *publisher, struct error *error) {
    if (!is_read_due(publisher, clock_monotonic_us()))
        return true;
    atomic_store(publisher->options.is_signaled, false); /* before the look: what comes later signals again */
    if (!relay_store_read(publisher->options.store, publisher->read_upto, batch_rows(publisher), BATCH_BYTES,
                          &publisher->rows, error))
        return false;
    publisher->polled_at_us = clock_monotonic_us();
    publisher->row = 0;
    size_t count = db_rows(publisher->rows);
    publisher->has_more = count >= (size_t)batch_rows(publisher) || db_result_bytes(publisher->rows) >= FULL_BYTES;
    if (count == 0) {
        db_result_free(publisher->rows);
        publisher->rows = NULL;
    }
    return true;
}

/* ---- acknowledgements ---- */

static bool serve_producer(struct publisher *publisher, struct error *error) {
    struct relay_counts *counts = publisher->options.counts;
    kafka_producer_poll(publisher->producer, 0);
    if (!producer_is_good(publisher, error))
        return false;
    size_t collected = window_collect(&publisher->window);
    bool is_idle = window_size(&publisher->window) == 0 && !publisher->rows;
    if (collected > 0 || is_idle)
        atomic_store(&counts->progress_us, clock_monotonic_us());
    atomic_store(&counts->published, publisher->window.published);
    atomic_store(&counts->in_flight, (int64_t)kafka_producer_in_flight(publisher->producer));
    atomic_store(&counts->oldest_us, window_oldest_us(&publisher->window));
    if (collected > 0 && CRASH_POINT("relay.acked"))
        return error_set(error, ERROR_RETRY, "crash_point", "relay.acked");
    return true;
}

/* A partition's position: behind our last record in it that is published; before there is one, behind our mark as soon as all
 * that stood before the mark is below the watermark. */
static int64_t position_of(const struct publisher *publisher, int32_t index) {
    if (publisher->window.position[index] >= 0)
        return publisher->window.position[index];
    if (publisher->window.published >= publisher->readback.published[index])
        return publisher->mark[index] + 1;
    return publisher->start[index];
}

static bool note_progress(struct publisher *publisher, struct error *error) {
    struct relay_progress *noted = &publisher->noted;
    const struct outputs *outputs = publisher->options.outputs;
    const struct output_topic *state = outputs_topic(outputs, TOPIC_STATE);
    noted->published = publisher->window.published;
    for (int32_t i = 0; i < outputs->total; i++)
        noted->position[i] = position_of(publisher, i);
    for (int32_t i = state->first; i < state->first + state->count; i++)
        if (publisher->readback.key_count == 0)
            noted->read_back[i] = publisher->readback.position[i];
    publisher->noted_at_us = clock_monotonic_us();
    return relay_store_advance(publisher->options.store, noted, outputs, error);
}

static bool note_progress_if_due(struct publisher *publisher, struct error *error) {
    bool is_new = publisher->window.published != publisher->noted.published;
    if (!is_new || clock_monotonic_us() - publisher->noted_at_us < NOTE_MS * 1000LL)
        return true;
    return note_progress(publisher, error);
}

/* ---- marks and repair in passing ---- */

static int64_t mark_interval_us(const struct publisher *publisher) {
    int ms = publisher->options.relay->mark_interval_ms;
    return (ms > 0 ? ms : MARK_INTERVAL_MS) * 1000LL;
}

static bool write_marks_if_due(struct publisher *publisher, struct error *error) {
    int64_t now_us = clock_monotonic_us();
    if (now_us - publisher->marked_at_us >= mark_interval_us(publisher))
        return send_marks(publisher, MARKS_WITNESS, publisher->window.published, error);
    if (now_us - publisher->state_marked_at_us >= STATE_MARK_MS * 1000LL)
        return send_marks(publisher, MARKS_STATE, publisher->window.published, error);
    return true;
}

static bool repair_state(struct publisher *publisher, struct error *error) {
    if (!readback_poll(&publisher->readback, error))
        return publisher_lost(error);
    return publisher->readback.key_count == 0 || restate_keys(publisher, error);
}

/* ---- waiting ---- */

/* Our own lanes have woken us before PostgreSQL's word comes: it says up to which number. */
static void take_notification(struct publisher *publisher, const struct db_notification *notification) {
    if (strtoll(notification->payload, NULL, 10) > publisher->read_upto)
        atomic_store(publisher->options.is_signaled, true);
}

static int wait_ms_at_most(const struct publisher *publisher) {
    int64_t now_us = clock_monotonic_us();
    int64_t until_us = publisher->polled_at_us + POLL_MS * 1000LL;
    if (publisher->window.published != publisher->noted.published &&
        publisher->noted_at_us + NOTE_MS * 1000LL < until_us)
        until_us = publisher->noted_at_us + NOTE_MS * 1000LL;
    if (publisher->rows) /* no room: the acknowledgements wake us */
        until_us = now_us + POLL_MS * 1000LL;
    if (publisher->readback.is_looking && until_us > now_us + LOOK_MS * 1000LL)
        until_us = now_us + LOOK_MS * 1000LL;
    return until_us > now_us ? (int)((until_us - now_us) / 1000) + 1 : 0;
}

static bool publisher_wait(struct publisher *publisher, struct error *error) {
    uint64_t count;
    struct db_notification notification;
    bool has_work = is_read_due(publisher, clock_monotonic_us());
    int timeout_ms = has_work ? 0 : wait_ms_at_most(publisher);
    for (;;) {
        enum db_wait what =
            db_wait(publisher->options.store->db, timeout_ms, publisher->options.wake_fd, &notification, error);
        if (what == DB_WAIT_LOST)
            return false;
        if (what != DB_WAIT_NOTIFIED)
            break;
        take_notification(publisher, &notification);
        timeout_ms = 0; /* take the others that are there */
    }
    while (read(publisher->options.wake_fd, &count, sizeof count) > 0)
        ;
    return true;
}

/* ---- the loop ---- */

static bool publisher_turn(struct publisher *publisher, struct error *error) {
    return serve_producer(publisher, error) && send_rows(publisher, error) && read_rows(publisher, error) &&
           send_rows(publisher, error) && repair_state(publisher, error) && note_progress_if_due(publisher, error) &&
           write_marks_if_due(publisher, error);
}

/* Told to stop: done when the journal was read to its end after that, and all of it is published. */
static bool is_finished(struct publisher *publisher, bool *is_draining) {
    if (!is_stopping(publisher))
        return false;
    if (clock_monotonic_us() >= atomic_load(publisher->options.stop_by_us))
        return true;
    if (!*is_draining) {
        *is_draining = true;
        atomic_store(publisher->options.is_signaled, true);
        return false;
    }
    return !publisher->rows && !publisher->has_more && window_size(&publisher->window) == 0 &&
           !atomic_load(publisher->options.is_signaled);
}

/* The marks are the last word of this relay: after the topics' retention they may be all that is left. */
static bool publisher_finish(struct publisher *publisher, struct error *error) {
    int64_t left_ms = (atomic_load(publisher->options.stop_by_us) - clock_monotonic_us()) / 1000;
    if (!note_progress(publisher, error))
        return false;
    if (left_ms <= 0)
        return true;
    return (send_marks(publisher, MARKS_WITNESS, publisher->window.published, error) &&
            kafka_producer_flush(publisher->producer, (int)left_ms, error)) ||
           publisher_lost(error);
}

bool publisher_run(struct publisher *publisher, struct error *error) {
    bool is_draining = false;
    while (!is_finished(publisher, &is_draining))
        if (!publisher_turn(publisher, error) || !publisher_wait(publisher, error))
            return false;
    return publisher_finish(publisher, error);
}
