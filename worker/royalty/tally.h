/* Sales in, lines out: adds up what comes in the order of contract and work, a line for each work. Lines lie in memory until they are
 * written, so the caller bounds how many sales it adds before it takes them. Pure; one thread. */
#ifndef LEASE_ROYALTY_TALLY_H
#define LEASE_ROYALTY_TALLY_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a contract's name, and the NUL: the table's own bound. */
enum { TALLY_CONTRACT_SIZE = 101 };

struct tally_line {
    char contract[TALLY_CONTRACT_SIZE];
    int32_t work;
    int32_t sales;
    int64_t gross;
    int64_t rate; /* of the contract; tally_share */
    int64_t royalty;
};

/* Zeroed: empty. The last line of `lines` is open (still added to) while is_open. */
struct tally {
    struct tally_line *lines;
    size_t count, capacity;
    bool is_open;
};

void tally_release(struct tally *tally);

/* One sale: of the open line's work, or it begins the next line. REJECT royalty_overflow if the sum would not fit. */
bool tally_add(struct tally *tally, const char *contract, int32_t work, int64_t amount, struct error *error) MUST_USE;
/* Does this sale belong to the open line? */
bool tally_continues(const struct tally *tally, const char *contract, int32_t work);
/* The open line has all its sales. */
void tally_close(struct tally *tally);

/* How many lines are complete: those before the open one. */
size_t tally_complete(const struct tally *tally);
/* The complete lines have been written: they go, an open one stays. */
void tally_drop_complete(struct tally *tally);

/* What the line comes to at that rate. REJECT royalty_overflow. */
bool tally_share(struct tally_line *line, int64_t rate, struct error *error) MUST_USE;

#endif
