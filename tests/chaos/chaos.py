"""A file server's cleanup under faults that come at random, and people who do what they must not.

    storm = Storm(place, files, chance)
    storm.start(workers=8)
    storm.run(items, seconds)         # requests the items meanwhile
    storm.heal()                      # everything is back
    storm.settle(limit)
    storm.check()

The faults: a worker is killed, is stopped beyond its lease and continued, is cut off from the broker; all connections to the file server's
database are cut; a coordinator is killed or stopped in order; each comes back after a while. The people: a Latecomer, who goes on under
every grant that was replaced, without asking whether it still has it, and a Forger, who has a grant and no token.
"""
import collections
import contextlib
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time

import psycopg2

import books
import books_files
from broker_link import BrokerLink
from grants import Grants
from processes import command_line, descendants
from waiting import NotYet, eventually, pause
from workers import LeaseWorker

KIND = "cleanup"
TTL_MS = 1500
CUT_OFF = 2            # workers in networks of their own, whose way to the broker can be cut
AFFLICTED_MAX = 4      # workers in trouble at a time: somebody must get on
PAUSE_S = (0.05, 0.6)  # between faults
STILL_S = 2 * TTL_MS / 1000      # whoever was stopped has been replaced by then
REMEMBERED = 20_000    # grants, of which some come late and some are forged
ENDED = "SELECT count(*) FROM lease.leases WHERE kind = 'cleanup' AND state IN ('finished', 'failed', 'dead')"


class LinkedWorker(LeaseWorker):
    """One in a network of its own: no port of this machine but the broker's, and that through a link."""

    def __init__(self, place, name, files, link, **settings):
        super().__init__(place, name, KIND, files, **settings)
        self.link = link
        self.child.argv = [*link.prefix, *self.child.argv]

    def stop(self, limit=40):
        """The signal is for the worker itself, which ends behind those who made its network."""
        inner = [pid for pid in descendants(self.child.pid) if "apart.py" not in command_line(pid)]
        for pid in inner:
            os.kill(pid, signal.SIGTERM)
        return self.child.wait(limit) == 0


class Onlooker:
    """Reads lease.grants, as somebody who should not, and does something with what is there, in a thread."""

    def __init__(self, place, chance):
        self.place, self.chance = place, chance
        self.grants = Grants(place, KIND, REMEMBERED)
        self.events = place.events()
        self.replaced = []
        self.tried = 0
        self.error = None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            while not self.is_over.is_set():
                self.replaced += self.grants.read(0.1)
                self.act()
                self.events.flush()
            self.last_act()
            self.events.flush()
        except Exception as problem:  # pylint: disable=broad-except  # end() raises it
            self.error = problem

    def end(self):
        self.is_over.set()
        self.thread.join(120)
        assert not self.thread.is_alive(), "the last word takes too long"
        if self.error:
            raise self.error

    def say(self, command, grant, **other):
        holder = {name: grant[name] for name in ("holder", "fence", "claim_id", "token")}
        self.events.send(KIND, command, grant["lease"], {**holder, **other})
        self.tried += 1

    def act(self):
        raise NotImplementedError

    def last_act(self):
        """When everything else is at rest."""


class Forger(Onlooker):
    """Ends what others hold: with their fence and claim id, and a token that is another's or made up."""

    def act(self):
        known = list(self.grants.newest.values())
        for grant in self.chance.sample(known, min(3, len(known))):
            self.say("finish", grant, token=secrets.token_hex(32), result={"file": "forged"})
            others = [one["token"] for one in self.chance.sample(known, min(2, len(known))) if one is not grant]
            self.say("release", grant, token=others[0] if others else secrets.token_hex(32))
        pause(0.05)


