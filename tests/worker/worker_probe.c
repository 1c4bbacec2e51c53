/* A service as a test wants it: a pool worker whose items say in their payload how to behave, and a run side that is told on
 * standard input what to do. It stands on the public header and the shared library alone. One line of JSON on standard output for
 * everything that happens; LEASE_BROKERS and LEASE_TOPIC_PREFIX say where.
 *
 *   worker_probe pool KIND key=value…     concurrency, credit, ttl_ms, wait_ms, margin_ms, answer_ms, name
 *       payload: {"mode": "slow", "ms": 300}; modes: quick, slow (reports progress; fails if it is lost), stubborn (says
 *       finish even then), stuck (reports none the first time), fail (the first time), poison (fails for good), release (the first
 *       time), silent (no verdict), result
 *       input: "stop MS", "stats", "end"
 *   worker_probe run KIND key=value…      ttl_ms, margin_ms, name
 *       input: "start LEASE WAIT_MS [RESOURCE…]", "manual LEASE WAIT_MS", "later LEASE RESOURCE…" (answer by callback),
 *       "patient LEASE LINE_MS [RESOURCE…]" (waits in line), "latent LEASE LINE_MS [RESOURCE…]" (the same, by callback),
 *       "list LEASE WAIT_MS TYPE COUNT [EVERY PAUSE_MS [FROM]]" (all of that type: <TYPE>/0 …, with pauses, behind FROM; without length,
 *       the listing breaks off there), "many LEASE WAIT_MS TYPE COUNT" (as an array), "renew MS", "advance STEP MS", "finish MS",
 *       "fail MS", "release MS", "progress MS" (keeps reporting so long), "mine", "free", "end"; all but the first seven for the
 *       newest run */
#include "worker/lease_worker.h"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool has_released;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Everything that happens, with the moment it happened. */
__attribute__((format(printf, 2, 3))) static void say(const char *what, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&printing);
    printf("{\"what\": \"%s\", \"at\": %.6f", what, now_s());
    vprintf(format, arguments);
    printf("}\n");
    fflush(stdout);
    pthread_mutex_unlock(&printing);
    va_end(arguments);
}

