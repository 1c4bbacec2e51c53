/* What the process says about itself over HTTP: /metrics, /livez, /readyz.
 *
 * Ready is a set of named conditions, each with a reason while it is not met; /readyz is 200 when all are met, else 503,
 * and its body lists them, so that nobody has to guess what is missing. Alive means that every loop that has a pulse
 * has beaten within its limit; it depends on no other server, or an outage of PostgreSQL would have every coordinator
 * restarted. All functions are thread safe. */
#ifndef LEASE_STATUS_H
#define LEASE_STATUS_H

#include "common/clock.h"
#include "common/error.h"
#include "common/metrics.h"

#include <stdbool.h>
#include <stdint.h>

/* One row each in status.c. A coordinator without partitions, and one that is not the relay, is ready too. */
enum status_condition {
    STATUS_DATABASE, /* connected, identity agrees, fit to serve */
    STATUS_KAFKA,    /* brokers reached, member of the group */
    STATUS_TOPICS,   /* topics are there and not ahead of the journal */
    STATUS_RELAY,    /* the relay is this process and publishes, or it is another's turn */
    STATUS_REAPER,   /* lapses are being turned over */
    STATUS_INTAKE,   /* no partition is stopped by a halt */
    STATUS_RUNNING,  /* neither starting nor draining */
    STATUS_CONDITIONS,
};

enum {
    STATUS_REASON_SIZE = 256,
    STATUS_PULSES_MAX = 64, /* lanes, loops */
};

struct status;
struct status_pulse;

/* Both are borrowed until status_free; metrics may be NULL. No condition is met yet ("not checked yet"). */
struct status *status_new(struct metrics *metrics, const struct clock *clock);
void status_free(struct status *status); /* stops serving; NULL allowed */

/* Starts to answer on "host:port". */
bool status_serve(struct status *status, const char *address, struct error *error) MUST_USE;
uint16_t status_port(const struct status *status); /* 0 while it does not serve */

/* Runs in the HTTP thread just before /metrics is rendered: for gauges that are cheaper to read than to keep. */
void status_before_scrape(struct status *status, void (*refresh)(void *context), void *context);

void status_meet(struct status *status, enum status_condition condition);
void status_miss(struct status *status, enum status_condition condition, const char *reason, ...)
    __attribute__((format(printf, 3, 4)));
bool status_is_ready(struct status *status);

/* A loop that promises to call status_beat at least every limit_ms from now on, until status_end_pulse. The name is
 * copied. At most STATUS_PULSES_MAX at a time. */
struct status_pulse *status_add_pulse(struct status *status, const char *name, int64_t limit_ms);
void status_beat(struct status_pulse *pulse);
void status_end_pulse(struct status_pulse *pulse); /* NULL allowed */
bool status_is_alive(struct status *status);

#endif
