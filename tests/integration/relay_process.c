/* A process that is nothing but a relay, so that the tests can kill, stop and restart it at will. Configured by LEASE_BROKERS,
 * LEASE_DATABASE, LEASE_TOPIC_PREFIX, LEASE_INSTANCE, LEASE_TOKEN_KEY; logs on stderr; a status line on stdout ten times a
 * second; SIGTERM drains and ends it. With the argument `witness` it prints what the topics tell, and ends. */
#include "common/clock.h"
#include "common/token.h"
#include "coordinator/relay.h"
#include "coordinator/witness.h"

#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_bool has_failed;

static void on_failed(void *context, const struct error *error) {
    (void)context;
    (void)error;
    atomic_store(&has_failed, true);
}

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static long resident_kbytes(void) {
    char line[256];
    long kbytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %ld", &kbytes) == 1)
            break;
    if (file)
        fclose(file);
    return kbytes;
}

static void print_status(struct relay *relay) {
    struct relay_status status;
    relay_get_status(relay, &status);
    printf("{\"has_role\":%s,\"epoch\":%lld,\"published\":%lld,\"records\":%lld,\"skipped\":%lld,\"restated\":%lld,"
           "\"step_downs\":%lld,\"blocked_ms\":%lld,\"rss_kb\":%ld,\"code\":\"%s\"}\n",
           status.has_role ? "true" : "false", (long long)status.epoch, (long long)status.published,
           (long long)status.records_total, (long long)status.skipped_total, (long long)status.restated_total,
           (long long)status.step_downs_total, (long long)status.blocked_ms, resident_kbytes(), status.error.code);
    fflush(stdout);
}

static int print_witness(const struct kafka_settings *kafka) {
    struct error error;
    int64_t number, fence;
    bool is_empty;
    if (!witness_read(kafka, setting("LEASE_TOPIC_PREFIX", ""), "lease-coordinator", 20000, &number, &fence, &is_empty,
                      &error)) {
        fprintf(stderr, "%s: %s\n", error.code, error.message);
        return 70;
    }
    printf("{\"number\":%lld,\"fence\":%lld,\"empty\":%s}\n", (long long)number, (long long)fence,
           is_empty ? "true" : "false");
    return 0;
}

int main(int argument_count, char **arguments) {
    struct log log;
    struct error error;
    struct relay *relay;
    struct token_keys *keys;
    mallopt(M_ARENA_MAX, 2);
    log_init(&log, STDERR_FILENO, LOG_FORMAT_LOGFMT, LOG_DEBUG);
    const char *key = setting("LEASE_TOKEN_KEY", "0123456789abcdef0123456789abcdef");
    const struct kafka_settings kafka = {.brokers = setting("LEASE_BROKERS", "127.0.0.1:9092"), .client_id = "relay-process"};
    if (argument_count > 1 && strcmp(arguments[1], "witness") == 0)
        return print_witness(&kafka);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);

    if (!token_keys_new(key, strlen(key), NULL, 0, &keys, &error))
        return 78;
    const struct relay_options options = {
        .kafka = &kafka,
        .database = setting("LEASE_DATABASE", ""),
        .topic_prefix = setting("LEASE_TOPIC_PREFIX", ""),
        .group = "lease-coordinator",
        .owner = setting("LEASE_INSTANCE", "relay"),
        .token_keys = keys,
        .log = &log,
        .failed = on_failed,
    };
    if (!relay_new(&options, &relay, &error)) {
        log_error(&log, LOG_ERROR, "cannot start", &error, NULL);
        return 70;
    }
    while (sigtimedwait(&signals, NULL, &(struct timespec){.tv_nsec = 100000000}) != SIGTERM && !atomic_load(&has_failed))
        print_status(relay);
    relay_free(relay, 10000);
    token_keys_free(keys);
    return atomic_load(&has_failed) ? 70 : 0;
}
