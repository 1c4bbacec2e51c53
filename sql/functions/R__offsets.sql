SET LOCAL ROLE lease_owner;

-- Takes an input partition for a coordinator that was just assigned it. The epoch rises, so that a batch of whoever had it
-- before is refused whole. Says where to go on, and the fingerprint of the record before that.
-- p_partitions: how many the topic has now; known_partitions: when it was first seen (a difference halts the partition: keys
-- would have moved). idle_takes: assignments in a row without progress; many may mean that a message kills its reader.
-- Locks: the partition's row; waits for a batch in flight.
CREATE OR REPLACE FUNCTION lease.take_partition(p_topic text, p_partition int, p_partitions int, p_owner text)
RETURNS TABLE (epoch bigint, next_offset bigint, last_offset bigint, last_timestamp bigint, last_checksum bigint, idle_takes int, known_partitions int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM lease.assert_server();
  INSERT INTO lease.partition AS p (topic, partition, epoch, owner, taken_at, partitions)
  VALUES (p_topic, p_partition, 1, p_owner, clock_timestamp(), p_partitions)
  ON CONFLICT (topic, partition) DO UPDATE SET epoch = p.epoch + 1, owner = EXCLUDED.owner, taken_at = EXCLUDED.taken_at
  RETURNING p.epoch INTO epoch;
  -- What was first seen of the topic: a partition that came later must not pass for a topic that was always this large.
  SELECT min(x.partitions) INTO known_partitions FROM lease.partition x WHERE x.topic = p_topic;
  SELECT c.next_offset, c.last_offset, c.last_timestamp, c.last_checksum
    INTO next_offset, last_offset, last_timestamp, last_checksum
    FROM lease.consumed c WHERE c.topic = p_topic AND c.partition = p_partition ORDER BY c.next_offset DESC LIMIT 1;
  UPDATE lease.partition p
     SET idle_takes = CASE WHEN p.taken_offset IS NOT DISTINCT FROM coalesce(next_offset, -1) THEN p.idle_takes + 1 ELSE 0 END,
         taken_offset = coalesce(next_offset, -1)
   WHERE p.topic = p_topic AND p.partition = p_partition
  RETURNING p.idle_takes INTO idle_takes;
  RETURN NEXT;
END
$$;

-- Claims a batch's offsets: the first statement of every batch's transaction. A partition is claimed if the epoch is the
-- latest and p_expected (-1: nothing consumed yet) is where consumption stands. Returns the partitions that could NOT be
-- claimed, with what the database has; on any row the caller rolls back: it has lost that partition, or its commit is already done.
-- Locks: the partitions' rows, by key. Offsets are appended, not updated.
CREATE OR REPLACE FUNCTION lease.claim_offsets(p_topic text[], p_partition int[], p_epoch bigint[], p_expected bigint[], p_next bigint[],
  p_last_offset bigint[], p_last_timestamp bigint[], p_last_checksum bigint[])
RETURNS TABLE (topic text, partition int, epoch bigint, next_offset bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  is_lost boolean := false; r record;
BEGIN
  PERFORM 1 FROM lease.partition p JOIN unnest(p_topic, p_partition) u (topic, partition) ON u.topic = p.topic AND u.partition = p.partition
    ORDER BY p.topic, p.partition FOR NO KEY UPDATE OF p;
  FOR r IN
    SELECT u.topic, u.partition, p.epoch, coalesce(c.next_offset, -1) AS next_offset
      FROM unnest(p_topic, p_partition, p_epoch, p_expected) u (topic, partition, epoch, expected)
      LEFT JOIN lease.partition p ON p.topic = u.topic AND p.partition = u.partition
      LEFT JOIN LATERAL (SELECT c.next_offset FROM lease.consumed c WHERE c.topic = u.topic AND c.partition = u.partition
                          ORDER BY c.next_offset DESC LIMIT 1) c ON true
     WHERE p.epoch IS DISTINCT FROM u.epoch OR coalesce(c.next_offset, -1) <> u.expected
  LOOP
    is_lost := true;
    topic := r.topic; partition := r.partition; epoch := r.epoch; next_offset := r.next_offset;
    RETURN NEXT;
  END LOOP;
  IF NOT is_lost THEN
    INSERT INTO lease.consumed (topic, partition, next_offset, last_offset, last_timestamp, last_checksum)
    SELECT * FROM unnest(p_topic, p_partition, p_next, p_last_offset, p_last_timestamp, p_last_checksum);
  END IF;
END
$$;

-- Says that one message is about to be applied alone, and returns how often that was said of it before and it never passed:
-- for a message that may kill its reader. A transaction of its own.
CREATE OR REPLACE FUNCTION lease.attempt_begin(p_topic text, p_partition int, p_offset bigint) RETURNS int
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO lease.attempt AS a VALUES (p_topic, p_partition, p_offset, 1)
  ON CONFLICT (topic, partition, offset_) DO UPDATE SET tries = a.tries + 1
  RETURNING tries - 1
$$;

GRANT EXECUTE ON FUNCTION lease.take_partition, lease.claim_offsets, lease.attempt_begin TO lease_coordinator;
RESET ROLE;
