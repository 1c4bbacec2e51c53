/* What goes out of a pool worker, and when: renewals, what became of items, claims. The handle's own thread. */
#include "worker/worker_private.h"

#include "common/buf.h"
#include "common/token.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ELEMENTS: of the results in one command; with the items' own members they stay under the protocol's 20000. AGAIN_US: before
 * it is tried again when the client took nothing. CLOSE_US: before the closing claim is sent again. GRACE_US: how long grants
 * may come after the answer that closed the demand; the relay writes both topics at about the same time. */
enum { ELEMENTS = 10000, AGAIN_US = 20000, CLOSE_US = 1000000, GRACE_US = 100000 };

static int64_t earlier(int64_t left_us, int64_t right_us) {
    return left_us < right_us ? left_us : right_us;
}

/* ---- one command over items ---- */

static struct messages_words words_of(const struct lease_item *item, enum lease_command command) {
    struct messages_words words = {.delay_ms = -1};
    if (command == LEASE_COMMAND_FINISH)
        words.result = item->words;
    if (command == LEASE_COMMAND_FAIL) {
        words.reason = item->words;
        words.retry = item->retry;
        words.delay_ms = item->delay_ms;
    }
    return words;
}

/* The items of `command` are SENT, or to be renewed; their references are the command's. False: nothing was sent. */
static bool send_command(struct lease_worker *worker, struct command_sent *command) {
    struct buf data = BUF_INIT;
    messages_begin_items(&data, link_holder(worker->link));
    for (size_t i = 0; i < command->count; i++) {
        struct messages_words words = words_of(command->items[i], command->command);
        messages_add_item(&data, &command->items[i]->grant, &words);
    }
    messages_end_items(&data, command->command == LEASE_COMMAND_RENEW ? worker->ttl_ms : 0);
    bool is_sent = link_send(worker->link, command->command, link_holder(worker->link), command->number, &data, NULL);
    token_wipe(data.data, data.size);
    buf_release(&data);
    return is_sent;
}

/* With room for `most` items, or as many as a command may have. */
static struct command_sent *new_command(struct lease_worker *worker, enum lease_command name, size_t most, int64_t now_us) {
    size_t room = most < SEND_ITEMS ? most : SEND_ITEMS;
    struct command_sent *command = memory_alloc(sizeof *command + room * sizeof(struct lease_item *));
    command->number = link_next_number(worker->link);
    command->command = name;
    command->sent_us = now_us;
    return command;
}

/* Room for one more? `size` and `elements` are what the command has so far. A renewal says nothing of the item's own words,
 * which are the working thread's while it runs. */
static bool has_room(const struct command_sent *command, const struct lease_item *item, size_t *size, size_t *elements) {
    bool has_words = command->command != LEASE_COMMAND_RENEW;
    size_t quoting = command->command == LEASE_COMMAND_FAIL ? 2 : 1; /* of a reason's quotes and backslashes; a result is JSON */
    size_t item_size = strlen(item->grant.lease) + (has_words ? quoting * item->words_size : 0) + 200;
    size_t item_elements = has_words ? item->elements : 0;
    if (command->count > 0 &&
        (command->count == SEND_ITEMS || item->is_alone || command->items[0]->is_alone ||
         *size + item_size > SEND_BYTES || *elements + item_elements > ELEMENTS))
        return false;
    *size += item_size;
    *elements += item_elements;
    return true;
}

static void note_sent(struct lease_worker *worker, struct command_sent *command) {
    TAILQ_INSERT_TAIL(&worker->sent, command, all);
    worker->sent_count++;
}

/* ---- renewals ---- */

static bool is_vouched_for(struct lease_worker *worker, const struct lease_item *item, int64_t now_us) {
    switch (item->state) {
    case ITEM_READY: /* waits in a line that moves */
        return now_us - atomic_load(&worker->progress_us) <= worker->terms.ttl_us / 3;
    case ITEM_DECIDED:
    case ITEM_SENT:
        return true;
    default:
        return false;
    }
}

static void renew_later(struct lease_worker *worker, struct lease_item **items, size_t count, int64_t now_us) {
    for (size_t i = 0; i < count; i++)
        items[i]->hold.look_us = now_us + AGAIN_US;
    worker->look_us = earlier(worker->look_us, now_us + AGAIN_US);
}

