/* The rules, one command at a time. See model.h for what this is and what it must not become: clever. */
#include "model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *const model_outcome_names[OUTCOME_COUNT] = {
    "malformed", "duplicate", "unknown", "final", "stale", "lapsed", "held", "busy", "incomplete", "out_of_step",
    "waiting", "parked", "empty", "granted", "covered", "renewed", "advanced", "finished", "failed", "released",
    "requested", "answered", "dead"};
const char *const model_command_names[COMMAND_COUNT] = {
    "start", "cover", "begin", "renew", "advance", "finish", "fail", "release", "request", "claim", "resolve"};
const char *const model_state_names[STATE_COUNT] = {"absent", "free", "ready", "held", "finished", "failed", "dead"};

struct model {
    const struct model_kind *kinds;
    int kind_count, leases_per_kind, workers;
    int64_t message_count;
    struct model_lease *leases;  /* kind * leases_per_kind + lease */
    struct model_demand *demands; /* kind * workers + worker */
    struct model_seen *seen;
    int64_t *stamps;
    struct model_grant *grants;
    int64_t fence_last, grants_room;
    int64_t demand_order;
    struct model_event *events;
    size_t event_count, events_room;
    int64_t at;
    int may_be_due; /* leases that a look at what is due may come across */
};

static void *or_die(void *memory) {
    if (!memory) abort();
    return memory;
}

struct model *model_new(const struct model_kind *kinds, int kind_count, int leases_per_kind, int workers, int64_t messages) {
    struct model *model = or_die(calloc(1, sizeof *model));
    model->kinds = kinds;
    model->kind_count = kind_count;
    model->leases_per_kind = leases_per_kind;
    model->workers = workers;
    model->message_count = messages;
    model->leases = or_die(calloc((size_t)(kind_count * leases_per_kind), sizeof *model->leases));
    model->demands = or_die(calloc((size_t)(kind_count * workers), sizeof *model->demands));
    model->seen = or_die(calloc((size_t)messages, sizeof *model->seen));
    model->stamps = or_die(calloc(MODEL_RESOURCES, sizeof *model->stamps));
    model->grants_room = 1024;
    model->grants = or_die(calloc((size_t)model->grants_room, sizeof *model->grants));
    model->events_room = 1024;
    model->events = or_die(calloc(model->events_room, sizeof *model->events));
    return model;
}

void model_free(struct model *model) {
    if (!model) return;
    free(model->leases);
    free(model->demands);
    free(model->seen);
    free(model->stamps);
    free(model->grants);
    free(model->events);
    free(model);
}

static struct model_lease *lease_of(const struct model *model, int kind, int lease) {
    assert(kind >= 0 && kind < model->kind_count && lease >= 0 && lease < model->leases_per_kind);
    return &model->leases[kind * model->leases_per_kind + lease];
}

const struct model_lease *model_lease(const struct model *model, int kind, int lease) { return lease_of(model, kind, lease); }

const struct model_demand *model_demand(const struct model *model, int kind, int worker) {
    return &model->demands[kind * model->workers + worker];
}

bool model_demand_is_open(const struct model_demand *demand, int64_t at) {
    return demand->exists && demand->granted < demand->credit_total && demand->wait_until >= at;
}

const struct model_grant *model_grant(const struct model *model, int64_t fence) {
    assert(fence > 0 && fence <= model->fence_last);
    return &model->grants[fence];
}

int64_t model_fence_last(const struct model *model) { return model->fence_last; }

int64_t model_grant_nth(const struct model *model, int kind, int lease, int nth) {
    const struct model_lease *l = lease_of(model, kind, lease);
    if (nth < 1 || nth > l->grant_count) return MODEL_NONE;
    int64_t fence = l->last_grant;
    for (int n = l->grant_count; n > nth; n--) fence = model->grants[fence].previous;
    return fence;
}

int64_t model_stamp(const struct model *model, int resource) { return model->stamps[resource]; }

