/* The rules against the rules: random commands, through the model and through lease.apply.
 *
 *   model_driver [--seed N] [--commands N] [--seeds N] [--database CONNINFO] [--sql FOLDER] [--shrink SECONDS]
 *
 * The database is a server on which this may create databases (default: $LEASE_TEST_DATABASE). Exit 0: no
 * difference. Exit 1: a difference, shrunk to few commands, printed as words and as statements for psql. */
#include "compare.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef LEASE_SQL_FOLDER
#define LEASE_SQL_FOLDER "sql"
#endif

#define COMMANDS_DEFAULT 120000
#define SHRINK_SECONDS 90
#define FIRST_MOMENT (INT64_C(4102444800) * 1000000) /* the year 2100: no real clock interferes */

static const struct model_kind kinds[] = {
    {.name = "settlement", .mode = MODE_RUN, .ttl_default_ms = 5000, .ttl_max_ms = 60000, .steps = 2},
    {.name = "cleanup", .mode = MODE_POOL, .ttl_default_ms = 4000, .ttl_max_ms = 30000, .attempts_max = 3, .backoff_base_ms = 1000,
     .backoff_max_ms = 3000},
    {.name = "ratio", .mode = MODE_RUN, .ttl_default_ms = 1, .ttl_max_ms = 1000, .steps = 1},
    {.name = "delivery", .mode = MODE_POOL, .ttl_default_ms = 20000, .ttl_max_ms = 20000, .attempts_max = 7, .backoff_base_ms = 10,
     .backoff_max_ms = 100000},
};

struct options {
    uint64_t seed;
    size_t commands, seeds;
    double shrink_seconds;
    const char *database, *sql;
};

