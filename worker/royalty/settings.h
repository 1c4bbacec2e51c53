/* What the reference settlement is told: a table of keys, as flags, environment and file (common/config.h), and the values.
 *
 * Adding a key is one row in settings.c and one field here. */
#ifndef LEASE_ROYALTY_SETTINGS_H
#define LEASE_ROYALTY_SETTINGS_H

#include "common/buf.h"
#include "common/config.h"
#include "common/error.h"
#include "common/kafka_config.h"

#include <stddef.h>
#include <stdint.h>

/* Texts are borrowed from `config` and live until royalty_settings_release; NULL where not set. */
struct royalty_settings {
    const char *settlement;
    const char *period;
    const char *contracts; /* '<type>/<contract>' joined by commas; NULL: all */
    const char *brokers;
    const char *topic_prefix;
    const char *group;
    const char *name;
    const char *royalty_database; /* libpq conninfo, secret */
    int64_t ttl_ms;
    int64_t answer_ms;
    int64_t chunk_sales;
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
bool royalty_settings_load(struct royalty_settings *settings, int *argc, char **argv, char *const *environment, struct error *error)
    MUST_USE;
void royalty_settings_release(struct royalty_settings *settings); /* NULL and zeroed allowed */

void royalty_settings_show(const struct royalty_settings *settings, struct buf *out);
void royalty_settings_help(struct buf *out); /* the keys only, no heading */

/* sysexits: 64 for a wrong command line, 78 for all else. */
int royalty_settings_exit_status(const struct error *error);

#endif
