"""Kinds whose work is a chain of steps: only the next one, once, by the current fence; whoever comes after goes on from there."""
import json
import os

import pytest

from rules import ROOT, command, start

CHAIN = ["deleting", "deleted", "registering", "registered"]
TTL, LATE = 10_000, 100


@pytest.fixture(name="lane")
def fixture_lane(undone_lane):
    return undone_lane


def begin(lane, holder="h1", at=0, kind="share-ratio"):
    return lane.grant_of(start("ratio-7", holder=holder, kind=kind, ttl=TTL), at=at)


def advance(grant, step, **wrong):
    return grant.says("advance", word=step, **wrong)


def take(lane, grant, steps, at=1):
    for step in steps:
        assert lane.outcomes(advance(grant, step), at=at) == "advanced"


@pytest.mark.parametrize("taken", range(len(CHAIN) + 1))
def test_only_the_next_step_is_taken_and_only_once(lane, taken):
    grant = begin(lane)
    take(lane, grant, CHAIN[:taken])
    for step in CHAIN + ["elsewhere"]:
        if CHAIN[taken:taken + 1] != [step]:
            assert lane.outcomes(advance(grant, step), at=1) == "out_of_step"
            assert lane.journal()[-1]["step"] == (CHAIN[taken - 1] if taken else None)
    assert lane.lease("share-ratio", "ratio-7")["step"] == (CHAIN[taken - 1] if taken else None)
    take(lane, grant, CHAIN[taken:])


def test_the_same_advance_sent_twice_is_a_duplicate_and_one_step(lane):
    grant = begin(lane)
    once = advance(grant, "deleting")
    assert [lane.outcomes(once, at=1), lane.outcomes(once, at=1)] == ["advanced", "duplicate"]
    assert lane.lease("share-ratio", "ratio-7")["step"] == "deleting"


def lapses(lane, _grant):
    return "lapsed"


def fails(lane, grant):
    return lane.outcomes(grant.fails(), at=2)


def releases(lane, grant):
    return lane.outcomes(grant.says("release"), at=2)


@pytest.mark.parametrize("ends", [lapses, fails, releases], ids=["lapse", "fail", "release"])
@pytest.mark.parametrize("is_reaped", [False, True], ids=["met by the start", "reaped"])
def test_a_successor_is_told_the_step_and_goes_on_there_while_the_first_is_stale(lane, ends, is_reaped):
    first = begin(lane)
    take(lane, first, CHAIN[:2])
    ends(lane, first)
    if is_reaped:
        lane.reap(at=LATE)
    second = begin(lane, holder="h2", at=LATE)
    granted = lane.journal()[-1]
    assert (granted["event"], granted["is_grant"], granted["step"], granted["fence"]) == ("granted", True, "deleted", second.fence)
    for step in CHAIN:
        assert lane.outcomes(advance(first, step), at=LATE) == "stale"
    assert lane.outcomes(advance(second, "deleting"), at=LATE) == "out_of_step"
    take(lane, second, CHAIN[2:], at=LATE)
    assert lane.outcomes(second.says("finish"), at=LATE) == "finished"


@pytest.mark.parametrize("moment", [2, LATE], ids=["held", "lapsed"])
def test_it_finishes_after_the_last_step_only(lane, moment):
    grant = begin(lane)
    for step in CHAIN:
        assert lane.outcomes(grant.says("finish"), at=1) == "out_of_step"
        take(lane, grant, [step])
    assert lane.outcomes(grant.says("finish"), at=moment) == "finished"


def test_a_late_finish_with_steps_missing_is_out_of_step(lane):
    grant = begin(lane)
    take(lane, grant, CHAIN[:3])
    assert lane.outcomes(grant.says("finish"), at=LATE) == "out_of_step"
    assert lane.lease("share-ratio", "ratio-7")["state"] == "free"


def test_a_kind_without_a_last_step_finishes_at_any(lane):
    grant = begin(lane, kind="settlement")
    take(lane, grant, ["calculated"])
    assert lane.outcomes(grant.says("finish"), at=1) == "finished"


def test_the_schema_of_a_kind_has_its_steps_in_their_order(lane):
    folder = os.path.join(ROOT, "schemas")
    for name in sorted(name for name in os.listdir(folder) if name.startswith("kind.")):
        kind = name.split(".")[1]
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            told = [part["then"]["properties"]["data"]["properties"]["step"]["enum"] for part in json.load(file)["allOf"] if "then" in part]
        rows = dict(lane.query("SELECT after, step FROM lease.steps WHERE kind = %s", (kind,)))
        chain = []
        while rows.get(chain[-1] if chain else None):
            chain.append(rows[chain[-1] if chain else None])
        assert told == [chain] and len(chain) == len(rows), kind


def test_the_rules_of_a_kind_are_checked_where_they_are_written(lane):
    for wrong in ("('x', 'pool', 1, 1, 1, 'done', '')", "('x', 'run', 2, 1, 1, NULL, '')", "('X', 'run', 1, 1, 1, NULL, '')"):
        with pytest.raises(Exception, match="violates check constraint"):
            lane.query(f"INSERT INTO lease.kind (kind, mode, ttl_ms, ttl_max_ms, attempts_max, finish_after, summary) VALUES {wrong}")
        lane.rollback()


def test_a_step_of_another_kind_is_out_of_step(lane):
    grant = begin(lane)
    assert lane.outcomes(advance(grant, "calculated"), at=1) == "out_of_step"
    assert lane.outcomes(command("cleanup", "advance", "i1", holder="h1", word="deleting"), at=1) == "unknown"
