# ctest: LABEL worker TIMEOUT 600 TAKES 40
"""The run side of the library: start, renew, advance, finish; refusals that say who is in the way; loss; callbacks."""
import pytest

from waiting import eventually

LONG = {"ttl_ms": 30000}      # of a lease that must not lapse, however busy the machine is


@pytest.fixture
def crew(place, probes):
    place.coordinator().start()
    return probes


def test_run__goes_its_steps_and_finishes(place, crew):
    run = crew.run(**LONG)
    started = run.ask("start royalty-1 10000 album/7 album/8")
    assert (started["status"], started["outcome"]) == ("accepted", "granted") and started["fence"] > 0
    assert run.ask("mine", "mine")["mine"]
    assert run.ask("advance posted 5000")["outcome"] == "out_of_step"
    assert run.ask("advance calculated 5000")["outcome"] == "advanced"
    finished = run.ask("finish 5000")
    assert (finished["status"], finished["outcome"], finished["fence"]) == ("accepted", "finished", started["fence"])
    assert not run.ask("mine", "mine")["mine"]
    assert run.ask("finish 5000")["outcome"] == "final"
    assert not run.find("lost")
    assert run.end() == 0
    assert place.database.value("SELECT state FROM lease.leases WHERE lease = 'royalty-1'") == "finished"


def test_run__is_refused_with_who_holds_it_since_when_and_until_when(crew):
    first, second = crew.run(name="first", **LONG), crew.run(name="second")
    assert first.ask("start a 10000 album/7")["status"] == "accepted"
    refused = second.ask_past_busy("start b 10000 album/6 album/7")
    assert (refused["status"], refused["outcome"], refused["refusal"]) == ("refused", "held", True)
    held_by = refused["held_by"]
    assert (held_by["holder"], held_by["lease"], held_by["resource"]) == (first.holder, "a", "album/7")
    assert held_by["since"] < held_by["until"] and 0 < held_by["remaining_ms"] <= 30000
    assert second.ask("finish 1000")["code"] == "not_granted"


def test_run__is_given_back_when_it_is_freed(crew):
    first, second = crew.run(name="first", **LONG), crew.run(name="second")
    assert first.ask("start a 10000 album/7")["status"] == "accepted"
    first.say("free")
    eventually(lambda: second.ask("start b 10000 album/7")["status"] == "accepted", 20, "album/7 is free before the ttl is over")


def test_run__that_is_renewed_by_hand_lives_as_long_as_it_is(crew):
    run = crew.run(ttl_ms=6000)
    assert run.ask("manual a 10000")["status"] == "accepted"
    for _ in range(3):
        run.ask("progress 2500", "mine")
        assert run.ask("renew 5000")["outcome"] == "renewed"
    assert run.ask("mine", "mine")["remaining_ms"] > 1500
    lost = run.wait_for("lost")
    assert not lost["mine"]
    assert run.ask("renew 5000")["outcome"] in ("lapsed", "renewed")   # the margin: the database may still know it as held
    assert not run.ask("mine", "mine")["mine"]
    assert len(run.find("lost")) == 1


def test_run__that_is_done_late_is_accepted_if_nobody_came(crew):
    run = crew.run(ttl_ms=3000)
    assert run.ask("manual a 10000")["status"] == "accepted"
    run.wait_for("lost")
    assert run.ask("finish 5000")["outcome"] == "finished"


def test_run__answers_by_callback(crew):
    first, second = crew.run(name="first", **LONG), crew.run(name="second")
    assert first.ask("later a album/7")["status"] == "pending"
    granted = first.wait_for("called back")
    assert (granted["status"], granted["outcome"]) == ("answered", "granted")

    def called_back():
        number = len(second.find("called back"))
        second.ask(f"later b-{number} album/7")
        told = second.wait_for("called back", count=number + 1)
        return told if told["outcome"] != "busy" else None

    assert eventually(called_back, 60, "the start is refused for good")["held_by"]["holder"] == first.holder


