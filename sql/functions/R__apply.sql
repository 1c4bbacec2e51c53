SET LOCAL ROLE lease_owner;

-- Before it had p_member.
DROP FUNCTION IF EXISTS lease.apply(text[], int[], bigint[], text[], text[], text[], text[], text[], bytea[], text[], text[], bigint[], uuid[], boolean[],
  bigint[], bigint[], bigint[], bigint[], text[], boolean[], int[], text[], int[], text[], text[], text[], text[], text[], bytea[], bytea[], bytea[], timestamptz);

-- Before it had p_claim_id.
DROP FUNCTION IF EXISTS lease.condition_no(text, timestamptz, text);

-- The number of a lease's condition, as in lease.condition; expiry apart, which needs the clock.
CREATE OR REPLACE FUNCTION lease.condition_no(p_state text, p_lease_until timestamptz, p_covering text, p_claim_id uuid) RETURNS int
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE p_state
    WHEN 'held' THEN CASE WHEN p_lease_until IS NULL THEN 5 WHEN p_claim_id IS NULL THEN 5 WHEN p_covering IS NOT NULL THEN 3 ELSE 4 END
    WHEN 'free' THEN 1 WHEN 'ready' THEN 2 WHEN 'finished' THEN 6 WHEN 'failed' THEN 7 WHEN 'dead' THEN 8 ELSE 0 END
$$;

