"""Processes of the reference worker, lease-worker, in a place.

    one = LeaseWorker(place, "w1", "cleanup", files=files, ttl_ms=1500).start(crash="effect.renamed:20")
    one.suspend(), one.resume(), one.kill(), one.stop()
"""
import os
import signal

from processes import Child, is_stopped
from waiting import eventually


class LeaseWorker:
    """One worker, started as often as the test likes. `settings` are its configuration keys."""

    def __init__(self, place, name, kind, files=None, **settings):
        values = {"kind": kind, "name": name, "brokers": place.kafka.brokers, "topic_prefix": place.prefix, "log_level": "debug"}
        if files is not None:
            values.update(file_root=files.root, file_database=files.database.conninfo)
        values.update(settings)
        environment = {f"LEASE_{key.upper()}": str(value) for key, value in values.items()}
        self.name = name
        self.crash_log = os.path.join(place.folder, f"{name}.crashes")
        environment["LEASE_CRASH_LOG"] = self.crash_log
        self.child = Child(f"worker {name}", [place.program("lease-worker")], os.path.join(place.folder, f"{name}.log"),
                           env=environment)
        self.log_start = 0

    def start(self, crash=None, wait=True):
        self.child.env.pop("LEASE_CRASH", None)
        if crash:
            self.child.env["LEASE_CRASH"] = crash
        self.log_start = os.path.getsize(self.child.log) if os.path.exists(self.child.log) else 0
        self.child.start()
        if wait:
            self.wait_started()
        return self

    def wait_started(self):
        eventually(lambda: self.child.must_run() or "event=started" in self.log(), 60, f"{self.name} has started")

    def log(self):
        """What it said since its last start."""
        with open(self.child.log, encoding="utf-8", errors="replace") as log:
            log.seek(self.log_start)
            return log.read()

    def crashes(self):
        if not os.path.exists(self.crash_log):
            return []
        with open(self.crash_log, encoding="ascii") as log:
            return log.read().split()

    def died_at(self, point, limit=60):
        """Waits until it is dead, by that point."""
        eventually(lambda: not self.child.is_running(), limit, f"{self.name} dies at {point}")
        assert self.child.returncode() == -signal.SIGKILL and self.crashes()[-1:] == [point], (
            f"{self.name} ended with {self.child.returncode()} at {self.crashes()}:\n{self.child.log_tail()}")

    def is_suspended(self):
        self.child.must_run()
        return is_stopped(self.child.pid)

    def stopped_at(self, point, limit=60):
        """Waits until it stands still, by that point."""
        eventually(self.is_suspended, limit, f"{self.name} stops at {point}")
        assert self.crashes()[-1:] == [point]

    def suspend(self):
        self.child.signal(signal.SIGSTOP)

    def resume(self):
        self.child.signal(signal.SIGCONT)

    def kill(self):
        self.child.kill()

    def stop(self, limit=40):
        """Drains. True if that ended it in time and in order."""
        return self.child.stop(limit) and self.child.returncode() == 0
