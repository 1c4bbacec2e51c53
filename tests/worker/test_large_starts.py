# ctest: LABEL worker TIMEOUT 400 TAKES 25
"""Starts over more than a message takes: covered in parts under one fence, all or nothing.

What would go wrong: a lease that lapses while the rest is listed; what was covered stays taken after a refusal, for nobody;
somebody who is in the way is not named; two that list the same table stop each other half way; a run that was lost in the
middle believes that it has begun.
"""
import pytest

from waiting import eventually

MANY = 25000
CONTRACTS = f"album {MANY}"


@pytest.fixture
def crew(place, probes):
    place.coordinator().start()
    return probes


def state_of(place, lease):
    return place.database.query("SELECT condition, resources_covered FROM lease.leases WHERE lease = %s", (lease,))


def test_large_start__covers_a_listing_and_lives_longer_than_its_ttl_meanwhile(place, crew):
    run, other = crew.run(ttl_ms=8000), crew.run(name="other", ttl_ms=6000)
    run.say(f"list large 10000 {CONTRACTS} 1250 1100 10000")     # 13.2 s, 8.8 s of it from one cover to the next
    eventually(lambda: state_of(place, "large") == [("covering", 10000)], 60, "the first part is covered", every=0.002)
    rival = other.ask_past_busy("list rival 10000 album 1")
    assert (rival["outcome"], rival["held_by"]["resource"], rival["held_by"]["lease"]) == ("held", "album/*", "large")
    assert other.ask_past_busy("start one 10000 album/7")["held_by"]["lease"] == "large"
    started = run.wait_for("answer")
    assert (started["status"], started["outcome"]) == ("accepted", "granted") and started["fence"] > 0
    assert state_of(place, "large") == [("held", MANY)]
    assert run.ask("finish 5000")["outcome"] == "finished"
    assert not run.find("lost")
    assert other.ask("list rival 10000 album 1")["outcome"] == "granted"
    an_array_is_covered_too_and_renewed_by_hand(place, other)


def an_array_is_covered_too_and_renewed_by_hand(place, run):
    assert run.ask(f"many array 10000 track {MANY}")["outcome"] == "granted"
    assert state_of(place, "array") == [("held", MANY)]
    assert run.ask("renew 5000")["outcome"] == "renewed"
    assert not run.wait_for("lost")["mine"]


def test_large_start__that_does_not_begin_gives_everything_back(place, crew):
    run, other = crew.run(ttl_ms=30000), crew.run(name="other", ttl_ms=30000)
    somebody_is_in_the_way(place, run, other)
    the_listing_breaks_off(place, run)
    it_is_lost_in_the_middle(place, crew.run(name="slow", ttl_ms=1500), run)


def somebody_is_in_the_way(place, run, other):
    assert other.ask("start small 10000 album/15000")["outcome"] == "granted"
    refused = run.ask(f"list large 10000 {CONTRACTS}")
    assert (refused["status"], refused["outcome"]) == ("refused", "held")
    held_by = refused["held_by"]
    assert (held_by["lease"], held_by["resource"], held_by["holder"]) == ("small", "album/15000", other.holder)
    assert run.ask("finish 1000")["code"] == "not_granted"
    eventually(lambda: state_of(place, "large") == [("free", 10000)], 20, "it is given back")
    assert other.ask("list next 10000 album 9000")["outcome"] == "granted"
    assert not run.find("lost")


def the_listing_breaks_off(place, run):
    broken = run.ask(f"list broken 10000 track {MANY} 15000 0")
    assert (broken["status"], broken["code"]) == ("failed", "listing")
    eventually(lambda: state_of(place, "broken") == [("free", 10000)], 20, "it is given back")
    assert run.ask("list broken 0 track 3")["code"] == "options"                 # it is waited for


def it_is_lost_in_the_middle(place, run, other):
    lost = run.ask(f"list lost 10000 video {MANY} 15000 3000")
    assert (lost["status"], lost["outcome"], lost["refusal"]) == ("refused", "lapsed", True)
    eventually(lambda: state_of(place, "lost") in ([("free", 10000)], [("lapsed", 10000)]), 60, "it has lapsed")
    assert not run.ask("mine", "mine")["mine"] and not run.find("lost")
    assert other.ask("list lost 10000 video 9000")["outcome"] == "granted"       # under another fence
