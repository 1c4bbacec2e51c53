# ctest: LABEL fault TIMEOUT 600 TAKES 20 ALONE
"""A settlement over a million contracts, covered bit by bit, while others go on working.

What would go wrong: a cover that costs more the more is covered already; a renewal or a finish that touches each row; covers
that make a transaction of many seconds, or fill the lane's queue, so that others in the lane wait behind them until their runs
have lapsed. (Whoever has the bad luck to share the partition does wait behind the covers that were sent before.)
"""
import os
import statistics
import threading
import time

from stage import Stage
from waiting import eventually

RESOURCES = int(os.environ.get("LEASE_TEST_RESOURCES", "1000000"))
COVER = 8000                # resources of one message: about 180 KB, below the cap of a value
AHEAD = int(os.environ.get("LEASE_TEST_AHEAD", "10"))      # covers sent and not answered yet
OTHERS_EVERY = 0.02         # seconds
# Seconds that others wait at most, 99 in a hundred: a transaction of many seconds keeps hundreds waiting, a machine that stands still only who is on the
# way. A machine that has much else to do takes longer for everything: so many times what a command takes before the large run comes.
OTHERS_LONGEST, OTHERS_SLOW = 5.0, 50
ALONE = 50                  # commands before it comes
TTL_MS = 60000
TABLE = "contract"


class Others:
    """Single commands of other leases, all the time: how long does each wait for its answer?"""

    def __init__(self, place):
        self.place = place
        self.events = place.events()
        self.results = place.reader("lease.results")
        self.sent = {}          # lease → when
        self.waited = {}        # lease → (partition of the command, seconds)
        self.refused = []       # answers that are no grants
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._read)]

    def _send(self):
        number = 0
        while not self.is_over.wait(OTHERS_EVERY):
            number += 1
            name = f"other-{number}"
            self.sent[name] = time.time()
            # Every other one takes a contract, too: not one of the large run's table.
            more = {"resources": [f"album/{number}"]} if number % 2 else {}
            self.events.send("settlement", "start", name, dict(holder="b", ttl_ms=TTL_MS, **more))

    def _read(self):
        seen = 0
        while not self.is_over.is_set() or len(self.waited) < len(self.sent):
            self.results.poll(0.1)
            for record in self.results.records[seen:]:
                name = record.value["lease"]
                if name in self.sent and "origin" in record.value:      # not its lapse, where this takes longer than a ttl
                    if record.outcome != "granted":
                        self.refused.append(record)
                    self.waited[name] = (record.value["origin"]["partition"], record.arrived - self.sent[name])
            seen = len(self.results.records)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join(60)
        assert kind or not any(thread.is_alive() for thread in self.threads), "other commands were not answered"
        # Busy may be who waited a tenth of a second for room at the table's end, where the large run makes room too.
        assert kind or all(record.outcome == "busy" for record in self.refused) and len(self.refused) <= 1 + len(self.waited) // 100, self.refused[:3]


class Run:
    """The large run's holder: it covers, and renews in the meantime."""

    def __init__(self, stage):
        self.stage = stage
        self.started = stage.ask("settlement", "start", "large", {"holder": "a", "ttl_ms": TTL_MS, "more": True, "tables": [TABLE]})
        assert self.started["outcome"] == "granted"
        self.grant = stage.grant(self.started["fence"])

    def ask(self, command, **more):
        begun = time.monotonic()
        answer = self.stage.ask("settlement", command, "large", self.stage.as_holder(self.grant, **more))
        return answer, time.monotonic() - begun

    def cover(self, limit):
        """Covers everything, a few messages ahead of the answers; renews now and then; returns how long the slowest renewal took."""
        firsts = list(range(0, RESOURCES, COVER))
        results, waiting, slowest, seen = self.stage.results, {}, 0.0, 0
        deadline = time.monotonic() + limit
        while firsts or waiting:
            assert time.monotonic() < deadline, f"{len(firsts) + len(waiting)} covers are not answered"
            while firsts and len(waiting) < AHEAD:
                first = firsts.pop(0)
                contracts = [f"{TABLE}/{number:07d}" for number in range(first, min(first + COVER, RESOURCES))]
                waiting[self.stage.events.send("settlement", "cover", "large", self.stage.as_holder(self.grant, resources=contracts))] = first
            results.poll(0.1)
            for record in results.records[seen:]:
                identity = record.value.get("command", {}).get("id")
                if identity in waiting:
                    # Busy: as the others may be; once more.
                    assert record.outcome in ("covered", "busy"), record
                    first = waiting.pop(identity)
                    firsts += [first] if record.outcome == "busy" else []
            seen = len(results.records)
            if len(firsts) % 10 == 0:
                renewed, waited = self.ask("renew", ttl_ms=TTL_MS)
                assert renewed["outcome"] == "renewed"
                slowest = max(slowest, waited)
        return slowest


def show(what, waited):
    """Prints the figures, and returns how long 99 in a hundred took at most."""
    waited = sorted(waited)
    print(f"{len(waited)} {what}: median {statistics.median(waited) * 1000:.0f} ms, p95 {waited[int(len(waited) * 0.95)] * 1000:.0f} ms,"
          f" longest {waited[-1] * 1000:.0f} ms")
    return waited[int(len(waited) * 0.99)]


def test_a_run_over_a_million_contracts_starts_renews_and_finishes_while_others_work(place):
    stage = Stage(place)
    stage.ask("settlement", "start", "warm-up", {"holder": "a"})
    with Others(place) as others:
        eventually(lambda: len(others.waited) >= ALONE, 60, "some commands are answered before it comes")
        before = [wait for _, wait in list(others.waited.values())]
        begun = time.monotonic()
        run = Run(stage)
        slowest_renewal = run.cover(300)
        covered_after = time.monotonic() - begun
        wrong, _ = run.ask("begin", count=RESOURCES + 1)
        assert wrong["outcome"] == "incomplete" and wrong["count"] == RESOURCES
        early, _ = run.ask("finish")
        assert early["outcome"] == "incomplete"
        right, began = run.ask("begin", count=RESOURCES)
        assert right["outcome"] == "granted" and right["fence"] == run.started["fence"] and right["count"] == RESOURCES
        taken = stage.ask("settlement", "start", "rival", {"holder": "c", "resources": [f"{TABLE}/{RESOURCES - 1:07d}"]})
        assert taken["outcome"] == "held" and taken["held_by"]["lease"] == "large"
        renewed, renewing = run.ask("renew", ttl_ms=TTL_MS)
        finished, finishing = run.ask("finish", result={"contracts": RESOURCES})
        assert (renewed["outcome"], finished["outcome"]) == ("renewed", "finished")
        assert stage.ask("settlement", "start", "rival", {"holder": "c", "resources": [f"{TABLE}/0000000"]})["outcome"] == "granted"
    print(f"{RESOURCES} contracts in {RESOURCES // COVER} covers: {covered_after:.1f} s; begin {began * 1000:.0f} ms, renew {renewing * 1000:.0f} ms,"
          f" finish {finishing * 1000:.0f} ms; slowest renewal meanwhile {slowest_renewal * 1000:.0f} ms")
    same = run.started["origin"]["partition"]
    show("commands behind its covers, in the same partition", [wait for where, wait in others.waited.values() if where == same])
    show("commands before", before)
    most = show("commands of others meanwhile", [wait for where, wait in others.waited.values() if where != same])
    assert place.database.value("SELECT resources_covered FROM lease.leases WHERE lease = 'large'") == RESOURCES
    assert most <= max(OTHERS_LONGEST, OTHERS_SLOW * statistics.median(before))
    stage.balance()
