"""How each crash point is reached, what must be seen of each fault, and how everything comes to rest again.

A scene is a place of its own with whatever passes the points. It is played in rounds, each of which ends at rest; a dry play counts how often each point
is passed, so that the last passage can be armed. `cell(point, fault, nth)` plays until the fault has come, and asserts that it came as it was ordered:

    kill    the process was ended by SIGKILL, at this point; another one does the rest
    stop    it stood still for longer than its leases and its group session lasted, while another one did everything, up to the relay's role; then it woke
            up, went on, and ended in order
    error   the step failed, the process lived on, and ended in order

At the end of a cell everything that was sent is consumed and published within HEAL_S. `audit()` asks lease-audit; the audit's own words are the failure.
"""
import os
import shutil
import signal
import time

import books_files
from audit import Books
from fileserver import FileServer
from harness import Place, Postgres
from inbox import Inbox
from leasectl import Leasectl, small_topics
from load import Load
from place import INPUTS
from processes import Child, is_stopped
from royalty import LeaseRoyalty, Royalty
from waiting import eventually
from workers import LeaseWorker

PARTITIONS = 2                   # of each topic
OWNED = PARTITIONS * len(INPUTS)
SESSION_MS = 1000                # the group's; the shortest that our broker admits
TTL_MS = (150, 400, 1000)        # of the leases in the load
WORKER_TTL_MS = 1500
DELIVERY_TTL_MS = 3000           # the least
ROUNDS = 4
COMMANDS = 50                    # of a round
HIT_S = 90                       # a point that is not passed until then is not reached
HEAL_S = 60                      # everything is consumed, published and ready again
TRIES = 4                        # of a run that loses its lease while the machine stands still
ROLE_POINTS = ("relay.", "role.")
RELAY_SESSION = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'lease-relay'"
ALL_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
ENDED = "SELECT count(*) FROM lease.leases WHERE kind = %s AND state IN ('finished', 'failed', 'dead')"


class Broken(AssertionError):
    """A cell did not go as it must."""


def must(condition, what):
    if not condition:
        raise Broken(what)


def is_suspended(child):
    return child.is_running() and is_stopped(child.pid)


def grant(database, role, login):
    user = dict(pair.split("=", 1) for pair in login.split())["user"]
    database.query(f'GRANT {role} TO "{user}"')


def words_of(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="ascii") as log:
        return log.read().split()


class Scene:
    """`subject` is the process that the fault comes to: it has a `child` and a `crash_log`."""

    def __init__(self, postgres, kafka, build, folder, seed):
        self.postgres, self.kafka, self.build, self.folder, self.seed = postgres, kafka, build, folder, seed
        self.subject = None
        self.fault = None         # what is armed
        self.seen = 0             # lines in the subject's log before it was armed
        self.place = Place(postgres, kafka, build, folder)
        self.place.ctl("migrate")
        small_topics(self.place, PARTITIONS)
        self.books = None

    def close(self):
        self.place.close()

    # ---- has it come? ----

    def hits(self):
        return words_of(self.subject.crash_log)[self.seen:]

    def has_come(self):
        """The fault that is armed has come: the process is dead, or stopped, or has gone past the point."""
        if self.fault is None or not self.hits():
            return False
        if self.fault == "error":
            return True
        return not self.subject.child.is_running() if self.fault == "kill" else is_suspended(self.subject.child)

    def wait(self, condition, what, limit=HEAL_S):
        """Until the condition holds or the fault has come."""
        eventually(lambda: self.has_come() or condition(), limit, what, every=0.02)

    def arm(self, subject, point, fault, nth):
        self.subject, self.fault = subject, fault
        self.seen = len(words_of(subject.crash_log))
        return f"{point}:{nth}:{fault}"

    def assert_came(self, point):
        must(self.has_come(), f"{point} was not reached: {self.subject.child.log_tail(10)}")
        must(self.hits() == [point], f"armed was {point}, and hit was {self.hits()}")
        if self.fault == "kill":
            must(self.subject.child.returncode() == -signal.SIGKILL, f"it ended with {self.subject.child.returncode()}")

    def assert_books(self, *words):
        self.books = self.books or Books(self.place)
        found = self.books.audit("--wait", "60", *words)
        must(found.report is not None, f"the audit could not look: {found}")
        must(found.code == 0 and not found.broken, f"the audit says: {found.broken or found}")
        for invariant in ("I1", "I2", "I3", "I4", "I5", "I6"):
            must(found.verdicts[invariant] == "holds" and found.of(invariant)["judged"] > 0, f"{invariant} was not judged: {found}")
        sent = sum(self.place.ends().values())
        must(found.report["read"]["messages"] == sent, f"of {sent} messages the audit has seen {found.report['read']['messages']}")
        return found.report["read"]["messages"]

    def audit(self):
        """Raises if an invariant is broken; returns how many messages were audited."""
        return self.assert_books()


