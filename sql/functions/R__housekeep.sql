SET LOCAL ROLE lease_owner;

-- Keeps what grows within bounds; a coordinator calls it once a minute. Each part is skipped when another session is at it or
-- something is in the way, and done the next time.
-- Locks: an advisory one of its own; the deduplication slot's exclusively for a moment, which waits for running batches;
-- to drop a journal partition, the journal exclusively for a moment (lock_timeout 100 ms).
CREATE OR REPLACE FUNCTION lease.housekeep() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  purge_max constant int := 20000;   -- ended leases a call: some 200 ms
  st lease.setting; v_number bigint; v_upto bigint; v_old text;
BEGIN
  PERFORM lease.assert_server();
  IF NOT pg_try_advisory_xact_lock(1279611205, 5) THEN
    RETURN;
  END IF;
  SELECT * INTO STRICT st FROM lease.setting;
  PERFORM set_config('lock_timeout', '100ms', true);

  -- Offsets: the newest row of each partition is what counts; a few before it are kept for people who look.
  DELETE FROM lease.consumed c USING (SELECT topic, partition, max(next_offset) AS top FROM lease.consumed GROUP BY 1, 2) m
   WHERE c.topic = m.topic AND c.partition = m.partition
     AND c.next_offset < (SELECT min(k.next_offset) FROM (SELECT x.next_offset FROM lease.consumed x WHERE x.topic = m.topic AND x.partition = m.partition
                                                           ORDER BY x.next_offset DESC LIMIT 10) k);
  DELETE FROM lease.attempt a USING (SELECT topic, partition, max(next_offset) AS top FROM lease.consumed GROUP BY 1, 2) m
   WHERE a.topic = m.topic AND a.partition = m.partition AND a.offset_ < m.top;
  DELETE FROM lease.relay_progress p WHERE p.no < (SELECT max(x.no) FROM lease.relay_progress x) - 10;
  -- Edits under a lapsed lease are told when it finishes; one that never does is forgotten with the journal of its time.
  DELETE FROM lease.admitted_edit e WHERE e.at < clock_timestamp() - st.journal_keep
     AND NOT EXISTS (SELECT FROM lease.lease l WHERE l.fence = e.fence AND l.state IN ('held', 'free', 'ready'));
  DELETE FROM lease.waiter w WHERE w.open_until < clock_timestamp() - interval '1 minute';
  DELETE FROM lease.demand d WHERE d.asked_at < clock_timestamp() - st.demand_keep AND d.open_until < clock_timestamp();
  DELETE FROM lease.lease l USING (
    SELECT e.kind, e.lease FROM lease.lease e JOIN lease.kind k ON k.kind = e.kind
     WHERE e.ended_at < clock_timestamp() - k.keep_final ORDER BY e.ended_at LIMIT purge_max FOR UPDATE OF e SKIP LOCKED) AS old
   WHERE l.kind = old.kind AND l.lease = old.lease;
  -- Edits under a lapsed lease are told when it is finished; a lease that has ended, or goes on under another fence, tells of no more.
  DELETE FROM lease.admitted_edit e WHERE e.fence IN (
    SELECT u.fence FROM (SELECT DISTINCT x.fence FROM (SELECT fence FROM lease.admitted_edit LIMIT purge_max) x) u
     WHERE NOT EXISTS (SELECT FROM lease.lease l WHERE l.fence = u.fence AND l.ended_at IS NULL));

  -- Deduplication: a slot holds half a window, so two full slots and the current one always cover it.
  IF st.dedup_switched_at < clock_timestamp() - st.dedup_window / 2 THEN
    BEGIN
      PERFORM pg_advisory_xact_lock(1279611205, 2);
      EXECUTE format('TRUNCATE lease.%I', 'dedup_' || (st.dedup_slot + 1) % 3);
      UPDATE lease.setting SET dedup_slot = (st.dedup_slot + 1) % 3, dedup_switched_at = clock_timestamp();
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
  END IF;

  -- The journal: room ahead, and old partitions dropped whole: published, past their time, and never the last one with rows,
  -- for the numbers go on from it.
  SELECT j.number INTO v_number FROM lease.journal j ORDER BY j.number DESC LIMIT 1;
  SELECT max(upto_number) INTO v_upto FROM lease.journal_partition;
  BEGIN
    IF v_number + st.journal_rows / 2 >= v_upto AND pg_try_advisory_xact_lock(1279611205, 1) THEN
      PERFORM lease.add_journal_partition(v_upto);
    END IF;
    -- Not a FOR loop: its open query would still be using the partition that is to be dropped.
    SELECT jp.name INTO v_old FROM lease.journal_partition jp
     WHERE jp.upto_number <= v_number
       AND jp.upto_number - 1 <= (SELECT p.published FROM lease.relay_progress p ORDER BY p.no DESC LIMIT 1)
       AND coalesce((SELECT j.at FROM lease.journal j WHERE j.number >= jp.from_number AND j.number < jp.upto_number ORDER BY j.number DESC LIMIT 1)
                    < clock_timestamp() - st.journal_keep, true)
     ORDER BY jp.from_number LIMIT 1;
    IF v_old IS NOT NULL THEN
      EXECUTE format('DROP TABLE lease.%I', v_old);
      DELETE FROM lease.journal_partition WHERE name = v_old;
    END IF;
  EXCEPTION WHEN lock_not_available THEN NULL;
  END;
END
$$;

GRANT EXECUTE ON FUNCTION lease.housekeep TO lease_coordinator;
RESET ROLE;
