/* Clocks; see clock.h. Runs in any thread. */
#include "common/clock.h"

#include <stdio.h>
#include <time.h>

enum { US_PER_SECOND = 1000000 };

static int64_t read_clock(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * US_PER_SECOND + now.tv_nsec / 1000;
}

int64_t clock_monotonic_us(void) {
    return read_clock(CLOCK_MONOTONIC);
}

int64_t clock_wall_us(void) {
    return read_clock(CLOCK_REALTIME);
}

static int64_t system_monotonic(void *context) {
    (void)context;
    return clock_monotonic_us();
}

static int64_t system_wall(void *context) {
    (void)context;
    return clock_wall_us();
}

struct clock clock_system(void) {
    return (struct clock){.monotonic_us = system_monotonic, .wall_us = system_wall};
}

int64_t clock_now_us(const struct clock *clock) {
    return clock->monotonic_us(clock->context);
}

int64_t clock_now_ms(const struct clock *clock) {
    return clock_now_us(clock) / 1000;
}

static int64_t manual_monotonic(void *context) {
    struct clock_manual *manual = context;
    return atomic_load(&manual->monotonic_us);
}

static int64_t manual_wall(void *context) {
    struct clock_manual *manual = context;
    return atomic_load(&manual->wall_us);
}

struct clock clock_of_manual(struct clock_manual *manual) {
    return (struct clock){.monotonic_us = manual_monotonic, .wall_us = manual_wall, .context = manual};
}

void clock_manual_advance_ms(struct clock_manual *manual, int64_t ms) {
    atomic_fetch_add(&manual->monotonic_us, ms * 1000);
    atomic_fetch_add(&manual->wall_us, ms * 1000);
}

const char *clock_format(int64_t wall_us, char ret_text[static CLOCK_TEXT_SIZE]) {
    const int64_t first_us = INT64_C(-62135596800) * US_PER_SECOND;    /* 0001-01-01T00:00:00Z */
    const int64_t last_us = INT64_C(253402300800) * US_PER_SECOND - 1; /* 9999-12-31T23:59:59.999999Z */
    if (wall_us < first_us)
        wall_us = first_us;
    if (wall_us > last_us)
        wall_us = last_us;
    int64_t micro = wall_us % US_PER_SECOND;
    time_t seconds = (time_t)(wall_us / US_PER_SECOND);
    if (micro < 0) {
        micro += US_PER_SECOND;
        seconds--;
    }
    struct tm utc;
    gmtime_r(&seconds, &utc);
    snprintf(ret_text, CLOCK_TEXT_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ", (unsigned)(utc.tm_year + 1900) % 10000,
             (unsigned)(utc.tm_mon + 1) % 100, (unsigned)utc.tm_mday % 100, (unsigned)utc.tm_hour % 100,
             (unsigned)utc.tm_min % 100, (unsigned)utc.tm_sec % 100, (unsigned)micro % US_PER_SECOND);
    return ret_text;
}
