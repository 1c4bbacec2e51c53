# ctest: LABEL worker,sanitize TIMEOUT 600 TAKES 30
"""Pool workers that nothing happens to: each item once, what became of it, demand that waits, drain."""
import collections
import json

import pytest

from waiting import eventually


@pytest.fixture
def pool(place, probes):
    """A coordinator, and the means to request items."""
    place.coordinator().start()
    return Pool(place, probes)


class Pool:
    def __init__(self, place, probes):
        self.place = place
        self.probes = probes
        self.events = place.events()

    def request(self, lease, mode="quick", kind="cleanup", **more):
        self.events.send(kind, "request", lease, {"payload": dict({"mode": mode}, **more)})
        self.events.flush()

    def states(self):
        return collections.Counter(state for state, in self.place.database.query("SELECT state FROM lease.leases"))

    def wait_states(self, limit=90, **states):
        eventually(lambda: self.states() == states, limit, f"the leases are {states}, not {dict(self.states())}", every=0.1)


def test_pool__200_items_over_two_processes_are_each_done_once(pool):
    first, second = pool.probes.pool(credit=16, ttl_ms=30000), pool.probes.pool(credit=16, ttl_ms=30000)
    eventually(lambda: pool.place.database.value("SELECT count(*) FROM lease.demands") == 2, 60, "both ask for items")
    for number in range(200):
        pool.events.send("cleanup", "request", f"file-{number}", {"payload": {"mode": "slow", "ms": 20}})
    pool.events.flush()
    pool.wait_states(finished=200)
    eventually(lambda: first.stats()["finished"] + second.stats()["finished"] == 200, 60, "both were told")
    begun = [event["lease"] for probe in (first, second) for event in probe.find("begin")]
    assert len(begun) == 200 and len(set(begun)) == 200
    assert min(len(first.find("begin")), len(second.find("begin"))) > 0         # both took part
    for probe in (first, second):
        assert len(probe.find("settled", outcome="finished")) == len(probe.find("begin")) == probe.stats()["claimed"]
        stats = probe.stats()
        assert (stats["lost"], stats["stale"], stats["resent"], stats["in_hand"]) == (0, 0, 0, 0)


def test_pool__says_what_became_of_an_item(pool):
    probe = pool.probes.pool(ttl_ms=30000)
    for mode in ("quick", "result", "fail", "poison", "silent", "release"):
        pool.request(f"file-{mode}", mode)
    probe.wait_for("settled", lease="file-result", outcome="finished")
    probe.wait_for("settled", lease="file-quick", outcome="finished")
    probe.wait_for("settled", lease="file-poison", outcome="failed")
    assert probe.wait_for("begin", lease="file-fail", count=2)["attempt"] == 2       # it was to be tried again at once
    probe.wait_for("settled", lease="file-fail", outcome="finished")
    probe.wait_for("settled", lease="file-silent", outcome="failed")
    probe.wait_for("settled", lease="file-release", outcome="released")
    assert probe.wait_for("begin", lease="file-release", count=2)["attempt"] == 1    # it burned none
    results = pool.place.reader("lease.results")

    def said(lease, outcome):
        return results.wait_for(lambda record: (record.value["lease"], record.value["outcome"]) == (lease, outcome)).value

    assert said("file-result", "finished")["result"] == {"rows": 12, "names": ["a", "b"]}
    assert said("file-fail", "failed")["reason"] == "the disk?is full"
    assert said("file-poison", "failed")["state"] == "dead" or said("file-poison", "dead")
    assert said("file-silent", "failed")["reason"] == "the work returned without a verdict"


def test_pool__waits_for_items_without_asking_all_the_time(pool):
    probe = pool.probes.pool(ttl_ms=30000)
    eventually(lambda: probe.stats()["asked"] == 8, 60, "it has asked")
    claims = pool.place.reader("lease.results")
    claims.wait_for(lambda record: record.value["outcome"] == "waiting")
    for number in range(3):
        pool.request(f"file-{number}")
        probe.wait_for("settled", lease=f"file-{number}", outcome="finished")
    claims.read_all()
    answers = claims.find(lambda record: record.value.get("command", {}).get("type") == "cleanup.claim")
    assert len(answers) <= 12, [record.value for record in answers]


def test_pool__gives_back_what_it_has_not_begun_and_ends_what_it_has(pool):
    probe = pool.probes.pool(concurrency=1, credit=10, ttl_ms=30000)
    for number in range(10):
        pool.request(f"file-{number}", "slow", ms=4000)
    probe.wait_for("effect")
    eventually(lambda: probe.stats()["claimed"] == 10, 60, "all are in its hand")
    stopped = probe.ask("stop 20000", "stopped")
    assert stopped["running"] == 0
    stats = probe.stats()
    assert (stats["begun"], stats["finished"], stats["released"], stats["in_hand"]) == (1, 1, 9, 0)
    assert pool.states() == {"finished": 1, "ready": 9}
    attempts = pool.place.database.query("SELECT attempt FROM lease.leases WHERE state = 'ready'")
    assert set(attempts) == {(0,)}                                                   # that burned none of their attempts
    pool.request("file-late")
    other = pool.probes.pool(concurrency=10, credit=10)
    other.wait_for("settled", lease="file-late", outcome="finished")
    assert not probe.find("begin", lease="file-late")                               # its demand was closed
    assert probe.end() == 0


def test_pool__renews_what_gets_on_in_one_command_for_all(pool):
    probe = pool.probes.pool(concurrency=6, credit=6, ttl_ms=6000)
    for number in range(6):
        pool.request(f"file-{number}", "slow", ms=8500)
    probe.wait_for("settled", count=6, outcome="finished")
    stats = probe.stats()
    assert stats["lost"] == 0 and stats["renewals"] >= 6 * 2
    results = pool.place.reader("lease.results")
    results.read_all()
    answered = results.find(lambda record: record.value.get("command", {}).get("type") == "cleanup.renew")
    assert any(len(record.value["items"]) > 1 for record in answered)
    assert len(answered) < stats["renewals"]


def test_pool__keeps_more_items_than_a_command_holds(pool):
    probe = pool.probes.pool(concurrency=2, credit=2500, ttl_ms=60000)
    for number in range(2500):
        pool.events.send("cleanup", "request", f"file-{number}", {"payload": {"mode": "quick"}})
    pool.events.flush()
    pool.wait_states(finished=2500, limit=120)
    eventually(lambda: probe.stats()["finished"] == 2500, 60, "all are answered")
    assert probe.stats()["begun"] == 2500


def test_pool__refuses_options_that_cannot_be(place, probes):
    import subprocess
    import os
    environment = dict(os.environ, LEASE_BROKERS=place.kafka.brokers, LEASE_TOPIC_PREFIX=place.prefix)
    for setting in ("concurrency=0", "credit=3", "ttl_ms=10", "margin_ms=1500", "name=a b"):
        done = subprocess.run([place.program("worker_probe"), "pool", "cleanup", setting], env=environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=30)
        assert json.loads(done.stdout)["code"] == "options", setting
