SET LOCAL ROLE lease_owner;

-- What texts may be: the same allow-lists and lengths as those that messages are read with (common/event_text.c, schemas/common.json), for what comes in by SQL.
-- A NULL is none of them.

-- A lease, a holder.
CREATE OR REPLACE FUNCTION lease.is_name(p_text text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(p_text ~ '^[A-Za-z0-9][A-Za-z0-9._:@/+=-]{0,199}$' AND p_text !~ '//|(^|/)[.][.](/|$)', false)
$$;

-- <type>/<id>
CREATE OR REPLACE FUNCTION lease.is_resource(p_text text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT lease.is_name(p_text) AND p_text ~ '^[^/]+/.'
$$;

-- A message's id.
CREATE OR REPLACE FUNCTION lease.is_message_id(p_text text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(p_text ~ '^[!-~]{1,128}$', false)
$$;

-- A line of text for people: somebody's reason.
CREATE OR REPLACE FUNCTION lease.is_line(p_text text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(length(p_text) <= 500 AND p_text ~ '\S' AND p_text !~ U&'[\0001-\001F\007F-\009F]', false)
$$;

RESET ROLE;
