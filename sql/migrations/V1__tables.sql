-- The tables of Leasehold. Forward-only: a later change is a later migration.
--
-- Everything belongs to lease_owner, which nobody logs in as. lease_coordinator may call functions and read views,
-- lease_reader may read views; neither may change a table. Both are groups: grant them to login roles.
-- Text keys use COLLATE "C": they are compared byte for byte, and an index on them never depends on a locale.

DO $$
BEGIN
  IF current_setting('server_encoding') <> 'UTF8' THEN
    RAISE EXCEPTION 'this database is encoded in %, Leasehold needs UTF8', current_setting('server_encoding')
      USING ERRCODE = 'LE008', HINT = 'Create the database with ENCODING ''UTF8''.';
  END IF;
  -- Roles belong to the whole server: another database of it may have made them already, also in this very moment.
  BEGIN CREATE ROLE lease_owner NOLOGIN;       EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
  BEGIN CREATE ROLE lease_coordinator NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
  BEGIN CREATE ROLE lease_reader NOLOGIN;      EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
  IF NOT pg_has_role(current_user, 'lease_owner', 'MEMBER') THEN
    EXECUTE format('GRANT lease_owner TO %I', current_user);
  END IF;
END
$$;

CREATE SCHEMA IF NOT EXISTS lease;
ALTER SCHEMA lease OWNER TO lease_owner;
GRANT USAGE ON SCHEMA lease TO lease_coordinator, lease_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE lease_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;

SET LOCAL ROLE lease_owner;

-- ---------------------------------------------------------------------------------------------------------------
-- The rules, as rows. lease.apply reads them; so do the views, leasectl and the tests.

CREATE TABLE lease.outcome (
  precedence smallint PRIMARY KEY,
  outcome    text COLLATE "C" NOT NULL UNIQUE,
  is_refusal boolean NOT NULL,
  meaning    text NOT NULL
);
COMMENT ON TABLE lease.outcome IS 'Every answer a command can get, refusals first, in order of precedence.';

INSERT INTO lease.outcome VALUES
  ( 1, 'malformed',   true,  'the command breaks its schema or its kind''s limits; reason and field say where'),
  ( 2, 'duplicate',   true,  'a command with this source and id was answered before; original says how'),
  ( 3, 'unknown',     true,  'no such lease'),
  ( 4, 'final',       true,  'the lease has ended; a final state is never left'),
  ( 5, 'stale',       true,  'fence, claim, holder or token are not those of the last grant'),
  ( 6, 'lapsed',      true,  'this was the last grant, and it has expired'),
  ( 7, 'held',        true,  'somebody else holds the lease or one of the resources; held_by says who, since and until when'),
  ( 8, 'busy',        true,  'another transaction has a row in hand; send a new command in a moment'),
  ( 9, 'incomplete',  true,  'not everything that was announced is covered yet'),
  (10, 'out_of_step', true,  'this step does not come next'),
  (11, 'waiting',     false, 'the demand is recorded and open until wait_ms have passed'),
  (12, 'parked',      false, 'kept, to be applied when the lease ends'),
  (13, 'empty',       false, 'nothing is ready and the demand does not wait'),
  (14, 'granted',     false, 'the lease is yours until the expiry'),
  (15, 'covered',     false, 'these resources are covered too'),
  (16, 'renewed',     false, 'the expiry has moved on'),
  (17, 'advanced',    false, 'the step is taken'),
  (18, 'finished',    false, 'ended well; final'),
  (19, 'failed',      false, 'ended badly; state says whether it will be tried again'),
  (20, 'released',    false, 'given back; no attempt is burned'),
  (21, 'requested',   false, 'the item is in the pool');

