# ctest: LABEL fault TIMEOUT 600 TAKES 35
"""The machine fails under a coordinator: an allocation, a send or receive, the disk of its log, descriptors, the database's clock; and signals come
at bad moments. It either goes on, or ends with a word about it, and its successor goes on; every message has one answer.

What would go wrong: a half-done batch after a failed allocation, a coordinator that hangs because its log cannot be written, a lease granted twice
because the clock went back. `LEASE_TEST_EVERY_ALLOCATION=1` lets each allocation of a batch fail in turn, not only some.
"""
import contextlib
import errno
import mmap
import os
import re
import signal
import socket
import struct
import subprocess
import sys

import pytest

import books
import system
from fixtures import folder_of
from harness import Place, Postgres, eventually
from leasectl import small_topics

SPREAD = 8           # allocations that fail in the short form
NET_ERRORS = {"posix/io/net/send": "ECONNRESET", "posix/io/net/recv": "ECONNRESET", "posix/io/net/sendmsg": "EPIPE", "posix/io/net/recvmsg": "ETIMEDOUT",
              "posix/io/rw/write": "EIO"}
HAS_FAILED = re.compile("trying again|facility=FAIL")
FIU = "/usr/lib/fiu/fiu_run_preload.so /usr/lib/fiu/fiu_posix_preload.so"
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
HOUR = 3600
# Of this place only: other tests run beside this one, on the same server.
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'lease-coordinator%'"
AT_A_LOCK = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'lease-coordinator lane%' AND wait_event_type = 'Lock'"
CLOSED_PIPE = "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 2); os.execv(sys.argv[1], sys.argv[1:])"


class Talk:
    """Sends commands to a place and waits for their answers, whoever gives them."""

    def __init__(self, place):
        self.place = place
        self.events = place.events()
        self.results = place.reader("lease.results")
        self.count = 0

    def send(self, count=1):
        """Starts of runs that nobody has: the origins."""
        origins = []
        for _ in range(count):
            self.count += 1
            origins.append(self.events.place_of("settlement", "start", f"run-{self.count}", {"holder": "a", "ttl_ms": 600000}))
        return origins

    def are_answered(self, origins):
        """All of them, as far as is known by now."""
        wanted = {(topic[len(self.place.prefix):] if topic.startswith(self.place.prefix) else topic, *where) for topic, *where in origins}
        self.results.poll(0)
        return wanted <= {self._origin(record) for record in self.results.records}

    def answers(self, origins, limit=60):
        eventually(lambda: self.are_answered(origins), limit, f"{origins} are answered")

    def _origin(self, record):
        told = record.value.get("origin") or {}
        topic = told.get("topic", "")
        return topic[len(self.place.prefix):] if topic.startswith(self.place.prefix) else topic, told.get("partition"), told.get("offset")

    def ask(self, count=1, limit=60):
        self.answers(self.send(count), limit)

    def balance(self):
        self.place.wait_idle()
        books.balance(books.collect(self.place))


@pytest.fixture(name="place", scope="module")
def fixture_place(request, postgres, kafka, build):
    place = Place(postgres, kafka, build, folder_of(request, build))
    place.ctl("migrate")
    small_topics(place)
    yield place
    place.close()


@pytest.fixture(name="talk", scope="module")
def fixture_talk(place):
    return Talk(place)


@contextlib.contextmanager
def running(place, *before, wait=True, **environment):
    """A coordinator, started by way of the words `before`."""
    one = place.coordinator(lanes=1)
    one.child.argv = [*before, *one.child.argv]
    one.child.env.update(environment)
    one.start(wait=wait)
    try:
        yield one
    finally:
        one.kill()


# ---- allocations ----

class Allocations:
    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(bytes(mmap.PAGESIZE))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def arm(self, number):
        struct.pack_into("=4q", self.map, 0, 1, 0, number, 0)

    def disarm(self):
        struct.pack_into("=q", self.map, 0, 0)

    count = property(lambda self: struct.unpack_from("=q", self.map, 8)[0])
    failed = property(lambda self: struct.unpack_from("=q", self.map, 24)[0])


