/* kafka_config: the table of librdkafka properties, and how a client is configured from it. Runs at start, in the thread that
 * creates the client; the log callback runs in librdkafka's threads. */
#include "common/kafka_private.h"

#include "common/buf.h"

#include <assert.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum property_rule {
    PROPERTY_ALLOWED,
    PROPERTY_SECRET,   /* allowed, never printed */
    PROPERTY_PROTOCOL, /* ours alone: another value would break what we promise */
    PROPERTY_CODE,     /* runs code or loads a library */
};

enum { ALL = KAFKA_ROLE_CONSUMER | KAFKA_ROLE_PRODUCER | KAFKA_ROLE_ADMIN | KAFKA_ROLE_READER };
enum { READS = KAFKA_ROLE_CONSUMER | KAFKA_ROLE_READER, WRITES = KAFKA_ROLE_PRODUCER };

/* A key that is not here is unknown. roles: which clients it is handed to. */
static const struct property_row {
    const char *key;
    enum property_rule rule;
    unsigned roles;
} property_rows[] = {
    /* connections */
    {"security.protocol", PROPERTY_ALLOWED, ALL},
    {"client.rack", PROPERTY_ALLOWED, ALL},
    {"broker.address.family", PROPERTY_ALLOWED, ALL},
    {"broker.address.ttl", PROPERTY_ALLOWED, ALL},
    {"socket.timeout.ms", PROPERTY_ALLOWED, ALL},
    {"socket.send.buffer.bytes", PROPERTY_ALLOWED, ALL},
    {"socket.receive.buffer.bytes", PROPERTY_ALLOWED, ALL},
    {"socket.keepalive.enable", PROPERTY_ALLOWED, ALL},
    {"socket.nagle.disable", PROPERTY_ALLOWED, ALL},
    {"socket.max.fails", PROPERTY_ALLOWED, ALL},
    {"socket.connection.setup.timeout.ms", PROPERTY_ALLOWED, ALL},
    {"connections.max.idle.ms", PROPERTY_ALLOWED, ALL},
    {"reconnect.backoff.ms", PROPERTY_ALLOWED, ALL},
    {"reconnect.backoff.max.ms", PROPERTY_ALLOWED, ALL},
    {"metadata.max.age.ms", PROPERTY_ALLOWED, ALL},
    {"topic.metadata.refresh.interval.ms", PROPERTY_ALLOWED, ALL},
    {"topic.metadata.refresh.fast.interval.ms", PROPERTY_ALLOWED, ALL},
    {"request.timeout.ms", PROPERTY_ALLOWED, WRITES},
    {"receive.message.max.bytes", PROPERTY_ALLOWED, ALL},
    {"api.version.request.timeout.ms", PROPERTY_ALLOWED, ALL},
    {"debug", PROPERTY_ALLOWED, ALL},
    {"log_level", PROPERTY_ALLOWED, ALL},
    /* TLS */
    {"ssl.cipher.suites", PROPERTY_ALLOWED, ALL},
    {"ssl.curves.list", PROPERTY_ALLOWED, ALL},
    {"ssl.sigalgs.list", PROPERTY_ALLOWED, ALL},
    {"ssl.key.location", PROPERTY_ALLOWED, ALL},
    {"ssl.key.password", PROPERTY_SECRET, ALL},
    {"ssl.key.pem", PROPERTY_SECRET, ALL},
    {"ssl.certificate.location", PROPERTY_ALLOWED, ALL},
    {"ssl.certificate.pem", PROPERTY_ALLOWED, ALL},
    {"ssl.ca.location", PROPERTY_ALLOWED, ALL},
    {"ssl.ca.pem", PROPERTY_ALLOWED, ALL},
    {"ssl.crl.location", PROPERTY_ALLOWED, ALL},
    {"ssl.keystore.location", PROPERTY_ALLOWED, ALL},
    {"ssl.keystore.password", PROPERTY_SECRET, ALL},
    {"ssl.endpoint.identification.algorithm", PROPERTY_ALLOWED, ALL},
    {"enable.ssl.certificate.verification", PROPERTY_ALLOWED, ALL},
    /* SASL */
    {"sasl.mechanism", PROPERTY_ALLOWED, ALL},
    {"sasl.mechanisms", PROPERTY_ALLOWED, ALL},
    {"sasl.username", PROPERTY_ALLOWED, ALL},
    {"sasl.password", PROPERTY_SECRET, ALL},
    {"sasl.kerberos.service.name", PROPERTY_ALLOWED, ALL},
    {"sasl.kerberos.principal", PROPERTY_ALLOWED, ALL},
    {"sasl.kerberos.keytab", PROPERTY_ALLOWED, ALL},
    {"sasl.oauthbearer.method", PROPERTY_ALLOWED, ALL},
    {"sasl.oauthbearer.client.id", PROPERTY_ALLOWED, ALL},
    {"sasl.oauthbearer.client.secret", PROPERTY_SECRET, ALL},
    {"sasl.oauthbearer.scope", PROPERTY_ALLOWED, ALL},
    {"sasl.oauthbearer.extensions", PROPERTY_SECRET, ALL},
    {"sasl.oauthbearer.config", PROPERTY_SECRET, ALL},
    {"sasl.oauthbearer.token.endpoint.url", PROPERTY_ALLOWED, ALL},
    /* how records are gathered and fetched */
    {"heartbeat.interval.ms", PROPERTY_ALLOWED, KAFKA_ROLE_CONSUMER},
    {"coordinator.query.interval.ms", PROPERTY_ALLOWED, KAFKA_ROLE_CONSUMER},
    {"fetch.wait.max.ms", PROPERTY_ALLOWED, READS},
    {"fetch.min.bytes", PROPERTY_ALLOWED, READS},
    {"fetch.max.bytes", PROPERTY_ALLOWED, READS},
    {"fetch.message.max.bytes", PROPERTY_ALLOWED, READS},
    {"max.partition.fetch.bytes", PROPERTY_ALLOWED, READS},
    {"fetch.error.backoff.ms", PROPERTY_ALLOWED, READS},
    {"linger.ms", PROPERTY_ALLOWED, WRITES},
    {"queue.buffering.max.ms", PROPERTY_ALLOWED, WRITES},
    {"batch.size", PROPERTY_ALLOWED, WRITES},
    {"batch.num.messages", PROPERTY_ALLOWED, WRITES},
    {"retry.backoff.ms", PROPERTY_ALLOWED, WRITES},
    {"compression.codec", PROPERTY_ALLOWED, WRITES},
    {"compression.type", PROPERTY_ALLOWED, WRITES},
    {"compression.level", PROPERTY_ALLOWED, WRITES},
    /* ours: set by our own keys (brokers, group, session_timeout_ms), or fixed */
    {"bootstrap.servers", PROPERTY_PROTOCOL, 0},
    {"metadata.broker.list", PROPERTY_PROTOCOL, 0},
    {"client.id", PROPERTY_PROTOCOL, 0},
    {"group.id", PROPERTY_PROTOCOL, 0},
    {"group.instance.id", PROPERTY_PROTOCOL, 0},
    {"group.protocol", PROPERTY_PROTOCOL, 0},
    {"group.protocol.type", PROPERTY_PROTOCOL, 0},
    {"session.timeout.ms", PROPERTY_PROTOCOL, 0},
    {"max.poll.interval.ms", PROPERTY_PROTOCOL, 0},
    {"partition.assignment.strategy", PROPERTY_PROTOCOL, 0},
    {"enable.auto.commit", PROPERTY_PROTOCOL, 0},
    {"auto.commit.enable", PROPERTY_PROTOCOL, 0},
    {"auto.commit.interval.ms", PROPERTY_PROTOCOL, 0},
    {"enable.auto.offset.store", PROPERTY_PROTOCOL, 0},
    {"offset.store.method", PROPERTY_PROTOCOL, 0},
    {"offset.store.path", PROPERTY_PROTOCOL, 0},
    {"auto.offset.reset", PROPERTY_PROTOCOL, 0},
    {"check.crcs", PROPERTY_PROTOCOL, 0},
    {"isolation.level", PROPERTY_PROTOCOL, 0},
    {"enable.partition.eof", PROPERTY_PROTOCOL, 0},
    {"allow.auto.create.topics", PROPERTY_PROTOCOL, 0},
    {"topic.blacklist", PROPERTY_PROTOCOL, 0},
    {"queued.min.messages", PROPERTY_PROTOCOL, 0},
    {"queued.max.messages.kbytes", PROPERTY_PROTOCOL, 0},
    {"enable.idempotence", PROPERTY_PROTOCOL, 0},
    {"enable.gapless.guarantee", PROPERTY_PROTOCOL, 0},
    {"acks", PROPERTY_PROTOCOL, 0},
    {"request.required.acks", PROPERTY_PROTOCOL, 0},
    {"retries", PROPERTY_PROTOCOL, 0},
    {"message.send.max.retries", PROPERTY_PROTOCOL, 0},
    {"max.in.flight", PROPERTY_PROTOCOL, 0},
    {"max.in.flight.requests.per.connection", PROPERTY_PROTOCOL, 0},
    {"message.timeout.ms", PROPERTY_PROTOCOL, 0},
    {"delivery.timeout.ms", PROPERTY_PROTOCOL, 0},
    {"message.max.bytes", PROPERTY_PROTOCOL, 0},
    {"queue.buffering.max.messages", PROPERTY_PROTOCOL, 0},
    {"queue.buffering.max.kbytes", PROPERTY_PROTOCOL, 0},
    {"queuing.strategy", PROPERTY_PROTOCOL, 0},
    {"partitioner", PROPERTY_PROTOCOL, 0},
    {"transactional.id", PROPERTY_PROTOCOL, 0},
    {"transaction.timeout.ms", PROPERTY_PROTOCOL, 0},
    {"delivery.report.only.error", PROPERTY_PROTOCOL, 0},
    {"statistics.interval.ms", PROPERTY_PROTOCOL, 0},
    {"enabled_events", PROPERTY_PROTOCOL, 0},
    {"log.queue", PROPERTY_PROTOCOL, 0},
    {"internal.termination.signal", PROPERTY_PROTOCOL, 0},
    /* code */
    {"plugin.library.paths", PROPERTY_CODE, 0},
    {"ssl.engine.location", PROPERTY_CODE, 0},
    {"ssl.engine.id", PROPERTY_CODE, 0},
    {"ssl.providers", PROPERTY_CODE, 0},
    {"sasl.kerberos.kinit.cmd", PROPERTY_CODE, 0},
    {"enable.sasl.oauthbearer.unsecure.jwt", PROPERTY_CODE, 0},
};