CREATE TABLE lease.kind (
  kind            text COLLATE "C" PRIMARY KEY CHECK (kind ~ '^[a-z][a-z0-9_-]{0,31}$'),
  mode            text COLLATE "C" NOT NULL CHECK (mode IN ('run', 'pool')),
  ttl_ms          bigint NOT NULL CHECK (ttl_ms > 0),
  ttl_max_ms      bigint NOT NULL,
  attempts_max    int NOT NULL DEFAULT 5 CHECK (attempts_max > 0),
  backoff_base_ms bigint NOT NULL DEFAULT 1000 CHECK (backoff_base_ms >= 0),
  backoff_max_ms  bigint NOT NULL DEFAULT 300000,
  keep_final      interval NOT NULL DEFAULT '30 days',
  summary         text NOT NULL,
  CONSTRAINT ttl_within_maximum CHECK (ttl_ms <= ttl_max_ms AND ttl_max_ms <= 86400000),
  CONSTRAINT backoff_within_maximum CHECK (backoff_base_ms <= backoff_max_ms AND backoff_max_ms <= 86400000)
);
COMMENT ON TABLE lease.kind IS
  'Kinds of work. run: named resources, start to finish. pool: items requested, claimed, retried with backoff, dead when the attempts are spent.';

INSERT INTO lease.kind (kind, mode, ttl_ms, ttl_max_ms, attempts_max, summary) VALUES
  ('settlement', 'run',  30000, 3600000, 1, 'a royalty settlement that covers the contracts it reads'),
  ('cleanup',    'pool', 30000, 3600000, 5, 'a file to delete and its quota to settle');

CREATE TABLE lease.step (
  kind  text COLLATE "C" NOT NULL REFERENCES lease.kind,
  step  text COLLATE "C" NOT NULL CHECK (step ~ '^[a-z][a-z0-9_-]{0,63}$'),
  after text COLLATE "C"
);
CREATE UNIQUE INDEX step_allowed_once ON lease.step (kind, step, coalesce(after, ''));
COMMENT ON TABLE lease.step IS 'Allowed steps of a kind: step may be taken when after is the last one taken (NULL: none yet).';

INSERT INTO lease.step VALUES ('settlement', 'calculated', NULL), ('settlement', 'posted', 'calculated');

-- Numbers of conditions and commands give each transition its place in the array that lease.apply decides by.
CREATE TABLE lease.condition (
  no        smallint PRIMARY KEY,
  condition text COLLATE "C" NOT NULL UNIQUE,
  meaning   text NOT NULL
);
INSERT INTO lease.condition VALUES
  (0, 'absent',   'no such lease'),
  (1, 'free',     'a run that nobody holds and that may be started'),
  (2, 'ready',    'an item in the pool, waiting to be claimed'),
  (3, 'covering', 'held; its resources are still being covered'),
  (4, 'held',     'held and live'),
  (5, 'unfenced', 'in progress without an expiry: claimed before fencing, an operator''s case'),
  (6, 'finished', 'ended well; final'),
  (7, 'failed',   'a run that gave up; final'),
  (8, 'dead',     'an item whose attempts are spent; final');

CREATE TABLE lease.command (
  no      smallint PRIMARY KEY,
  command text COLLATE "C" NOT NULL UNIQUE,
  by_holder boolean NOT NULL,
  meaning text NOT NULL
);
INSERT INTO lease.command VALUES
  (0, 'start',   false, 'obtain the lease of a run over named resources, all or none'),
  (1, 'cover',   true,  'cover more resources under the same fence, all or none'),
  (2, 'begin',   true,  'all announced resources are covered'),
  (3, 'renew',   true,  'move the expiry on'),
  (4, 'advance', true,  'take the next step'),
  (5, 'finish',  true,  'end well'),
  (6, 'fail',    true,  'end badly, to be tried again or not'),
  (7, 'release', true,  'give the grant back as if it had not been made'),
  (8, 'request', false, 'put an item into the pool'),
  (9, 'claim',   false, 'ask for items with a credit');

CREATE TABLE lease.transition (
  mode           text COLLATE "C" NOT NULL CHECK (mode IN ('run', 'pool')),
  condition      text COLLATE "C" NOT NULL REFERENCES lease.condition (condition),
  command        text COLLATE "C" NOT NULL REFERENCES lease.command (command),
  fits           boolean NOT NULL,
  outcome        text COLLATE "C" NOT NULL REFERENCES lease.outcome (outcome),
  next_condition text COLLATE "C" NOT NULL REFERENCES lease.condition (condition),
  PRIMARY KEY (mode, condition, command, fits)
);
COMMENT ON TABLE lease.transition IS
  'What a command does to a lease in a condition. fits: fence, claim id, holder and token are those of the last grant. '
  'An expired lease is turned over before it is looked at. Outcomes that hang on more than this row (held or busy '
  'resources, counts, steps, attempts, overtaken) may replace the one given here; next_condition is the usual one.';

