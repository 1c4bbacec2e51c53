SET LOCAL ROLE lease_owner;

-- Resources by name, whether they are rows of lease.resource or of a guarded table: parts of lease.apply, which has pinned the search_path.
-- Only their owner may call them. A resource is <type>/<id>; where the type is that of a guarded table (lease.guarded), its stamp stands on that
-- table's row, and the functions that registration has made in the schema lease_stamp read and write it, with rights to the stamps alone.
-- Nobody is waited for: whoever has such a table or row locked makes its stamps unreadable, and the start that wants it busy.

-- Splits these names. p_guards: the types of guarded tables, or NULL where none is meant. <type>/* is no row. What is named twice comes twice.
CREATE OR REPLACE FUNCTION lease.split_targets(p_names text[], p_guards text[]) RETURNS lease.targets
LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_split lease.targets := ROW(p_names, '{}'); v_type text; v_prefix text; v_all text; v_behind int; v_ids text[]; v_found int := 0;
BEGIN
  FOREACH v_type IN ARRAY coalesce(p_guards, '{}') LOOP
    v_prefix := v_type || '/'; v_all := v_type || '/*'; v_behind := length(v_type) + 2;   -- once, not for each name
    v_ids := ARRAY(SELECT substr(u, v_behind) FROM unnest(p_names) u WHERE starts_with(u, v_prefix) AND u <> v_all);
    IF v_ids <> '{}' THEN
      v_split.rows := v_split.rows || ROW(v_type, v_ids)::lease.named_rows;
      v_found := v_found + cardinality(v_ids);
    END IF;
  END LOOP;
  IF v_found = cardinality(p_names) THEN
    v_split.plain := '{}';
  ELSIF v_found > 0 THEN
    v_split.plain := ARRAY(SELECT u FROM unnest(p_names) u WHERE right(u, 2) = '/*' OR split_part(u, '/', 1) <> ALL (p_guards));
  END IF;
  RETURN v_split;
END
$$;

-- Errors of a user's table are the start's own affair, whatever they are called: a trigger can raise any of them, an assertion can fail in it,
-- and the time of the statement can run out there. What the server really lacks, the next statement of ours meets as well; what an
-- administrator ends is FATAL, and is caught by nobody. So everything is caught where a table is touched.
DROP FUNCTION IF EXISTS lease.is_own_affair(text);   -- which said so of some

-- Reads stamps of one type, and what cannot be read as none: whoever stamps meets the same obstacle, and says so.
CREATE OR REPLACE FUNCTION lease.read_stamps(p_type text, p_ids text[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
  v_found bigint[]; v_all bigint[] := '{}'; v_id text;
BEGIN
  BEGIN
    EXECUTE format('SELECT lease_stamp.%I($1)', p_type || '.stamps') INTO v_found USING p_ids;
    RETURN coalesce(v_found, '{}');
  EXCEPTION
    WHEN data_exception THEN
      IF cardinality(p_ids) = 1 THEN RETURN '{}'; END IF;
    WHEN OTHERS OR assert_failure OR query_canceled THEN
      RETURN '{}';
  END;
  -- One id of many that is none must not hide the stamps of the others.
  FOREACH v_id IN ARRAY p_ids LOOP
    v_all := v_all || lease.read_stamps(p_type, ARRAY[v_id]);
  END LOOP;
  RETURN v_all;
END
$$;

-- The stamps that these resources carry now, read without a lock.
CREATE OR REPLACE FUNCTION lease.stamps_on(p_targets lease.targets) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
  v_found bigint[]; v_lock_timeout constant text := current_setting('lock_timeout'); r lease.named_rows;
BEGIN
  SELECT array_agg(DISTINCT x.fence) INTO v_found FROM lease.resource x WHERE x.resource = ANY (p_targets.plain) AND x.fence IS NOT NULL;
  IF p_targets.rows <> '{}' THEN
    PERFORM set_config('lock_timeout', '1ms', true);
    FOREACH r IN ARRAY p_targets.rows LOOP
      v_found := v_found || lease.read_stamps(r.type, r.ids);
    END LOOP;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);
    SELECT array_agg(DISTINCT u) INTO v_found FROM unnest(v_found) u;
  END IF;
  RETURN v_found;
END
$$;

-- How many of these resources carry this stamp, and the first of them by name.
CREATE OR REPLACE FUNCTION lease.stamped_with(p_targets lease.targets, p_fence bigint, OUT count bigint, OUT first text)
LANGUAGE plpgsql AS $$
DECLARE
  v_count bigint; v_first text; v_lock_timeout constant text := current_setting('lock_timeout'); r lease.named_rows;
BEGIN
  SELECT count(*), min(x.resource) INTO count, first FROM lease.resource x WHERE x.resource = ANY (p_targets.plain) AND x.fence = p_fence;
  FOREACH r IN ARRAY p_targets.rows LOOP
    BEGIN
      PERFORM set_config('lock_timeout', '1ms', true);
      EXECUTE format('SELECT lease_stamp.%I($1, $2), lease_stamp.%I($1, $2)', r.type || '.stamped', r.type || '.blocker') INTO v_count, v_first USING p_fence, r.ids;
      count := count + v_count;
      first := least(first, r.type || '/' || v_first COLLATE "C");
    EXCEPTION WHEN OTHERS OR assert_failure OR query_canceled THEN
      NULL;   -- who it is that has the resource stays untold
    END;
  END LOOP;
  PERFORM set_config('lock_timeout', v_lock_timeout, true);
END
$$;

-- Stamps these rows of guarded tables, where they carry no stamp or one of p_dead; returns how many. The caller has the
-- subtransaction and the lock_timeout. Any error of the table is raised as it is. LE014: a row is not there; its name is the message.
CREATE OR REPLACE FUNCTION lease.stamp_rows(p_rows lease.named_rows[], p_fence bigint, p_dead bigint[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  v_count bigint; v_all bigint := 0; v_missing text; r lease.named_rows;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    PERFORM set_config('lease.stamping', lease.stamping_token(g.relation), true) FROM lease.guarded g WHERE g.type = r.type;
    EXECUTE format('SELECT lease_stamp.%I($1, $2, $3)', r.type || '.stamp') INTO v_count USING p_fence, r.ids, coalesce(p_dead, '{}');
    IF v_count < cardinality(r.ids) THEN
      EXECUTE format('SELECT lease_stamp.%I($1)', r.type || '.missing') INTO v_missing USING r.ids;
      IF v_missing IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LE014', MESSAGE = r.type || '/' || v_missing;
      END IF;
    END IF;
    v_all := v_all + v_count;
  END LOOP;
  RETURN v_all;
END
$$;

-- What became of the rows that a run covered: the edits that were let through while it was neither live nor at its end. At most a hundred of them,
-- in 64 KB, oldest first; `edits` counts all.
CREATE OR REPLACE FUNCTION lease.basis_of(p_fence bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  WITH edit AS (
         SELECT jsonb_build_object('resource', e.type || '/' || e.id, 'old', e.old, 'new', e.new, 'by', e.by,
                                   'at', to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) AS change, e.at, e.type, e.id
           FROM lease.admitted_edit e WHERE e.fence = p_fence),
       told AS (
         SELECT q.change, q.no FROM (SELECT change, row_number() OVER w AS no, sum(octet_length(change::text)) OVER w AS size FROM edit WINDOW w AS (ORDER BY at, type, id)) q
          WHERE q.no <= 100 AND q.size <= 65536)
  SELECT CASE WHEN (SELECT count(*) FROM edit) = 0 THEN jsonb_build_object('basis', 'unchanged')
              ELSE jsonb_build_object('basis', 'changed', 'edits', (SELECT count(*) FROM edit), 'changes', coalesce((SELECT jsonb_agg(change ORDER BY no) FROM told), '[]')) END
$$;

RESET ROLE;
