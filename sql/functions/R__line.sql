SET LOCAL ROLE lease_owner;

-- The line of starts that wait: parts of lease.apply, which has pinned the search_path, and lease.serve_line, which the reaper calls. Everybody locks
-- leases first and waiters then.
--
-- A start with wait_ms that meets `held` or `busy` gets a row in lease.waiter and the answer `waiting`. It keeps its ticket while it is asked again in time
-- (a new message with a higher refresh); a start of the same holder without wait_ms leaves the line. Any start that shares a resource with one that
-- came earlier is held behind it, so many resources are not starved by few. Covers of a run that has begun pass: it has its place already.

-- Who is to be served before this start: the first in line with a resource of it. NULL: nobody.
CREATE OR REPLACE FUNCTION lease.ahead_in_line(p_kind text, p_lease text, p_targets text[], p_at timestamptz)
RETURNS TABLE (ticket bigint, kind text, lease text, holder text, resource text)
LANGUAGE sql STABLE AS $$
  SELECT w.ticket, w.kind, w.lease, w.holder, f.resource
    FROM lease.waiting_for f JOIN lease.waiter w ON w.ticket = f.ticket
   WHERE f.resource = ANY (p_targets) AND w.open_until >= p_at AND NOT (w.kind = p_kind AND w.lease = p_lease)
     AND w.ticket < coalesce((SELECT x.ticket FROM lease.waiter x WHERE x.kind = p_kind AND x.lease = p_lease AND x.open_until >= p_at), 9223372036854775807)
   ORDER BY w.ticket, f.resource LIMIT 1
$$;

-- Takes a place in line, or keeps it. Returns until when; NULL if somebody else waits for this lease, or the line is full.
CREATE OR REPLACE FUNCTION lease.join_line(p_kind text, p_lease text, p_holder text, p_resources text[], p_more boolean, p_tables text[],
  p_ttl_ms bigint, p_payload text, p_refresh bigint,
  p_wait_ms bigint, p_source text, p_message_id text, p_traceparent text, p_blocked_by bigint, p_behind bigint, p_at timestamptz)
RETURNS timestamptz LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  waiters_max constant int := 10000;
  w lease.waiter; v_until timestamptz := p_at + p_wait_ms * interval '1 ms';
BEGIN
  SELECT * INTO w FROM lease.waiter x WHERE x.kind = p_kind AND x.lease = p_lease FOR NO KEY UPDATE;
  IF FOUND AND w.open_until >= p_at AND w.holder <> p_holder THEN
    RETURN NULL;
  END IF;
  IF FOUND AND w.open_until >= p_at AND w.resources = p_resources AND w.tables = p_tables AND w.more = p_more THEN
    v_until := greatest(v_until, w.open_until);
    UPDATE lease.waiter x
       SET refresh = greatest(x.refresh, p_refresh), open_until = v_until, asked_at = p_at, ttl_ms = p_ttl_ms, payload = p_payload,
           source = p_source, message_id = p_message_id, traceparent = p_traceparent, blocked_by = p_blocked_by, behind = p_behind
     WHERE x.ticket = w.ticket;
    RETURN v_until;
  END IF;
  DELETE FROM lease.waiter x WHERE x.kind = p_kind AND x.lease = p_lease;
  IF (SELECT count(*) FROM lease.waiter) >= waiters_max THEN
    RETURN NULL;
  END IF;
  INSERT INTO lease.waiter (kind, lease, holder, ticket, resources, more, tables, ttl_ms, payload, refresh, open_until, asked_at, source, message_id, traceparent, blocked_by, behind, retry_at)
  VALUES (p_kind, p_lease, p_holder, nextval('lease.ticket'), p_resources, p_more, p_tables, p_ttl_ms, p_payload, p_refresh, v_until, p_at, p_source, p_message_id, p_traceparent,
          p_blocked_by, p_behind, CASE WHEN p_blocked_by IS NULL AND p_behind IS NULL THEN p_at END)
  RETURNING ticket INTO w.ticket;
  INSERT INTO lease.waiting_for (resource, ticket) SELECT DISTINCT u, w.ticket FROM unnest(p_resources || ARRAY(SELECT t || '/*' FROM unnest(p_tables) t)) u;
  RETURN v_until;
END
$$;

-- It was granted, or refused for good, or asks no more.
CREATE OR REPLACE FUNCTION lease.leave_line(p_kind text, p_lease text, p_holder text) RETURNS void
LANGUAGE sql AS $$
  DELETE FROM lease.waiter w WHERE w.kind = p_kind AND w.lease = p_lease AND w.holder = p_holder
