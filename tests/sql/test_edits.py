# ctest: LABEL sql TIMEOUT 90
"""Edits by message: made at once where the row is free, otherwise parked, and made in their order when the lease has ended."""
import json

import psycopg2
import pytest
import schemas
from rules import Meanwhile, command, eventually, moment, start

SHOP = """
  CREATE TABLE public.contract (id bigint PRIMARY KEY, rate numeric(7, 3) NOT NULL CHECK (rate <= 100), payee text, tags text[], note text);
  INSERT INTO public.contract SELECT i, 70, 'p' || i, '{a}', 'n' FROM generate_series(1, 10) i;
  SELECT lease.guard_table('public.contract', 'contract', ARRAY['rate', 'payee', 'tags']);
  SELECT lease.allow_edits('contract');
"""


@pytest.fixture(name="shop")
def fixture_shop(lane):
    lane.query(SHOP)
    lane.commit()
    return lane


def edit(row, new, old=None, follows=None, editor="ann", park_ms=None, **fields):
    payload = {"new": new} if old is None else {"new": new, "old": old}
    return command("contract", "edit", f"contract/{row}", holder=editor, payload=json.dumps(payload), word=follows, wait_ms=park_ms, **fields)


def cancel(row, message, editor="ann"):
    return command("contract", "cancel", f"contract/{row}", holder=editor, word=message)


def held(shop, *rows, ttl=600000, lease="s1"):
    return shop.grant_of(start(lease, resources=[f"contract/{row}" for row in rows], ttl=ttl))


def serve(shop, at=None, limit=100):
    row = shop.query("SELECT served, tried FROM lease.serve_edits(%s, %s)", (limit, moment(at)))[0]
    shop.commit()
    return row


def rate(shop, row):
    value = shop.value("SELECT rate::text FROM public.contract WHERE id = %s", (row,))
    shop.commit()
    return value


def told(shop, message):
    """What the journal tells of a message: (event, reason, command) each."""
    rows = shop.query("SELECT event, reason, command FROM lease.timeline WHERE message_id = %s ORDER BY number", (message["id"],))
    shop.commit()
    return rows


def parked(shop):
    count = shop.value("SELECT count(*) FROM lease.parked_edit")
    shop.commit()
    return count


def test_an_edit_of_a_free_row_is_made_at_once(shop):
    assert shop.outcomes(edit(1, {"rate": "60.5", "tags": ["x", "y"]}, {"rate": "70", "tags": ["a"]})) == "applied"
    assert shop.query("SELECT rate::text, tags, payee FROM public.contract WHERE id = 1") == [("60.500", ["x", "y"], "p1")]
    shop.commit()


def test_an_edit_of_a_covered_row_is_parked_and_made_when_the_lease_has_ended(shop):
    grant = held(shop, 1)
    asked = edit(1, {"rate": "60"}, {"rate": "70"})
    answer = shop.decide(asked)
    assert answer.outcome == "parked" and rate(shop, 1) == "70.000"
    blocker = shop.value("SELECT blocker FROM lease.timeline WHERE number = %s", (answer.number,))
    assert blocker["lease"] == "s1" and blocker["fence"] == grant.fence
    assert serve(shop) == (0, 0), "nothing is tried while the row is covered"
    shop.decide(grant.says("finish"))
    assert serve(shop) == (1, 1) and rate(shop, 1) == "60.000"
    assert told(shop, asked) == [("parked", None, "edit"), ("applied", None, None)]


def test_a_lapse_lets_it_through_and_the_run_is_told_at_its_late_finish(shop):
    grant = held(shop, 1, ttl=600)
    assert shop.outcomes(edit(1, {"rate": "60"}, {"rate": "70"})) == "parked"
    shop.await_lapse("s1")
    assert serve(shop) == (1, 1)
    answer = shop.decide(grant.says("finish"))
    assert shop.value("SELECT basis ->> 'basis' FROM lease.timeline WHERE number = %s", (answer.number,)) == "changed"


