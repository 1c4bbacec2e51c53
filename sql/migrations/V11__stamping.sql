SET LOCAL ROLE lease_owner;

-- Whoever stamps shows that lease.apply is stamping this very table, by a word that only lease.stamping_token makes: strangers' code that a
-- stamp runs has the rights of lease_stamper on all guarded tables.
CREATE TABLE lease.stamping_secret (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  secret  uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO lease.stamping_secret DEFAULT VALUES;
COMMENT ON TABLE lease.stamping_secret IS 'What lease.stamping_token mixes in. For lease_owner alone.';

-- A resource has one place for its stamp: that of an item is a row of lease.resource, never one of a guarded table.
CREATE FUNCTION lease.refuse_guarded_kind() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(1279611205, 6);
  IF EXISTS (SELECT FROM lease.guarded g WHERE g.type = NEW.covers) THEN
    RAISE EXCEPTION 'items cannot cover the type %, whose rows are those of a guarded table', NEW.covers USING ERRCODE = 'LE020',
      HINT = format('SELECT lease.unguard_table(%L), or let the kind cover another type.', NEW.covers);
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER refuse_guarded_kind BEFORE INSERT OR UPDATE OF covers ON lease.kind FOR EACH ROW WHEN (NEW.covers IS NOT NULL) EXECUTE FUNCTION lease.refuse_guarded_kind();

UPDATE lease.setting SET schema_version = 11;

RESET ROLE;
