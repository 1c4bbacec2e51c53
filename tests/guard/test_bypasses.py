# ctest: LABEL guard TIMEOUT 240
"""Ways around a guard that were tried, and what stands in each: rows that nobody can change behind a lease's back, stamps that
nobody forges, strangers whose code gets no rights of ours, and starts that wait for nobody. The facts are in tests/README.md.
"""
import time

import psycopg2
import pytest

import contracts
from contracts import code_of, edit, run_over

PATIENCE = 10       # far more than a start may wait, far less than a lock that is never given up: that one ends after a minute


def trigger(lane, body, when="BEFORE UPDATE", name="zzz", table="album_contract", options=""):
    lane.query(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$; "
               f"CREATE {'CONSTRAINT ' if options else ''}TRIGGER {name} {when} ON {table} {options} FOR EACH ROW EXECUTE FUNCTION {name}()")
    lane.commit()


# --- F10 -------------------------------------------------------------------------------------------------------------

def test_F10_a_temporary_table_shadows_nothing(lane, editor):
    """The editor's own "lease", "guarded", operators and functions stand first in his search_path."""
    run_over(lane, "r1", "album-contract/1")
    # With these, whoever asks would be lease_stamper himself.
    for kind in ("name", "int"):
        lane.query(f"CREATE FUNCTION public.alike({kind}, {kind}) RETURNS boolean LANGUAGE sql AS 'SELECT true'; "
                   f"CREATE OPERATOR public.= (LEFTARG = {kind}, RIGHTARG = {kind}, FUNCTION = public.alike)")
    lane.query(f"GRANT TEMP ON DATABASE {lane.value('SELECT current_database()')} TO PUBLIC")
    lane.commit()
    editor.query("CREATE TEMP TABLE lease (kind text, lease text, state text, fence bigint, lease_until timestamptz, claim_id uuid, overtaken boolean); "
                 "CREATE TEMP TABLE guarded (type text, relation regclass); CREATE TEMP TABLE admitted_edit (fence bigint); "
                 "CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2200-01-01'::timestamptz $$; "
                 "CREATE FUNCTION pg_temp.pg_trigger_depth() RETURNS int LANGUAGE sql AS $$ SELECT 0 $$; "
                 "CREATE TEMP TABLE album_contract (id int, rate numeric)")
    editor.query("SET search_path = pg_temp, public, lease, pg_catalog")
    assert edit(editor, "UPDATE public.album_contract SET rate = 60 WHERE id OPERATOR(pg_catalog.=) 1") == "LE010"
    assert edit(editor, "UPDATE public.album_contract SET lease_fence = 99 WHERE id OPERATOR(pg_catalog.=) 2") == "LE013"


def test_F10_the_guard_is_always_on_for_new_partitions_too(lane):
    lane.query("CREATE TABLE track_contract_us PARTITION OF track_contract FOR VALUES IN ('us'); INSERT INTO track_contract VALUES ('us', 1, 70)")
    assert lane.query("SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'track_contract_us'::regclass ORDER BY 1") == [
        ("lease_guard_columns", "D"), *((f"lease_guard_{name}", "A") for name in ("delete", "edit", "insert"))]


def test_F10_every_function_of_the_guard_with_rights_of_ours_pins_its_search_path(lane):
    loose = lane.query("SELECT oid::regprocedure::text FROM pg_proc WHERE prosecdef AND pronamespace::regnamespace::text IN ('lease', 'lease_stamp') "
                       "AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)")
    assert loose == []
    assert lane.value("SELECT count(*) FROM pg_proc WHERE pronamespace = 'lease_stamp'::regnamespace AND prosecdef AND proowner = 'lease_stamper'::regrole") == 10


# --- F27 -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_F27_a_before_trigger_that_changes_a_guarded_column_is_seen(lane, editor, name):
    """Whatever it is called: it may sort before ours or behind."""
    trigger(lane, "IF OLD.note <> NEW.note THEN NEW.rate := 1; END IF; RETURN NEW;", name=name)
    run_over(lane, "r1", "album-contract/1")
    assert edit(editor, "UPDATE album_contract SET note = 'x' WHERE id = 1") == "LE010"
    assert edit(editor, "UPDATE album_contract SET note = 'x' WHERE id = 2") is None


