/* Fences across failovers and restores: does a number that was given out ever come again, and what does a gate make of it?
 *
 * Three servers: 0 begins as the primary, 1 and 2 are its standbys, behind by any amount. Each has a coordinator with a relay (the
 * one that is connected to it, if any is). The first primary may be cut off rather than dead: it goes on granting and publishing.
 *
 *   -DTWO_PROMOTED          1 and 2 are promoted apart from each other (F2), instead of one after the other
 *   -DRESTORED              instead of a promotion, yesterday's copy of server 0's data directory is put back
 *   -DLATE_AFTER_RESTORE    ... while records of before are still under way: beyond what is promised
 *   -DNO_STEPS              a jump is as wide after two changes of the timeline as after one
 *   -DNO_JUMP               the numbers go on where the new primary stands
 *   -DNO_MARGIN             they jump above the topics, but not by 2^32 more
 *   -DNO_WITNESS            they jump above the server's own numbers, without a look at the topics
 *   -DNO_REFUSAL            topics that are ahead of the database are no reason to stop
 *   -DNO_CLAIM_ID           a gate compares fences only
 */
#include "rules.pml"

#define SERVERS 3
#define GRANTS  2               /* that one server gives out between two looks at the topics, at most */
#ifdef TWO_PROMOTED
#define CLAIMS  4               /* in all */
#else
#define CLAIMS  4
#endif

#ifdef NO_MARGIN
#define MARGIN 0
#else
#define MARGIN 3                /* stands for 2^32: more than anybody grants between two looks at the topics */
#endif

/* ---- a server's data: what a standby copies ---- */

byte fence[SERVERS];            /* the sequence lease.fence */
byte timeline[SERVERS] = 1;     /* what the server writes on: view lease.this_server */
byte identity[SERVERS] = 1;     /* what its tables say it is: table lease.identity */

bool is_primary[SERVERS];
byte newest;                    /* the primary that new connections are led to */
bool is_dead[SERVERS];
bool is_restored;
chan unpublished[SERVERS] = [GRANTS] of { byte };   /* claims in lease.journal that the relay has not published, or has in flight */

/* ---- the world outside: no failover takes it back ---- */

byte claims;                    /* claim ids given out so far: UUIDs, so no two servers draw the same */
byte fence_of[CLAIMS + 1];      /* by claim id */
bool is_published[CLAIMS + 1];  /* its record stands in lease.grants: its holder knows it */
byte witness;                   /* the highest fence in the output topics, or in the marks of lease.state (witness.c) */

byte gate_fence, gate_claim;    /* a gate's memory for the one resource (gate.c; table lease_gate.resource) */

/* ---- coordinator and relay ---- */

/* Who may come new to a server. Who is connected to an older primary goes on with what he has. */
#ifdef TWO_PROMOTED
#define in_service(s) is_primary[s]
#else
#define in_service(s) (newest == s)
#endif

/* A connection to the server that was put back has died; whatever it had begun is rolled back. */
#define is_connected(s) (s != 0 || !is_restored)

inline grant(s) {
    fence[s]++;
    claims++;
    granted++;
    fence_of[claims] = fence[s];
    unpublished[s] ! claims;
    printf("server %d: grants fence %d to claim %d\n", s, fence[s], claims)
}

inline publish(s) {
    unpublished[s] ? claim;
    is_published[claim] = true;
    witness = larger(witness, fence_of[claim]);
    printf("server %d: its relay publishes claim %d, fence %d\n", s, claim, fence_of[claim]);
#ifndef TWO_PROMOTED
    other = 1;
    do
    :: other <= claims ->
        must("BROKEN I1: two claims have one fence\n", other == claim || !is_published[other] || fence_of[other] != fence_of[claim]);
        other++
    :: else -> break
    od;
    other = 0;
#endif
    claim = 0
}

#ifdef NO_REFUSAL
#define must_jump(s) (identity[s] != timeline[s])
#else
#define must_jump(s) (identity[s] != timeline[s] || seen > fence[s])
#endif

/* lease.jump: the numbers rise above what was seen, and the tables take the server's identity on. */
inline jump(s) {
#ifndef NO_JUMP
#ifndef NO_WITNESS
    fence[s] = larger(fence[s], seen);
#endif
#ifdef NO_STEPS
    fence[s] = fence[s] + MARGIN;
#else
    fence[s] = fence[s] + MARGIN * larger(1, timeline[s] - identity[s]);
#endif
    printf("server %d: fences jump to %d\n", s, fence[s]);
#endif
    identity[s] = timeline[s]
}

