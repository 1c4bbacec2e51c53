SET LOCAL ROLE lease_owner;

-- Edits by message: made at once where no live lease covers the row, otherwise parked and made in their order when it has ended, if the columns are
-- still as their author saw them. Parts of lease.apply, which has pinned the search_path, but for lease.allow_edits and lease.ask_edit, which people call, and
-- lease.serve_edits, which the reaper calls.

-- lease.allow_edits: a guarded table takes edits of its guarded columns by message. Makes the one function that can make them, with the rights of lease_editor,
-- to whom it grants what is needed on the table. The caller is who guarded it. lease.guarded.takes_edits tells; lease.refuse_edits takes it back.
-- Locks: none on rows. Errors: LE020 for a type that is not guarded; 42501 for who may not.
CREATE OR REPLACE FUNCTION lease.allow_edits(p_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g lease.guarded; v_table text; v_keys text; v_key_match text; v_sets text; v_olds text; v_exact text; v_spelling text;
BEGIN
  PERFORM lease.assert_registrar();
  SELECT * INTO g FROM lease.guarded x WHERE x.type = p_type FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM lease.refuse_guard(format('no table is guarded as %s', coalesce(p_type, 'NULL')), 'First: SELECT lease.guard_table(...)');
  END IF;
  v_table := g.relation::text;
  SELECT string_agg(format('%I', c), ', ' ORDER BY n) INTO v_keys FROM unnest(g.key_columns) WITH ORDINALITY AS u (c, n);
  -- Every name and type is the catalogue's own; nothing of a message becomes text of a statement.
  SELECT string_agg(format('t.%I = %s::%s', c, CASE WHEN cardinality(g.key_columns) = 1 THEN 'p_id' ELSE format('split_part(p_id, '':'', %s)', n) END, y), ' AND ' ORDER BY n)
    INTO v_key_match FROM unnest(g.key_columns, g.key_types) WITH ORDINALITY AS u (c, y, n);
  SELECT string_agg(format('%1$I = CASE WHEN p_new ? %2$L THEN n.%1$I ELSE t.%1$I END', c, c), ', '),
         string_agg(format('(NOT p_old ? %2$L OR t.%1$I IS NOT DISTINCT FROM o.%1$I)', c, c), ' AND ')
    INTO v_sets, v_olds FROM unnest(g.columns) AS c;
  -- An id in another spelling ('007') would be another row's place in the order of edits.
  SELECT format('concat_ws('':'', %s)', string_agg(format('(%s::%s)::text', CASE WHEN cardinality(g.key_columns) = 1 THEN 'p_id' ELSE format('split_part(p_id, '':'', %s)', n) END, y), ', ' ORDER BY n))
    INTO v_spelling FROM unnest(g.key_types) WITH ORDINALITY AS u (y, n);
  -- PostgreSQL rounds a number to what its column holds; an edit must say what the row will have.
  SELECT coalesce(string_agg(format('IF n.%1$I IS DISTINCT FROM (p_new ->> %2$L)::numeric AND p_new ? %2$L THEN RAISE EXCEPTION ''more decimals than the column has'' USING ERRCODE = ''numeric_value_out_of_range''; END IF;',
                                    a.attname, a.attname), E'\n  '), '')
    INTO v_exact FROM pg_attribute a WHERE a.attrelid = g.relation AND a.attname = ANY (g.columns) AND a.atttypid = 'numeric'::regtype;
  EXECUTE format('GRANT SELECT (%s, %s), UPDATE (%s) ON TABLE %s TO lease_editor', v_keys, (SELECT string_agg(format('%I', c), ', ') FROM unnest(g.columns) c),
                 (SELECT string_agg(format('%I', c), ', ') FROM unnest(g.columns) c), v_table);
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO lease_editor', g.schema_name);
  EXECUTE format('DROP FUNCTION IF EXISTS lease_stamp.%I(text, jsonb, jsonb)', p_type || '.edit');
  EXECUTE format($text$
CREATE FUNCTION lease_stamp.%I(p_id text, p_old jsonb, p_new jsonb) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres' SET jit = off AS $body$
DECLARE
  o %s; n %s;
BEGIN
  IF current_user <> 'lease_editor' THEN
    RAISE EXCEPTION 'an editing function was altered' USING ERRCODE = 'LE012';
  END IF;
  IF %s <> p_id THEN
    RAISE EXCEPTION 'an id is not spelled as the table spells it' USING ERRCODE = 'invalid_text_representation';
  END IF;
  o := jsonb_populate_record(o, p_old);
  n := jsonb_populate_record(n, p_new);
  %s
  UPDATE %s AS t SET %s WHERE %s AND %s;
  IF FOUND THEN
    SET CONSTRAINTS ALL IMMEDIATE;
    RETURN 'applied';
  END IF;
  PERFORM FROM %s AS t WHERE %s;
  RETURN CASE WHEN FOUND THEN 'row_changed' ELSE 'no_such_row' END;
END
$body$ $text$, p_type || '.edit', v_table, v_table, v_spelling, v_exact, v_table, v_sets, v_key_match, v_olds, v_table, v_key_match);
  EXECUTE format('REVOKE ALL ON FUNCTION lease_stamp.%I(text, jsonb, jsonb) FROM PUBLIC', p_type || '.edit');
  EXECUTE format('GRANT EXECUTE ON FUNCTION lease_stamp.%I(text, jsonb, jsonb) TO lease_owner', p_type || '.edit');
  GRANT CREATE ON SCHEMA lease_stamp TO lease_editor;
  EXECUTE format('ALTER FUNCTION lease_stamp.%I(text, jsonb, jsonb) OWNER TO lease_editor', p_type || '.edit');
  REVOKE CREATE ON SCHEMA lease_stamp FROM lease_editor;
  UPDATE lease.guarded x SET takes_edits = true WHERE x.type = p_type;
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
  EXECUTE format('DROP FUNCTION lease_stamp.%I(text, jsonb, jsonb)', p_type || '.edit');
  IF EXISTS (SELECT FROM pg_class c WHERE c.oid = g.relation) THEN
    EXECUTE format('REVOKE ALL ON TABLE %s FROM lease_editor', g.relation);
    IF NOT EXISTS (SELECT FROM lease.guarded x WHERE x.takes_edits AND x.schema_name = g.schema_name) THEN
      EXECUTE format('REVOKE ALL ON SCHEMA %I FROM lease_editor', g.schema_name);
    END IF;
  END IF;
END
$$;

-- Makes one edit, if nothing is in the way. outcome: applied; bounced, with the reason and, where a value is to blame, its SQLSTATE; parked, where a live lease covers
-- the row (its fence in blocked_by) or a stranger has it locked (blocked_by NULL). Nobody is waited for.
CREATE OR REPLACE FUNCTION lease.make_edit(p_type text, p_id text, p_old jsonb, p_new jsonb, OUT outcome text, OUT reason text, OUT blocked_by bigint)
LANGUAGE plpgsql AS $$
DECLARE
  v_done text; v_stamps bigint[]; v_lock_timeout constant text := current_setting('lock_timeout');
BEGIN
  IF NOT coalesce((SELECT g.takes_edits FROM lease.guarded g WHERE g.type = p_type), false) THEN
    outcome := 'bounced'; reason := 'edits_not_taken';
    RETURN;
  END IF;
  BEGIN
    PERFORM set_config('lock_timeout', '1ms', true);
    EXECUTE format('SELECT lease_stamp.%I($1, $2, $3)', p_type || '.edit') INTO v_done USING p_id, p_old, p_new;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);
    outcome := CASE WHEN v_done = 'applied' THEN 'applied' ELSE 'bounced' END;
    reason := nullif(v_done, 'applied');
  EXCEPTION WHEN OTHERS THEN
    IF NOT lease.is_own_affair(SQLSTATE) THEN
      RAISE;
    END IF;
    outcome := CASE WHEN SQLSTATE IN ('LE010', '55P03', '40001', '40P01') THEN 'parked' ELSE 'bounced' END;
    reason := CASE WHEN outcome = 'bounced' THEN 'refused_' || lower(SQLSTATE) END;
    IF SQLSTATE = 'LE010' THEN
      v_stamps := lease.read_stamps(p_type, ARRAY[p_id]);
      blocked_by := v_stamps[1];
    END IF;
  END;
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

