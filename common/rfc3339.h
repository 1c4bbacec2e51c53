/* Reading times as RFC 3339 has them, which is also how PostgreSQL puts a timestamptz into JSON:
 * "2026-01-31T23:59:59.123456+00:00". Writing is clock_format's. Safe from any thread. */
#ifndef LEASE_RFC3339_H
#define LEASE_RFC3339_H

#include <stddef.h>
#include <stdint.h>

enum rfc3339_fault {
    RFC3339_OK,
    RFC3339_FORM,  /* not the form: no zone, `today`, a year of five digits */
    RFC3339_RANGE, /* the form, but no such time: month 13, year 0, second 60 (PostgreSQL would change it) */
};

/* The whole text. Sets *ret_us (µs since 1970, UTC) if it is OK; digits behind the microsecond are dropped. */
enum rfc3339_fault rfc3339_parse(const char *text, size_t size, int64_t *ret_us);

#endif
