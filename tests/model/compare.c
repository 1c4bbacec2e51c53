/* One run: a fresh model, a fresh database, and the same steps for both.
 *
 * The journal is compared lease by lease: each lease has a queue of events that the model expects, and every
 * journal row about it must be the next of them. The one freedom: the database may not have met a lapse yet
 * that the model (which looks everywhere at once) has seen. Then, and only then, may a queue keep an event. */
#include "compare.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct expected {
    struct model_event event;
    struct expected *next;
};

struct queue {
    struct expected *first, *last;
};

struct run {
    const struct setting *setting;
    struct model *model;
    struct database *database;
    struct queue *queues; /* one per lease */
    size_t pending;
    int64_t last_number, last_fence_mapped, at;
    struct failure *failure;
    struct tally *tally;
};

static bool differ(struct run *run, long command, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool differ(struct run *run, long command, const char *format, ...) {
    va_list list;
    va_start(list, format);
    run->failure->command = command;
    vsnprintf(run->failure->text, sizeof run->failure->text, format, list);
    va_end(list);
    return false;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int kind_number(const struct run *run, const char *name) {
    for (int i = 0; i < run->setting->kind_count; i++)
        if (strcmp(run->setting->kinds[i].name, name) == 0) return i;
    return -1;
}

static struct queue *queue_of(struct run *run, int kind, int lease) {
    return &run->queues[kind * run->setting->leases_per_kind + lease];
}

static void expect(struct run *run) {
    size_t count;
    const struct model_event *events = model_events(run->model, &count);
    for (size_t i = 0; i < count; i++) {
        struct queue *queue = queue_of(run, events[i].kind, events[i].lease);
        struct expected *expected = calloc(1, sizeof *expected);
        if (!expected) abort();
        expected->event = events[i];
        if (queue->last) queue->last->next = expected;
        else queue->first = expected;
        queue->last = expected;
        run->pending++;
    }
}

/* Tells the model which lapses the database has met. It turns them over itself. */
static void see(struct run *run) {
    size_t count;
    struct database_event *rows = database_events(run->database, run->last_number, &count);
    for (size_t i = 0; i < count; i++) {
        int kind = kind_number(run, rows[i].kind);
        if (kind < 0 || *rows[i].subject != 's' || *rows[i].message_id) continue;
        if (strcmp(rows[i].event, "lapsed") == 0 || strcmp(rows[i].event, "dead") == 0) model_see(run->model, kind, atoi(rows[i].subject + 1));
    }
    free(rows);
}

static bool take_expected(struct run *run, int kind, int lease, struct model_event *ret) {
    struct queue *queue = queue_of(run, kind, lease);
    struct expected *expected = queue->first;
    if (!expected) return false;
    *ret = expected->event;
    queue->first = expected->next;
    if (!queue->first) queue->last = NULL;
    free(expected);
    run->pending--;
    return true;
}

/* ---- answers ---- */

static bool compare_answer(struct run *run, long i, const struct model_answer *model, const struct database_answer *database) {
    const char *expected = model->outcome == OUTCOME_NONE ? "" : model_outcome_names[model->outcome];
    if (strcmp(database->outcome, expected) != 0)
        return differ(run, i, "outcome: the model says %s, the database %s", expected, database->outcome);
    if (model->fence > 0) {
        if (database->fence == MODEL_NONE || !*database->claim_id) return differ(run, i, "a grant without fence or claim id");
        database_map_grant(run->database, model->fence, database->fence, database->claim_id);
    }
    if (model->until > 0 && database->until != model->until)
        return differ(run, i, "expiry: the model says %lld, the database %lld", (long long)model->until, (long long)database->until);
    return true;
}

/* ---- the journal ---- */

struct number_of_answer {
    int64_t number;
    size_t command;
};

static int by_number(const void *a, const void *b) {
    const struct number_of_answer *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static bool compare_event(struct run *run, const struct database_event *row, const struct model_event *event, long command) {
    const char *name = model_outcome_names[event->event], *state = model_state_names[event->state];
    int64_t fence = database_fence(run->database, event->fence);
#define SAME(what, is_same, model_value, database_value)                                                                   \
    if (!(is_same))                                                                                                        \
        return differ(run, command, "journal %lld, %s of %s %s: %s: the model says %lld, the database %lld", (long long)row->number, \
                      name, row->kind, row->subject, what, (long long)(model_value), (long long)(database_value))
    bool has_fence = event->fence > 0; /* work from before fencing has none */
    if (event->event == OUTCOME_LAPSED && !event->is_answer && has_fence) SAME("fence floor", row->min_fence == fence + 1, fence + 1, row->min_fence);
    if (event->event == EVENT_DEAD && has_fence) SAME("fence floor", row->min_fence == fence + 1, fence + 1, row->min_fence);
    if (event->event < OUTCOME_WAITING && event->is_answer) return true;
    SAME("attempt", row->attempt == event->attempt, event->attempt, row->attempt);
    if (strcmp(row->state, state) != 0)
        return differ(run, command, "journal %lld, %s of %s %s: state: the model says %s, the database %s", (long long)row->number, name,
                      row->kind, row->subject, state, row->state);
    if (event->event == OUTCOME_GRANTED || event->event == OUTCOME_RENEWED) {
        SAME("fence", row->fence == fence || !has_fence, fence, row->fence);
        SAME("expiry", row->until == event->until, event->until, row->until);
    }
    if (event->event == OUTCOME_GRANTED && !event->is_answer) {
        SAME("refresh", row->refresh == event->refresh, event->refresh, row->refresh);
        SAME("message", atoll(row->message_id + 1) == event->id, event->id, atoll(row->message_id + 1));
        SAME("payload", atoll(row->payload + 1) == model_lease(run->model, event->kind, event->lease)->payload,
             model_lease(run->model, event->kind, event->lease)->payload, atoll(row->payload + 1));
    }
    if (event->event == OUTCOME_ADVANCED && strcmp(row->step, name_step(event->step)) != 0)
        return differ(run, command, "journal %lld: step: the model says %s, the database %s", (long long)row->number, name_step(event->step), row->step);
#undef SAME
    return true;
}

/* A row about a lease: the next that the model expects of it. */
static bool compare_lease_row(struct run *run, const struct database_event *row, const struct model_message *message, long command) {
    struct model_event event;
    int kind = kind_number(run, row->kind), lease = atoi(row->subject + 1);
    if (kind < 0 || *row->subject != 's') return differ(run, command, "journal %lld: of unknown %s %s", (long long)row->number, row->kind, row->subject);
    if (!take_expected(run, kind, lease, &event))
        return differ(run, command, "journal %lld: %s of %s %s, which the model does not know of", (long long)row->number, row->event, row->kind, row->subject);
    if (strcmp(row->event, model_outcome_names[event.event]) != 0 || event.is_answer != (message != NULL) ||
        (message && event.id != message->id))
        return differ(run, command, "journal %lld: %s of %s %s, where the model has %s%s (message %lld)", (long long)row->number, row->event, row->kind,
                      row->subject, model_outcome_names[event.event], event.is_answer ? ", an answer" : "", (long long)event.id);
    if (event.event == OUTCOME_GRANTED && !event.is_answer) database_map_grant(run->database, event.fence, row->fence, row->claim_id);
    return compare_event(run, row, &event, command);
}

static bool compare_answer_row(struct run *run, const struct database_event *row, const struct model_message *message,
                               const struct model_answer *answer, long command) {
    if (strcmp(row->event, model_outcome_names[answer->outcome]) != 0)
        return differ(run, command, "journal %lld says %s, the answer was %s", (long long)row->number, row->event, model_outcome_names[answer->outcome]);
    if (atoll(row->message_id + 1) != message->id) return differ(run, command, "journal %lld names message %s", (long long)row->number, row->message_id);
    if (answer->outcome == OUTCOME_DUPLICATE && strcmp(row->original, model_outcome_names[answer->original]) != 0)
        return differ(run, command, "a duplicate's original: the model says %s, the database %s", model_outcome_names[answer->original], row->original);
    bool has_amount = message->command == COMMAND_CLAIM || message->command == COMMAND_COVER || message->command == COMMAND_BEGIN;
    if (has_amount && answer->outcome > OUTCOME_EMPTY && row->amount != answer->amount)
        return differ(run, command, "amount: the model says %lld, the database %lld", (long long)answer->amount, (long long)row->amount);
    return true;
}

/* Whoever is named as the holder in the way must be one. */
static bool compare_blocker(struct run *run, const struct database_event *row, const struct model_answer *answer, long command) {
    if (answer->outcome != OUTCOME_HELD) return true;
    int kind = kind_number(run, row->blocker_kind);
    if (kind < 0 || *row->blocker_lease != 's') return differ(run, command, "held, but by whom is not said");
    if (kind == answer->blocker_kind && atoi(row->blocker_lease + 1) == answer->blocker_lease) return true;
    return differ(run, command, "held by: the model says lease %d, the database %s", answer->blocker_lease, row->blocker_lease);
}

/* The member that such a row is of, if it is any's: a command over many tells of what it ended, beside its answer. */
static const struct model_message *member_of(const struct model_message *messages, size_t count, const struct database_event *row) {
    bool is_end = strcmp(row->event, "finished") == 0 || strcmp(row->event, "failed") == 0 || strcmp(row->event, "released") == 0;
    for (size_t i = 0; is_end && i < count; i++)
        if (messages[i].role == ROLE_MEMBER && messages[i].subject == atoi(row->subject + 1) && messages[i].id == atoll(row->message_id + 1))
            return &messages[i];
    return NULL;
}

static bool compare_journal(struct run *run, const struct model_message *messages, const struct model_answer *answers,
                            const struct database_answer *rows, size_t count) {
    size_t event_count, answered = 0, due = 0;
    bool is_same = true;
    struct number_of_answer *numbers = calloc(count + 1, sizeof *numbers);
    struct database_event *events = database_events(run->database, run->last_number, &event_count);
    if (!numbers) abort();
    for (size_t i = 0; i < count; i++)
        if (messages[i].role != ROLE_MEMBER) numbers[due++] = (struct number_of_answer){rows[i].number, i};
    if (due > 0) qsort(numbers, due, sizeof *numbers, by_number);
    for (size_t e = 0; e < event_count && is_same; e++) {
        const struct database_event *row = &events[e];
        if (row->number != run->last_number + 1) {
            is_same = differ(run, -1, "the journal goes from %lld to %lld", (long long)run->last_number, (long long)row->number);
            break;
        }
        run->last_number = row->number;
        struct number_of_answer key = {row->number, 0};
        struct number_of_answer *found = due ? bsearch(&key, numbers, due, sizeof *numbers, by_number) : NULL;
        if (!found) {
            is_same = compare_lease_row(run, row, member_of(messages, count, row), -1);
            continue;
        }
        const struct model_message *message = &messages[found->command];
        const struct model_answer *answer = &answers[found->command];
        answered++;
        is_same = compare_answer_row(run, row, message, answer, (long)found->command) &&
                  compare_blocker(run, row, answer, (long)found->command);
        if (is_same && answer->outcome > OUTCOME_DUPLICATE && message->command != COMMAND_CLAIM && message->role == ROLE_ALONE)
            is_same = compare_lease_row(run, row, message, (long)found->command);
    }
    if (is_same && answered != due) is_same = differ(run, -1, "%zu commands, %zu answers in the journal", due, answered);
    run->tally->events += event_count;
    free(events);
    free(numbers);
    return is_same;
}

/* Both drew the same fences in the same order, and the database no other: nothing was rolled back here. */
static bool compare_fences(struct run *run) {
    for (int64_t fence = run->last_fence_mapped + 1; fence <= model_fence_last(run->model); fence++) {
        int64_t here = database_fence(run->database, fence), before = database_fence(run->database, fence - 1);
        if (here == 0) return differ(run, -1, "grant %lld of the model has no counterpart", (long long)fence);
        if (fence > 1 && here != before + 1)
            return differ(run, -1, "fences: the model's %lld and %lld are the database's %lld and %lld", (long long)fence - 1, (long long)fence,
                          (long long)before, (long long)here);
    }
    run->last_fence_mapped = model_fence_last(run->model);
    return true;
}

/* ---- what is stored ---- */

static const char *condition_of(const struct model_lease *lease) {
    if (lease->state != STATE_HELD) return model_state_names[lease->state];
    return lease->is_unfenced ? "unfenced" : lease->is_covering ? "covering" : "held";
}

static bool compare_lease(struct run *run, const struct database_lease *row) {
    int kind_index = kind_number(run, row->kind), number = atoi(row->lease + 1);
    if (kind_index < 0) return differ(run, -1, "a lease of unknown kind %s", row->kind);
    const struct model_kind *kind = &run->setting->kinds[kind_index];
    const struct model_lease *lease = model_lease(run->model, kind_index, number);
    char holder[NAME_SIZE];
#define DIFFER(what, format, model_value, database_value)                                                        \
    return differ(run, -1, "lease %s %s: %s: the model says " format ", the database " format, row->kind, row->lease, what, \
                  model_value, database_value)
    bool lapsed_unseen = strcmp(row->state, "held") == 0 && row->until != MODEL_NONE && row->until <= run->at;
    if (lapsed_unseen && !lease->has_lapsed) DIFFER("state", "%s", model_state_names[lease->state], "lapsed");
    if (lapsed_unseen != (queue_of(run, kind_index, number)->first != NULL))
        return differ(run, -1, "lease %s %s: lapsed, but %s", row->kind, row->lease, lapsed_unseen ? "that was journaled already" : "the journal lacks it");
    if (!lapsed_unseen && strcmp(row->state, model_state_names[lease->state]) != 0) DIFFER("state", "%s", model_state_names[lease->state], row->state);
    if (!lapsed_unseen && strcmp(row->condition, condition_of(lease)) != 0) DIFFER("condition", "%s", condition_of(lease), row->condition);
    if (row->attempt != lease->attempt) DIFFER("attempt", "%lld", (long long)lease->attempt, (long long)row->attempt);
    if (strcmp(row->step, name_step(lease->step)) != 0) DIFFER("step", "'%s'", name_step(lease->step), row->step);
    if (lease->state == STATE_HELD && (!lease->is_unfenced || lease->is_extended) && row->until != lease->until)
        DIFFER("expiry", "%lld", (long long)lease->until, (long long)row->until);
    if (lease->state == STATE_READY && !lapsed_unseen && row->ready_at != lease->ready_at)
        DIFFER("ready at", "%lld", (long long)lease->ready_at, (long long)row->ready_at);
    if (!lease->has_grant) return true;
    name_holder(holder, kind, lease->holder);
    if (strcmp(row->holder, holder) != 0) DIFFER("holder", "%s", holder, row->holder);
    int64_t fence = database_fence(run->database, lease->fence);
    if (row->fence != fence) DIFFER("fence", "%lld", (long long)fence, (long long)row->fence);
    if (row->covered != lease->covered && kind->mode == MODE_RUN) DIFFER("resources covered", "%lld", (long long)lease->covered, (long long)row->covered);
    if (lease->has_lapsed && row->is_overtaken != lease->is_overtaken) DIFFER("overtaken", "%d", lease->is_overtaken, row->is_overtaken);
#undef DIFFER
    return true;
}

static bool compare_lease_rows(struct run *run, struct database_lease *rows, size_t count) {
    bool is_same = true;
    for (size_t i = 0; i < count && is_same; i++) is_same = compare_lease(run, &rows[i]);
    free(rows);
    return is_same;
}

static bool compare_touched(struct run *run, const struct model_message *messages, size_t count) {
    char *kinds = malloc(count * NAME_SIZE + 3), *leases = malloc(count * NAME_SIZE + 3);
    size_t kinds_length = 0, leases_length = 0, found;
    if (!kinds || !leases) abort();
    for (size_t i = 0; i < count; i++) {
        kinds_length += (size_t)sprintf(kinds + kinds_length, "%c%s", i ? ',' : '{', run->setting->kinds[messages[i].kind].name);
        leases_length += (size_t)sprintf(leases + leases_length, "%cs%05d", i ? ',' : '{', messages[i].subject);
    }
    strcpy(kinds + kinds_length, count ? "}" : "{}");
    strcpy(leases + leases_length, count ? "}" : "{}");
    struct database_lease *rows = database_some_leases(run->database, kinds, leases, &found);
    free(kinds);
    free(leases);
    return compare_lease_rows(run, rows, found);
}

static bool compare_all_leases(struct run *run) {
    size_t found, known = 0;
    struct database_lease *rows = database_leases(run->database, &found);
    for (int kind = 0; kind < run->setting->kind_count; kind++)
        for (int lease = 0; lease < run->setting->leases_per_kind; lease++)
            known += model_lease(run->model, kind, lease)->state != STATE_ABSENT;
    if (!compare_lease_rows(run, rows, found)) return false;
    if (found != known) return differ(run, -1, "the model knows %zu leases, the database %zu", known, found);
    return true;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct database_resource *)a)->resource, ((const struct database_resource *)b)->resource);
}

