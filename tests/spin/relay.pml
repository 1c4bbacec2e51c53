/* Journal to topic: is each row published once, in order, whichever relay dies or sleeps? And does lease.state tell the truth
 * to a gate that begins from it, although compaction may have kept a paused relay's old record?
 *
 * Terms of the role follow each other; who was replaced may not know, and what its producer has in flight arrives whenever it likes,
 * or never. All rows are about one lease: a row's number says how new its state is, but for rows that state it anew.
 *
 *   -DNO_TAIL               a relay begins at the noted watermark and does not read what already stands in the topic
 *   -DNO_WAIT_FOR_ACK       a row counts as published when it was handed to the producer
 *   -DNO_STOP               the producer goes on behind a record that the broker refused (F14)
 *   -DNO_NUMBER_COMPARE     consumers take every record for news
 *   -DNO_RESTATE            a straggler in lease.state is seen and left alone (F31)
 *   -DNO_COMPACTION_LAG     compaction may come before the repair
 *   -DNO_HIGHEST_NUMBER     a gate believes the last record of a key
 *   -DNO_ROLE_CHECK         the database serves whoever once had the role (LE005)
 */
#include "rules.pml"

#define TERMS   3               /* of the role */
#define ROWS    2               /* decisions */
#define NUMBERS 3               /* with rows that state one anew */
#define RECORDS 12
#define FLIGHT  2

/* ---- the database ---- */

byte epoch;                     /* lease.relay: the newest term */
byte noted;                     /* lease.relay_progress: published up to this number, */
byte noted_read_back;           /* ... and lease.state looked through up to this offset */
byte noted_epoch;               /* ... by this relay */
byte last_number = ROWS;        /* lease.journal: rows 1 to ROWS are decisions, */
byte state_of[NUMBERS + 1];     /* ... and what each row says of the lease: how many decisions it comes after */

/* ---- the topic: lease.results and lease.state alike ---- */

byte record_number[RECORDS];    /* 0: a mark */
byte record_epoch[RECORDS];
byte end_offset;
chan in_flight[TERMS + 1] = [FLIGHT] of { byte };   /* by epoch: the producer's queue, idempotent, so in order (kafka_producer.c) */
bool has_stopped[TERMS + 1];    /* dead */
bool has_mark[TERMS + 1];       /* by epoch: its mark stands there */
byte tail[TERMS + 1];           /* ... and this is the highest number before it */
bool has_gap[TERMS + 1];        /* by epoch: somebody else's record stands between its own, and it has not looked yet */
byte refusals = 1;

/* ---- who reads ---- */

byte last_seen;                 /* results_reader.c: the last number; it is anybody who reads from the beginning */
byte looked;                    /* how far stragglers were looked for, */
byte restated;                  /* ... the last row that states the lease anew because of one, */
bool is_full;
byte repaired;                  /* ... and up to where all of that stands in the topic */

byte cut, at, best, newest;      /* of begin_gate */


#ifdef NO_COMPACTION_LAG
#define may_clean end_offset
#else
#define may_clean repaired                  /* min.compaction.lag.ms: longer than any repair takes */
#endif

/* A gate that begins from lease.state now, compacted as far as may be: of what lies before `cut`, only the last record is left. (Compacted
 * less, there is only more to learn from.) */
inline begin_gate() {
  d_step {
    cut = may_clean;
    do
    :: at < end_offset ->
        newest = larger(newest, record_number[at]);
        if
        :: record_number[at] != 0 && at < cut -> best = record_number[at]
        :: record_number[at] != 0 && at >= cut ->
#ifdef NO_HIGHEST_NUMBER
            best = record_number[at]
#else
            best = larger(best, record_number[at])
#endif
        :: else
        fi;
        at++
    :: else -> break
    od;
    if
    :: state_of[best] < state_of[newest] ->
        printf("gate: begins from lease.state, compacted before offset %d: believes row %d, the newest is %d\n", cut, best, newest)
    :: else
    fi;
    must("BROKEN I9: a gate that began anew knows less than was published\n", state_of[best] >= state_of[newest]);
    cut = 0; at = 0; best = 0; newest = 0
  }
}

inline note_repair() {
    if
    :: last_seen >= restated && repaired < looked -> repaired = looked; begin_gate()
    :: else
    fi
}

inline append(number, by) {
    record_number[end_offset] = number;
    record_epoch[end_offset] = by;
    end_offset++;
    begin_gate()
}

/* What a consumer makes of a new record. */
inline consume(number) {
    if
#ifndef NO_NUMBER_COMPARE
    :: number <= last_seen -> printf("  consumers drop it, they know row %d\n", last_seen)
#endif
    :: else ->
        must("BROKEN I4: a result comes twice\n", number > last_seen);
        must("BROKEN I4: a result is lost\n", number == last_seen + 1);
        last_seen = number
    fi
}

inline lose(by) {
    do :: in_flight[by] ? number :: empty(in_flight[by]) -> break od;
    number = 0;
    has_stopped[by] = true;
    printf("relay %d: dies, and what it had in flight is lost\n", by)
}

