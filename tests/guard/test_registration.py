# ctest: LABEL guard TIMEOUT 240
"""Registering a table and taking the guard away again: what can be guarded, what cannot and why, and that nothing is left behind."""
import collections
import re
import subprocess

import psycopg2
import psycopg2.extensions
import pytest

from contracts import code_of, edit, run_over
from postgres import program_folder
from rules import Lane

# Tables of users, each with the columns that are guarded and the ids of its rows.
TABLES = {
    "ordinary": ("plain", "rate", ["1", "2"],
                 "CREATE TABLE plain (id bigint PRIMARY KEY, rate numeric); INSERT INTO plain VALUES (1, 70), (2, 70)"),
    "text key": ("named", "rate", ["a b", "É:{\"x\"}"],
                 "CREATE TABLE named (name text PRIMARY KEY, rate numeric); INSERT INTO named VALUES ('a b', 70), ('É:{\"x\"}', 70)"),
    "uuid key": ("identified", "rate", ["11111111-2222-4333-8444-555555555555"],
                 "CREATE TABLE identified (id uuid PRIMARY KEY, rate numeric); INSERT INTO identified VALUES ('11111111-2222-4333-8444-555555555555', 70)"),
    "key of a fixed length": ("fixed", "rate", ["abc"],
                              "CREATE TABLE fixed (id char(5) PRIMARY KEY, rate numeric); INSERT INTO fixed VALUES ('abc', 70)"),
    "key of a domain": ("of_domain", "rate", ["k1"],
                        "CREATE DOMAIN contract_no AS varchar(10); CREATE TABLE of_domain (id contract_no PRIMARY KEY, rate numeric); "
                        "INSERT INTO of_domain VALUES ('k1', 70)"),
    "key of an enum": ("of_enum", "rate", ["jp"],
                       "CREATE TYPE region AS ENUM ('kr', 'jp'); CREATE TABLE of_enum (id region PRIMARY KEY, rate numeric); INSERT INTO of_enum VALUES ('jp', 70)"),
    "key that is a time": ("timed", "rate", ["2026-11-30 12:00:00+00"],
                           "CREATE TABLE timed (at timestamptz PRIMARY KEY, rate numeric); INSERT INTO timed VALUES ('2026-11-30 12:00:00+00', 70)"),
    "key of several columns": ("composite", "rate", ["kr:1:2026-11-30"],
                               "CREATE TABLE composite (rate numeric, day date, id int, region text, PRIMARY KEY (region, id, day)); "
                               "INSERT INTO composite VALUES (70, '2026-11-30', 1, 'kr')"),
    "quoted names in another schema": ('"My ""Schema"""."The Table.x"', 'The "Rate"', ["1"],
                                       'CREATE SCHEMA "My ""Schema"""; CREATE TABLE "My ""Schema"""."The Table.x" ("Id, really" int PRIMARY KEY, "The ""Rate""" numeric); '
                                       'INSERT INTO "My ""Schema"""."The Table.x" VALUES (1, 70)'),
    "columns without an equality": ("unequal", "terms", ["1"],
                                    "CREATE TABLE unequal (id int PRIMARY KEY, terms json, place point); INSERT INTO unequal VALUES (1, '{}', '(1,1)')"),
    "included column, generated column": ("generated", "twice", ["1"],
                                          "CREATE TABLE generated (id int, rate int, twice int GENERATED ALWAYS AS (rate * 2) STORED, note text, "
                                          "PRIMARY KEY (id) INCLUDE (note)); INSERT INTO generated VALUES (1, 35, DEFAULT, 'n')"),
    "key of a number with decimals": ("numbered", "rate", ["7", "8"],
                                      "CREATE TABLE numbered (id numeric(10,0) PRIMARY KEY, rate numeric); INSERT INTO numbered VALUES (7, 70), (8, 70)"),
    "key that ignores case": ("caseless", "rate", ["abc", "DEF"],
                              "CREATE COLLATION caseless_c (provider = icu, locale = 'und-u-ks-level2', deterministic = false); "
                              "CREATE TABLE caseless (id text COLLATE caseless_c PRIMARY KEY, rate numeric); INSERT INTO caseless VALUES ('abc', 70), ('DEF', 70)"),
    "key of a type in a schema of its own": ("elsewhere_typed", "rate", ["7"],
                                             "CREATE SCHEMA types; CREATE DOMAIN types.no AS bigint; "
                                             "CREATE TABLE elsewhere_typed (id types.no PRIMARY KEY, rate numeric); INSERT INTO elsewhere_typed VALUES (7, 70)"),
    "partitions below partitions": ("parted", "rate", ["kr:1", "jp:2026"],
                                    "CREATE TABLE parted (region text, id int, rate numeric, note text, PRIMARY KEY (region, id)) PARTITION BY LIST (region); "
                                    "CREATE TABLE parted_kr PARTITION OF parted FOR VALUES IN ('kr') PARTITION BY RANGE (id); "
                                    "CREATE TABLE parted_kr_1 PARTITION OF parted_kr FOR VALUES FROM (1) TO (1000); "
                                    # Other columns at other places: partitions that were tables before.
                                    "CREATE TABLE parted_jp (note text, rate numeric, gone int, id int NOT NULL, region text NOT NULL); "
                                    "ALTER TABLE parted_jp DROP COLUMN gone; ALTER TABLE parted ATTACH PARTITION parted_jp FOR VALUES IN ('jp'); "
                                    "INSERT INTO parted VALUES ('kr', 1, 70), ('jp', 2026, 70)"),
    "own triggers, checks and foreign keys": ("busy", "rate", ["1", "2"],
                                              "CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1), (2); "
                                              "CREATE TABLE busy (id int PRIMARY KEY REFERENCES parent DEFERRABLE INITIALLY DEFERRED, rate numeric CHECK (rate > 0), "
                                              "touched timestamptz); CREATE TABLE child (id int REFERENCES busy ON DELETE CASCADE); CREATE TABLE log (id int); "
                                              "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.touched := now(); RETURN NEW; END $$; "
                                              "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO public.log VALUES (NEW.id); RETURN NULL; END $$; "
                                              "CREATE TRIGGER aaa BEFORE UPDATE ON busy FOR EACH ROW EXECUTE FUNCTION touch(); "
                                              "CREATE TRIGGER zzz AFTER INSERT OR UPDATE ON busy FOR EACH ROW EXECUTE FUNCTION note(); "
                                              "CREATE CONSTRAINT TRIGGER later AFTER UPDATE ON busy DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note(); "
                                              "INSERT INTO busy VALUES (1, 70), (2, 70); INSERT INTO child VALUES (1)"),
    "privileges of others": ("shared_out", "rate", ["1"],
                             "CREATE TABLE shared_out (id int PRIMARY KEY, rate numeric); GRANT SELECT, UPDATE (rate) ON shared_out TO PUBLIC; "
                             "COMMENT ON TABLE shared_out IS 'mine'; INSERT INTO shared_out VALUES (1, 70)"),
}


