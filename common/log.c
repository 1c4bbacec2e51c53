/* Structured log lines; see log.h. Runs in any thread: a line is built in the caller's thread and written whole. */
#include "common/log.h"

#include "common/buf.h"
#include "common/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long a full, non-blocking stderr may hold a thread up before its line is given up. */
enum { WRITE_WAIT_MS = 100 };

const char *const log_level_names[] = {"debug", "info", "warning", "error", NULL};
const char *const log_format_names[] = {"logfmt", "json", NULL};

void log_init(struct log *log, int file, enum log_format format, enum log_level level) {
    *log = (struct log){.format = format, .level = level, .file = file};
    pthread_mutex_init(&log->writing, NULL);
}

void log_release(struct log *log) {
    if (log != NULL)
        pthread_mutex_destroy(&log->writing);
}

bool log_is_enabled(const struct log *log, enum log_level level) {
    return log != NULL && level >= log->level;
}

static bool is_bare(const char *value, size_t size) {
    if (size == 0)
        return false;
    for (size_t i = 0; i < size; i++)
        if (value[i] <= ' ' || value[i] > '~' || strchr("\"=\\", value[i]) != NULL)
            return false;
    return true;
}

static size_t cut_size(const char *value, size_t size) {
    if (size <= LOG_VALUE_MAX)
        return size;
    size_t cut = LOG_VALUE_MAX;
    while (cut > LOG_VALUE_MAX - 4 && ((unsigned char)value[cut] & 0xC0) == 0x80)
        cut--;
    return cut;
}

static void append_value(struct buf *line, enum log_format format, const char *value) {
    size_t size = strlen(value);
    size_t kept = cut_size(value, size);
    if (format == LOG_FORMAT_LOGFMT && kept == size && is_bare(value, size)) {
        buf_append(line, value, size);
        return;
    }
    buf_json_string(line, value, kept);
    if (kept == size)
        return;
    line->size--; /* the closing quote comes again behind the ellipsis */
    buf_append_text(line, "…\"");
}

static void append_pair(struct buf *line, enum log_format format, const char *name, const char *value) {
    if (value == NULL)
        return;
    bool is_json = format == LOG_FORMAT_JSON;
    if (line->size > 0)
        buf_append_byte(line, is_json ? ',' : ' ');
    buf_appendf(line, is_json ? "\"%s\":" : "%s=", name);
    append_value(line, format, value);
}

static void append_pairs(struct buf *line, enum log_format format, va_list pairs) {
    for (const char *name; (name = va_arg(pairs, const char *)) != NULL;)
        append_pair(line, format, name, va_arg(pairs, const char *));
}

static void append_head(struct buf *line, enum log_format format, enum log_level level, const char *event) {
    char now[CLOCK_TEXT_SIZE];
    append_pair(line, format, "time", clock_format(clock_wall_us(), now));
    append_pair(line, format, "level", log_level_name(level));
    append_pair(line, format, "event", event);
}

static bool write_all(int file, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t written = write(file, bytes, size);
        if (written >= 0) {
            bytes += written;
            size -= (size_t)written;
            continue;
        }
        if (errno == EINTR)
            continue;
        struct pollfd ready = {.fd = file, .events = POLLOUT};
        if (errno != EAGAIN || poll(&ready, 1, WRITE_WAIT_MS) <= 0)
            return false;
    }
    return true;
}

static void write_line(struct log *log, const struct buf *fields) {
    struct buf line = BUF_INIT;
    const char *open = log->format == LOG_FORMAT_JSON ? "{" : "";
    const char *close = log->format == LOG_FORMAT_JSON ? "}\n" : "\n";
    buf_append_text(&line, open);
    buf_append(&line, fields->data, fields->size);
    buf_append_text(&line, close);
    pthread_mutex_lock(&log->writing);
    bool is_written = write_all(log->file, line.data, line.size);
    pthread_mutex_unlock(&log->writing);
    if (!is_written)
        atomic_fetch_add(&log->lost, 1);
    buf_release(&line);
}

void log_write(struct log *log, enum log_level level, const char *event, ...) {
    if (!log_is_enabled(log, level))
        return;
    struct buf fields = BUF_INIT;
    append_head(&fields, log->format, level, event);
    va_list pairs;
    va_start(pairs, event);
    append_pairs(&fields, log->format, pairs);
    va_end(pairs);
    write_line(log, &fields);
    buf_release(&fields);
}

void log_error(struct log *log, enum log_level level, const char *event, const struct error *error, ...) {
    if (!log_is_enabled(log, level))
        return;
    struct buf fields = BUF_INIT;
    append_head(&fields, log->format, level, event);
    append_pair(&fields, log->format, "kind", error_kind_name(error->kind));
    append_pair(&fields, log->format, "code", error->code);
    append_pair(&fields, log->format, "error", error->message);
    va_list pairs;
    va_start(pairs, error);
    append_pairs(&fields, log->format, pairs);
    va_end(pairs);
    write_line(log, &fields);
    buf_release(&fields);
}

const char *log_number(char text[static LOG_NUMBER_SIZE], int64_t number) {
    snprintf(text, LOG_NUMBER_SIZE, "%lld", (long long)number);
    return text;
}

const char *log_level_name(enum log_level level) {
    return log_level_names[level];
}
