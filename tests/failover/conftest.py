"""Fixtures of the failover tests: servers of each test's own, on the broker that `dev` started."""
import contextlib
import os
import pathlib
import shutil
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parent / "sql")]
sys.dont_write_bytecode = True

import client  # noqa: E402  (the path comes first)
import servers  # noqa: E402
import system  # noqa: E402
from fixtures import LOG_LINES, build, folder_of, kafka  # noqa: E402,F401


class World:
    """What one test has started. The servers' folders are short-lived, in /tmp: a socket's path has a limit."""

    def __init__(self, kafka, build, folder, servers_folder):
        self.kafka, self.build, self.folder, self.servers_folder = kafka, build, folder, servers_folder
        self.servers, self.places, self.clients = [], [], []

    def server_folder(self, name):
        return os.path.join(self.servers_folder, name)

    def server(self, name, **settings):
        """A server (started) of the test's own."""
        return self.keep(servers.Server(self.server_folder(name), settings)).start()

    def keep(self, server):
        self.servers.append(server)
        return server

    def follower(self, name, of):
        """A standby (started) called `name` of another server."""
        return self.keep(of.follower(name, self.server_folder(name)))

    def place(self, first, *others, **options):
        """A place on these servers: whoever may be written to."""
        made = client.make_place(servers.Servers(first, *others), self.kafka, self.build, self.folder, **options)
        self.places.append(made)
        return made

    def client(self, place):
        self.clients.append(client.Client(place))
        return self.clients[-1]

    def coordinators(self):
        return [coordinator for place in self.places for coordinator in place.coordinators]

    def close(self):
        for one in self.places:
            one.end()
        for one in self.clients:
            one.close()
        for server in self.servers:
            server.kill()
            shutil.copyfile(server.log, os.path.join(self.folder, f"{os.path.basename(server.folder)}.postgres.log"))
        for prefix in {place.prefix for place in self.places}:
            self.kafka.delete_topics({name for name in self.kafka.topics() if name.startswith(prefix)})
        for coordinator in self.coordinators():
            coordinator.assert_sane()


@contextlib.contextmanager
def _world(request, kafka, build):
    with system.temporary_folder(in_memory=True) as servers_folder:
        made = World(kafka, build, str(folder_of(request, build)), servers_folder)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def world(request, kafka, build):
    with _world(request, kafka, build) as made:
        yield made


@pytest.fixture(scope="module")
def shared_world(request, kafka, build):
    """One for all tests of a file."""
    with _world(request, kafka, build) as made:
        yield made


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows the end of its coordinators' logs."""
    outcome = yield
    report = outcome.get_result()
    arguments = getattr(item, "funcargs", {})
    made = arguments.get("world") or arguments.get("shared_world")
    if report.failed and made is not None:
        for coordinator in made.coordinators():
            report.sections.append((f"log of {coordinator.child.name}", coordinator.child.log_tail(LOG_LINES)))