const struct model_event *model_events(const struct model *model, size_t *ret_count) {
    *ret_count = model->event_count;
    return model->events;
}

void model_insert_unfenced(struct model *model, int kind, int lease) {
    struct model_lease *l = lease_of(model, kind, lease);
    memset(l, 0, sizeof *l);
    l->state = STATE_HELD;
    l->is_unfenced = true;
    l->attempt = 1;
}

static bool is_final(const struct model_lease *lease) {
    return lease->state == STATE_FINISHED || lease->state == STATE_FAILED || lease->state == STATE_DEAD;
}

static void record(struct model *model, int kind, int lease, enum model_outcome event, bool is_answer, int64_t id) {
    if (model->event_count == model->events_room) {
        model->events_room *= 2;
        model->events = or_die(realloc(model->events, model->events_room * sizeof *model->events));
    }
    const struct model_lease *l = lease_of(model, kind, lease);
    model->events[model->event_count++] = (struct model_event){
        .kind = kind, .lease = lease, .event = event, .is_answer = is_answer, .fence = l->has_grant ? l->fence : 0,
        .holder = l->holder, .state = l->state, .attempt = l->attempt, .step = l->step, .until = l->until,
        .refresh = MODEL_NONE, .id = id};
}

static int64_t backoff_us(const struct model_kind *kind, int attempt) {
    int64_t delay_ms = kind->backoff_base_ms;
    for (int n = 1; n < attempt && delay_ms < kind->backoff_max_ms; n++) delay_ms *= 2;
    if (delay_ms > kind->backoff_max_ms) delay_ms = kind->backoff_max_ms;
    return delay_ms * 1000;
}

/* A lease is live while its expiry is still to come: at the expiry itself it has lapsed. */
static void turn_over_if_lapsed(struct model *model, int kind_number, int number) {
    const struct model_kind *kind = &model->kinds[kind_number];
    struct model_lease *lease = lease_of(model, kind_number, number);
    if (lease->state != STATE_HELD || (lease->is_unfenced && !lease->is_extended) || lease->until > model->at) return;
    lease->is_unfenced = lease->is_extended = false;
    lease->has_lapsed = true;
    lease->is_unseen = true;
    if (kind->mode == MODE_RUN) {
        lease->state = STATE_FREE;
        record(model, kind_number, number, OUTCOME_LAPSED, false, MODEL_NONE);
    } else if (lease->attempt >= kind->attempts_max) {
        lease->state = STATE_DEAD;
        record(model, kind_number, number, EVENT_DEAD, false, MODEL_NONE);
    } else {
        lease->state = STATE_READY;
        lease->ready_at = lease->until + backoff_us(kind, lease->attempt);
        record(model, kind_number, number, OUTCOME_LAPSED, false, MODEL_NONE);
    }
}

void model_move_to(struct model *model, int64_t at) {
    model->event_count = 0;
    model->at = at;
    for (int i = 0; i < model->kind_count * model->workers; i++) model->demands[i].granted_now = 0;
    model->may_be_due = 0;
    for (int kind = 0; kind < model->kind_count; kind++)
        for (int number = 0; number < model->leases_per_kind; number++) {
            const struct model_lease *lease = lease_of(model, kind, number);
            model->may_be_due += lease->is_unseen || lease->state == STATE_HELD || lease->state == STATE_READY;
            turn_over_if_lapsed(model, kind, number);
        }
}

void model_see(struct model *model, int kind, int lease) { lease_of(model, kind, lease)->is_unseen = false; }

/* A claim looks for items of its kind that have lapsed unseen, as far as the bound goes. */
static void see_what_is_due(struct model *model, int kind) {
    if (model->may_be_due > MODEL_DUE_MAX) return;
    for (int lease = 0; lease < model->leases_per_kind; lease++) model_see(model, kind, lease);
}

