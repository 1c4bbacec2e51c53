# ctest: LABEL royalty TIMEOUT 240
"""What a settlement computes is what SQL computes with numeric, to the last of six decimals, however it is cut into chunks.

What would go wrong: a binary fraction; another rounding of halves, or of returns (negative sums); a work whose sales lie in two
chunks gets two lines, or loses some; a work that is larger than a chunk; a contract that is listed but was sold nothing.
"""
import psycopg2
import pytest

from royalty import PERIOD

CONTRACTS = 40
SALES = 1000


@pytest.fixture(scope="module", name="sold")
def fixture_sold(office_of_file):
    office_of_file.royalty.generate(7, CONTRACTS, SALES)
    return office_of_file.royalty.right_total()


@pytest.mark.parametrize("chunk", [1, 7, 64, 20000])
def test_sums__are_those_of_numeric_in_chunks_of_any_size(office, sold, chunk):
    name = f"chunk-{chunk}"
    status, said = office.run(name, chunk_sales=chunk).start().wait()
    assert status == 0
    state, lines, total, _ = office.royalty.settlement(name)
    assert (state, total) == ("settled", sold)
    assert (said["lines"], said["total"]) == (lines, str(sold))
    assert lines == office.royalty.database.value("SELECT count(DISTINCT (contract, work)) FROM royalty.sale")
    assert office.place.database.value("SELECT resources_covered FROM lease.leases WHERE lease = %s", (name,)) == CONTRACTS


def test_sums__over_named_contracts_are_theirs_alone(office, sold):
    names = ["track-contract/t0000002", "album-contract/a0000001", "track-contract/t0000020"]
    status, _ = office.run("named", contracts=",".join(names)).start().wait()
    state, _, total, _ = office.royalty.settlement("named")
    assert (status, state, total) == (0, "settled", office.royalty.right_total(names)) and 0 < total < sold
    assert office.place.database.value("SELECT resources_covered FROM lease.leases WHERE lease = 'named'") == len(names)


def test_settlement__that_has_ended_is_not_begun_again(office, sold):
    assert office.run("once").start().wait()[0] == 0
    again = office.run("once", name="again").start()
    assert again.wait() == (65, None) and "outcome=final" in again.log()
    assert office.royalty.settlement("once")[2] == sold


def test_settlement__of_amounts_that_do_not_fit_stops_without_a_total(office):
    office.royalty.database.query("INSERT INTO royalty.album_contract VALUES ('huge', 'Ann', 1)")
    office.royalty.database.query("INSERT INTO royalty.sale SELECT 'album-contract', %s, 'huge', 1, n, 999999999999.999999"
                                  " FROM generate_series(1, 10) n", (PERIOD,))
    run = office.run("huge", contracts="album-contract/huge").start()
    assert run.wait() == (65, None) and "royalty_overflow" in run.log()
    assert office.royalty.settlement("huge")[:3] == ("running", None, None)
    office.royalty.database.query("DELETE FROM royalty.sale WHERE contract = 'huge'")


@pytest.mark.parametrize("settings", [{"period": "June"}, {"contracts": "track-contract"}, {"contracts": "song/1"}, {"ttl_ms": 1}])
def test_settlement__is_told_what_is_wrong_with_its_settings(office, settings):
    run = office.run("wrong", **settings).start()
    assert run.wait() == (78, None)
    assert next(iter(settings)) in run.log()


@pytest.mark.parametrize("statement", ["INSERT INTO royalty.settlement (settlement, period, fence, claim_id) VALUES ('x', '2026-06', 1, gen_random_uuid())",
                                       "DELETE FROM royalty.settlement_line", "UPDATE royalty.track_contract SET rate = 1",
                                       "SELECT royalty.generate(1)"])
def test_settlement__may_write_nothing_but_behind_the_gate(office, statement):
    connection = psycopg2.connect(office.royalty.conninfo())
    try:
        with connection.cursor() as cursor, pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute(statement)
    finally:
        connection.close()