enum { PROPERTY_COUNT = sizeof property_rows / sizeof *property_rows };

static const struct property_row *property_find(const char *key) {
    for (size_t i = 0; i < PROPERTY_COUNT; i++)
        if (strcmp(property_rows[i].key, key) == 0)
            return &property_rows[i];
    return NULL;
}

/* librdkafka's own text repeats the value, which may be a secret: ours names the key only. */
static bool conf_set(rd_kafka_conf_t *conf, const char *key, const char *value, struct error *error) {
    char ignored[512];
    if (rd_kafka_conf_set(conf, key, value, ignored, sizeof ignored) == RD_KAFKA_CONF_OK)
        return true;
    return error_set(error, ERROR_FATAL, "kafka_value", "librdkafka does not take this value of %s", key);
}

bool kafka_name_check(const char *value, struct error *error) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (value[strspn(value, allowed)] == '\0')
        return true;
    return error_set(error, ERROR_FATAL, "configuration", "\"%s\" may hold only letters, digits, '.', '_' and '-'", value);
}

bool kafka_property_check(const char *key, const char *value, struct error *error) {
    const struct property_row *row = property_find(key);
    if (!row)
        return error_set(error, ERROR_FATAL, "kafka_key_unknown", "%s is not a librdkafka property that may be set", key);
    if (row->rule == PROPERTY_CODE)
        return error_set(error, ERROR_FATAL, "kafka_key_refused", "%s is refused: it runs code or weakens security", key);
    if (row->rule == PROPERTY_PROTOCOL)
        return error_set(error, ERROR_FATAL, "kafka_key_protocol", "%s is refused: the protocol fixes it", key);

    rd_kafka_conf_t *scratch = rd_kafka_conf_new();
    bool fits = conf_set(scratch, key, value, error);
    rd_kafka_conf_destroy(scratch);
    return fits;
}

