/* Between the files of a pool worker: its handle and threads (worker.c), its own thread (worker_loop.c), what comes in
 * (worker_take.c), what goes out (worker_send.c). Not for anybody else. */
#ifndef LEASE_WORKER_PRIVATE_H
#define LEASE_WORKER_PRIVATE_H

#include "worker/credit.h"
#include "worker/item.h"
#include "worker/link.h"
#include "worker/messages.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

/* A command over many items that is under way, until it is answered or nobody needs the answer. */
struct command_sent {
    TAILQ_ENTRY(command_sent) all;
    uint64_t number;
    enum lease_command command;
    int64_t sent_us;
    bool is_overdue; /* its items were, or will be, sent again by other commands */
    size_t count;
    struct lease_item *items[]; /* a reference each */
};
TAILQ_HEAD(command_list, command_sent);

/* SEND_ITEMS, SEND_BYTES: of one command, under the protocol's 1000 items and 262144 bytes. COMMANDS_MAX: under way at once;
 * the oldest is forgotten, which means that its items are sent again. */
enum { SEND_ITEMS = 1000, SEND_BYTES = 200000, COMMANDS_MAX = 4096 };

struct lease_worker {
    /* Fixed after the start. */
    struct link *link;
    lease_work_fn *work;
    lease_lost_fn *lost;
    lease_settled_fn *settled;
    void *context;
    unsigned concurrency, ttl_ms, wait_ms;
    int64_t linger_us, answer_us;
    struct hold_terms terms;
    pthread_t loop;
    pthread_t *threads;
    unsigned thread_count; /* that were started */

    _Atomic int64_t progress_us; /* of any item */

    pthread_mutex_t lock; /* what follows */
    pthread_cond_t is_work; /* for the threads: an item is ready, or they shall leave */
    pthread_cond_t is_quiet; /* for who stops: running or in hand has become less */
    struct item_list hand, ready, decided, gone;
    struct lease_item *by_lease;
    size_t hand_count, decided_count;
    unsigned running;
    unsigned unannounced; /* ready ones that no thread was woken for */
    int64_t decided_since_us; /* of the oldest decided one */
    int64_t sleep_until_us;   /* of the handle's thread, while it waits for records */
    struct credit credit;
    struct lease_worker_stats stats;
    bool is_draining; /* nothing more is asked for or begun */
    bool is_late;     /* the drain is over its bound: what runs is lost */
    bool is_leaving;  /* threads end when nothing is to be begun */
    bool is_over;     /* the handle's thread sends what there is, and ends */
    bool is_closed;   /* while draining: no demand is open any more, and what it brought has come */

    /* The handle's thread only. */
    struct command_list sent;
    size_t sent_count;
    int64_t claimed_us;  /* when the newest claim was sent; 0: claim at once */
    int64_t wanted_since_us;
    int64_t look_us;     /* the next look at all holds */
    int64_t send_not_before_us;
    uint64_t claim;      /* number of the newest claim; what is said of earlier ones is of no interest */
    uint64_t closing;    /* number of the claim that closes the demand */
    int64_t closed_us;   /* when it was answered */
    uint64_t reconnected; /* of the link, as far as it was taken note of */
    bool has_complained;
};

/* Callbacks, gathered under the lock and made outside of it, by the handle's thread. */
struct calls {
    struct item_list lost, settled; /* a reference each */
    struct lease_worker *worker;
};
void calls_init(struct calls *calls, struct lease_worker *worker);
void calls_make(struct calls *calls);

/* ---- worker.c; under the lock ---- */

/* Out of the queue that its state says. */
void worker_unqueue(struct lease_worker *worker, struct lease_item *item);
/* It is gone and in no queue: out of the hand, whose reference ends. */
void worker_drop(struct lease_worker *worker, struct lease_item *item);
/* To be sent. Wakes nobody. */
void worker_queue_decided(struct lease_worker *worker, struct lease_item *item, int64_t now_us);
/* Wakes threads for what has become ready. */
void worker_announce(struct lease_worker *worker);
/* A ready one will not be begun. */
void worker_give_back(struct lease_worker *worker, struct lease_item *item, int64_t now_us);
/* The hold is lost: counts, moves the item, and gathers the callbacks. */
void worker_lose(struct lease_worker *worker, struct lease_item *item, struct calls *calls);
/* The item is over, with this answer (NULL: none came): drops it, and gathers the callback if it was begun. */
void worker_settle(struct lease_worker *worker, struct lease_item *item, const char *outcome, struct calls *calls);
/* It was sent and has to be sent again. */
void worker_send_again(struct lease_worker *worker, struct lease_item *item, int64_t now_us, struct calls *calls);

/* ---- worker_loop.c ---- */

void *worker_loop(void *worker);

/* ---- worker_take.c; takes the lock itself ---- */

void worker_take_grant(struct lease_worker *worker, const struct message *record, struct calls *calls);
void worker_take_result(struct lease_worker *worker, const struct message *record, struct calls *calls);
/* Forgets a command that is under way. */
void worker_forget(struct lease_worker *worker, struct command_sent *command);

/* ---- worker_send.c; takes the lock itself ---- */

/* Sends what is due, gathers the losses that are due, and returns when there is something to do next. */
int64_t worker_send(struct lease_worker *worker, struct calls *calls);
/* Whatever is decided, now. */
void worker_send_last(struct lease_worker *worker, struct calls *calls);

#endif
