# ctest: LABEL cli TIMEOUT 600 TAKES 20
"""leasectl jump: topics that are ahead of the database lift fences above everything ever published, once, and on the record."""
import json

import pytest

from harness import Events
from leasectl import CONFIGURATION, UNAVAILABLE, YES, Leasectl, small_topics

AHEAD_NUMBER, AHEAD_FENCE = 700, 2**32 + 77


@pytest.fixture
def place(bare_place):
    bare_place.ctl("migrate")
    return small_topics(bare_place)


@pytest.fixture
def leasectl(place):
    return Leasectl.of(place, database=place.database.login("lease_coordinator"))


def publish(place, number, fence):
    """A result as the relay writes it."""
    events = Events(place.kafka.brokers, place.prefix)
    value = {"number": number, "outcome": "granted", "kind": "settlement", "lease": "2026-10", "fence": fence}
    events.send_raw("lease.results", "2026-10", json.dumps(value).encode(),
                    [("lease_number", str(number).encode()), ("lease_epoch", b"1"), ("lease_outcome", b"granted"),
                     ("lease_fence", str(fence).encode())])
    events.flush()


def jump(leasectl, *words):
    return leasectl("jump", "--who", "kim", "--why", "restored the dump of 02:00", "-o", "json", *words)


def jumps(place):
    return place.database.query("SELECT holder, reason, fence FROM lease.timeline WHERE event = 'jumped'")


def test_a_plan_shows_both_sides_and_changes_nothing(place, leasectl):
    publish(place, AHEAD_NUMBER, AHEAD_FENCE)
    row = leasectl("jump", "--plan", "-o", "json").check(YES).json
    assert (row["topics_number"], row["topics_fence"], row["jumped"]) == (AHEAD_NUMBER, AHEAD_FENCE, False)
    assert row["known_server"] == row["server"]
    assert jumps(place) == []


def test_topics_that_are_ahead_lift_fences_above_theirs_once(place, leasectl):
    publish(place, AHEAD_NUMBER, AHEAD_FENCE)
    row = jump(leasectl).check(YES).json
    assert row["jumped"] is True and row["fence_floor"] >= AHEAD_FENCE + 2**32
    assert jumps(place) == [("kim", "restored the dump of 02:00", row["fence_floor"])]
    assert place.database.value("SELECT nextval('lease.fence')") > AHEAD_FENCE + 2**32
    again = jump(leasectl).check(YES)
    assert again.json["jumped"] is False and "no jump was needed" in again.err and len(jumps(place)) == 1


def test_empty_topics_and_the_same_server_need_no_jump(place, leasectl):
    done = jump(leasectl).check(YES)
    assert done.json["jumped"] is False and "witness nothing" in done.err and jumps(place) == []


def test_another_server_needs_a_jump_whatever_the_topics_say(place, leasectl):
    place.database.query("UPDATE lease.identity SET system_identifier = system_identifier - 1")
    row = jump(leasectl).check(YES).json
    assert row["jumped"] is True and row["known_server"] != row["server"]


def test_without_the_witness_nothing_is_decided(place):
    away = Leasectl.of(place, brokers="127.0.0.1:1")
    assert jump(away).code == UNAVAILABLE
    elsewhere = Leasectl.of(place, topic_prefix="nothing-here.")
    assert "leasectl topics" in jump(elsewhere).check(CONFIGURATION).err
    assert jumps(place) == []
