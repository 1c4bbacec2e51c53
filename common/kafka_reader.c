/* kafka_reader: an assign-only consumer. Runs in its owner's thread. */
#include "common/kafka_reader.h"
#include "common/kafka_private.h"

#include "common/buf.h"
#include "common/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read ahead per partition; with the byte bound below, the first one reached. */
enum { READER_QUEUE_MESSAGES = 1000, READER_QUEUE_KBYTES = 2048, READER_WAIT_MS = 10 };

struct kafka_reader {
    struct kafka_client client;
    struct kafka_view view;
    rd_kafka_message_t *current; /* what the last view points into */
    rd_kafka_queue_t *queue;     /* the one that poll reads */
    size_t nudge_messages, nudge_bytes; /* half of the read ahead */
    size_t messages, bytes;             /* handed out since the last nudge */
    bool was_assigned;
    _Atomic bool is_woken; /* somebody wakes us, and no poll has waited since */
};

static const struct kafka_default reader_defaults[] = {
    {"fetch.error.backoff.ms", "20"},
    {NULL, NULL},
};

static const struct kafka_default *reader_fixed(const struct kafka_reader_options *options, char queue_kbytes[24],
                                                char wait_ms[16], struct kafka_default rows[16]) {
    size_t kbytes = options->queue_kbytes ? options->queue_kbytes : READER_QUEUE_KBYTES;
    snprintf(queue_kbytes, 24, "%zu", kbytes);
    snprintf(wait_ms, 16, "%d", options->wait_ms ? options->wait_ms : READER_WAIT_MS);
    const struct kafka_default fixed[] = {
        {"group.id", options->group},
        {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"},
        {"auto.offset.reset", "error"},
        {"enable.partition.eof", "true"},
        {"check.crcs", "true"},
        {"fetch.wait.max.ms", wait_ms},
        {"fetch.max.bytes", "2097152"}, /* KAFKA_FETCH_BYTES */
        {"fetch.message.max.bytes", "1048576"},
        {"queued.min.messages", "1000"}, /* READER_QUEUE_MESSAGES */
        {"queued.max.messages.kbytes", queue_kbytes},
        {NULL, NULL},
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        rows[i] = fixed[i];
    return rows;
}

bool kafka_reader_new(const struct kafka_reader_options *options, struct kafka_reader **ret_reader,
                      struct error *error) {
    char queue_kbytes[24], wait_ms[16];
    struct kafka_default rows[16];
    const struct kafka_default *fixed = reader_fixed(options, queue_kbytes, wait_ms, rows);
    struct kafka_reader *reader = memory_alloc(sizeof *reader);
    if (!kafka_client_init(&reader->client, KAFKA_ROLE_READER, options->settings, reader_defaults, fixed, NULL, NULL,
                           error)) {
        kafka_reader_free(reader);
        return false;
    }
    rd_kafka_poll_set_consumer(reader->client.handle);
    reader->nudge_messages = READER_QUEUE_MESSAGES / 2;
    reader->nudge_bytes = (options->queue_kbytes ? options->queue_kbytes : READER_QUEUE_KBYTES) * 512;
    reader->queue = rd_kafka_queue_get_consumer(reader->client.handle);
    *ret_reader = reader;
    return true;
}

static void reader_drop_current(struct kafka_reader *reader) {
    if (reader->current)
        rd_kafka_message_destroy(reader->current);
    reader->current = NULL;
}

void kafka_reader_free(struct kafka_reader *reader) {
    if (!reader)
        return;
    reader_drop_current(reader);
    if (reader->queue)
        rd_kafka_queue_destroy(reader->queue);
    kafka_client_release(&reader->client);
    kafka_view_release(&reader->view);
    free(reader);
}

/* librdkafka (2.0.2 as 2.15) aborts the process (assertion `rktp_started`) when a partition is taken away a second time before its
 * first stop was reported. Its main thread serves calls, stops and reports in one queue: after a call that takes all away, and
 * another one, the stops were reported. So an assignment is two calls; one that replaces another is not. */
bool kafka_reader_assign(struct kafka_reader *reader, const struct kafka_partition *partitions, size_t count,
                         struct error *error) {
    reader_drop_current(reader);
    reader->was_assigned = true;
    rd_kafka_topic_partition_list_t *list = memory_or_exit(rd_kafka_topic_partition_list_new((int)count));
    for (size_t i = 0; i < count; i++)
        rd_kafka_topic_partition_list_add(list, partitions[i].topic, partitions[i].partition)->offset =
            partitions[i].offset;
    rd_kafka_resp_err_t code = rd_kafka_assign(reader->client.handle, NULL);
    if (!code && count > 0)
        code = rd_kafka_assign(reader->client.handle, list);
    rd_kafka_topic_partition_list_destroy(list);
    return code ? kafka_error_set(error, code, "cannot read partitions", NULL) : true;
}

/* Half of the read ahead is used up: there is room to fetch into. */
static void reader_nudge_if_due(struct kafka_reader *reader, bool is_empty) {
    bool is_due = reader->messages >= reader->nudge_messages || reader->bytes >= reader->nudge_bytes ||
                  (is_empty && reader->messages > 0);
    if (is_due && kafka_client_nudge(&reader->client))
        reader->messages = reader->bytes = 0;
}

static enum kafka_read reader_failed(struct kafka_reader *reader, const rd_kafka_message_t *record,
                                     struct message *ret_message, struct error *error) {
    kafka_view_fill(&reader->view, record, ret_message);
    if (record->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
        return KAFKA_READ_END;
    kafka_client_error_set(&reader->client, error, record->err, "reading", rd_kafka_message_errstr(record));
    return record->rkt ? KAFKA_READ_PARTITION_ERROR : KAFKA_READ_ERROR;
}

/* Waits only after it has told the fetcher about the room that there is. */
static rd_kafka_message_t *reader_next(struct kafka_reader *reader, int timeout_ms) {
    rd_kafka_message_t *record = rd_kafka_consumer_poll(reader->client.handle, 0);
    if (record || reader->client.has_event)
        return record;
    reader_nudge_if_due(reader, true);
    if (timeout_ms <= 0 || atomic_exchange(&reader->is_woken, false))
        return NULL;
    record = rd_kafka_consumer_poll(reader->client.handle, timeout_ms);
    atomic_store(&reader->is_woken, false);
    return record;
}

enum kafka_read kafka_reader_poll(struct kafka_reader *reader, int timeout_ms, struct message *ret_message,
                                  struct error *error) {
    reader_drop_current(reader);
    rd_kafka_message_t *record = reader_next(reader, timeout_ms);
    if (!record)
        return kafka_client_take_event(&reader->client, error) ? KAFKA_READ_ERROR : KAFKA_READ_NOTHING;
    reader->current = record; /* an event that came with it waits for a poll without a record */
    if (record->err)
        return reader_failed(reader, record, ret_message, error);
    kafka_view_fill(&reader->view, record, ret_message);
    reader->messages++;
    reader->bytes += record->len + record->key_len;
    reader_nudge_if_due(reader, false);
    return KAFKA_READ_MESSAGE;
}

/* The yield is remembered by the queue until a poll sees it; the look above, which does not wait, may be that poll. */
void kafka_reader_wake(struct kafka_reader *reader) {
    atomic_store(&reader->is_woken, true);
    rd_kafka_queue_yield(reader->queue);
}

bool kafka_reader_watermarks(struct kafka_reader *reader, const char *topic, int32_t partition, int timeout_ms,
                             int64_t *ret_low, int64_t *ret_high, struct error *error) {
    return kafka_client_watermarks(&reader->client, topic, partition, timeout_ms, ret_low, ret_high, error);
}

/* "Transport failure" is all that a failed question tells; why (a password, a certificate) came as an event. */
static void reader_name_cause(struct kafka_reader *reader, const char *topic, struct error *error) {
    struct error cause;
    if (reader->was_assigned) /* this poll would take a record */
        return;
    rd_kafka_message_t *none = rd_kafka_consumer_poll(reader->client.handle, 0);
    if (none)
        rd_kafka_message_destroy(none);
    if (!kafka_client_take_event(&reader->client, &cause))
        return;
    /* A broker that expects TLS hangs up on who does not begin it, and librdkafka does not tell why. */
    bool is_mute = strcmp(cause.code, "kafka_brokers_down") == 0;
    error_set(error, error->kind, cause.code, "%s: %s%s", topic, cause.message,
              is_mute ? "; if they run, is security.protocol right?" : "");
}

bool kafka_reader_partition_count(struct kafka_reader *reader, const char *topic, int timeout_ms, int32_t *ret_count,
                                  struct error *error) {
    int32_t replicas;
    if (kafka_client_partition_count(&reader->client, topic, timeout_ms, ret_count, &replicas, error))
        return true;
    if (error->kind == ERROR_RETRY)
        reader_name_cause(reader, topic, error);
    return false;
}
