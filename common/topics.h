/* The one table of Kafka topics: what leasectl creates, what coordinator and relay use, and what asyncapi.yaml and the
 * documentation are compared with.
 *
 * Names are without the prefix; topic_full_name puts it before. Constant data; safe from any thread. */
#ifndef LEASE_TOPICS_H
#define LEASE_TOPICS_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum topic_id {
    TOPIC_SETTLEMENT_EVENTS,
    TOPIC_CLEANUP_EVENTS,
    TOPIC_FILE_WRITE_EVENTS,
    TOPIC_DELIVERY_EVENTS,
    TOPIC_SHARE_RATIO_EVENTS,
    TOPIC_CONTRACT_EVENTS,
    TOPIC_RENEWALS,
    TOPIC_RESULTS,
    TOPIC_GRANTS,
    TOPIC_STATE,
    TOPIC_DEAD_LETTERS,
    TOPIC_COUNT
};

/* A topic's setting at the broker. */
struct topic_config {
    const char *name;
    const char *value;
};

enum { TOPIC_CONFIGS_MAX = 6 };

struct topic {
    const char *name; /* without prefix */
    bool is_input;    /* consumed by the coordinator; else written by its relay */
    int32_t partitions;
    struct topic_config configs[TOPIC_CONFIGS_MAX]; /* ends at the first NULL name; cleanup.policy first */
    const char *key;      /* what its records are keyed by, in words */
    const char *contents; /* what is in it, one line */
    bool is_secret;       /* carries tokens: as secret as lease.grants */
};

const struct topic *topic_get(enum topic_id id);
/* The input topic of a kind that the table may not have: the settings of every input. `name`, borrowed, is `<kind>.events`. */
struct topic topic_of_kind(const char *name);
/* The setting's value, NULL if the table says nothing about it. */
const char *topic_config_get(const struct topic *topic, const char *name);

/* Finds a topic by its full name (prefix and all). False if it is none of ours. */
bool topic_find(const char *prefix, const char *full_name, enum topic_id *ret_id);

/* Appends prefix and name. */
void topic_full_name(struct buf *buf, const char *prefix, enum topic_id id);

#endif
