"""The fences of a resource only rise, whatever grants it: what is behind a gate would refuse a lower one."""
import pytest

from rules import start


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
