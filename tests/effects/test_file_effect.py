# ctest: LABEL effects,sanitize TIMEOUT 400 TAKES 30
"""The file effect on a real directory and a real PostgreSQL: killed at each named point, the successor does the rest; stopped at
each named point and woken up behind its successor, it changes nothing. In these tests a worker always takes the lease for its own:
what turns it away is the file's name and the gate.

What would go wrong: a file that is gone and was never settled, one that is settled twice, a name that comes back.
"""
import contextlib
import os
import signal
import socket
import subprocess
import time

import pytest

from fileserver import claim_of
from processes import is_stopped
from waiting import eventually

POINTS = ("effect.begun", "effect.renamed", "effect.settled", "effect.unlinked")
SIZE, OTHER = 1000, 77


class Worker:
    """The file effect under a grant, in a process of its own."""

    def __init__(self, build, files, file, fence, crash=None, claim_id=None, name=None, conninfo=None):
        self.crash_log = os.path.join(os.path.dirname(files.root), f"crashes.{fence}")
        environment = dict(os.environ, LEASE_CRASH_LOG=self.crash_log)
        environment.pop("LEASE_CRASH", None)
        if crash:
            environment["LEASE_CRASH"] = crash
        words = [f"{build}/file_effect_probe", files.root, conninfo or files.database.conninfo, file, str(fence),
                 claim_id or claim_of(fence)]
        self.process = subprocess.Popen(words + ([name] if name is not None else []), env=environment, stdout=subprocess.PIPE, text=True)

    def hit(self):
        with open(self.crash_log, encoding="ascii") as log:
            return log.read().split()

    def stopped(self):
        eventually(lambda: is_stopped(self.process.pid), 60, "the worker has stopped")
        return self

    def wake(self):
        self.process.send_signal(signal.SIGCONT)
        return self.answer()

    def answer(self):
        out, _ = self.process.communicate(timeout=60)
        return out.split()


@pytest.fixture(name="worker")
def fixture_worker(build, files):
    workers = []

    def make(*arguments, **options):
        workers.append(Worker(build, files, *arguments, **options))
        return workers[-1]

    yield make
    for worker in workers:
        worker.process.kill()
        worker.process.communicate()


@pytest.fixture(autouse=True)
def stored(files):
    files.add("f1", "a1", SIZE)
    files.add("f2", "a1", OTHER)


def assert_settled_once(files, missing=False):
    assert files.on_disk() == {"a1/f2.v0": OTHER}
    assert files.used("a1") == OTHER
    assert files.state("f1") == "deleted"
    assert [row[1:] for row in files.lifecycle("f1") if row[0] == "settled"] == [(files.database.value(
        "SELECT settled_by FROM fileserver.file WHERE file = 'f1'"), -SIZE, missing)]


def test_file_effect__removes_and_settles(files, worker):
    assert worker("f1", 5).answer() == ["removed", str(SIZE), "5"]
    assert_settled_once(files)
    assert files.lifecycle("f1") == [("stored", None, SIZE, False), ("begun", 5, 0, False), ("settled", 5, -SIZE, False)]


def test_file_effect__may_be_run_again_under_the_same_grant(files, worker):
    worker("f1", 5).answer()
    before = files.everything()
    assert worker("f1", 5).answer() == ["removed", str(SIZE), "5"]
    assert files.everything() == before


@pytest.mark.parametrize("folder_is_there", (True, False))
def test_file_effect__a_file_that_is_not_there_is_told_and_settled(files, worker, folder_is_there):
    os.unlink(f"{files.root}/a1/f1.v0")
    if not folder_is_there:
        os.rename(f"{files.root}/a1", f"{files.root}/../elsewhere")
        os.mkdir(f"{files.root}/a2")
    assert worker("f1", 5).answer() == ["missing", str(SIZE), "5"]
    if not folder_is_there:
        os.rename(f"{files.root}/../elsewhere", f"{files.root}/a1")
    assert_settled_once(files, missing=True)
    assert worker("f1", 6).answer() == ["missing", str(SIZE), "5"], "a successor says the same"


def test_file_effect__an_unknown_file_leaves_no_trace(files, worker):
    before = files.everything()
    assert worker("f3", 5).answer() == ["unknown", "0", "0"]
    assert files.everything() == before


