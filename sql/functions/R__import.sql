SET LOCAL ROLE lease_owner;

-- Which columns of a table say what, by role: id, status (both needed), owner, until, since, attempt. p_given overrides the usual
-- names; a usual one that the table lacks is left out. Part of lease.import_claims.
-- Errors: 42703 a column that was named is not there, or one that is needed.
CREATE OR REPLACE FUNCTION lease.claim_columns(p_table regclass, p_given jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  usual constant jsonb := '{"id": "id", "status": "status", "owner": "claim_owner", "until": "lease_until", "since": "updated_at", "attempt": "claim_fence"}';
  v_found jsonb; v_lacking text;
BEGIN
  SELECT jsonb_object_agg(u.role, u.name) FILTER (WHERE a.attname IS NOT NULL),
         min(u.role || ' (' || u.name || ')') FILTER (WHERE a.attname IS NULL AND (p_given ? u.role OR u.role IN ('id', 'status')))
    INTO v_found, v_lacking
    FROM jsonb_each_text(usual || coalesce(p_given, '{}')) AS u (role, name)
    LEFT JOIN pg_attribute a ON a.attrelid = p_table AND a.attname = u.name AND a.attnum > 0 AND NOT a.attisdropped;
  IF v_lacking IS NOT NULL THEN
    RAISE EXCEPTION '% has no column for %', p_table, v_lacking USING ERRCODE = '42703',
      HINT = 'Name the columns: p_columns => ''{"id": "cleanup_id", "status": "state"}''.';
  END IF;
  RETURN v_found;
END
$$;

-- Brings work over that was claimed before fencing, from a table in which a claim is a status: some rows at a call, each once.
--
--   held      (IN_PROGRESS)       in progress under no grant: an operator's case while it has no expiry, never taken automatically. With
--                                 one (the table's own) it is left to its worker until then, and lapses
--   ready     (PENDING, RETRY)    waits to be claimed
--   finished  (DONE, COMPLETED)   final
--   dead                          final, its attempts spent
--
-- p_states maps the table's words to these four; p_columns names its columns (lease.claim_columns). The columns that say neither who
-- claimed nor how far it is become the item's payload; one called claim_token is left behind. A worker whose name will not do
-- as a holder is called unknown. What is held draws a fence that nobody is told as his: where the kind covers a resource, it
-- keeps others off that.
-- Returns how many rows became what; `covered`: left out, since somebody live covers the resource; `unnameable`: left out for good, its id
-- is none that a message could name. Call it again until nothing but these two is told; then take the old table away.
--
-- Errors: 42703 columns; 22023 no pool, a status that p_states does not know (nothing is done then), who or why missing.
-- Rights: with the caller's own, who may read the table and is a member of lease_owner; the coordinator may not.
-- Locks, in this order: resource rows, leases that are inserted, the journal's lock, which everybody waits for: call it on
-- its own, outside of a transaction block, with a p_limit that takes milliseconds.
CREATE OR REPLACE FUNCTION lease.import_claims(p_table regclass, p_actor text, p_reason text, p_kind text DEFAULT 'cleanup',
  p_columns jsonb DEFAULT NULL, p_states jsonb DEFAULT NULL, p_limit int DEFAULT 1000)
RETURNS TABLE (became text, rows bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  nameable constant text := '^[A-Za-z0-9][A-Za-z0-9._:@/+=-]{0,199}$';
  unnameable constant text := '//|(^|/)[.][.](/|$)';
  c constant jsonb := lease.claim_columns(p_table, p_columns);
  states constant jsonb := coalesce(p_states, '{"IN_PROGRESS": "held", "PENDING": "ready", "RETRY": "ready", "DONE": "finished", "COMPLETED": "finished"}');
  v_at constant timestamptz := clock_timestamp();
  v_kind lease.kind%ROWTYPE;
  v_status text; v_unnameable bigint; v_covered bigint; v_base bigint; v_drawn bigint; v_from text;
BEGIN
  PERFORM lease.assert_server();
  SELECT * INTO v_kind FROM lease.kind k WHERE k.kind = p_kind AND k.mode = 'pool';
  IF NOT FOUND THEN
    RAISE EXCEPTION '% is no kind with a pool', p_kind USING ERRCODE = '22023';
  ELSIF coalesce(p_actor, '') !~ nameable OR coalesce(p_reason, '') !~ '^[^[:cntrl:]]+$' OR length(p_reason) > 500 THEN
    RAISE EXCEPTION 'who imports, and why, is written down: p_actor is a name as holders have, p_reason a line of text' USING ERRCODE = '22023';
  ELSIF EXISTS (SELECT FROM jsonb_each_text(states) s WHERE s.value NOT IN ('held', 'ready', 'finished', 'dead')) THEN
    RAISE EXCEPTION 'p_states leads to held, ready, finished or dead' USING ERRCODE = '22023';
  END IF;

  v_from := format('(SELECT t.%1$I::text COLLATE "C" AS lease, t.%2$I::text AS status, %3$s AS owner, %4$s AS until, %5$s AS since, %6$s AS attempt, '
                   '(to_jsonb(t) - ARRAY[%7$L, ''claim_token'', %8$s]) AS payload FROM %9$s AS t)',
    c ->> 'id', c ->> 'status', coalesce('t.' || quote_ident(c ->> 'owner'), 'NULL') || '::text',
    coalesce('t.' || quote_ident(c ->> 'until'), 'NULL') || '::timestamptz', coalesce('t.' || quote_ident(c ->> 'since'), 'NULL') || '::timestamptz',
    coalesce('t.' || quote_ident(c ->> 'attempt'), 'NULL') || '::bigint', c ->> 'status',
    format('%L, %L, %L', c ->> 'owner', c ->> 'until', c ->> 'attempt'), p_table);

  EXECUTE format('SELECT min(coalesce(r.status, ''NULL'')) FILTER (WHERE NOT coalesce($1 ? r.status, false)), '
                 'count(*) FILTER (WHERE NOT coalesce(r.lease ~ $2 AND r.lease !~ $3, false)) FROM %s AS r', v_from)
    INTO v_status, v_unnameable USING states, nameable, unnameable;
  IF v_status IS NOT NULL THEN
    RAISE EXCEPTION '% has rows of status %, which p_states does not know', p_table, v_status USING ERRCODE = '22023',
      HINT = 'p_states => ''{"' || v_status || '": "held|ready|finished|dead", ...}'' with all of the table''s words.';
  END IF;

  -- What comes now. A table of its own, so that each row is read once; it goes with the transaction.
  DROP TABLE IF EXISTS pg_temp.lease_import;
  CREATE TEMPORARY TABLE lease_import (lease text COLLATE "C", state text, holder text, until timestamptz, since timestamptz, attempt int, payload text,
                                       fence bigint, resource text COLLATE "C", no bigint) ON COMMIT DROP;
  EXECUTE format($q$
    INSERT INTO pg_temp.lease_import (lease, state, holder, until, since, attempt, payload)
    SELECT r.lease, $1 ->> r.status, CASE WHEN r.owner ~ $2 AND r.owner !~ $3 THEN r.owner ELSE 'unknown' END, r.until, r.since,
           least(greatest(r.attempt, 0), $4)::int, CASE WHEN octet_length(r.payload::text) <= 65536 THEN r.payload::text END
      FROM %s AS r
     WHERE r.lease ~ $2 AND r.lease !~ $3 AND NOT EXISTS (SELECT FROM lease.lease l WHERE l.kind = $5 AND l.lease = r.lease)
     ORDER BY r.lease LIMIT $6 $q$, v_from)
    USING states, nameable, unnameable, v_kind.attempts_max, p_kind, p_limit;
  UPDATE pg_temp.lease_import i
     SET fence = nextval('lease.fence'), resource = v_kind.covers || '/' || i.lease, attempt = greatest(i.attempt, 1) WHERE i.state = 'held';

  -- Resources that somebody live covers keep their rows out; who lapsed over one of the others is overtaken.
  INSERT INTO lease.resource (resource) SELECT i.resource FROM pg_temp.lease_import i WHERE i.resource IS NOT NULL ORDER BY 1 ON CONFLICT DO NOTHING;
  PERFORM FROM lease.resource x JOIN pg_temp.lease_import i USING (resource) ORDER BY x.resource FOR NO KEY UPDATE OF x;
  DELETE FROM pg_temp.lease_import i USING lease.resource x, lease.lease l
   WHERE x.resource = i.resource AND l.fence = x.fence AND l.state = 'held';
  GET DIAGNOSTICS v_covered = ROW_COUNT;

  -- What came in between by another way stays as it is.
  WITH inserted AS (
  INSERT INTO lease.lease (kind, lease, state, holder, fence, since, lease_until, check_at, attempt, ready_at, ended_at, payload)
  SELECT p_kind, i.lease, i.state, CASE WHEN i.state = 'held' THEN i.holder END, i.fence, CASE WHEN i.state = 'held' THEN i.since END,
         CASE WHEN i.state = 'held' THEN i.until END, CASE WHEN i.state = 'held' THEN i.until END,
         CASE WHEN i.state = 'ready' THEN least(coalesce(i.attempt, 0), v_kind.attempts_max - 1) ELSE coalesce(i.attempt, 0) END,
         CASE WHEN i.state = 'ready' THEN v_at END, CASE WHEN i.state IN ('finished', 'dead') THEN v_at END, i.payload::json
    FROM pg_temp.lease_import i ORDER BY i.lease
  ON CONFLICT DO NOTHING RETURNING lease)
  UPDATE pg_temp.lease_import i SET no = q.no
    FROM (SELECT u.lease, row_number() OVER (ORDER BY u.lease) AS no FROM inserted u) q WHERE q.lease = i.lease;
  UPDATE lease.lease l SET overtaken = true
    FROM lease.resource x JOIN pg_temp.lease_import i USING (resource)
   WHERE i.no IS NOT NULL AND l.fence = x.fence AND l.state IN ('free', 'ready') AND l.claim_id IS NOT NULL AND NOT l.overtaken;
  UPDATE lease.resource x SET fence = i.fence FROM pg_temp.lease_import i WHERE i.no IS NOT NULL AND x.resource = i.resource;

  RETURN QUERY SELECT i.state, count(*) FROM pg_temp.lease_import i WHERE i.no IS NOT NULL GROUP BY 1
         UNION ALL SELECT * FROM (VALUES ('covered', v_covered), ('unnameable', v_unnameable)) q (became, rows) WHERE rows > 0;

  PERFORM pg_advisory_xact_lock(1279611205, 1);
  v_base := lease.next_numbers((SELECT count(*)::int FROM pg_temp.lease_import i WHERE i.no IS NOT NULL), NULL);
  SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END INTO v_drawn FROM lease.fence q;
  INSERT INTO lease.journal (number, at, event, kind, subject, holder, fence, since, lease_until, min_fence, state, attempt, payload, changes_lease, is_grant)
  SELECT v_base + i.no, clock_timestamp(), 'imported', p_kind, i.lease, l.holder, i.fence, l.since, l.lease_until, coalesce(i.fence, v_drawn + 1), i.state,
         l.attempt, json_build_object('actor', p_actor, 'reason', p_reason, 'table', p_table::text)::text, true, false
    FROM pg_temp.lease_import i JOIN lease.lease l ON l.kind = p_kind AND l.lease = i.lease WHERE i.no IS NOT NULL;
  PERFORM pg_notify('lease_journal', q.last || ' ' || coalesce(floor(extract(epoch FROM q.until) * 1000)::bigint::text, ''))
     FROM (SELECT v_base + max(i.no) AS last, min(i.until) FILTER (WHERE i.state = 'held') AS until FROM pg_temp.lease_import i) q
    WHERE q.last IS NOT NULL;
END
$$;

RESET ROLE;