bool kafka_property_is_secret(const char *key) {
    const struct property_row *row = property_find(key);
    return row && row->rule == PROPERTY_SECRET;
}

int32_t kafka_partition_of_key(const void *key, size_t key_size, int32_t partition_count) {
    return rd_kafka_msg_partitioner_murmur2(NULL, key, key_size, partition_count, NULL, NULL);
}

/* What an operator may change: a small record leaves at once, an empty fetch does not hold a new partition up for long. */
static const struct kafka_default common_defaults[] = {
    {"socket.nagle.disable", "true"},
    {"socket.keepalive.enable", "true"},
    {"reconnect.backoff.ms", "50"},
    {"reconnect.backoff.max.ms", "2000"},
    {"log_level", "5"},
    {NULL, NULL},
};

/* What nobody may change. */
static const struct kafka_default common_fixed[] = {
    {"allow.auto.create.topics", "false"},
    {"statistics.interval.ms", "0"},
    {"log.connection.close", "false"},
    {NULL, NULL},
};

static bool conf_set_all(rd_kafka_conf_t *conf, const struct kafka_default *rows, struct error *error) {
    for (; rows && rows->key; rows++)
        if (!conf_set(conf, rows->key, rows->value, error))
            return false;
    return true;
}

static bool conf_set_passed(rd_kafka_conf_t *conf, enum kafka_role role, const struct kafka_settings *settings,
                            struct error *error) {
    for (size_t i = 0; i < settings->property_count; i++) {
        const struct kafka_property *property = &settings->properties[i];
        if (!kafka_property_check(property->key, property->value, error))
            return false;
        const struct property_row *row = property_find(property->key);
        assert(row); /* else the check refuses it */
        if ((row->roles & (unsigned)role) && !conf_set(conf, property->key, property->value, error))
            return false;
    }
    return true;
}