def test_file_effect__an_empty_root_makes_no_file_missing(files, worker):
    """Nothing is mounted there: all files would be settled as missing, and still be there tomorrow."""
    os.rename(f"{files.root}/a1", f"{files.root}/../elsewhere")
    assert worker("f1", 5).answer() == ["fatal", "file_root_empty"]
    assert files.used("a1") == SIZE + OTHER and files.state("f1") == "deleting"
    os.rename(f"{files.root}/../elsewhere", f"{files.root}/a1")
    assert worker("f1", 6).answer() == ["removed", str(SIZE), "6"]


def test_file_effect__who_is_late_beneath_an_empty_root_is_stale(files, worker):
    """Its successor has removed the last file: that is no reason to doubt the root, and end the whole worker."""
    asleep = worker("f1", 5, crash="effect.begun:1:stop").stopped()
    assert worker("f1", 7).answer() == ["removed", str(SIZE), "7"]
    os.rename(f"{files.root}/a1", f"{files.root}/../elsewhere")
    assert asleep.wake()[0] == "stale"


def test_file_effect__a_file_that_stays_tells_an_empty_root_from_none(files, worker):
    os.rename(f"{files.root}/a1", f"{files.root}/../elsewhere")
    with open(f"{files.root}/.mounted", "w", encoding="ascii"):
        pass
    assert worker("f1", 5).answer() == ["missing", str(SIZE), "5"]


def test_file_effect__the_last_file_may_leave_an_empty_root(files, worker):
    worker("f1", 5, crash="effect.unlinked:1").process.wait(60)
    os.rename(f"{files.root}/a1", f"{files.root}/../elsewhere")
    assert worker("f1", 6).answer() == ["removed", str(SIZE), "5"]


@pytest.mark.parametrize("point", POINTS)
def test_file_effect__killed_at_a_point_is_completed_by_the_successor(files, worker, point):
    killed = worker("f1", 5, crash=f"{point}:1")
    killed.process.wait(60)
    assert killed.process.returncode == -signal.SIGKILL and killed.hit() == [point]
    verdict, size, settled_by = worker("f1", 7).answer()
    assert (verdict, size) == ("removed", str(SIZE)), "what a predecessor removed is not missing"
    assert settled_by == ("5" if point in ("effect.settled", "effect.unlinked") else "7")
    assert_settled_once(files)


def test_file_effect__each_of_several_successors_moves_the_file_on(files, worker):
    for fence, point in ((5, "effect.begun"), (6, "effect.renamed"), (8, "effect.begun"), (9, "effect.renamed"), (11, "effect.renamed")):
        worker("f1", fence, crash=f"{point}:1").process.wait(60)
    assert files.on_disk() == {"a1/f1.v0.~11": SIZE, "a1/f2.v0": OTHER}
    assert worker("f1", 12, crash="effect.settled:1").process.wait(60) == -signal.SIGKILL
    assert files.on_disk() == {"a1/f1.v0.~12": SIZE, "a1/f2.v0": OTHER}
    assert worker("f1", 20).answer() == ["removed", str(SIZE), "12"]
    assert_settled_once(files)


@pytest.mark.parametrize("point", POINTS)
def test_file_effect__woken_up_behind_its_successor_changes_nothing(files, worker, point):
    asleep = worker("f1", 5, crash=f"{point}:1:stop").stopped()
    assert worker("f1", 7).answer()[0] == "removed"
    before = files.everything()
    # Who had settled before it slept may say so; who had not is refused.
    assert asleep.wake()[0] == ("removed" if point in ("effect.settled", "effect.unlinked") else "stale")
    assert files.everything() == before
    assert_settled_once(files)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("progress", POINTS)
def test_file_effect__woken_up_beside_its_successor_changes_nothing(files, worker, point, progress):
    asleep = worker("f1", 5, crash=f"{point}:1:stop").stopped()
    successor = worker("f1", 7, crash=f"{progress}:1:stop").stopped()
    before = files.everything()
    asleep.wake()
    changed = files.everything()
    if (point, progress) == ("effect.begun", "effect.begun"):
        # The move was the older one's, before the younger one moved: allowed, and found.
        assert changed["disk"] == {"a1/f1.v0.~5": SIZE, "a1/f2.v0": OTHER}
        changed["disk"] = before["disk"]
    if (point, progress) == ("effect.settled", "effect.begun"):
        # It had settled and removes its own name, which nobody has moved on yet.
        assert changed["disk"] == {"a1/f2.v0": OTHER}
        changed["disk"] = before["disk"]
    assert changed == before
    assert successor.wake()[0] == "removed"
    assert_settled_once(files)


