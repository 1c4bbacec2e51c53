# ctest: LABEL cli TIMEOUT 600 TAKES 10
"""leasectl migrate: Flyway's rules, one transaction a file, and refusals before anything is touched."""
import os
import shutil

import pytest

import harness
from leasectl import CONFIGURATION, DATA, NO, PERMISSION, TEMPORARY, UNAVAILABLE, YES, Leasectl

# What Flyway 13.12 computed and wrote for these very bytes (a folder like this one, migrated by Flyway itself).
FLYWAY_KNOWS = {
    "migrations/V1__first_step.sql": ("create table t(a int);\ncomment on table t is 'é ü 한';\n".encode(), 1751594216),
    "migrations/V2__with_bom_crlf.sql": (b"\xef\xbb\xbfcreate table t2(a int);\r\n\r\ninsert into t2 values (1);", 1159981497),
    "migrations/V2.1__cr_only.sql": (b"select 1;\rselect 2;\n\n", -593479011),
    "R__10_x.sql": (b"select 5;\n", -1296324035),
    "R__Zgrants.sql": (b"select 4;\n", -1415537796),
    "functions/R__a_apply.sql": (b"select 3;", -455012933),
    "functions/R__b_apply.sql": (b"-- nothing\n", 1822733853),
}

HISTORY = ("SELECT installed_rank, version, description, type, script, checksum, success"
           " FROM lease.flyway_schema_history ORDER BY installed_rank")


class Folder:
    """A folder of migrations that a test writes."""

    def __init__(self, path):
        self.path = str(path)

    def write(self, name, text):
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return self

    def remove(self, name):
        os.remove(os.path.join(self.path, name))


@pytest.fixture
def migrate(bare_place):
    run = Leasectl.of(bare_place)
    return lambda *words, **more: run("migrate", *words, **more)


@pytest.fixture
def files(folder):
    files = Folder(folder / "sql")
    files.write("V1__one.sql", "CREATE TABLE lease.one (a int);\n")
    files.write("V2__two.sql", "CREATE TABLE lease.two (a int);\n")
    files.write("views/R__look.sql", "CREATE OR REPLACE VIEW lease.look AS SELECT 1 AS a;\n")
    return files


def history(place):
    return place.database.query(HISTORY)


def exists(place, name):
    return place.database.value("SELECT to_regclass(%s) IS NOT NULL", (name,))


def test_the_schema_inside_the_program_is_applied_once(bare_place, migrate):
    first = migrate().check(YES)
    assert len(first.lines) == len(history(bare_place)) > 3
    assert all(line.startswith("applied ") for line in first.lines)
    second = migrate().check(YES)
    assert second.out == "" and "up to date" in second.err
    assert migrate("--validate").check(YES).out == ""
    assert bare_place.database.value("SELECT count(*) FROM lease.leases") == 0


def test_the_schema_inside_the_program_is_the_one_in_the_folder(bare_place, migrate):
    migrate().check(YES)
    folder = os.path.join(os.path.dirname(__file__), "..", "..", "sql")
    migrate("--sql-dir", folder, "--validate").check(YES)
    names = [script for (_, _, _, _, script, _, _) in history(bare_place)]
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            assert "${" not in file.read(), f"{name}: Flyway would take this for a placeholder"


def test_checksums_order_and_rows_are_flyways(bare_place, migrate, folder):
    files = Folder(folder / "sql")
    for name, (text, _) in FLYWAY_KNOWS.items():
        files.write(name, text)
    plan = migrate("--sql-dir", files.path, "--plan", "-o", "json").check(YES).json
    assert [(row["script"], row["checksum"]) for row in plan] == [(name, sum_) for name, (_, sum_) in FLYWAY_KNOWS.items()]
    assert {row["state"] for row in plan} == {"pending"}
    assert not exists(bare_place, "lease.flyway_schema_history"), "a plan leaves no trace"


def test_a_history_that_flyway_wrote_is_taken_as_it_is(bare_place, migrate, folder):
    files = Folder(folder / "sql")
    rows = [(0, None, "<< Flyway Schema Creation >>", "SCHEMA", '"lease"', None)]
    for name, (text, checksum) in FLYWAY_KNOWS.items():
        files.write(name, text)
        base = name.rsplit("/", 1)[-1][:-4]
        version, description = base[1:].split("__") if base[0] == "V" else (None, base[3:])
        rows.append((len(rows), version, description.replace("_", " "), "SQL", name, checksum))
    migrate("--sql-dir", files.path, "--plan").check(YES)
    bare_place.database.query("CREATE SCHEMA lease")
    bare_place.database.query(
        "CREATE TABLE lease.flyway_schema_history (installed_rank int primary key, version varchar(50), description varchar(200)"
        " not null, type varchar(20) not null, script varchar(1000) not null, checksum int, installed_by varchar(100) not null,"
        " installed_on timestamp not null default now(), execution_time int not null, success boolean not null)")
    for row in rows:
        bare_place.database.query("INSERT INTO lease.flyway_schema_history VALUES (%s,%s,%s,%s,%s,%s,'x',now(),1,true)", row)
    migrate("--sql-dir", files.path, "--validate").check(YES)
    assert migrate("--sql-dir", files.path).check(YES).out == ""


