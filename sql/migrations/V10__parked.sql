SET LOCAL ROLE lease_owner;

-- Parked edits are found by what they wait for: the end of a lease, the next try, their own end. One of blocked_by and retry_at is set.
-- No index of them is scanned for those whose time has not come.
CREATE INDEX parked_edit_blocked ON lease.parked_edit (blocked_by, type, id, no) WHERE blocked_by IS NOT NULL;
CREATE INDEX parked_edit_retry ON lease.parked_edit (retry_at) WHERE retry_at IS NOT NULL;

-- The kind under which it was asked for, and is answered.
ALTER TABLE lease.parked_edit ADD COLUMN kind text COLLATE "C";
UPDATE lease.parked_edit SET kind = (SELECT min(k.kind) FROM lease.kind k WHERE k.mode = 'edit');
ALTER TABLE lease.parked_edit ALTER COLUMN kind SET NOT NULL;

-- How many were parked when they were last counted, up to which number, and when. One row.
CREATE TABLE lease.parked_count (
  counted bigint NOT NULL,
  upto    bigint NOT NULL,
  at      timestamptz NOT NULL
);
INSERT INTO lease.parked_count SELECT (SELECT count(*) FROM lease.parked_edit), s.last_value, clock_timestamp() FROM lease.parked_edit_no_seq s;
COMMENT ON TABLE lease.parked_count IS 'The bound of lease.parked_edit; see lease.parked_is_full.';

UPDATE lease.setting SET schema_version = 10;
RESET ROLE;
