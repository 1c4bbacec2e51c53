/* Structured log lines, one per event, on a file descriptor (stderr in the programs).
 *
 * logfmt:  time=2026-01-31T23:59:59.123456Z level=info event="batch committed" messages=1000
 * JSON:    {"time":"…","level":"info","event":"batch committed","messages":"1000"}
 *
 * The event is a fixed text of ours; what varies goes into fields. Names of fields are ours too (lower case, '_');
 * values may be anything: control characters, quotes and bytes that are not UTF-8 are escaped, so that one event is
 * always one line. Never give it a token or another secret.
 *
 * Thread safe. Code in common/ takes no logger and logs nothing: it returns errors; who decides logs, once. */
#ifndef LEASE_LOG_H
#define LEASE_LOG_H

#include "common/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };
enum log_format { LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };

/* In the order of the enums, closed by NULL: choices of a configuration. */
extern const char *const log_level_names[];
extern const char *const log_format_names[];

/* Longer values are cut and end in "…": one line stays small enough for every collector. */
enum { LOG_VALUE_MAX = 2048, LOG_NUMBER_SIZE = 24 };

struct log {
    enum log_format format;
    enum log_level level; /* the lowest that is written */
    int file;             /* borrowed */
    _Atomic uint64_t lost; /* lines that could not be written */
    pthread_mutex_t writing;
};

void log_init(struct log *log, int file, enum log_format format, enum log_level level);
void log_release(struct log *log); /* NULL allowed; the descriptor stays open */
bool log_is_enabled(const struct log *log, enum log_level level);

/* Pairs of name and value (strings), closed by NULL. A pair whose value is NULL is left out. A NULL log discards.
 *
 *   log_write(log, LOG_INFO, "batch committed", "topic", topic, "messages", LOG_N(count), NULL);  */
void log_write(struct log *log, enum log_level level, const char *event, ...) __attribute__((sentinel));

/* The same with an error's kind, code and message as fields kind, code, error. */
void log_error(struct log *log, enum log_level level, const char *event, const struct error *error, ...)
    __attribute__((sentinel));

/* A number as a value: its text lives until the end of the enclosing block. */
#define LOG_N(number) log_number((char[LOG_NUMBER_SIZE]){0}, (int64_t)(number))
const char *log_number(char text[static LOG_NUMBER_SIZE], int64_t number);

/* "debug", "info", "warning", "error". */
const char *log_level_name(enum log_level level);

#endif
