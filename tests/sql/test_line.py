# ctest: LABEL sql TIMEOUT 60
"""Starts that wait in line: a row each, in the order of their tickets, served when what they wait for is let go."""
import pytest
from rules import Meanwhile, moment, start

WAIT = {"wait_ms": 60000}


def waits(subject, *resources, holder="w", refresh=1, **fields):
    return start(subject, holder=holder, resources=resources, refresh=refresh, **{**WAIT, **fields})


def serve(lane, at=None, limit=20):
    row = lane.query("SELECT served, tried FROM lease.serve_line(%s, %s)", (limit, moment(at)))[0]
    lane.commit()
    return row


def line(lane):
    found = [lease for lease, in lane.query("SELECT lease FROM lease.waiter ORDER BY ticket")]
    lane.commit()
    return found


def granted(lane, subject):
    """The grant out of the line, as the journal has it."""
    rows = [row for row in lane.journal(subject=subject) if row["event"] == "granted" and row["command"] is None]
    return rows[-1] if rows else None


def test_a_start_that_is_held_waits_and_is_granted_when_the_way_is_free(lane):
    first = lane.grant_of(start("s1", resources=["c/1", "c/2"]), at=0)
    asked = waits("s2", "c/2", "c/3", refresh=7)
    answer = lane.decide(asked, at=1)
    assert answer.outcome == "waiting" and answer.fence is None
    told = lane.journal(subject="s2")[-1]
    assert told["blocker"]["lease"] == "s1" and told["refresh"] == 7 and (told["lease_until"] - told["at"]).total_seconds() == 60
    assert serve(lane, at=2) == (0, 0), "nothing is tried while it is held"
    assert lane.outcomes(first.says("finish"), at=3) == "finished"
    assert serve(lane, at=3) == (1, 1)
    grant = granted(lane, "s2")
    assert grant["fence"] > first.fence and grant["refresh"] == 7 and grant["is_grant"] and grant["message_id"] == asked["id"]
    assert lane.lease("settlement", "s2")["state"] == "held" and line(lane) == []


def test_a_lapse_makes_way_too(lane):
    lane.grant_of(start("s1", resources=["c/1"], ttl=1000), at=0)
    assert lane.outcomes(waits("s2", "c/1"), at=0.5) == "waiting"
    assert serve(lane, at=0.9) == (0, 0)
    assert serve(lane, at=1.1) == (1, 1) and granted(lane, "s2")


def test_the_line_is_served_in_the_order_of_its_tickets(lane):
    first = lane.grant_of(start("s1", resources=["c/1"]), at=0)
    assert lane.outcomes(waits("s2", "c/1", holder="a"), waits("s3", "c/1", holder="b"), at=1) == ["waiting", "waiting"]
    lane.decide(first.says("release"), at=2)
    assert serve(lane, at=2) == (1, 1)
    assert granted(lane, "s2") and not granted(lane, "s3") and line(lane) == ["s3"]
    assert [serve(lane, at=3), serve(lane, at=3)] == [(0, 1), (0, 0)], "one look, and it knows whom it waits for now"


def test_many_resources_are_not_starved_by_few(lane):
    """Each of the two is free at times, but never both at once, if others may pass."""
    one = lane.grant_of(start("s1", resources=["c/1"]), at=0)
    assert lane.outcomes(waits("both", "c/1", "c/2", holder="a"), at=1) == "waiting"
    answer = lane.decide(start("s2", holder="b", resources=["c/2"]), at=2)
    assert answer.outcome == "held"
    told = lane.journal(subject="s2")[-1]
    assert told["reason"] == "in_line" and told["blocker"].items() >= {"lease": "both", "holder": "a", "resource": "c/2"}.items()
    assert lane.outcomes(start("s3", holder="b", resources=["c/3"]), at=2) == "granted", "who shares nothing passes"
    lane.decide(one.says("finish"), at=3)
    assert serve(lane, at=3) == (1, 1) and granted(lane, "both")


def test_a_start_behind_the_line_waits_behind_it(lane):
    one = lane.grant_of(start("s1", resources=["c/1"]), at=0)
    lane.decide(waits("s2", "c/1", "c/2", holder="a"), at=1)
    assert lane.outcomes(waits("s3", "c/2", holder="b"), at=2) == "waiting"
    assert serve(lane, at=2) == (0, 0)
    lane.decide(one.says("finish"), at=3)
    assert serve(lane, at=3) == (1, 1) and line(lane) == ["s3"]
    assert granted(lane, "s2") and serve(lane, at=4)[0] == 0 and line(lane) == ["s3"]


def test_who_asks_again_keeps_the_place_and_the_grant_names_the_newest(lane):
    one = lane.grant_of(start("s1", resources=["c/1"]), at=0)
    lane.decide(waits("s2", "c/1", holder="a", refresh=1, wait_ms=1000), waits("s3", "c/1", holder="b"), at=0)
    assert lane.outcomes(waits("s2", "c/1", holder="a", refresh=2, wait_ms=1000), at=0.9) == "waiting"
    lane.decide(one.says("finish"), at=1.5)
    assert serve(lane, at=1.5) == (1, 1)
    assert granted(lane, "s2")["refresh"] == 2