def test_an_allocation_that_fails_ends_the_process_with_a_word_or_nothing(place, talk, build):
    """For each of them: the command is answered, at once or by the next coordinator."""
    path = f"{place.folder}/allocations"
    allocations = Allocations(path)
    preload = {"LD_PRELOAD": f"{build}/test_allocations.so", "LEASE_TEST_ALLOCATIONS": path}
    with running(place, **preload):
        talk.ask()
        allocations.arm(0)
        talk.ask()
        allocations.disarm()
    total = allocations.count
    assert total > 100
    step = 1 if os.environ.get("LEASE_TEST_EVERY_ALLOCATION") else total // SPREAD
    ended = survived = missed = 0
    coordinator = None
    for number in range(1, total + 1, step):
        if coordinator is None or not coordinator.child.is_running():
            coordinator = place.coordinator(lanes=1, session_timeout_ms=1500)
            coordinator.child.env.update(preload)
            coordinator.start()
            talk.ask()
        allocations.arm(number)
        origins = talk.send()
        eventually(lambda: allocations.failed or allocations.count > total + 200 or not coordinator.child.is_running(), 60, f"allocation {number} fails")
        if allocations.failed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                coordinator.child.wait(0.3)
        allocations.disarm()
        # Who is to end of it may take longer for that; who does not, answers.
        eventually(lambda: talk.are_answered(origins) or not coordinator.child.is_running(), 60, "it answers or ends")
        if coordinator.child.is_running():
            survived += bool(allocations.failed)
            missed += not allocations.failed
        else:
            ended += 1
            code, text = coordinator.child.returncode(), coordinator.log_text()
            # Ours: exit code 70 and a line. librdkafka's own: its assertion, with a line.
            assert (code == 70 and "out of memory" in text) or (code == -signal.SIGABRT and "Assertion" in text), (number, code, text[-2000:])
            coordinator = place.coordinator(lanes=1, session_timeout_ms=1500)
            coordinator.child.env.update(preload)
            coordinator.start()
        talk.answers(origins)
    print(f"{total} allocations of a batch, {ended + survived} of them failed: {ended} ended the coordinator, {survived} did not; {missed} did not come")
    assert ended > 0
    coordinator.kill()
    with running(place):
        talk.balance()


# ---- I/O ----

def test_sends_and_receives_fail_at_random(place, talk):
    enable = "\n".join(f"enable_random name={point},probability=0.002,failinfo={getattr(errno, error)}" for point, error in NET_ERRORS.items())
    with running(place, wait=False, LD_PRELOAD=FIU, FIU_ENABLE=enable, FIU_CTRL_FIFO="") as coordinator:
        origins = []
        while len(origins) < 200 or not HAS_FAILED.search(coordinator.log_text()):
            assert len(origins) < 2000, "nothing fails"
            origins += talk.send(10)
            talk.answers(origins[-10:], 60)
        text = coordinator.log_text()
        assert coordinator.child.is_running()
    with running(place):
        talk.ask()
        talk.balance()
    print(f"{len(origins)} commands, {text.count('trying again')} retries, {text.count('facility=FAIL')} connections to the broker lost")


# ---- the log ----

@pytest.mark.parametrize("before", [("sh", "-c", 'exec "$0" 2>/dev/full'), (sys.executable, "-c", CLOSED_PIPE)], ids=["full disk", "closed pipe"])
def test_a_log_that_cannot_be_written_stops_nothing(place, talk, before):
    with running(place, *before, LEASE_LOG_LEVEL="debug") as coordinator:
        assert os.readlink(f"/proc/{coordinator.child.pid}/fd/2") in ("/dev/full",) or "pipe:" in os.readlink(f"/proc/{coordinator.child.pid}/fd/2")
        talk.ask(20)
        place.database.query(CUT)
        talk.ask(20)
        assert coordinator.stop() and coordinator.log_text() == ""


# ---- descriptors ----

