/* batch: messages that are applied together, with everything they need until their commit: the decoded command, the raw
 * record (one that the database refuses becomes a dead letter, byte for byte), and what each partition's claim expects.
 *
 * A batch owns all its messages and they die at once. One thread at a time has it: the intake while it fills, then a lane. */
#ifndef LEASE_BATCH_H
#define LEASE_BATCH_H

#include "common/event.h"
#include "common/message.h"
#include "coordinator/partition.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One taking of one partition in this batch. */
struct batch_slot {
    struct partition *partition; /* borrowed */
    uint64_t generation;
    int64_t epoch;
    int64_t expected; /* what the database says before the first message of this slot */
};

struct batch_entry {
    uint32_t slot;
    bool is_decoded;
    bool is_dropped;       /* no longer ours, or found to be committed already */
    struct message message; /* a copy in the batch's memory */
    struct command command; /* all zero until decoded */
};

struct batch_chunk;

struct batch {
    struct batch_entry *entries;
    size_t count, capacity;
    struct batch_slot *slots;
    size_t slot_count, slot_capacity;
    size_t bytes; /* raw records and decoded commands */
    size_t work;  /* what it asks of the database, counted in ordinary messages; see batch_work_of */
    struct batch_chunk *chunks;
    struct batch *next; /* for whoever queues it */
};

struct batch *batch_new(void);
void batch_free(struct batch *batch);  /* NULL allowed */
void batch_reset(struct batch *batch); /* empty; a bounded part of its memory is kept */

/* Copies the message behind the others. `take_command` is moved in and left all zero; NULL: the lane decodes it later, after
 * it has noted the attempt. The partition's epoch and handed offset are those of its current taking. */
void batch_add(struct batch *batch, struct partition *partition, const struct message *message,
               struct command *take_command);

/* How many ordinary messages it takes to keep the database as busy as this command does: a cover of thousands of resources must
 * not be one among a thousand in a transaction, nor in a queue that others stand in; one over many items counts as so many. NULL: not
 * decoded, 1. */
size_t batch_work_of(const struct command *command);

/* What claim_offsets is to be told for the entries [from, upto) that are not dropped. */
struct batch_claim {
    const struct batch_slot *slot;
    uint32_t slot_index;
    int64_t expected, next;
    const struct message *last; /* last message of the range in this slot */
};

/* Fills at most slot_count claims and returns how many. Entries before `from` count as committed or dropped with their slot. */
size_t batch_claims(const struct batch *batch, size_t from, size_t upto, struct batch_claim *ret_claims);

/* Drops every entry whose taking is over; returns how many of [from, upto) are left. */
size_t batch_drop_outdated(struct batch *batch, size_t from, size_t upto);
/* Drops the entries of one slot in [from, upto). */
void batch_drop_slot(struct batch *batch, uint32_t slot, size_t from, size_t upto);

#endif
