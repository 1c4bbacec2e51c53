-- The file server: accounts with a quota, stored files, and what happened to them. Effects on a file pass the gate, in the same
-- transaction and the same round trip as the rows that they change.
--
-- For any PostgreSQL 14 or later, next to sql/gate/gate.sql and by the same owner; nothing of the coordinator's database is needed:
--
--   psql -1 -v ON_ERROR_STOP=1 -f gate.sql -f fileserver.sql 'host=… dbname=… user=<the database''s owner>'
--
-- Load it again to upgrade; the rows stay. The role fileserver_user (made here if the loader may do so; another one with
-- SET fileserver.user = 'app' in the session that loads) may call the functions and read the tables, and write nothing else.
--
-- A FILE'S LIFE
--
--   active ──begin_cleanup──► deleting ──settle_cleanup──► deleted
--
-- Its bytes count for the account's used_bytes until it is deleted; settle_cleanup takes them away, once. A physical name is a path
-- beneath the root of the workers. It is never used twice, for whatever file: who comes late with an old name meets nothing of a
-- newer one. The current name is a column, changed by `write` alone. A worker that removes a file moves it to
-- `<physical name>.~<its fence>` first, so no physical name may end like that.
--
-- CALLS, one round trip and one transaction each. `fence` and `claim_id` are the grant's, of the item or run whose lease covers the
-- resource 'file/<file>'; they are judged by lease_gate.admit for that resource.
--
--   open_account(account text, quota_bytes bigint)                       or another quota for the one that is there
--   store(file text, account text, bytes bigint, physical_name text) → text    a new file: stored | exists | over_quota | name_taken | unknown
--   write(file, fence, claim_id, bytes bigint, physical_name text) → text      the file has a new content, under a new name:
--        unknown      no such file                                              (the first that applies)
--        stale        the gate refuses. Remove what you wrote; it will never be admitted
--        written      this very call had been done before
--        gone         its deletion has begun. Remove what you wrote
--        over_quota   the account has no room. Likewise
--        name_taken   the name was used before. Remove what you wrote, unless it is that other file's
--        written      done
--        A writer that dies between its file and this call leaves a file that no table knows. Nobody here sweeps them: names that are
--        in no row of fileserver.physical_name and older than any write may take are yours to remove
--   begin_cleanup(file, fence, claim_id)                                       to be called before the disk is touched:
--        → verdict text         stale | unknown | deleting | deleted (settled before: only the disk is left to do)
--          physical_name text   where the file is, if nobody has moved it
--          earlier bigint[]     fences of those who began before: the file may have been moved to <physical name>.~<fence>
--          former text[]        names it had before it was written anew: to be removed as well
--          missing boolean      deleted: it was not there when it was settled
--   settle_cleanup(file, fence, claim_id, missing boolean)                     the file is moved away, or was not there:
--        → verdict text         stale | unknown | not_begun | settled | already (by the fence in settled_by)
--          bytes bigint, settled_by bigint, missing boolean                    what was settled, and how
--
-- Called again with the same grant (after a lost connection), each of them answers as if it were the first time, but for
-- `already`. Errors are the gate's (22023, 40001, 55P03), and 23514 for a name or a number that cannot be.
--
-- LOCKS, in this order: the gate's row of the file, the file, the account.

DO $$
BEGIN
  IF to_regprocedure('lease_gate.admit(text, bigint, uuid, text)') IS NULL THEN
    RAISE EXCEPTION 'the gate is not here' USING ERRCODE = '42883', HINT = 'Load gate.sql first.';
  END IF;
  IF EXISTS (SELECT 1 FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner
              WHERE n.nspname = 'fileserver' AND r.rolname <> current_user) THEN
    RAISE EXCEPTION 'schema fileserver belongs to somebody else' USING ERRCODE = '42501', HINT = 'Load the file as the owner of the schema.';
  END IF;
END $$;

CREATE SCHEMA IF NOT EXISTS fileserver;