@pytest.fixture(name="registrar")
def fixture_registrar(bare, connect):
    return connect(bare)


def guard(lane, table, kind, *columns):
    lane.query("SELECT lease.guard_table(%s, %s, %s)", (table, kind, list(columns)))
    lane.commit()


def schema_of(database):
    """pg_dump --schema-only of everything that is not ours, without the lines that name the dump."""
    parts = psycopg2.extensions.parse_dsn(database.conninfo)
    dumped = subprocess.run([f"{program_folder()}/pg_dump", "--schema-only", "-N", "lease", "-N", "lease_stamp", "-d", database.conninfo],
                            check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, env={"PGPASSWORD": parts.get("password", "")})
    return [line for line in dumped.stdout.decode().splitlines() if line.strip() and not line.startswith(("--", "\\restrict", "\\unrestrict"))]


# What sql/README.md says that registration adds.
ADDED = re.compile(r'''lease_fence bigint
  |COMMENT ON COLUMN .+\.lease_fence IS .*
  |CREATE TRIGGER lease_guard_(columns|edit|delete|insert|stamper|truncate) .* EXECUTE FUNCTION lease\.guard_(columns|row|stamper|truncate)\(\);
  |ALTER TABLE .+ (ENABLE ALWAYS TRIGGER lease_guard_(edit|delete|insert|stamper|truncate)|DISABLE TRIGGER lease_guard_columns);
  |GRANT (SELECT\(.+\)|SELECT\(lease_fence\),UPDATE\(lease_fence\)) ON TABLE .+ TO lease_stamper;
  |GRANT USAGE ON SCHEMA .+ TO lease_stamper;'''.replace("\n  ", ""))


