"""What the guard costs, and what it leaves open: edits and starts over guarded tables, beside the same tables without a guard.

    ./dev bench guard [--json FILE]

Edits are measured both as an application makes them, a statement a row, timed by the client, and as a batch does, one statement over many rows, timed inside
the server, as starts are. All in turn, and rolled back, so that each round meets the same tables.
"""
import random
import statistics
import threading
import time

import psycopg2

from waiting import eventually

# Many edits, and one start, as the server sees them: microseconds. bench_free is bench_guarded without the guard.
FUNCTIONS = """
  CREATE FUNCTION public.bench_edits(p_table text, p_from bigint, p_count int) RETURNS double precision LANGUAGE plpgsql AS $$
    DECLARE t timestamptz := clock_timestamp(); BEGIN
      IF p_table = 'guarded' THEN UPDATE public.bench_guarded SET rate = rate + 1 WHERE id BETWEEN p_from AND p_from + p_count - 1;
      ELSE UPDATE public.bench_free SET rate = rate + 1 WHERE id BETWEEN p_from AND p_from + p_count - 1; END IF;
      RETURN extract(epoch FROM clock_timestamp() - t) * 1000000; END $$;
  CREATE FUNCTION public.bench_start(p_lease text, p_resources text[], p_ttl_ms bigint) RETURNS double precision LANGUAGE plpgsql AS $$
    DECLARE t timestamptz := clock_timestamp(); v_outcome text; BEGIN
      SELECT a.outcome INTO v_outcome FROM lease.apply(ARRAY['bench'], ARRAY[0], ARRAY[0::bigint], ARRAY['settlement'], ARRAY['start'], ARRAY[p_lease],
        ARRAY['/bench/guard'], ARRAY[p_lease], ARRAY['\\x00112233445566778899aabbccddeeff'::bytea], ARRAY[NULL::text], ARRAY['bench'], ARRAY[NULL::bigint],
        ARRAY[NULL::uuid], ARRAY[false], ARRAY[p_ttl_ms], NULL, NULL, NULL, NULL, ARRAY[NULL::boolean], ARRAY[cardinality(p_resources)], p_resources,
        ARRAY[0], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) a;
      IF v_outcome <> 'granted' THEN RAISE EXCEPTION 'the start of % was answered %', p_lease, v_outcome; END IF;
      RETURN extract(epoch FROM clock_timestamp() - t) * 1000000; END $$;
  CREATE FUNCTION public.bench_finish(p_lease text) RETURNS text LANGUAGE sql AS $$
      SELECT a.outcome FROM lease.lease l CROSS JOIN LATERAL lease.apply(ARRAY['bench'], ARRAY[0], ARRAY[1::bigint], ARRAY['settlement'], ARRAY['finish'], ARRAY[p_lease],
        ARRAY['/bench/guard'], ARRAY['finish ' || p_lease], ARRAY['\\x00112233445566778899aabbccddeeff'::bytea], ARRAY[NULL::text], ARRAY['bench'], ARRAY[l.fence],
        ARRAY[l.claim_id], ARRAY[true], NULL, NULL, NULL, NULL, NULL, ARRAY[NULL::boolean], ARRAY[0], NULL,
        ARRAY[0], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) a WHERE l.kind = 'settlement' AND l.lease = p_lease $$;
  CREATE FUNCTION public.bench_update(p_ids bigint[]) RETURNS double precision LANGUAGE plpgsql AS $$
    DECLARE t timestamptz := clock_timestamp(); BEGIN
      UPDATE public.bench_free SET fence = 1 WHERE id = ANY (p_ids);
      RETURN extract(epoch FROM clock_timestamp() - t) * 1000000; END $$;
"""
TABLES = """
  CREATE TABLE public.bench_free (id bigint PRIMARY KEY, rate bigint NOT NULL, payee text NOT NULL, note text, fence bigint) WITH (fillfactor = 70);
  CREATE TABLE public.bench_guarded (id bigint PRIMARY KEY, rate bigint NOT NULL, payee text NOT NULL, note text) WITH (fillfactor = 70);
  INSERT INTO public.bench_free SELECT i, 70, 'payee ' || i, 'a note' FROM generate_series(1, {rows}) i;
  INSERT INTO public.bench_guarded SELECT i, 70, 'payee ' || i, 'a note' FROM generate_series(1, {rows}) i;
  SELECT lease.guard_table('public.bench_guarded', 'bench-contract', ARRAY['rate', 'payee']);
"""
EDITS = 1000            # in one statement
SINGLE_EDITS = 200      # in one round
STARTS = 10             # rounds of starts
START_ROWS = 10_000
LAPSES = 25
LAPSE_TTL_MS = 2000     # of the documents' lab
LAPSE_STEP_MS = 50
COVER = 2000            # rows that one message covers: what others wait for
RENEW_EVERY_S = 0.02


