"""Cleaning a file up and writing it exclude each other: both leases cover the resource file/<id>, whoever comes first.

The race: cleanup looks whether anybody writes the file, sees nobody, and a writer obtains its lease before the file is deleted. Here
both take the same row's stamp, so there is no moment between a look and a grant. An item whose file is being written is put off; that
is no failure, and burns no attempt.
"""
import collections
import os
import random
import threading
import time

import psycopg2.errors
import pytest
from rules import Grant, Lane, Meanwhile, claim, eventually, request, spent, start, waits_for_a_lock

ROUNDS = int(os.environ.get("LEASE_TEST_ROUNDS", "1200"))
RETRY = (psycopg2.errors.SerializationFailure, psycopg2.errors.DeadlockDetected)


def write(file, holder="writer", **fields):
    return start(f"write-{file}", holder=holder, resources=[f"file/{file}"], kind="file-write", **fields)


def test_an_item_whose_file_is_written_is_put_off_and_burns_no_attempt(lane):
    writer = lane.grant_of(write("f1"), at=0)
    lane.decide(request("f1"), claim("w1", 1, wait_ms=60000), at=0)
    item = lane.lease("cleanup", "f1")
    assert item["state"] == "ready" and item["attempt"] == 0 and lane.grants_after(0) == []
    assert lane.outcomes(writer.says("finish"), at=0.5) == "finished"
    assert lane.reap(at=0.5) == (0, 0), "it is put off, not looked at all the time"
    assert lane.reap(at=1.1) == (1, 1) or lane.grants_after(0)
    grant, = lane.grants_after(0)
    assert grant.fence > writer.fence and lane.lease("cleanup", "f1")["attempt"] == 1


def test_other_items_are_granted_meanwhile(lane):
    lane.grant_of(write("f1"), at=0)
    lane.decide(request("f1"), request("f2"), request("f3"), claim("w1", 2), at=0)
    assert [grant.subject for grant in lane.grants_after(0)] == ["f2", "f3"]


def test_a_writer_is_told_who_cleans_up(lane):
    grant = lane.claim_one("f1", at=0)
    assert lane.outcomes(write("f1"), at=1) == "held"
    row = lane.journal(subject="write-f1")[-1]
    assert row["blocker"]["kind"] == "cleanup" and row["blocker"]["fence"] == grant.fence and row["blocker"]["resource"] == "file/f1"
    assert lane.outcomes(grant.says("finish"), write("f1"), at=1) == ["finished", "granted"]


@pytest.mark.parametrize("is_reaped", [False, True])
def test_a_writer_overtakes_a_lapsed_cleanup(lane, is_reaped):
    grant = lane.claim_one("f1", at=0, ttl=1000)
    if is_reaped:
        lane.reap(at=1.5)
    writer = lane.grant_of(write("f1"), at=2)
    assert writer.fence > grant.fence
    assert lane.outcomes(grant.says("finish"), grant.says("renew"), at=2) == ["stale", "lapsed"]
    lane.decide(claim("w2", 1, wait_ms=60000), at=3.5)
    assert lane.lease("cleanup", "f1")["state"] == "ready", "put off while the writer is there"


def test_cleanup_overtakes_a_lapsed_writer(lane):
    writer = lane.grant_of(write("f1", ttl=1000), at=0)
    lane.decide(request("f1"), at=0)
    assert lane.reap(at=2)[0] >= 1
    lane.decide(claim("w1", 1), at=3.5)
    grant, = lane.grants_after(0)
    assert grant.fence > writer.fence
    assert lane.outcomes(writer.says("finish"), at=3.6) == "stale"


def test_a_writer_that_expired_and_was_not_turned_over_yet_still_counts(lane):
    """The matching never judges an expiry that it has not locked: the item is put off, and the reaper comes anyway."""
    lane.grant_of(write("f1", ttl=1000), at=0)
    lane.decide(request("f1"), claim("w1", 1, wait_ms=600000), at=2)
    assert lane.grants_after(0) == []
    lane.reap(at=2.1)
    lane.reap(at=4)
    assert [grant.subject for grant in lane.grants_after(0)] == ["f1"]


