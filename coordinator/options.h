/* Every configuration key of our programs, as one table, and the values it leads to.
 *
 * Adding a key is one row in options.c and one field here. Precedence, spelling and files: common/config.h. */
#ifndef LEASE_OPTIONS_H
#define LEASE_OPTIONS_H

#include "common/buf.h"
#include "common/config.h"
#include "common/error.h"
#include "common/kafka_config.h"
#include "common/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum options_program { OPTIONS_COORDINATOR = 1, OPTIONS_LEASECTL = 2 };

/* Texts are borrowed from `config` (or owned by it) and live until options_release; NULL where not set. */
struct options {
    const char *brokers;
    const char *database; /* libpq conninfo, secret */
    const char *http;
    const char *topic_prefix; /* before every topic's name and the group's */
    const char *group;
    const char *instance;
    const char *token_key;          /* secret, ≥ 32 bytes */
    const char *token_key_previous; /* secret, ≥ 32 bytes */
    int64_t batch_messages;
    int64_t batch_bytes;
    int64_t batch_wait_ms;
    int64_t lanes;
    int64_t queue_messages;
    int64_t session_timeout_ms;
    int64_t database_grace_ms;
    int64_t drain_ms;
    int64_t reap_poll_ms;
    int64_t relay_batch;
    int64_t mark_interval_ms;
    int log_format; /* enum log_format */
    int log_level;  /* enum log_level */
    bool throwaway;
    const char *config_file;

    enum config_action action;           /* coordinator only: what --help, --version, --show-config ask for */
    const struct kafka_property *kafka;   /* passed through to librdkafka */
    size_t kafka_count;
    char generated_instance[128];         /* storage of `instance` where none is given */
    struct config *config;
};

/* Reads command line, environment and file. The coordinator refuses arguments that are not in the table; leasectl's rest
 * stays in argv, in order, for its commands. With --help or --version nothing else is checked. On failure there is
 * nothing to release. Errors: see common/config.h. */
bool options_load(struct options *options, enum options_program program, int *argc, char **argv, char *const *environment,
                  struct error *error) MUST_USE;
void options_release(struct options *options); /* NULL and zeroed allowed */

/* What --show-config prints: every key, its value and where it came from; secrets as "(secret)". */
void options_show(const struct options *options, struct buf *out);

void options_help(enum options_program program, struct buf *out); /* the keys only, no heading */

/* sysexits: 64 for a wrong command line, 78 for all else. */
int options_exit_status(const struct error *error);

#endif