/* Takes the references of items. */
static void send_renewals(struct lease_worker *worker, struct lease_item **items, size_t count, int64_t now_us) {
    for (size_t i = 0; i < count;) {
        struct command_sent *command = new_command(worker, LEASE_COMMAND_RENEW, count - i, now_us);
        size_t size = 0, elements = 0;
        while (i < count && has_room(command, items[i], &size, &elements))
            command->items[command->count++] = items[i++];
        note_sent(worker, command);
        if (!send_command(worker, command)) {
            pthread_mutex_lock(&worker->lock);
            renew_later(worker, command->items, command->count, now_us);
            pthread_mutex_unlock(&worker->lock);
            worker_forget(worker, command);
        }
    }
}

/* Under the lock: all holds, those whose time is over and those whose time it is. Returns how many are to be renewed, in
 * *ret_items (free it), a reference each. */
static size_t look_at_holds(struct lease_worker *worker, int64_t now_us, struct lease_item ***ret_items, struct calls *calls) {
    struct lease_item **items = NULL, *item, *next;
    size_t count = 0;
    worker->look_us = INT64_MAX;
    for (item = TAILQ_FIRST(&worker->hand); item; item = next) {
        next = TAILQ_NEXT(item, hand);
        if (item->state == ITEM_GONE)
            continue;
        if (worker->is_late && item->state == ITEM_RUNNING)
            hold_lose(&item->hold);
        if (hold_take_loss(&item->hold, now_us)) {
            worker_lose(worker, item, calls);
            continue;
        }
        enum hold_wish wish = hold_wish(&item->hold, &worker->terms, is_vouched_for(worker, item, now_us), now_us);
        if (wish == HOLD_RENEW) {
            if (!items)
                items = memory_alloc_array(worker->hand_count, sizeof *items);
            item->references++;
            items[count++] = item;
            hold_asked(&item->hold, &worker->terms, now_us);
        }
        if ((wish == HOLD_STUCK || worker->is_draining) && item->state == ITEM_READY) {
            worker_give_back(worker, item, now_us);
            continue;
        }
        worker->look_us = earlier(worker->look_us, hold_next_us(&item->hold));
    }
    *ret_items = items;
    return count;
}

static void serve_holds(struct lease_worker *worker, int64_t now_us, struct calls *calls) {
    struct lease_item **items = NULL, *item;
    size_t count = 0;
    pthread_mutex_lock(&worker->lock);
    while ((item = TAILQ_FIRST(&worker->gone)) != NULL) {
        TAILQ_REMOVE(&worker->gone, item, queue);
        worker_settle(worker, item, NULL, calls);
    }
    if (now_us >= worker->look_us || worker->is_draining)
        count = look_at_holds(worker, now_us, &items, calls);
    pthread_mutex_unlock(&worker->lock);
    send_renewals(worker, items, count, now_us);
    free(items);
}

/* ---- what became of items ---- */

static const enum lease_command command_of[ITEM_VERDICTS] = {
    [ITEM_FINISH] = LEASE_COMMAND_FINISH, [ITEM_FAIL] = LEASE_COMMAND_FAIL, [ITEM_RELEASE] = LEASE_COMMAND_RELEASE};

/* Under the lock: moves those of one verdict into a command, as many as it holds. NULL: there are none. */
static struct command_sent *gather(struct lease_worker *worker, enum item_verdict verdict, int64_t now_us) {
    struct command_sent *command = NULL;
    struct lease_item *item, *next;
    size_t size = 0, elements = 0;
    for (item = TAILQ_FIRST(&worker->decided); item; item = next) {
        next = TAILQ_NEXT(item, queue);
        if (item->verdict != verdict)
            continue;
        if (!command)
            command = new_command(worker, command_of[verdict], worker->decided_count, now_us);
        if (!has_room(command, item, &size, &elements))
            break;
        worker_unqueue(worker, item);
        item_step(item, ITEM_SEND);
        worker->stats.resent += item->sendings > 0;
        item->sendings++;
        item->sent_by = command->number;
        item->references++;
        command->items[command->count++] = item;
    }
    return command;
}

