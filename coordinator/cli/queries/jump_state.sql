-- What the tables say about the server that they were written on, beside what the server says of itself.
SELECT (SELECT max(number) FROM lease.timeline),
       (SELECT max(fence) FROM lease.leases),
       (SELECT system_identifier || '/' || timeline FROM lease.server_identity),
       (SELECT system_identifier FROM pg_catalog.pg_control_system()) || '/'
         || ('x' || substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int
