/* Metrics; see metrics.h. Counting is lock-free; finding a series and rendering take the registry's lock. */
#include "common/metrics.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const int64_t metric_latency_us[] = {500,    1000,   2000,   5000,    10000,   20000,   50000,           100000,
                                     200000, 500000, 1000000, 2000000, 5000000, 10000000, METRIC_BOUNDS_END};
const int64_t metric_batch_sizes[] = {1, 3, 10, 30, 100, 300, 1000, 3000, 10000, METRIC_BOUNDS_END};

struct metric {
    const struct metric_row *row;
    struct metric *next;
    char *labels;           /* `kind="settlement",outcome="granted"`, or "" */
    _Atomic int64_t value;  /* a histogram's sum */
    size_t bound_count;
    _Atomic uint64_t *counts; /* one per bound, one more above the last */
};

struct family {
    const struct metric_row *row;
    struct metric *first, **end;
    size_t count;
};

struct metrics {
    pthread_mutex_t lock;
    size_t family_count;
    struct family *families;
};

static const char *const type_names[] = {"counter", "gauge", "histogram"};

static size_t label_count(const struct metric_row *row) {
    size_t count = 0;
    while (count < METRIC_LABELS_MAX && row->labels[count] != NULL)
        count++;
    return count;
}

static size_t bound_count(const struct metric_row *row) {
    size_t count = 0;
    while (row->type == METRIC_HISTOGRAM && row->bounds[count] != METRIC_BOUNDS_END)
        count++;
    return count;
}

/* Label values and HELP: backslash and line end are escaped, quotes in values too; the rest is UTF-8 of ours. */
static void append_escaped(struct buf *out, const char *text, bool is_value) {
    for (; *text != '\0'; text++) {
        if (*text == '\n') {
            buf_append_text(out, "\\n");
            continue;
        }
        if (*text == '\\' || (*text == '"' && is_value))
            buf_append_byte(out, '\\');
        buf_append_byte(out, *text);
    }
}

static void append_labels(struct buf *out, const struct metric_row *row, const char *const *values) {
    for (size_t i = 0; i < label_count(row); i++) {
        buf_appendf(out, "%s%s=\"", i > 0 ? "," : "", row->labels[i]);
        append_escaped(out, values[i], true);
        buf_append_byte(out, '"');
    }
}

static struct metric *add_series(struct family *family, const char *labels) {
    struct metric *metric = memory_alloc(sizeof *metric);
    metric->row = family->row;
    metric->labels = memory_copy_text(labels);
    metric->bound_count = bound_count(family->row);
    metric->counts = memory_alloc_array(metric->bound_count + 1, sizeof *metric->counts);
    *family->end = metric;
    family->end = &metric->next;
    family->count++;
    return metric;
}

static struct metric *find_series(const struct family *family, const char *labels) {
    struct metric *metric = family->first;
    while (metric != NULL && strcmp(metric->labels, labels) != 0)
        metric = metric->next;
    return metric;
}

struct metrics *metrics_new(const struct metric_row *rows, size_t row_count) {
    struct metrics *metrics = memory_alloc(sizeof *metrics);
    pthread_mutex_init(&metrics->lock, NULL);
    metrics->families = memory_alloc_array(row_count, sizeof *metrics->families);
    metrics->family_count = row_count;
    for (size_t i = 0; i < row_count; i++) {
        struct family *family = &metrics->families[i];
        family->row = &rows[i];
        family->end = &family->first;
        if (label_count(&rows[i]) == 0)
            add_series(family, "");
    }
    return metrics;
}

static void free_family(struct family *family) {
    for (struct metric *metric = family->first, *next; metric != NULL; metric = next) {
        next = metric->next;
        free(metric->labels);
        free(metric->counts);
        free(metric);
    }
}

void metrics_free(struct metrics *metrics) {
    if (metrics == NULL)
        return;
    for (size_t i = 0; i < metrics->family_count; i++)
        free_family(&metrics->families[i]);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics->families);
    free(metrics);
}

static struct metric *overflow_series(struct family *family) {
    static const char *const others[METRIC_LABELS_MAX] = {"other", "other", "other", "other"};
    struct buf labels = BUF_INIT;
    append_labels(&labels, family->row, others);
    struct metric *metric = find_series(family, buf_text(&labels));
    if (metric == NULL)
        metric = add_series(family, buf_text(&labels));
    buf_release(&labels);
    return metric;
}

