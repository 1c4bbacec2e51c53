/* The JSON of a client: commands out, grants and results in. The only file of worker/ that knows the JSON library; what is
 * written is written without it.
 *
 * Records come from the coordinator's relay, through a broker that others may write to: what is not as it should be is
 * refused, never guessed at. Pure; safe from any thread. */
#ifndef LEASE_WORKER_MESSAGES_H
#define LEASE_WORKER_MESSAGES_H

#include "common/buf.h"
#include "common/lease.h"
#include "common/message.h"
#include "worker/lease_worker.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- out: the data of commands ---- */

void messages_write_claim(struct buf *data, uint64_t credit_total, uint64_t refresh, unsigned wait_ms, unsigned ttl_ms);

struct messages_start {
    const char *holder;
    unsigned ttl_ms;
    const char *const *resources;
    size_t resource_count;
    const char *payload; /* JSON, or NULL */
    bool more;           /* covers will follow */
    const char *const *tables; /* with more */
    size_t table_count;
};
void messages_write_start(struct buf *data, const struct messages_start *start);
/* The same start, which waits in line. A copy; MESSAGES_PATIENCE_MAX bytes longer at most. */
enum { MESSAGES_PATIENCE_MAX = 64 };
void messages_write_patient(struct buf *data, const struct buf *start, uint64_t refresh, unsigned wait_ms);

/* A cover: begin, add for each (one at least, LEASE_RESOURCES_MAX at most) while there is room, end. */
void messages_begin_cover(struct buf *data, const struct lease_grant *grant);
bool messages_has_room(const struct buf *data, const char *resource);
void messages_add_resource(struct buf *data, const char *resource);
void messages_end_cover(struct buf *data);
void messages_write_begin(struct buf *data, const struct lease_grant *grant, int64_t count);

/* What a command of its holder says beyond the grant. NULL, 0 and -1: nothing. */
struct messages_words {
    unsigned ttl_ms;    /* renew */
    const char *step;   /* advance */
    const char *result; /* finish: JSON */
    const char *reason; /* fail */
    bool retry;         /* fail, with reason */
    int64_t delay_ms;   /* fail, with reason */
};
/* For one lease. */
void messages_write_one(struct buf *data, const struct lease_grant *grant, const struct messages_words *words);

/* For many: begin, add for each (no lease twice), end. */
void messages_begin_items(struct buf *data, const char *holder);
void messages_add_item(struct buf *data, const struct lease_grant *grant, const struct messages_words *words);
void messages_end_items(struct buf *data, unsigned ttl_ms /* 0: not said */);

/* Is it a JSON object that the coordinator takes as payload or result? */
bool messages_is_payload(const char *text);
/* Appends a reason as the coordinator takes it: what is not allowed becomes '?', what is too long is cut. */
void messages_clean_reason(struct buf *reason, const char *text);

/* ---- in ---- */

struct messages_document; /* what the texts below are borrowed from */
void messages_free(struct messages_document *document); /* NULL allowed */

struct messages_command {
    const char *source; /* NULL: no command is named */
    const char *id;
};

struct messages_grant {
    struct lease_grant grant;
    struct messages_command command;
    uint64_t refresh; /* 0: none */
    const char *until;
    struct messages_document *document;
};
/* False: not a grant. messages_free(ret->document) otherwise. */
bool messages_read_grant(const struct message *record, struct messages_grant *ret);

struct messages_result {
    enum lease_outcome outcome;
    bool is_answered; /* of many: see items */
    const char *outcome_name;
    const char *lease;
    struct messages_command command;
    struct lease_answer answer; /* outcome is outcome_name */
    uint64_t refresh; /* of a claim's answer */
    size_t item_count;
    struct messages_document *document;
};
/* False: not a result, or an event that answers nothing (lapsed, dead). */
bool messages_read_result(const struct message *record, struct messages_result *ret);

struct messages_item {
    const char *lease;
    enum lease_outcome outcome;
    const char *outcome_name;
    int64_t fence; /* of the grant that the command named; -1: not said */
};
/* False: this one is not well-formed. index < item_count. */
bool messages_get_item(const struct messages_result *result, size_t index, struct messages_item *ret);
/* Of a duplicate: what it was answered first; false if that is not said. Sets outcome and its name. */
bool messages_get_original(struct messages_result *result);

#endif
