/* A second statement of the rules.
 *
 * Leasehold's rules live in SQL (sql/functions). This file says them again, in the plainest C that can say
 * them: one struct per noun, one command at a time, no sets, no SQL, no clock. It was written from the
 * protocol's description and not from the SQL text, so that a misunderstanding has to be made twice to stay
 * hidden. driver.c feeds both with the same random commands and compares.
 *
 * Everything is a small integer here: kinds, leases, resources, holders, messages. The driver gives them
 * names. Times are microseconds. Fences are numbered 1, 2, 3 … in the order in which they are granted, and
 * a grant's claim id is its fence: the driver maps both to what the database said.
 *
 * Lapsing: model_move_to() turns over whatever has lapsed, at once. The database does so when it looks at a
 * lease or when its reaper comes by. That this makes no difference to any answer is one of the things that the
 * comparison shows. One thing does hang on it, and may: an item whose lapse nobody has met yet is not handed out
 * by somebody else's step. So the driver says with model_see() which lapses the database has met; a step with
 * a claim must meet all of that kind (within MODEL_DUE_MAX), or the claim's answer would depend on the reaper. */
#ifndef TESTS_MODEL_MODEL_H
#define TESTS_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_NONE (-1)

/* Grants in one step; what is left over is matched by the next. */
#define MODEL_GRANTS_MAX 1000
/* A step with claims looks at so many leases that may be due. */
#define MODEL_DUE_MAX 200

enum model_mode { MODE_RUN, MODE_POOL };

enum model_command {
    COMMAND_START, COMMAND_COVER, COMMAND_BEGIN, COMMAND_RENEW, COMMAND_ADVANCE, COMMAND_FINISH,
    COMMAND_FAIL, COMMAND_RELEASE, COMMAND_REQUEST, COMMAND_CLAIM, COMMAND_RESOLVE, COMMAND_COUNT
};

/* What an operator says became of it. */
enum model_verdict { VERDICT_DONE, VERDICT_NOT_DONE, VERDICT_EXTEND, VERDICT_COUNT };

/* In order of precedence: the first that applies is the answer. */
enum model_outcome {
    OUTCOME_MALFORMED, OUTCOME_DUPLICATE, OUTCOME_UNKNOWN, OUTCOME_FINAL, OUTCOME_STALE, OUTCOME_LAPSED,
    OUTCOME_HELD, OUTCOME_BUSY, OUTCOME_INCOMPLETE, OUTCOME_OUT_OF_STEP,
    OUTCOME_WAITING, OUTCOME_PARKED, OUTCOME_EMPTY, OUTCOME_GRANTED, OUTCOME_COVERED, OUTCOME_RENEWED,
    OUTCOME_ADVANCED, OUTCOME_FINISHED, OUTCOME_FAILED, OUTCOME_RELEASED, OUTCOME_REQUESTED, OUTCOME_ANSWERED,
    EVENT_DEAD, /* an event that answers nothing, beside OUTCOME_LAPSED and OUTCOME_GRANTED */
    OUTCOME_COUNT,
    OUTCOME_NONE = OUTCOME_COUNT /* of an item whose command was refused as a whole */
};

enum model_state { STATE_ABSENT, STATE_FREE, STATE_READY, STATE_HELD, STATE_FINISHED, STATE_FAILED, STATE_DEAD, STATE_COUNT };

/* One kind of work: what a row of the table of kinds says, and its steps in order. */
struct model_kind {
    const char *name;
    enum model_mode mode;
    int64_t ttl_default_ms, ttl_max_ms;
    int attempts_max;
    int64_t backoff_base_ms, backoff_max_ms;
    int steps; /* how many; step n may only follow step n - 1; 0 is the beginning */
};

/* Resources: table * MODEL_TABLE_SIZE + row; the last row of a table stands for the whole of it. */
#define MODEL_TABLES 3
#define MODEL_TABLE_SIZE 20000
#define MODEL_WHOLE_TABLE(table) ((table) * MODEL_TABLE_SIZE + MODEL_TABLE_SIZE - 1)
#define MODEL_RESOURCES (MODEL_TABLES * MODEL_TABLE_SIZE)

/* A command over many items is a head, whose subject is a worker and which is answered, and behind it a member for each item. */
enum model_role { ROLE_ALONE, ROLE_HEAD, ROLE_MEMBER };

