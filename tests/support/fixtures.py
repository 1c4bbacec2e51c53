"""Fixtures of tests on real parts: the system that `dev` started, and a place of its own for each test. A conftest.py puts this
folder on the path and imports everything here."""
import ctypes
import os
import pathlib
import re
import shutil
import signal

import pytest

import harness
from leasectl import small_topics

PR_SET_PDEATHSIG = 1
LOG_LINES = 60

# If ctest is ended, so are we, and the kernel then ends what we started.
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _given(name):
    value = os.environ.get(name)
    assert value, f"{name} is not set: run this through ./dev test, or tests/support/system.py run -- ..."
    return value


@pytest.fixture(scope="session")
def postgres():
    return harness.GivenPostgres(_given("LEASE_TEST_DATABASE"))


@pytest.fixture(scope="session")
def kafka():
    return harness.GivenKafka(_given("LEASE_TEST_BROKERS"))


@pytest.fixture(scope="session")
def build():
    return _given("LEASE_TEST_BIN")


def folder_of(request, build):
    """A folder for logs and files of one test (or of one file of tests), in the build folder. It stays for a look afterwards."""
    path = pathlib.Path(build) / "test-files" / re.sub(r"[^A-Za-z0-9_.-]+", "_", request.node.nodeid.split("/")[-1])
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


@pytest.fixture
def folder(request, build):
    return folder_of(request, build)


@pytest.fixture
def bare_place(postgres, kafka, build, folder):
    """A place whose database is empty and whose topics are not there yet."""
    place = harness.Place(postgres, kafka, build, folder)
    yield place
    place.close()
    for coordinator in place.coordinators:
        coordinator.assert_sane()


@pytest.fixture
def place(bare_place):
    """A place with tables and topics."""
    return bare_place.prepare()


@pytest.fixture
def small_place(bare_place):
    """The same with topics of few partitions, for tests to which their number is nothing: a second less for each."""
    bare_place.ctl("migrate")
    return small_topics(bare_place)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows the end of its coordinators' logs."""
    outcome = yield
    report = outcome.get_result()
    place = item.funcargs.get("bare_place") if hasattr(item, "funcargs") else None
    if report.failed and place is not None:
        for coordinator in place.coordinators:
            report.sections.append((f"log of {coordinator.child.name}", coordinator.child.log_tail(LOG_LINES)))
