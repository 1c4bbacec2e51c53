/* What the files of the coordinator share: its state, and who does what with it. */
#ifndef LEASE_COORDINATOR_PRIVATE_H
#define LEASE_COORDINATOR_PRIVATE_H

#include "common/clock.h"
#include "common/event.h"
#include "common/log.h"
#include "common/token.h"
#include "coordinator/admission.h"
#include "coordinator/coordinator.h"
#include "coordinator/counts.h"
#include "coordinator/intake.h"
#include "coordinator/lane.h"
#include "coordinator/reaper.h"
#include "coordinator/relay.h"
#include "coordinator/status.h"
#include "coordinator/store.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    KINDS_MAX = 100,
    NAME_SIZE = 64,
};

struct decoder {
    struct event_limits limits;
    struct token_keys *keys;
};

struct lane_slot {
    char name[NAME_SIZE], application[NAME_SIZE + 32];
    struct store *store;
    struct lane *lane;
};

struct coordinator {
    const struct options *options;
    struct log log;
    struct clock clock;
    struct kafka_settings kafka;
    char *group;
    char application[NAME_SIZE + 64];

    struct event_kind kinds[KINDS_MAX];
    size_t kind_count;
    struct decoder decoder;
    struct intake_topic *topics;
    size_t topic_count;

    struct counts *counts;
    struct status *status;
    struct status_pulse *intake_pulse, *reaper_pulse;
    struct admission *admission;
    struct lane_slot *lanes;
    struct lane **lane_pointers;
    size_t lane_count;
    struct relay *relay;
    struct reaper *reaper;
    struct intake *intake;

    int stop_fd;
    _Atomic bool is_stopping;
    _Atomic bool has_relay, has_reaper, has_intake; /* the pointers above may be used by the lanes' events */
    _Atomic int64_t away_since_ms; /* 0 while PostgreSQL answers */
    _Atomic uint64_t in_trouble;   /* who has trouble with it: bit 0 the reaper or the intake, the others the lanes */
    pthread_mutex_t failure_mutex;
    struct error failure; /* the first; kind NONE while there is none */
};

/* The first failure is the one that counts: logs it and asks for the end. Any thread. */
void coordinator_fail(struct coordinator *coordinator, const char *what, const struct error *error);

/* coordinator_start.c: looks whether everything is there, waiting a bounded time. */
bool coordinator_look_around(struct coordinator *coordinator, struct error *error) MUST_USE;

/* coordinator_parts.c */
bool coordinator_start_parts(struct coordinator *coordinator, struct error *error) MUST_USE;
void coordinator_stop_parts(struct coordinator *coordinator, int drain_ms);

/* coordinator_events.c */
struct lane_events coordinator_lane_events(struct coordinator *coordinator);
struct reaper_events coordinator_reaper_events(struct coordinator *coordinator);
struct intake_events coordinator_intake_events(struct coordinator *coordinator);
int64_t coordinator_away_since_ms(void *coordinator); /* since when PostgreSQL does not answer, 0 while it does */
void coordinator_on_kafka_log(void *coordinator, int level, const char *facility, const char *text);
void coordinator_on_moved(void *coordinator); /* the admission's: another server, or after a jump */
void coordinator_on_relay_failed(void *coordinator, const struct error *error);

#endif