# ---- coordinators under a load ----


class Intake(Scene):
    """A coordinator under a mixed load; a second one comes when it is killed or stopped."""

    def __init__(self, *system):
        super().__init__(*system)
        self.load = Load(self.place, self.seed, runs=20, items=40, workers=4, contracts=20, ttl_ms=TTL_MS)
        self.first, self.other = (self.place.coordinator(session_timeout_ms=SESSION_MS, batch_messages=20) for _ in range(2))
        self.other.leaving = False
        self.killed = []          # those that a fault has ended, and that are not started again yet

    def close(self):
        for one in self.place.coordinators:
            one.child.kill()
        super().close()

    # a round

    def is_at_rest(self):
        self.must_live()
        return self.place.is_idle()

    def must_live(self):
        for one in self.place.coordinators:
            code = one.child.returncode()
            must(code in (None, 0) or one in self.killed or self.has_come(), f"{one.name} ended by itself with {code}: {one.child.log_tail(20)}")

    def is_up(self):
        """The first one is ready; or it has ended by itself, which is told when time is up."""
        self.must_live()
        return self.first.get("/readyz")[0] == 200

    def send(self, count=COMMANDS):
        """A round of load, worked off; or until the fault comes."""
        self.load.send(count)
        self.wait(self.is_at_rest, "everything is consumed and published")

    def round(self):
        self.send()

    def before_start(self):
        """What makes a start pass the point."""

    # plays

    def dry(self, points):
        """point → how often a whole play passes it."""
        self.before_start()
        self.subject, self.fault, self.seen = self.first, None, len(self.first.crashes())
        self.first.start(crash=",".join(f"{point}:1:note" for point in points))
        for _ in range(ROUNDS):
            self.round()
        passed = self.hits()
        self.end()
        return {point: passed.count(point) for point in points}

    def end(self):
        """All end in order. What is done meanwhile may be left unpublished: the next ones do that."""
        for one in self.place.coordinators:
            # One that was started just now has to know first what a signal means.
            eventually(lambda one=one: not one.child.is_running() or one.get("/livez")[0], HEAL_S, f"{one.name} answers")
            must(not one.child.is_running() or one.stop(), f"{one.name} did not end in order ({one.child.returncode()}): {one.child.log_tail(20)}")

    def cell(self, point, fault, nth):
        self.before_start()
        self.killed.clear()
        crash = self.arm(self.first, point, fault, nth)
        self.first.start(crash=crash, wait=False)
        deadline = time.monotonic() + HIT_S
        self.wait(self.is_up, "it is ready")
        rounds = 0
        while not self.has_come():
            must(time.monotonic() < deadline, f"{point} was not reached within {HIT_S} s, in {rounds} rounds ({len(self.hits())} passages)")
            self.round()
            rounds += 1
        self.assert_came(point)
        getattr(self, f"after_{fault}")(point)
        self.fault = None
        self.send()
        self.end()
        return "" if rounds <= ROUNDS else f"round {rounds} of {ROUNDS}"

    def is_ready_again(self):
        status, text = self.first.get("/readyz")
        must(status == 200, f"it says: {text}")
        return True

    def has_all(self, one):
        if one.metric("lease_partitions_assigned") != OWNED:
            return False
        owners = self.place.database.query("SELECT DISTINCT owner FROM lease.partitions")
        return [owner.endswith(f"-{one.name}") for owner, in owners] == [True]

    def successor(self):
        """The other one, running. One that is ending ends first."""
        if self.other.child.is_running() and self.other.leaving:
            eventually(lambda: not self.other.child.is_running(), HEAL_S, "the other has ended")
        if not self.other.child.is_running():
            self.other.leaving = False
            self.other.start(wait=False)
        return self.other

    def after_kill(self, _point):
        self.fault = None
        self.killed.append(self.first)
        eventually(lambda: self.has_all(self.successor()), HEAL_S, "the other has all partitions")
        self.send()

    def after_stop(self, point):
        self.fault = None
        stopped_at = os.stat(self.first.crash_log).st_mtime
        if not point.startswith(ROLE_POINTS):
            # The server ends the stopped relay's session after ten seconds: waited for where the relay is what is tried.
            self.place.database.query(RELAY_SESSION)
        eventually(lambda: self.has_all(self.successor()), HEAL_S, "the other has all partitions")
        self.load.send(COMMANDS)
        eventually(self.is_at_rest, HEAL_S, "the other has done and published everything, up to the relay's role")
        eventually(lambda: time.time() - stopped_at > (SESSION_MS + max(TTL_MS)) / 1000, HEAL_S, "session and leases are over")
        must(is_suspended(self.first.child), "it was awake meanwhile")
        self.wake()

    def wake(self):
        self.first.thaw()
        eventually(self.is_ready_again, HEAL_S, "who slept is ready again")

    def after_error(self, _point):
        self.fault = None
        eventually(self.is_ready_again, HEAL_S, "it is ready again")


