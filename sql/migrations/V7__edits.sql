-- Edits of guarded tables that are asked for by a message, and wait while a lease covers the row.

DO $$
BEGIN
  -- lease_editor makes the edits that somebody asked for, with the rights on the table's columns that lease.allow_edits gives it; lease_asker is granted to
  -- logins that may ask for one in SQL. (Roles belong to the whole server; V1 says more.)
  BEGIN CREATE ROLE lease_editor NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
  BEGIN CREATE ROLE lease_asker NOLOGIN;  EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
  IF NOT pg_has_role(current_user, 'lease_editor', 'MEMBER') THEN
    EXECUTE format('GRANT lease_editor TO %I', current_user);
  END IF;
END
$$;

GRANT USAGE ON SCHEMA lease_stamp TO lease_editor;

SET LOCAL ROLE lease_owner;
GRANT USAGE ON SCHEMA lease TO lease_asker;

-- A mode of its own: its subjects are rows of guarded tables, not leases.
ALTER TABLE lease.kind DROP CONSTRAINT kind_mode_check, ADD CONSTRAINT kind_mode_check CHECK (mode IN ('run', 'pool', 'edit'));

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
       (SELECT array_agg(k.command ORDER BY n) AS commands FROM generate_series(0, (SELECT max(no) FROM lease.command)) n LEFT JOIN lease.command k ON k.no = n) AS c,
       (SELECT coalesce(array_agg(kind), '{}'), coalesce(array_agg(array_position(ARRAY['run', 'pool', 'edit'], mode) - 1), '{}'), coalesce(array_agg(ttl_ms), '{}'),
               coalesce(array_agg(ttl_max_ms), '{}'), coalesce(array_agg(attempts_max), '{}'), coalesce(array_agg(backoff_base_ms), '{}'),
               coalesce(array_agg(backoff_max_ms), '{}'), coalesce(array_agg(covers), '{}'), coalesce(array_agg(finish_after), '{}')
          FROM (SELECT * FROM lease.kind ORDER BY kind) q) AS k;
  RETURN NULL;
END
$$;

INSERT INTO lease.command VALUES
  (11, 'edit',   false, 'change guarded columns of a row, now or when the lease that covers it has ended'),
  (12, 'cancel', false, 'take an edit back that is parked');

INSERT INTO lease.outcome VALUES
  (24, 'applied',   false, 'the row is edited'),
  (25, 'bounced',   true,  'the edit was not made; reason says why'),
  (26, 'cancelled', false, 'the parked edit is taken back');
UPDATE lease.outcome SET meaning = 'kept: it will be tried when the lease that covers the row has ended' WHERE outcome = 'parked';

INSERT INTO lease.kind (kind, mode, ttl_ms, ttl_max_ms, summary) VALUES
  ('contract', 'edit', 86400000, 86400000, 'edits of rows that settlements read');

-- Which tables take edits by message. What they may edit are the guarded columns.
ALTER TABLE lease.guarded ADD COLUMN takes_edits boolean NOT NULL DEFAULT false;

CREATE TABLE lease.parked_edit (
  no          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,   -- edits of a row are made in this order
  type        text COLLATE "C" NOT NULL,
  id          text COLLATE "C" NOT NULL,
  editor      text COLLATE "C" NOT NULL,
  old         jsonb NOT NULL,                -- what the columns must still be
  new         jsonb NOT NULL,
  source      text NOT NULL,                 -- the message that asked
  message_id  text NOT NULL,
  traceparent text,
  asked_at    timestamptz NOT NULL,
  expires_at  timestamptz NOT NULL,
  blocked_by  bigint,                        -- the fence of who covered the row at the last try
  retry_at    timestamptz,                   -- a stranger had the row locked: nobody tells when it is let go
  tries       int NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE INDEX parked_edit_of_row ON lease.parked_edit (type, id, no);
CREATE INDEX parked_edit_by_message ON lease.parked_edit (message_id);
CREATE INDEX parked_edit_expires ON lease.parked_edit (expires_at);
COMMENT ON TABLE lease.parked_edit IS 'Edits that wait for the end of a lease.';

-- Who asks in SQL writes here, and touches nothing that others wait for; a coordinator takes it from here in a moment.
CREATE TABLE lease.edit_inbox (
  no         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  command    text COLLATE "C" NOT NULL CHECK (command IN ('edit', 'cancel')),
  subject    text COLLATE "C" NOT NULL,
  editor     text COLLATE "C" NOT NULL,
  message_id text NOT NULL,
  payload    json,                           -- of an edit: old, new
  names      text,                           -- the edit that it follows, or cancels
  park_ms    bigint
);
COMMENT ON TABLE lease.edit_inbox IS 'Edits asked for by lease.ask_edit that no coordinator has taken yet.';

UPDATE lease.setting SET schema_version = 7;

RESET ROLE;
