/* liblease-worker: leases for programs that do work.
 *
 * Two sides, each a handle of its own:
 *
 *   struct lease_worker   a pool worker: asks for items of one kind, calls `work` for each on a few threads, keeps their leases
 *                         alive while the work reports progress, and sends what became of them.
 *   struct lease_client   the run side: starts runs of one kind over named resources, and holds them (struct lease_run).
 *
 * What both do alike. The library talks to Kafka only: commands out, and from lease.grants and lease.results what is keyed by
 * its holder. A holder is `<name>.<incarnation>`; the incarnation is random in every handle, so that a restarted program is
 * never taken for the one that died. Broker and coordinator may be away when a handle is made, and at any time later: work in
 * hand goes on until its deadline, and everything is sent again when they are back. The program itself never has to ask
 * again; what it must do is stop touching what it works on when a lease is lost, and pass the fence to whatever it writes.
 *
 * The deadline. A lease counts as ours until ttl_ms after the moment when the request that it was granted by (or last renewed
 * by) was sent, less margin_ms: never later than what the coordinator's database says, whatever was delayed on the way. It is
 * kept by a clock that goes on while the process is stopped or the machine sleeps. Once a lease is lost for us it stays
 * lost, even if an answer comes late.
 *
 * Threads. A handle has one thread of its own that sends, reads and renews, and a worker has `concurrency` more that call
 * `work`. Every function here may be called from any thread, unless it says otherwise; no function may be called on a handle
 * that is being freed. Callbacks say which thread calls them. Signals are blocked in the library's threads.
 *
 * Memory. What the library hands out is borrowed, and says for how long. What it is given is copied before the call returns.
 * Out of memory ends the process, with one line on stderr: leases lapse, and nothing is half done.
 *
 * Versions. Options begin with their size; fill them with their `_init` function, so that a program built with an older header
 * works with a newer library. The library keeps no state outside of its handles, writes to no file descriptor, and logs
 * through `log` only. */
#ifndef LEASE_WORKER_H
#define LEASE_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LEASE_API __attribute__((visibility("default")))

/* ---- errors ---- */

enum lease_error_kind {
    LEASE_ERROR_NONE = 0,
    LEASE_ERROR_RETRY,  /* may work later */
    LEASE_ERROR_REJECT, /* what was given will never be accepted */
    LEASE_ERROR_FATAL,  /* a wrong setting, or a bug */
};

/* Filled in only where a call says that it failed. A refusal (held, stale, …) is an answer, not an error. */
struct lease_error {
    enum lease_error_kind kind;
    char code[32];     /* stable, lower case: "options", "kafka_unknown_topic" */
    char message[480]; /* one line for people, without secrets */
};

/* ---- what both sides are set up with ---- */

struct lease_property {
    const char *key;
    const char *value;
};

enum lease_log_level { LEASE_LOG_DEBUG, LEASE_LOG_INFO, LEASE_LOG_WARNING, LEASE_LOG_ERROR };

/* One line, from the handle's own thread or a Kafka client's. Must not call back into the library. */
typedef void lease_log_fn(void *context, enum lease_log_level level, const char *text);

struct lease_connection {
    const char *brokers;      /* host:port[,host:port…]; required */
    const char *topic_prefix; /* "" by default */
    const struct lease_property *properties; /* of librdkafka: security.protocol, sasl.*, ssl.*, …; those that the protocol
                                                fixes, and those that run code, are refused by name */
    size_t property_count;
    const char *group; /* named to the broker by the reader and never joined, for the access rules; "lease-worker" by default */
    lease_log_fn *log; /* NULL: nothing is said */
    void *log_context;
    void *reserved[4];
};

/* One grant. Everything is borrowed from the item or run that it belongs to. */
struct lease_grant {
    const char *kind;
    const char *lease; /* the item, or the run */
    const char *holder;
    int64_t fence;
    const char *claim_id;
    const char *token;   /* a secret: to act for the holder by other means. Never log it */
    int attempt;         /* 1 = the first; 0 if it was not told (a run) */
    const char *payload; /* JSON object as text, as it was requested with; NULL: none */
    size_t payload_size;
};

/* ---- a pool worker ---- */

struct lease_worker;
struct lease_item;

/* Does one item, in one of the worker's threads. It says what became of it by one of lease_item_finish, _fail and _release
 * before it returns; if it calls none, the item is failed and tried again. The item is borrowed until it returns. */
typedef void lease_work_fn(void *context, struct lease_item *item);

/* The lease of an item was lost while `work` had it: once per item, from the handle's own thread, at least margin_ms before
 * anybody else can have it (unless this process did not run at that time: then as soon as it does; lease_item_is_mine says so
 * at once in any case, so work that asks may have returned by then; and unless a Kafka client is being made anew while the brokers
 * are away, which can hold that thread up for 2 s: with a margin below that, ask). Must return soon, and must not stop the worker.
 * The item is borrowed until it returns. */
