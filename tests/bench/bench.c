/* lease-bench: the measuring program behind ./dev bench. One mode a call; bench.py interleaves the calls, takes medians
 * and compares them. Not for load on anybody else's server: its work is bounded by --count and --rounds. */
#include "tests/bench/bench.h"

#include "common/clock.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void require(bool ok, const struct error *error) {
    if (ok)
        return;
    fprintf(stderr, "lease-bench: %s: %s\n", error->code[0] != '\0' ? error->code : "unexpected", error->message);
    exit(70);
}

struct db *bench_connect(const struct bench *bench) {
    struct db_options options = {.conninfo = bench->database, .application_name = "lease-bench", .deadline_ms = -1,
                                 .statement_timeout_ms = -1, .lock_timeout_ms = -1, .idle_in_transaction_ms = -1};
    struct error error = {0};
    struct db *db = NULL;
    require(db_connect(&options, &db, &error), &error);
    return db;
}

void bench_execute(struct db *db, const char *sql) {
    struct error error = {0};
    require(db_execute(db, sql, &error), &error);
}

int64_t now_us(void) { return clock_monotonic_us(); }

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t median(int64_t *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

char *bench_topic(const struct bench *bench, const char *name) {
    char *topic = NULL;
    if (asprintf(&topic, "%s%s", bench->prefix, name) < 0)
        abort();
    return topic;
}

static const struct {
    const char *name;
    void (*run)(const struct bench *bench);
} modes[] = {
    {"sql", bench_sql},           {"produce", bench_produce}, {"drain", bench_drain},
    {"per-message", bench_per_message}, {"latency", bench_latency}, {"covered", bench_covered},
};

static void usage(void) {
    fprintf(stderr, "usage: lease-bench MODE --database CONNINFO --brokers LIST --prefix TEXT --run NAME [--kind mixed|hot|starts]\n"
                    "         [--count N] [--batch N] [--rounds N]     (LEASE_TOKEN_KEY in the environment)\n"
                    "modes:");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        fprintf(stderr, " %s", modes[i].name);
    fprintf(stderr, "\n");
    exit(64);
}

int main(int argc, char **argv) {
    struct bench bench = {.prefix = "", .run = "run", .kind = "mixed", .count = 10000, .batch = 1000, .rounds = 100};
    static const struct option options[] = {
        {"database", required_argument, NULL, 'd'}, {"brokers", required_argument, NULL, 'b'}, {"prefix", required_argument, NULL, 'p'},
        {"run", required_argument, NULL, 'r'},      {"kind", required_argument, NULL, 'k'},    {"count", required_argument, NULL, 'c'},
        {"batch", required_argument, NULL, 'n'},    {"rounds", required_argument, NULL, 'o'},  {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (option) {
        case 'd': bench.database = optarg; break;
        case 'b': bench.brokers = optarg; break;
        case 'p': bench.prefix = optarg; break;
        case 'r': bench.run = optarg; break;
        case 'k': bench.kind = optarg; break;
        case 'c': bench.count = strtoul(optarg, NULL, 10); break;
        case 'n': bench.batch = strtoul(optarg, NULL, 10); break;
        case 'o': bench.rounds = strtoul(optarg, NULL, 10); break;
        default: usage();
        }
    const char *key = getenv("LEASE_TOKEN_KEY");
    if (optind != argc - 1 || key == NULL || bench.database == NULL || bench.count == 0 || bench.batch == 0 || bench.rounds == 0)
        usage();
    struct error error = {0};
    require(token_keys_new(key, strlen(key), NULL, 0, &bench.keys, &error), &error);
    bench.kafka = (struct kafka_settings){.brokers = bench.brokers, .client_id = "lease-bench"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, argv[optind]) == 0) {
            modes[i].run(&bench);
            token_keys_free(bench.keys);
            return 0;
        }
    usage();
}