class Latecomer(Onlooker):
    """Wakes up under grants that were replaced and goes on as if nothing had happened: at the file server, and with a finish. (Where
    its successor has not been at the gate yet, it is let in; that is no harm.) It does so a second time when all the work is done."""

    def __init__(self, place, files, chance):
        self.conninfo = files.database.conninfo
        self.connect()
        self.refused = collections.Counter()
        self.woken = []
        super().__init__(place, chance)

    def connect(self):
        self.connection = psycopg2.connect(self.conninfo, application_name="latecomer")
        self.connection.autocommit = True

    def act(self):
        late, self.replaced = self.replaced, []
        self.woken += late
        self.wake_up(late)

    def last_act(self):
        self.wake_up(self.woken)

    def wake_up(self, late):
        for grant in late:
            eventually(lambda grant=grant: self.has_knocked(grant), 60, "the file server's database answers")
            self.say("renew", grant)
            self.say("finish", grant, result={"file": "late"})

    def has_knocked(self, grant):
        """False: the connection was cut, and is there again."""
        who = (grant["lease"], grant["fence"], grant["claim_id"])
        try:
            with self.connection.cursor() as cursor:
                cursor.execute("SELECT verdict FROM fileserver.begin_cleanup(%s, %s, %s)", who)
                self.refused[cursor.fetchone()[0]] += 1
                cursor.execute("SELECT verdict FROM fileserver.settle_cleanup(%s, %s, %s, false)", who)
                self.refused[cursor.fetchone()[0]] += 1
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            with contextlib.suppress(psycopg2.OperationalError):
                self.connect()
            return False
        return True