-- lease.apply: the one place where leases change.
--
-- Purpose: decides a batch of commands, strictly in array order, each seeing what the earlier ones did; writes every lease
-- once; serves open demand; appends every answer and event to the journal. Arrays in, one row per command out, in order;
-- then a row with ord 0 for each grant out of open demand.
-- Never raises for what a command contains: the answer is its outcome.
--
-- A command over many items is a head (p_member false, its subject the holder) and behind it a member for each item (p_member true;
-- origin, source and id are the head's). The head is identified, deduplicated and answered, with the outcome of every member in its
-- payload; a member that changes its lease has an event of its own, any other leaves no trace but that outcome, and none has a row.
-- p_member is NULL for an ordinary command; the whole array is NULL where there is no other.
--
-- Outcomes, in precedence: see lease.outcome; which command meets which in which condition: see lease.transition.
--
-- Locks, in this order: shared advisory lock against a switch of the deduplication slot; leases named by the batch, by key;
-- leases found through stamps (SKIP LOCKED; locked means busy); then the clock; resource rows (lock_timeout 1 ms, or 100 ms where no row is locked; busy), rows
-- of guarded tables (1 ms); demand rows by key; the journal's advisory lock, held to the commit; demand and ready items (SKIP LOCKED).
--
-- Errors: LE001 another server than the one whose fences these are. LE003 the clock went back. 40001 another lane got in
-- between (a lease or a message id that both insert): run the whole transaction again. LE007 an invariant is broken: stop.
--
-- Why one long function: it works on arrays in memory, which PL/pgSQL cannot hand to another function by reference; a statement
-- or a call for each command costs several times as much. It reads in the order of the locks: look over, lock, clock, turn over,
-- decide, write, journal's lock, match, append.
--
-- p_at moves time in tests; everybody else leaves it out. The command 'lapse' is lease.reap's: it names a lease to look at. The command 'line' is
-- lease.serve_line's: a start whose turn has come, p_amount its ticket; 'unpark', 'except' and 'except_no_more' are lease.serve_edits', p_amount the edit's number; what is in
-- the way still leaves no trace but in lease.waiter and lease.parked_edit.
CREATE OR REPLACE FUNCTION lease.apply(
  p_origin_topic text[], p_origin_partition int[], p_origin_offset bigint[],
  p_kind text[], p_command text[], p_subject text[], p_source text[], p_message_id text[], p_digest bytea[], p_traceparent text[],
  p_holder text[], p_fence bigint[], p_claim_id uuid[], p_token_fits boolean[], p_ttl_ms bigint[],
  p_amount bigint[], p_refresh bigint[], p_wait_ms bigint[], p_word text[], p_flag boolean[],
  p_resource_upto int[], p_resource text[], p_table_upto int[], p_table text[], p_payload text[],
  p_verdict text[], p_reason text[], p_field text[], p_raw_key bytea[], p_raw_value bytea[], p_raw_headers bytea[],
  p_at timestamptz DEFAULT NULL, p_member boolean[] DEFAULT NULL)
RETURNS TABLE (ord int, outcome text, number bigint, fence bigint, claim_id uuid, lease_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
-- One plan, made once and by key: planning anew for every batch costs more than a small batch itself, and a plan
-- made while the tables were empty must not scan them later.
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  -- Conditions and commands by number, as in lease.condition and lease.command.
  in_absent constant int := 0;  in_free constant int := 1;  in_ready constant int := 2;  in_covering constant int := 3;  in_held constant int := 4;
  in_unfenced constant int := 5;  in_finished constant int := 6;  in_failed constant int := 7;  in_dead constant int := 8;
  states constant text[] := ARRAY['absent', 'free', 'ready', 'held', 'held', 'held', 'finished', 'failed', 'dead'];
  -- Grants in one transaction: what is left over is matched by the next one, or by the reaper.
  grants_max constant int := 1000;
  due_max constant int := 200;

  n int := coalesce(cardinality(p_kind), 0);
  lock_timeout_before constant text := current_setting('lock_timeout');
  patience_short constant text := '1ms';
  patience_long constant text := '100ms';   -- a process that was making room may have lost its processor for a moment
  v_patience text;
  v_at timestamptz;
  rules text[];

  -- Kinds, by index.
  k_kind text[]; k_pool int[]; k_ttl bigint[]; k_ttl_max bigint[]; k_attempts int[]; k_backoff bigint[]; k_backoff_max bigint[]; k_covers text[]; k_finish_after text[];
  commands text[]; steps text[];

  -- Commands, by index: what is wrong with it, its slot, its kind, its number, the first one with its id.
  c_reason text[]; c_field text[]; c_slot int[]; c_kind int[]; c_cmd int[]; c_first int[]; c_key uuid[]; c_name text[]; c_line boolean[]; c_own boolean[];
  d_digest bytea[]; d_outcome text[]; d_fence bigint[]; d_claim uuid[];
  has_claims boolean := false; claimed text[] := '{}'; has_steps boolean := false; stampings int := 0; has_resources boolean; guards text[]; has_rows boolean := false; has_duplicates boolean := false;

  -- Slots: the leases in hand, changed here and written once.
  slots int := 0;
  s_kind text[]; s_lease text[]; s_k int[]; s_known boolean[]; s_dirty boolean[];
  s_cond int[]; s_holder text[]; s_claim uuid[]; s_fence bigint[]; s_since timestamptz[]; s_until timestamptz[];
  s_ttl bigint[]; s_attempt int[]; s_step text[]; s_covering text[]; s_covered bigint[]; s_overtaken boolean[];
  s_event int[];
  s_ready timestamptz[]; s_check timestamptz[]; s_ended timestamptz[]; s_payload text[];

  -- Events, in journal order: lapses and answers, then grants out of demand (m_). Claims among the commands (q_).
  ne int := 0;
  e_cmd int[]; e_slot int[]; e_event text[]; e_holder text[]; e_claim uuid[]; e_fence bigint[]; e_since timestamptz[];
  e_until timestamptz[]; e_floor bigint[]; e_state text[]; e_attempt int[]; e_step text[]; e_amount bigint[];
  e_reason text[]; e_field text[]; e_blocker jsonb[]; e_changes boolean[]; e_grant boolean[]; e_payload text[]; e_refresh bigint[]; e_basis jsonb[];
  -- Slots whose grant covers rows of guarded tables, or no longer does.
  g_slot int[] := '{}'; g_guarded boolean[] := '{}';
  nm int := 0;
  m_kind text[]; m_lease text[]; m_holder text[]; m_claim uuid[]; m_fence bigint[]; m_since timestamptz[]; m_until timestamptz[];
  m_attempt int[]; m_step text[]; m_refresh bigint[]; m_source text[]; m_message text[]; m_trace text[]; m_payload text[];
  nq int := 0;
  q_cmd int[];

  -- Answers, by command.
  o_outcome text[]; o_event int[]; o_fence bigint[]; o_claim uuid[]; o_until timestamptz[];

  i int; s int; t int; k int; cond int; cmd int; fits boolean; lo int; hi int;
  is_member boolean; is_open boolean; heads int[] := '{}'; last_members int[] := '{}'; v_free text[];
  has_line boolean; is_line boolean; v_behind bigint; v_open_until timestamptz; ahead record; v_freed boolean := false;
  f bigint; v_drawn bigint; stamps bigint[]; dead_stamps bigint[] := '{}'; found bigint[]; gone bigint[]; passed int[];
  targets text[]; wanted lease.targets; all_targets text[]; all_wanted lease.targets; asked int; stamped int; inserted int; mine bigint; is_in_rows boolean; v_basis jsonb;
  v_outcome text; v_reason text; v_field text; v_amount bigint; v_blocking int; v_resource text; v_blocker jsonb;
  v_changes boolean; v_grant boolean; v_event text; v_payload text; v_cut timestamptz;
  r record; g record; room int; taken int; d_count bigint;
  v_base bigint; v_earliest timestamptz; v_expected int; v_done int; v_remembered int := 0; v_slot smallint; has_changes boolean := false; is_same_server boolean;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1279611205, 2);
  SELECT d.outcomes, d.commands, d.kinds, d.is_pool, d.ttl_ms, d.ttl_max_ms, d.attempts_max, d.backoff_base_ms, d.backoff_max_ms, d.covers, d.finish_after, st.dedup_slot,
         EXISTS (SELECT FROM lease.waiter) OR EXISTS (SELECT FROM lease.parked_edit), id.system_identifier = w.system_identifier AND id.timeline = w.timeline
    INTO STRICT rules, commands, k_kind, k_pool, k_ttl, k_ttl_max, k_attempts, k_backoff, k_backoff_max, k_covers, k_finish_after, v_slot, has_line, is_same_server
    FROM lease.decision d, lease.setting st, lease.identity id, lease.this_server w;
  IF NOT is_same_server THEN
    PERFORM lease.assert_server();
  END IF;

  -- What each command is about, and what is wrong with it before any lease is looked at.
  FOR i IN 1 .. n LOOP
    k := array_position(k_kind, p_kind[i]);
    c_line[i] := p_command[i] IS NOT DISTINCT FROM 'line';
    c_own[i] := p_command[i] IS NOT NULL AND p_command[i] IN ('unpark', 'except', 'except_no_more');
    cmd := CASE WHEN p_command[i] = 'lapse' THEN -1 WHEN c_line[i] THEN 0 WHEN c_own[i] THEN 11 ELSE array_position(commands, p_command[i]) - 1 END;
    v_reason := NULL; v_field := 'type';
    IF p_verdict[i] IS NOT NULL THEN
      v_reason := coalesce(p_reason[i], 'unspecified'); v_field := p_field[i];
    ELSIF k IS NULL THEN
      v_reason := 'unknown_kind';
    ELSIF cmd IS NULL OR cmd = 9 AND k_pool[k] <> 1 OR (cmd IN (11, 12)) <> (k_pool[k] = 2) OR cmd BETWEEN 0 AND 8 AND rules[(k_pool[k] * 256 + cmd) * 2 + 1] IS NULL THEN
      v_reason := 'wrong_kind';
    ELSIF p_ttl_ms[i] > k_ttl_max[k] THEN
      v_reason := 'ttl_above_maximum'; v_field := 'ttl_ms';
    END IF;
    c_kind[i] := k; c_cmd[i] := cmd; c_reason[i] := v_reason; c_field[i] := v_field;
    c_name[i] := NULL; c_key[i] := NULL;
    -- How many commands name resources, or free some (begin): a lone one need not look its stamps up twice.
    IF cmd = 2 OR p_resource_upto[i] > coalesce(p_resource_upto[i - 1], 0) OR p_table_upto[i] > coalesce(p_table_upto[i - 1], 0) THEN
      stampings := stampings + 1;
    END IF;
    IF v_reason IS NULL THEN
      IF cmd = 9 THEN has_claims := true; claimed := claimed || p_kind[i]; ELSIF p_member[i] IS NOT FALSE AND cmd NOT IN (11, 12) THEN c_name[i] := p_kind[i] || '/' || p_subject[i]; END IF;
      IF cmd = 4 THEN has_steps := true; END IF;
      IF cmd >= 0 AND p_member[i] IS NOT TRUE AND NOT c_line[i] AND NOT c_own[i] THEN
        c_key[i] := encode(substr(sha256(convert_to(p_source[i] || E'\x01' || p_message_id[i], 'UTF8')), 1, 16), 'hex')::uuid;
      END IF;
    END IF;
  END LOOP;
  -- A slot is a lease; slots are numbered in key order, which is the order of locking.
  IF n = 1 THEN
    slots := CASE WHEN c_name[1] IS NULL THEN 0 ELSE 1 END;
    c_slot[1] := nullif(slots, 0); c_first[1] := CASE WHEN c_key[1] IS NOT NULL THEN 1 END;
  ELSE
    SELECT array_agg(q.slot), array_agg(q.first), coalesce(max(q.slot), 0) INTO c_slot, c_first, slots
      FROM (SELECT CASE WHEN u.name IS NOT NULL THEN (dense_rank() OVER (ORDER BY u.name NULLS LAST))::int END AS slot,
                   CASE WHEN u.key IS NOT NULL THEN (min(u.ord) OVER (PARTITION BY u.key))::int END AS first
              FROM (SELECT v.name COLLATE "C" AS name, v.key, v.ord FROM unnest(c_name, c_key) WITH ORDINALITY AS v (name, key, ord)) AS u
             ORDER BY u.ord) AS q;
  END IF;
  has_resources := coalesce(cardinality(p_resource), 0) + coalesce(cardinality(p_table), 0) > 0;

  -- Were any of them answered before? Every slot of the window is looked at.
  FOR r IN SELECT k.ord, d.digest, d.outcome, d.fence, d.claim_id
             FROM unnest(c_key, c_first) WITH ORDINALITY AS k (key, first, ord)
             JOIN lease.dedup d ON d.key = k.key
            WHERE k.first IS NOT NULL LOOP
    has_duplicates := true;
    d_digest[r.ord] := r.digest; d_outcome[r.ord] := r.outcome; d_fence[r.ord] := r.fence; d_claim[r.ord] := r.claim_id;
  END LOOP;

  -- Lock what the batch names, in key order.
  IF slots > 0 THEN
    SELECT array_agg(l.kind), array_agg(l.subject), array_agg(l.k), array_agg(l.known), array_agg(false),
           array_agg(lease.condition_no(l.state, l.lease_until, l.covering, l.claim_id)),
           array_agg(l.holder), array_agg(l.claim_id), array_agg(l.fence), array_agg(l.since), array_agg(l.lease_until),
           array_agg(l.ttl_ms), array_agg(coalesce(l.attempt, 0)), array_agg(l.step), array_agg(l.covering), array_agg(coalesce(l.covered, 0)),
           array_agg(coalesce(l.overtaken, false)), array_agg(l.ready_at), array_agg(l.check_at), array_agg(l.ended_at), array_agg(l.payload)
      INTO s_kind, s_lease, s_k, s_known, s_dirty, s_cond, s_holder, s_claim, s_fence, s_since, s_until,
           s_ttl, s_attempt, s_step, s_covering, s_covered, s_overtaken, s_ready, s_check, s_ended, s_payload
      FROM (WITH named AS MATERIALIZED (
                 SELECT DISTINCT ON (c.slot) c.slot, p_kind[c.ord] COLLATE "C" AS kind, p_subject[c.ord] COLLATE "C" AS subject, c.k
                   FROM unnest(c_slot, c_kind) WITH ORDINALITY AS c (slot, k, ord)
                  WHERE c.slot IS NOT NULL ORDER BY c.slot),
               locked AS MATERIALIZED (
                 SELECT w.slot, l.state, l.holder, l.claim_id, l.fence, l.since, l.lease_until, l.ttl_ms, l.attempt, l.step, l.covering,
                        l.covered, l.overtaken, l.ready_at, l.check_at, l.ended_at, l.payload::text AS payload
                   FROM named w JOIN lease.lease l ON l.kind = w.kind AND l.lease = w.subject
                  ORDER BY w.slot FOR NO KEY UPDATE OF l)
            SELECT w.kind, w.subject, w.k, o.slot IS NOT NULL AS known, o.*
              FROM named w LEFT JOIN locked o USING (slot) ORDER BY w.slot) AS l;
  ELSE
    s_kind := '{}'; s_lease := '{}'; s_fence := '{}';
  END IF;

  -- Leases found on the way: those behind the stamps of resources that the batch names, if they are live or must be told that they
  -- are overtaken, and expired items that a claim could get. Any other lease behind a stamp is dead by a plain read: fences are
  -- not given out again, and what has ended stays so.
  IF has_resources THEN
    SELECT array_agg(type) INTO guards FROM lease.guarded;
    all_targets := coalesce(p_resource, '{}') || ARRAY(SELECT tt || '/*' FROM unnest(p_table) tt);
    all_wanted := lease.split_targets(all_targets, guards);
    has_rows := all_wanted.rows <> '{}';
    stamps := lease.stamps_on(all_wanted);
  END IF;
  IF stamps IS NOT NULL OR has_claims THEN
    FOR r IN
      SELECT l.*, l.payload::text AS payload_text
        FROM (SELECT x.kind, x.lease FROM lease.lease x
               WHERE x.fence = ANY (stamps) AND (x.state = 'held' OR x.state IN ('free', 'ready') AND x.claim_id IS NOT NULL AND NOT x.overtaken)
              UNION
              (SELECT x.kind, x.lease FROM lease.lease x WHERE x.kind = ANY (claimed) AND x.check_at <= coalesce(p_at, clock_timestamp()) ORDER BY x.check_at LIMIT due_max)) AS u
        JOIN lease.lease l ON l.kind = u.kind AND l.lease = u.lease
       WHERE NOT EXISTS (SELECT 1 FROM unnest(s_kind, s_lease) o (kind, lease) WHERE o.kind = l.kind AND o.lease = l.lease)
       ORDER BY l.kind, l.lease
      FOR NO KEY UPDATE OF l SKIP LOCKED
    LOOP
      slots := slots + 1;
      s_kind[slots] := r.kind; s_lease[slots] := r.lease; s_k[slots] := array_position(k_kind, r.kind); s_known[slots] := true; s_dirty[slots] := false;
      s_cond[slots] := lease.condition_no(r.state, r.lease_until, r.covering, r.claim_id);
      s_holder[slots] := r.holder; s_claim[slots] := r.claim_id; s_fence[slots] := r.fence; s_since[slots] := r.since; s_until[slots] := r.lease_until;
      s_ttl[slots] := r.ttl_ms; s_attempt[slots] := r.attempt; s_step[slots] := r.step; s_covering[slots] := r.covering; s_covered[slots] := r.covered;
      s_overtaken[slots] := r.overtaken; s_ready[slots] := r.ready_at; s_check[slots] := r.check_at; s_ended[slots] := r.ended_at; s_payload[slots] := r.payload_text;
    END LOOP;
    IF stamps IS NOT NULL THEN
      SELECT coalesce(array_agg(u.fence), '{}') INTO dead_stamps
        FROM unnest(stamps) AS u (fence)
       WHERE (SELECT true FROM lease.lease x   -- a look by key each: an anti-join may choose to scan
               WHERE x.fence = u.fence
                 AND (x.state = 'held' OR x.state IN ('free', 'ready') AND x.claim_id IS NOT NULL AND NOT x.overtaken)) IS NULL;
    END IF;
  END IF;

  -- Only now the clock: no wait for a lock stands between it and the decisions.
  v_at := coalesce(p_at, clock_timestamp());

  IF slots > 0 THEN
    s_event := array_fill(NULL::int, ARRAY[slots]);
  END IF;
  -- Turn over what has expired, whoever looks first; and set the next look at what was renewed.
  FOR s IN 1 .. slots LOOP
    cond := s_cond[s];
    IF cond = in_held OR cond = in_covering OR cond = in_unfenced AND s_until[s] IS NOT NULL THEN
      IF s_until[s] > v_at THEN
        IF s_check[s] <= v_at THEN
          s_check[s] := s_until[s]; s_dirty[s] := true;
        END IF;
        CONTINUE;
      END IF;
      k := s_k[s];
      v_event := 'lapsed';
      IF k_pool[k] = 0 THEN
        s_cond[s] := in_free; s_check[s] := NULL;
      ELSIF s_attempt[s] >= k_attempts[k] THEN
        v_event := 'dead'; s_cond[s] := in_dead; s_ended[s] := v_at; s_check[s] := NULL;
      ELSE
        s_cond[s] := in_ready;
        s_ready[s] := s_until[s] + least(k_backoff_max[k], k_backoff[k] * (1::bigint << least(s_attempt[s] - 1, 30))) * interval '1 ms';
        s_check[s] := CASE WHEN s_ready[s] > v_at THEN s_ready[s] END;
      END IF;
      s_dirty[s] := true;
      ne := ne + 1;
      e_cmd[ne] := NULL; e_slot[ne] := s; e_event[ne] := v_event; e_holder[ne] := s_holder[s]; e_claim[ne] := s_claim[s]; e_fence[ne] := s_fence[s];
      e_since[ne] := s_since[s]; e_until[ne] := s_until[s]; e_floor[ne] := coalesce(s_fence[s], (SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END FROM lease.fence q)) + 1;
      e_state[ne] := states[s_cond[s] + 1]; e_attempt[ne] := s_attempt[s]; e_step[ne] := s_step[s]; e_amount[ne] := NULL; e_reason[ne] := NULL; e_field[ne] := NULL;
      e_blocker[ne] := NULL; e_changes[ne] := true; e_grant[ne] := false; e_payload[ne] := NULL; e_refresh[ne] := NULL; e_basis[ne] := NULL;
      s_event[s] := ne;
    ELSIF cond = in_ready AND s_check[s] <= v_at THEN
      s_check[s] := NULL; s_dirty[s] := true;
    END IF;
  END LOOP;

  IF has_steps THEN
    SELECT array_agg(kind || '/' || coalesce(after, '') || '>' || step) INTO steps FROM lease.step;
  END IF;

  IF n > 0 THEN
    o_outcome := array_fill(NULL::text, ARRAY[n]); o_event := array_fill(NULL::int, ARRAY[n]); o_fence := array_fill(NULL::bigint, ARRAY[n]);
    o_claim := array_fill(NULL::uuid, ARRAY[n]); o_until := array_fill(NULL::timestamptz, ARRAY[n]);
  END IF;
  FOR i IN 1 .. n LOOP
    cmd := c_cmd[i];
    s := c_slot[i];
    IF cmd = -1 THEN
      o_event[i] := s_event[s]; o_outcome[i] := e_event[o_event[i]];
      CONTINUE;
    END IF;
    v_reason := c_reason[i]; v_field := NULL; v_amount := NULL; v_blocking := NULL; v_resource := NULL; v_blocker := NULL;
    v_changes := false; v_grant := false; v_payload := NULL; v_basis := NULL; v_behind := NULL; v_open_until := NULL;
    is_line := c_line[i];
    -- Whoever left the line meanwhile, or was served by another, is not there any more; nobody takes him away while we decide.
    IF is_line AND NOT EXISTS (SELECT FROM lease.waiter w WHERE w.ticket = p_amount[i] AND w.open_until >= v_at FOR NO KEY UPDATE) THEN
      CONTINUE;
    END IF;
    IF p_member[i] IS NOT TRUE THEN
      is_member := false; is_open := false;
    ELSIF is_open THEN
      is_member := true;
    ELSE
      CONTINUE;   -- of a command that is refused as a whole
    END IF;

    IF p_verdict[i] = 'dead_letter' THEN
      v_outcome := 'dead_letter'; v_field := c_field[i];
    ELSIF v_reason IS NOT NULL THEN
      v_outcome := 'malformed'; v_field := c_field[i];
    ELSIF has_duplicates AND d_outcome[i] IS NOT NULL THEN
      v_outcome := CASE WHEN d_digest[i] = p_digest[i] THEN 'duplicate' ELSE 'malformed' END;
    ELSIF c_first[i] < i THEN
      v_outcome := CASE WHEN p_digest[c_first[i]] = p_digest[i] THEN 'duplicate' ELSE 'malformed' END;
    ELSIF p_member[i] IS FALSE THEN
      v_outcome := 'answered'; is_open := true; heads := heads || i; last_members := last_members || i;
    ELSIF p_command[i] IN ('except', 'except_no_more') THEN
      v_outcome := CASE p_command[i] WHEN 'except' THEN 'excepted' ELSE 'exception_ended' END;
      v_reason := p_word[i]; v_payload := p_payload[i];
    ELSIF c_own[i] THEN
      SELECT r.outcome, r.reason INTO v_outcome, v_reason FROM lease.retry_edit(p_amount[i], v_at, p_word[i]) r;
      IF v_outcome IS NULL THEN
        CONTINUE;   -- something is in the way still
      END IF;
    ELSIF cmd = 11 THEN
      SELECT d.outcome, d.reason, d.field, d.blocked_by, d.blocker INTO v_outcome, v_reason, v_field, f, v_blocker
        FROM lease.take_edit(p_kind[i], p_subject[i], p_holder[i], p_payload[i]::jsonb, p_word[i], coalesce(p_wait_ms[i], k_ttl[c_kind[i]]), p_source[i], p_message_id[i], p_traceparent[i], v_at,
               ARRAY(SELECT s_fence[u] FROM generate_series(1, slots) u WHERE s_cond[u] IN (in_held, in_covering, in_unfenced) AND s_fence[u] IS NOT NULL)) d;
      v_freed := v_freed OR v_outcome = 'parked';
      IF f IS NOT NULL THEN
        v_blocking := array_position(s_fence, f);
      END IF;
      IF v_blocking IS NOT NULL THEN
        v_resource := p_subject[i];
      END IF;
    ELSIF cmd = 12 THEN
      SELECT d.outcome, d.reason INTO v_outcome, v_reason FROM lease.cancel_edit(p_subject[i], p_holder[i], p_word[i], p_source[i]) d;
      v_freed := v_freed OR v_outcome = 'cancelled';
    ELSIF cmd = 9 THEN
      -- What it gets is known after the matching; its answer stands here, in the order of the messages.
      nq := nq + 1; q_cmd[nq] := i;
      v_outcome := 'waiting';
    ELSE
      k := s_k[s];
      fits := CASE WHEN cmd = 10 THEN p_fence[i] IS NOT DISTINCT FROM s_fence[s]
                   ELSE coalesce(p_fence[i] = s_fence[s] AND p_claim_id[i] = s_claim[s] AND p_holder[i] = s_holder[s] AND p_token_fits[i], false) END;
      v_outcome := rules[((k_pool[k] * 16 + s_cond[s]) * 16 + cmd) * 2 + fits::int + 1];
      IF v_outcome IS NULL THEN
        RAISE EXCEPTION 'no transition for % in condition %', p_command[i], s_cond[s] USING ERRCODE = 'LE007';
      END IF;

      IF cmd = 10 THEN
        -- An operator's word. Who, why and what he saw is in the payload, whatever the answer.
        v_payload := p_payload[i];
        IF v_outcome <> 'finished' THEN
          v_blocking := CASE WHEN s_cond[s] IN (in_held, in_covering, in_unfenced) THEN s END;
        ELSIF p_word[i] = 'done' THEN
          s_cond[s] := in_finished; s_ended[s] := v_at; s_check[s] := NULL; s_ready[s] := NULL; s_covering[s] := NULL;
          s_dirty[s] := true; v_changes := true;
          IF s_covered[s] > 0 AND (SELECT l.guarded FROM lease.lease l WHERE l.kind = s_kind[s] AND l.lease = s_lease[s]) THEN
            v_basis := lease.basis_of(s_fence[s]);
          END IF;
        ELSIF p_word[i] = 'not_done' THEN
          -- As if it had not been given out; whoever had it last is not heard any more.
          v_outcome := 'released';
          IF s_cond[s] = in_unfenced OR s_claim[s] IS NOT NULL THEN
            s_attempt[s] := greatest(s_attempt[s] - 1, 0);
          END IF;
          s_claim[s] := NULL; s_covering[s] := NULL; s_check[s] := NULL; s_dirty[s] := true; v_changes := true;
          IF k_pool[k] = 1 THEN s_cond[s] := in_ready; s_ready[s] := v_at; ELSE s_cond[s] := in_free; END IF;
        ELSIF s_cond[s] = in_unfenced THEN
          -- Nobody is granted anything: it is left to whoever does it, until then, and lapses as any other lease does.
          v_outcome := 'renewed';
          s_until[s] := greatest(s_until[s], v_at + p_ttl_ms[i] * interval '1 ms');
          s_check[s] := coalesce(s_check[s], s_until[s]); s_attempt[s] := greatest(s_attempt[s], 1); s_dirty[s] := true;
          v_earliest := least(v_earliest, s_check[s]);
        ELSE
          v_outcome := 'out_of_step';
        END IF;

      ELSIF v_outcome = 'renewed' THEN
        s_until[s] := greatest(s_until[s], v_at + coalesce(p_ttl_ms[i], s_ttl[s]) * interval '1 ms');
        s_dirty[s] := true;

      ELSIF v_outcome = 'granted' AND cmd = 0 OR v_outcome = 'covered' THEN
        -- The resources: all or none.
        lo := CASE WHEN i = 1 THEN 1 ELSE coalesce(p_resource_upto[i - 1], 0) + 1 END; hi := coalesce(p_resource_upto[i], 0);
        asked := 0;
        IF hi >= lo OR coalesce(p_flag[i], false) THEN
          IF hi - lo + 1 = cardinality(p_resource) AND coalesce(cardinality(p_table), 0) = 0 THEN
            targets := p_resource;   -- as they are: what is named twice is found out below
          ELSE
            SELECT array_agg(DISTINCT p_resource[j] COLLATE "C") INTO targets FROM generate_series(lo, hi) AS j;
          END IF;
          v_amount := coalesce(cardinality(targets), 0);
          IF cmd = 0 AND coalesce(p_flag[i], false) THEN
            SELECT targets || array_agg(DISTINCT p_table[j] || '/*') INTO targets
              FROM generate_series(CASE WHEN i = 1 THEN 1 ELSE coalesce(p_table_upto[i - 1], 0) + 1 END, coalesce(p_table_upto[i], 0)) AS j;
          END IF;
          asked := coalesce(cardinality(targets), 0);
        END IF;
        IF has_line AND cmd = 0 AND asked > 0 THEN
          SELECT * INTO ahead FROM lease.ahead_in_line(p_kind[i], p_subject[i], targets, v_at);
          IF ahead.ticket IS NOT NULL THEN
            v_outcome := 'held'; v_reason := 'in_line'; v_behind := ahead.ticket;
            v_blocker := jsonb_build_object('kind', ahead.kind, 'lease', ahead.lease, 'holder', ahead.holder, 'resource', ahead.resource);
            asked := 0;
          END IF;
        END IF;
        gone := NULL; passed := '{}'; mine := 0; is_in_rows := false;
        IF asked > 0 THEN
          IF targets = all_targets THEN
            wanted := all_wanted;
          ELSE
            wanted := lease.split_targets(targets, CASE WHEN has_rows THEN guards END);
          END IF;
          found := CASE WHEN stampings = 1 THEN stamps ELSE lease.stamps_on(wanted) END;
          FOREACH f IN ARRAY coalesce(found, '{}') LOOP
            t := array_position(s_fence, f);
            IF t IS NULL THEN
              -- No lease has it (dead), or one that another transaction has in hand (busy).
              IF f = ANY (dead_stamps) THEN gone := gone || f;
              ELSIF v_outcome <> 'held' THEN v_outcome := 'busy'; SELECT w.first INTO v_resource FROM lease.stamped_with(wanted, f) w;
              END IF;
            ELSIF s_cond[t] IN (in_held, in_covering, in_unfenced) THEN
              IF t = s THEN
                SELECT w.count INTO mine FROM lease.stamped_with(wanted, f) w;
              ELSIF v_outcome <> 'held' THEN
                v_outcome := 'held'; v_blocking := t;
                SELECT w.first INTO v_resource FROM lease.stamped_with(wanted, f) w;
              END IF;
            ELSE
              gone := gone || f;
              IF t <> s AND s_cond[t] IN (in_free, in_ready) THEN passed := passed || t; END IF;
            END IF;
          END LOOP;
          -- A resource's fences only rise: what was granted under a higher fence since is out of this lease's reach for good.
          IF cmd = 1 AND (SELECT max(u) FROM unnest(gone) u) > s_fence[s] THEN
            v_outcome := 'stale'; v_blocking := NULL;
            SELECT w.first INTO v_resource FROM unnest(gone) u CROSS JOIN LATERAL lease.stamped_with(wanted, u) w WHERE u > s_fence[s] AND w.first IS NOT NULL LIMIT 1;
          END IF;
        END IF;

        IF v_outcome IN ('granted', 'covered') THEN
          f := CASE WHEN cmd = 0 THEN nextval('lease.fence') ELSE s_fence[s] END;
          IF asked > 0 THEN
            -- A stamp leaves a value only while that value is known to be dead: one conditional update, whose condition needs
            -- no look at another table when it is evaluated again behind a lock.
            -- Nobody's row is waited for. But the wait may have been for the end of the table, where lanes make room one after the other:
            -- if all rows can be locked, it is tried once more with a little patience.
            -- Rows of guarded tables are strangers' too; what their tables object to is this start's answer.
            v_patience := patience_short;
            LOOP
              is_in_rows := false;
              BEGIN
                IF v_patience <> patience_short
                   AND (SELECT count(*) FROM (SELECT FROM lease.resource x WHERE x.resource = ANY (wanted.plain) FOR NO KEY UPDATE SKIP LOCKED) q)
                       < (SELECT count(*) FROM lease.resource x WHERE x.resource = ANY (wanted.plain)) THEN
                  RAISE EXCEPTION 'a resource is in other hands' USING ERRCODE = 'object_in_use';
                END IF;
                PERFORM set_config('lock_timeout', v_patience, true);
                UPDATE lease.resource x SET fence = f
                 WHERE x.resource = ANY (wanted.plain) AND (x.fence IS NULL OR x.fence = ANY (gone));
                GET DIAGNOSTICS stamped = ROW_COUNT;
                IF stamped + mine < cardinality(wanted.plain) THEN
                  INSERT INTO lease.resource (resource, fence)
                  SELECT u, f FROM unnest(wanted.plain) AS u ORDER BY u
                  ON CONFLICT DO NOTHING;
                  GET DIAGNOSTICS inserted = ROW_COUNT;
                  stamped := stamped + inserted;
                END IF;
                IF wanted.rows <> '{}' THEN
                  -- A slow trigger of theirs is ended once in a statement, by its timeout: behind one, nobody's table is touched any more.
                  IF clock_timestamp() > statement_timestamp() + 0.8 * nullif(current_setting('statement_timeout')::interval, '0') THEN
                    RAISE EXCEPTION 'no time is left for this table' USING ERRCODE = 'object_in_use';
                  END IF;
                  is_in_rows := true;
                  PERFORM set_config('lock_timeout', patience_short, true);
                  stamped := stamped + lease.stamp_rows(wanted.rows, f, gone);
                END IF;
                IF stamped + mine < asked THEN
                  v_amount := v_amount - asked;
                  SELECT count(DISTINCT u) INTO asked FROM unnest(targets) u;
                  v_amount := v_amount + asked;
                END IF;
                IF stamped + mine <> asked THEN
                  RAISE EXCEPTION 'a resource was taken in between' USING ERRCODE = 'object_in_use';
                END IF;
                PERFORM set_config('lock_timeout', lock_timeout_before, true);
                EXIT;
              EXCEPTION
                WHEN object_in_use THEN
                  v_outcome := 'busy';
                  EXIT;
                WHEN SQLSTATE 'LE014' THEN   -- ours, if it names one of them; a table's own code may raise anything
                  IF SQLERRM = ANY (targets) THEN
                    v_outcome := 'unknown'; v_resource := SQLERRM;
                  ELSE
                    v_outcome := 'busy'; v_reason := 'stamp_refused';
                  END IF;
                  EXIT;
                WHEN lock_not_available THEN
                  IF is_in_rows OR v_patience = patience_long THEN
                    v_outcome := 'busy';
                    EXIT;
                  END IF;
                  v_patience := patience_long;
                WHEN OTHERS OR assert_failure OR query_canceled THEN
                  IF NOT is_in_rows THEN
                    RAISE;
                  END IF;
                  v_outcome := CASE WHEN left(SQLSTATE, 2) = '22' THEN 'unknown' ELSE 'busy' END;
                  IF left(SQLSTATE, 2) NOT IN ('22', '40') THEN
                    v_reason := 'stamp_refused';
                  END IF;
                  EXIT;
              END;
            END LOOP;
          END IF;
          IF v_outcome IN ('granted', 'covered') THEN
            IF guards IS NOT NULL THEN
              t := coalesce(array_position(g_slot, s), cardinality(g_slot) + 1);
              g_guarded[t] := is_in_rows OR cmd = 1 AND coalesce(g_guarded[t], false);
              g_slot[t] := s;
            END IF;
            FOREACH t IN ARRAY passed LOOP
              s_overtaken[t] := true; s_dirty[t] := true;
            END LOOP;
            s_dirty[s] := true;
            IF cmd = 0 THEN
              IF s_fence[s] IS NOT NULL THEN
                dead_stamps := dead_stamps || s_fence[s];   -- what it covered before is free
              END IF;
              s_holder[s] := p_holder[i]; s_claim[s] := gen_random_uuid(); s_fence[s] := f; s_since[s] := v_at;
              s_ttl[s] := coalesce(p_ttl_ms[i], k_ttl[k]);
              s_until[s] := v_at + s_ttl[s] * interval '1 ms';
              s_check[s] := s_until[s]; s_attempt[s] := s_attempt[s] + 1; s_overtaken[s] := false;
              s_covered[s] := coalesce(v_amount, 0); s_cond[s] := in_held; s_covering[s] := NULL;
              IF coalesce(p_flag[i], false) THEN
                s_cond[s] := in_covering;
                s_covering[s] := coalesce((SELECT string_agg(left(u, -2), ',' ORDER BY u) FROM unnest(targets) u WHERE u LIKE '%/*'), '');
              END IF;
              IF p_payload[i] IS NOT NULL THEN s_payload[s] := p_payload[i]; END IF;
              v_changes := true; v_grant := true; v_payload := s_payload[s];
              v_earliest := least(v_earliest, s_until[s]);
            ELSE
              v_amount := asked - mine;
              s_covered[s] := s_covered[s] + v_amount;
            END IF;
          END IF;
        END IF;

      ELSIF v_outcome = 'finished' THEN
        IF s_cond[s] IN (in_free, in_ready) AND s_overtaken[s] THEN
          v_outcome := 'stale';
        ELSIF s_covering[s] IS NOT NULL THEN
          v_outcome := 'incomplete';
        ELSIF k_finish_after[k] <> coalesce(s_step[s], '') THEN
          v_outcome := 'out_of_step';
        ELSE
          s_cond[s] := in_finished; s_ended[s] := v_at; s_check[s] := NULL; s_ready[s] := NULL; s_dirty[s] := true;
          v_changes := true; v_payload := p_payload[i];
          IF s_covered[s] > 0 AND k_pool[k] = 0
             AND coalesce(g_guarded[array_position(g_slot, s)], (SELECT l.guarded FROM lease.lease l WHERE l.kind = s_kind[s] AND l.lease = s_lease[s])) THEN
            v_basis := lease.basis_of(s_fence[s]);
          END IF;
        END IF;

      ELSIF v_outcome = 'advanced' THEN
        IF (s_kind[s] || '/' || coalesce(s_step[s], '') || '>' || p_word[i]) = ANY (steps) THEN
          s_step[s] := p_word[i]; s_dirty[s] := true;
        ELSE
          v_outcome := 'out_of_step';
        END IF;

      ELSIF v_outcome = 'failed' THEN
        v_reason := p_word[i];
        s_claim[s] := NULL; s_covering[s] := NULL; s_check[s] := NULL; s_dirty[s] := true; v_changes := true;
        IF NOT coalesce(p_flag[i], true) OR k_pool[k] = 1 AND s_attempt[s] >= k_attempts[k] THEN
          s_cond[s] := CASE WHEN k_pool[k] = 1 THEN in_dead ELSE in_failed END; s_ended[s] := v_at;
        ELSIF k_pool[k] = 1 THEN
          s_cond[s] := in_ready;
          s_ready[s] := v_at + coalesce(p_amount[i], least(k_backoff_max[k], k_backoff[k] * (1::bigint << least(s_attempt[s] - 1, 30)))) * interval '1 ms';
          s_check[s] := CASE WHEN s_ready[s] > v_at THEN s_ready[s] END;
        ELSE
          s_cond[s] := in_free;
        END IF;

      ELSIF v_outcome = 'released' THEN
        s_claim[s] := NULL; s_covering[s] := NULL; s_check[s] := NULL; s_dirty[s] := true; v_changes := true;
        s_attempt[s] := s_attempt[s] - 1;
        IF k_pool[k] = 1 THEN s_cond[s] := in_ready; s_ready[s] := v_at; ELSE s_cond[s] := in_free; END IF;

      ELSIF v_outcome = 'granted' THEN   -- begin
        IF p_amount[i] = s_covered[s] THEN
          UPDATE lease.resource x SET fence = NULL
           WHERE x.resource = ANY (ARRAY(SELECT u || '/*' FROM unnest(string_to_array(s_covering[s], ',')) u)) AND x.fence = s_fence[s];
          s_cond[s] := in_held; s_covering[s] := NULL; s_dirty[s] := true;
        ELSE
          v_outcome := 'incomplete';
        END IF;
        v_amount := s_covered[s];

      ELSIF v_outcome = 'requested' AND s_cond[s] = in_absent THEN
        s_cond[s] := in_ready; s_ready[s] := v_at + coalesce(p_amount[i], 0) * interval '1 ms'; s_payload[s] := p_payload[i];
        s_check[s] := CASE WHEN s_ready[s] > v_at THEN s_ready[s] END;
        s_dirty[s] := true; v_changes := true;

      ELSIF v_outcome IN ('held', 'stale', 'lapsed') AND s_cond[s] IN (in_held, in_covering, in_unfenced) THEN
        v_blocking := s;
      END IF;

      -- The line.
      IF cmd = 0 AND (has_line OR p_wait_ms[i] > 0) THEN
        IF v_outcome NOT IN ('held', 'busy') THEN
          PERFORM lease.leave_line(p_kind[i], p_subject[i], p_holder[i]);
        ELSIF is_line THEN
          PERFORM lease.stay_in_line(p_amount[i], s_fence[v_blocking], v_behind, v_at);
          CONTINUE;
        ELSIF p_wait_ms[i] > 0 THEN
          v_open_until := lease.join_line(p_kind[i], p_subject[i], p_holder[i],
            coalesce(p_resource[CASE WHEN i = 1 THEN 1 ELSE coalesce(p_resource_upto[i - 1], 0) + 1 END : p_resource_upto[i]], '{}'), coalesce(p_flag[i], false),
            coalesce(p_table[CASE WHEN i = 1 THEN 1 ELSE coalesce(p_table_upto[i - 1], 0) + 1 END : p_table_upto[i]], '{}'), p_ttl_ms[i], p_payload[i], coalesce(p_refresh[i], 0), p_wait_ms[i], p_source[i], p_message_id[i], p_traceparent[i], s_fence[v_blocking], v_behind, v_at);
          IF v_open_until IS NOT NULL THEN
            v_outcome := 'waiting'; v_amount := NULL; has_line := true; v_freed := true;
          END IF;
        ELSE
          PERFORM lease.leave_line(p_kind[i], p_subject[i], p_holder[i]);
        END IF;
      END IF;

      IF v_outcome IN ('held', 'busy', 'stale', 'unknown') THEN
        IF cmd IN (0, 1) AND (v_outcome = 'unknown' AND v_amount IS NOT NULL OR v_reason = 'stamp_refused') THEN
          v_field := 'resources';
        END IF;
        v_amount := NULL;
      END IF;
    END IF;

    IF v_blocking IS NOT NULL THEN
      v_blocker := jsonb_strip_nulls(jsonb_build_object('kind', s_kind[v_blocking], 'lease', s_lease[v_blocking], 'resource', v_resource,
        'holder', s_holder[v_blocking], 'fence', s_fence[v_blocking],
        'since', to_char(s_since[v_blocking] AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'until', to_char(s_until[v_blocking] AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'remaining_ms', floor(extract(epoch FROM s_until[v_blocking] - v_at) * 1000)::bigint));
    ELSIF v_resource IS NOT NULL THEN
      v_blocker := jsonb_build_object('resource', v_resource);
    END IF;

    IF is_member THEN
      o_outcome[i] := v_outcome; last_members[cardinality(heads)] := i;
      IF NOT v_changes THEN
        o_fence[i] := p_fence[i]; o_claim[i] := p_claim_id[i];
        IF v_outcome = 'renewed' THEN o_until[i] := s_until[s]; END IF;
        CONTINUE;
      END IF;
    END IF;
    ne := ne + 1;
    o_outcome[i] := v_outcome; o_event[i] := ne;
    IF NOT is_member AND NOT is_line AND NOT c_own[i] AND v_outcome NOT IN ('malformed', 'duplicate', 'dead_letter') THEN
      v_remembered := v_remembered + 1;
    END IF;
    e_cmd[ne] := i; e_slot[ne] := s; e_refresh[ne] := CASE WHEN is_line OR v_open_until IS NOT NULL THEN p_refresh[i] END; e_event[ne] := v_outcome; e_amount[ne] := v_amount;
    e_reason[ne] := v_reason; e_field[ne] := v_field; e_blocker[ne] := v_blocker; e_changes[ne] := v_changes; e_grant[ne] := v_grant; e_payload[ne] := v_payload; e_basis[ne] := v_basis;
    IF v_outcome IN ('granted', 'covered', 'renewed', 'advanced', 'finished', 'failed', 'released', 'requested') THEN
      e_holder[ne] := s_holder[s]; e_claim[ne] := s_claim[s]; e_fence[ne] := s_fence[s]; e_since[ne] := s_since[s];
      e_attempt[ne] := s_attempt[s]; e_step[ne] := s_step[s]; e_state[ne] := states[s_cond[s] + 1];
      IF s_cond[s] IN (in_held, in_covering, in_unfenced) THEN
        e_until[ne] := s_until[s]; e_floor[ne] := s_fence[s];
        o_until[i] := s_until[s];
      ELSE
        e_until[ne] := NULL;
        IF s_fence[s] IS NULL THEN
          -- New, or purged and forgotten here; downstream an old floor may still stand, which compaction drops with this record.
          v_drawn := coalesce(v_drawn, (SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END FROM lease.fence q));
        END IF;
        -- What is finished is never granted again, and effects of its holder may still be on their way to a gate.
        e_floor[ne] := coalesce(s_fence[s], v_drawn) + CASE WHEN v_outcome = 'finished' AND s_fence[s] IS NOT NULL THEN 0 ELSE 1 END;
        IF cmd IN (6, 7) OR v_outcome = 'released' THEN
          e_claim[ne] := p_claim_id[i]; s_holder[s] := NULL;
        END IF;
      END IF;
      o_fence[i] := s_fence[s]; o_claim[i] := e_claim[ne];
    ELSE
      -- A refusal names the grant it was asked with, and the state that it met.
      e_holder[ne] := p_holder[i]; e_claim[ne] := p_claim_id[i]; e_fence[ne] := p_fence[i]; e_since[ne] := NULL; e_until[ne] := v_open_until;
      e_floor[ne] := NULL; e_attempt[ne] := NULL; e_step[ne] := NULL;
      e_state[ne] := CASE WHEN s IS NOT NULL AND s_cond[s] <> in_absent THEN states[s_cond[s] + 1] END;
      IF v_outcome = 'malformed' AND v_reason IS NULL THEN
        e_reason[ne] := 'id_reused'; e_field[ne] := 'id';
      ELSIF v_outcome IN ('incomplete', 'out_of_step') THEN
        e_step[ne] := s_step[s];
      END IF;
      o_fence[i] := p_fence[i]; o_claim[i] := p_claim_id[i];
    END IF;
  END LOOP;

  -- What became of each item of a command over many.
  FOR t IN 1 .. cardinality(heads) LOOP
    e_payload[o_event[heads[t]]] := (SELECT json_agg(json_strip_nulls(json_build_object('lease', p_subject[u], 'outcome', o_outcome[u], 'fence', o_fence[u], 'claim_id', o_claim[u],
             'until', to_char(o_until[u] AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
             'remaining_ms', floor(extract(epoch FROM o_until[u] - v_at) * 1000)::bigint)) ORDER BY u)::text
      FROM generate_series(heads[t] + 1, last_members[t]) AS u);
  END LOOP;

  -- Write each lease once.
  IF slots > 0 THEN
    v_expected := 0;
    FOR s IN 1 .. slots LOOP
      IF s_dirty[s] THEN
        IF s_known[s] THEN has_changes := true; ELSE v_expected := v_expected + 1; END IF;
      END IF;
    END LOOP;
    IF v_expected > 0 THEN
      INSERT INTO lease.lease (kind, lease, state, holder, claim_id, fence, since, lease_until, ttl_ms, attempt, step, covering, covered,
                               overtaken, ready_at, check_at, ended_at, payload)
      SELECT u.kind, u.lease, states[u.cond + 1], u.holder, u.claim, u.fence, u.since, CASE WHEN u.cond IN (in_held, in_covering, in_unfenced) THEN u.until END, u.ttl,
             u.attempt, u.step, u.covering, u.covered, u.overtaken, u.ready, u.check_at, u.ended, u.payload::json
        FROM unnest(s_kind, s_lease, s_cond, s_holder, s_claim, s_fence, s_since, s_until, s_ttl, s_attempt, s_step, s_covering, s_covered,
                    s_overtaken, s_ready, s_check, s_ended, s_payload, s_dirty, s_known)
             AS u (kind, lease, cond, holder, claim, fence, since, until, ttl, attempt, step, covering, covered,
                   overtaken, ready, check_at, ended, payload, dirty, known)
       WHERE u.dirty AND NOT u.known
      ON CONFLICT (kind, lease) DO NOTHING;
      GET DIAGNOSTICS v_done = ROW_COUNT;
      IF v_done <> v_expected THEN
        RAISE EXCEPTION 'another transaction inserted the same lease' USING ERRCODE = '40001';
      END IF;
    END IF;
    IF has_changes THEN
      UPDATE lease.lease l
         SET state = states[u.cond + 1], holder = u.holder, claim_id = u.claim, fence = u.fence, since = u.since,
             lease_until = CASE WHEN u.cond IN (in_held, in_covering, in_unfenced) THEN u.until END, ttl_ms = u.ttl, attempt = u.attempt, step = u.step,
             covering = u.covering, covered = u.covered, overtaken = u.overtaken, ready_at = CASE WHEN u.cond = in_ready THEN u.ready END,
             check_at = u.check_at, ended_at = u.ended, payload = u.payload::json
        FROM unnest(s_kind, s_lease, s_cond, s_holder, s_claim, s_fence, s_since, s_until, s_ttl, s_attempt, s_step, s_covering, s_covered,
                    s_overtaken, s_ready, s_check, s_ended, s_payload, s_dirty, s_known)
             AS u (kind, lease, cond, holder, claim, fence, since, until, ttl, attempt, step, covering, covered,
                   overtaken, ready, check_at, ended, payload, dirty, known)
       WHERE u.dirty AND u.known AND l.kind = u.kind AND l.lease = u.lease;
    END IF;
    IF cardinality(g_slot) > 0 THEN
      UPDATE lease.lease l SET guarded = u.guarded
        FROM (SELECT s_kind[q.slot] AS kind, s_lease[q.slot] AS lease, q.guarded FROM unnest(g_slot, g_guarded) q (slot, guarded)) u
       WHERE l.kind = u.kind AND l.lease = u.lease AND l.guarded <> u.guarded;
    END IF;
  END IF;

  -- Remember the answers. The key order keeps two lanes with the same ids from a deadlock.
  IF v_remembered > 0 THEN
    PERFORM lease.remember(v_slot, v_remembered, c_key, p_digest, c_first, o_outcome, o_fence, o_claim);
  END IF;

  -- Demand, in key order.
  IF nq > 0 THEN
    PERFORM lease.record_demand(p_kind, p_subject, p_source, p_message_id, p_traceparent, p_ttl_ms, p_amount, p_refresh, p_wait_ms, q_cmd, v_at);
  END IF;

  -- From here to the commit one transaction at a time.
  PERFORM pg_advisory_xact_lock(1279611205, 1);

  -- Matching: what other lanes have committed is visible now; what they have in hand, they match themselves.
  room := grants_max;
  FOR k IN 1 .. cardinality(k_kind) LOOP
    CONTINUE WHEN k_pool[k] = 0;
    v_cut := coalesce(p_at, clock_timestamp());
    v_free := NULL;
    CONTINUE WHEN NOT EXISTS (SELECT 1 FROM lease.lease l WHERE l.kind = k_kind[k] AND l.state = 'ready' AND l.ready_at <= v_cut);
    FOR r IN SELECT d.* FROM lease.demand d
              WHERE d.credit_total > d.granted_total AND d.kind = k_kind[k] AND d.open_until >= v_cut
              ORDER BY d.ticket LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED LOOP
      taken := 0;
      d_count := least(r.credit_total - r.granted_total, room);
      IF k_covers[k] IS NOT NULL THEN
        v_free := lease.free_items(k_kind[k], k_covers[k], d_count::int, k_backoff[k], v_cut);
      END IF;
      FOR g IN
        WITH item AS MATERIALIZED (
               SELECT l.kind, l.lease FROM lease.lease l
                WHERE l.kind = k_kind[k] AND l.state = 'ready' AND l.ready_at <= v_cut AND (v_free IS NULL OR l.lease = ANY (v_free))
                ORDER BY l.ready_at, l.lease LIMIT d_count FOR NO KEY UPDATE SKIP LOCKED),
             numbered AS MATERIALIZED (SELECT kind, lease, nextval('lease.fence') AS fence FROM item)
        UPDATE lease.lease l
           SET state = 'held', holder = r.worker, claim_id = gen_random_uuid(), fence = u.fence, since = v_cut,
               lease_until = v_cut + r.ttl_ms * interval '1 ms', check_at = v_cut + r.ttl_ms * interval '1 ms', ttl_ms = r.ttl_ms,
               attempt = l.attempt + 1, overtaken = false, ready_at = NULL
          FROM numbered u
         WHERE l.kind = u.kind AND l.lease = u.lease
        RETURNING l.lease, l.claim_id, l.fence, l.since, l.lease_until, l.attempt, l.step, l.payload::text AS payload
      LOOP
        taken := taken + 1; nm := nm + 1;
        m_kind[nm] := k_kind[k]; m_lease[nm] := g.lease; m_holder[nm] := r.worker; m_claim[nm] := g.claim_id; m_fence[nm] := g.fence;
        m_since[nm] := g.since; m_until[nm] := g.lease_until; m_attempt[nm] := g.attempt; m_step[nm] := g.step; m_refresh[nm] := r.refresh;
        m_source[nm] := r.source; m_message[nm] := r.message_id; m_trace[nm] := r.traceparent; m_payload[nm] := g.payload;
        v_earliest := least(v_earliest, g.lease_until);
      END LOOP;
      IF taken > 0 AND k_covers[k] IS NOT NULL THEN
        UPDATE lease.resource x SET fence = u.fence
          FROM unnest(m_lease[nm - taken + 1 : nm], m_fence[nm - taken + 1 : nm]) u (lease, fence) WHERE x.resource = k_covers[k] || '/' || u.lease;
      END IF;
      IF taken > 0 THEN
        UPDATE lease.demand d SET granted_total = d.granted_total + taken WHERE d.kind = r.kind AND d.worker = r.worker;
        room := room - taken;
      END IF;
      EXIT WHEN taken < d_count OR room = 0;
    END LOOP;
  END LOOP;

  -- The answers to claims: the grants are those of the worker's newest claim in this batch, and a demand that does not wait ends here.
  IF nq > 0 THEN
    UPDATE lease.demand d SET open_until = '-infinity'
      FROM (SELECT p_kind[u] AS kind, p_subject[u] AS worker, max(u) AS last FROM unnest(q_cmd) u GROUP BY 1, 2) q
     WHERE d.kind = q.kind AND d.worker = q.worker AND coalesce(p_wait_ms[q.last], 0) = 0;
    FOR r IN
      SELECT q.cmd, d.credit_total > d.granted_total AND d.open_until >= v_at AS is_open,
             CASE WHEN q.cmd = max(q.cmd) OVER (PARTITION BY d.kind, d.worker)
                  THEN (SELECT count(*) FROM unnest(m_kind, m_holder) m (kind, holder) WHERE m.kind = d.kind AND m.holder = d.worker) ELSE 0 END AS count
        FROM unnest(q_cmd) AS q (cmd)
        JOIN lease.demand d ON d.kind = p_kind[q.cmd] AND d.worker = p_subject[q.cmd]
    LOOP
      t := o_event[r.cmd];
      e_event[t] := CASE WHEN r.count > 0 THEN 'granted' WHEN r.is_open AND p_wait_ms[r.cmd] > 0 THEN 'waiting' ELSE 'empty' END;
      e_holder[t] := p_subject[r.cmd]; e_amount[t] := r.count; e_refresh[t] := p_refresh[r.cmd];
      o_outcome[r.cmd] := e_event[t];
    END LOOP;
    -- They were remembered as waiting, in key order with the others.
    UPDATE lease.dedup d SET outcome = o_outcome[u] FROM unnest(q_cmd) u WHERE d.slot = v_slot AND d.key = c_key[u] AND o_outcome[u] <> 'waiting';
  END IF;

  IF ne + nm > 0 THEN
    v_base := lease.next_numbers(ne + nm, p_at);

    INSERT INTO lease.journal (number, at, event, kind, subject, command, source, message_id, traceparent, origin_topic, origin_partition, origin_offset,
                               holder, claim_id, fence, since, lease_until, min_fence, state, attempt, step, amount, refresh, reason, field, blocker,
                               original, basis, payload, changes_lease, is_grant, raw_key, raw_value, raw_headers)
    SELECT v_base + e.no, v_at, e.event, CASE WHEN e.cmd IS NULL THEN s_kind[e.slot] ELSE p_kind[e.cmd] END,
           CASE WHEN e.cmd IS NULL THEN s_lease[e.slot] ELSE p_subject[e.cmd] END,
           CASE WHEN NOT (c_line[e.cmd] OR c_own[e.cmd]) THEN p_command[e.cmd] END, p_source[e.cmd], p_message_id[e.cmd], p_traceparent[e.cmd],
           p_origin_topic[e.cmd], p_origin_partition[e.cmd], p_origin_offset[e.cmd],
           e.holder, e.claim, e.fence, e.since, e.until, e.floor, e.state, e.attempt, e.step, e.amount, e.refresh, e.reason, e.field, e.blocker,
           CASE WHEN e.event = 'duplicate' THEN jsonb_strip_nulls(
             CASE WHEN d_outcome[e.cmd] IS NOT NULL THEN jsonb_build_object('outcome', d_outcome[e.cmd], 'fence', d_fence[e.cmd], 'claim_id', d_claim[e.cmd])
                  ELSE jsonb_build_object('outcome', o_outcome[c_first[e.cmd]], 'fence', o_fence[c_first[e.cmd]], 'claim_id', o_claim[c_first[e.cmd]]) END) END,
           e.basis, e.payload, e.changes, e.grants, p_raw_key[e.cmd], p_raw_value[e.cmd], p_raw_headers[e.cmd]
      FROM unnest(e_cmd, e_slot, e_event, e_holder, e_claim, e_fence, e_since, e_until, e_floor, e_state, e_attempt, e_step, e_amount,
                  e_reason, e_field, e_blocker, e_changes, e_grant, e_payload, e_refresh, e_basis)
           WITH ORDINALITY AS e (cmd, slot, event, holder, claim, fence, since, until, floor, state, attempt, step, amount,
                                 reason, field, blocker, changes, grants, payload, refresh, basis, no);
    IF nm > 0 THEN
      INSERT INTO lease.journal (number, at, event, kind, subject, source, message_id, traceparent, holder, claim_id, fence, since, lease_until,
                                 min_fence, state, attempt, step, refresh, payload, changes_lease, is_grant)
      SELECT v_base + ne + m.no, m.since, 'granted', m.kind, m.lease, m.source, m.message, m.trace, m.holder, m.claim, m.fence, m.since, m.until,
             m.fence, 'held', m.attempt, m.step, m.refresh, m.payload, true, true
        FROM unnest(m_kind, m_lease, m_source, m_message, m_trace, m_holder, m_claim, m_fence, m_since, m_until, m_attempt, m_step, m_refresh, m_payload)
             WITH ORDINALITY AS m (kind, lease, source, message, trace, holder, claim, fence, since, until, attempt, step, refresh, payload, no);
    END IF;
    PERFORM pg_notify('lease_journal', (v_base + ne + nm)::text || ' ' || coalesce(floor(extract(epoch FROM v_earliest) * 1000)::bigint::text, ''));
  END IF;

  FOR i IN 1 .. n LOOP
    CONTINUE WHEN o_event[i] IS NULL OR p_member[i];
    ord := i; outcome := o_outcome[i]; number := v_base + o_event[i]; fence := o_fence[i]; claim_id := o_claim[i]; lease_until := o_until[i];
    RETURN NEXT;
  END LOOP;
  ord := 0; outcome := 'granted';
  -- Somebody in line, or a parked edit, may be served now: the reaper is to look at once.
  IF (has_line OR v_freed) AND (v_freed OR 'lapsed' = ANY (e_event) OR 'dead' = ANY (e_event) OR EXISTS (SELECT FROM unnest(o_outcome) u WHERE u IN ('finished', 'failed', 'released'))) THEN
    number := NULL; fence := NULL; claim_id := NULL; lease_until := v_at;
    RETURN NEXT;
  END IF;
  FOR i IN 1 .. nm LOOP
    number := v_base + ne + i; fence := m_fence[i]; claim_id := m_claim[i]; lease_until := m_until[i];
    RETURN NEXT;
  END LOOP;
END
$$;

-- The functions from here on are parts of lease.apply: only their owner may call them, under the search_path that it has pinned.

-- Which ready items of a kind that covers resources may be granted now, in their order, at most p_limit: those whose resource nobody
-- live covers. Part of the matching of lease.apply, under the journal's lock; items and resources stay locked. An item whose
-- resource is covered, or in other hands, is put off by p_backoff_ms and burns no attempt; whoever covered the resource and lapsed is
-- marked overtaken. It looks at an item once, and at no more than looked_max, since everybody waits for it.
-- Locks: items, resources, leases behind stamps, all SKIP LOCKED; a resource that is named for the first time with lock_timeout 1 ms,
-- since whoever names it in this moment may be waiting for the lock that we hold.
CREATE OR REPLACE FUNCTION lease.free_items(p_kind text, p_covers text, p_limit int, p_backoff_ms bigint, p_cut timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  looked_max constant int := 300;
  chunk_min constant int := 100;   -- a look at one item costs as much as one at a hundred
  v_free text[] := '{}'; v_seen text[] := '{}'; v_items text[]; v_good text[]; v_lock_timeout constant text := current_setting('lock_timeout');
BEGIN
  WHILE cardinality(v_free) < p_limit AND cardinality(v_seen) < looked_max LOOP
    SELECT array_agg(q.lease) INTO v_items
      FROM (SELECT l.lease FROM lease.lease l
             WHERE l.kind = p_kind AND l.state = 'ready' AND l.ready_at <= p_cut AND l.lease <> ALL (v_seen)
             ORDER BY l.ready_at, l.lease LIMIT greatest(p_limit - cardinality(v_free), chunk_min) FOR NO KEY UPDATE SKIP LOCKED) q;
    EXIT WHEN v_items IS NULL;
    v_seen := v_seen || v_items;
    BEGIN
      PERFORM set_config('lock_timeout', '1ms', true);
      INSERT INTO lease.resource (resource)
      SELECT p_covers || '/' || u FROM unnest(v_items) u WHERE NOT EXISTS (SELECT FROM lease.resource x WHERE x.resource = p_covers || '/' || u) ORDER BY 1
      ON CONFLICT DO NOTHING;
    EXCEPTION WHEN lock_not_available THEN
      NULL;   -- the ones that are there can be granted nevertheless
    END;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);

    -- Lapsed runs and items whose last holder might still finish: not after this.
    WITH stamp AS MATERIALIZED (
           SELECT x.resource, x.fence FROM lease.resource x JOIN unnest(v_items) u ON x.resource = p_covers || '/' || u
            FOR NO KEY UPDATE OF x SKIP LOCKED),
         late AS MATERIALIZED (
           SELECT l.kind, l.lease, l.fence FROM lease.lease l
            WHERE l.fence IN (SELECT fence FROM stamp) AND l.state IN ('free', 'ready') AND l.claim_id IS NOT NULL AND NOT l.overtaken
              AND NOT (l.kind = p_kind AND l.lease = ANY (v_items))
            FOR NO KEY UPDATE SKIP LOCKED),
         marked AS (
           UPDATE lease.lease l SET overtaken = true FROM late WHERE l.kind = late.kind AND l.lease = late.lease RETURNING l.fence)
    SELECT array_agg(i.lease ORDER BY i.no) INTO v_good
      FROM unnest(v_items) WITH ORDINALITY AS i (lease, no)
      JOIN stamp s ON s.resource = p_covers || '/' || i.lease
     WHERE s.fence IS NULL OR s.fence IN (SELECT fence FROM marked)
        OR (SELECT true FROM lease.lease x   -- a look by key each
             WHERE x.fence = s.fence AND NOT (x.kind = p_kind AND x.lease = i.lease)
               AND (x.state = 'held' OR x.state IN ('free', 'ready') AND x.claim_id IS NOT NULL AND NOT x.overtaken)) IS NULL;
    v_free := v_free || coalesce(v_good, '{}');
    UPDATE lease.lease l
       SET ready_at = p_cut + p_backoff_ms * interval '1 ms', check_at = p_cut + p_backoff_ms * interval '1 ms'
     WHERE l.kind = p_kind AND l.lease = ANY (v_items) AND l.lease <> ALL (coalesce(v_good, '{}'));
  END LOOP;
  RETURN v_free[1 : p_limit];
END
$$;

-- Writes the answers of a batch down, so that a command is applied once in the window. Part of lease.apply; key order keeps
-- two lanes that carry the same ids from a deadlock. 40001: another transaction answered one of them just now.
CREATE OR REPLACE FUNCTION lease.remember(p_slot smallint, p_expected int, p_key uuid[], p_digest bytea[], p_first int[], p_outcome text[],
  p_fence bigint[], p_claim_id uuid[])
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done int;
BEGIN
  INSERT INTO lease.dedup (slot, key, digest, outcome, fence, claim_id)
  SELECT p_slot, u.key, u.digest, u.outcome, u.fence, u.claim_id
    FROM unnest(p_key, p_digest, p_first, p_outcome, p_fence, p_claim_id) WITH ORDINALITY u (key, digest, first, outcome, fence, claim_id, ord)
   WHERE u.first = u.ord AND u.outcome NOT IN ('malformed', 'duplicate', 'dead_letter')
   ORDER BY u.key
  ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS v_done = ROW_COUNT;
  IF v_done <> p_expected THEN
    RAISE EXCEPTION 'another transaction answered the same message' USING ERRCODE = '40001';
  END IF;
END
$$;

-- Records what workers ask for. Part of lease.apply. Totals and refresh numbers: the highest wins, so a claim that comes twice
-- asks for nothing more. A demand keeps its place in the line while it stays open. One that does not wait is open until the
-- end of this transaction: lease.apply closes it after the matching.
CREATE OR REPLACE FUNCTION lease.record_demand(p_kind text[], p_worker text[], p_source text[], p_message_id text[], p_traceparent text[],
  p_ttl_ms bigint[], p_credit_total bigint[], p_refresh bigint[], p_wait_ms bigint[], p_cmd int[], p_at timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  -- Tickets in the order of the batch, rows in key order.
  INSERT INTO lease.demand AS d (kind, worker, credit_total, refresh, ttl_ms, open_until, asked_at, ticket, source, message_id, traceparent)
  SELECT q.kind, q.worker, q.credit_total, q.refresh, coalesce(p_ttl_ms[q.last], kk.ttl_ms),
         CASE WHEN p_wait_ms[q.last] > 0 THEN p_at + p_wait_ms[q.last] * interval '1 ms' ELSE 'infinity' END, p_at, q.ticket, p_source[q.last], p_message_id[q.last], p_traceparent[q.last]
    FROM (SELECT o.*, nextval('lease.ticket') AS ticket
            FROM (SELECT p_kind[u] COLLATE "C" AS kind, p_worker[u] COLLATE "C" AS worker, min(u) AS first, max(u) AS last,
                         max(coalesce(p_credit_total[u], 0)) AS credit_total, max(coalesce(p_refresh[u], 0)) AS refresh
                    FROM unnest(p_cmd) AS u GROUP BY 1, 2 ORDER BY 3) AS o OFFSET 0) AS q
    JOIN lease.kind kk ON kk.kind = q.kind
   ORDER BY q.kind, q.worker
  ON CONFLICT (kind, worker) DO UPDATE SET
    credit_total = greatest(d.credit_total, EXCLUDED.credit_total),
    refresh = greatest(d.refresh, EXCLUDED.refresh),
    ttl_ms = EXCLUDED.ttl_ms, open_until = EXCLUDED.open_until, asked_at = EXCLUDED.asked_at,
    ticket = CASE WHEN d.credit_total > d.granted_total AND d.open_until >= p_at THEN d.ticket ELSE EXCLUDED.ticket END,
    source = EXCLUDED.source, message_id = EXCLUDED.message_id, traceparent = EXCLUDED.traceparent;
END
$$;

-- The number before the next p_count of the journal. The caller holds the journal's lock, so nobody else draws now.
-- Also makes room: a partition is added here only if housekeeping has not kept up.
-- LE003: the database's clock is further behind the last decision than lease.setting allows.
CREATE OR REPLACE FUNCTION lease.next_numbers(p_count int, p_at timestamptz)
RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_number bigint; v_at timestamptz; v_upto bigint; v_back interval;
BEGIN
  SELECT j.number, j.at INTO v_number, v_at FROM lease.journal j ORDER BY j.number DESC LIMIT 1;
  v_number := coalesce(v_number, 0);
  IF p_at IS NULL AND v_at > clock_timestamp() THEN
    SELECT clock_back_max INTO v_back FROM lease.setting;
    IF v_at - clock_timestamp() > v_back THEN
      RAISE EXCEPTION 'the clock of the database is % behind its last decision', v_at - clock_timestamp()
        USING ERRCODE = 'LE003', HINT = 'Set the server''s clock; leases are judged by it.';
    END IF;
  END IF;
  SELECT max(upto_number) INTO v_upto FROM lease.journal_partition;
  IF v_number + p_count >= v_upto THEN
    PERFORM lease.add_journal_partition(v_number + p_count);
  END IF;
  RETURN v_number;
END
$$;

-- Appends journal partitions until p_number has room. Attaching takes no lock that stops writers or readers.
CREATE OR REPLACE FUNCTION lease.add_journal_partition(p_number bigint)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_from bigint; v_upto bigint; v_rows bigint; v_name text;
BEGIN
  SELECT max(upto_number) INTO v_from FROM lease.journal_partition;
  SELECT journal_rows INTO v_rows FROM lease.setting;
  IF p_number < v_from THEN
    RETURN;
  END IF;
  -- After a jump the numbers between stay without a partition: no row will ever have them.
  v_upto := p_number + v_rows;
  v_name := 'journal_' || v_from;
  EXECUTE format('CREATE TABLE lease.%I (LIKE lease.journal INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)', v_name);
  EXECUTE format('ALTER TABLE lease.journal ATTACH PARTITION lease.%I FOR VALUES FROM (%s) TO (%s)', v_name, v_from, v_upto);
  INSERT INTO lease.journal_partition VALUES (v_name, v_from, v_upto);
END
$$;

GRANT EXECUTE ON FUNCTION lease.apply TO lease_coordinator;
RESET ROLE;
