/* kafka_client: what consumer, reader, producer and admin do alike: classify librdkafka's errors, ask for metadata, show a
 * record as a struct message, and wake a fetcher that sleeps although there is room. Runs in the owner's thread. */
#include "common/kafka_private.h"

#include "common/buf.h"
#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

/* What each code is called and what to do about it. A code that is not here is FATAL, named kafka_error: what nobody has
 * thought about is not retried for ever. */
static const struct error_row {
    rd_kafka_resp_err_t code;
    enum error_kind kind;
    const char *name;
} error_rows[] = {
    {RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE, ERROR_FATAL, "kafka_offset_out_of_range"},
    {RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET, ERROR_FATAL, "kafka_offset_out_of_range"},
    {RD_KAFKA_RESP_ERR__NO_OFFSET, ERROR_FATAL, "kafka_offset_out_of_range"},
    {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, ERROR_FATAL, "kafka_unknown_topic"},
    {RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC, ERROR_FATAL, "kafka_unknown_topic"},
    {RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, ERROR_FATAL, "kafka_unknown_topic"},
    {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, ERROR_FATAL, "kafka_not_authorized"},
    {RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, ERROR_FATAL, "kafka_not_authorized"},
    {RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, ERROR_FATAL, "kafka_not_authorized"},
    {RD_KAFKA_RESP_ERR__AUTHENTICATION, ERROR_RETRY, "kafka_not_authenticated"},
    {RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED, ERROR_RETRY, "kafka_not_authenticated"},
    {RD_KAFKA_RESP_ERR__SSL, ERROR_RETRY, "kafka_tls"},
    {RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, ERROR_RETRY, "kafka_brokers_down"},
    {RD_KAFKA_RESP_ERR__TRANSPORT, ERROR_RETRY, "kafka_connection"},
    {RD_KAFKA_RESP_ERR__RESOLVE, ERROR_RETRY, "kafka_connection"},
    {RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED, ERROR_RETRY, "kafka_max_poll"},
    {RD_KAFKA_RESP_ERR__TIMED_OUT, ERROR_RETRY, "kafka_timeout"},
    {RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE, ERROR_RETRY, "kafka_timeout"},
    {RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, ERROR_FATAL, "kafka_delivery_timeout"},
    {RD_KAFKA_RESP_ERR__QUEUE_FULL, ERROR_RETRY, "kafka_queue_full"},
    {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, ERROR_FATAL, "kafka_too_large"},
    {RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE, ERROR_FATAL, "kafka_too_large"},
    {RD_KAFKA_RESP_ERR__PURGE_QUEUE, ERROR_FATAL, "kafka_purged"},
    {RD_KAFKA_RESP_ERR__PURGE_INFLIGHT, ERROR_FATAL, "kafka_purged"},
    {RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE, ERROR_FATAL, "kafka_gap"},
    {RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, ERROR_FATAL, "kafka_gap"},
    {RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS, ERROR_REJECT, "kafka_topic_exists"},
    {RD_KAFKA_RESP_ERR__BAD_MSG, ERROR_FATAL, "kafka_corrupt"},
    {RD_KAFKA_RESP_ERR_INVALID_MSG, ERROR_FATAL, "kafka_corrupt"},
    /* what passes by itself: brokers away, leaders moving, groups rebalancing */
    {RD_KAFKA_RESP_ERR__WAIT_COORD, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__IN_PROGRESS, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__STATE, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__INTR, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__RETRY, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__OUTDATED, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__ISR_INSUFF, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__NODE_UPDATE, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__WAIT_CACHE, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__DESTROY, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR__UNKNOWN_BROKER, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_NOT_COORDINATOR, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_NOT_CONTROLLER, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_FETCH_SESSION_ID_NOT_FOUND, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_INVALID_FETCH_SESSION_EPOCH, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_LISTENER_NOT_FOUND, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_PREFERRED_LEADER_NOT_AVAILABLE, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_ELIGIBLE_LEADERS_NOT_AVAILABLE, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT, ERROR_RETRY, "kafka_passing"},
    {RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED, ERROR_RETRY, "kafka_passing"},
};

static const struct error_row *error_find(rd_kafka_resp_err_t code) {
    for (size_t i = 0; i < sizeof error_rows / sizeof *error_rows; i++)
        if (error_rows[i].code == code)
            return &error_rows[i];
    return NULL;
}

enum error_kind kafka_error_kind(rd_kafka_resp_err_t code) {
    const struct error_row *row = error_find(code);
    return row ? row->kind : ERROR_FATAL;
}

bool kafka_error_set(struct error *error, rd_kafka_resp_err_t code, const char *what, const char *detail) {
    const struct error_row *row = error_find(code);
    const char *text = detail && *detail ? detail : rd_kafka_err2str(code);
    return error_set(error, row ? row->kind : ERROR_FATAL, row ? row->name : "kafka_error", "%s: %s (%s)", what, text,
                     rd_kafka_err2name(code));
}

