"""The fences of a resource only rise, whatever grants it: what is behind a gate would refuse a lower one. And no grant begins
before the one before it has ended."""
import pytest

from rules import Meanwhile, claim, request, start, waits_for_a_lock


@pytest.mark.parametrize("how", ["finish", "lapse", "reaped", "purged"])
def test_a_cover_of_what_was_granted_under_a_higher_fence_since_is_stale(lane, how):
    """A settlement that covers a table bit by bit holds an old fence while others take single rows of it and give them back."""
    large = lane.grant_of(start("large", holder="a", more=True, tables=["album"], ttl=3600000), at=0)
    assert lane.outcomes(large.says("cover", resources=["album/1"]), at=1) == "covered"
    small = lane.grant_of(start("small", holder="b", resources=["album/2"], ttl=5000), at=2)
    assert small.fence > large.fence
    held = large.says("cover", resources=["album/2", "album/3"])
    assert lane.outcomes(held, at=3) == "held"
    if how == "finish":
        assert lane.outcomes(small.says("finish"), at=4) == "finished"
    elif how == "reaped":
        assert lane.reap(at=9) == (1, 0)
    elif how == "purged":
        assert lane.outcomes(small.says("finish"), at=4) == "finished"
        lane.query("DELETE FROM lease.lease WHERE lease = 'small'")
        lane.commit()
    before = lane.last_number()
    assert lane.outcomes(large.says("cover", resources=["album/2", "album/3"]), at=10) == "stale"
    told = lane.journal(before, "large")[-1]
    assert told["blocker"] == {"resource": "album/2"} and told["amount"] is None
    assert dict(lane.query("SELECT resource, fence FROM lease.resource WHERE resource ~ '^album/[0-9]'")) == {
        "album/1": large.fence, "album/2": small.fence}
    assert lane.outcomes(large.says("cover", resources=["album/3"]), at=11) == "covered"
    assert lane.outcomes(large.says("begin", amount=2), at=12) == "granted"
    assert lane.outcomes(start("later", holder="c", resources=["album/2"]), at=13) == "granted"


def test_a_grant_out_of_demand_begins_after_its_predecessor_ended(new_lane):
    """A claim has read its clock and waits for its demand's row; meanwhile an item's holder gives it back; then the claim gets the
    item. Dated with the claim's clock, the second grant would begin while the first was live."""
    a, b, stranger, watcher = new_lane(), new_lane(), new_lane(), new_lane()
    first = a.claim_one("item-1", worker="w1")
    a.decide(request("item-2"), claim("w2", 1))
    stranger.query("SELECT 1 FROM lease.demand WHERE worker = 'w2' FOR UPDATE")
    waiting = Meanwhile(a.decide, claim("w2", 2, refresh=2))
    waits_for_a_lock(watcher, a)
    before = b.last_number()
    b.decide(first.says("release"))
    stranger.commit()
    assert waiting.end().outcome == "granted"
    ended, granted = [row for row in b.journal(before, "item-1")]
    assert (ended["event"], granted["event"], granted["holder"]) == ("released", "granted", "w2")
    assert ended["at"] <= granted["at"] == granted["since"]
