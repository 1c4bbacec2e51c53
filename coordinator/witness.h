/* witness: what the topics say about how far fences and journal numbers have come. A database that was restored or
 * failed over can be behind its own past; the records that it published then cannot (ARCHITECTURE.md,
 * "Failover and restore").
 *
 * Read on every (re)connection, before the journal is believed. Reads the tail of every output partition, and in lease.state also
 * the marks (~mark/<topic>/<partition>), which compaction keeps. */
#ifndef LEASE_WITNESS_H
#define LEASE_WITNESS_H

#include "common/error.h"
#include "common/kafka_config.h"
#include "common/kafka_reader.h"

#include <stdbool.h>
#include <stdint.h>

struct witness {
    int64_t number, fence, epoch; /* the highest seen; 0 = none */
    bool is_empty;                /* no output partition has ever had a record */
};

/* The highest journal number and fence seen; 0 where nothing stands. *ret_empty: no output partition has ever had a record
 * (their first offsets and ends are 0). False with kind RETRY (brokers away, timeout_ms passed) or FATAL (a topic is
 * missing, code witness_topic_missing; not authorized). */
bool witness_read(const struct kafka_settings *kafka, const char *topic_prefix, const char *group, int timeout_ms,
                  int64_t *ret_number, int64_t *ret_fence, bool *ret_empty, struct error *error) MUST_USE;

/* The same through a reader that is there already; what it was assigned is replaced. */
bool witness_look(struct kafka_reader *reader, const char *topic_prefix, int timeout_ms, struct witness *ret_witness,
                  struct error *error) MUST_USE;

#endif