$$;

-- Its turn came, and something is in the way still: who, or nobody who would tell when it is over. Then it is tried again at growing intervals.
CREATE OR REPLACE FUNCTION lease.stay_in_line(p_ticket bigint, p_blocked_by bigint, p_behind bigint, p_at timestamptz) RETURNS void
LANGUAGE sql AS $$
  UPDATE lease.waiter w
     SET blocked_by = p_blocked_by, behind = p_behind, tries = w.tries + 1,
         retry_at = CASE WHEN p_blocked_by IS NULL AND p_behind IS NULL THEN p_at + least(50 * 2 ^ least(w.tries, 10), 5000) * interval '1 ms' END
   WHERE w.ticket = p_ticket
$$;

-- Tries the starts in line whose way may be free, in the order of their tickets, at most p_limit: through lease.apply, as if they came now. The reaper calls it
-- in a transaction of its own, since users' triggers may run in it. Returns how many were granted or refused for good, and how many were tried.
CREATE OR REPLACE FUNCTION lease.serve_line(p_limit int, p_at timestamptz DEFAULT NULL) RETURNS TABLE (served int, tried int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_cut timestamptz := coalesce(p_at, clock_timestamp());
  v_kind text[]; v_lease text[]; v_holder text[]; v_ttl bigint[]; v_ticket bigint[]; v_refresh bigint[]; v_payload text[]; v_source text[]; v_message text[]; v_trace text[];
  v_resource text[]; v_upto int[]; v_more boolean[]; v_table text[]; v_table_upto int[];
BEGIN
  WITH due AS (
         SELECT w.* FROM lease.waiter w
          WHERE w.open_until >= v_cut AND (w.retry_at IS NULL OR w.retry_at <= v_cut)
            AND NOT EXISTS (SELECT FROM lease.waiter x WHERE x.ticket = w.behind AND x.open_until >= v_cut)
            AND NOT EXISTS (SELECT FROM lease.lease l WHERE l.fence = w.blocked_by AND l.state = 'held' AND (l.lease_until IS NULL OR l.lease_until > v_cut))
          ORDER BY w.ticket LIMIT p_limit)
  SELECT array_agg(d.kind ORDER BY d.ticket), array_agg(d.lease ORDER BY d.ticket), array_agg(d.holder ORDER BY d.ticket), array_agg(d.ttl_ms ORDER BY d.ticket),
         array_agg(d.ticket ORDER BY d.ticket), array_agg(d.refresh ORDER BY d.ticket), array_agg(d.payload ORDER BY d.ticket), array_agg(d.source ORDER BY d.ticket),
         array_agg(d.message_id ORDER BY d.ticket), array_agg(d.traceparent ORDER BY d.ticket),
         (SELECT array_agg(u ORDER BY e.ticket) FROM due e, unnest(e.resources) u), array_agg(d.upto ORDER BY d.ticket),
         array_agg(d.more ORDER BY d.ticket), (SELECT array_agg(u ORDER BY e.ticket) FROM due e, unnest(e.tables) u), array_agg(d.table_upto ORDER BY d.ticket)
    INTO v_kind, v_lease, v_holder, v_ttl, v_ticket, v_refresh, v_payload, v_source, v_message, v_trace, v_resource, v_upto, v_more, v_table, v_table_upto
    FROM (SELECT due.*, (sum(cardinality(resources)) OVER (ORDER BY ticket))::int AS upto, (sum(cardinality(tables)) OVER (ORDER BY ticket))::int AS table_upto FROM due) AS d;
  tried := coalesce(cardinality(v_kind), 0); served := 0;
  IF tried > 0 THEN
    SELECT count(*) FILTER (WHERE a.ord > 0) INTO served
      FROM lease.apply(NULL, NULL, NULL, v_kind, array_fill('line'::text, ARRAY[tried]), v_lease, v_source, v_message, NULL, v_trace, v_holder,
        NULL, NULL, NULL, v_ttl, v_ticket, v_refresh, NULL, NULL, v_more, v_upto, v_resource, v_table_upto, v_table, v_payload, NULL, NULL, NULL, NULL, NULL, NULL, p_at) AS a;
  END IF;
  RETURN NEXT;
END
$$;

GRANT EXECUTE ON FUNCTION lease.serve_line TO lease_coordinator;
RESET ROLE;