def test_F27_a_trigger_that_skips_the_stamp_makes_no_lease_over_the_row(lane):
    trigger(lane, "RETURN CASE WHEN NEW.id = 1 THEN NULL ELSE NEW END;")
    assert run_over(lane, "r1", "album-contract/1", "album-contract/2") is None
    assert run_over(lane, "r1", "album-contract/2")


@pytest.mark.parametrize("stamp", ["NULL", "OLD.lease_fence", "7"])
def test_F27_a_trigger_that_changes_the_stamp_makes_no_lease_over_the_row(lane, stamp):
    trigger(lane, f"NEW.lease_fence := {stamp}; RETURN NEW;")
    assert run_over(lane, "r1", "album-contract/1") is None


@pytest.mark.parametrize("stamp", ["NULL", "7", "NEW.lease_fence + 1"])
def test_F27_a_trigger_that_changes_the_stamp_of_a_covered_row_is_seen(lane, editor, stamp):
    """By a statement that does not name it."""
    run_over(lane, "r1", "album-contract/1")
    trigger(lane, f"NEW.lease_fence := {stamp}; RETURN NEW;")
    assert edit(editor, "UPDATE album_contract SET note = 'x' WHERE id = 1") == "LE010"


def test_F27_a_trigger_that_stamps_a_row_that_nothing_covers_is_seen(lane, editor):
    """By a statement that does not name the stamp; the lease that comes to this fence would cover the row."""
    trigger(lane, "NEW.lease_fence := 9007199254740991; RETURN NEW;")
    assert edit(editor, "UPDATE album_contract SET note = 'x' WHERE id = 1") == "LE013"
    assert edit(editor, "UPDATE track_contract SET note = 'x' WHERE id = 1") is None


def test_F27_a_stamp_that_is_taken_off_by_hand_leaves_the_row_guarded(lane, editor):
    grant = run_over(lane, "r1", "album-contract/1")
    assert edit(editor, "UPDATE album_contract SET lease_fence = NULL WHERE id = 1") == "LE010"
    assert edit(lane, "UPDATE album_contract SET lease_fence = NULL WHERE id = 1") == "LE010", "whoever asks"
    lane.decide(grant.says("finish"))
    assert edit(editor, "UPDATE album_contract SET lease_fence = NULL WHERE id = 1") is None


def test_F27_a_partition_that_is_taken_out_edited_and_put_back(lane):
    """Its owner may do that; no run covers its rows before the partition has its triggers again."""
    run_over(lane, "r1", "track-contract/kr:1")
    lane.query("ALTER TABLE track_contract DETACH PARTITION track_contract_kr")
    lane.commit()
    assert run_over(lane, "r2", "track-contract/kr:2") is None
    lane.rollback()
    lane.query("ALTER TABLE track_contract ATTACH PARTITION track_contract_kr FOR VALUES IN ('kr')")
    lane.commit()
    assert run_over(lane, "r2", "track-contract/kr:2")
    assert edit(lane, "UPDATE track_contract SET rate = 60 WHERE id = 1") == "LE010"


@pytest.mark.parametrize("altered", ["ALTER TABLE album_contract DISABLE TRIGGER lease_guard_edit", "ALTER TABLE album_contract DISABLE TRIGGER USER",
                                     "ALTER TABLE album_contract ENABLE TRIGGER lease_guard_stamper", "DROP TRIGGER lease_guard_truncate ON album_contract"])
def test_F27_no_run_covers_rows_of_a_table_whose_guard_is_not_in_place(lane, altered):
    grant = run_over(lane, "r1", "album-contract/1")
    lane.decide(grant.says("finish"))
    lane.query(altered)
    lane.commit()
    with pytest.raises(psycopg2.Error) as caught:
        lane.query("""SELECT lease_stamp."album-contract.stamp"(5, '{1}', NULL)""")
    assert caught.value.pgcode == "LE012" and "lease.repair_guard('album-contract')" in caught.value.diag.message_hint
    lane.rollback()
    lane.query("SELECT lease.repair_guard('album-contract')")
    lane.commit()
    assert run_over(lane, "r2", "album-contract/1")