static void pause_ms(long ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static void log_line(void *context, enum lease_log_level level, const char *text) {
    (void)context;
    fprintf(stderr, "%d %s\n", (int)level, text);
}

static const char *setting(char **words, const char *name, const char *otherwise) {
    size_t size = strlen(name);
    for (; *words; words++)
        if (strncmp(*words, name, size) == 0 && (*words)[size] == '=')
            return *words + size + 1;
    return otherwise;
}

static unsigned number(char **words, const char *name, unsigned otherwise) {
    const char *text = setting(words, name, NULL);
    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void connect_to(struct lease_connection *connection) {
    connection->brokers = getenv("LEASE_BROKERS");
    connection->topic_prefix = getenv("LEASE_TOPIC_PREFIX");
    connection->log = log_line;
}

/* ---- a pool ---- */

static void say_item(const char *what, const struct lease_grant *grant, const char *more) {
    say(what, ", \"lease\": \"%s\", \"fence\": %lld, \"attempt\": %d%s", grant->lease, (long long)grant->fence, grant->attempt,
        more);
}

static long of_payload(const struct lease_grant *grant, const char *name, long otherwise) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *found = grant->payload ? strstr(grant->payload, quoted) : NULL;
    return found ? strtol(found + strlen(quoted), NULL, 10) : otherwise;
}

static bool is_mode(const struct lease_grant *grant, const char *mode) {
    return grant->payload && strstr(grant->payload, mode) != NULL;
}

/* Effects, one every 10 ms, each only while the lease is ours. `looked`: when it was about to look whether it is. */
static bool work_slowly(struct lease_item *item, long ms) {
    const struct lease_grant *grant = lease_item_grant(item);
    for (double end = now_s() + (double)ms / 1000, looked; (looked = now_s()) < end; pause_ms(10)) {
        char more[48];
        if (!lease_item_progress(item)) {
            say_item("stopped working", grant, "");
            return false;
        }
        snprintf(more, sizeof more, ", \"looked\": %.6f", looked);
        say_item("effect", grant, more);
    }
    return true;
}

/* One long wait for something, and a look at the lease only then. */
static void be_stuck(struct lease_item *item, long ms) {
    pause_ms(ms);
    if (!lease_item_is_mine(item))
        say_item("stopped working", lease_item_grant(item), "");
}

static void work(void *context, struct lease_item *item) {
    const struct lease_grant *grant = lease_item_grant(item);
    (void)context;
    say_item("begin", grant, "");
    if (is_mode(grant, "slow") && !work_slowly(item, of_payload(grant, "ms", 100))) {
        lease_item_fail(item, "stopped in the middle", true, -1);
        return;
    }
    if (is_mode(grant, "stubborn"))
        work_slowly(item, of_payload(grant, "ms", 100));
    if (is_mode(grant, "stuck") && grant->attempt == 1)
        be_stuck(item, of_payload(grant, "ms", 100));
    if (is_mode(grant, "silent"))
        return;
    if (is_mode(grant, "fail") && grant->attempt == 1)
        lease_item_fail(item, "the disk\nis full", true, 0);
    else if (is_mode(grant, "poison"))
        lease_item_fail(item, "never", false, -1);
    else if (is_mode(grant, "release") && !atomic_exchange(&has_released, true))
        lease_item_release(item);
    else if (is_mode(grant, "result"))
        lease_item_finish(item, "{\"rows\": 12, \"names\": [\"a\", \"b\"]}");
    else
        lease_item_finish(item, NULL);
}

static void on_lost(void *context, struct lease_item *item) {
    (void)context;
    say_item("lost", lease_item_grant(item), lease_item_is_mine(item) ? ", \"mine\": true" : ", \"mine\": false");
}

static void on_settled(void *context, const struct lease_grant *grant, const char *outcome) {
    char more[64];
    (void)context;
    snprintf(more, sizeof more, ", \"outcome\": \"%s\"", outcome ? outcome : "none");
    say_item("settled", grant, more);
}

static void say_stats(struct lease_worker *worker) {
    struct lease_worker_stats stats = {.size = sizeof stats};
    lease_worker_get_stats(worker, &stats);
    say("stats",
        ", \"claimed\": %llu, \"begun\": %llu, \"finished\": %llu, \"failed\": %llu, \"released\": %llu, \"lost\": %llu, "
        "\"stale\": %llu, \"renewals\": %llu, \"resent\": %llu, \"unanswered\": %llu, \"dropped\": %llu, \"in_hand\": %llu, "
        "\"asked\": %llu",
        (unsigned long long)stats.claimed, (unsigned long long)stats.begun, (unsigned long long)stats.finished,
        (unsigned long long)stats.failed, (unsigned long long)stats.released, (unsigned long long)stats.lost,
        (unsigned long long)stats.stale, (unsigned long long)stats.renewals, (unsigned long long)stats.resent,
        (unsigned long long)stats.unanswered, (unsigned long long)stats.dropped, (unsigned long long)stats.in_hand,
        (unsigned long long)stats.asked);
}

static int run_pool(const char *kind, char **words) {
    struct lease_worker_options options;
    struct lease_worker *worker;
    struct lease_error error;
    lease_worker_options_init(&options);
    connect_to(&options.connection);
    options.kind = kind;
    options.name = setting(words, "name", "probe");
    options.work = work;
    options.lost = on_lost;
    options.settled = on_settled;
    options.concurrency = number(words, "concurrency", 4);
    options.credit = number(words, "credit", 0);
    options.ttl_ms = number(words, "ttl_ms", 2000);
    options.wait_ms = number(words, "wait_ms", 0);
    options.margin_ms = number(words, "margin_ms", 0);
    options.answer_ms = number(words, "answer_ms", 0);
    if (!lease_worker_start(&options, &worker, &error)) {
        say("error", ", \"code\": \"%s\", \"message\": \"%s\"", error.code, error.message);
        return 1;
    }
    say("started", ", \"holder\": \"%s\"", lease_worker_holder(worker));
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "stop ", 5) == 0)
            say("stopped", ", \"running\": %u", lease_worker_stop(worker, (unsigned)strtoul(line + 5, NULL, 10)));
        else if (strncmp(line, "stats", 5) == 0)
            say_stats(worker);
        else
            break;
    }
    lease_worker_stop(worker, 0);
    lease_worker_free(worker);
    say("ended", "%s", "");
    return 0;
}

/* ---- runs ---- */

static const char *or_none(const char *text) {
    return text ? text : "";
}

