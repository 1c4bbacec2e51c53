/* program: what lease-worker and lease-royalty have in common: the keys of the connection and of the log, main, and the connection that
 * the library is given. Main's thread only.
 *
 * The settings of a program begin with `struct program_settings common`; its table begins with the rows of this one. */
#ifndef LEASE_PROGRAM_H
#define LEASE_PROGRAM_H

#include "common/buf.h"
#include "common/config.h"
#include "common/error.h"
#include "common/kafka_config.h"
#include "common/log.h"
#include "worker/lease_worker.h"

#include <stddef.h>

/* Texts are borrowed from `config`. */
struct program_settings {
    const char *brokers;
    const char *topic_prefix;
    const char *group;
    const char *name;
    int log_format; /* enum log_format */
    int log_level;  /* enum log_level */
    const char *config_file;

    const struct kafka_property *kafka; /* passed through to librdkafka */
    size_t kafka_count;
    struct config *config;
};

enum { PROGRAM_US = 1 /* a table is that of one program */ };

#define PROGRAM_FIELD(values, field) .key = #field, .offset = offsetof(values, field), .programs = PROGRAM_US
#define PROGRAM_COMMON(values, field) .key = #field, .offset = offsetof(values, common.field), .programs = PROGRAM_US
#define PROGRAM_TEXT(least, most) .type = CONFIG_TEXT, .minimum = (least), .maximum = (most)
#define PROGRAM_NUMBER(least, most, text) .type = CONFIG_NUMBER, .minimum = (least), .maximum = (most), .initial = (text)

/* Rows of the table of a program whose settings are of this type. */
#define PROGRAM_CONNECTION_ROWS(values, service)                                                                       \
    {PROGRAM_COMMON(values, brokers), PROGRAM_TEXT(1, 4096), .required = PROGRAM_US,                                   \
     .help = "Kafka brokers, host:port[,host:port…]"},                                                                 \
    {PROGRAM_COMMON(values, topic_prefix), PROGRAM_TEXT(0, 100), .initial = "", .check = kafka_name_check,             \
     .help = "put before the name of every topic"},                                                                    \
    {PROGRAM_COMMON(values, group), PROGRAM_TEXT(1, 100), .initial = "lease-worker", .check = kafka_name_check,        \
     .help = "named to the brokers, for their access rules; no group is joined"},                                      \
    {PROGRAM_COMMON(values, name), PROGRAM_TEXT(1, 150), .initial = (service),                                         \
     .help = "of this service: holders are called <name>.<incarnation>, anew in every process"}
#define PROGRAM_LOG_ROWS(values)                                                                                       \
    {PROGRAM_COMMON(values, log_format), .type = CONFIG_CHOICE, .choices = log_format_names, .initial = "logfmt",      \
     .help = "form of the log lines on stderr"},                                                                       \
    {PROGRAM_COMMON(values, log_level), .type = CONFIG_CHOICE, .choices = log_level_names, .initial = "info",          \
     .help = "least important lines that are written"},                                                                \
    {.key = "config", .offset = offsetof(values, common.config_file), .programs = PROGRAM_US, PROGRAM_TEXT(1, 4096),   \
     .help = "file with more keys (key = value lines, then [kafka])"}

struct program {
    const char *name;
    const char *usage; /* stands above the keys in the help */
    const struct config_row *rows;
    size_t row_count;
    bool (*check)(const void *settings, struct error *error); /* rules between keys; NULL: none */
    int (*run)(const void *settings);                         /* returns the exit status */
};

/* All of main: --help, --version, --show-config, or a run. `settings`: zeroed, begins with struct program_settings.
 * Exit statuses of its own: 64 for a wrong command line, 78 for wrong settings. */
int program_main(const struct program *program, void *settings, int argc, char **argv);

/* Fills in the library's connection. Returns what to free() when the client is made. */
struct lease_property *program_connect(const struct program_settings *settings, struct lease_connection *connection);

#endif
