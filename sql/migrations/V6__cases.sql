-- What only people can decide: work in progress that no grant of ours stands behind, and runs that stopped half way.

SET LOCAL ROLE lease_owner;

INSERT INTO lease.command VALUES
  (10, 'resolve', false, 'an operator says what became of work that nobody holds under a grant');

-- fits: the fence that the operator saw is the lease's. Live work under a grant is its holder's: not an operator's case.
INSERT INTO lease.transition (mode, condition, command, fits, outcome, next_condition)
SELECT m.mode, c.condition, 'resolve', f.fits,
       CASE WHEN c.condition = 'absent' THEN 'unknown'
            WHEN c.condition IN ('finished', 'failed', 'dead') THEN 'final'
            WHEN NOT f.fits THEN 'stale'
            WHEN c.condition IN ('covering', 'held') THEN 'held'
            ELSE 'finished' END,
       CASE WHEN f.fits AND c.condition IN ('free', 'ready', 'unfenced') THEN 'finished' ELSE c.condition END
  FROM (VALUES ('run'), ('pool')) AS m (mode)
 CROSS JOIN lease.condition c
 CROSS JOIN (VALUES (false), (true)) AS f (fits)
 WHERE NOT (m.mode = 'run'  AND c.condition IN ('ready', 'dead'))
   AND NOT (m.mode = 'pool' AND c.condition IN ('free', 'covering', 'failed'));

UPDATE lease.condition
   SET meaning = 'in progress under no grant of ours: claimed before fencing, an operator''s case; without an expiry unless an operator gave one'
 WHERE condition = 'unfenced';

-- Work that is in progress under no grant may have an expiry: until then it is left to whoever does it, then it lapses.
ALTER TABLE lease.lease
  DROP CONSTRAINT held_lease_has_holder,
  ADD CONSTRAINT held_lease_has_holder CHECK (state <> 'held' OR holder IS NOT NULL),
  ADD CONSTRAINT held_lease_with_expiry_is_looked_at CHECK (state <> 'held' OR lease_until IS NULL OR check_at IS NOT NULL AND check_at <= lease_until),
  ADD CONSTRAINT granted_lease_has_fence CHECK (state <> 'held' OR claim_id IS NULL OR fence IS NOT NULL);

UPDATE lease.setting SET schema_version = 6;

RESET ROLE;