def test_history_rows_say_what_flyways_would(bare_place, migrate, files):
    migrate("--sql-dir", files.path).check(YES)
    rows = history(bare_place)
    assert [row[:5] for row in rows] == [(1, "1", "one", "SQL", "V1__one.sql"), (2, "2", "two", "SQL", "V2__two.sql"),
                                         (3, None, "look", "SQL", "views/R__look.sql")]
    assert all(row[6] for row in rows)


def test_a_changed_repeatable_file_is_applied_again_and_alone(bare_place, migrate, files):
    migrate("--sql-dir", files.path).check(YES)
    files.write("views/R__look.sql", "CREATE OR REPLACE VIEW lease.look AS SELECT 2 AS a;\n")
    assert [row["state"] for row in migrate("--sql-dir", files.path, "--plan", "-o", "json").json] == ["applied", "applied", "again"]
    assert [row["script"] for row in migrate("--sql-dir", files.path, "-o", "json").check(YES).json] == ["views/R__look.sql"]
    assert bare_place.database.value("SELECT a FROM lease.look") == 2
    assert len(history(bare_place)) == 4


def test_a_changed_versioned_file_refuses_everything(bare_place, migrate, files):
    migrate("--sql-dir", files.path).check(YES)
    files.write("V1__one.sql", "CREATE TABLE lease.one (a int, b int);\n")
    files.write("V3__three.sql", "CREATE TABLE lease.three (a int);\n")
    done = migrate("--sql-dir", files.path).check(CONFIGURATION)
    assert "V1__one.sql is changed" in done.err and "new V file" in done.err
    assert not exists(bare_place, "lease.three") and len(history(bare_place)) == 3
    assert migrate("--sql-dir", files.path, "--plan").check(NO)
    different = migrate("--sql-dir", files.path, "--validate", "-o", "json").check(NO).json
    assert [(row["script"], row["state"]) for row in different] == [("V1__one.sql", "changed"), ("V3__three.sql", "pending")]


def test_line_ends_and_byte_order_marks_are_no_change(migrate, files):
    migrate("--sql-dir", files.path).check(YES)
    files.write("V1__one.sql", b"\xef\xbb\xbfCREATE TABLE lease.one (a int);\r\n")
    migrate("--sql-dir", files.path, "--validate").check(YES)


def test_a_newer_schema_is_refused(bare_place, migrate, files):
    migrate("--sql-dir", files.path).check(YES)
    files.remove("V2__two.sql")
    files.write("views/R__look.sql", "CREATE OR REPLACE VIEW lease.look AS SELECT 3 AS a;\n")
    done = migrate("--sql-dir", files.path).check(CONFIGURATION)
    assert "newer" in done.err
    assert bare_place.database.value("SELECT a FROM lease.look") == 1


def test_a_file_before_the_last_version_is_refused(bare_place, migrate, files):
    migrate("--sql-dir", files.path).check(YES)
    files.write("V1_5__late.sql", "CREATE TABLE lease.late (a int);\n")
    assert "out-of-order" in migrate("--sql-dir", files.path).check(CONFIGURATION).err
    assert not exists(bare_place, "lease.late")


def test_a_missing_file_is_refused_and_a_repeatable_one_that_is_gone_is_not(migrate, files):
    migrate("--sql-dir", files.path).check(YES)
    files.remove("views/R__look.sql")
    rows = migrate("--sql-dir", files.path, "--plan", "-o", "json").check(YES).json
    assert [row["state"] for row in rows] == ["gone", "applied", "applied"]
    migrate("--sql-dir", files.path, "--validate").check(YES)
    files.remove("V1__one.sql")
    assert "missing" in migrate("--sql-dir", files.path).check(CONFIGURATION).err


def test_two_files_of_one_version_or_description_are_refused(migrate, files):
    files.write("more/V2__other.sql", "SELECT 1;\n")
    assert "same version" in migrate("--sql-dir", files.path, "--plan").check(DATA).err
    files.remove("more/V2__other.sql")
    files.write("more/R__look.sql", "SELECT 1;\n")
    assert "same description" in migrate("--sql-dir", files.path, "--plan").check(DATA).err


