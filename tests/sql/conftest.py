"""A database per test, copied from a template that is made once."""
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rules  # noqa: E402  (it also makes tests/support importable)
from harness import GivenPostgres  # noqa: E402


@pytest.fixture(scope="session", name="server")
def fixture_server():
    conninfo = os.environ.get("LEASE_TEST_DATABASE")
    if not conninfo:
        pytest.exit("LEASE_TEST_DATABASE is not set: which server? (./dev test sql sets it)", 64)
    server = GivenPostgres(conninfo)
    yield server
    server.drop_logins()


@pytest.fixture(scope="session", name="template")
def fixture_template(server):
    database = server.create_database("lease_sql_template")
    rules.install(database)
    yield database
    database.drop()


@pytest.fixture(name="database")
def fixture_database(server, template):
    database = server.create_database("lease_sql", template=template.name)
    yield database
    database.drop()


@pytest.fixture(name="new_lane")
def fixture_new_lane(server, database):
    """Makes lanes, and closes them at the end. Where a test failed, one may still wait for another: the server cuts them all off."""
    lanes = []

    def make(conninfo=None):
        lanes.append(rules.Lane(conninfo or database.conninfo))
        return lanes[-1]

    yield make
    server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND application_name = 'lane'", (database.name,))
    for lane in lanes:
        lane.close()


@pytest.fixture(name="lane")
def fixture_lane(request):
    """One lane. With a database of its test's own if the test asks for that or for more lanes; else what it does is undone at the end,
    which is much cheaper than a new database."""
    if {"database", "new_lane"} & set(request.fixturenames):
        return request.getfixturevalue("new_lane")()
    return request.getfixturevalue("undone_lane")


@pytest.fixture(scope="module", name="module_lane")
def fixture_module_lane(server, template):
    database = server.create_database("lease_sql", template=template.name)
    lane = rules.UndoneLane(database.conninfo)
    yield lane
    lane.close()
    database.drop()


@pytest.fixture(name="undone_lane")
def fixture_undone_lane(module_lane):
    """A lane whose transactions are all rolled back at the end: quick, for tests that need no second lane."""
    yield module_lane
    module_lane.undo()


def pytest_addoption(parser):
    parser.addoption("--print-transitions", action="store_true", help="print lease.transitions as transitions.txt has it")
