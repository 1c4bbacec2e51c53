/* Counters, gauges and histograms, and their text exposition for Prometheus (format 0.0.4).
 *
 * A table of rows says name, type, HELP, label names and unit; the registry is made from it, and the table of metrics in
 * the documentation is printed from it. Values are 64-bit integers in the row's own small unit (µs, bytes, pieces), so
 * that counting is one atomic addition; the exposition divides by `per_unit` (1000000 turns µs into seconds, exactly).
 *
 * A series (one set of label values) is made at its first use and lives as long as the registry: look it up once and
 * keep the pointer. All functions are thread safe. */
#ifndef LEASE_METRICS_H
#define LEASE_METRICS_H

#include "common/buf.h"

#include <stddef.h>
#include <stdint.h>

enum {
    METRIC_LABELS_MAX = 4,
    METRIC_SERIES_MAX = 500, /* of one row; what comes later is counted together, under the value "other" */
};

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_row {
    const char *name; /* counters end in _total, seconds in _seconds */
    const char *help;
    enum metric_type type;
    const char *labels[METRIC_LABELS_MAX]; /* names, from the front; NULL behind the last */
    int64_t per_unit;                      /* 1 (or 0), 1000, 1000000: small units in one exported unit */
    const int64_t *bounds;                 /* histograms: upper bounds in small units, rising, then METRIC_BOUNDS_END */
};

#define METRIC_BOUNDS_END INT64_MAX

/* 0.5 ms … 10 s in µs: from a local commit to a stalled one. */
extern const int64_t metric_latency_us[];
/* 1 … 10,000 pieces: batches. */
extern const int64_t metric_batch_sizes[];

struct metrics;
struct metric;

/* rows are borrowed for good. Series of rows without labels exist at once, so that they are seen as 0. */
struct metrics *metrics_new(const struct metric_row *rows, size_t row_count);
void metrics_free(struct metrics *metrics); /* NULL allowed */

/* The series of row number `row` with these label values, one per label of the row (NULL where it has none):
 *     metrics_get(metrics, METRIC_ANSWERS, (const char *const[]){"settlement", "granted"})  */
struct metric *metrics_get(struct metrics *metrics, size_t row, const char *const *values);

void metric_add(struct metric *metric, int64_t amount);    /* counters: amount ≥ 0 */
void metric_set(struct metric *metric, int64_t value);     /* gauges, and counters that somebody else counts */
void metric_observe(struct metric *metric, int64_t value); /* histograms */
int64_t metric_value(const struct metric *metric);         /* counter, gauge; histogram: the sum */

/* Appends every row with its HELP, TYPE and series. */
void metrics_render(struct metrics *metrics, struct buf *out);

#endif
