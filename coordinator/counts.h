/* counts: the coordinator's metrics, one row each, and how they are counted. Any thread. */
#ifndef LEASE_COUNTS_H
#define LEASE_COUNTS_H

#include "common/event.h"
#include "common/metrics.h"
#include "coordinator/lane.h"
#include "coordinator/relay.h"

#include <stddef.h>
#include <stdint.h>

enum counts_row {
    COUNT_MESSAGES,
    COUNT_BYTES,
    COUNT_ANSWERS,
    COUNT_DEAD_LETTERS,
    COUNT_BATCH_MESSAGES,
    COUNT_BATCH_SECONDS,
    COUNT_QUEUED,
    COUNT_RETRIES,
    COUNT_REFUSED,
    COUNT_ASSIGNED,
    COUNT_HALTED,
    COUNT_LAPSES,
    COUNT_LATE_GRANTS,
    COUNT_GUARD_FINDINGS,
    COUNT_REAPER_LATE,
    COUNT_DATABASE_AWAY,
    COUNT_RELAY_ROLE,
    COUNT_RELAY_EPOCH,
    COUNT_RELAY_PUBLISHED,
    COUNT_RELAY_RECORDS,
    COUNT_RELAY_BYTES,
    COUNT_RELAY_TAKES,
    COUNT_RELAY_SKIPPED,
    COUNT_RELAY_RESTATED,
    COUNT_RELAY_STEP_DOWNS,
    COUNT_RELAY_IN_FLIGHT,
    COUNT_RELAY_BLOCKED,
    COUNT_RELAY_AGE,
    COUNT_ROWS
};

extern const struct metric_row counts_rows[COUNT_ROWS];

struct counts;

/* Kinds are borrowed. They are the values of the label `kind`; others count as "other". */
struct counts *counts_new(const struct event_kind *kinds, size_t kind_count);
void counts_free(struct counts *counts); /* NULL allowed */
struct metrics *counts_metrics(struct counts *counts);

void counts_add(struct counts *counts, enum counts_row row, int64_t amount);                     /* rows without labels */
void counts_set(struct counts *counts, enum counts_row row, int64_t value);                      /* the same */
void counts_observe(struct counts *counts, enum counts_row row, int64_t value);                  /* the same */
void counts_add_of(struct counts *counts, enum counts_row row, const char *label, int64_t amount); /* one label */
void counts_set_of(struct counts *counts, enum counts_row row, const char *label, int64_t value);  /* one label */

void counts_commit(struct counts *counts, const char *lane, const struct lane_commit *commit);
void counts_relay(struct counts *counts, const struct relay_status *status);

#endif
