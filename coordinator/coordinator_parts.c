/* Starts the parts of a coordinator and takes them down against the stream. See coordinator.h. */
#include "coordinator/coordinator_private.h"

#include "common/buf.h"
#include "common/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    PULSE_MS = 60 * 1000,      /* an intake that has not turned for so long hangs: its longest wait is a third of it */
    REAPER_PULSE_MS = 300 * 1000, /* housekeeping may wait for a reader of an old partition */
    RELAY_STOP_MS = 2000,      /* the relay gets at least this long to catch up, whatever draining took */
    IDLE_MS_MINIMUM = 250,     /* a lane that had no processor for a moment must not lose its transaction */
    LANE_DEADLINE_MS = 30 * 1000, /* of one statement or commit of a lane; beyond it the commit is in doubt */
    QUEUE_BYTES = 16 * 1024 * 1024, /* of all lanes together: within the 64 MB of the whole process */
};

static void decode(void *context, const struct message *message, struct command *ret_command) {
    struct decoder *decoder = context;
    if (event_decode(message, &decoder->limits, ret_command))
        command_check_token(ret_command, decoder->keys);
}

/* Locks of a stopped process end before the group moves on. Each of its lanes, and the reaper, may stand in line for the
 * journal's lock when it stops, get it when the one before it is cut off, and then stand idle in its turn. */
static int idle_in_transaction_ms(const struct coordinator *coordinator) {
    int64_t turns = coordinator->options->lanes + 2;
    int64_t wait_ms = coordinator->options->session_timeout_ms / 2 / turns;
    return (int)(wait_ms > IDLE_MS_MINIMUM ? wait_ms : IDLE_MS_MINIMUM);
}

static void start_relay(struct coordinator *coordinator, struct error *error, bool *ret_good) {
    const struct relay_options options = {
        .kafka = &coordinator->kafka,
        .database = coordinator->options->database,
        .topic_prefix = coordinator->options->topic_prefix,
        .group = coordinator->group,
        .owner = coordinator->options->instance,
        .token_keys = coordinator->decoder.keys,
        .batch = (int)coordinator->options->relay_batch,
        .mark_interval_ms = (int)coordinator->options->mark_interval_ms,
        .admit = admission_admit,
        .admit_context = coordinator->admission,
        .log = &coordinator->log,
        .failed = coordinator_on_relay_failed,
        .context = coordinator,
    };
    *ret_good = relay_new(&options, &coordinator->relay, error);
    atomic_store(&coordinator->has_relay, *ret_good);
}

static void start_reaper(struct coordinator *coordinator) {
    const struct reaper_options options = {
        .database = coordinator->options->database,
        .application_name = coordinator->application,
        .poll_ms = (int)coordinator->options->reap_poll_ms,
        .idle_in_transaction_ms = idle_in_transaction_ms(coordinator),
        .admit = admission_admit,
        .admit_context = coordinator->admission,
        .events = coordinator_reaper_events(coordinator),
        .log = &coordinator->log,
    };
    coordinator->reaper_pulse = status_add_pulse(coordinator->status, "reaper", REAPER_PULSE_MS);
    coordinator->reaper = reaper_new(&options);
    atomic_store(&coordinator->has_reaper, true);
}

static void start_lane(struct coordinator *coordinator, size_t index) {
    struct lane_slot *slot = &coordinator->lanes[index];
    if (index == 0)
        snprintf(slot->name, sizeof slot->name, "renewals");
    else
        snprintf(slot->name, sizeof slot->name, "lane-%zu", index);
    snprintf(slot->application, sizeof slot->application, "lease-coordinator %s", slot->name);
    const struct store_options store = {
        .database = coordinator->options->database,
        .application_name = slot->application,
        .idle_in_transaction_ms = idle_in_transaction_ms(coordinator),
        .deadline_ms = LANE_DEADLINE_MS,
        .admit = admission_admit,
        .context = coordinator->admission,
    };
    slot->store = store_new(&store);
    size_t batch_messages = (size_t)coordinator->options->batch_messages;
    size_t batch_bytes = (size_t)coordinator->options->batch_bytes;
    size_t share = (size_t)coordinator->options->queue_messages / coordinator->lane_count;
    size_t share_bytes = QUEUE_BYTES / coordinator->lane_count;
    const struct lane_options options = {
        .name = slot->name,
        .store = lane_store_of(slot->store),
        .events = coordinator_lane_events(coordinator),
        .decode = decode,
        .decode_context = &coordinator->decoder,
        .log = &coordinator->log,
        .batch_messages = batch_messages,
        .batch_bytes = batch_bytes,
        .batch_wait_ms = (int)coordinator->options->batch_wait_ms,
        /* The next batch fills while one is in PostgreSQL: less than a whole one would leave the lane waiting. */
        .queue_messages = share > batch_messages ? share : batch_messages,
        .queue_bytes = share_bytes > batch_bytes ? share_bytes : batch_bytes,
    };
    slot->lane = lane_new(&options);
    coordinator->lane_pointers[index] = slot->lane;
}

