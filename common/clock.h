/* Time: the two system clocks, and a clock that can be passed in so that tests move it by hand.
 *
 * Monotonic time is for waits, deadlines and ages; it has no epoch. Wall time (µs since 1970, UTC) is only ever shown
 * to people and written into records: no decision about a lease is made on it, PostgreSQL's clock makes those. */
#ifndef LEASE_CLOCK_H
#define LEASE_CLOCK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct clock {
    int64_t (*monotonic_us)(void *context);
    int64_t (*wall_us)(void *context);
    void *context;
};

/* The machine's clocks. */
struct clock clock_system(void);
int64_t clock_monotonic_us(void);
int64_t clock_wall_us(void);

int64_t clock_now_us(const struct clock *clock); /* monotonic */
int64_t clock_now_ms(const struct clock *clock); /* monotonic, rounded down */

/* A clock that stands still until it is moved; `manual` outlives the clock. May be moved by another thread. */
struct clock_manual {
    _Atomic int64_t monotonic_us;
    _Atomic int64_t wall_us;
};
struct clock clock_of_manual(struct clock_manual *manual);
void clock_manual_advance_ms(struct clock_manual *manual, int64_t ms); /* moves both */

/* "2026-01-31T23:59:59.123456Z", RFC 3339 in UTC; years 0001 to 9999, others are clamped. */
enum { CLOCK_TEXT_SIZE = 28 };
const char *clock_format(int64_t wall_us, char ret_text[static CLOCK_TEXT_SIZE]);

#endif
