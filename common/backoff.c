/* Waits between tries; see backoff.h. One thread per struct. */
#include "common/backoff.h"

#include <assert.h>
#include <limits.h>

void backoff_init(struct backoff *backoff, int64_t base_ms, int64_t maximum_ms, uint64_t seed) {
    assert(base_ms >= 1 && base_ms <= maximum_ms);
    *backoff = (struct backoff){.base_ms = base_ms, .maximum_ms = maximum_ms, .random = seed};
}

/* SplitMix64: every seed is a good one, and 64 bits of state are plenty for jitter. */
static uint64_t next_random(uint64_t *state) {
    uint64_t mixed = *state += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

int64_t backoff_of_attempt(int64_t base_ms, int64_t maximum_ms, int64_t attempt) {
    int64_t wait_ms = base_ms;
    for (; attempt > 1 && wait_ms < maximum_ms; attempt--)
        wait_ms = wait_ms > maximum_ms / 2 ? maximum_ms : wait_ms * 2;
    return wait_ms < maximum_ms ? wait_ms : maximum_ms;
}

int64_t backoff_next_ms(struct backoff *backoff) {
    if (backoff->attempt < INT_MAX)
        backoff->attempt++;
    int64_t whole_ms = backoff_of_attempt(backoff->base_ms, backoff->maximum_ms, backoff->attempt);
    int64_t half_ms = whole_ms / 2;
    uint64_t spread = (uint64_t)(whole_ms - half_ms) + 1;
    return half_ms + (int64_t)(next_random(&backoff->random) % spread);
}

void backoff_reset(struct backoff *backoff) {
    backoff->attempt = 0;
}
