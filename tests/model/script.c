/* What a random step looks like. Every probability here is a guess at what is worth running into often. */
#include "script.h"

#include <stdlib.h>
#include <string.h>

#define KINDS_MAX 8
#define HELD_MAX 2000
#define RECENT 512 /* messages that a later one may repeat */

struct generator {
    uint64_t random;
    const struct model_kind *kinds;
    int kind_count, leases_per_kind, workers;
    int64_t messages, next_message;
    int64_t at;
    int *window_start; /* per kind: leases window_start … + window_width are in play */
    int window_width;
    int resource_width;
    int only_kind;
    int held[KINDS_MAX][HELD_MAX], held_count[KINDS_MAX];
    struct command recent[RECENT]; /* shallow: their lists belong to the script */
    size_t recent_count;
};

static uint64_t draw(struct generator *g) { /* xorshift64*, good enough and the same everywhere */
    g->random ^= g->random >> 12;
    g->random ^= g->random << 25;
    g->random ^= g->random >> 27;
    return g->random * UINT64_C(2685821657736338717);
}

static int below(struct generator *g, int bound) { return (int)((draw(g) >> 33) % (uint64_t)bound); }
static bool chance(struct generator *g, int percent) { return below(g, 100) < percent; }
static int pick(struct generator *g, const int *of, int count) { return of[below(g, count)]; }

/* 1 … bound, each order of magnitude as likely as the next. */
static int64_t any_size(struct generator *g, int64_t bound) {
    int bits = 0;
    while (bits < 40 && (INT64_C(1) << bits) < bound) bits++;
    int64_t size = 1 + (int64_t)(draw(g) >> 20) % (INT64_C(1) << below(g, bits + 1));
    return size > bound ? bound : size;
}

struct generator *generator_new(uint64_t seed, const struct model_kind *kinds, int kind_count, int leases_per_kind,
                                int workers, int64_t messages, int64_t at) {
    struct generator *g = calloc(1, sizeof *g);
    if (!g) abort();
    g->random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    if (!g->random) g->random = 1;
    for (int i = 0; i < 8; i++) draw(g);
    if (kind_count > KINDS_MAX) abort();
    g->kinds = kinds;
    g->kind_count = kind_count;
    g->leases_per_kind = leases_per_kind;
    g->workers = workers;
    g->messages = messages;
    g->at = at;
    g->window_start = calloc((size_t)kind_count, sizeof *g->window_start);
    if (!g->window_start) abort();
    g->window_width = 3;
    g->resource_width = 5;
    g->only_kind = MODEL_NONE;
    return g;
}

void generator_free(struct generator *g) {
    if (!g) return;
    free(g->window_start);
    free(g);
}

/* Now and then the play moves: contention on few leases, or many at rest. */
static void change_scene(struct generator *g) {
    g->window_width = pick(g, (const int[]){1, 2, 3, 8, 30, 200, 1500}, 7);
    if (g->window_width > g->leases_per_kind) g->window_width = g->leases_per_kind;
    g->resource_width = pick(g, (const int[]){2, 5, 40, 1000, MODEL_TABLE_SIZE - 1}, 5);
    g->only_kind = chance(g, 50) ? below(g, g->kind_count) : MODEL_NONE;
}

/* Final leases are left behind, or there would soon be nothing else. */
static void move_window(struct generator *g, const struct model *model, int kind) {
    int final = 0;
    int *start = &g->window_start[kind];
    for (int i = 0; i < g->window_width && *start + i < g->leases_per_kind; i++) {
        enum model_state state = model_lease(model, kind, *start + i)->state;
        final += state == STATE_FINISHED || state == STATE_FAILED || state == STATE_DEAD;
    }
    if (final * 10 > g->window_width * 3) *start += (g->window_width + 1) / 2;
    if (*start + g->window_width > g->leases_per_kind) *start = below(g, g->leases_per_kind - g->window_width + 1);
}

static int any_lease(struct generator *g, int kind) { return g->window_start[kind] + below(g, g->window_width); }

/* What is held in the window now: most of what holders say is about these. */
static void list_held(struct generator *g, const struct model *model) {
    for (int kind = 0; kind < g->kind_count; kind++) {
        g->held_count[kind] = 0;
        for (int i = 0; i < g->window_width; i++) {
            int lease = g->window_start[kind] + i;
            const struct model_lease *l = model_lease(model, kind, lease);
            bool is_of_interest = l->state == STATE_HELD || (l->has_lapsed && l->has_grant && chance(g, 20));
            if (is_of_interest && g->held_count[kind] < HELD_MAX) g->held[kind][g->held_count[kind]++] = lease;
        }
    }
}