/* One command as it reaches the rules. Absent numbers are MODEL_NONE. */
struct model_message {
    int kind;
    enum model_command command;
    enum model_role role;
    int subject; /* the lease; for a claim and a head the worker */
    int64_t id;  /* which CloudEvents source and id; a member's is its head's */
    int digest;  /* which body came under that id */
    bool malformed;
    int holder;
    int64_t fence;
    int64_t claim;
    bool token_fits;
    int64_t ttl_ms, amount, refresh, wait_ms;
    int step;
    enum model_verdict verdict; /* resolve; its fence is the one that the operator saw, or MODEL_NONE */
    bool flag; /* start: more will follow; fail: retry */
    int resource_count;
    const int *resources;
    int table_count;
    const int *tables;
};

struct model_answer {
    enum model_outcome outcome;
    enum model_outcome original; /* of a duplicate */
    int64_t fence;               /* of a grant */
    int64_t until;               /* granted and renewed */
    int64_t amount;              /* claim: grants; cover: newly covered; begin: count */
    int blocker_kind, blocker_lease;
};

/* What happened to one lease, in order: answers that looked at it, and lapses and grants of their own. */
struct model_event {
    int kind, lease;
    enum model_outcome event;
    bool is_answer;
    int64_t fence; /* of a grant, or the one that lapsed */
    int holder;
    enum model_state state;
    int attempt;
    int step;
    int64_t until;
    int64_t refresh; /* a grant out of demand: which refresh it answers */
    int64_t id;      /* the message answered; a grant out of demand: the claim that it answers */
};

struct model_lease {
    enum model_state state;
    /* The last grant: kept after a lapse, for its late holder; forgotten after fail and release. */
    bool has_grant;
    int holder;
    int64_t fence;
    int64_t since;
    int64_t until;
    int64_t ttl_ms; /* of the grant: what a renewal without one asks for */
    bool is_unfenced;  /* held since before fencing: nobody's */
    bool is_extended;  /* …and an operator gave it an expiry */
    bool has_lapsed;   /* the last grant lapsed */
    bool is_unseen;    /* …and the database has not met that yet */
    bool is_overtaken; /* …and one of its resources was taken by another since */
    bool is_covering;  /* said "more will follow" and has not begun */
    int64_t covered;
    int attempt;
    int step;
    int64_t ready_at;
    int64_t payload; /* the message whose payload it carries */
    int grant_count;
    int64_t last_grant; /* index into grants, also when has_grant is false */
};

/* Every grant ever made; its index is its fence. */
struct model_grant {
    int kind, lease, holder;
    int64_t previous; /* grant of the same lease */
};

struct model_demand {
    bool exists;
    int64_t credit_total, granted, refresh, ttl_ms, wait_until, opened, id;
    int granted_now;
    bool is_asked; /* by a claim of this step */
};

struct model_seen {
    int digest;
    bool is_seen;
    enum model_outcome outcome;
};

struct model;

struct model *model_new(const struct model_kind *kinds, int kind_count, int leases_per_kind, int workers, int64_t messages);
void model_free(struct model *model);

/* A row from before fencing, as an operator would find it. */
void model_insert_unfenced(struct model *model, int kind, int lease);

/* Time goes on to `at`: what has lapsed is turned over. Forgets the events of the step before. */
void model_move_to(struct model *model, int64_t at);
/* The database has met the lapse of this lease. */
void model_see(struct model *model, int kind, int lease);

/* Applies messages in order at the moment moved to, then matches demand. */
void model_apply(struct model *model, const struct model_message *messages, size_t count, struct model_answer *ret_answers);

/* What the reaper does beside turning over: the demand is matched. */
void model_reap(struct model *model);

const struct model_event *model_events(const struct model *model, size_t *ret_count);
const struct model_lease *model_lease(const struct model *model, int kind, int lease);
const struct model_demand *model_demand(const struct model *model, int kind, int worker);
bool model_demand_is_open(const struct model_demand *demand, int64_t at);
const struct model_grant *model_grant(const struct model *model, int64_t fence);
int64_t model_fence_last(const struct model *model);
/* The fence of a lease's nth grant (1 is the first), or MODEL_NONE. */
int64_t model_grant_nth(const struct model *model, int kind, int lease, int nth);
/* Which fence a resource carries; 0 is none. */
int64_t model_stamp(const struct model *model, int resource);

extern const char *const model_outcome_names[OUTCOME_COUNT];
extern const char *const model_command_names[COMMAND_COUNT];
extern const char *const model_state_names[STATE_COUNT];

#endif
