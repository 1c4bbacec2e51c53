/* workload: the commands that the benchmarks send: events of about 260 bytes as a producer would make them, in binary mode.
 *
 * A workload first needs leases that are held (workload_fill grants them through lease.apply), so that renewals and
 * finishes carry true fences and tokens. The same seed makes the same commands. */
#ifndef LEASE_BENCH_WORKLOAD_H
#define LEASE_BENCH_WORKLOAD_H

#include "common/db.h"
#include "common/event.h"
#include "common/message.h"

#include <stddef.h>
#include <stdint.h>

/* A lease that is held, with what its holder needs. */
struct grant {
    char subject[48];
    char holder[32];
    char claim_id[37];
    char token[LEASE_TOKEN_TEXT_SIZE];
    int64_t fence;
};

enum workload_kind {
    WORKLOAD_MIXED,    /* 4 renew : 2 finish : 3 start : 1 cleanup.request, each of another lease */
    WORKLOAD_HOT,      /* renewals of one lease */
    WORKLOAD_STARTS,   /* starts of new leases */
};

/* One event: storage is its own. */
struct event {
    char topic[24]; /* without prefix */
    char subject[48];
    char id[32];
    char type[32];
    char value[512];
    size_t value_size;
    struct message_header headers[6];
};

/* How many grants a workload of `count` events needs. */
size_t workload_grants(enum workload_kind kind, size_t count);

/* Makes `count` new leases of kind settlement, held for an hour, and returns them (free() them). Ends the process on error. */
struct grant *workload_fill(struct db *db, const struct token_keys *keys, const char *run, size_t count);

/* The i-th event. `run` keeps ids and subjects of one run apart from another's. */
void workload_event(enum workload_kind kind, const char *run, size_t i, const struct grant *grants, struct event *ret_event);

/* The event as a record at this place. Borrows the event. */
struct message workload_message(const struct event *event, const char *topic, int32_t partition, int64_t offset);

#endif
