/* RFC 3339; see rfc3339.h. */
#include "common/rfc3339.h"

#include <stdbool.h>
#include <string.h>

struct reader {
    const char *text;
    size_t size;
    size_t at;
};

struct parts {
    int year, month, day, hour, minute, second;
    int micro;
    int zone_sign, zone_hour, zone_minute;
};

static bool take_number(struct reader *reader, size_t digits, int *ret) {
    if (reader->size - reader->at < digits)
        return false;
    int number = 0;
    for (size_t i = 0; i < digits; i++) {
        char byte = reader->text[reader->at + i];
        if (byte < '0' || byte > '9')
            return false;
        number = number * 10 + (byte - '0');
    }
    reader->at += digits;
    *ret = number;
    return true;
}

static bool take_one_of(struct reader *reader, const char *bytes) {
    if (reader->at >= reader->size || reader->text[reader->at] == '\0' ||
        strchr(bytes, reader->text[reader->at]) == NULL)
        return false;
    reader->at++;
    return true;
}

/* One to nine digits. */
static bool take_fraction(struct reader *reader, int *ret_micro) {
    *ret_micro = 0;
    if (!take_one_of(reader, "."))
        return true;
    size_t digits = 0;
    for (int digit; take_number(reader, 1, &digit); digits++)
        if (digits < 6)
            *ret_micro = *ret_micro * 10 + digit;
    for (size_t i = digits; i < 6; i++)
        *ret_micro *= 10;
    return digits >= 1 && digits <= 9;
}

static bool take_zone(struct reader *reader, struct parts *parts) {
    if (take_one_of(reader, "Zz"))
        return true;
    if (!take_one_of(reader, "+-"))
        return false;
    parts->zone_sign = reader->text[reader->at - 1] == '-' ? -1 : 1;
    return take_number(reader, 2, &parts->zone_hour) && take_one_of(reader, ":") &&
           take_number(reader, 2, &parts->zone_minute);
}

static bool take_parts(struct reader *reader, struct parts *parts) {
    return take_number(reader, 4, &parts->year) && take_one_of(reader, "-") && take_number(reader, 2, &parts->month) &&
           take_one_of(reader, "-") && take_number(reader, 2, &parts->day) && take_one_of(reader, "Tt") &&
           take_number(reader, 2, &parts->hour) && take_one_of(reader, ":") &&
           take_number(reader, 2, &parts->minute) && take_one_of(reader, ":") &&
           take_number(reader, 2, &parts->second) && take_fraction(reader, &parts->micro) &&
           take_zone(reader, parts) && reader->at == reader->size;
}

static int days_of_month(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && is_leap ? 1 : 0);
}

static bool is_in_range(const struct parts *parts) {
    return parts->year >= 1 && parts->month >= 1 && parts->month <= 12 && parts->day >= 1 &&
           parts->day <= days_of_month(parts->year, parts->month) && parts->hour <= 23 && parts->minute <= 59 &&
           parts->second <= 59 && parts->zone_hour <= 23 && parts->zone_minute <= 59;
}

/* Days since 1970-01-01 in the proleptic Gregorian calendar, counted from 1 March so that the leap day is a year's
 * last. */
static int64_t days_since_1970(const struct parts *parts) {
    int64_t year = parts->month > 2 ? parts->year : parts->year - 1;
    int64_t month = (parts->month + 9) % 12;
    int64_t day_of_year = (153 * month + 2) / 5 + parts->day - 1;
    return year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719468;
}

enum rfc3339_fault rfc3339_parse(const char *text, size_t size, int64_t *ret_us) {
    struct reader reader = {.text = text, .size = size};
    struct parts parts = {.zone_sign = 1};
    if (!take_parts(&reader, &parts))
        return RFC3339_FORM;
    if (!is_in_range(&parts))
        return RFC3339_RANGE;
    int64_t minutes = (days_since_1970(&parts) * 24 + parts.hour) * 60 + parts.minute -
                      parts.zone_sign * (parts.zone_hour * 60 + parts.zone_minute);
    *ret_us = (minutes * 60 + parts.second) * 1000000 + parts.micro;
    return RFC3339_OK;
}