def test_file_effect__an_equal_fence_of_another_claim_is_refused(files, worker):
    worker("f1", 5, crash="effect.begun:1").process.wait(60)
    before = files.everything()
    assert worker("f1", 5, claim_id=claim_of(5, 1)).answer()[0] == "stale"
    assert files.everything() == before


def test_file_effect__a_database_that_is_away_is_to_be_tried_again(files, worker):
    before = files.everything()
    assert worker("f1", 5, conninfo="host=127.0.0.1 port=1 dbname=none").answer() == ["retry", "db_lost"]
    assert files.everything() == before


def test_file_effect__a_lock_is_waited_for_within_the_bound_of_a_call(files, worker, monkeypatch):
    """A worker with a short lease must not be silent for seconds."""
    monkeypatch.setenv("CALL_MS", "1000")
    with contextlib.closing(files.database.connect()) as holder, holder.cursor() as cursor:
        holder.autocommit = False
        cursor.execute("SELECT FROM fileserver.file WHERE file = 'f1' FOR UPDATE")
        begun = time.monotonic()
        assert worker("f1", 5).answer() == ["retry", "55P03"]
        assert time.monotonic() - begun < 6         # not given, the bound is 8 s
    assert worker("f1", 5).answer() == ["removed", str(SIZE), "5"]


WARNED = """
CREATE FUNCTION public.warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'canceling wait'; RETURN NULL; END $$;
CREATE TRIGGER warn AFTER UPDATE ON fileserver.file FOR EACH ROW WHEN (NEW.state = 'deleted') EXECUTE FUNCTION public.warn();
"""


def test_file_effect__a_settlement_with_a_warning_is_in_doubt(files, worker):
    """So ends a commit whose wait for the standby was cancelled. The name is not unlinked before it is surely settled."""
    files.database.query(WARNED)
    try:
        assert worker("f1", 5).answer() == ["retry", "file_store_in_doubt"]
        assert files.on_disk() == {"a1/f1.v0.~5": SIZE, "a1/f2.v0": OTHER}
    finally:
        files.database.query("DROP FUNCTION public.warn CASCADE")
    assert worker("f1", 5).answer() == ["removed", str(SIZE), "5"]
    assert_settled_once(files)


# ---- names ----


@pytest.mark.parametrize("name", ("/etc/passwd", "../f", "a1/../../f", "a1/..", "a1/.", ".", "..", "", "a1/", "a1//f1.v0", "/",
                                  "a1/f.~7", pytest.param("a1/" + "x" * 201, id="long")))
def test_file_root__a_name_that_is_no_path_beneath_the_root_is_refused(files, worker, name):
    before = files.everything()
    assert worker("f1", 5, name=name).answer() == ["reject", "file_name"]
    assert files.everything() == before


def test_file_root__links_are_refused(files, worker, folder):
    outside = folder / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"keep")
    os.symlink(outside, f"{files.root}/link")
    os.symlink(outside / "f", f"{files.root}/a1/link")
    os.symlink("f1.v0", f"{files.root}/a1/inside")
    os.symlink("/", f"{files.root}/top")
    for name in ("link/f", "a1/link", "a1/inside", "top/etc/passwd"):
        assert worker("f1", 5, name=name).answer() == ["reject", "file_link"], name
    assert (outside / "f").read_bytes() == b"keep"
    assert os.path.islink(f"{files.root}/a1/link") and os.path.islink(f"{files.root}/a1/inside")


def test_file_root__what_is_no_regular_file_is_refused(files, worker):
    os.mkdir(f"{files.root}/a1/folder")
    os.mkfifo(f"{files.root}/a1/pipe")
    listener = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(f"{files.root}/a1")       # a socket's path is short
    listener.bind("socket")
    os.chdir(here)
    for name in ("a1/folder", "a1/pipe", "a1/socket", "a1/f1.v0/f"):
        assert worker("f1", 5, name=name).answer() == ["reject", "file_not_regular"], name
    listener.close()


def test_file_root__a_link_in_the_files_place_is_left_alone(files, worker, folder):
    """Also through the database: the item is refused, nothing is settled."""
    (folder / "precious").write_bytes(b"keep")
    os.unlink(f"{files.root}/a1/f1.v0")
    os.symlink(folder / "precious", f"{files.root}/a1/f1.v0")
    assert worker("f1", 5).answer() == ["reject", "file_link"]
    assert (folder / "precious").read_bytes() == b"keep" and files.used("a1") == SIZE + OTHER


def test_file_root__a_root_that_is_not_there_is_fatal(files, worker):
    os.rename(files.root, files.root + ".away")
    assert worker("f1", 5).answer() == ["fatal", "file_root"]
