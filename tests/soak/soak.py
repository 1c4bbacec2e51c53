#!/usr/bin/python3
"""A production-like load for as long as is asked for, under random faults; then everything heals, converges within 30 s, and is audited.

    ./dev soak [--minutes N] [--seed S] [--load FACTOR] [--json FILE]

The load: settlement runs over guarded contracts, right and wrong commands, files that workers remove, messages that they deliver, edits by message
and by SQL. The faults: those of tests/chaos, and coordinators that sleep, connections that are cut, a server that crashes. The first coordinator is never
killed: of it, memory, descriptors and connections must stay flat. Exit code 0: nothing lost, nothing doubled, no stale write.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

import psycopg2

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / folder) for folder in ("soak", "support", "chaos", "worker")]
sys.dont_write_bytecode = True

import audit  # noqa: E402  (the path comes first)
import books_files  # noqa: E402
from chaos import ENDED, KIND, TTL_MS, Storm  # noqa: E402
from fileserver import FileServer  # noqa: E402
from inbox import Inbox  # noqa: E402
from load import Load  # noqa: E402
from kafka import GivenKafka  # noqa: E402
from place import OUTPUTS, Place  # noqa: E402
from postgres import Postgres  # noqa: E402
from waiting import NotYet, eventually, pause  # noqa: E402
from workers import LeaseWorker  # noqa: E402

CONVERGE_S = 30
AUDIT_S = 3600
CONTRACTS = 120
RATES = {"commands": 1200, "files": 20, "deliveries": 10, "edits": 10}      # a second, at most
BEHIND_MAX = 20_000          # messages that are not consumed yet: then no more commands are sent for now
SAMPLE_S, TELL_S = 5, 60
FAULT_S = (0.5, 4)
SLEEP_S, AWAY_S = (1, 8), (0.5, 3)
GUARDED = f"""
  CREATE TABLE public.album (id int PRIMARY KEY, rate bigint NOT NULL);
  INSERT INTO public.album SELECT i, 0 FROM generate_series(0, {CONTRACTS - 1}) i;
  SELECT lease.guard_table('public.album', 'album', ARRAY['rate']);
  SELECT lease.allow_edits('album');
