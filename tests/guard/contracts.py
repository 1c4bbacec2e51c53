"""The tables that these tests guard, leases over their rows, and edits.

album_contract is an ordinary table with a parent table, a view, and other columns beside the guarded ones; track_contract is
partitioned, with a key of two columns. Both are guarded, and edited by a role that has no right on the schema lease.
"""
import contextlib

import psycopg2

from rules import Grant, eventually, start

TABLES = """
DO $$ BEGIN CREATE ROLE {editor} NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT USAGE ON SCHEMA public TO {editor};

CREATE TABLE artist (id bigint PRIMARY KEY, name text);
CREATE TABLE album_contract (
  id     bigint PRIMARY KEY,
  artist bigint REFERENCES artist ON DELETE CASCADE ON UPDATE CASCADE,
  rate   numeric(5,2) NOT NULL,
  terms  text,
  note   text
);
CREATE VIEW album_rate AS SELECT id, rate, note FROM album_contract;
INSERT INTO artist SELECT i, 'artist ' || i FROM generate_series(1, 100) i;
INSERT INTO album_contract SELECT i, i, 70, 'terms', 'note' FROM generate_series(1, 100) i;

CREATE TABLE track_contract (region text, id bigint, rate numeric(5,2) NOT NULL, note text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE track_contract_kr PARTITION OF track_contract FOR VALUES IN ('kr');
CREATE TABLE track_contract_jp PARTITION OF track_contract FOR VALUES IN ('jp');
INSERT INTO track_contract SELECT 'kr', i, 70, 'note' FROM generate_series(1, 100) i;

SELECT lease.guard_table('album_contract', 'album-contract', ARRAY['rate', 'terms', 'artist'], 'album contract');
SELECT lease.guard_table('track_contract', 'track-contract', ARRAY['rate']);
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON artist, album_contract, album_rate, track_contract, track_contract_kr TO {editor};
"""

# Whatever a test made, and every lease.
WIPE = """
DO $$
DECLARE
  r record;
BEGIN
  FOR r IN SELECT oid::regprocedure AS name FROM pg_proc WHERE pronamespace = 'lease_stamp'::regnamespace LOOP
    EXECUTE format('DROP FUNCTION %s', r.name);
  END LOOP;
  FOR r IN SELECT nspname AS name FROM pg_namespace WHERE nspname !~ '^(pg_|lease|information_schema)' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', r.name);
  END LOOP;
  DROP FOREIGN DATA WRAPPER IF EXISTS w CASCADE;
  DELETE FROM lease.guarded;
  DELETE FROM lease.lease;
  DELETE FROM lease.admitted_edit;
  CREATE SCHEMA public;
  GRANT USAGE ON SCHEMA public TO PUBLIC;
END
$$
"""


def create(database):
    database.query(TABLES.format(editor=editor_role(database)))


def editor_role(database):
    return f"editor_{database.name}"


def editor_of(database):
    """The conninfo of a new account that may edit the contracts."""
    return database.login(editor_role(database))


def run_over(lane, run, *resources, ttl=60_000, commit=True, **fields):
    """Starts a run that covers rows; the grant, or None if it was refused."""
    started = start(run, resources=resources, ttl=ttl, **fields)
    answer = lane.apply(started)
    if commit:
        lane.commit()
    if answer.outcome != "granted":
        return None
    return Grant("settlement", run, started["holder"], answer.fence, answer.claim_id, answer.until)


def pass_by(lane, grant):
    """Waits until a lease has expired by the database's clock."""
    def is_over():
        lane.rollback()
        return lane.value("SELECT clock_timestamp() > lease_until FROM lease.lease WHERE fence = %s", (grant.fence,))
    eventually(is_over, 60, "the expiry", every=0.002)
    lane.rollback()


def code_of(lane, sql, parameters=None):
    """What one statement meets: None if it went through, else the SQLSTATE. The transaction stays as it is."""
    try:
        lane.query(sql, parameters)
        return None
    except psycopg2.Error as error:
        return error.pgcode


def edit(lane, sql, parameters=None):
    """One edit and its end: None and committed, or the SQLSTATE and rolled back."""
    code = code_of(lane, sql, parameters)
    if code is None:
        try:
            lane.commit()
        except psycopg2.Error as error:
            code = error.pgcode
    lane.rollback()
    return code


@contextlib.contextmanager
def isolation(lane, level):
    """A transaction at one level, rolled back at the end."""
    lane.rollback()
    lane.query(f"SET TRANSACTION ISOLATION LEVEL {level}")
    yield lane
    lane.rollback()