# --- F28 -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("lock", ["LOCK TABLE album_contract IN SHARE MODE",      # what CREATE INDEX takes
                                  "LOCK TABLE album_contract IN ACCESS EXCLUSIVE MODE",
                                  "SELECT 1 FROM album_contract WHERE id = 1 FOR UPDATE",
                                  "SELECT 1 FROM album_contract WHERE id = 1 FOR NO KEY UPDATE",
                                  "SELECT 1 FROM album_contract WHERE id = 1 FOR SHARE"])
def test_F28_a_start_does_not_wait_for_a_strangers_lock(database, lane, connect, lock):
    stranger = connect(database)
    stranger.query(lock)
    begun = time.monotonic()
    assert run_over(lane, "r1", "album-contract/1") is None
    assert time.monotonic() - begun < PATIENCE
    stranger.rollback()
    assert run_over(lane, "r1", "album-contract/1")


def test_F28_a_start_is_not_kept_by_a_lock_that_only_guards_a_rows_key(database, lane, connect):
    """What inserting a row that refers to it takes."""
    stranger = connect(database)
    stranger.query("SELECT 1 FROM album_contract WHERE id = 1 FOR KEY SHARE")
    assert run_over(lane, "r1", "album-contract/1")


# --- F36 -------------------------------------------------------------------------------------------------------------

STRANGERS_WISHES = {
    "finish a lease": "UPDATE lease.lease SET state = 'finished', ended_at = now()",
    "call for a lease": "SELECT * FROM lease.reap(1)",
    "read the tables": "SELECT count(*) FROM lease.lease",
    "become the owner": "SET ROLE lease_owner",
    "change a guarded column": "UPDATE public.track_contract SET rate = 1",
    "record an edit": "INSERT INTO lease.admitted_edit VALUES (1, 'album-contract', '1', now(), 'me', NULL, NULL)",
    "make a function of ours its own": "CREATE OR REPLACE FUNCTION lease_stamp.\"album-contract.stamps\"(text[]) RETURNS bigint[] LANGUAGE sql AS 'SELECT NULL::bigint[]'",
    "take a stamp off": "UPDATE public.track_contract SET lease_fence = NULL WHERE lease_fence IS NOT NULL",
    "put a stamp on": "UPDATE public.track_contract SET lease_fence = 1 WHERE lease_fence IS NULL",
}


@pytest.mark.parametrize("wish", STRANGERS_WISHES)
def test_F36_a_trigger_that_a_stamp_fires_has_no_rights_of_ours(lane, wish):
    """It runs as lease_stamper, who may change stamps; but only where he does it himself."""
    run_over(lane, "r0", "track-contract/kr:1")
    lane.query("CREATE TABLE met (code text, who text); GRANT INSERT ON met TO PUBLIC; GRANT USAGE ON SCHEMA lease TO PUBLIC")
    trigger(lane, f"BEGIN EXECUTE $sql${STRANGERS_WISHES[wish]}$sql$; INSERT INTO public.met VALUES ('done', current_user); "
                  "EXCEPTION WHEN OTHERS THEN INSERT INTO public.met VALUES (SQLSTATE, current_user); END; RETURN NULL;", when="AFTER UPDATE")
    assert run_over(lane, "r1", "album-contract/1")
    refused = "LE013" if wish in ("take a stamp off", "put a stamp on") else "42501"
    assert lane.query("SELECT code, who FROM met") == [(refused, "lease_stamper")]
    assert lane.value("SELECT lease_fence FROM track_contract WHERE id = 1") is not None


# What has no trigger's depth: it runs in the middle of the stamp itself, as lease_stamper.
AT_NO_DEPTH = {"a check": "ALTER TABLE album_contract ADD CHECK (does(id))",
               "an expression that is indexed": "CREATE INDEX ON album_contract ((does(id + lease_fence)))",
               "a generated column": "ALTER TABLE album_contract ADD COLUMN done boolean GENERATED ALWAYS AS (does(id + lease_fence)) STORED"}
