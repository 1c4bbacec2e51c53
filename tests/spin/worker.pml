/* One lease, two workers, two lanes, a reaper, an editor of the covered row, a gate: who may change what, and when.
 *
 * Time is a number that moves whenever it likes. A lane takes a command from the input topic, however old it is, and goes through
 * its transaction step by step: lock, clock, decide and commit. A worker may be paused between any two of its steps, for good too.
 *
 *   -DNO_LOCK_THEN_CLOCK    a lane reads the clock before it has the lock (F7, F25)
 *   -DNO_DEAD_STAYS_DEAD    a lapsed lease may be renewed as long as nobody else has it
 *   -DNO_FENCE_CHECK        a command changes the lease whatever fence it carries (F21)
 *   -DNO_FINAL              what has finished may be started again
 *   -DNO_REAPER_LOOK        the reaper writes by what it saw before it had the lock (F21)
 *   -DNO_LOCKED_IS_LIVE     the guard reads the expiry and does not look whether somebody has the lease in hand (F24)
 *   -DNO_GATE               effects ask nobody
 *   -DNO_FENCE_COMPARE      the gate knows effects by their key and compares no fences
 *   -DNO_GATE_TRANSACTION   the gate is asked first, the effect follows in a transaction of its own
 *   -DNO_EFFECT_KEY         the gate compares fences and knows no effects
 */
#include "rules.pml"

#define TTL    2
#define END    3                /* time does not go beyond */
#define FENCES 2

mtype = { start, renew, finish, fail };         /* commands */
mtype = { free, held, finished };               /* lease.lease.state */

/* ---- the database ---- */

byte now;                       /* its clock_timestamp() */
mtype state = free;
byte fence;                     /* of the last grant; 0: none, or given back. The claim id goes with it (see failover.pml for two servers) */
byte holder;
byte lease_until;
byte last_fence;                /* the sequence lease.fence */
byte locked_by;                 /* the row's lock; 0: nobody */

bool was_dead[FENCES + 1];      /* by fence: somebody acted upon its being dead (not a table: what the proof remembers) */

/* ---- Kafka ---- */

/* Input topics: command, worker, fence. A command is as late as the lane that has taken it is slow. */
chan commands = [0] of { mtype, byte, byte };
byte granted_to[3];             /* lease.grants, by worker: the fence of its newest grant; 0: it has read it */

/* ---- what receives the effects: another database, with the gate in it ---- */

byte gate_fence;                /* lease_gate.resource */
bool gate_knows;                /* lease_gate.effect: the key 'settle' */
byte written;                   /* the highest fence that something was written under */
byte settled;                   /* how often the quota was settled */

#define is_live(t) (state == held && (t) < lease_until)
#define lapsed(t)  (state == held && (t) >= lease_until)

inline turn_over() {
    state = free;
    was_dead[fence] = true
}

#ifdef NO_FENCE_CHECK
#define fits true
#else
#define fits (its == fence)
#endif

/* Every change by a holder's command. */
inline must_be_the_holders() {
    must("BROKEN I3: a command with an old fence changes the lease\n", its == fence);
    must("BROKEN I10: a final state is left\n", state != finished)
}

inline grant_to(worker) {
    must("BROKEN I2: two live leases\n", !is_live(now));
    must("BROKEN I10: a final state is left\n", state != finished);
    last_fence++;
    must("BROKEN I1: a fence that does not rise\n", last_fence > fence);
    fence = last_fence;
    state = held;
    holder = worker;
    lease_until = t + TTL;
    granted_to[worker] = fence;
    printf("time %d: worker %d is granted fence %d, until %d\n", now, worker, fence, lease_until)
}

/* lease.apply, for one command; t is what it read from the clock. */
inline decide() {
    if
    :: lapsed(t) -> turn_over(); printf("time %d: fence %d is found lapsed\n", now, fence)
    :: else
    fi;
    if
    :: command == start && state == free && last_fence < FENCES -> grant_to(worker)
#ifdef NO_FINAL
    :: command == start && state == finished && last_fence < FENCES -> grant_to(worker)
#else
    :: command == start && state == finished -> printf("time %d: worker %d's start: final\n", now, worker)
#endif
    :: command == start && state == held -> printf("time %d: worker %d's start: held\n", now, worker)
    :: command == start && state == free && last_fence == FENCES -> skip     /* the model's bound */
    :: command != start && state == finished -> printf("time %d: worker %d's %e: final\n", now, worker, command)
    :: command != start && state != finished && !(fits) -> printf("time %d: worker %d's %e of fence %d: stale\n", now, worker, command, its)
    :: command == renew && state == held && fits ->
        must_be_the_holders();
        lease_until = larger(lease_until, t + TTL);
        must("BROKEN I2: a lease that was dead is live again\n", !was_dead[fence] || !is_live(now));
        printf("time %d: worker %d renews fence %d, until %d\n", now, worker, its, lease_until)
    :: command == renew && state == free && fits ->
#ifdef NO_DEAD_STAYS_DEAD
        state = held;
        lease_until = t + TTL;
        printf("time %d: worker %d renews fence %d, until %d\n", now, worker, its, lease_until);
        must("BROKEN I2: a lease that was dead is live again\n", !was_dead[fence] || !is_live(now))
#else
        printf("time %d: worker %d's renew of fence %d: lapsed\n", now, worker, its)
#endif
    :: command == finish && state != finished && fits ->        /* late, too, if nobody was granted it since */
        must_be_the_holders();
        if :: state == free -> printf("time %d: worker %d finishes fence %d, late\n", now, worker, its)
           :: else -> printf("time %d: worker %d finishes fence %d\n", now, worker, its) fi;
        state = finished;
        must("BROKEN I9: finished, and the quota not settled once\n", settled == 1)
    :: command == fail && state == held && fits ->
        must_be_the_holders();
        turn_over();
        printf("time %d: worker %d gives fence %d back\n", now, worker, its);
        fence = 0
    :: command == fail && state == free && fits -> printf("time %d: worker %d's fail of fence %d: lapsed\n", now, worker, its)
    fi
}