static void grant(struct model *model, int kind, int number, int holder, int64_t ttl_ms) {
    struct model_lease *lease = lease_of(model, kind, number);
    int64_t fence = ++model->fence_last;
    if (fence >= model->grants_room) {
        model->grants_room *= 2;
        model->grants = or_die(realloc(model->grants, (size_t)model->grants_room * sizeof *model->grants));
    }
    model->grants[fence] = (struct model_grant){kind, number, holder, lease->last_grant};
    assert(!is_final(lease) && lease->state != STATE_HELD && fence > lease->last_grant);
    lease->state = STATE_HELD;
    lease->has_grant = true;
    lease->holder = holder;
    lease->fence = fence;
    lease->since = model->at;
    lease->until = model->at + ttl_ms * 1000;
    lease->ttl_ms = ttl_ms;
    lease->has_lapsed = false;
    lease->is_overtaken = false;
    lease->is_covering = false;
    lease->covered = 0;
    lease->attempt++;
    lease->grant_count++;
    lease->last_grant = fence;
}

/* The lease whose last grant stamped the resource, or NULL. A stamp of an older grant is dead. */
static struct model_lease *stamping_lease(const struct model *model, int resource, int *ret_kind, int *ret_lease) {
    int64_t fence = model->stamps[resource];
    if (fence == 0) return NULL;
    const struct model_grant *g = &model->grants[fence];
    struct model_lease *lease = lease_of(model, g->kind, g->lease);
    if (!lease->has_grant || lease->fence != fence) return NULL;
    *ret_kind = g->kind;
    *ret_lease = g->lease;
    return lease;
}

/* Is one of these resources covered by a live lease other than this? Of several the oldest grant is named. */
static bool is_blocked(const struct model *model, const struct model_lease *self, const int *resources, int count,
                       struct model_answer *answer) {
    int64_t oldest = answer->blocker_lease == MODEL_NONE ? INT64_MAX : lease_of(model, answer->blocker_kind, answer->blocker_lease)->fence;
    for (int i = 0; i < count; i++) {
        int kind, number;
        const struct model_lease *owner = stamping_lease(model, resources[i], &kind, &number);
        if (!owner || owner == self || owner->state != STATE_HELD || owner->fence >= oldest) continue;
        oldest = owner->fence;
        answer->blocker_kind = kind;
        answer->blocker_lease = number;
    }
    return oldest != INT64_MAX;
}

/* Stamps what is not stamped with this fence yet, and says how many those were. Whoever had it lapsed, and
 * can no longer finish late. */
static int64_t stamp(struct model *model, struct model_lease *lease, const int *resources, int count) {
    int64_t stamped = 0;
    for (int i = 0; i < count; i++) {
        int kind, number;
        struct model_lease *owner = stamping_lease(model, resources[i], &kind, &number);
        if (owner == lease && model->stamps[resources[i]] == lease->fence) continue;
        if (owner && owner != lease && owner->has_lapsed && !is_final(owner)) owner->is_overtaken = true;
        assert(model->stamps[resources[i]] < lease->fence); /* the fences of a resource rise */
        model->stamps[resources[i]] = lease->fence;
        stamped++;
    }
    return stamped;
}

static enum model_outcome start(struct model *model, const struct model_message *message, struct model_answer *answer) {
    const struct model_kind *kind = &model->kinds[message->kind];
    struct model_lease *lease = lease_of(model, message->kind, message->subject);
    if (is_final(lease)) return OUTCOME_FINAL;
    if (lease->state == STATE_HELD) {
        answer->blocker_kind = message->kind;
        answer->blocker_lease = message->subject;
        return OUTCOME_HELD;
    }
    int whole[MODEL_TABLES];
    for (int i = 0; i < message->table_count; i++) whole[i] = MODEL_WHOLE_TABLE(message->tables[i]);
    bool rows_blocked = is_blocked(model, lease, message->resources, message->resource_count, answer);
    bool tables_blocked = is_blocked(model, lease, whole, message->table_count, answer);
    if (rows_blocked || tables_blocked) return OUTCOME_HELD;
    grant(model, message->kind, message->subject, message->holder,
          message->ttl_ms == MODEL_NONE ? kind->ttl_default_ms : message->ttl_ms);
    lease->is_covering = message->flag;
    lease->payload = message->id;
    lease->covered = stamp(model, lease, message->resources, message->resource_count);
    stamp(model, lease, whole, message->table_count);
    answer->fence = lease->fence;
    answer->until = lease->until;
    return OUTCOME_GRANTED;
}

