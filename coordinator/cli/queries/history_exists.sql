SELECT pg_catalog.to_regclass('lease.flyway_schema_history') IS NOT NULL