proctype Lane(byte me) {
    mtype command;
    byte worker, its, t;
end_idle:
    do
    :: atomic { commands ? command, worker, its -> printf("lane %d: takes worker %d's %e, fence %d\n", me, worker, command, its) }
#ifdef NO_LOCK_THEN_CLOCK
        atomic { t = now; printf("lane %d: its clock says %d\n", me, t) }
        atomic { locked_by == 0 -> locked_by = me; printf("lane %d: has the lock\n", me) }
#else
        atomic { locked_by == 0 -> locked_by = me; printf("lane %d: has the lock\n", me) }
        atomic { t = now; printf("lane %d: its clock says %d\n", me, t) }
#endif
        atomic { decide(); locked_by = 0; t = 0; worker = 0; its = 0; command = 0 }
    od
}

/* lease.reap: finds by an index, locks, and looks again. */
proctype Reaper() {
    byte seen;
end_idle:
    do
    :: atomic { lapsed(now) -> seen = fence; printf("time %d: the reaper sees that fence %d has lapsed\n", now, seen) }
        atomic {
            locked_by == 0;
            if
#ifdef NO_REAPER_LOOK
            :: true ->
                must("BROKEN I10: a final state is left\n", state != finished);
#else
            :: state != held || fence != seen || now < lease_until -> printf("time %d: the reaper comes too late\n", now)
            :: else ->
#endif
                turn_over();
                printf("time %d: the reaper turns fence %d over\n", now, seen)
            fi;
            seen = 0
        }
    od
}

/* Somebody edits the covered row: sql/functions/R__guard.sql, lease.stamp_is_live. */
proctype Editor() {
end_idle:
    do
    :: atomic { state == held ->
        if
        :: now < lease_until -> printf("time %d: the edit is refused\n", now)
#ifndef NO_LOCKED_IS_LIVE
        :: now >= lease_until && locked_by != 0 -> printf("time %d: the edit is refused, somebody has the lease in hand\n", now)
#endif
        :: else -> was_dead[fence] = true; printf("time %d: an edit is let in, fence %d is dead\n", now, fence)
        fi }
    od
}

#ifdef NO_GATE
#define is_stale false
#elif defined(NO_FENCE_COMPARE)
#define is_stale false
#else
#define is_stale (mine < gate_fence)
#endif

inline write() {
    must("BROKEN I9: an effect under a lower fence than before\n", mine >= written);
    written = mine;
    printf("worker %d: writes under fence %d\n", me, mine)
}

inline settle() {
    settled++;
    printf("worker %d: settles under fence %d\n", me, mine);
    must("BROKEN I9: the quota is settled twice\n", settled == 1)
}

proctype Worker(byte me) {
    byte mine;
end_waiting:
    do
    :: commands ! start, me, 0
    :: atomic { granted_to[me] != 0 -> mine = granted_to[me]; granted_to[me] = 0; printf("worker %d: reads its grant, fence %d\n", me, mine) }
        do
        :: commands ! renew, me, mine
        :: break
        od;
        if
        :: commands ! fail, me, mine; goto again
        :: skip
        fi;
        /* An effect that may be repeated: a file's bytes, a row that is overwritten. */
#ifdef NO_GATE_TRANSACTION
        atomic { if :: is_stale -> goto again :: else -> gate_fence = mine fi; printf("worker %d: the gate admits fence %d\n", me, mine) }
        atomic { write() }
#else
        atomic {
            if :: is_stale -> printf("worker %d: the gate says that fence %d is stale\n", me, mine); goto again
               :: else -> gate_fence = mine fi;
            write()
        }
#endif
        /* One that may not: its key is remembered with it. */
        atomic {
            if
            :: is_stale -> printf("worker %d: the gate says that fence %d is stale\n", me, mine); goto again
#if !defined(NO_EFFECT_KEY) && !defined(NO_GATE)
            :: !(is_stale) && gate_knows -> gate_fence = mine; printf("worker %d: settled before: a duplicate\n", me)
#endif
            :: else -> gate_fence = mine; gate_knows = true; settle()
            fi
        }
        commands ! finish, me, mine;
again:  mine = 0
    od
}

proctype Clock() {
end_of_time:
    do
    :: now < END -> now++
    od
}

init {
    atomic {
        run Lane(1);
        run Lane(2);
        run Worker(1);
        run Worker(2);
        run Reaper();
        run Editor();
        run Clock();
    }
}
