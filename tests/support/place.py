"""A place for one test: a database and topics of its own on the system that is there, and coordinators that work in it."""
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import urllib.error
import urllib.request

from confluent_kafka import KafkaException

from events import Events
from processes import Child, free_port
from topics import Reader, ends_of
from waiting import eventually

INPUTS = ("settlement.events", "cleanup.events", "file-write.events", "delivery.events", "share-ratio.events", "contract.events", "lease.renewals")
OUTPUTS = ("lease.results", "lease.grants", "lease.state", "lease.dead-letters")


class Place:
    """Database, topics, secret and folder of one test. close() ends what was started here and drops the rest."""

    def __init__(self, postgres, kafka, build, folder, prefix=None, database=None):
        self.postgres = postgres
        self.kafka = kafka
        self.build = os.path.abspath(build)
        self.folder = str(folder)
        self.prefix = f"t{secrets.token_hex(3)}." if prefix is None else prefix
        self.database = database or postgres.create_database()
        self.token_key = secrets.token_hex(32)
        self.coordinators = []
        self._open = []
        os.makedirs(self.folder, exist_ok=True)

    def program(self, name):
        for path in (f"{self.build}/coordinator/{name}", f"{self.build}/coordinator/cli/{name}", f"{self.build}/worker/daemon/{name}", f"{self.build}/worker/royalty/{name}",
                     f"{self.build}/{name}"):
            if os.access(path, os.X_OK):
                return path
        raise RuntimeError(f"{name} is not in {self.build}")

    def environment(self, **settings):
        """What our programs read. Settings by their configuration key: environment(lanes=1) sets LEASE_LANES."""
        values = {"brokers": self.kafka.brokers, "database": self.database.conninfo, "topic_prefix": self.prefix,
                  "token_key": self.token_key}
        values.update(settings)
        return {f"LEASE_{key.upper()}": str(value) for key, value in values.items() if value is not None}

    def ctl(self, *words, ok=(0,), **settings):
        """Runs leasectl and returns its standard output; `ok` are the exit codes that the caller expects."""
        environment = dict(os.environ)
        environment.update(self.environment(**settings))
        done = subprocess.run([self.program("leasectl"), *map(str, words)], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        if done.returncode not in ok:
            raise RuntimeError(f"leasectl {' '.join(map(str, words))} ended with {done.returncode}:\n"
                               f"{done.stderr.decode()}{done.stdout.decode()}")
        return done.stdout.decode()

    def ctl_json(self, *words, **settings):
        return json.loads(self.ctl(*words, "-o", "json", **settings))

    def token_key_setting(self):
        """Settings for a coordinator that outlives this process's random key: the environment's own, where it has one."""
        if "LEASE_TOKEN_KEY" in os.environ or "LEASE_TOKEN_KEY_FILE" in os.environ:
            return {"token_key": os.environ.get("LEASE_TOKEN_KEY"), "token_key_file": os.environ.get("LEASE_TOKEN_KEY_FILE")}
        return {}

    def prepare(self):
        """Tables and topics."""
        self.ctl("migrate")
        self.ctl("topics", "--apply")
        return self

    def coordinator(self, **settings):
        """A coordinator (not started) whose database account may do only what the role lease_coordinator may."""
        if not hasattr(self, "_login"):
            self._login = self.database.login("lease_coordinator")
        one = Coordinator(self, f"c{len(self.coordinators) + 1}", dict({"database": self._login}, **settings))
        self.coordinators.append(one)
        return one

    def events(self):
        return Events(self.kafka.brokers, self.prefix)

    def reader(self, topic, drop_repeats=True):
        reader = Reader(self.kafka.brokers, self.prefix, topic, drop_repeats)
        self._open.append(reader)
        return reader

    def consumed(self):
        """(topic without prefix, partition) → the next offset to consume, as PostgreSQL has it."""
        rows = self.database.query("SELECT topic, partition, next_offset FROM lease.partitions WHERE next_offset IS NOT NULL")
        return {(topic[len(self.prefix):], partition): offset for topic, partition, offset in rows}

    def ends(self, topics=INPUTS):
        """(topic without prefix, partition) → the offset after the last record; empty partitions left out."""
        ends = ends_of(self.kafka.brokers, [self.prefix + topic for topic in topics])
        return {(name[len(self.prefix):], partition): end for (name, partition), end in ends.items() if end > 0}

    def is_idle(self):
        """Everything sent so far is consumed, and everything decided is published."""
        consumed = self.consumed()
        try:
            ends = self.ends()
        except KafkaException as error:      # a leader that has just moved
            raise AssertionError(str(error)) from error
        behind = {place: (consumed.get(place, 0), end) for place, end in ends.items()
                  if consumed.get(place, 0) < end}
        assert not behind, f"not consumed yet (place: next, end): {dict(list(behind.items())[:3])}"
        unpublished = self.database.value("SELECT unpublished FROM lease.relay_status")
        assert unpublished == 0, f"{unpublished} journal rows are not published yet"
        return True

    def wait_idle(self, limit=120):
        eventually(self.is_idle, limit, "everything is consumed and published", every=0.1)

    def end(self):
        """Ends what was started here; database and topics stay."""
        for coordinator in self.coordinators:
            if coordinator.is_sanitized:
                coordinator.child.signal(signal.SIGCONT)
                coordinator.child.stop()      # in order: leaks are looked for at the end
            coordinator.child.kill()
        for reader in self._open:
            reader.close()

    def close(self):
        self.end()
        self.database.drop()
        self.postgres.drop_logins()
        self.kafka.delete_topics({name for name in self.kafka.topics() if name.startswith(self.prefix)}
                                 if self.prefix else set())


class Coordinator:
    """One coordinator process, started as often as the test likes, always on the same HTTP port and instance name."""

    def __init__(self, place, name, settings):
        self.place = place
        self.name = name
        self.port = free_port()
        self.crash_log = os.path.join(place.folder, f"{name}.crashes")
        values = {"http": f"127.0.0.1:{self.port}", "instance": f"{socket.gethostname()}-{name}",
                  "session_timeout_ms": max(1500, place.kafka.session_timeout_min_ms())}
        values.update(settings)
        environment = place.environment(**values)
        environment["LEASE_CRASH_LOG"] = self.crash_log
        valgrind = os.environ.get("LEASE_TEST_VALGRIND", "").split()
        self.is_sanitized = os.path.basename(place.build).endswith("asan") or bool(valgrind)
        if self.is_sanitized:
            environment.setdefault("ASAN_OPTIONS", "abort_on_error=1:detect_leaks=1")
            environment.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1")
        self.child = Child(f"coordinator {name}", [*valgrind, place.program("lease-coordinator")],
                           os.path.join(place.folder, f"{name}.log"), env=environment)

    def start(self, crash=None, wait=True, limit=60):
        """Starts it; `crash` is a LEASE_CRASH text. Waits until it is ready, unless told otherwise."""
        self.child.env.pop("LEASE_CRASH", None)
        if crash:
            self.child.env["LEASE_CRASH"] = crash
        self.child.start()
        if wait:
            self.wait_ready(limit)
        return self

    def get(self, path):
        """Status and text of one HTTP answer; (None, "") if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return None, ""

    def is_ready(self):
        self.child.must_run()
        return self.get("/readyz")[0] == 200

    def wait_ready(self, limit=60):
        eventually(self.is_ready, limit, f"{self.child.name} is ready")

    def metric(self, name):
        """The sum of a metric over its labels; None if there is none."""
        values = [float(line.rsplit(" ", 1)[1]) for line in self.get("/metrics")[1].splitlines()
                  if re.match(rf"{re.escape(name)}(\{{| )", line)]
        return sum(values) if values else None

    def crashes(self):
        """The crash points hit so far, in order."""
        try:
            with open(self.crash_log, encoding="ascii") as file:
                return file.read().split()
        except OSError:
            return []

    def kill(self):
        self.child.kill()

    def stop(self, limit=40):
        """SIGTERM; True if it ended by itself in time with exit code 0."""
        return self.child.stop(limit) and self.child.returncode() == 0

    def freeze(self):
        self.child.signal(signal.SIGSTOP)

    def thaw(self):
        self.child.signal(signal.SIGCONT)

    def assert_sane(self):
        """No sanitizer found anything; without sanitizers nothing is looked at."""
        if self.is_sanitized and os.path.exists(self.child.log):
            text = self.log_text()
            found = re.search(r"(?m)(Sanitizer|runtime error):.*|^==\d+== .*", text)
            assert not found, f"{self.child.name}: {found.group(0)}\n{text[found.start():found.start() + 4000]}"

    def log_text(self):
        with open(self.child.log, encoding="utf-8", errors="replace") as file:
            return file.read()
