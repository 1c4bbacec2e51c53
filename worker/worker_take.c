/* What comes in for a pool worker: grants, and the answers to its commands. The handle's own thread. */
#include "worker/worker_private.h"

#include "common/buf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* EXCESS: grants beyond the credit (of a database that forgot some) are returned; so much tolerance costs only memory.
 * WAKE_ITEMS: threads are woken for so many items at a time while more of them are there to be read; waking costs more than
 * reading one. */
enum { EXCESS = 2, WAKE_ITEMS = 16 };

/* ---- grants ---- */

/* The same lease was granted to us before, and that grant is over: whatever is sent under it would be stale. */
static void supersede(struct lease_worker *worker, struct lease_item *old, struct calls *calls) {
    HASH_DELETE(by_lease, worker->by_lease, old);
    old->is_superseded = true;
    hold_lose(&old->hold);
    if (hold_take_loss(&old->hold, 0))
        worker_lose(worker, old, calls);
    else if (old->state == ITEM_DECIDED) /* lost before; what runs, or is sent, ends by itself */
        worker_settle(worker, old, NULL, calls);
}

static bool is_welcome(const struct lease_worker *worker) {
    return !worker->is_draining && worker->hand_count < EXCESS * worker->credit.limit;
}

static void add_item(struct lease_worker *worker, struct lease_item *item, bool is_known, struct calls *calls) {
    struct lease_item *old;
    HASH_FIND(by_lease, worker->by_lease, item->grant.lease, strlen(item->grant.lease), old);
    if (old)
        supersede(worker, old, calls);
    worker->stats.claimed++;
    TAILQ_INSERT_TAIL(&worker->hand, item, hand);
    worker->hand_count++;
    HASH_ADD_KEYPTR(by_lease, worker->by_lease, item->grant.lease, strlen(item->grant.lease), item);
    TAILQ_INSERT_TAIL(&worker->ready, item, queue);
    int64_t now_us = hold_clock_us();
    if (!is_known || !is_welcome(worker) || !hold_is_mine(&item->hold, now_us)) {
        worker_give_back(worker, item, now_us);
        return;
    }
    int64_t next_us = hold_next_us(&item->hold);
    if (next_us < worker->look_us)
        worker->look_us = next_us;
    if (++worker->unannounced >= WAKE_ITEMS)
        worker_announce(worker);
}

/* A repeat, or of an earlier claim. */
static bool is_old(const struct lease_worker *worker, const struct lease_grant *grant) {
    struct lease_item *known;
    HASH_FIND(by_lease, worker->by_lease, grant->lease, strlen(grant->lease), known);
    return known && known->grant.fence >= grant->fence;
}

void worker_take_grant(struct lease_worker *worker, const struct message *record, struct calls *calls) {
    struct messages_grant read;
    if (!messages_read_grant(record, &read)) {
        pthread_mutex_lock(&worker->lock);
        worker->stats.dropped++;
        pthread_mutex_unlock(&worker->lock);
        return;
    }
    struct lease_item *item = item_new(worker, &read.grant);
    messages_free(read.document);
    pthread_mutex_lock(&worker->lock);
    if (is_old(worker, &item->grant)) {
        worker->stats.dropped++;
        item_unref(item);
    } else {
        int64_t sent_us = 0, now_us = hold_clock_us();
        bool is_known = credit_grant(&worker->credit, read.refresh, &sent_us);
        hold_init(&item->hold, &worker->terms, is_known ? sent_us : now_us - worker->terms.ttl_us, now_us);
        add_item(worker, item, is_known, calls);
    }
    pthread_mutex_unlock(&worker->lock);
}

/* ---- answers ---- */

void worker_forget(struct lease_worker *worker, struct command_sent *command) {
    pthread_mutex_lock(&worker->lock);
    for (size_t i = 0; i < command->count; i++)
        item_unref(command->items[i]);
    pthread_mutex_unlock(&worker->lock);
    TAILQ_REMOVE(&worker->sent, command, all);
    worker->sent_count--;
    free(command);
}

static const enum lease_outcome wished[ITEM_VERDICTS] = {
    [ITEM_FINISH] = LEASE_OUTCOME_FINISHED, [ITEM_FAIL] = LEASE_OUTCOME_FAILED, [ITEM_RELEASE] = LEASE_OUTCOME_RELEASED};

static void take_verdict(struct lease_worker *worker, struct lease_item *item, const struct messages_item *answer,
                         struct calls *calls) {
    if (item->state != ITEM_SENT && item->state != ITEM_DECIDED)
        return; /* answered already, to another sending */
    if (answer->outcome == LEASE_OUTCOME_BUSY) {
        worker_send_again(worker, item, hold_clock_us(), calls);
        return;
    }
    if (answer->outcome != wished[item->verdict])
        worker->stats.stale++;
    else if (item->verdict == ITEM_FINISH)
        worker->stats.finished++;
    else if (item->verdict == ITEM_FAIL)
        worker->stats.failed++;
    else
        worker->stats.released++;
    worker_settle(worker, item, answer->outcome_name, calls);
}

static bool is_loss(enum lease_outcome outcome) {
    return outcome == LEASE_OUTCOME_UNKNOWN || outcome == LEASE_OUTCOME_FINAL || outcome == LEASE_OUTCOME_STALE ||
           outcome == LEASE_OUTCOME_LAPSED;
}

