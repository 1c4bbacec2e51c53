"""The fixtures of tests/support/fixtures.py, and services that work with the library."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from fixtures import *  # noqa: E402,F401,F403  (the path comes first)
from broker_link import BrokerLink  # noqa: E402
from probe import Probes  # noqa: E402


@pytest.fixture
def place(small_place):
    return small_place


@pytest.fixture
def probes(place):
    """Starts worker_probe processes in this place; they end with the test."""
    started = Probes(place)
    yield started
    started.end()


@pytest.fixture
def broker_link(place, tmp_path):
    """A way to the broker that can be cut, for one probe."""
    if os.geteuid() != 0:
        pytest.skip("a network of its own needs root")
    link = BrokerLink(place.kafka.brokers, str(tmp_path / "broker"))
    yield link
    link.close()
