/* How long to wait before the next try.
 *
 * The schedule doubles from `base_ms` up to `maximum_ms`. For tries of our own (reconnecting, repeating a transaction) half
 * of each wait is random, so that coordinators which failed together do not come back together. backoff_of_attempt is
 * the same schedule without chance: the one lease.apply uses for retries of items. One thread per struct. */
#ifndef LEASE_BACKOFF_H
#define LEASE_BACKOFF_H

#include <stdint.h>

struct backoff {
    int64_t base_ms;
    int64_t maximum_ms;
    int attempt;     /* failures in a row so far */
    uint64_t random; /* state of the generator */
};

/* 1 ≤ base_ms ≤ maximum_ms. The seed makes a run repeatable; any value will do. */
void backoff_init(struct backoff *backoff, int64_t base_ms, int64_t maximum_ms, uint64_t seed);

/* Counts one more failure and says how long to wait: between half and the whole of the schedule's value. */
int64_t backoff_next_ms(struct backoff *backoff);

/* It worked: the next failure waits shortly again. */
void backoff_reset(struct backoff *backoff);

/* least(maximum_ms, base_ms × 2^(attempt − 1)); attempt counts from 1, less counts as 1. */
int64_t backoff_of_attempt(int64_t base_ms, int64_t maximum_ms, int64_t attempt);

#endif