WISHES_AT_NO_DEPTH = {"take a stamp off": ("UPDATE track_contract SET lease_fence = NULL", "LE013"), "put one on": ("UPDATE track_contract SET lease_fence = 7 WHERE id = 2", "LE013"),
                      "of a partition": ("UPDATE track_contract_kr SET lease_fence = NULL", "42501"), "edit through a view": ("UPDATE track_rate SET rate = 60 WHERE id = 1", "LE010"),
                      "take a stamp off through a view": ("UPDATE track_rate SET lease_fence = NULL", "LE013")}


@pytest.mark.parametrize("way, wish", [(way, "take a stamp off") for way in AT_NO_DEPTH] + [("a check", wish) for wish in list(WISHES_AT_NO_DEPTH)[1:]])
def test_F36_a_check_or_an_expression_of_another_table_stamps_nothing(lane, way, wish):
    """The guard took lease_stamper's updates for a start's, unless a trigger made them."""
    sql, refused = WISHES_AT_NO_DEPTH[wish]
    lane.query("CREATE TABLE met (code text); GRANT INSERT ON met TO PUBLIC; CREATE VIEW track_rate AS SELECT * FROM track_contract; GRANT ALL ON track_rate TO PUBLIC; "
               "CREATE FUNCTION does(bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN IF current_user = 'lease_stamper' THEN PERFORM public.tries(); END IF; RETURN true; END $$; "
               f"CREATE FUNCTION tries() RETURNS void LANGUAGE plpgsql SET search_path = public AS $$ BEGIN {sql}; INSERT INTO public.met VALUES ('done'); "
               f"EXCEPTION WHEN OTHERS THEN INSERT INTO public.met VALUES (SQLSTATE); END $$; {AT_NO_DEPTH[way]}")
    grant = run_over(lane, "r0", "track-contract/kr:1")
    run_over(lane, "r1", "album-contract/1")
    assert lane.query("SELECT DISTINCT code FROM met") == [(refused,)]
    assert lane.query("SELECT id, lease_fence, rate FROM track_contract WHERE lease_fence IS NOT NULL") == [(1, grant.fence, 70)]


def test_F36_who_takes_the_stampers_role_stamps_nothing(lane):
    run_over(lane, "r1", "album-contract/1")
    for sql in ("UPDATE album_contract SET lease_fence = NULL", "UPDATE album_contract SET lease_fence = 7 WHERE id = 2",
                "SELECT set_config('lease.stamping', 'any', true); UPDATE album_contract SET lease_fence = NULL", """SELECT lease_stamp."album-contract.stamp"(7, '{2}', NULL)"""):
        assert edit(lane, "SET LOCAL ROLE lease_stamper; " + sql) == "LE013"


def test_F36_a_stamping_function_that_its_owners_rights_were_taken_from_stamps_nothing(lane):
    """The one thing that a trigger with the stamper's rights can do to it: it would run as lease.apply's owner from then on."""
    trigger(lane, """EXECUTE 'ALTER FUNCTION lease_stamp."album-contract.stamp" SECURITY INVOKER'; RETURN NULL;""", when="AFTER UPDATE")
    assert run_over(lane, "r1", "album-contract/1")
    lane.query("GRANT UPDATE ON album_contract TO lease_owner; SET ROLE lease_owner")
    assert code_of(lane, """SELECT lease_stamp."album-contract.stamp"(9, '{2}', NULL)""") == "LE012"
    lane.rollback()
    assert ("function_altered",) in lane.query("SELECT code FROM lease.guard_findings")


@pytest.mark.parametrize("function", ["stamps", "stamp"])
def test_F36_none_of_these_functions_runs_a_type_of_the_key_as_its_caller(lane, function):
    """The check of a domain is a stranger's code, and runs as soon as an id is given that type."""
    lane.query("CREATE TABLE who (who text); GRANT INSERT ON who TO PUBLIC; "
               "CREATE FUNCTION looks(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.who VALUES (current_user); RETURN true; END $$; "
               "CREATE DOMAIN number AS int CHECK (looks(VALUE)); CREATE TABLE checked (id number PRIMARY KEY, rate int); INSERT INTO checked VALUES (1, 1); "
               "SELECT lease.guard_table('checked', 'checked', '{rate}'); GRANT ALL ON checked TO PUBLIC; DELETE FROM who")
    # As a trigger could, that a stamp fires; with a search_path in which the comparisons are its own.
    lane.query(f"""ALTER FUNCTION lease_stamp."checked.{function}" SECURITY INVOKER; ALTER FUNCTION lease_stamp."checked.{function}" SET search_path = public, pg_catalog;
               CREATE FUNCTION public.alike(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT false'; CREATE OPERATOR public.<> (LEFTARG = name, RIGHTARG = name, FUNCTION = public.alike)""")
    lane.commit()
    run_over(lane, "r1", "checked/1", "checked/2")
    run_over(lane, "r2", "checked/1")
    assert lane.query("SELECT DISTINCT who FROM who WHERE who = 'lease_owner'") == []