static int any_granted_lease(struct generator *g, const struct model *model, int kind, bool rather_covering) {
    if (g->held_count[kind] == 0) return any_lease(g, kind);
    int lease = g->held[kind][below(g, g->held_count[kind])];
    for (int tries = 0; tries < 20 && rather_covering && !model_lease(model, kind, lease)->is_covering; tries++)
        lease = g->held[kind][below(g, g->held_count[kind])];
    return lease;
}

static int64_t any_ttl_ms(struct generator *g, const struct model_kind *kind) {
    if (chance(g, 50)) return MODEL_NONE;
    return chance(g, 50) ? kind->ttl_max_ms - below(g, (int)(kind->ttl_max_ms / 2)) : any_size(g, kind->ttl_max_ms);
}

static void any_resources(struct generator *g, struct command *command, bool some) {
    int count = chance(g, 60) ? 1 + below(g, 3) : chance(g, 85) ? 1 + below(g, 20) : 1 + below(g, 300);
    if (!some && chance(g, 30)) count = 0;
    command->resources = malloc(sizeof(int) * (size_t)(count + 1));
    if (!command->resources) abort();
    for (int i = 0; i < count; i++)
        command->resources[i] = below(g, MODEL_TABLES) * MODEL_TABLE_SIZE + below(g, g->resource_width);
    command->message.resource_count = count;
    command->message.resources = command->resources;
}

static void any_tables(struct generator *g, struct command *command) {
    int count = below(g, MODEL_TABLES + 1);
    command->tables = malloc(sizeof(int) * (size_t)(count + 1));
    if (!command->tables) abort();
    for (int i = 0; i < count; i++) command->tables[i] = below(g, MODEL_TABLES);
    command->message.table_count = count;
    command->message.tables = command->tables;
}

/* Who speaks: mostly the last holder, sometimes an earlier one, sometimes somebody with something wrong. */
static void any_voice(struct generator *g, const struct model *model, struct command *command) {
    const struct model_lease *lease = model_lease(model, command->message.kind, command->message.subject);
    int count = lease->grant_count;
    command->grant_nth = chance(g, 80) ? count : chance(g, 70) ? below(g, count + 1) : 0;
    command->message.token_fits = true;
    if (chance(g, 85)) return;
    switch (below(g, 4)) {
    case 0: command->message.token_fits = false; break;
    case 1: command->wrong_holder = true; break;
    case 2: command->wrong_claim = true; break;
    default: command->fence_error = chance(g, 50) ? 1 : -1; break;
    }
}

static enum model_command any_command(struct generator *g, enum model_mode mode) {
    static const enum model_command run[] = {
        COMMAND_START, COMMAND_START, COMMAND_START, COMMAND_START, COMMAND_COVER, COMMAND_COVER, COMMAND_BEGIN,
        COMMAND_BEGIN, COMMAND_RENEW, COMMAND_RENEW, COMMAND_RENEW, COMMAND_ADVANCE, COMMAND_ADVANCE, COMMAND_FINISH, COMMAND_FAIL,
        COMMAND_RELEASE, COMMAND_RESOLVE};
    static const enum model_command pool[] = {
        COMMAND_REQUEST, COMMAND_REQUEST, COMMAND_REQUEST, COMMAND_REQUEST, COMMAND_CLAIM, COMMAND_CLAIM, COMMAND_CLAIM,
        COMMAND_RENEW, COMMAND_RENEW, COMMAND_FINISH, COMMAND_FINISH, COMMAND_FAIL, COMMAND_FAIL, COMMAND_RELEASE, COMMAND_RESOLVE};
    if (chance(g, 1)) return (enum model_command)below(g, COMMAND_COUNT);
    if (mode == MODE_RUN) return run[below(g, (int)(sizeof run / sizeof *run))];
    return pool[below(g, (int)(sizeof pool / sizeof *pool))];
}

static void fill_claim(struct generator *g, const struct model *model, struct model_message *message) {
    message->subject = chance(g, 70) ? below(g, 3) : below(g, g->workers);
    const struct model_demand *demand = model_demand(model, message->kind, message->subject);
    message->holder = message->subject;
    message->amount = demand->granted + below(g, 6) - (chance(g, 20) ? 3 : 0);
    if (chance(g, 10)) message->amount = demand->granted + any_size(g, 500);
    if (message->amount < 0) message->amount = 0;
    message->refresh = demand->exists ? demand->refresh + 1 : 1;
    if (chance(g, 25)) message->refresh -= below(g, 3);
    if (message->refresh < 0) message->refresh = 0;
    message->wait_ms = chance(g, 30) ? MODEL_NONE : chance(g, 15) ? 0 : any_size(g, 40000);
    message->ttl_ms = any_ttl_ms(g, &g->kinds[message->kind]);
}

