"""One settlement of realistic size over guarded tables, while an operator keeps trying to change rates. By hand; takes minutes:

    /usr/bin/python3 tests/support/system.py run -- /usr/bin/python3 tests/royalty/realistic.py [CONTRACTS [SALES]]

100,000 contracts and 5,000,000 sales unless said otherwise. Prints figures; ends with an error if the total is not SQL's to the last
decimal, if an edit was let in before the settlement had ended, or if one was refused afterwards.
"""
import os
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
sys.dont_write_bytecode = True

import psycopg2  # noqa: E402

import harness  # noqa: E402
from leasectl import small_topics  # noqa: E402
from royalty import TABLES, LeaseRoyalty, Royalty  # noqa: E402
from waiting import eventually  # noqa: E402

EVERY = 0.05        # seconds between edits
TTL_MS = 60000


class Operator:
    """Tries to change the rate of a random contract, all the time. `outcomes`: (when, SQLSTATE or None, seconds)."""

    def __init__(self, royalty, contracts):
        self.royalty = royalty
        self.contracts = contracts
        self.outcomes = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)

    def _work(self):
        connection = psycopg2.connect(self.royalty.database.conninfo)
        connection.autocommit = True
        chance = random.Random(1)
        with connection.cursor() as cursor:
            while not self.is_over.wait(EVERY):
                kind, contract = chance.choice(self.contracts)
                begun = time.monotonic()
                try:
                    cursor.execute(f"UPDATE {TABLES[kind]} SET rate = 1 - rate WHERE contract = %s", (contract,))
                    self.outcomes.append((begun, None, time.monotonic() - begun))
                except psycopg2.Error as error:
                    self.outcomes.append((begun, error.pgcode, time.monotonic() - begun))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join(30)


def timed(what, act):
    begun = time.monotonic()
    result = act()
    print(f"{what}: {time.monotonic() - begun:.1f} s", flush=True)
    return result


def moment_of(run, event, limit=3600):
    run.says(f"event={event}", limit)
    return time.monotonic()


def settle(place, royalty, contracts, sales):
    timed(f"{contracts:,} contracts and {sales:,} sales are made", lambda: royalty.generate(1, contracts, sales))
    royalty.database.query("ANALYZE")
    timed("the three tables are guarded", royalty.guard)
    right = timed("SQL computes the total", royalty.right_total)
    names = royalty.database.query("SELECT type, contract FROM royalty.contract")
    begun = time.monotonic()
    run = LeaseRoyalty(place, royalty, "realistic", ttl_ms=TTL_MS, log_level="info").start()
    started = moment_of(run, "started")
    with Operator(royalty, names) as operator:
        status, said = run.wait(3600)
        ended = time.monotonic()
        eventually(lambda: len(edits_after(operator, ended)) >= 5, 60, "edits after the end")
    meanwhile = [outcome for outcome in operator.outcomes if outcome[0] + outcome[2] < moment_before_end(royalty, ended)]
    print(f"start over all contracts, guarded: {started - begun:.1f} s; computed and finished: {ended - started:.1f} s,"
          f" {sales / (ended - started):,.0f} sales/s; {said['lines']:,} lines, total {said['total']}, basis {said['basis']}")
    slowest = max((seconds for _, _, seconds in meanwhile), default=0)
    print(f"{len(meanwhile)} edits meanwhile: {sorted({code for _, code, _ in meanwhile}, key=str)}, slowest {slowest * 1000:.0f} ms;"
          f" afterwards: {edits_after(operator, ended)}")
    assert (status, said["total"], said["basis"]) == (0, str(right), "unchanged"), (status, said, right, run.log()[-2000:])
    assert {code for _, code, _ in meanwhile} == {"LE010"}
    assert set(edits_after(operator, ended)) == {None}


def edits_after(operator, moment):
    return [code for at, code, _ in list(operator.outcomes) if at > moment]


def moment_before_end(royalty, ended):
    """When the lease was finished, by this process's clock, a little early."""
    ago = royalty.database.value("SELECT extract(epoch FROM clock_timestamp() - ended_at)::float FROM lease.leases WHERE lease = 'realistic'")
    return min(ended, time.monotonic() - ago - 0.1)


def main(words):
    contracts, sales = (int(word) for word in (words + ["100000", "5000000"][len(words):])[:2])
    place = harness.Place(harness.GivenPostgres(os.environ["LEASE_TEST_DATABASE"]), harness.GivenKafka(os.environ["LEASE_TEST_BROKERS"]),
                          os.environ["LEASE_TEST_BIN"], os.path.join(os.environ["LEASE_TEST_BIN"], "test-files", "realistic"))
    try:
        place.ctl("migrate")
        small_topics(place)
        place.coordinator().start()
        settle(place, Royalty(place.database).load(), contracts, sales)
    finally:
        place.close()


if __name__ == "__main__":
    main(sys.argv[1:])
