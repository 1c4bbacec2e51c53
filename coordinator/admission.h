/* admission: is the server behind a new connection the one whose fences these are, and may this process work on it?
 *
 * Every connection that decides or publishes is admitted before it does anything: first the topics are asked how far
 * fences and journal numbers have come, then the database; if it is another server or timeline, fences and numbers jump
 * above both before anything is granted (ARCHITECTURE.md, "Failover and restore"). Threads that lost their connections
 * together share one look at the topics. Any thread. */
#ifndef LEASE_ADMISSION_H
#define LEASE_ADMISSION_H

#include "common/error.h"
#include "common/kafka_config.h"
#include "common/log.h"

#include <stdbool.h>
#include <stdint.h>

struct admission;
struct db;

struct admission_options {
    const struct kafka_settings *kafka;
    const char *topic_prefix;
    const char *group;
    const char *instance;
    bool is_throwaway; /* a server that may forget commits is accepted */
    struct log *log;
    /* How far the topics have come: witness_read in the daemon, something else in tests. */
    bool (*read_witness)(const struct kafka_settings *kafka, const char *topic_prefix, const char *group, int timeout_ms,
                         int64_t *ret_number, int64_t *ret_fence, bool *ret_empty, struct error *error);
    /* Called when a connection was admitted to another server or timeline than the last one, or after a jump: consumed offsets
     * may have gone back with everything else. One call at a time, in the thread that connects. NULL: nobody wants to know. */
    void (*moved)(void *context);
    void *moved_context;
};

/* Borrows everything in options. */
struct admission *admission_new(const struct admission_options *options);
void admission_free(struct admission *admission); /* NULL allowed */

/* From the first success on, a server that is unfit for the moment (LE008: read-only, say, during a failover) is an error
 * that passes. `since_ms` (monotonic): a look at the topics that began before it is too old. Has the signature of
 * store_admit_fn. */
bool admission_admit(void *admission, struct db *db, int64_t since_ms, struct error *error) MUST_USE;

/* The version of the schema that this program speaks. */
enum { ADMISSION_SCHEMA_VERSION = 11 };

#endif
