/* A lease that we hold, as far as time goes: until when it is ours, whether it is lost, and when to renew it.
 *
 * Pure arithmetic on one struct; the time comes in as an argument, in µs of one clock that goes on while the process is
 * stopped (hold_clock_us). What the working thread asks (hold_is_mine, hold_progress) is atomic and may run beside
 * everything else; all the rest is for the one thread that owns the hold. */
#ifndef LEASE_WORKER_HOLD_H
#define LEASE_WORKER_HOLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* CLOCK_BOOTTIME: monotonic time stands still while a machine sleeps, and the lease does not. */
int64_t hold_clock_us(void);

struct hold_terms {
    int64_t ttl_us;
    int64_t margin_us; /* ours ends so long before the deadline */
};

struct hold {
    _Atomic int64_t mine_until_us; /* HOLD_LOST for ever after */
    _Atomic int64_t progress_us;   /* of the last progress */
    int64_t asked_us;              /* when the request was sent that the deadline counts from */
    int64_t look_us;               /* when to think of renewing again */
    bool is_told;                  /* the loss has been taken */
};

#define HOLD_LOST INT64_MIN

/* asked_us: when the request was sent that this grant answers. */
void hold_init(struct hold *hold, const struct hold_terms *terms, int64_t asked_us, int64_t now_us);

/* Any thread. Once false, false for good: whoever looks first after the moment makes it so. */
bool hold_is_mine(struct hold *hold, int64_t now_us);
int64_t hold_remaining_us(struct hold *hold, int64_t now_us); /* 0 when it is not ours */
bool hold_progress(struct hold *hold, int64_t now_us);        /* returns hold_is_mine */

/* The lease was refused: lost now, whatever the deadline says. */
void hold_lose(struct hold *hold);

/* True exactly once, when the hold is lost: by the clock or by hold_lose. */
bool hold_take_loss(struct hold *hold, int64_t now_us);

/* A renewal that was sent at asked_us was accepted. A lost hold stays lost; an older answer shortens nothing. */
void hold_renewed(struct hold *hold, const struct hold_terms *terms, int64_t asked_us, int64_t now_us);

enum hold_wish {
    HOLD_WAIT,  /* nothing before hold_next_us */
    HOLD_RENEW, /* send a renewal; hold_asked follows */
    HOLD_STUCK, /* it would be time, but nothing got on */
};

/* At a third of the ttl: is a renewal wanted? is_alive: what vouches for the hold besides its own progress (an item in a line
 * that moves). Up to ttl/24 early, so that those that are due at nearly the same time share a message. When it is not to
 * be renewed now, sets when to look again. */
enum hold_wish hold_wish(struct hold *hold, const struct hold_terms *terms, bool is_alive, int64_t now_us);
/* A renewal was sent: another one only if no answer comes within a sixth of the ttl. */
void hold_asked(struct hold *hold, const struct hold_terms *terms, int64_t now_us);

/* When the owner must look at this hold again: to renew it, or because it is lost. INT64_MAX: never. */
int64_t hold_next_us(struct hold *hold);

#endif
