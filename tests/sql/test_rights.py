"""Who may do what: the coordinator calls functions and reads views, the reader reads views, nobody else anything."""
import secrets

import psycopg2
import pytest

from rules import BASE, Lane, claim, request, start

TABLES = "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'lease'::regnamespace AND c.relkind IN ('r', 'p')"
# lease.this_server is a part of functions, and not for reading.
VIEWS = ("SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'lease'::regnamespace AND c.relkind = 'v' "
         "AND c.relname <> 'this_server'")
ROLES = ("lease_coordinator", "lease_reader")
CALLABLE = {"apply", "reap", "housekeep", "check_server", "jump", "take_partition", "claim_offsets", "attempt_begin", "relay_take",
            "relay_read", "relay_barrier", "relay_advance", "restate", "serve_line", "serve_edits"}
# Whoever makes a partition of a guarded table has to be able to name its triggers, and whoever edits it evaluates their WHEN: what is there for
# that tells nobody anything. So does guard_tree, which views call; names in it are qualified one by one.
IS_OPEN = "proname IN ('guard_row', 'guard_truncate', 'guard_columns', 'guard_stamper', 'guard_tree')"


@pytest.fixture(name="coordinator")
def fixture_coordinator(database):
    lane = Lane(database.login("lease_coordinator"))
    yield lane
    lane.close()


@pytest.fixture(name="reader")
def fixture_reader(database):
    lane = Lane(database.login("lease_reader"))
    yield lane
    lane.close()


def refused(lane, sql):
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        lane.query(sql)
    lane.rollback()


@pytest.mark.parametrize("role", ROLES)
def test_no_role_has_any_right_on_a_table(lane, role):
    tables = [row[0] for row in lane.query(TABLES)]
    assert len(tables) > 15
    for table in tables:
        for right in ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"):
            assert not lane.value("SELECT has_table_privilege(%s, %s, %s)", (role, table, right)), f"{role} may {right} {table}"
    for sequence, in lane.query("SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'lease'::regnamespace AND c.relkind = 'S'"):
        assert not lane.value("SELECT has_sequence_privilege(%s, %s, 'USAGE, UPDATE')", (role, sequence)), f"{role} may use {sequence}"


@pytest.mark.parametrize("role", ROLES)
def test_both_roles_read_every_view_and_write_none(lane, role):
    for view, in lane.query(VIEWS):
        assert lane.value("SELECT has_table_privilege(%s, %s, 'SELECT')", (role, view)), f"{role} may not read {view}"
        assert not lane.value("SELECT has_table_privilege(%s, %s, 'INSERT, UPDATE, DELETE, TRUNCATE')", (role, view)), f"{role} may write {view}"


def test_the_coordinator_may_call_what_it_needs_and_nothing_else(lane):
    may = {row[0] for row in lane.query("SELECT proname FROM pg_proc WHERE pronamespace = 'lease'::regnamespace AND has_function_privilege('lease_coordinator', oid, 'EXECUTE') AND NOT (" + IS_OPEN + ")")}
    assert may == CALLABLE


def test_the_reader_and_the_public_may_call_nothing(lane):
    nobody = f"lease_nobody_{secrets.token_hex(4)}"      # roles are the server's: another test may have its own
    lane.query(f"CREATE ROLE {nobody}")
    for role in ("lease_reader", nobody):
        may = lane.query("SELECT proname FROM pg_proc WHERE pronamespace = 'lease'::regnamespace AND has_function_privilege(%s, oid, 'EXECUTE') AND NOT (" + IS_OPEN + ")", (role,))
        assert may == [], role
    lane.rollback()


def test_F10_every_function_with_the_owners_rights_pins_its_search_path(lane):
    """Those without a pin run only inside of one that has it: nobody may call them."""
    loose = lane.query("SELECT oid::regprocedure::text, prosecdef, has_function_privilege('lease_coordinator', oid, 'EXECUTE') FROM pg_proc "
                       "WHERE pronamespace = 'lease'::regnamespace AND proname <> 'guard_tree' AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)")
    assert [row for row in loose if row[1] or row[2]] == []