-- That used_bytes stays within quota_bytes is checked where it grows, not by a constraint: after a quota was lowered, files must
-- still be deletable.
CREATE TABLE IF NOT EXISTS fileserver.account (
  account     text COLLATE "C" PRIMARY KEY,
  quota_bytes bigint NOT NULL,
  used_bytes  bigint NOT NULL DEFAULT 0,
  CONSTRAINT quota_is_not_negative CHECK (quota_bytes >= 0),
  CONSTRAINT used_bytes_are_not_negative CHECK (used_bytes >= 0)
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS fileserver.file (
  file          text COLLATE "C" PRIMARY KEY,
  account       text COLLATE "C" NOT NULL REFERENCES fileserver.account,
  bytes         bigint NOT NULL,
  physical_name text COLLATE "C" NOT NULL UNIQUE,
  state         text NOT NULL DEFAULT 'active',
  missing       boolean NOT NULL DEFAULT false,
  settled_by    bigint,                                             -- the fence that settled it
  CONSTRAINT state_is_known CHECK (state IN ('active', 'deleting', 'deleted')),
  CONSTRAINT bytes_are_not_negative CHECK (bytes >= 0),
  CONSTRAINT deleted_file_is_settled CHECK ((state = 'deleted') = (settled_by IS NOT NULL)),
  CONSTRAINT only_deleted_files_are_missing CHECK (state = 'deleted' OR NOT missing)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS file_account ON fileserver.file (account);

-- Every name that was ever given out.
CREATE TABLE IF NOT EXISTS fileserver.physical_name (
  physical_name text COLLATE "C" PRIMARY KEY,
  file          text COLLATE "C" NOT NULL,
  CONSTRAINT name_stays_beneath_the_root CHECK (physical_name ~ '^[^/[:cntrl:]]+(/[^/[:cntrl:]]+)*$' AND physical_name !~ '(^|/)[.][.]?(/|$)'),
  CONSTRAINT name_has_room_for_a_fence CHECK (octet_length(physical_name) <= 1000 AND octet_length(substring(physical_name FROM '[^/]*$')) <= 200),
  CONSTRAINT name_carries_no_fence CHECK (physical_name !~ '[.]~[0-9]+$')
);
CREATE INDEX IF NOT EXISTS physical_name_file ON fileserver.physical_name (file);

-- What happened, in order for each file. A row is written in the transaction of what it tells, under the gate's lock; also where a
-- successor asks for what is settled (confirmed), so that the rows tell of everybody whom the gate has let in.
CREATE TABLE IF NOT EXISTS fileserver.lifecycle (
  number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at            timestamptz NOT NULL DEFAULT clock_timestamp(),
  file          text COLLATE "C" NOT NULL,
  event         text NOT NULL,
  fence         bigint,                                             -- null: stored, by no lease
  claim_id      uuid,
  physical_name text COLLATE "C" NOT NULL,
  bytes_change  bigint NOT NULL DEFAULT 0,                          -- of the account's used_bytes
  missing       boolean NOT NULL DEFAULT false,
  CONSTRAINT event_is_known CHECK (event IN ('stored', 'written', 'begun', 'settled', 'confirmed')),
  CONSTRAINT effects_have_a_fence CHECK ((event = 'stored') = (fence IS NULL) AND (fence IS NULL) = (claim_id IS NULL))
);
CREATE INDEX IF NOT EXISTS lifecycle_file ON fileserver.lifecycle (file, number);

-- A file is settled once, whatever the functions do.
CREATE UNIQUE INDEX IF NOT EXISTS lifecycle_settles_once ON fileserver.lifecycle (file) WHERE event = 'settled';

-- What the books must say: used_bytes = stored_bytes.
CREATE OR REPLACE VIEW fileserver.balance AS
SELECT a.account, a.quota_bytes, a.used_bytes, coalesce(sum(f.bytes) FILTER (WHERE f.state <> 'deleted'), 0)::bigint AS stored_bytes,
       count(f.file) FILTER (WHERE f.state <> 'deleted') AS files
  FROM fileserver.account a LEFT JOIN fileserver.file f USING (account)
 GROUP BY a.account, a.quota_bytes, a.used_bytes;

CREATE OR REPLACE FUNCTION fileserver.open_account(p_account text, p_quota_bytes bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO fileserver.account (account, quota_bytes) VALUES (p_account, p_quota_bytes)
  ON CONFLICT (account) DO UPDATE SET quota_bytes = EXCLUDED.quota_bytes;
$$;

-- Takes the name for the file. False: it was used before. Part of the functions below.
CREATE OR REPLACE FUNCTION fileserver.take_name(p_physical_name text, p_file text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO fileserver.physical_name (physical_name, file) VALUES (p_physical_name, p_file) ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;

-- Moves the account's used_bytes. False: there is no room for more. Part of the functions below. Locks: the account.
CREATE OR REPLACE FUNCTION fileserver.use_bytes(p_account text, p_change bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE fileserver.account a SET used_bytes = a.used_bytes + p_change
   WHERE a.account = p_account AND (p_change <= 0 OR a.used_bytes + p_change <= a.quota_bytes);
  RETURN FOUND;
END
$$;

-- A new file. Outcomes in order: exists (nothing changes), unknown (no such account), over_quota, name_taken, stored. No lease is needed:
-- nobody else knows of it yet. Locks: the account.
CREATE OR REPLACE FUNCTION fileserver.store(p_file text, p_account text, p_bytes bigint, p_physical_name text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM fileserver.file f WHERE f.file = p_file) THEN
    RETURN 'exists';
  END IF;
  IF NOT EXISTS (SELECT 1 FROM fileserver.account a WHERE a.account = p_account) THEN
    RETURN 'unknown';
  END IF;
  IF NOT fileserver.use_bytes(p_account, p_bytes) THEN
    RETURN 'over_quota';
  END IF;
  IF NOT fileserver.take_name(p_physical_name, p_file) THEN
    PERFORM fileserver.use_bytes(p_account, -p_bytes);
    RETURN 'name_taken';
  END IF;
  INSERT INTO fileserver.file (file, account, bytes, physical_name) VALUES (p_file, p_account, p_bytes, p_physical_name);
  INSERT INTO fileserver.lifecycle (file, event, physical_name, bytes_change) VALUES (p_file, 'stored', p_physical_name, p_bytes);
  RETURN 'stored';
END
$$;

-- A new content. Outcomes in order: unknown, stale, written (before, by this very call), gone, over_quota, name_taken, written.
-- Locks: gate, file, account.
CREATE OR REPLACE FUNCTION fileserver.write(p_file text, p_fence bigint, p_claim_id uuid, p_bytes bigint, p_physical_name text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_file fileserver.file; v_change bigint;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM fileserver.file f WHERE f.file = p_file) THEN
    RETURN 'unknown';
  END IF;
  IF lease_gate.admit('file/' || p_file, p_fence, p_claim_id) = 'stale' THEN
    RETURN 'stale';
  END IF;
  SELECT * INTO v_file FROM fileserver.file f WHERE f.file = p_file FOR UPDATE;
  IF v_file.physical_name = p_physical_name AND v_file.bytes = p_bytes
     AND EXISTS (SELECT 1 FROM fileserver.lifecycle l WHERE l.file = p_file AND l.event = 'written' AND l.fence = p_fence
                                                        AND l.physical_name = p_physical_name) THEN
    RETURN 'written';
  END IF;
  IF v_file.state <> 'active' THEN
    RETURN 'gone';
  END IF;
  v_change := p_bytes - v_file.bytes;
  IF NOT fileserver.use_bytes(v_file.account, v_change) THEN
    RETURN 'over_quota';
  END IF;
  IF NOT fileserver.take_name(p_physical_name, p_file) THEN
    PERFORM fileserver.use_bytes(v_file.account, -v_change);
    RETURN 'name_taken';
  END IF;
  UPDATE fileserver.file f SET bytes = p_bytes, physical_name = p_physical_name WHERE f.file = p_file;
  INSERT INTO fileserver.lifecycle (file, event, fence, claim_id, physical_name, bytes_change)
  VALUES (p_file, 'written', p_fence, p_claim_id, p_physical_name, v_change);
  RETURN 'written';
END
$$;

-- The first step of a cleanup: from here on nobody writes the file any more, and whoever comes later knows where this one may have
-- moved it to. Outcomes in order: unknown, stale, deleted, deleting. Locks: gate, file.
CREATE OR REPLACE FUNCTION fileserver.begin_cleanup(p_file text, p_fence bigint, p_claim_id uuid)
RETURNS TABLE (verdict text, physical_name text, earlier bigint[], former text[], missing boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_file fileserver.file;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM fileserver.file f WHERE f.file = p_file) THEN
    verdict := 'unknown';
    RETURN NEXT;
    RETURN;
  END IF;
  IF lease_gate.admit('file/' || p_file, p_fence, p_claim_id) = 'stale' THEN
    verdict := 'stale';
    RETURN NEXT;
    RETURN;
  END IF;
  SELECT * INTO v_file FROM fileserver.file f WHERE f.file = p_file FOR UPDATE;
  IF v_file.state = 'active' THEN
    UPDATE fileserver.file f SET state = 'deleting' WHERE f.file = p_file;
    v_file.state := 'deleting';
  END IF;
  IF NOT EXISTS (SELECT 1 FROM fileserver.lifecycle l WHERE l.file = p_file AND l.event = 'begun' AND l.fence = p_fence) THEN
    INSERT INTO fileserver.lifecycle (file, event, fence, claim_id, physical_name)
    VALUES (p_file, 'begun', p_fence, p_claim_id, v_file.physical_name);
  END IF;
  RETURN QUERY
  SELECT v_file.state, v_file.physical_name,
         ARRAY(SELECT DISTINCT l.fence FROM fileserver.lifecycle l
                WHERE l.file = p_file AND l.event = 'begun' AND l.fence < p_fence ORDER BY l.fence),
         ARRAY(SELECT n.physical_name FROM fileserver.physical_name n WHERE n.file = p_file AND n.physical_name <> v_file.physical_name),
         v_file.missing;
END
$$;

-- The second step: the account gets its bytes back, once, and the file's life ends. Outcomes in order: unknown, stale, not_begun, already,
-- settled. Locks: gate, file, account.
CREATE OR REPLACE FUNCTION fileserver.settle_cleanup(p_file text, p_fence bigint, p_claim_id uuid, p_missing boolean)
RETURNS TABLE (verdict text, bytes bigint, settled_by bigint, missing boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_file fileserver.file;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM fileserver.file f WHERE f.file = p_file) THEN
    verdict := 'unknown';
    RETURN NEXT;
    RETURN;
  END IF;
  IF lease_gate.admit('file/' || p_file, p_fence, p_claim_id) = 'stale' THEN
    verdict := 'stale';
    RETURN NEXT;
    RETURN;
  END IF;
  SELECT * INTO v_file FROM fileserver.file f WHERE f.file = p_file FOR UPDATE;
  IF v_file.state = 'active' THEN
    verdict := 'not_begun';
    RETURN NEXT;
    RETURN;
  END IF;
  IF v_file.state = 'deleted' THEN
    IF v_file.settled_by <> p_fence THEN
      INSERT INTO fileserver.lifecycle (file, event, fence, claim_id, physical_name, missing)
      VALUES (p_file, 'confirmed', p_fence, p_claim_id, v_file.physical_name, v_file.missing);
    END IF;
    RETURN QUERY SELECT 'already', v_file.bytes, v_file.settled_by, v_file.missing;
    RETURN;
  END IF;
  UPDATE fileserver.file f SET state = 'deleted', settled_by = p_fence, missing = p_missing WHERE f.file = p_file;
  PERFORM fileserver.use_bytes(v_file.account, -v_file.bytes);
  INSERT INTO fileserver.lifecycle (file, event, fence, claim_id, physical_name, bytes_change, missing)
  VALUES (p_file, 'settled', p_fence, p_claim_id, v_file.physical_name, -v_file.bytes, p_missing);
  RETURN QUERY SELECT 'settled', v_file.bytes, p_fence, p_missing;
END
$$;

-- ---- rights ----

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fileserver FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA fileserver FROM PUBLIC;

DO $$
DECLARE
  v_user text := coalesce(nullif(current_setting('fileserver.user', true), ''), 'fileserver_user');
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles r WHERE r.rolname = v_user) THEN
    BEGIN
      EXECUTE format('CREATE ROLE %I NOLOGIN', v_user);
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;     -- somebody who loads it into another database was faster
    END;
  END IF;
  EXECUTE format('GRANT USAGE ON SCHEMA fileserver TO %I', v_user);
  EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA fileserver TO %I', v_user);
  EXECUTE format('GRANT EXECUTE ON FUNCTION fileserver.open_account(text, bigint), fileserver.store(text, text, bigint, text), '
                 'fileserver.write(text, bigint, uuid, bigint, text), fileserver.begin_cleanup(text, bigint, uuid), '
                 'fileserver.settle_cleanup(text, bigint, uuid, boolean) TO %I', v_user);
END $$;