class Lapses(Intake):
    """Each round ends when the leases of its load have lapsed."""

    def round(self):
        self.send()
        self.wait(lambda: self.place.database.value("SELECT count(*) FROM lease.leases WHERE state = 'held'") == 0, "all leases have ended or lapsed")


class Terms(Intake):
    """The relay loses its session in each round, and takes the role again."""

    def round(self):
        self.place.database.query(RELAY_SESSION)
        self.send()


class Cuts(Intake):
    """All connections are cut in each round."""

    def round(self):
        self.place.database.query(ALL_SESSIONS)
        self.send()


class Jumps(Intake):
    """The database remembers another timeline than the server's, as after a failover: at the start, and again in each round."""

    def before_start(self):
        self.place.database.query("UPDATE lease.identity SET timeline = timeline + 7")

    def round(self):
        self.before_start()
        self.place.database.query(ALL_SESSIONS)
        self.send()


class Comings(Intake):
    """In each round another one comes, and goes again: partitions are given up, and taken."""

    def round(self):
        self.send()
        if not self.has_come():
            self.successor()
            self.wait(lambda: self.other.metric("lease_partitions_assigned") == OWNED // 2, "the other has its half")
            self.send(COMMANDS // 5)
        if not self.has_come():
            self.other.leaving = True
            self.other.child.signal(self.other.child.stop_signal)
            self.wait(lambda: not self.other.child.is_running() and self.has_all(self.first), "the other has gone, and the first has all")


class Ends(Intake):
    """It is told to end, with something in its hands."""

    def round(self):
        self.load.send(COMMANDS)
        self.first.child.signal(self.first.child.stop_signal)
        self.wait(lambda: not self.first.child.is_running(), "it has ended")

    def dry(self, points):
        self.subject, self.fault, self.seen = self.first, None, len(self.first.crashes())
        self.first.start(crash=",".join(f"{point}:1:note" for point in points))
        self.round()
        return {point: self.hits().count(point) for point in points}

    def wake(self):
        self.first.thaw()
        self.after_error(None)

    def after_error(self, _point):
        self.fault = None
        eventually(lambda: not self.first.child.is_running(), HEAL_S, "it ends")
        must(self.first.child.returncode() == 0, f"it ended with {self.first.child.returncode()}")
        self.successor()


class Standby(Intake):
    """On a server of its own that has a synchronous standby in its configuration (and does not wait for it)."""

    def __init__(self, _postgres, kafka, build, folder, seed):
        # Not beneath the folder of the logs: the path of a socket is short.
        self.server_folder = f"/tmp/leasehold-matrix-{os.getpid()}-{os.urandom(3).hex()}"
        server = Postgres(self.server_folder, settings={"synchronous_standby_names": "'nobody'", "synchronous_commit": "local"}).start()
        try:
            super().__init__(server, kafka, build, folder, seed)
        except BaseException:
            self.stop_server(server)
            raise

    def stop_server(self, server):
        server.stop()
        shutil.rmtree(self.server_folder, ignore_errors=True)

    def close(self):
        try:
            super().close()
        finally:
            self.stop_server(self.postgres)


# ---- workers ----


class Work(Scene):
    """A coordinator that nothing happens to, and workers of which one is armed."""

    kind, ttl_ms, items, point_prefix = None, WORKER_TTL_MS, 6, None

    def __init__(self, *system):
        super().__init__(*system)
        self.place.database.query("UPDATE lease.kind SET attempts_max = 1000, backoff_base_ms = 20, backoff_max_ms = 100 WHERE kind = %s", (self.kind,))
        self.coordinator = self.place.coordinator(session_timeout_ms=SESSION_MS).start()
        self.events = self.place.events()
        self.requested = 0
        self.prepare()
        self.first, self.other = self.worker("first"), self.worker("other")

    def close(self):
        for one in (self.first, self.other):
            one.kill()
        super().close()

    def worker(self, name):
        return LeaseWorker(self.place, name, self.kind, self.files, ttl_ms=self.ttl_ms, **self.settings)

    def all_ended(self):
        return self.place.database.value(ENDED, (self.kind,)) == self.requested

    def send(self):
        for number in range(self.requested, self.requested + self.items):
            self.events.send(self.kind, "request", *self.item(number))
        self.events.flush()
        self.requested += self.items

    def round(self):
        self.send()
        self.wait(self.all_ended, "every item has ended")

    def dry(self, points):
        self.subject, self.fault, self.seen = self.first, None, len(self.first.crashes())
        self.first.start(crash=",".join(f"{point}:1:note" for point in points))
        for _ in range(ROUNDS):
            self.round()
        must(self.first.stop(), "it did not end in order")
        return {point: self.hits().count(point) for point in points}

    def cell(self, point, fault, nth):
        self.first.start(crash=self.arm(self.first, point, fault, nth))
        deadline, rounds = time.monotonic() + HIT_S, 0
        while not self.has_come():
            must(time.monotonic() < deadline, f"{point} was not reached within {HIT_S} s, in {rounds} rounds")
            self.round()
            rounds += 1
        self.assert_came(point)
        self.fault = None
        if fault != "error":
            stopped_at = os.stat(self.first.crash_log).st_mtime
            self.other.start()
            eventually(self.all_ended, HEAL_S, "the other has done everything")
        if fault == "stop":
            eventually(lambda: time.time() - stopped_at > self.ttl_ms / 1000, HEAL_S, "its leases are over")
            must(self.first.is_suspended(), "it was awake meanwhile")
            before = self.world()
            self.first.resume()
        self.send()
        eventually(self.all_ended, HEAL_S, "every item has ended")
        for one in (self.first, self.other):
            must(not one.child.is_running() or one.stop(), f"{one.name} did not end in order: {one.child.log_tail(20)}")
        if fault == "stop":
            must(before == {key: value for key, value in self.world().items() if key in before}, "who slept changed something")
        self.place.wait_idle(HEAL_S)
        return "" if rounds <= ROUNDS else f"round {rounds} of {ROUNDS}"


class Cleanup(Work):
    """Files that are removed."""

    kind, settings = "cleanup", {"concurrency": 2}

    def prepare(self):
        self.files = FileServer(self.postgres.create_database("files"), os.path.join(self.folder, "root")).load()
        self.files.open_account("a1")
        login = self.files.database.login("fileserver_user")
        grant(self.files.database, "lease_gate_user", login)
        self.words = ["--file-server", login, "--root", self.files.root]

    def close(self):
        super().close()
        self.files.database.drop()

    def item(self, number):
        return f"f{number}", {}

    def send(self):
        self.files.add_many([(f"f{number}", "a1", 1000 + number) for number in range(self.requested, self.requested + self.items)])
        super().send()

    def world(self):
        """What was done to each file."""
        return {row[0]: row[1:] for row in self.files.database.query("SELECT file, state, missing, settled_by FROM fileserver.file WHERE state = 'deleted'")}

    def audit(self):
        found = books_files.balance(books_files.collect(self.kafka.brokers, self.place.prefix, self.files))
        must(found["final"] == {"finished": self.requested} and found["on_disk"] == 0 and found["missing"] == 0, f"files: {found}")
        return self.assert_books(*self.words)


class Delivery(Work):
    """Messages that are posted to a receiver behind a gate."""

    kind, ttl_ms = "delivery", DELIVERY_TTL_MS

    def prepare(self):
        self.files = None
        self.inbox = Inbox(self.postgres.create_database("inbox"))
        self.inbox.__enter__()
        self.settings = {"delivery_url": self.inbox.url}

    def close(self):
        super().close()
        self.inbox.__exit__()
        self.inbox.database.drop()

    def item(self, number):
        return f"m{number}", {"payload": {"n": number}}

    def world(self):
        return {key: body for key, (_, _, body) in self.inbox.messages().items()}

    def audit(self):
        must(self.world().keys() == {f"delivery/m{number}" for number in range(self.requested)}, "not every message is there once")
        return self.assert_books()


class Settlement(Scene):
    """A settlement over one contract, in chunks; another run takes it over."""

    CHUNK = 250

    def __init__(self, *system):
        super().__init__(*system)
        self.royalty = Royalty(self.place.database).load()
        self.coordinator = self.place.coordinator(session_timeout_ms=SESSION_MS).start()
        self.runs = []
        self.books = Books(self.place)
        grant(self.place.database, "lease_gate_user", self.books.conninfo)      # the gate is in the coordinator's own database

    def close(self):
        for run in self.runs:
            run.kill()
        super().close()

    def run(self, name, who, ttl_ms=30000):
        run = LeaseRoyalty(self.place, self.royalty, name, name=who, contracts=f"track-contract/{name}", chunk_sales=self.CHUNK, ttl_ms=ttl_ms)
        self.runs.append(run)
        return run

    def settled(self, name):
        state, lines, total, _ = self.royalty.settlement(name)
        must((state, lines, total) == ("settled", 1000, self.royalty.right_total([f"track-contract/{name}"])), f"{name}: {state}, {lines} lines, {total}")
        must(sum(count for _, count in self.royalty.fences(name)) == 1000, f"{name}: lines by fence {self.royalty.fences(name)}")

    def dry(self, points):
        self.royalty.story("dry")
        run = self.run("dry", "first")
        self.subject, self.fault, self.seen = run, None, 0
        status, _ = run.start(crash=",".join(f"{point}:1:note" for point in points)).wait()
        must(status == 0, run.log()[-2000:])
        self.settled("dry")
        return {point: self.hits().count(point) for point in points}

    def is_free(self, name):
        return self.place.database.value("SELECT condition FROM lease.leases WHERE lease = %s", (name,)) in ("lapsed", "free", "finished")

    def hit(self, point, fault, nth):
        """A run that the fault has come to, and the settlement's name. Its lease is short, so that the other one comes soon; it may lapse on the way."""
        for _ in range(TRIES):
            name = f"{point}-{fault}-{nth}-{len(self.runs)}".replace(".", "-")
            self.royalty.story(name)
            first = self.run(name, "first", WORKER_TTL_MS)
            first.start(crash=self.arm(first, point, fault, nth))
            eventually(lambda run=first: self.has_come() or not run.child.is_running(), HIT_S, f"{point} is reached")
            if self.hits() or first.child.returncode() == 0:
                break
        self.assert_came(point)
        return name, first

    def cell(self, point, fault, nth):
        name, first = self.hit(point, fault, nth)
        if fault == "error":
            status, _ = first.wait()
            must(status == 69, f"a step that failed ended it with {status}: {first.log()[-1000:]}")
        came_at = os.stat(first.crash_log).st_mtime
        eventually(lambda: self.is_free(name), HEAL_S, "the lease has lapsed or was given back")
        second = self.run(name, "second")
        status, _ = second.start().wait()
        must(status == 0, f"the other one ended with {status}: {second.log()[-1000:]}")
        self.settled(name)
        if fault == "stop":
            before = self.royalty.fences(name)
            eventually(lambda: time.time() - came_at > WORKER_TTL_MS / 1000, HEAL_S, "its lease is over")
            must(first.is_suspended(), "it was awake meanwhile")
            first.resume()
            status, _ = first.wait()
            must(status not in (0, None) and status > 0, f"who slept ended with {status}: {first.log()[-1000:]}")
            must(self.royalty.fences(name) == before, "who slept wrote something")
        self.settled(name)
        self.place.wait_idle(HEAL_S)
        return ""


# ---- leasectl ----


class Migration(Intake):
    """Each time a database of its own, migrated by one that is armed and then by another; and then worked with."""

    def __init__(self, postgres, kafka, build, folder, seed):
        self.postgres, self.kafka, self.build, self.folder, self.seed = postgres, kafka, build, folder, seed
        self.places = []
        self.subject = self.fault = None
        self.seen = 0

    def close(self):
        for place in self.places:
            place.close()

    def open_place(self):
        self.place = Place(self.postgres, self.kafka, self.build, os.path.join(self.folder, f"p{len(self.places)}"))
        self.places.append(self.place)
        self.subject = Migrating(self.place)

    def dry(self, points):
        self.open_place()
        self.seen = 0
        must(self.subject.start(",".join(f"{point}:1:note" for point in points)).wait() == 0, self.subject.child.log_tail())
        return {point: self.hits().count(point) for point in points}

    def cell(self, point, fault, nth):
        self.open_place()
        self.subject.start(self.arm(self.subject, point, fault, nth))
        eventually(lambda: self.has_come() or not self.subject.child.is_running(), HIT_S, f"{point} is reached")
        self.assert_came(point)
        stopped_at = os.stat(self.subject.crash_log).st_mtime
        if fault == "stop":      # it has no lease and no session, and nobody can take its place: it goes on
            eventually(lambda: time.time() - stopped_at > (SESSION_MS + max(TTL_MS)) / 1000, HEAL_S, "as long as the others' leases")
            must(is_suspended(self.subject.child), "it was awake meanwhile")
            self.subject.child.signal(signal.SIGCONT)
        code = self.subject.wait()
        must(code == {"kill": -signal.SIGKILL, "stop": 0, "error": 69}[fault], f"it ended with {code}: {self.subject.child.log_tail()}")
        files = self.place.database.value("SELECT count(*) FROM lease.flyway_schema_history")
        must(fault == "stop" or files == nth - 1 + self.head_rows(), f"{files} files are noted after a fault at the {nth}th")
        ctl = Leasectl.of(self.place)
        ctl("migrate").check(0)
        must(ctl("migrate").check(0).out == "", "there was something left to do")
        small_topics(self.place, PARTITIONS)
        self.fault = None
        self.work()
        return ""

    def head_rows(self):
        """Rows of the history that stand for no file."""
        return self.place.database.value("SELECT count(*) FROM lease.flyway_schema_history WHERE version IS NULL AND type = 'SCHEMA'")

    def work(self):
        self.books = None
        self.load = Load(self.place, self.seed, runs=20, items=40, workers=4, contracts=20, ttl_ms=TTL_MS)
        one = self.place.coordinator(session_timeout_ms=SESSION_MS).start()
        for _ in range(2):
            self.load.send(COMMANDS)
            self.place.wait_idle(HEAL_S)
        must(one.stop(), "it did not end in order")
        self.messages = self.assert_books()

    def audit(self):
        """Each cell has been audited, in a place of its own."""
        return self.messages


class Migrating:
    """One run of leasectl migrate."""

    def __init__(self, place):
        self.crash_log = os.path.join(place.folder, "migrate.crashes")
        environment = Leasectl.of(place).environment
        environment["LEASE_CRASH_LOG"] = self.crash_log
        self.child = Child("leasectl migrate", [place.program("leasectl"), "migrate"], os.path.join(place.folder, "migrate.log"), env=environment)

    def start(self, crash):
        self.child.env["LEASE_CRASH"] = crash
        self.child.start()
        return self

    def wait(self):
        return self.child.wait(HEAL_S)


# Which scene passes a point: the longest beginning counts. A point that none of these begins is a failure of the run.
SCENES = {
    "batch.": Intake, "tx.": Intake, "commit.": Intake, "poll.": Intake, "relay.": Intake, "relay.barrier": Standby, "role.": Terms, "reaper.": Lapses,
    "assign.": Comings, "revoke.": Comings, "reconnect.": Cuts, "fence.": Jumps, "shutdown.": Ends, "migrate.": Migration, "effect.": Cleanup,
    "worker.": Cleanup, "worker.sending": Delivery, "worker.delivered": Delivery, "royalty.": Settlement,
}


def scene_of(point):
    """None if nobody knows."""
    known = [begin for begin in SCENES if point.startswith(begin)]
    return SCENES[max(known, key=len)] if known else None
