/* kafka_access: see kafka_access.h. Runs in its owner's thread; clients of its own, which live as long as the call. */
#include "common/kafka_access.h"
#include "common/kafka_private.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/kafka_reader.h"
#include "common/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACCESS_POLL_MS = 100 };

/* What is known of each wish: what is there and has not been answered, and what was refused. */
struct access_state {
    unsigned left, refused;
};

struct access_look {
    struct kafka_client client; /* the first member: the log callback expects it */
    const struct kafka_access_wish *wishes;
    struct access_state *states;
    size_t count;
    int64_t deadline_us;
};

static bool is_left(const struct access_look *look, unsigned may) {
    for (size_t i = 0; i < look->count; i++)
        if (look->states[i].left & may)
            return true;
    return false;
}

static void answered(struct access_look *look, const char *topic, unsigned may, bool is_refused) {
    for (size_t i = 0; i < look->count; i++) {
        struct access_state *state = &look->states[i];
        if (strcmp(look->wishes[i].topic, topic) != 0 || !(state->left & may))
            continue;
        state->left &= ~may;
        state->refused |= is_refused ? may : 0;
    }
}

static bool is_not_authorized(const struct error *error) {
    return strcmp(error->code, "kafka_not_authorized") == 0;
}

/* ---- is it there? who may do neither is told so here ---- */

static bool look_at_topics(struct access_look *look, struct kafka_reader *reader, int timeout_ms, struct error *error) {
    for (size_t i = 0; i < look->count; i++) {
        struct access_state *state = &look->states[i];
        struct error problem = {0};
        int32_t partitions;
        if (kafka_reader_partition_count(reader, look->wishes[i].topic, timeout_ms, &partitions, &problem)) {
            state->left = look->wishes[i].may;
        } else if (is_not_authorized(&problem)) {
            state->refused = look->wishes[i].may;
        } else if (problem.kind == ERROR_RETRY) {
            *error = problem;
            return false;
        }
    }
    return true;
}

/* ---- read ---- */

static bool look_at_reading(struct access_look *look, struct kafka_reader *reader, struct error *error) {
    struct kafka_partition *places = memory_alloc_array(look->count + 1, sizeof *places);
    size_t count = 0;
    for (size_t i = 0; i < look->count; i++)
        if (look->states[i].left & KAFKA_MAY_READ)
            places[count++] = (struct kafka_partition){.topic = look->wishes[i].topic, .offset = KAFKA_OFFSET_END};
    bool is_assigned = kafka_reader_assign(reader, places, count, error);
    free(places);
    while (is_assigned && is_left(look, KAFKA_MAY_READ) && clock_monotonic_us() < look->deadline_us) {
        struct message message;
        struct error problem = {0};
        enum kafka_read what = kafka_reader_poll(reader, ACCESS_POLL_MS, &message, &problem);
        if (what == KAFKA_READ_END || what == KAFKA_READ_MESSAGE)
            answered(look, message.topic, KAFKA_MAY_READ, false);
        else if (what == KAFKA_READ_PARTITION_ERROR && problem.kind == ERROR_FATAL)
            answered(look, message.topic, KAFKA_MAY_READ, is_not_authorized(&problem));
    }
    return is_assigned;
}

/* ---- write ---- */

static void on_delivery(rd_kafka_t *handle, const rd_kafka_message_t *record, void *opaque) {
    (void)handle;
    struct access_look *look = opaque;
    answered(look, rd_kafka_topic_name(record->rkt), KAFKA_MAY_WRITE,
             record->err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
}

static void set_callbacks(rd_kafka_conf_t *conf, void *context) {
    (void)context;
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
}

/* Should anything that is no Kafka take it after all, readers pass over it: it is a mark that says nothing. */
static void try_to_write(struct access_look *look, const char *topic) {
    rd_kafka_resp_err_t code = rd_kafka_producev(look->client.handle, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(0),
                                                 RD_KAFKA_V_KEY("access", 6), RD_KAFKA_V_HEADER(HEADER_MARK, "access", 6),
                                                 RD_KAFKA_V_END);
    if (code)
        answered(look, topic, KAFKA_MAY_WRITE, code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
}

static bool look_at_writing(struct access_look *look, const struct kafka_settings *settings, int timeout_ms,
                            struct error *error) {
    if (!is_left(look, KAFKA_MAY_WRITE))
        return true;
    char timeout[16];
    snprintf(timeout, sizeof timeout, "%d", timeout_ms);
    const struct kafka_default fixed[] = {
        {"acks", "2"}, /* no broker takes this: see kafka_access.h */
        {"retries", "0"},
        {"linger.ms", "0"},
        {"message.timeout.ms", timeout},
        {NULL, NULL},
    };
    if (!kafka_client_init(&look->client, KAFKA_ROLE_PRODUCER, settings, NULL, fixed, set_callbacks, NULL, error))
        return false;
    for (size_t i = 0; i < look->count; i++)
        if (look->states[i].left & KAFKA_MAY_WRITE)
            try_to_write(look, look->wishes[i].topic);
    while (is_left(look, KAFKA_MAY_WRITE) && clock_monotonic_us() < look->deadline_us)
        rd_kafka_poll(look->client.handle, ACCESS_POLL_MS);
    rd_kafka_purge(look->client.handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    kafka_client_release(&look->client);
    return true;
}

/* ---- what is missing ---- */

static size_t append_refused(struct buf *text, const struct access_look *look, unsigned may, const char *operation) {
    size_t found = 0;
    for (size_t i = 0; i < look->count; i++)
        if (look->states[i].refused & may)
            buf_appendf(text, "%s%s", found++ > 0 ? ", " : operation, look->wishes[i].topic);
    return found;
}

static bool judge(const struct access_look *look, struct error *error) {
    struct buf reads = BUF_INIT, writes = BUF_INIT;
    size_t read_count = append_refused(&reads, look, KAFKA_MAY_READ, "Read on topic ");
    size_t write_count = append_refused(&writes, look, KAFKA_MAY_WRITE, "Write on topic ");
    if (read_count + write_count > 0)
        error_set(error, ERROR_FATAL, "kafka_not_authorized", "the brokers' access rules do not give this client: %s%s%s",
                  buf_text(&reads), read_count > 0 && write_count > 0 ? "; " : "", buf_text(&writes));
    buf_release(&reads);
    buf_release(&writes);
    return read_count + write_count == 0;
}

bool kafka_access_check(const struct kafka_settings *settings, const char *group, const struct kafka_access_wish *wishes,
                        size_t count, int timeout_ms, struct error *error) {
    struct kafka_reader *reader;
    const struct kafka_reader_options options = {.settings = settings, .group = group};
    if (!kafka_reader_new(&options, &reader, error))
        return false;
    struct access_look look = {.wishes = wishes, .count = count, .deadline_us = clock_monotonic_us() + (int64_t)timeout_ms * 1000};
    look.states = memory_alloc_array(count, sizeof *look.states);
    bool is_good = look_at_topics(&look, reader, timeout_ms, error) && look_at_reading(&look, reader, error);
    kafka_reader_free(reader);
    is_good = is_good && look_at_writing(&look, settings, timeout_ms, error) && judge(&look, error);
    free(look.states);
    return is_good;
}