static bool fits(const struct model_lease *lease, const struct model_message *message) {
    return lease->has_grant && lease->fence == message->fence && lease->fence == message->claim &&
           lease->holder == message->holder && message->token_fits;
}

static void finish(struct model_lease *lease) {
    lease->state = STATE_FINISHED;
}

static void forget_grant(struct model_lease *lease) {
    lease->has_grant = false;
    lease->has_lapsed = false;
    lease->is_overtaken = false;
    lease->is_covering = false;
}

static void fail(struct model *model, const struct model_kind *kind, struct model_lease *lease, const struct model_message *message) {
    bool retry = message->flag;
    if (kind->mode == MODE_RUN) {
        lease->state = retry ? STATE_FREE : STATE_FAILED;
    } else if (!retry || lease->attempt >= kind->attempts_max) {
        lease->state = STATE_DEAD;
    } else {
        lease->state = STATE_READY;
        lease->ready_at = model->at + (message->amount == MODEL_NONE ? backoff_us(kind, lease->attempt) : message->amount * 1000);
    }
    forget_grant(lease);
}

static void release(struct model *model, const struct model_kind *kind, struct model_lease *lease) {
    lease->state = kind->mode == MODE_RUN ? STATE_FREE : STATE_READY;
    lease->ready_at = model->at;
    lease->attempt--;
    forget_grant(lease);
}

static enum model_outcome renew(struct model *model, struct model_lease *lease, const struct model_message *message,
                                struct model_answer *answer) {
    int64_t ttl_ms = message->ttl_ms == MODEL_NONE ? lease->ttl_ms : message->ttl_ms;
    int64_t until = model->at + ttl_ms * 1000;
    if (until > lease->until) lease->until = until;
    answer->until = lease->until;
    return OUTCOME_RENEWED;
}

/* The fences of a resource only rise: one that somebody got under a higher fence, and has no longer, is out of reach. */
static bool was_granted_since(const struct model *model, const struct model_lease *self, const int *resources, int count) {
    for (int i = 0; i < count; i++) {
        int kind, number;
        const struct model_lease *owner = stamping_lease(model, resources[i], &kind, &number);
        bool is_live = owner && owner->state == STATE_HELD;
        if (!is_live && model->stamps[resources[i]] > self->fence) return true;
    }
    return false;
}

static enum model_outcome cover(struct model *model, struct model_lease *lease, const struct model_message *message,
                                struct model_answer *answer) {
    if (!lease->is_covering) return OUTCOME_OUT_OF_STEP;
    if (was_granted_since(model, lease, message->resources, message->resource_count)) return OUTCOME_STALE;
    if (is_blocked(model, lease, message->resources, message->resource_count, answer)) return OUTCOME_HELD;
    answer->amount = stamp(model, lease, message->resources, message->resource_count);
    lease->covered += answer->amount;
    return OUTCOME_COVERED;
}

/* Other runs may cover the same tables from now on: only the rows stay taken. */
static enum model_outcome begin(struct model *model, struct model_lease *lease, const struct model_message *message, struct model_answer *answer) {
    if (!lease->is_covering) return OUTCOME_OUT_OF_STEP;
    answer->amount = lease->covered;
    if (message->amount != lease->covered) return OUTCOME_INCOMPLETE;
    lease->is_covering = false;
    for (int table = 0; table < MODEL_TABLES; table++)
        if (model->stamps[MODEL_WHOLE_TABLE(table)] == lease->fence) model->stamps[MODEL_WHOLE_TABLE(table)] = 0;
    return OUTCOME_GRANTED;
}

