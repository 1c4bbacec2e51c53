/* The consumer's side for test_gates.py: a gate or a reader of results, on real topics. Configured by LEASE_BROKERS and LEASE_TOPIC_PREFIX.
 *
 *   gate_process gate RESOURCES_MAX
 *     Commands on stdin, an answer on stdout for each: `admit RESOURCE FENCE CLAIM EFFECT` → the verdict, without reading first;
 *     `done RESOURCE FENCE CLAIM EFFECT` → ok; `poll MS` → `RECORDS ready|not-ready RESOURCES FORGOTTEN` after one poll.
 *   gate_process results MAX TOPIC …
 *     Positions on stdin (`TOPIC PARTITION OFFSET NUMBER EPOCH` each). Hands out MAX records at most, or up to the ends; prints
 *     `record TOPIC PARTITION OFFSET`, `gap TOPIC PARTITION OFFSET`, then `position …` as above. */
#include "common/gate_reader.h"
#include "common/results_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POSITIONS_MAX = 100 };

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static int failed(const struct error *error) {
    fprintf(stderr, "%s (%s): %s\n", error->code, error_kind_name(error->kind), error->message);
    return 70;
}

/* ---- gate ---- */

static bool parse_request(const char *line, char resource[256], struct gate_request *ret) {
    char claim_id[64];
    long long fence, effect;
    if (sscanf(line, "%*s %255s %lld %63s %lld", resource, &fence, claim_id, &effect) != 4)
        return false;
    *ret = (struct gate_request){resource, strlen(resource), fence, {{0}}, effect};
    return claim_id_parse(claim_id, strlen(claim_id), &ret->claim_id);
}

static bool poll_gate(struct gate *gate, struct gate_reader *reader, int timeout_ms, struct error *error) {
    size_t count;
    struct gate_counts counts;
    if (!gate_reader_poll(reader, timeout_ms, &count, error) && error->kind != ERROR_RETRY)
        return false;
    gate_get_counts(gate, &counts);
    printf("%lld %s %zu %lld\n", (long long)counts.records, gate_is_ready(gate) ? "ready" : "not-ready", counts.resources,
           (long long)counts.forgotten);
    return true;
}

static int serve(struct gate *gate, struct gate_reader *reader) {
    char line[512], resource[256];
    struct error error;
    struct gate_request request;
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "poll ", 5) == 0) {
            if (!poll_gate(gate, reader, atoi(line + 5), &error))
                return failed(&error);
        } else if (!parse_request(line, resource, &request)) {
            return 64;
        } else if (strncmp(line, "done ", 5) == 0) {
            gate_done(gate, &request);
            printf("ok\n");
        } else {
            printf("%s\n", gate_verdict_name(gate_admit(gate, &request)));
        }
        fflush(stdout);
    }
    return 0;
}

static int run_gate(const struct kafka_settings *kafka, const char *resources_max) {
    struct error error;
    struct gate_reader *reader;
    struct gate *gate = gate_new(&(struct gate_options){.resources_max = strtoul(resources_max, NULL, 10)});
    const struct gate_reader_options options = {.settings = kafka, .group = "gate-process", .topic_prefix = setting("LEASE_TOPIC_PREFIX", "")};
    int code = gate_reader_new(&options, gate, &reader, &error) ? serve(gate, reader) : failed(&error);
    if (code == 0)
        gate_reader_free(reader);
    gate_free(gate);
    return code;
}

/* ---- results ---- */

static size_t read_positions(struct results_position positions[POSITIONS_MAX], char topics[POSITIONS_MAX][256]) {
    size_t count = 0;
    long long offset, number, epoch;
    int partition;
    while (count < POSITIONS_MAX && scanf("%255s %d %lld %lld %lld", topics[count], &partition, &offset, &number, &epoch) == 5) {
        positions[count] = (struct results_position){topics[count], partition, offset, number, epoch};
        count++;
    }
    return count;
}

static int read_results(struct results_reader *reader, long max) {
    struct error error;
    struct message message;
    for (long count = 0; count < max && !results_reader_is_at_end(reader);) {
        enum results_read what = results_reader_poll(reader, 100, &message, &error);
        if (what == RESULTS_ERROR && error.kind != ERROR_RETRY)
            return failed(&error);
        if (what != RESULTS_RECORD && what != RESULTS_GAP)
            continue;
        printf("%s %s %d %lld\n", what == RESULTS_GAP ? "gap" : "record", message.topic, (int)message.partition, (long long)message.offset);
        count += what == RESULTS_RECORD;
    }
    size_t count;
    const struct results_position *positions = results_reader_positions(reader, &count);
    for (size_t i = 0; i < count; i++)
        printf("position %s %d %lld %lld %lld\n", positions[i].topic, (int)positions[i].partition, (long long)positions[i].offset,
               (long long)positions[i].number, (long long)positions[i].epoch);
    printf("kinds %lld %lld %lld %lld %lld\n", (long long)results_reader_count(reader, RESULTS_NEW),
           (long long)results_reader_count(reader, RESULTS_MARK), (long long)results_reader_count(reader, RESULTS_REPEAT),
           (long long)results_reader_count(reader, RESULTS_STRAGGLER), (long long)results_reader_count(reader, RESULTS_STRANGER));
    return 0;
}

static int run_results(const struct kafka_settings *kafka, int argument_count, char **arguments) {
    static struct results_position positions[POSITIONS_MAX];
    static char topics[POSITIONS_MAX][256];
    struct error error;
    struct results_reader *reader;
    const struct results_reader_options options = {
        .settings = kafka,
        .group = "gate-process",
        .topics = (const char *const *)(arguments + 1),
        .topic_count = (size_t)argument_count - 1,
        .positions = positions,
        .position_count = read_positions(positions, topics),
        .from_end = getenv("LEASE_TEST_FROM_END") != NULL,
    };
    if (!results_reader_new(&options, &reader, &error))
        return failed(&error);
    int code = read_results(reader, strtol(arguments[0], NULL, 10));
    results_reader_free(reader);
    return code;
}

int main(int argument_count, char **arguments) {
    const struct kafka_settings kafka = {.brokers = setting("LEASE_BROKERS", "127.0.0.1:9092"), .client_id = "gate-process"};
    if (argument_count == 3 && strcmp(arguments[1], "gate") == 0)
        return run_gate(&kafka, arguments[2]);
    if (argument_count > 3 && strcmp(arguments[1], "results") == 0)
        return run_results(&kafka, argument_count - 2, arguments + 2);
    return 64;
}
