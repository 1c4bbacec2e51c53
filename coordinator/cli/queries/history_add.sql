-- $1 version, $2 description, $3 script, $4 checksum, $5 how long it took in ms
INSERT INTO lease.flyway_schema_history
       (installed_rank, version, description, type, script, checksum, installed_by, execution_time, success)
SELECT coalesce(max(installed_rank), 0) + 1, $1, $2, 'SQL', $3, $4, current_user, $5, true
  FROM lease.flyway_schema_history
