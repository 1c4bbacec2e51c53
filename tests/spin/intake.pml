/* One input partition, two coordinators, one database: is each message answered once, and its effect there once, whatever dies?
 *
 * The group moves the partition between the coordinators, and tells the old owner late or never: it goes on with the batch it has.
 * Connections break around a commit, which may have happened or not; coordinators die at any moment and start again. The third
 * message is the first one again, under another offset: a producer that did not hear its acknowledgement.
 *
 *   -DNO_OFFSET_COMPARE     the batch sets the consumed offset without a look at where it stood
 *   -DNO_OWNER_EPOCH        whoever once was the owner may go on
 *   -DNO_SECOND_LOOK        an error at the commit counts as rolled back: the batch is done again as it was
 *   -DNO_ONE_TRANSACTION    the consumed offset is committed first, the decisions behind it
 *   -DNO_DEDUP              ids are not remembered
 */
#include "rules.pml"

#define MESSAGES 3
#define id_of(offset) ((offset) % 2)            /* 0, 1, 0: source and id of the CloudEvent */

/* ---- the database ---- */

byte epoch;                     /* lease.partition: rises with every assignment */
byte next_offset;               /* lease.consumed */
byte answers[MESSAGES];         /* by offset: rows in lease.journal */
byte effects[2];                /* by id: how often a lease changed because of it */

/* ---- Kafka's group ---- */

byte assigned = 1;              /* which coordinator the group has given the partition */
byte moves = 2;                 /* rebalances to come */
byte deaths = 2;
byte cuts = 2;                  /* connections that break around a commit */

/* Decides on the message: lease.apply. */
inline apply(offset) {
    answers[offset]++;
    must("BROKEN I4: a message is answered twice\n", answers[offset] == 1);
    if
#ifndef NO_DEDUP
    :: effects[id_of(offset)] > 0 -> printf("  message %d: duplicate\n", offset)      /* lease.dedup */
#endif
    :: else ->
        effects[id_of(offset)]++;
        printf("  message %d: decided\n", offset);
        must("BROKEN I4: a message has its effect twice\n", effects[id_of(offset)] == 1)
    fi
}

#if defined(NO_OFFSET_COMPARE) && defined(NO_OWNER_EPOCH)
#define may_claim true
#elif defined(NO_OFFSET_COMPARE)
#define may_claim (epoch == my_epoch)
#elif defined(NO_OWNER_EPOCH)
#define may_claim (next_offset == from)
#else
#define may_claim (epoch == my_epoch && next_offset == from)    /* lease.claim_offsets */
#endif

/* What a commit makes true. */
inline commit() {
    next_offset = upto;
    at = from;
    do
    :: at < upto -> apply(at); at++
    :: else -> break
    od;
    at = 0
}

proctype Coordinator(byte me) {
    byte my_epoch, from, upto, at;
    bool is_in_doubt;
begin:
    /* intake_take.c: the group says that it is ours; that may have changed when lease.take_partition is called. */
    do
    :: next_offset == MESSAGES -> goto done
    :: assigned == me -> break
    od;
    atomic {
        epoch++;
        my_epoch = epoch;
        from = next_offset;
        upto = from;
        printf("coordinator %d: takes the partition, epoch %d, offset %d\n", me, my_epoch, from);
    }
    do
    :: atomic { from < MESSAGES && upto == from ->              /* polls one message or two (intake.c, batch.c) */
        if :: upto = from + 1 :: from + 2 <= MESSAGES -> upto = from + 2 fi;
        printf("coordinator %d: has a batch from %d, up to %d\n", me, from, upto) }
#ifdef NO_ONE_TRANSACTION
    :: upto > from ->
        atomic {
            if
            :: may_claim -> next_offset = upto; printf("coordinator %d: commits the offset %d\n", me, upto)
            :: else -> goto lost
            fi
        }
        if
        :: skip
        :: atomic { deaths > 0 -> deaths--; printf("coordinator %d: dies\n", me); goto dead }
        fi;
        atomic { at = from; do :: at < upto -> apply(at); at++ :: else -> break od; at = 0; from = upto }
#else
    :: atomic { upto > from && !is_in_doubt ->                  /* lane.c: one transaction */
        if
        :: !(may_claim) -> printf("coordinator %d: LE002, its batch from %d is refused whole\n", me, from); goto lost
        :: may_claim ->
            printf("coordinator %d: commits its batch from %d, up to %d\n", me, from, upto);
            commit();
            from = upto
        :: may_claim && cuts > 0 ->
            cuts--;
            is_in_doubt = true;
            printf("coordinator %d: commits its batch from %d, up to %d; the answer is lost\n", me, from, upto);
            commit()
        :: cuts > 0 ->
            cuts--;
            is_in_doubt = true;
            printf("coordinator %d: the connection breaks before its commit\n", me)
        fi }
    :: atomic { is_in_doubt ->                                  /* the offset that the transaction wrote is read again */
        is_in_doubt = false;
#ifndef NO_SECOND_LOOK
        if
        :: next_offset == from -> printf("coordinator %d: the offset says: not committed\n", me)
        :: next_offset == upto && epoch == my_epoch -> printf("coordinator %d: the offset says: committed\n", me); from = upto
        :: else -> goto lost
        fi
#endif
       }
#endif
    :: assigned != me && upto == from -> goto begin             /* it hears of the rebalance */
    :: atomic { deaths > 0 -> deaths--; printf("coordinator %d: dies\n", me); goto dead }
    :: from == MESSAGES -> break
    od;
    goto done;
lost:
    upto = from;
    is_in_doubt = false;
    goto begin;
dead:
    atomic { my_epoch = 0; from = 0; upto = 0; at = 0; is_in_doubt = false; goto begin }
done:
    skip
}

proctype Group() {
    do
    :: atomic { moves > 0 -> moves--; assigned = 3 - assigned; printf("group: the partition is coordinator %d's\n", assigned) }
    :: break
    od
}

init {
    atomic {
        run Coordinator(1);
        run Coordinator(2);
        run Group();
    }
    atomic {
        _nr_pr == 1;                /* all have come to their end */
        must("BROKEN I4: a message was never answered\n", answers[0] == 1 && answers[1] == 1 && answers[2] == 1);
        must("BROKEN I4: a message has no effect\n", effects[0] == 1 && effects[1] == 1)
    }
}
