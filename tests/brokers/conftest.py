"""The fixtures of tests/support/fixtures.py, and a cluster of three brokers for the tests of one file."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
sys.dont_write_bytecode = True

import pytest  # noqa: E402  (the path comes first)

from fixtures import *  # noqa: E402,F401,F403
from harness import Place  # noqa: E402
from kafka_cluster import Cluster  # noqa: E402
from leasectl import small_topics  # noqa: E402
from system import temporary_folder  # noqa: E402


@pytest.fixture(name="cluster", scope="module")
def fixture_cluster(build):
    with temporary_folder(in_memory=True) as folder:
        cluster = Cluster(folder)
        try:
            yield cluster.start()
        finally:
            cluster.stop()
            cluster.keep_logs(build)


@pytest.fixture(name="bare_wide_place")
def fixture_bare_wide_place(postgres, cluster, build, folder):
    """A place on the cluster that has tables and no topics yet."""
    cluster.heal()
    place = Place(postgres, cluster, build, folder)
    place.ctl("migrate")
    yield place
    cluster.heal()
    place.close()


@pytest.fixture(name="wide_place")
def fixture_wide_place(bare_wide_place):
    """With topics of three partitions, each in three copies."""
    return small_topics(bare_wide_place, copies=3)