static bool compare_resources(struct run *run) {
    size_t count;
    struct database_resource *rows = database_resources(run->database, &count), *found;
    struct database_resource wanted = {0};
    bool is_same = true;
    qsort(rows, count, sizeof *rows, compare_names);
    for (int resource = 0; resource < MODEL_RESOURCES && is_same; resource++) {
        int64_t fence = model_stamp(run->model, resource);
        if (fence == 0) continue;
        name_resource(wanted.resource, resource);
        found = bsearch(&wanted, rows, count, sizeof *rows, compare_names);
        if (!found) is_same = differ(run, -1, "resource %s: the model has a stamp, the database none", wanted.resource);
        else if (found->fence != database_fence(run->database, fence))
            is_same = differ(run, -1, "resource %s: the model has fence %lld, the database %lld", wanted.resource,
                             (long long)database_fence(run->database, fence), (long long)found->fence);
    }
    free(rows);
    return is_same;
}

static bool compare_demands(struct run *run) {
    size_t count, open = 0, seen = 0;
    struct database_demand *rows = database_demands(run->database, &count);
    bool is_same = true;
    for (size_t i = 0; i < count && is_same; i++) {
        const struct database_demand *row = &rows[i];
        int kind = kind_number(run, row->kind);
        const struct model_demand *demand = model_demand(run->model, kind, atoi(row->worker + 1));
        bool is_open = row->granted < row->credit_total && row->wait_until != MODEL_NONE && row->wait_until >= run->at;
        if (is_open != model_demand_is_open(demand, run->at))
            is_same = differ(run, -1, "demand %s %s: is%s open in the database only", row->kind, row->worker, is_open ? "" : " not");
        else if (row->credit_total != demand->credit_total || row->granted != demand->granted || row->refresh != demand->refresh)
            is_same = differ(run, -1, "demand %s %s: the model says %lld of %lld, refresh %lld, the database %lld of %lld, refresh %lld", row->kind,
                             row->worker, (long long)demand->granted, (long long)demand->credit_total, (long long)demand->refresh,
                             (long long)row->granted, (long long)row->credit_total, (long long)row->refresh);
        seen += is_open;
    }
    for (int kind = 0; kind < run->setting->kind_count; kind++)
        for (int worker = 0; worker < run->setting->workers; worker++)
            open += model_demand_is_open(model_demand(run->model, kind, worker), run->at);
    if (is_same && open != seen) is_same = differ(run, -1, "the model has %zu open demands, the database %zu", open, seen);
    free(rows);
    return is_same;
}