static void start_lanes(struct coordinator *coordinator) {
    coordinator->lane_count = (size_t)coordinator->options->lanes + 1;
    coordinator->lanes = memory_alloc_array(coordinator->lane_count, sizeof *coordinator->lanes);
    coordinator->lane_pointers = memory_alloc_array(coordinator->lane_count, sizeof(struct lane *));
    for (size_t i = 0; i < coordinator->lane_count; i++)
        start_lane(coordinator, i);
}

static void start_intake(struct coordinator *coordinator) {
    const struct options *given = coordinator->options;
    const struct intake_options options = {
        .kafka = &coordinator->kafka,
        .group = coordinator->group,
        .owner = given->instance,
        .database = given->database,
        .application_name = "lease-coordinator intake",
        .topics = coordinator->topics,
        .topic_count = coordinator->topic_count,
        .lanes = coordinator->lane_pointers,
        .lane_count = coordinator->lane_count,
        .decode = decode,
        .decode_context = &coordinator->decoder,
        .admit = admission_admit,
        .admit_context = coordinator->admission,
        .away_since_ms = coordinator_away_since_ms,
        .away_context = coordinator,
        .events = coordinator_intake_events(coordinator),
        .log = &coordinator->log,
        .session_timeout_ms = (int)given->session_timeout_ms,
        .database_grace_ms = (int)given->database_grace_ms,
        .caution_messages = given->queue_messages + 2 * given->batch_messages,
    };
    coordinator->intake_pulse = status_add_pulse(coordinator->status, "intake", PULSE_MS);
    status_meet(coordinator->status, STATUS_INTAKE);
    coordinator->intake = intake_new(&options);
    atomic_store(&coordinator->has_intake, true);
}

static void refresh_gauges(void *context) {
    struct coordinator *coordinator = context;
    struct relay_status status;
    int64_t since_ms = atomic_load(&coordinator->away_since_ms);
    counts_set(coordinator->counts, COUNT_DATABASE_AWAY, since_ms > 0 ? clock_monotonic_us() / 1000 - since_ms : 0);
    for (size_t i = 0; i < coordinator->lane_count; i++)
        counts_set_of(coordinator->counts, COUNT_QUEUED, coordinator->lanes[i].name,
                      (int64_t)lane_queued(coordinator->lanes[i].lane));
    relay_get_status(coordinator->relay, &status);
    counts_relay(coordinator->counts, &status);
}

bool coordinator_start_parts(struct coordinator *coordinator, struct error *error) {
    bool is_good;
    if (!status_serve(coordinator->status, coordinator->options->http, error))
        return false;
    status_meet(coordinator->status, STATUS_TOPICS);
    start_relay(coordinator, error, &is_good);
    if (!is_good)
        return false;
    start_reaper(coordinator);
    start_lanes(coordinator);
    start_intake(coordinator);
    status_before_scrape(coordinator->status, refresh_gauges, coordinator);
    status_meet(coordinator->status, STATUS_RUNNING);
    return true;
}

/* Against the stream: nothing new comes in, what is in comes out. */
void coordinator_stop_parts(struct coordinator *coordinator, int drain_ms) {
    int64_t deadline_ms = clock_monotonic_us() / 1000 + drain_ms;
    status_miss(coordinator->status, STATUS_RUNNING, "draining");
    status_before_scrape(coordinator->status, NULL, NULL);
    intake_stop(coordinator->intake, drain_ms);
    atomic_store(&coordinator->has_intake, false);
    for (size_t i = 0; i < coordinator->lane_count; i++) {
        lane_free(coordinator->lanes[i].lane);
        store_free(coordinator->lanes[i].store);
    }
    intake_free(coordinator->intake);
    atomic_store(&coordinator->has_reaper, false);
    reaper_free(coordinator->reaper);
    int64_t left_ms = deadline_ms - clock_monotonic_us() / 1000;
    relay_free(coordinator->relay, left_ms > RELAY_STOP_MS ? (int)left_ms : RELAY_STOP_MS);
    status_end_pulse(coordinator->intake_pulse);
    status_end_pulse(coordinator->reaper_pulse);
}
