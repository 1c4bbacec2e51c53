# ctest: LABEL cli TIMEOUT 600
"""leasectl topics: compares, creates what is missing, changes nothing that is there."""
import pytest
from confluent_kafka.admin import ConfigResource, NewTopic

from leasectl import NO, USAGE, YES, Leasectl
from waiting import eventually

PARTITIONS = {"settlement.events": 12, "cleanup.events": 12, "file-write.events": 12, "delivery.events": 12, "share-ratio.events": 12, "contract.events": 12, "lease.renewals": 12,
              "lease.results": 12, "lease.grants": 12, "lease.state": 12, "lease.dead-letters": 3}


@pytest.fixture
def topics(bare_place):
    run = Leasectl.of(bare_place)
    return lambda *words: run("topics", *words)


def by_name(place, done):
    return {row["topic"][len(place.prefix):]: row for row in done.json}


def leaders(place):
    """Topic → its partitions, and whether each is led, as far as the broker knows: it hears of new ones a little later than the controller answers."""
    topics = place.kafka.admin().list_topics(timeout=10).topics
    found = {name: topics[place.prefix + name].partitions.values() for name in PARTITIONS if place.prefix + name in topics}
    return {name: (len(partitions), all(partition.leader >= 0 for partition in partitions)) for name, partitions in found.items()}


def settings(place, topic):
    resource = ConfigResource("topic", place.prefix + topic)
    admin = place.kafka.admin()  # its futures end with it
    return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result(10).items()}


def test_missing_topics_are_listed_and_none_is_created(bare_place, topics):
    done = topics("-o", "json").check(NO)
    assert {name: (row["state"], row["partitions"]) for name, row in by_name(bare_place, done).items()} == \
        {name: ("missing", count) for name, count in PARTITIONS.items()}
    assert "--apply" in done.err
    assert not {name for name in bare_place.kafka.topics() if name.startswith(bare_place.prefix)}


def test_apply_creates_them_as_the_table_says_and_again_changes_nothing(bare_place, topics):
    first = topics("--apply", "-o", "json").check(YES)
    assert {row["state"] for row in first.json} == {"created"}
    eventually(lambda: leaders(bare_place) == {name: (count, True) for name, count in PARTITIONS.items()}, what="the broker tells of all partitions")
    state, dead, inputs = (settings(bare_place, name) for name in ("lease.state", "lease.dead-letters", "cleanup.events"))
    assert state["cleanup.policy"] == "compact" and int(state["min.compaction.lag.ms"]) >= 60000
    assert int(dead["max.message.bytes"]) - int(inputs["max.message.bytes"]) == 65536
    again = topics("--apply", "-o", "json").check(YES)
    assert {row["state"] for row in again.json} == {"there"}
    topics().check(YES)


def test_a_difference_is_named_and_left_alone(bare_place, topics):
    admin = bare_place.kafka.admin()
    name = bare_place.prefix + "lease.results"
    admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "1000"})])[name].result(60)
    eventually(lambda: leaders(bare_place) == {"lease.results": (2, True)}, what="the broker tells of it")
    rows = by_name(bare_place, topics("--apply", "-o", "json").check(YES))
    assert rows["lease.results"]["state"] == "differs"
    assert "retention.ms is 1000, should be 604800000" in rows["lease.results"]["differences"]
    assert "number of partitions is 2, should be 12" in rows["lease.results"]["differences"]
    assert settings(bare_place, "lease.results")["retention.ms"] == "1000"
    assert "differ" in topics().check(NO).err


def test_too_many_replicas_are_refused_by_the_broker_with_its_words(topics):
    done = topics("--apply", "--replicas", "3000")
    assert done.code not in (YES, NO) and "replic" in done.err.lower()
    topics("--apply", "--replicas", "0").check(USAGE)
