/* kafka_admin: topic creation and description, each request answered through a queue of its own. Runs in its owner's thread. */
#include "common/kafka_admin.h"
#include "common/kafka_private.h"

#include "common/buf.h"
#include "common/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ADMIN_RETRY_MS = 50 }; /* metadata is asked again this often until a new topic is there */

struct kafka_admin {
    struct kafka_client client;
};

bool kafka_admin_new(const struct kafka_settings *settings, struct kafka_admin **ret_admin, struct error *error) {
    struct kafka_admin *admin = memory_alloc(sizeof *admin);
    if (!kafka_client_init(&admin->client, KAFKA_ROLE_ADMIN, settings, NULL, NULL, NULL, NULL, error)) {
        free(admin);
        return false;
    }
    *ret_admin = admin;
    return true;
}

void kafka_admin_free(struct kafka_admin *admin) {
    if (!admin)
        return;
    kafka_client_release(&admin->client);
    free(admin);
}

/* ---- one request, one answer ---- */

static rd_kafka_AdminOptions_t *admin_options(struct kafka_admin *admin, rd_kafka_admin_op_t operation,
                                              int timeout_ms) {
    char ignored[256];
    rd_kafka_AdminOptions_t *options = memory_or_exit(rd_kafka_AdminOptions_new(admin->client.handle, operation));
    rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, ignored, sizeof ignored);
    return options;
}

/* Waits for the answer; the queue dies with the call. NULL and *error if none came or it is an error as a whole. */
static rd_kafka_event_t *admin_answer(rd_kafka_queue_t *queue, int timeout_ms, const char *what,
                                      struct error *error) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, timeout_ms + 1000);
    rd_kafka_queue_destroy(queue);
    if (!event) {
        kafka_error_set(error, RD_KAFKA_RESP_ERR__TIMED_OUT, what, NULL);
        return NULL;
    }
    if (rd_kafka_event_error(event)) {
        kafka_error_set(error, rd_kafka_event_error(event), what, rd_kafka_event_error_string(event));
        rd_kafka_event_destroy(event);
        return NULL;
    }
    return event;
}

/* ---- create ---- */

static bool topic_new(const struct kafka_topic_spec *spec, rd_kafka_NewTopic_t **ret_topic, struct error *error) {
    char text[256];
    rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(spec->name, spec->partitions,
                                                       spec->replicas > 0 ? spec->replicas : -1, text, sizeof text);
    if (!topic)
        return error_set(error, ERROR_REJECT, "kafka_topic", "topic %s: %s", spec->name, text);
    for (size_t i = 0; i < spec->config_count; i++)
        rd_kafka_NewTopic_set_config(topic, spec->configs[i].key, spec->configs[i].value);
    *ret_topic = topic;
    return true;
}

static void result_set(struct kafka_create_result *result, const rd_kafka_topic_result_t *answer) {
    rd_kafka_resp_err_t code = rd_kafka_topic_result_error(answer);
    *result = (struct kafka_create_result){.created = KAFKA_CREATED};
    if (code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) {
        result->created = KAFKA_EXISTS;
    } else if (code) {
        result->created = KAFKA_NOT_CREATED;
        kafka_error_set(&result->error, code, rd_kafka_topic_result_name(answer),
                        rd_kafka_topic_result_error_string(answer));
    }
}

static void results_collect(const rd_kafka_event_t *event, const struct kafka_topic_spec *topics, size_t count,
                            struct kafka_create_result *ret_results) {
    size_t answer_count;
    const rd_kafka_topic_result_t **answers =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result((rd_kafka_event_t *)(uintptr_t)event),
                                            &answer_count);
    for (size_t i = 0; i < count; i++) {
        ret_results[i] = (struct kafka_create_result){.created = KAFKA_NOT_CREATED};
        kafka_error_set(&ret_results[i].error, RD_KAFKA_RESP_ERR__FAIL, topics[i].name, "not answered");
        for (size_t j = 0; j < answer_count; j++)
            if (strcmp(rd_kafka_topic_result_name(answers[j]), topics[i].name) == 0)
                result_set(&ret_results[i], answers[j]);
    }
}

static bool topic_is_led(const struct rd_kafka_metadata *metadata, const struct kafka_topic_spec *spec) {
    for (int i = 0; i < metadata->topic_cnt; i++) {
        const struct rd_kafka_metadata_topic *topic = &metadata->topics[i];
        if (strcmp(topic->topic, spec->name) != 0 || topic->err || topic->partition_cnt < spec->partitions)
            continue;
        for (int j = 0; j < topic->partition_cnt; j++)
            if (topic->partitions[j].leader < 0)
                return false;
        return true;
    }
    return false;
}

