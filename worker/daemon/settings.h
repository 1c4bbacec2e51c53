/* What the reference worker is told: a table of keys, as flags, environment and file (common/config.h), and the values.
 *
 * Adding a key is one row in settings.c and one field here. */
#ifndef LEASE_DAEMON_SETTINGS_H
#define LEASE_DAEMON_SETTINGS_H

#include "worker/program/program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum settings_kind { SETTINGS_CLEANUP, SETTINGS_DELIVERY };

/* Texts are borrowed from the configuration; NULL where not set. */
struct settings {
    struct program_settings common;
    int kind; /* enum settings_kind */
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
};

extern const struct config_row settings_rows[];
extern const size_t settings_row_count;

/* Rules between keys. `settings`: a struct settings. */
bool settings_check(const void *settings, struct error *error);

const char *settings_kind_name(const struct settings *settings); /* "cleanup", "delivery" */

#endif
