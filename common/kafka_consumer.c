/* kafka_consumer: a group member that fetches each partition into a queue of its own.
 *
 * Why queues of our own, and not rd_kafka_consumer_poll for records: librdkafka's pause throws away what was read ahead and fetches it
 * again (and 2.0.2 can lose its place in doing so); with one queue each, a paused partition is one that is not looked at, and
 * a full one holds nobody else up. Runs in its owner's thread; records arrive from librdkafka's. */
#include "common/kafka_consumer.h"
#include "common/kafka_private.h"

#include "common/buf.h"
#include "common/clock.h"

#include <assert.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    CONSUMER_SESSION_MS = 10000,
    CONSUMER_POLL_MS_MINIMUM = 15000, /* an owner may ask brokers and database a few questions between two polls */
    CONSUMER_HEARTBEAT_MS = 1000, /* tells of a rebalance this soon at the latest … */
    CONSUMER_HEARTBEATS = 3,      /* … and a session must survive some that come late */
    CONSUMER_QUEUE_MESSAGES = 500,
    CONSUMER_QUEUE_KBYTES = 4096,
    CONSUMER_PARTITIONS = 32,  /* what the byte bound is divided by: about as many as one coordinator has */
    CONSUMER_PARTITION_KBYTES_MIN = 64,
    CONSUMER_RUN = 100,        /* records from one partition before the next one's turn … */
    CONSUMER_RUN_BYTES = 65536, /* … or bytes: a backlog of large ones must not keep others out of a queue that is often full */
    CONSUMER_SERVE_US = 2000,  /* while records flow, rebalances are looked for this often */
    CONSUMER_STATE_MS = 100,   /* while none flow, waits are cut to this: max.poll stays far away */
};

/* An assigned partition. */
struct slot {
    char *topic;
    int32_t partition;
    bool is_fetching;
    bool is_paused;
    int64_t start;           /* where the owner said, inside a rebalance callback; else KAFKA_OFFSET_NONE */
    rd_kafka_queue_t *queue; /* the partition's own */
    size_t taken;            /* records handed out since the fetcher was last told of the room */
};

struct kafka_consumer {
    struct kafka_client client;
    struct kafka_view view;
    kafka_rebalance_fn *rebalance;
    void *context;
    int event_fd;                  /* readable when a queue that was empty is not, or somebody wakes us */
    _Atomic bool is_woken;
    rd_kafka_queue_t *group_queue; /* rebalances and errors */
    int64_t served_us;             /* when it was last looked at */
    struct slot *slots;
    size_t slot_count, slot_capacity;
    size_t turn, run, run_bytes;   /* whose turn it is, and how much it has had */
    rd_kafka_message_t *current;   /* what the last view points into */
    size_t nudge_messages;         /* half of a partition's read ahead */
    bool is_nudge_due;
    bool in_rebalance;
    bool was_assigned;             /* the group has answered, if only with nothing */
    bool has_lost_topic;           /* a topic that we read was deleted */
    bool is_closed;
};

/* ---- slots ---- */

static struct slot *slot_find(struct kafka_consumer *consumer, const char *topic, int32_t partition) {
    for (size_t i = 0; i < consumer->slot_count; i++) {
        struct slot *slot = &consumer->slots[i];
        if (slot->partition == partition && strcmp(slot->topic, topic) == 0)
            return slot;
    }
    return NULL;
}

/* The partition's queue stays its own: without this, records would go to the group's queue. The order matters, before the
 * first fetch. */
static rd_kafka_queue_t *slot_queue_open(struct kafka_consumer *consumer, const char *topic, int32_t partition) {
    static const uint64_t one = 1;
    rd_kafka_queue_t *queue =
        memory_or_exit(rd_kafka_queue_get_partition(consumer->client.handle, topic, partition));
    rd_kafka_queue_forward(queue, NULL);
    rd_kafka_queue_io_event_enable(queue, consumer->event_fd, &one, sizeof one);
    return queue;
}

