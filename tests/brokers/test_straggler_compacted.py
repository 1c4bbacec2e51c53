# ctest: LABEL brokers,long TIMEOUT 900 TAKES 40 BUSY
"""A paused relay's old record of a lease arrives behind its successor's; lease.state is compacted, and a gate starts from what is left (F31). The
successor has repaired the topic by then, as it always should have within a minute; or it sleeps, and repairs what compaction has left.

What would go wrong: compaction keeps the last record of a key, which is the straggler's. A gate that starts then knows of the first holder only,
and lets in what it sends, though somebody else has had the lease for long.
"""
import signal

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource

from gate_process import GateProcess
from harness import read_topic
from held_way import HeldWay
from processes import Child
from stage import Stage
from waiting import eventually

LEASE, KEY, LAST_HEADER = "s/1", b"settlement/s/1", b"lease_epoch"
LIMIT_S = 120
# The log is rolled and compacted as soon as can be, where the topic's own settings leave a minute for repairs.
AT_ONCE = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "500"}
END_OF_RELAYS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lease-relay' AND datname = current_database()"


class Log:
    """lease.state, as it stands."""

    def __init__(self, place):
        self.place = place
        self.name = place.prefix + "lease.state"
        self.producer = Producer({"bootstrap.servers": place.kafka.brokers, "acks": "all", "log_level": 3})

    def compact_at_once(self):
        admin = self.place.kafka.admin()      # its futures end with it
        for future in admin.alter_configs([ConfigResource("topic", self.name, set_config=AT_ONCE)]).values():
            future.result(LIMIT_S)

    def of_lease(self):
        """The records of the lease."""
        return [record for record in read_topic(self.place.kafka.brokers, self.place.prefix, "lease.state") if record.key == KEY]

    def compacted(self, condition, what):
        """Waits until compaction has left one record of the lease, for which the condition holds. What is compacted is what stands before the segment
        that is written to, and that is changed by writing only: so something is, which nobody heeds."""
        def is_left():
            found = self.of_lease()
            self.producer.produce(self.name, key=b"nobody's", value=b"{}", partition=found[0].partition)
            assert self.producer.flush(10) == 0
            assert len(found) == 1 and condition(found[0]), [(record.offset, record.number, record.epoch) for record in found]
            return found[0]

        return eventually(is_left, LIMIT_S, what, every=0.3)


class Race:
    """One relay's record of a grant is on the way to the brokers when another takes its role, and the lease is granted once more."""

    def __init__(self, place, way, folder):
        self.place, self.way, self.log = place, way, Log(place)
        settings = place.environment(instance="paused", brokers=place.kafka.proxied_brokers, database=place.database.login("lease_coordinator"))
        self.paused = Child("paused relay", [place.program("relay_process")], str(folder / "paused.out"), env=settings).start()
        eventually(lambda: place.database.value("SELECT max(epoch) FROM lease.relay_status"), LIMIT_S, "the first relay has the role")
        self.stage = Stage(place)
        self.stage.ask("settlement", "start", "s/0", {"holder": "h0"})
        place.wait_idle(LIMIT_S)      # the way is open, and nothing is on it

    def pause_with_a_record_on_the_way(self):
        """Returns its number."""
        self.way.hold()
        self.stage.events.send("settlement", "start", LEASE, {"holder": "h1", "ttl_ms": 3000})
        self.stage.events.flush()
        eventually(lambda: self.way.holds(self.log.name.encode(), KEY, LAST_HEADER), LIMIT_S, "the record of the first grant is on its way")
        self.paused.signal(signal.SIGSTOP)
        return self.place.database.value("SELECT number FROM lease.timeline WHERE subject = %s AND is_grant", (LEASE,))

    def succeed(self):
        """Returns both grants, which the second relay publishes, and its last record of the lease."""
        self.place.database.query(END_OF_RELAYS)      # what idle_session_timeout does ten seconds later
        grants = self.stage.grants
        first = grants.wait_for(lambda record: record.value["lease"] == LEASE, LIMIT_S, "the first grant").value
        self.stage.results.wait_for(lambda record: record.headers["ce_type"] == b"settlement.lapsed" and record.value["lease"] == LEASE, LIMIT_S, "it lapses")
        self.stage.events.send("settlement", "start", LEASE, {"holder": "h2", "ttl_ms": 600000})
        self.stage.events.flush()
        second = grants.wait_for(lambda record: record.value["lease"] == LEASE and record.value["fence"] > first["fence"], LIMIT_S, "the second grant").value
        self.place.wait_idle(LIMIT_S)
        return first, second, self.log.of_lease()[-1]

    def arrive(self, number, behind):
        """The straggler, as it stands in the log."""
        self.way.let_go()
        late = eventually(lambda: [record for record in self.log.of_lease() if record.number == number and record.offset > behind.offset], LIMIT_S,
                          "the straggler arrives", every=0.3)
        assert late[0].epoch < behind.epoch and number < behind.number
        return late[0]

    def verdicts(self, *grants):
        """What a gate says to them that starts now."""
        gate = GateProcess(self.place).wait_ready()
        said = [gate.admit(KEY.decode(), grant) for grant in grants]
        gate.end()
        return said


@pytest.mark.parametrize("comes_first", ["the repair", "compaction"])
def test_F31_a_straggler_that_compaction_would_keep_opens_no_gate(cluster, wide_place, folder, comes_first):
    with HeldWay(cluster) as way:
        race = Race(wide_place, way, folder)
        coordinator, log = race.stage.coordinator, race.log
        number = race.pause_with_a_record_on_the_way()
        first, second, newest = race.succeed()
        if comes_first == "compaction":      # the successor sleeps longer than a topic that is in such a hurry gives it
            coordinator.freeze()
        late = race.arrive(number, newest)
        if comes_first == "compaction":
            log.compact_at_once()
            log.compacted(lambda record: record.offset == late.offset, "compaction leaves the straggler only")
            assert race.verdicts(first, second)[0] == "admit", "this is what the repair is against"
            coordinator.thaw()
        else:
            eventually(lambda: log.of_lease()[-1].offset > late.offset, LIMIT_S, "the straggler is repaired", every=0.3)
            log.compact_at_once()
        left = log.compacted(lambda record: record.offset > late.offset, "compaction leaves what stands behind the straggler")
        said = race.verdicts(first, second)
        race.paused.kill()
        print(f"{comes_first} comes first: number {newest.number} at offset {newest.offset}, the straggler, number {late.number}, at {late.offset}; left is"
              f" {left.headers['ce_type'].decode()}, number {left.number}, at {left.offset}; a gate that starts says {said} to fences"
              f" {first['fence']} and {second['fence']}")
        assert said == ["stale", "admit"]
        assert left.headers["ce_type"] == b"settlement.restated" and left.number > newest.number