-- One edit as it comes: applied, parked, or refused. p_follows: the message of a parked edit of the same row whose new values this one was made on.
-- blocker: whose lease is in the way.
CREATE OR REPLACE FUNCTION lease.take_edit(p_subject text, p_editor text, p_edit jsonb, p_follows text, p_park_ms bigint, p_source text, p_message_id text, p_traceparent text,
  p_at timestamptz, OUT outcome text, OUT reason text, OUT field text, OUT blocker jsonb)
LANGUAGE plpgsql AS $$
DECLARE
  parked_row_max constant int := 1000;
  parked_max constant int := 200000;
  v_type constant text := split_part(p_subject, '/', 1); v_id constant text := substr(p_subject, length(split_part(p_subject, '/', 1)) + 2);
  g lease.guarded; f lease.parked_edit; v_old jsonb := coalesce(p_edit -> 'old', '{}'); v_new constant jsonb := p_edit -> 'new'; v_row_count bigint; v_blocked_by bigint;
BEGIN
  SELECT * INTO g FROM lease.guarded x WHERE x.type = v_type;
  IF NOT FOUND OR NOT g.takes_edits THEN
    outcome := 'bounced'; reason := 'edits_not_taken'; field := 'subject';
    RETURN;
  END IF;
  IF p_follows IS NOT NULL THEN
    SELECT * INTO f FROM lease.parked_edit x WHERE x.message_id = p_follows AND x.type = v_type AND x.id = v_id ORDER BY x.no DESC LIMIT 1;
    IF NOT FOUND THEN
      outcome := 'bounced'; reason := 'not_parked'; field := 'follows';
      RETURN;
    END IF;
    IF jsonb_typeof(v_old) <> 'object' OR jsonb_typeof(v_new) IS DISTINCT FROM 'object' THEN
      outcome := 'malformed'; reason := 'wrong_type'; field := CASE WHEN jsonb_typeof(v_new) = 'object' THEN 'old' ELSE 'new' END;
      RETURN;
    END IF;
    v_old := f.old || f.new || v_old;
    v_old := (SELECT coalesce(jsonb_object_agg(o.key, o.value), '{}') FROM jsonb_each(v_old) o WHERE v_new ? o.key OR (p_edit -> 'old') ? o.key);
  END IF;
  SELECT w.reason, w.field INTO reason, field FROM lease.fault_of_edit(g.columns, v_old, v_new) w;
  IF reason IS NOT NULL THEN
    outcome := 'malformed';
    RETURN;
  END IF;
  SELECT count(*) INTO v_row_count FROM (SELECT FROM lease.parked_edit x WHERE x.type = v_type AND x.id = v_id LIMIT parked_row_max) q;
  IF v_row_count = 0 THEN
    SELECT m.outcome, m.reason, m.blocked_by INTO outcome, reason, v_blocked_by FROM lease.make_edit(v_type, v_id, v_old, v_new) m;
    IF outcome <> 'parked' THEN
      RETURN;
    END IF;
  END IF;
  IF v_row_count >= parked_row_max OR (SELECT c.reltuples FROM pg_class c WHERE c.oid = 'lease.parked_edit'::regclass) >= parked_max THEN
    outcome := 'bounced'; reason := 'too_many_parked';
    RETURN;
  END IF;
  outcome := 'parked';
  INSERT INTO lease.parked_edit (type, id, editor, old, new, source, message_id, traceparent, asked_at, expires_at, blocked_by, retry_at)
  VALUES (v_type, v_id, p_editor, v_old, v_new, p_source, p_message_id, p_traceparent, p_at, p_at + p_park_ms * interval '1 ms', v_blocked_by,
          CASE WHEN v_blocked_by IS NULL THEN p_at END);
  SELECT jsonb_strip_nulls(jsonb_build_object('kind', l.kind, 'lease', l.lease, 'resource', p_subject, 'holder', l.holder, 'fence', l.fence,
                                              'since', lease.utc(l.since), 'until', lease.utc(l.lease_until)))
    INTO blocker FROM lease.lease l WHERE l.fence = v_blocked_by;
