/* Times, durations and numbers as text. Input: a time, a duration, a number, and text to be shown, a line each.
 *
 * Holds: what is read as a time is the time that the C library makes of the same digits, and is read again from how we write it; any
 * number of microseconds is written as a time that is read as the same; a duration lies in its bounds and is read again from its
 * milliseconds; a number is printed as it was written; waits stay within their schedule; text for a terminal is harmless. */
#include "fuzz.h"

#include "common/backoff.h"
#include "common/clock.h"
#include "common/event_text.h"
#include "common/rfc3339.h"
#include "coordinator/cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- times ---- */

#define FIRST_US (INT64_C(-62135596800) * 1000000)        /* 0001-01-01T00:00:00Z */
#define LAST_US (INT64_C(253402300800) * 1000000 - 1)     /* 9999-12-31T23:59:59.999999Z */

static void check_written(int64_t us) {
    char text[CLOCK_TEXT_SIZE];
    int64_t read = 0, expected = us < FIRST_US ? FIRST_US : us > LAST_US ? LAST_US : us;
    clock_format(us, text);
    CHECK(strlen(text) == CLOCK_TEXT_SIZE - 1);
    CHECK(rfc3339_parse(text, strlen(text), &read) == RFC3339_OK && read == expected);
}

/* The C library's judgement of a text that was taken. */
static int64_t seconds_of(const char *text) {
    struct tm parts = {0};
    char zone[8] = "";
    int zone_hour = 0, zone_minute = 0;
    CHECK(sscanf(text, "%4d-%2d-%2d%*c%2d:%2d:%2d", &parts.tm_year, &parts.tm_mon, &parts.tm_mday, &parts.tm_hour, &parts.tm_min,
                 &parts.tm_sec) == 6);
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    const char *at = text + 19 + strspn(text + 19, ".0123456789");
    snprintf(zone, sizeof zone, "%s", at);
    if (zone[0] == '+' || zone[0] == '-')
        CHECK(sscanf(zone + 1, "%2d:%2d", &zone_hour, &zone_minute) == 2);
    int64_t offset = zone_hour * 3600 + zone_minute * 60;
    return (int64_t)timegm(&parts) - (zone[0] == '-' ? -offset : offset);
}

static int64_t floor_seconds(int64_t us) {
    return us / 1000000 - (us % 1000000 < 0);
}

static void check_time(const char *text, size_t size) {
    int64_t us = INT64_MIN;
    enum rfc3339_fault fault = rfc3339_parse(text, size, &us);
    enum event_reason reason = event_text_time((struct slice){.data = text, .size = size});
    CHECK(reason == (fault == RFC3339_OK     ? EVENT_REASON_NONE
                     : fault == RFC3339_FORM ? EVENT_WRONG_TYPE
                                             : EVENT_OUT_OF_RANGE));
    CHECK((us == INT64_MIN) == (fault != RFC3339_OK));
    if (fault != RFC3339_OK)
        return;
    char *terminated = memory_copy_bytes(text, size);
    CHECK(strlen(terminated) == size && size >= 20 && size <= 35);
    CHECK(floor_seconds(us) == seconds_of(terminated));
    free(terminated);
    check_written(us);
}

/* ---- durations and numbers ---- */

static void check_duration(const char *text) {
    const int64_t ten_years_ms = INT64_C(3650) * 24 * 3600 * 1000;
    int64_t ms = -1, again = -1;
    if (!text_parse_duration_ms(text, &ms)) {
        CHECK(ms == -1);
        return;
    }
    CHECK(ms >= 0 && ms <= ten_years_ms);
    struct buf shown = BUF_INIT;
    buf_appendf(&shown, "%lldms", (long long)ms);
    CHECK(text_parse_duration_ms(buf_text(&shown), &again) && again == ms);
    buf_release(&shown);
}

