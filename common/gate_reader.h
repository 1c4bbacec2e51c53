/* gate_reader: keeps a gate (gate.h) up with lease.state: all of it from the beginning, then what comes. Joins no group.
 *
 *   struct gate *gate = gate_new(NULL);
 *   gate_reader_new(&options, gate, &reader, &error);
 *   for (;;) {
 *       gate_reader_poll(reader, 0, &error);        // beside the consumer's own poll, as often
 *       … gate_admit(gate, …)                       // not-ready at first: wait, do not skip
 *   }
 *
 * While the brokers are away the gate goes on with what it knows: floors come late, and it is safe without them.
 * The gate's own thread. */
#ifndef LEASE_GATE_READER_H
#define LEASE_GATE_READER_H

#include "common/error.h"
#include "common/gate.h"
#include "common/kafka_config.h"

enum { GATE_READER_AT_ONCE = 2000 }; /* records taken in by one poll */

struct gate_reader_options {
    const struct kafka_settings *settings;
    const char *group;        /* named to the brokers, never joined */
    const char *topic_prefix; /* NULL = none */
    int timeout_ms;           /* of the questions at the start; 0 = 10000 */
};

struct gate_reader;

/* Asks where lease.state ends now, and tells the gate (borrowed while the reader lives). RETRY: brokers away; FATAL: no such
 * topic, no rights. */
bool gate_reader_new(const struct gate_reader_options *options, struct gate *gate, struct gate_reader **ret_reader,
                     struct error *error) MUST_USE;
void gate_reader_free(struct gate_reader *reader); /* NULL allowed */

/* Takes in what is there, waiting timeout_ms at most for the first record; *ret_count (NULL allowed): how many. False with RETRY:
 * something passing, call again; with FATAL: the gate is kept up no longer (no rights; gate_unreadable), do not go on. */
bool gate_reader_poll(struct gate_reader *reader, int timeout_ms, size_t *ret_count, struct error *error) MUST_USE;

#endif
