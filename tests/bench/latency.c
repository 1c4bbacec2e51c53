/* Latency: one command at a time, from produced to result consumed, in turn with the least that such a path can cost here:
 * two bare Kafka hops and one bare commit. */
#include "tests/bench/bench.h"

#include "common/kafka_producer.h"
#include "common/kafka_reader.h"
#include "tests/bench/workload.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct kafka_reader *read_topic(const struct bench *bench, const char *topic) {
    struct kafka_reader_options options = {.settings = &bench->kafka, .group = "lease-bench", .wait_ms = 500};
    struct kafka_reader *reader = NULL;
    struct error error = {0};
    require(kafka_reader_new(&options, &reader, &error), &error);
    int32_t partitions = 0;
    require(kafka_reader_partition_count(reader, topic, 10000, &partitions, &error), &error);
    struct kafka_partition *places = calloc((size_t)partitions, sizeof *places);
    for (int32_t i = 0; i < partitions; i++) {
        int64_t low, high;
        require(kafka_reader_watermarks(reader, topic, i, 10000, &low, &high, &error), &error);
        places[i] = (struct kafka_partition){.topic = topic, .partition = i, .offset = high};
    }
    require(kafka_reader_assign(reader, places, (size_t)partitions, &error), &error);
    free(places);
    return reader;
}

static struct kafka_producer *produce(const struct bench *bench) {
    struct kafka_producer_options options = {.settings = &bench->kafka};
    struct kafka_producer *producer = NULL;
    struct error error = {0};
    require(kafka_producer_new(&options, &producer, &error), &error);
    return producer;
}

static void send(struct kafka_producer *producer, const struct message *message) {
    struct kafka_record record = {.topic = message->topic, .partition = KAFKA_PARTITION_BY_KEY, .key = message->key, .key_size = message->key_size,
                                  .value = message->value, .value_size = message->value_size, .headers = message->headers, .header_count = message->header_count};
    struct error error = {0};
    require(kafka_producer_send(producer, &record, 10000, &error), &error);
}

/* Waits for a record with this key. */
static void await(struct kafka_reader *reader, const char *key) {
    struct error error = {0};
    for (int64_t deadline = now_us() + 20000000;;) {
        struct message message;
        enum kafka_read read = kafka_reader_poll(reader, 1000, &message, &error);
        require(now_us() < deadline, &error);
        if (read == KAFKA_READ_MESSAGE && message.key_size == strlen(key) && memcmp(message.key, key, message.key_size) == 0)
            return;
    }
}

/* The middle of the bare path: takes a record from one topic, commits one row, passes the record on. */
struct hop {
    const struct bench *bench;
    struct kafka_reader *reader;
    struct kafka_producer *producer;
    struct db *db;
    const char *out;
    _Atomic bool is_over;
};

static void *hop_run(void *context) {
    struct hop *hop = context;
    struct error error = {0};
    while (!atomic_load(&hop->is_over)) {
        struct message message;
        if (kafka_reader_poll(hop->reader, 100, &message, &error) != KAFKA_READ_MESSAGE)
            continue;
        require(db_begin(hop->db, &error), &error);
        bench_execute(hop->db, "INSERT INTO public.bench_hop VALUES (1)");
        require(db_commit(hop->db, &error) == COMMIT_DONE, &error);
        message.topic = hop->out;
        send(hop->producer, &message);
    }
    return NULL;
}

static int64_t round_trip(struct kafka_producer *producer, struct kafka_reader *reader, const char *topic, const char *run, size_t i) {
    struct event event;
    workload_event(WORKLOAD_STARTS, run, i, NULL, &event);
    struct message message = workload_message(&event, topic, 0, 0);
    int64_t start = now_us();
    send(producer, &message);
    await(reader, event.subject);
    return now_us() - start;
}

void bench_latency(const struct bench *bench) {
    char *input = bench_topic(bench, "settlement.events"), *results = bench_topic(bench, "lease.results");
    char *one = bench_topic(bench, "bench.one"), *two = bench_topic(bench, "bench.two");
    struct hop hop = {.bench = bench, .reader = read_topic(bench, one), .producer = produce(bench), .db = bench_connect(bench), .out = two};
    bench_execute(hop.db, "CREATE TABLE IF NOT EXISTS public.bench_hop (n int)");
    struct kafka_producer *producer = produce(bench);
    struct kafka_reader *bare = read_topic(bench, two), *whole = read_topic(bench, results);
    pthread_t thread;
    pthread_create(&thread, NULL, hop_run, &hop);
    size_t warm = 20;
    int64_t *ours = calloc(bench->rounds, sizeof *ours), *floor = calloc(bench->rounds, sizeof *floor);
    for (size_t i = 0; i < bench->rounds + warm; i++) {
        char run[64];
        snprintf(run, sizeof run, "%s-floor", bench->run);
        int64_t least = round_trip(producer, bare, one, run, i);
        int64_t took = round_trip(producer, whole, input, bench->run, i);
        if (i >= warm) {
            floor[i - warm] = least;
            ours[i - warm] = took;
        }
    }
    atomic_store(&hop.is_over, true);
    pthread_join(thread, NULL);
    printf("latency ours_us %lld floor_us %lld\n", (long long)median(ours, bench->rounds), (long long)median(floor, bench->rounds));
    kafka_reader_free(hop.reader);
    kafka_reader_free(bare);
    kafka_reader_free(whole);
    kafka_producer_free(hop.producer);
    kafka_producer_free(producer);
    db_free(hop.db);
    free(ours);
    free(floor);
    free(input);
    free(results);
    free(one);
    free(two);
}
