"""A database per file of tests, copied from a template; lanes, and connections of people who edit tables."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "sql"))
sys.dont_write_bytecode = True

import pytest  # noqa: E402

import contracts  # noqa: E402
import rules  # noqa: E402  (it also makes tests/support importable)
from harness import GivenPostgres  # noqa: E402


@pytest.fixture(scope="session", name="server")
def fixture_server():
    conninfo = os.environ.get("LEASE_TEST_DATABASE")
    if not conninfo:
        pytest.exit("LEASE_TEST_DATABASE is not set: which server? (./dev test guard sets it)", 64)
    server = GivenPostgres(conninfo)
    yield server
    server.drop_logins()


@pytest.fixture(scope="session", name="template")
def fixture_template(server):
    database = server.create_database("lease_guard_template")
    rules.install(database)
    yield database
    database.drop()


@pytest.fixture(scope="module", name="shared")
def fixture_shared(server, template):
    """One database for all tests of a file, with the contracts of contracts.py: for tests that leave it as it was."""
    database = server.create_database("lease_guard", template=template.name)
    contracts.create(database)
    yield database
    database.drop()


@pytest.fixture(scope="module", name="reused")
def fixture_reused(server, template):
    database = server.create_database("lease_guard", template=template.name)
    yield database
    database.drop()


@pytest.fixture(name="bare")
def fixture_bare(reused):
    """A database without tables of users and without leases. It is wiped for the next test: a new one for each takes too long."""
    reused.query(contracts.WIPE)
    return reused


@pytest.fixture(name="database")
def fixture_database(bare):
    """The same, with the contracts of contracts.py."""
    contracts.create(bare)
    return bare


@pytest.fixture(name="connect")
def fixture_connect(server):
    """Makes lanes on a database; whatever still waits at the end is cut off by the server."""
    lanes = []

    def make(database, conninfo=None):
        lanes.append(rules.Lane(conninfo or database.conninfo))
        return lanes[-1]

    yield make
    for lane in lanes:
        server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND application_name = 'lane'", (lane.pid,))
        lane.close()


@pytest.fixture(name="lane")
def fixture_lane(database, connect):
    return connect(database)


@pytest.fixture(name="editor")
def fixture_editor(database, connect):
    """Somebody who may edit the contracts, and has no right at all on the schema lease."""
    return connect(database, contracts.editor_of(database))
