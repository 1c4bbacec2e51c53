# ctest: LABEL worker TIMEOUT 600 TAKES 40
"""Leases that are lost, and what else goes wrong around a worker: stuck work, a stopped process, a broker or a coordinator that is
away."""
import time

import pytest

from waiting import eventually


@pytest.fixture
def stage(place, probes):
    place.coordinator().start()
    return Stage(place, probes)


class Stage:
    def __init__(self, place, probes):
        self.place = place
        self.probes = probes
        self.events = place.events()

    def request(self, lease, mode, **more):
        self.events.send("cleanup", "request", lease, {"payload": dict({"mode": mode}, **more)})
        self.events.flush()

    def state(self, lease):
        return self.place.database.value(f"SELECT state FROM lease.leases WHERE lease = '{lease}'")


def test_F22_stuck_work_loses_its_lease_and_another_one_gets_it(stage):
    first = stage.probes.pool(name="first", ttl_ms=3000, concurrency=1, credit=1)   # it asks for no other one meanwhile
    stage.request("file-1", "stuck", ms=10000)
    begun = first.wait_for("begin")
    second = stage.probes.pool(name="second", ttl_ms=20000)
    lost = first.wait_for("lost")
    taken = second.wait_for("begin", lease="file-1")
    assert taken["fence"] > begun["fence"] and taken["attempt"] > begun["attempt"]
    assert lost["at"] < taken["at"]                                       # told before anybody else had it
    assert not lost["mine"]
    first.wait_for("stopped working")
    second.wait_for("settled", lease="file-1", outcome="finished")
    late = first.wait_for("settled", lease="file-1")                        # done work is reported, and refused
    assert late["outcome"] in ("stale", "final")
    assert len(first.find("lost")) == 1 and first.stats()["stale"] == 1
    assert stage.state("file-1") == "finished"


def test_loss__a_stopped_process_is_told_before_its_next_effect_and_its_finish_is_stale(stage):
    first = stage.probes.pool(name="first", ttl_ms=2000, concurrency=1, credit=1)
    stage.request("file-1", "stubborn", ms=20000)
    first.wait_for("effect", count=5)
    first.freeze()
    second = stage.probes.pool(name="second", ttl_ms=20000)
    taken = second.wait_for("begin", lease="file-1")
    thawed_at = time.monotonic()
    first.thaw()
    first.wait_for("stopped working")
    first.wait_for("lost")
    late = first.wait_for("settled", lease="file-1")
    assert late["outcome"] == "stale"                                     # the second one has it, and works
    # An effect that it was in the middle of may end; none begins after it woke up.
    assert [event for event in first.find("effect") if event["looked"] > thawed_at] == []
    assert len(first.find("lost")) == 1 and not first.find("lost")[0]["mine"]
    assert second.find("effect") and not second.find("lost")
    assert taken["fence"] > first.find("begin")[0]["fence"]


def test_loss__done_work_counts_if_nobody_came(stage):
    stage.place.database.query("UPDATE lease.kind SET backoff_base_ms = 60000 WHERE kind = 'cleanup'")      # nobody comes so soon
    probe = stage.probes.pool(ttl_ms=1000, concurrency=1, credit=1)
    # It sees that it is late, and says finish nevertheless. Beginning counts as progress: it is renewed once, a third of the ttl later.
    stage.request("file-1", "stuck", ms=1800)
    probe.wait_for("lost")
    outcome = probe.wait_for("settled", lease="file-1")["outcome"]
    assert outcome == "finished" and stage.state("file-1") == "finished"


def test_loss__a_coordinator_that_starts_anew_costs_nothing(stage):
    probe = stage.probes.pool(concurrency=4, credit=8, ttl_ms=30000)
    for number in range(60):
        stage.request(f"file-{number}", "slow", ms=50)
    probe.wait_for("settled", count=10)
    coordinator = stage.place.coordinators[0]
    coordinator.kill()
    coordinator.start()
    probe.wait_for("settled", count=60, limit=60)
    assert len(probe.find("settled", outcome="finished")) == 60
    assert len(probe.find("begin")) == 60 and not probe.find("lost")


def test_loss__an_outage_longer_than_the_ttl_ends_leases_and_then_work_goes_on(stage):
    probe = stage.probes.pool(concurrency=2, credit=2, ttl_ms=2000)
    stage.request("file-1", "slow", ms=60000)
    first = probe.wait_for("begin")["attempt"]
    probe.wait_for("effect")
    coordinator = stage.place.coordinators[0]
    coordinator.kill()
    probe.wait_for("stopped working", attempt=first)
    probe.wait_for("lost", attempt=first)
    assert probe.wait_for("settled", attempt=first)["outcome"] == "none"     # its fail would say nothing new
    coordinator.start()
    again = probe.wait_for("begin", count=2, lease="file-1")             # granted again, also to ourselves
    assert again["attempt"] > first
    assert len(probe.find("lost", attempt=first)) == 1


def test_loss__a_finish_that_is_not_answered_is_sent_again_and_counts_once(stage):
    probe = stage.probes.pool(concurrency=1, credit=1, ttl_ms=30000, answer_ms=1000)
    stage.request("file-1", "slow", ms=4000)         # in it, the coordinator goes
    probe.wait_for("effect")
    coordinator = stage.place.coordinators[0]
    coordinator.kill()
    eventually(lambda: probe.stats()["resent"] >= 1, 60, "it was sent again")
    coordinator.start()
    assert probe.wait_for("settled")["outcome"] == "finished"
    stage.place.wait_idle()
    results = stage.place.reader("lease.results")
    results.read_all()
    answers = [record.value["items"][0]["outcome"] for record in results.records
               if record.value.get("command", {}).get("type") == "cleanup.finish" and record.value["outcome"] == "answered"]
    assert answers[0] == "finished" and set(answers[1:]) == {"final"}
    assert len(probe.find("settled")) == 1 and not probe.find("lost")
    assert probe.stats()["stale"] == 0                                     # the answers to the others found nobody


def test_loss__answers_and_grants_that_come_twice_change_nothing(stage):
    probe = stage.probes.pool(concurrency=1, credit=1, ttl_ms=30000)
    stage.request("file-1", "quick")
    probe.wait_for("settled", lease="file-1")
    repeated = 0
    for topic in ("lease.grants", "lease.results"):
        reader = stage.place.reader(topic)
        reader.read_all()
        for record in reader.records:
            if record.key == probe.holder.encode():
                stage.events.send_raw(topic, record.key, record.raw, record.header_list, partition=record.partition)
                repeated += 1
    stage.events.flush()
    assert repeated >= 3                                                    # a grant, and what a claim and a finish were answered
    eventually(lambda: probe.stats()["in_hand"] == 0, 60, "nothing is in its hand")
    stage.request("file-2", "quick")
    probe.wait_for("settled", lease="file-2")                              # behind the repeats
    assert len(probe.find("begin")) == 2 and len(probe.find("settled")) == 2
    assert probe.stats()["claimed"] == 2