def test_everything_belongs_to_an_owner_that_nobody_logs_in_as(lane):
    assert lane.query("SELECT rolcanlogin, rolsuper FROM pg_roles WHERE rolname = 'lease_owner'") == [(False, False)]
    assert lane.query("SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'lease'::regnamespace AND relowner <> 'lease_owner'::regrole") == []
    assert lane.query("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'lease'::regnamespace AND proowner <> 'lease_owner'::regrole") == []


def test_a_coordinator_decides_reaps_and_keeps_house(coordinator):
    assert coordinator.decide(start("s1", ttl=1)).outcome == "granted"
    assert [a.outcome for a in coordinator.decide(request("i1"), claim("w1", 1))] == ["requested", "granted"]
    coordinator.reap()
    coordinator.query("SELECT lease.housekeep()")
    coordinator.query("SELECT * FROM lease.check_server((SELECT schema_version FROM lease.settings), 0, 0, true)")
    coordinator.commit()
    assert coordinator.lease("settlement", "s1")["state"] in ("held", "free")


@pytest.mark.parametrize("sql", [
    "INSERT INTO lease.lease (kind, lease, state, ready_at) VALUES ('cleanup', 'x', 'ready', now())",
    "UPDATE lease.lease SET state = 'free'", "DELETE FROM lease.journal", "TRUNCATE lease.dedup", "SELECT nextval('lease.fence')",
    "SELECT setval('lease.fence', 1)", "SELECT * FROM lease.dedup", "CREATE TABLE lease.mine ()", "SELECT lease.next_numbers(1, NULL)",
    "SET ROLE lease_owner"])
def test_a_coordinator_is_refused(coordinator, sql):
    refused(coordinator, sql)


def test_a_reader_reads_and_is_refused_everything_else(reader):
    assert reader.query("SELECT * FROM lease.leases") == []
    refused(reader, "SELECT * FROM lease.reap(1)")
    refused(reader, "SELECT * FROM lease.lease")


def test_F10_temporary_tables_and_functions_of_the_caller_shadow_nothing(coordinator, lane):
    """With an unpinned search_path a caller's own "lease", "kind" or now() would be used with the owner's rights."""
    coordinator.query("CREATE TEMP TABLE lease (kind text, lease text, state text)")
    coordinator.query("CREATE TEMP TABLE journal (number bigint)")
    coordinator.query("CREATE TEMP TABLE kind (kind text, mode text, ttl_ms bigint)")
    coordinator.query("CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '1999-01-01'::timestamptz $$")
    coordinator.query("CREATE FUNCTION pg_temp.coalesce_count(int) RETURNS int LANGUAGE sql AS $$ SELECT 0 $$")
    coordinator.query("SET search_path = pg_temp, lease, public, pg_catalog")
    answer = coordinator.decide(start("s1"))
    assert answer.outcome == "granted"
    row = lane.lease("settlement", "s1")
    assert (row["state"], row["fence"]) == ("held", answer.fence)
    assert row["since"].year < BASE.year and row["since"].year > 1999
    assert [r["event"] for r in lane.journal()] == ["granted"]
    assert coordinator.query("SELECT * FROM pg_temp.journal") == []


def test_F16_text_with_quotes_and_sql_in_it_stays_text(lane):
    """Ids are data on every way through."""
    name = "x'; DROP SCHEMA lease CASCADE; --"
    assert lane.decide(start(name, holder='h"1', resources=["album/{1,2}", 'album/"', "album/\\"])).outcome == "granted"
    assert lane.lease("settlement", name)["holder"] == 'h"1'
    assert lane.value("SELECT count(*) FROM lease.resources WHERE is_taken") == 3
