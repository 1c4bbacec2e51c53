/* Between the files of the run side: the handle and its thread (client.c), what comes in (client_take.c), what a run is asked to
 * do (run.c, and cover.c for large starts). Not for anybody else. */
#ifndef LEASE_CLIENT_PRIVATE_H
#define LEASE_CLIENT_PRIVATE_H

#include "common/buf.h"
#include "worker/hold.h"
#include "worker/link.h"
#include "worker/messages.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

/* The one command of a run that is under way. It keeps its message id for as long as it is sent again, so that whatever arrives
 * twice is a duplicate, and is answered with the first answer. */
enum ask_state {
    ASK_NONE,
    ASK_QUEUED, /* not sent yet: the position is not fixed, or Kafka is away */
    ASK_SENT,
    ASK_DONE,   /* answered, and not picked up yet by who waits */
};

/* A start's place in line: asked for anew, under a new message id, for as long as it is wanted. A grant names the newest asking that the
 * coordinator knew, and is no older than that; one that names a forgotten asking comes too late. */
enum { LINE_ASKINGS = 16 };
struct line {
    int64_t until_us; /* 0: it does not wait in line */
    int64_t every_us;
    bool is_waiting;  /* the coordinator has said so */
    unsigned next;
    struct {
        uint64_t number;
        int64_t sent_us;
    } asked[LINE_ASKINGS];
};

struct ask {
    enum ask_state state;
    enum lease_command command;
    struct buf data; /* has a token in it: wiped */
    uint64_t first;  /* the number of its message; 0: not sent yet */
    uint64_t number; /* of the newest one: another one only in line */
    int64_t sent_us; /* the first time */
    int64_t again_us;
    int64_t until_us; /* of a callback: nobody waits longer */
    bool has_callback;
    bool is_refused;
    struct line line;
};

struct lease_run {
    struct lease_client *client; /* borrowed */
    TAILQ_ENTRY(lease_run) all;
    lease_answered_fn *answered;
    lease_run_lost_fn *lost;
    void *context;
    char *lease;
    bool is_manual;
    bool is_covering; /* a large start is under way: nothing is called back, and it is renewed in any case */
    unsigned ttl_ms;
    int64_t answer_us;
    unsigned line_ms;
    struct hold_terms terms;

    _Atomic bool is_held; /* granted and not ended; the hold is valid */
    struct hold hold;

    /* Under the client's lock. */
    struct ask ask;
    bool has_grant, has_answer;
    struct lease_grant grant;
    struct lease_answer answer;
    char *grant_texts, *answer_texts; /* what the two point into */
    size_t grant_texts_size;
    bool has_partition;
    int32_t partition;
    unsigned calls; /* of callbacks, gathered or under way */
};
TAILQ_HEAD(run_list, lease_run);

/* A lease or a place in line that nobody wants any more, or a partition that a run was listening to. */
struct farewell {
    TAILQ_ENTRY(farewell) all;
    enum lease_command command;
    char *lease; /* NULL: nothing is to be sent */
    struct buf data;
    int32_t partition; /* -1: none */
};

/* Renewals under way, by number: what their deadline counts from. Older ones are forgotten. */
enum { CLIENT_RENEWALS = 1024, CLIENT_ITEMS = 1000, CLIENT_BYTES = 200000 };

struct lease_client {
    struct link *link;
    unsigned ttl_ms, margin_ms, runs_max;
    pthread_t loop;

    pthread_mutex_t lock;
    pthread_cond_t is_changed; /* an ask is done, or a callback has returned */
    struct run_list runs;
    unsigned run_count;
    TAILQ_HEAD(, farewell) farewells;
    bool is_over;

    /* The handle's thread only. */
    struct {
        uint64_t number;
        int64_t sent_us;
    } renewals[CLIENT_RENEWALS];
};

/* Callbacks, gathered under the lock and made outside of it, by the handle's thread. */
struct call {
    TAILQ_ENTRY(call) all;
    struct lease_run *run;
    bool is_loss;
    bool has_answer;
};
TAILQ_HEAD(call_list, call);

/* ---- client.c; under the lock ---- */

void client_gather(struct call_list *calls, struct lease_run *run, bool is_loss, bool has_answer);
/* Lets go of a lease (NULL: of none; it is copied) and of a partition (-1: of none). */
void client_say_farewell(struct lease_client *client, const struct lease_grant *grant, int32_t partition);
/* The start of a run that has got what it waited for, and may be in line again. */
void client_leave_line(struct lease_client *client, const struct lease_run *run);
/* If the run's hold is lost and nobody was told: gathers it. */
void client_look_at_loss(struct lease_run *run, int64_t now_us, struct call_list *calls);

/* Is it renewed in the background? */
bool client_renews(const struct lease_run *run);

/* ---- client_take.c; takes the lock itself ---- */

void client_take_grant(struct lease_client *client, const struct message *record, struct call_list *calls);
void client_take_result(struct lease_client *client, const struct message *record, struct call_list *calls);
/* Under the lock: the command under way ends without an answer. */
void client_give_up(struct lease_run *run, struct call_list *calls);
/* Under the lock: copies it into the run. */
void client_keep_answer(struct lease_run *run, const struct lease_answer *answer);

/* ---- run.c ---- */

/* Wipes what the command said. */
void ask_clear(struct ask *ask);

/* Takes `data`. Under the lock, which is given up while waiting for the answer; nothing else is asked (ASK_NONE). */
enum lease_status run_ask(struct lease_run *run, enum lease_command command, struct buf *data, unsigned wait_ms);

/* ---- cover.c ---- */

/* Covers all that the options name and begins; the start has been granted. Any thread, without the lock. Unless it is accepted,
 * the lease is given back. */
enum lease_status cover_all(struct lease_run *run, const struct lease_run_options *options, unsigned wait_ms,
                            struct lease_error *ret_error);

#endif