END
$$;

-- Before it had p_reason.
DROP FUNCTION IF EXISTS lease.retry_edit(bigint, timestamptz);

-- The turn of a parked edit: outcome NULL while something is in the way still, or if it is not parked any more. p_reason: it is taken out for that.
CREATE OR REPLACE FUNCTION lease.retry_edit(p_no bigint, p_at timestamptz, p_reason text, OUT outcome text, OUT reason text)
LANGUAGE plpgsql AS $$
DECLARE
  e lease.parked_edit; v_blocked_by bigint;
BEGIN
  SELECT * INTO e FROM lease.parked_edit x WHERE x.no = p_no FOR UPDATE SKIP LOCKED;
  IF NOT FOUND OR EXISTS (SELECT FROM lease.parked_edit x WHERE x.type = e.type AND x.id = e.id AND x.no < p_no) THEN
    RETURN;   -- those before it come first
  END IF;
  IF p_reason IS NOT NULL THEN
    outcome := 'bounced'; reason := p_reason;
  ELSIF e.expires_at < p_at THEN
    outcome := 'bounced'; reason := 'expired';
  ELSE
    SELECT m.outcome, m.reason, m.blocked_by INTO outcome, reason, v_blocked_by FROM lease.make_edit(e.type, e.id, e.old, e.new) m;
  END IF;
  IF outcome = 'parked' THEN
    outcome := NULL;
    UPDATE lease.parked_edit x
       SET blocked_by = v_blocked_by, tries = x.tries + 1, retry_at = CASE WHEN v_blocked_by IS NULL THEN p_at + least(50 * 2 ^ least(x.tries, 10), 5000) * interval '1 ms' END
     WHERE x.no = p_no;
  ELSE
    DELETE FROM lease.parked_edit x WHERE x.no = p_no;
  END IF;
END
$$;

