-- Flyway's own table, as Flyway 13 makes it with lease as its default schema.
CREATE SCHEMA IF NOT EXISTS lease;
CREATE TABLE IF NOT EXISTS lease.flyway_schema_history (
  installed_rank integer NOT NULL CONSTRAINT flyway_schema_history_pk PRIMARY KEY,
  version        varchar(50),
  description    varchar(200) NOT NULL,
  type           varchar(20) NOT NULL,
  script         varchar(1000) NOT NULL,
  checksum       integer,
  installed_by   varchar(100) NOT NULL,
  installed_on   timestamp NOT NULL DEFAULT now(),
  execution_time integer NOT NULL,
  success        boolean NOT NULL
);
CREATE INDEX IF NOT EXISTS flyway_schema_history_s_idx ON lease.flyway_schema_history (success);
