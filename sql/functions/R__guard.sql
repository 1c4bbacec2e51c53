SET LOCAL ROLE lease_owner;

-- What the triggers of a guarded table do. Which triggers those are, and when they fire: R__guard_table.sql.
--
-- They run in whatever transaction edits the table, with the owner's rights and a pinned search_path, and they never wait. Nothing here
-- may run a stranger's code with those rights: values become text by their types' output functions (format, concat_ws), which only a
-- superuser can make, and never by a cast, which anybody can.

-- Whether a stamp's lease, which a plain read shows as held until p_lease_until, covers its rows now.
--
-- Under READ COMMITTED an unexpired lease needs no second look. Any other one is looked at FOR SHARE SKIP LOCKED in a
-- subtransaction that is rolled back, so that no lock stays: an expiry that was read may be about to move (whoever renews has the
-- lease locked: it counts as live), or have moved since an old snapshot was taken (the look fails with 40001, which is passed on:
-- nobody is refused, or let in, by an old snapshot's word).
-- Locks: the lease's row, FOR SHARE, for a moment. Errors: 40001 under REPEATABLE READ and SERIALIZABLE.
CREATE OR REPLACE FUNCTION lease.stamp_is_live(p_fence bigint, p_lease_until timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  v_state text; v_until timestamptz; is_ours boolean;
BEGIN
  IF (p_lease_until IS NULL OR p_lease_until > clock_timestamp()) AND current_setting('transaction_isolation') = 'read committed' THEN
    RETURN true;
  END IF;
  BEGIN
    SELECT l.state, l.lease_until INTO v_state, v_until FROM lease.lease l WHERE l.fence = p_fence FOR SHARE SKIP LOCKED;
    is_ours := FOUND;
    RAISE EXCEPTION USING ERRCODE = 'LE000', MESSAGE = 'takes the lock back';
  EXCEPTION WHEN SQLSTATE 'LE000' THEN NULL;
  END;
  IF NOT is_ours THEN   -- somebody has it in hand; or it was granted anew a moment ago, and this fence has no lease any more
    SELECT l.state, NULL INTO v_state, v_until FROM lease.lease l WHERE l.fence = p_fence;
  END IF;
  RETURN coalesce(v_state = 'held' AND (v_until IS NULL OR v_until > clock_timestamp()), false);
END
$$;

-- Whether this session writes for the lease's holder: it presents fence and claim id in the settings lease.fence and lease.claim_id
-- (SET LOCAL), under a login that was granted lease_holder. Neither number is a secret; the role is what counts.
CREATE OR REPLACE FUNCTION lease.is_presented(p_fence bigint, p_claim_id uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT coalesce(current_setting('lease.fence', true) = p_fence::text AND lower(current_setting('lease.claim_id', true)) = p_claim_id::text, false)
     AND pg_has_role(session_user, 'lease_holder', 'MEMBER')
$$;

-- Columns of a row as text, and its id: the text of its key, joined by colons; the same in every session.
CREATE OR REPLACE FUNCTION lease.row_text(p_row record, p_columns text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 SET bytea_output = 'hex' AS $$
DECLARE
  v_text jsonb;
BEGIN
  EXECUTE 'SELECT jsonb_build_object(' || (SELECT string_agg(format(
    '%1$L, CASE WHEN num_nulls(($1).%1$I) > 0 THEN NULL WHEN pg_typeof(($1).%1$I) = ''bpchar''::regtype THEN rtrim(format(''%%s'', ($1).%1$I)) ELSE format(''%%s'', ($1).%1$I) END', c), ', ')
                                             FROM unnest(p_columns) AS c) || ')'
    INTO v_text USING p_row;
  RETURN v_text;
END
$$;

-- A guarded table by the relation that a trigger fired on (itself or one of its partitions), with its columns by the names that they
-- have now: somebody may have renamed them, and an edit must not fail for that. The type is the table's name where it is not registered.
CREATE OR REPLACE FUNCTION lease.guard_of(p_relation oid, OUT type text, OUT label text, OUT is_registered boolean, OUT key_columns text[], OUT columns text[])
LANGUAGE sql STABLE AS $$
  SELECT coalesce(g.type, t.relname), coalesce(g.label, t.relname), g.type IS NOT NULL, k.columns,
         ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = p_relation AND a.attname = ANY (k.columns || g.columns) ORDER BY a.attnum)
    FROM (SELECT coalesce(pg_partition_root(p_relation), p_relation) AS relation) AS r
    JOIN pg_catalog.pg_class t ON t.oid = r.relation
    LEFT JOIN lease.guarded g ON g.relation = r.relation
    CROSS JOIN LATERAL (SELECT coalesce(array_agg(a.attname::text ORDER BY array_position(i.indkey::int2[], a.attnum)), '{}') AS columns
                          FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
                         WHERE i.indrelid = p_relation AND i.indisprimary) AS k
$$;

CREATE OR REPLACE FUNCTION lease.row_id(p_row record, p_key_columns text[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  v_key jsonb;
BEGIN
  IF p_key_columns = '{}' THEN
    RETURN '?';   -- the primary key has been dropped
  END IF;
  v_key := lease.row_text(p_row, p_key_columns);
  RETURN (SELECT string_agg(v_key ->> k.name, ':' ORDER BY k.n) FROM unnest(p_key_columns) WITH ORDINALITY AS k (name, n));
END
$$;

CREATE OR REPLACE FUNCTION lease.utc(p_at timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- Tells the person whose edit meets a live lease what is in the way, until when, and where to find out more. Always raises LE010.
CREATE OR REPLACE FUNCTION lease.refuse_edit(p_relation oid, p_row record, p_fence bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  g record; l record; t record;
  v_id text;
BEGIN
  SELECT * INTO g FROM lease.guard_of(p_relation);
  SELECT c.relname, n.nspname INTO t FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = p_relation;
  SELECT x.kind, x.lease, x.holder, x.since, x.lease_until INTO l FROM lease.lease x WHERE x.fence = p_fence;
  v_id := lease.row_id(p_row, g.key_columns);
  RAISE EXCEPTION USING ERRCODE = 'LE010', SCHEMA = t.nspname, TABLE = t.relname,
    MESSAGE = format('%s %s cannot be changed while %s %s is using it', g.label, v_id, l.kind, l.lease),
    DETAIL = format('Type %s, id %s; kind %s, run %s, holder %s; fence %s; since %s; ', g.type, v_id, l.kind, l.lease, l.holder, p_fence, coalesce(lease.utc(l.since), 'unknown'))
      || CASE WHEN l.lease_until IS NULL THEN 'without an expiry: an operator has to resolve it.'
              ELSE format('until %s, in %s s, unless it is renewed.', lease.utc(l.lease_until),
                          greatest(0, round(extract(epoch FROM l.lease_until - clock_timestamp()), 3))) END,
    HINT = format('Only its columns %s are guarded. More: leasectl show %s/%s', array_to_string(g.columns, ', '), l.kind, l.lease);
END
$$;

CREATE OR REPLACE FUNCTION lease.refuse_stamp(p_relation oid, p_row record) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  g record;
BEGIN
  SELECT * INTO g FROM lease.guard_of(p_relation);
  RAISE EXCEPTION USING ERRCODE = 'LE013',
    MESSAGE = format('lease_fence of %s %s is a stamp that only a lease sets', g.label, lease.row_id(p_row, g.key_columns)),
    HINT = 'Leave the column lease_fence out of the statement, or NULL in rows that you insert.';
END
$$;

-- Records an edit of a row whose lease has lapsed and may still be finished. A table that is not registered records nothing: anybody may
-- put this trigger on a table of his own, and none may tell a run that its contracts have changed.
CREATE OR REPLACE FUNCTION lease.record_edit(p_relation oid, p_fence bigint, p_old record, p_new record, p_has_old boolean, p_has_new boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  g record;
BEGIN
  SELECT * INTO g FROM lease.guard_of(p_relation);
  IF g.is_registered THEN
    INSERT INTO lease.admitted_edit (fence, type, id, at, by, old, new)
    VALUES (p_fence, g.type, CASE WHEN p_has_old THEN lease.row_id(p_old, g.key_columns) ELSE lease.row_id(p_new, g.key_columns) END,
            clock_timestamp(), session_user,
            CASE WHEN p_has_old THEN lease.row_text(p_old, g.columns) END, CASE WHEN p_has_new THEN lease.row_text(p_new, g.columns) END);
  END IF;
END
$$;

-- The guard of one row that carries a stamp, or is given one. The triggers' WHEN has sorted out every other row.
--
-- Outcomes: LE010 while a live lease covers the row, unless its holder presents himself or an operator made an exception; LE013 for a stamp that somebody writes by
-- hand (a dead one may be taken off, and goes along when a row moves to another partition); otherwise the edit is admitted,
-- and recorded if the lapsed lease may still be finished.
-- A lease that is absent, final or turned over is dead by a plain read: fences are not given out again, and dead stays dead.
-- Locks: as lease.stamp_is_live. Errors: LE010, LE013; 40001 under REPEATABLE READ and SERIALIZABLE.
CREATE OR REPLACE FUNCTION lease.guard_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_fence bigint; v_state text; v_until timestamptz; v_claim uuid; is_overtaken boolean;
BEGIN
  IF TG_OP = 'INSERT' THEN
    v_fence := NEW.lease_fence;
  ELSE
    v_fence := OLD.lease_fence;
  END IF;
  SELECT l.state, l.lease_until, l.claim_id, l.overtaken INTO v_state, v_until, v_claim, is_overtaken FROM lease.lease l WHERE l.fence = v_fence;
  IF v_state = 'held' AND lease.stamp_is_live(v_fence, v_until) THEN
    IF TG_OP = 'INSERT' THEN
      PERFORM lease.refuse_stamp(TG_RELID, NEW);
    ELSIF TG_NAME <> 'lease_guard_stamp' AND lease.is_presented(v_fence, v_claim) THEN
      RETURN NULL;
    ELSIF TG_NAME = 'lease_guard_stamp' OR NOT lease.is_excepted(TG_RELID, OLD) THEN
      PERFORM lease.refuse_edit(TG_RELID, OLD, v_fence);
    END IF;
    -- An operator's exception: the run is told of it when it finishes.
    PERFORM lease.record_edit(TG_RELID, v_fence, OLD, NEW, true, TG_OP <> 'DELETE');
    RETURN NULL;
  END IF;
  -- A fence that is still to be drawn would make this row covered by whoever draws it.
  IF TG_OP = 'INSERT' AND v_fence > (SELECT last_value FROM lease.fence) OR TG_NAME = 'lease_guard_stamp' AND NEW.lease_fence IS NOT NULL THEN
    PERFORM lease.refuse_stamp(TG_RELID, NEW);
  END IF;
  IF v_state = 'held' OR v_state IN ('free', 'ready') AND v_claim IS NOT NULL AND NOT is_overtaken THEN
    PERFORM lease.record_edit(TG_RELID, v_fence, OLD, NEW, TG_OP <> 'INSERT', TG_OP <> 'DELETE');
  END IF;
  RETURN NULL;
END
$$;

-- TRUNCATE fires no row's trigger, so that nobody could tell whether a lease covers one: it is always refused.
CREATE OR REPLACE FUNCTION lease.guard_truncate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g record;
BEGIN
  SELECT * INTO g FROM lease.guard_of(TG_RELID);
  RAISE EXCEPTION USING ERRCODE = 'LE011', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
    MESSAGE = format('%I.%I holds the rows of type %s and is never truncated', TG_TABLE_SCHEMA, TG_TABLE_NAME, g.type),
    HINT = format('DELETE looks at each row. To take the guard away first: SELECT lease.unguard_table(%L)', g.type);
END
$$;

-- Whoever makes a partition of a guarded table puts these triggers on it, and needs this for it.
GRANT EXECUTE ON FUNCTION lease.guard_row, lease.guard_truncate TO PUBLIC;
RESET ROLE;