def test_an_item_takes_its_own_old_stamp_again(lane):
    first = lane.claim_one("f1", at=0, ttl=1000)
    lane.reap(at=10)
    lane.decide(claim("w2", 1), at=20)
    second = lane.grants_after(0)[-1]
    assert second.fence > first.fence and second.holder == "w2"
    assert lane.outcomes(write("f1"), at=20) == "held"


def test_the_writer_comes_first_and_cleanup_does_not_wait_for_it(new_lane):
    one, two = new_lane(), new_lane()
    one.decide(request("f1"))
    assert one.apply(write("f1")).outcome == "granted"
    waiting = Meanwhile(two.decide, claim("w1", 1, wait_ms=60000))     # for the journal, as any two transactions do
    waits_for_a_lock(new_lane(), two)
    one.commit()
    waiting.end()
    assert two.grants_after(0) == [] and two.lease("cleanup", "f1")["attempt"] == 0


def test_the_writer_is_rolled_back_and_cleanup_goes_on(new_lane):
    one, two = new_lane(), new_lane()
    one.decide(request("f1"))
    assert one.apply(write("f1")).outcome == "granted"
    waiting = Meanwhile(two.decide, claim("w1", 1, wait_ms=60000))
    waits_for_a_lock(new_lane(), two)
    one.rollback()
    waiting.end()
    assert [grant.subject for grant in two.grants_after(0)] == ["f1"]


@pytest.mark.parametrize("is_known", [False, True])
def test_cleanup_comes_first_and_the_writer_is_refused(new_lane, is_known):
    """Whether the file's row was there before or is new: the stamp that is not committed yet stands in the way."""
    one, two = new_lane(), new_lane()
    if is_known:
        one.decide(one.grant_of(write("f1")).says("release"))
    one.decide(request("f1"))
    one.apply(claim("w1", 1))
    waiting = Meanwhile(two.decide, write("f1", holder="late"))
    waits_for_a_lock(new_lane(), two)
    one.commit()
    assert waiting.end().outcome in ("busy", "held")
    assert two.outcomes(write("f1", holder="late")) == "held"


