# ctest: LABEL sql TIMEOUT 120
"""Every role tries everything that it may not: what PostgreSQL's catalogue lists (tables, views, sequences, functions, roles), tried by statement, not
looked up. What is new in the schemas is in it by itself; what a role may is the one table below.

What would go wrong: a function that forgets its REVOKE, a view that can be written, a role that can become another.
"""
import re
import secrets

import psycopg2
import pytest

from test_rights import CALLABLE

OPEN = {"guard_row", "guard_truncate", "guard_columns", "guard_stamper"}      # see test_rights.py: IS_OPEN
SETTINGS = {"session_settings", "settings_as", "assert_settings_kept"}
NOBODY = f"lease_nobody_{secrets.token_hex(4)}"      # roles are the server's: another test may have its own
# role → the functions that it may call, the views that it may read (None: all of them).
MAY = {
    "lease_coordinator": (CALLABLE | {"guard_tree"}, None),
    "lease_reader": ({"guard_tree"}, None),
    "lease_operator": ({"allow_exception", "end_exception"}, set()),
    "lease_asker": ({"ask_edit", "cancel"}, set()),
    "lease_stamper": ({"assert_guard"} | SETTINGS, set()),
    "lease_editor": (SETTINGS, set()),
    "lease_holder": (set(), set()),
    NOBODY: (set(), set()),
}
IN_SCHEMAS = "IN (SELECT oid FROM pg_namespace WHERE nspname IN ('lease', 'lease_stamp'))"
RELATIONS = f"SELECT c.oid::regclass::text, c.relname, c.relkind::text, (SELECT attname FROM pg_attribute a WHERE attrelid = c.oid AND attnum > 0 AND attidentity = '' AND attgenerated = '' ORDER BY pg_column_is_updatable(c.oid, attnum, false) DESC, attnum DESC LIMIT 1)::text FROM pg_class c WHERE c.relnamespace {IN_SCHEMAS} AND c.relkind IN ('r', 'p', 'v', 'm', 'S')"
FUNCTIONS = f"SELECT p.oid::regprocedure::text, p.proname, p.prokind::text, p.prorettype = 'trigger'::regtype, p.pronamespace::regnamespace::text FROM pg_proc p WHERE p.pronamespace {IN_SCHEMAS}"
HAS_NO_READERS = {"this_server"}


def relation_attempts(relation, kind, column):
    if kind == "S":
        return [f"SELECT nextval('{relation}')", f"SELECT setval('{relation}', 1)", f"SELECT * FROM {relation}"]
    write = [f"INSERT INTO {relation} DEFAULT VALUES", f'UPDATE {relation} SET "{column}" = NULL', f"DELETE FROM {relation}"]
    own = [f"GRANT SELECT ON {relation} TO PUBLIC", f"ALTER {'VIEW' if kind == 'v' else 'TABLE'} {relation} RENAME TO mine",
           f"DROP {'VIEW' if kind == 'v' else 'TABLE'} {relation} CASCADE"]
    if kind == "v":
        return write + own
    return write + own + [f"SELECT * FROM {relation} LIMIT 1", f"TRUNCATE {relation} CASCADE", f"LOCK {relation} IN ACCESS EXCLUSIVE MODE", f"COPY {relation} TO STDOUT",
                          f"CREATE TRIGGER mine BEFORE INSERT ON {relation} EXECUTE FUNCTION lease.guard_row()", f"CREATE INDEX ON {relation} ((1))",
                          f"ALTER TABLE {relation} DISABLE TRIGGER ALL"]


def call_of(signature):
    """A call of one function with NULL for every parameter; the types choose it among its namesakes."""
    name, _, types = signature.partition("(")
    types = types.rstrip(")")
    return f"{name}({', '.join(f'NULL::{one}' for one in re.findall(r'(?:[^,()]|[(][^)]*[)])+', types))})" if types else f"{name}()"


def attempts_of(lane, role):
    """(what, statement, whether it is allowed)"""
    calls, views = MAY[role]
    for relation, name, kind, column in lane.query(RELATIONS):
        for statement in relation_attempts(relation, kind, column):
            yield statement, False
        if kind == "v":
            yield f"SELECT * FROM {relation} LIMIT 1", name not in HAS_NO_READERS and (views is None or name in views)
    for signature, name, kind, is_trigger, schema in lane.query(FUNCTIONS):
        if not is_trigger and kind == "f":
            yield f"SELECT {call_of(signature)}", schema == "lease" and name in calls | OPEN
        yield f"ALTER FUNCTION {signature} SECURITY INVOKER", False
        yield f"GRANT EXECUTE ON FUNCTION {signature} TO PUBLIC", False
        yield f"DROP FUNCTION {signature} CASCADE", False
    for other, in lane.query("SELECT rolname FROM pg_roles WHERE rolname IN ('lease_owner', 'postgres') OR rolname = ANY (%s)", (list(MAY),)):
        if other != role:
            yield f'SET ROLE "{other}"', False
            yield f'GRANT "{other}" TO "{role}"', False
    for schema in ("lease", "lease_stamp"):
        yield f"CREATE TABLE {schema}.mine ()", False
        yield f"CREATE FUNCTION {schema}.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'", False
        yield f"GRANT ALL ON SCHEMA {schema} TO PUBLIC", False
        yield f"DROP SCHEMA {schema} CASCADE", False
    yield "SET session_replication_role = replica", False
    yield "CREATE ROLE mine SUPERUSER", False
    yield "SELECT pg_reload_conf()", False
    yield "SELECT pg_read_file('PG_VERSION')", False
    yield "COPY (SELECT 1) TO PROGRAM 'true'", False


@pytest.fixture(name="nobody")
def fixture_nobody(server):
    server.query(f"CREATE ROLE {NOBODY} NOLOGIN")
    yield
    server.query(f"DROP ROLE {NOBODY}")


# What nobody at all can write, and what is only warned of when there is nothing to grant.
NOT_WRITABLE = re.compile(r"cannot (insert into|update|delete from) view")
NOTHING_GRANTED = "no privileges were granted"


def is_refused(connection, statement):
    """Whether it was refused for want of a right. Undone either way. Any other error came past the rights."""
    del connection.notices[:]
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        return any(NOTHING_GRANTED in notice for notice in connection.notices)
    except psycopg2.errors.InsufficientPrivilege:
        return True
    except psycopg2.Error as error:
        return NOT_WRITABLE.search(str(error)) is not None
    finally:
        connection.rollback()


def test_every_role_tries_everything_that_it_may_not(server, database, lane, nobody):
    """A role of the migrations that is not in the table fails the test, too."""
    known = {name for name, in lane.query("SELECT rolname FROM pg_roles WHERE rolname ~ '^lease_[a-z]+$' AND NOT rolcanlogin")}
    assert known - {"lease_owner"} <= set(MAY), f"no row for {known - set(MAY)}"
    tried = 0
    found = []
    for role in MAY:
        attempts = list(attempts_of(lane, role))
        connection = psycopg2.connect(database.login(role))
        try:
            connection.cursor().execute("SET lock_timeout = '5s'")
            connection.commit()
            for statement, is_allowed in attempts:
                tried += 1
                if is_refused(connection, statement) == is_allowed:
                    found.append(f"{role} {'may not' if is_allowed else 'may'}: {statement}")
        finally:
            connection.close()
    assert found == [], f"{len(found)} of {tried} attempts: {found[:40]}"
    assert tried > 5000
    print(f"{tried} attempts of {len(MAY)} roles, each answered as the table says")