static void say_answer(const char *what, const char *status, const struct lease_answer *answer) {
    if (!answer) {
        say(what, ", \"status\": \"%s\"", status);
        return;
    }
    const struct lease_blocker *by = &answer->held_by;
    say(what,
        ", \"status\": \"%s\", \"outcome\": \"%s\", \"fence\": %lld, \"reason\": \"%s\", \"refusal\": %s, \"held_by\": {\"holder\": "
        "\"%s\", \"lease\": \"%s\", \"resource\": \"%s\", \"since\": \"%s\", \"until\": \"%s\", \"remaining_ms\": %lld}",
        status, answer->outcome, (long long)answer->fence, or_none(answer->reason), answer->is_refusal ? "true" : "false",
        or_none(by->holder), or_none(by->lease), or_none(by->resource), or_none(by->since), or_none(by->until),
        (long long)by->remaining_ms);
}

static void on_answered(void *context, struct lease_run *run, const struct lease_answer *answer) {
    (void)context;
    (void)run;
    say_answer("called back", answer ? "answered" : "unanswered", answer);
}

static void on_run_lost(void *context, struct lease_run *run) {
    (void)context;
    say("lost", ", \"mine\": %s", lease_run_is_mine(run) ? "true" : "false");
}

static const char *const statuses[] = {[LEASE_ACCEPTED] = "accepted", [LEASE_REFUSED] = "refused", [LEASE_PENDING] = "pending",
                                       [LEASE_UNANSWERED] = "unanswered", [LEASE_FAILED] = "failed"};

static void say_status(enum lease_status status, struct lease_run *run, const struct lease_error *error) {
    if (status == LEASE_FAILED)
        say("answer", ", \"status\": \"failed\", \"code\": \"%s\"", error->code);
    else
        say_answer("answer", statuses[status], status == LEASE_PENDING ? NULL : lease_run_answer(run));
}

enum { WORDS_MAX = 64 };

static size_t split(char *line, char *ret_words[WORDS_MAX]) {
    size_t count = 0;
    for (char *word = strtok(line, " \n"); word && count < WORDS_MAX; word = strtok(NULL, " \n"))
        ret_words[count++] = word;
    return count;
}

enum { ANSWER_MS = 3000 };

static void start_run(struct lease_client *client, char **words, size_t count, struct lease_run **run) {
    struct lease_run_options options;
    struct lease_error error;
    bool is_latent = strcmp(words[0], "latent") == 0, is_later = is_latent || strcmp(words[0], "later") == 0;
    bool is_patient = is_latent || strcmp(words[0], "patient") == 0;
    size_t first = is_later && !is_latent ? 2 : 3;
    unsigned ms = first == 3 ? (unsigned)strtoul(words[2], NULL, 10) : 0, wait_ms = is_later ? 0 : is_patient ? ANSWER_MS : ms;
    lease_run_options_init(&options);
    options.lease = words[1];
    options.resources = (const char *const *)(words + first);
    options.resource_count = count - first;
    options.is_manual = strcmp(words[0], "manual") == 0;
    options.line_ms = is_patient ? ms : 0;
    options.lost = on_run_lost;
    options.answered = is_later ? on_answered : NULL;
    enum lease_status status = lease_run_start(client, &options, wait_ms, run, &error);
    say_status(status, *run, &error);
}

struct list {
    const char *type;
    long at, count, pause_at, pause_ms, pause_from;
    char name[64];
};

static bool is_pause(const struct list *list) {
    return list->at > list->pause_from && list->at % list->pause_at == 0;
}

static const char *next_of_list(void *context, struct lease_error *error) {
    struct list *list = context;
    if (is_pause(list) && list->pause_ms <= 0) {
        *error = (struct lease_error){.kind = LEASE_ERROR_RETRY, .code = "listing", .message = "it broke off"};
        return NULL;
    }
    if (is_pause(list))
        pause_ms(list->pause_ms);
    if (list->at == list->count)
        return NULL;
    snprintf(list->name, sizeof list->name, "%s/%ld", list->type, list->at++);
    return list->name;
}

static void start_list(struct lease_client *client, char **words, size_t count, struct lease_run **run) {
    struct list list = {.type = words[3], .count = strtol(words[4], NULL, 10), .pause_at = LONG_MAX};
    struct lease_run_options options;
    struct lease_error error;
    if (count > 6) {
        list.pause_at = strtol(words[5], NULL, 10);
        list.pause_ms = strtol(words[6], NULL, 10);
        list.pause_from = count > 7 ? strtol(words[7], NULL, 10) : 0;
    }
    lease_run_options_init(&options);
    options.lease = words[1];
    options.lost = on_run_lost;
    options.next = next_of_list;
    options.context = &list;
    options.tables = (const char *const *)&words[3];
    options.table_count = 1;
    enum lease_status status = lease_run_start(client, &options, (unsigned)strtoul(words[2], NULL, 10), run, &error);
    say_status(status, *run, &error);
}