static void check_shown_duration(int64_t ms) {
    struct buf shown = BUF_INIT;
    text_format_duration_ms(ms, &shown);
    CHECK(shown.size >= 3 && shown.size <= 40 && shown.data[0] >= '0' && shown.data[0] <= '9');
    buf_reset(&shown);
    text_format_remaining_ms(ms, &shown);
    CHECK(ms >= 0 ? strncmp(buf_text(&shown), "in ", 3) == 0 : strcmp(buf_text(&shown) + shown.size - 4, " ago") == 0);
    buf_release(&shown);
}

static void check_number(const char *text) {
    int64_t number = 0;
    if (!text_parse_number(text, &number))
        return;
    const char *digits = text + (text[0] == '-');
    digits += strspn(digits, "0");
    char expected[64], printed[64];
    CHECK(strlen(digits) < 20);
    snprintf(expected, sizeof expected, "%s%s", number < 0 ? "-" : "", *digits != '\0' ? digits : "0");
    snprintf(printed, sizeof printed, "%lld", (long long)number);
    CHECK(strcmp(expected, printed) == 0);
    check_written(number);
    check_shown_duration(number);
}

/* ---- waits ---- */

static void check_backoff(const char *text, size_t size) {
    int64_t numbers[3] = {1, 1, 1};
    memcpy(numbers, text, size < sizeof numbers ? size : sizeof numbers);
    int64_t base = numbers[0] > 0 ? numbers[0] : 1, most = numbers[1] > base ? numbers[1] : base, attempt = numbers[2];
    int64_t wait = backoff_of_attempt(base, most, attempt);
    CHECK(wait >= base && wait <= most);
    CHECK(attempt == INT64_MAX || backoff_of_attempt(base, most, attempt + 1) >= wait);
    CHECK(attempt > 1 || wait == base);
    struct backoff backoff;
    backoff_init(&backoff, base, most, (uint64_t)attempt);
    for (int i = 1; i <= 70; i++) {
        int64_t schedule = backoff_of_attempt(base, most, i), next = backoff_next_ms(&backoff);
        CHECK(next >= schedule / 2 && next <= schedule);
    }
}

/* ---- text for a terminal ---- */

static void check_shown(const char *text, size_t size) {
    struct buf shown = BUF_INIT, twice = BUF_INIT;
    text_append_escaped(&shown, text, size);
    CHECK(text_is_utf8(buf_text(&shown), shown.size));
    for (size_t i = 0; i < shown.size; i++)
        CHECK((unsigned char)shown.data[i] >= 0x20 && shown.data[i] != 0x7F);
    text_append_escaped(&twice, buf_text(&shown), shown.size);
    CHECK(twice.size == shown.size && memcmp(buf_text(&twice), buf_text(&shown), shown.size) == 0);
    buf_release(&twice);
    buf_reset(&shown);
    text_append_base64(&shown, text, size);
    CHECK(shown.size == (size + 2) / 3 * 4);
    buf_release(&shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct {
        char *text;
        size_t size;
    } lines[4] = {{NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}};
    size_t position = 0, length;
    const char *line;
    for (size_t i = 0; i < 3 && fuzz_next_line(data, size, &position, &line, &length); i++) {
        lines[i].text = memory_copy_bytes(line, length);
        lines[i].size = length;
    }
    lines[3].text = memory_copy_bytes(data + position, size - position);
    lines[3].size = size - position;
    if (lines[0].text != NULL) {
        /* Without the NUL behind: a copy of exactly its size. */
        char *exact = memory_or_exit(malloc(lines[0].size > 0 ? lines[0].size : 1));
        memcpy(exact, lines[0].text, lines[0].size);
        check_time(exact, lines[0].size);
        free(exact);
    }
    if (lines[1].text != NULL)
        check_duration(lines[1].text);
    if (lines[2].text != NULL)
        check_number(lines[2].text);
    check_backoff(lines[3].text, lines[3].size);
    check_shown(lines[3].text, lines[3].size);
    for (size_t i = 0; i < 4; i++)
        free(lines[i].text);
    return 0;
}
