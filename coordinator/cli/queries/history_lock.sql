-- The number under which Flyway itself locks the history of schema lease: the two wait for each other.
SELECT pg_catalog.pg_try_advisory_lock(77433438205984)
