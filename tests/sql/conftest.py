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
def fixture_lane(new_lane):
    return new_lane()


@pytest.fixture(scope="module", name="module_lane")
def fixture_module_lane(server, template):
    database = server.create_database("lease_sql", template=template.name)
    lane = rules.Lane(database.conninfo)
    yield lane
    lane.close()
    database.drop()


@pytest.fixture(name="undone_lane")
def fixture_undone_lane(module_lane):
    """A lane in one transaction that is rolled back at the end: quick, for tests that need no second lane."""
    module_lane.commit = lambda: None
    yield module_lane
    module_lane.rollback()


def pytest_addoption(parser):
    parser.addoption("--print-transitions", action="store_true", help="print lease.transitions as transitions.txt has it")
