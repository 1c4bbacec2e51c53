"""The schemas, and a probe that prints what the C code makes of messages."""
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from schemas import Schemas  # noqa: E402  (the path comes first)


def pytest_addoption(parser):
    seed = int(os.environ.get("LEASE_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10 ** 6)
    parser.addoption("--count", type=int, default=4000, help="messages at random")
    parser.addoption("--seed", type=int, default=seed)


@pytest.fixture(scope="session")
def schemas():
    return Schemas()


class Probe:
    def __init__(self, path):
        self.path = path

    def run(self, mode, lines=()):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        done = subprocess.run([self.path, mode], input=text, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def decode(self, messages):
        return self.run("event", [_message(*message) for message in messages])


def _hex(value):
    if value is None:
        return None
    return (value if isinstance(value, bytes) else value.encode()).hex()


def _message(key, value, headers=()):
    return {"key": _hex(key), "value": _hex(value), "headers": [[name, _hex(data)] for name, data in headers]}


@pytest.fixture(scope="session")
def probe():
    path = os.environ.get("LEASE_MESSAGE_PROBE")
    assert path, "LEASE_MESSAGE_PROBE is not set: run this through ctest -L messages"
    return Probe(path)
