# ctest: LABEL fault TIMEOUT 400 TAKES 20 BUSY
"""The coordinator is killed with SIGKILL at the named points that lie off the way of a message: while it takes partitions, gives
them up, ends, comes back to its database, follows the server to another timeline, or turns a lapse over. Each is provoked under
a mixed load; afterwards every message has one answer.

What would go wrong: a half-taken partition, a revoked one whose offsets are out but whose lanes are not done, a jump that is
made once more or not at all, a lapse that nobody turns over since the one who saw it died.
"""
import json
import time

from crew import Crew, owns_all
from waiting import eventually

EVERYBODY_ELSE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"

TRIES = 5


class Killed:
    """Two coordinators under a load; each dies at a point that was armed."""

    def __init__(self, place):
        self.place = place
        self.crew = Crew(place)
        self.hit = []
        self.begun = time.monotonic()

    def armed(self, coordinator, point, passage=1, wait=True):
        """Starts it; it is to die at the point."""
        self.crew.killed.add(coordinator)
        return coordinator.start(crash=f"{point}:{passage}", wait=wait)

    def start(self, coordinator):
        """Starts it; it is to live."""
        self.crew.killed.discard(coordinator)
        coordinator.start()

    def has_all(self, coordinator, point=None):
        """Waits until it has all partitions. If the machine stands still for longer than its session or its transaction may, it comes past a point
        that it is armed with before: then it is armed again."""
        for _ in range(TRIES):
            self.crew.send_until(lambda: not coordinator.child.is_running() or owns_all(coordinator), what=f"{coordinator.name} has all partitions")
            if coordinator.child.is_running() or point is None:
                break
            self.must_have_died(coordinator, point)
            self.armed(coordinator, point, wait=False)
        assert coordinator.child.is_running(), f"{coordinator.name} ended:\n{coordinator.child.log_tail()}"

    def died_at(self, coordinator, point):
        """The load goes on until it is dead, by that point."""
        self.crew.send_until(lambda: not coordinator.child.is_running(), what=f"{coordinator.name} dies at {point}")
        self.must_have_died(coordinator, point)
        self.hit.append(point)
        print(f"{point}: {time.monotonic() - self.begun:.1f} s")

    def must_have_died(self, coordinator, point):
        assert coordinator.child.returncode() == -9 and coordinator.crashes()[-1:] == [point], (
            f"{coordinator.child.returncode()} at {coordinator.crashes()}:\n{coordinator.child.log_tail()}")


def kill_while_it_takes_partitions(killed, first):
    """The taking is committed partition by partition; the records before the offsets are compared in one round."""
    first.start()
    killed.crew.send(1000)
    assert first.stop()
    for point, passage in (("assign.offset_read", 5), ("assign.fingerprint_checked", 1)):
        killed.armed(first, point, passage, wait=False)
        killed.died_at(first, point)


def kill_while_it_turns_a_lapse_over(killed, first):
    """The turn is not committed: the next one sees the lapse again, and once."""
    killed.armed(first, "reaper.picked", 3, wait=False)
    killed.died_at(first, "reaper.picked")


def kill_while_it_gives_partitions_up(killed, first, second):
    """The second comes, and the first dies while it gives up all; the first comes back, and so does the second."""
    killed.armed(first, "revoke.enter", wait=False)
    killed.has_all(first, "revoke.enter")
    killed.armed(second, "revoke.drained", wait=False)
    killed.died_at(first, "revoke.enter")
    killed.has_all(second, "revoke.drained")
    killed.armed(first, "shutdown.drain", wait=False)
    killed.died_at(second, "revoke.drained")
    killed.has_all(first)


def kill_while_it_ends(killed, first):
    """Armed by the step before."""
    first.child.signal(first.child.stop_signal)
    killed.died_at(first, "shutdown.drain")


def kill_when_its_database_is_back(killed, first):
    """The lane has something in hand then that it has sent before."""
    killed.armed(first, "reconnect.after", wait=False)
    killed.has_all(first, "reconnect.after")
    killed.place.database.query(EVERYBODY_ELSE, (killed.place.database.name,))
    killed.died_at(first, "reconnect.after")


def kill_when_it_has_jumped(killed, first):
    """As after a failover: the database remembers another timeline than the server's. The jump is committed, and must not be made twice."""
    killed.place.database.query("UPDATE lease.identity SET timeline = timeline + 7")
    killed.armed(first, "fence.jumped", wait=False)
    killed.died_at(first, "fence.jumped")
    killed.start(first)
    assert killed.place.database.value("SELECT count(*) FROM lease.timeline WHERE event = 'jumped'") == 1


def test_killed_at_every_other_point__the_books_balance(place):
    killed = Killed(place)
    first, second = (killed.crew.coordinator(batch_messages=200) for _ in range(2))
    kill_while_it_takes_partitions(killed, first)
    kill_while_it_turns_a_lapse_over(killed, first)
    kill_while_it_gives_partitions_up(killed, first, second)
    kill_while_it_ends(killed, first)
    kill_when_its_database_is_back(killed, first)
    kill_when_it_has_jumped(killed, first)
    killed.crew.send(1000)
    figures = killed.crew.balance()
    eventually(lambda: place.database.value("SELECT count(*) FROM lease.leases WHERE condition = 'lapsed'") == 0, 60,
               "every lapse is turned over")
    print(f"{len(killed.hit)} kills at {killed.hit};", json.dumps(figures))
