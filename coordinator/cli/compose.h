/* A command from the words of a command line: `settlement.start 2026-10 holder=run-a ttl_ms=2000 resources:='["a/1"]'`.
 * `name=text` sets a member of the data to a text, `name:=json` to any JSON value. Numbers of the protocol written with
 * `=` are numbers all the same: `fence=17` and `fence:=17` are one.
 *
 * Builds, does not judge: what the coordinator makes of it is the coordinator's to say, and a person who tries a wrong
 * command wants to see its answer. */
#ifndef LEASE_CLI_COMPOSE_H
#define LEASE_CLI_COMPOSE_H

#include "common/buf.h"
#include "common/error.h"
#include "common/message.h"
#include "coordinator/cli/document.h"

#include <stdbool.h>
#include <stddef.h>

enum { COMPOSE_HEADERS_MAX = 8 };

struct compose {
    const char *type, *subject, *source, *id, *traceparent; /* borrowed; traceparent may be NULL */
    bool is_binary;
    struct document *data;

    /* What compose_finish made; in the compose's own memory. */
    struct buf value, time;
    struct message_header headers[COMPOSE_HEADERS_MAX];
    size_t header_count;
};

/* `json` (may be NULL) is the data to begin with: an object. */
bool compose_begin(struct compose *compose, const char *json, struct error *error) MUST_USE;
/* One `name=text` or `name:=json`. */
bool compose_add(struct compose *compose, const char *word, struct error *error) MUST_USE;
/* Takes holder, fence, claim_id and token from a grant as `tail grants -o json` prints it, and fills an empty subject. */
bool compose_add_grant(struct compose *compose, const struct document *grant, struct error *error) MUST_USE;
void compose_finish(struct compose *compose);
void compose_release(struct compose *compose); /* wipes: a token may be in it */

/* The topic of a type, without prefix: lease.renewals for a renewal, else <kind>.events. False: no such type. */
bool compose_topic(const char *type, struct buf *buf);

#endif
