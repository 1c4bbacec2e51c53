/* The totals of a worker's claims; see credit.h. */
#include "worker/credit.h"

#include <string.h>

void credit_init(struct credit *credit, uint64_t limit) {
    memset(credit, 0, sizeof *credit);
    credit->limit = limit;
}

uint64_t credit_open(const struct credit *credit) {
    return credit->asked > credit->granted ? credit->asked - credit->granted : 0;
}

uint64_t credit_wanted(const struct credit *credit, uint64_t in_hand) {
    uint64_t used = in_hand + credit_open(credit);
    return used < credit->limit ? credit->limit - used : 0;
}

uint64_t credit_claim(struct credit *credit, uint64_t more, int64_t now_us) {
    credit->asked += more;
    uint64_t refresh = ++credit->refresh;
    credit->sent[refresh % CREDIT_REFRESHES].refresh = refresh;
    credit->sent[refresh % CREDIT_REFRESHES].sent_us = now_us;
    return refresh;
}

int64_t credit_say_again_us(const struct credit *credit, int64_t claimed_us, int64_t wait_us) {
    static const int64_t silence_us = INT64_C(3600) * 1000 * 1000;
    return claimed_us + (credit_open(credit) > 0 ? wait_us / 2 : silence_us);
}

bool credit_grant(struct credit *credit, uint64_t refresh, int64_t *ret_sent_us) {
    credit->granted++;
    /* A database that lost the last commits counts fewer grants than there were, and gives more than was asked for. */
    if (credit->granted > credit->asked)
        credit->asked = credit->granted;
    if (refresh == 0 || credit->sent[refresh % CREDIT_REFRESHES].refresh != refresh)
        return false;
    *ret_sent_us = credit->sent[refresh % CREDIT_REFRESHES].sent_us;
    return true;
}

uint64_t credit_empty(struct credit *credit, uint64_t refresh) {
    /* Only the newest claim speaks of all that was asked for. */
    if (refresh != credit->refresh || credit_open(credit) == 0) {
        credit->empties = 0;
        return 0;
    }
    if (credit->empties == 0 || credit->granted_at_empty != credit->granted) {
        credit->granted_at_empty = credit->granted;
        credit->empties = 1;
        return 0;
    }
    credit->empties = 0;
    uint64_t missing = credit_open(credit);
    credit->granted = credit->asked;
    return missing;
}