-- Takes a parked edit back, for the editor who asked for it.
CREATE OR REPLACE FUNCTION lease.cancel_edit(p_subject text, p_editor text, p_message_id text, OUT outcome text, OUT reason text)
LANGUAGE plpgsql AS $$
DECLARE
  e lease.parked_edit;
BEGIN
  SELECT * INTO e FROM lease.parked_edit x WHERE x.message_id = p_message_id AND x.type || '/' || x.id = p_subject FOR UPDATE;
  outcome := CASE WHEN e.no IS NULL THEN 'unknown' WHEN e.editor <> p_editor THEN 'stale' ELSE 'cancelled' END;
  IF outcome = 'cancelled' THEN
    DELETE FROM lease.parked_edit x WHERE x.no = e.no;
  END IF;
END
$$;

-- The parked edits whose way may be free, at most p_limit, in their order. Part of lease.serve_edits.
CREATE OR REPLACE FUNCTION lease.due_edits(p_limit int, p_cut timestamptz) RETURNS TABLE (no bigint)
LANGUAGE sql STABLE AS $$
  SELECT e.no FROM lease.parked_edit e
   WHERE e.expires_at < p_cut
      OR (e.retry_at IS NULL OR e.retry_at <= p_cut)
         AND NOT EXISTS (SELECT FROM lease.lease l WHERE l.fence = e.blocked_by AND l.state = 'held' AND (l.lease_until IS NULL OR l.lease_until > p_cut))
         AND NOT EXISTS (SELECT FROM lease.parked_edit x JOIN lease.lease l ON l.fence = x.blocked_by
                          WHERE x.type = e.type AND x.id = e.id AND x.no < e.no AND l.state = 'held' AND (l.lease_until IS NULL OR l.lease_until > p_cut))
   ORDER BY e.no LIMIT p_limit
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
  v_command text[]; v_subject text[]; v_editor text[]; v_source text[]; v_message text[]; v_trace text[]; v_payload text[]; v_names text[]; v_park bigint[]; v_no bigint[];
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
             SELECT e.* FROM lease.due_edits(least(p_limit, v_room), v_cut) d JOIN lease.parked_edit e ON e.no = d.no),
           taken AS (
             DELETE FROM lease.edit_inbox i
              WHERE i.no IN (SELECT x.no FROM lease.edit_inbox x ORDER BY x.no LIMIT greatest(0, least(p_limit, v_room - (SELECT count(*) FROM due)))) RETURNING i.*),
           work AS (
             SELECT d.no AS no, 'unpark' AS command, d.type || '/' || d.id AS subject, d.editor, d.source, d.message_id, d.traceparent,
                    NULL::text AS payload, CASE WHEN d.no = v_bad THEN v_fault END AS names, NULL::bigint AS park_ms, NULL::text AS verdict
               FROM due d
             UNION ALL
             -- One that was refused is answered by what is surely no longer than a message's.
             SELECT t.no, t.command, CASE WHEN b.is_bad THEN left(t.subject, 200) ELSE t.subject END, CASE WHEN b.is_bad THEN left(t.editor, 200) ELSE t.editor END,
                    '/leasehold/inbox', CASE WHEN b.is_bad THEN left(t.message_id, 128) ELSE t.message_id END, NULL,
                    CASE WHEN NOT b.is_bad THEN t.payload::text END, CASE WHEN NOT b.is_bad THEN t.names END, CASE WHEN NOT b.is_bad THEN t.park_ms END,
                    CASE WHEN b.is_bad THEN 'malformed' END
               FROM taken t CROSS JOIN LATERAL (SELECT coalesce(t.no = -v_bad, false) AS is_bad) b
             UNION ALL
             SELECT x.no, x.command, x.subject, x.editor, '/leasehold/exceptions', x.no::text, NULL, x.payload, x.why, NULL, NULL
               FROM lease.note_exceptions(greatest(0, least(p_limit, v_room - (SELECT count(*) FROM due) - (SELECT count(*) FROM taken)))::int) x)
      SELECT count(*), array_agg(w.no), array_agg(w.command), array_agg(w.subject), array_agg(w.editor), array_agg(w.source), array_agg(w.message_id), array_agg(w.traceparent),
             array_agg(w.payload), array_agg(w.names), array_agg(w.park_ms), array_agg(w.verdict), array_agg(CASE WHEN w.verdict IS NOT NULL THEN v_fault END)
        INTO n, v_no, v_command, v_subject, v_editor, v_source, v_message, v_trace, v_payload, v_names, v_park, v_verdict, v_reason
        FROM (SELECT * FROM work ORDER BY work.command = 'unpark' DESC, work.no, work.command) w;
      IF n > 0 THEN
        SELECT count(*) FILTER (WHERE a.ord > 0) INTO served FROM lease.apply(NULL, NULL, NULL, array_fill('contract'::text, ARRAY[n]), v_command, v_subject, v_source, v_message,
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
