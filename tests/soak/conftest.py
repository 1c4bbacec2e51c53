"""The fixtures of tests/support/fixtures.py, and the folders that the soak takes its parts from."""
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
for name in ("worker", "chaos", "support", "soak"):
    sys.path.insert(0, str(TESTS / name))
sys.dont_write_bytecode = True

from fixtures import *  # noqa: E402,F401,F403  (the path comes first)
