/* One item that was granted to us, from its grant until nobody needs it any more.
 *
 *   ready ──take──► running ──decide──► decided ──send──► sent ──answer──► gone
 *     │                                    ▲                │
 *     └──────── give back, lose ───────────┘◄───resend──────┘         (and lost on the way: see item_next)
 *
 * State, links and references are guarded by the worker's lock; verdict and words are the working thread's while it is running,
 * and guarded by the lock afterwards; the grant does not change; the hold says itself who may do what. */
#ifndef LEASE_WORKER_ITEM_H
#define LEASE_WORKER_ITEM_H

#include "worker/hold.h"
#include "worker/lease_worker.h"

#include <stdbool.h>
#include <sys/queue.h>
#include <uthash.h>

enum item_state { ITEM_READY, ITEM_RUNNING, ITEM_DECIDED, ITEM_SENT, ITEM_GONE, ITEM_STATES };

enum item_event {
    ITEM_TAKE,      /* a thread begins it */
    ITEM_GIVE_BACK, /* it will not be begun */
    ITEM_DECIDE,    /* `work` has returned */
    ITEM_SEND,
    ITEM_RESEND,    /* no answer came */
    ITEM_ANSWER,    /* whatever it says */
    ITEM_LOSE,
    ITEM_EVENTS
};

/* What comes next. is_pointless: what would be sent could not change anything (item_is_pointless). ITEM_STATES: this event
 * cannot happen in this state. */
enum item_state item_next(enum item_state state, enum item_event event, bool is_pointless);

enum item_verdict { ITEM_NO_VERDICT, ITEM_FINISH, ITEM_FAIL, ITEM_RELEASE, ITEM_VERDICTS };

struct lease_item {
    struct lease_grant grant;
    struct hold hold;
    struct lease_worker *worker; /* borrowed */

    enum item_state state;
    bool was_begun;
    unsigned sendings;
    uint64_t sent_by; /* the number of the command that it went with last */
    bool is_lost;       /* the loss was taken note of */
    bool was_lost_in_work; /* before `work` returned, whoever saw it first */
    bool is_superseded; /* the same lease has been granted to us again: nothing of this grant counts any more */
    bool is_alone;      /* a command of several was malformed: this one goes by itself */

    enum item_verdict verdict;
    char *words; /* result or reason, or NULL; ours */
    size_t words_size;
    size_t elements; /* of a result: at least as many as JSON values in it */
    bool retry;
    int64_t delay_ms; /* -1: what the kind says */

    bool is_answered; /* gone, and this is what it was answered */
    char outcome[16];

    unsigned references; /* being in hand, and one per command under way */
    TAILQ_ENTRY(lease_item) hand;  /* all that are not gone */
    TAILQ_ENTRY(lease_item) queue; /* ready, decided, or gone without an answer */
    TAILQ_ENTRY(lease_item) lost_call, settled_call; /* held by a reference, until it is called back for */
    UT_hash_handle by_lease;       /* the newest grant of each lease */
    char texts[];
};
TAILQ_HEAD(item_list, lease_item);

/* Copies the grant. One reference. */
struct lease_item *item_new(struct lease_worker *worker, const struct lease_grant *grant);
void item_unref(struct lease_item *item); /* wipes the token when it was the last */

bool item_is_pointless(const struct lease_item *item);

/* Moves it, and asserts that it may. Returns the new state. */
enum item_state item_step(struct lease_item *item, enum item_event event);

/* Replaces verdict and words; words (NULL allowed) are copied, at most `size` bytes. */
void item_decide(struct lease_item *item, enum item_verdict verdict, const char *words, size_t size);

#endif
