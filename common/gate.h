/* gate: turns stale workers away from a consumer of a topic. For effects that arrive as records (each with resource, fence and
 * claim id of who sent it) and land somewhere that keeps no fences itself. Where effects land in PostgreSQL, sql/gate is the better
 * gate: its memory and the effect are one transaction. This one's is the process's own: it begins anew with it, from lease.state.
 *
 * The rule, per resource. A verdict is the first of these that applies:
 *
 *   not ready   lease.state was not read yet, up to where it ended when the gate began. Nothing is admitted before.
 *   stale       the fence is below a published floor, below the highest fence seen, or equal to that one with another claim id.
 *               Seen is what lease.state says was granted, and what was admitted here. It is final: leave the effect out.
 *   duplicate   not stale, and the effect's number is not above the last one that gate_done was told of under this fence.
 *   admit       anything else. Fence and claim id are now the highest.
 *
 * Everything only rises, so records may come late, twice and in any order. Two records that give one fence to two claims (servers that
 * were promoted apart from each other): the one with the higher journal number says who has it, unless the other was admitted.
 *
 * What it remembers of a resource is its highest fence, claim id, floor and effect number. At most resources_max are remembered. When
 * they are full, an eighth is forgotten: first leases that have ended, lowest fence first, then others. The gate's base rises above whatever was
 * forgotten, and a resource that is not remembered is refused below the base. So the bound never lets a stale one in; what it can do is
 * turn the holder of an old grant away. With more room than leases are live or waiting at once (now, or in what lease.state still
 * tells of the past) it does not: what is said of them is remembered beyond the base. An item that is requested and not yet granted
 * counts: it has a floor. (Whoever it admitted and forgot is turned away, and so is another claim under the same fence.)
 *
 * It keeps out who is late, not who lies: fences are believed. One thread owns a gate. Memory: about 250 bytes and the name per resource. */
#ifndef LEASE_GATE_H
#define LEASE_GATE_H

#include "common/buf.h"
#include "common/error.h"
#include "common/lease.h"
#include "common/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gate;

/* In their order of precedence. */
enum gate_verdict { GATE_NOT_READY, GATE_STALE, GATE_DUPLICATE, GATE_ADMIT, GATE_VERDICT_COUNT };
const char *gate_verdict_name(enum gate_verdict verdict); /* "not-ready", "stale", "duplicate", "admit" */

/* Which resource does a record of lease.state speak of? Appends its name to `resource`; false: of none that comes here. `key` is the
 * record's, `<kind>/<lease>`, no NUL behind. Several leases may map to one resource. */
typedef bool gate_resource_fn(void *context, const char *key, size_t key_size, struct buf *resource);

enum { GATE_RESOURCES_DEFAULT = 100000, GATE_RESOURCES_MIN = 8, GATE_RESOURCE_NAME_MAX = 1000 };

struct gate_options {
    size_t resources_max;       /* 0 = GATE_RESOURCES_DEFAULT; less than GATE_RESOURCES_MIN counts as that */
    gate_resource_fn *resource; /* NULL: the key is the resource */
    void *context;
};

struct gate *gate_new(const struct gate_options *options); /* NULL: all defaults */
void gate_free(struct gate *gate);                         /* NULL allowed */

/* ---- what lease.state says (gate_reader.h reads it) ---- */

/* From now the gate is not ready until each of `count` partitions was read up to its end: the offset behind its last record, 0 if it is
 * empty. What is remembered stays. A gate that was never told is not ready. */
void gate_begin(struct gate *gate, const int64_t *ends, int32_t count);

/* Takes in a record of lease.state. Marks, null values and records that no relay wrote count as read and change nothing. False with
 * ERROR_FATAL and code gate_unreadable for a relay's record that cannot be understood: it may be a floor, so go no further. */
bool gate_feed(struct gate *gate, const struct message *record, struct error *error) MUST_USE;

/* The partition was read up to this offset, records or not. */
void gate_reached(struct gate *gate, int32_t partition, int64_t offset);

bool gate_is_ready(const struct gate *gate);

/* ---- effects ---- */

struct gate_request {
    const char *resource; /* not NUL-terminated */
    size_t resource_size; /* 1 … GATE_RESOURCE_NAME_MAX */
    int64_t fence;        /* 1 … LEASE_FENCE_MAX; what can be no fence or name is stale */
    struct claim_id claim_id;
    int64_t effect; /* its number among those of its grant, from 1, rising; 0: not numbered, never a duplicate */
};

/* The verdict; remembers the fence if it admits. */
enum gate_verdict gate_admit(struct gate *gate, const struct gate_request *request);

/* The effect of an admitted request is done: from now on its number, and lower ones, are duplicates under this fence. */
void gate_done(struct gate *gate, const struct gate_request *request);

/* ---- for metrics and tests ---- */

struct gate_counts {
    int64_t verdicts[GATE_VERDICT_COUNT];
    int64_t records;    /* of lease.state, taken in */
    int64_t marks;
    int64_t stragglers; /* behind a newer record of the same resource */
    int64_t strangers;  /* records that no relay wrote */
    int64_t forgotten;
    int64_t base;
    size_t resources;
};
void gate_get_counts(const struct gate *gate, struct gate_counts *ret_counts);

#endif
