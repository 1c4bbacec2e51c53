SET LOCAL ROLE lease_owner;

-- Edits by message: made at once where no live lease covers the row, otherwise parked and made in their order when it has ended, if the columns are
-- still as their author saw them. Parts of lease.apply, which has pinned the search_path, but for lease.allow_edits and lease.ask_edit, which people call, and
-- lease.serve_edits, which the reaper calls.

-- The type below domains, and the length or scale that values get on the way there (-1: none). Of an array, those of its elements.
CREATE OR REPLACE FUNCTION lease.base_of(p_type oid, p_typmod int, OUT name text, OUT typmod int)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE step AS (
    SELECT p_type AS type, p_typmod AS typmod, false AS is_array, 0 AS n
    UNION ALL
    SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE s.typmod END, s.is_array OR t.typtype <> 'd', s.n + 1
      FROM step s JOIN pg_type t ON t.oid = s.type WHERE t.typtype = 'd' OR t.typcategory = 'A' AND t.typelem <> 0)
  SELECT format_type(s.type, -1) || CASE WHEN s.is_array THEN '[]' ELSE '' END, s.typmod FROM step s ORDER BY s.n DESC LIMIT 1
$$;

-- Raises LE020 unless each guarded column can be edited: it is there, takes values, and can be compared with what an author saw.
CREATE OR REPLACE FUNCTION lease.assert_editable(p_guarded lease.guarded) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c record;
BEGIN
  FOR c IN SELECT u.name, a.attnum, a.attgenerated <> '' OR a.attidentity = 'a' AS is_made, b.name AS type
             FROM unnest(p_guarded.columns) AS u (name)
             LEFT JOIN pg_attribute a ON a.attrelid = p_guarded.relation AND a.attname = u.name AND NOT a.attisdropped
             LEFT JOIN LATERAL lease.base_of(a.atttypid, a.atttypmod) b ON true LOOP
    IF c.attnum IS NULL THEN
      PERFORM lease.refuse_guard(format('%s has no column %I any more', p_guarded.relation, c.name), format('SELECT lease.repair_guard(%L)', p_guarded.type));
    ELSIF c.is_made THEN
      PERFORM lease.refuse_guard(format('the column %I of %s is generated', c.name, p_guarded.relation), 'Guard the columns that it is made of instead; lease.unguard_table, then guard it anew.');
    END IF;
    BEGIN   -- as the edit compares, and as arrays compare their elements; nothing of the type's is called
      EXECUTE format('SELECT FROM (SELECT NULL::%1$s AS c) q WHERE q.c IS NOT DISTINCT FROM NULL::%1$s GROUP BY q.c', c.type);
    EXCEPTION WHEN undefined_function OR ambiguous_function THEN
      PERFORM lease.refuse_guard(format('the column %I of %s is of a type without equality', c.name, p_guarded.relation), 'An edit says what the column was. For json: jsonb has it.');
    END;
  END LOOP;
END
$$;

