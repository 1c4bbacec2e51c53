/* Throughput: the same workload applied straight, sent through Kafka, and handled one message at a time. */
#include "tests/bench/bench.h"

#include "common/kafka_consumer.h"
#include "common/kafka_producer.h"
#include "common/kafka_reader.h"
#include "coordinator/batch.h"
#include "coordinator/partition.h"
#include "coordinator/store.h"
#include "tests/bench/workload.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum workload_kind kind_of(const struct bench *bench) {
    return strcmp(bench->kind, "hot") == 0 ? WORKLOAD_HOT : strcmp(bench->kind, "starts") == 0 ? WORKLOAD_STARTS : WORKLOAD_MIXED;
}

static bool admit_any(void *context, struct db *db, int64_t since_ms, struct error *error) {
    (void)context, (void)db, (void)since_ms, (void)error;
    return true;
}

/* A store on a connection of its own, and a partition that it may claim, which no topic has. */
struct straight {
    struct store *store;
    struct partition *partition;
    int *outcomes;
    uint32_t lost[4];
};

static void straight_open(const struct bench *bench, struct db *db, size_t batch, struct straight *ret) {
    struct store_options options = {.database = bench->database, .application_name = "lease-bench", .idle_in_transaction_ms = -1,
                                    .deadline_ms = -1, .admit = admit_any};
    struct error error = {0};
    ret->store = store_new(&options);
    require(store_open(ret->store, &error), &error);
    ret->partition = partition_new("bench.straight", 0, NULL);
    ret->outcomes = calloc(batch, sizeof *ret->outcomes);
    struct db_result *rows = NULL;
    require(db_query(db, NULL, "SELECT epoch, coalesce(next_offset, -1) FROM lease.take_partition('bench.straight', 0, 1, 'bench')", NULL, &rows, &error), &error);
    ret->partition->epoch = db_int8(rows, 0, 0);
    ret->partition->handed = db_int8(rows, 0, 1);
    db_result_free(rows);
}

static void straight_close(struct straight *straight) {
    store_free(straight->store);
    partition_free(straight->partition);
    free(straight->outcomes);
}

static void straight_add(const struct bench *bench, struct straight *straight, struct batch *batch, const struct event *event) {
    int64_t offset = straight->partition->handed < 0 ? 0 : straight->partition->handed;
    struct message message = workload_message(event, straight->partition->topic, 0, offset);
    struct event_limits limits = event_limits_default();
    struct command command;
    struct error error = {0};
    require(event_decode(&message, &limits, &command), &error);
    command_check_token(&command, bench->keys);
    batch_add(batch, straight->partition, &message, &command);
    straight->partition->handed = offset + 1;
}

static void straight_apply(struct straight *straight, struct batch *batch) {
    struct store_answer answer = {.outcomes = straight->outcomes, .lost_slots = straight->lost};
    struct error error = {0};
    require(store_apply(straight->store, batch, 0, batch->count, &answer, &error) == STORE_DONE, &error);
}

void bench_sql(const struct bench *bench) {
    enum workload_kind kind = kind_of(bench);
    struct db *db = bench_connect(bench);
    struct grant *grants = workload_fill(db, bench->keys, bench->run, workload_grants(kind, bench->count));
    struct straight straight;
    straight_open(bench, db, bench->batch, &straight);
    size_t batches = (bench->count + bench->batch - 1) / bench->batch;
    struct batch **list = calloc(batches, sizeof *list);
    for (size_t i = 0; i < bench->count; i++) {
        struct event event;
        workload_event(kind, bench->run, i, grants, &event);
        if (i % bench->batch == 0)
            list[i / bench->batch] = batch_new();
        straight_add(bench, &straight, list[i / bench->batch], &event);
    }
    int64_t start = now_us();
    for (size_t i = 0; i < batches; i++)
        straight_apply(&straight, list[i]);
    int64_t took = now_us() - start;
    printf("sql count %zu us %lld\n", bench->count, (long long)took);
    for (size_t i = 0; i < batches; i++)
        batch_free(list[i]);
    free(list);
    free(grants);
    straight_close(&straight);
    db_free(db);
}