typedef void lease_lost_fn(void *context, struct lease_item *item);

/* What the coordinator made of a finish, fail or release; from the handle's own thread, once per item that `work` was called
 * for, after it has returned. `outcome` is "finished", "failed" or "released" where it was accepted, the refusal otherwise
 * ("stale": somebody else has been granted the item since; "final": it has ended already, by an earlier sending of ours that
 * was answered too late, or by somebody else), and NULL if there is no answer: nothing was sent, since the lease
 * was lost, or nobody answered before the worker was freed. Must return soon. */
typedef void lease_settled_fn(void *context, const struct lease_grant *grant, const char *outcome);

struct lease_worker_options {
    size_t size; /* set by lease_worker_options_init */
    struct lease_connection connection;
    const char *kind; /* of mode pool, for example "cleanup"; required */
    const char *name; /* of this service, up to 150 characters of an id; "worker" by default */
    lease_work_fn *work; /* required */
    lease_lost_fn *lost;       /* NULL: not wanted */
    lease_settled_fn *settled; /* NULL: not wanted */
    void *context;             /* handed to the three of them */
    unsigned concurrency; /* threads that call `work`; 1 to 256, default 4 */
    unsigned credit;      /* items that are in hand or asked for, at most; concurrency to 10000; 0 = twice the concurrency */
    unsigned ttl_ms;      /* of each lease; 300 to 86400000, default 30000; not above the kind's maximum */
    unsigned wait_ms;     /* how long a demand stays open at the coordinator without hearing from us; 0 = a third of the ttl */
    unsigned margin_ms;   /* a lease counts as lost so long before its deadline; 0 = a tenth of the ttl, 20 at least */
    unsigned linger_ms;   /* what is done waits so long for company, at most; 0 to 100, default 1 */
    unsigned answer_ms;   /* a finish that is not answered by then is sent again; 0 = the ttl, 1000 at least */
};

LEASE_API void lease_worker_options_init_sized(struct lease_worker_options *options, size_t size);
static inline void lease_worker_options_init(struct lease_worker_options *options) {
    lease_worker_options_init_sized(options, sizeof *options);
}

/* Makes the worker and starts it: it fixes its position on lease.grants and lease.results, then claims. Brokers that are away
 * are no error. False (error code "options", or what the Kafka client says): nothing was started. */
LEASE_API bool lease_worker_start(const struct lease_worker_options *options, struct lease_worker **ret_worker,
                                  struct lease_error *error);

/* Drains: asks for nothing more, gives back what was granted and not begun, keeps renewing what runs, waits until it is done
 * and answered, wait_ms at most. What still runs then is lost (and told so). Returns how many `work` calls have not returned.
 * May be called again, to wait longer for them. Not from a callback. */
LEASE_API unsigned lease_worker_stop(struct lease_worker *worker, unsigned wait_ms);

/* Stops it (wait_ms 0) if nobody has, waits until the last `work` has returned, however long that takes, and frees. NULL
 * allowed. Not from a callback. */
LEASE_API void lease_worker_free(struct lease_worker *worker);

/* "<name>.<incarnation>"; lives as long as the worker. */
LEASE_API const char *lease_worker_holder(const struct lease_worker *worker);

struct lease_worker_stats {
    size_t size; /* sizeof of the caller's struct */
    uint64_t claimed;   /* grants that came in */
    uint64_t begun;     /* `work` was called */
    uint64_t finished;  /* answered so */
    uint64_t failed;
    uint64_t released;  /* whether begun or not */
    uint64_t lost;      /* the lease ran out or was refused to be renewed, begun or not */
    uint64_t stale;     /* a finish, fail or release that was refused: it changed nothing */
    uint64_t renewals;  /* answered `renewed` */
    uint64_t resent;    /* finishes, fails and releases that were sent again */
    uint64_t unanswered; /* never answered, given up when the worker stopped */
    uint64_t dropped;   /* records that were no good: repeats, of earlier claims, not well-formed */
    uint64_t reconnected; /* Kafka clients made anew after a failure */
    uint64_t in_hand;   /* items here now */
    uint64_t asked;     /* items asked for and not yet granted */
};
/* Fills what the caller's struct has room for (stats->size). */
LEASE_API void lease_worker_get_stats(struct lease_worker *worker, struct lease_worker_stats *stats);

/* ---- an item, in `work` ---- */

/* Borrowed until `work` returns. */
LEASE_API const struct lease_grant *lease_item_grant(const struct lease_item *item);

/* Says that the work gets on. The lease is renewed at a third of its ttl if there was progress within the last third; work
 * that is stuck loses it. Returns lease_item_is_mine. Two clock reads at most; see lease_item_is_mine. */
