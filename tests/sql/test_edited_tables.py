# ctest: LABEL sql TIMEOUT 60
"""Tables that take edits by message: which can, what becomes of strangers' code in them, and what is left when a guard is repaired or taken away."""
import json

import psycopg2
import pytest
from rules import command, start

FINE = "CREATE TABLE public.c (id int PRIMARY KEY, rate int); INSERT INTO public.c VALUES (1, 1), (2, 1); SELECT lease.guard_table('public.c', 'c', '{rate}'); SELECT lease.allow_edits('c');"
HOOK = """CREATE FUNCTION public.hook() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN {body} RETURN NULL; END $f$;
  CREATE TRIGGER hook AFTER UPDATE OF rate ON public.c FOR EACH ROW EXECUTE FUNCTION public.hook();"""

SLEEP = "PERFORM pg_sleep(40);"


def edit(row, new, old, editor="ann"):
    return command("contract", "edit", f"c/{row}", holder=editor, payload=json.dumps({"new": new, "old": old}))


def answer_to(lane, message):
    """Outcome and reason."""
    outcome = lane.outcomes(message)
    reason = lane.value("SELECT reason FROM lease.timeline WHERE message_id = %s", (message["id"],))
    lane.commit()
    return outcome, reason


def refusal(lane, sql):
    with pytest.raises(psycopg2.Error) as caught:
        lane.query(sql)
    lane.rollback()
    return caught.value.pgcode


@pytest.mark.parametrize("column", ["twice int GENERATED ALWAYS AS (id * 2) STORED", "n int GENERATED ALWAYS AS IDENTITY", "terms json", "place point", "lists json[]", "raw xml"])
def test_what_cannot_be_edited_is_refused_when_edits_are_allowed(lane, column):
    name = column.split()[0]
    lane.query(f"CREATE TABLE public.c (id int PRIMARY KEY, rate int, {column}); SELECT lease.guard_table('public.c', 'c', '{{rate,{name}}}')")
    lane.commit()
    assert refusal(lane, "SELECT lease.allow_edits('c')") == "LE020"
    lane.query("SELECT lease.unguard_table('c')")


@pytest.mark.parametrize("sql_type, rounded, kept", [
    ("numeric(5, 2)", "1.005", "1.01"), ("public.share", "1.005", "1.01"), ("numeric(5, 2)[]", ["1", "1.005"], ["1", "1.01"]), ("timestamptz(0)", "2026-01-01T00:00:00.6Z", "2026-01-01T00:00:01Z"),
    ("numeric", None, "1.005"), ("text[]", None, ["a", "b"]), ("jsonb", None, {"a": 1}), ("public.share[]", ["1.005"], ["1.01"]),
])
def test_an_edit_says_what_the_row_will_have(lane, sql_type, rounded, kept):
    lane.query(f"CREATE DOMAIN public.share AS numeric(5, 2); CREATE TABLE public.c (id int PRIMARY KEY, v {sql_type}); INSERT INTO public.c VALUES (1);"
               "SELECT lease.guard_table('public.c', 'c', '{v}'); SELECT lease.allow_edits('c')")
    lane.commit()
    if rounded is not None:
        assert answer_to(lane, edit(1, {"v": rounded}, {"v": None})) == ("bounced", "refused_22003")
    assert answer_to(lane, edit(1, {"v": kept}, {"v": None})) == ("applied", None)
    assert answer_to(lane, edit(1, {"v": None}, {"v": kept})) == ("applied", None)


@pytest.mark.parametrize("sql_type, own, others", [("numeric(10, 0)", "7", ["7.0", "07"]), ("float8", "0", ["-0", "0.0"]), ("char(3)", "ab", ["ab "]), ("text COLLATE public.ci", "abc", ["ABC"]),
                                                   ("bigint", "7", ["07", "+7"]), ("timestamptz", "2026-01-01 00:00:00+00", ["2026-01-01 01:00:00+01"])])
def test_a_row_has_one_name(lane, sql_type, own, others):
    lane.query("CREATE COLLATION public.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    lane.query(f"CREATE TABLE public.c (id {sql_type} PRIMARY KEY, rate int); INSERT INTO public.c VALUES ('{own}', 1); SELECT lease.guard_table('public.c', 'c', '{{rate}}');"
               "SELECT lease.allow_edits('c')")
    lane.commit()
    for other in others:
        assert answer_to(lane, edit(other, {"rate": 2}, {"rate": 1})) == ("bounced", "refused_22p02"), other
    assert answer_to(lane, edit(own, {"rate": 2}, {"rate": 1})) == ("applied", None)
    assert answer_to(lane, edit(own, {"rate": 3}, {"rate": 1})) == ("bounced", "row_changed")


def test_a_key_of_several_columns_in_partitions(lane):
    lane.query("CREATE TABLE public.c (r text, id int, rate int, PRIMARY KEY (r, id)) PARTITION BY LIST (r); CREATE TABLE public.c1 PARTITION OF public.c FOR VALUES IN ('a');"
               "INSERT INTO public.c VALUES ('a', 1, 1); SELECT lease.guard_table('public.c', 'c', '{rate}'); SELECT lease.allow_edits('c')")
    lane.commit()
    assert [answer_to(lane, edit(row, {"rate": 2}, {"rate": 1})) for row in ("a:01", "a:2", "b:1", "a", "a:1")] == [
        ("bounced", "refused_22p02"), ("bounced", "no_such_row"), ("bounced", "no_such_row"), ("bounced", "refused_22p02"), ("applied", None)]


