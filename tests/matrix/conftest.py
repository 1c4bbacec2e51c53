"""The fixtures of tests/support/fixtures.py."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
sys.dont_write_bytecode = True

from fixtures import *  # noqa: E402,F401,F403  (the path comes first)