def assert_adds_what_is_documented(before, after):
    """A comma behind what was the last column is no change."""
    old, new = (collections.Counter(line.strip().rstrip(",") for line in lines) for lines in (before, after))
    assert not old - new, "what was there is there"
    strange = [line for line in new - old if not ADDED.fullmatch(line)]
    assert not strange, "\n".join(strange)
    assert "lease_fence bigint" in new - old


@pytest.mark.parametrize("table", TABLES)
def test_registration__guards_covers_and_leaves_the_table_as_it_was(bare, registrar, table):
    name, column, ids, made = TABLES[table]
    registrar.query(made)
    registrar.commit()
    before = schema_of(bare)
    guard(registrar, name, "row", column)
    assert_adds_what_is_documented(before, schema_of(bare))
    assert registrar.query("SELECT * FROM lease.guard_findings") == []
    # A session that shows times and numbers in its own way names the same rows.
    registrar.query("SET timezone = 'Asia/Seoul'")
    grant = run_over(registrar, "r1", *[f"row/{row}" for row in ids])
    assert grant, "the rows are covered"
    rows = registrar.value(f"SELECT count(*) FROM {name}")
    assert registrar.value(f"SELECT count(*) FROM {name} WHERE lease_fence = %s", (grant.fence,)) == len(ids) == rows
    registrar.query("SET LOCAL datestyle = 'SQL, DMY'")
    with pytest.raises(psycopg2.Error) as caught:
        registrar.query(f"DELETE FROM {name}")
    registrar.rollback()
    assert caught.value.pgcode == "LE010" and any(f"id {row};" in caught.value.diag.message_detail for row in ids)
    assert edit(registrar, "SELECT lease.unguard_table('row')") == "LE021"
    registrar.decide(grant.says("finish"))
    assert edit(registrar, f"UPDATE {name} SET {psycopg2.extensions.quote_ident(column, registrar.connection)} = DEFAULT") in (None, "23502")
    assert edit(registrar, "SELECT lease.unguard_table('row')") is None
    assert schema_of(bare) == before
    assert registrar.query("SELECT proname FROM pg_proc WHERE pronamespace = 'lease_stamp'::regnamespace") == []
    for word, value in (("relation", f"has_table_privilege('lease_stamper', '{name}', 'UPDATE, SELECT')"), ("column", f"has_any_column_privilege('lease_stamper', '{name}', 'UPDATE')")):
        if table != "privileges of others":
            assert not registrar.value(f"SELECT {value}"), word


def test_registration__columns_without_an_equality_are_compared_all_the_same(registrar):
    registrar.query(TABLES["columns without an equality"][3])
    guard(registrar, "unequal", "row", "terms", "place")
    run_over(registrar, "r1", "row/1")
    assert edit(registrar, "UPDATE unequal SET terms = terms, place = place") is None
    assert edit(registrar, "UPDATE unequal SET terms = '{ }'") == "LE010"
    assert edit(registrar, "UPDATE unequal SET place = '(2,1)'") == "LE010"


