# ctest: LABEL royalty TIMEOUT 120
"""The settlement of a contract that pays 70 percent: tracks 1 to 500 are computed, an operator sets 60 percent, tracks 501 to 1000 are
computed.

What goes wrong where nothing keeps the operator out: one settlement on two bases, and a total that is neither.
"""
from decimal import Decimal

from royalty import AMOUNT, HALF, TRACKS

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