def guarded_place(bench, rows):
    place = bench.place()
    place.database.query(TABLES.format(rows=rows))
    place.database.query(FUNCTIONS)
    for table in ("bench_free", "bench_guarded"):
        place.database.query(f"VACUUM ANALYZE public.{table}")
    return place


def names(ids):
    return [f"bench-contract/{number}" for number in ids]


class Rounds:
    """Calls of the functions above, each in a transaction that is rolled back."""

    def __init__(self, place):
        self.connection = place.database.connect()
        self.connection.autocommit = False

    def us(self, call, *arguments):
        with self.connection.cursor() as cursor:
            cursor.execute(f"SELECT public.{call}", arguments)
            took = cursor.fetchone()[0]
        self.connection.rollback()
        return took

    def us_of_single_edits(self, table, first, count):
        """As an application makes them: a prepared statement, a row each."""
        with self.connection.cursor() as cursor:
            cursor.execute(f"PREPARE edit (bigint) AS UPDATE public.{table} SET rate = rate + 1 WHERE id = $1")
            begun = time.perf_counter()
            for number in range(first, first + count):
                cursor.execute("EXECUTE edit (%s)", (number,))
            took = time.perf_counter() - begun
            cursor.execute("DEALLOCATE edit")
        self.connection.rollback()
        return took * 1e6

    def close(self):
        self.connection.close()


def cost_of(place, rows, rounds):
    """Medians in microseconds: an edit alone and one of many, each without and with the guard; an UPDATE and a start over the same rows."""
    run = Rounds(place)
    count, start_rows = min(EDITS, rows), min(START_ROWS, rows)
    free, guarded, update, start, alone, alone_guarded = [], [], [], [], [], []
    for number in range(rounds):
        first = random.randint(1, rows - count + 1)
        alone.append(run.us_of_single_edits("bench_free", first, SINGLE_EDITS) / SINGLE_EDITS)
        alone_guarded.append(run.us_of_single_edits("bench_guarded", first, SINGLE_EDITS) / SINGLE_EDITS)
        free.append(run.us("bench_edits('free', %s, %s)", first, count) / count)
        guarded.append(run.us("bench_edits('guarded', %s, %s)", first, count) / count)
    for number in range(min(STARTS, rounds)):
        first = random.randint(1, rows - start_rows + 1)
        ids = list(range(first, first + start_rows))
        update.append(run.us("bench_update(%s::bigint[])", ids))
        start.append(run.us("bench_start(%s, %s::text[], 3600000)", f"cost-{number}", names(ids)))
    run.close()
    return [statistics.median(values) for values in (alone, alone_guarded, free, guarded, update, start)]


def dead_stamp_us(place, rounds):
    """What the stamp of a run that has finished adds to an edit: rows with it and rows without, many in one statement each."""
    cursor = place.database.connect().cursor()
    cursor.execute("SELECT public.bench_start('dead', %s::text[], 3600000)", (names(range(1, EDITS + 1)),))
    cursor.execute("SELECT public.bench_finish('dead')")
    assert cursor.fetchone()[0] == "finished"
    cursor.connection.close()
    place.database.query("VACUUM ANALYZE public.bench_guarded")
    run = Rounds(place)
    added = [(run.us("bench_edits('guarded', %s, %s)", 1, EDITS) - run.us("bench_edits('guarded', %s, %s)", EDITS + 1, EDITS)) / EDITS
             for _ in range(rounds)]
    run.close()
    return statistics.median(added)


def lapse_to_edit_ms(place):
    """From the expiry of a run that was killed to the moment of the first edit that is let through; nobody but PostgreSQL runs."""
    late = []
    connection = place.database.connect()
    cursor = connection.cursor()
    for number in range(1, LAPSES + 1):
        # One after the other, so that each is watched when its time comes.
        cursor.execute("SELECT public.bench_start(%s, %s::text[], %s)", (f"lapse-{number}", names([number]), LAPSE_TTL_MS + number * LAPSE_STEP_MS))
    for number in range(1, LAPSES + 1):
        cursor.execute("SELECT lease_until FROM lease.leases WHERE lease = %s", (f"lapse-{number}",))
        until = cursor.fetchone()[0]
        late.append((first_edit(cursor, number) - until).total_seconds() * 1000)
    connection.close()
    assert min(late) >= 0, "an edit was let through under a live lease"
    return statistics.median(late)


def first_edit(cursor, number):
    """Edits until it is let through; the moment, by the database's clock. (RETURNING would tell of one before the guard has looked.)"""
    def moment():
        try:
            cursor.execute("UPDATE public.bench_guarded SET rate = rate + 1 WHERE id = %s", (number,))
        except psycopg2.Error as error:
            if error.pgcode != "LE010":
                raise
            return None
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]

    return eventually(moment, 2 * (LAPSE_TTL_MS + LAPSES * LAPSE_STEP_MS) / 1000, f"row {number} may be edited", every=0.001)


