"""docker-compose.yml, unchanged, on an engine of the test's own: up, down, and what its containers say."""
import json
import os
import shutil
import subprocess

from processes import find_program, run
from waiting import eventually

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What is no part of the sources: it would only make the copy large, or is somebody's secret.
LEFT_OUT = shutil.ignore_patterns(".git", ".cache", "build*", "secrets", "__pycache__", ".pytest_cache", "worktrees")


def copy_project(folder):
    """A copy of the sources with secrets of its own, so that those of the developer stay as they are."""
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT, symlinks=True)
    run([f"{folder}/deploy/make-secrets"])
    return folder


class Stack:
    def __init__(self, engine, project):
        self.engine = engine
        self.project = project

    def _command(self, words):
        return [find_program("docker-compose", "/usr/bin"), "--project-directory", self.project,
                "--file", f"{self.project}/docker-compose.yml", "--project-name", "leasehold", "--ansi", "never", *words]

    def compose(self, *words, limit=180):
        """Runs docker-compose and returns what it printed; raises with that when it fails."""
        return run(self._command(words), env=self.engine.environment, limit=limit)

    def up(self):
        self.compose("up", "--detach", limit=400)

    def down(self):
        self.compose("down", "--volumes", "--remove-orphans")

    def container(self, service):
        """The id of the service's container, also of one that has ended."""
        return self.engine.docker("ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.service={service}")

    def inspect(self, service):
        return json.loads(self.engine.docker("inspect", self.container(service)))[0]

    def is_healthy(self, service):
        return self.inspect(service)["State"]["Health"]["Status"] == "healthy"

    def wait_healthy(self, *services, limit):
        for service in services:
            eventually(lambda: self.is_healthy(service), limit, f"{service} is healthy", every=0.5)

    def run_in(self, service, *words, limit=90):
        """Runs a command in the service's container; returns (exit code, standard output)."""
        done = subprocess.run(self.engine.command("exec", self.container(service), *words), env=self.engine.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit)
        if done.stderr:
            print(done.stderr.decode("utf-8", "replace"), end="")
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def tell_state(self):
        """For a failure: what runs, and the end of every log."""
        print(self.compose("ps"))
        print(self.compose("logs", "--no-color", "--tail=40"))
