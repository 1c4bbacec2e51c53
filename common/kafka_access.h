/*
 * kafka_access: may this client read and write the topics that it is going to? The brokers' access rules (ACLs) are asked by
 * trying, before any work begins, and everything that is missing is named at once.
 *
 * Reading is tried by a fetch at the end of a partition. Writing is tried by a record that asks for an impossible number of
 * acknowledgements: a broker looks at the access rules first and then refuses every such record, so nothing is ever written.
 * (Asking for the rules themselves is a right that a coordinator need not have, and librdkafka 2.0.2 cannot ask what it may do.)
 */
#ifndef LEASE_KAFKA_ACCESS_H
#define LEASE_KAFKA_ACCESS_H

#include "common/kafka_config.h"

enum { KAFKA_MAY_READ = 1, KAFKA_MAY_WRITE = 2 };

struct kafka_access_wish {
    const char *topic;
    unsigned may; /* KAFKA_MAY_… */
};

/* False with FATAL kafka_not_authorized, and all that is missing by operation and topic; or with RETRY when the brokers are away.
 * What cannot be found out in time (a partition without a leader), and topics that are not there, are left to whoever uses them.
 * `group` is named to the broker, never joined. */
bool kafka_access_check(const struct kafka_settings *settings, const char *group, const struct kafka_access_wish *wishes,
                        size_t count, int timeout_ms, struct error *error) MUST_USE;

#endif
