/* leasectl tail: what the coordinator says, as it stands on the topics. */
#include "common/clock.h"
#include "common/lease.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/text.h"
#include "coordinator/cli/watch.h"

#include <stdlib.h>
#include <string.h>

/* What is there already is put in the order of the journal before it is shown. More than this is not kept: it is then
 * shown in parts, each in order. */
enum { PENDING_BYTES_MAX = 64 * 1024 * 1024, PENDING_RECORDS_MAX = 500000 };
/* A read that is not to follow and hears nothing for so long is given up. */
enum { SILENCE_MS = 30000, POLL_MS = 200 };

static const struct argument_option options[] = {
    {"from", 0, "WHERE", "beginning, end, or a journal number (default: beginning; with --follow: end)"},
    {"follow", 'f', NULL, "go on with what comes"},
    {"count", 'n', "N", "stop after so many"},
    {"wait", 'w', "SECONDS", "with --follow: at most so long; exit code 1 if --count was not reached"},
    {"kind", 'k', "KIND", "only this kind"},
    {"lease", 'l', "LEASE", "only this lease: ID, or KIND/ID"},
    {"holder", 0, "NAME", "only this holder"},
    {"outcome", 0, "OUTCOME", "only this outcome or event (results)"},
    {0},
};

static const struct {
    const char *name;
    enum topic_id topic;
} sources[] = {
    {"results", TOPIC_RESULTS},
    {"grants", TOPIC_GRANTS},
    {"state", TOPIC_STATE},
    {"dead-letters", TOPIC_DEAD_LETTERS},
};

struct pending {
    int64_t number;
    size_t order; /* as it came in; for records without a number */
    char *line;
};

struct tail {
    struct cli *cli;
    enum topic_id topic;
    bool follows;
    bool from_end;
    int64_t least_number;
    int64_t count; /* 0: all */
    int64_t wait_ms;
    const char *kind, *lease, *holder, *outcome;

    struct watch *watch;
    struct output output;
    struct pending *pending;
    size_t pending_count, pending_capacity, pending_bytes;
    bool is_live; /* caught up: records are shown as they come */
    int64_t shown;
};

/* ---- what is wanted ---- */

static bool read_from(struct tail *tail, struct error *error) {
    const char *from = arguments_text(&tail->cli->arguments, "from");
    tail->from_end = from ? strcmp(from, "end") == 0 : tail->follows;
    if (from == NULL || tail->from_end || strcmp(from, "beginning") == 0)
        return true;
    if (text_parse_number(from, &tail->least_number) && tail->least_number >= 0)
        return true;
    return error_set(error, ERROR_REJECT, "usage", "--from wants beginning, end or a journal number, not '%s'", from);
}

static bool read_topic(struct tail *tail, struct error *error) {
    const char *name = tail->cli->arguments.words[0];
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (strcmp(sources[i].name, name) == 0) {
            tail->topic = sources[i].topic;
            return true;
        }
    return error_set(error, ERROR_REJECT, "usage", "there is no '%s' to tail: results, grants, state or dead-letters", name);
}

static bool read_arguments(struct tail *tail, struct error *error) {
    const struct arguments *arguments = &tail->cli->arguments;
    tail->follows = arguments_has(arguments, "follow");
    tail->kind = arguments_text(arguments, "kind");
    tail->lease = arguments_text(arguments, "lease");
    tail->holder = arguments_text(arguments, "holder");
    tail->outcome = arguments_text(arguments, "outcome");
    if (!read_topic(tail, error) || !read_from(tail, error) ||
        !arguments_number(arguments, "count", 1, INT64_MAX, &tail->count, error) ||
        !arguments_duration_ms(arguments, "wait", &tail->wait_ms, error))
        return false;
    if (tail->outcome != NULL && tail->topic != TOPIC_RESULTS)
        return error_set(error, ERROR_REJECT, "usage", "only results have an --outcome");
    if ((tail->kind || tail->lease || tail->holder) && tail->topic == TOPIC_DEAD_LETTERS)
        return error_set(error, ERROR_REJECT, "usage", "a dead letter has no kind, lease or holder: it could not be identified");
    if (tail->wait_ms > 0 && !tail->follows)
        return error_set(error, ERROR_REJECT, "usage", "--wait belongs to --follow");
    if (tail->follows && tail->count == 0 && tail->wait_ms == 0 && tail->cli->format == OUTPUT_JSON)
        return error_set(error, ERROR_REJECT, "usage", "an array that is never closed helps nobody: use -o jsonl with --follow");
    return true;
}

