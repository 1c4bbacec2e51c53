"""The fixtures of tests/support/fixtures.py, and the royalty tables in the coordinator's own database, one for each file of tests."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
sys.dont_write_bytecode = True

import pytest  # noqa: E402

import harness  # noqa: E402
from fixtures import *  # noqa: E402,F401,F403  (the path comes first)
from fixtures import folder_of  # noqa: E402
from leasectl import small_topics  # noqa: E402
from royalty import LeaseRoyalty, Royalty  # noqa: E402


class Office:
    """A coordinator, the royalty tables in its database, and runs that end with the test."""

    def __init__(self, place):
        self.place = place
        self.royalty = Royalty(place.database).load().load()      # a second time: it must be loadable again
        self.runs = []

    def run(self, settlement, **settings):
        one = LeaseRoyalty(self.place, self.royalty, settlement, **settings)
        self.runs.append(one)
        return one

    def end_runs(self):
        for run in self.runs:
            run.kill()


@pytest.fixture(scope="module", name="office_of_file")
def fixture_office_of_file(postgres, kafka, build, request):
    place = harness.Place(postgres, kafka, build, folder_of(request, build))
    try:
        place.ctl("migrate")
        small_topics(place)
        place.coordinator().start()
        yield Office(place)
    finally:
        place.close()


@pytest.fixture
def office(office_of_file):
    yield office_of_file
    office_of_file.end_runs()
