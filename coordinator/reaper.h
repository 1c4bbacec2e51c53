/* reaper: a thread that turns lapsed leases over, as soon as they lapse.
 *
 * It sleeps until the earliest lapse it knows. It learns of earlier ones from its own process's lanes (reaper_note), from
 * others' commits through NOTIFY, and, whatever was missed, by looking at least every poll_ms. Several coordinators may
 * reap at once: the rows of one are skipped by the others. No outcome depends on it: who looks at a lapsed lease first turns
 * it over. It also serves what waits for the end of a lease: starts in line, parked edits. Once a minute it asks for the database's
 * housekeeping, and whether the guards of users' tables are in place. */
#ifndef LEASE_REAPER_H
#define LEASE_REAPER_H

#include "common/error.h"
#include "common/log.h"
#include "coordinator/store.h"

#include <stdbool.h>
#include <stdint.h>

struct reaper;

enum { REAPER_LIMIT = 1000 }; /* leases of one transaction: a few ten ms, so that lanes are not kept waiting longer */

/* Called in the reaper's thread; must not wait. */
struct reaper_events {
    void *context;
    /* After each look that turned something over or granted something: how many, and how late the earliest of them was noticed. */
    void (*reaped)(void *context, int turned, int granted, int64_t late_us);
    /* At the start and once a minute: what is wrong with guarded tables that stops starts over their rows, and what else. */
    void (*guarded)(void *context, int stopping, int others);
    void (*looked)(void *context);                              /* a look was answered: the database works */
    void (*retries)(void *context, const struct error *error);  /* before each wait */
    void (*failed)(void *context, const struct error *error);   /* stopped for good: kind FATAL */
};

struct reaper_options {
    const char *database;         /* libpq conninfo; borrowed, as the name */
    const char *application_name;
    int poll_ms;
    int idle_in_transaction_ms;
    store_admit_fn *admit;
    void *admit_context;
    struct reaper_events events;
    struct log *log;
};

struct reaper *reaper_new(const struct reaper_options *options); /* starts the thread */
void reaper_free(struct reaper *reaper);                         /* NULL allowed */

/* A lease that expires then (database time, µs since 1970) was granted or renewed by this process. Any thread. */
void reaper_note(struct reaper *reaper, int64_t expiry_us);

/* The expiry in a notification's payload "<number> <expiry in ms>" as µs; INT64_MAX if it names none. */
int64_t reaper_parse_payload(const char *payload);

/* When to look again, after a look at `looked` due leases that turned over `turned` and found next_us to be the next lapse (INT64_MAX:
 * none), by the database's clock; INT64_MIN: at once, there may be more. */
int64_t reaper_next_look(int looked, int turned, int64_t next_us, int64_t now_us);

#endif