/* The brokers take what is in flight, in each producer's order, at any time. */
proctype Broker() {
    byte number, by;
end_quiet:
    do
    :: atomic {
        if
        :: in_flight[1] ? number -> by = 1
        :: in_flight[2] ? number -> by = 2
        :: in_flight[3] ? number -> by = 3
        fi;
        printf("topic: offset %d is row %d, by relay %d\n", end_offset, number, by);
        must("BROKEN I4: a relay repeats what stood before its mark\n", number > tail[by]);
        has_gap[1] = has_gap[1] || (by != 1 && has_mark[1]);
        has_gap[2] = has_gap[2] || (by != 2 && has_mark[2]);
        has_gap[3] = has_gap[3] || (by != 3 && has_mark[3]);
        append(number, by);
        consume(number);
        note_repair();
        number = 0; by = 0
       }
#ifdef NO_STOP
    :: atomic { refusals > 0 && nempty(in_flight[1]) -> refusals--; in_flight[1] ? number; printf("topic: row %d of relay 1 is refused\n", number); number = 0 }
#endif
    :: d_step { nempty(in_flight[1]) -> lose(1) }
    :: d_step { nempty(in_flight[2]) -> lose(2) }
    od
}

#ifdef NO_ROLE_CHECK
#define has_role true
#else
#define has_role (epoch == mine)            /* lease.assert_relay */
#endif

/* readback.c: is_straggler. Before our mark, of an epoch before one already seen there; behind it, any but ours. */
#define is_straggler(at) (record_number[at] != 0 && (at > mark -> record_epoch[at] != mine : record_epoch[at] < seen))

inline note_looked(upto) {
    if :: !is_full -> looked = larger(looked, upto) :: else fi;
    note_repair()
}

/* Looks through offsets from read_back up to `upto`. */
inline look(upto) {
    found = false;
    d_step {
    do
    :: read_back < upto ->
        found = found || is_straggler(read_back);
        if :: read_back < mark && record_epoch[read_back] > seen -> seen = record_epoch[read_back] :: else fi;
        read_back++
    :: else -> break
    od
    }
    if
    :: found && last_number < NUMBERS ->
#ifndef NO_RESTATE
        last_number++;
        state_of[last_number] = ROWS;
        restated = last_number;
        printf("relay %d: finds a straggler before offset %d; row %d states the lease anew\n", mine, upto, last_number)
#endif
    :: found && last_number == NUMBERS -> is_full = true            /* the model's bound: from here on nothing is repaired */
    :: else
    fi;
    note_looked(upto);
    found = false
}

/* publisher.c, for one term of the role. Pausing anywhere, a relay is as good as dead and may come back. */
proctype Relay(byte mine) {
    byte mark, read_upto, read_back, seen;
    bool found;
    atomic {                                        /* lease.relay_take */
        epoch == mine - 1 -> epoch = mine;
        read_upto = noted;
        read_back = noted_read_back;
        seen = noted_epoch;
        printf("relay %d: takes the role; noted is row %d\n", mine, noted);
    }
    atomic {                                        /* a mark, acknowledged; then it reads up to it */
        mark = end_offset;
        has_mark[mine] = true;
        tail[mine] = last_seen;
        append(0, mine);
        printf("topic: offset %d is the mark of relay %d\n", mark, mine);
        if :: !(has_role) -> goto stop :: else fi;
#ifndef NO_TAIL
        read_upto = larger(read_upto, tail[mine]);
        printf("relay %d: finds up to row %d before its mark\n", mine, tail[mine]);
#endif
        look(mark);
        read_back = mark + 1;
    }
end_idle:
    do
    :: atomic { !has_stopped[mine] && read_upto < last_number && nfull(in_flight[mine]) ->            /* lease.relay_read */
        if :: has_role :: else -> goto stop fi;
        read_upto++;
        in_flight[mine] ! read_upto;
        printf("relay %d: sends row %d\n", mine, read_upto) }
#ifdef NO_WAIT_FOR_ACK
    :: atomic { !has_stopped[mine] && noted < read_upto ->
#else
    :: atomic { !has_stopped[mine] && noted < read_upto && empty(in_flight[mine]) ->
#endif
        if :: has_role :: else -> goto stop fi;                                 /* lease.relay_advance */
        noted = read_upto;
        if :: !has_gap[mine] -> read_back = end_offset; note_looked(end_offset) :: else fi;
        noted_read_back = read_back;
        noted_epoch = mine;
        printf("relay %d: notes row %d\n", mine, noted) }
    :: atomic { !has_stopped[mine] && has_gap[mine] ->
        if :: has_role :: else -> goto stop fi;                                 /* lease.restate */
        has_gap[mine] = false;
        look(end_offset) }
    :: atomic { has_stopped[mine] -> break }
    od;
stop:
    atomic { mark = 0; read_upto = 0; read_back = 0; seen = 0 }
}

init {
    atomic {
        state_of[1] = 1;
        state_of[2] = 2;
        run Broker();
        run Relay(1);
        run Relay(2);
        run Relay(3);
    }
    atomic {
        timeout ->                      /* nothing moves any more; the last relay has not died */
        must("BROKEN I4: a result is never published\n", last_seen == last_number)
    }
}