static struct setting setting_for(size_t commands) {
    return (struct setting){.kinds = kinds, .kind_count = (int)(sizeof kinds / sizeof *kinds), .leases_per_kind = 3000, .workers = 40,
                            .messages = (int64_t)commands + 1, .unfenced = 3};
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static bool still_fails(const struct setting *setting, const struct database *template, struct script *script) {
    struct tally tally;
    struct failure failure;
    return !compare_run(setting, template, script, NULL, 0, &tally, &failure);
}

/* Cuts out ever smaller pieces for as long as the rest still differs. Borrows the commands of `whole`. */
static void shrink_steps(const struct setting *setting, const struct database *template, struct script *script, double deadline) {
    for (size_t piece = script->count / 2; piece > 0; piece /= 2)
        for (size_t from = 0; from < script->count && now() < deadline;) {
            size_t width = from + piece > script->count ? script->count - from : piece;
            struct script less = {.steps = malloc(sizeof *less.steps * (script->count + 1)), .count = script->count - width};
            if (!less.steps) abort();
            memcpy(less.steps, script->steps, from * sizeof *less.steps);
            memcpy(less.steps + from, script->steps + from + width, (script->count - from - width) * sizeof *less.steps);
            if (still_fails(setting, template, &less)) {
                free(script->steps);
                *script = less;
            } else {
                free(less.steps);
                from += piece;
            }
        }
}

static void shrink_commands(const struct setting *setting, const struct database *template, struct script *script, double deadline) {
    for (size_t s = script->count; s-- > 0;) {
        struct step *step = &script->steps[s];
        for (size_t piece = (step->count + 1) / 2; piece > 0; piece /= 2)
            for (size_t from = 0; from < step->count && now() < deadline;) {
                struct step whole = *step;
                size_t width = from + piece > step->count ? step->count - from : piece;
                step->commands = malloc(sizeof *step->commands * (whole.count + 1));
                if (!step->commands) abort();
                memcpy(step->commands, whole.commands, from * sizeof *whole.commands);
                memcpy(step->commands + from, whole.commands + from + width, (whole.count - from - width) * sizeof *whole.commands);
                step->count = whole.count - width;
                if (still_fails(setting, template, script)) continue; /* what was cut leaks: the process is about to end */
                free(step->commands);
                *step = whole;
                from += piece;
            }
    }
}

static void shrink(const struct setting *setting, const struct database *template, const struct script *whole, const struct failure *failure,
                   double allowed) {
    struct script script = {.count = failure->step + 1 > whole->count ? whole->count : failure->step + 1};
    double deadline = now() + allowed;
    script.steps = malloc(sizeof *script.steps * (script.count + 1));
    if (!script.steps) abort();
    memcpy(script.steps, whole->steps, script.count * sizeof *script.steps);
    shrink_steps(setting, template, &script, deadline);
    shrink_commands(setting, template, &script, deadline);
    shrink_steps(setting, template, &script, deadline);
    shrink_commands(setting, template, &script, deadline);
    printf("shrunk to %zu steps:\n", script.count);
    compare_print(setting, template, &script);
    free(script.steps);
}

static void print_tally(const struct tally *tally, double took) {
    printf("  %zu commands in %zu steps, %zu reaps that turned %zu over, %zu journal rows; %.1f s, lease.apply %.0f commands/s\n ", tally->commands,
           tally->steps, tally->reaps, tally->turned, tally->events, took, (double)tally->commands / tally->database_seconds);
    for (int i = 0; i < OUTCOME_COUNT; i++)
        if (tally->outcomes[i]) printf(" %s %zu", model_outcome_names[i], tally->outcomes[i]);
    printf("\n  at the end:");
    for (int i = 1; i < STATE_COUNT; i++) printf(" %s %zu", model_state_names[i], tally->states[i]);
    printf("\n");
}

static bool run_seed(const struct options *options, uint64_t seed, const struct database *template) {
    struct setting setting = setting_for(options->commands);
    struct script script = {0};
    struct tally tally;
    struct failure failure;
    struct generator *generator = generator_new(seed, kinds, setting.kind_count, setting.leases_per_kind, setting.workers, setting.messages, FIRST_MOMENT);
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    double started = now();
    bool is_same = compare_run(&setting, template, &script, generator, options->commands, &tally, &failure);
    print_tally(&tally, now() - started);
    if (!is_same) {
        printf("seed %llu, step %zu, command %ld: %s\n", (unsigned long long)seed, failure.step, failure.command, failure.text);
        fflush(stdout);
        shrink(&setting, template, &script, &failure, options->shrink_seconds);
    }
    generator_free(generator);
    script_release(&script);
    return is_same;
}

static struct options parse(int argc, char **argv) {
    static const struct option longs[] = {
        {"seed", required_argument, NULL, 's'}, {"commands", required_argument, NULL, 'c'}, {"seeds", required_argument, NULL, 'n'},
        {"database", required_argument, NULL, 'd'}, {"sql", required_argument, NULL, 'q'},
        {"shrink", required_argument, NULL, 'k'}, {0}};
    struct options options = {.seed = (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000, .commands = COMMANDS_DEFAULT, .seeds = 1, .shrink_seconds = SHRINK_SECONDS,
                              .database = getenv("LEASE_TEST_DATABASE"), .sql = LEASE_SQL_FOLDER};
    for (int option; (option = getopt_long(argc, argv, "", longs, NULL)) != -1;) switch (option) {
        case 's': options.seed = strtoull(optarg, NULL, 10); break;
        case 'c': options.commands = strtoull(optarg, NULL, 10); break;
        case 'n': options.seeds = strtoull(optarg, NULL, 10); break;
        case 'd': options.database = optarg; break;
        case 'q': options.sql = optarg; break;
        case 'k': options.shrink_seconds = strtod(optarg, NULL); break;
        default: exit(64);
        }
    return options;
}

int main(int argc, char **argv) {
    struct options options = parse(argc, argv);
    bool is_same = true;
    if (!options.database) {
        fprintf(stderr, "model_driver: which server? Set LEASE_TEST_DATABASE or give --database\n");
        return 64;
    }
    struct setting setting = setting_for(options.commands);
    struct database *template = database_template_new(options.database, options.sql, kinds, setting.kind_count);
    for (size_t i = 0; i < options.seeds && is_same; i++) is_same = run_seed(&options, options.seed + i, template);
    database_free(template);
    printf(is_same ? "no difference\n" : "DIFFERENCE\n");
    return is_same ? 0 : 1;
}