static void slot_add(struct kafka_consumer *consumer, const char *topic, int32_t partition) {
    if (slot_find(consumer, topic, partition))
        return;
    if (consumer->slot_count == consumer->slot_capacity) {
        consumer->slot_capacity = consumer->slot_capacity * 2 + 16;
        consumer->slots = memory_resize(consumer->slots, consumer->slot_capacity, sizeof *consumer->slots);
    }
    consumer->slots[consumer->slot_count++] = (struct slot){
        .topic = memory_copy_text(topic),
        .partition = partition,
        .start = KAFKA_OFFSET_NONE,
        .queue = slot_queue_open(consumer, topic, partition),
    };
}

static void slot_release(struct slot *slot) {
    rd_kafka_queue_io_event_enable(slot->queue, -1, NULL, 0);
    rd_kafka_queue_destroy(slot->queue);
    free(slot->topic);
}

static void slot_remove(struct kafka_consumer *consumer, const char *topic, int32_t partition) {
    struct slot *slot = slot_find(consumer, topic, partition);
    if (!slot)
        return;
    slot_release(slot);
    *slot = consumer->slots[--consumer->slot_count];
}

/* ---- creation ---- */

static void consumer_on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t code,
                                  rd_kafka_topic_partition_list_t *list, void *opaque);

static void consumer_set_callbacks(rd_kafka_conf_t *conf, void *context) {
    (void)context;
    rd_kafka_conf_set_rebalance_cb(conf, consumer_on_rebalance);
}

