/* Items and how they move; see item.h. */
#include "worker/item.h"

#include "common/buf.h"
#include "common/token.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NEVER ITEM_STATES

/* [state][event] → where to, when it has a point and when it has none. A loss takes only what nobody works on. */
static const struct {
    enum item_state to, pointless;
} moves[ITEM_STATES][ITEM_EVENTS] = {
    [ITEM_READY] = {
        [ITEM_TAKE] = {ITEM_RUNNING, NEVER},
        [ITEM_GIVE_BACK] = {ITEM_DECIDED, ITEM_GONE},
        [ITEM_DECIDE] = {NEVER, NEVER},
        [ITEM_SEND] = {NEVER, NEVER},
        [ITEM_RESEND] = {NEVER, NEVER},
        [ITEM_ANSWER] = {NEVER, NEVER},
        [ITEM_LOSE] = {NEVER, NEVER}, /* it is given back: that may still come in time */
    },
    [ITEM_RUNNING] = {
        [ITEM_TAKE] = {NEVER, NEVER},
        [ITEM_GIVE_BACK] = {NEVER, NEVER},
        [ITEM_DECIDE] = {ITEM_DECIDED, ITEM_GONE},
        [ITEM_SEND] = {NEVER, NEVER},
        [ITEM_RESEND] = {NEVER, NEVER},
        [ITEM_ANSWER] = {NEVER, NEVER},
        [ITEM_LOSE] = {ITEM_RUNNING, ITEM_RUNNING},
    },
    [ITEM_DECIDED] = {
        [ITEM_TAKE] = {NEVER, NEVER},
        [ITEM_GIVE_BACK] = {NEVER, NEVER},
        [ITEM_DECIDE] = {NEVER, NEVER},
        [ITEM_SEND] = {ITEM_SENT, NEVER},
        [ITEM_RESEND] = {NEVER, NEVER},
        [ITEM_ANSWER] = {ITEM_GONE, ITEM_GONE}, /* to an earlier sending, while it waits to be sent again */
        [ITEM_LOSE] = {ITEM_DECIDED, ITEM_GONE},
    },
    [ITEM_SENT] = {
        [ITEM_TAKE] = {NEVER, NEVER},
        [ITEM_GIVE_BACK] = {NEVER, NEVER},
        [ITEM_DECIDE] = {NEVER, NEVER},
        [ITEM_SEND] = {NEVER, NEVER},
        [ITEM_RESEND] = {ITEM_DECIDED, ITEM_GONE},
        [ITEM_ANSWER] = {ITEM_GONE, ITEM_GONE},
        [ITEM_LOSE] = {ITEM_SENT, ITEM_SENT}, /* the answer may be under way, and will say more than we know */
    },
    [ITEM_GONE] = {
        [ITEM_TAKE] = {NEVER, NEVER},
        [ITEM_GIVE_BACK] = {NEVER, NEVER},
        [ITEM_DECIDE] = {NEVER, NEVER},
        [ITEM_SEND] = {NEVER, NEVER},
        [ITEM_RESEND] = {NEVER, NEVER},
        [ITEM_ANSWER] = {ITEM_GONE, ITEM_GONE},
        [ITEM_LOSE] = {ITEM_GONE, ITEM_GONE},
    },
};

enum item_state item_next(enum item_state state, enum item_event event, bool is_pointless) {
    assert((unsigned)state < ITEM_STATES && (unsigned)event < ITEM_EVENTS);
    return is_pointless ? moves[state][event].pointless : moves[state][event].to;
}

static char *put_text(char **next, const char *text, size_t size) {
    char *at = *next;
    memcpy(at, text, size);
    at[size] = '\0';
    *next += size + 1;
    return at;
}

struct lease_item *item_new(struct lease_worker *worker, const struct lease_grant *grant) {
    const char *const texts[] = {grant->kind, grant->lease, grant->holder, grant->claim_id, grant->token};
    size_t size = grant->payload ? grant->payload_size + 1 : 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        size += strlen(texts[i]) + 1;
    struct lease_item *item = memory_alloc(sizeof *item + size);
    char *next = item->texts;
    item->grant = *grant;
    item->grant.kind = put_text(&next, grant->kind, strlen(grant->kind));
    item->grant.lease = put_text(&next, grant->lease, strlen(grant->lease));
    item->grant.holder = put_text(&next, grant->holder, strlen(grant->holder));
    item->grant.claim_id = put_text(&next, grant->claim_id, strlen(grant->claim_id));
    item->grant.token = put_text(&next, grant->token, strlen(grant->token));
    if (grant->payload)
        item->grant.payload = put_text(&next, grant->payload, grant->payload_size);
    item->worker = worker;
    item->references = 1;
    item->delay_ms = -1;
    return item;
}

void item_unref(struct lease_item *item) {
    assert(item->references > 0);
    if (--item->references > 0)
        return;
    token_wipe((char *)(uintptr_t)item->grant.token, strlen(item->grant.token));
    free(item->words);
    free(item);
}

/* Done work counts as long as nobody was granted the item since; what was not begun burns no attempt if it is back before its
 * lease is over. To fail, or to be given back when it was begun, is what the loss says by itself. */
bool item_is_pointless(const struct lease_item *item) {
    bool says_more = item->verdict == ITEM_FINISH || (item->verdict == ITEM_RELEASE && !item->was_begun);
    return item->is_superseded || (item->is_lost && !says_more);
}

enum item_state item_step(struct lease_item *item, enum item_event event) {
    /* While it runs the verdict is the working thread's, and a loss does not ask for it. */
    bool is_pointless = !(item->state == ITEM_RUNNING && event == ITEM_LOSE) && item_is_pointless(item);
    enum item_state next = item_next(item->state, event, is_pointless);
    assert(next != NEVER);
    item->state = next;
    return next;
}

void item_decide(struct lease_item *item, enum item_verdict verdict, const char *words, size_t size) {
    free(item->words);
    item->verdict = verdict;
    item->words = words ? memory_copy_bytes(words, size) : NULL;
    item->words_size = words ? size : 0;
    item->elements = 0;
    for (size_t i = 0; i < item->words_size; i++)
        item->elements += strchr(",:[{", words[i]) != NULL;
}