static void client_on_log(const rd_kafka_t *handle, int level, const char *facility, const char *text) {
    const struct kafka_client *client = rd_kafka_opaque(handle);
    if (client && client->log)
        client->log(client->log_context, level, facility, text);
}

/* Served from poll, in the owner's thread (rd_kafka_poll_set_consumer, rd_kafka_poll). */
static void client_on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque) {
    struct kafka_client *client = opaque;
    if (code == RD_KAFKA_RESP_ERR__FATAL) {
        char text[400];
        rd_kafka_resp_err_t cause = rd_kafka_fatal_error(handle, text, sizeof text);
        kafka_error_set(&client->event, cause, "the Kafka client stopped", text);
        client->event.kind = ERROR_FATAL;
    } else {
        if (client->has_event && (client->event.kind == ERROR_FATAL || code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN))
            return; /* that none is left tells less than why one is not there */
        kafka_client_error_set(client, &client->event, (rd_kafka_resp_err_t)code, "Kafka", reason);
        int fault = atomic_load(&client->certificate_fault);
        if (fault != X509_V_OK && strstr(reason, "certificate verify failed") != NULL)
            error_prefix(&client->event, "the broker's certificate: %s", X509_verify_cert_error_string(fault));
    }
    client->has_event = true;
}

/* From a broker's thread, for each certificate of its chain. OpenSSL has judged, and that stands: librdkafka only does not tell
 * whether it was the authority, the name or the date. */
static int client_on_certificate(rd_kafka_t *handle, const char *broker, int32_t broker_id, int *x509_error, int depth,
                                 const char *certificate, size_t size, char *text, size_t text_size, void *opaque) {
    (void)handle, (void)broker, (void)broker_id, (void)depth, (void)certificate, (void)size;
    struct kafka_client *client = opaque;
    if (*x509_error == X509_V_OK)
        return 1;
    atomic_store(&client->certificate_fault, *x509_error);
    snprintf(text, text_size, "%s", X509_verify_cert_error_string(*x509_error));
    return 0;
}