static bool consumer_client_init(struct kafka_consumer *consumer, const struct kafka_consumer_options *options,
                                 struct error *error) {
    int session = options->session_timeout_ms ? options->session_timeout_ms : CONSUMER_SESSION_MS;
    size_t messages = options->queue_messages ? options->queue_messages : CONSUMER_QUEUE_MESSAGES;
    size_t kbytes = (options->queue_kbytes ? options->queue_kbytes : CONSUMER_QUEUE_KBYTES) / CONSUMER_PARTITIONS;
    if (kbytes < CONSUMER_PARTITION_KBYTES_MIN)
        kbytes = CONSUMER_PARTITION_KBYTES_MIN;
    consumer->nudge_messages = messages / 2;

    char session_ms[16], poll_ms[16], heartbeat_ms[16], queue_messages[24], queue_kbytes[24];
    snprintf(heartbeat_ms, sizeof heartbeat_ms, "%d",
             session / CONSUMER_HEARTBEATS < CONSUMER_HEARTBEAT_MS ? session / CONSUMER_HEARTBEATS : CONSUMER_HEARTBEAT_MS);
    snprintf(session_ms, sizeof session_ms, "%d", session);
    snprintf(poll_ms, sizeof poll_ms, "%d",
             options->max_poll_ms                     ? options->max_poll_ms
             : session * 3 > CONSUMER_POLL_MS_MINIMUM ? session * 3
                                                      : CONSUMER_POLL_MS_MINIMUM);
    snprintf(queue_messages, sizeof queue_messages, "%zu", messages);
    snprintf(queue_kbytes, sizeof queue_kbytes, "%zu", kbytes);
    /* A fetch that finds nothing comes back after 100 ms: so long can a partition wait that is assigned meanwhile. */
    const struct kafka_default defaults[] = {
        {"fetch.wait.max.ms", "100"},
        {"fetch.error.backoff.ms", "50"},
        {"heartbeat.interval.ms", heartbeat_ms},
        {"fetch.max.bytes", "2097152"}, /* KAFKA_FETCH_BYTES */
        {"fetch.message.max.bytes", "131072"},
        {NULL, NULL},
    };
    const struct kafka_default fixed[] = {
        {"group.id", options->group},
        {"partition.assignment.strategy", "cooperative-sticky"},
        {"session.timeout.ms", session_ms},
        {"max.poll.interval.ms", poll_ms},
        {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"},
        {"auto.offset.reset", "error"},
        {"enable.partition.eof", "false"},
        {"check.crcs", "true"},
        {"queued.min.messages", queue_messages},
        {"queued.max.messages.kbytes", queue_kbytes},
        {NULL, NULL},
    };
    return kafka_client_init(&consumer->client, KAFKA_ROLE_CONSUMER, options->settings, defaults, fixed,
                             consumer_set_callbacks, NULL, error);
}

static bool consumer_subscribe(struct kafka_consumer *consumer, const struct kafka_consumer_options *options,
                               struct error *error) {
    rd_kafka_topic_partition_list_t *list =
        memory_or_exit(rd_kafka_topic_partition_list_new((int)options->topic_count));
    for (size_t i = 0; i < options->topic_count; i++)
        rd_kafka_topic_partition_list_add(list, options->topics[i], RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(consumer->client.handle, list);
    rd_kafka_topic_partition_list_destroy(list);
    return code ? kafka_error_set(error, code, "cannot join the group", NULL) : true;
}

bool kafka_consumer_new(const struct kafka_consumer_options *options, struct kafka_consumer **ret_consumer,
                        struct error *error) {
    static const uint64_t one = 1;
    struct kafka_consumer *consumer = memory_alloc(sizeof *consumer);
    consumer->rebalance = options->rebalance;
    consumer->context = options->context;
    consumer->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (consumer->event_fd < 0) {
        error_set(error, ERROR_RETRY, "system", "eventfd: %m");
        goto failed;
    }
    if (!consumer_client_init(consumer, options, error))
        goto failed;
    rd_kafka_poll_set_consumer(consumer->client.handle);
    consumer->group_queue = rd_kafka_queue_get_consumer(consumer->client.handle);
    rd_kafka_queue_io_event_enable(consumer->group_queue, consumer->event_fd, &one, sizeof one);
    if (!consumer_subscribe(consumer, options, error))
        goto failed;
    *ret_consumer = consumer;
    return true;
failed:
    kafka_consumer_free(consumer);
    return false;
}

static void consumer_drop_current(struct kafka_consumer *consumer) {
    if (consumer->current)
        rd_kafka_message_destroy(consumer->current);
    consumer->current = NULL;
}

static void consumer_discard(struct kafka_consumer *consumer) {
    rd_kafka_message_t *record = rd_kafka_consumer_poll(consumer->client.handle, 20);
    if (record)
        rd_kafka_message_destroy(record);
}

/* librdkafka 2.0.2 aborts (sticky assignor, assertion `assignor_state`) when a client is destroyed that has had the answer to its joining
 * and no assignment yet. So that one is waited for; where it does not come (others come and go faster), the client is let be. */
static void consumer_await_assignment(struct kafka_consumer *consumer, int wait_ms) {
    int64_t deadline_us = clock_monotonic_us() + (int64_t)wait_ms * 1000;
    while (!consumer->was_assigned && clock_monotonic_us() < deadline_us)
        consumer_discard(consumer);
}

void kafka_consumer_close(struct kafka_consumer *consumer, int wait_ms) {
    if (consumer->is_closed)
        return;
    consumer->is_closed = true;
    consumer_drop_current(consumer);
    consumer_await_assignment(consumer, wait_ms);
    rd_kafka_error_t *failure = rd_kafka_consumer_close_queue(consumer->client.handle, consumer->group_queue);
    if (failure) {
        rd_kafka_error_destroy(failure);
        return;
    }
    int64_t deadline_us = clock_monotonic_us() + (int64_t)wait_ms * 1000;
    while (!rd_kafka_consumer_closed(consumer->client.handle) && clock_monotonic_us() < deadline_us)
        consumer_discard(consumer);
}

void kafka_consumer_free(struct kafka_consumer *consumer) {
    if (!consumer)
        return;
    consumer_drop_current(consumer);
    for (size_t i = 0; i < consumer->slot_count; i++)
        slot_release(&consumer->slots[i]);
    free(consumer->slots);
    if (consumer->group_queue) {
        rd_kafka_queue_io_event_enable(consumer->group_queue, -1, NULL, 0);
        rd_kafka_queue_destroy(consumer->group_queue);
    }
    kafka_view_release(&consumer->view);
    if (consumer->has_lost_topic || !consumer->was_assigned) {
        kafka_client_abandon(&consumer->client); /* it may still call back with the consumer, and write to event_fd */
        return;
    }
    kafka_client_release(&consumer->client);
    if (consumer->event_fd >= 0)
        close(consumer->event_fd);
    free(consumer);
}

/* ---- assignment ---- */

static bool consumer_unassign(struct kafka_consumer *consumer, const rd_kafka_topic_partition_list_t *list,
                              struct error *error) {
    if (list->cnt == 0)
        return true;
    rd_kafka_error_t *failure = rd_kafka_incremental_unassign(consumer->client.handle, list);
    return failure ? kafka_error_take(error, failure, "cannot stop reading partitions") : true;
}

static bool consumer_assign(struct kafka_consumer *consumer, const rd_kafka_topic_partition_list_t *list,
                            struct error *error) {
    rd_kafka_error_t *failure = rd_kafka_incremental_assign(consumer->client.handle, list);
    return failure ? kafka_error_take(error, failure, "cannot start reading partitions") : true;
}

static void slot_set_fetching(struct slot *slot, bool is_fetching) {
    assert(slot); /* lists of ours name nothing else */
    slot->is_fetching = is_fetching;
    slot->is_paused = false;
    slot->start = KAFKA_OFFSET_NONE;
    slot->taken = 0;
}

/* Assigns at the offsets of the list what is not fetching, and takes back first what is. */
static bool consumer_restart(struct kafka_consumer *consumer, const rd_kafka_topic_partition_list_t *list,
                             struct error *error) {
    rd_kafka_topic_partition_list_t *running = memory_or_exit(rd_kafka_topic_partition_list_new(list->cnt));
    for (int i = 0; i < list->cnt; i++) {
        struct slot *slot = slot_find(consumer, list->elems[i].topic, list->elems[i].partition);
        assert(slot);
        if (slot->is_fetching)
            rd_kafka_topic_partition_list_add(running, slot->topic, slot->partition);
        slot_set_fetching(slot, false);
    }
    bool done = consumer_unassign(consumer, running, error);
    rd_kafka_topic_partition_list_destroy(running);
    if (!done || !consumer_assign(consumer, list, error))
        return false;
    for (int i = 0; i < list->cnt; i++)
        slot_set_fetching(slot_find(consumer, list->elems[i].topic, list->elems[i].partition), true);
    return true;
}

bool kafka_consumer_start(struct kafka_consumer *consumer, const struct kafka_partition *partitions, size_t count,
                          struct error *error) {
    for (size_t i = 0; i < count; i++)
        if (!slot_find(consumer, partitions[i].topic, partitions[i].partition))
            return error_set(error, ERROR_RETRY, "kafka_not_assigned", "%s[%d] is not assigned", partitions[i].topic,
                             partitions[i].partition);
    if (consumer->in_rebalance) { /* one call for all of them when the callback returns */
        for (size_t i = 0; i < count; i++) {
            struct slot *slot = slot_find(consumer, partitions[i].topic, partitions[i].partition);
            assert(slot);
            slot->start = partitions[i].offset;
        }
        return true;
    }
    rd_kafka_topic_partition_list_t *list = memory_or_exit(rd_kafka_topic_partition_list_new((int)count));
    for (size_t i = 0; i < count; i++)
        rd_kafka_topic_partition_list_add(list, partitions[i].topic, partitions[i].partition)->offset =
            partitions[i].offset;
    bool done = consumer_restart(consumer, list, error);
    rd_kafka_topic_partition_list_destroy(list);
    return done;
}

bool kafka_consumer_stop(struct kafka_consumer *consumer, const char *topic, int32_t partition, struct error *error) {
    struct slot *slot = slot_find(consumer, topic, partition);
    if (!slot)
        return error_set(error, ERROR_RETRY, "kafka_not_assigned", "%s[%d] is not assigned", topic, partition);
    if (!slot->is_fetching)
        return true;
    slot_set_fetching(slot, false);
    rd_kafka_topic_partition_list_t *list = memory_or_exit(rd_kafka_topic_partition_list_new(1));
    rd_kafka_topic_partition_list_add(list, topic, partition);
    bool done = consumer_unassign(consumer, list, error);
    rd_kafka_topic_partition_list_destroy(list);
    return done;
}

static bool consumer_set_paused(struct kafka_consumer *consumer, const struct kafka_partition *partitions,
                                size_t count, bool is_paused, struct error *error) {
    if (!partitions) {
        for (size_t i = 0; i < consumer->slot_count; i++)
            consumer->slots[i].is_paused = is_paused;
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        struct slot *slot = slot_find(consumer, partitions[i].topic, partitions[i].partition);
        if (!slot)
            return error_set(error, ERROR_RETRY, "kafka_not_assigned", "%s[%d] is not assigned", partitions[i].topic,
                             partitions[i].partition);
        slot->is_paused = is_paused;
    }
    return true;
}

bool kafka_consumer_pause(struct kafka_consumer *consumer, const struct kafka_partition *partitions, size_t count,
                          struct error *error) {
    return consumer_set_paused(consumer, partitions, count, true, error);
}

bool kafka_consumer_resume(struct kafka_consumer *consumer, const struct kafka_partition *partitions, size_t count,
                           struct error *error) {
    return consumer_set_paused(consumer, partitions, count, false, error);
}

/* ---- rebalance ---- */

static void consumer_tell(struct kafka_consumer *consumer, enum kafka_rebalance what,
                          const rd_kafka_topic_partition_list_t *list) {
    struct kafka_partition *partitions = memory_alloc_array((size_t)list->cnt + 1, sizeof *partitions);
    for (int i = 0; i < list->cnt; i++)
        partitions[i] = (struct kafka_partition){list->elems[i].topic, list->elems[i].partition, KAFKA_OFFSET_NONE};
    consumer->in_rebalance = true;
    consumer->rebalance(consumer->context, what, partitions, (size_t)list->cnt);
    consumer->in_rebalance = false;
    free(partitions);
}

/* librdkafka waits for an assign call, even for none: the group goes on only then. */
static bool consumer_on_assigned(struct kafka_consumer *consumer, rd_kafka_topic_partition_list_t *list,
                                 struct error *error) {
    for (int i = 0; i < list->cnt; i++)
        slot_add(consumer, list->elems[i].topic, list->elems[i].partition);
    consumer_tell(consumer, KAFKA_ASSIGNED, list);

    rd_kafka_topic_partition_list_t *starting = memory_or_exit(rd_kafka_topic_partition_list_new(list->cnt));
    for (size_t i = 0; i < consumer->slot_count; i++) {
        struct slot *slot = &consumer->slots[i];
        if (slot->start != KAFKA_OFFSET_NONE)
            rd_kafka_topic_partition_list_add(starting, slot->topic, slot->partition)->offset = slot->start;
    }
    bool done = consumer_restart(consumer, starting, error);
    rd_kafka_topic_partition_list_destroy(starting);
    return done;
}

static bool consumer_on_revoked(struct kafka_consumer *consumer, rd_kafka_topic_partition_list_t *list,
                                struct error *error) {
    bool is_lost = rd_kafka_assignment_lost(consumer->client.handle);
    consumer_tell(consumer, is_lost ? KAFKA_LOST : KAFKA_REVOKED, list);

    rd_kafka_topic_partition_list_t *running = memory_or_exit(rd_kafka_topic_partition_list_new(list->cnt));
    for (int i = 0; i < list->cnt; i++) {
        struct slot *slot = slot_find(consumer, list->elems[i].topic, list->elems[i].partition);
        if (slot && slot->is_fetching)
            rd_kafka_topic_partition_list_add(running, slot->topic, slot->partition);
        slot_remove(consumer, list->elems[i].topic, list->elems[i].partition);
    }
    rd_kafka_error_t *failure = rd_kafka_incremental_unassign(consumer->client.handle, running);
    rd_kafka_topic_partition_list_destroy(running);
    return failure ? kafka_error_take(error, failure, "cannot give partitions back") : true;
}

static bool consumer_on_rebalance_error(rd_kafka_t *handle, rd_kafka_resp_err_t code, struct error *error) {
    rd_kafka_assign(handle, NULL);
    return kafka_error_set(error, code, "rebalance", NULL);
}

/* Runs inside rd_kafka_consumer_poll. What fails here shows as an event of the next poll. */
static void consumer_on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t code,
                                  rd_kafka_topic_partition_list_t *list, void *opaque) {
    struct kafka_consumer *consumer = opaque; /* the client is its first member */
    struct error error;
    bool done;
    consumer->was_assigned = true;
    if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS)
        done = consumer_on_assigned(consumer, list, &error);
    else if (code == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS)
        done = consumer_on_revoked(consumer, list, &error);
    else
        done = consumer_on_rebalance_error(handle, code, &error);
    if (!done) {
        consumer->client.event = error;
        consumer->client.has_event = true;
    }
}