/* Whether a group may be joined, or named, is known only from trying. */
bool kafka_client_error_set(const struct kafka_client *client, struct error *error, rd_kafka_resp_err_t code, const char *what,
                            const char *detail) {
    kafka_error_set(error, code, what, detail);
    if (code == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED && client->group)
        error_prefix(error, "the brokers' access rules do not give this client: Read on group %s", client->group);
    return false;
}

bool kafka_error_take(struct error *error, rd_kafka_error_t *failure, const char *what) {
    kafka_error_set(error, rd_kafka_error_code(failure), what, rd_kafka_error_string(failure));
    if (rd_kafka_error_is_retriable(failure))
        error->kind = ERROR_RETRY;
    rd_kafka_error_destroy(failure);
    return false;
}

/* librdkafka 2.0.2 notices that a queue which was full has room again only when its broker thread wakes for another reason,
 * once a second at the latest: with a small queue that bounds the throughput to one queue a second. Renewing the
 * credentials (with the same ones) is the one public call that wakes every broker thread, and costs about a microsecond. */
bool kafka_client_nudge(struct kafka_client *client) {
    if (!client->can_nudge)
        return true;
    int64_t now_us = clock_monotonic_us();
    if (now_us - client->nudged_at_us < 1000)
        return false;
    client->nudged_at_us = now_us;
    rd_kafka_error_t *failure =
        rd_kafka_sasl_set_credentials(client->handle, client->sasl_username, client->sasl_password);
    if (failure)
        rd_kafka_error_destroy(failure);
    return true;
}

void kafka_view_release(struct kafka_view *view) {
    free(view->headers);
    *view = (struct kafka_view){0};
}

static size_t view_fill_headers(struct kafka_view *view, const rd_kafka_message_t *record, bool *ret_lost) {
    rd_kafka_headers_t *headers;
    rd_kafka_resp_err_t code = rd_kafka_message_headers(record, &headers);
    *ret_lost = code != RD_KAFKA_RESP_ERR_NO_ERROR && code != RD_KAFKA_RESP_ERR__NOENT; /* there are more than 100,000 */
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return 0;
    size_t count = rd_kafka_header_cnt(headers);
    if (count > view->capacity) {
        view->capacity = count + 16;
        view->headers = memory_resize(view->headers, view->capacity, sizeof *view->headers);
    }
    for (size_t i = 0; i < count; i++) {
        struct message_header *header = &view->headers[i];
        rd_kafka_header_get_all(headers, i, &header->name, &header->value, &header->value_size);
        header->name_size = strlen(header->name);
    }
    return count;
}

void kafka_view_fill(struct kafka_view *view, const rd_kafka_message_t *record, struct message *ret_message) {
    rd_kafka_timestamp_type_t kind;
    *ret_message = (struct message){
        .topic = record->rkt ? rd_kafka_topic_name(record->rkt) : "",
        .partition = record->partition,
        .offset = record->offset,
        .timestamp_ms = rd_kafka_message_timestamp(record, &kind),
        .broker = rd_kafka_message_broker_id(record),
        .key = record->key,
        .key_size = record->key_len,
        .value = record->payload,
        .value_size = record->len,
    };
    if (record->err)
        return;
    ret_message->header_count = view_fill_headers(view, record, &ret_message->has_lost_headers);
    ret_message->headers = view->headers;
}

bool kafka_client_watermarks(struct kafka_client *client, const char *topic, int32_t partition, int timeout_ms,
                             int64_t *ret_low, int64_t *ret_high, struct error *error) {
    int64_t low, high;
    rd_kafka_resp_err_t code =
        rd_kafka_query_watermark_offsets(client->handle, topic, partition, &low, &high, timeout_ms);
    if (code) {
        kafka_error_set(error, code, "cannot read the offsets of a partition", NULL);
        return error_prefix(error, "%s[%d]", topic, partition);
    }
    *ret_low = low;
    *ret_high = high;
    return true;
}

static bool count_partitions(const struct rd_kafka_metadata *metadata, const char *topic, int32_t *ret_count,
                             int32_t *ret_replicas, struct error *error) {
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    for (int i = 0; i < metadata->topic_cnt; i++) {
        const struct rd_kafka_metadata_topic *found = &metadata->topics[i];
        if (strcmp(found->topic, topic) != 0)
            continue;
        code = found->err;
        if (code || found->partition_cnt == 0)
            break;
        *ret_count = found->partition_cnt;
        *ret_replicas = found->partitions[0].replica_cnt;
        return true;
    }
    return kafka_error_set(error, code, topic, NULL);
}

bool kafka_client_partition_count(struct kafka_client *client, const char *topic, int timeout_ms, int32_t *ret_count,
                                  int32_t *ret_replicas, struct error *error) {
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client->handle, topic, NULL);
    if (!handle)
        return kafka_error_set(error, rd_kafka_last_error(), topic, NULL);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t code = rd_kafka_metadata(client->handle, 0, handle, &metadata, timeout_ms);
    rd_kafka_topic_destroy(handle);
    if (code)
        return kafka_error_set(error, code, topic, NULL);
    bool found = count_partitions(metadata, topic, ret_count, ret_replicas, error);
    rd_kafka_metadata_destroy(metadata);
    return found;
}