/* Now and then about one from before fencing (compare.c puts them there), which no window stays at. */
static void fill_resolve(struct generator *g, const struct model *model, struct command *command) {
    struct model_message *message = &command->message;
    message->subject = chance(g, 20) ? 7 * below(g, 3) : any_lease(g, message->kind);
    message->verdict = chance(g, 40) ? VERDICT_EXTEND : (enum model_verdict)below(g, VERDICT_COUNT);
    if (message->verdict == VERDICT_EXTEND) message->ttl_ms = any_size(g, g->kinds[message->kind].ttl_max_ms);
    any_voice(g, model, command);
}

static void fill(struct generator *g, const struct model *model, struct command *command) {
    struct model_message *message = &command->message;
    const struct model_kind *kind = &g->kinds[message->kind];
    const struct model_lease *lease;
    switch (message->command) {
    case COMMAND_START:
        message->subject = any_lease(g, message->kind);
        message->holder = below(g, 20);
        message->ttl_ms = any_ttl_ms(g, kind);
        message->flag = chance(g, 35);
        any_resources(g, command, false);
        if (message->flag) any_tables(g, command);
        return;
    case COMMAND_REQUEST:
        message->subject = any_lease(g, message->kind);
        if (chance(g, 30)) message->amount = below(g, 4) * any_size(g, 5000);
        return;
    case COMMAND_CLAIM: fill_claim(g, model, message); return;
    case COMMAND_RESOLVE: fill_resolve(g, model, command); return;
    default: break;
    }
    bool is_about_covering = message->command == COMMAND_COVER || message->command == COMMAND_BEGIN;
    message->subject = chance(g, 90) ? any_granted_lease(g, model, message->kind, is_about_covering) : any_lease(g, message->kind);
    lease = model_lease(model, message->kind, message->subject);
    any_voice(g, model, command);
    switch (message->command) {
    case COMMAND_COVER: any_resources(g, command, true); break;
    case COMMAND_BEGIN: message->amount = lease->covered + (chance(g, 25) ? below(g, 3) : 0); break;
    case COMMAND_RENEW: message->ttl_ms = any_ttl_ms(g, kind); break;
    case COMMAND_ADVANCE: message->step = chance(g, 75) ? lease->step + 1 : below(g, 5); break;
    case COMMAND_FAIL:
        message->flag = chance(g, 75);
        if (chance(g, 40)) message->amount = below(g, 3) * any_size(g, 5000);
        break;
    default: break;
    }
}

static void any_fault(struct generator *g, struct command *command) {
    if (chance(g, 97)) return;
    if (chance(g, 50)) command->message.malformed = true;
    else command->message.ttl_ms = g->kinds[command->message.kind].ttl_max_ms + 1 + below(g, 3);
}

static int *copy_of(const int *from, int count) {
    int *copy = malloc(sizeof(int) * (size_t)(count + 1));
    if (!copy) abort();
    if (count > 0) memcpy(copy, from, sizeof(int) * (size_t)count);
    return copy;
}

/* A head over many items: its members come behind it. */
static bool is_for_many(struct generator *g, enum model_command command) {
    return (command == COMMAND_RENEW || command == COMMAND_FINISH || command == COMMAND_FAIL || command == COMMAND_RELEASE) && chance(g, 10);
}

static void fill_head(struct generator *g, struct model_message *message) {
    message->role = ROLE_HEAD;
    message->subject = message->holder = below(g, g->workers);
    if (message->command == COMMAND_RENEW) message->ttl_ms = any_ttl_ms(g, &g->kinds[message->kind]);
}

static void any_member(struct generator *g, const struct model *model, struct command *command, const struct model_message *head) {
    *command = (struct command){.message = *head};
    command->message.role = ROLE_MEMBER;
    command->message.holder = MODEL_NONE;
    fill(g, model, command);
    command->message.ttl_ms = head->ttl_ms;
}

static bool repeat(struct generator *g, struct command *command) {
    if (g->recent_count == 0 || !chance(g, 5)) return false;
    size_t among = g->recent_count < RECENT ? g->recent_count : RECENT;
    *command = g->recent[draw(g) % among];
    command->resources = copy_of(command->message.resources, command->message.resource_count);
    command->tables = copy_of(command->message.tables, command->message.table_count);
    command->message.resources = command->resources;
    command->message.tables = command->tables;
    if (chance(g, 25)) command->message.digest++;
    return true;
}

static void any_message(struct generator *g, const struct model *model, struct command *command, int kind) {
    if (repeat(g, command)) return;
    *command = (struct command){.message = {
        .kind = kind, .id = g->next_message++, .ttl_ms = MODEL_NONE, .amount = MODEL_NONE, .refresh = MODEL_NONE,
        .wait_ms = MODEL_NONE, .holder = MODEL_NONE, .fence = MODEL_NONE, .claim = MODEL_NONE}};
    command->message.command = any_command(g, g->kinds[kind].mode);
    if (is_for_many(g, command->message.command)) fill_head(g, &command->message);
    else fill(g, model, command);
    any_fault(g, command);
    g->recent[g->recent_count++ % RECENT] = *command;
}