static enum model_outcome advance(const struct model_kind *kind, struct model_lease *lease, const struct model_message *message) {
    if (lease->is_covering) return OUTCOME_INCOMPLETE;
    if (message->step != lease->step + 1 || message->step > kind->steps) return OUTCOME_OUT_OF_STEP;
    lease->step++;
    return OUTCOME_ADVANCED;
}

/* What an operator says about work that nobody holds under a grant. */
static enum model_outcome resolve(struct model *model, const struct model_message *message, struct model_answer *answer) {
    struct model_lease *lease = lease_of(model, message->kind, message->subject);
    int64_t fence = lease->last_grant > 0 ? lease->last_grant : MODEL_NONE;
    bool was_given_out = lease->is_unfenced || lease->has_grant;
    if (lease->state == STATE_ABSENT) return OUTCOME_UNKNOWN;
    if (is_final(lease)) return OUTCOME_FINAL;
    if (message->fence != fence) return OUTCOME_STALE;
    if (lease->state == STATE_HELD && !lease->is_unfenced) {
        answer->blocker_kind = message->kind;
        answer->blocker_lease = message->subject;
        return OUTCOME_HELD;
    }
    if (message->verdict == VERDICT_EXTEND) {
        int64_t until = model->at + message->ttl_ms * 1000;
        if (!lease->is_unfenced) return OUTCOME_OUT_OF_STEP;
        if (!lease->is_extended || until > lease->until) lease->until = until;
        lease->is_extended = true;
        if (lease->attempt == 0) lease->attempt = 1;
        answer->until = lease->until;
        return OUTCOME_RENEWED;
    }
    lease->is_unfenced = lease->is_extended = false;
    if (message->verdict == VERDICT_DONE) {
        finish(lease);
        return OUTCOME_FINISHED;
    }
    lease->state = model->kinds[message->kind].mode == MODE_RUN ? STATE_FREE : STATE_READY;
    lease->ready_at = model->at;
    if (was_given_out && lease->attempt > 0) lease->attempt--;
    forget_grant(lease);
    return OUTCOME_RELEASED;
}

/* What somebody says who says that he holds the lease. */
static enum model_outcome from_holder(struct model *model, const struct model_message *message, struct model_answer *answer) {
    const struct model_kind *kind = &model->kinds[message->kind];
    struct model_lease *lease = lease_of(model, message->kind, message->subject);
    if (lease->state == STATE_ABSENT) return OUTCOME_UNKNOWN;
    if (is_final(lease)) return OUTCOME_FINAL;
    if (!fits(lease, message)) return OUTCOME_STALE;
    if (lease->state != STATE_HELD) { /* the last holder, late */
        if (message->command != COMMAND_FINISH) return OUTCOME_LAPSED;
        if (lease->is_overtaken) return OUTCOME_STALE;
        if (lease->is_covering) return OUTCOME_INCOMPLETE;
        finish(lease);
        return OUTCOME_FINISHED;
    }
    switch (message->command) {
    case COMMAND_COVER: return cover(model, lease, message, answer);
    case COMMAND_BEGIN: return begin(model, lease, message, answer);
    case COMMAND_RENEW: return renew(model, lease, message, answer);
    case COMMAND_ADVANCE: return advance(kind, lease, message);
    case COMMAND_FINISH:
        if (lease->is_covering) return OUTCOME_INCOMPLETE;
        finish(lease);
        return OUTCOME_FINISHED;
    case COMMAND_FAIL: fail(model, kind, lease, message); return OUTCOME_FAILED;
    case COMMAND_RELEASE: release(model, kind, lease); return OUTCOME_RELEASED;
    case COMMAND_START: case COMMAND_REQUEST: case COMMAND_CLAIM: case COMMAND_RESOLVE: case COMMAND_COUNT: break;
    }
    abort();
}

