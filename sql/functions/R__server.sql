SET LOCAL ROLE lease_owner;

-- Who this server is: its identifier and the timeline it writes on. The timeline comes from the write position, since the
-- control file still shows the old one just after a promotion. 55000 on a standby.
CREATE OR REPLACE VIEW lease.this_server AS
  SELECT c.system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int AS timeline
    FROM pg_control_system() AS c;

-- Raises LE001 unless this is the server whose fences these are. Every transaction that decides calls it first.
-- A part of the functions that call it: only their owner may, under the search_path that they have pinned.
CREATE OR REPLACE FUNCTION lease.assert_server() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM lease.identity i, lease.this_server s
                  WHERE i.system_identifier = s.system_identifier AND i.timeline = s.timeline) THEN
    RAISE EXCEPTION 'this is not the server, or not the timeline, whose fences these tables hold'
      USING ERRCODE = 'LE001', HINT = 'After a failover or a restore, fences must jump first: a coordinator does so when it connects, or "leasectl jump".';
  END IF;
END
$$;

-- May a coordinator work here? Called on every connection, with what the topics show (0 if they are empty).
-- p_topic_number, p_topic_fence: the highest journal number and fence in the output topics.
-- p_throwaway: accept a server that may forget commits.
-- Raises LE008 (read-only, encoding, durability off), LE006 (schema), LE004 (the topics know of decisions that this database does not).
-- jump_needed: another server or timeline; call lease.jump with the same witness before anything else.
CREATE OR REPLACE FUNCTION lease.check_server(p_schema_version int, p_topic_number bigint, p_topic_fence bigint, p_throwaway boolean)
RETURNS TABLE (journal_number bigint, fence_high bigint, system_identifier text, timeline int, jump_needed boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_version int; v_setting text; v_is_same boolean;
BEGIN
  IF pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' THEN
    RAISE EXCEPTION 'this server is read-only' USING ERRCODE = 'LE008',
      HINT = 'Connect to the primary: list all hosts and set target_session_attrs=read-write.';
  END IF;
  IF current_setting('server_encoding') <> 'UTF8' THEN
    RAISE EXCEPTION 'this database is encoded in %, not UTF8', current_setting('server_encoding') USING ERRCODE = 'LE008';
  END IF;
  FOREACH v_setting IN ARRAY ARRAY['fsync', 'synchronous_commit', 'full_page_writes'] LOOP
    IF current_setting(v_setting) = 'off' AND NOT p_throwaway THEN
      RAISE EXCEPTION '% is off: this server may forget what it has promised', v_setting USING ERRCODE = 'LE008',
        HINT = 'Turn it on, or say "throwaway" if losing everything is fine.';
    END IF;
  END LOOP;
  SELECT schema_version INTO v_version FROM lease.setting;
  IF v_version IS DISTINCT FROM p_schema_version THEN
    RAISE EXCEPTION 'the schema has version %, this program needs %', v_version, p_schema_version USING ERRCODE = 'LE006',
      HINT = CASE WHEN v_version < p_schema_version THEN 'Run "leasectl migrate".' ELSE 'Use a newer program.' END;
  END IF;

  SELECT coalesce((SELECT j.number FROM lease.journal j ORDER BY j.number DESC LIMIT 1), 0),
         (SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END FROM lease.fence q), s.system_identifier::text, s.timeline,
         i.system_identifier = s.system_identifier AND i.timeline = s.timeline
    INTO journal_number, fence_high, system_identifier, timeline, v_is_same
    FROM lease.identity i, lease.this_server s;
  jump_needed := NOT v_is_same;
  IF v_is_same AND (p_topic_number > journal_number OR p_topic_fence > fence_high) THEN
    RAISE EXCEPTION 'the topics are ahead of this database: they know decision % and fence %, the database % and %',
      p_topic_number, p_topic_fence, journal_number, fence_high
      USING ERRCODE = 'LE004',
        HINT = 'The database was put back to an earlier state. If that is meant, raise its fences with "leasectl jump"; otherwise find the newer one.';
  END IF;
  RETURN NEXT;
END
$$;

-- Raises fences and journal numbers above both the database's own and the topics', plus 2^32, and takes this server's identity on.
-- Plus 2^32 for each timeline since these tables last took one on: a primary in between, which may have jumped and been cut off
-- before it published anything, has jumped as far as its timeline is high, and may still be granting from there (tests/spin, NO_STEPS).
-- Returns the new floor, or NULL if there was nothing to do (somebody else jumped in between, or nothing differs).
-- Locks: the journal's. Journals the event jumped; it says which number came before it. Relays' epochs go on from that event's
-- number: a relay of the history that was lost must not share its epoch with one of this.
CREATE OR REPLACE FUNCTION lease.jump(p_topic_number bigint, p_topic_fence bigint, p_who text, p_why text)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_number bigint; v_fence bigint; v_next bigint; v_width bigint; s record;
BEGIN
  PERFORM pg_advisory_xact_lock(1279611205, 1);
  SELECT * INTO s FROM lease.this_server;
  SELECT 4294967296 * CASE WHEN i.system_identifier = s.system_identifier THEN greatest(s.timeline - i.timeline, 1) ELSE 1 END
    INTO STRICT v_width FROM lease.identity i;
  SELECT coalesce((SELECT j.number FROM lease.journal j ORDER BY j.number DESC LIMIT 1), 0),
         (SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END FROM lease.fence q)
    INTO v_number, v_fence;
  IF EXISTS (SELECT 1 FROM lease.identity i WHERE i.system_identifier = s.system_identifier AND i.timeline = s.timeline)
     AND p_topic_number <= v_number AND p_topic_fence <= v_fence THEN
    RETURN NULL;
  END IF;
  v_fence := greatest(v_fence, p_topic_fence) + v_width;
  v_next := greatest(v_number, p_topic_number) + v_width;
  IF v_fence > 9007199254740991 - 4294967296 THEN
    RAISE EXCEPTION 'no room for another jump: fences would leave the numbers that JSON keeps exact' USING ERRCODE = 'LE007';
  END IF;
  PERFORM setval('lease.fence', v_fence);
  UPDATE lease.identity SET system_identifier = s.system_identifier, timeline = s.timeline, jumped_at = clock_timestamp();
  PERFORM lease.add_journal_partition(v_next);
  INSERT INTO lease.journal (number, at, event, fence, min_fence, holder, reason, changes_lease, is_grant, previous_number)
  VALUES (v_next, clock_timestamp(), 'jumped', v_fence, v_fence, p_who, p_why, false, false, v_number);
  INSERT INTO lease.relay (epoch, owner, taken_at) VALUES (v_next, p_who, clock_timestamp());
  PERFORM pg_notify('lease_journal', v_next || ' ');
  RETURN v_fence;
END
$$;

GRANT EXECUTE ON FUNCTION lease.check_server, lease.jump TO lease_coordinator;
RESET ROLE;
