/* The file effect by hand, without Kafka: file_effect_probe ROOT CONNINFO FILE FENCE CLAIM_ID [NAME]
 *
 * Runs it once under that grant and prints "<verdict> <bytes> <settled by>", or "<kind of error> <code>". The lease always counts as
 * ours: what has to be refused must be refused where the effect lands. Crash points as anywhere ($LEASE_CRASH); $CALL_MS bounds
 * the calls into the database.
 *
 * With NAME, only the move and the removal of a file of that name are tried, without the database. */
#include "worker/effects/file_effect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_mine(void *context) {
    (void)context;
    return true;
}

static int tell(const struct error *error) {
    printf("%s %s\n", error_kind_name(error->kind), error->code);
    fprintf(stderr, "%s\n", error->message);
    return EXIT_FAILURE;
}

static bool try_name(const struct file_root *root, const char *name, int64_t fence, struct error *error) {
    bool is_there;
    if (!file_root_move(root, name, fence, NULL, 0, &is_there, error) || !file_root_remove(root, name, fence, error))
        return false;
    printf("%s\n", is_there ? "removed" : "missing");
    return true;
}

static bool run(const struct file_root *root, const char *conninfo, const struct file_grant *grant, struct error *error) {
    const char *call_ms = getenv("CALL_MS");
    struct file_store *store = file_store_new(conninfo, "file_effect_probe", call_ms != NULL ? strtoll(call_ms, NULL, 10) : 8000);
    const struct file_effect effect = {.root = root, .store = store, .is_mine = is_mine};
    struct file_outcome outcome;
    bool is_done = file_store_check(store, error) && file_effect_run(&effect, grant, NULL, &outcome, error);
    file_store_free(store);
    if (is_done)
        printf("%s %" PRId64 " %" PRId64 "\n", file_verdict_name(outcome.verdict), outcome.bytes, outcome.settled_by);
    return is_done;
}

int main(int argc, char **argv) {
    struct error error = {0};
    struct file_root *root = NULL;
    if (argc != 6 && argc != 7)
        return EXIT_FAILURE;
    if (!file_root_open(argv[1], &root, &error))
        return tell(&error);
    const struct file_grant grant = {.file = argv[3], .fence = strtoll(argv[4], NULL, 10), .claim_id = argv[5]};
    bool is_done = argc == 7 ? try_name(root, argv[6], grant.fence, &error) : run(root, argv[2], &grant, &error);
    file_root_free(root);
    return is_done ? EXIT_SUCCESS : tell(&error);
}
