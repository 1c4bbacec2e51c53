/* Exact decimal arithmetic on amounts and shares: whole numbers of millionths in 64 bits, products in 128. No binary fractions, and
 * nothing that is too large goes unnoticed: 9,223,372,036,854.775807 is the most.
 *
 * One rounding rule: to the nearest millionth, halves away from zero. It is that of SQL's round(numeric), so what is computed here can
 * be computed there again. Pure; safe from any thread. */
#ifndef LEASE_ROYALTY_MONEY_H
#define LEASE_ROYALTY_MONEY_H

#include <stdbool.h>
#include <stdint.h>

enum { MONEY_ONE = 1000000, MONEY_TEXT_SIZE = 24 };

/* False: it would not fit; *sum is as before. */
bool money_add(int64_t *sum, int64_t amount);

/* amount * rate, rounded. False: it would not fit. */
bool money_share(int64_t amount, int64_t rate, int64_t *ret_share);

/* "12.340000"; returns `text`. */
const char *money_format(char text[MONEY_TEXT_SIZE], int64_t amount);

#endif