def test_without_descriptors_it_waits_and_goes_on(place, talk):
    """No more than it has: connections to the probes are refused or wait, the ones that it lost cannot be made anew until there is room."""
    with running(place) as coordinator:
        talk.ask()
        pid = coordinator.child.pid
        used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
        subprocess.run(["prlimit", "--pid", str(pid), f"--nofile={used}:{used + 4096}"], check=True)
        with contextlib.ExitStack() as opened:
            for _ in range(40):
                one = opened.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", coordinator.port))
            talk.ask(10)
            place.database.query(CUT)
            origins = talk.send(10)
            eventually(lambda: "trying again" in coordinator.log_text(), 60, "it noticed that its connections are gone")
        subprocess.run(["prlimit", "--pid", str(pid), f"--nofile={used + 4096}:{used + 4096}"], check=True)
        talk.answers(origins)
        assert coordinator.child.is_running()
        coordinator.wait_ready()
        assert coordinator.stop()


# ---- signals ----

def test_signals_at_bad_moments(place, talk):
    """SIGHUP ends it in a commit; SIGPIPE does nothing; the second SIGTERM ends a drain that cannot end. Nothing is lost."""
    one = place.coordinator(lanes=1)
    one.start(crash="commit.sent_no_reply:1:stop")
    origins = talk.send()
    eventually(lambda: one.crashes() == ["commit.sent_no_reply"], 60, "it stands in a commit")
    one.child.signal(signal.SIGHUP)
    one.thaw()
    assert one.child.wait() == -signal.SIGHUP
    one.start()
    talk.answers(origins)
    one.child.signal(signal.SIGPIPE)
    talk.ask()
    lock = place.database.connect()
    lock.autocommit = False
    lock.cursor().execute("LOCK TABLE lease.journal IN ACCESS EXCLUSIVE MODE")
    origins = talk.send()
    eventually(lambda: place.database.query(AT_A_LOCK), 60, "it has them in hand: with empty hands, it would end at once")
    one.child.signal(signal.SIGTERM)
    eventually(lambda: "event=draining" in one.log_text(), 60, "it drains", every=0.01)
    one.child.signal(signal.SIGTERM)
    assert one.child.wait() == 128 + signal.SIGTERM, "a drain that ends by itself, or by its limit, has another exit code"
    lock.rollback()
    lock.close()
    one.start()
    talk.answers(origins)
    talk.balance()
    assert one.stop()


# ---- the database's clock ----

def test_the_servers_clock_jumps_an_hour(kafka, build, folder):
    """Ahead: every lease has lapsed, and work goes on. Back: nothing is decided (LE003) until it has caught up, and then as before."""
    with system.temporary_folder(in_memory=True) as data:
        clock = f"{data}/clock"

        def set_clock(seconds):
            with open(f"{clock}.new", "w", encoding="ascii") as file:
                file.write(f"{seconds:+d}\n")
            os.chmod(f"{clock}.new", 0o644)
            os.rename(f"{clock}.new", clock)

        set_clock(0)
        # Set behind the change of account: the library's semaphores are its user's.
        server = Postgres(f"{data}/postgres", settings={"shared_buffers": "32MB"}, environment={
            "LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": clock, "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}).create().start()
        place = Place(server, kafka, build, folder)
        try:
            place.ctl("migrate")
            small_topics(place)
            talk = Talk(place)
            with running(place) as coordinator:
                talk.ask(5)
                before = place.database.value("SELECT clock_timestamp()")
                set_clock(HOUR)
                assert (place.database.value("SELECT clock_timestamp()") - before).total_seconds() > HOUR - 10
                talk.ask(5)
                eventually(lambda: place.database.value("SELECT count(*) FROM lease.timeline WHERE event = 'lapsed'") == 5, 60, "the five leases lapsed")
                set_clock(0)
                origins = talk.send(5)
                eventually(lambda: "code=LE003" in coordinator.log_text(), 60, "it refuses to decide")
                assert place.database.value("SELECT count(*) FROM lease.timeline WHERE event = 'granted'") == 10
                set_clock(HOUR)
                talk.answers(origins)
                talk.balance()
                assert coordinator.stop()
        finally:
            place.close()
            server.stop()