struct metric *metrics_get(struct metrics *metrics, size_t row, const char *const *values) {
    assert(row < metrics->family_count);
    struct family *family = &metrics->families[row];
    struct buf labels = BUF_INIT;
    append_labels(&labels, family->row, values);
    pthread_mutex_lock(&metrics->lock);
    struct metric *metric = find_series(family, buf_text(&labels));
    if (metric == NULL && family->count < METRIC_SERIES_MAX)
        metric = add_series(family, buf_text(&labels));
    else if (metric == NULL)
        metric = overflow_series(family);
    pthread_mutex_unlock(&metrics->lock);
    buf_release(&labels);
    return metric;
}

void metric_add(struct metric *metric, int64_t amount) {
    assert(metric->row->type != METRIC_HISTOGRAM && (amount >= 0 || metric->row->type == METRIC_GAUGE));
    atomic_fetch_add_explicit(&metric->value, amount, memory_order_relaxed);
}

void metric_set(struct metric *metric, int64_t value) {
    assert(metric->row->type != METRIC_HISTOGRAM);
    atomic_store_explicit(&metric->value, value, memory_order_relaxed);
}

void metric_observe(struct metric *metric, int64_t value) {
    assert(metric->row->type == METRIC_HISTOGRAM);
    size_t at = 0;
    while (at < metric->bound_count && value > metric->row->bounds[at])
        at++;
    atomic_fetch_add_explicit(&metric->counts[at], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metric->value, value, memory_order_relaxed);
}

int64_t metric_value(const struct metric *metric) {
    return atomic_load_explicit(&metric->value, memory_order_relaxed);
}

/* value / per_unit as an exact decimal without trailing zeros: no binary fraction ever shows. */
static void append_units(struct buf *out, int64_t value, int64_t per_unit) {
    if (per_unit <= 1) {
        buf_append_number(out, value);
        return;
    }
    uint64_t whole = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint64_t rest = whole % (uint64_t)per_unit;
    buf_appendf(out, "%s%llu", value < 0 ? "-" : "", (unsigned long long)(whole / (uint64_t)per_unit));
    if (rest > 0)
        buf_append_byte(out, '.');
    for (uint64_t scale = (uint64_t)per_unit / 10; rest > 0; scale /= 10) {
        /* cppcheck-suppress zerodivcond ; what is left is below the unit, so it is 0 once scale was 1 */
        buf_append_byte(out, (char)('0' + rest / scale));
        rest %= scale;
    }
}

/* "name_suffix{labels,le="…"} " */
static void append_name(struct buf *out, const struct metric *metric, const char *suffix) {
    buf_appendf(out, "%s%s", metric->row->name, suffix);
    if (*metric->labels != '\0')
        buf_appendf(out, "{%s}", metric->labels);
    buf_append_byte(out, ' ');
}

static void append_bucket(struct buf *out, const struct metric *metric, size_t bound, uint64_t count) {
    buf_appendf(out, "%s_bucket{%s%sle=\"", metric->row->name, metric->labels, *metric->labels != '\0' ? "," : "");
    if (bound < metric->bound_count)
        append_units(out, metric->row->bounds[bound], metric->row->per_unit);
    else
        buf_append_text(out, "+Inf");
    buf_appendf(out, "\"} %llu\n", (unsigned long long)count);
}

/* Each count is read once, so that +Inf and _count agree even while others observe. */
static void render_histogram(const struct metric *metric, struct buf *out) {
    uint64_t total = 0;
    for (size_t i = 0; i <= metric->bound_count; i++) {
        total += atomic_load_explicit(&metric->counts[i], memory_order_relaxed);
        append_bucket(out, metric, i, total);
    }
    append_name(out, metric, "_sum");
    append_units(out, metric_value(metric), metric->row->per_unit);
    buf_append_byte(out, '\n');
    append_name(out, metric, "_count");
    buf_appendf(out, "%llu\n", (unsigned long long)total);
}

static void render_family(const struct family *family, struct buf *out) {
    buf_appendf(out, "# HELP %s ", family->row->name);
    append_escaped(out, family->row->help, false);
    buf_appendf(out, "\n# TYPE %s %s\n", family->row->name, type_names[family->row->type]);
    for (const struct metric *metric = family->first; metric != NULL; metric = metric->next) {
        if (family->row->type == METRIC_HISTOGRAM) {
            render_histogram(metric, out);
            continue;
        }
        append_name(out, metric, "");
        append_units(out, metric_value(metric), family->row->per_unit);
        buf_append_byte(out, '\n');
    }
}

void metrics_render(struct metrics *metrics, struct buf *out) {
    pthread_mutex_lock(&metrics->lock);
    for (size_t i = 0; i < metrics->family_count; i++)
        render_family(&metrics->families[i], out);
    pthread_mutex_unlock(&metrics->lock);
}
