/* Sums by work; see tally.h. */
#include "worker/royalty/tally.h"

#include "common/buf.h"
#include "worker/royalty/money.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void tally_release(struct tally *tally) {
    free(tally->lines);
    *tally = (struct tally){0};
}

static struct tally_line *last(const struct tally *tally) {
    return &tally->lines[tally->count - 1];
}

static bool overflow(const struct tally_line *line, const char *what, struct error *error) {
    return error_set(error, ERROR_REJECT, "royalty_overflow", "the %s of work %d of contract %s is too large", what, line->work,
                     line->contract);
}

static void open_line(struct tally *tally, const char *contract, int32_t work) {
    size_t size = strlen(contract);
    assert(size < TALLY_CONTRACT_SIZE);
    if (tally->count == tally->capacity) {
        tally->capacity = tally->capacity * 2 + 64;
        tally->lines = memory_resize(tally->lines, tally->capacity, sizeof *tally->lines);
    }
    tally->count++;
    tally->is_open = true;
    *last(tally) = (struct tally_line){.work = work};
    memcpy(last(tally)->contract, contract, size + 1);
}

bool tally_continues(const struct tally *tally, const char *contract, int32_t work) {
    return tally->is_open && last(tally)->work == work && strcmp(last(tally)->contract, contract) == 0;
}

bool tally_add(struct tally *tally, const char *contract, int32_t work, int64_t amount, struct error *error) {
    if (!tally_continues(tally, contract, work))
        open_line(tally, contract, work);
    if (last(tally)->sales == INT32_MAX || !money_add(&last(tally)->gross, amount))
        return overflow(last(tally), "sum", error);
    last(tally)->sales++;
    return true;
}

void tally_close(struct tally *tally) {
    tally->is_open = false;
}

size_t tally_complete(const struct tally *tally) {
    return tally->is_open ? tally->count - 1 : tally->count;
}

void tally_drop_complete(struct tally *tally) {
    size_t complete = tally_complete(tally);
    if (tally->is_open && complete > 0)
        tally->lines[0] = *last(tally);
    tally->count -= complete;
}

bool tally_share(struct tally_line *line, int64_t rate, struct error *error) {
    line->rate = rate;
    return money_share(line->gross, rate, &line->royalty) || overflow(line, "royalty", error);
}
