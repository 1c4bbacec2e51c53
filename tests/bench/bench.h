/* bench: what the parts of lease-bench share. A benchmark that cannot go on says why and ends the process. */
#ifndef LEASE_BENCH_H
#define LEASE_BENCH_H

#include "common/db.h"
#include "common/error.h"
#include "common/kafka_config.h"
#include "common/token.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench {
    const char *brokers, *database, *prefix, *run, *kind;
    size_t count, batch, rounds;
    struct kafka_settings kafka;
    struct token_keys *keys;
};

void require(bool ok, const struct error *error);
struct db *bench_connect(const struct bench *bench);
void bench_execute(struct db *db, const char *sql);
int64_t now_us(void);
int64_t median(int64_t *values, size_t count); /* sorts */
/* The full name of a topic; the caller frees it. */
char *bench_topic(const struct bench *bench, const char *name);

/* Each prints one line of words and figures, which bench.py reads. */
void bench_sql(const struct bench *bench);         /* the workload in batches through store_apply, one connection */
void bench_produce(const struct bench *bench);     /* the workload into the input topics */
void bench_drain(const struct bench *bench);       /* waits for `count` answers; how long from the first to the last */
void bench_per_message(const struct bench *bench); /* one transaction, one result, one offset commit per message */
void bench_latency(const struct bench *bench);     /* a lone command against two hops and a commit, in turn */
void bench_covered(const struct bench *bench);     /* renew and finish of a run over `count` resources against one over 1; start against UPDATE */

#endif
