SET LOCAL ROLE lease_owner;

-- Exceptions from the guard. A person grants one; the guard lets that login's edits through, records each, and the run is told when it finishes. Grant and end stand in the
-- journal too: a coordinator writes them there, since a person's transaction must not hold the journal's lock.

-- lease.allow_exception: lets a login edit guarded rows under live leases until a time. p_ids: the rows, NULL: all of the table. p_why stands in the journal beside the name
-- of who is logged in. Returns its number. For members of lease_operator. It holds when the caller's transaction commits.
-- Errors: LE020 for a type that is not guarded; 22023 without a reason, or for a time that has passed or is more than 30 days away; 42704 for no such login.
CREATE OR REPLACE FUNCTION lease.allow_exception(p_type text, p_login name, p_ids text[], p_why text, p_until timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_no bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM lease.guarded g WHERE g.type = p_type) THEN
    PERFORM lease.refuse_guard(format('no table is guarded as %s', coalesce(p_type, 'NULL')), 'SELECT * FROM lease.guarded_tables shows those that are.');
  END IF;
  IF NOT lease.is_line(p_why) OR p_until IS NULL OR p_until <= clock_timestamp() OR p_until > clock_timestamp() + interval '30 days'
     OR p_ids = '{}' OR cardinality(p_ids) > 1000 OR EXISTS (SELECT FROM unnest(p_ids) u WHERE NOT lease.is_resource(p_type || '/' || u)) THEN
    RAISE EXCEPTION 'an exception has a reason, rows, and an end within 30 days' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'SELECT lease.allow_exception(''album-contract'', ''ann'', ARRAY[''42''], ''a wrong rate, see ticket 7'', now() + interval ''10 minutes'')';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = p_login AND r.rolcanlogin) THEN
    RAISE EXCEPTION 'there is no login %', p_login USING ERRCODE = 'undefined_object', HINT = 'Exceptions are for the login of a session, not for a role it has.';
  END IF;
  INSERT INTO lease.guard_exception (type, ids, login, why, valid_until, granted_by) VALUES (p_type, p_ids, p_login, p_why, p_until, session_user) RETURNING no INTO v_no;
  RETURN v_no;
END
$$;

-- lease.end_exception: ends one before its time. False if it had ended. For members of lease_operator.
CREATE OR REPLACE FUNCTION lease.end_exception(p_no bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE lease.guard_exception x SET ended_at = clock_timestamp(), ended_by = session_user WHERE x.no = p_no AND x.ended_at IS NULL AND x.valid_until > clock_timestamp();
  RETURN FOUND;
END
$$;

-- Whether this session's login may edit this row whoever covers it. Part of the guard's trigger.
CREATE OR REPLACE FUNCTION lease.is_excepted(p_relation oid, p_row record) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
  g record; v_id text;
BEGIN
  IF NOT EXISTS (SELECT FROM lease.guard_exception x WHERE x.login = session_user AND x.valid_until > clock_timestamp() AND x.ended_at IS NULL) THEN
    RETURN false;
  END IF;
  SELECT * INTO g FROM lease.guard_of(p_relation);
  v_id := lease.id_in(lease.row_text(p_row, g.key_columns), g.key_columns);
  RETURN g.is_registered AND EXISTS (SELECT FROM lease.guard_exception x
    WHERE x.login = session_user AND x.valid_until > clock_timestamp() AND x.ended_at IS NULL AND x.type = g.type AND (x.ids IS NULL OR v_id = ANY (x.ids)));
END
$$;

-- What of them is to be noted in the journal, at most p_limit; it counts as noted from now on. Part of lease.serve_edits.
CREATE OR REPLACE FUNCTION lease.note_exceptions(p_limit int) RETURNS TABLE (no bigint, command text, subject text, editor text, why text, payload text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  x lease.guard_exception;
BEGIN
  FOR x IN SELECT * FROM lease.guard_exception q WHERE NOT q.is_noted OR q.ended_at IS NOT NULL AND NOT q.is_end_noted ORDER BY q.no LIMIT p_limit FOR UPDATE SKIP LOCKED LOOP
    no := x.no; subject := x.type || CASE WHEN cardinality(x.ids) = 1 THEN '/' || x.ids[1] ELSE '/*' END;
    payload := json_build_object('exception', x.no, 'login', x.login, 'ids', x.ids, 'until', lease.utc(x.valid_until));
    IF NOT x.is_noted THEN
      command := 'except'; editor := x.granted_by; why := x.why;
      RETURN NEXT;
    END IF;
    IF x.ended_at IS NOT NULL THEN
      command := 'except_no_more'; editor := x.ended_by; why := NULL;
      RETURN NEXT;
    END IF;
    UPDATE lease.guard_exception q SET is_noted = true, is_end_noted = x.ended_at IS NOT NULL WHERE q.no = x.no;
  END LOOP;
END
$$;

GRANT EXECUTE ON FUNCTION lease.allow_exception, lease.end_exception TO lease_operator;
RESET ROLE;
