/* leasectl resolve: an operator's word about work that nobody holds under a grant. */
#include "common/lease.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/compose.h"
#include "coordinator/cli/listing.h"
#include "coordinator/cli/send.h"
#include "coordinator/cli/text.h"

#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 10000 };

static const struct argument_option options[] = {
    {"done", 0, NULL, "it is done: it ends well, for good"},
    {"not-done", 0, NULL, "it is not: it is free, or waits to be claimed, at once"},
    {"extend", 0, "DURATION", "leave it to whoever does it for so long; then it lapses"},
    {"fence", 0, "N", "the fence that 'leasectl cases' showed"},
    {"unfenced", 0, NULL, "it showed none"},
    {"actor", 0, "NAME", "who says so; required"},
    {"reason", 0, "TEXT", "how it is known; required"},
    {"wait", 'w', "SECONDS", "wait so long for the answer (10)"},
    {0},
};

static const struct {
    const char *option, *verdict;
} verdicts[] = {{"done", "done"}, {"not-done", "not_done"}, {"extend", "extend"}};
enum { VERDICTS = sizeof verdicts / sizeof verdicts[0] };

static const char *read_verdict(const struct arguments *arguments, struct error *error) {
    const char *verdict = NULL;
    for (size_t i = 0; i < VERDICTS; i++)
        if (arguments_has(arguments, verdicts[i].option)) {
            if (verdict != NULL) {
                error_set(error, ERROR_REJECT, "usage", "one of --done, --not-done and --extend, not two");
                return NULL;
            }
            verdict = verdicts[i].verdict;
        }
    if (verdict == NULL)
        error_set(error, ERROR_REJECT, "usage", "what became of it? --done, --not-done or --extend DURATION");
    return verdict;
}

static bool set_text(struct document *data, const char *name, const char *text, struct error *error) {
    return document_set_text(data, name, text) || error_set(error, ERROR_REJECT, "usage", "--%s is not UTF-8", name);
}

static bool set_fence(struct document *data, const struct arguments *arguments, struct error *error) {
    int64_t fence = 0;
    if (arguments_has(arguments, "fence") == arguments_has(arguments, "unfenced"))
        return error_set(error, ERROR_REJECT, "usage",
                         "which lease did you see? --fence N or --unfenced, as 'leasectl cases' shows it");
    if (arguments_has(arguments, "unfenced"))
        return document_set_json(data, "fence", "null", error);
    return arguments_number(arguments, "fence", 1, LEASE_FENCE_MAX, &fence, error) &&
           (document_set_number(data, "fence", fence) || error_set(error, ERROR_REJECT, "usage", "--fence is no number"));
}

static bool set_extension(struct document *data, const struct arguments *arguments, struct error *error) {
    int64_t ttl_ms = 0;
    if (!arguments_has(arguments, "extend"))
        return true;
    if (!arguments_duration_ms(arguments, "extend", &ttl_ms, error))
        return false;
    if (ttl_ms < 1 || ttl_ms > LEASE_TTL_MS_MAX)
        return error_set(error, ERROR_REJECT, "usage", "--extend wants up to a day, such as 30m");
    return document_set_number(data, "ttl_ms", ttl_ms) || error_set(error, ERROR_REJECT, "usage", "--extend is no number");
}

static bool compose_word(struct compose *compose, const struct arguments *arguments, struct error *error) {
    const char *actor = arguments_text(arguments, "actor"), *reason = arguments_text(arguments, "reason");
    if (actor == NULL || reason == NULL)
        return error_set(error, ERROR_REJECT, "usage", "who says so, and how is it known? --actor NAME --reason TEXT; both are kept");
    const char *verdict = read_verdict(arguments, error);
    return verdict != NULL && compose_begin(compose, NULL, error) && set_text(compose->data, "actor", actor, error) &&
           set_text(compose->data, "reason", reason, error) && set_text(compose->data, "verdict", verdict, error) &&
           set_fence(compose->data, arguments, error) && set_extension(compose->data, arguments, error);
}

static enum cli_exit run(struct cli *cli) {
    char kind[LISTING_NAME_SIZE], type[LISTING_NAME_SIZE + 16];
    struct compose compose = {.type = type};
    struct error error;
    int64_t wait_ms = WAIT_MS;
    if (!listing_split_lease(cli->arguments.words[0], kind, &compose.subject, &error) ||
        !arguments_duration_ms(&cli->arguments, "wait", &wait_ms, &error) || !compose_word(&compose, &cli->arguments, &error)) {
        compose_release(&compose);
        return cli_fail_usage(cli, &error);
    }
    snprintf(type, sizeof type, "%s.%s", kind, lease_command_name(LEASE_COMMAND_RESOLVE));
    return send_composed(cli, &compose, wait_ms);
}

const struct cli_command command_resolve = {
    .name = "resolve",
    .usage = "KIND/ID --done|--not-done|--extend DURATION --fence N|--unfenced --actor NAME --reason TEXT",
    .summary = "say what became of a case, for good",
    .help =
        "Sends an operator's word about a case ('leasectl cases') the way every command goes: the coordinator decides, in one\n"
        "statement with the comparison of the fence that you saw, and answers; who and why stand in the journal and in the result.\n"
        "`finished`: it was done. `released`: it was not; no attempt is burned. `renewed`: extended. `stale`: the lease has another fence\n"
        "by now, look again. `held`: somebody has it under a live grant, which no operator takes away. Exit code 1 if refused.\n"
        "It takes the right to write to the kind's topic.\n",
    .examples =
        "$ leasectl resolve cleanup/file-17 --done --fence 4711 --actor ann --reason 'gone from the disk, quota settled by hand'\n"
        "  it is finished\n"
        "$ leasectl resolve cleanup/file-18 --not-done --unfenced --actor ann --reason 'host-3 was switched off before'\n"
        "  the next claim gets it\n"
        "$ leasectl resolve cleanup/file-19 --extend 30m --fence 4712 --actor ann --reason 'host-4 is still at it'\n"
        "  host-4 has half an hour; then it is tried again\n",
    .options = options,
    .words_least = 1,
    .words_most = 1,
    .run = run,
};
