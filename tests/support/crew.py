"""Several coordinators in one group that come and go while a load runs, and what the books need to know of it."""
import os

import books
from load import Load
from place import INPUTS
from waiting import eventually

SEED = int(os.environ.get("LEASE_TEST_SEED", "41"))
PARTITIONS = 12 * len(INPUTS)
HALF = PARTITIONS // 2
CHUNK = 250
TRICKLE = 20


def settings_of(place, **more):
    """The shortest session that the broker admits: others take over, and the fault passes, as soon as can be."""
    return dict({"session_timeout_ms": max(1000, place.kafka.session_timeout_min_ms())}, **more)


class Crew:
    """A load on one place and the coordinators that work it off."""

    def __init__(self, place, seed=SEED, backlog=3000):
        print(f"seed {seed} (LEASE_TEST_SEED)")
        self.place = place
        self.load = Load(place, seed)
        self.backlog = backlog      # messages sent and not consumed yet, at most
        self.samples = []           # of the consumed offsets, for the books
        self.leaving = []
        self.killed = set()

    def coordinator(self, **settings):
        return self.place.coordinator(**settings_of(self.place, **settings))

    def _keeps_up(self):
        for coordinator in self.place.coordinators:
            code = coordinator.child.returncode()
            assert code in (None, 0) or coordinator in self.killed, (
                f"{coordinator.name} ended by itself with {code}:\n{coordinator.child.log_tail()}")
        consumed = self.place.consumed()
        self.samples.append(consumed)
        return self.load.sent - sum(consumed.values()) < self.backlog

    def send(self, count, limit=120):
        """Sends so many commands, as fast as they are consumed."""
        upto = self.load.sent + count
        while self.load.sent < upto:
            self.load.send(CHUNK)
            eventually(self._keeps_up, limit, "the coordinators keep up", every=0.05)

    def send_until(self, condition, limit=120, what="the condition"):
        """Sends a trickle of commands until the condition holds."""
        def holds():
            if self._keeps_up():
                self.load.send(TRICKLE)
            return condition()

        eventually(holds, limit, what, every=0.02)

    def kill(self, coordinator):
        """SIGKILL."""
        self.killed.add(coordinator)
        coordinator.kill()

    def begin_stop(self, coordinator):
        """SIGTERM; the load goes on meanwhile. end_stops() sees to it that it ended well."""
        coordinator.child.signal(coordinator.child.stop_signal)
        self.leaving.append(coordinator)

    def end_stops(self, limit=60):
        for coordinator in self.leaving:
            eventually(lambda c=coordinator: not c.child.is_running(), limit, f"{coordinator.name} ends")
            assert coordinator.child.returncode() == 0, f"{coordinator.name}:\n{coordinator.child.log_tail()}"
        self.leaving.clear()

    def balance(self, limit=120):
        """Waits until all is consumed and published, and checks the books."""
        self.place.wait_idle(limit)
        texts = {f"the log of {c.name}": c.log_text() for c in self.place.coordinators if c.child.process is not None}
        figures = books.balance(books.collect(self.place, self.samples, texts=texts))
        assert figures["answers"] == figures["messages"] >= self.load.sent
        return figures


def owns_all(coordinator, partitions=PARTITIONS):
    """All partitions are assigned to it, and it has taken them in the database too."""
    if coordinator.metric("lease_partitions_assigned") != partitions:
        return False
    owners = coordinator.place.database.query("SELECT DISTINCT owner FROM lease.partitions")
    return [owner.endswith(f"-{coordinator.name}") for owner, in owners] == [True]
