/* The daemon: reads its options, turns signals into a stop, and runs one coordinator.
 *
 * SIGTERM and SIGINT drain; a second one ends the process at once, which loses nothing (what was not committed is read
 * again, what was not published is published by the next). Exit statuses are those of sysexits.h. */
#include "common/buf.h"
#include "coordinator/coordinator.h"
#include "coordinator/options.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern char **environ;

/* Many threads, few of them busy: more arenas only keep memory apart. The bound on resident memory needs this. */
enum { ARENAS = 2 };

static void print(void (*append)(struct buf *out), FILE *file) {
    struct buf out = BUF_INIT;
    append(&out);
    fputs(buf_text(&out), file);
    buf_release(&out);
}

static void append_help(struct buf *out) {
    buf_append_text(out, "usage: lease-coordinator [options]\n\n"
                         "Decides about leases: consumes commands from Kafka, applies them in PostgreSQL, publishes results.\n\n"
                         "  --help, --version, --show-config\n\n");
    options_help(OPTIONS_COORDINATOR, out);
}

static void append_version(struct buf *out) {
    buf_append_text(out, "lease-coordinator " LEASE_VERSION "\n");
}

static sigset_t stop_signals(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    return signals;
}

/* A thread of its own takes the signals: nothing runs inside a handler. */
static void *wait_for_signals(void *context) {
    const sigset_t signals = stop_signals();
    int number;
    sigwait(&signals, &number);
    coordinator_stop(context);
    sigwait(&signals, &number);
    _exit(128 + number);
}

static int run(const struct options *options) {
    pthread_t thread;
    struct coordinator *coordinator = coordinator_new(options);
    int failed = pthread_create(&thread, NULL, wait_for_signals, coordinator);
    memory_or_exit(failed != 0 ? NULL : coordinator);
    int status = coordinator_run(coordinator);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    coordinator_free(coordinator);
    return status;
}

static int act(const struct options *options) {
    switch (options->action) {
    case OPTIONS_HELP:
        print(append_help, stdout);
        return EXIT_SUCCESS;
    case OPTIONS_VERSION:
        print(append_version, stdout);
        return EXIT_SUCCESS;
    case OPTIONS_SHOW: {
        struct buf out = BUF_INIT;
        options_show(options, &out);
        fputs(buf_text(&out), stdout);
        buf_release(&out);
        return EXIT_SUCCESS;
    }
    case OPTIONS_RUN:
        break;
    }
    return run(options);
}

int main(int argc, char **argv) {
    const sigset_t signals = stop_signals();
    struct options options;
    struct error error = {0};
    mallopt(M_ARENA_MAX, ARENAS);
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: they inherit it */
    if (!options_load(&options, OPTIONS_COORDINATOR, &argc, argv, environ, &error)) {
        fprintf(stderr, "lease-coordinator: %s\n", error.message);
        return options_exit_status(&error);
    }
    int status = act(&options);
    options_release(&options);
    return status;
}