/* ---- steps ---- */

static bool run_apply(struct run *run, const struct step *step) {
    struct model_message *messages = calloc(step->count + 1, sizeof *messages);
    struct model_answer *answers = calloc(step->count + 1, sizeof *answers);
    struct database_answer *rows = calloc(step->count + 1, sizeof *rows);
    if (!messages || !answers || !rows) abort();
    for (size_t i = 0; i < step->count; i++) script_resolve(&step->commands[i], run->model, &messages[i]);
    double before = seconds();
    bool is_same = database_apply(run->database, run->setting->kinds, messages, step->count, step->at, rows);
    run->tally->database_seconds += seconds() - before;
    model_move_to(run->model, step->at);
    see(run);
    model_apply(run->model, messages, step->count, answers);
    expect(run);
    if (!is_same) differ(run, -1, "lease.apply raised: %s", database_error(run->database));
    for (size_t i = 0; i < step->count && is_same; i++) {
        is_same = compare_answer(run, (long)i, &answers[i], &rows[i]);
        if (answers[i].outcome != OUTCOME_NONE) run->tally->outcomes[answers[i].outcome]++;
    }
    run->tally->commands += step->count;
    is_same = is_same && compare_journal(run, messages, answers, rows, step->count) && compare_fences(run) &&
              compare_touched(run, messages, step->count);
    free(messages);
    free(answers);
    free(rows);
    return is_same;
}

