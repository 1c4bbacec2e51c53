# ctest: LABEL dev TIMEOUT 400 TAKES 20
"""What `dev` promises: whatever it started is gone afterwards, however it ended; packages that are missing are named; a
fetch of the Kafka jars that was cut off is repeated."""
import glob
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

import kafka as kafka_module
from processes import command_line, descendants, is_gone
from system import data_parent
from waiting import eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
SYSTEM = [sys.executable, str(ROOT / "tests/support/system.py")]


@pytest.fixture
def data_folder():
    """In memory, where there is plenty; PostgreSQL's account gets in."""
    with tempfile.TemporaryDirectory(prefix="dev-", dir=data_parent(in_memory=True)) as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(folder)


@pytest.fixture(params=["database,broker"])
def running(data_folder, request):
    """A system with a command that leaves a process in a session of its own; and the ids of all that runs."""
    said = data_folder / "said"
    script = "setsid sleep 999 & echo ready; exec sleep 998"
    environment = dict(os.environ, TMPDIR=str(data_folder), PYTHONUNBUFFERED="1")
    with open(said, "wb") as out:
        process = subprocess.Popen([*SYSTEM, "--parts", request.param, "run", "--", "sh", "-c", script], stdout=out, stderr=out, env=environment,
                                   start_new_session=True)
    eventually(lambda: b"ready" in said.read_bytes() or process.poll() is not None, 120, "the system is up")
    assert process.poll() is None, said.read_text()
    eventually(lambda: len([1 for pid in descendants(process.pid) if "sleep" in command_line(pid)]) >= 2)
    yield process, descendants(process.pid), data_folder
    if process.poll() is None:
        process.kill()
    process.wait()


def assert_gone(pids):
    eventually(lambda: all(is_gone(pid) for pid in pids), 60,
               "everything that was started has ended", every=0.05)


@pytest.mark.parametrize("number, running", [(signal.SIGINT, "database,broker"), (signal.SIGTERM, "database"),
                                             (signal.SIGHUP, "database")], indirect=["running"])
def test_stopped_by_signal__leaves_no_process_and_no_file(running, number):
    process, pids, folder = running
    assert len(pids) >= 5, [command_line(pid) for pid in pids]
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert all(is_gone(pid) for pid in pids), [command_line(pid) for pid in pids if not is_gone(pid)]
    assert not glob.glob(f"{folder}/leasehold-*")


def test_killed__servers_and_command_go_too(running):
    process, pids, _folder = running
    orphan = [pid for pid in pids if command_line(pid) == "sleep 999"]
    process.kill()
    process.wait()
    assert_gone(set(pids) - set(orphan))
    for pid in orphan:      # nobody was left to end it: it is a stranger's program by now
        os.kill(pid, signal.SIGKILL)


def test_jars__a_fetch_that_was_cut_off_is_repeated(tmp_path, monkeypatch):
    whole = kafka_module.jars()
    programs = tmp_path / "bin"
    programs.mkdir()
    maven = programs / "mvn"
    maven.write_text(f'#!/bin/sh\nfor word; do case $word in -DoutputDirectory=*) cp {whole}/*.jar "${{word#*=}}";; esac; done\n'
                     f"echo fetched >>{tmp_path}/fetches\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("LEASE_CACHE", str(tmp_path / "cache"))

    def fetches():
        return len((tmp_path / "fetches").read_text().splitlines())

    folder = kafka_module.jars()
    assert fetches() == 1 and kafka_module.jars() == folder and fetches() == 1
    some_jar = sorted(glob.glob(f"{folder}/*.jar"))[0]
    with open(some_jar, "r+b") as jar:
        jar.truncate(1000)
    assert kafka_module.jars() == folder and fetches() == 2
    os.unlink(some_jar)
    kafka_module.jars()
    os.unlink(os.path.join(folder, kafka_module.SUMS))
    kafka_module.jars()
    assert fetches() == 4
    assert not glob.glob(f"{tmp_path}/cache/fetch-*")
    shutil.rmtree(tmp_path / "cache")


def run_dev(tmp_path, *words, **programs):
    """Runs dev with stand-ins for some programs, each a line of shell."""
    folder = tmp_path / "programs"
    folder.mkdir(exist_ok=True)
    for name, line in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    environment = dict(os.environ, PATH=f"{folder}:/usr/bin:/bin:/usr/sbin")
    return subprocess.run([str(ROOT / "dev"), *words], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)


def test_missing_packages__are_named_in_one_line_to_who_is_not_root(tmp_path):
    said = run_dev(tmp_path, "build", dpkg_query="exit 1", id="echo 1000")
    assert said.returncode == 69
    line = said.stdout.splitlines()[-1]
    assert line.startswith("sudo apt-get install -y") and "librdkafka-dev" in line and "python3-confluent-kafka" in line
    assert "libpq-dev" in line and "maven" not in line, "a program that is there needs no package"


@pytest.mark.parametrize("words, told", [
    (("dance",), "unknown command dance"),
    (("test", "--speed"), "unknown option --speed"),
    (("demo", "now"), "unexpected word: now"),
    (("up", "--env"), "--env needs a value"),
])
def test_wrong_use__is_told_with_code_64(tmp_path, words, told):
    said = run_dev(tmp_path, *words)
    assert said.returncode == 64 and told in said.stderr


def test_help__names_every_command(tmp_path):
    said = run_dev(tmp_path, "help")
    assert said.returncode == 0
    for command in ("demo", "test", "up", "bench", "build"):
        assert f"./dev {command}" in said.stdout
