SET LOCAL ROLE lease_owner;

-- What a command names, split by where its stamps stand: lease.apply splits the names once and hands the parts on.
CREATE TYPE lease.named_rows AS (type text, ids text[]);                -- rows of the table that is guarded as this type, by id
CREATE TYPE lease.targets AS (plain text[], rows lease.named_rows[]);   -- names of rows of lease.resource, and all others

-- Their predecessors, which split the names anew each time.
DROP FUNCTION IF EXISTS lease.rows_named(text[]);
DROP FUNCTION IF EXISTS lease.plain_among(text[]);
DROP FUNCTION IF EXISTS lease.stamps_on(text[], boolean);
DROP FUNCTION IF EXISTS lease.stamped_with(text[], boolean, bigint);
DROP FUNCTION IF EXISTS lease.stamp_rows(text[], bigint, bigint[]);
UPDATE lease.setting SET schema_version = 9;
RESET ROLE;