proctype Coordinator(byte s) {
    byte seen, claim, other, granted;
end_standby:
connect:
    in_service(s);
    /* admission.c: first the topics, then the database. Anything may happen between the two. */
    atomic {
        if :: !is_connected(s) -> is_restored = false :: else fi;
        seen = witness;
        printf("server %d: a coordinator connects; the topics know fence %d\n", s, seen);
    }
    atomic {
        if
        :: !is_connected(s) || !in_service(s) -> goto connect
        :: else
        fi;
#ifndef NO_REFUSAL
        if                                          /* lease.check_server */
        :: identity[s] == timeline[s] && seen > fence[s] ->
            printf("server %d: LE004, the topics are ahead: refused, until somebody says leasectl jump\n", s)
        :: else
        fi;
#endif
        if
        :: must_jump(s) -> jump(s)
        :: else
        fi;
        granted = 0;
        seen = 0;
    }
    do
    :: atomic { is_connected(s) && !is_dead[s] && claims < CLAIMS && granted < GRANTS && nfull(unpublished[s]) -> grant(s) }
    :: atomic { !is_dead[s] && nempty(unpublished[s]) -> publish(s) }
    :: atomic { !is_connected(s) -> goto connect }
    :: break                        /* killed, or cut off for good; what it has not published is lost */
    od
}

/* ---- who operates the servers ---- */

/* A standby is at some moment as the primary was; later it lacks the last transactions. */
inline copy(from, to) {
    d_step {
        fence[to] = fence[from];
        identity[to] = identity[from];
        timeline[to] = timeline[from];
        printf("server %d: is now as server %d is, fence %d\n", to, from, fence[to]);
    }
}

inline promote(s) {
    d_step {
        timeline[s]++;
        is_primary[s] = true;
        newest = s;
        printf("server %d: promoted, on timeline %d\n", s, timeline[s]);
    }
}

proctype Operator() {
#ifdef RESTORED
    byte yesterday, lost;
#endif
#if defined(RESTORED)
    yesterday = fence[0];
    atomic {
#ifndef LATE_AFTER_RESTORE
        do                                  /* nothing of before is under way any more: it is published, or lost */
        :: unpublished[0] ? lost
        :: empty(unpublished[0]) -> break
        od;
#endif
        fence[0] = yesterday;
        is_restored = true;
        printf("server 0: the data directory of yesterday is put back, fence %d\n", fence[0]);
    }
#elif defined(TWO_PROMOTED)
    if :: copy(0, 1) :: skip fi;
    if :: copy(0, 2) :: skip fi;
    promote(1);
    promote(2)
#else
    if :: copy(0, 1) :: skip fi;
    if :: copy(0, 2) :: skip fi;
    promote(1);
    if
    :: copy(1, 2)                           /* it follows server 1, which may be cut off at any time after that */
    :: atomic { is_dead[1] = true; printf("server 1: dead; server 2 did not follow it\n") }
    fi;
    promote(2)
#endif
}

/* ---- effects ---- */

/* Holders of published claims come to the gate in any order, as often as they like. */
proctype Gate() {
    byte claim;
    do
    :: atomic {
        if
        :: claims >= 1 && is_published[1] -> claim = 1
        :: claims >= 2 && is_published[2] -> claim = 2
        :: claims >= 3 && is_published[3] -> claim = 3
        :: claims >= 4 && is_published[4] -> claim = 4
        :: claims >= 5 && is_published[5] -> claim = 5
        :: claims >= 6 && is_published[6] -> claim = 6
        fi;
        if
        :: fence_of[claim] < gate_fence -> printf("gate: claim %d with fence %d is stale\n", claim, fence_of[claim])
#ifndef NO_CLAIM_ID
        :: fence_of[claim] == gate_fence && claim != gate_claim ->
            printf("gate: claim %d is stale: fence %d is another claim's\n", claim, gate_fence)
#endif
        :: else ->
            printf("gate: claim %d with fence %d is admitted\n", claim, fence_of[claim]);
            must("BROKEN I9: effects of two claims under one fence\n", fence_of[claim] > gate_fence || claim == gate_claim);
            gate_fence = fence_of[claim];
            gate_claim = claim
        fi;
        claim = 0;
       }
    :: break
    od
}

init {
    atomic {
        is_primary[0] = true;
        run Coordinator(0);
        run Coordinator(1);
        run Coordinator(2);
        run Operator();
        run Gate();
    }
}
