/* The intake as a member of the group: joining, being given and losing partitions, leaving. See intake.h. */
#include "coordinator/intake_private.h"

#include "common/buf.h"
#include "common/crash.h"

#include <stdlib.h>
#include <string.h>

enum {
    PUBLISH_MS = 1000,       /* how often the group is told the offsets, which only lag tools read */
    CLOSE_MS = 3000,
};

size_t intake_topic_index(const struct intake *intake, const char *topic) {
    for (size_t i = 0; i < intake->options.topic_count; i++)
        if (strcmp(intake->options.topics[i].name, topic) == 0)
            return i;
    return SIZE_MAX;
}

static struct lane *lane_of(const struct intake *intake, const char *topic, int32_t number) {
    const struct intake_topic *row = &intake->options.topics[intake_topic_index(intake, topic)];
    return intake->options.lanes[row->lane_first + (size_t)number % row->lane_count];
}

static struct partition *find_or_add_partition(struct intake *intake, const char *topic, int32_t number) {
    struct partition *partition = intake_find_partition(intake, topic, number);
    if (partition != NULL)
        return partition;
    if (intake->partition_count == intake->partition_capacity) {
        intake->partition_capacity = intake->partition_capacity > 0 ? 2 * intake->partition_capacity : 64;
        intake->partitions = memory_resize(intake->partitions, intake->partition_capacity, sizeof *intake->partitions);
    }
    partition = partition_new(topic, number, lane_of(intake, topic, number));
    intake->partitions[intake->partition_count++] = partition;
    return partition;
}

void intake_publish_offsets(struct intake *intake) {
    struct kafka_partition *places = memory_alloc_array(intake->partition_count + 1, sizeof *places);
    size_t count = 0;
    for (size_t i = 0; i < intake->partition_count; i++) {
        struct partition *partition = intake->partitions[i];
        int64_t committed = atomic_load(&partition->committed);
        if (partition->state == PARTITION_AWAY || committed == PARTITION_NEVER || committed == partition->published)
            continue;
        partition->published = committed;
        places[count++] = intake_place_of(partition, committed);
    }
    kafka_consumer_commit(intake->consumer, places, count);
    free(places);
    intake->publish_at_ms = intake_now_ms() + PUBLISH_MS;
}

static void on_assigned(struct intake *intake, const struct kafka_partition *places, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (intake_topic_index(intake, places[i].topic) == SIZE_MAX)
            continue;
        struct partition *partition = find_or_add_partition(intake, places[i].topic, places[i].partition);
        partition->takes_failed = 0;
        partition->read_from = -1;
        partition->published = PARTITION_NEVER;
        atomic_store(&partition->committed, PARTITION_NEVER);
        intake_retake_later(intake, partition, 0);
    }
    intake->options.events.joined(intake->options.events.context, true);
}

static bool uses_lane(struct intake *intake, const struct lane *lane, const struct kafka_partition *places, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct partition *partition = intake_find_partition(intake, places[i].topic, places[i].partition);
        if (partition != NULL && partition->lane == lane)
            return true;
    }
    return false;
}

/* A transaction in flight may end: that spares its other partitions from being done twice. Its claim would be refused
 * anyway if it came too late. */
static void wait_for_lanes(struct intake *intake, const struct kafka_partition *places, size_t count) {
    int64_t deadline_ms = intake_now_ms() + intake->options.session_timeout_ms / 4;
    for (size_t i = 0; i < intake->options.lane_count; i++) {
        int64_t left_ms = deadline_ms - intake_now_ms();
        if (uses_lane(intake, intake->options.lanes[i], places, count))
            lane_wait_in_hand(intake->options.lanes[i], left_ms > 0 ? (int)left_ms : 0);
    }
}

static void on_taken_away(struct intake *intake, enum kafka_rebalance what, const struct kafka_partition *places,
                          size_t count) {
    CRASH_POINT("revoke.enter");
    for (size_t i = 0; i < count; i++) {
        struct partition *partition = intake_find_partition(intake, places[i].topic, places[i].partition);
        if (partition == NULL)
            continue;
        partition_invalidate(partition);
        lane_nudge(partition->lane);
    }
    if (what == KAFKA_REVOKED) {
        wait_for_lanes(intake, places, count);
        intake_publish_offsets(intake);
    }
    for (size_t i = 0; i < count; i++) {
        struct partition *partition = intake_find_partition(intake, places[i].topic, places[i].partition);
        if (partition != NULL)
            intake_set_state(intake, partition, PARTITION_AWAY);
    }
    CRASH_POINT("revoke.drained");
}

static void on_rebalance(void *context, enum kafka_rebalance what, const struct kafka_partition *places, size_t count) {
    struct intake *intake = context;
    static const char *const words[] = {[KAFKA_ASSIGNED] = "assigned", [KAFKA_REVOKED] = "revoked", [KAFKA_LOST] = "lost"};
    if (count > 0)
        log_write(intake->options.log, what == KAFKA_LOST ? LOG_WARNING : LOG_INFO, "partitions changed hands", "what",
                  words[what], "count", LOG_N(count), NULL);
    if (what == KAFKA_ASSIGNED)
        on_assigned(intake, places, count);
    else
        on_taken_away(intake, what, places, count);
}

bool intake_join(struct intake *intake, struct error *error) {
    const char **names = memory_alloc_array(intake->options.topic_count, sizeof *names);
    for (size_t i = 0; i < intake->options.topic_count; i++)
        names[i] = intake->options.topics[i].name;
    const struct kafka_consumer_options options = {
        .settings = intake->options.kafka,
        .group = intake->options.group,
        .topics = names,
        .topic_count = intake->options.topic_count,
        .session_timeout_ms = intake->options.session_timeout_ms,
        .rebalance = on_rebalance,
        .context = intake,
    };
    struct kafka_consumer *consumer = NULL;
    bool has_joined = kafka_consumer_new(&options, &consumer, error);
    free(names);
    pthread_mutex_lock(&intake->consumer_mutex);
    intake->consumer = consumer;
    pthread_mutex_unlock(&intake->consumer_mutex);
    return has_joined;
}

void intake_leave(struct intake *intake) {
    if (intake->consumer == NULL)
        return;
    intake_publish_offsets(intake);
    kafka_consumer_close(intake->consumer, CLOSE_MS); /* the callback gives all partitions back */
    for (size_t i = 0; i < intake->partition_count; i++) {
        partition_invalidate(intake->partitions[i]);
        intake_set_state(intake, intake->partitions[i], PARTITION_AWAY);
    }
    pthread_mutex_lock(&intake->consumer_mutex);
    struct kafka_consumer *consumer = intake->consumer;
    intake->consumer = NULL;
    pthread_mutex_unlock(&intake->consumer_mutex);
    kafka_consumer_free(consumer);
    intake->options.events.joined(intake->options.events.context, false);
    intake_tell_partitions(intake);
}
