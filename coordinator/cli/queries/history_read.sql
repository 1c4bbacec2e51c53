SELECT installed_rank, version, description, type, script, checksum, success
  FROM lease.flyway_schema_history
 ORDER BY installed_rank
