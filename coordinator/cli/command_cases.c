/* leasectl cases: what only people can decide, with what is known of it. */
#include "common/buf.h"
#include "common/clock.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/listing.h"
#include "coordinator/cli/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* TOLD: so many records of a topic are shown. A topic that says nothing for SILENCE_MS is given up. */
enum { TOLD = 5, POLL_MS = 200, SILENCE_MS = 30000 };

static const struct argument_option options[] = {
    {"kind", 'k', "KIND", "only this kind"},
    {"root", 0, "DIRECTORY", "look whether the file is there: the payload's path, beneath this directory"},
    {"limit", 'n', "N", "at most so many (100)"},
    {0},
};

enum { PATH = 21, FILE_THERE = 22, TOPICS = 23 };
static const struct output_column columns[] = {
    {"id", "CASE", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"kind", "KIND", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"lease", "LEASE", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"what", "WHAT", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"holder", "HOLDER", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"claimed_at", "CLAIMED", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"fence", "FENCE", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"claim_id", "CLAIM", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"renewed_at", "RENEWED", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"lease_until", "EXPIRY", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"remaining_ms", "LAPSES", OUTPUT_REMAINING, OUTPUT_EVERYWHERE},
    {"attempt", "ATTEMPT", OUTPUT_NUMBER, OUTPUT_EVERYWHERE},
    {"step", "STEP", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"last", "LAST", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"last_number", "NUMBER", OUTPUT_NUMBER, OUTPUT_ONLY_JSON},
    {"last_event", "EVENT", OUTPUT_TEXT, OUTPUT_ONLY_JSON},
    {"last_at", "AT", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    {"last_operator", "OPERATOR", OUTPUT_VALUE, OUTPUT_ONLY_JSON},
    {"place", "FROM", OUTPUT_TEXT, OUTPUT_ONLY_TABLE},
    {"last_message", "MESSAGE", OUTPUT_VALUE, OUTPUT_ONLY_JSON},
    {"is_published", "PUBLISHED", OUTPUT_VALUE, OUTPUT_ONLY_JSON},
    [PATH] = {"path", "PATH", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    [FILE_THERE] = {"file", "FILE", OUTPUT_TEXT, OUTPUT_EVERYWHERE},
    [TOPICS] = {"topics", "TOPICS", OUTPUT_VALUE, OUTPUT_ONLY_JSON},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

/* The last records of a topic about one lease; a ring. */
struct told {
    enum topic_id topic;
    struct buf lines[TOLD];
    size_t count;
};

struct cases {
    struct cli *cli;
    char kind[LISTING_NAME_SIZE];
    const char *id;
    int root; /* of --root; -1: not given */
    struct told told[2];
    struct buf topics; /* what was told, as an array */
};

/* ---- is the file there? ---- */

static bool stays_beneath(const char *path) {
    for (const char *part = path; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}

static const char *look_at_file(int root, const char *path) {
    struct stat status;
    path += strspn(path, "/");
    if (*path == '\0' || !stays_beneath(path))
        return "not looked at";
    if (fstatat(root, path, &status, AT_SYMLINK_NOFOLLOW) == 0)
        return "there";
    return errno == ENOENT || errno == ENOTDIR ? "gone" : strerror(errno);
}

static void fill(void *context, const char **values) {
    struct cases *cases = context;
    if (cases->root >= 0 && values[PATH] != NULL)
        values[FILE_THERE] = look_at_file(cases->root, values[PATH]);
    if (cases->topics.size > 0)
        values[TOPICS] = buf_text(&cases->topics);
}

/* ---- what the topics say ---- */

static bool is_of_case(const struct cases *cases, const struct watch_record *record) {
    const char *kind = document_text(record->value, "kind"), *lease = document_text(record->value, "lease");
    return kind != NULL && lease != NULL && strcmp(kind, cases->kind) == 0 && strcmp(lease, cases->id) == 0;
}

static void take(struct cases *cases, const struct watch_record *record) {
    for (size_t i = 0; i < 2; i++) {
        struct told *told = &cases->told[i];
        if (record->topic != told->topic || !is_of_case(cases, record))
            continue;
        struct buf *line = &told->lines[told->count++ % TOLD];
        buf_reset(line);
        if (cases->cli->format == OUTPUT_TABLE)
            watch_describe(record, cases->cli->colored, line);
        else
            document_format(record->value, line);
    }
}

static bool read_topics(struct cases *cases, struct watch *watch, struct error *error) {
    struct watch_record record;
    int64_t heard_ms = clock_monotonic_us() / 1000;
    error_set(error, ERROR_RETRY, "kafka_timeout", "nothing was heard for %d s", SILENCE_MS / 1000);
    while (clock_monotonic_us() / 1000 - heard_ms < SILENCE_MS)
        switch (watch_next(watch, POLL_MS, &record, error)) {
        case WATCH_RECORD:
            heard_ms = clock_monotonic_us() / 1000;
            take(cases, &record);
            break;
        case WATCH_CAUGHT_UP: return true;
        case WATCH_ERROR:
            if (error->kind != ERROR_RETRY)
                return false;
            break;
        case WATCH_NOTHING: break;
        }
    return false;
}

/* `each` with every line kept, oldest first. */
static void for_each_line(struct cases *cases, void (*each)(struct cases *cases, const struct told *told, const char *line)) {
    for (size_t i = 0; i < 2; i++) {
        const struct told *told = &cases->told[i];
        size_t first = told->count > TOLD ? told->count - TOLD : 0;
        for (size_t n = first; n < told->count; n++)
            each(cases, told, buf_text(&told->lines[n % TOLD]));
    }
}

static void add_json(struct cases *cases, const struct told *told, const char *line) {
    buf_appendf(&cases->topics, "%s{\"topic\":\"%s\",\"value\":%s}", cases->topics.size > 1 ? "," : "", topic_get(told->topic)->name, line);
}

static void print_line(struct cases *cases, const struct told *told, const char *line) {
    fprintf(cases->cli->out, "%-14s %s\n", topic_get(told->topic)->name, line);
}

/* The rest is worth showing without the topics, too. */
static void ask_topics(struct cases *cases) {
    static const enum topic_id topics[] = {TOPIC_RESULTS, TOPIC_STATE};
    struct watch *watch = NULL;
    struct error error;
    for (size_t i = 0; i < 2; i++)
        cases->told[i].topic = topics[i];
    if (!watch_open(cases->cli, topics, 2, false, &watch, &error) || !read_topics(cases, watch, &error))
        cli_note(cases->cli, "the topics were not read: %s", error.message);
    watch_free(watch);
    if (cases->cli->format == OUTPUT_TABLE)
        return;
    buf_append_byte(&cases->topics, '[');
    for_each_line(cases, add_json);
    buf_append_byte(&cases->topics, ']');
}

/* ---- the command ---- */

static enum cli_exit show_one(struct cases *cases, const struct listing *listing) {
    struct error error;
    bool is_found = false;
    ask_topics(cases);
    if (!listing_show(cases->cli, listing, (const char *const[]){cases->kind, cases->id}, 2, &is_found, &error))
        return cli_fail_with(cases->cli, &error);
    if (!is_found)
        return cli_fail(cases->cli, CLI_NO, "'leasectl show' tells what it is", "%s/%s is no case", cases->kind, cases->id);
    if (cases->cli->format == OUTPUT_TABLE)
        for_each_line(cases, print_line);
    return CLI_YES;
}

static enum cli_exit run_with(struct cases *cases) {
    const struct arguments *arguments = &cases->cli->arguments;
    const struct listing_fill filling = {fill, cases};
    const struct listing listing = {"cases", columns, COLUMNS, "nothing waits for an operator", false, &filling};
    const char *root = arguments_text(arguments, "root");
    struct error error;
    if (root != NULL && (cases->root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return cli_fail(cases->cli, CLI_DATA, NULL, "--root: %s: %s", root, strerror(errno));
    if (arguments->word_count == 0)
        return listing_run(cases->cli, &listing, (const char *const[]){arguments_text(arguments, "kind"), NULL}, 2);
    if (!listing_split_lease(arguments->words[0], cases->kind, &cases->id, &error))
        return cli_fail_usage(cases->cli, &error);
    return show_one(cases, &listing);
}

static enum cli_exit run(struct cli *cli) {
    struct cases cases = {.cli = cli, .root = -1};
    enum cli_exit code = run_with(&cases);
    if (cases.root >= 0)
        close(cases.root);
    for (size_t i = 0; i < 2; i++)
        for (size_t n = 0; n < TOLD; n++)
            buf_release(&cases.told[i].lines[n]);
    buf_release(&cases.topics);
    return code;
}

const struct cli_command command_cases = {
    .name = "cases",
    .usage = "[KIND/ID] [--kind KIND] [--root DIRECTORY] [--limit N]",
    .summary = "list what only people can decide, with what is known of it",
    .help =
        "Lists work that needs an operator, oldest claim first: `unfenced` is in progress since before fencing, and nothing happens to it\n"
        "by itself; `extended` likewise, with the expiry that an operator gave it; `lapsed` is a run whose holder fell silent and that\n"
        "nobody has gone on with. With each: who claimed it and when, its fence, the last renewal and the last word of the journal, and\n"
        "which message asked for that. Of one case, also what the topics lease.results and lease.state said last about it.\n"
        "--root looks whether the file of a cleanup is there, where its payload has a `path`.\n"
        "'leasectl resolve' ends a case; it asks for the fence that is shown here.\n",
    .examples =
        "$ leasectl cases\n"
        "  what waits for an operator\n"
        "$ leasectl cases cleanup/file-17 --root /srv/files\n"
        "  all that is known about one, and whether its file is there\n"
        "$ leasectl cases --kind cleanup -o jsonl\n"
        "  the cleanups, for a program\n",
    .options = options,
    .words_most = 1,
    .run = run,
};
