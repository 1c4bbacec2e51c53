"""Pool workers against job libraries of other languages: items that ask for nothing, already requested, until the last one is finished.

    ./dev bench workers [--json FILE]

Everything on the same server, in turn, in the same run. What the others do less is said in peers/README.md.
"""
import os
import shutil
import statistics
import subprocess
import threading
import time

from waiting import eventually

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(HERE, "peers")
PROCESSES = (1, 2, 8)
LIMIT_S = 300
CREDIT = 4000       # items that a worker has in hand or has asked for, over all processes


def cache_folder():
    return os.environ.get("LEASE_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "leasehold")


def copy_of(name):
    """The peer's folder in the cache, made anew when its files here are other ones."""
    folder = os.path.join(cache_folder(), "peers", name)
    os.makedirs(folder, exist_ok=True)
    for file in os.listdir(os.path.join(PEERS, name)):
        shutil.copy(os.path.join(PEERS, name, file), folder)
    return folder


def installed_graphile():
    folder = copy_of("graphile")
    if not os.path.isdir(os.path.join(folder, "node_modules", "graphile-worker")):
        subprocess.run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return ["node", os.path.join(folder, "peer.js")]


def installed_river():
    folder = copy_of("river")
    subprocess.run(["go", "build", "-o", "peer", "."], cwd=folder, check=True)
    return [os.path.join(folder, "peer")]


# The library, what it needs, how it is installed, and how many jobs it has left.
LIBRARIES = [
    ("graphile-worker", ("node", "npm"), installed_graphile, "SELECT count(*) FROM graphile_worker._private_jobs"),
    ("River", ("go",), installed_river, "SELECT count(*) FROM river_job WHERE state <> 'completed'"),
]


class Process:
    """One worker process, peer's or ours: says ready, waits for a line, works until its input ends."""

    def __init__(self, words):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lines, self.finished, self.begun = [], 0, {}
        assert self.process.stdout.readline() == "ready\n", f"{words[0]} did not start"
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "finished":
                self.finished = int(words[1])
            elif words[0] == "begun":
                self.begun[words[1]] = int(words[2])

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run(start, count, is_done):
    """Jobs per second of `count` processes; is_done() is asked until it is true."""
    processes = [start() for _ in range(count)]
    try:
        begun = time.monotonic()
        for process in processes:
            process.go()
        eventually(lambda: is_done(processes), LIMIT_S, "the last item is finished", every=0.05)
        return time.monotonic() - begun
    finally:
        for process in processes:
            process.end()


def url_of(conninfo):
    """libpq's conninfo as the URL that the others want."""
    parts = dict(part.split("=", 1) for part in conninfo.split())
    parts = {name: value.strip("'") for name, value in parts.items()}
    secret = f":{parts['password']}" if "password" in parts else ""
    return f"postgres://{parts['user']}{secret}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def peer_seconds(bench, command, left, count, items):
    database = bench.postgres.create_database()
    try:
        url = url_of(database.conninfo)
        subprocess.run([*command, "prepare", url, str(items)], check=True, stdout=subprocess.DEVNULL)
        return run(lambda: Process([*command, "work", url]), count, lambda _: database.value(left) == 0)
    finally:
        database.drop()


def our_words(bench, place, credit):
    return [os.path.join(bench.build, "tests/bench/bench-worker"), bench.kafka.brokers, place.prefix, "delivery", str(credit)]


def request(place, count, name="item"):
    events = place.events()
    for number in range(count):
        events.send("delivery", "request", f"{name}-{number}", {})
    events.flush()


def our_seconds(bench, count, items):
    place = bench.place()
    try:
        place.coordinator().start()
        request(place, items)
        place.wait_idle(120)
        place.database.query("VACUUM ANALYZE lease.lease")
        return run(lambda: Process(our_words(bench, place, CREDIT // count)), count,
                   lambda processes: sum(process.finished for process in processes) >= items)
    finally:
        place.close()


def latency_ms(bench, rounds):
    """Request sent → handler begun, one at a time, on a system that does nothing else."""
    place = bench.place()
    try:
        place.coordinator().start()
        worker = Process(our_words(bench, place, 1))
        worker.go()
        request(place, 1, "warm-up")
        eventually(lambda: "warm-up-0" in worker.begun, LIMIT_S, "the worker has come to its stride")
        place.wait_idle()
        events, late = place.events(), []
        for number in range(rounds):
            sent = time.time()
            events.send("delivery", "request", f"ping-{number}", {})
            events.flush()
            begun = eventually(lambda item=f"ping-{number}": worker.begun.get(item), 10, f"item {number} is begun", every=0.02)
            late.append(begun / 1000 - sent * 1000)
        worker.end()
        return statistics.median(late)
    finally:
        place.close()


def workers(bench):
    items = bench.sizes.items
    rates = {}
    libraries = []
    for name, needs, install, left in LIBRARIES:
        missing = [program for program in needs if shutil.which(program) is None]
        if missing:
            bench.tell(f"  {name} is LEFT OUT: {', '.join(missing)} not found")
        else:
            libraries.append((name, install(), left))
    for count in PROCESSES:
        for name, command, left in libraries:
            rates[name, count] = items / peer_seconds(bench, command, left, count, items)
        rates["ours", count] = items / our_seconds(bench, count, items)
        bench.tell(f"  {count} processes: " + ", ".join(f"{name} {rates[name, count]:,.0f}/s" for name, at in rates if at == count))
    ours = max(rates["ours", count] for count in PROCESSES)
    if libraries:
        fastest = max((rate, name, count) for (name, count), rate in rates.items() if name != "ours")
        yield "items_vs_peer", ours / fastest[0], f"{ours:,.0f}/s against {fastest[0]:,.0f}/s ({fastest[1]}, {fastest[2]} processes)"
    yield "item_latency_p50_ms", latency_ms(bench, bench.sizes.pings), f"{bench.sizes.pings} items, one at a time"