def test_edits_of_a_row_are_made_in_their_order_each_on_what_its_author_saw(shop):
    grant = held(shop, 1, 2)
    one = edit(1, {"rate": "60"}, {"rate": "70"})
    two = edit(1, {"rate": "50"}, follows=one["id"])
    late = edit(1, {"rate": "40"}, {"rate": "70"})
    other = edit(2, {"payee": None}, {"payee": "p2"})
    assert shop.outcomes(one, two, late, other) == ["parked"] * 4
    shop.decide(grant.says("finish"))
    assert serve(shop) == (4, 4)
    assert rate(shop, 1) == "50.000"
    assert [told(shop, message)[-1][:2] for message in (one, two, late, other)] == [
        ("applied", None), ("applied", None), ("bounced", "row_changed"), ("applied", None)]


def test_a_new_edit_stands_behind_the_parked_ones_of_its_row(shop, new_lane):
    stranger = new_lane()
    stranger.query("SELECT FROM public.contract WHERE id = 1 FOR UPDATE")
    one = edit(1, {"rate": "60"}, {"rate": "70"})
    assert shop.outcomes(one) == "parked", "a stranger has the row: nobody waits for him"
    stranger.rollback()
    assert shop.outcomes(edit(1, {"rate": "50"}, {"rate": "60"})) == "parked"
    assert serve(shop) == (2, 2) and rate(shop, 1) == "50.000"


def test_a_row_in_strange_hands_is_tried_again_at_growing_intervals(shop, new_lane):
    stranger = new_lane()
    stranger.query("SELECT FROM public.contract WHERE id = 1 FOR UPDATE")
    assert shop.outcomes(edit(1, {"rate": "60"}, {"rate": "70"}), at=0) == "parked"
    assert [serve(shop, at=0), serve(shop, at=0.01), serve(shop, at=0.06), serve(shop, at=0.12)] == [(0, 1), (0, 0), (0, 1), (0, 0)]
    stranger.rollback()
    assert serve(shop, at=0.3) == (1, 1) and rate(shop, 1) == "60.000"


@pytest.mark.parametrize("row, new, old, outcome, reason", [
    (1, {"rate": "60"}, {"rate": "71"}, "bounced", "row_changed"),
    (1, {"rate": "60"}, {"rate": "70", "payee": "somebody"}, "bounced", "row_changed"),
    (99, {"rate": "60"}, {"rate": "70"}, "bounced", "no_such_row"),
    ("x", {"rate": "60"}, {"rate": "70"}, "bounced", "refused_22p02"),
    ("01", {"rate": "60"}, {"rate": "70"}, "bounced", "refused_22p02"),
    (1, {"rate": "101"}, {"rate": "70"}, "bounced", "refused_23514"),
    (1, {"rate": None}, {"rate": "70"}, "bounced", "refused_23502"),
    (1, {"rate": "much"}, {"rate": "70"}, "bounced", "refused_22p02"),
    (1, {"rate": "1.2345"}, {"rate": "70"}, "bounced", "refused_22003"),
    (1, {"rate": 60.5}, {"rate": "70"}, "malformed", "wrong_type"),
    (1, {"note": "x"}, {"note": "n"}, "malformed", "unknown_member"),
    (1, {"rate; drop table contract": "x"}, {"rate": "70"}, "malformed", "unknown_member"),
    (1, {"rate": "60"}, {"payee": "p1"}, "malformed", "missing"),
    (1, {}, {"payee": "p1"}, "malformed", "empty"),
])
def test_an_edit_that_cannot_be_made_is_answered_and_changes_nothing(shop, row, new, old, outcome, reason):
    message = edit(row, new, old)
    assert shop.outcomes(message, edit(2, {"rate": "1"}, {"rate": "70"})) == [outcome, "applied"], "the rest of the batch goes on"
    assert told(shop, message)[0][:2] == (outcome, reason)
    assert rate(shop, 1) == "70.000" and parked(shop) == 0


def test_tables_that_take_no_edits_say_so(shop):
    shop.query("SELECT lease.refuse_edits('contract')")
    shop.commit()
    for subject in ("contract/1", "other/1"):
        message = command("contract", "edit", subject, holder="ann", payload='{"new":{"rate":"60"},"old":{"rate":"70"}}')
        assert shop.outcomes(message) == "bounced" and told(shop, message)[0][1] == "edits_not_taken"


