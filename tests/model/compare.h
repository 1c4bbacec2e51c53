/* Runs a script through the model and through the database, and compares after every step. */
#ifndef TESTS_MODEL_COMPARE_H
#define TESTS_MODEL_COMPARE_H

#include "database.h"

#define FAILURE_TEXT 1200

struct failure {
    size_t step;
    long command; /* index in the step, or -1 */
    char text[FAILURE_TEXT];
};

struct setting {
    const struct model_kind *kinds;
    int kind_count, leases_per_kind, workers;
    int64_t messages;
    int unfenced; /* so many leases per run kind are from before fencing */
};

struct tally {
    size_t steps, commands, reaps, turned, events;
    size_t outcomes[OUTCOME_COUNT], states[STATE_COUNT];
    double database_seconds;
};

/* With a generator the script is written as it is run, until it has so many commands; without one it is
 * replayed. False: they differ, and ret_failure says where. */
bool compare_run(const struct setting *setting, const struct database *template, struct script *script, struct generator *generator,
                 size_t commands, struct tally *ret_tally, struct failure *ret_failure);

/* Replays a script and prints it: as words, and as statements for psql. */
void compare_print(const struct setting *setting, const struct database *template, struct script *script);

#endif
