SET LOCAL ROLE lease_owner;

-- What the triggers of a guarded table do. Which triggers those are, and when they fire: R__guard_table.sql.
--
-- They run in whatever transaction edits the table, with the owner's rights and a pinned search_path, and they never wait. Nothing here
-- may run a stranger's code with those rights: values become text by their types' output functions (format, concat_ws), which only a
-- superuser can make, and never by a cast, which anybody can.

-- A guarded table is touched by functions made for it (lease_stamp), which belong to lease_stamper or lease_editor: triggers, checks and types of
-- strangers run in them with those roles' rights. They could alter such a function's attributes, never its text, and what they set without LOCAL
-- outlives the SET clauses of every function around them. So each of these functions begins with settings_as and ends with assert_settings_kept,
-- in whose texts every name is qualified: the search_path is what is in doubt.
CREATE OR REPLACE FUNCTION lease.session_settings() RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY[pg_catalog.current_setting('search_path'), pg_catalog.current_setting('role'), pg_catalog.current_setting('synchronous_commit'),
    pg_catalog.current_setting('lock_timeout'), pg_catalog.current_setting('statement_timeout'), pg_catalog.current_setting('idle_in_transaction_session_timeout'),
    pg_catalog.current_setting('transaction_timeout', true), pg_catalog.current_setting('transaction_read_only'), pg_catalog.current_setting('default_transaction_read_only'),
    pg_catalog.current_setting('default_transaction_isolation'), pg_catalog.current_setting('client_encoding'), pg_catalog.current_setting('DateStyle'),
    pg_catalog.current_setting('IntervalStyle'), pg_catalog.current_setting('TimeZone'), pg_catalog.current_setting('bytea_output'),
    pg_catalog.current_setting('extra_float_digits'), pg_catalog.current_setting('standard_conforming_strings'), pg_catalog.current_setting('lease.stamping', true)];
END
$$;

-- The settings now, for assert_settings_kept. LE012 unless it is that role who runs, and under the search_path that the function was made with:
-- the first thing in such a function, before anything of the table.
CREATE OR REPLACE FUNCTION lease.settings_as(p_role text) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
  IF CURRENT_USER OPERATOR(pg_catalog.<>) p_role::pg_catalog.name OR pg_catalog.current_setting('search_path') OPERATOR(pg_catalog.<>) 'pg_catalog, pg_temp'::pg_catalog.text THEN
    RAISE EXCEPTION 'a function of a guarded table was altered' USING ERRCODE = 'LE012', HINT = 'lease.guard_findings tells which; lease.repair_guard puts it right.';
  END IF;
  RETURN lease.session_settings();
END
$$;