static void take_renewal(struct lease_worker *worker, struct lease_item *item, const struct messages_item *answer,
                         int64_t sent_us, struct calls *calls) {
    int64_t now_us = hold_clock_us();
    if (item->state == ITEM_GONE)
        return;
    if (answer->outcome == LEASE_OUTCOME_RENEWED) {
        worker->stats.renewals++;
        hold_renewed(&item->hold, &worker->terms, sent_us, now_us);
    } else if (is_loss(answer->outcome) && (item->state == ITEM_READY || item->state == ITEM_RUNNING)) {
        /* What is decided has its own answer coming; it may be the very reason of this one. */
        hold_lose(&item->hold);
        if (hold_take_loss(&item->hold, now_us))
            worker_lose(worker, item, calls);
    }
}

static void take_item_answer(struct lease_worker *worker, const struct command_sent *command, struct lease_item *item,
                             const struct messages_item *answer, struct calls *calls) {
    if (strcmp(answer->lease, item->grant.lease) != 0 || (answer->fence >= 0 && answer->fence != item->grant.fence))
        return;
    if (command->command == LEASE_COMMAND_RENEW)
        take_renewal(worker, item, answer, command->sent_us, calls);
    else
        take_verdict(worker, item, answer, calls);
}

/* The answer speaks of each item; in the order of the command. */
static void take_answers(struct lease_worker *worker, const struct command_sent *command,
                         const struct messages_result *result, struct calls *calls) {
    struct messages_item answer;
    for (size_t i = 0; i < result->item_count && i < command->count; i++)
        if (messages_get_item(result, i, &answer))
            take_item_answer(worker, command, command->items[i], &answer, calls);
}

/* The command as a whole was refused. One of its items must be why: they go one by one, and then this is the item's answer. */
static void take_refusal(struct lease_worker *worker, const struct command_sent *command,
                         const struct messages_result *result, struct calls *calls) {
    link_say(worker->link, LEASE_LOG_WARNING, "a %s of %zu items was answered %s, %s in %s",
             lease_command_name(command->command), command->count, result->outcome_name,
             result->answer.reason ? result->answer.reason : "no reason", result->answer.field ? result->answer.field : "?");
    for (size_t i = 0; i < command->count; i++) {
        struct lease_item *item = command->items[i];
        struct messages_item answer = {.lease = item->grant.lease, .outcome = result->outcome,
                                       .outcome_name = result->outcome_name, .fence = -1};
        if (command->count == 1 && result->outcome == LEASE_OUTCOME_MALFORMED) {
            take_item_answer(worker, command, item, &answer, calls);
        } else {
            item->is_alone = true;
            if (command->command != LEASE_COMMAND_RENEW)
                worker_send_again(worker, item, hold_clock_us(), calls);
        }
    }
}

static struct command_sent *find_command(struct lease_worker *worker, uint64_t number) {
    struct command_sent *command;
    TAILQ_FOREACH(command, &worker->sent, all)
        if (command->number == number)
            break;
    return command;
}

static void take_claim_answer(struct lease_worker *worker, const struct messages_result *result, uint64_t number) {
    pthread_mutex_lock(&worker->lock);
    uint64_t missing = result->outcome == LEASE_OUTCOME_EMPTY && !worker->is_draining
                           ? credit_empty(&worker->credit, result->refresh) : 0;
    pthread_mutex_unlock(&worker->lock);
    if (missing > 0)
        link_say(worker->link, LEASE_LOG_WARNING, "%llu grants never came; asking anew", (unsigned long long)missing);
    if (number == worker->closing)
        worker->closed_us = hold_clock_us();
    if (result->outcome == LEASE_OUTCOME_MALFORMED && !worker->has_complained) {
        link_say(worker->link, LEASE_LOG_ERROR, "claims are refused: %s, %s in %s", result->outcome_name,
                 result->answer.reason ? result->answer.reason : "no reason",
                 result->answer.field ? result->answer.field : "?");
        worker->has_complained = true;
    }
}

/* Said nothing that can be read about some of its items (a list that is too short, an outcome of a newer version): they go again
 * when its time is over, as if it had not been answered. */
static bool leaves_items_open(struct lease_worker *worker, const struct command_sent *command) {
    bool is_open = false;
    if (command->command == LEASE_COMMAND_RENEW || command->is_overdue)
        return false;
    pthread_mutex_lock(&worker->lock);
    for (size_t i = 0; i < command->count && !is_open; i++)
        is_open = command->items[i]->state == ITEM_SENT && command->items[i]->sent_by == command->number;
    pthread_mutex_unlock(&worker->lock);
    return is_open;
}

void worker_take_result(struct lease_worker *worker, const struct message *record, struct calls *calls) {
    const char *holder = link_holder(worker->link);
    if (!record->key || record->key_size != strlen(holder) || memcmp(record->key, holder, record->key_size) != 0)
        return;
    struct messages_result result;
    if (!messages_read_result(record, &result))
        return; /* an event that answers nothing */
    uint64_t number = link_number_of(worker->link, result.command.source, result.command.id);
    struct command_sent *command = number > 0 ? find_command(worker, number) : NULL;
    if (command) {
        pthread_mutex_lock(&worker->lock);
        if (result.is_answered)
            take_answers(worker, command, &result, calls);
        else
            take_refusal(worker, command, &result, calls);
        pthread_mutex_unlock(&worker->lock);
        if (!leaves_items_open(worker, command))
            worker_forget(worker, command);
    } else if (number > 0 && number == worker->claim && !result.is_answered) {
        take_claim_answer(worker, &result, number);
    }
    messages_free(result.document);
}