def test_an_edit_is_parked_for_a_while(shop):
    grant = held(shop, 1)
    message = edit(1, {"rate": "60"}, {"rate": "70"}, park_ms=1000)
    assert shop.outcomes(message, at=0) == "parked"
    assert serve(shop, at=0.9)[0] == 0
    assert serve(shop, at=1.1) == (1, 1) and told(shop, message)[-1] == ("bounced", "expired", None)
    shop.decide(grant.says("finish"), at=2)
    assert serve(shop, at=3) == (0, 0) and rate(shop, 1) == "70.000"


def test_only_its_editor_takes_a_parked_edit_back(shop):
    grant = held(shop, 1)
    message = edit(1, {"rate": "60"}, {"rate": "70"})
    shop.decide(message)
    assert shop.outcomes(cancel(1, message["id"], editor="bob"), cancel(2, message["id"]), cancel(1, message["id"]), cancel(1, message["id"])) == [
        "stale", "unknown", "cancelled", "unknown"]
    shop.decide(grant.says("finish"))
    assert serve(shop) == (0, 0) and rate(shop, 1) == "70.000"


def test_what_an_edit_follows_must_be_parked(shop):
    message = edit(1, {"rate": "60"}, follows="nobody")
    assert shop.outcomes(message) == "bounced" and told(shop, message)[0][1] == "not_parked"


def test_the_same_message_again_edits_nothing_twice(shop):
    message = edit(1, {"rate": "60"}, {"rate": "70"})
    assert shop.outcomes(message, dict(message)) == ["applied", "duplicate"]
    shop.query("UPDATE public.contract SET rate = 70 WHERE id = 1")
    shop.commit()
    assert shop.outcomes(dict(message)) == "duplicate" and rate(shop, 1) == "70.000"


def test_asked_for_in_sql_it_goes_the_same_way(shop, database, new_lane):
    grant = held(shop, 1)
    person = new_lane(database.login("lease_asker"))
    asked = person.value("SELECT lease.ask_edit('contract/1', '{\"rate\": \"60\"}', '{\"rate\": \"70\"}')")
    shop.query("SELECT pg_sleep(0)")
    assert serve(shop) == (0, 0), "it stands when its author has committed"
    person.commit()
    serve(shop)
    assert parked(shop) == 1 and rate(shop, 1) == "70.000"
    then = person.value("SELECT lease.ask_edit('contract/1', '{\"rate\": \"55\"}', p_follows => %s)", (asked,))
    person.commit()
    serve(shop)
    shop.decide(grant.says("finish"))
    assert serve(shop) == (2, 2) and rate(shop, 1) == "55.000"
    events = shop.query("SELECT message_id, event FROM lease.timeline WHERE source = '/leasehold/inbox' ORDER BY number")
    assert events == [(asked, "parked"), (then, "parked"), (asked, "applied"), (then, "applied")]
    shop.commit()


def test_only_who_may_asks_in_sql(shop, database, new_lane):
    reader = new_lane(database.login("lease_reader"))
    with pytest.raises(Exception, match="permission denied"):
        reader.value("SELECT lease.ask_edit('contract/1', '{\"rate\": \"60\"}', '{\"rate\": \"70\"}')")
    person = new_lane(database.login("lease_asker"))
    for sql in ("UPDATE public.contract SET rate = 1", "SELECT lease_stamp.\"contract.edit\"('1', '{}', '{\"rate\": \"1\"}')", "SELECT lease.make_edit('contract', '1', '{}', '{}')",
                "INSERT INTO lease.edit_inbox (command) VALUES ('edit')", "SELECT lease.serve_edits(1)"):
        with pytest.raises(Exception, match="permission denied"):
            person.query(sql)
        person.rollback()


def test_what_stood_in_the_table_stands_there_when_edits_are_taken_no_more(shop):
    before = shop.query("SELECT grantee, privilege_type FROM information_schema.role_table_grants WHERE table_name = 'contract' AND grantee = 'lease_editor'")
    assert before == []
    shop.query("SELECT lease.unguard_table('contract')")
    assert shop.query("SELECT count(*) FROM information_schema.column_privileges WHERE grantee IN ('lease_editor', 'lease_stamper')") == [(0,)]
    assert shop.query("SELECT count(*) FROM pg_proc WHERE pronamespace = 'lease_stamp'::regnamespace") == [(0,)]
    shop.commit()