-- Commands that need no grant.
INSERT INTO lease.transition
SELECT t.mode, t.condition, t.command, f.fits, t.outcome, t.next_condition
FROM (VALUES
  ('run',  'absent',   'start',   'granted',   'held'),
  ('run',  'free',     'start',   'granted',   'held'),
  ('run',  'covering', 'start',   'held',      'covering'),
  ('run',  'held',     'start',   'held',      'held'),
  ('run',  'unfenced', 'start',   'held',      'unfenced'),
  ('run',  'finished', 'start',   'final',     'finished'),
  ('run',  'failed',   'start',   'final',     'failed'),
  ('pool', 'absent',   'request', 'requested', 'ready'),
  ('pool', 'ready',    'request', 'requested', 'ready'),
  ('pool', 'held',     'request', 'held',      'held'),
  ('pool', 'unfenced', 'request', 'held',      'unfenced'),
  ('pool', 'finished', 'request', 'final',     'finished'),
  ('pool', 'dead',     'request', 'final',     'dead')
) AS t (mode, condition, command, outcome, next_condition)
CROSS JOIN (VALUES (false), (true)) AS f (fits);

-- Commands of a holder whose grant does not fit: only the condition matters.
INSERT INTO lease.transition
SELECT m.mode, c.condition, k.command, false,
  CASE WHEN c.condition = 'absent' THEN 'unknown'
       WHEN c.condition IN ('finished', 'failed', 'dead') THEN 'final'
       ELSE 'stale' END,
  c.condition
FROM (VALUES ('run'), ('pool')) AS m (mode)
CROSS JOIN lease.condition c
CROSS JOIN lease.command k
WHERE k.by_holder
  AND NOT (m.mode = 'run'  AND c.condition IN ('ready', 'dead'))
  AND NOT (m.mode = 'pool' AND c.condition IN ('free', 'covering', 'failed'))
  AND NOT (m.mode = 'pool' AND k.command IN ('cover', 'begin'));

-- Final states answer their last holder alike.
INSERT INTO lease.transition
SELECT mode, condition, command, true, outcome, next_condition
FROM lease.transition t
WHERE NOT fits AND condition IN ('absent', 'finished', 'failed', 'dead', 'unfenced')
  AND command IN (SELECT command FROM lease.command WHERE by_holder);

-- The last holder after a lapse: only done work is still taken.
INSERT INTO lease.transition
SELECT mode, condition, command, true,
  CASE WHEN command = 'finish' THEN 'finished' ELSE 'lapsed' END,
  CASE WHEN command = 'finish' THEN 'finished' ELSE condition END
FROM lease.transition
WHERE NOT fits AND condition IN ('free', 'ready')
  AND command IN (SELECT command FROM lease.command WHERE by_holder);

-- The holder.
INSERT INTO lease.transition VALUES
  ('run',  'covering', 'cover',   true, 'covered',     'covering'),
  ('run',  'covering', 'begin',   true, 'granted',     'held'),
  ('run',  'covering', 'renew',   true, 'renewed',     'covering'),
  ('run',  'covering', 'advance', true, 'incomplete',  'covering'),
  ('run',  'covering', 'finish',  true, 'incomplete',  'covering'),
  ('run',  'covering', 'fail',    true, 'failed',      'free'),
  ('run',  'covering', 'release', true, 'released',    'free'),
  ('run',  'held',     'cover',   true, 'out_of_step', 'held'),
  ('run',  'held',     'begin',   true, 'out_of_step', 'held'),
  ('run',  'held',     'renew',   true, 'renewed',     'held'),
  ('run',  'held',     'advance', true, 'advanced',    'held'),
  ('run',  'held',     'finish',  true, 'finished',    'finished'),
  ('run',  'held',     'fail',    true, 'failed',      'free'),
  ('run',  'held',     'release', true, 'released',    'free'),
  ('pool', 'held',     'renew',   true, 'renewed',     'held'),
  ('pool', 'held',     'advance', true, 'advanced',    'held'),
  ('pool', 'held',     'finish',  true, 'finished',    'finished'),
  ('pool', 'held',     'fail',    true, 'failed',      'ready'),
  ('pool', 'held',     'release', true, 'released',    'ready');

