SET LOCAL ROLE lease_owner;

-- Becomes the relay, if nobody is: takes a session advisory lock (a dead relay's goes with its connection) and a new epoch.
-- Returns no row while another session is the relay; otherwise the epoch, the journal number up to which everything is
-- published, and the positions up to which the output partitions were read. p_epoch_seen: the highest epoch that the output topics
-- show; a restored database may have forgotten it. Commit this with certainty: an epoch that is forgotten is given out again.
-- lost_after, lost_before: what the topics know under numbers between these was decided in a history that the last jump left behind.
DROP FUNCTION IF EXISTS lease.relay_take(text, bigint);   -- its result has grown
CREATE OR REPLACE FUNCTION lease.relay_take(p_owner text, p_epoch_seen bigint DEFAULT 0)
RETURNS TABLE (epoch bigint, published bigint, topics text[], partitions int[], offsets bigint[], lost_after bigint, lost_before bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM lease.assert_server();
  IF NOT pg_try_advisory_lock(1279611205, 3) THEN
    RETURN;
  END IF;
  INSERT INTO lease.relay (epoch, owner, taken_at)
  SELECT greatest(max(r.epoch), p_epoch_seen, 0) + 1, p_owner, clock_timestamp() FROM lease.relay r
  RETURNING lease.relay.epoch INTO epoch;
  published := 0; topics := '{}'; partitions := '{}'; offsets := '{}';
  SELECT p.published, p.topics, p.partitions, p.offsets INTO published, topics, partitions, offsets
    FROM lease.relay_progress p ORDER BY p.no DESC LIMIT 1;
  published := coalesce(published, 0); topics := coalesce(topics, '{}'); partitions := coalesce(partitions, '{}'); offsets := coalesce(offsets, '{}');
  -- A jump is a relay's epoch too.
  SELECT j.previous_number, j.number INTO lost_after, lost_before
    FROM lease.relay r JOIN lease.journal j ON j.number = r.epoch WHERE j.event = 'jumped' ORDER BY r.epoch DESC LIMIT 1;
  RETURN NEXT;
END
$$;

-- Raises LE005 unless p_epoch is the latest relay's, LE001 if the server is another. The usual case is one statement.
CREATE OR REPLACE FUNCTION lease.assert_relay(p_epoch bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  is_ours boolean; is_same_server boolean;
BEGIN
  SELECT p_epoch = (SELECT r.epoch FROM lease.relay r ORDER BY r.epoch DESC LIMIT 1),
         i.system_identifier = w.system_identifier AND i.timeline = w.timeline
    INTO STRICT is_ours, is_same_server
    FROM lease.identity i, lease.this_server w;
  IF NOT is_same_server THEN
    PERFORM lease.assert_server();
  END IF;
  IF is_ours IS NOT TRUE THEN
    RAISE EXCEPTION 'another relay has taken over' USING ERRCODE = 'LE005';
  END IF;
END
$$;

-- The journal after p_after, in order: at most p_limit rows, and no more once they come to p_bytes (always at least one).
CREATE OR REPLACE FUNCTION lease.relay_read(p_epoch bigint, p_after bigint, p_limit int, p_bytes int)
RETURNS SETOF lease.journal
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  r lease.journal; v_size int; v_total bigint := 0;
BEGIN
  PERFORM lease.assert_relay(p_epoch);
  FOR r IN SELECT * FROM lease.journal j WHERE j.number > p_after ORDER BY j.number LIMIT p_limit LOOP
    -- Only payloads, edits and dead letters can make a row large.
    v_size := 400 + coalesce(octet_length(r.payload), 0) + coalesce(pg_column_size(r.basis), 0) + coalesce(octet_length(r.raw_value), 0) + coalesce(octet_length(r.raw_headers), 0);
    EXIT WHEN v_total > 0 AND v_total + v_size > p_bytes;
    v_total := v_total + v_size;
    RETURN NEXT r;
  END LOOP;
END
$$;

-- A small write. Where a synchronous standby is configured, its commit returns only when the standby has everything
-- that was read before it: the relay commits it before it publishes what it read.
CREATE OR REPLACE FUNCTION lease.relay_barrier(p_epoch bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM lease.assert_relay(p_epoch);
  PERFORM pg_logical_emit_message(true, 'leasehold', 'barrier');
END
$$;

-- Everything up to p_published is acknowledged by the broker; the output partitions were read up to these offsets. Appends.
CREATE OR REPLACE FUNCTION lease.relay_advance(p_epoch bigint, p_published bigint, p_topics text[], p_partitions int[], p_offsets bigint[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  PERFORM lease.assert_relay(p_epoch);
  INSERT INTO lease.relay_progress (epoch, published, topics, partitions, offsets, at)
  VALUES (p_epoch, p_published, p_topics, p_partitions, p_offsets, clock_timestamp());
END
$$;

-- Journals the present state of leases again, so that lease.state gets a record with a new number: compaction could otherwise
-- keep a record that a paused relay left behind it, or one of a history that a failover left behind. Returns the last journal number.
CREATE OR REPLACE FUNCTION lease.restate(p_epoch bigint, p_kind text[], p_subject text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_base bigint; v_count int;
BEGIN
  PERFORM lease.assert_relay(p_epoch);
  PERFORM 1 FROM lease.lease l JOIN unnest(p_kind, p_subject) u (kind, subject) ON l.kind = u.kind AND l.lease = u.subject
    ORDER BY l.kind, l.lease FOR NO KEY UPDATE OF l;
  PERFORM pg_advisory_xact_lock(1279611205, 1);
  v_base := lease.next_numbers(cardinality(p_kind), NULL);
  -- A lease that is gone (purged, or granted in another history only) is restated as absent, so that the straggler does not stay
  -- the last word. Its floor is above every fence drawn so far.
  INSERT INTO lease.journal (number, at, event, kind, subject, holder, claim_id, fence, since, min_fence, state, attempt, step, changes_lease, is_grant)
  SELECT v_base + row_number() OVER (ORDER BY u.kind, u.subject), clock_timestamp(), 'restated', u.kind, u.subject, l.holder, l.claim_id, l.fence, l.since,
         CASE WHEN l.state IN ('held', 'finished') THEN l.fence ELSE coalesce(l.fence, f.last_value) + 1 END, coalesce(l.state, 'absent'), l.attempt, l.step,
         true, false
    FROM lease.fence f, (SELECT DISTINCT kind, subject FROM unnest(p_kind, p_subject) q (kind, subject)) u
    LEFT JOIN lease.lease l ON l.kind = u.kind AND l.lease = u.subject;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  PERFORM pg_notify('lease_journal', (v_base + v_count) || ' ');
  RETURN v_base + v_count;
END
$$;

GRANT EXECUTE ON FUNCTION lease.relay_take, lease.relay_read, lease.relay_barrier, lease.relay_advance, lease.restate TO lease_coordinator;
RESET ROLE;
