"""The fixtures of tests/support/fixtures.py, and services that work with the library."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from fixtures import *  # noqa: E402,F401,F403  (the path comes first)
from probe import Probes  # noqa: E402


@pytest.fixture
def probes(place):
    """Starts worker_probe processes in this place; they end with the test."""
    started = Probes(place)
    yield started
    started.end()
