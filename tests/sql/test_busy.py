"""`busy` means that somebody has one of the rows in hand, and never that the table was busy; and nobody waits for a stranger's lock.

F28: SKIP LOCKED does not skip locks on a whole table; FOR UPDATE meets what FOR NO KEY UPDATE does not (tests/README.md
lists such facts).
"""
import collections
import os
import threading
import time

import pytest
from rules import STATEMENT_MS, Lane, eventually, start

SECONDS = float(os.environ.get("LEASE_TEST_SECONDS", "6"))
PATIENCE = STATEMENT_MS / 1000 / 2      # a lock that is never given up ends a statement after twice as long


@pytest.mark.parametrize("lock", ["LOCK TABLE lease.resource IN SHARE MODE",      # what CREATE INDEX takes
                                  "SELECT 1 FROM lease.resource WHERE resource = 'album/1' FOR UPDATE",
                                  "SELECT 1 FROM lease.resource WHERE resource = 'album/1' FOR NO KEY UPDATE"])
def test_F28_a_start_does_not_wait_for_a_strangers_lock_and_the_batch_goes_on(new_lane, lock):
    lane, stranger = new_lane(), new_lane()
    lane.decide(lane.grant_of(start("old", resources=["album/1"])).says("release"))
    stranger.query(lock)
    begun = time.monotonic()
    assert lane.outcomes(start("s1", resources=["album/1"]), start("s2")) == ["busy", "granted"]
    assert time.monotonic() - begun < PATIENCE
    stranger.rollback()
    assert lane.outcomes(start("s1", resources=["album/1"])) == "granted"


def test_F28_a_start_is_not_kept_by_a_lock_that_only_guards_a_rows_key(new_lane):
    """What inserting a child row takes: it is no reason to skip the row."""
    lane, stranger = new_lane(), new_lane()
    lane.decide(lane.grant_of(start("old", resources=["album/1"])).says("release"))
    stranger.query("SELECT 1 FROM lease.resource WHERE resource = 'album/1' FOR KEY SHARE")
    assert lane.outcomes(start("s1", resources=["album/1"])) == "granted"
    stranger.rollback()


def test_no_start_is_busy_because_another_lane_makes_the_table_larger(database):
    """Two lanes over rows of their own. Both make room at the table's end, one after the other; that wait is no row's."""
    seen = {True: collections.Counter(), False: collections.Counter()}
    deadline = time.monotonic() + SECONDS

    def work(is_large):
        lane = Lane(database.conninfo)
        table = "album" if is_large else "track"
        while time.monotonic() < deadline:
            first = sum(seen[is_large].values())
            commands = [start(f"{table}-{first + n}", resources=[f"{table}/{first + n}-{k}" for k in range(3000 if is_large else 20)])
                        for n in range(1 if is_large else 20)]
            outcomes = lane.outcomes(*commands)
            seen[is_large].update([outcomes] if is_large else outcomes)
        lane.close()

    threads = [threading.Thread(target=work, args=(is_large,), daemon=True) for is_large in (True, False)]
    for thread in threads:
        thread.start()
    eventually(lambda: not any(thread.is_alive() for thread in threads), SECONDS + 120, "both lanes are done")
    print(seen)
    # Who makes room may lose the processor for longer than the other one's patience, a tenth of a second: that is rare.
    for tally in seen.values():
        assert set(tally) <= {"granted", "busy"} and tally["busy"] <= 1 + sum(tally.values()) // 100, seen
