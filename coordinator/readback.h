/* readback: what the relay learns from the output topics themselves.
 *
 * When it takes over: up to its own marks, which number each partition has come to; that is published and is skipped. (A relay
 * publishes in the journal's order and without gaps in a partition, so what stands there is the beginning of what belongs
 * there, whoever wrote it.)
 *
 * From then on, in lease.state: records that a paused predecessor wrote after it was replaced. Consumers drop them by their number,
 * but compaction may keep one as its key's last word; those keys are collected, to be restated. Nothing is read back for that
 * as long as nobody else writes: our own records then have offsets without a gap, and only a gap is looked into.
 *
 * Who is a straggler: between the position that an earlier relay (epoch E) noted and our marks, a record of an epoch before E or
 * after ours, or below one already seen there; behind our mark, any epoch but ours. So is, whatever its epoch, a record of a history
 * that a failover or a restore left behind: what was decided then holds no more, and may never be decided again. One thread. */
#ifndef LEASE_READBACK_H
#define LEASE_READBACK_H

#include "common/error.h"
#include "common/kafka_reader.h"
#include "coordinator/outputs.h"

#include <stdbool.h>
#include <stdint.h>

enum { READBACK_KEYS_MAX = 500 }; /* restated in one go; reading waits meanwhile */

struct readback {
    struct kafka_reader *reader; /* borrowed */
    const struct outputs *outputs; /* borrowed */
    int64_t epoch;        /* ours */
    int64_t noted_epoch;  /* of the relay that noted the positions */
    int64_t lost_after, lost_before; /* numbers between are of a lost history; set behind readback_init */
    int64_t *mark;        /* per partition: offset of our mark */
    int64_t *published;   /* per partition: the highest journal number before our mark; 0 = none */
    int64_t *position;    /* per partition: everything before this offset was looked at, or is ours */
    int64_t *next;        /* per partition of lease.state: the offset that our next record there has, if nobody else writes; -1 = unknown */
    int64_t *look_upto;   /* per partition of lease.state: to be read from position up to here; 0 = nothing to read */
    bool is_looking;      /* there are such partitions */
    bool must_assign;     /* and the reader does not know of all of them yet */
    int64_t *check_from;  /* per partition of lease.state: stragglers before this offset were dealt with */
    int64_t *epoch_seen;  /* per partition: the highest epoch of our database's history seen before our mark */
    bool *is_past_mark;
    int32_t before_mark;  /* partitions that are not */
    int64_t fence;        /* the highest seen */
    char *keys[READBACK_KEYS_MAX];
    size_t key_count;
};

/* Per partition: position = where its records with numbers above the noted watermark begin; read_back = how far lease.state was
 * looked through for stragglers; -1 = from its beginning. mark = the offsets of our own marks. All copied. */
void readback_init(struct readback *readback, struct kafka_reader *reader, const struct outputs *outputs, int64_t epoch,
                   int64_t noted_epoch, const int64_t *position, const int64_t *read_back, const int64_t *mark);
void readback_release(struct readback *readback); /* zeroed allowed */

/* Starts reading, up to our marks. */
bool readback_start(struct readback *readback, struct error *error) MUST_USE;

/* Reads on, waiting wait_ms at most for the first record. Every partition is at our mark when before_mark is 0. It does not go on
 * while the keys are full: restate them. */
bool readback_to_marks(struct readback *readback, int wait_ms, struct error *error) MUST_USE;

/* A record of ours was acknowledged at this offset (negative: the broker did not say). From the marks on, in order. */
void readback_acknowledged(struct readback *readback, int32_t index, int64_t offset);

/* Looks into the gaps, without waiting, until the keys are full. */
bool readback_poll(struct readback *readback, struct error *error) MUST_USE;

/* The keys have been restated. */
void readback_forget_keys(struct readback *readback);

#endif