def test_F36_a_cast_that_a_stranger_made_is_never_run_by_the_guard(lane, editor):
    """Ids and old values become text without it: a cast would run with the rights of lease_owner."""
    lane.query("CREATE TYPE colour AS ENUM ('red', 'blue'); CREATE TABLE painted (id colour PRIMARY KEY, shade colour); CREATE TABLE who (who text); "
               "INSERT INTO painted VALUES ('red', 'red'); GRANT ALL ON painted, who TO PUBLIC")
    for target in ("text", "json"):
        lane.query(f"CREATE FUNCTION to_{target}(colour) RETURNS {target} LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.who VALUES (current_user); RETURN '1'; END $$; "
                   f"CREATE CAST (colour AS {target}) WITH FUNCTION to_{target}(colour)")
    lane.query("SELECT lease.guard_table('painted', 'painted', '{shade}')")
    lane.commit()
    grant = run_over(lane, "r1", "painted/red")
    with pytest.raises(psycopg2.Error) as caught:
        editor.query("UPDATE painted SET shade = 'blue'")
    editor.rollback()
    assert "id red;" in caught.value.diag.message_detail
    lane.decide(grant.says("release"))
    contracts.pass_by(lane, run_over(lane, "r2", "painted/red", ttl=50))
    assert edit(editor, "UPDATE painted SET shade = 'blue'") is None
    assert lane.query("SELECT id, old, new FROM lease.admitted_edit") == [("red", {"id": "red", "shade": "red"}, {"id": "red", "shade": "blue"})]
    assert lane.query("SELECT DISTINCT who FROM who WHERE who = 'lease_owner'") == []


@pytest.mark.parametrize("temporary", [False, True])
def test_F36_a_cast_to_the_type_of_a_stamp_is_never_run_by_the_guard(bare, lane, connect, temporary):
    """Anybody can put the guard's trigger on a table of his own, with a column lease_fence of a type of his own; and so can a trigger that a stamp fires."""
    person = connect(bare, bare.login("lease_asker"))
    name = person.value("SELECT current_user")
    person.commit()
    lane.query(f'CREATE SCHEMA s AUTHORIZATION "{name}"; GRANT USAGE ON SCHEMA s TO PUBLIC; GRANT TEMP ON DATABASE {bare.name} TO PUBLIC')
    lane.commit()
    schema = "pg_temp" if temporary else "s"
    person.query(f"""CREATE TYPE {schema}.evil AS ENUM ('x'); CREATE TABLE s.who (who text); GRANT ALL ON s.who TO PUBLIC;
        CREATE FUNCTION {schema}.number(v {schema}.evil) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN INSERT INTO s.who VALUES (current_user); RETURN 1; END $$;
        CREATE CAST ({schema}.evil AS bigint) WITH FUNCTION {schema}.number({schema}.evil) AS ASSIGNMENT;
        CREATE TABLE {schema}.mine (id int PRIMARY KEY, lease_fence {schema}.evil); INSERT INTO {schema}.mine VALUES (1, 'x');
        CREATE TRIGGER g AFTER INSERT OR UPDATE OR DELETE ON {schema}.mine FOR EACH ROW EXECUTE FUNCTION lease.guard_row()""")
    person.commit()
    for sql in ("INSERT INTO {}.mine VALUES (2, 'x')", "UPDATE {}.mine SET id = 3", "DELETE FROM {}.mine"):
        assert edit(person, sql.format(schema)) == "LE012"
    assert person.query("SELECT who FROM s.who") == []
    person.close()
    lane.query(f'DROP OWNED BY "{name}" CASCADE')
    lane.commit()


