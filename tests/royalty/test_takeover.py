# ctest: LABEL royalty TIMEOUT 400 TAKES 30
"""A settlement whose run dies or sleeps in the middle and is taken over by another one, under a higher fence.

What would go wrong: a line that is there twice; a successor that begins anew though everything still holds, or goes on where rates have
changed since, so that the settlement has two bases; a run that wakes up and writes behind the back of its successor.
"""
import signal

import pytest

from royalty import HALF, PERIOD
from waiting import eventually


def lapses(office, settlement):
    eventually(lambda: office.place.database.value("SELECT condition FROM lease.leases WHERE lease = %s", (settlement,)) in ("lapsed", "free"),
               60, "the lease lapses", every=0.02)


def begun(office, settlement, contract, point="royalty.written", ttl_ms=5000):
    """Half of it is computed, or written, and there it is stopped."""
    office.royalty.story(contract)
    first = office.run(settlement, name="first", contracts=f"track-contract/{contract}", chunk_sales=HALF, ttl_ms=ttl_ms)
    first.start(crash=f"{point}:1:stop").stopped_at(point)
    return first


def follow(office, settlement, contract):
    return office.run(settlement, name="second", contracts=f"track-contract/{contract}", chunk_sales=HALF).start()


def test_takeover__goes_on_where_the_dead_one_was(office):
    first = begun(office, "killed", "killed", ttl_ms=8000)
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


def another_rate(royalty, contract):
    royalty.edit("0.60", contract)               # allowed: nobody holds it any more


def another_sale(royalty, contract):
    royalty.database.query("INSERT INTO royalty.sale VALUES ('track-contract', %s, %s, 3, 0, 0.5)", (PERIOD, contract))


@pytest.mark.parametrize("change", [another_rate, another_sale])
def test_takeover__begins_anew_where_something_was_changed_since(office, change):
    name = change.__name__
    begun(office, name, name).kill()
    lapses(office, name)
    change(office.royalty, name)
    status, said = follow(office, name, name).wait()
    assert status == 0 and len(office.royalty.basis(name)) == 1
    assert office.royalty.settlement(name)[2] == office.royalty.right_total([f"track-contract/{name}"])
    assert office.royalty.fences(name) == [(said["fence"], 1000)]


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


def test_stop__gives_the_lease_back_before_the_next_chunk(office):
    run = begun(office, "stopped", "stopped", ttl_ms=30000)
    run.child.signal(signal.SIGTERM)
    run.resume()
    assert run.wait()[0] == 75 and 'because="asked to"' in run.log()
    assert follow(office, "stopped", "stopped").wait()[0] == 0          # at once
    lines = [lines for _, lines in office.royalty.fences("stopped")]
    assert lines in ([500, 500], [1000])          # it may have been in the next chunk already, when it came to know


def test_run__whose_database_connection_is_cut_goes_on_with_another(office):
    run = begun(office, "cut", "cut", "royalty.computed", ttl_ms=30000)
    cut = office.royalty.database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lease-royalty'"
                                        " AND datname = current_database()")
    assert cut
    run.resume()
    assert run.wait()[0] == 0 and "event=database" in run.log()
    assert [lines for _, lines in office.royalty.fences("cut")] == [1000]
