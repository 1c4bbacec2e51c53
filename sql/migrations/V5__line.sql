-- The line: starts that wait for what others hold.

SET LOCAL ROLE lease_owner;

-- A row, not a connection: whoever waits may go away and ask again. Written by lease.apply alone, behind the locks of leases.
CREATE TABLE lease.waiter (
  kind        text COLLATE "C" NOT NULL,
  lease       text COLLATE "C" NOT NULL,
  holder      text COLLATE "C" NOT NULL,
  ticket      bigint NOT NULL CONSTRAINT one_place_each UNIQUE,
  resources   text[] COLLATE "C" NOT NULL,
  more        boolean NOT NULL,
  tables      text[] COLLATE "C" NOT NULL,
  ttl_ms      bigint,
  payload     text,
  refresh     bigint NOT NULL,               -- the newest one; the grant names it
  open_until  timestamptz NOT NULL,          -- refreshed: whoever stays silent is passed over, and forgotten
  asked_at    timestamptz NOT NULL,
  source      text NOT NULL,                 -- the start that the grant names
  message_id  text NOT NULL,
  traceparent text,
  blocked_by  bigint,                        -- the fence of who held something of it at the last try
  behind      bigint,                        -- the ticket of who waits for something of it and came first
  retry_at    timestamptz,                   -- after a row was in other hands: nobody tells when it is let go
  tries       int NOT NULL DEFAULT 0,
  CONSTRAINT one_waiter_for_a_lease PRIMARY KEY (kind, lease)
) WITH (fillfactor = 50);
COMMENT ON TABLE lease.waiter IS 'Starts in line, in the order of their tickets.';

CREATE TABLE lease.waiting_for (
  resource text COLLATE "C" NOT NULL,
  ticket   bigint NOT NULL REFERENCES lease.waiter (ticket) ON DELETE CASCADE,
  PRIMARY KEY (resource, ticket)
);
CREATE INDEX waiting_for_by_ticket ON lease.waiting_for (ticket);
COMMENT ON TABLE lease.waiting_for IS 'What each of them waits for, by name: a start passes only those with whom it shares nothing.';

UPDATE lease.outcome SET meaning = 'recorded: open until wait_ms have passed, or until it is asked again' WHERE outcome = 'waiting';

UPDATE lease.setting SET schema_version = 5;

RESET ROLE;
