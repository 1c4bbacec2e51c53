/* kafka_private: what the kafka_*.c files share; nobody else includes it (nor rdkafka.h). */
#ifndef LEASE_KAFKA_PRIVATE_H
#define LEASE_KAFKA_PRIVATE_H

#include "common/kafka_config.h"
#include "common/message.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <librdkafka/rdkafka.h>
#pragma GCC diagnostic pop

#include <stdatomic.h>

enum kafka_role {
    KAFKA_ROLE_CONSUMER = 1, /* member of a group */
    KAFKA_ROLE_PRODUCER = 2,
    KAFKA_ROLE_ADMIN = 4,
    KAFKA_ROLE_READER = 8, /* reads without joining the group */
};

/* What a client sets for itself, in this order: kafka_defaults (an operator may change them), the operator's properties, then
 * what the protocol fixes, then `fixed`. NULL-terminated by key. */
struct kafka_default {
    const char *key;
    const char *value;
};

/* The handle's opaque is `opaque`; the log callback expects it to point to a struct kafka_client. */
struct kafka_client {
    kafka_log_fn *log;
    void *log_context;
    rd_kafka_t *handle;
    char *group; /* that it names to the broker; NULL = none */

    /* The last error of the client as a whole that librdkafka told us of, until it is taken. */
    bool has_event;
    struct error event;
    _Atomic int certificate_fault; /* why the last broker's certificate was refused, OpenSSL's code; 0 = none was */

    /* librdkafka 2.0.2 looks again at a full queue once a second only; see kafka_client_nudge. */
    bool can_nudge;
    char *sasl_username;
    char *sasl_password;
    int64_t nudged_at_us;
};

typedef void kafka_conf_fn(rd_kafka_conf_t *conf, void *context);

/* Fills client and creates its handle. `defaults` and `fixed` end with a NULL key. `more` (may be NULL) sets callbacks. */
bool kafka_client_init(struct kafka_client *client, enum kafka_role role, const struct kafka_settings *settings,
                       const struct kafka_default *defaults, const struct kafka_default *fixed, kafka_conf_fn *more,
                       void *context, struct error *error) MUST_USE;
void kafka_client_release(struct kafka_client *client);
/* Lets the client be, with its threads: librdkafka 2.0.2 waits for ever when one is destroyed whose topic was deleted while it
 * was read, and aborts over one that waits for its first assignment. What it is called back with must stay. The process will end,
 * or this has happened once more. */
void kafka_client_abandon(struct kafka_client *client);

/* Takes the last event; true if there was one. */
bool kafka_client_take_event(struct kafka_client *client, struct error *ret_error);

/* Makes the broker threads look at queues that have room again, at most once a millisecond: true if it did. */
bool kafka_client_nudge(struct kafka_client *client);

/* Sets *error from librdkafka's code; the one place where its errors become kinds. Always false. */
bool kafka_error_set(struct error *error, rd_kafka_resp_err_t code, const char *what, const char *detail);
/* The same of one of a client's own records; a refused group is named. */
bool kafka_client_error_set(const struct kafka_client *client, struct error *error, rd_kafka_resp_err_t code, const char *what,
                            const char *detail);
/* The same from an error object, which it frees. */
bool kafka_error_take(struct error *error, rd_kafka_error_t *failure, const char *what);
enum error_kind kafka_error_kind(rd_kafka_resp_err_t code);

/* A view's header array, used again for message after message. */
struct kafka_view {
    struct message_header *headers;
    size_t capacity;
};
void kafka_view_release(struct kafka_view *view);
/* Everything in *ret_message is borrowed from `record` and `view`. */
void kafka_view_fill(struct kafka_view *view, const rd_kafka_message_t *record, struct message *ret_message);

bool kafka_client_watermarks(struct kafka_client *client, const char *topic, int32_t partition, int timeout_ms,
                             int64_t *ret_low, int64_t *ret_high, struct error *error) MUST_USE;
bool kafka_client_partition_count(struct kafka_client *client, const char *topic, int timeout_ms, int32_t *ret_count,
                                  int32_t *ret_replicas, struct error *error) MUST_USE;

#endif
