# ctest: LABEL sql TIMEOUT 60
"""Runs over rows of guarded tables, through lease.apply: all rows are stamped or none, nobody is waited for, whatever a user's table
objects to is the answer of that one start, and a finish tells what became of the rows."""
import time

import psycopg2
import pytest
from rules import STATEMENT_MS, Meanwhile, command, eventually, resolve, start

AT_ONCE = STATEMENT_MS / 1000 / 2      # who waits for somebody waits until the statement's time is over

RATES = """
  CREATE SCHEMA shop;
  CREATE TABLE shop.contract (id bigint PRIMARY KEY, rate numeric NOT NULL, note text);
  CREATE TABLE shop.track (album int, no int, rate numeric NOT NULL, PRIMARY KEY (album, no));
  INSERT INTO shop.contract SELECT i, 70, 'n' FROM generate_series(1, 20) i;
  INSERT INTO shop.track SELECT 1, i, 70 FROM generate_series(1, 5) i;
  SELECT lease.guard_table('shop.contract', 'contract', ARRAY['rate']);
  SELECT lease.guard_table('shop.track', 'track', ARRAY['rate']);
"""


@pytest.fixture(name="shop")
def fixture_shop(lane):
    """A lane on a database with two guarded tables."""
    lane.query(RATES)
    lane.commit()
    return lane


def contracts(*ids):
    return [f"contract/{number}" for number in ids]


def stamps(lane, table="shop.contract"):
    found = dict(lane.query(f"SELECT ctid::text, lease_fence FROM {table} WHERE lease_fence IS NOT NULL"))
    lane.commit()
    return list(found.values())


def result_of(lane, answer):
    """The members of a result that only the journal has."""
    row = lane.query("SELECT basis, reason, field, blocker FROM lease.timeline WHERE number = %s", (answer.number,))[0]
    lane.commit()
    return dict(zip(("basis", "reason", "field", "blocker"), row))


def edit(lane, number, rate):
    lane.query("UPDATE shop.contract SET rate = %s WHERE id = %s", (rate, number))
    lane.commit()


def test_a_start_stamps_all_its_rows_with_one_fence(shop):
    grant = shop.grant_of(start("s1", resources=contracts(1, 2, 3) + ["track/1:4", "elsewhere/x"]))
    assert stamps(shop) == [grant.fence] * 3
    assert stamps(shop, "shop.track") == [grant.fence]
    assert shop.query("SELECT resource, fence FROM lease.resource") == [("elsewhere/x", grant.fence)]
    shop.commit()
    assert shop.lease("settlement", "s1")["resources_covered"] == 5


def test_what_a_start_names_twice_counts_once(shop):
    twice = contracts(1, 2, 1) + ["track/1:4", "elsewhere/x", "track/1:4", "elsewhere/x"]
    grant = shop.grant_of(start("s1", resources=twice))
    assert len(stamps(shop)) == 2 and stamps(shop, "shop.track") == [grant.fence]
    assert shop.lease("settlement", "s1")["resources_covered"] == 4
    other = shop.decide(start("s2", resources=contracts(2, 2)))
    assert (other.outcome, result_of(shop, other)["blocker"]["resource"]) == ("held", "contract/2")


def test_a_second_start_is_told_who_holds_which_row(shop):
    grant = shop.grant_of(start("s1", resources=contracts(1, 2, 3)))
    answer = shop.decide(start("s2", holder="h2", resources=contracts(3, 4)))
    assert answer.outcome == "held"
    assert result_of(shop, answer)["blocker"].items() >= {"lease": "s1", "holder": "h1", "fence": grant.fence, "resource": "contract/3"}.items()
    assert stamps(shop) == [grant.fence] * 3, "all or none"


def test_a_dead_stamp_is_passed_over_and_a_lapsed_lease_is_overtaken(shop):
    first = shop.grant_of(start("s1", resources=contracts(1, 2)))
    assert shop.outcomes(first.says("finish")) == "finished"
    second = shop.grant_of(start("s2", resources=contracts(2, 3), ttl=1))
    shop.await_lapse("s2")
    third = shop.grant_of(start("s3", holder="h3", resources=contracts(1, 2, 3)))
    assert stamps(shop) == [third.fence] * 3
    assert shop.outcomes(second.says("finish")) == "stale"


