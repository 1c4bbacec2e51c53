# ctest: LABEL examples TIMEOUT 600 TAKES 40
"""The examples for other languages do what their README says, against the real system: what one language requests, another works on, and
every item is finished once. They are run as a reader would run them, not imported."""
import collections
import glob
import os
import re
import subprocess
import sys

import pytest

import books
from kafka import jars
from waiting import eventually

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(ROOT, "examples")


class Language:
    """How the three programs of a language are started."""

    def __init__(self, place, commands):
        self.place, self.commands = place, commands

    def start(self, program, *words):
        environment = dict(os.environ, **self.place.environment())
        return subprocess.Popen([*self.commands[program], *map(str, words)], env=environment, stdout=subprocess.PIPE, text=True)

    def run(self, program, *words):
        process = self.start(program, *words)
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0, said
        return said


@pytest.fixture(name="python")
def fixture_python(place):
    folder = os.path.join(EXAMPLES, "python")
    return Language(place, {name: [sys.executable, os.path.join(folder, f"{name}.py")] for name in ("producer", "results", "worker")})


@pytest.fixture(name="java")
def fixture_java(place, tmp_path):
    classes, kafka_jars = str(tmp_path / "classes"), jars()
    sources = glob.glob(os.path.join(EXAMPLES, "java", "*.java"))
    subprocess.run(["javac", "-Xlint:all", "-Werror", "-cp", f"{kafka_jars}/*", "-d", classes, *sources], check=True, timeout=120)
    start = ["java", "-Xmx128m", "-cp", f"{classes}:{kafka_jars}/*"]
    return Language(place, {name: [*start, name.capitalize()] for name in ("producer", "results", "worker")})


def finished_of(said):
    """'worker-1: 12 finished' → 12"""
    return int(re.search(r"(\d+) finished", said.splitlines()[-1])[1])


def test_what_one_language_requests_others_finish_once(place, python, java):
    place.coordinator().start()
    requesting = java.start("producer", "cleanup.request", *[f"j-{number}" for number in range(60)])      # takes seconds to start
    workers = [python.start("worker", "--kind", "cleanup", "--ttl", "30"), java.start("worker", "cleanup"),
               python.start("worker", "--kind", "cleanup", "--threads", "1", "--ttl", "30")]
    eventually(lambda: place.database.value("SELECT count(*) FROM lease.demands") == len(workers), 60, "each of them asks for items")
    python.run("producer", "cleanup.request", *[f"p-{number}" for number in range(60)])
    assert requesting.wait(120) == 0
    eventually(lambda: place.database.value("SELECT count(*) FROM lease.leases WHERE state = 'finished'") == 120, 90, "all are finished")
    for worker in workers:
        worker.terminate()      # it ends what it has in hand, and says what it did
    shares = [finished_of(worker.communicate(timeout=120)[0]) for worker in workers]
    assert [finished_of(python.run("worker", "--until-idle", "1")), finished_of(java.run("worker", "cleanup", "1"))] == [0, 0]
    place.wait_idle()
    answers = collections.Counter(place.database.query("SELECT subject FROM lease.timeline WHERE event = 'finished'"))
    assert len(answers) == 120 and set(answers.values()) == {1}
    assert sum(shares) == 120 and all(share > 0 for share in shares), f"each has a share: {shares}"
    for language in (python, java):
        said = language.run("results", *(["--until-idle", "5"] if language is python else ["5"]))
        assert finished_of(said) == 120
        assert len(re.findall(r"^\d+ finished cleanup/[pj]-\d+ fence \d+$", said, re.M)) == 120
    books.balance(books.collect(place))


def test_a_run_is_started_by_the_producer(place, python):
    place.coordinator().start()
    python.run("producer", "settlement.start", "run-1", "--data", '{"holder": "me", "resources": ["album/7"]}')
    place.wait_idle()
    assert re.search(r"^\d+ granted settlement/run-1 fence 1$", python.run("results", "--until-idle", "5"), re.M)