static enum model_outcome request(struct model *model, const struct model_message *message, struct model_answer *answer) {
    struct model_lease *lease = lease_of(model, message->kind, message->subject);
    if (is_final(lease)) return OUTCOME_FINAL;
    if (lease->state == STATE_HELD) {
        answer->blocker_kind = message->kind;
        answer->blocker_lease = message->subject;
        return OUTCOME_HELD;
    }
    if (lease->state == STATE_READY) return OUTCOME_REQUESTED;
    lease->state = STATE_READY;
    lease->payload = message->id;
    lease->ready_at = model->at + (message->amount == MODEL_NONE ? 0 : message->amount * 1000);
    return OUTCOME_REQUESTED;
}

/* A claim only says what the worker would take; match() hands out, and answer_claim() answers. Credit and refresh
 * only grow; for the rest the newest claim counts. A demand keeps its place in the line while it stays open. */
static void claim(struct model *model, const struct model_message *message) {
    struct model_demand *demand = &model->demands[message->kind * model->workers + message->subject];
    if (!demand->exists) *demand = (struct model_demand){.exists = true};
    if (!model_demand_is_open(demand, model->at) && !demand->is_asked) demand->opened = ++model->demand_order;
    if (message->amount > demand->credit_total) demand->credit_total = message->amount;
    if (message->refresh > demand->refresh) demand->refresh = message->refresh;
    demand->ttl_ms = message->ttl_ms == MODEL_NONE ? model->kinds[message->kind].ttl_default_ms : message->ttl_ms;
    demand->wait_until = model->at + (message->wait_ms == MODEL_NONE ? 0 : message->wait_ms * 1000);
    demand->id = message->id;
    demand->is_asked = true;
}

/* Oldest first; of equals the one whose name comes first. */
static struct model_lease *next_ready(struct model *model, int kind, int *ret_lease) {
    struct model_lease *best = NULL;
    for (int number = 0; number < model->leases_per_kind; number++) {
        struct model_lease *lease = lease_of(model, kind, number);
        if (lease->state != STATE_READY || lease->ready_at > model->at || lease->is_unseen) continue;
        if (best && best->ready_at <= lease->ready_at) continue;
        best = lease;
        *ret_lease = number;
    }
    return best;
}

static struct model_demand *next_demand(struct model *model, int kind, int *ret_worker) {
    struct model_demand *best = NULL;
    for (int worker = 0; worker < model->workers; worker++) {
        struct model_demand *demand = &model->demands[kind * model->workers + worker];
        if (!model_demand_is_open(demand, model->at) || (best && best->opened < demand->opened)) continue;
        best = demand;
        *ret_worker = worker;
    }
    return best;
}

/* First asked, first served; a demand that does not wait is closed afterwards. */
static void match(struct model *model) {
    int granted = 0;
    for (int kind = 0; kind < model->kind_count; kind++) {
        while (model->kinds[kind].mode == MODE_POOL && granted < MODEL_GRANTS_MAX) {
            int worker, number;
            struct model_demand *demand = next_demand(model, kind, &worker);
            if (!demand) break;
            struct model_lease *item = next_ready(model, kind, &number);
            if (!item) break;
            grant(model, kind, number, worker, demand->ttl_ms);
            granted++;
            demand->granted++;
            demand->granted_now++;
            record(model, kind, number, OUTCOME_GRANTED, false, demand->id);
            model->events[model->event_count - 1].refresh = demand->refresh;
        }
    }
    for (int i = 0; i < model->kind_count * model->workers; i++) {
        struct model_demand *demand = &model->demands[i];
        if (demand->is_asked && demand->wait_until <= model->at) demand->wait_until = INT64_MIN;
        demand->is_asked = false;
    }
}

/* A worker's grants are reported to the newest of its claims in the step. */
static void answer_claim(struct model *model, const struct model_message *message, struct model_answer *answer) {
    const struct model_demand *demand = model_demand(model, message->kind, message->subject);
    answer->amount = demand->id == message->id ? demand->granted_now : 0;
    if (answer->amount > 0) answer->outcome = OUTCOME_GRANTED;
    else if (model_demand_is_open(demand, model->at) && message->wait_ms > 0) answer->outcome = OUTCOME_WAITING;
    else answer->outcome = OUTCOME_EMPTY;
}

