/* What the reference worker is told: a table of keys, as flags, environment and file (common/config.h), and the values.
 *
 * Adding a key is one row in settings.c and one field here. */
#ifndef LEASE_DAEMON_SETTINGS_H
#define LEASE_DAEMON_SETTINGS_H

#include "common/buf.h"
#include "common/config.h"
#include "common/error.h"
#include "common/kafka_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum settings_kind { SETTINGS_CLEANUP, SETTINGS_DELIVERY };

/* Texts are borrowed from `config` and live until settings_release; NULL where not set. */
struct settings {
    int kind; /* enum settings_kind */
    const char *brokers;
    const char *topic_prefix;
    const char *group;
    const char *name;
    int64_t concurrency;
    int64_t credit; /* 0: the library's own rule */
    int64_t ttl_ms;
    int64_t patience_ms;
    int64_t drain_ms;
    const char *file_root;
    const char *file_database; /* libpq conninfo, secret */
    const char *delivery_url;
    const char *delivery_authorization; /* secret */
    int64_t delivery_timeout_ms;
    int log_format; /* enum log_format */
    int log_level;  /* enum log_level */
    const char *config_file;

    enum config_action action;
    const struct kafka_property *kafka; /* passed through to librdkafka */
    size_t kafka_count;
    struct config *config;
};

/* Reads command line, environment and file. With --help or --version nothing is checked. On failure there is nothing to
 * release. Errors: see common/config.h. */
bool settings_load(struct settings *settings, int *argc, char **argv, char *const *environment, struct error *error) MUST_USE;
void settings_release(struct settings *settings); /* NULL and zeroed allowed */

const char *settings_kind_name(const struct settings *settings); /* "cleanup", "delivery" */

void settings_show(const struct settings *settings, struct buf *out);
void settings_help(struct buf *out); /* the keys only, no heading */

/* sysexits: 64 for a wrong command line, 78 for all else. */
int settings_exit_status(const struct error *error);

#endif