LEASE_API bool lease_item_progress(struct lease_item *item);

/* May the next effect be begun? Once false, false for good. No lock, and no system call where the kernel lets processes read the
 * clock (its clocksource is one of the vDSO's: tsc, kvmclock). The clock goes on while the process is stopped or the machine
 * sleeps. It stands still in a virtual machine that its host pauses: only a gate turns that one away. */
LEASE_API bool lease_item_is_mine(struct lease_item *item);

/* How long lease_item_is_mine will be true if nothing is renewed; 0 once it is not. */
LEASE_API int64_t lease_item_remaining_ms(struct lease_item *item);

/* What became of it; sent when `work` returns, the last call counts. After a loss a finish is sent nevertheless: work that is
 * done counts if nobody was granted the item since, and is answered `stale` otherwise. A fail or a release of a lost item is
 * not sent: the loss has said the same.
 *
 * result: a JSON object as text, or NULL. reason: 1 to 500 characters, without control characters (others are replaced). retry
 * false: never again. delay_ms: before the next attempt; -1 = what the kind says. False from lease_item_finish: the result is no
 * JSON object of at most 65536 bytes; nothing was noted. */
LEASE_API bool lease_item_finish(struct lease_item *item, const char *result);
LEASE_API void lease_item_fail(struct lease_item *item, const char *reason, bool retry, int64_t delay_ms);
LEASE_API void lease_item_release(struct lease_item *item); /* somebody else shall have it; burns no attempt */

/* ---- the run side ---- */

struct lease_client;
struct lease_run;

struct lease_client_options {
    size_t size; /* set by lease_client_options_init */
    struct lease_connection connection;
    const char *kind; /* of mode run, for example "settlement"; required */
    const char *name; /* of this service; "client" by default */
    unsigned ttl_ms;    /* of a run that does not say otherwise; default 30000 */
    unsigned margin_ms; /* as for a worker */
    unsigned runs_max;  /* runs at a time, 1 to 10000; default 1000 */
};
LEASE_API void lease_client_options_init_sized(struct lease_client_options *options, size_t size);
static inline void lease_client_options_init(struct lease_client_options *options) {
    lease_client_options_init_sized(options, sizeof *options);
}

LEASE_API bool lease_client_new(const struct lease_client_options *options, struct lease_client **ret_client,
                                struct lease_error *error);
/* Free the runs first. NULL allowed. Not from a callback. */
LEASE_API void lease_client_free(struct lease_client *client);
LEASE_API const char *lease_client_holder(const struct lease_client *client);

enum lease_status {
    LEASE_ACCEPTED,   /* done: lease_run_answer says how */
    LEASE_REFUSED,    /* lease_run_answer says why, and who stands in the way */
    LEASE_PENDING,    /* sent; `answered` will be called */
    LEASE_UNANSWERED, /* no answer within wait_ms: what was asked may still come to pass */
    LEASE_FAILED,     /* nothing was sent; error says why */
};

/* Who is in the way. Texts are NULL, numbers -1, where it is not known. */
struct lease_blocker {
    const char *kind;
    const char *lease;
    const char *resource; /* over which the two met */
    const char *holder;
    const char *since; /* RFC 3339, UTC */
    const char *until;
    int64_t fence;
    int64_t remaining_ms; /* from the answer's own moment */
};

/* The answer to the last command of a run. NULL and -1 where a member does not apply. */
struct lease_answer {
    const char *outcome; /* "granted", "advanced", "finished", "held", "busy", "stale", "lapsed", "final", … */
    const char *state;
    const char *reason; /* malformed: a stable code */
    const char *field;  /* malformed: where */
    const char *step;
    const char *until; /* RFC 3339, UTC */
    int64_t remaining_ms;
    int64_t fence;
    bool is_refusal; /* nothing was changed */
    bool has_blocker;
    struct lease_blocker held_by;
    const char *basis; /* finished, over rows of guarded tables: "unchanged", or "changed" if one was edited while nobody held it */
};

/* From the handle's own thread, once per command that returned LEASE_PENDING, unless the run is freed first; answer NULL: none
 * came in answer_ms. Borrowed until it returns. Must return soon and not wait for the library. */
typedef void lease_answered_fn(void *context, struct lease_run *run, const struct lease_answer *answer);
/* As for items: once per run, in time. */
typedef void lease_run_lost_fn(void *context, struct lease_run *run);

/* The next resource of a listing, "<type>/<id>", borrowed until the next call; NULL when there is no more. In the thread that
 * called lease_run_start; may take its time, and use the database, but not the library. NULL and an `error` that was filled in (its
 * kind): the listing broke off, and the start with it. */
typedef const char *lease_next_fn(void *context, struct lease_error *error);

