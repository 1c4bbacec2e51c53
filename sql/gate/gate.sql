-- The SQL gate: turns a stale worker away where its effect lands.
--
-- One file for any PostgreSQL 14 or later that receives effects. It stands alone: schema lease_gate, nothing of the coordinator's
-- database. This comment is the manual.
--
--   psql -1 -v ON_ERROR_STOP=1 -f gate.sql 'host=… dbname=… user=<the database''s owner>'
--
-- Load it again to upgrade; what the gate remembers stays. An older file refuses to replace a newer one. Two roles get the
-- rights, made here if the loader may do so: lease_gate_user (the effects) and lease_gate_keeper (floors, purge). To have others
-- instead: SET lease_gate.user = 'app'; SET lease_gate.keeper = 'ops' in the session that loads.
--
-- WHAT IT IS FOR
--
-- A worker got a lease: a fence (a number that grows with every grant, over all leases and kinds) and a claim id (the grant's identity).
-- It was paused, its lease lapsed, somebody else was granted a higher fence, and now it wakes up and writes. Nothing on the
-- worker's side can be sure to stop it; the place where it writes can, because it has seen the higher fence. So: in the
-- transaction of the effect, before the effect,
--
--   BEGIN;
--   SELECT lease_gate.require('file/f1', 41, '0b7e…', 'settle');    -- raises LE101 if stale: the transaction dies
--   UPDATE account …;                                               -- unless it said 'duplicate'
--   COMMIT;
--
-- THE RULE, per resource (a name of your choice: what the effect is about, the same for all who contend for it)
--
--   stale       the fence is below the resource's floor, below the highest fence admitted before, or equal to that one with another
--               claim id. Nothing is remembered. It will never be admitted: stop.
--   duplicate   not stale, and this effect was admitted before, under whatever fence. It is done: leave it out, go on.
--   admit       anything else. The fence and its claim id are now the highest; the effect, if named, is remembered.
--
-- They are judged in this order. An effect is named by a key of your own (`settle`, a message's id): once admitted for a resource
-- it is a duplicate there for every later fence too, so that a successor finds what its predecessor has done. Memory and effect are one
-- transaction: rolled back (also to a savepoint), neither happened. Without an effect key nothing is ever a duplicate.
--
-- CALLS, one round trip each
--
--   admit(resource text, fence bigint, claim_id uuid, effect text = NULL) → text             the verdict: stale | duplicate | admit
--   require(resource, fence, claim_id, effect = NULL) → text                                  duplicate | admit; raises LE101 if stale
--   admit_each(resources text[], fences bigint[], claim_ids uuid[], effects text[] = NULL)    a row per entry, in their order:
--                                                → (ord int, resource text, verdict text)
--   admit_each(resources text[], fence bigint, claim_id uuid, effect text = NULL)             one grant over many resources
--   require_each(…) as both admit_each                                                        raises LE101 if any is stale; none is remembered
--   raise_floor(resources text[], min_fences bigint[]) → int                                  how many rose. For keepers
--   purge(below bigint, effects_before timestamptz = NULL, at_most int = 10000)               see FORGETTING. For keepers
--                                                → (resources int, effects int)
--   version() → int
--
-- A resource may come several times in one call; entries count in their order. An array of one entry is no faster than the plain
-- call: use admit for one, admit_each for many.
--
-- ERRORS
--
--   LE101  stale (require, require_each). DETAIL is JSON: resource, fence, claim_id, highest, highest_claim_id, min_fence. A worker
--          that gets it stops; to do it again is useless.
--   22023  an argument that cannot be: null, an empty or over-long name, a fence outside of 1 … 2^53 - 1, arrays of different length.
--   40001  two transactions met under REPEATABLE READ or SERIALIZABLE, or a purge met this call. Do the whole transaction again.
--   40P01  a deadlock with locks of your own. Likewise.
--   55P03  lock_timeout, see below. Likewise.
--   LE102  the file is older than what is loaded.
--
-- LOCKS
--
-- A call that admits holds its resource until its transaction ends, against other calls about the same resource and nobody else: two
-- effects on one resource come one after the other, and a lower fence that waited behind a higher one is refused. The set-based
-- forms take them in the order of the names (COLLATE "C"); who makes several plain calls in one transaction does well to keep that
-- order. Who is stale by what is committed is told so without waiting and holds nothing; who finds out only after it waited for
-- the other holds the resource until its transaction ends, so end it.
-- Nothing here waits without end only if you say so. In the effect's transaction: SET LOCAL lock_timeout = '2s', and
-- idle_in_transaction_session_timeout for the session, so that a worker paused in its transaction does not keep its successor out for ever.
--
-- FLOORS
--
-- lease.state (or a result) says in `min_fence` which fences are stale for good, from the moment that the lease lapsed or was given up,
-- before a successor comes. (A finish shuts out those before it, not itself: its own effects may still be under way.) raise_floor
-- takes that in: as often, as late and in whatever order you like, a floor never goes down. After it has committed, no lower fence
-- gets in, and none is in the middle of its transaction. Floors close the gate earlier; it is safe without.
--
-- FORGETTING
--
-- A row per resource is kept until purge(below) is told that no fence lower than `below` need ever be admitted again, for any resource.
-- (Right now that is the lowest fence of all leases that are held: SELECT min(fence) FROM lease.leases WHERE state = 'held'; a lower
-- one where effects of leases that have finished may still be on their way, as on a topic. Too high a number turns live workers away;
-- none lets a stale one in.) From then on the gate refuses every fence below, known resource or not, and so may forget a resource whose
-- highest fence is below and whose floor is not above: what it remembered could only refuse what is refused anyway. Effects are
-- forgotten only if they were admitted before `effects_before` too and their fence is below: forget those that no later grant will ask
-- for, because their lease has reached a final state. NULL keeps all. Call it until it returns zeros.
--
-- WHAT IT TRUSTS
--
-- Who may call it: the fence that it is given is believed. It protects from who is late, not from who lies (a caller who names the
-- highest fence there is shuts everybody else out). Nobody can write its tables but through these functions; users may read them.

DO $$ BEGIN PERFORM pg_advisory_xact_lock(1279611205, 100); END $$;    -- one loader at a time, where the file is one transaction

DO $$
DECLARE v_loaded int;
BEGIN
  -- What stands in a schema of somebody else's may be a trap.
  IF EXISTS (SELECT 1 FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner
              WHERE n.nspname = 'lease_gate' AND r.rolname <> current_user) THEN
    RAISE EXCEPTION 'schema lease_gate belongs to somebody else' USING ERRCODE = '42501', HINT = 'Load the file as the owner of the schema.';
  END IF;
  IF to_regprocedure('lease_gate.version()') IS NOT NULL THEN
    EXECUTE 'SELECT lease_gate.version()' INTO v_loaded;
    IF v_loaded > 1 THEN
      RAISE EXCEPTION 'this file is version 1 of the gate, and version % is loaded', v_loaded USING ERRCODE = 'LE102';
    END IF;
  END IF;
END $$;

CREATE SCHEMA IF NOT EXISTS lease_gate;

CREATE OR REPLACE FUNCTION lease_gate.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';

-- What is remembered of a resource. Fence 0: nobody was admitted yet, there is only a floor. No CHECK constraints: two of them took as
-- long as the rest of a call, and nobody but the functions below writes here.
CREATE TABLE IF NOT EXISTS lease_gate.resource (
  resource  text COLLATE "C" PRIMARY KEY,
  fence     bigint NOT NULL DEFAULT 0,
  claim_id  uuid,
  min_fence bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);                                               -- room for the next fence in the same page

-- Effects that were admitted, and under whose fence.
CREATE TABLE IF NOT EXISTS lease_gate.effect (
  resource    text COLLATE "C",
  effect      text COLLATE "C",
  fence       bigint NOT NULL,
  claim_id    uuid NOT NULL,
  admitted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (resource, effect)
);

-- Fences below this number are refused for every resource. A sequence, because its value is the same for every snapshot: a
-- transaction that began before a purge, and so does not see that a row has gone, sees that the base has risen.
CREATE SEQUENCE IF NOT EXISTS lease_gate.base MINVALUE 0 START 0;

-- Raises 22023 for what is no name, fence or claim id. Part of the functions below.
CREATE OR REPLACE FUNCTION lease_gate.refuse_argument(p_resource text, p_fence bigint, p_claim_id uuid, p_effect text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'the gate cannot judge resource %, fence %, claim id %, effect %', coalesce(quote_literal(left(p_resource, 100)), 'null'),
    coalesce(p_fence::text, 'null'), coalesce(p_claim_id::text, 'null'), coalesce(quote_literal(left(p_effect, 100)), 'none')
    USING ERRCODE = '22023', HINT = 'Names have 1 to 1000 bytes, fences are 1 to 2^53 - 1, and only the effect may be null.';
END
$$;

-- Raises LE101. Part of the functions below.
CREATE OR REPLACE FUNCTION lease_gate.refuse_stale(p_resource text, p_fence bigint, p_claim_id uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_row lease_gate.resource; v_floor bigint;
BEGIN
  SELECT * INTO v_row FROM lease_gate.resource r WHERE r.resource = p_resource;
  v_floor := greatest(v_row.min_fence, (SELECT b.last_value FROM lease_gate.base b));
  RAISE EXCEPTION 'stale: fence % of % is outdated', p_fence, p_resource
    USING ERRCODE = 'LE101',
          DETAIL = json_build_object('resource', p_resource, 'fence', p_fence, 'claim_id', p_claim_id, 'highest', coalesce(v_row.fence, 0),
                                     'highest_claim_id', v_row.claim_id, 'min_fence', v_floor)::text,
          HINT = 'The lease was granted to somebody else since, or has ended. Stop; this effect must not be done.';
END
$$;

-- The verdict on one effect. Outcomes in order: stale, duplicate, admit (see THE RULE). Locks: the resource's row.
CREATE OR REPLACE FUNCTION lease_gate.admit(p_resource text, p_fence bigint, p_claim_id uuid, p_effect text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_fence bigint; v_claim uuid; v_floor bigint; v_base bigint;
BEGIN
  IF (p_fence BETWEEN 1 AND 9007199254740991 AND p_claim_id IS NOT NULL AND octet_length(p_resource) BETWEEN 1 AND 1000
      AND (p_effect IS NULL OR octet_length(p_effect) BETWEEN 1 AND 1000)) IS NOT TRUE THEN
    PERFORM lease_gate.refuse_argument(p_resource, p_fence, p_claim_id, p_effect);
  END IF;

  -- Fences only rise: who is stale by an old view is stale for good, and needs no lock.
  SELECT r.fence, r.claim_id, r.min_fence, b.last_value INTO v_fence, v_claim, v_floor, v_base
    FROM lease_gate.base b LEFT JOIN lease_gate.resource r ON r.resource = p_resource;
  IF p_fence < v_base OR p_fence < v_floor OR p_fence < v_fence OR (p_fence = v_fence AND p_claim_id <> v_claim) THEN
    RETURN 'stale';
  END IF;

  -- Locks the row in any case, and judges it as it is then.
  INSERT INTO lease_gate.resource AS r (resource, fence, claim_id) VALUES (p_resource, p_fence, p_claim_id)
  ON CONFLICT (resource) DO UPDATE SET fence = EXCLUDED.fence, claim_id = EXCLUDED.claim_id
   WHERE r.fence < EXCLUDED.fence AND r.min_fence <= EXCLUDED.fence;
  IF NOT FOUND THEN
    SELECT r.fence, r.claim_id, r.min_fence INTO v_fence, v_claim, v_floor FROM lease_gate.resource r WHERE r.resource = p_resource;
    IF (p_fence = v_fence AND p_claim_id = v_claim AND p_fence >= v_floor) IS NOT TRUE THEN
      RETURN 'stale';
    END IF;
  END IF;
  -- The row may be a new one only because a purge has just taken the old one away: then the base was raised before.
  IF p_fence < (SELECT b.last_value FROM lease_gate.base b) THEN
    RAISE EXCEPTION 'the gate was purged at this moment' USING ERRCODE = '40001';
  END IF;

  IF p_effect IS NOT NULL THEN
    INSERT INTO lease_gate.effect (resource, effect, fence, claim_id) VALUES (p_resource, p_effect, p_fence, p_claim_id)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RETURN 'duplicate';
    END IF;
  END IF;
  RETURN 'admit';
END
$$;

-- The same, but LE101 instead of stale.
CREATE OR REPLACE FUNCTION lease_gate.require(p_resource text, p_fence bigint, p_claim_id uuid, p_effect text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_verdict text := lease_gate.admit(p_resource, p_fence, p_claim_id, p_effect);
BEGIN
  IF v_verdict = 'stale' THEN
    PERFORM lease_gate.refuse_stale(p_resource, p_fence, p_claim_id);
  END IF;
  RETURN v_verdict;
END
$$;

-- The verdicts on many effects, as if admit were called for each in turn. Outcomes as there. Locks: the rows of all resources, in the
-- order of their names, also of those that turn out to be stale.
CREATE OR REPLACE FUNCTION lease_gate.admit_each(p_resources text[], p_fences bigint[], p_claim_ids uuid[], p_effects text[] DEFAULT NULL)
RETURNS TABLE (ord int, resource text, verdict text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_count int := coalesce(cardinality(p_resources), 0);
  v_base bigint; v_bad int; v_verdict text[]; v_created text[];
BEGIN
  IF v_count <> coalesce(cardinality(p_fences), 0) OR v_count <> coalesce(cardinality(p_claim_ids), 0)
     OR (p_effects IS NOT NULL AND v_count <> cardinality(p_effects)) THEN
    RAISE EXCEPTION 'the gate needs a fence, a claim id and, if any, an effect for each resource' USING ERRCODE = '22023';
  END IF;
  SELECT u.ord INTO v_bad
    FROM unnest(p_resources, p_fences, p_claim_ids, p_effects) WITH ORDINALITY u (resource, fence, claim, effect, ord)
   WHERE (u.fence BETWEEN 1 AND 9007199254740991 AND u.claim IS NOT NULL AND octet_length(u.resource) BETWEEN 1 AND 1000
          AND (u.effect IS NULL OR octet_length(u.effect) BETWEEN 1 AND 1000)) IS NOT TRUE
   ORDER BY u.ord LIMIT 1;
  IF FOUND THEN
    PERFORM lease_gate.refuse_argument(p_resources[v_bad], p_fences[v_bad], p_claim_ids[v_bad], p_effects[v_bad]);
  END IF;

  -- Locks all rows in order, in one pass; those that are not there yet come in as a resource that nobody was admitted to.
  WITH seen AS (
    INSERT INTO lease_gate.resource AS r (resource)
    SELECT DISTINCT u.resource COLLATE "C" FROM unnest(p_resources) u (resource) ORDER BY 1
    ON CONFLICT (resource) DO UPDATE SET fence = r.fence WHERE false
    RETURNING r.resource)
  SELECT array_agg(seen.resource) INTO v_created FROM seen;
  SELECT b.last_value INTO v_base FROM lease_gate.base b;

  -- Before an entry the highest is what stands in the table, or what came in before it. An entry that is refused raises nothing:
  -- its fence is below the floor, or not above the highest.
  WITH asked AS MATERIALIZED (
         SELECT u.ord, u.resource COLLATE "C" AS resource, u.fence, u.claim, u.effect COLLATE "C" AS effect, r.fence AS stored, r.claim_id AS stored_claim,
                u.fence >= greatest(r.min_fence, v_base) AS is_above_floor
           FROM unnest(p_resources, p_fences, p_claim_ids, p_effects) WITH ORDINALITY u (resource, fence, claim, effect, ord)
           JOIN lease_gate.resource r ON r.resource = u.resource),
       compared AS (
         SELECT a.*,
                greatest(a.stored, max(a.fence) FILTER (WHERE a.is_above_floor)
                  OVER (PARTITION BY a.resource ORDER BY a.ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS highest,
                CASE WHEN a.fence = a.stored THEN a.stored_claim
                     ELSE first_value(a.claim) OVER (PARTITION BY a.resource, a.fence ORDER BY a.ord) END AS claim_of_fence
           FROM asked a),
       judged AS MATERIALIZED (
         SELECT c.*, NOT c.is_above_floor OR c.fence < c.highest OR c.claim <> c.claim_of_fence AS is_stale FROM compared c),
       risen AS (
         UPDATE lease_gate.resource r SET fence = j.fence, claim_id = j.claim
           FROM (SELECT DISTINCT ON (resource) resource, fence, claim FROM judged WHERE NOT is_stale ORDER BY resource, fence DESC, ord) j
          WHERE r.resource = j.resource AND r.fence < j.fence),
       done AS (
         INSERT INTO lease_gate.effect AS e (resource, effect, fence, claim_id)
         SELECT DISTINCT ON (resource, effect) resource, effect, fence, claim FROM judged WHERE NOT is_stale AND effect IS NOT NULL
          ORDER BY resource, effect, ord
         ON CONFLICT DO NOTHING RETURNING e.resource, e.effect)
  SELECT array_agg(CASE WHEN j.is_stale THEN 'stale'
                        WHEN j.effect IS NULL OR (d.effect IS NOT NULL AND j.turn = 1) THEN 'admit'
                        ELSE 'duplicate' END ORDER BY j.ord) INTO v_verdict
    FROM (SELECT judged.*, row_number() OVER (PARTITION BY judged.resource, judged.effect, judged.is_stale ORDER BY judged.ord) AS turn FROM judged) j
    LEFT JOIN done d ON d.resource = j.resource AND d.effect = j.effect;

  -- Whom nobody was admitted to leaves no trace; a purge that took an old row away at this moment raised the base before.
  IF v_created IS NOT NULL THEN
    DELETE FROM lease_gate.resource r WHERE r.resource = ANY (v_created) AND r.fence = 0;
  END IF;

  RETURN QUERY SELECT u.ord::int, u.resource, u.verdict FROM unnest(p_resources, v_verdict) WITH ORDINALITY u (resource, verdict, ord) ORDER BY u.ord;
END
$$;

-- One grant over many resources.
CREATE OR REPLACE FUNCTION lease_gate.admit_each(p_resources text[], p_fence bigint, p_claim_id uuid, p_effect text DEFAULT NULL)
RETURNS TABLE (ord int, resource text, verdict text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT e.ord, e.resource, e.verdict
    FROM lease_gate.admit_each(p_resources, array_fill(p_fence, ARRAY[cardinality(p_resources)]),
                               array_fill(p_claim_id, ARRAY[cardinality(p_resources)]), array_fill(p_effect, ARRAY[cardinality(p_resources)])) e
   ORDER BY e.ord
$$;

-- The same, but LE101 if any is stale; it names the first.
CREATE OR REPLACE FUNCTION lease_gate.require_each(p_resources text[], p_fences bigint[], p_claim_ids uuid[], p_effects text[] DEFAULT NULL)
RETURNS TABLE (ord int, resource text, verdict text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  FOR ord, resource, verdict IN SELECT e.ord, e.resource, e.verdict FROM lease_gate.admit_each(p_resources, p_fences, p_claim_ids, p_effects) e ORDER BY e.ord LOOP
    IF verdict = 'stale' THEN
      PERFORM lease_gate.refuse_stale(p_resources[ord], p_fences[ord], p_claim_ids[ord]);
    END IF;
    RETURN NEXT;
  END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION lease_gate.require_each(p_resources text[], p_fence bigint, p_claim_id uuid, p_effect text DEFAULT NULL)
RETURNS TABLE (ord int, resource text, verdict text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT e.ord, e.resource, e.verdict
    FROM lease_gate.require_each(p_resources, array_fill(p_fence, ARRAY[cardinality(p_resources)]),
                                 array_fill(p_claim_id, ARRAY[cardinality(p_resources)]), array_fill(p_effect, ARRAY[cardinality(p_resources)])) e
   ORDER BY e.ord
$$;

-- Raises the floors of resources; null, and what is not above the present floor, changes nothing. Returns how many rose. Locks: the
-- resources' rows, in the order of their names. It waits for effects that are in hand: behind its commit, none with a lower fence is.
CREATE OR REPLACE FUNCTION lease_gate.raise_floor(p_resources text[], p_min_fences bigint[]) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_raised int;
BEGIN
  IF coalesce(cardinality(p_resources), 0) <> coalesce(cardinality(p_min_fences), 0)
     OR EXISTS (SELECT 1 FROM unnest(p_resources, p_min_fences) u (resource, floor)
                 WHERE (octet_length(u.resource) BETWEEN 1 AND 1000 AND coalesce(u.floor, 1) BETWEEN 0 AND 9007199254740992) IS NOT TRUE) THEN
    RAISE EXCEPTION 'the gate needs a floor of 0 to 2^53 or null for each resource, whose name has 1 to 1000 bytes' USING ERRCODE = '22023';
  END IF;
  INSERT INTO lease_gate.resource AS r (resource, min_fence)
  SELECT u.resource COLLATE "C", max(u.floor) FROM unnest(p_resources, p_min_fences) u (resource, floor) WHERE u.floor > 0 GROUP BY 1 ORDER BY 1
  ON CONFLICT (resource) DO UPDATE SET min_fence = EXCLUDED.min_fence WHERE r.min_fence < EXCLUDED.min_fence;
  GET DIAGNOSTICS v_raised = ROW_COUNT;
  RETURN v_raised;
END
$$;

-- Refuses every fence below p_below from now on (also if this transaction is rolled back), and forgets what that makes needless,
-- p_at_most resources and as many effects. Locks: rows that nobody has in hand; the others stay for the next call. Waits for nobody.
CREATE OR REPLACE FUNCTION lease_gate.purge(p_below bigint, p_effects_before timestamptz DEFAULT NULL, p_at_most int DEFAULT 10000)
RETURNS TABLE (resources int, effects int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF (p_below BETWEEN 1 AND 9007199254740991 AND p_at_most > 0) IS NOT TRUE THEN
    RAISE EXCEPTION 'purge needs a fence of 1 to 2^53 - 1 and a number of rows' USING ERRCODE = '22023';
  END IF;
  -- First the base, then the rows: an effect that does not find its row any more finds the base.
  PERFORM pg_advisory_xact_lock(1279611205, 101);                       -- two purges would set the base in any order
  IF p_below > (SELECT b.last_value FROM lease_gate.base b) THEN
    PERFORM setval('lease_gate.base', p_below);
  END IF;
  DELETE FROM lease_gate.resource r
   WHERE r.resource IN (SELECT o.resource FROM lease_gate.resource o WHERE o.fence < p_below AND o.min_fence <= p_below
                         ORDER BY o.resource LIMIT p_at_most FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS resources = ROW_COUNT;
  DELETE FROM lease_gate.effect e
   WHERE (e.resource, e.effect) IN (SELECT o.resource, o.effect FROM lease_gate.effect o WHERE o.fence < p_below AND o.admitted_at < p_effects_before
                                     ORDER BY o.resource, o.effect LIMIT p_at_most FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS effects = ROW_COUNT;
  RETURN NEXT;
END
$$;

-- ---- rights ----

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lease_gate FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA lease_gate FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA lease_gate FROM PUBLIC;

DO $$
DECLARE
  v_user text := coalesce(nullif(current_setting('lease_gate.user', true), ''), 'lease_gate_user');
  v_keeper text := coalesce(nullif(current_setting('lease_gate.keeper', true), ''), 'lease_gate_keeper');
  v_role text;
BEGIN
  FOREACH v_role IN ARRAY ARRAY[v_user, v_keeper] LOOP
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles r WHERE r.rolname = v_role) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;   -- somebody who loads it into another database was faster
      END;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA lease_gate TO %I', v_role);
    EXECUTE format('GRANT SELECT ON lease_gate.resource, lease_gate.effect, lease_gate.base TO %I', v_role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION lease_gate.version() TO %I', v_role);
  END LOOP;
  EXECUTE format('GRANT EXECUTE ON FUNCTION lease_gate.admit(text, bigint, uuid, text), lease_gate.require(text, bigint, uuid, text), '
                 'lease_gate.admit_each(text[], bigint[], uuid[], text[]), lease_gate.admit_each(text[], bigint, uuid, text), '
                 'lease_gate.require_each(text[], bigint[], uuid[], text[]), lease_gate.require_each(text[], bigint, uuid, text) TO %I', v_user);
  EXECUTE format('GRANT EXECUTE ON FUNCTION lease_gate.raise_floor(text[], bigint[]), lease_gate.purge(bigint, timestamptz, int) TO %I', v_keeper);
END $$;
