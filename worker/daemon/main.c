/* lease-worker: reads its settings, turns signals into a stop, and runs one daemon.
 *
 * SIGTERM and SIGINT drain; a second one ends the process at once: its leases lapse, and others do the rest. Exit statuses are
 * those of sysexits.h. */
#include "common/buf.h"
#include "worker/daemon/daemon.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern char **environ;

enum { ARENAS = 2 }; /* as in the coordinator: many threads, few of them busy */

static void append_help(struct buf *out) {
    buf_append_text(
        out,
        "usage: lease-worker --kind cleanup|delivery [options]\n\n"
        "Does items of one kind: claims them, keeps their leases alive, and says what became of them. Run as many as you like; one\n"
        "that dies, sleeps or is cut off is replaced after ttl_ms, and turned away where its effects would land.\n\n"
        "  lease-worker --kind cleanup --brokers kafka:9092 --file-root /srv/files --file-database 'host=db dbname=files'\n"
        "      removes the requested files beneath the root, and settles quota and lifecycle once\n"
        "  lease-worker --kind delivery --brokers kafka:9092 --delivery-url https://inbox.example/messages\n"
        "      posts each item's payload; the receiver gets Lease-Fence, Lease-Claim and Idempotency-Key as headers\n\n"
        "SIGTERM drains: nothing more is claimed, what runs is finished. A second one ends it at once.\n"
        "Exit status: 0 stopped, 64 usage, 69 what it needs is away, 78 configuration.\n\n"
        "  --help, --version, --show-config\n\n");
    settings_help(out);
}

static void append_version(struct buf *out) {
    buf_append_text(out, "lease-worker " LEASE_VERSION "\n");
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
    daemon_stop(context);
    sigwait(&signals, &number);
    _exit(128 + number);
}

static int run(const struct settings *settings) {
    pthread_t thread;
    struct daemon *daemon = daemon_new(settings);
    int failed = pthread_create(&thread, NULL, wait_for_signals, daemon);
    memory_or_exit(failed != 0 ? NULL : daemon);
    int status = daemon_run(daemon);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    daemon_free(daemon);
    return status;
}

static int act(const struct settings *settings) {
    struct buf out = BUF_INIT;
    if (settings->action == SETTINGS_RUN)
        return run(settings);
    if (settings->action == SETTINGS_HELP)
        append_help(&out);
    else if (settings->action == SETTINGS_VERSION)
        append_version(&out);
    else
        settings_show(settings, &out);
    fputs(buf_text(&out), stdout);
    buf_release(&out);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    const sigset_t signals = stop_signals();
    struct settings settings;
    struct error error = {0};
    mallopt(M_ARENA_MAX, ARENAS);
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: they inherit it */
    if (!settings_load(&settings, &argc, argv, environ, &error)) {
        fprintf(stderr, "lease-worker: %s\n", error.message);
        return settings_exit_status(&error);
    }
    int status = act(&settings);
    settings_release(&settings);
    return status;
}