def test_covers_add_rows_under_the_same_fence(shop):
    grant = shop.grant_of(start("s1", more=True, tables=["contract"]))
    assert shop.outcomes(grant.says("cover", resources=contracts(1, 2)), grant.says("cover", resources=contracts(2, 3))) == ["covered", "covered"]
    assert stamps(shop) == [grant.fence] * 3
    answer = shop.decide(start("s2", holder="h2", more=True, tables=["contract"]))
    assert answer.outcome == "held" and result_of(shop, answer)["blocker"]["resource"] == "contract/*"
    assert shop.outcomes(grant.says("begin", amount=3)) == "granted"
    assert result_of(shop, shop.decide(grant.says("finish")))["basis"] == {"basis": "unchanged"}


@pytest.mark.parametrize("name", ["contract/99", "contract/none", "contract/99999999999999999999", "track/1", "track/1:2:3", "track/1:x"])
def test_a_row_that_is_not_there_is_unknown_and_the_rest_of_the_batch_goes_on(shop, name):
    one, two, three = shop.decide(start("s1", resources=contracts(1)), start("s2", resources=contracts(2) + [name]), start("s3", resources=contracts(3)))
    assert (one.outcome, two.outcome, three.outcome) == ("granted", "unknown", "granted")
    assert sorted(stamps(shop)) == [one.fence, three.fence]
    assert result_of(shop, two)["field"] == "resources"
    assert shop.lease("settlement", "s2") is None


def test_a_cover_of_a_contract_that_was_deleted_is_unknown_and_covers_nothing(shop):
    grant = shop.grant_of(start("s1", resources=contracts(1), more=True))
    shop.query("DELETE FROM shop.contract WHERE id = 3")
    shop.commit()
    refused, taken = shop.apply(grant.says("cover", resources=contracts(2, 3)), grant.says("cover", resources=contracts(4)))
    shop.commit()
    assert (refused.outcome, taken.outcome) == ("unknown", "covered")
    assert result_of(shop, refused)["field"] == "resources"
    assert stamps(shop) == [grant.fence] * 2, "contracts 1 and 4"


ALIASES = {"numeric(10,0)": ("7", "7.0"), "float8": ("0", "-0"), "text COLLATE caseless": ("abc", "ABC")}