@pytest.mark.parametrize("body, answer", [
    *[(f"RAISE EXCEPTION 'x' USING ERRCODE = '{code}';", ("bounced", f"refused_{code.lower()}")) for code in ("XX000", "P0001", "57014", "LE007", "LE001")],
    ("ASSERT false;", ("bounced", "refused_p0004")),
    *[(f"RAISE EXCEPTION 'x' USING ERRCODE = '{code}';", ("parked", None)) for code in ("53100", "58030", "08006", "57P01", "40001")],
    (SLEEP, ("bounced", "refused_57014")),
    ("PERFORM set_config('search_path', 'evil, pg_catalog', false);", ("bounced", "refused_le015")),
    ("SET synchronous_commit = off;", ("bounced", "refused_le015")),
])
def test_whatever_a_strangers_code_does_is_that_edits_own_affair(lane, body, answer):
    """And what it set goes with it: the batch goes on as it began."""
    lane.query(FINE + HOOK.format(body=f"IF NEW.id = 1 THEN {body} END IF;"))
    lane.commit()
    show = "SELECT current_setting('search_path'), current_setting('synchronous_commit'), current_setting('lock_timeout')"
    before = lane.query(show)
    if body == SLEEP:      # so long that what comes before it does not use it up, and short of the five seconds after which the other one is parked
        lane.query("SET statement_timeout = 2000")
    message, other = edit(1, {"rate": 2}, {"rate": 1}), edit(2, {"rate": 2}, {"rate": 1})
    assert lane.outcomes(message, other) == [answer[0], "applied"]
    assert lane.value("SELECT reason FROM lease.timeline WHERE message_id = %s", (message["id"],)) == answer[1]
    assert lane.query(show) == before
    lane.query("SET statement_timeout = 60000")


def test_edits_that_come_after_a_slow_one_are_made_later(lane):
    """The statement's time is used up once: a second slow one would be stopped by nobody."""
    lane.query(FINE + HOOK.format(body="PERFORM pg_sleep(5.2);"))
    lane.commit()
    assert lane.outcomes(edit(1, {"rate": 2}, {"rate": 1}), edit(2, {"rate": 2}, {"rate": 1})) == ["applied", "parked"]


def test_no_strangers_function_runs_with_the_owners_rights(lane):
    lane.query("""CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC; CREATE TABLE evil.loot (who text); GRANT ALL ON evil.loot TO PUBLIC;
      CREATE FUNCTION evil.cardinality(text[]) RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO evil.loot VALUES (current_user); RETURN pg_catalog.cardinality($1); END $$;
      CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO evil.loot VALUES (current_user); RETURN pg_catalog.set_config($1, $2, $3); END $$;"""
               + FINE + HOOK.format(body="PERFORM pg_catalog.set_config('search_path', 'evil, pg_catalog', false);"))
    lane.commit()
    assert answer_to(lane, edit(1, {"rate": 2}, {"rate": 1})) == ("bounced", "refused_le015")
    assert lane.query("SELECT who FROM evil.loot") == []


def test_a_repaired_guard_takes_edits_as_before(lane):
    lane.query(FINE)
    lane.commit()
    grant = lane.grant_of(start("s1", resources=["c/1"], ttl=600000))
    assert lane.outcomes(edit(1, {"rate": 2}, {"rate": 1})) == "parked"
    lane.query("SELECT lease.repair_guard('c')")
    assert answer_to(lane, edit(2, {"rate": 2}, {"rate": 1})) == ("applied", None)
    lane.decide(grant.says("finish"))
    lane.query("SELECT lease.serve_edits(10)")
    assert lane.query("SELECT rate FROM public.c ORDER BY id") == [(2,), (2,)]
    lane.query("SELECT lease.unguard_table('c')")
    assert lane.query("SELECT count(*) FROM pg_proc WHERE pronamespace = 'lease_stamp'::regnamespace") == [(0,)]


def test_an_edit_function_that_is_gone_is_a_finding_and_can_be_taken_away(lane):
    lane.query(FINE + """DROP FUNCTION lease_stamp."c.edit"(text, jsonb, jsonb)""")
    assert lane.query("SELECT code, stops_starts, remedy FROM lease.guard_findings") == [("function_altered", False, "SELECT lease.repair_guard('c')")]
    lane.query("SELECT lease.repair_guard('c')")
    assert lane.query("SELECT code FROM lease.guard_findings") == []
    lane.query("""DROP FUNCTION lease_stamp."c.edit"(text, jsonb, jsonb); SELECT lease.refuse_edits('c'); SELECT lease.unguard_table('c')""")


def test_a_column_that_was_renamed(lane):
    lane.query(FINE)
    lane.commit()
    grant = lane.grant_of(start("s1", resources=["c/1"], ttl=600000))
    message = edit(1, {"rate": 2}, {"rate": 1})
    assert lane.outcomes(message) == "parked"
    lane.query("ALTER TABLE public.c RENAME rate TO share")
    lane.commit()
    assert refusal(lane, "SELECT lease.allow_edits('c')") == "LE020"
    lane.query("SELECT lease.repair_guard('c')")
    lane.decide(grant.says("finish"))
    lane.query("SELECT lease.serve_edits(10)")
    assert lane.query("SELECT event, reason FROM lease.timeline WHERE message_id = %s ORDER BY number", (message["id"],))[-1] == ("bounced", "refused_42703")
    assert answer_to(lane, edit(2, {"share": 2}, {"share": 1})) == ("applied", None)
    assert lane.query("SELECT share FROM public.c ORDER BY id") == [(1,), (2,)]