def test_who_is_silent_too_long_is_passed_over(lane):
    one = lane.grant_of(start("s1", resources=["c/1"]), at=0)
    lane.decide(waits("s2", "c/1", holder="a", wait_ms=1000), waits("s3", "c/1", holder="b"), at=0)
    lane.decide(one.says("finish"), at=2)
    assert serve(lane, at=2) == (1, 1)
    assert granted(lane, "s3") and not granted(lane, "s2")
    assert lane.outcomes(waits("s2", "c/1", holder="a"), at=3) == "waiting"
    assert line(lane) == ["s2"], "at the end of the line again"


def test_a_start_that_does_not_wait_leaves_the_line(lane):
    one = lane.grant_of(start("s1", resources=["c/1"]), at=0)
    lane.decide(waits("s2", "c/1", holder="a"), at=0)
    assert lane.outcomes(start("s2", holder="a", resources=["c/1"]), at=1) == "held"
    lane.decide(one.says("finish"), at=2)
    assert line(lane) == [] and serve(lane, at=2) == (0, 0) and not granted(lane, "s2")


def test_another_cannot_take_the_place_or_the_leave_of_a_holder(lane):
    lane.grant_of(start("s1", resources=["c/1"]), at=0)
    lane.decide(waits("s2", "c/1", holder="a"), at=0)
    assert lane.outcomes(waits("s2", "c/1", holder="b"), start("s2", holder="b", resources=["c/1"]), at=1) == ["held", "held"]
    assert line(lane) == ["s2"]


def test_a_run_that_somebody_else_holds_is_waited_for_too(lane):
    one = lane.grant_of(start("s1", holder="a", resources=["c/1"]), at=0)
    assert lane.outcomes(waits("s1", "c/1", holder="b"), at=1) == "waiting"
    lane.decide(one.says("release"), at=2)
    assert serve(lane, at=2) == (1, 1)
    assert lane.lease("settlement", "s1")["holder"] == "b"


def test_a_run_that_ends_while_it_is_waited_for_is_told_to_be_final(lane):
    one = lane.grant_of(start("s1", holder="a", resources=["c/1"]), at=0)
    asked = waits("s1", "c/1", holder="b")
    lane.decide(asked, at=1)
    lane.decide(one.says("finish"), at=2)
    assert serve(lane, at=2) == (1, 1)
    told = lane.journal(subject="s1")[-1]
    assert (told["event"], told["command"], told["message_id"]) == ("final", None, asked["id"]) and line(lane) == []


def test_a_start_over_a_table_waits_until_nobody_covers_it(lane):
    one = lane.grant_of(start("s1", more=True, tables=["c"]), at=0)
    assert lane.outcomes(start("s2", holder="b", more=True, tables=["c"], **WAIT), at=1) == "waiting"
    assert lane.outcomes(one.says("begin", amount=0), at=2) == "granted"
    assert serve(lane, at=2)[0] == 0, "the table is free, its rows are not"
    lane.decide(one.says("finish"), at=3)
    assert serve(lane, at=3) == (1, 1)
    assert lane.lease("settlement", "s2")["condition"] == "covering"


def test_F28_a_row_in_strange_hands_is_tried_again_at_growing_intervals(lane, new_lane):
    lane.decide(start("s0", resources=["c/1"]), at=0)
    free = lane.grant_of(start("s9", resources=["c/2"]), at=0)
    lane.decide(free.says("finish"), at=0)
    stranger = new_lane()
    stranger.query("SELECT FROM lease.resource WHERE resource = 'c/2' FOR UPDATE")
    assert lane.outcomes(waits("s2", "c/2"), at=1) == "waiting"
    assert serve(lane, at=1) == (0, 1)
    assert serve(lane, at=1.01) == (0, 0), "not at once"
    assert serve(lane, at=1.06) == (0, 1)
    assert serve(lane, at=1.12) == (0, 0), "the interval has grown"
    stranger.rollback()
    assert serve(lane, at=1.3) == (1, 1) and granted(lane, "s2")


def test_waiting_and_making_way_in_one_batch(lane):
    one = lane.grant_of(start("s1", resources=["c/1"]), at=0)
    answers = lane.apply(waits("s2", "c/1"), one.says("finish"), at=1)
    assert [answer.outcome for answer in answers] == ["waiting", "finished"]
    lane.commit()
    assert serve(lane, at=1) == (1, 1)


@pytest.mark.parametrize("ends_first", [True, False])
def test_F26_two_lanes_that_see_nothing_of_each_other_leave_nobody_waiting(lane, new_lane, ends_first):
    other = new_lane()
    one = lane.grant_of(start("s1", resources=["c/1"]), at=0)
    lane.apply(one.says("finish"), at=1)
    # The lease is in the first lane's hands meanwhile: busy, not held.
    if ends_first:
        lane.commit()
        assert other.outcomes(waits("s2", "c/1"), at=1) == "granted"
    else:
        joining = Meanwhile(other.decide, waits("s2", "c/1"), at=1)
        lane.commit()
        assert joining.end().outcome in ("waiting", "granted")
        serve(lane, at=2)
        assert lane.lease("settlement", "s2")["state"] == "held"


def test_the_line_is_shown(lane):
    lane.grant_of(start("s1", resources=["c/1"]))
    lane.decide(waits("s2", "c/1", holder="a"), waits("s3", "c/1", holder="b"))
    serve(lane)
    rows = lane.query("SELECT place, lease, holder, held_by, behind, resources FROM lease.line ORDER BY place")
    assert rows == [(1, "s2", "a", "settlement/s1", None, 1), (2, "s3", "b", None, "settlement/s2", 1)]
    lane.commit()
