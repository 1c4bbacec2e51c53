"""The fixtures of tests/support/fixtures.py, and a file server of each test's own."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
sys.dont_write_bytecode = True

import pytest  # noqa: E402

from fileserver import FileServer  # noqa: E402
from fixtures import *  # noqa: E402,F401,F403  (the path comes first)


@pytest.fixture(scope="module", name="files_database")
def fixture_files_database(postgres, tmp_path_factory):
    database = postgres.create_database("files")
    FileServer(database, tmp_path_factory.mktemp("root")).load().load()      # a second time: it must be loadable again
    yield database
    database.drop()


@pytest.fixture(name="files")
def fixture_files(files_database, folder):
    files = FileServer(files_database, folder / "root")
    files.forget_all()
    files.open_account("a1")
    return files