ASKING = "SELECT lease.ask_edit(%s, %s::jsonb, %s::jsonb, %s)"
NAMES = ["contract/1", "contract/a.b_c:d@e/f+g=h-i", "a/b/", "a//b", "a/../b", "a/..", "a/..b", "/a", "a", "a/", "", ".a/1", "contract/1 2", "contract/1\n", "contract/1\x01", "contract/\u00e9",
         "c/" + 198 * "x", "c/" + 199 * "x", 200 * "x" + "/1"]


def refused(lane, sql, parameters):
    """The SQLSTATE of a call that is to be refused."""
    with pytest.raises(psycopg2.Error) as caught:
        lane.query(sql, parameters)
    lane.rollback()
    return caught.value.pgcode


def test_names_are_checked_as_those_of_messages(lane):
    known = schemas.Schemas()
    known.validators = {name: [validator.evolve(schema=validator.schema["definitions"][name]) for validator in known.validators["common.json"]] for name in ("id", "resource")}
    for name in NAMES:
        for check, definition in (("is_name", "id"), ("is_resource", "resource")):
            assert lane.value(f"SELECT lease.{check}(%s)", (name,)) == (known.error(definition, name) is None), (check, name)


UNASKABLE = [   # resource, new, old, follows, SQLSTATE
    ("contract/1", None, '{"rate": "70"}', None, "22023"),
    ("contract/1", '[1]', '{"rate": "70"}', None, "22023"),
    ("contract/1", '"x"', '{"rate": "70"}', None, "22023"),
    ("contract/1", '{"rate": "60"}', '[]', None, "22023"),
    ("contract/1", '{"rate": "60"}', 'null', None, "22023"),
    ("contract/1", '{"rate": "60"}', None, None, "22023"),
    ("contract/1", '{"rate": "60"}', None, "", "22023"),
    ("contract/1", '{"rate": "60"}', None, 129 * "x", "22023"),
    (None, '{"rate": "60"}', '{"rate": "70"}', None, "22023"),
    ("contract/1\nx", '{"rate": "60"}', '{"rate": "70"}', None, "22023"),
    ("contract/" + 200 * "1", '{"rate": "60"}', '{"rate": "70"}', None, "22023"),
    ("contract/1", json.dumps({"rate": 70000 * "6"}), '{"rate": "70"}', None, "54000"),
    ("contract/1", json.dumps({3000000 * "k": "1"}), '{"rate": "70"}', None, "54000"),
]


def test_what_no_message_could_ask_for_is_refused_at_once(shop, database, new_lane):
    person = new_lane(database.login("lease_asker"))
    for *asked, code in UNASKABLE:
        assert refused(person, ASKING, asked) == code, asked[0]
    for asked in ((None, "x"), ("contract/1", None), (16000 * "x", "x"), ("contract/1", 16000 * "x"), ("contract/1\n", "x")):
        assert refused(person, "SELECT lease.cancel(%s, %s)", asked) == "22023", asked[0]
    assert shop.value("SELECT count(*) FROM lease.edit_inbox") == 0


# Rows as no function of ours would write them, and what they are answered.
POISON = [
    ("edit", "contract/2", "ann", "p1", None, None, None, "malformed"),
    ("edit", "contract/2", "ann", "p2", '{"old": {}}', None, None, "malformed"),
    ("edit", "contract/2", "ann", "p3", '[1, 2]', None, None, "malformed"),
    ("edit", "contract/2", "ann", "p4", '{"new": {"rate": "\\u0000"}, "old": {"rate": "70"}}', None, None, "malformed"),
    ("edit", "contract/1", "ann", "p5", '{"new": {"rate": "60"}, "old": {"rate": "70"}}', None, 2 ** 62, "malformed"),
    ("edit", "contract/1", "ann", "p6", '{"new": {"rate": "60"}, "old": []}', None, None, "malformed"),
    ("edit", "contract/1", "ann", "p7", '{"new": [], "old": {}}', "p0", None, "malformed"),
    ("cancel", "contract/2", "ann", "p8", None, None, None, "unknown"),
    ("cancel", "S", "ann", "p9", None, "x", None, "malformed"),
    ("edit", "S", "E", "M", None, None, None, "malformed"),
]
INBOX = "INSERT INTO lease.edit_inbox (command, subject, editor, message_id, payload, names, park_ms) VALUES (%s, %s, %s, %s, %s::json, %s, %s)"


