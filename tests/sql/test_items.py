"""Commands over many items: a head that is identified, deduplicated and answered, and members that are decided like commands of their own."""
import pytest

from rules import Grant, Meanwhile, claim, moment, over, request, start, waits_for_a_lock

NOBODY = "11111111-2222-4333-8444-555555555555"


def told(lane, answer):
    """(lease, outcome) of each item, in order."""
    return [(item["lease"], item["outcome"]) for item in lane.items_of(answer)]


def held(lane, *names, worker="w1", at=0, ttl=10_000):
    return [lane.claim_one(name, worker, at=at, ttl=ttl) for name in names]


def test_each_item_gets_its_own_outcome_in_the_order_of_the_command(lane):
    i1, i2, i3, i4 = held(lane, "i1", "i2", "i3", "i4")
    lapsed, = held(lane, "i5", ttl=500)
    lane.decide(i2.says("finish"), at=1)
    lane.decide(request("i6"), at=1)
    missing = Grant("cleanup", "i9", "w1", 7, NOBODY)
    ready = Grant("cleanup", "i6", "w1", 7, NOBODY)
    before = lane.last_number()
    answer = lane.decide(over(i4.says("renew"), i2.says("renew"), missing.says("renew"), i1.says("renew", fence=i1.fence + 1), lapsed.says("renew"),
                              i3.says("renew", token_fits=False), ready.says("renew")), at=2)
    assert answer.outcome == "answered"
    assert told(lane, answer) == [("i4", "renewed"), ("i2", "final"), ("i9", "unknown"), ("i1", "stale"), ("i5", "lapsed"), ("i3", "stale"), ("i6", "stale")]
    # The answer is the worker's; a lapse that the command met is an event of the item, a renewal or a refusal is none.
    rows = lane.journal(before)
    assert sorted((row["subject"], row["event"]) for row in rows) == [("i5", "lapsed"), ("w1", "answered")]
    items = {item["lease"]: item for item in lane.items_of(answer)}
    assert items["i4"] == {"lease": "i4", "outcome": "renewed", "fence": i4.fence, "claim_id": i4.claim_id, "until": "2100-01-01T00:00:12.000000Z",
                           "remaining_ms": 10_000}
    assert items["i1"] == {"lease": "i1", "outcome": "stale", "fence": i1.fence + 1, "claim_id": i1.claim_id}
    assert lane.lease("cleanup", "i4")["lease_until"] == moment(12)
    assert lane.lease("cleanup", "i1")["lease_until"] == moment(10)


def test_a_ttl_is_for_all(lane):
    i1, i2 = held(lane, "i1", "i2")
    lane.decide(over(i1.says("renew", ttl_ms=20_000), i2.says("renew", ttl_ms=20_000)), at=1)
    assert [lane.lease("cleanup", name)["lease_until"] for name in ("i1", "i2")] == [moment(21)] * 2
    answer = lane.decide(over(i1.says("renew", ttl_ms=10 ** 8), i2.says("renew", ttl_ms=10 ** 8)), at=2)
    row, = lane.journal(answer.number - 1)
    assert (answer.outcome, row["reason"], row["field"]) == ("malformed", "ttl_above_maximum", "ttl_ms")


def test_what_ends_has_an_event_of_its_own_that_names_the_command(lane):
    i1, i2, i3 = held(lane, "i1", "i2", "i3")
    answer = lane.decide(over(i1.says("finish", payload='{"bytes": 1}'), i2.says("finish", fence=1), i3.says("finish"), id="f1"), at=1)
    assert told(lane, answer) == [("i1", "finished"), ("i2", "stale"), ("i3", "finished")]
    head, first, second = lane.journal(answer.number - 1)
    assert (head["event"], head["subject"], head["holder"], head["state"], head["changes_lease"]) == ("answered", "w1", "w1", None, False)
    for row, grant in ((first, i1), (second, i3)):
        assert (row["subject"], row["event"], row["state"], row["changes_lease"]) == (grant.subject, "finished", "finished", True)
        assert (row["command"], row["source"], row["message_id"], row["origin_offset"]) == ("finish", "/tests/sql", "f1", head["origin_offset"])
        assert (row["fence"], str(row["claim_id"]), row["holder"]) == (grant.fence, grant.claim_id, "w1")
    assert lane.value("SELECT payload FROM lease.journal WHERE number = %s", (first["number"],)) == '{"bytes": 1}'
    lane.commit()


def test_failed_and_released_as_alone(lane):
    i1, i2, i3, i4 = held(lane, "i1", "i2", "i3", "i4")
    failed = lane.decide(over(i1.fails(delay_ms=7000), i2.fails(retry=False), i3.fails()), at=1)
    assert told(lane, failed) == [("i1", "failed"), ("i2", "failed"), ("i3", "failed")]
    leases = {name: lane.lease("cleanup", name) for name in ("i1", "i2", "i3")}
    assert [(lease["state"], lease["ready_at"]) for lease in leases.values()] == [("ready", moment(8)), ("dead", None), ("ready", moment(2))]
    assert [row["reason"] for row in lane.journal(failed.number)] == ["broken"] * 3
    released = lane.decide(over(i4.says("release"), i1.says("release")), at=1)
    assert told(lane, released) == [("i4", "released"), ("i1", "stale")]
    assert (lane.lease("cleanup", "i4")["state"], lane.lease("cleanup", "i4")["attempt"]) == ("ready", 0)


