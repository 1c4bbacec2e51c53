/* The effect of a delivery: an item's payload is posted to an HTTP endpoint, once per attempt.
 *
 *   POST <url>
 *   Content-Type: application/json
 *   Lease-Kind, Lease-Item, Lease-Fence, Lease-Claim, Lease-Attempt     whose grant this is
 *   Idempotency-Key: <kind>/<item>                                       the same in every attempt, under whatever grant
 *
 * The receiver takes a message in once per idempotency key, behind a gate that compares fence and claim: an attempt whose answer was
 * lost is made again, and a sender that slept through its lease comes late. It answers 2xx in both cases where it has the message.
 *
 *   2xx                           delivered
 *   408, 425, 429, 5xx, no answer to be tried again; Retry-After (seconds or date) says when, one hour at most
 *   409                           the same: the receiver's gate has seen a higher fence. Whose lease is lost says nothing any more; who
 *                                 still has it may get in with the higher fence of the next attempt
 *   all else, redirects too       refused: never tried again. Nothing is followed
 *
 * Only http and https, and no proxy: what the environment says of one (http_proxy) does not count. The whole exchange is bounded
 * in time, the answer's body is not looked at. Thread safe. */
#ifndef LEASE_DELIVERY_H
#define LEASE_DELIVERY_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct delivery;

struct delivery_options {
    const char *url;
    const char *authorization; /* value of the header of that name, secret; NULL: none */
    int64_t timeout_ms;        /* of a whole exchange */
    /* Is the lease still ours? Asked at least every second while an exchange goes on; "no" breaks it off. */
    bool (*is_mine)(void *context);
};

/* Options are copied. FATAL delivery_url if it is none of http or https, or has a user or password in it (logs would show it). */
bool delivery_new(const struct delivery_options *options, struct delivery **ret_delivery, struct error *error) MUST_USE;
void delivery_free(struct delivery *delivery); /* NULL allowed */

/* As configuration wants to know it before anything is begun. */
bool delivery_check_url(const char *url, struct error *error) MUST_USE;

struct delivery_message {
    const char *kind;
    const char *item;
    int64_t fence;
    const char *claim_id;
    int attempt;
    const char *payload; /* NULL: {} */
    size_t payload_size;
};

enum delivery_verdict { DELIVERY_DONE, DELIVERY_REFUSED, DELIVERY_RETRY, DELIVERY_LOST };

struct delivery_outcome {
    enum delivery_verdict verdict;
    long status;      /* 0: no answer */
    int64_t delay_ms; /* until the next attempt; -1: not said */
    char reason[200]; /* for people: "503", "Couldn't connect to server" */
};

void delivery_run(struct delivery *delivery, const struct delivery_message *message, void *context,
                  struct delivery_outcome *ret_outcome);

#endif