static void start_many(struct lease_client *client, char **words, struct lease_run **run) {
    struct list list = {.type = words[3], .count = strtol(words[4], NULL, 10), .pause_at = LONG_MAX};
    size_t count = (size_t)list.count;
    char **names = calloc(count + 1, sizeof *names);
    struct lease_run_options options;
    struct lease_error error;
    if (!names)
        abort();
    for (size_t i = 0; i < count; i++)
        names[i] = strdup(next_of_list(&list, &error));
    lease_run_options_init(&options);
    options.lease = words[1];
    options.is_manual = true;
    options.lost = on_run_lost;
    options.resources = (const char *const *)names;
    options.resource_count = count;
    enum lease_status status = lease_run_start(client, &options, (unsigned)strtoul(words[2], NULL, 10), run, &error);
    say_status(status, *run, &error);
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static bool is_start(const char *word) {
    static const char *const words[] = {"start", "manual", "later", "patient", "latent", "list", "many"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static void start_any(struct lease_client *client, char **words, size_t count, struct lease_run **run) {
    if (strcmp(words[0], "list") == 0)
        start_list(client, words, count, run);
    else if (strcmp(words[0], "many") == 0)
        start_many(client, words, run);
    else
        start_run(client, words, count, run);
}

static void ask_run(struct lease_run *run, char **words, size_t count) {
    struct lease_error error;
    unsigned wait_ms = count > 1 ? (unsigned)strtoul(words[count - 1], NULL, 10) : 0;
    if (strcmp(words[0], "renew") == 0)
        say_status(lease_run_renew(run, wait_ms, &error), run, &error);
    else if (strcmp(words[0], "advance") == 0)
        say_status(lease_run_advance(run, words[1], wait_ms, &error), run, &error);
    else if (strcmp(words[0], "finish") == 0)
        say_status(lease_run_finish(run, "{\"rows\": 3}", wait_ms, &error), run, &error);
    else if (strcmp(words[0], "fail") == 0)
        say_status(lease_run_fail(run, "it broke", true, wait_ms, &error), run, &error);
    else if (strcmp(words[0], "release") == 0)
        say_status(lease_run_release(run, wait_ms, &error), run, &error);
    else if (strcmp(words[0], "mine") == 0)
        say("mine", ", \"mine\": %s, \"remaining_ms\": %lld", lease_run_is_mine(run) ? "true" : "false",
            (long long)lease_run_remaining_ms(run));
    else if (strcmp(words[0], "progress") == 0) {
        bool is_mine = true;
        for (double end = now_s() + wait_ms / 1000.0; is_mine && now_s() < end; pause_ms(10))
            is_mine = lease_run_progress(run);
        say("mine", ", \"mine\": %s", is_mine ? "true" : "false");
    }
}

static int run_runs(const char *kind, char **settings) {
    enum { RUNS = 100 };
    struct lease_client_options options;
    struct lease_client *client;
    struct lease_error error;
    struct lease_run *runs[RUNS], *run = NULL;
    size_t run_count = 0;
    lease_client_options_init(&options);
    connect_to(&options.connection);
    options.kind = kind;
    options.name = setting(settings, "name", "probe");
    options.ttl_ms = number(settings, "ttl_ms", 2000);
    options.margin_ms = number(settings, "margin_ms", 0);
    if (!lease_client_new(&options, &client, &error)) {
        say("error", ", \"code\": \"%s\", \"message\": \"%s\"", error.code, error.message);
        return 1;
    }
    say("started", ", \"holder\": \"%s\"", lease_client_holder(client));
    char line[4096], *words[WORDS_MAX];
    while (fgets(line, sizeof line, stdin)) {
        size_t count = split(line, words);
        if (count == 0 || strcmp(words[0], "end") == 0)
            break;
        if (is_start(words[0]) && run_count < RUNS) {
            run = NULL;
            start_any(client, words, count, &run);
            if (run)
                runs[run_count++] = run;
        } else if (strcmp(words[0], "free") == 0 && run_count > 0) {
            lease_run_free(runs[--run_count]);
            run = run_count > 0 ? runs[run_count - 1] : NULL;
        } else if (run) {
            ask_run(run, words, count);
        }
    }
    while (run_count > 0)
        lease_run_free(runs[--run_count]);
    lease_client_free(client);
    say("ended", "%s", "");
    return 0;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    if (strcmp(words[1], "pool") == 0)
        return run_pool(words[2], words + 3);
    return strcmp(words[1], "run") == 0 ? run_runs(words[2], words + 3) : 2;
}