static bool run_reap(struct run *run, const struct step *step) {
    int turned;
    if (!database_reap(run->database, step->limit, step->at, &turned)) return differ(run, -1, "lease.reap raised: %s", database_error(run->database));
    model_move_to(run->model, step->at);
    see(run);
    model_reap(run->model);
    expect(run);
    if (turned > step->limit) return differ(run, -1, "lease.reap turned %d over, %d were asked for", turned, step->limit);
    run->tally->reaps++;
    run->tally->turned += (size_t)turned;
    return compare_journal(run, NULL, NULL, NULL, 0) && compare_fences(run);
}

static bool run_step(struct run *run, const struct step *step) {
    run->at = step->at;
    run->tally->steps++;
    if (!(step->type == STEP_APPLY ? run_apply(run, step) : run_reap(run, step))) return false;
    return run->tally->steps % 20 != 0 || (compare_demands(run) && compare_resources(run));
}

/* The reaper goes round until nothing has lapsed unseen; then everything must be the same. */
static bool run_end(struct run *run) {
    const struct step reap = {.type = STEP_REAP, .at = run->at, .limit = 1000};
    for (size_t turned = run->tally->turned + 1; turned != run->tally->turned;) {
        turned = run->tally->turned;
        if (!run_reap(run, &reap)) return false;
    }
    if (run->pending > 0) return differ(run, -1, "at the end %zu events of the model are missing in the journal", run->pending);
    return compare_fences(run) && compare_all_leases(run) && compare_resources(run) && compare_demands(run);
}

