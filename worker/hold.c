/* Deadlines, losses and renewals; see hold.h. One word holds deadline and loss, so that the two cannot disagree: a renewal
 * that is accepted while the work finds its time over either came first or changes nothing. */
#include "worker/hold.h"

#include <time.h>

int64_t hold_clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void hold_init(struct hold *hold, const struct hold_terms *terms, int64_t asked_us, int64_t now_us) {
    atomic_init(&hold->mine_until_us, asked_us + terms->ttl_us - terms->margin_us);
    atomic_init(&hold->progress_us, now_us);
    hold->asked_us = asked_us;
    hold->look_us = asked_us + terms->ttl_us / 3;
    hold->is_told = false;
}

bool hold_is_mine(struct hold *hold, int64_t now_us) {
    int64_t until_us = atomic_load_explicit(&hold->mine_until_us, memory_order_acquire);
    while (now_us >= until_us) {
        if (until_us == HOLD_LOST)
            return false;
        if (atomic_compare_exchange_weak(&hold->mine_until_us, &until_us, HOLD_LOST))
            return false;
    }
    return true;
}

int64_t hold_remaining_us(struct hold *hold, int64_t now_us) {
    int64_t until_us = atomic_load_explicit(&hold->mine_until_us, memory_order_acquire);
    return until_us > now_us ? until_us - now_us : 0;
}

bool hold_progress(struct hold *hold, int64_t now_us) {
    atomic_store_explicit(&hold->progress_us, now_us, memory_order_release);
    return hold_is_mine(hold, now_us);
}

void hold_lose(struct hold *hold) {
    atomic_store(&hold->mine_until_us, HOLD_LOST);
}

bool hold_take_loss(struct hold *hold, int64_t now_us) {
    if (hold->is_told || hold_is_mine(hold, now_us))
        return false;
    hold->is_told = true;
    return true;
}

void hold_renewed(struct hold *hold, const struct hold_terms *terms, int64_t asked_us, int64_t now_us) {
    int64_t mine_until_us = asked_us + terms->ttl_us - terms->margin_us;
    int64_t until_us = atomic_load(&hold->mine_until_us);
    do {
        if (!hold_is_mine(hold, now_us) || mine_until_us <= until_us)
            return;
    } while (!atomic_compare_exchange_weak(&hold->mine_until_us, &until_us, mine_until_us));
    hold->asked_us = asked_us;
    hold->look_us = asked_us + terms->ttl_us / 3;
}

enum hold_wish hold_wish(struct hold *hold, const struct hold_terms *terms, bool is_alive, int64_t now_us) {
    if (hold->is_told || hold->look_us > now_us + terms->ttl_us / 24)
        return HOLD_WAIT;
    if (is_alive || now_us - atomic_load_explicit(&hold->progress_us, memory_order_acquire) <= terms->ttl_us / 3)
        return HOLD_RENEW;
    hold->look_us = now_us + terms->ttl_us / 12; /* it may still get on */
    return HOLD_STUCK;
}

void hold_asked(struct hold *hold, const struct hold_terms *terms, int64_t now_us) {
    hold->look_us = now_us + terms->ttl_us / 6;
}

int64_t hold_next_us(struct hold *hold) {
    if (hold->is_told)
        return INT64_MAX;
    int64_t until_us = atomic_load(&hold->mine_until_us);
    return until_us < hold->look_us ? until_us : hold->look_us;
}
