/* The way to Kafka and back of one handle: a producer for its commands, and a reader for what is keyed by its holder on
 * lease.grants and lease.results (and, for runs, for the partitions of lease.results that their names fall into).
 *
 * Positions come first: a partition is read from the end that it had before we asked for anything, so that no answer can be
 * missed; link_is_ready and link_has say when that is so. Marks and repeats are dropped here. Whatever fails (brokers
 * away, a client that gave up, a topic made anew) is put right here, in time, without an end: the owner sees records come or
 * not come, and sends again what stays unanswered.
 *
 * One thread owns a link; only link_wake may be called from others. */
#ifndef LEASE_WORKER_LINK_H
#define LEASE_WORKER_LINK_H

#include "common/buf.h"
#include "common/error.h"
#include "common/lease.h"
#include "common/message.h"
#include "worker/lease_worker.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct link;

/* INCARNATION: 16 hexadecimal digits and the NUL. */
enum { LINK_INCARNATION_SIZE = 17, LINK_ID_SIZE = 48 };

/* Copies what it is given. Checks brokers, topic prefix and properties; talks to nobody yet. */
bool link_new(const struct lease_connection *connection, const char *kind, const char *name, int fetch_wait_ms,
              struct link **ret_link, struct error *error) MUST_USE;
void link_free(struct link *link); /* NULL allowed */

const char *link_holder(const struct link *link);
const char *link_kind(const struct link *link);

/* One line to the connection's log. */
void link_say(const struct link *link, enum lease_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes a link_poll that waits return. Any thread. */
void link_wake(struct link *link);

enum link_got {
    LINK_NOTHING,
    LINK_OTHER, /* something that is not for us, or no record: there may be more */
    LINK_GRANT,
    LINK_RESULT,
};

/* Waits timeout_ms at most for a record; does what is due for the connections. *ret_message is borrowed until the next call. A
 * grant's key is our holder; a result may have any key of the partitions that are read. */
enum link_got link_poll(struct link *link, int timeout_ms, struct message *ret_message);

/* The position on both of the holder's partitions is fixed. */
bool link_is_ready(struct link *link);

/* The partition of lease.results that this lease's answers are in: begin to read it (it counts, so call link_unwant as often),
 * and whether its position is fixed. Nothing happens before the link has been ready for the first time. */
bool link_want(struct link *link, const char *lease, int32_t *ret_partition);
void link_unwant(struct link *link, int32_t partition);
bool link_has(struct link *link, int32_t partition);

/* A new message id: "<incarnation>-<number>". */
uint64_t link_next_number(struct link *link);
/* The number in an id of ours; 0 if source or id is not ours. */
uint64_t link_number_of(const struct link *link, const char *source, const char *id);

/* Queues one command: to lease.renewals if it is a renew, to <kind>.events otherwise. False: it was not (the queue is full, the
 * producer has to be made anew); again later. *is_hopeless (may be NULL) if it will never be taken: too large. */
bool link_send(struct link *link, enum lease_command command, const char *subject, uint64_t number, const struct buf *data,
               bool *is_hopeless);
/* Waits until all is delivered, wait_ms at most. */
void link_flush(struct link *link, int wait_ms);

/* Kafka clients made anew so far; records that were dropped. */
uint64_t link_reconnected(const struct link *link);
uint64_t link_dropped(const struct link *link);

#endif
