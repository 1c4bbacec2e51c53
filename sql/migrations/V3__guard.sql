-- The guard: users' tables whose rows leases cover. What a table gets is in functions/R__guard.sql.

DO $$
BEGIN
  -- Roles belong to the whole server (V1 says more). lease_stamper may change the stamps of guarded tables and nothing else: triggers
  -- of strangers that a stamp fires run with its rights. lease_holder is granted to logins that write under a lease of their own.
  BEGIN CREATE ROLE lease_stamper NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
  BEGIN CREATE ROLE lease_holder NOLOGIN;  EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
  IF NOT pg_has_role(current_user, 'lease_stamper', 'MEMBER') THEN
    EXECUTE format('GRANT lease_stamper TO %I', current_user);
  END IF;
END
$$;

-- The stamping functions, made for each table when it is registered. Nobody but their owner's callers looks anything up here, and
-- lease_stamper may not create in it: who runs with its rights cannot put another text into a function that it owns.
CREATE SCHEMA lease_stamp;
ALTER SCHEMA lease_stamp OWNER TO lease_owner;

SET LOCAL ROLE lease_owner;
GRANT USAGE ON SCHEMA lease_stamp TO lease_stamper;
GRANT USAGE ON SCHEMA lease TO lease_stamper;

CREATE TABLE lease.guarded (
  type          text COLLATE "C" PRIMARY KEY CHECK (type ~ '^[a-z][a-z0-9_-]{0,31}$'),
  relation      regclass NOT NULL CONSTRAINT table_is_guarded_once UNIQUE,
  schema_name   name NOT NULL,              -- as it was registered: the stamping functions name the table by it
  table_name    name NOT NULL,
  key_columns   text[] NOT NULL,            -- of the primary key, in its order: the id is their text, joined by colons
  key_types     text[] NOT NULL,
  columns       text[] NOT NULL,
  label         text NOT NULL,
  registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  registered_by text NOT NULL DEFAULT session_user,
  CONSTRAINT key_has_columns_with_types CHECK (cardinality(key_columns) > 0 AND cardinality(key_columns) = cardinality(key_types)),
  CONSTRAINT something_is_guarded CHECK (cardinality(columns) > 0)
);
COMMENT ON TABLE lease.guarded IS 'Tables whose rows are resources: <type>/<id>. Changed by lease.guard_table and lease.unguard_table alone.';

-- Appended by the guard's triggers; read when a lease finishes late. No key: an edit pays for one index only.
CREATE TABLE lease.admitted_edit (
  fence bigint NOT NULL,                    -- the stamp that the row carried
  type  text COLLATE "C" NOT NULL,
  id    text COLLATE "C" NOT NULL,
  at    timestamptz NOT NULL,
  by    text NOT NULL,
  old   jsonb,                              -- key and guarded columns; NULL: the row was inserted
  new   jsonb                               -- NULL: the row was deleted
);
COMMENT ON TABLE lease.admitted_edit IS 'Edits of rows that a lapsed lease covers which may still be finished: what its run was based on has changed.';
CREATE INDEX admitted_edit_by_fence ON lease.admitted_edit (fence);

-- Which tables look as if they should be guarded. Rows, because every house names its tables in its own way.
CREATE TABLE lease.guard_pattern (
  pattern text PRIMARY KEY,                 -- for ILIKE, against a table's name without its schema
  why     text NOT NULL
);
COMMENT ON TABLE lease.guard_pattern IS 'Tables with such a name that are not guarded are reported in lease.guard_findings.';
INSERT INTO lease.guard_pattern VALUES ('%contract%', 'settlements read the terms of contracts');

ALTER TABLE lease.journal ADD COLUMN basis jsonb;
COMMENT ON COLUMN lease.journal.basis IS 'of a finish over guarded rows: whether they changed under the lease, and how';
ALTER TABLE lease.lease ADD COLUMN guarded boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN lease.lease.guarded IS 'the last grant covers rows of guarded tables';

UPDATE lease.setting SET schema_version = 3;

RESET ROLE;
