/* How many items a worker asks for, and when it sent what: the totals of its claims and the moments of its refreshes.
 *
 * asked counts every item ever asked for, granted every one that came. A claim says asked, so that one that arrives twice
 * asks for nothing more; its refresh is a number of ours, and a grant names the newest one that the coordinator knew.
 * A grant can go astray (its record was deleted before it was read): when the coordinator says twice in a row that nothing
 * is open although we still wait for some, these are given up, and asked for anew.
 *
 * Pure; one thread. */
#ifndef LEASE_WORKER_CREDIT_H
#define LEASE_WORKER_CREDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More refreshes than a demand can be behind: at one a millisecond, four seconds; a grant that names an older one is returned. */
enum { CREDIT_REFRESHES = 4096 };

struct credit {
    uint64_t limit;
    uint64_t asked;
    uint64_t granted;
    uint64_t refresh;          /* of the newest claim; 0 before the first */
    uint64_t granted_at_empty; /* granted when an `empty` came last, and how many came since it changed */
    unsigned empties;
    struct {
        uint64_t refresh;
        int64_t sent_us;
    } sent[CREDIT_REFRESHES];
};

void credit_init(struct credit *credit, uint64_t limit);

/* Asked for and not granted yet. */
uint64_t credit_open(const struct credit *credit);
/* How many more may be asked for while so many are in hand. */
uint64_t credit_wanted(const struct credit *credit, uint64_t in_hand);

/* A claim for `more` items is sent now: counts them, and returns its refresh. */
uint64_t credit_claim(struct credit *credit, uint64_t more, int64_t now_us);

/* When it is to be said again that we are still here: at half of the wait while something is open; now and then when nothing is,
 * since the totals of a worker that is silent for a day are forgotten at the coordinator, and ours go on. */
int64_t credit_say_again_us(const struct credit *credit, int64_t claimed_us, int64_t wait_us);

/* A grant came that names this refresh. True, and when that one was sent; false if it is none that we remember. */
bool credit_grant(struct credit *credit, uint64_t refresh, int64_t *ret_sent_us);

/* A claim that keeps its demand open was answered `empty`: nothing is open. Returns how many grants are given up. */
uint64_t credit_empty(struct credit *credit, uint64_t refresh);

#endif
