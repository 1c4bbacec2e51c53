# ctest: LABEL royalty TIMEOUT 120
"""A settlement whose run dies or sleeps in the middle and is taken over by another one, under a higher fence.

What would go wrong: a line that is there twice; a successor that begins anew though everything still holds, or goes on where rates have
changed since, so that the settlement has two bases; a run that wakes up and writes behind the back of its successor.
"""
import pytest

from royalty import HALF
from waiting import eventually


def lapses(office, settlement):
    eventually(lambda: office.place.database.value("SELECT condition FROM lease.leases WHERE lease = %s", (settlement,)) in ("lapsed", "free"),
               10, "the lease lapses", every=0.02)


def begun(office, settlement, contract, point="royalty.written"):
    """Half of it is computed, or written, and there it is stopped."""
    office.royalty.story(contract)
    first = office.run(settlement, name="first", contracts=f"track-contract/{contract}", chunk_sales=HALF, ttl_ms=1500)
    first.start(crash=f"{point}:1:stop").stopped_at(point)
    return first


def follow(office, settlement, contract):
    return office.run(settlement, name="second", contracts=f"track-contract/{contract}", chunk_sales=HALF).start()


def test_takeover__goes_on_where_the_dead_one_was(office):
    first = begun(office, "killed", "killed")
    refused = office.run("killed", name="early", contracts="track-contract/killed").start()
    assert refused.wait()[0] == 75 and "outcome=held" in refused.log()
    first.kill()
    lapses(office, "killed")
    second = follow(office, "killed", "killed")
    status, said = second.wait()
    assert status == 0 and "event=\"going on\" lines=500" in second.log()
    assert office.royalty.settlement("killed")[:3] == ("settled", 1000, office.royalty.right_total(["track-contract/killed"]))
    fences = office.royalty.fences("killed")
    assert [lines for _, lines in fences] == [500, 500] and fences[0][0] < fences[1][0] == said["fence"]


def test_takeover__begins_anew_where_a_rate_was_changed_since(office):
    begun(office, "edited", "edited").kill()
    lapses(office, "edited")
    office.royalty.edit("0.60", "edited")               # allowed: nobody holds it any more
    status, said = follow(office, "edited", "edited").wait()
    assert status == 0 and office.royalty.basis("edited") == [("0.600000", 1, 1000)]
    assert office.royalty.settlement("edited")[2] == office.royalty.right_total(["track-contract/edited"])
    assert office.royalty.fences("edited") == [(said["fence"], 1000)]


@pytest.mark.parametrize("point,end", [("royalty.computed", "verdict=stale"), ("royalty.written", "stopped before the next chunk")])
def test_takeover__from_one_that_wakes_up_later_is_not_disturbed(office, point, end):
    name = point.split(".")[1]
    first = begun(office, name, name, point)
    lapses(office, name)
    assert follow(office, name, name).wait()[0] == 0
    before = office.royalty.fences(name)
    first.resume()
    assert first.wait()[0] == 75 and end in first.log()
    assert office.royalty.fences(name) == before and sum(lines for _, lines in before) == 1000
    assert office.royalty.settlement(name)[0] == "settled"
