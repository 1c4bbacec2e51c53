# ctest: LABEL worker TIMEOUT 600 TAKES 20
"""A worker whose way to the broker is cut: short enough, nothing is lost; longer than the lease, the work is told in time."""
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

    def request(self, count, mode="quick", **more):
        for number in range(count):
            self.events.send("cleanup", "request", f"file-{number}", {"payload": dict({"mode": mode}, **more)})
        self.events.flush()


def test_cut__a_short_one_costs_nothing(stage, broker_link):
    probe = stage.probes.pool(link=broker_link, concurrency=4, credit=8, ttl_ms=30000, answer_ms=3000)
    stage.request(120, "slow", ms=50)
    probe.wait_for("settled", count=20)
    broker_link.cut()
    eventually(lambda: "brokers are down" in probe.log_tail(), 60, "it has noticed")
    broker_link.mend()
    probe.wait_for("settled", count=120, limit=90)
    assert len(probe.find("begin")) == 120 and not probe.find("lost")
    assert {event["outcome"] for event in probe.find("settled")} <= {"finished", "final"}
    states = stage.place.database.query("SELECT state, count(*) FROM lease.leases GROUP BY 1")
    assert states == [("finished", 120)]


def test_cut__a_long_one_ends_the_lease_before_somebody_else_has_it(stage, broker_link):
    probe = stage.probes.pool(link=broker_link, name="first", concurrency=1, credit=1, ttl_ms=4000)
    stage.request(1, "stubborn", ms=60000)
    probe.wait_for("effect")
    broker_link.cut()
    second = stage.probes.pool(name="second", ttl_ms=2000)
    taken = second.wait_for("begin", lease="file-0")
    told = probe.wait_for("lost")
    assert told["at"] < taken["at"] and not told["mine"]
    last = probe.find("effect")[-1]
    assert last["at"] < taken["at"]                                  # never both inside
    broker_link.mend()
    late = probe.wait_for("settled", 60, lease="file-0")
    assert late["outcome"] == "stale"
    assert len(probe.find("lost")) == 1


def test_cut__a_worker_that_is_started_without_a_broker_works_when_it_comes(stage, broker_link):
    broker_link.cut()
    probe = stage.probes.pool(link=broker_link)
    stage.request(3)
    assert probe.stats()["claimed"] == 0
    broker_link.mend()
    probe.wait_for("settled", 60, count=3, outcome="finished")