static bool is_equal(const char *wanted, const char *text) {
    return wanted == NULL || (text != NULL && strcmp(wanted, text) == 0);
}

static bool is_lease(const char *wanted, const struct document *value) {
    const char *kind = document_text(value, "kind"), *lease = document_text(value, "lease");
    if (wanted == NULL || is_equal(wanted, lease))
        return true;
    size_t size = kind ? strlen(kind) : 0;
    return size > 0 && strncmp(wanted, kind, size) == 0 && wanted[size] == '/' && is_equal(wanted + size + 1, lease);
}

static bool is_wanted(const struct tail *tail, const struct watch_record *record) {
    const struct document *value = record->value;
    return record->number >= tail->least_number && is_equal(tail->kind, document_text(value, "kind")) &&
           is_lease(tail->lease, value) && is_equal(tail->holder, document_text(value, "holder")) &&
           is_equal(tail->outcome, document_text(value, "outcome"));
}

/* ---- showing ---- */

static void show_line(struct tail *tail, const char *line) {
    if (tail->count > 0 && tail->shown == tail->count)
        return;
    tail->shown++;
    if (tail->cli->format != OUTPUT_TABLE) {
        output_object(&tail->output, line);
        return;
    }
    fprintf(tail->cli->out, "%s\n", line);
    fflush(tail->cli->out);
}