REFUSED = {
    "a view": ("CREATE VIEW v AS SELECT 1 AS id, 2 AS rate", "v", ["rate"], "is a view", "the table below it"),
    "a materialized view": ("CREATE MATERIALIZED VIEW v AS SELECT 1 AS id, 2 AS rate", "v", ["rate"], "is a materialized view", "Only tables"),
    "a foreign table": ("CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE v (id int, rate int) SERVER s", "v", ["rate"],
                        "is a foreign table", "where its rows are"),
    "a sequence": ("CREATE SEQUENCE v", "v", ["rate"], "is no table", "Only tables"),
    "a temporary table": ("CREATE TEMP TABLE v (id int PRIMARY KEY, rate int)", "v", ["rate"], "is a temporary table", "nothing to guard"),
    "a partition": ("CREATE TABLE t (id int PRIMARY KEY, rate int) PARTITION BY LIST (id); CREATE TABLE v PARTITION OF t FOR VALUES IN (1)", "v", ["rate"],
                    "is a partition", "the whole table: public.t"),
    "a foreign partition": ("CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE TABLE v (id int, rate int) PARTITION BY LIST (id); "
                            "CREATE FOREIGN TABLE v1 PARTITION OF v FOR VALUES IN (1) SERVER s", "v", ["rate"], "partition that is a foreign table", "another server"),
    "a table with heirs": ("CREATE TABLE v (id int PRIMARY KEY, rate int); CREATE TABLE w () INHERITS (v)", "v", ["rate"], "inherits from", "triggers are not passed on"),
    "a table of a type": ("CREATE TYPE ty AS (id int, rate int); CREATE TABLE v OF ty (PRIMARY KEY (id))", "v", ["rate"], "table of a type", "NOT OF"),
    "row security": ("CREATE TABLE v (id int PRIMARY KEY, rate int); ALTER TABLE v ENABLE ROW LEVEL SECURITY", "v", ["rate"], "row security", "hide rows"),
    "no primary key": ("CREATE TABLE v (id int UNIQUE NOT NULL, rate int)", "v", ["rate"], "no primary key", "ADD PRIMARY KEY"),
    "an unknown column": ("CREATE TABLE v (id int PRIMARY KEY, rate int)", "v", ["rate", "Rate"], 'no column "Rate"', "without quotes"),
    "a dropped column": ("CREATE TABLE v (id int PRIMARY KEY, rate int, x int); ALTER TABLE v DROP COLUMN x", "v", ["x"], "no column x", "without quotes"),
    "a system column": ("CREATE TABLE v (id int PRIMARY KEY, rate int)", "v", ["ctid"], "no column ctid", "without quotes"),
    "no columns": ("CREATE TABLE v (id int PRIMARY KEY, rate int)", "v", [], "no columns to guard", "must not change"),
    "a column twice": ("CREATE TABLE v (id int PRIMARY KEY, rate int)", "v", ["rate", "rate"], "named twice", "once"),
    "a column lease_fence": ("CREATE TABLE v (id int PRIMARY KEY, rate int, lease_fence text)", "v", ["rate"], "has a column lease_fence", "brings its own"),
    "a table of ours": ("SELECT 1", "lease.lease", ["holder"], "is not yours", "your own"),
    "a table of the catalogue": ("SELECT 1", "pg_class", ["relname"], "is not yours", "your own"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_registration__refuses_what_it_cannot_guard_and_says_why(registrar, what):
    made, table, columns, why, advice = REFUSED[what]
    registrar.query(made)
    with pytest.raises(psycopg2.Error) as caught:
        registrar.query("SELECT lease.guard_table(%s, 'row', %s)", (table, columns))
    assert (caught.value.pgcode, why in caught.value.diag.message_primary, advice in caught.value.diag.message_hint) == ("LE020", True, True), caught.value


@pytest.mark.parametrize("kind", ["", "Album", "a/b", "a.b", "1a", "a" * 33, None])
def test_registration__refuses_a_name_that_no_message_could_carry(registrar, kind):
    registrar.query("CREATE TABLE v (id int PRIMARY KEY, rate int)")
    assert code_of(registrar, "SELECT lease.guard_table('v', %s, '{rate}')", (kind,)) == "LE020"


def test_registration__a_table_and_a_type_are_registered_once(registrar):
    registrar.query("CREATE TABLE v (id int PRIMARY KEY, rate int); CREATE TABLE w (id int PRIMARY KEY, rate int)")
    guard(registrar, "v", "row", "rate")
    for table, kind, why in (("v", "other", "is guarded already, as row"), ("w", "row", "the type row is that of v")):
        with pytest.raises(psycopg2.Error) as caught:
            registrar.query("SELECT lease.guard_table(%s, %s, '{rate}')", (table, kind))
        registrar.rollback()
        assert caught.value.pgcode == "LE020" and why in caught.value.diag.message_primary.replace("public.", "")
    assert edit(registrar, "SELECT lease.unguard_table('other')") == "LE020"


def test_registration__a_resource_has_one_place_for_its_stamp(registrar):
    """Two runs held row/1, one by its name alone and one in the table; so did an item and a run."""
    registrar.query(TABLES["ordinary"][3])
    covers = registrar.value("SELECT min(covers) FROM lease.kind")
    registrar.commit()
    grant = run_over(registrar, "r1", "row/1", "rows/1", ttl=600_000)
    assert edit(registrar, "SELECT lease.guard_table('plain', 'row', '{rate}')") == "LE020"
    assert edit(registrar, f"SELECT lease.guard_table('plain', '{covers}', '{{rate}}')") == "LE020"
    registrar.decide(grant.says("finish"))
    lapsed = run_over(registrar, "r2", "row/1", ttl=1)
    registrar.await_lapse("r2")
    assert edit(registrar, "SELECT lease.guard_table('plain', 'row', '{rate}')") == "LE020", "it may still be finished"
    registrar.decide(lapsed.says("finish"))
    guard(registrar, "plain", "row", "rate")
    assert edit(registrar, "UPDATE lease.kind SET covers = 'row' WHERE covers IS NOT NULL") == "LE020"


def test_registration__types_that_begin_alike_keep_their_functions(registrar):
    registrar.query("CREATE TABLE v (id int PRIMARY KEY, rate int); CREATE TABLE w (id int PRIMARY KEY, rate int); INSERT INTO v VALUES (1, 1)")
    guard(registrar, "v", "row_1", "rate")
    guard(registrar, "w", "rowx1", "rate")
    registrar.query("SELECT lease.unguard_table('rowx1')")
    registrar.commit()
    assert registrar.value("""SELECT lease_stamp."row_1.missing"('{1,2}')""") == "2"


def test_registration__is_for_owners_who_manage_leases(bare, registrar, connect):
    """Nobody else's DDL is done with our rights, and nobody else names a type."""
    owner = connect(bare, bare.login("lease_reader"))
    name = owner.value("SELECT current_user")
    owner.commit()
    registrar.query(f'CREATE SCHEMA theirs AUTHORIZATION "{name}"; SET ROLE "{name}"; CREATE TABLE theirs.v (id int PRIMARY KEY, rate int); '
                    "INSERT INTO theirs.v VALUES (1, 1); RESET ROLE; CREATE TABLE not_theirs (id int PRIMARY KEY, rate int)")
    registrar.commit()
    assert edit(owner, "SELECT lease.guard_table('theirs.v', 'row', '{rate}')") == "42501"
    registrar.query(f'GRANT lease_owner, lease_stamper TO "{name}"')
    registrar.commit()
    assert edit(owner, "SELECT lease.guard_table('not_theirs', 'row', '{rate}')") == "42501"
    assert edit(owner, "SELECT lease.guard_table('theirs.v', 'row', '{rate}')") is None
    assert run_over(registrar, "r1", "row/1", commit=False)
    registrar.rollback()
    assert edit(owner, "SELECT lease.repair_guard('row')") is None
    assert edit(owner, "SELECT lease.unguard_table('row')") is None
    owner.close()
    registrar.query(f'DROP OWNED BY "{name}" CASCADE')
    registrar.commit()


ALTERED = {
    "column_renamed": ("ALTER TABLE parted RENAME rate TO share", False),
    "key_changed": ("ALTER TABLE parted RENAME id TO no", True),
    "table_renamed": ("ALTER TABLE parted RENAME TO other; CREATE SCHEMA elsewhere; ALTER TABLE other SET SCHEMA elsewhere", True),
    "trigger_disabled": ("ALTER TABLE parted_kr_1 DISABLE TRIGGER lease_guard_edit", True),
    "trigger_not_always": ("ALTER TABLE ONLY parted ENABLE TRIGGER lease_guard_truncate", True),
    "trigger_missing": ("CREATE TABLE parted_us PARTITION OF parted FOR VALUES IN ('us')", True),
    "trigger_missing, on the table": ("DROP TRIGGER lease_guard_delete ON parted", True),
    "function_altered": ('ALTER FUNCTION lease_stamp."row.stamp" SECURITY INVOKER', True),
    "function_altered, its privileges": ('GRANT EXECUTE ON FUNCTION lease_stamp."row.stamp" TO PUBLIC', False),
    "privilege_missing": ("REVOKE ALL ON parted FROM lease_stamper", True),
    "stamp_dropped": ("ALTER TABLE parted DROP COLUMN lease_fence CASCADE", True),
}


@pytest.mark.parametrize("code", ALTERED)
def test_catalogue__shows_what_was_altered_and_repair_puts_it_right(bare, registrar, connect, code):
    altered, stops = ALTERED[code]
    registrar.query(TABLES["partitions below partitions"][3])
    guard(registrar, "parted", "row", "rate")
    reader = connect(bare, bare.login("lease_reader"))
    found = "SELECT DISTINCT code FROM lease.guard_findings WHERE type = 'row'"
    assert reader.query(found) == []
    assert reader.query("SELECT table_name, partitions, key_columns, columns, is_sound FROM lease.guarded_tables") == [
        ("public.parted" if "public." in reader.value("SELECT table_name FROM lease.guarded_tables") else "parted", 2, ["region", "id"], ["rate"], True)]
    reader.rollback()
    registrar.query(altered)
    registrar.commit()
    assert (code.split(",")[0],) in reader.query(found)
    assert not reader.value("SELECT is_sound FROM lease.guarded_tables")
    reader.rollback()
    if stops:
        with pytest.raises((psycopg2.Error, AssertionError)):
            assert run_over(registrar, "r1", "row/kr:1", commit=False)
        registrar.rollback()
    registrar.query("SELECT lease.repair_guard('row')")
    registrar.commit()
    assert reader.query("SELECT * FROM lease.guard_findings") == []
    reader.rollback()
    table = "elsewhere.other" if code == "table_renamed" else "parted"
    grant = run_over(registrar, "r1", "row/kr:1")
    assert grant
    assert edit(registrar, f"UPDATE {table} SET {'share' if code == 'column_renamed' else 'rate'} = 1") == "LE010"
    assert edit(registrar, f"TRUNCATE {table}") == "LE011"
    assert edit(registrar, f"UPDATE {table} SET note = 'x'") is None


def test_catalogue__a_table_that_inherits_is_told_and_stops_starts(registrar):
    """Triggers are not passed on: a row in it would be stamped, and edited by everybody."""
    registrar.query(TABLES["ordinary"][3])
    guard(registrar, "plain", "row", "rate")
    registrar.query("CREATE TABLE heir () INHERITS (plain); INSERT INTO heir VALUES (500, 70)")
    registrar.commit()
    assert registrar.query("SELECT table_name, code, stops_starts FROM lease.guard_findings") == [("heir", "inherits", True)]
    assert run_over(registrar, "r1", "row/500") is None and run_over(registrar, "r1", "row/1") is None
    with pytest.raises(psycopg2.Error) as caught:
        registrar.query("SELECT lease.repair_guard('row')")
    registrar.rollback()
    assert caught.value.pgcode == "LE020" and "NO INHERIT" in caught.value.diag.message_hint
    registrar.query("ALTER TABLE heir NO INHERIT plain")
    registrar.commit()
    assert registrar.query("SELECT * FROM lease.guard_findings") == [] and run_over(registrar, "r1", "row/1")


@pytest.mark.parametrize("code, altered", [("row_security", "ALTER TABLE plain ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON plain USING (true)"),
                                           ("key_changed", "ALTER TABLE plain DROP CONSTRAINT plain_pkey")])
def test_catalogue__what_is_said_to_stop_starts_does(registrar, code, altered):
    registrar.query(TABLES["ordinary"][3])
    guard(registrar, "plain", "row", "rate")
    registrar.query(altered)
    registrar.commit()
    assert registrar.query("SELECT code, stops_starts FROM lease.guard_findings") == [(code, True)]
    assert run_over(registrar, "r1", "row/1") is None


def test_catalogue__a_renamed_column_stays_guarded_and_its_edits_are_told_by_its_new_name(registrar):
    registrar.query(TABLES["ordinary"][3])
    guard(registrar, "plain", "row", "rate")
    run_over(registrar, "r1", "row/1")
    registrar.query("ALTER TABLE plain RENAME rate TO share; ALTER TABLE plain RENAME id TO no")
    registrar.commit()
    with pytest.raises(psycopg2.Error) as caught:
        registrar.query("UPDATE plain SET share = 60 WHERE no = 1")
    assert caught.value.pgcode == "LE010" and "id 1;" in caught.value.diag.message_detail


def test_catalogue__a_guarded_column_is_not_dropped_by_mistake(registrar):
    registrar.query(TABLES["ordinary"][3])
    guard(registrar, "plain", "row", "rate")
    assert edit(registrar, "ALTER TABLE plain DROP COLUMN rate") == "2BP01"
    assert edit(registrar, "ALTER TABLE plain DROP COLUMN rate CASCADE") is None
    codes = {row[0] for row in registrar.query("SELECT code FROM lease.guard_findings")}
    assert codes == {"column_dropped", "trigger_missing"}
    assert edit(registrar, "SELECT lease.repair_guard('row')") == "LE020", "nothing is left to guard"
    assert edit(registrar, "SELECT lease.unguard_table('row')") is None


def test_catalogue__a_dropped_table_is_told_and_can_be_forgotten(registrar):
    registrar.query(TABLES["ordinary"][3])
    guard(registrar, "plain", "row", "rate")
    registrar.query("DROP TABLE plain")
    registrar.commit()
    assert registrar.query("SELECT code, remedy FROM lease.guard_findings") == [("table_dropped", "SELECT lease.unguard_table('row')")]
    registrar.query("SELECT lease.unguard_table('row')")
    assert registrar.query("SELECT * FROM lease.guard_findings") == []


def test_catalogue__names_the_contract_like_table_that_is_not_guarded(registrar):
    registrar.query("CREATE TABLE video_Contract_terms (id int PRIMARY KEY, rate int) PARTITION BY LIST (id); "
                    "CREATE TABLE contract_1 PARTITION OF video_contract_terms FOR VALUES IN (1); CREATE TABLE invoice (id int); CREATE TEMP TABLE contract (id int)")
    found = "SELECT type, replace(table_name, 'public.', ''), code, stops_starts FROM lease.guard_findings"
    assert registrar.query(found) == [(None, "video_contract_terms", "not_guarded", False)]
    registrar.query("INSERT INTO lease.guard_pattern VALUES ('inv%', 'why not')")
    assert len(registrar.query(found)) == 2
    registrar.query("DELETE FROM lease.guard_pattern WHERE pattern = 'inv%'")
    guard(registrar, "video_contract_terms", "video-contract", "rate")
    assert registrar.query(found) == []


def test_registration__a_dump_brings_back_table_guard_and_stamps(bare, registrar, server):
    """pg_dump and restore of the whole database, and of the table's rows alone."""
    registrar.query(TABLES["ordinary"][3])
    guard(registrar, "plain", "row", "rate")
    grant = run_over(registrar, "r1", "row/1", ttl=600_000)
    programs = program_folder()
    dump = subprocess.run([f"{programs}/pg_dump", "-Fc", "-d", bare.conninfo], check=True, stdout=subprocess.PIPE, timeout=60).stdout
    copy = server.create_database("lease_guard")
    try:
        subprocess.run([f"{programs}/pg_restore", "-e", "-d", copy.conninfo], input=dump, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        lane = Lane(copy.conninfo)
        assert lane.query("SELECT * FROM lease.guard_findings") == []
        assert edit(lane, "UPDATE plain SET rate = 60 WHERE id = 1") == "LE010"
        assert edit(lane, "UPDATE plain SET rate = 60 WHERE id = 2") is None
        assert edit(lane, "SELECT lease.repair_guard('row')") is None
        # Rows alone come with stamps: those of ended leases are welcome, others are not.
        rows = subprocess.run([f"{programs}/pg_dump", "--data-only", "-t", "plain", "-d", bare.conninfo], check=True, stdout=subprocess.PIPE, timeout=60).stdout
        lane.query("UPDATE lease.lease SET state = 'finished', ended_at = clock_timestamp(), check_at = NULL; DELETE FROM plain")
        lane.commit()
        subprocess.run([f"{programs}/psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", copy.conninfo], input=rows, check=True, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=60)
        assert lane.query("SELECT id, lease_fence FROM plain ORDER BY id") == [(1, grant.fence), (2, None)]
        lane.close()
    finally:
        copy.drop()


def test_registration__says_which_triggers_a_stamp_will_fire(registrar):
    registrar.query("CREATE TABLE v (id int PRIMARY KEY, rate int); "
                    "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; "
                    "CREATE TRIGGER on_all AFTER UPDATE ON v FOR EACH ROW EXECUTE FUNCTION f(); CREATE TRIGGER on_rate AFTER UPDATE OF rate ON v FOR EACH ROW EXECUTE FUNCTION f()")
    registrar.query("SET client_min_messages = notice")
    guard(registrar, "v", "row", "rate")
    told = "".join(registrar.connection.notices)
    assert "with the rights of lease_stamper: on_all\n" in told
