/* Clocks; see clock.h. Runs in any thread. */
#include "common/clock.h"

#include <time.h>

enum { US_PER_SECOND = 1000000, SECONDS_PER_DAY = 86400 };

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

static char *put_digits(char *to, int64_t number, int count) {
    for (int i = count - 1; i >= 0; i--) {
        to[i] = (char)('0' + number % 10);
        number /= 10;
    }
    return to + count;
}

/* By hand, because every record and log line has several times in it, and gmtime and printf cost half a microsecond
 * each. Days are counted from 0000-03-01, so that the leap day is a year's last and months have a regular length. */
static char *put_date(char *to, int64_t days_since_1970) {
    int64_t days = days_since_1970 + 719468; /* ≥ 306: clock_format starts with the year 1 */
    int64_t era = days / 146097;             /* of 400 years */
    int64_t day_of_era = days % 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153; /* 0 is March */
    int64_t day = day_of_year - (153 * month + 2) / 5 + 1;
    int64_t year = era * 400 + year_of_era + (month >= 10 ? 1 : 0);
    to = put_digits(to, year, 4);
    *to++ = '-';
    to = put_digits(to, month < 10 ? month + 3 : month - 9, 2);
    *to++ = '-';
    return put_digits(to, day, 2);
}

const char *clock_format(int64_t wall_us, char ret_text[static CLOCK_TEXT_SIZE]) {
    const int64_t first_us = INT64_C(-62135596800) * US_PER_SECOND;    /* 0001-01-01T00:00:00Z */
    const int64_t last_us = INT64_C(253402300800) * US_PER_SECOND - 1; /* 9999-12-31T23:59:59.999999Z */
    if (wall_us < first_us)
        wall_us = first_us;
    if (wall_us > last_us)
        wall_us = last_us;
    int64_t micro = wall_us % US_PER_SECOND;
    int64_t seconds = wall_us / US_PER_SECOND;
    if (micro < 0) {
        micro += US_PER_SECOND;
        seconds--;
    }
    int64_t days = seconds / SECONDS_PER_DAY;
    int64_t second = seconds % SECONDS_PER_DAY;
    if (second < 0) {
        second += SECONDS_PER_DAY;
        days--;
    }
    char *to = put_date(ret_text, days);
    *to++ = 'T';
    to = put_digits(to, second / 3600, 2);
    *to++ = ':';
    to = put_digits(to, second / 60 % 60, 2);
    *to++ = ':';
    to = put_digits(to, second % 60, 2);
    *to++ = '.';
    to = put_digits(to, micro, 6);
    *to++ = 'Z';
    *to = '\0';
    return ret_text;
}