def test_many_items_that_are_put_off_keep_nobody_waiting_long(lane):
    """Everybody waits for the lock under which they are looked at. And what is free behind them comes in the end."""
    lane.query("INSERT INTO lease.lease (kind, lease, state, ready_at) SELECT 'cleanup', 'f' || n, 'ready', now() - interval '1 hour'"
               " FROM generate_series(1, 3000) n")
    lane.query("INSERT INTO lease.lease (kind, lease, state, ready_at) VALUES ('cleanup', 'free-one', 'ready', now() - interval '1 minute')")
    lane.query("ANALYZE lease.lease")
    lane.commit()
    lane.decide(start("w", kind="file-write", resources=[f"file/f{number}" for number in range(1, 3001)], ttl=600000))
    took = []
    while not lane.grants_after(0) or lane.grants_after(0)[-1].subject != "free-one":
        begun = spent(lane)
        lane.decide(claim("w1", 1, refresh=len(took) + 1, wait_ms=60000))
        took.append((spent(lane) - begun) * 1000)
        assert len(took) < 100
    took.sort()
    print(f"{len(took)} transactions, median {took[len(took) // 2]:.0f} ms, longest {took[-1]:.0f} ms")
    assert took[len(took) // 2] < 100, "milliseconds under the journal's lock"


def test_an_item_is_looked_at_once_however_soon_it_is_due_again(lane):
    lane.query("UPDATE lease.kind SET backoff_base_ms = 1 WHERE kind = 'cleanup'")
    lane.decide(write("f1", ttl=600000), request("f1"))
    begun = spent(lane)
    lane.decide(claim("w1", 1, wait_ms=60000))
    assert spent(lane) - begun < 0.1
    with pytest.raises(psycopg2.errors.CheckViolation):
        lane.query("UPDATE lease.kind SET backoff_base_ms = 0 WHERE kind = 'cleanup'")


# ---- at random ----

FILES, TTL = 4, 40      # ms
GRANTS, OF_EACH = 0.2 * ROUNDS, 50      # at least, of both kinds together and of each: a slow machine finds most leases lapsed, and goes on until it has them


def play(lane, seed, credit, granted, deadline, error):
    """A writer and a cleaner in one lane, at random, some of them never finishing."""
    chance = random.Random(seed)
    worker = f"w{seed}"
    try:
        done = 0
        while (done < ROUNDS // 2 or sum(granted.values()) <= GRANTS or min(granted.values()) <= OF_EACH) and time.monotonic() < deadline:
            file = f"f{chance.randrange(FILES)}"
            try:
                if chance.random() < 0.5:
                    answer = lane.decide(write(file, holder=worker, ttl=TTL))
                    granted["file-write"] += answer.outcome == "granted"
                    if answer.outcome == "granted" and chance.random() < 0.7:
                        grant = Grant("file-write", f"write-{file}", worker, answer.fence, answer.claim_id)
                        lane.decide(grant.says(chance.choice(["release", "renew", "release"])))
                else:
                    before = lane.last_number()
                    credit[worker] += 1
                    lane.decide(request(file), claim(worker, credit[worker], refresh=credit[worker], ttl=TTL))
                    for grant in lane.grants_after(before):
                        granted["cleanup"] += grant.holder == worker
                        if grant.holder == worker and chance.random() < 0.7:
                            lane.decide(grant.says(chance.choice(["release", "renew", "release"])))
                done += 1
            except RETRY:
                lane.rollback()
            if chance.random() < 0.2:
                lane.reap()
    except Exception as problem:  # pylint: disable=broad-except  # the main thread raises it
        error.append(problem)


def inside(rows):
    """The books: for each file, who was inside when, by the journal alone. Returns how many grants there were of each kind, and fails
    if two were inside at once or a fence went back."""
    holds, last, grants = {}, collections.defaultdict(int), collections.Counter()
    for row in rows:
        if row["kind"] not in ("cleanup", "file-write") or row["event"] == "granted" and not row["is_grant"]:
            continue
        file = row["subject"].removeprefix("write-")
        if row["event"] == "granted":
            held = holds.get(file)
            assert held is None or held["lease_until"] <= row["at"], f"two inside {file}: {held} and {row}"
            assert row["fence"] > last[file]
            last[file] = row["fence"]
            holds[file] = row
            grants[row["kind"]] += 1
        elif row["event"] == "renewed":
            assert holds[file]["fence"] == row["fence"]
            holds[file] = row
        elif row["event"] in ("released", "lapsed", "finished", "dead") and holds.get(file) and holds[file]["fence"] == row["fence"]:
            del holds[file]
    return grants


def test_never_both_inside_at_random(database):
    seed = int(os.environ.get("LEASE_TEST_SEED", "0")) or random.randrange(1, 10**6)
    print("seed", seed)
    database.query("UPDATE lease.kind SET backoff_base_ms = 5, attempts_max = 1000000 WHERE kind = 'cleanup'")
    lanes, errors, credit, granted = [Lane(database.conninfo) for _ in range(3)], [], collections.Counter(), {"cleanup": 0, "file-write": 0}
    deadline = time.monotonic() + 120
    threads = [threading.Thread(target=play, args=(lane, seed + n, credit, granted, deadline, errors), daemon=True) for n, lane in enumerate(lanes)]
    for thread in threads:
        thread.start()
    eventually(lambda: not any(thread.is_alive() for thread in threads), 180, "all are through")
    assert not errors, errors
    rows = lanes[0].journal()
    grants = inside(rows)
    put_off = sum(row["event"] == "waiting" or row["event"] == "empty" for row in rows)
    print(f"{dict(grants)} grants, {put_off} claims without one, {sum(row['event'] in ('held', 'busy') for row in rows)} writers refused")
    assert sum(grants.values()) >= GRANTS and min(grants["cleanup"], grants["file-write"]) > OF_EACH
    for lane in lanes:
        lane.close()