static const char *property_value(const struct kafka_settings *settings, const char *key) {
    for (size_t i = 0; i < settings->property_count; i++)
        if (strcmp(settings->properties[i].key, key) == 0)
            return settings->properties[i].value;
    return NULL;
}

/* Newer versions know when a full queue has room again; 2.0.2 has to be told. */
static bool conf_knows_queue_backoff(rd_kafka_conf_t *conf) {
    char ignored[512];
    return rd_kafka_conf_set(conf, "fetch.queue.backoff.ms", "1", ignored, sizeof ignored) == RD_KAFKA_CONF_OK;
}

static void client_prepare_nudge(struct kafka_client *client, enum kafka_role role, rd_kafka_conf_t *conf,
                                 const struct kafka_settings *settings) {
    client->can_nudge = (role & READS) && !conf_knows_queue_backoff(conf);
    const char *username = property_value(settings, "sasl.username");
    const char *password = property_value(settings, "sasl.password");
    client->sasl_username = memory_copy_text(username ? username : "");
    client->sasl_password = memory_copy_text(password ? password : "");
}

bool kafka_client_init(struct kafka_client *client, enum kafka_role role, const struct kafka_settings *settings,
                       const struct kafka_default *defaults, const struct kafka_default *fixed, kafka_conf_fn *more,
                       void *context, struct error *error) {
    *client = (struct kafka_client){.log = settings->log, .log_context = settings->log_context};
    rd_kafka_conf_t *conf = memory_or_exit(rd_kafka_conf_new());
    const char *client_id = settings->client_id ? settings->client_id : "leasehold";

    if (!conf_set_all(conf, common_defaults, error) || !conf_set_all(conf, defaults, error) ||
        !conf_set_passed(conf, role, settings, error) || !conf_set_all(conf, common_fixed, error) ||
        !conf_set_all(conf, fixed, error) || !conf_set(conf, "bootstrap.servers", settings->brokers, error) ||
        !conf_set(conf, "client.id", client_id, error)) {
        rd_kafka_conf_destroy(conf);
        return false;
    }
    for (const struct kafka_default *row = fixed; row && row->key; row++)
        if (strcmp(row->key, "group.id") == 0)
            client->group = memory_copy_text(row->value);
    client_prepare_nudge(client, role, conf, settings);
    rd_kafka_conf_set_opaque(conf, client);
    rd_kafka_conf_set_log_cb(conf, client_on_log);
    rd_kafka_conf_set_error_cb(conf, client_on_error);
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, client_on_certificate);
    if (more)
        more(conf, context);

    char text[400];
    rd_kafka_type_t type = (role & READS) ? RD_KAFKA_CONSUMER : RD_KAFKA_PRODUCER;
    client->handle = rd_kafka_new(type, conf, text, sizeof text);
    if (client->handle)
        return true;
    rd_kafka_conf_destroy(conf); /* rd_kafka_new takes it only when it succeeds */
    kafka_client_release(client);
    return error_set(error, ERROR_FATAL, "kafka_client", "cannot create a Kafka client: %s", text);
}

void kafka_client_abandon(struct kafka_client *client) {
    rd_kafka_set_log_level(client->handle, 0); /* whoever takes its lines may be gone before it */
    client->handle = NULL;
    kafka_client_release(client);
}

void kafka_client_release(struct kafka_client *client) {
    if (client->handle)
        rd_kafka_destroy_flags(client->handle, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    client->handle = NULL;
    free(client->group);
    client->group = NULL;
    free(client->sasl_username);
    if (client->sasl_password)
        explicit_bzero(client->sasl_password, strlen(client->sasl_password));
    free(client->sasl_password);
    client->sasl_username = client->sasl_password = NULL;
}

bool kafka_client_take_event(struct kafka_client *client, struct error *ret_error) {
    if (!client->has_event)
        return false;
    *ret_error = client->event;
    client->has_event = false;
    return true;
}