static void take_back(struct lease_worker *worker, struct command_sent *command, int64_t now_us, struct calls *calls) {
    pthread_mutex_lock(&worker->lock);
    for (size_t i = 0; i < command->count; i++) {
        struct lease_item *item = command->items[i];
        if (item->sendings == 1)
            item->sendings = 0; /* nobody can have seen it */
        worker_send_again(worker, item, now_us, calls);
    }
    pthread_mutex_unlock(&worker->lock);
    worker_forget(worker, command);
    worker->send_not_before_us = now_us + AGAIN_US;
}

static void send_decided(struct lease_worker *worker, int64_t now_us, struct calls *calls) {
    for (enum item_verdict verdict = ITEM_FINISH; verdict < ITEM_VERDICTS; verdict++)
        for (;;) {
            pthread_mutex_lock(&worker->lock);
            struct command_sent *command = gather(worker, verdict, now_us);
            pthread_mutex_unlock(&worker->lock);
            if (!command)
                break;
            note_sent(worker, command);
            if (!send_command(worker, command)) {
                take_back(worker, command, now_us, calls);
                return;
            }
        }
}

/* When what is decided shall go: 0 = nothing is decided. */
static int64_t decided_due_us(const struct lease_worker *worker, int64_t now_us) {
    if (worker->decided_count == 0)
        return INT64_MAX;
    bool is_idle = worker->running == 0 && TAILQ_EMPTY(&worker->ready);
    int64_t due_us = is_idle || worker->is_draining || worker->decided_count >= SEND_ITEMS / 2
                         ? now_us : worker->decided_since_us + worker->linger_us;
    return due_us > worker->send_not_before_us ? due_us : worker->send_not_before_us;
}

static void serve_decided(struct lease_worker *worker, int64_t now_us, struct calls *calls) {
    pthread_mutex_lock(&worker->lock);
    bool is_due = decided_due_us(worker, now_us) <= now_us;
    pthread_mutex_unlock(&worker->lock);
    if (is_due)
        send_decided(worker, now_us, calls);
}

void worker_send_last(struct lease_worker *worker, struct calls *calls) {
    send_decided(worker, hold_clock_us(), calls);
}

/* ---- answers that do not come ---- */

static void give_up_answer(struct lease_worker *worker, struct command_sent *command, int64_t now_us, struct calls *calls) {
    enum { PATIENCE = 2 }; /* sendings before an item goes by itself: the others may suffer for it */
    command->is_overdue = true;
    if (command->command == LEASE_COMMAND_RENEW)
        return;
    pthread_mutex_lock(&worker->lock);
    for (size_t i = 0; i < command->count; i++) {
        struct lease_item *item = command->items[i];
        if (item->state != ITEM_SENT || item->sent_by != command->number)
            continue;
        item->is_alone = item->sendings >= PATIENCE;
        worker_send_again(worker, item, now_us, calls);
    }
    pthread_mutex_unlock(&worker->lock);
}

/* A producer that was given up may have taken commands with it: none is waited for any longer. */
static void notice_reconnection(struct lease_worker *worker, int64_t now_us, struct calls *calls) {
    if (link_reconnected(worker->link) == worker->reconnected)
        return;
    worker->reconnected = link_reconnected(worker->link);
    worker->claimed_us = 0;
    struct command_sent *command;
    TAILQ_FOREACH(command, &worker->sent, all)
        if (!command->is_overdue)
            give_up_answer(worker, command, now_us, calls);
}

/* Returns when the next one is due. */
static int64_t serve_overdue(struct lease_worker *worker, int64_t now_us, struct calls *calls) {
    int64_t next_us = INT64_MAX;
    struct command_sent *command, *next;
    for (command = TAILQ_FIRST(&worker->sent); command; command = next) {
        next = TAILQ_NEXT(command, all);
        int64_t wait_us = command->command == LEASE_COMMAND_RENEW ? worker->terms.ttl_us : worker->answer_us;
        bool is_many = worker->sent_count > COMMANDS_MAX;
        if (!command->is_overdue && (is_many || now_us >= command->sent_us + wait_us))
            give_up_answer(worker, command, now_us, calls);
        if (is_many || now_us >= command->sent_us + 4 * wait_us) {
            worker_forget(worker, command);
            continue;
        }
        next_us = earlier(next_us, command->sent_us + (command->is_overdue ? 4 : 1) * wait_us);
    }
    return next_us;
}