"""
FLAT_FROM_S = 1800           # before, memory still comes to what the largest backlog so far has taken
# What may grow of a process that goes on, from the second quarter of the time to the last: megabytes, descriptors, connections.
GROWTH_MAX = {"rss_mb": 6, "descriptors": 6, "connections": 6}


class Settlements(Load):
    """Runs only: files and their grants belong to real workers."""

    KIND = "settlement"

    def __init__(self, place, seed):
        super().__init__(place, seed, runs=400, contracts=CONTRACTS)
        mine = {"start", "run_step", "cover_or_begin", "late_step", "forged_step", "send_again", "send_malformed", "send_junk"}
        self.actions = [(action, weight) for action, weight in self.actions if action.__name__ in mine]

    def request(self):
        self.start()


class Soak(Storm):
    def __init__(self, place, server, files, inbox, seed, rates):
        super().__init__(place, files, random.Random(seed))
        self.server, self.inbox, self.rates = server, inbox, rates
        self.load = Settlements(place, seed)
        self.events = place.events()
        self.sent = dict.fromkeys(RATES, 0)
        self.samples, self.refused_edits = [], 0

    # ---- the load ----

    def begin(self):
        self.place.database.query(GUARDED)
        self.place.database.query("UPDATE lease.kind SET attempts_max = 1000, backoff_base_ms = 50, backoff_max_ms = 500 WHERE kind IN ('cleanup', 'delivery')")
        for account in range(20):
            self.files.open_account(f"a{account}")
        self.add_unfenced(3)
        self.start(workers=4, coordinators=2)
        for number in range(2):
            self.workers.append(LeaseWorker(self.place, f"d{number + 1}", "delivery", delivery_url=self.inbox.url, ttl_ms=3000).start())

    def due(self, what, elapsed):
        """The numbers of those which are to be sent by now."""
        first = self.sent[what]
        self.sent[what] = max(first, int(self.rates[what] * elapsed))
        return range(first, self.sent[what])

    def send(self, elapsed):
        commands = self.due("commands", elapsed)
        if self.behind() < BEHIND_MAX:         # otherwise these are never sent
            self.load.send(len(commands))
        files = self.due("files", elapsed)
        if files:
            self.files.add_many([(f"f{n}", f"a{n % 20}", self.chance.randrange(1, 10 ** 7)) for n in files])
        for n in files:
            self.events.send(KIND, "request", f"f{n}", {})
        for n in self.due("deliveries", elapsed):
            self.events.send("delivery", "request", f"m{n}", {"payload": {"n": n}})
        for n in self.due("edits", elapsed):
            self.edit(n)
        self.events.flush()

    def edit(self, number):
        """By turns as a message, which may be parked, and as an operator types it, who may be refused."""
        row = self.chance.randrange(CONTRACTS)
        if number % 2:
            self.events.send("contract", "edit", f"album/{row}", {"editor": "ann", "new": {"rate": number}})
            return
        try:
            self.place.database.query("UPDATE public.album SET rate = %s WHERE id = %s", (number, row))
        except psycopg2.Error as error:
            if error.pgcode != "LE010":
                raise
            self.refused_edits += 1

    def behind(self):
        consumed, ends = self.place.consumed(), self.place.ends()
        return sum(end - consumed.get(place, 0) for place, end in ends.items())

    # ---- faults ----

    def a_coordinator(self):
        """To be ended: not the first one."""
        return self.chance.choice(self.coordinators[1:])

    def sleep_coordinator(self, _):
        """Also the first one."""
        one = self.chance.choice(self.coordinators)
        one.freeze()
        self._afflict(one, self.chance.uniform(*SLEEP_S), one.thaw)

    def cut_coordinators(self, _):
        self.place.postgres.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'lease-coordinator%%' AND pid <> pg_backend_pid()")

    def crash_server(self, _):
        """As an immediate shutdown; recovery takes as long as it takes."""
        self.server.crash()
        pause(self.chance.uniform(*AWAY_S))
        self.server.start()
        self.place.database.forget_connection()
        self.files.database.forget_connection()

    FAULTS = ((Storm.kill_worker, 8), (Storm.stop_worker, 8), (Storm.cut_worker, 4), (Storm.cut_database, 2), (Storm.kill_coordinator, 2),
              (Storm.restart_coordinator, 1), (sleep_coordinator, 2), (cut_coordinators, 2), (crash_server, 0.5))

    # ---- what it costs ----

    def sample(self):
        pid = self.coordinators[0].child.pid
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        connections = self.place.postgres.query("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'lease-coordinator%%'")[0][0]
        self.samples.append({"rss_mb": pages * os.sysconf("SC_PAGE_SIZE") / 2 ** 20, "descriptors": len(os.listdir(f"/proc/{pid}/fd")), "connections": connections})

    def growth(self):
        quarter = max(1, len(self.samples) // 4)
        early, late = self.samples[quarter:2 * quarter] or self.samples, self.samples[-quarter:]
        return {name: (statistics.median(one[name] for one in early), statistics.median(one[name] for one in late)) for name in GROWTH_MAX}

    # ---- the run ----

    def go_on(self, seconds, tell):
        begun = time.monotonic()
        next_fault, next_sample, next_word = begun + 2, begun, begun + TELL_S
        while (now := time.monotonic()) < begun + seconds:
            try:
                self.send(now - begun)
                if now >= next_sample:
                    self.sample()
                    next_sample = now + SAMPLE_S
            except psycopg2.OperationalError:      # cut by a fault of ours
                self.place.database.forget_connection()
                self.files.database.forget_connection()
            if now >= next_fault:
                self._one_fault()
                next_fault = time.monotonic() + self.chance.uniform(*FAULT_S)
            if now >= next_word:
                tell(f"{(now - begun) / 60:.0f} min: {self.load.sent + sum(self.sent.values()) - self.sent['commands']:,} messages, {sum(self.faults.values())} faults, "
                     f"{self.behind():,} behind, the first coordinator has {self.samples[-1]['rss_mb']:.1f} MB")
                next_word = now + TELL_S
            for coordinator in self.coordinators:
                coordinator.child.must_run()
            pause(0.1)

    def has_converged(self):
        for coordinator in self.coordinators:
            coordinator.child.must_run()
        ended = self.place.database.value(ENDED)
        assert ended >= self.sent["files"], f"{self.sent['files'] - ended} files are not done"
        delivered = self.place.database.value("SELECT count(*) FROM lease.leases WHERE kind = 'delivery' AND state = 'finished'")
        assert delivered == self.sent["deliveries"], f"{self.sent['deliveries'] - delivered} messages are not delivered"
        return self.place.is_idle()

    def converge(self, limit):
        self.heal()
        begun = time.monotonic()
        eventually(self.has_converged, limit, "everything that was asked for is done", every=0.2)
        took = time.monotonic() - begun
        assert self.stop(), "a worker did not end in order"      # the people say their last words
        self.place.wait_idle(60)
        return took

    # ---- the verdict ----

    def verdict(self):
        found = audit.Books(self.place).audit("--file-server", self._file_login(), "--root", self.files.root, limit=AUDIT_S)
        broken = dict(found.broken) if found.report else {"audit": repr(found)}
        broken.update(books_files.check(self.files_found()))
        late, forged = self.latecomer, self.forger
        assert self.inbox.messages().keys() == {f"delivery/m{n}" for n in range(self.sent["deliveries"])}
        return {"broken": broken, "judged": {name: one["judged"] for name, one in found.report["invariants"].items()} if found.report else {},
                "late": late.tried, "forged": forged.tried, "refused_at_the_gate": dict(late.refused)}

    def _file_login(self):
        conninfo = self.files.database.login("fileserver_user")
        user = psycopg2.extensions.parse_dsn(conninfo)["user"]
        self.files.database.query(f'GRANT lease_gate_user TO "{user}"')
        return conninfo


def soak(build, brokers, folder, seconds, seed, tell=lambda text: None, rates=None, converge_s=CONVERGE_S):
    """The figures of one run, as a dictionary; `broken` is empty if all is well."""
    with contextlib.ExitStack() as stack:
        server = Postgres(os.path.join(folder, "server"), settings={"shared_buffers": "128MB"}).start()
        stack.callback(server.stop)
        place = Place(server, GivenKafka(brokers), build, os.path.join(folder, "place"))
        stack.callback(place.close)
        place.prepare()
        files = FileServer(server.create_database("files"), os.path.join(folder, "root")).load()
        inbox = stack.enter_context(Inbox(server.create_database("inbox")))
        storm = Soak(place, server, files, inbox, seed, rates or RATES)
        stack.callback(storm.close)
        storm.begin()
        tell(f"seed {seed}; {seconds / 60:.1f} minutes of load and faults begin")
        storm.go_on(seconds, tell)
        tell("everything heals")
        took = storm.converge(converge_s)
        tell(f"converged in {took:.1f} s; the audit begins")
        outputs = sum(place.ends(OUTPUTS).values())
        inputs = sum(place.consumed().values())
        figures = {"seed": seed, "seconds": seconds, "messages": inputs, "events": inputs + outputs, "faults": dict(storm.faults), "converged_s": round(took, 1),
                   "refused_edits": storm.refused_edits, "lapsed": place.database.value("SELECT count(*) FROM lease.timeline WHERE event = 'lapsed'"),
                   **{f"{name}_early_late": [round(value, 1) for value in pair] for name, pair in storm.growth().items()}, **storm.verdict()}
        for name, (early, late) in storm.growth().items():
            if seconds >= FLAT_FROM_S and late - early > GROWTH_MAX[name]:
                figures["broken"][name] = f"{early:.1f} in the second quarter, {late:.1f} in the last"
        return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1, 10 ** 6))
    parser.add_argument("--load", type=float, default=1, help="of the usual load, for instance 0.5")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="lease-soak-")
    os.chmod(folder, 0o711)
    try:
        figures = soak(os.environ["LEASE_TEST_BIN"], os.environ["LEASE_TEST_BROKERS"], folder, arguments.minutes * 60, arguments.seed,
                       lambda text: print(time.strftime("%H:%M:%S"), text, flush=True),
                       {what: rate * arguments.load for what, rate in RATES.items()})
    except NotYet as problem:
        print(f"soak: {problem}; the files are in {folder}", file=sys.stderr)
        return 1
    print(json.dumps(figures, indent=2))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(figures), encoding="utf-8")
    if figures["broken"]:
        print(f"soak: broken; the files are in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