/* Creation is asynchronous in the cluster: a producer that comes at once would see an unknown topic. */
static void admin_await_topics(struct kafka_admin *admin, const struct kafka_topic_spec *topics, size_t count,
                               const struct kafka_create_result *results, int64_t deadline_us) {
    while (clock_monotonic_us() < deadline_us) {
        const struct rd_kafka_metadata *metadata;
        size_t led = 0;
        if (rd_kafka_metadata(admin->client.handle, 1, NULL, &metadata, 1000) == RD_KAFKA_RESP_ERR_NO_ERROR) {
            for (size_t i = 0; i < count; i++)
                led += results[i].created != KAFKA_CREATED || topic_is_led(metadata, &topics[i]);
            rd_kafka_metadata_destroy(metadata);
        }
        if (led == count)
            return;
        nanosleep(&(struct timespec){.tv_nsec = ADMIN_RETRY_MS * 1000000L}, NULL);
    }
}

bool kafka_admin_create_topics(struct kafka_admin *admin, const struct kafka_topic_spec *topics, size_t count,
                               int timeout_ms, struct kafka_create_result *ret_results, struct error *error) {
    int64_t deadline_us = clock_monotonic_us() + (int64_t)timeout_ms * 1000;
    rd_kafka_NewTopic_t **list = memory_alloc_array(count + 1, sizeof *list);
    size_t made = 0;
    while (made < count && topic_new(&topics[made], &list[made], error))
        made++;
    rd_kafka_event_t *event = NULL;
    if (made == count) {
        rd_kafka_AdminOptions_t *options = admin_options(admin, RD_KAFKA_ADMIN_OP_CREATETOPICS, timeout_ms);
        rd_kafka_queue_t *queue = rd_kafka_queue_new(admin->client.handle);
        rd_kafka_CreateTopics(admin->client.handle, list, count, options, queue);
        rd_kafka_AdminOptions_destroy(options);
        event = admin_answer(queue, timeout_ms, "cannot create topics", error);
    }
    rd_kafka_NewTopic_destroy_array(list, made);
    free(list);
    if (!event)
        return false;
    results_collect(event, topics, count, ret_results);
    rd_kafka_event_destroy(event);
    admin_await_topics(admin, topics, count, ret_results, deadline_us);
    return true;
}

/* ---- describe ---- */

bool kafka_admin_partition_count(struct kafka_admin *admin, const char *topic, int timeout_ms, int32_t *ret_count,
                                 int32_t *ret_replicas, struct error *error) {
    struct error problem;
    int32_t count, replicas;
    if (kafka_client_partition_count(&admin->client, topic, timeout_ms, &count, &replicas, &problem)) {
        *ret_count = count;
        *ret_replicas = replicas;
        return true;
    }
    if (strcmp(problem.code, "kafka_unknown_topic") != 0) {
        *error = problem;
        return false;
    }
    *ret_count = *ret_replicas = 0;
    return true;
}

static bool config_each(const rd_kafka_event_t *event, kafka_config_fn *each, void *context, struct error *error) {
    size_t count;
    const rd_kafka_ConfigResource_t **resources = rd_kafka_DescribeConfigs_result_resources(
        rd_kafka_event_DescribeConfigs_result((rd_kafka_event_t *)(uintptr_t)event), &count);
    for (size_t i = 0; i < count; i++) {
        rd_kafka_resp_err_t code = rd_kafka_ConfigResource_error(resources[i]);
        if (code)
            return kafka_error_set(error, code, rd_kafka_ConfigResource_name(resources[i]),
                                   rd_kafka_ConfigResource_error_string(resources[i]));
        size_t entry_count;
        const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resources[i], &entry_count);
        for (size_t j = 0; j < entry_count; j++)
            each(context, rd_kafka_ConfigEntry_name(entries[j]), rd_kafka_ConfigEntry_value(entries[j]),
                 rd_kafka_ConfigEntry_is_default(entries[j]) != 0);
    }
    return true;
}

bool kafka_admin_describe_config(struct kafka_admin *admin, const char *topic, int timeout_ms, kafka_config_fn *each,
                                 void *context, struct error *error) {
    rd_kafka_ConfigResource_t *resource =
        memory_or_exit(rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic));
    rd_kafka_AdminOptions_t *options = admin_options(admin, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, timeout_ms);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(admin->client.handle);
    rd_kafka_DescribeConfigs(admin->client.handle, &resource, 1, options, queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_ConfigResource_destroy(resource);
    rd_kafka_event_t *event = admin_answer(queue, timeout_ms, "cannot describe a topic", error);
    if (!event)
        return false;
    bool done = config_each(event, each, context, error);
    rd_kafka_event_destroy(event);
    return done;
}