/* A moment at which something is about to happen, or has just happened. */
static int64_t near_a_deadline(struct generator *g, const struct model *model) {
    int64_t best = INT64_MAX;
    for (int tries = 0; tries < 12; tries++) {
        int kind = below(g, g->kind_count);
        const struct model_lease *lease = model_lease(model, kind, any_lease(g, kind));
        const struct model_demand *demand = model_demand(model, kind, below(g, g->workers));
        int64_t moment = lease->state == STATE_HELD ? lease->until : lease->state == STATE_READY ? lease->ready_at : 0;
        if (demand->exists && chance(g, 15)) moment = demand->wait_until;
        if (moment > g->at && moment < best) best = moment;
    }
    if (best == INT64_MAX) return g->at;
    return best + below(g, 3) - 1;
}

static void move_time(struct generator *g, const struct model *model) {
    int64_t at = g->at;
    switch (below(g, 10)) {
    case 0: break;
    case 1: case 2: at += below(g, 1000); break;
    case 3: at += below(g, 100000); break;
    case 4: at += below(g, 2000000); break;
    case 5: if (chance(g, 15)) at += INT64_C(70000000); break;
    default: at = near_a_deadline(g, model); break;
    }
    if (at > g->at) g->at = at;
}

static struct step *add_step(struct script *script) {
    if (script->count == script->room) {
        script->room = script->room ? script->room * 2 : 256;
        script->steps = realloc(script->steps, script->room * sizeof *script->steps);
        if (!script->steps) abort();
    }
    struct step *step = &script->steps[script->count++];
    *step = (struct step){0};
    return step;
}

struct step *generator_step(struct generator *g, const struct model *model, struct script *script, size_t limit) {
    if (chance(g, 15)) change_scene(g);
    for (int kind = 0; kind < g->kind_count; kind++) move_window(g, model, kind);
    move_time(g, model);
    list_held(g, model);
    struct step *step = add_step(script);
    step->at = g->at;
    if (chance(g, 20)) {
        step->type = STEP_REAP;
        step->limit = chance(g, 50) ? 1 + below(g, 3) : 10000;
        return step;
    }
    step->type = STEP_APPLY;
    step->count = (size_t)any_size(g, 1000);
    if (step->count > limit) step->count = limit;
    if ((int64_t)step->count > g->messages - g->next_message) step->count = (size_t)(g->messages - g->next_message);
    step->commands = calloc(step->count + 1, sizeof *step->commands);
    if (!step->commands) abort();
    for (size_t i = 0; i < step->count;) {
        const struct model_message *head = &step->commands[i].message;
        any_message(g, model, &step->commands[i++], g->only_kind == MODEL_NONE ? below(g, g->kind_count) : g->only_kind);
        size_t members = head->role == ROLE_HEAD ? (size_t)any_size(g, 60) : 0;
        for (; members > 0 && i < step->count; members--) any_member(g, model, &step->commands[i++], head);
    }
    return step;
}

void script_resolve(const struct command *command, const struct model *model, struct model_message *ret) {
    *ret = command->message;
    if (ret->command == COMMAND_START || ret->command == COMMAND_REQUEST || ret->command == COMMAND_CLAIM || ret->role == ROLE_HEAD) return;
    int64_t fence = model_grant_nth(model, ret->kind, ret->subject, command->grant_nth);
    bool is_foreign = fence == MODEL_NONE;
    if (ret->command == COMMAND_RESOLVE) { /* no holder's: he says which fence he saw; one to come nobody has seen */
        ret->fence = is_foreign ? MODEL_NONE : fence + command->fence_error;
        if (ret->fence == 0 || command->fence_error > 0) ret->fence = SCRIPT_FOREIGN_FENCE;
        return;
    }
    ret->fence = (is_foreign ? SCRIPT_FOREIGN_FENCE : fence) + command->fence_error;
    if (ret->fence < 1) ret->fence = SCRIPT_FOREIGN_FENCE;
    ret->claim = is_foreign || command->wrong_claim ? (fence > 1 ? fence - 1 : 0) : fence;
    ret->holder = is_foreign ? 0 : model_grant(model, fence)->holder;
    if (command->wrong_holder) ret->holder++;
}

void script_release(struct script *script) {
    for (size_t s = 0; s < script->count; s++) {
        for (size_t i = 0; i < script->steps[s].count; i++) {
            free(script->steps[s].commands[i].resources);
            free(script->steps[s].commands[i].tables);
        }
        free(script->steps[s].commands);
    }
    free(script->steps);
    *script = (struct script){0};
}
