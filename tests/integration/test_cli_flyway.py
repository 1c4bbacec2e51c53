# ctest: LABEL cli TIMEOUT 600 TAKES 20
"""Flyway itself on the same files: each of the two takes what the other did as its own. Maven fetches Flyway once."""
import os
import pathlib
import subprocess

import psycopg2.extensions
import pytest

from leasectl import YES, Leasectl

HERE = pathlib.Path(__file__).resolve().parent
POM = HERE.parent / "support" / "flyway" / "pom.xml"
SQL = HERE.parent.parent / "sql"
FETCH_LIMIT = 500
HISTORY = "SELECT version, description, type, script, checksum, success FROM lease.flyway_schema_history" \
          " WHERE type = 'SQL' ORDER BY installed_rank"


@pytest.fixture
def flyway(bare_place):
    def run(goal, folder=SQL):
        where = psycopg2.extensions.parse_dsn(bare_place.database.conninfo)
        url = f"jdbc:postgresql://{where.get('host', '127.0.0.1')}:{where.get('port', 5432)}/{where['dbname']}"
        done = subprocess.run(["mvn", "-B", "-q", "-Dstyle.color=never", "-f", str(POM), f"flyway:{goal}", f"-Dlease.url={url}",
                               f"-Dlease.user={where['user']}", f"-Dlease.password={where.get('password', '')}",
                               f"-Dlease.folder={folder}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=FETCH_LIMIT, check=False)
        return done.returncode, done.stdout.decode()
    return run


def test_flyway_validates_what_leasectl_migrated_and_finds_nothing_to_do(bare_place, flyway):
    leasectl = Leasectl.of(bare_place)
    leasectl("migrate").check(YES)
    before = bare_place.database.query(HISTORY)
    code, text = flyway("migrate")      # which validates first
    assert code == 0, text
    assert bare_place.database.query(HISTORY) == before


def test_leasectl_takes_over_what_flyway_migrated(bare_place, flyway, folder):
    code, text = flyway("migrate")
    assert code == 0, text
    leasectl = Leasectl.of(bare_place)
    leasectl("migrate", "--validate").check(YES)
    assert leasectl("migrate").check(YES).out == ""
    by_flyway = bare_place.database.query(HISTORY)
    bare_place.database.query("DROP SCHEMA lease, lease_stamp CASCADE")
    leasectl("migrate").check(YES)
    assert bare_place.database.query(HISTORY) == by_flyway, "the same rows, checksums and order"


def test_both_refuse_a_changed_file(bare_place, flyway, folder):
    os.makedirs(folder / "sql")
    (folder / "sql" / "V1__one.sql").write_text("CREATE TABLE lease.one (a int);\n")
    leasectl = Leasectl.of(bare_place)
    leasectl("migrate", "--sql-dir", folder / "sql").check(YES)
    (folder / "sql" / "V1__one.sql").write_text("CREATE TABLE lease.one (a int, b int);\n")
    assert flyway("validate", folder / "sql")[0] != 0
    assert leasectl("migrate", "--sql-dir", folder / "sql").code != YES
