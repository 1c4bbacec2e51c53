-- Exceptions from the guard: who may edit rows under a live lease, why, and until when.

DO $$
BEGIN
  -- lease_operator is granted to logins that decide what only a person can decide. (Roles belong to the whole server; V1 says more.)
  BEGIN CREATE ROLE lease_operator NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
END
$$;

SET LOCAL ROLE lease_owner;
GRANT USAGE ON SCHEMA lease TO lease_operator;

CREATE TABLE lease.guard_exception (
  no          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  type        text COLLATE "C" NOT NULL,
  ids         text[] COLLATE "C",            -- NULL: every row of the table
  login       text COLLATE "C" NOT NULL,     -- who may edit
  why         text NOT NULL,
  valid_until timestamptz NOT NULL,
  granted_by  text COLLATE "C" NOT NULL,
  granted_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_by    text COLLATE "C",
  ended_at    timestamptz,
  is_noted    boolean NOT NULL DEFAULT false,  -- in the journal, where a coordinator writes it down in a moment
  is_end_noted boolean NOT NULL DEFAULT false
);
CREATE INDEX guard_exception_of_login ON lease.guard_exception (login, valid_until);
CREATE INDEX guard_exception_to_note ON lease.guard_exception (no) WHERE NOT is_noted OR ended_at IS NOT NULL AND NOT is_end_noted;
COMMENT ON TABLE lease.guard_exception IS 'Who may edit guarded rows under a live lease. The run is told of each edit when it finishes.';

UPDATE lease.setting SET schema_version = 8;

RESET ROLE;