/* ---- polling ---- */

static void slot_count_taken(struct kafka_consumer *consumer, struct slot *slot, bool is_empty) {
    if (slot->taken >= consumer->nudge_messages || (is_empty && slot->taken > 0)) {
        slot->taken = 0;
        consumer->is_nudge_due = true;
    }
}

static rd_kafka_message_t *slot_take(struct kafka_consumer *consumer, struct slot *slot) {
    if (!slot->is_fetching || slot->is_paused)
        return NULL;
    rd_kafka_message_t *record = rd_kafka_consume_queue(slot->queue, 0);
    slot_count_taken(consumer, slot, record == NULL);
    return record;
}

/* The next record of a partition that is neither paused nor empty. Each has its turn, which ends after so many records or bytes;
 * a look that finds nothing changes nothing, so that whoever stands behind a busy partition comes next after it. */
static rd_kafka_message_t *consumer_take(struct kafka_consumer *consumer) {
    bool is_over = consumer->run >= CONSUMER_RUN || consumer->run_bytes >= CONSUMER_RUN_BYTES;
    for (size_t looked = is_over ? 1 : 0; consumer->slot_count > 0 && looked <= consumer->slot_count; looked++) {
        size_t index = (consumer->turn + looked) % consumer->slot_count;
        struct slot *slot = &consumer->slots[index];
        rd_kafka_message_t *record = slot_take(consumer, slot);
        if (!record)
            continue;
        if (looked > 0)
            consumer->run = consumer->run_bytes = 0;
        consumer->turn = index;
        consumer->run++;
        consumer->run_bytes += record->key_len + record->len;
        slot->taken++;
        return record;
    }
    return NULL;
}

