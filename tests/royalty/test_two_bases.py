# ctest: LABEL royalty TIMEOUT 240 TAKES 12
"""The settlement of a contract that pays 70 percent: tracks 1 to 500 are computed, an operator sets 60 percent, tracks 501 to 1000 are
computed.

What goes wrong where nothing keeps the operator out: one settlement on two bases, and a total that is neither. Where the tables are
guarded the edit is refused, at once and whatever path it takes; a run that lost its lease, so that an edit was let in, is told.
"""
import time
from decimal import Decimal

import psycopg2
import pytest

from royalty import AMOUNT, HALF, TRACKS
from waiting import eventually

GROSS = 2 * Decimal(AMOUNT)


def total(rate, tracks):
    return tracks * round(GROSS * Decimal(rate), 6)


def half_done(office, contract, settlement):
    """Tracks 1 to 500 are computed; the run stands still for a moment, and its lease is live."""
    office.royalty.story(contract)
    run = office.run(settlement, contracts=f"track-contract/{contract}", chunk_sales=HALF, ttl_ms=60000)
    run.start(crash="royalty.written:1:stop").stopped_at("royalty.written")
    assert office.royalty.basis(settlement) == [("0.700000", 1, 500)]
    return run


def test_two_bases__come_about_where_the_table_is_not_guarded(office):
    run = half_done(office, "unguarded", "open")
    office.royalty.edit("0.60", "unguarded")                                     # goes through
    run.resume()
    status, said = run.wait()
    assert status == 0
    assert office.royalty.basis("open") == [("0.700000", 1, 500), ("0.600000", 501, 1000)]
    mixed = total("0.70", 500) + total("0.60", 500)
    assert Decimal(said["total"]) == mixed and mixed not in (total("0.70", TRACKS), total("0.60", TRACKS))


@pytest.fixture(scope="module", name="guarded")
def fixture_guarded(office_of_file):
    """From here on in this file."""
    office_of_file.royalty.guard()


def refused(office, statement):
    """Refused, and without waiting for anybody."""
    begun = time.monotonic()
    with pytest.raises(psycopg2.Error) as caught:
        office.royalty.database.query(statement)
    assert caught.value.pgcode == "LE010" and time.monotonic() - begun < 10     # the run in the way stands still for as long as we like
    return caught.value


def test_two_bases__are_refused_where_the_table_is_guarded(office, guarded):
    run = half_done(office, "guarded", "shut")
    error = refused(office, "UPDATE royalty.track_contract SET rate = 0.60 WHERE contract = 'guarded'")
    assert "track-contract" in error.diag.message_detail and "shut" in error.diag.message_detail
    refused(office, "INSERT INTO royalty.track_contract VALUES ('guarded', 'Ann', 0.60)"
                    " ON CONFLICT (contract) DO UPDATE SET rate = excluded.rate")
    office.royalty.database.query("UPDATE royalty.track_contract SET note = 'to be 60' WHERE contract = 'guarded'")     # not guarded
    run.resume()
    status, said = run.wait()
    assert (status, said["basis"], Decimal(said["total"])) == (0, "unchanged", total("0.70", TRACKS))
    assert office.royalty.basis("shut") == [("0.700000", 1, TRACKS)]
    office.royalty.edit("0.60", "guarded")                                       # the settlement has ended


def test_two_bases__of_a_run_that_lost_its_lease_are_reported(office, guarded):
    office.royalty.story("late")
    run = office.run("late", contracts="track-contract/late", chunk_sales=HALF, ttl_ms=5000)
    run.start(crash="royalty.closed:1:stop").stopped_at("royalty.closed")
    refused(office, "UPDATE royalty.track_contract SET rate = 0.60 WHERE contract = 'late'")
    eventually(lambda: edited(office, "late"), 60, "the lease lapses, and the edit is let in", every=0.01)
    run.resume()
    status, said = run.wait()
    assert (status, said["basis"]) == (65, "changed") and "settle anew" in run.log()
    assert office.royalty.settlement("late")[0] == "changed"


def edited(office, contract):
    try:
        office.royalty.edit("0.60", contract)
        return True
    except psycopg2.Error as error:
        assert error.pgcode == "LE010"
        return False


def test_start__over_all_contracts_is_busy_while_one_of_them_is_being_edited(office, guarded):
    office.royalty.generate(3, 40, 400)
    connection = psycopg2.connect(office.royalty.database.conninfo)
    try:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE royalty.track_contract SET rate = 0.5 WHERE contract = 't0000020'")
            early = office.run("all", name="early").start()
            assert early.wait()[0] == 75 and "outcome=busy" in early.log()
            connection.commit()
    finally:
        connection.close()
    status, said = office.run("all", name="late").start().wait()
    assert (status, said["basis"]) == (0, "unchanged")
    assert Decimal(said["total"]) == office.royalty.right_total()
