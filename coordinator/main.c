/* The daemon: reads its options, turns signals into a stop, and runs one coordinator.
 *
 * SIGTERM and SIGINT drain; a second one ends the process at once, which loses nothing (what was not committed is read
 * again, what was not published is published by the next). Exit statuses are those of sysexits.h. */
#include "common/buf.h"
#include "common/event.h"
#include "common/process.h"
#include "coordinator/coordinator.h"
#include "coordinator/options.h"

#include <stdio.h>
#include <stdlib.h>

extern char **environ;

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

static int run_coordinator(void *coordinator) {
    return coordinator_run(coordinator);
}

static void stop_coordinator(void *coordinator) {
    coordinator_stop(coordinator);
}

static int run(const struct options *options) {
    struct coordinator *coordinator = coordinator_new(options);
    int status = process_run(run_coordinator, stop_coordinator, coordinator);
    coordinator_free(coordinator);
    return status;
}

static int act(const struct options *options) {
    switch (options->action) {
    case CONFIG_HELP:
        print(append_help, stdout);
        return EXIT_SUCCESS;
    case CONFIG_VERSION:
        print(append_version, stdout);
        return EXIT_SUCCESS;
    case CONFIG_SHOW: {
        struct buf out = BUF_INIT;
        options_show(options, &out);
        fputs(buf_text(&out), stdout);
        buf_release(&out);
        return EXIT_SUCCESS;
    }
    case CONFIG_RUN:
        break;
    }
    return run(options);
}

int main(int argc, char **argv) {
    struct options options;
    struct error error = {0};
    process_prepare();
    event_prepare();
    if (!options_load(&options, OPTIONS_COORDINATOR, &argc, argv, environ, &error)) {
        fprintf(stderr, "lease-coordinator: %s\n", error.message);
        return options_exit_status(&error);
    }
    int status = act(&options);
    options_release(&options);
    return status;
}