def test_run__waits_no_longer_than_it_was_told_and_lets_go_of_what_comes_later(place, probes):
    coordinator = place.coordinator()
    run = probes.run(**LONG)
    assert run.ask("start a 300 album/7")["status"] == "unanswered"      # nobody is there to answer
    coordinator.start()
    released = place.reader("lease.results").wait_for(lambda record: record.value["outcome"] == "released")
    assert released.value["lease"] == "a"
    other = probes.run(name="other")
    assert other.ask("start b 10000 album/7")["status"] == "accepted"


def test_run__many_at_once_are_all_answered(crew):
    run = crew.run(**LONG)
    for round in range(2):      # the second finds partitions that it reads already
        for number in range(30):
            run.say(f"later r{round}-{number} album/{round}-{number}")
        run.wait_for("called back", count=30 * (round + 1))
        assert len(run.find("called back", outcome="granted")) == 30 * (round + 1)
        for _ in range(30):
            run.say("free")
    assert run.end() == 0


# ---- in line ----

def in_line(place, lease):
    return place.database.value("SELECT count(*) FROM lease.line WHERE lease = %s", (lease,)) == 1


def wait_in_line(place, probe, lease, line_ms, *resources):
    probe.say(" ".join(["patient", lease, str(line_ms), *resources]))
    eventually(lambda: in_line(place, lease), 60, f"{lease} waits in line")


def test_start__in_line_is_granted_when_its_turn_comes_and_lives_its_whole_ttl(place, crew):
    first, third = (crew.run(name=name, **LONG) for name in ("first", "third"))
    second = crew.run(name="second", ttl_ms=8000)
    assert first.ask("start a 10000 album/7")["status"] == "accepted"
    wait_in_line(place, second, "b", 60000, "album/6", "album/7")
    wait_in_line(place, third, "c", 60000, "album/6")
    first.ask("progress 5000", "mine")                        # the place is kept for longer than one asking is good for
    assert in_line(place, "b") and not second.find("answer")
    assert first.ask("finish 5000")["outcome"] == "finished"
    granted = second.wait_for("answer")
    assert (granted["status"], granted["outcome"]) == ("accepted", "granted")
    assert not third.find("answer"), "the one behind was served first"
    assert second.ask("mine", "mine")["remaining_ms"] > 1500
    second.ask("progress 9000", "mine")
    assert second.ask("finish 5000")["outcome"] == "finished"
    assert third.wait_for("answer")["outcome"] == "granted"
    eventually(lambda: place.database.value("SELECT count(*) FROM lease.line") == 0, 20, "nobody is in line")
    assert not second.find("lost")


def test_start__whose_time_in_line_is_over_says_who_was_in_the_way(place, crew):
    first, second = crew.run(name="first", **LONG), crew.run(name="second")
    assert first.ask("start a 10000 album/7")["status"] == "accepted"
    second.say("patient b 700 album/7")
    refused = second.wait_for("answer")
    assert (refused["status"], refused["outcome"], refused["refusal"]) == ("refused", "waiting", True)
    assert refused["held_by"]["holder"] == first.holder and refused["held_by"]["resource"] == "album/7"
    assert second.ask("renew 1000")["code"] == "not_granted"


def test_start__in_line_by_callback(place, crew):
    first, second = crew.run(name="first", **LONG), crew.run(name="second", **LONG)
    assert first.ask("start a 10000 album/7")["status"] == "accepted"
    assert second.ask("latent b 30000 album/7")["status"] == "pending"
    eventually(lambda: in_line(place, "b"), 60, "b waits in line")
    assert first.ask("release 5000")["outcome"] == "released"
    called = second.wait_for("called back")
    assert (called["status"], called["outcome"]) == ("answered", "granted")


def test_start__of_one_who_dies_in_line_is_passed_over(place, crew):
    first, third = (crew.run(name=name, **LONG) for name in ("first", "third"))
    second = crew.run(name="second", ttl_ms=2000)
    assert first.ask("start a 10000 album/7")["status"] == "accepted"
    wait_in_line(place, second, "b", 60000, "album/7")
    wait_in_line(place, third, "c", 60000, "album/7")
    second.kill()
    first.ask("progress 2000", "mine")
    assert first.ask("finish 5000")["outcome"] == "finished"
    assert third.wait_for("answer")["outcome"] == "granted"
