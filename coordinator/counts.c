/* The coordinator's metrics; see counts.h. */
#include "coordinator/counts.h"

#include "common/buf.h"
#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

enum { US = 1000000, MS = 1000 };

const struct metric_row counts_rows[COUNT_ROWS] = {
    [COUNT_MESSAGES] = {.name = "lease_messages_total", .type = METRIC_COUNTER, .labels = {"topic"},
                        .help = "Messages read from the input topics"},
    [COUNT_BYTES] = {.name = "lease_message_bytes_total", .type = METRIC_COUNTER, .labels = {"topic"},
                     .help = "Bytes of their keys and values"},
    [COUNT_ANSWERS] = {.name = "lease_answers_total", .type = METRIC_COUNTER, .labels = {"kind", "outcome"},
                       .help = "Answers committed, by what was decided"},
    [COUNT_DEAD_LETTERS] = {.name = "lease_dead_letters_total", .type = METRIC_COUNTER, .labels = {"reason"},
                            .help = "Messages that could not be identified or applied, by reason"},
    [COUNT_BATCH_MESSAGES] = {.name = "lease_batch_messages", .type = METRIC_HISTOGRAM, .bounds = metric_batch_sizes,
                              .help = "Messages of one transaction"},
    [COUNT_BATCH_SECONDS] = {.name = "lease_batch_seconds", .type = METRIC_HISTOGRAM, .labels = {"lane"}, .per_unit = US,
                             .bounds = metric_latency_us, .help = "Time of one transaction, from its begin to its commit"},
    [COUNT_QUEUED] = {.name = "lease_queued_messages", .type = METRIC_GAUGE, .labels = {"lane"},
                      .help = "Messages read and not yet in a transaction"},
    [COUNT_RETRIES] = {.name = "lease_retries_total", .type = METRIC_COUNTER, .labels = {"what"},
                       .help = "Tries that failed for a passing reason"},
    [COUNT_REFUSED] = {.name = "lease_claims_refused_total", .type = METRIC_COUNTER,
                       .help = "Batches of a partition that the database refused: it was no longer ours"},
    [COUNT_ASSIGNED] = {.name = "lease_partitions_assigned", .type = METRIC_GAUGE, .help = "Input partitions assigned"},
    [COUNT_HALTED] = {.name = "lease_partitions_halted", .type = METRIC_GAUGE,
                      .help = "Assigned partitions that must not be read; the log says why"},
    [COUNT_LAPSES] = {.name = "lease_reaper_lapses_total", .type = METRIC_COUNTER, .help = "Leases that the reaper turned over"},
    [COUNT_LATE_GRANTS] = {.name = "lease_reaper_grants_total", .type = METRIC_COUNTER,
                           .help = "Items that the reaper's transactions gave to waiting demand"},
    [COUNT_GUARD_FINDINGS] = {.name = "lease_guard_findings", .type = METRIC_GAUGE, .labels = {"stops_starts"},
                              .help = "What is wrong with guarded tables, or not guarded and should be; the log says what"},
    [COUNT_REAPER_LATE] = {.name = "lease_reaper_late_seconds", .type = METRIC_HISTOGRAM, .per_unit = US,
                           .bounds = metric_latency_us, .help = "From a lapse to its being turned over"},
    [COUNT_DATABASE_AWAY] = {.name = "lease_database_away_seconds", .type = METRIC_GAUGE, .per_unit = MS,
                             .help = "For how long PostgreSQL has not answered this process; 0 while it does"},
    [COUNT_RELAY_ROLE] = {.name = "lease_relay_has_role", .type = METRIC_GAUGE, .help = "1 while this process is the relay"},
    [COUNT_RELAY_EPOCH] = {.name = "lease_relay_epoch", .type = METRIC_GAUGE, .help = "Its epoch"},
    [COUNT_RELAY_PUBLISHED] = {.name = "lease_relay_published_number", .type = METRIC_GAUGE,
                               .help = "Last journal number known to be on the topics"},
    [COUNT_RELAY_RECORDS] = {.name = "lease_relay_records_total", .type = METRIC_COUNTER, .help = "Records acknowledged by the brokers"},
    [COUNT_RELAY_BYTES] = {.name = "lease_relay_bytes_total", .type = METRIC_COUNTER, .help = "Their bytes"},
    [COUNT_RELAY_TAKES] = {.name = "lease_relay_takes_total", .type = METRIC_COUNTER, .help = "How often this process became the relay"},
    [COUNT_RELAY_SKIPPED] = {.name = "lease_relay_skipped_total", .type = METRIC_COUNTER,
                             .help = "Records found already published when it did"},
    [COUNT_RELAY_RESTATED] = {.name = "lease_relay_restated_total", .type = METRIC_COUNTER, .help = "Keys repaired in lease.state"},
    [COUNT_RELAY_STEP_DOWNS] = {.name = "lease_relay_step_downs_total", .type = METRIC_COUNTER,
                                .help = "How often it had to give the role up"},
    [COUNT_RELAY_IN_FLIGHT] = {.name = "lease_relay_in_flight", .type = METRIC_GAUGE, .help = "Records sent and not acknowledged"},
    [COUNT_RELAY_BLOCKED] = {.name = "lease_relay_blocked_seconds", .type = METRIC_GAUGE, .per_unit = MS,
                             .help = "For how long publishing has stood still with something to publish"},
    [COUNT_RELAY_AGE] = {.name = "lease_relay_oldest_seconds", .type = METRIC_GAUGE, .per_unit = US,
                         .help = "Age of the oldest decision that is not acknowledged yet"},
};