-- LE015 if a stranger's code has changed them. The rollback of the caller's subtransaction puts them back.
CREATE OR REPLACE FUNCTION lease.assert_settings_kept(p_before text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF p_before OPERATOR(pg_catalog.<>) lease.session_settings() THEN
    RAISE EXCEPTION 'something on the guarded table changed settings of the session' USING ERRCODE = 'LE015',
      HINT = 'A trigger, a check or a type of it calls SET or set_config; give that function a SET clause instead.';
  END IF;
END
$$;

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

-- Columns of a row as text, the same in every session. An id is the text of the key, joined by colons.
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

-- The columns of a table's primary key, in its order (an index may include others).
CREATE OR REPLACE FUNCTION lease.key_names(p_relation oid) RETURNS text[]
LANGUAGE sql STABLE AS $$
  SELECT array_agg(a.attname::text ORDER BY k.n)
    FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
   WHERE i.indrelid = p_relation AND i.indisprimary AND k.n <= i.indnkeyatts
$$;

-- A guarded table by the relation that a trigger fired on (itself or one of its partitions). columns: key and guarded columns by the names that
-- they have now, for somebody may have renamed them; the trigger lease_guard_columns, which never fires, has followed. All columns if it is gone.
-- The type is the table's name where it is not registered.
CREATE OR REPLACE FUNCTION lease.guard_of(p_relation oid, OUT type text, OUT label text, OUT is_registered boolean, OUT key_columns text[], OUT columns text[])
LANGUAGE plpgsql AS $$
DECLARE
  v_numbers int2[];
BEGIN
  SELECT coalesce(g.type, t.relname), coalesce(g.label, t.relname), g.type IS NOT NULL INTO type, label, is_registered
    FROM pg_catalog.pg_class t LEFT JOIN lease.guarded g ON g.relation = t.oid WHERE t.oid = coalesce(pg_partition_root(p_relation), p_relation);
  SELECT t.tgattr INTO v_numbers FROM pg_catalog.pg_trigger t WHERE t.tgrelid = p_relation AND t.tgname = 'lease_guard_columns';
  SELECT array_agg(a.attname ORDER BY a.attnum) INTO columns FROM pg_catalog.pg_attribute a
   WHERE a.attrelid = p_relation AND a.attnum > 0 AND NOT a.attisdropped AND (a.attnum = ANY (v_numbers) OR v_numbers IS NULL) AND a.attname <> 'lease_fence';
  key_columns := lease.key_names(p_relation);
END
$$;

-- The id of a row from the text of its columns. '?': the primary key has been dropped.
CREATE OR REPLACE FUNCTION lease.id_in(p_text jsonb, p_key_columns text[]) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(string_agg(p_text ->> k.name, ':' ORDER BY k.n), '?') FROM unnest(p_key_columns) WITH ORDINALITY AS k (name, n)
$$;

-- Whether a row's guarded columns or its key differ, byte by byte: that needs no operator of a stranger's type, and sees what an equality
-- that ignores case would not.
CREATE OR REPLACE FUNCTION lease.is_changed(p_relation oid, p_old record, p_new record) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  v_columns constant text[] := (lease.guard_of(p_relation)).columns;
  is_changed boolean;
BEGIN
  EXECUTE format('SELECT record_image_ne(ROW(%s), ROW(%s))', (SELECT string_agg(format('($1).%I', c), ', ') FROM unnest(v_columns) c),
                 (SELECT string_agg(format('($2).%I', c), ', ') FROM unnest(v_columns) c)) INTO is_changed USING p_old, p_new;
  RETURN is_changed;
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
  v_id := lease.id_in(lease.row_text(p_row, g.columns), g.key_columns);
  SELECT c.relname, n.nspname INTO t FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = p_relation;
  SELECT x.kind, x.lease, x.holder, x.since, x.lease_until INTO l FROM lease.lease x WHERE x.fence = p_fence;
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
    MESSAGE = format('lease_fence of %s %s is a stamp that only a lease sets', g.label, lease.id_in(lease.row_text(p_row, g.columns), g.key_columns)),
    HINT = 'Leave the column lease_fence out of the statement, or NULL in rows that you insert.';
END
$$;

-- Records an edit of a row whose lease has lapsed and may still be finished. A table that is not registered records nothing: anybody may
-- put this trigger on a table of his own, and none may tell a run that its contracts have changed.
CREATE OR REPLACE FUNCTION lease.record_edit(p_relation oid, p_fence bigint, p_old record, p_new record, p_has_old boolean, p_has_new boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  g record; v_old jsonb; v_new jsonb;
BEGIN
  SELECT * INTO g FROM lease.guard_of(p_relation);
  IF g.is_registered THEN
    v_old := CASE WHEN p_has_old THEN lease.row_text(p_old, g.columns) END;
    v_new := CASE WHEN p_has_new THEN lease.row_text(p_new, g.columns) END;
    INSERT INTO lease.admitted_edit (fence, type, id, at, by, old, new)
    VALUES (p_fence, g.type, lease.id_in(coalesce(v_old, v_new), g.key_columns), clock_timestamp(), session_user, v_old, v_new);
  END IF;
END
$$;

-- The guard of one row that carries a stamp, or is given one. The triggers' WHEN has sorted out every other row. A row whose stamp is
-- dead and whose lease has ended is let go first: that is what most stamped rows are, whatever is edited.
--
-- Outcomes: LE010 while a live lease covers the row, unless its holder presents himself or an operator made an exception; LE013 for a stamp that somebody writes by
-- hand (a dead one may be taken off, and goes along when a row moves to another partition); otherwise the edit is admitted,
-- and recorded if the lapsed lease may still be finished.
-- A lease that is absent, final or turned over is dead by a plain read: fences are not given out again, and dead stays dead.
-- Locks: as lease.stamp_is_live. Errors: LE010, LE013; 40001 under REPEATABLE READ and SERIALIZABLE.
CREATE OR REPLACE FUNCTION lease.guard_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_fence bigint; v_state text; v_until timestamptz; v_claim uuid; is_overtaken boolean; is_unfinished boolean; is_restamped boolean;
BEGIN
  -- Anybody may put this trigger on a table of his own: a column of his own type would bring its own cast.
  IF pg_typeof(CASE WHEN TG_OP = 'INSERT' THEN NEW.lease_fence ELSE OLD.lease_fence END) <> 'bigint'::regtype THEN
    RAISE EXCEPTION 'lease_fence of %.% is no bigint', TG_TABLE_SCHEMA, TG_TABLE_NAME USING ERRCODE = 'LE012';
  END IF;
  IF TG_OP = 'INSERT' THEN
    v_fence := NEW.lease_fence;
  ELSE
    v_fence := OLD.lease_fence;
  END IF;
  SELECT l.state, l.lease_until, l.claim_id, l.overtaken INTO v_state, v_until, v_claim, is_overtaken FROM lease.lease l WHERE l.fence = v_fence;
  is_unfinished := v_state = 'held' OR v_state IN ('free', 'ready') AND v_claim IS NOT NULL AND NOT is_overtaken;
  IF TG_OP = 'UPDATE' THEN
    is_restamped := NEW.lease_fence IS DISTINCT FROM v_fence;
    IF NOT is_restamped AND (is_unfinished IS NOT TRUE OR NOT lease.is_changed(TG_RELID, OLD, NEW)) THEN
      RETURN NULL;
    END IF;
  END IF;
  IF v_state = 'held' AND lease.stamp_is_live(v_fence, v_until) THEN
    IF TG_OP = 'INSERT' THEN
      -- The other half of a move to another partition, where an operator made an exception for the new id too.
      IF NOT lease.is_excepted(TG_RELID, NEW) THEN
        PERFORM lease.refuse_stamp(TG_RELID, NEW);
      END IF;
    ELSIF is_restamped IS NOT TRUE AND lease.is_presented(v_fence, v_claim) THEN
      RETURN NULL;
    ELSIF is_restamped OR NOT lease.is_excepted(TG_RELID, OLD) THEN
      PERFORM lease.refuse_edit(TG_RELID, OLD, v_fence);
    END IF;
    -- An operator's exception: the run is told of it when it finishes.
    PERFORM lease.record_edit(TG_RELID, v_fence, OLD, NEW, TG_OP <> 'INSERT', TG_OP <> 'DELETE');
    RETURN NULL;
  END IF;
  -- A fence that is still to be drawn would make this row covered by whoever draws it.
  IF TG_OP = 'INSERT' AND v_fence > (SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END FROM lease.fence q) OR is_restamped AND NEW.lease_fence IS NOT NULL THEN
    PERFORM lease.refuse_stamp(TG_RELID, NEW);
  END IF;
  IF is_unfinished THEN
    PERFORM lease.record_edit(TG_RELID, v_fence, OLD, NEW, TG_OP <> 'INSERT', TG_OP <> 'DELETE');
  END IF;
  RETURN NULL;
END
$$;

-- The word that lease.apply says before it stamps rows of a table, or edits one: good for that table, in this transaction.
CREATE OR REPLACE FUNCTION lease.stamping_token(p_relation oid) RETURNS text
LANGUAGE sql AS $$
  SELECT encode(sha256(convert_to(s.secret || ' ' || p_relation || ' ' || pg_current_xact_id()::text, 'UTF8')), 'hex') FROM lease.stamping_secret s
$$;

-- Of lease_guard_stamper, and of lease_guard_editor where a table takes edits, of which all the same is true. Whatever a stamp runs in a stranger's table has the stamper's rights on every guarded table: triggers, and at no depth
-- of triggers checks, domains, generated columns and index expressions. It has not his word, and what a trigger does is never a start's.
CREATE OR REPLACE FUNCTION lease.guard_stamper() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF pg_trigger_depth() <> 1 OR current_setting('lease.stamping', true) IS DISTINCT FROM lease.stamping_token(TG_RELID) THEN
    RAISE EXCEPTION 'only what lease.apply does itself is done to %.% as %', TG_TABLE_SCHEMA, TG_TABLE_NAME, CASE TG_NAME WHEN 'lease_guard_editor' THEN 'lease_editor' ELSE 'lease_stamper' END
      USING ERRCODE = 'LE013';
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

-- Of lease_guard_columns, which is always disabled: it is there to have a list of columns.
CREATE OR REPLACE FUNCTION lease.guard_columns() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN NULL;
END
$$;

-- Whoever makes a partition of a guarded table puts these triggers on it, and whoever edits it evaluates their WHEN.
GRANT EXECUTE ON FUNCTION lease.guard_row, lease.guard_truncate, lease.guard_columns, lease.guard_stamper TO PUBLIC;
GRANT USAGE ON SCHEMA lease TO lease_editor;
GRANT EXECUTE ON FUNCTION lease.session_settings, lease.settings_as, lease.assert_settings_kept TO lease_stamper, lease_editor;
RESET ROLE;
