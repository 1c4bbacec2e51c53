/* The steps of a cleanup, in their order; see file_effect.h. Runs in the thread that calls.
 *
 * The named points lie behind the look at the lease and before the step: who sleeps there goes on without a further look. */
#include "worker/effects/file_effect.h"

#include "common/crash.h"

/* One cleanup on its way. */
struct cleanup {
    const struct file_effect *effect;
    const struct file_grant *grant;
    void *context;
    struct file_facts facts;
    enum file_begun begun;
    bool is_there; /* moved to our name */
};

/* False: the effect ends here, without an error, as `verdict` says. */
static bool stop(struct file_outcome *outcome, enum file_verdict verdict) {
    outcome->verdict = verdict;
    return false;
}

static bool may_go_on(const struct cleanup *cleanup, struct file_outcome *outcome) {
    return cleanup->effect->is_mine(cleanup->context) || stop(outcome, FILE_LOST);
}

static bool begin(struct cleanup *cleanup, struct file_outcome *outcome, struct error *error) {
    if (!may_go_on(cleanup, outcome) ||
        !file_store_begin(cleanup->effect->store, cleanup->grant, &cleanup->begun, &cleanup->facts, error))
        return false;
    if (cleanup->begun == FILE_BEGUN_STALE)
        return stop(outcome, FILE_STALE);
    if (cleanup->begun == FILE_BEGUN_UNKNOWN)
        return stop(outcome, FILE_UNKNOWN);
    return true;
}

/* Not settled and gone is believed only where other files are. Where there are none, our successor may have removed the last one
 * since we asked: the gate is asked once more before the root is. */
static bool believe_missing(struct cleanup *cleanup, struct file_outcome *outcome, struct error *error) {
    if (file_root_check_not_empty(cleanup->effect->root, error))
        return true;
    if (error->kind != ERROR_FATAL)
        return false;
    struct error empty = *error;
    error_clear(error);
    file_facts_release(&cleanup->facts);
    if (!begin(cleanup, outcome, error))
        return false;
    if (cleanup->begun == FILE_BEGUN_SETTLED)
        return true;
    *error = empty;
    return false;
}

static bool move(struct cleanup *cleanup, struct file_outcome *outcome, struct error *error) {
    const struct file_facts *facts = &cleanup->facts;
    if (!may_go_on(cleanup, outcome))
        return false;
    if (CRASH_POINT("effect.begun"))
        return error_set(error, ERROR_RETRY, "crash_point", "effect.begun");
    if (!file_root_move(cleanup->effect->root, facts->name, cleanup->grant->fence, facts->earlier, facts->earlier_count,
                        &cleanup->is_there, error))
        return false;
    /* Settled and gone is as it should be. */
    return cleanup->is_there || cleanup->begun == FILE_BEGUN_SETTLED || believe_missing(cleanup, outcome, error);
}

/* Asked also where it is settled: the answer says by whom, and how many bytes. */
static bool settle(struct cleanup *cleanup, struct file_outcome *outcome, struct error *error) {
    struct file_settlement settlement;
    if (!may_go_on(cleanup, outcome))
        return false;
    if (CRASH_POINT("effect.renamed"))
        return error_set(error, ERROR_RETRY, "crash_point", "effect.renamed");
    if (!file_store_settle(cleanup->effect->store, cleanup->grant, !cleanup->is_there, &settlement, error))
        return false;
    if (settlement.is_stale)
        return stop(outcome, FILE_STALE);
    outcome->verdict = settlement.was_missing ? FILE_MISSING : FILE_REMOVED;
    outcome->bytes = settlement.bytes;
    outcome->settled_by = settlement.settled_by;
    return true;
}

static bool remove_names(struct cleanup *cleanup, struct file_outcome *outcome, struct error *error) {
    const struct file_facts *facts = &cleanup->facts;
    if (!may_go_on(cleanup, outcome))
        return false;
    if (CRASH_POINT("effect.settled"))
        return error_set(error, ERROR_RETRY, "crash_point", "effect.settled");
    for (size_t i = 0; i < facts->former_count; i++)
        if (!file_root_remove_former(cleanup->effect->root, facts->former[i], error))
            return false;
    if (!file_root_remove(cleanup->effect->root, facts->name, cleanup->grant->fence, error))
        return false;
    CRASH_POINT("effect.unlinked");
    return true;
}

bool file_effect_run(const struct file_effect *effect, const struct file_grant *grant, void *context,
                     struct file_outcome *ret_outcome, struct error *error) {
    struct cleanup cleanup = {.effect = effect, .grant = grant, .context = context};
    *ret_outcome = (struct file_outcome){0};
    error_clear(error);
    bool is_done = begin(&cleanup, ret_outcome, error) && move(&cleanup, ret_outcome, error) &&
                   settle(&cleanup, ret_outcome, error) && remove_names(&cleanup, ret_outcome, error);
    file_facts_release(&cleanup.facts);
    return is_done || error->kind == ERROR_NONE;
}

const char *file_verdict_name(enum file_verdict verdict) {
    switch (verdict) {
    case FILE_REMOVED: return "removed";
    case FILE_MISSING: return "missing";
    case FILE_STALE: return "stale";
    case FILE_UNKNOWN: return "unknown";
    case FILE_LOST: return "lost";
    }
    return "unknown";
}
