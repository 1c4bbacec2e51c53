/* A worker process of the benchmarks: its items ask for nothing to be done.
 *
 *   bench-worker BROKERS PREFIX KIND CREDIT
 *
 * Says "ready", waits for a line on its standard input, works; says "finished N" whenever N has grown, and "begun ID MICROSECONDS" (of
 * CLOCK_REALTIME) for each item if CREDIT is 1; drains at the end of its input. */
#include "worker/lease_worker.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 5, DRAIN_MS = 10000 };

static void work(void *context, struct lease_item *item) {
    const bool *tells = context;
    struct timespec now;
    if (*tells) {
        clock_gettime(CLOCK_REALTIME, &now);
        printf("begun %s %lld\n", lease_item_grant(item)->lease, (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    }
    lease_item_finish(item, NULL);
}

static void say(void *context, enum lease_log_level level, const char *text) {
    (void)context;
    if (level >= LEASE_LOG_WARNING)
        fprintf(stderr, "%s\n", text);
}

static bool is_over(int wait_ms) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char bytes[64];
    return poll(&input, 1, wait_ms) > 0 && read(STDIN_FILENO, bytes, sizeof bytes) <= 0;
}

int main(int count, char **words) {
    char line[16];
    if (count != 5) {
        fprintf(stderr, "usage: bench-worker BROKERS PREFIX KIND CREDIT\n");
        return 64;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct lease_worker_options options;
    lease_worker_options_init(&options);
    bool tells = strcmp(words[4], "1") == 0;
    options.connection.brokers = words[1];
    options.connection.topic_prefix = words[2];
    options.connection.log = say;
    options.kind = words[3];
    options.name = "bench";
    options.work = work;
    options.context = &tells;
    options.concurrency = tells ? 1 : 4;
    options.credit = (unsigned)strtoul(words[4], NULL, 10);
    puts("ready");
    if (fgets(line, sizeof line, stdin) == NULL)
        return 0;
    struct lease_worker *worker;
    struct lease_error error;
    if (!lease_worker_start(&options, &worker, &error)) {
        fprintf(stderr, "%s: %s\n", error.code, error.message);
        return 69;
    }
    struct lease_worker_stats stats = {.size = sizeof stats};
    for (unsigned long long told = 0; !is_over(LOOK_MS);) {
        lease_worker_get_stats(worker, &stats);
        if (stats.finished > told)
            printf("finished %llu\n", told = stats.finished);
    }
    lease_worker_stop(worker, DRAIN_MS);
    lease_worker_free(worker);
    return 0;
}