static void insert_unfenced(struct run *run) {
    for (int kind = 0; kind < run->setting->kind_count; kind++)
        for (int i = 0; i < run->setting->unfenced; i++) {
            model_insert_unfenced(run->model, kind, i * 7);
            database_insert_unfenced(run->database, run->setting->kinds, kind, i * 7);
        }
}

static void run_init(struct run *run, const struct setting *setting, const struct database *template, struct tally *tally, struct failure *failure) {
    *run = (struct run){.setting = setting, .tally = tally, .failure = failure};
    *tally = (struct tally){0};
    *failure = (struct failure){.command = -1};
    run->model = model_new(setting->kinds, setting->kind_count, setting->leases_per_kind, setting->workers, setting->messages);
    run->database = database_copy_new(template);
    run->queues = calloc((size_t)(setting->kind_count * setting->leases_per_kind), sizeof *run->queues);
    if (!run->queues) abort();
    insert_unfenced(run);
}

static void run_release(struct run *run) {
    struct model_event event;
    for (int kind = 0; kind < run->setting->kind_count; kind++)
        for (int lease = 0; lease < run->setting->leases_per_kind; lease++) {
            run->tally->states[model_lease(run->model, kind, lease)->state]++;
            while (take_expected(run, kind, lease, &event)) continue;
        }
    free(run->queues);
    model_free(run->model);
    database_free(run->database);
}

