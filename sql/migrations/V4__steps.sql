-- The kind share-ratio, whose work is a chain of steps, and kinds that may not finish before their last step.

SET LOCAL ROLE lease_owner;

ALTER TABLE lease.kind
  ADD COLUMN finish_after text COLLATE "C",
  ADD CONSTRAINT only_runs_finish_after_a_step CHECK (finish_after IS NULL OR mode = 'run');
COMMENT ON COLUMN lease.kind.finish_after IS
  'run: before this step is the last one taken, finish is out_of_step. NULL: a run may finish at any step.';

ALTER TABLE lease.decision ADD COLUMN finish_after text[];

CREATE OR REPLACE FUNCTION lease.compile_decision() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM lease.decision;
  INSERT INTO lease.decision (outcomes, commands, kinds, is_pool, ttl_ms, ttl_max_ms, attempts_max, backoff_base_ms, backoff_max_ms, covers, finish_after)
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
               coalesce(array_agg(backoff_max_ms), '{}'), coalesce(array_agg(covers), '{}'), coalesce(array_agg(finish_after), '{}')
          FROM (SELECT * FROM lease.kind ORDER BY kind) q) AS k;
  RETURN NULL;
END
$$;

INSERT INTO lease.kind (kind, mode, ttl_ms, ttl_max_ms, attempts_max, finish_after, summary) VALUES
  ('share-ratio', 'run', 30000, 3600000, 1, 'registered', 'a change of share ratios: the old ones are deleted, the new ones registered');

INSERT INTO lease.step (kind, step, after) VALUES
  ('share-ratio', 'deleting',    NULL),
  ('share-ratio', 'deleted',     'deleting'),
  ('share-ratio', 'registering', 'deleted'),
  ('share-ratio', 'registered',  'registering');

UPDATE lease.setting SET schema_version = 4;

RESET ROLE;
