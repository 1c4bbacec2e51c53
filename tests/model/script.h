/* Random sequences of commands, and their replay.
 *
 * A script is a list of steps: a batch for lease.apply, or a call of the reaper, each at its moment. A
 * command names a grant by its place in the lease's history ("the second grant of lease 7"), not by its fence,
 * so that a script still means something after parts of it have been cut away: that is how a mismatch is
 * shrunk. script_resolve() turns it into a message, given what the model knows when its batch starts. */
#ifndef TESTS_MODEL_SCRIPT_H
#define TESTS_MODEL_SCRIPT_H

#include "model.h"

/* A fence that nobody was ever granted. */
#define SCRIPT_FOREIGN_FENCE (INT64_C(1) << 45)

struct command {
    struct model_message message; /* holder, fence and claim are filled in by script_resolve */
    int grant_nth;                /* which grant of the lease it speaks for; 0: one that never was */
    int fence_error;              /* added to the fence */
    bool wrong_holder, wrong_claim;
    int *resources, *tables; /* owned */
};

enum step_type { STEP_APPLY, STEP_REAP };

struct step {
    enum step_type type;
    int64_t at;
    int limit; /* reap */
    size_t count;
    struct command *commands;
};

struct script {
    struct step *steps;
    size_t count, room;
};

struct generator;

struct generator *generator_new(uint64_t seed, const struct model_kind *kinds, int kind_count, int leases_per_kind,
                                int workers, int64_t messages, int64_t at);
void generator_free(struct generator *generator);
/* Adds the next step, which may depend on what the model has come to. At most `limit` commands. */
struct step *generator_step(struct generator *generator, const struct model *model, struct script *script, size_t limit);

void script_resolve(const struct command *command, const struct model *model, struct model_message *ret_message);
void script_release(struct script *script);

#endif