bool compare_run(const struct setting *setting, const struct database *template, struct script *script, struct generator *generator,
                 size_t commands, struct tally *tally, struct failure *failure) {
    struct run run;
    bool is_same = true;
    run_init(&run, setting, template, tally, failure);
    for (size_t i = 0; is_same && (generator ? tally->commands < commands : i < script->count); i++) {
        const struct step *step = generator ? generator_step(generator, run.model, script, commands - tally->commands) : &script->steps[i];
        failure->step = i;
        is_same = run_step(&run, step);
    }
    if (is_same) {
        failure->step = script->count;
        is_same = run_end(&run);
    }
    run_release(&run);
    return is_same;
}

static void print_message(const struct setting *setting, const struct model_message *m, const struct model_answer *answer) {
    printf("--   %s%s.%s %c%d m%lld/%d", m->role == ROLE_MEMBER ? "  and " : m->role == ROLE_HEAD ? "many: " : "", setting->kinds[m->kind].name,
           model_command_names[m->command], m->command == COMMAND_CLAIM || m->role == ROLE_HEAD ? 'w' : 's',
           m->subject, (long long)m->id, m->digest);
    if (m->malformed) printf(" malformed");
    if (m->holder != MODEL_NONE) printf(" holder=%d", m->holder);
    if (m->fence != MODEL_NONE) printf(" fence=%lld claim=%lld token_fits=%d", (long long)m->fence, (long long)m->claim, m->token_fits);
    if (m->ttl_ms != MODEL_NONE) printf(" ttl_ms=%lld", (long long)m->ttl_ms);
    if (m->amount != MODEL_NONE) printf(" amount=%lld", (long long)m->amount);
    if (m->refresh != MODEL_NONE) printf(" refresh=%lld", (long long)m->refresh);
    if (m->wait_ms != MODEL_NONE) printf(" wait_ms=%lld", (long long)m->wait_ms);
    if (m->command == COMMAND_ADVANCE) printf(" step=%d", m->step);
    if (m->command == COMMAND_RESOLVE) printf(" verdict=%d", (int)m->verdict);
    if (m->command == COMMAND_START || m->command == COMMAND_FAIL) printf(" flag=%d", m->flag);
    for (int i = 0; i < m->resource_count; i++) printf(" r%d", m->resources[i]);
    for (int i = 0; i < m->table_count; i++) printf(" t%d", m->tables[i]);
    printf("  => %s", answer->outcome == OUTCOME_NONE ? "nothing" : model_outcome_names[answer->outcome]);
    if (answer->fence) printf(" fence=%lld", (long long)answer->fence);
    printf("\n");
}

