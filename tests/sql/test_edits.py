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
    grant = held(shop, 1)
    assert shop.outcomes(edit(1, {"rate": "60"}, {"rate": "70"})) == "parked"
    shop.let_lapse("s1")
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
    for sql in ("UPDATE public.contract SET rate = 1", "SELECT lease_stamp.\"contract.edit\"('1', '{}', '{\"rate\": \"1\"}')", "SELECT lease.make_edit('contract', '1', 'ann', '{}', '{}', NULL)",
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


@pytest.mark.parametrize("way", ["CREATE TRIGGER f AFTER UPDATE ON bob.t FOR EACH ROW EXECUTE FUNCTION bob.fires()", "ALTER TABLE bob.t ADD CHECK (bob.does(id))"])
def test_F36_an_edit_of_one_table_gives_nobody_the_editors_rights_on_another(shop, way):
    """A trigger or a check of bob's, who may not edit contracts, ran as lease_editor, who may."""
    shop.query("CREATE SCHEMA bob; GRANT USAGE ON SCHEMA bob TO PUBLIC; CREATE TABLE bob.t (id int PRIMARY KEY, rate int); INSERT INTO bob.t VALUES (1, 1); "
               "CREATE FUNCTION bob.does(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN IF current_user = 'lease_editor' THEN UPDATE public.contract SET rate = 1; END IF; RETURN true; END $$; "
               "CREATE FUNCTION bob.fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM bob.does(1); RETURN NULL; END $$; "
               f"{way}; SELECT lease.guard_table('bob.t', 'bobs', ARRAY['rate']); SELECT lease.allow_edits('bobs')")
    shop.commit()
    answer = shop.decide(command("contract", "edit", "bobs/1", holder="bob", payload=json.dumps({"new": {"rate": 2}, "old": {"rate": 1}})))
    assert (answer.outcome, shop.journal()[-1]["reason"], rate(shop, 1)) == ("bounced", "refused_le013", "70.000")
    shop.query("ALTER TABLE contract DISABLE TRIGGER lease_guard_editor")
    assert shop.query("SELECT code, stops_starts FROM lease.guard_findings") == [("trigger_disabled", False)]
    shop.query("SELECT lease.repair_guard('contract')")
    assert shop.query("SELECT * FROM lease.guard_findings") == []


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
    eventually(lambda: gate.query("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'", (first.pid,)) or gate.rollback(), 60, "it is in the middle")
    assert serve(second, limit=2) == (0, 0), "the first one is still at it"
    gate.query("SELECT pg_advisory_unlock(77)")
    assert slow.end() == (2, 2)
    assert serve(second) == (1, 1) and rate(shop, 1) == "50.000"


# ---- what is due ----

def test_a_locked_row_with_many_edits_keeps_no_other_waiting(shop, new_lane):
    grant = held(shop, 1, 2)
    shop.decide(*[edit(1, {"rate": "60"}, {"rate": "70"}) for _ in range(30)], edit(2, {"rate": "60"}, {"rate": "70"}))
    stranger = new_lane()
    stranger.query("SELECT FROM public.contract WHERE id = 1 FOR UPDATE")
    shop.decide(grant.says("finish"))
    assert serve(shop, limit=10)[0] == 1 and rate(shop, 2) == "60.000", "the other row's edit is made at the first look"
    stranger.rollback()
    while parked(shop):
        shop.query("UPDATE lease.parked_edit SET retry_at = '-infinity' WHERE no = (SELECT min(no) FROM lease.parked_edit)")
        assert serve(shop, limit=10)[0] > 0, "each that goes calls the next"
    assert rate(shop, 1) == "60.000"


def test_who_goes_calls_the_next_one_of_its_row(shop, new_lane):
    stranger = new_lane()
    stranger.query("SELECT FROM public.contract WHERE id = 1 FOR UPDATE")
    messages = [edit(1, {"rate": "60"}, {"rate": "70"}), edit(1, {"rate": "50"}, {"rate": "70"}), edit(1, {"rate": "40"}, {"rate": "70"})]
    assert shop.outcomes(*messages, at=0) == ["parked"] * 3
    assert [serve(shop, at=0), serve(shop, at=0.01)] == [(0, 3), (0, 0)], "they wait for the first one"
    stranger.rollback()
    assert shop.outcomes(cancel(1, messages[0]["id"]), at=0.02) == "cancelled"
    assert [serve(shop, at=0.03), serve(shop, at=0.03)] == [(1, 1), (1, 1)] and rate(shop, 1) == "50.000"
    assert told(shop, messages[2])[-1][:2] == ("bounced", "row_changed")


def test_expired_edits_hide_none_of_other_rows_and_do_not_wait_for_their_turn(shop):
    held(shop, 1)
    other = held(shop, 3, lease="s3")
    first = edit(1, {"rate": "60"}, {"rate": "70"}, park_ms=3600000)
    brief = [edit(1, {"rate": "61"}, {"rate": "70"}, park_ms=10) for _ in range(15)]
    shop.decide(first, *brief, edit(3, {"rate": "60"}, {"rate": "70"}), at=0)
    shop.decide(other.says("finish"), at=1)
    assert [serve(shop, at=2, limit=10)[0] for _ in range(2)] == [10, 6]
    assert rate(shop, 3) == "60.000" and parked(shop) == 1
    assert {told(shop, message)[-1][:2] for message in brief} == {("bounced", "expired")} and told(shop, first)[-1][0] == "parked"


def test_a_look_at_many_parked_edits_reads_only_those_that_are_due(shop):
    """By the rows that a look reads, which no clock disturbs."""
    shop.query("""INSERT INTO lease.parked_edit (kind, type, id, editor, old, new, source, message_id, asked_at, expires_at, blocked_by, retry_at)
      SELECT 'contract', 'contract', 'r' || i %% 100, 'a', '{}', '{}', '/s', 'm' || i, now(), now() + interval '1 day', f.fence, CASE WHEN f.fence IS NULL THEN now() + interval '1 hour' END
        FROM generate_series(1, 20000) i, LATERAL (SELECT CASE WHEN i %% 2 = 0 THEN %s END AS fence) f""", (held(shop, 1).fence,))
    shop.query("ANALYZE lease.parked_edit")
    shop.commit()
    read = "SELECT pg_stat_get_xact_tuples_returned('lease.parked_edit'::regclass) + sum(pg_stat_get_xact_tuples_fetched(i.indexrelid) + pg_stat_get_xact_tuples_returned(i.indexrelid)) FROM pg_index i WHERE i.indrelid = 'lease.parked_edit'::regclass"
    before = shop.value(read)
    assert shop.query("SELECT served, tried FROM lease.serve_edits(500)") == [(0, 0)]
    assert shop.value(read) - before < 50
    shop.commit()


# ---- bounds ----

def test_a_row_has_a_thousand_parked_edits_at_most(shop):
    grant = held(shop, 1)
    assert shop.outcomes(edit(1, {"rate": "60"}, {"rate": "70"})) == "parked"
    shop.query("INSERT INTO lease.parked_edit (kind, type, id, editor, old, new, source, message_id, asked_at, expires_at, blocked_by) "
               "SELECT kind, type, id, editor, old, new, source, 'n' || i, asked_at, expires_at, blocked_by FROM lease.parked_edit, generate_series(1, 998) i")
    last, late = edit(1, {"rate": "60"}, {"rate": "70"}), edit(1, {"rate": "60"}, {"rate": "70"})
    assert shop.outcomes(last, late) == ["parked", "bounced"] and told(shop, late)[0][1] == "too_many_parked"
    shop.decide(grant.says("finish"))
    assert serve(shop, limit=2000) == (1000, 1000)


def test_the_number_of_parked_edits_is_bounded_by_a_count(shop):
    held(shop, *range(1, 6))
    messages = [edit(row, {"rate": "60"}, {"rate": "70"}) for row in range(1, 6)]
    limit = 200000
    shop.query("UPDATE lease.parked_count SET counted = %s, upto = (SELECT last_value FROM lease.parked_edit_no_seq), at = clock_timestamp() + interval '1 hour'", (limit - 1,))
    assert shop.outcomes(messages[0], messages[1]) == ["parked", "bounced"], "the numbers since the count count too"
    assert told(shop, messages[1])[0][1] == "too_many_parked"
    shop.query("UPDATE lease.parked_count SET at = '-infinity'")
    assert shop.outcomes(messages[2]) == "parked", "it counts again, and finds one"
    assert shop.value("SELECT counted FROM lease.parked_count") == 1


def test_the_inbox_has_a_bound(shop):
    shop.query("INSERT INTO lease.edit_inbox (command, subject, editor, message_id) SELECT 'cancel', 'contract/1', 'ann', 'i' || i FROM generate_series(1, 99999) i")
    good = ("contract/1", '{"rate": "60"}', '{"rate": "70"}', None)
    shop.value(ASKING, good)
    shop.commit()
    assert refused(shop, ASKING, good) == "53400"
    assert refused(shop, "SELECT lease.cancel('contract/1', 'x')", None) == "53400"


# ---- one batch ----

def test_an_edit_waits_for_a_lease_that_its_own_batch_grants(shop):
    grant, edited = shop.decide(start("s1", resources=["contract/1"], ttl=60000), edit(1, {"rate": "60"}, {"rate": "70"}))
    assert (grant.outcome, edited.outcome) == ("granted", "parked") and rate(shop, 1) == "70.000"
    blocker = shop.value("SELECT blocker FROM lease.timeline WHERE number = %s", (edited.number,))
    assert (blocker["lease"], blocker["fence"], blocker["resource"]) == ("s1", grant.fence, "contract/1")
    shop.commit()


def test_an_edit_waits_for_a_lease_that_its_own_batch_renews(shop):
    """The lease ends while the batch is at it, and is renewed at the batch's end."""
    shop.query("""CREATE TABLE public.slow (id int PRIMARY KEY, rate int); INSERT INTO public.slow SELECT i, 1 FROM generate_series(1, 9) i;
      CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.6); RETURN NULL; END $$;
      CREATE TRIGGER f AFTER UPDATE ON public.slow FOR EACH ROW EXECUTE FUNCTION public.f(); SELECT lease.guard_table('public.slow', 'slow', '{rate}')""")
    shop.commit()
    for row in range(1, 10):      # on a machine that stands still, one may have lapsed before its batch comes
        grant = held(shop, row, ttl=500, lease=f"held-{row}")
        outcomes = shop.outcomes(grant.says("renew", ttl_ms=60000), start(f"slow-{row}", resources=[f"slow/{row}"]), edit(row, {"rate": "60"}, {"rate": "70"}))
        if outcomes[0] != "lapsed":
            break
    assert outcomes == ["renewed", "granted", "parked"] and rate(shop, row) == "70.000"


def test_an_edit_is_made_in_the_batch_that_begins_with_the_end_of_another_lease(shop):
    grant = held(shop, 2)
    assert shop.outcomes(grant.says("finish"), edit(1, {"rate": "60"}, {"rate": "70"})) == ["finished", "applied"]


# ---- whose ----

def test_an_id_is_looked_for_in_its_own_source_first(shop):
    held(shop, 1)
    anns, bobs = (edit(1, {"rate": new}, {"rate": "70"}, editor=editor, source=source, id="1") for editor, source, new in (("ann", "/a", "60"), ("bob", "/b", "50")))
    assert shop.outcomes(anns, bobs) == ["parked"] * 2
    follower = edit(1, {"rate": "40"}, follows="1", editor="ann", source="/a")
    assert shop.outcomes(follower) == "parked"
    assert shop.value("SELECT old ->> 'rate' FROM lease.parked_edit WHERE message_id = %s", (follower["id"],)) == "60"
    assert shop.outcomes(dict(cancel(1, "1", editor="bob"), source="/b")) == "cancelled"
    assert shop.outcomes(dict(cancel(1, "1", editor="bob"), source="/b")) == "stale"
    assert shop.outcomes(dict(cancel(1, "1", editor="ann"), source="/elsewhere")) == "cancelled", "who asked by a message may take it back in SQL"


def test_the_run_is_told_whose_edit_it_was(shop):
    grant = held(shop, 1, ttl=300)
    shop.await_lapse("s1")
    assert shop.outcomes(edit(1, {"rate": "60"}, {"rate": "70"}, editor="ann")) == "applied"
    shop.query("UPDATE public.contract SET payee = 'x' WHERE id = 1")
    answer = shop.decide(grant.says("finish"))
    changes = shop.value("SELECT basis -> 'changes' FROM lease.timeline WHERE number = %s", (answer.number,))
    assert [change["by"] for change in changes] == ["ann", shop.value("SELECT session_user")]
    shop.commit()


def test_an_edit_is_answered_under_the_kind_that_it_was_asked_under(shop):
    shop.query("INSERT INTO lease.kind (kind, mode, ttl_ms, ttl_max_ms, summary) VALUES ('tariff', 'edit', 86400000, 86400000, 'others'); UPDATE lease.kind SET kind = 'terms' WHERE kind = 'contract'")
    grant = held(shop, 1)
    message = dict(edit(1, {"rate": "60"}, {"rate": "70"}), kind="terms")
    assert shop.outcomes(message) == "parked"
    asked = shop.value(ASKING, ("contract/2", '{"rate": "60"}', '{"rate": "70"}', None))
    shop.decide(grant.says("finish"))
    assert serve(shop) == (2, 2)
    assert shop.query("SELECT kind, event FROM lease.timeline WHERE message_id IN (%s, %s) ORDER BY number", (message["id"], asked)) == [("terms", "parked"), ("terms", "applied"), ("tariff", "applied")]
    shop.commit()