void bench_produce(const struct bench *bench) {
    enum workload_kind kind = kind_of(bench);
    struct db *db = bench_connect(bench);
    struct grant *grants = workload_fill(db, bench->keys, bench->run, workload_grants(kind, bench->count));
    db_free(db);
    struct kafka_producer_options options = {.settings = &bench->kafka, .linger_ms = 5};
    struct kafka_producer *producer = NULL;
    struct error error = {0};
    require(kafka_producer_new(&options, &producer, &error), &error);
    char *topics[2] = {bench_topic(bench, "settlement.events"), bench_topic(bench, "cleanup.events")};
    for (size_t i = 0; i < bench->count; i++) {
        struct event event;
        workload_event(kind, bench->run, i, grants, &event);
        struct message message = workload_message(&event, topics[event.topic[0] == 'c'], 0, 0);
        struct kafka_record record = {.topic = message.topic, .partition = KAFKA_PARTITION_BY_KEY, .key = message.key, .key_size = message.key_size,
                                      .value = message.value, .value_size = message.value_size, .headers = message.headers,
                                      .header_count = message.header_count, .number = i};
        require(kafka_producer_send(producer, &record, 10000, &error), &error);
    }
    require(kafka_producer_flush(producer, 30000, &error), &error);
    printf("produce count %zu\n", bench->count);
    kafka_producer_free(producer);
    free(topics[0]);
    free(topics[1]);
    free(grants);
}

/* Does this record answer a command of this run? Marks and the answers of other runs do not. */
static bool is_answer(const struct message *message) {
    for (size_t i = 0; i < message->header_count; i++)
        if (strcmp(message->headers[i].name, "lease_outcome") == 0)
            return true;
    return false;
}

/* Reads lease.results from its end as it is now (it says "ready" then) until `count` answers have come. */
void bench_drain(const struct bench *bench) {
    struct kafka_reader_options options = {.settings = &bench->kafka, .group = "lease-bench", .wait_ms = 100, .queue_kbytes = 16384};
    struct kafka_reader *reader = NULL;
    struct error error = {0};
    require(kafka_reader_new(&options, &reader, &error), &error);
    char *topic = bench_topic(bench, "lease.results");
    int32_t partitions = 0;
    require(kafka_reader_partition_count(reader, topic, 10000, &partitions, &error), &error);
    struct kafka_partition *places = calloc((size_t)partitions, sizeof *places);
    for (int32_t i = 0; i < partitions; i++) {
        int64_t low, high;
        require(kafka_reader_watermarks(reader, topic, i, 10000, &low, &high, &error), &error);
        places[i] = (struct kafka_partition){.topic = topic, .partition = i, .offset = high};
    }
    require(kafka_reader_assign(reader, places, (size_t)partitions, &error), &error);
    printf("ready\n");
    fflush(stdout);
    int64_t first = 0, last = 0, deadline = now_us() + 120000000;
    size_t seen = 0, at_first = 0;
    while (seen < bench->count) {
        struct message message;
        enum kafka_read read = kafka_reader_poll(reader, 1000, &message, &error);
        require(read != KAFKA_READ_PARTITION_ERROR && now_us() < deadline, &error);
        if (read != KAFKA_READ_MESSAGE || !is_answer(&message))
            continue;
        seen++;
        last = now_us();
        if (first == 0)
            first = last;
        if (last - first < 1000)
            at_first = seen; /* what came with the first fetch was made before the clock ran */
    }
    printf("drain count %zu us %lld\n", seen - at_first, (long long)(last - first));
    kafka_reader_free(reader);
    free(places);
    free(topic);
}

