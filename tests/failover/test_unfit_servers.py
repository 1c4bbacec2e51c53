# ctest: LABEL failover TIMEOUT 400 TAKES 10
"""Servers on which no promise can be kept are refused at the start: read-only ones, those that may forget a commit, another
encoding, another version of the schema. The coordinator ends at once with the exit code for configuration, and its log names the
reason; a server that is unfit only for a while (a failover) is waited for by a coordinator that had been admitted before.
"""
import pytest

from harness import eventually
from servers import dump

EX_DATAERR, EX_CONFIG = 65, 78


@pytest.fixture(name="server", scope="module")
def fixture_server(shared_world):
    return shared_world.server("server")


@pytest.fixture(name="place", scope="module")
def fixture_place(shared_world, server):
    made = shared_world.place(server)
    made.coordinator()      # makes the account, while that can be done
    return made


def is_refused(coordinator, code, *words):
    seen = len(coordinator.log_text()) if coordinator.child.returncode() is not None else 0
    coordinator.start(wait=False)
    assert coordinator.child.wait(60) == EX_CONFIG
    text = coordinator.log_text()[seen:]
    assert f"code={code}" in text and all(word in text for word in words), text


def configure(server, setting, value):
    server.query(f"ALTER SYSTEM SET {setting} = {value}")
    server.query("SELECT pg_reload_conf()")
    eventually(lambda: server.query(f"SHOW {setting}")[0][0] == value, 60, f"{setting} is {value}")


@pytest.mark.parametrize("setting", ["fsync", "synchronous_commit", "full_page_writes"])
def test_a_server_that_may_forget_commits_is_refused_unless_it_is_said_to_be_throwaway(server, place, setting):
    configure(server, setting, "off")
    try:
        is_refused(place.coordinator(), "LE008", f"{setting} is off")
        told = place.coordinator(throwaway="true").start()
        assert told.stop()
    finally:
        configure(server, setting, "on")


def test_a_standby_is_refused(shared_world, server, place):
    standby = shared_world.follower("standby", server).has_followed(server)
    is_refused(place.coordinator(database=standby.conninfo(place.database.name)), "LE008", "read-only")


def test_a_database_that_is_read_only_by_default_is_refused(server, place):
    server.query(f'ALTER DATABASE "{place.database.name}" SET default_transaction_read_only = on')
    try:
        is_refused(place.coordinator(database=server.conninfo(place.database.name)), "LE008", "read-only")
    finally:
        server.query(f'ALTER DATABASE "{place.database.name}" RESET default_transaction_read_only')


def test_another_encoding_is_refused(shared_world, server, place):
    """The migrations refuse it; a dump may still have been restored into such a database."""
    for name in ("latin", "latin_restored"):
        server.query(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    refused = place.ctl("migrate", ok=(EX_DATAERR,), database=server.conninfo("latin"))
    assert refused == ""
    server.load(dump(place.database, shared_world.folder)[1], "latin_restored")
    is_refused(place.coordinator(database=server.conninfo("latin_restored")), "LE008", "LATIN1", "not UTF8")


@pytest.mark.parametrize("apart, advice", [(-1, "leasectl migrate"), (1, "newer program")])
def test_another_version_of_the_schema_is_refused(place, apart, advice):
    version = place.database.value("SELECT schema_version FROM lease.settings")
    place.database.query("UPDATE lease.setting SET schema_version = %s", (version + apart,))
    try:
        is_refused(place.coordinator(), "LE006", f"version {version + apart}", advice)
    finally:
        place.database.query("UPDATE lease.setting SET schema_version = %s", (version,))


def test_a_database_that_was_never_migrated_is_refused(shared_world, server, place):
    server.query("CREATE DATABASE bare TEMPLATE template0 ENCODING 'UTF8'")
    is_refused(place.coordinator(database=server.conninfo("bare")), "3F000")


def test_a_server_that_is_read_only_for_a_while_is_waited_for_by_who_was_admitted_before(server, place):
    coordinator = place.coordinator(lanes=1, database=server.conninfo(place.database.name)).start()
    server.query(f'ALTER DATABASE "{place.database.name}" SET default_transaction_read_only = on')
    try:
        server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (place.database.name,))
        eventually(lambda: coordinator.get("/readyz")[0] == 503, 60, "it is not ready")
        eventually(lambda: "code=LE008" in coordinator.log_text(), 60, "it says why")
        assert coordinator.child.is_running()
    finally:
        server.query(f'ALTER DATABASE "{place.database.name}" RESET default_transaction_read_only')
    coordinator.wait_ready()
    assert coordinator.stop()
