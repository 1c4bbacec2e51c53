/* partition: one input partition as this process stands to it: whose it is, since which taking, how far it was read, and
 * why it stands still.
 *
 * The intake's thread owns it. Lanes see two things of it: `generation`, which changes whenever what was read before
 * no longer counts (revoked, lost, refused by the database, taken anew), so that a lane drops what carries an older one; and
 * `committed`, which they write. A partition is never freed before the intake is.
 *
 * The judgement whether reading may go on where the database says, or the log is another one by now,
 * is a pure function here. */
#ifndef LEASE_PARTITION_H
#define LEASE_PARTITION_H

#include "common/error.h"
#include "common/message.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lane;

enum partition_state {
    PARTITION_AWAY,    /* somebody else's */
    PARTITION_PENDING, /* ours by the group; to be taken in the database at take_at_ms */
    PARTITION_CHECKED, /* taken; its fingerprint is being compared */
    PARTITION_RUNNING, /* fetched from */
    PARTITION_HALTED,  /* ours, and it must not be read: `halt` says why */
};

/* The database's next_offset of a partition that was never consumed, as claim_offsets expects it. */
#define PARTITION_NEVER INT64_C(-1)

struct partition {
    char *topic; /* full name */
    int32_t number;
    struct lane *lane;

    /* the intake's */
    enum partition_state state;
    int64_t take_at_ms;     /* monotonic */
    int takes_failed;       /* in a row */
    int64_t epoch;
    uint64_t taken;         /* the generation of the current taking */
    int64_t handed;         /* what claim_offsets will find when all that was handed to the lane is committed */
    int64_t last_offset, last_timestamp, last_checksum; /* fingerprint at the taking; last_offset < 0: none */
    int32_t read_from;      /* the broker that gave us the last record; < 0: none has */
    int32_t compared_at;    /* the broker whose record was compared at the taking; < 0: none */
    int64_t cautious_until; /* messages below this offset are handed over undecoded, to be tried with caution */
    int64_t published;      /* what the group was told */
    bool is_paused;
    struct error halt;

    /* its lane's */
    int64_t alone_until; /* messages below this offset are tried alone: the process died of a few together */

    /* shared with its lane */
    _Atomic uint64_t generation;
    _Atomic bool is_refused; /* the database refused a claim of the current taking */
    _Atomic int64_t committed; /* next offset after the last commit; PARTITION_NEVER: none yet */
};

struct partition *partition_new(const char *topic, int32_t number, struct lane *lane);
void partition_free(struct partition *partition); /* NULL allowed */

/* What was read before this call no longer counts. Any thread. */
void partition_invalidate(struct partition *partition);

/* A claim of that generation was refused: invalidates it and tells the intake, unless somebody else already did. Lanes. */
void partition_refuse(struct partition *partition, uint64_t generation);

bool partition_is_current(struct partition *partition, uint64_t generation);

/* Whether a record of this broker goes on with what was compared and read. Another broker leads the partition otherwise, which may not
 * have had all that its predecessor had (an unclean election), and the client would not notice: the record is not to be used, and the
 * partition to be taken anew, which compares. It follows then, so that a reader and a consumer that are served by different copies
 * do not turn round in circles. */
bool partition_follows(struct partition *partition, int32_t broker) MUST_USE;

/* CRC-32 of key and value: with the timestamp a record's fingerprint. */
int64_t partition_checksum(const struct message *message);

/* What the broker and the database say about a partition that was just taken. */
struct partition_evidence {
    int32_t partitions_now;   /* of the topic */
    int32_t partitions_known; /* as the database first saw it; ≤ 0: never */
    int64_t low, high;        /* watermarks */
    int64_t next_offset;      /* PARTITION_NEVER: never consumed */
    int64_t last_offset, last_timestamp, last_checksum; /* last_offset < 0: none */
    /* The first record at or after last_offset, if it was asked for. */
    bool has_record;
    int64_t record_offset, record_timestamp, record_checksum;
};

/* Before the record is looked at: count and watermarks. False, FATAL, with code partition_count_changed,
 * offset_before_log, offset_beyond_log when the partition must halt. *ret_start is where to read from, *ret_compare
 * whether the record at last_offset is still there to be compared. */
bool partition_judge_place(const struct partition_evidence *evidence, int64_t *ret_start, bool *ret_compare,
                           struct error *error) MUST_USE;
/* What follows for one partition from a broker's error about it, or about its topic. */
enum partition_answer {
    PARTITION_ANSWER_OTHER, /* nothing: it is about more than this partition */
    PARTITION_ANSWER_LATER, /* the partition is to be taken again later */
    PARTITION_ANSWER_HALT,  /* the partition must not be read */
};
enum partition_answer partition_judge_answer(const struct error *error);

/* After the record was looked at: false, FATAL, topic_recreated. */
bool partition_judge_record(const struct partition_evidence *evidence, struct error *error) MUST_USE;

#endif