/* The straightforward consumer: poll one, decide it in a transaction, produce its result and wait, commit its offset and wait. */
void bench_per_message(const struct bench *bench) {
    struct db *db = bench_connect(bench);
    struct straight straight;
    straight_open(bench, db, 1, &straight);
    char errstr[256], name[96];
    struct error error = {0};
    char *inputs[2] = {bench_topic(bench, "settlement.events"), bench_topic(bench, "cleanup.events")};
    char *results = bench_topic(bench, "lease.results");
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    snprintf(name, sizeof name, "bench-%s", bench->run);
    const char *settings[][2] = {{"bootstrap.servers", bench->brokers}, {"group.id", name}, {"enable.auto.commit", "false"},
                                 {"auto.offset.reset", "earliest"}, {"socket.nagle.disable", "true"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], errstr, sizeof errstr) != RD_KAFKA_CONF_OK)
            error_set(&error, ERROR_FATAL, "conf", "%s", errstr);
    rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, errstr, sizeof errstr);
    require(consumer != NULL, &error);
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(2);
    rd_kafka_topic_partition_list_add(topics, inputs[0], RD_KAFKA_PARTITION_UA);
    rd_kafka_topic_partition_list_add(topics, inputs[1], RD_KAFKA_PARTITION_UA);
    require(rd_kafka_subscribe(consumer, topics) == RD_KAFKA_RESP_ERR_NO_ERROR, &error);
    struct kafka_producer_options options = {.settings = &bench->kafka};
    struct kafka_producer *producer = NULL;
    require(kafka_producer_new(&options, &producer, &error), &error);

    struct batch *batch = batch_new();
    struct event_limits limits = event_limits_default();
    int64_t start = 0;
    size_t done = 0, warm = 50;
    while (done < bench->count + warm) {
        rd_kafka_message_t *polled = rd_kafka_consumer_poll(consumer, 10000);
        require(polled != NULL, &error);
        if (polled->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            rd_kafka_message_destroy(polled);
            continue;
        }
        if (done == warm)
            start = now_us();
        struct message_header headers[8];
        rd_kafka_headers_t *all = NULL;
        struct message message = {.topic = straight.partition->topic, .offset = straight.partition->handed < 0 ? 0 : straight.partition->handed,
                                  .key = polled->key, .key_size = polled->key_len, .value = polled->payload, .value_size = polled->len, .headers = headers};
        if (rd_kafka_message_headers(polled, &all) == RD_KAFKA_RESP_ERR_NO_ERROR)
            for (; message.header_count < 8; message.header_count++) {
                struct message_header *header = &headers[message.header_count];
                if (rd_kafka_header_get_all(all, message.header_count, &header->name, &header->value, &header->value_size) != RD_KAFKA_RESP_ERR_NO_ERROR)
                    break;
                header->name_size = strlen(header->name);
            }
        struct command command;
        require(event_decode(&message, &limits, &command), &error);
        command_check_token(&command, bench->keys);
        batch_add(batch, straight.partition, &message, &command);
        straight.partition->handed = message.offset + 1;
        straight_apply(&straight, batch);
        batch_reset(batch);
        char value[160];
        int size = snprintf(value, sizeof value, "{\"outcome\":\"%s\",\"lease\":\"%.*s\"}", lease_outcome_name((enum lease_outcome)straight.outcomes[0]),
                            (int)message.key_size, (const char *)message.key);
        struct kafka_record record = {.topic = results, .partition = KAFKA_PARTITION_BY_KEY, .key = message.key, .key_size = message.key_size,
                                      .value = value, .value_size = (size_t)size};
        require(kafka_producer_send(producer, &record, 10000, &error), &error);
        /* Not a flush: librdkafka's looks every 10 ms only, which would flatter us. */
        for (int64_t deadline = now_us() + 10000000; kafka_producer_in_flight(producer) > 0;) {
            kafka_producer_poll(producer, 100);
            require(now_us() < deadline, &error);
        }
        require(rd_kafka_commit_message(consumer, polled, 0) == RD_KAFKA_RESP_ERR_NO_ERROR, &error);
        rd_kafka_message_destroy(polled);
        done++;
    }
    printf("per-message count %zu us %lld\n", bench->count, (long long)(now_us() - start));
    batch_free(batch);
    kafka_producer_free(producer);
    rd_kafka_topic_partition_list_destroy(topics);
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
    straight_close(&straight);
    db_free(db);
    free(inputs[0]);
    free(inputs[1]);
    free(results);
}