struct lease_run_options {
    size_t size; /* set by lease_run_options_init */
    const char *lease; /* the run's name; required */
    const char *const *resources; /* "<type>/<id>", none twice. More than one message holds: see LARGE STARTS */
    size_t resource_count;
    const char *payload; /* a JSON object as text, or NULL */
    unsigned ttl_ms;     /* 0 = the client's */
    bool is_manual;      /* true: renewed by lease_run_renew only; false: in the background while there is progress */
    unsigned answer_ms;  /* for callbacks: how long an answer is waited for; default 30000 */
    lease_answered_fn *answered;
    lease_run_lost_fn *lost;
    void *context;       /* handed to the callbacks, and to `next` */
    lease_next_fn *next; /* instead of `resources`: a listing, however long */
    const char *const *tables; /* "<type>": the resources are all that these tables have, see LARGE STARTS; at most 100 */
    size_t table_count;
    unsigned line_ms;    /* 0: refused at once if somebody is in the way; otherwise see WAITING IN LINE */
};
LEASE_API void lease_run_options_init_sized(struct lease_run_options *options, size_t size);
static inline void lease_run_options_init(struct lease_run_options *options) {
    lease_run_options_init_sized(options, sizeof *options);
}

/* LARGE STARTS. A message takes 10000 resources and 262144 bytes. A start over more of them, over a listing or over tables is sent
 * in parts: a start that says that more will follow, covers of as many as a message holds, one after the other under its fence, and
 * a begin with their count. The lease is ours, and is renewed, from the first of them on (also if is_manual), for as long as the
 * listing gets on; what is covered already is held against others. It is accepted when all are covered. If one is held by somebody
 * else, or the lease is lost in the middle, everything is given back, and the answer says who is in the way (the library's own
 * word for a lease that was not renewed in time is "lapsed").
 *
 * Such a start is waited for: wait_ms is that of each part, and cannot be 0. Nobody is called back before it is accepted.
 *
 * Tables. While a run covers a table, no other one that names the table may begin to, though each resource were free: two that list
 * the same table in turn would only get into each other's way. What is inserted after the listing has passed is not covered. */

/* WAITING IN LINE. A start with line_ms that meets somebody is not refused, but waits in line, so long at most, and is granted when its
 * turn comes: lines are served in the order in which starts came, so that many resources are not starved by few. The library keeps
 * the place, by asking again several times a ttl; who dies or frees the run loses it within half a ttl, or six seconds. Both
 * wait_ms and answer_ms are longer by line_ms then. If the time in line comes to nothing, the start is LEASE_REFUSED with the outcome
 * "waiting", and its answer says who was in the way last. Covers never wait. */

/* Asks for the lease, and waits wait_ms at most for the answer; with wait_ms 0 and `answered` set, returns LEASE_PENDING at once.
 * *ret_run is set unless it returns LEASE_FAILED, and is the caller's to free. After LEASE_UNANSWERED a grant that comes later
 * is given back. */
LEASE_API enum lease_status lease_run_start(struct lease_client *client, const struct lease_run_options *options, unsigned wait_ms,
                                            struct lease_run **ret_run, struct lease_error *error);

/* One at a time per run (LEASE_FAILED, code "busy_run", otherwise). An unanswered command may be given again: it is then asked
 * anew. */
LEASE_API enum lease_status lease_run_renew(struct lease_run *run, unsigned wait_ms, struct lease_error *error);
LEASE_API enum lease_status lease_run_advance(struct lease_run *run, const char *step, unsigned wait_ms, struct lease_error *error);
LEASE_API enum lease_status lease_run_finish(struct lease_run *run, const char *result, unsigned wait_ms, struct lease_error *error);
LEASE_API enum lease_status lease_run_fail(struct lease_run *run, const char *reason, bool retry, unsigned wait_ms,
                                           struct lease_error *error);
LEASE_API enum lease_status lease_run_release(struct lease_run *run, unsigned wait_ms, struct lease_error *error);

/* NULL before it was granted; borrowed until lease_run_free. */
LEASE_API const struct lease_grant *lease_run_grant(const struct lease_run *run);
/* Of the last command; NULL if it was not answered. Borrowed until the next command of this run, or lease_run_free. */
LEASE_API const struct lease_answer *lease_run_answer(const struct lease_run *run);

/* As for items; false before it was granted and after it has ended. */
LEASE_API bool lease_run_progress(struct lease_run *run);
LEASE_API bool lease_run_is_mine(struct lease_run *run);
LEASE_API int64_t lease_run_remaining_ms(struct lease_run *run);

/* Forgets the run; a lease that is still held is given back. NULL allowed. No callback of this run is under way or called
 * once it has returned; so not from a callback. */
LEASE_API void lease_run_free(struct lease_run *run);

#ifdef __cplusplus
}
#endif
#endif
