SET LOCAL ROLE lease_owner;

-- Turns over leases that have expired, oldest first, at most p_limit; retries items whose backoff has passed; matches open demand.
-- It names what is due and lets lease.apply decide: the rules of a lapse have one home. Any number of callers may run at once.
-- Returns how many lapsed, how many items were granted, the journal's last number if something was written, when the next lease
-- should be looked at, the database's clock to compare that with, at how many due leases it looked: p_limit means there may be more, and whether
-- anybody is in line (then lease.serve_line is to be called, in another transaction) or an edit is parked (lease.serve_edits, likewise).
-- Locks: due leases (SKIP LOCKED), then as lease.apply. Leases without an expiry are never due.
DROP FUNCTION IF EXISTS lease.reap(int, timestamptz);   -- its result has grown
CREATE OR REPLACE FUNCTION lease.reap(p_limit int, p_at timestamptz DEFAULT NULL)
RETURNS TABLE (turned int, granted int, last_number bigint, next_check timestamptz, now timestamptz, looked int, has_line boolean, has_edits boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_kind text[]; v_lease text[]; v_cut timestamptz := coalesce(p_at, clock_timestamp());
BEGIN
  turned := 0; granted := 0;
  SELECT array_agg(u.kind), array_agg(u.lease) INTO v_kind, v_lease
    FROM (SELECT l.kind, l.lease FROM lease.lease l WHERE l.check_at <= v_cut ORDER BY l.check_at LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) u;
  looked := coalesce(cardinality(v_kind), 0);
  IF looked > 0
     OR EXISTS (SELECT 1 FROM lease.demand d WHERE d.credit_total > d.granted_total AND d.open_until >= v_cut
                 AND EXISTS (SELECT 1 FROM lease.lease l WHERE l.kind = d.kind AND l.state = 'ready' AND l.ready_at <= v_cut)) THEN
    SELECT count(*) FILTER (WHERE a.ord > 0), count(*) FILTER (WHERE a.ord = 0 AND a.number IS NOT NULL), max(a.number)
      INTO turned, granted, last_number
      FROM lease.apply(NULL, NULL, NULL, v_kind, array_fill('lapse'::text, ARRAY[looked]), v_lease,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL, NULL, NULL, p_at) AS a;
  END IF;
  SELECT min(l.check_at) INTO next_check FROM lease.lease l WHERE l.check_at IS NOT NULL;
  has_line := EXISTS (SELECT FROM lease.waiter);
  has_edits := EXISTS (SELECT FROM lease.parked_edit) OR EXISTS (SELECT FROM lease.edit_inbox)
    OR EXISTS (SELECT FROM lease.guard_exception x WHERE NOT x.is_noted OR x.ended_at IS NOT NULL AND NOT x.is_end_noted);
  now := coalesce(p_at, clock_timestamp());
  RETURN NEXT;
END
$$;

GRANT EXECUTE ON FUNCTION lease.reap TO lease_coordinator;
RESET ROLE;