static int compare_pending(const void *left_item, const void *right_item) {
    const struct pending *left = left_item, *right = right_item;
    if (left->number != right->number)
        return left->number < right->number ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

static void show_pending(struct tail *tail) {
    if (tail->pending_count > 0)
        qsort(tail->pending, tail->pending_count, sizeof *tail->pending, compare_pending);
    for (size_t i = 0; i < tail->pending_count; i++) {
        show_line(tail, tail->pending[i].line);
        free(tail->pending[i].line);
    }
    tail->pending_count = tail->pending_bytes = 0;
}

static void keep(struct tail *tail, int64_t number, struct buf *line) {
    if (tail->pending_count == tail->pending_capacity) {
        tail->pending_capacity = tail->pending_capacity ? 2 * tail->pending_capacity : 256;
        tail->pending = memory_resize(tail->pending, tail->pending_capacity, sizeof *tail->pending);
    }
    tail->pending_bytes += line->size;
    tail->pending[tail->pending_count] =
        (struct pending){number, tail->pending_count, memory_copy_bytes(buf_text(line), line->size)};
    tail->pending_count++;
    if (tail->pending_bytes > PENDING_BYTES_MAX || tail->pending_count == PENDING_RECORDS_MAX) {
        cli_note(tail->cli, "more than fits into memory: shown in parts, each in order");
        show_pending(tail);
    }
}

static void take(struct tail *tail, const struct watch_record *record) {
    struct buf line = BUF_INIT;
    if (tail->cli->format == OUTPUT_TABLE)
        watch_describe(record, tail->cli->colored, &line);
    else
        document_format(record->value, &line);
    if (tail->is_live)
        show_line(tail, buf_text(&line));
    else
        keep(tail, record->number, &line);
    buf_release(&line);
}

/* ---- the loop ---- */

static bool is_done(const struct tail *tail) {
    return (tail->is_live && !tail->follows) || (tail->count > 0 && tail->shown >= tail->count);
}

static enum cli_exit read_on(struct tail *tail) {
    struct watch_record record;
    struct error error = {0};
    int64_t start_ms = clock_monotonic_us() / 1000, heard_ms = start_ms;
    while (!is_done(tail)) {
        int64_t now_ms = clock_monotonic_us() / 1000;
        if (tail->wait_ms > 0 && now_ms - start_ms >= tail->wait_ms)
            break;
        if (!tail->is_live && now_ms - heard_ms > SILENCE_MS)
            return error.kind != ERROR_NONE
                       ? cli_fail_with(tail->cli, &error)
                       : cli_fail(tail->cli, CLI_UNAVAILABLE, "is Kafka running where --brokers says?", "nothing was heard for %d s",
                                  SILENCE_MS / 1000);
        switch (watch_next(tail->watch, POLL_MS, &record, &error)) {
        case WATCH_RECORD:
            heard_ms = now_ms;
            if (is_wanted(tail, &record))
                take(tail, &record);
            break;
        case WATCH_CAUGHT_UP:
            tail->is_live = true;
            show_pending(tail);
            break;
        case WATCH_ERROR:
            if (error.kind != ERROR_RETRY)
                return cli_fail_with(tail->cli, &error);
            break;
        case WATCH_NOTHING: break;
        }
    }
    return tail->follows && tail->count > 0 && tail->shown < tail->count ? CLI_NO : CLI_YES;
}

static enum cli_exit run(struct cli *cli) {
    struct tail tail = {.cli = cli};
    struct error error;
    if (!read_arguments(&tail, &error))
        return cli_fail_usage(cli, &error);
    if (!watch_open(cli, &tail.topic, 1, tail.from_end, &tail.watch, &error))
        return cli_fail_with(cli, &error);
    if (cli->format != OUTPUT_TABLE)
        output_begin(&tail.output, cli->out, cli->format, false, NULL, 0);
    enum cli_exit code = read_on(&tail);
    show_pending(&tail);
    if (cli->format != OUTPUT_TABLE)
        output_end(&tail.output);
    if (code == CLI_NO)
        cli_note(cli, "%lld of %lld came in time", (long long)tail.shown, (long long)tail.count);
    else if (code == CLI_YES && tail.shown == 0 && !tail.follows)
        cli_note(cli, "nothing like that is on the topic");
    free(tail.pending);
    watch_free(tail.watch);
    return code;
}

const struct cli_command command_tail = {
    .name = "tail",
    .usage = "results|grants|state|dead-letters [--from WHERE] [--follow] [--count N] [FILTERS]",
    .summary = "read the topics: answers, grants, states, dead letters",
    .help =
        "Reads an output topic, all its partitions, without joining a group: nobody else notices. What is there already is\n"
        "shown in the order of the journal; then, with --follow, what comes, as it comes. Repeats are dropped by journal\n"
        "number and the relay's marks passed over. One line each for people; -o jsonl gives the records' values.\n"
        "\n"
        "  results       one answer per message, and lapses\n"
        "  grants        grants; their tokens are in the JSON only, so mind where that goes\n"
        "  state         what holds now, and the fence floor of each lease\n"
        "  dead-letters  what could not be identified, with the reason and the original\n",
    .examples =
        "$ leasectl tail results --follow\n"
        "  every decision, live\n"
        "$ leasectl tail results --lease settlement/2026-10\n"
        "  the answers about one lease so far\n"
        "$ leasectl tail grants --holder run-a -o jsonl | tail -1 > grant.json\n"
        "  run-a's last grant with its token, for 'leasectl send --grant grant.json'\n"
        "$ leasectl tail results --follow --outcome lapsed --count 1 --wait 60\n"
        "  waits up to a minute for a lapse\n"
        "$ leasectl tail dead-letters -o jsonl --from 100000\n"
        "  dead letters from that journal number on\n",
    .options = options,
    .words_least = 1,
    .words_most = 1,
    .run = run,
};