@pytest.mark.parametrize("key", ALIASES)
def test_a_row_is_covered_under_the_name_that_it_has_and_under_no_other(shop, key):
    """Values that are equal may be spelled in several ways; a line, a journal and parked edits know a row by its name."""
    own, other = ALIASES[key]
    shop.query("CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    shop.query(f"CREATE TABLE shop.odd (id {key} PRIMARY KEY, rate int); INSERT INTO shop.odd VALUES ('{own}', 1); SELECT lease.guard_table('shop.odd', 'odd', ARRAY['rate'])")
    shop.commit()
    answer = shop.decide(start("s1", resources=[f"odd/{other}"]))
    assert (answer.outcome, result_of(shop, answer)["blocker"], stamps(shop, "shop.odd")) == ("unknown", {"resource": f"odd/{other}"}, [])
    assert shop.outcomes(start("s1", resources=[f"odd/{own}", f"odd/{other}"])) == "unknown"
    grant = shop.grant_of(start("s1", resources=[f"odd/{own}"]))
    assert stamps(shop, "shop.odd") == [grant.fence]


def test_the_first_fence_of_all_is_no_stamp_that_anybody_sets(shop):
    shop.query("ALTER SEQUENCE lease.fence RESTART")
    with pytest.raises(psycopg2.Error) as caught:
        shop.query("INSERT INTO shop.contract (id, rate, lease_fence) VALUES (100, 70, 1)")
    assert caught.value.pgcode == "LE013"


def test_a_name_that_is_no_key_hides_no_stamp_of_the_batch(shop):
    grant = shop.grant_of(start("s1", resources=contracts(1)))
    outcomes = shop.outcomes(start("s2", holder="h2", resources=["contract/none"]), start("s3", holder="h3", resources=contracts(1)))
    assert outcomes == ["unknown", "held"] and stamps(shop) == [grant.fence]


def test_a_row_that_somebody_edits_makes_the_start_busy_at_once(shop, new_lane):
    editor = new_lane()
    editor.query("UPDATE shop.contract SET note = 'x' WHERE id = 2")
    begun = time.monotonic()
    one, two = shop.decide(start("s1", resources=contracts(1, 2)), start("s2", resources=contracts(3)))
    assert (one.outcome, two.outcome) == ("busy", "granted") and time.monotonic() - begun < AT_ONCE
    editor.commit()
    assert shop.outcomes(start("s1", resources=contracts(1, 2))) == "granted"


def test_F28_a_table_that_somebody_alters_makes_its_starts_busy_and_nobody_waits(shop, new_lane):
    dead = shop.grant_of(start("s0", resources=contracts(1)))
    shop.decide(dead.says("finish"))
    owner = new_lane()
    owner.query("LOCK TABLE shop.contract IN ACCESS EXCLUSIVE MODE")
    begun = time.monotonic()
    assert shop.outcomes(start("s1", resources=contracts(1)), start("s2", resources=["track/1:1"])) == ["busy", "granted"]
    assert time.monotonic() - begun < AT_ONCE
    owner.rollback()
    assert shop.outcomes(start("s1", resources=contracts(1))) == "granted"


# What a user's table may do while it is stamped.
OBJECTIONS = {
    "raises": ("RAISE EXCEPTION 'no';", "BEFORE UPDATE ON shop.contract FOR EACH ROW", "busy", "stamp_refused"),
    "raises_late": ("RAISE EXCEPTION 'no';", "AFTER UPDATE ON shop.contract DEFERRABLE INITIALLY DEFERRED FOR EACH ROW", "busy", "stamp_refused"),
    "swallows": ("RETURN NULL;", "BEFORE UPDATE ON shop.contract FOR EACH ROW", "busy", None),
}


@pytest.mark.parametrize("name", sorted(OBJECTIONS))
def test_F37_what_a_users_trigger_objects_to_is_the_answer_of_that_start(shop, name):
    body, when, outcome, reason = OBJECTIONS[name]
    shop.query(f"CREATE FUNCTION shop.object() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 2 THEN {body} END IF; RETURN NEW; END $$")
    constraint = "CONSTRAINT" if "DEFERRED" in when else ""
    shop.query(f"CREATE {constraint} TRIGGER a_object {when} EXECUTE FUNCTION shop.object()")
    shop.commit()
    one, two = shop.decide(start("s1", resources=contracts(1, 2)), start("s2", resources=contracts(3)))
    assert (one.outcome, two.outcome) == (outcome, "granted")
    assert result_of(shop, one)["reason"] == reason
    assert stamps(shop) == [two.fence]


@pytest.mark.parametrize("code", ["XX000", "XX001", "57014", "57P01", "53100", "53200", "53400", "58030", "08006", "P0004", "LE001", "LE007", "LE013"])
def test_F37_no_error_of_a_users_table_is_more_than_the_answer_of_one_start(shop, code):
    """Whatever it is called: passed on, it would end the coordinator, or be tried again for ever."""
    body = "ASSERT NEW.rate < 5" if code == "P0004" else f"RAISE EXCEPTION 'no' USING ERRCODE = '{code}'"
    shop.query(f"CREATE FUNCTION shop.object() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; END $$; "
               "CREATE TRIGGER a_object AFTER UPDATE ON shop.contract FOR EACH ROW EXECUTE FUNCTION shop.object()")
    shop.commit()
    one, two = shop.decide(start("s1", resources=contracts(1, 2)), start("s2", resources=["track/1:1"]))
    assert (one.outcome, result_of(shop, one)["reason"], two.outcome) == ("busy", "stamp_refused", "granted")


def test_F37_a_trigger_that_takes_longer_than_a_statement_may_is_the_answer_of_its_start(shop):
    shop.query("CREATE FUNCTION shop.sleep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(40); RETURN NULL; END $$; "
               "CREATE TRIGGER a_sleep AFTER UPDATE ON shop.contract FOR EACH ROW EXECUTE FUNCTION shop.sleep()")
    shop.commit()
    shop.query("SET LOCAL statement_timeout = 3000")
    begun = time.monotonic()
    one, two, three = shop.decide(start("s1", resources=contracts(1)), start("s2", resources=contracts(2)), start("s3", resources=["elsewhere/x"]))
    assert (one.outcome, result_of(shop, one)["reason"], two.outcome, three.outcome) == ("busy", "stamp_refused", "busy", "granted")
    assert time.monotonic() - begun < 30, "the server ends one slow trigger in a statement: the second one may not begin"


def test_a_table_that_raises_our_own_codes_is_not_believed(shop):
    """The name of a row that is not there goes into the answer: a stranger's text, of any length, may not."""
    shop.query("CREATE FUNCTION shop.lies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'LE014', MESSAGE = repeat('x', 300000); END $$; "
               "CREATE TRIGGER a_lies AFTER UPDATE ON shop.contract FOR EACH ROW EXECUTE FUNCTION shop.lies()")
    shop.commit()
    answer = shop.decide(start("s1", resources=contracts(1)))
    assert (answer.outcome, result_of(shop, answer)["reason"], result_of(shop, answer)["blocker"]) == ("busy", "stamp_refused", None)
    assert shop.decide(start("s2", resources=["track/9:9"])).outcome == "unknown"


SETTINGS = {"search_path": "shop, pg_catalog", "synchronous_commit": "off", "statement_timeout": "1", "lock_timeout": "777", "transaction_read_only": "on", "DateStyle": "German"}


@pytest.mark.parametrize("setting", SETTINGS)
def test_F36_a_users_trigger_changes_no_setting_of_the_session(shop, database, new_lane, setting):
    """What is set without LOCAL outlives the SET clauses of all functions around it: the rest of the batch ran a stranger's functions as lease_owner."""
    coordinator = new_lane(database.login("lease_coordinator"))
    shop.query("CREATE TABLE shop.who (who text); GRANT USAGE ON SCHEMA shop TO PUBLIC; GRANT INSERT ON shop.who TO PUBLIC; "
               "CREATE FUNCTION shop.cardinality(text[]) RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO shop.who VALUES (current_user); RETURN pg_catalog.cardinality($1); END $$; "
               f"CREATE FUNCTION shop.sets() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.set_config('{setting}', '{SETTINGS[setting]}', false); RETURN NULL; END $$; "
               "CREATE TRIGGER sets AFTER UPDATE ON shop.contract FOR EACH ROW EXECUTE FUNCTION shop.sets()")
    shop.commit()
    before = coordinator.value(f"SHOW {setting}")
    one, two = coordinator.decide(start("s1", resources=contracts(1)), start("s2", resources=["track/1:1"]))
    assert (one.outcome, two.outcome) == ("busy", "granted")
    assert coordinator.value(f"SHOW {setting}") == before
    assert (result_of(shop, one)["reason"], shop.query("SELECT who FROM shop.who")) == ("stamp_refused", [])


def test_a_finish_says_that_nobody_touched_the_rows(shop):
    grant = shop.grant_of(start("s1", resources=contracts(1, 2)))
    answer = shop.decide(grant.says("finish"))
    assert answer.outcome == "finished" and result_of(shop, answer)["basis"] == {"basis": "unchanged"}


def test_S7_a_late_finish_says_what_was_edited_after_the_lapse(shop):
    grant = shop.grant_of(start("s1", resources=contracts(1, 2), ttl=30))
    shop.await_lapse("s1")
    edit(shop, 1, 60)
    edit(shop, 2, 65)
    answer = shop.decide(grant.says("finish"))
    assert answer.outcome == "finished"
    basis = result_of(shop, answer)["basis"]
    assert (basis["basis"], basis["edits"]) == ("changed", 2)
    assert [(change["resource"], change["old"], change["new"]) for change in basis["changes"]] == [
        ("contract/1", {"id": "1", "rate": "70"}, {"id": "1", "rate": "60"}), ("contract/2", {"id": "2", "rate": "70"}, {"id": "2", "rate": "65"})]
    assert all(change["by"] and change["at"].endswith("Z") for change in basis["changes"])


def test_an_operator_who_says_that_a_silent_run_was_done_is_told_what_became_of_its_rows(shop):
    grant = shop.grant_of(start("s1", resources=contracts(1), ttl=1))
    eventually(lambda: shop.reap()[0] == 1, what="a lapse")
    edit(shop, 1, 60)
    answer = shop.decide(resolve("settlement", "s1", "done", fence=grant.fence))
    assert answer.outcome == "finished" and result_of(shop, answer)["basis"]["edits"] == 1


def test_edits_told_are_bounded_and_all_are_counted(shop):
    shop.query("INSERT INTO shop.contract SELECT i, 70, 'n' FROM generate_series(100, 300) i")
    grant = shop.grant_of(start("s1", resources=contracts(*range(100, 301)), ttl=50))
    shop.await_lapse("s1")
    shop.query("UPDATE shop.contract SET rate = 1 WHERE id >= 100")
    shop.commit()
    basis = result_of(shop, shop.decide(grant.says("finish")))["basis"]
    assert basis["edits"] == 201 and len(basis["changes"]) == 100


def test_a_run_that_covers_no_guarded_row_says_nothing_of_them(shop):
    grant = shop.grant_of(start("s1", resources=["elsewhere/x"]))
    assert result_of(shop, shop.decide(grant.says("finish")))["basis"] is None


def test_the_same_run_started_again_is_judged_by_its_new_grant(shop):
    first = shop.grant_of(start("s1", resources=contracts(1), ttl=20))
    shop.await_lapse("s1")
    edit(shop, 1, 60)
    second = shop.grant_of(start("s1", holder="h2", resources=contracts(1, 2)))
    assert second.fence > first.fence and stamps(shop) == [second.fence] * 2
    assert result_of(shop, shop.decide(second.says("finish")))["basis"] == {"basis": "unchanged"}


def test_start_and_finish_in_one_batch_agree_about_the_rows(shop):
    """What the start found is not in the table yet when the finish looks."""
    grant = shop.grant_of(start("s1", resources=["elsewhere/x"], ttl=20))
    shop.await_lapse("s1")
    started = shop.apply(start("s1", resources=contracts(1)))
    answer = shop.apply(command("settlement", "finish", "s1", holder="h1", fence=started.fence, claim_id=started.claim_id, token_fits=True))
    shop.commit()
    assert answer.outcome == "finished" and result_of(shop, answer)["basis"] == {"basis": "unchanged"}
    assert grant.fence < started.fence


# ---- the cases that made somebody ask for all this ----

def is_refused(lane, number):
    try:
        edit(lane, number, 1)
        return False
    except psycopg2.Error as error:
        assert error.pgcode == "LE010", error
        lane.rollback()
        return True


def test_S7_a_run_renewed_for_more_than_ten_times_its_ttl_is_never_open(shop, new_lane):
    """A flag with an expiry of its own would have opened after the first ttl; one without would never have opened. (A run that lapses since the
    machine stood still for a whole ttl shows nothing: then another one.)"""
    editor, ttl = new_lane(), 0.3

    def is_never_open(run, row):
        begun = said = time.monotonic()
        grant = shop.grant_of(start(run, resources=contracts(row), ttl=int(ttl * 1000)))
        while time.monotonic() - begun < 11 * ttl:
            before, said = said, time.monotonic()
            outcome = shop.outcomes(grant.says("renew"))
            if time.monotonic() - before > ttl and outcome == "lapsed":
                return None
            assert outcome == "renewed"
            if not is_refused(editor, row):
                assert time.monotonic() - said > ttl, "it was open"
                return None
        return grant

    tries = (is_never_open(f"s{row}", row) for row in range(1, 10))
    row, grant = next((row, grant) for row, grant in enumerate(tries, 1) if grant)
    assert shop.outcomes(grant.says("finish")) == "finished"
    assert not is_refused(editor, row), "and at its end at once"


def test_S8_a_late_release_frees_nothing_of_who_has_it_now(shop, new_lane):
    """Run A's time passes, run B takes over, A wakes up and lets go: B must stay guarded."""
    late = shop.grant_of(start("a", holder="a", resources=contracts(1, 2), ttl=1))
    shop.await_lapse("a")
    now = shop.grant_of(start("b", holder="b", resources=contracts(1, 2)))
    assert shop.outcomes(late.says("release")) == "lapsed"
    assert stamps(shop) == [now.fence] * 2 and is_refused(new_lane(), 1)
    # The same for a run that was started anew under its own name.
    again = shop.grant_of(start("c", holder="a", resources=contracts(3), ttl=1))
    shop.await_lapse("c")
    newer = shop.grant_of(start("c", holder="b", resources=contracts(3)))
    assert shop.outcomes(again.says("release"), again.says("finish")) == ["stale", "stale"]
    assert newer.fence in stamps(shop) and is_refused(new_lane(), 3)


def test_S9_of_two_starts_at_once_one_is_granted_and_the_other_told_who_has_it(shop, new_lane):
    for number in range(10):
        lanes = new_lane(), new_lane()
        tries = [Meanwhile(lane.decide, start(f"{name}-{number}", holder=name, resources=contracts(1))) for lane, name in zip(lanes, "ab")]
        outcomes = [one.end().outcome for one in tries]
        assert outcomes.count("granted") == 1 and set(outcomes) <= {"granted", "held", "busy"}, outcomes
        winner, loser = ("a", "b") if outcomes[0] == "granted" else ("b", "a")
        told = shop.decide(start(f"{loser}-{number}", holder=loser, resources=contracts(1)))
        assert told.outcome == "held" and result_of(shop, told)["blocker"]["lease"] == f"{winner}-{number}"
        row = shop.lease("settlement", f"{winner}-{number}")
        shop.decide(command("settlement", "finish", f"{winner}-{number}", holder=winner, fence=row["fence"], claim_id=row["claim_id"], token_fits=True))