def test_F36_a_table_that_is_not_registered_tells_no_run_of_edits(lane, editor):
    """Anybody can put the guard's trigger on a table of his own, and stamp its rows with somebody's fence."""
    grant = run_over(lane, "r1", "album-contract/1", ttl=50)
    contracts.pass_by(lane, grant)
    lane.query(f"CREATE TABLE fake (id int PRIMARY KEY, lease_fence bigint); INSERT INTO fake VALUES (1, {grant.fence}); "
               "CREATE TRIGGER t AFTER UPDATE OR DELETE ON fake FOR EACH ROW EXECUTE FUNCTION lease.guard_row()")
    lane.commit()
    assert edit(lane, "DELETE FROM fake") is None
    assert lane.value("SELECT count(*) FROM lease.admitted_edit") == 0


# --- F37 -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("sets_back", [False, True])
def test_F37_a_deferred_trigger_fails_inside_of_the_start_and_not_at_its_commit(lane, sets_back):
    """Also one that another trigger defers again."""
    trigger(lane, "RAISE EXCEPTION 'I object, as %', current_user USING ERRCODE = 'P0042'; ", when="AFTER UPDATE", name="objector",
            options="DEFERRABLE INITIALLY DEFERRED")
    if sets_back:
        trigger(lane, "SET CONSTRAINTS ALL DEFERRED; RETURN NEW;", name="sets_back")
    lane.query("SAVEPOINT start; SELECT set_config('lease.stamping', lease.stamping_token('album_contract'::regclass), true)")
    with pytest.raises(psycopg2.Error) as caught:
        lane.query("""SELECT lease_stamp."album-contract.stamp"(9007199254740990, '{1}', NULL)""")
    assert caught.value.pgcode == "P0042" and "as lease_stamper" in caught.value.diag.message_primary
    lane.query("ROLLBACK TO start")
    lane.commit()


# --- F38 -------------------------------------------------------------------------------------------------------------

def test_F38_a_partition_made_later_has_no_truncate_trigger_so_no_run_begins(lane):
    lane.query("CREATE TABLE track_contract_us PARTITION OF track_contract FOR VALUES IN ('us')")
    lane.commit()
    assert code_of(lane, """SELECT lease_stamp."track-contract.stamp"(9, '{kr:1}', NULL)""") == "LE012"
    lane.rollback()
    assert lane.query("SELECT type, code, finding FROM lease.guard_findings WHERE table_name LIKE '%_us' ORDER BY 3") == [
        ("track-contract", "trigger_missing", f"the trigger lease_guard_{name} is missing") for name in ("stamper", "truncate")]
    lane.query("SELECT lease.repair_guard('track-contract')")
    lane.commit()
    assert edit(lane, "TRUNCATE track_contract_us") == "LE011"
    assert run_over(lane, "r1", "track-contract/kr:1")


def test_F38_a_row_that_moves_takes_a_dead_stamp_along_and_no_live_one(lane, editor):
    """The move is a DELETE and an INSERT, with the old stamp."""
    grant = run_over(lane, "r1", "track-contract/kr:1")
    assert edit(editor, "UPDATE track_contract SET region = 'jp' WHERE id = 1") == "LE010"
    lane.decide(grant.says("finish"))
    assert edit(editor, "UPDATE track_contract SET region = 'jp' WHERE id = 1") is None
    assert editor.value("SELECT tableoid::regclass::text FROM track_contract WHERE id = 1") == "track_contract_jp"
    editor.rollback()
    assert run_over(lane, "r2", "track-contract/jp:1")


def test_F38_partitions_below_partitions_are_truncated_by_nobody(lane):
    lane.query("CREATE TABLE deep (region text, id int, rate int, PRIMARY KEY (region, id)) PARTITION BY LIST (region); "
               "CREATE TABLE deep_kr PARTITION OF deep FOR VALUES IN ('kr') PARTITION BY RANGE (id); "
               "CREATE TABLE deep_kr_1 PARTITION OF deep_kr FOR VALUES FROM (1) TO (10); SELECT lease.guard_table('deep', 'deep', '{rate}')")
    lane.commit()
    for table in ("deep", "deep_kr", "deep_kr_1"):
        assert edit(lane, f"TRUNCATE {table}") == "LE011"
