/* The table of topics; see topics.h.
 *
 * max.message.bytes bounds a producer's whole batch, and ordinary producers fill batches up to a megabyte: inputs keep
 * Kafka's default, and the coordinator caps a single value far below (event.h). The bound is on what a broker stores: inputs are
 * stored uncompressed, so that no record grows beyond it on its way to the coordinator. A dead letter keeps the record byte for
 * byte and adds headers of ours, so its topic takes 64 KB more than the inputs do. */
#include "common/topics.h"

#include <assert.h>
#include <string.h>

static const struct topic topics[TOPIC_COUNT] = {
    [TOPIC_SETTLEMENT_EVENTS] = {
        .name = "settlement.events",
        .is_input = true,
        .partitions = 12,
        .configs = {{"cleanup.policy", "delete"}, {"retention.ms", "604800000"}, {"max.message.bytes", "1048588"},
                    {"compression.type", "uncompressed"}},
        .key = "subject (the lease; of a command over many items: their holder)",
        .contents = "commands of settlement runs: start, cover, begin, renew, advance, finish, fail, release",
        .is_secret = true,
    },
    [TOPIC_CLEANUP_EVENTS] = {
        .name = "cleanup.events",
        .is_input = true,
        .partitions = 12,
        .configs = {{"cleanup.policy", "delete"}, {"retention.ms", "604800000"}, {"max.message.bytes", "1048588"},
                    {"compression.type", "uncompressed"}},
        .key = "subject (the lease; of a claim: the worker; of a command over many items: their holder)",
        .contents = "commands of cleanup items: request, claim, renew, finish, fail, release",
        .is_secret = true,
    },
    [TOPIC_FILE_WRITE_EVENTS] = {
        .name = "file-write.events",
        .is_input = true,
        .partitions = 12,
        .configs = {{"cleanup.policy", "delete"}, {"retention.ms", "604800000"}, {"max.message.bytes", "1048588"},
                    {"compression.type", "uncompressed"}},
        .key = "subject (the lease; of a command over many items: their holder)",
        .contents = "commands of runs that write files: start, cover, begin, renew, finish, fail, release",
        .is_secret = true,
    },
    [TOPIC_DELIVERY_EVENTS] = {
        .name = "delivery.events",
        .is_input = true,
        .partitions = 12,
        .configs = {{"cleanup.policy", "delete"}, {"retention.ms", "604800000"}, {"max.message.bytes", "1048588"},
                    {"compression.type", "uncompressed"}},
        .key = "subject (the lease; of a claim: the worker; of a command over many items: their holder)",
        .contents = "commands of deliveries: request, claim, renew, finish, fail, release",
        .is_secret = true,
    },
    [TOPIC_SHARE_RATIO_EVENTS] = {
        .name = "share-ratio.events",
        .is_input = true,
        .partitions = 12,
        .configs = {{"cleanup.policy", "delete"}, {"retention.ms", "604800000"}, {"max.message.bytes", "1048588"},
                    {"compression.type", "uncompressed"}},
        .key = "subject (the lease; of a command over many items: their holder)",
        .contents = "commands of changes of share ratios: start, cover, begin, renew, advance, finish, fail, release",
        .is_secret = true,
    },
    [TOPIC_CONTRACT_EVENTS] = {
        .name = "contract.events",
        .is_input = true,
        .partitions = 12,
        .configs = {{"cleanup.policy", "delete"}, {"retention.ms", "604800000"}, {"max.message.bytes", "1048588"},
                    {"compression.type", "uncompressed"}},
        .key = "subject (the row: <type>/<id>)",
        .contents = "edits of rows that leases cover: edit, cancel",
        .is_secret = true,
    },
    [TOPIC_RENEWALS] = {
        .name = "lease.renewals",
        .is_input = true,
        .partitions = 12,
        .configs = {{"cleanup.policy", "delete"}, {"retention.ms", "604800000"}, {"max.message.bytes", "1048588"},
                    {"compression.type", "uncompressed"}},
        .key = "subject (the lease; of a renewal of many: their holder)",
        .contents = "renewals of any kind, apart from the rest so that no backlog kills a live run",
        .is_secret = true,
    },
    [TOPIC_RESULTS] = {
        .name = "lease.results",
        .partitions = 12,
        .configs = {{"cleanup.policy", "delete"}, {"retention.ms", "604800000"}, {"max.message.bytes", "1048576"}},
        .key = "subject (the lease; of answers about a claim or many items: the worker)",
        .contents = "one answer per command, and what happened to a lease since (granted out of the line, lapsed, dead)",
    },
    [TOPIC_GRANTS] = {
        .name = "lease.grants",
        .partitions = 12,
        .configs = {{"cleanup.policy", "delete"}, {"retention.ms", "86400000"}, {"max.message.bytes", "1048576"}},
        .key = "holder",
        .contents = "every grant with its token, for its holder only",
        .is_secret = true,
    },
    [TOPIC_STATE] = {
        .name = "lease.state",
        .partitions = 12,
        .configs = {{"cleanup.policy", "compact"}, {"min.compaction.lag.ms", "60000"}, {"max.message.bytes", "1048576"}},
        .key = "<kind>/<lease>; ~mark/<topic>/<partition> for the relay's marks",
        .contents = "what holds now: state, fence, fence floor and holder per lease, and the witness of the journal",
    },
    [TOPIC_DEAD_LETTERS] = {
        .name = "lease.dead-letters",
        .partitions = 3,
        .configs = {{"cleanup.policy", "delete"}, {"retention.ms", "2592000000"}, {"max.message.bytes", "1114124"}},
        .key = "the original's key",
        .contents = "what cannot be identified, byte for byte, with the reason in lease_dlq_* headers",
        .is_secret = true,
    },
};

const struct topic *topic_get(enum topic_id id) {
    assert((unsigned)id < TOPIC_COUNT);
    return &topics[id];
}

struct topic topic_of_kind(const char *name) {
    struct topic topic = topics[TOPIC_SETTLEMENT_EVENTS];
    topic.name = name;
    topic.key = "subject";
    topic.contents = "commands of a kind that was added by rows";
    return topic;
}

const char *topic_config_get(const struct topic *topic, const char *name) {
    for (size_t i = 0; i < TOPIC_CONFIGS_MAX && topic->configs[i].name != NULL; i++)
        if (strcmp(topic->configs[i].name, name) == 0)
            return topic->configs[i].value;
    return NULL;
}

bool topic_find(const char *prefix, const char *full_name, enum topic_id *ret_id) {
    size_t prefix_size = strlen(prefix);
    if (strncmp(full_name, prefix, prefix_size) != 0)
        return false;
    for (unsigned id = 0; id < TOPIC_COUNT; id++)
        if (strcmp(full_name + prefix_size, topics[id].name) == 0) {
            *ret_id = (enum topic_id)id;
            return true;
        }
    return false;
}

void topic_full_name(struct buf *buf, const char *prefix, enum topic_id id) {
    buf_append_text(buf, prefix);
    buf_append_text(buf, topic_get(id)->name);
}