static void print_step(struct run *run, size_t number, const struct step *step) {
    printf("-- step %zu at %lld: %s", number, (long long)step->at, step->type == STEP_APPLY ? "apply\n" : "reap");
    if (step->type == STEP_REAP) {
        printf(" %d\nSELECT * FROM lease.reap(%d, 'epoch'::timestamptz + %lld * interval '1 microsecond');\n", step->limit, step->limit, (long long)step->at);
        return;
    }
    struct model_message *messages = calloc(step->count + 1, sizeof *messages);
    struct model_answer *answers = calloc(step->count + 1, sizeof *answers);
    if (!messages || !answers) abort();
    struct model *model = run->model;
    for (size_t i = 0; i < step->count; i++) script_resolve(&step->commands[i], model, &messages[i]);
    database_print_apply(run->database, run->setting->kinds, messages, step->count, step->at);
    model_move_to(model, step->at);
    model_apply(model, messages, step->count, answers);
    for (size_t i = 0; i < step->count; i++) print_message(run->setting, &messages[i], &answers[i]);
    free(messages);
    free(answers);
}

void compare_print(const struct setting *setting, const struct database *template, struct script *script) {
    struct run run, shadow;
    struct tally tally, shadow_tally;
    struct failure failure, shadow_failure;
    run_init(&run, setting, template, &tally, &failure);
    run_init(&shadow, setting, template, &shadow_tally, &shadow_failure);
    for (size_t i = 0; i < script->count; i++) {
        struct run printed = run; /* the real database's names, a model that may be spent */
        printed.model = shadow.model;
        print_step(&printed, i, &script->steps[i]);
        if (script->steps[i].type == STEP_REAP) model_move_to(shadow.model, script->steps[i].at), model_reap(shadow.model);
        if (!run_step(&run, &script->steps[i])) break;
    }
    if (*failure.text) printf("-- command %ld: %s\n", failure.command, failure.text);
    run_release(&run);
    run_release(&shadow);
}