def test_whatever_stands_in_the_inbox_is_answered_and_keeps_nothing_there(shop, database, new_lane):
    """Long texts do not compress: an index refuses them for their size."""
    held(shop, 1)
    long = shop.value("SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) i")
    good = '{"new": {"rate": "60"}, "old": {"rate": "70"}}'
    shop.query(INBOX, ("edit", "contract/1", "ann", "p0", good, None, None))
    for number, (*row, _) in enumerate(POISON, 3):
        shop.query(INBOX, [long if value in ("S", "E") else long + "m" if value == "M" else value for value in row])
        shop.query(INBOX, ("edit", f"contract/{number if number < 11 else 1}", "ann", f"g{number}", good, None, None))
    shop.commit()
    person = new_lane(database.login("lease_coordinator"))
    for _ in range(3 * len(POISON)):
        serve(person, limit=500)
    assert shop.value("SELECT count(*) FROM lease.edit_inbox") == 0
    rows = shop.query("SELECT message_id, event, length(subject), length(holder) FROM lease.timeline WHERE source = '/leasehold/inbox'")
    told_of = {message: event for message, event, *_ in rows}
    assert told_of == {"p0": "parked", (long + "m")[:128]: "malformed", **{row[3]: row[-1] for row in POISON if row[3] != "M"},
                       **{f"g{number}": "applied" if number < 11 else "parked" for number in range(3, 3 + len(POISON))}}
    assert max(size for *_, subject, holder in rows for size in (subject, holder)) <= 200
    shop.commit()


def test_a_parked_edit_that_cannot_be_served_bounces_and_lets_the_others_go(shop, new_lane):
    stranger = new_lane()
    stranger.query("SELECT FROM public.contract WHERE id = 1 FOR UPDATE")
    one, two = edit(1, {"rate": "60"}, {"rate": "70"}), edit(2, {"rate": "60"}, {"rate": "70"})
    grant = held(shop, 2)
    assert shop.outcomes(one, two) == ["parked"] * 2
    shop.query("UPDATE lease.parked_edit SET tries = 2147483647 WHERE id = '1'")
    shop.commit()
    shop.decide(grant.says("finish"))
    assert [serve(shop), serve(shop)] == [(1, 1), (1, 1)]
    assert told(shop, one)[-1][:2] == ("bounced", "refused_22003") and told(shop, two)[-1][0] == "applied" and parked(shop) == 0


def test_what_is_told_of_a_long_member_is_cut(shop):
    message = edit(1, {3000000 * "k": "1"}, {"rate": "70"})
    assert shop.outcomes(message) == "malformed"
    assert shop.value("SELECT field FROM lease.timeline WHERE message_id = %s", (message["id"],)) == "new." + 124 * "k"


def test_one_at_a_time_takes_the_inbox_in(shop, new_lane):
    """Two that shared it would make one person's edits in another order."""
    shop.query("""CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 9 THEN WHILE NOT pg_try_advisory_xact_lock(77) LOOP PERFORM pg_sleep(0.01); END LOOP; END IF; RETURN NEW; END $$;
      CREATE TRIGGER slow BEFORE UPDATE OF rate ON public.contract FOR EACH ROW EXECUTE FUNCTION public.slow()""")
    for row, new, old in ((9, "60", "70"), (1, "60", "70"), (1, "50", "60")):
        shop.value(ASKING, (f"contract/{row}", json.dumps({"rate": new}), json.dumps({"rate": old}), None))
    shop.commit()
    gate, first, second = new_lane(), new_lane(), new_lane()
    gate.query("SELECT pg_advisory_lock(77)")
    slow = Meanwhile(serve, first, limit=2)
    eventually(lambda: gate.query("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'", (first.pid,)) or gate.rollback(), 10, "it is in the middle")
    assert serve(second, limit=2) == (0, 0), "the first one is still at it"
    gate.query("SELECT pg_advisory_unlock(77)")
    assert slow.end() == (2, 2)
    assert serve(second) == (1, 1) and rate(shop, 1) == "50.000"