/* ---- claims ---- */

static void send_claim(struct lease_worker *worker, uint64_t more, unsigned wait_ms, int64_t now_us) {
    struct buf data = BUF_INIT;
    pthread_mutex_lock(&worker->lock);
    uint64_t refresh = credit_claim(&worker->credit, more, now_us), asked = worker->credit.asked;
    pthread_mutex_unlock(&worker->lock);
    uint64_t number = worker->claim = link_next_number(worker->link);
    messages_write_claim(&data, asked, refresh, wait_ms, worker->ttl_ms);
    bool is_sent = link_send(worker->link, LEASE_COMMAND_CLAIM, link_holder(worker->link), number, &data, NULL);
    buf_release(&data);
    /* What was not sent is said by the next claim: totals only rise. */
    worker->claimed_us = is_sent ? now_us : now_us + AGAIN_US - (int64_t)worker->wait_ms * 500;
    if (wait_ms == 0)
        worker->closing = number;
}

/* The demand is closed by a claim that does not wait. What it still brings is given back. */
static int64_t serve_closing(struct lease_worker *worker, int64_t now_us) {
    pthread_mutex_lock(&worker->lock);
    bool is_open = credit_open(&worker->credit) > 0;
    bool is_closed = !is_open || (worker->closed_us > 0 && now_us >= worker->closed_us + GRACE_US);
    if (is_closed && !worker->is_closed) {
        worker->is_closed = true;
        pthread_cond_broadcast(&worker->is_quiet);
    }
    pthread_mutex_unlock(&worker->lock);
    if (is_closed)
        return INT64_MAX;
    if (worker->closed_us > 0)
        return worker->closed_us + GRACE_US;
    if (worker->closing == 0 || now_us >= worker->claimed_us + CLOSE_US)
        send_claim(worker, 0, 0, now_us);
    return worker->claimed_us + CLOSE_US;
}

/* Returns when to look again. */
static int64_t serve_claims(struct lease_worker *worker, int64_t now_us) {
    pthread_mutex_lock(&worker->lock);
    uint64_t wanted = credit_wanted(&worker->credit, worker->hand_count), limit = worker->credit.limit;
    int64_t refresh_us = credit_say_again_us(&worker->credit, worker->claimed_us, (int64_t)worker->wait_ms * 1000);
    bool is_idle = worker->hand_count == 0, is_draining = worker->is_draining, is_closed = worker->is_closed;
    pthread_mutex_unlock(&worker->lock);
    if (is_draining)
        return is_closed ? INT64_MAX : serve_closing(worker, now_us);
    if (!link_is_ready(worker->link))
        return INT64_MAX; /* the record that makes it so will wake us */
    if (wanted == 0)
        worker->wanted_since_us = 0;
    else if (worker->wanted_since_us == 0)
        worker->wanted_since_us = now_us;
    int64_t ask_us = wanted == 0 ? INT64_MAX
                     : is_idle || wanted >= (limit + 3) / 4 ? now_us : worker->wanted_since_us + worker->linger_us;
    if (now_us < refresh_us && now_us < ask_us)
        return earlier(refresh_us, ask_us);
    send_claim(worker, wanted, worker->wait_ms, now_us);
    worker->wanted_since_us = 0;
    return worker->claimed_us + (int64_t)worker->wait_ms * 500;
}

/* ---- all of it ---- */

int64_t worker_send(struct lease_worker *worker, struct calls *calls) {
    int64_t now_us = hold_clock_us();
    notice_reconnection(worker, now_us, calls);
    serve_holds(worker, now_us, calls);
    int64_t next_us = serve_overdue(worker, now_us, calls);
    serve_decided(worker, now_us, calls);
    next_us = earlier(next_us, serve_claims(worker, now_us));

    pthread_mutex_lock(&worker->lock);
    worker->stats.reconnected = link_reconnected(worker->link);
    next_us = earlier(next_us, earlier(worker->look_us, decided_due_us(worker, hold_clock_us())));
    if (!TAILQ_EMPTY(&worker->gone) || worker->is_over)
        next_us = 0;
    worker->sleep_until_us = next_us;
    pthread_mutex_unlock(&worker->lock);
    return next_us;
}
