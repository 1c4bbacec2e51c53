# ctest: LABEL sql TIMEOUT 60
"""Exceptions from the guard: an operator lets one login edit some rows for a while, with a reason; the journal and the run are told."""
import psycopg2
import pytest
from rules import start

SHOP = """
  CREATE TABLE public.contract (id bigint PRIMARY KEY, rate numeric NOT NULL);
  INSERT INTO public.contract SELECT i, 70 FROM generate_series(1, 5) i;
  SELECT lease.guard_table('public.contract', 'contract', ARRAY['rate']);
"""


@pytest.fixture(name="shop")
def fixture_shop(lane):
    lane.query(SHOP)
    lane.commit()
    return lane


@pytest.fixture(name="ann")
def fixture_ann(shop, database, new_lane):
    """An editor, with rights on the table and none on leases."""
    person = new_lane(database.login("lease_reader"))
    person.name = person.value("SELECT session_user")
    person.commit()
    shop.query(f'GRANT SELECT, UPDATE, DELETE ON public.contract TO "{person.name}"')
    shop.commit()
    return person


@pytest.fixture(name="operator")
def fixture_operator(database, new_lane):
    return new_lane(database.login("lease_operator"))


def refusal(person, row):
    """The SQLSTATE of an edit, or None."""
    try:
        person.query("UPDATE public.contract SET rate = rate - 1 WHERE id = %s", (row,))
        person.commit()
        return None
    except Exception as error:  # pylint: disable=broad-except  # its code is what is asked for
        person.rollback()
        return error.pgcode


def allow(operator, login, ids, why="a wrong rate", minutes=10):
    number = operator.value("SELECT lease.allow_exception('contract', %s, %s, %s, clock_timestamp() + %s * interval '1 minute')", (login, ids, why, minutes))
    operator.commit()
    return number


def noted(shop):
    shop.query("SELECT lease.serve_edits(100)")
    shop.commit()
    return [(row["event"], row["subject"], row["reason"]) for row in shop.journal() if row["event"].startswith("except")]


def test_only_the_login_the_rows_and_the_time_of_an_exception_are_let_through(shop, ann, operator):
    grant = shop.grant_of(start("s1", resources=["contract/1", "contract/2"]))
    assert refusal(ann, 1) == "LE010"
    number = allow(operator, ann.name, ["1"])
    assert [refusal(ann, 1), refusal(ann, 2), refusal(ann, 3)] == [None, "LE010", None]
    with pytest.raises(Exception, match="cannot be changed"):
        shop.query("UPDATE public.contract SET rate = 1 WHERE id = 1")
    shop.rollback()
    assert operator.value("SELECT lease.end_exception(%s)", (number,)) is True
    operator.commit()
    assert refusal(ann, 1) == "LE010"
    assert operator.value("SELECT lease.end_exception(%s)", (number,)) is False
    assert noted(shop) == [("excepted", "contract/1", "a wrong rate"), ("exception_ended", "contract/1", None)]
    assert noted(shop) == noted(shop), "noted once"
    basis = shop.value("SELECT basis FROM lease.timeline WHERE number = %s", (shop.decide(grant.says("finish")).number,))
    assert basis["basis"] == "changed" and [(change["by"], change["resource"]) for change in basis["changes"]] == [(ann.name, "contract/1")]


def test_a_whole_table_can_be_excepted_and_the_stamp_never(shop, ann, operator):
    shop.grant_of(start("s1", resources=["contract/1", "contract/2"]))
    allow(operator, ann.name, None)
    assert [refusal(ann, 1), refusal(ann, 2)] == [None, None]
    with pytest.raises(Exception, match="cannot be changed"):
        ann.query("UPDATE public.contract SET lease_fence = NULL WHERE id = 1")
    ann.rollback()
    assert noted(shop) == [("excepted", "contract/*", "a wrong rate")]


def test_an_exception_ends_with_the_registration_that_it_was_made_for(shop, ann, operator):
    number = allow(operator, ann.name, None)
    shop.query("SELECT lease.unguard_table('contract'); SELECT lease.guard_table('public.contract', 'contract', ARRAY['rate'])")
    shop.commit()
    shop.grant_of(start("s1", resources=["contract/1"]))
    assert refusal(ann, 1) == "LE010"
    assert operator.value("SELECT lease.end_exception(%s)", (number,)) is False
    operator.commit()
    assert [event for event, _, _ in noted(shop)] == ["excepted", "exception_ended"]


def test_a_row_moves_to_another_partition_where_both_its_names_are_excepted(shop, ann, operator):
    shop.query(f"""CREATE TABLE public.parted (region text, id int, rate int, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
        CREATE TABLE public.parted_a PARTITION OF public.parted FOR VALUES IN ('a'); CREATE TABLE public.parted_b PARTITION OF public.parted FOR VALUES IN ('b');
        INSERT INTO public.parted VALUES ('a', 1, 70); SELECT lease.guard_table('public.parted', 'parted', ARRAY['rate']); GRANT SELECT, INSERT, UPDATE, DELETE ON public.parted TO "{ann.name}" """)
    shop.commit()
    grant = shop.grant_of(start("s1", resources=["parted/a:1"]))
    move = "UPDATE public.parted SET region = 'b'"
    for ids, code in ((None, "LE010"), (["a:1"], "LE013"), (["a:1", "b:1"], None)):
        if ids:
            operator.query("SELECT lease.allow_exception('parted', %s, %s, 'moved', clock_timestamp() + interval '1 minute')", (ann.name, ids))
            operator.commit()
        try:
            ann.query(move)
            ann.commit()
            assert code is None
        except psycopg2.Error as error:
            ann.rollback()
            assert error.pgcode == code
    basis = shop.value("SELECT basis FROM lease.timeline WHERE number = %s", (shop.decide(grant.says("finish")).number,))
    assert sorted(change["resource"] for change in basis["changes"]) == ["parted/a:1", "parted/b:1"]


@pytest.mark.parametrize("arguments, code", [
    (("nothing", "postgres", None, "why", 10), "LE020"),
    (("contract", "nobody at all", None, "why", 10), "42704"),
    (("contract", "lease_owner", None, "why", 10), "42704"),
    (("contract", "postgres", None, " ", 10), "22023"),
    (("contract", "postgres", None, None, 10), "22023"),
    (("contract", "postgres", [], "why", 10), "22023"),
    (("contract", "postgres", None, "why", -1), "22023"),
    (("contract", "postgres", None, "why", 60 * 24 * 31), "22023"),
    (("contract", "postgres", ["1", 200 * "x"], "why", 10), "22023"),
    (("contract", "postgres", None, 501 * "w", 10), "22023"),
])
def test_an_exception_needs_a_table_a_login_a_reason_and_an_end(shop, operator, arguments, code):
    assert shop
    with pytest.raises(Exception) as caught:
        operator.query("SELECT lease.allow_exception(%s, %s, %s::text[], %s, clock_timestamp() + %s * interval '1 minute')", arguments)
    assert caught.value.pgcode == code


def test_an_editor_makes_no_exception_for_himself(shop, ann):
    for sql in ("SELECT lease.allow_exception('contract', session_user, NULL, 'mine', now() + interval '1 minute')", "SELECT lease.end_exception(1)",
                "INSERT INTO lease.guard_exception (type) VALUES ('contract')"):
        with pytest.raises(Exception, match="permission denied"):
            ann.query(sql)
        ann.rollback()
    assert shop