static rd_kafka_message_t *consumer_serve_group(struct kafka_consumer *consumer) {
    consumer->served_us = clock_monotonic_us();
    return rd_kafka_consumer_poll(consumer->client.handle, 0);
}

static void consumer_wait(struct kafka_consumer *consumer, int timeout_ms) {
    struct pollfd ready = {.fd = consumer->event_fd, .events = POLLIN};
    poll(&ready, 1, timeout_ms < CONSUMER_STATE_MS ? timeout_ms : CONSUMER_STATE_MS);
}

/* Before the queues are looked at, never after: a write that comes while they are looked at must wake the wait. */
static void consumer_drain_event(struct kafka_consumer *consumer) {
    uint64_t count;
    while (read(consumer->event_fd, &count, sizeof count) > 0)
        ;
}

static void consumer_note_lost_topic(struct kafka_consumer *consumer, const struct error *error) {
    consumer->has_lost_topic |= strcmp(error->code, "kafka_unknown_topic") == 0;
}

static enum kafka_polled consumer_give(struct kafka_consumer *consumer, rd_kafka_message_t *record,
                                       struct message *ret_message, struct error *error) {
    consumer->current = record;
    kafka_view_fill(&consumer->view, record, ret_message);
    if (!record->err)
        return KAFKA_POLL_MESSAGE;
    kafka_client_error_set(&consumer->client, error, record->err, "consuming", rd_kafka_message_errstr(record));
    consumer_note_lost_topic(consumer, error);
    return record->rkt ? KAFKA_POLL_PARTITION_ERROR : KAFKA_POLL_ERROR;
}