static bool is_of_mode(enum model_command command, enum model_mode mode) {
    switch (command) {
    case COMMAND_START: case COMMAND_COVER: case COMMAND_BEGIN: return mode == MODE_RUN;
    case COMMAND_REQUEST: case COMMAND_CLAIM: return mode == MODE_POOL;
    default: return true;
    }
}

static enum model_outcome decide(struct model *model, const struct model_message *message, struct model_answer *answer) {
    const struct model_kind *kind = &model->kinds[message->kind];
    struct model_seen *seen = &model->seen[message->id];
    if (message->malformed) return OUTCOME_MALFORMED;
    if (!is_of_mode(message->command, kind->mode)) return OUTCOME_MALFORMED;
    if (message->ttl_ms > kind->ttl_max_ms) return OUTCOME_MALFORMED;
    if (seen->is_seen) {
        if (seen->digest != message->digest) return OUTCOME_MALFORMED;
        answer->original = seen->outcome;
        return OUTCOME_DUPLICATE;
    }
    seen->is_seen = true;
    seen->digest = message->digest;
    if (message->role == ROLE_HEAD) return OUTCOME_ANSWERED;
    switch (message->command) {
    case COMMAND_START: return start(model, message, answer);
    case COMMAND_REQUEST: return request(model, message, answer);
    case COMMAND_RESOLVE: return resolve(model, message, answer);
    case COMMAND_CLAIM: claim(model, message); return OUTCOME_WAITING; /* until answer_claim */
    default: return from_holder(model, message, answer);
    }
}

/* An item of a command over many: as if it had been named alone, but that only what ends it is told of it. */
static void apply_member(struct model *model, const struct model_message *message, struct model_answer *answer) {
    answer->outcome = from_holder(model, message, answer);
    model_see(model, message->kind, message->subject);
    if (answer->outcome == OUTCOME_FINISHED || answer->outcome == OUTCOME_FAILED || answer->outcome == OUTCOME_RELEASED)
        record(model, message->kind, message->subject, answer->outcome, true, message->id);
}

void model_apply(struct model *model, const struct model_message *messages, size_t count, struct model_answer *answers) {
    bool is_open = false; /* the head before was not refused */
    for (size_t i = 0; i < count; i++) {
        const struct model_message *message = &messages[i];
        answers[i] = (struct model_answer){.blocker_kind = MODEL_NONE, .blocker_lease = MODEL_NONE, .outcome = OUTCOME_NONE};
        if (message->role == ROLE_MEMBER) {
            if (is_open) apply_member(model, message, &answers[i]);
            continue;
        }
        is_open = false;
        answers[i].outcome = decide(model, message, &answers[i]);
        if (answers[i].outcome <= OUTCOME_DUPLICATE) continue;
        if (message->command == COMMAND_CLAIM) {
            see_what_is_due(model, message->kind);
            continue;
        }
        model->seen[message->id].outcome = answers[i].outcome;
        is_open = message->role == ROLE_HEAD;
        if (is_open) continue;
        model_see(model, message->kind, message->subject);
        record(model, message->kind, message->subject, answers[i].outcome, true, message->id);
    }
    match(model);
    for (size_t i = 0; i < count; i++) {
        if (messages[i].command != COMMAND_CLAIM || answers[i].outcome <= OUTCOME_DUPLICATE) continue;
        answer_claim(model, &messages[i], &answers[i]);
        model->seen[messages[i].id].outcome = answers[i].outcome;
    }
    for (size_t i = 0; i < count; i++)
        if (answers[i].outcome == OUTCOME_DUPLICATE) answers[i].original = model->seen[messages[i].id].outcome;
}

void model_reap(struct model *model) { match(model); }