class Renewals:
    """Renewals of another lease, all the time: the longest that one waits for its answer."""

    def __init__(self, place):
        self.events, self.results = place.events(), place.reader("lease.results")
        self.grants = place.reader("lease.grants")
        self.sent, self.longest_ms, self.answered = {}, 0.0, 0
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._read)]

    def begin(self):
        self.events.send("settlement", "start", "other", {"holder": "b", "ttl_ms": 600000})
        grant = self.grants.wait_for(lambda record: record.value["lease"] == "other", 20).value
        self.grant = {key: grant[key] for key in ("holder", "fence", "claim_id", "token")}
        for thread in self.threads:
            thread.start()

    def _send(self):
        while not self.is_over.wait(RENEW_EVERY_S):
            moment = time.time()
            self.sent[self.events.send("settlement", "renew", "other", self.grant)] = moment

    def _read(self):
        seen = 0
        while not self.is_over.is_set() or self.answered < len(self.sent):
            self.results.poll(0.05)
            for record in self.results.records[seen:]:
                if record.outcome == "renewed":
                    self.answered += 1
                    self.longest_ms = max(self.longest_ms, (record.arrived - self.sent[record.value["command"]["id"]]) * 1000)
            seen = len(self.results.records)

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads), "renewals were not answered"


class Coverer:
    """A run that covers a whole table, a chunk after the other."""

    def __init__(self, place):
        self.events, self.results, self.grants = place.events(), place.reader("lease.results"), place.reader("lease.grants")
        self.seen = 0

    def ask(self, command, data):
        identity = self.events.send("settlement", command, "large", data)
        answer = eventually(lambda: self._answer_to(identity), 60, f"the {command} is answered", every=0)
        assert answer["outcome"] in ("granted", "covered", "finished"), answer
        return answer

    def _answer_to(self, identity):
        """Looks at what is new only: there are many answers to others."""
        self.results.poll(0.05)
        new, self.seen = self.results.records[self.seen:], len(self.results.records)
        return next((record.value for record in new if record.value.get("command", {}).get("id") == identity), None)

    def cover(self, rows):
        begun = time.monotonic()
        self.ask("start", {"holder": "a", "ttl_ms": 600000, "more": True, "tables": ["bench-contract"]})
        grant = self.grants.wait_for(lambda record: record.value["lease"] == "large", 20).value
        mine = {key: grant[key] for key in ("holder", "fence", "claim_id", "token")}
        for first in range(1, rows + 1, COVER):
            self.ask("cover", dict(mine, resources=names(range(first, min(first + COVER, rows + 1)))))
        self.ask("begin", dict(mine, count=rows))
        return time.monotonic() - begun


def longest_gap(place, rows):
    """The longest wait of another lease's renewal while a run covers the whole table; and how long the covering takes."""
    coordinator = place.coordinator().start()
    renewals, coverer = Renewals(place), Coverer(place)
    renewals.begin()
    eventually(lambda: renewals.answered > 20, 20, "renewals are answered")
    took = coverer.cover(rows)
    renewals.end()
    coordinator.stop()
    return renewals.longest_ms, took


def guard(bench):
    small, large = bench.sizes.few, bench.sizes.many
    edits, starts, figures = [], [], []
    for rows in (small, large):
        place = guarded_place(bench, rows)
        alone, alone_guarded, free, guarded, update, start = cost_of(place, rows, bench.sizes.guard_rounds)
        edits += [alone_guarded / alone, guarded / free]
        starts.append(start / update)
        figures.append(f"{rows:,}: {alone_guarded:.0f} µs against {alone:.0f} alone, {guarded:.1f} against {free:.1f} of many")
        bench.tell(f"  {rows:,} rows: an edit {figures[-1]}; a start over {min(START_ROWS, rows):,} {start / 1000:.1f} ms, an UPDATE {update / 1000:.1f} ms")
        if rows == small:
            dead = dead_stamp_us(place, bench.sizes.guard_rounds)
            late = lapse_to_edit_ms(place)
        else:
            gap, took = longest_gap(place, rows)
        place.close()
    yield "guard_vs_none", max(edits), "; ".join(figures)
    yield "start_vs_update", max(starts), f"{small:,}: {starts[0]:.2f}, {large:,}: {starts[1]:.2f}"
    yield "dead_stamp_us", dead, "added to an edit, of 1,000 in one statement"
    yield "lapse_to_edit_ms", late, f"{LAPSES} runs of {LAPSE_TTL_MS} ms, killed"
    yield "longest_gap_ms", gap, f"while {large:,} rows were covered in {took:.1f} s"