def test_a_failed_file_leaves_nothing_and_is_told_by_line(bare_place, migrate, files):
    files.write("V2__two.sql", "CREATE TABLE lease.two (a int);\n-- é\nSELECT nonsense;\n")
    done = migrate("--sql-dir", files.path).check(DATA)
    assert "V2__two.sql, line 3" in done.err and "nonsense" in done.err
    assert exists(bare_place, "lease.one") and not exists(bare_place, "lease.two")
    assert [row[1] for row in history(bare_place)] == ["1"]
    files.write("V2__two.sql", "CREATE TABLE lease.two (a int);\n")
    assert len(migrate("--sql-dir", files.path).check(YES).lines) == 2


def test_a_file_that_ends_its_transaction_is_refused(bare_place, migrate, files):
    files.write("V2__two.sql", "CREATE TABLE lease.two (a int);\nCOMMIT;\nBEGIN;\n")
    assert "BEGIN, COMMIT" in migrate("--sql-dir", files.path).check(DATA).err
    assert [row[1] for row in history(bare_place)] == ["1"]


def test_a_crash_in_the_middle_leaves_a_whole_number_of_files(bare_place, migrate, files):
    assert migrate("--sql-dir", files.path, LEASE_CRASH="migrate.mid:2:kill").code == -9
    assert [row[1] for row in history(bare_place)] == ["1"]
    assert not exists(bare_place, "lease.two")
    assert len(migrate("--sql-dir", files.path).check(YES).lines) == 2


def test_a_lost_connection_in_the_middle_is_told_and_leaves_a_whole_number_of_files(bare_place, migrate, files):
    assert "R__look.sql" in migrate("--sql-dir", files.path, LEASE_CRASH="migrate.mid:3:error").check(UNAVAILABLE).err
    assert [row[1] for row in history(bare_place)] == ["1", "2"]


def test_two_at_once_wait_for_each_other(bare_place, files):
    files.write("V2__two.sql", "CREATE TABLE lease.two (a int);\nSELECT pg_sleep(1);\n")
    run = Leasectl.of(bare_place)
    both = [run.start("migrate", "--sql-dir", files.path) for _ in range(3)]
    ends = [process.communicate(timeout=60) + (process.returncode,) for process in both]
    assert [code for (_, _, code) in ends] == [YES, YES, YES], ends
    assert sorted(len(out.splitlines()) for (out, _, _) in ends) == [0, 0, 3]
    assert len(history(bare_place)) == 3


def test_flyways_own_lock_is_waited_for(bare_place, migrate, files):
    connection = bare_place.database.connect()
    connection.cursor().execute("SELECT pg_advisory_lock(77433438205984)")
    process = Leasectl.of(bare_place).start("migrate", "--sql-dir", files.path)
    harness.eventually(lambda: b"waiting for it" in process.stderr.readline(), 60, "it says that it waits")
    assert process.poll() is None and not exists(bare_place, "lease.one")
    connection.close()
    assert process.wait(timeout=60) == YES
    process.communicate()


def test_waits_for_a_server_that_starts_later(bare_place, files):
    port = harness.free_port()
    process = Leasectl.of(bare_place, database=f"host=127.0.0.1 port={port} user=x").start("migrate", "--wait", "30")
    harness.eventually(lambda: b"waiting for PostgreSQL" in process.stderr.readline(), 60, "it says that it waits")
    process.kill()
    process.communicate()


def test_a_role_without_rights_is_told_so(bare_place, migrate):
    migrate().check(YES)
    reader = Leasectl.of(bare_place, database=bare_place.database.login("lease_reader"))
    reader("ls").check(YES)
    done = reader("migrate")
    assert done.code == PERMISSION and "what to do:" in done.err


def test_a_locked_table_is_temporary(bare_place, migrate, files):
    migrate("--sql-dir", files.path).check(YES)
    files.write("V3__three.sql", "SET LOCAL lock_timeout = '100ms';\nALTER TABLE lease.one ADD b int;\n")
    connection = bare_place.database.connect()
    connection.autocommit = False
    connection.cursor().execute("LOCK TABLE lease.one IN ACCESS SHARE MODE")
    assert migrate("--sql-dir", files.path).code == TEMPORARY
    connection.close()
    migrate("--sql-dir", files.path).check(YES)


def test_an_empty_folder_is_a_mistake(migrate, folder):
    os.makedirs(folder / "empty")
    assert "no files" in migrate("--sql-dir", folder / "empty").check(DATA).err
    shutil.rmtree(folder / "empty")
    assert "No such file" in migrate("--sql-dir", folder / "empty").check(DATA).err
