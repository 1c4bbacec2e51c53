-- Commands over many items, items that cover a resource, and the kinds of the file server and of deliveries.

SET LOCAL ROLE lease_owner;

INSERT INTO lease.outcome VALUES
  (22, 'answered', false, 'the command named many items; each has its own outcome, in items');

ALTER TABLE lease.kind
  ADD COLUMN covers text COLLATE "C" CHECK (covers ~ '^[a-z][a-z0-9_-]{0,31}$'),
  ADD CONSTRAINT only_items_cover_by_name CHECK (covers IS NULL OR mode = 'pool'),
  ADD CONSTRAINT item_is_put_off_for_a_while CHECK (covers IS NULL OR backoff_base_ms > 0);
COMMENT ON COLUMN lease.kind.covers IS
  'pool: while an item is held it covers the resource <covers>/<lease>; while somebody else covers that, the item is put off by backoff_base_ms.';

ALTER TABLE lease.decision ADD COLUMN covers text[];

CREATE OR REPLACE FUNCTION lease.compile_decision() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM lease.decision;
  INSERT INTO lease.decision (outcomes, commands, kinds, is_pool, ttl_ms, ttl_max_ms, attempts_max, backoff_base_ms, backoff_max_ms, covers)
  SELECT t.outcomes, c.commands, k.*
  FROM (SELECT array_agg(t.outcome ORDER BY place) AS outcomes
          FROM generate_series(0, 1023) AS place
          LEFT JOIN (SELECT t.outcome, (((t.mode = 'pool')::int * 16 + c.no) * 16 + k.no) * 2 + t.fits::int AS place
                       FROM lease.transition t
                       JOIN lease.condition c USING (condition)
                       JOIN lease.command k USING (command)) AS t USING (place)) AS t,
       (SELECT array_agg(command ORDER BY no) AS commands FROM lease.command) AS c,
       (SELECT coalesce(array_agg(kind), '{}'), coalesce(array_agg((mode = 'pool')::int), '{}'), coalesce(array_agg(ttl_ms), '{}'),
               coalesce(array_agg(ttl_max_ms), '{}'), coalesce(array_agg(attempts_max), '{}'), coalesce(array_agg(backoff_base_ms), '{}'),
               coalesce(array_agg(backoff_max_ms), '{}'), coalesce(array_agg(covers), '{}')
          FROM (SELECT * FROM lease.kind ORDER BY kind) q) AS k;
  RETURN NULL;
END
$$;

INSERT INTO lease.kind (kind, mode, ttl_ms, ttl_max_ms, attempts_max, summary) VALUES
  ('file-write', 'run',  30000, 3600000, 1,  'a writer''s work on files, which it covers'),
  ('delivery',   'pool', 30000, 3600000, 10, 'a message to post to somebody''s endpoint');
UPDATE lease.kind SET covers = 'file' WHERE kind = 'cleanup';

UPDATE lease.setting SET schema_version = 2;

RESET ROLE;