enum kafka_polled kafka_consumer_poll(struct kafka_consumer *consumer, int timeout_ms, struct message *ret_message,
                                      struct error *error) {
    consumer_drop_current(consumer);
    rd_kafka_message_t *record = NULL;
    if (clock_monotonic_us() - consumer->served_us >= CONSUMER_SERVE_US)
        record = consumer_serve_group(consumer);
    if (!record)
        record = consumer_take(consumer);
    if (!record && !consumer->client.has_event) {
        consumer_drain_event(consumer);
        record = consumer_serve_group(consumer);
        if (!record)
            record = consumer_take(consumer);
    }
    if (consumer->is_nudge_due && kafka_client_nudge(&consumer->client))
        consumer->is_nudge_due = false;
    if (!record && !consumer->client.has_event && !atomic_exchange(&consumer->is_woken, false) && timeout_ms > 0) {
        consumer_wait(consumer, timeout_ms);
        atomic_store(&consumer->is_woken, false);
        record = consumer_serve_group(consumer);
        if (!record)
            record = consumer_take(consumer);
    }
    if (record) /* an event that came with it waits for a poll without a record */
        return consumer_give(consumer, record, ret_message, error);
    if (!kafka_client_take_event(&consumer->client, error))
        return KAFKA_POLL_NOTHING;
    consumer_note_lost_topic(consumer, error);
    return KAFKA_POLL_ERROR;
}

