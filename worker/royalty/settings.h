/* What the reference settlement is told: a table of keys, as flags, environment and file (common/config.h), and the values.
 *
 * Adding a key is one row in settings.c and one field here. */
#ifndef LEASE_ROYALTY_SETTINGS_H
#define LEASE_ROYALTY_SETTINGS_H

#include "worker/program/program.h"

#include <stddef.h>
#include <stdint.h>

/* Texts are borrowed from the configuration; NULL where not set. */
struct royalty_settings {
    struct program_settings common;
    const char *settlement;
    const char *period;
    const char *contracts; /* '<type>/<contract>' joined by commas; NULL: all */
    const char *royalty_database; /* libpq conninfo, secret */
    int64_t ttl_ms;
    int64_t answer_ms;
    int64_t chunk_sales;
};

extern const struct config_row royalty_settings_rows[];
extern const size_t royalty_settings_row_count;

#endif