def test_runs_too(lane):
    s1 = lane.grant_of(start("s1", resources=["album/1"]), at=0)
    s2 = lane.grant_of(start("s2", more=True), at=0)
    answer = lane.decide(over(s1.says("finish"), s2.says("finish")), at=1)
    assert told(lane, answer) == [("s1", "finished"), ("s2", "incomplete")]
    assert lane.outcomes(start("s3", holder="h2", resources=["album/1"]), at=1) == "granted"


def test_commands_of_one_batch_see_what_those_before_them_did(lane):
    """An item in two commands over many, and in one alone, in one batch."""
    i1, i2 = held(lane, "i1", "i2")
    first, alone, second = lane.decide(over(i1.says("renew", ttl_ms=20_000)), i1.says("finish"),
                                       over(i2.says("release"), i1.says("release")), at=1)
    assert (told(lane, first), alone.outcome, told(lane, second)) == ([("i1", "renewed")], "finished", [("i2", "released"), ("i1", "final")])
    numbers = [row["number"] for row in lane.journal(first.number - 1)]
    assert numbers == list(range(first.number, first.number + 4))
    assert [first.number, alone.number, second.number] == sorted([first.number, alone.number, second.number])


@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_duplicate_changes_nothing_and_tells_no_items(lane, in_one_batch):
    i1, i2 = held(lane, "i1", "i2")
    said = over(i1.says("renew", ttl_ms=5000), i2.says("finish"), id="same", digest=b"0123456789abcdef")
    if in_one_batch:
        first, again = lane.decide(said, said, at=1)
    else:
        first, again = lane.decide(said, at=1), lane.decide(said, at=9)
    assert (first.outcome, again.outcome) == ("answered", "duplicate")
    rows = [row for row in lane.journal(first.number - 1) if row["origin_topic"]]
    assert [row["event"] for row in rows].count("finished") <= 1
    duplicate = next(row for row in rows if row["event"] == "duplicate")
    assert (duplicate["subject"], duplicate["original"]) == ("w1", {"outcome": "answered"})
    assert lane.value("SELECT payload FROM lease.journal WHERE number = %s", (again.number,)) is None
    lane.commit()


def test_another_body_under_its_id_is_refused_as_a_whole(lane):
    i1, i2 = held(lane, "i1", "i2")
    assert lane.outcomes(over(i1.says("renew"), id="same"), at=1) == "answered"
    before = lane.last_number()
    assert lane.outcomes(over(i1.says("finish"), i2.says("finish"), id="same"), at=1) == "malformed"
    row, = lane.journal(before)
    assert (row["subject"], row["reason"], row["field"]) == ("w1", "id_reused", "id")
    assert lane.lease("cleanup", "i2")["state"] == "held"


def test_a_malformed_head_among_good_commands(lane):
    """As the coordinator hands it on: it has no items then. Were there any, they would not be looked at."""
    i1, i2 = held(lane, "i1", "i2")
    bad = over(i1.says("finish"), verdict="malformed", reason="missing", field="items[0].token")
    answers = lane.decide(over(i1.says("renew")), bad, over(i2.says("finish")), at=1)
    assert [answer.outcome for answer in answers] == ["answered", "malformed", "answered"]
    assert told(lane, answers[2]) == [("i2", "finished")]
    assert lane.lease("cleanup", "i1")["state"] == "held"


def test_a_head_of_an_unknown_kind_is_refused_as_a_whole(lane):
    grant = Grant("no-such-kind", "i1", "w1", 7, NOBODY)
    answer = lane.decide(over(grant.says("renew")), at=1)
    row, = lane.journal(answer.number - 1)
    assert (answer.outcome, row["reason"]) == ("malformed", "unknown_kind")


def test_released_items_go_to_whoever_waits_in_the_same_transaction(lane):
    i1, i2 = held(lane, "i1", "i2")
    assert lane.outcomes(claim("w2", 2, wait_ms=60_000), at=1) == "waiting"
    answer = lane.decide(over(i1.says("release"), i2.says("release")), at=2)
    grants = lane.grants_after(answer.number)
    assert sorted(grant.subject for grant in grants) == ["i1", "i2"]
    assert {grant.holder for grant in grants} == {"w2"}
    assert all(grant.fence > max(i1.fence, i2.fence) for grant in grants)


def test_two_lanes_with_the_same_items_in_another_order_do_not_block_each_other(new_lane):
    one, two, watcher = new_lane(), new_lane(), new_lane()
    grants = held(one, *[f"i{number}" for number in range(20)], at=None, ttl=60_000)
    first = one.apply(over(*[grant.says("renew") for grant in grants]))
    other = Meanwhile(two.apply, over(*[grant.says("renew") for grant in reversed(grants)]))
    waits_for_a_lock(watcher, two)
    one.commit()
    second = other.end()
    two.commit()
    assert {outcome for answer in (first, second) for _, outcome in told(one, answer)} == {"renewed"}


def test_a_thousand_items_in_one_command(lane):
    """As many as one may name; the answer tells of all of them, in order."""
    names = [f"item-{number:04}" for number in range(1000)]
    lane.decide(*[request(name) for name in names], at=0)
    before = lane.last_number()
    lane.decide(claim("w1", 1000, ttl=60_000), at=0)
    grants = lane.grants_after(before)
    assert len(grants) == 1000
    renewed = lane.decide(over(*[grant.says("renew", ttl_ms=90_000) for grant in grants]), at=1)
    assert told(lane, renewed) == [(grant.subject, "renewed") for grant in grants]
    finished = lane.decide(over(*[grant.says("finish") for grant in reversed(grants)]), at=2)
    assert told(lane, finished) == [(grant.subject, "finished") for grant in reversed(grants)]
    assert lane.last_number() == finished.number + 1000
