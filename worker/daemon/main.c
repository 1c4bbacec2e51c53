/* lease-worker: reads its settings, turns signals into a stop, and runs one daemon.
 *
 * SIGTERM and SIGINT drain; a second one ends the process at once: its leases lapse, and others do the rest. Exit statuses are
 * those of sysexits.h. */
#include "common/process.h"
#include "worker/daemon/daemon.h"

static const char usage[] =
    "usage: lease-worker --kind cleanup|delivery [options]\n\n"
    "Does items of one kind: claims them, keeps their leases alive, and says what became of them. Run as many as you like; one\n"
    "that dies, sleeps or is cut off is replaced after ttl_ms, and turned away where its effects would land.\n\n"
    "  lease-worker --kind cleanup --brokers kafka:9092 --file-root /srv/files --file-database 'host=db dbname=files'\n"
    "      removes the requested files beneath the root, and settles quota and lifecycle once\n"
    "  lease-worker --kind delivery --brokers kafka:9092 --delivery-url https://inbox.example/messages\n"
    "      posts each item's payload; the receiver gets Lease-Fence, Lease-Claim and Idempotency-Key as headers\n\n"
    "SIGTERM drains: nothing more is claimed, what runs is finished. A second one ends it at once.\n"
    "Exit status: 0 stopped, 64 usage, 69 what it needs is away, 78 configuration.\n\n";

static int run_daemon(void *daemon) {
    return daemon_run(daemon);
}

static void stop_daemon(void *daemon) {
    daemon_stop(daemon);
}

static int run(const void *settings) {
    struct daemon *daemon = daemon_new(settings);
    int status = process_run(run_daemon, stop_daemon, daemon);
    daemon_free(daemon);
    return status;
}

int main(int argc, char **argv) {
    struct settings settings = {0};
    const struct program program = {.name = "lease-worker", .usage = usage, .rows = settings_rows, .row_count = settings_row_count, .check = settings_check, .run = run};
    return program_main(&program, &settings, argc, argv);
}
