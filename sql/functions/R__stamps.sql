SET LOCAL ROLE lease_owner;

-- Resources by name, whether they are rows of lease.resource or of a guarded table: parts of lease.apply, which has pinned the search_path.
-- Only their owner may call them. A resource is <type>/<id>; where the type is that of a guarded table (lease.guarded), its stamp stands on that
-- table's row, and the functions that registration has made in the schema lease_stamp read and write it, with rights to the stamps alone.
-- Nobody is waited for: whoever has such a table or row locked makes its stamps unreadable, and the start that wants it busy.

-- The names of guarded tables' rows among p_targets, a row a type. <type>/* is no row. What is named twice comes twice.
CREATE OR REPLACE FUNCTION lease.rows_named(p_targets text[]) RETURNS TABLE (type text, ids text[])
LANGUAGE sql STABLE AS $$
  SELECT g.type, q.ids
    FROM lease.guarded g CROSS JOIN LATERAL (SELECT array_agg(substr(u, length(g.type) + 2)) AS ids FROM unnest(p_targets) AS u
                                              WHERE starts_with(u, g.type || '/') AND right(u, 2) <> '/*') AS q
   WHERE q.ids IS NOT NULL ORDER BY g.type
$$;

-- The names among p_targets that are rows of lease.resource: all others.
CREATE OR REPLACE FUNCTION lease.plain_among(p_targets text[]) RETURNS text[]
LANGUAGE sql STABLE AS $$
  SELECT ARRAY(SELECT u FROM unnest(p_targets) u WHERE right(u, 2) = '/*' OR split_part(u, '/', 1) <> ALL (ARRAY(SELECT g.type FROM lease.guarded g)))
$$;

-- Errors of a user's table that are the start's own affair; what the server lacks or an administrator ends is everybody's.
CREATE OR REPLACE FUNCTION lease.is_own_affair(p_sqlstate text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT left(p_sqlstate, 2) <> ALL (ARRAY['08', '53', '57', '58', 'XX'])
$$;

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
    WHEN OTHERS THEN
      IF NOT lease.is_own_affair(SQLSTATE) THEN RAISE; END IF;
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
CREATE OR REPLACE FUNCTION lease.stamps_on(p_targets text[], p_has_rows boolean) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
  v_found bigint[]; v_plain text[] := p_targets; v_lock_timeout constant text := current_setting('lock_timeout'); r record;
BEGIN
  IF p_has_rows THEN
    v_plain := lease.plain_among(p_targets);
  END IF;
  SELECT array_agg(DISTINCT x.fence) INTO v_found FROM lease.resource x WHERE x.resource = ANY (v_plain) AND x.fence IS NOT NULL;
  IF p_has_rows THEN
    PERFORM set_config('lock_timeout', '1ms', true);
    FOR r IN SELECT * FROM lease.rows_named(p_targets) LOOP
      v_found := v_found || lease.read_stamps(r.type, r.ids);
    END LOOP;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);
    SELECT array_agg(DISTINCT u) INTO v_found FROM unnest(v_found) u;
  END IF;
  RETURN v_found;
END
$$;

-- How many of these resources carry this stamp, and the first of them by name.
CREATE OR REPLACE FUNCTION lease.stamped_with(p_targets text[], p_has_rows boolean, p_fence bigint, OUT count bigint, OUT first text)
LANGUAGE plpgsql AS $$
DECLARE
  v_count bigint; v_first text; v_lock_timeout constant text := current_setting('lock_timeout'); r record;
BEGIN
  SELECT count(*), min(x.resource) INTO count, first FROM lease.resource x WHERE x.resource = ANY (p_targets) AND x.fence = p_fence;
  IF NOT p_has_rows THEN
    RETURN;
  END IF;
  FOR r IN SELECT * FROM lease.rows_named(p_targets) LOOP
    BEGIN
      PERFORM set_config('lock_timeout', '1ms', true);
      EXECUTE format('SELECT lease_stamp.%I($1, $2), lease_stamp.%I($1, $2)', r.type || '.stamped', r.type || '.blocker') INTO v_count, v_first USING p_fence, r.ids;
      count := count + v_count;
      first := least(first, r.type || '/' || v_first COLLATE "C");
    EXCEPTION WHEN OTHERS THEN
      IF NOT lease.is_own_affair(SQLSTATE) THEN RAISE; END IF;
    END;
  END LOOP;
  PERFORM set_config('lock_timeout', v_lock_timeout, true);
END
$$;

-- Stamps the rows of guarded tables among p_targets, where they carry no stamp or one of p_dead; returns how many. The caller has the
-- subtransaction and the lock_timeout. Any error of the table is raised as it is. LE014: a row is not there; its name is the message.
CREATE OR REPLACE FUNCTION lease.stamp_rows(p_targets text[], p_fence bigint, p_dead bigint[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  v_count bigint; v_all bigint := 0; v_missing text; r record;
BEGIN
  FOR r IN SELECT * FROM lease.rows_named(p_targets) LOOP
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
