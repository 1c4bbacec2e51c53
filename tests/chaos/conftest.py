"""The fixtures of tests/support/fixtures.py, and the way to the broker that can be cut."""
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
for folder in ("worker", "support", "chaos"):
    sys.path.insert(0, str(TESTS / folder))
sys.dont_write_bytecode = True

from fixtures import *  # noqa: E402,F401,F403  (the path comes first)