class Storm:
    def __init__(self, place, files, chance):
        self.place, self.files, self.chance = place, files, chance
        self.workers, self.links, self.coordinators, self.people = [], [], [], []
        self.latecomer = self.forger = None
        self.sockets = tempfile.mkdtemp(prefix="lease-")       # a socket's path must be short
        self.unfenced = set()
        self.afflicted = {}            # worker → (when, what makes it well)
        self.faults = collections.Counter()

    # ---- what is there ----

    def start(self, workers=8, coordinators=2, people=True, worker_environment=None):
        sessions = {"session_timeout_ms": max(1000, self.place.kafka.session_timeout_min_ms())}
        self.coordinators = [self.place.coordinator(**sessions) for _ in range(coordinators)]
        for coordinator in self.coordinators:
            coordinator.start()
        settings = {"ttl_ms": TTL_MS, "concurrency": 2, "credit": 20}
        sockets = self._socket_conninfo() if os.geteuid() == 0 else None
        for number in range(workers):
            name = f"w{number + 1}"
            if sockets and number < CUT_OFF and workers > CUT_OFF:
                link = BrokerLink(self.place.kafka.brokers, os.path.join(self.sockets, name))
                self.links.append(link)
                worker = LinkedWorker(self.place, name, self.files, link, **settings, file_database=sockets)
            else:
                worker = LeaseWorker(self.place, name, KIND, self.files, **settings)
            worker.child.env.update(worker_environment or {})
            self.workers.append(worker.start())
        if people:
            self.latecomer, self.forger = Latecomer(self.place, self.files, self.chance), Forger(self.place, self.chance)
            self.people = [self.latecomer, self.forger]

    def _socket_conninfo(self):
        """The file server's database by its Unix socket: a network of its own has no way to the port. None if there is none."""
        folder = self.files.database.value("SELECT split_part(current_setting('unix_socket_directories'), ',', 1)").strip()
        conninfo = psycopg2.extensions.make_dsn(self.files.database.conninfo, host=folder) if folder else None
        try:
            psycopg2.connect(conninfo).close()
            return conninfo
        except (psycopg2.OperationalError, TypeError):
            return None

    def close(self):
        for one in self.people:
            one.is_over.set()
            one.thread.join(30)
        for worker in self.workers:
            worker.kill()
        for link in self.links:
            link.close()
        shutil.rmtree(self.sockets)

    def add_unfenced(self, count):
        """Items that somebody claimed before fencing: in progress, with no expiry. Nobody knows what became of them."""
        names = [f"old-{number}" for number in range(count)]
        self.files.add_many([(name, "a0", 777) for name in names])
        for name in names:
            self.place.database.query("INSERT INTO lease.lease (kind, lease, state, holder, attempt) VALUES ('cleanup', %s, 'held', 'somebody', 1)",
                                      (name,))
            self.unfenced.add((KIND, name))

    # ---- faults ----

    def _afflict(self, worker, seconds, cure):
        self.afflicted[worker] = (time.monotonic() + seconds, cure)

    def kill_worker(self, worker):
        worker.kill()
        self._afflict(worker, self.chance.uniform(0.1, 1), lambda: worker.start(wait=False))

    def stop_worker(self, worker):
        if isinstance(worker, LinkedWorker):
            return self.cut_worker(worker)
        worker.suspend()
        return self._afflict(worker, self.chance.uniform(0.3, 3) * TTL_MS / 1000, worker.resume)

    def cut_worker(self, worker):
        if not isinstance(worker, LinkedWorker):
            return self.kill_worker(worker)
        worker.link.cut()
        return self._afflict(worker, self.chance.uniform(0.3, 2) * TTL_MS / 1000, worker.link.mend)

    def cut_database(self, _):
        self.place.postgres.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND application_name <> 'latecomer'"
                                  " AND pid <> pg_backend_pid()", (self.files.database.name,))

    def a_coordinator(self):
        return self.chance.choice(self.coordinators)

    def kill_coordinator(self, _):
        one = self.a_coordinator()
        one.kill()
        one.start(wait=False)

    def restart_coordinator(self, _):
        one = self.a_coordinator()
        one.child.must_run()
        in_order = one.child.stop(30) and one.child.returncode() in (0, -signal.SIGTERM)      # by the signal: it had hardly begun
        assert in_order, f"{one.name} ended with {one.child.returncode()}:\n{one.child.log_tail()}"
        one.start(wait=False)

    FAULTS = ((kill_worker, 8), (stop_worker, 8), (cut_worker, 4), (cut_database, 2), (kill_coordinator, 1), (restart_coordinator, 1))

    def _one_fault(self):
        now = time.monotonic()
        for worker, (until, cure) in list(self.afflicted.items()):
            if now >= until:
                cure()
                del self.afflicted[worker]
        well = [worker for worker in self.workers if worker not in self.afflicted]
        if len(self.afflicted) < min(AFFLICTED_MAX, len(self.workers) - 1):
            fault, = self.chance.choices([fault for fault, _ in self.FAULTS], [weight for _, weight in self.FAULTS])
            fault(self, self.chance.choice(well))
            self.faults[fault.__name__] += 1

    # ---- the run ----

    def request(self, items):
        events = self.place.events()
        for item in items:
            events.send(KIND, "request", item, {})
        events.flush()

    def run(self, items, seconds):
        """Requests the items, spread over the time, while faults come."""
        events, begun, sent = self.place.events(), time.monotonic(), 0
        while sent < len(items) or time.monotonic() - begun < seconds:
            upto = min(len(items), int(len(items) * (time.monotonic() - begun) / seconds) + 1)
            for item in items[sent:upto]:
                events.send(KIND, "request", item, {})
            events.flush()
            sent = upto
            self._one_fault()
            pause(self.chance.uniform(*PAUSE_S))

    def heal(self):
        for _, cure in self.afflicted.values():
            cure()
        self.afflicted.clear()
        for worker in self.workers:
            worker.wait_started()        # before that, it would not know what a signal to stop means

    def wait_for(self, count, limit):
        eventually(lambda: self.place.database.value(ENDED) == count, limit, f"{count} items have ended", every=0.2)

    def settle(self, limit):
        """Waits until nothing happens any more, also if something went wrong for good; then nobody works."""
        seen, since = None, time.monotonic()

        def is_still():
            nonlocal seen, since
            ended = self.place.database.value(ENDED)
            if ended != seen:
                seen, since = ended, time.monotonic()
            return time.monotonic() > since + STILL_S

        with contextlib.suppress(NotYet):
            eventually(is_still, limit, "nothing happens any more", every=0.2)
        self.stop()

    def stop(self):
        """Nobody works any more; then the people have their last word. True if all workers ended in order."""
        ended = [worker.stop() for worker in self.workers]
        for one in self.people:
            one.end()
        return all(ended)

    def check(self):
        """What is wrong, by the topics, the database and the disk: {invariant: examples}."""
        self.place.wait_idle(60)
        history = books.collect(self.place, unfenced=self.unfenced)
        broken = {example.split(" ", 1)[0]: example for example in books.check(history)}
        broken.update(books_files.check(self.files_found()))
        return broken

    def files_found(self):
        return books_files.collect(self.place.kafka.brokers, self.place.prefix, self.files)
