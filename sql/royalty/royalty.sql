-- A royalty settlement: album, track and video contracts, what was sold under them, and what that comes to. Lines are written behind
-- the gate, in the same transaction and the same round trip, so that a settlement that was replaced while it was paused writes none.
--
-- For any PostgreSQL 14 or later, next to sql/gate/gate.sql and by the same owner; nothing of the coordinator's database is needed:
--
--   psql -1 -v ON_ERROR_STOP=1 -f gate.sql -f royalty.sql 'host=… dbname=… user=<the database''s owner>'
--
-- Load it again to upgrade; the rows stay. The role royalty_user (made here if the loader may do so; another one with
-- SET royalty.user = 'app' in the session that loads) may call the functions and read the tables, and write nothing else.
--
-- BASE DATA. A contract says which share of what it sells goes to its payee. It is the resource '<type>/<contract>' of a lease, type one of
-- album-contract, track-contract, video-contract. In the coordinator's own database its table can be guarded, so that nobody changes
-- a rate while a settlement reads it:
--
--   SELECT lease.guard_table('royalty.album_contract', 'album-contract', ARRAY['payee', 'rate']);     -- and so on
--
-- Where it is not, what keeps editors out is up to them, and a settlement may well be computed on two bases.
--
-- SALES of a period are closed before it is settled: nothing here keeps anybody from adding some meanwhile.
--
-- NUMBERS. Amounts have six decimals. In calls they are whole numbers of millionths, so that nobody's binary fractions get in. A line's
-- royalty is gross * rate, rounded to six decimals, halves away from zero (SQL's round); gross and totals are sums and not rounded.
--
-- A SETTLEMENT'S LIFE
--
--   begin_settlement ──► running ──write_lines …──► close_settlement ──► calculated ──note_basis──► settled | changed
--
-- CALLS, one round trip and one transaction each. `fence` and `claim_id` are the grant's of the run, judged by lease_gate.admit for the
-- resource 'settlement/<settlement>'; the verdict is `stale` where the gate refuses.
--
--   begin_settlement(settlement, fence, claim_id, period text, contracts text[])      null: all contracts; else '<type>/<contract>', …
--        → verdict text         stale
--                               differs   it was begun for another period, or for other contracts
--                               ended     it is settled (or changed): lines and total say how
--                               begun     go on behind type, contract, work; null: from the beginning
--          type, contract, work, lines bigint, total bigint      what there is already
--        Lines of a predecessor are kept if they are what would be computed now, and all thrown away otherwise: it may be long ago
--        that it was stopped, and rates can have changed since.
--   sales(type, period, contracts text[], contract, work, number, most int)           the next ones, in order, behind that one:
--        → (contract, work, number, amount bigint)                                    contracts: names without their type; null: all
--   rates(type, contracts text[]) → (contract, rate bigint)                           in the order of the names (COLLATE "C")
--   write_lines(settlement, fence, claim_id, type, contracts text[], works int[], sales int[], gross bigint[], rates bigint[],
--               royalties bigint[]) → text      stale | written. Given again by the same grant, they are there once
--   close_settlement(settlement, fence, claim_id, lines bigint, total bigint)
--        → text                 stale | differs (that is not what the lines add up to) | closed
--   note_basis(settlement, fence, claim_id, basis text) → text       stale | noted. What the coordinator said when the run finished
--   contracts(type, after text, most int) → (contract)                                names in order, for a listing
--   generate(seed, contracts, sales, period)                                          data to try it on; for the owner
--
-- Errors are the gate's (22023, 40001, 55P03), 23514 for numbers that do not fit together, and 23505 where a line is there already.
--
-- LOCKS, in this order: the gate's row of the settlement, the settlement.

DO $$
BEGIN
  IF to_regprocedure('lease_gate.admit(text, bigint, uuid, text)') IS NULL THEN
    RAISE EXCEPTION 'the gate is not here' USING ERRCODE = '42883', HINT = 'Load gate.sql first.';
  END IF;
  IF EXISTS (SELECT 1 FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner
              WHERE n.nspname = 'royalty' AND r.rolname <> current_user) THEN
    RAISE EXCEPTION 'schema royalty belongs to somebody else' USING ERRCODE = '42501', HINT = 'Load the file as the owner of the schema.';
  END IF;
END $$;

CREATE SCHEMA IF NOT EXISTS royalty;

-- ---- base data ----

CREATE TABLE IF NOT EXISTS royalty.album_contract (
  contract text COLLATE "C" PRIMARY KEY,
  payee    text NOT NULL,
  rate     numeric(7,6) NOT NULL,
  note     text,
  CONSTRAINT rate_is_a_share CHECK (rate BETWEEN 0 AND 1),
  CONSTRAINT contract_can_be_a_resource CHECK (contract ~ '^[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,99}$')
);
CREATE TABLE IF NOT EXISTS royalty.track_contract (LIKE royalty.album_contract INCLUDING ALL);
CREATE TABLE IF NOT EXISTS royalty.video_contract (LIKE royalty.album_contract INCLUDING ALL);

-- All of them, by the type of the resource.
CREATE OR REPLACE VIEW royalty.contract AS
SELECT 'album-contract'::text AS type, c.contract, c.payee, c.rate FROM royalty.album_contract c
UNION ALL SELECT 'track-contract', c.contract, c.payee, c.rate FROM royalty.track_contract c
UNION ALL SELECT 'video-contract', c.contract, c.payee, c.rate FROM royalty.video_contract c;

-- What was sold: of a contract, a work (the number of an album, track or video in it). A return is negative.
CREATE TABLE IF NOT EXISTS royalty.sale (
  type     text COLLATE "C" NOT NULL,
  period   text COLLATE "C" NOT NULL,
  contract text COLLATE "C" NOT NULL,
  work     int NOT NULL,
  number   bigint NOT NULL,
  amount   numeric(18,6) NOT NULL,
  PRIMARY KEY (type, period, contract, work, number),
  CONSTRAINT period_is_a_month CHECK (period ~ '^[0-9]{4}-[0-9]{2}$')
) PARTITION BY LIST (type);

-- That a sale has its contract: for all rows at once, which is much faster for millions than for each one as it comes. Part of
-- the generator.
CREATE OR REPLACE FUNCTION royalty.check_contracts_of_sales() RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  ALTER TABLE royalty.album_sale ADD CONSTRAINT sale_has_contract FOREIGN KEY (contract) REFERENCES royalty.album_contract;
  ALTER TABLE royalty.track_sale ADD CONSTRAINT sale_has_contract FOREIGN KEY (contract) REFERENCES royalty.track_contract;
  ALTER TABLE royalty.video_sale ADD CONSTRAINT sale_has_contract FOREIGN KEY (contract) REFERENCES royalty.video_contract;
$$;

DO $$
BEGIN
  IF to_regclass('royalty.album_sale') IS NULL THEN
    CREATE TABLE royalty.album_sale PARTITION OF royalty.sale FOR VALUES IN ('album-contract');
    CREATE TABLE royalty.track_sale PARTITION OF royalty.sale FOR VALUES IN ('track-contract');
    CREATE TABLE royalty.video_sale PARTITION OF royalty.sale FOR VALUES IN ('video-contract');
    PERFORM royalty.check_contracts_of_sales();
  END IF;
END $$;

-- ---- settlements ----

CREATE TABLE IF NOT EXISTS royalty.settlement (
  settlement text COLLATE "C" PRIMARY KEY,
  period     text COLLATE "C" NOT NULL,
  contracts  text[],                                                -- null: all
  state      text NOT NULL DEFAULT 'running',
  fence      bigint NOT NULL,                                       -- of the run that has it, or had it last
  claim_id   uuid NOT NULL,
  lines      bigint,
  total      numeric(20,6),
  basis      text,                                                  -- null: nobody said
  begun_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  closed_at  timestamptz,
  CONSTRAINT state_is_known CHECK (state IN ('running', 'calculated', 'settled', 'changed')),
  CONSTRAINT basis_is_known CHECK (basis IN ('unchanged', 'changed')),
  CONSTRAINT running_settlement_has_no_total CHECK ((state = 'running') = (total IS NULL) AND (total IS NULL) = (lines IS NULL))
);

-- One for each work of each contract that was sold. That it is computed rightly is checked here once more.
CREATE TABLE IF NOT EXISTS royalty.settlement_line (
  settlement text COLLATE "C" NOT NULL REFERENCES royalty.settlement,
  type       text COLLATE "C" NOT NULL,
  contract   text COLLATE "C" NOT NULL,
  work       int NOT NULL,
  sales      int NOT NULL,
  gross      numeric(20,6) NOT NULL,
  rate       numeric(7,6) NOT NULL,
  royalty    numeric(20,6) NOT NULL,
  fence      bigint NOT NULL,                                       -- of the run that computed it
  PRIMARY KEY (settlement, type, contract, work),
  CONSTRAINT royalty_is_the_rounded_share CHECK (royalty = round(gross * rate, 6))
);

-- Which bases a settlement was computed on: more than one rate for a contract is one too many.
CREATE OR REPLACE VIEW royalty.basis AS
SELECT l.settlement, l.type, l.contract, l.rate, count(*) AS lines, min(l.work) AS first_work, max(l.work) AS last_work, sum(l.royalty) AS royalty
  FROM royalty.settlement_line l GROUP BY l.settlement, l.type, l.contract, l.rate;

-- ---- reading ----

-- Two statements, so that the many may be read along the index and the few be looked up.
CREATE OR REPLACE FUNCTION royalty.sales(p_type text, p_period text, p_contracts text[], p_contract text, p_work int, p_number bigint, p_most int)
RETURNS TABLE (contract text, work int, number bigint, amount bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  IF p_contracts IS NULL THEN
    RETURN QUERY
    SELECT s.contract, s.work, s.number, (s.amount * 1000000)::bigint FROM royalty.sale s
     WHERE s.type = p_type AND s.period = p_period AND (s.contract, s.work, s.number) > (p_contract, p_work, p_number)
     ORDER BY s.contract, s.work, s.number LIMIT p_most;
  ELSE
    RETURN QUERY
    SELECT s.contract, s.work, s.number, (s.amount * 1000000)::bigint FROM royalty.sale s
     WHERE s.type = p_type AND s.period = p_period AND s.contract = ANY (p_contracts)
       AND (s.contract, s.work, s.number) > (p_contract, p_work, p_number)
     ORDER BY s.contract, s.work, s.number LIMIT p_most;
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION royalty.rates(p_type text, p_contracts text[]) RETURNS TABLE (contract text, rate bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT c.contract, (c.rate * 1000000)::bigint FROM royalty.contract c
   WHERE c.type = p_type AND c.contract = ANY (p_contracts) ORDER BY c.contract;
$$;

CREATE OR REPLACE FUNCTION royalty.contracts(p_type text, p_after text, p_most int) RETURNS TABLE (contract text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT c.contract FROM royalty.contract c WHERE c.type = p_type AND c.contract > p_after ORDER BY c.contract LIMIT p_most;
$$;

-- ---- the settlement ----

-- How many sales, and how much, up to and with a work. Two statements, as above: millions are added up here. Part of the function below.
CREATE OR REPLACE FUNCTION royalty.sold_until(p_type text, p_period text, p_contracts text[], p_contract text, p_work int)
RETURNS TABLE (sales bigint, gross numeric) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_contracts IS NULL THEN
    RETURN QUERY SELECT count(*), sum(s.amount) FROM royalty.sale s
                  WHERE s.type = p_type AND s.period = p_period AND (s.contract, s.work) <= (p_contract, p_work);
  ELSE
    RETURN QUERY SELECT count(*), sum(s.amount) FROM royalty.sale s
                  WHERE s.type = p_type AND s.period = p_period AND (s.contract, s.work) <= (p_contract, p_work)
                    AND s.contract = ANY (SELECT split_part(u, '/', 2) FROM unnest(p_contracts) AS u WHERE split_part(u, '/', 1) = p_type);
  END IF;
END
$$;

-- Are the lines so far what would be computed now? Rates are compared line by line, sales by their number and sum up to the last line of
-- each type. Part of the function below.
CREATE OR REPLACE FUNCTION royalty.lines_still_hold(p_settlement text, p_period text, p_contracts text[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT NOT EXISTS (SELECT 1 FROM royalty.settlement_line l
                       LEFT JOIN royalty.contract c ON c.type = l.type AND c.contract = l.contract
                      WHERE l.settlement = p_settlement AND c.rate IS DISTINCT FROM l.rate)
     AND NOT EXISTS (
           SELECT 1
             FROM (SELECT l.type, sum(l.sales) AS sales, sum(l.gross) AS gross
                     FROM royalty.settlement_line l WHERE l.settlement = p_settlement GROUP BY l.type) AS done
            CROSS JOIN LATERAL
                  (SELECT l.contract, l.work FROM royalty.settlement_line l
                    WHERE l.settlement = p_settlement AND l.type = done.type
                    ORDER BY l.contract DESC, l.work DESC LIMIT 1) AS last
            CROSS JOIN LATERAL royalty.sold_until(done.type, p_period, p_contracts, last.contract, last.work) AS now
            WHERE done.sales <> now.sales OR done.gross IS DISTINCT FROM now.gross);
$$;

-- Outcomes in order: stale, differs, ended, begun. Locks: gate, settlement.
CREATE OR REPLACE FUNCTION royalty.begin_settlement(p_settlement text, p_fence bigint, p_claim_id uuid, p_period text, p_contracts text[])
RETURNS TABLE (verdict text, type text, contract text, work int, lines bigint, total bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_settlement royalty.settlement;
BEGIN
  IF lease_gate.admit('settlement/' || p_settlement, p_fence, p_claim_id) = 'stale' THEN
    verdict := 'stale';
    RETURN NEXT;
    RETURN;
  END IF;
  INSERT INTO royalty.settlement AS s (settlement, period, contracts, fence, claim_id)
  VALUES (p_settlement, p_period, p_contracts, p_fence, p_claim_id) ON CONFLICT (settlement) DO NOTHING;
  SELECT * INTO v_settlement FROM royalty.settlement s WHERE s.settlement = p_settlement FOR UPDATE;
  IF v_settlement.period <> p_period OR v_settlement.contracts IS DISTINCT FROM p_contracts THEN
    verdict := 'differs';
    RETURN NEXT;
    RETURN;
  END IF;
  IF v_settlement.state IN ('settled', 'changed') THEN
    RETURN QUERY SELECT 'ended', NULL::text, NULL::text, NULL::int, v_settlement.lines, (v_settlement.total * 1000000)::bigint;
    RETURN;
  END IF;
  IF NOT royalty.lines_still_hold(p_settlement, p_period, p_contracts) THEN
    DELETE FROM royalty.settlement_line l WHERE l.settlement = p_settlement;
  END IF;
  UPDATE royalty.settlement s
     SET fence = p_fence, claim_id = p_claim_id, state = 'running', lines = NULL, total = NULL, closed_at = NULL
   WHERE s.settlement = p_settlement;
  verdict := 'begun';
  SELECT l.type, l.contract, l.work INTO type, contract, work FROM royalty.settlement_line l
   WHERE l.settlement = p_settlement ORDER BY l.type DESC, l.contract DESC, l.work DESC LIMIT 1;
  SELECT count(*), coalesce(sum(l.royalty) * 1000000, 0)::bigint INTO lines, total FROM royalty.settlement_line l WHERE l.settlement = p_settlement;
  RETURN NEXT;
END
$$;

-- Outcomes in order: stale, written. Locks: gate.
CREATE OR REPLACE FUNCTION royalty.write_lines(p_settlement text, p_fence bigint, p_claim_id uuid, p_type text, p_contracts text[], p_works int[],
                                               p_sales int[], p_gross bigint[], p_rates bigint[], p_royalties bigint[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_new bigint;
BEGIN
  IF lease_gate.admit('settlement/' || p_settlement, p_fence, p_claim_id) = 'stale' THEN
    RETURN 'stale';
  END IF;
  INSERT INTO royalty.settlement_line (settlement, type, contract, work, sales, gross, rate, royalty, fence)
  SELECT p_settlement, p_type, u.contract, u.work, u.sales, u.gross * 0.000001, u.rate * 0.000001, u.royalty * 0.000001, p_fence
    FROM unnest(p_contracts, p_works, p_sales, p_gross, p_rates, p_royalties) AS u (contract, work, sales, gross, rate, royalty)
  ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS v_new = ROW_COUNT;
  -- Either all are new, or this very call had been done before and its answer was lost.
  IF v_new < cardinality(p_works)
     AND (v_new > 0 OR EXISTS (SELECT 1 FROM unnest(p_contracts, p_works) AS u (contract, work)
                                 JOIN royalty.settlement_line l ON l.settlement = p_settlement AND l.type = p_type
                                                               AND l.contract = u.contract AND l.work = u.work
                                WHERE l.fence <> p_fence)) THEN
    RAISE EXCEPTION 'settlement % has one of these lines already', p_settlement USING ERRCODE = '23505';
  END IF;
  RETURN 'written';
END
$$;

-- Outcomes in order: stale, differs, closed. Locks: gate, settlement.
CREATE OR REPLACE FUNCTION royalty.close_settlement(p_settlement text, p_fence bigint, p_claim_id uuid, p_lines bigint, p_total bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_lines bigint; v_total numeric;
BEGIN
  IF lease_gate.admit('settlement/' || p_settlement, p_fence, p_claim_id) = 'stale' THEN
    RETURN 'stale';
  END IF;
  SELECT count(*), coalesce(sum(l.royalty), 0) INTO v_lines, v_total FROM royalty.settlement_line l WHERE l.settlement = p_settlement;
  IF v_lines <> p_lines OR v_total <> p_total * 0.000001 THEN
    RETURN 'differs';
  END IF;
  UPDATE royalty.settlement s SET state = 'calculated', lines = v_lines, total = v_total, closed_at = clock_timestamp()
   WHERE s.settlement = p_settlement;
  RETURN 'closed';
END
$$;

-- Outcomes in order: stale, noted. Locks: gate, settlement.
CREATE OR REPLACE FUNCTION royalty.note_basis(p_settlement text, p_fence bigint, p_claim_id uuid, p_basis text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF lease_gate.admit('settlement/' || p_settlement, p_fence, p_claim_id) = 'stale' THEN
    RETURN 'stale';
  END IF;
  UPDATE royalty.settlement s SET basis = p_basis, state = CASE WHEN p_basis = 'changed' THEN 'changed' ELSE 'settled' END
   WHERE s.settlement = p_settlement AND s.state = 'calculated';
  RETURN 'noted';
END
$$;

-- ---- data to try it on ----

-- Contracts (a tenth albums, a twentieth videos, else tracks) and sales of one period, the same ones for the same seed. Some contracts
-- sell a hundred times as much as others; a work has about ten sales; one sale in fifty is a return. 100,000 contracts and
-- 5,000,000 sales are what a real one looks like.
CREATE OR REPLACE FUNCTION royalty.generate(p_seed bigint, p_contracts int DEFAULT 100, p_sales bigint DEFAULT 5000, p_period text DEFAULT '2026-06')
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  CREATE TEMPORARY TABLE made ON COMMIT DROP AS
  SELECT t.type, i.i, left(t.type, 1) || to_char(i.i, 'FM0000000') AS contract, w.before, w.upto
    FROM generate_series(1, p_contracts) AS i (i)
   CROSS JOIN LATERAL (SELECT CASE WHEN i.i % 20 IN (1, 11) THEN 'album-contract' WHEN i.i % 20 = 6 THEN 'video-contract'
                                   ELSE 'track-contract' END AS type) AS t
    JOIN (SELECT x.i, p_sales * coalesce(sum(x.weight) OVER (ORDER BY x.i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) / sum(x.weight) OVER () AS before,
                 p_sales * sum(x.weight) OVER (ORDER BY x.i) / sum(x.weight) OVER () AS upto
            FROM (SELECT g.i, (1 + (hashint8extended(g.i, p_seed) & 1023) / 10)::int AS weight FROM generate_series(1, p_contracts) AS g (i)) AS x) AS w ON w.i = i.i;
  INSERT INTO royalty.album_contract (contract, payee, rate)
  SELECT m.contract, 'payee ' || m.i % 1000, (hashint8extended(m.i, p_seed + 1) & 131071) % 100001 * 0.00001 FROM made m WHERE m.type = 'album-contract' ORDER BY 1;
  INSERT INTO royalty.track_contract (contract, payee, rate)
  SELECT m.contract, 'payee ' || m.i % 1000, (hashint8extended(m.i, p_seed + 1) & 131071) % 100001 * 0.00001 FROM made m WHERE m.type = 'track-contract' ORDER BY 1;
  INSERT INTO royalty.video_contract (contract, payee, rate)
  SELECT m.contract, 'payee ' || m.i % 1000, (hashint8extended(m.i, p_seed + 1) & 131071) % 100001 * 0.00001 FROM made m WHERE m.type = 'video-contract' ORDER BY 1;
  ALTER TABLE royalty.album_sale DROP CONSTRAINT sale_has_contract;
  ALTER TABLE royalty.track_sale DROP CONSTRAINT sale_has_contract;
  ALTER TABLE royalty.video_sale DROP CONSTRAINT sale_has_contract;
  INSERT INTO royalty.sale (type, period, contract, work, number, amount)
  SELECT m.type, p_period, m.contract, 1 + (n.n - m.before - 1) / 10, n.n,
         CASE WHEN n.n % 50 = 0 THEN -1 ELSE 1 END * (1 + (hashint8extended(n.n, p_seed + 2) & 8388607)) * 0.000001
    FROM (SELECT * FROM made ORDER BY type, contract) AS m CROSS JOIN LATERAL generate_series(m.before + 1, m.upto) AS n (n);
  PERFORM royalty.check_contracts_of_sales();
END
$$;

-- ---- rights ----

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA royalty FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA royalty FROM PUBLIC;

DO $$
DECLARE
  v_user text := coalesce(nullif(current_setting('royalty.user', true), ''), 'royalty_user');
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles r WHERE r.rolname = v_user) THEN
    BEGIN
      EXECUTE format('CREATE ROLE %I NOLOGIN', v_user);
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;     -- somebody who loads it into another database was faster
    END;
  END IF;
  EXECUTE format('GRANT USAGE ON SCHEMA royalty TO %I', v_user);
  EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA royalty TO %I', v_user);
  EXECUTE format('GRANT EXECUTE ON FUNCTION royalty.begin_settlement(text, bigint, uuid, text, text[]), '
                 'royalty.sales(text, text, text[], text, int, bigint, int), royalty.rates(text, text[]), royalty.contracts(text, text, int), '
                 'royalty.write_lines(text, bigint, uuid, text, text[], int[], int[], bigint[], bigint[], bigint[]), '
                 'royalty.close_settlement(text, bigint, uuid, bigint, bigint), royalty.note_basis(text, bigint, uuid, text) TO %I', v_user);
END $$;
