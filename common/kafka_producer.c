/* kafka_producer: idempotent, in order, stopped by the first record that cannot be delivered. Runs in its owner's thread. */
#include "common/kafka_producer.h"
#include "common/kafka_private.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/headers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PRODUCER_QUEUE_MESSAGES = 20000, /* about a quarter of a second at full rate */
    PRODUCER_QUEUE_KBYTES = 8192,    /* of the coordinator's 64 MB */
    PRODUCER_DELIVERY_MS = 120000,
    PRODUCER_RECORD_BYTES = 1000000,
    PRODUCER_TOPICS_MAX = 16, /* handles kept; we write to four topics, a benchmark to a few more */
};

struct kafka_producer {
    struct kafka_client client;
    kafka_delivery_fn *delivered;
    void *context;
    size_t record_bytes;
    size_t in_flight;
    int reports; /* counted by the delivery callback */
    rd_kafka_queue_t *queue;
    rd_kafka_topic_t *topics[PRODUCER_TOPICS_MAX];
    size_t topic_count;
    bool is_stopped;
    struct error stopped;
};

static void producer_stop(struct kafka_producer *producer, const struct error *error) {
    if (producer->is_stopped)
        return;
    producer->is_stopped = true;
    producer->stopped = *error;
    producer->stopped.kind = ERROR_FATAL;
    rd_kafka_purge(producer->client.handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

static void producer_on_delivery(rd_kafka_t *handle, const rd_kafka_message_t *record, void *opaque) {
    (void)handle;
    struct kafka_producer *producer = opaque; /* the client is its first member */
    producer->in_flight--;
    producer->reports++;
    struct error error = {0};
    if (record->err) {
        kafka_error_set(&error, record->err, rd_kafka_topic_name(record->rkt), NULL);
        error.kind = ERROR_FATAL;
        producer_stop(producer, &error);
    }
    if (producer->delivered)
        producer->delivered(producer->context, (uint64_t)(uintptr_t)record->_private, record->partition, record->offset,
                            record->err ? &error : NULL);
}

static void producer_set_callbacks(rd_kafka_conf_t *conf, void *context) {
    (void)context;
    rd_kafka_conf_set_dr_msg_cb(conf, producer_on_delivery);
}

static const struct kafka_default producer_defaults[] = {
    {"retry.backoff.ms", "20"},
    {NULL, NULL},
};

static bool producer_client_init(struct kafka_producer *producer, const struct kafka_producer_options *options,
                                 struct error *error) {
    char messages[24], kbytes[24], linger[16], delivery[16], message_bytes[24];
    snprintf(messages, sizeof messages, "%zu",
             options->queue_messages ? options->queue_messages : PRODUCER_QUEUE_MESSAGES);
    snprintf(kbytes, sizeof kbytes, "%zu", options->queue_kbytes ? options->queue_kbytes : PRODUCER_QUEUE_KBYTES);
    snprintf(linger, sizeof linger, "%d", options->linger_ms);
    snprintf(delivery, sizeof delivery, "%d", options->delivery_ms ? options->delivery_ms : PRODUCER_DELIVERY_MS);
    snprintf(message_bytes, sizeof message_bytes, "%zu", producer->record_bytes + 1024); /* framing */
    const struct kafka_default fixed[] = {
        {"enable.idempotence", "true"},
        {"enable.gapless.guarantee", "true"}, /* a batch that is refused stops those behind it */
        {"acks", "all"},
        {"max.in.flight.requests.per.connection", "5"}, /* what the broker remembers of an idempotent producer */
        {"linger.ms", linger},
        {"delivery.timeout.ms", delivery},
        {"message.max.bytes", message_bytes},
        {"queue.buffering.max.messages", messages},
        {"queue.buffering.max.kbytes", kbytes},
        {"partitioner", "murmur2"}, /* as Kafka's own clients, so that any consumer finds the partition of a key */
        {NULL, NULL},
    };
    return kafka_client_init(&producer->client, KAFKA_ROLE_PRODUCER, options->settings, producer_defaults, fixed,
                             producer_set_callbacks, NULL, error);
}

bool kafka_producer_new(const struct kafka_producer_options *options, struct kafka_producer **ret_producer,
                        struct error *error) {
    struct kafka_producer *producer = memory_alloc(sizeof *producer);
    producer->delivered = options->delivered;
    producer->context = options->context;
    producer->record_bytes = options->record_bytes ? options->record_bytes : PRODUCER_RECORD_BYTES;
    if (!producer_client_init(producer, options, error)) {
        free(producer);
        return false;
    }
    producer->queue = rd_kafka_queue_get_main(producer->client.handle);
    *ret_producer = producer;
    return true;
}

void kafka_producer_free(struct kafka_producer *producer) {
    if (!producer)
        return;
    producer->delivered = NULL;
    rd_kafka_purge(producer->client.handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    while (rd_kafka_poll(producer->client.handle, 0) > 0)
        ;
    for (size_t i = 0; i < producer->topic_count; i++)
        rd_kafka_topic_destroy(producer->topics[i]);
    rd_kafka_queue_destroy(producer->queue);
    kafka_client_release(&producer->client);
    free(producer);
}

/* Handles are kept: looking one up by name for each record costs more than producing it. */
static rd_kafka_topic_t *producer_topic(struct kafka_producer *producer, const char *name, struct error *error) {
    for (size_t i = 0; i < producer->topic_count; i++)
        if (strcmp(rd_kafka_topic_name(producer->topics[i]), name) == 0)
            return producer->topics[i];
    if (producer->topic_count == PRODUCER_TOPICS_MAX) {
        error_set(error, ERROR_REJECT, "kafka_topics", "a producer writes to %d topics at most", PRODUCER_TOPICS_MAX);
        return NULL;
    }
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer->client.handle, name, NULL);
    if (!topic) {
        kafka_error_set(error, rd_kafka_last_error(), name, NULL);
        return NULL;
    }
    producer->topics[producer->topic_count++] = topic;
    return topic;
}

static size_t record_size(const struct kafka_record *record) {
    return record->key_size + record->value_size + headers_wire_size(record->headers, record->header_count);
}

static rd_kafka_headers_t *record_headers(const struct kafka_record *record) {
    rd_kafka_headers_t *headers = memory_or_exit(rd_kafka_headers_new(record->header_count));
    for (size_t i = 0; i < record->header_count; i++) {
        const struct message_header *header = &record->headers[i];
        rd_kafka_header_add(headers, header->name, (ssize_t)header->name_size, header->value,
                            header->value ? (ssize_t)header->value_size : 0);
    }
    return headers;
}

/* Takes headers when it succeeds. */
static rd_kafka_resp_err_t producer_enqueue(struct kafka_producer *producer, rd_kafka_topic_t *topic,
                                            const struct kafka_record *record, rd_kafka_headers_t *headers) {
    rd_kafka_vu_t fields[7];
    size_t count = 0;
    fields[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic};
    fields[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_PARTITION,
                                      .u.i32 = record->partition >= 0 ? record->partition : RD_KAFKA_PARTITION_UA};
    fields[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_VALUE,
                                      .u.mem = {.ptr = (void *)(uintptr_t)record->value, .size = record->value_size}};
    fields[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_KEY,
                                      .u.mem = {.ptr = (void *)(uintptr_t)record->key, .size = record->key_size}};
    fields[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY};
    fields[count++] =
        (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = (void *)(uintptr_t)record->number};
    if (headers)
        fields[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers};

    rd_kafka_error_t *failure = rd_kafka_produceva(producer->client.handle, fields, count);
    if (!failure)
        return RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_resp_err_t code = rd_kafka_error_code(failure);
    rd_kafka_error_destroy(failure);
    return code;
}

static bool producer_fail(struct kafka_producer *producer, struct error *error) {
    *error = producer->stopped;
    return false;
}

static bool producer_refused(struct kafka_producer *producer, const struct kafka_record *record,
                             rd_kafka_resp_err_t code, struct error *error) {
    kafka_error_set(error, code, record->topic, NULL);
    if (code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
        error->kind = ERROR_REJECT;
    else if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL)
        producer_stop(producer, error);
    return false;
}

bool kafka_producer_send(struct kafka_producer *producer, const struct kafka_record *record, int wait_ms,
                         struct error *error) {
    if (producer->is_stopped)
        return producer_fail(producer, error);
    size_t size = record_size(record);
    if (size > producer->record_bytes)
        return error_set(error, ERROR_REJECT, "kafka_too_large", "a record for %s has %zu bytes, %zu are allowed",
                         record->topic, size, producer->record_bytes);
    rd_kafka_topic_t *topic = producer_topic(producer, record->topic, error);
    if (!topic)
        return false;

    rd_kafka_headers_t *headers = record->header_count ? record_headers(record) : NULL;
    int64_t deadline_us = clock_monotonic_us() + (int64_t)wait_ms * 1000;
    rd_kafka_resp_err_t code;
    while ((code = producer_enqueue(producer, topic, record, headers)) == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        int64_t left_ms = (deadline_us - clock_monotonic_us()) / 1000;
        if (left_ms <= 0)
            break;
        kafka_producer_poll(producer, (int)left_ms);
        if (producer->is_stopped)
            break;
    }
    if (!code) {
        producer->in_flight++;
        return true;
    }
    if (headers)
        rd_kafka_headers_destroy(headers);
    return producer->is_stopped ? producer_fail(producer, error) : producer_refused(producer, record, code, error);
}

static void producer_take_event(struct kafka_producer *producer) {
    struct error event;
    if (kafka_client_take_event(&producer->client, &event) && event.kind == ERROR_FATAL)
        producer_stop(producer, &event);
}

int kafka_producer_poll(struct kafka_producer *producer, int timeout_ms) {
    producer->reports = 0;
    rd_kafka_poll(producer->client.handle, timeout_ms);
    producer_take_event(producer);
    return producer->reports;
}

void kafka_producer_wake(struct kafka_producer *producer) {
    rd_kafka_queue_yield(producer->queue);
}

void kafka_producer_set_wake_fd(struct kafka_producer *producer, int event_fd) {
    static const uint64_t one = 1;
    rd_kafka_queue_io_event_enable(producer->queue, event_fd, &one, sizeof one);
}

bool kafka_producer_flush(struct kafka_producer *producer, int timeout_ms, struct error *error) {
    rd_kafka_resp_err_t code = rd_kafka_flush(producer->client.handle, timeout_ms);
    producer_take_event(producer);
    if (producer->is_stopped)
        return producer_fail(producer, error);
    return code ? kafka_error_set(error, code, "waiting for delivery", NULL) : true;
}

void kafka_producer_purge(struct kafka_producer *producer) {
    struct error error;
    kafka_error_set(&error, RD_KAFKA_RESP_ERR__PURGE_QUEUE, "purged", NULL);
    producer_stop(producer, &error);
    rd_kafka_purge(producer->client.handle,
                   RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

const struct error *kafka_producer_stopped(const struct kafka_producer *producer) {
    return producer->is_stopped ? &producer->stopped : NULL;
}

size_t kafka_producer_in_flight(const struct kafka_producer *producer) {
    return producer->in_flight;
}

bool kafka_producer_partition_count(struct kafka_producer *producer, const char *topic, int timeout_ms,
                                    int32_t *ret_count, struct error *error) {
    int32_t replicas;
    return kafka_client_partition_count(&producer->client, topic, timeout_ms, ret_count, &replicas, error);
}
