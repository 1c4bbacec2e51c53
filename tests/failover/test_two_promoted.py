# ctest: LABEL failover TIMEOUT 300
"""F2: two standbys that are promoted apart from each other (the network fell in two, and both sides were told to take over) come
to the same timeline, know the same last fence and read the same witness. Each jumps, to the same floor, and both give out one
fence number. What tells their grants apart is the claim id, a UUID that no two servers draw alike; a gate refuses an equal fence
with another claim id. No coordinator is needed to see it.
"""
import pytest

import rules
from client import JUMP
from rules import start

WITNESS_NUMBER, WITNESS_FENCE = 700, 5000      # what both read in the topics


class Gate:
    """The one rule of all gates: not below the highest fence seen; an equal one only with the same claim id."""

    def __init__(self):
        self.fence, self.claim_id = 0, None

    def admits(self, grant):
        if grant.fence < self.fence or (grant.fence == self.fence and grant.claim_id != self.claim_id):
            return False
        self.fence, self.claim_id = grant.fence, grant.claim_id
        return True


@pytest.fixture(name="apart", scope="module")
def fixture_apart(shared_world):
    """Two servers promoted apart, with one history behind them, each after its jump: server and conninfo of each."""
    world = shared_world
    primary = world.server("primary")
    database = primary.create_database()
    rules.install(database)
    lane = rules.Lane(database.conninfo)
    lane.grant_of(start("before", ttl=600000))
    lane.close()
    standbys = [world.follower("left", primary), world.follower("right", primary)]
    for standby in standbys:
        standby.has_followed(primary)
    primary.kill()
    for standby in standbys:
        lane = rules.Lane(standby.promote().conninfo(database.name))
        floor = lane.value("SELECT lease.jump(%s, %s, 'test', 'promoted')", (WITNESS_NUMBER, WITNESS_FENCE))
        lane.commit()
        lane.close()
        assert floor == WITNESS_FENCE + JUMP
    return [(standby, standby.conninfo(database.name)) for standby in standbys]


def grants_on(conninfo, *names, holder="h1"):
    lane = rules.Lane(conninfo)
    grants = [lane.grant_of(start(name, holder=holder, ttl=600000)) for name in names]
    lane.close()
    return grants


def test_F2_two_standbys_promoted_apart_give_out_one_fence_and_never_one_claim_id(apart):
    (left, to_left), (right, to_right) = apart
    assert left.identity() == right.identity(), "identifier and timeline do not tell them apart"
    names = [f"s{number}" for number in range(20)]
    on_left, on_right = grants_on(to_left, *names), grants_on(to_right, *names)
    assert [g.fence for g in on_left] == [g.fence for g in on_right], "this is what makes the claim id needed"
    assert not {g.claim_id for g in on_left} & {g.claim_id for g in on_right}
    for one, other in zip(on_left, on_right):
        gate = Gate()
        assert gate.admits(one) and gate.admits(one) and not gate.admits(other), "the second server's holder got through"


def test_F2_neither_of_them_takes_the_others_grant_for_its_own(apart):
    """A holder of the left server's grant turns to the right server, where the same lease was granted with the same fence to a holder
    of the same name: the claim id does not fit, so its token does not either, and nothing changes."""
    (on_left,), (on_right,) = (grants_on(conninfo, "t1") for _, conninfo in apart)
    assert (on_left.fence, on_left.holder) == (on_right.fence, on_right.holder)
    lane = rules.Lane(apart[1][1])
    for word in ("renew", "finish", "release"):
        assert lane.outcomes(on_left.says(word)) == "stale"
    assert lane.outcomes(on_right.says("finish")) == "finished"
    lane.close()


def test_F30_a_follower_of_a_cut_off_primary_jumps_past_the_jump_that_it_never_got(shared_world):
    """The first standby is promoted, jumps, and is cut off before anything of that is published or replicated; it goes on granting. Its own
    standby, promoted next, reads the same witness. It may not come to the same numbers: the cut-off one's records may still arrive.
    What tells them apart is the timeline, which is one further on. (A model found this: NO_STEPS in tests/spin/README.md.)"""
    primary = shared_world.server("first")
    database = primary.create_database()
    rules.install(database)
    between = shared_world.follower("between", primary).has_followed(primary)
    primary.kill()
    between.promote()
    last = shared_world.follower("last", between).has_followed(between)
    between.hold_back("last")
    floors, fences = [], []
    for server in (between, last):
        if server is last:
            server.promote()
        lane = rules.Lane(server.conninfo(database.name))
        floors.append(lane.value("SELECT lease.jump(%s, %s, 'test', 'promoted')", (WITNESS_NUMBER, WITNESS_FENCE)))
        number = lane.value("SELECT max(number) FROM lease.timeline")
        fences.append(lane.grant_of(start("after", ttl=600000)).fence)
        lane.commit()
        lane.close()
        assert number == WITNESS_NUMBER + floors[-1] - WITNESS_FENCE, "journal numbers, and with them the relays' epochs, jump as far"
    assert floors == [WITNESS_FENCE + JUMP, WITNESS_FENCE + 2 * JUMP]
    assert fences[1] > fences[0] + JUMP - 1