-- lease.allow_edits: a guarded table takes edits of its guarded columns by message. Makes the one function that can make them, with the rights of lease_editor,
-- to whom it grants what is needed on the table. The caller is who guarded it. lease.guarded.takes_edits tells; lease.refuse_edits takes it back.
-- Locks: the table, SHARE ROW EXCLUSIVE, to the end of the transaction. Errors: LE020 for a type that is not guarded, or columns that cannot be edited; 42501 for who may not.
CREATE OR REPLACE FUNCTION lease.allow_edits(p_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
  g lease.guarded; v_columns text; v_name constant text := quote_ident(p_type || '.edit');
BEGIN
  PERFORM lease.assert_registrar();
  SELECT * INTO g FROM lease.guarded x WHERE x.type = p_type FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM lease.refuse_guard(format('no table is guarded as %s', coalesce(p_type, 'NULL')), 'First: SELECT lease.guard_table(...)');
  END IF;
  PERFORM lease.assert_editable(g);
  v_columns := (SELECT string_agg(format('%I', c), ', ') FROM unnest(g.columns) c);
  EXECUTE format('GRANT SELECT (%s, %s), UPDATE (%s) ON TABLE %s TO lease_editor', (SELECT string_agg(format('%I', c), ', ') FROM unnest(g.key_columns) c), v_columns, v_columns, g.relation);
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO lease_editor', g.schema_name);
  -- What an edit runs in a stranger's table has lease_editor's rights on all tables that take edits: see lease.guard_stamper.
  EXECUTE format('DROP TRIGGER IF EXISTS lease_guard_editor ON %s', g.relation);
  EXECUTE format('CREATE TRIGGER lease_guard_editor BEFORE UPDATE OF %s ON %s WHEN (CURRENT_USER = ''lease_editor'') EXECUTE FUNCTION lease.guard_stamper()', v_columns, g.relation);
  EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER lease_guard_editor', g.relation);
  EXECUTE format('DROP FUNCTION IF EXISTS lease_stamp.%s(text, jsonb, jsonb)', v_name);
  EXECUTE lease.text_of_edit(g, v_name);
  EXECUTE format('REVOKE ALL ON FUNCTION lease_stamp.%s(text, jsonb, jsonb) FROM PUBLIC', v_name);
  EXECUTE format('GRANT EXECUTE ON FUNCTION lease_stamp.%s(text, jsonb, jsonb) TO lease_owner', v_name);
  GRANT CREATE ON SCHEMA lease_stamp TO lease_editor;
  EXECUTE format('ALTER FUNCTION lease_stamp.%s(text, jsonb, jsonb) OWNER TO lease_editor', v_name);
  REVOKE CREATE ON SCHEMA lease_stamp FROM lease_editor;
  UPDATE lease.guarded x SET takes_edits = true WHERE x.type = p_type;
END
$$;

-- The function that makes the edits of a table: sets the columns of p_new, if those of p_old are still so. Every name and type in it is the catalogue's own;
-- nothing of a message becomes text of a statement. A row counts only under the name that it has itself: another spelling would be another row's place in the
-- order of edits. PostgreSQL rounds a number, or a time, to what its column holds; an edit must say what the row will have.
-- What the UPDATE fires may be a stranger's code: nothing stands between it and the look at the session's settings.
CREATE OR REPLACE FUNCTION lease.text_of_edit(p_guarded lease.guarded, p_name text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record;
  v_table constant text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = p_guarded.relation);
  v_sets text; v_olds text; v_exact text;
BEGIN
  SELECT k.*, ' FROM ' || rtrim(nullif(left(k.tables, -length(v_table)), ''), ', ') AS others INTO t FROM lease.key_texts(p_guarded.relation) k;
  SELECT string_agg(format('%1$I = CASE WHEN p_new ? %2$L THEN n.%1$I ELSE t.%1$I END', c, c), ', '),
         string_agg(format('(NOT p_old ? %2$L OR t.%1$I IS NOT DISTINCT FROM o.%1$I)', c, c), ' AND ')
    INTO v_sets, v_olds FROM unnest(p_guarded.columns) AS c;
  SELECT string_agg(format($text$IF p_new ? %2$L AND n.%1$I::%3$s IS DISTINCT FROM (SELECT x.%1$I FROM jsonb_to_record(p_new) AS x (%1$I %3$s)) THEN
    RAISE EXCEPTION 'more decimals than the column has' USING ERRCODE = 'numeric_value_out_of_range';
  END IF;$text$, a.attname, a.attname, b.name), E'\n  ')
    INTO v_exact FROM pg_attribute a CROSS JOIN LATERAL lease.base_of(a.atttypid, a.atttypmod) b
   WHERE a.attrelid = p_guarded.relation AND a.attname = ANY (p_guarded.columns) AND b.typmod <> -1;
  RETURN format($text$
CREATE FUNCTION lease_stamp.%s(p_id text, p_old jsonb, p_new jsonb) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres' SET extra_float_digits = 1
SET bytea_output = 'hex' SET jit = off AS $body$
DECLARE
  v_settings constant text[] := lease.settings_as('lease_editor');
  p_ids constant text[] := ARRAY[p_id];
%s
  o %s; n %s; v_count bigint; v_id text;
BEGIN
  o := jsonb_populate_record(o, p_old);
  n := jsonb_populate_record(n, p_new);
  %s
  UPDATE %s AS t SET %s%s WHERE %s AND %s = p_id AND %s;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  SET CONSTRAINTS ALL IMMEDIATE;
  PERFORM lease.assert_settings_kept(v_settings);
  IF v_count > 0 THEN
    RETURN 'applied';
  END IF;
  SELECT %s INTO v_id FROM %s AS t WHERE %s;
  IF v_id <> p_id THEN
    RAISE EXCEPTION 'an id is not spelled as the table spells it' USING ERRCODE = 'invalid_text_representation';
  END IF;
  RETURN CASE WHEN v_id IS NULL THEN 'no_such_row' ELSE 'row_changed' END;
END
$body$ $text$, p_name, t.keys, v_table, v_table, v_exact, v_table, v_sets, t.others, t.is_in, t.id, v_olds, t.id, t.tables, t.is_in);
END
$$;

-- lease.refuse_edits: takes it back. What is parked for the table bounces when its turn comes. Same caller, same errors.
CREATE OR REPLACE FUNCTION lease.refuse_edits(p_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g lease.guarded;
BEGIN
  PERFORM lease.assert_registrar();
  UPDATE lease.guarded x SET takes_edits = false WHERE x.type = p_type AND x.takes_edits RETURNING * INTO g;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  EXECUTE format('DROP FUNCTION IF EXISTS lease_stamp.%I(text, jsonb, jsonb)', p_type || '.edit');
  IF EXISTS (SELECT FROM pg_class c WHERE c.oid = g.relation) THEN
    EXECUTE format('DROP TRIGGER IF EXISTS lease_guard_editor ON %s', g.relation);
    EXECUTE format('REVOKE ALL ON TABLE %s FROM lease_editor', g.relation);
    IF NOT EXISTS (SELECT FROM lease.guarded x WHERE x.takes_edits AND x.schema_name = g.schema_name) THEN
      EXECUTE format('REVOKE ALL ON SCHEMA %I FROM lease_editor', g.schema_name);
    END IF;
  END IF;
END
$$;

-- Before it had p_editor and p_live.
DROP FUNCTION IF EXISTS lease.make_edit(text, text, jsonb, jsonb);

-- Makes one edit, if nothing is in the way. outcome: applied; bounced, with the reason and, where a value is to blame, its SQLSTATE; parked, where a live lease covers
-- the row (its fence in blocked_by), or a stranger has it locked, or it shall be tried again for another reason (blocked_by NULL). Nobody is waited for.
-- p_live: fences that live by what this batch has decided, whose leases are written at its end: the guard, which reads them, knows nothing of it yet.
-- Whatever the table raises is this edit's own affair.
CREATE OR REPLACE FUNCTION lease.make_edit(p_type text, p_id text, p_editor text, p_old jsonb, p_new jsonb, p_live bigint[], OUT outcome text, OUT reason text, OUT blocked_by bigint)
LANGUAGE plpgsql AS $$
DECLARE
  patience constant interval := '5 seconds';   -- of one statement: a slow trigger may have used it up, and cost those behind it only time
  v_done text; v_stamps bigint[]; v_columns text[]; v_lock_timeout constant text := current_setting('lock_timeout'); v_begun constant timestamptz := clock_timestamp();
BEGIN
  SELECT g.columns INTO v_columns FROM lease.guarded g WHERE g.type = p_type AND g.takes_edits;
  IF NOT FOUND THEN
    outcome := 'bounced'; reason := 'edits_not_taken';
    RETURN;
  ELSIF EXISTS (SELECT FROM jsonb_object_keys(p_new || p_old) k WHERE k <> ALL (v_columns)) THEN
    outcome := 'bounced'; reason := 'refused_42703';   -- the column has another name since it was parked
    RETURN;
  ELSIF v_begun > statement_timestamp() + patience THEN
    outcome := 'parked';
    RETURN;
  END IF;
  PERFORM set_config('lock_timeout', '1ms', true);
  IF p_live <> '{}' THEN
    v_stamps := lease.read_stamps(p_type, ARRAY[p_id]);
    IF v_stamps && p_live THEN
      outcome := 'parked'; blocked_by := v_stamps[1];
      PERFORM set_config('lock_timeout', v_lock_timeout, true);
      RETURN;
    END IF;
  END IF;
  BEGIN
    PERFORM set_config('lease.stamping', lease.stamping_token(g.relation), true) FROM lease.guarded g WHERE g.type = p_type;
    EXECUTE format('SELECT lease_stamp.%I($1, $2, $3)', p_type || '.edit') INTO v_done USING p_id, p_old, p_new;
    outcome := CASE WHEN v_done = 'applied' THEN 'applied' ELSE 'bounced' END;
    reason := nullif(v_done, 'applied');
  EXCEPTION WHEN OTHERS OR assert_failure OR query_canceled THEN
    -- What may pass is tried again: a live lease, a lock, a conflict, what the server lacks. Not so one that ran out of time.
    outcome := CASE WHEN SQLSTATE IN ('LE010', '55P03', '40001', '40P01') OR left(SQLSTATE, 2) IN ('08', '53', '58') OR left(SQLSTATE, 3) = '57P' THEN 'parked' ELSE 'bounced' END;
    reason := CASE WHEN outcome = 'bounced' THEN 'refused_' || lower(SQLSTATE) END;
    IF SQLSTATE = 'LE010' THEN
      v_stamps := lease.read_stamps(p_type, ARRAY[p_id]);
      blocked_by := v_stamps[1];
    END IF;
  END;
  -- What a run will be told of its rows: the guard saw the coordinator's login.
  IF outcome = 'applied' AND EXISTS (SELECT FROM lease.admitted_edit) THEN
    UPDATE lease.admitted_edit a SET by = p_editor
     WHERE a.fence = ANY (lease.read_stamps(p_type, ARRAY[p_id])) AND a.type = p_type AND a.id = p_id AND a.at >= v_begun AND a.by = session_user;
  END IF;
  PERFORM set_config('lock_timeout', v_lock_timeout, true);
END
$$;

-- What is wrong with an edit before any row is looked at: the place and the reason, or NULL.
-- Money is text ("70.5"), never a JSON number with a fraction: what reads JSON into doubles would have changed it on the way.
CREATE OR REPLACE FUNCTION lease.fault_of_edit(p_columns text[], p_old jsonb, p_new jsonb, OUT reason text, OUT field text)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  r record;
BEGIN
  IF jsonb_typeof(p_new) IS DISTINCT FROM 'object' OR jsonb_typeof(p_old) IS DISTINCT FROM 'object' THEN
    reason := 'wrong_type'; field := CASE WHEN jsonb_typeof(p_new) = 'object' THEN 'old' ELSE 'new' END;
    RETURN;
  ELSIF p_new = '{}' THEN
    reason := 'empty'; field := 'new';
    RETURN;
  END IF;
  FOR r IN SELECT 'new.' || n.key AS name, n.key, n.value FROM jsonb_each(p_new) n UNION ALL SELECT 'old.' || o.key, o.key, o.value FROM jsonb_each(p_old) o ORDER BY 1 LOOP
    field := left(r.name, 128);   -- it goes into the answer, and may be as long as a message
    IF r.key <> ALL (p_columns) THEN
      reason := 'unknown_member';
      RETURN;
    ELSIF jsonb_typeof(r.value) = 'number' AND r.value::text ~ '[.eE]' THEN
      reason := 'wrong_type';
      RETURN;
    END IF;
  END LOOP;
  SELECT 'missing', left('old.' || n, 128) INTO reason, field FROM jsonb_object_keys(p_new) n WHERE NOT p_old ? n ORDER BY 2 LIMIT 1;
  IF reason IS NULL THEN
    field := NULL;
  END IF;
END
$$;

-- Whether no more edits are parked. Counted at most once a second, when those that were counted and all that have been numbered since might be too many.
-- (What other transactions are just parking is not seen.)
CREATE OR REPLACE FUNCTION lease.parked_is_full(p_max bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  v_most bigint; v_at timestamptz; v_upto bigint; v_counted bigint;
BEGIN
  SELECT c.counted + s.last_value - c.upto, c.at, s.last_value INTO v_most, v_at, v_upto FROM lease.parked_count c, lease.parked_edit_no_seq s;
  IF v_most < p_max OR v_at > clock_timestamp() - interval '1 second' THEN
    RETURN v_most >= p_max;
  END IF;
  SELECT count(*) INTO v_counted FROM lease.parked_edit;
  UPDATE lease.parked_count c SET counted = v_counted, upto = v_upto, at = clock_timestamp() WHERE EXISTS (SELECT FROM lease.parked_count FOR UPDATE SKIP LOCKED);
  RETURN v_counted >= p_max;
END
$$;

-- Before they had p_kind, p_source, p_live.
DROP FUNCTION IF EXISTS lease.take_edit(text, text, jsonb, text, bigint, text, text, text, timestamptz);
DROP FUNCTION IF EXISTS lease.cancel_edit(text, text, text);

-- A parked edit by the id of its message: one of the same source, else one of that editor's, else any. Ids are unique in a source only; but who asked by
-- a message may go on in SQL.
CREATE OR REPLACE FUNCTION lease.parked_as(p_type text, p_id text, p_message_id text, p_source text, p_editor text) RETURNS lease.parked_edit
LANGUAGE sql STABLE AS $$
  SELECT x.* FROM lease.parked_edit x WHERE x.message_id = p_message_id AND x.type = p_type AND x.id = p_id
   ORDER BY x.source = p_source DESC, x.editor = p_editor DESC, x.no DESC LIMIT 1
$$;

-- One edit as it comes: applied, parked, or refused. p_follows: the message of a parked edit of the same row whose new values this one was made on.
-- p_live: fences that live by what this batch has decided and not written yet. blocked_by: whose lease is in the way; blocker: the same as it is written.
CREATE OR REPLACE FUNCTION lease.take_edit(p_kind text, p_subject text, p_editor text, p_edit jsonb, p_follows text, p_park_ms bigint, p_source text, p_message_id text,
  p_traceparent text, p_at timestamptz, p_live bigint[], OUT outcome text, OUT reason text, OUT field text, OUT blocked_by bigint, OUT blocker jsonb)
LANGUAGE plpgsql AS $$
DECLARE
  parked_row_max constant int := 1000;
  parked_max constant int := 200000;
  v_type constant text := split_part(p_subject, '/', 1); v_id constant text := substr(p_subject, length(split_part(p_subject, '/', 1)) + 2);
  g lease.guarded; f lease.parked_edit; v_old jsonb := coalesce(p_edit -> 'old', '{}'); v_new constant jsonb := p_edit -> 'new'; v_row_count bigint;
BEGIN
  SELECT * INTO g FROM lease.guarded x WHERE x.type = v_type;
  IF NOT FOUND OR NOT g.takes_edits THEN
    outcome := 'bounced'; reason := 'edits_not_taken'; field := 'subject';
    RETURN;
  END IF;
  IF p_follows IS NOT NULL THEN
    f := lease.parked_as(v_type, v_id, p_follows, p_source, p_editor);
    IF f.no IS NULL THEN
      outcome := 'bounced'; reason := 'not_parked'; field := 'follows';
      RETURN;
    END IF;
    IF jsonb_typeof(v_old) = 'object' AND jsonb_typeof(v_new) = 'object' THEN
      v_old := f.old || f.new || v_old;
      v_old := (SELECT coalesce(jsonb_object_agg(o.key, o.value), '{}') FROM jsonb_each(v_old) o WHERE v_new ? o.key OR (p_edit -> 'old') ? o.key);
    END IF;
  END IF;
  SELECT w.reason, w.field INTO reason, field FROM lease.fault_of_edit(g.columns, v_old, v_new) w;
  IF reason IS NOT NULL THEN
    outcome := 'malformed';
    RETURN;
  END IF;
  SELECT count(*), min(q.blocked_by) FILTER (WHERE q.place = 1) INTO v_row_count, blocked_by
    FROM (SELECT x.blocked_by, row_number() OVER (ORDER BY x.no) AS place FROM lease.parked_edit x WHERE x.type = v_type AND x.id = v_id ORDER BY x.no LIMIT parked_row_max) q;
  IF v_row_count = 0 THEN
    SELECT m.outcome, m.reason, m.blocked_by INTO outcome, reason, blocked_by FROM lease.make_edit(v_type, v_id, p_editor, v_old, v_new, p_live) m;
    IF outcome <> 'parked' THEN
      RETURN;
    END IF;
  END IF;
  IF v_row_count >= parked_row_max OR lease.parked_is_full(parked_max) THEN
    outcome := 'bounced'; reason := 'too_many_parked'; blocked_by := NULL;
    RETURN;
  END IF;
  outcome := 'parked';
  -- Behind another one it waits for the same; where that is a stranger's lock, nobody tells when it is let go.
  INSERT INTO lease.parked_edit (kind, type, id, editor, old, new, source, message_id, traceparent, asked_at, expires_at, blocked_by, retry_at)
  VALUES (p_kind, v_type, v_id, p_editor, v_old, v_new, p_source, p_message_id, p_traceparent, p_at, p_at + p_park_ms * interval '1 ms', blocked_by,
          CASE WHEN blocked_by IS NULL THEN p_at END);
  SELECT jsonb_strip_nulls(jsonb_build_object('kind', l.kind, 'lease', l.lease, 'resource', p_subject, 'holder', l.holder, 'fence', l.fence,
                                              'since', lease.utc(l.since), 'until', lease.utc(l.lease_until)))
    INTO blocker FROM lease.lease l WHERE l.fence = blocked_by;
END
$$;

-- Before it had p_reason.
DROP FUNCTION IF EXISTS lease.retry_edit(bigint, timestamptz);

-- The first of a row's parked edits was tried, and something is in its way: those behind it wait for the same. Where nobody tells when that is over,
-- they are called when the first one goes, and look for themselves once a minute in case that was missed.
CREATE OR REPLACE FUNCTION lease.put_behind(p_first lease.parked_edit, p_at timestamptz) RETURNS void
LANGUAGE sql AS $$
  UPDATE lease.parked_edit x SET blocked_by = p_first.blocked_by, retry_at = CASE WHEN p_first.blocked_by IS NULL THEN p_at + interval '1 minute' END
   WHERE x.type = p_first.type AND x.id = p_first.id AND x.no > p_first.no AND (x.blocked_by IS DISTINCT FROM p_first.blocked_by OR x.retry_at <= p_at)
$$;

-- An edit is parked no more: if it was the first one of its row, the next one's turn has come.
CREATE OR REPLACE FUNCTION lease.take_out(p_edit lease.parked_edit) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lease.parked_edit x WHERE x.no = p_edit.no;
  UPDATE lease.parked_edit x SET retry_at = '-infinity'
   WHERE x.no = (SELECT min(y.no) FROM lease.parked_edit y WHERE y.type = p_edit.type AND y.id = p_edit.id) AND x.no > p_edit.no AND x.blocked_by IS NULL;
END
$$;

-- The turn of a parked edit: outcome NULL while something is in the way still, or if it is not parked any more. p_reason: it is taken out for that.
-- One that has expired need not wait for its turn.
CREATE OR REPLACE FUNCTION lease.retry_edit(p_no bigint, p_at timestamptz, p_reason text, OUT outcome text, OUT reason text)
LANGUAGE plpgsql AS $$
DECLARE
  e lease.parked_edit; f lease.parked_edit;
BEGIN
  SELECT * INTO e FROM lease.parked_edit x WHERE x.no = p_no FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  IF p_reason IS NOT NULL OR e.expires_at < p_at THEN
    outcome := 'bounced'; reason := coalesce(p_reason, 'expired');
  ELSE
    SELECT * INTO f FROM lease.parked_edit x WHERE x.type = e.type AND x.id = e.id ORDER BY x.no LIMIT 1;
    IF f.no < p_no THEN
      IF e.blocked_by IS DISTINCT FROM f.blocked_by OR e.retry_at <= p_at THEN
        PERFORM lease.put_behind(f, p_at);
      END IF;
      RETURN;
    END IF;
    SELECT m.outcome, m.reason, m.blocked_by INTO outcome, reason, f.blocked_by FROM lease.make_edit(e.type, e.id, e.editor, e.old, e.new, NULL) m;
  END IF;
  IF outcome = 'parked' THEN
    outcome := NULL;
    UPDATE lease.parked_edit x
       SET blocked_by = f.blocked_by, tries = x.tries + 1, retry_at = CASE WHEN f.blocked_by IS NULL THEN p_at + least(50 * 2 ^ least(x.tries, 10), 5000) * interval '1 ms' END
     WHERE x.no = p_no;
    PERFORM lease.put_behind(f, p_at);
  ELSE
    PERFORM lease.take_out(e);
  END IF;
END
$$;

-- Takes a parked edit back, for the editor who asked for it.
CREATE OR REPLACE FUNCTION lease.cancel_edit(p_subject text, p_editor text, p_message_id text, p_source text, OUT outcome text, OUT reason text)
LANGUAGE plpgsql AS $$
DECLARE
  e lease.parked_edit := lease.parked_as(split_part(p_subject, '/', 1), substr(p_subject, length(split_part(p_subject, '/', 1)) + 2), p_message_id, p_source, p_editor);
BEGIN
  SELECT * INTO e FROM lease.parked_edit x WHERE x.no = e.no FOR UPDATE;   -- who tries it now may have made it
  outcome := CASE WHEN e.no IS NULL THEN 'unknown' WHEN e.editor <> p_editor THEN 'stale' ELSE 'cancelled' END;
  IF outcome = 'cancelled' THEN
    PERFORM lease.take_out(e);
  END IF;
END
$$;

DROP FUNCTION IF EXISTS lease.due_edits(int, timestamptz);   -- its result was a table

-- The parked edits whose way may be free, at most p_limit. Found by what they wait for, so that a look costs nothing for those whose time has not come:
-- what has expired; what is to be tried again (at most half, so that locked rows keep no others waiting); of the rows whose lease has ended the first edit,
-- and as many behind it as there is room for. Part of lease.serve_edits.
CREATE OR REPLACE FUNCTION lease.due_edits(p_limit int, p_cut timestamptz) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_due bigint[]; v_first bigint[] := '{}'; v_fence bigint := 0; v_room int;
BEGIN
  v_due := ARRAY(SELECT x.no FROM lease.parked_edit x WHERE x.expires_at < p_cut ORDER BY x.expires_at LIMIT p_limit);
  v_due := v_due || ARRAY(SELECT x.no FROM lease.parked_edit x WHERE x.retry_at <= p_cut AND x.expires_at >= p_cut ORDER BY x.retry_at, x.no
                           LIMIT least((p_limit + 1) / 2, p_limit - cardinality(v_due)));
  v_room := p_limit - cardinality(v_due);
  LOOP
    SELECT min(x.blocked_by) INTO v_fence FROM lease.parked_edit x WHERE x.blocked_by > v_fence;
    EXIT WHEN v_fence IS NULL OR cardinality(v_first) >= v_room;
    CONTINUE WHEN EXISTS (SELECT FROM lease.lease l WHERE l.fence = v_fence AND l.state = 'held' AND (l.lease_until IS NULL OR l.lease_until > p_cut));
    v_first := v_first || ARRAY(
      WITH RECURSIVE first AS (   -- from row to row, not through all edits of each
        (SELECT x.type, x.id, x.no FROM lease.parked_edit x WHERE x.blocked_by = v_fence ORDER BY x.type, x.id, x.no LIMIT 1)
        UNION ALL
        SELECT n.* FROM first f CROSS JOIN LATERAL (
          SELECT x.type, x.id, x.no FROM lease.parked_edit x WHERE x.blocked_by = v_fence AND (x.type, x.id) > (f.type, f.id) ORDER BY x.type, x.id, x.no LIMIT 1) n)
      SELECT f.no FROM first f LIMIT v_room - cardinality(v_first));
  END LOOP;
  RETURN v_due || ARRAY(SELECT q.no FROM unnest(v_first) u JOIN lease.parked_edit e ON e.no = u
                         CROSS JOIN LATERAL (SELECT x.no FROM lease.parked_edit x WHERE x.type = e.type AND x.id = e.id AND x.no >= e.no ORDER BY x.no
                                              LIMIT greatest(1, v_room / cardinality(v_first))) q);
END
$$;

-- Takes the inbox in, notes exceptions in the journal, and tries parked edits whose way may be free, each row's in their order, at most p_limit of each. The reaper calls it
-- in a transaction of its own, since users' triggers run in it. Returns how many were answered, and how many were tried.
--
-- One at a time: the inbox's rows are taken in the order in which they came, and two takers would split them. Whoever comes second has nothing to do.
-- What PostgreSQL refuses for its data is found as lanes find such a message, by trying half as many; alone, it is answered as malformed, a parked one bounced.
-- Nothing that stands in the inbox keeps the others there. Each try is one lease.apply, since its end takes the journal's lock.
CREATE OR REPLACE FUNCTION lease.serve_edits(p_limit int, p_at timestamptz DEFAULT NULL) RETURNS TABLE (served int, tried int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_cut timestamptz := coalesce(p_at, clock_timestamp());
  n int; v_room int := 3 * p_limit; v_fault text; v_bad bigint;
  v_kind_asked constant text := (SELECT min(k.kind) FROM lease.kind k WHERE k.mode = 'edit');   -- who asks in SQL names none
  v_kind text[]; v_command text[]; v_subject text[]; v_editor text[]; v_source text[]; v_message text[]; v_trace text[]; v_payload text[]; v_names text[]; v_park bigint[]; v_no bigint[];
  v_verdict text[]; v_reason text[];
BEGIN
  served := 0; tried := 0;
  IF NOT pg_try_advisory_xact_lock(1279611205, 7) THEN
    RETURN NEXT;
    RETURN;
  END IF;
  LOOP
    BEGIN
      WITH due AS (
             SELECT e.* FROM lease.parked_edit e WHERE e.no = ANY (lease.due_edits(least(p_limit, v_room), v_cut))),
           taken AS (
             DELETE FROM lease.edit_inbox i
              WHERE i.no IN (SELECT x.no FROM lease.edit_inbox x ORDER BY x.no LIMIT greatest(0, least(p_limit, v_room - (SELECT count(*) FROM due)))) RETURNING i.*),
           work AS (
             SELECT d.kind, d.no AS no, 'unpark' AS command, d.type || '/' || d.id AS subject, d.editor, d.source, d.message_id, d.traceparent,
                    NULL::text AS payload, CASE WHEN d.no = v_bad THEN v_fault END AS names, NULL::bigint AS park_ms, NULL::text AS verdict
               FROM due d
             UNION ALL
             -- One that was refused is answered by what is surely no longer than a message's.
             SELECT v_kind_asked, t.no, t.command, CASE WHEN b.is_bad THEN left(t.subject, 200) ELSE t.subject END, CASE WHEN b.is_bad THEN left(t.editor, 200) ELSE t.editor END,
                    '/leasehold/inbox', CASE WHEN b.is_bad THEN left(t.message_id, 128) ELSE t.message_id END, NULL,
                    CASE WHEN NOT b.is_bad THEN t.payload::text END, CASE WHEN NOT b.is_bad THEN t.names END, CASE WHEN NOT b.is_bad THEN t.park_ms END,
                    CASE WHEN b.is_bad THEN 'malformed' END
               FROM taken t CROSS JOIN LATERAL (SELECT coalesce(t.no = -v_bad, false) AS is_bad) b
             UNION ALL
             SELECT v_kind_asked, x.no, x.command, x.subject, x.editor, '/leasehold/exceptions', x.no::text, NULL, x.payload, x.why, NULL, NULL
               FROM lease.note_exceptions(greatest(0, least(p_limit, v_room - (SELECT count(*) FROM due) - (SELECT count(*) FROM taken)))::int) x)
      SELECT count(*), array_agg(w.kind), array_agg(w.no), array_agg(w.command), array_agg(w.subject), array_agg(w.editor), array_agg(w.source), array_agg(w.message_id), array_agg(w.traceparent),
             array_agg(w.payload), array_agg(w.names), array_agg(w.park_ms), array_agg(w.verdict), array_agg(CASE WHEN w.verdict IS NOT NULL THEN v_fault END)
        INTO n, v_kind, v_no, v_command, v_subject, v_editor, v_source, v_message, v_trace, v_payload, v_names, v_park, v_verdict, v_reason
        FROM (SELECT * FROM work ORDER BY work.command = 'unpark' DESC, work.no, work.command) w;
      IF n > 0 THEN
        SELECT count(*) FILTER (WHERE a.ord > 0) INTO served FROM lease.apply(NULL, NULL, NULL, v_kind, v_command, v_subject, v_source, v_message,
          ARRAY(SELECT substr(sha256(convert_to(u, 'UTF8')), 1, 16) FROM unnest(v_message) WITH ORDINALITY q (u, i) ORDER BY i), v_trace, v_editor,
          NULL, NULL, NULL, NULL, v_no, NULL, v_park, v_names, NULL, NULL, NULL, NULL, NULL, v_payload, v_verdict, v_reason, NULL, NULL, NULL, NULL, p_at) AS a;
      END IF;
      EXIT;
    EXCEPTION WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded THEN
      IF v_fault IS NOT NULL THEN
        RAISE;
      ELSIF v_room = 1 THEN   -- the one that it is: of the inbox, below zero
        v_fault := 'refused_' || lower(SQLSTATE); v_bad := CASE WHEN v_command[1] = 'unpark' THEN v_no[1] ELSE -v_no[1] END;
      END IF;
      v_room := greatest(1, least(v_room, n) / 2);
    END;
  END LOOP;
  tried := n;
  RETURN NEXT;
END
$$;

-- Raises while too many wait. Part of what people call.
CREATE OR REPLACE FUNCTION lease.assert_inbox_has_room() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  inbox_max constant int := 100000;
BEGIN
  IF (SELECT count(*) FROM (SELECT FROM lease.edit_inbox LIMIT inbox_max) q) >= inbox_max THEN
    RAISE EXCEPTION 'too many edits wait to be taken in' USING ERRCODE = 'configuration_limit_exceeded', HINT = 'Is a coordinator running?';
  END IF;
END
$$;

-- lease.ask_edit: asks for an edit in SQL, as the message <kind>.edit does; a coordinator makes or parks it in a moment, and its answer is on lease.results under the
-- id that is returned. p_old: what the columns were when the edit was made up; or p_follows: the id of a parked edit of the row that it was made on.
-- It stands when the caller's transaction commits. For members of lease_asker, in the name of who is logged in.
CREATE OR REPLACE FUNCTION lease.ask_edit(p_resource text, p_new jsonb, p_old jsonb DEFAULT NULL, p_follows text DEFAULT NULL, p_park interval DEFAULT '1 day') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  edit_max constant int := 65536;   -- bytes of both values
  v_id constant text := gen_random_uuid()::text;
BEGIN
  IF NOT lease.is_resource(p_resource) OR jsonb_typeof(p_new) IS DISTINCT FROM 'object' OR p_new = '{}' OR p_old IS NOT NULL AND jsonb_typeof(p_old) <> 'object'
     OR p_old IS NULL AND p_follows IS NULL OR p_follows IS NOT NULL AND NOT lease.is_message_id(p_follows) THEN
    RAISE EXCEPTION 'an edit names a row, its new values, and what they were or the edit that it follows' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'SELECT lease.ask_edit(''album-contract/42'', ''{"rate": "60"}'', ''{"rate": "70"}'')';
  END IF;
  IF octet_length(p_new::text) + coalesce(octet_length(p_old::text), 0) > edit_max THEN
    RAISE EXCEPTION 'an edit has % bytes at most', edit_max USING ERRCODE = 'program_limit_exceeded';
  END IF;
  IF coalesce(p_park <= interval '0' OR p_park > interval '30 days', true) THEN
    RAISE EXCEPTION 'an edit is parked for 30 days at most' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM lease.assert_inbox_has_room();
  INSERT INTO lease.edit_inbox (command, subject, editor, message_id, payload, names, park_ms)
  VALUES ('edit', p_resource, session_user, v_id, CASE WHEN p_old IS NULL THEN json_build_object('new', p_new) ELSE json_build_object('old', p_old, 'new', p_new) END, p_follows, extract(epoch FROM p_park) * 1000);
  RETURN v_id;
END
$$;

-- lease.cancel: takes back an edit that is parked, as the message <kind>.cancel does; returns the id under which it is answered.
CREATE OR REPLACE FUNCTION lease.cancel(p_resource text, p_edit text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_id constant text := gen_random_uuid()::text;
BEGIN
  IF NOT (lease.is_resource(p_resource) AND lease.is_message_id(p_edit)) THEN
    RAISE EXCEPTION 'a row and the id of a parked edit are named' USING ERRCODE = 'invalid_parameter_value', HINT = 'SELECT lease.cancel(''album-contract/42'', ''<id>'')';
  END IF;
  PERFORM lease.assert_inbox_has_room();
  INSERT INTO lease.edit_inbox (command, subject, editor, message_id, names) VALUES ('cancel', p_resource, session_user, v_id, p_edit);
  RETURN v_id;
END
$$;

GRANT EXECUTE ON FUNCTION lease.serve_edits TO lease_coordinator;
GRANT EXECUTE ON FUNCTION lease.ask_edit, lease.cancel TO lease_asker;
RESET ROLE;
