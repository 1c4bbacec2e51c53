/* Millionths; see money.h. */
#include "worker/royalty/money.h"

#include <inttypes.h>
#include <stdio.h>

bool money_add(int64_t *sum, int64_t amount) {
    int64_t result;
    if (__builtin_add_overflow(*sum, amount, &result))
        return false;
    *sum = result;
    return true;
}

/* Division cuts towards zero, so half of the divisor, with the product's own sign, makes it round to the nearest and halves away. */
bool money_share(int64_t amount, int64_t rate, int64_t *ret_share) {
    __int128 product = (__int128)amount * rate;
    __int128 rounded = (product + (product < 0 ? -MONEY_ONE / 2 : MONEY_ONE / 2)) / MONEY_ONE;
    if (rounded > INT64_MAX || rounded < INT64_MIN)
        return false;
    *ret_share = (int64_t)rounded;
    return true;
}

const char *money_format(char text[MONEY_TEXT_SIZE], int64_t amount) {
    uint64_t size = amount < 0 ? -(uint64_t)amount : (uint64_t)amount;
    snprintf(text, MONEY_TEXT_SIZE, "%s%" PRIu64 ".%06" PRIu64, amount < 0 ? "-" : "", size / MONEY_ONE, size % MONEY_ONE);
    return text;
}
