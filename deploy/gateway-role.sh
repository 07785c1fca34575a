#!/bin/sh
# Makes the role of the gateways when the database is made: it owns one schema, and nothing else. The superuser stays here.
set -eu
psql --set=ON_ERROR_STOP=1 --set=password="$GATEWAY_DB_PASSWORD" --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE codemode LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'password';
REVOKE ALL ON DATABASE :DBNAME FROM PUBLIC;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT CONNECT ON DATABASE :DBNAME TO codemode;
CREATE SCHEMA codemode AUTHORIZATION codemode;
ALTER ROLE codemode IN DATABASE :DBNAME SET search_path = codemode;
SQL