struct counts {
    struct metrics *metrics;
    const struct event_kind *kinds;
    size_t kind_count;
};

static const char *kind_name(const struct counts *counts, size_t kind) {
    return kind < counts->kind_count ? counts->kinds[kind].name : "other";
}

struct counts *counts_new(const struct event_kind *kinds, size_t kind_count) {
    struct counts *counts = memory_alloc(sizeof *counts);
    counts->metrics = metrics_new(counts_rows, COUNT_ROWS);
    counts->kinds = kinds;
    counts->kind_count = kind_count;
    return counts;
}

void counts_free(struct counts *counts) {
    if (counts == NULL)
        return;
    metrics_free(counts->metrics);
    free(counts);
}

struct metrics *counts_metrics(struct counts *counts) {
    return counts->metrics;
}

void counts_add(struct counts *counts, enum counts_row row, int64_t amount) {
    metric_add(metrics_get(counts->metrics, row, NULL), amount);
}

void counts_set(struct counts *counts, enum counts_row row, int64_t value) {
    metric_set(metrics_get(counts->metrics, row, NULL), value);
}

void counts_observe(struct counts *counts, enum counts_row row, int64_t value) {
    metric_observe(metrics_get(counts->metrics, row, NULL), value);
}

void counts_add_of(struct counts *counts, enum counts_row row, const char *label, int64_t amount) {
    metric_add(metrics_get(counts->metrics, row, (const char *const[]){label}), amount);
}

void counts_set_of(struct counts *counts, enum counts_row row, const char *label, int64_t value) {
    metric_set(metrics_get(counts->metrics, row, (const char *const[]){label}), value);
}

static size_t kind_index(const struct counts *counts, const char *kind) {
    size_t at = 0;
    while (at < counts->kind_count && (kind == NULL || strcmp(counts->kinds[at].name, kind) != 0))
        at++;
    return at;
}

/* Tallied first: one addition per series and transaction, not per message. */
void counts_commit(struct counts *counts, const char *lane, const struct lane_commit *commit) {
    size_t cells = (counts->kind_count + 1) * LEASE_OUTCOME_COUNT, answered = 0;
    int64_t *tally = memory_alloc_array(cells, sizeof *tally);
    for (size_t i = commit->from; i < commit->upto; i++) {
        const struct batch_entry *entry = &commit->batch->entries[i];
        if (entry->is_dropped)
            continue;
        int outcome = commit->answer->outcomes[answered++];
        if (outcome != STORE_DEAD_LETTER)
            tally[kind_index(counts, entry->command.kind) * LEASE_OUTCOME_COUNT + (size_t)outcome]++;
        else if (entry->command.reason != EVENT_REASON_NONE)
            counts_add_of(counts, COUNT_DEAD_LETTERS, event_reason_name(entry->command.reason), 1);
    }
    for (size_t cell = 0; cell < cells; cell++)
        if (tally[cell] > 0)
            metric_add(metrics_get(counts->metrics, COUNT_ANSWERS,
                                   (const char *const[]){kind_name(counts, cell / LEASE_OUTCOME_COUNT),
                                                         lease_outcome_name((enum lease_outcome)(cell % LEASE_OUTCOME_COUNT))}),
                       tally[cell]);
    free(tally);
    counts_observe(counts, COUNT_BATCH_MESSAGES, (int64_t)answered);
    metric_observe(metrics_get(counts->metrics, COUNT_BATCH_SECONDS, (const char *const[]){lane}), commit->took_us);
}

void counts_relay(struct counts *counts, const struct relay_status *status) {
    int64_t oldest_us = status->oldest_unacknowledged_us;
    counts_set(counts, COUNT_RELAY_ROLE, status->has_role);
    counts_set(counts, COUNT_RELAY_EPOCH, status->epoch);
    counts_set(counts, COUNT_RELAY_PUBLISHED, status->published);
    counts_set(counts, COUNT_RELAY_RECORDS, status->records_total);
    counts_set(counts, COUNT_RELAY_BYTES, status->bytes_total);
    counts_set(counts, COUNT_RELAY_TAKES, status->takes_total);
    counts_set(counts, COUNT_RELAY_SKIPPED, status->skipped_total);
    counts_set(counts, COUNT_RELAY_RESTATED, status->restated_total);
    counts_set(counts, COUNT_RELAY_STEP_DOWNS, status->step_downs_total);
    counts_set(counts, COUNT_RELAY_IN_FLIGHT, status->in_flight);
    counts_set(counts, COUNT_RELAY_BLOCKED, status->blocked_ms);
    counts_set(counts, COUNT_RELAY_AGE, oldest_us > 0 ? clock_wall_us() - oldest_us : 0);
}