-- The same rules as one row of arrays, so that a batch reads one row instead of four tables.
-- outcomes[((mode * 16 + condition) * 16 + command) * 2 + fits + 1], with mode 0 for run and 1 for pool; commands in the
-- order of their numbers; a kind's values at the same place in each of the other arrays.
CREATE TABLE lease.decision (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  outcomes  text[] NOT NULL,
  commands  text[] NOT NULL,
  kinds text[] NOT NULL, is_pool int[] NOT NULL, ttl_ms bigint[] NOT NULL, ttl_max_ms bigint[] NOT NULL,
  attempts_max int[] NOT NULL, backoff_base_ms bigint[] NOT NULL, backoff_max_ms bigint[] NOT NULL
);

CREATE FUNCTION lease.compile_decision() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM lease.decision;
  INSERT INTO lease.decision (outcomes, commands, kinds, is_pool, ttl_ms, ttl_max_ms, attempts_max, backoff_base_ms, backoff_max_ms)
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
               coalesce(array_agg(backoff_max_ms), '{}')
          FROM (SELECT * FROM lease.kind ORDER BY kind) q) AS k;
  RETURN NULL;
END
$$;
CREATE TRIGGER compile_decision AFTER INSERT OR UPDATE OR DELETE ON lease.transition FOR EACH STATEMENT EXECUTE FUNCTION lease.compile_decision();
CREATE TRIGGER compile_decision AFTER INSERT OR UPDATE OR DELETE ON lease.command FOR EACH STATEMENT EXECUTE FUNCTION lease.compile_decision();
CREATE TRIGGER compile_decision AFTER INSERT OR UPDATE OR DELETE ON lease.kind FOR EACH STATEMENT EXECUTE FUNCTION lease.compile_decision();
UPDATE lease.kind SET kind = kind WHERE false;   -- fires the statement trigger once

-- ---------------------------------------------------------------------------------------------------------------
-- State.

-- The one source of fences: larger than every earlier fence of every resource. CACHE 1, so that no session keeps
-- numbers back; below 2^53, so that JSON readers keep them exact.
CREATE SEQUENCE lease.fence AS bigint MINVALUE 1 MAXVALUE 9007199254740991 CACHE 1;
-- The order in which demands were opened.
CREATE SEQUENCE lease.ticket AS bigint CACHE 1;

