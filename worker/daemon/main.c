/* lease-worker: reads its settings, turns signals into a stop, and runs one daemon.
 *
 * SIGTERM and SIGINT drain; a second one ends the process at once: its leases lapse, and others do the rest. Exit statuses are
 * those of sysexits.h. */
#include "common/buf.h"
#include "common/process.h"
#include "worker/daemon/daemon.h"

#include <stdio.h>
#include <stdlib.h>

extern char **environ;

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

static int run_daemon(void *daemon) {
    return daemon_run(daemon);
}

static void stop_daemon(void *daemon) {
    daemon_stop(daemon);
}

static int run(const struct settings *settings) {
    struct daemon *daemon = daemon_new(settings);
    int status = process_run(run_daemon, stop_daemon, daemon);
    daemon_free(daemon);
    return status;
}

static int act(const struct settings *settings) {
    struct buf out = BUF_INIT;
    if (settings->action == CONFIG_RUN)
        return run(settings);
    if (settings->action == CONFIG_HELP)
        append_help(&out);
    else if (settings->action == CONFIG_VERSION)
        append_version(&out);
    else
        settings_show(settings, &out);
    fputs(buf_text(&out), stdout);
    buf_release(&out);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    struct settings settings;
    struct error error = {0};
    process_prepare();
    if (!settings_load(&settings, &argc, argv, environ, &error)) {
        fprintf(stderr, "lease-worker: %s\n", error.message);
        return settings_exit_status(&error);
    }
    int status = act(&settings);
    settings_release(&settings);
    return status;
}
