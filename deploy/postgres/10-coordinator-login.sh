#!/bin/bash
# Run once by the postgres image, when it makes the cluster: the login under which coordinators work. It may do what
# the group lease_coordinator may (EXECUTE and views; `leasectl migrate` grants that) and owns nothing.
set -euo pipefail
# \getenv keeps the password off the command line; psql quotes it.
COORDINATOR_PASSWORD=$(</run/secrets/coordinator_password) \
  psql --no-psqlrc --quiet -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\getenv password COORDINATOR_PASSWORD
CREATE ROLE lease_coordinator NOLOGIN;
CREATE ROLE coordinator LOGIN PASSWORD :'password' IN ROLE lease_coordinator;
SQL