CREATE TABLE lease.lease (
  kind       text COLLATE "C" NOT NULL,      -- of lease.kind: lease.apply has looked it up, a foreign key would look again for every row
  lease      text COLLATE "C" NOT NULL,
  state      text COLLATE "C" NOT NULL CHECK (state IN ('free', 'ready', 'held', 'finished', 'failed', 'dead')),
  holder     text COLLATE "C",      -- of the last grant; kept after a lapse, so that its late finish is known
  claim_id   uuid,                  -- of the last grant; cleared when its holder ends it
  fence      bigint,                -- of the last grant; never cleared
  since      timestamptz,
  lease_until timestamptz,          -- while held; NULL: claimed before fencing, never taken automatically
  ttl_ms     bigint,                -- of the last grant: what a renewal without one asks for
  attempt    int NOT NULL DEFAULT 0,
  step       text COLLATE "C",
  covering   text COLLATE "C",      -- tables still being covered, joined by commas; NULL: complete
  covered    bigint NOT NULL DEFAULT 0,
  overtaken  boolean NOT NULL DEFAULT false,   -- lapsed, and a resource of it was granted to another since
  ready_at   timestamptz,           -- pool: when it may be claimed
  check_at   timestamptz,           -- when the reaper looks at it next; at or before the expiry, and not moved by renewals
  ended_at   timestamptz,
  payload    json,
  CONSTRAINT lease_is_identified PRIMARY KEY (lease, kind),   -- the column that differs most comes first
  CONSTRAINT held_lease_has_holder CHECK (state <> 'held' OR (holder IS NOT NULL AND (lease_until IS NULL OR (claim_id IS NOT NULL AND fence IS NOT NULL AND check_at IS NOT NULL AND check_at <= lease_until)))),
  CONSTRAINT ended_lease_has_end CHECK ((state IN ('finished', 'failed', 'dead')) = (ended_at IS NOT NULL)),
  CONSTRAINT ready_lease_has_time CHECK (state <> 'ready' OR ready_at IS NOT NULL)
) WITH (fillfactor = 50);   -- room for a second version of every row: a round of renewals stays on its pages
COMMENT ON TABLE lease.lease IS 'The right to work on something until an expiry: one row each.';
-- A renewal changes lease_until alone, which no index has: it stays on its page (HOT).
CREATE UNIQUE INDEX fence_is_granted_once ON lease.lease (fence);
CREATE INDEX lease_to_check ON lease.lease (check_at) WHERE check_at IS NOT NULL;
CREATE INDEX lease_ready ON lease.lease (kind, ready_at, lease) WHERE state = 'ready';
CREATE INDEX lease_ended ON lease.lease (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE lease.resource (
  resource text COLLATE "C" PRIMARY KEY,     -- <type>/<id>; <type>/* while a run covers a whole table
  fence    bigint                            -- the stamp: the fence of the lease that covers it, if that lease is live
) WITH (fillfactor = 80);
COMMENT ON TABLE lease.resource IS
  'What is contended for, where its data lives elsewhere. Taken or not: look the fence up. A stamp of no live lease is dead.';

CREATE TABLE lease.demand (
  kind          text COLLATE "C" NOT NULL,
  worker        text COLLATE "C" NOT NULL,
  credit_total  bigint NOT NULL,             -- asked for since the worker began; the highest wins
  granted_total bigint NOT NULL DEFAULT 0,
  refresh       bigint NOT NULL,             -- the newest one; a grant names it
  ttl_ms        bigint NOT NULL,
  open_until    timestamptz NOT NULL,
  asked_at      timestamptz NOT NULL,        -- of the newest claim: a worker silent for lease.setting.demand_keep is forgotten
  ticket        bigint NOT NULL,
  source        text NOT NULL,               -- the claim that a grant out of this demand names
  message_id    text NOT NULL,
  traceparent   text,
  PRIMARY KEY (kind, worker)
) WITH (fillfactor = 50);
CREATE INDEX demand_open ON lease.demand (ticket) WHERE credit_total > granted_total;

-- ---------------------------------------------------------------------------------------------------------------
-- What was consumed, answered and published.

CREATE TABLE lease.partition (
  topic      text COLLATE "C" NOT NULL,
  partition  int NOT NULL,
  epoch      bigint NOT NULL,                -- rises at each assignment; a batch of an older one is refused
  owner      text NOT NULL,
  taken_at   timestamptz NOT NULL,
  taken_offset bigint,
  idle_takes int NOT NULL DEFAULT 0,         -- assignments in a row without progress
  partitions int NOT NULL,                   -- of the topic, as first seen
  PRIMARY KEY (topic, partition)
);

-- One row a batch and partition, appended: rows updated by every batch slow down under a long snapshot.
CREATE TABLE lease.consumed (
  topic          text COLLATE "C" NOT NULL,
  partition      int NOT NULL,
  next_offset    bigint NOT NULL,
  last_offset    bigint NOT NULL,
  last_timestamp bigint NOT NULL,
  last_checksum  bigint NOT NULL,            -- with the timestamp the fingerprint of the record at last_offset
  CONSTRAINT offset_only_grows PRIMARY KEY (topic, partition, next_offset)
);

CREATE TABLE lease.attempt (
  topic     text COLLATE "C" NOT NULL,
  partition int NOT NULL,
  offset_   bigint NOT NULL,
  tries     int NOT NULL,
  PRIMARY KEY (topic, partition, offset_)
);

-- Source and id of every command answered in the window, in at most three slots of time.
CREATE TABLE lease.dedup (
  slot     smallint NOT NULL,
  key      uuid NOT NULL,                    -- first half of the SHA-256 of source and id
  digest   bytea NOT NULL,
  outcome  text COLLATE "C" NOT NULL,
  fence    bigint,
  claim_id uuid
) PARTITION BY LIST (slot);
CREATE TABLE lease.dedup_0 PARTITION OF lease.dedup (CONSTRAINT answered_once_0 PRIMARY KEY (key)) FOR VALUES IN (0);
CREATE TABLE lease.dedup_1 PARTITION OF lease.dedup (CONSTRAINT answered_once_1 PRIMARY KEY (key)) FOR VALUES IN (1);
CREATE TABLE lease.dedup_2 PARTITION OF lease.dedup (CONSTRAINT answered_once_2 PRIMARY KEY (key)) FOR VALUES IN (2);

CREATE TABLE lease.journal (
  number     bigint NOT NULL PRIMARY KEY,    -- gapless in commit order, but where a jump says what came before
  at         timestamptz NOT NULL,
  event      text COLLATE "C" NOT NULL,      -- an outcome, or lapsed, dead, jumped, restated, dead_letter
  kind       text COLLATE "C",
  subject    text COLLATE "C",
  command    text COLLATE "C",               -- NULL: nobody asked (a lapse, a grant out of open demand)
  source     text, message_id text, traceparent text,
  origin_topic text, origin_partition int, origin_offset bigint,
  holder     text, claim_id uuid, fence bigint, since timestamptz, lease_until timestamptz,
  min_fence  bigint,                         -- the floor: downstream refuses less
  state      text, attempt int, step text,
  amount     bigint, refresh bigint,
  reason     text, field text,
  blocker    jsonb, original jsonb,
  payload    text,
  changes_lease boolean NOT NULL,            -- goes to lease.state
  is_grant   boolean NOT NULL,               -- goes to lease.grants
  raw_key bytea, raw_value bytea, raw_headers bytea,
  previous_number bigint
) PARTITION BY RANGE (number);
COMMENT ON TABLE lease.journal IS 'Every decision, in order: outbox and history in one. Appended, never updated; old partitions are dropped whole.';
CREATE INDEX journal_by_subject ON lease.journal (subject, number) WHERE subject IS NOT NULL;

CREATE TABLE lease.journal_partition (
  name        text PRIMARY KEY,
  from_number bigint NOT NULL,
  upto_number bigint NOT NULL UNIQUE         -- first number that no longer fits
);

INSERT INTO lease.journal_partition VALUES ('journal_1', 1, 10000001);
CREATE TABLE lease.journal_1 PARTITION OF lease.journal FOR VALUES FROM (1) TO (10000001);

CREATE TABLE lease.relay (
  epoch    bigint PRIMARY KEY,
  owner    text NOT NULL,
  taken_at timestamptz NOT NULL
);

CREATE TABLE lease.relay_progress (
  no         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  epoch      bigint NOT NULL REFERENCES lease.relay,
  published  bigint NOT NULL,                -- every journal row up to this one is acknowledged by the broker
  topics     text[] NOT NULL, partitions int[] NOT NULL, offsets bigint[] NOT NULL,   -- read up to, per output partition
  at         timestamptz NOT NULL
);

-- ---------------------------------------------------------------------------------------------------------------
-- One row each.

CREATE TABLE lease.identity (
  singleton        boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  system_identifier bigint NOT NULL,
  timeline    int NOT NULL,
  jumped_at   timestamptz
);
COMMENT ON TABLE lease.identity IS 'The server whose fences these are. Another one (failover, restore) must jump before it grants.';

CREATE TABLE lease.setting (
  singleton               boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  schema_version     int NOT NULL,
  dedup_slot         smallint NOT NULL DEFAULT 0 CHECK (dedup_slot BETWEEN 0 AND 2),
  dedup_switched_at  timestamptz NOT NULL DEFAULT now(),
  dedup_window       interval NOT NULL DEFAULT '7 days',
  journal_rows       bigint NOT NULL DEFAULT 10000000,     -- a partition's
  journal_keep       interval NOT NULL DEFAULT '30 days',
  demand_keep        interval NOT NULL DEFAULT '1 day',
  clock_back_max     interval NOT NULL DEFAULT '5 seconds' -- further back than the last decision: refuse
);
INSERT INTO lease.setting (schema_version) VALUES (1);

INSERT INTO lease.identity (system_identifier, timeline)
SELECT system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int FROM pg_control_system();

RESET ROLE;
