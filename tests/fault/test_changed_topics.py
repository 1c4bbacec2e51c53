# ctest: LABEL fault TIMEOUT 600 TAKES 70
"""An input topic that is no longer what the stored offsets are about: its partition halts and says so; the others go on.

What would go wrong: reading on at a stored offset of a topic that was deleted and made anew starts in the middle of other
records, and everything before is never answered (F11). Records gone before they were read, a log that ends before the stored
offset, and keys that a new partition has moved lose messages, or the order of a lease's commands, just as silently.
"""
import re

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from events import structured
from kafka_requests import delete_records
from stage import Stage
from waiting import eventually

TOPIC = "settlement.events"
BEFORE = 5      # records that were consumed before the change


class Site(Stage):
    """A stage whose settlement topic comes to harm in partition 0."""

    def __init__(self, place, **settings):
        super().__init__(place, **settings)
        self.sent = 0
        self.send(BEFORE)
        place.wait_idle()

    def send(self, count, partition=0):
        """Starts of new runs."""
        for _ in range(count):
            self.sent += 1
            value, headers = structured("settlement", "start", f"run-{self.sent}", {"holder": "a"}, f"m-{self.sent}")
            self.events.send_raw(TOPIC, f"run-{self.sent}", value, headers, partition=partition)
        self.events.flush()

    def name(self):
        return self.place.prefix + TOPIC

    def delete_topic(self):
        self.place.kafka.delete_topics([self.name()])
        eventually(lambda: self.name() not in self.place.kafka.topics(), 60, "the topic is gone")

    def create_topic(self, partitions=12):
        admin = self.place.kafka.admin()      # its futures end with it
        for future in admin.create_topics([NewTopic(self.name(), partitions, 1)]).values():
            future.result()
        eventually(lambda: self.name() in self.place.kafka.topics(), 60, "the topic is there again")

    def add_partition(self):
        admin = self.place.kafka.admin()
        for future in admin.create_partitions([NewPartitions(self.name(), 13)]).values():
            future.result()
        eventually(lambda: self.place.kafka.partition_count(self.name()) == 13, 60, "the broker tells of the new partition")

    def answered(self):
        """Runs of which the journal knows."""
        return {subject for subject, in self.place.database.query(
            "SELECT subject FROM lease.timeline WHERE kind = 'settlement' AND command = 'start'")}

    def wait_halted(self, codes, partitions=1):
        """Readiness, metrics and log tell of the halt, and of its reason."""
        def is_named(text):
            return any(code in text for code in codes.split("|"))

        def is_told():
            status, text = self.coordinator.get("/readyz")
            assert status == 503 and is_named(text) and self.name() in text, f"{status} {text}"
            assert self.coordinator.metric("lease_partitions_halted") == partitions
            return True

        eventually(is_told, 60, f"the halt by {codes} is told")
        log = [line for line in self.coordinator.log_text().splitlines()
               if "partition halted" in line and "kafka_unknown_topic" not in line]       # while it was not there
        assert all(is_named(line) for line in log)
        halted = {re.search(r"topic=\S+ partition=\d+", line)[0] for line in log}       # once more each time it is assigned
        assert len(halted) == partitions
        assert self.coordinator.get("/livez")[0] == 200, "a halted partition is no reason to be restarted"

    def wait_told(self, code):
        """The log tells of the topic, and readiness did for a while."""
        eventually(lambda: any(code in line and self.name() in line for line in self.coordinator.log_text().splitlines()), 60,
                   f"{code} is told")

    def check_others_go_on(self):
        assert self.ask("cleanup", "request", "item-1", {})["outcome"] == "requested"

    def check_nothing_read(self):
        self.check_others_go_on()
        assert self.answered() == {f"run-{number}" for number in range(1, BEFORE + 1)}


def recreate(length):
    def change(site):
        site.delete_topic()
        site.create_topic()
        site.send(length)
    return change


def lose_records(site):
    site.send(10)
    assert delete_records(site.place.kafka.brokers, site.name(), 0, BEFORE + 3) == BEFORE + 3


# What happens while no coordinator runs, the reason it then gives, the partitions that halt.
CHANGES = [
    pytest.param(recreate(BEFORE + 4), "topic_recreated", 1, id="F11_recreated_with_a_longer_log"),
    pytest.param(recreate(BEFORE), "topic_recreated", 1, id="F11_recreated_with_a_log_of_the_same_length"),
    pytest.param(recreate(BEFORE - 2), "offset_beyond_log", 1, id="recreated_with_a_shorter_log"),
    pytest.param(lose_records, "offset_before_log", 1, id="records_are_gone_unread"),
    pytest.param(Site.add_partition, "partition_count_changed", 13, id="another_partition"),
]


@pytest.mark.parametrize("change, code, partitions", CHANGES)
def test_a_change_while_nobody_reads_is_seen_at_the_start(place, change, code, partitions):
    site = Site(place)
    assert site.coordinator.stop()
    change(site)
    site.coordinator.start(wait=False)
    site.wait_halted(code, partitions)
    site.check_nothing_read()
    assert site.coordinator.stop(), "halted partitions do not keep a coordinator from stopping"


def test_a_topic_deleted_under_a_running_coordinator_is_told_and_the_others_go_on(place):
    site = Site(place)
    site.delete_topic()
    site.wait_told("kafka_unknown_topic")
    site.check_nothing_read()
    assert site.coordinator.stop(), "the deleted topic keeps the coordinator from stopping"


def test_F11_a_topic_recreated_under_a_running_coordinator_is_not_read_on(place):
    """The client would go on at its offset as soon as the topic is there again: only a new look at the record before tells."""
    site = Site(place, kafka_topic_metadata_refresh_interval_ms=500)
    site.delete_topic()
    site.wait_told("kafka_unknown_topic")
    site.create_topic()
    site.send(BEFORE + 20)
    site.wait_halted("topic_recreated|offset_beyond_log")      # as soon as it is assigned, full or empty
    site.check_nothing_read()


def test_another_partition_under_a_running_coordinator_halts_the_topic(place):
    """Only the new partition is assigned then; the others would go on with keys that have moved away from them."""
    site = Site(place, kafka_topic_metadata_refresh_interval_ms=500)
    site.add_partition()
    site.wait_halted("partition_count_changed", 13)
    site.events = place.events()      # a new producer knows the new partition
    site.send(3)
    site.send(3, partition=12)
    site.check_nothing_read()


def test_records_gone_by_retention_after_they_were_read_are_missed_by_nobody(place):
    """The record before the stored offset is not there to compare with: that alone is no harm."""
    site = Site(place)
    assert site.coordinator.stop()
    site.send(3)
    delete_records(place.kafka.brokers, site.name(), 0, BEFORE)
    site.coordinator.start()
    eventually(lambda: len(site.answered()) == BEFORE + 3, 60, "what is left is answered")