void kafka_consumer_wake(struct kafka_consumer *consumer) {
    static const uint64_t one = 1;
    atomic_store(&consumer->is_woken, true);
    if (write(consumer->event_fd, &one, sizeof one) < 0)
        return; /* full: it is awake anyway */
}

/* ---- the rest ---- */

void kafka_consumer_commit(struct kafka_consumer *consumer, const struct kafka_partition *partitions, size_t count) {
    if (count == 0)
        return;
    rd_kafka_topic_partition_list_t *list = memory_or_exit(rd_kafka_topic_partition_list_new((int)count));
    for (size_t i = 0; i < count; i++)
        rd_kafka_topic_partition_list_add(list, partitions[i].topic, partitions[i].partition)->offset =
            partitions[i].offset;
    rd_kafka_commit(consumer->client.handle, list, 1);
    rd_kafka_topic_partition_list_destroy(list);
}

bool kafka_consumer_watermarks(struct kafka_consumer *consumer, const char *topic, int32_t partition, int timeout_ms,
                               int64_t *ret_low, int64_t *ret_high, struct error *error) {
    return kafka_client_watermarks(&consumer->client, topic, partition, timeout_ms, ret_low, ret_high, error);
}

bool kafka_consumer_partition_count(struct kafka_consumer *consumer, const char *topic, int timeout_ms,
                                    int32_t *ret_count, struct error *error) {
    int32_t replicas;
    return kafka_client_partition_count(&consumer->client, topic, timeout_ms, ret_count, &replicas, error);
}
