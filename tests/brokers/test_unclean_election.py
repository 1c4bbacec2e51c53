# ctest: LABEL brokers,long TIMEOUT 900 TAKES 150 BUSY
"""A stale copy becomes the leader because nobody else is left, and what only the dead leader had is gone, although it was acknowledged.

What would go wrong: the stored offset is then about records that are no longer there. Where the log is shorter the broker says so; where it has grown
again past the offset, by other records, the client reads on from the middle, and the records before are never answered. It does not matter whether
the coordinator was stopped, was there all the time, or slept through it (the Kafka client does not notice a log that was cut, F12).
"""
import re

import pytest
from confluent_kafka.admin import NewTopic

from audit import Books
from events import structured
from stage import Stage
from waiting import eventually

TOPIC = "settlement.events"
BEFORE, GONE = 5, 5                # records that both copies have, and that the leader alone has
SHORTER, SAME, LONGER, EMPTY = range(4)     # partitions, by what becomes of them
AFTER = {SHORTER: GONE - 2, SAME: GONE, LONGER: GONE + 4, EMPTY: 0}      # records that come when the stale copy leads
SESSION_MS = 60000                 # longer than the sleep
OUTPUTS = ("lease.results", "lease.grants", "lease.state", "lease.dead-letters")


class Site(Stage):
    """A stage on which some topics have a copy on brokers 1 and 2 only, and take whatever copy there is for the leader."""

    def __init__(self, place, topics, **settings):
        self.cluster = place.kafka
        self.cluster.create_topics([NewTopic(place.prefix + topic, 12 if topic == TOPIC else 3, replica_assignment=[[1, 2]] * (12 if topic == TOPIC else 3),
                                             config={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}) for topic in topics])
        place.ctl("topics", "--apply", "--replicas", 3)
        super().__init__(place, session_timeout_ms=SESSION_MS, **settings)
        self.topics = topics
        self.sent = 0

    def send(self, count, partitions):
        """Starts of new runs, so many into each of the partitions."""
        for partition in partitions:
            for _ in range(count if isinstance(count, int) else count[partition]):
                self.sent += 1
                value, headers = structured("settlement", "start", f"run-{self.sent}", {"holder": "a"}, f"m-{self.sent}")
                self.events.send_raw(TOPIC, f"run-{self.sent}", value, headers, partition=partition)
        self.events.flush()

    def stale_leader(self, meanwhile):
        """meanwhile() is called while broker 1 alone has what is written; then broker 2 leads, which has not got it."""
        one, two = self.cluster.node(1), self.cluster.node(2)
        two.kill()
        eventually(lambda: all(2 not in place.isrs for place in self.cluster.partitions(self.place.prefix).values()), 60, "broker 1 goes on alone", every=0.1)
        meanwhile()
        one.kill()
        two.start()
        names = {self.place.prefix + topic for topic in self.topics}
        eventually(lambda: all(leader == 2 for (topic, _), leader in self.cluster.leaders(self.place.prefix).items() if topic in names), 60,
                   "the stale copy leads", every=0.1)
        self.events = self.place.events()

    def back_again(self):
        self.cluster.node(1).start()
        self.cluster.wait_whole()

    def answered(self):
        """Runs of which the journal knows."""
        return {subject for subject, in self.place.database.query(
            "SELECT subject FROM lease.timeline WHERE kind = 'settlement' AND command = 'start'")}

    def wait_halted(self, partitions):
        def is_told():
            assert self.coordinator.metric("lease_partitions_halted") == len(partitions)
            return True

        eventually(is_told, 60, f"partitions {partitions} halt")
        # One that is assigned anew halts again, and says so again.
        log = [line for line in self.coordinator.log_text().splitlines() if "partition halted" in line]
        assert {int(number) for line in log for number in re.findall(r"partition=\"?(\d+)\b", line)} == set(partitions)
        return {number: [code for code in ("topic_recreated", "offset_beyond_log")
                         if any(re.search(rf"partition=\"?{number}\b", line) and code in line for line in log)] for number in partitions}


def stop_before(site):
    assert site.coordinator.stop()
    return site.coordinator.start


def sleep_through(site):
    site.coordinator.freeze()
    return site.coordinator.thaw


def stay(site):
    return lambda: None


@pytest.mark.parametrize("how", [stop_before, sleep_through, stay])
def test_F12_what_was_read_is_gone__the_partition_halts_whatever_stands_there_now(bare_wide_place, how):
    site = Site(bare_wide_place, [TOPIC])
    resume = None

    def meanwhile():
        nonlocal resume
        site.send(GONE, AFTER)
        site.place.wait_idle()
        resume = how(site)

    site.send(BEFORE, AFTER)
    site.place.wait_idle()
    site.stale_leader(meanwhile)
    known = site.answered()
    assert len(known) == (BEFORE + GONE) * len(AFTER)
    site.send(AFTER, AFTER)
    if how is stop_before:
        resume(wait=False)
    else:
        resume()
    halted = [SHORTER, SAME, LONGER, EMPTY]
    if how is sleep_through:      # who was not there when the log was too short has no reason to look at it before there is more to read
        site.wait_halted([SHORTER, LONGER, EMPTY])
        site.send(1, [SAME])
    codes = site.wait_halted(halted)
    site.back_again()
    site.send(3, range(4, 12))
    eventually(lambda: len(site.answered() - known) == 3 * 8, 60, "the other partitions go on")
    fresh = {int(run.split("-")[1]) for run in site.answered() - known}
    assert min(fresh) > len(known) + sum(AFTER.values()) + (how is sleep_through), "a record of the new log was taken for the continuation of the old one"
    print(how.__name__, codes)
    if how is stop_before:
        assert codes == {SHORTER: ["offset_beyond_log"], SAME: ["topic_recreated"], LONGER: ["topic_recreated"], EMPTY: ["offset_beyond_log"]}
    found = Books(site.place).audit()
    assert set(found.broken) == {"I4"}, found
    print("lease-audit:", found.broken)


def test_answers_that_were_acknowledged_and_are_gone_are_told(bare_wide_place):
    """Output topics: the journal has them, the topics have not. Nobody can take back that a broker forgets what it acknowledged; nobody may hide it."""
    site = Site(bare_wide_place, OUTPUTS)

    def meanwhile():
        site.send(GONE, AFTER)
        site.place.wait_idle()

    site.send(BEFORE, AFTER)
    site.place.wait_idle()
    assert Books(site.place).audit().code == 0
    site.stale_leader(meanwhile)
    site.send(3, AFTER)
    site.back_again()
    site.place.wait_idle(120)
    found = Books(site.place).audit()
    assert set(found.broken) == {"I4"}, found
    print("lease-audit:", found.broken, found.of("I4")["broken"])
