"""The benchmarks: interleaved runs of lease-bench, medians, and one table with each figure beside its aim.

    bench.py [--json FILE] [--smoke] [--only NAME ...]

Runs on the system that `./dev bench` has started (LEASE_TEST_BROKERS, LEASE_TEST_DATABASE, LEASE_TEST_BIN). A ratio compares
two things measured in turn in the same run on the same machine; the absolute figures behind it stand beside it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

from confluent_kafka.admin import NewTopic  # noqa: E402

from kafka import GivenKafka          # noqa: E402
from place import Place               # noqa: E402
from postgres import GivenPostgres    # noqa: E402
from waiting import eventually        # noqa: E402
from pool import workers              # noqa: E402
from guard import guard               # noqa: E402

# name, aim, which way is better, what is measured
ROWS = [
    ("full_path_vs_sql", 0.8, "higher", "Kafka → PostgreSQL → Kafka, one lane, against the same batches on one bare connection"),
    ("full_path_vs_per_message", 15, "higher", "the same against one transaction, one result, one offset commit per message"),
    ("latency_vs_floor", 1.5, "lower", "a lone command, produced → result consumed, against two bare hops and a bare commit"),
    ("leases_1e6_vs_1e4", 0.9, "higher", "throughput with 10^6 leases present against 10^4"),
    ("renew_1e6_vs_1", 1.2, "lower", "renewing a run over 10^6 contracts against one over 1"),
    ("finish_1e6_vs_1", 1.2, "lower", "finishing it"),
    ("start_vs_update", 1.5, "lower", "starting a run over 10,000 contracts against a plain UPDATE of the same rows"),
    ("hot_key_events_per_s", None, "higher", "events of one single lease through the full path"),
    ("rss_mb", 64, "lower", "the coordinator's largest resident memory under full load"),
    ("guard_vs_none", 1.4, "lower", "an edit of a guarded row that no run covers against the same table without a guard"),
    ("dead_stamp_us", 10, "lower", "what the stamp of a run that has finished adds to an edit of its row"),
    ("lapse_to_edit_ms", 10, "lower", "from a killed run's expiry to the first edit that is let through"),
    ("longest_gap_ms", 250, "lower", "the longest wait of another lease's renewal while a run covers a whole table"),
    ("items_vs_peer", 1.5, "higher", "pool items that ask for nothing, against the faster of two job libraries"),
    ("item_latency_p50_ms", 6, "lower", "an item's request sent → its handler begun, on an idle system"),
]


class Sizes:
    """How much is run: in earnest, or just enough to see that everything works."""

    def __init__(self, smoke):
        self.rounds = 1 if smoke else 3
        self.events = 3000 if smoke else 60000
        self.per_message = 100 if smoke else 1500
        self.pings = 20 if smoke else 400
        self.hot = 2000 if smoke else 30000
        self.few = 1000 if smoke else 10_000
        self.many = 5000 if smoke else 1_000_000
        self.covered = 20_000 if smoke else 1_000_000
        self.covered_rounds = 10 if smoke else 200
        self.items = 2000 if smoke else 100_000
        self.guard_rounds = 3 if smoke else 40


def figures(line):
    """'sql count 10 us 5' → {'count': 10, 'us': 5}"""
    words = line.split()[1:]
    return {words[i]: int(words[i + 1]) for i in range(0, len(words), 2)}


class Bench:
    def __init__(self, folder, sizes):
        self.postgres = GivenPostgres(os.environ["LEASE_TEST_DATABASE"])
        self.kafka = GivenKafka(os.environ["LEASE_TEST_BROKERS"])
        self.postgres.start()
        self.kafka.start()
        self.build = os.environ["LEASE_TEST_BIN"]
        self.folder = folder
        self.sizes = sizes
        self.places = 0

    def tell(self, text):
        print(text, file=sys.stderr, flush=True)

    def place(self):
        self.places += 1
        return Place(self.postgres, self.kafka, self.build, os.path.join(self.folder, str(self.places))).prepare()

    def command(self, place, mode, run, **options):
        words = [os.path.join(self.build, "tests/bench/lease-bench"), mode, "--database", place.database.conninfo,
                 "--brokers", self.kafka.brokers, "--prefix", place.prefix, "--run", run]
        for key, value in options.items():
            words += [f"--{key}", str(value)]
        return words, dict(os.environ, **place.environment())

    def run(self, place, mode, run, **options):
        words, environment = self.command(place, mode, run, **options)
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, timeout=900, check=True)
        return figures(done.stdout.decode().splitlines()[-1])

    def per_second(self, place, mode, run, **options):
        got = self.run(place, mode, run, **options)
        return got["count"] / (got["us"] / 1e6)

    def full_path(self, place, run, kind, count):
        """Events per second through a coordinator with one lane that finds everything waiting; and its largest resident size."""
        self.run(place, "produce", run, kind=kind, count=count)
        words, environment = self.command(place, "drain", run, count=count)
        drain = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE)
        try:
            assert drain.stdout.readline() == b"ready\n"
            coordinator = place.coordinator(lanes=1).start()
            out = drain.communicate(timeout=300)[0].decode()
            assert drain.returncode == 0, "not every command was answered"
            rss = peak_rss_mb(coordinator.child.process.pid)
            place.wait_idle()
            coordinator.stop()
        finally:
            if drain.poll() is None:
                drain.kill()
                drain.wait()
        got = figures(out.splitlines()[-1])
        return got["count"] / (got["us"] / 1e6), rss


def peak_rss_mb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM")


def throughput(bench):
    """The full path, the bare connection and the straightforward consumer, in turn."""
    full, bare, single, rss = [], [], [], []
    for i in range(bench.sizes.rounds):
        place = bench.place()
        bare.append(bench.per_second(place, "sql", f"sql{i}", count=bench.sizes.events))
        place.close()
        place = bench.place()
        rate, size = bench.full_path(place, f"full{i}", "mixed", bench.sizes.events)
        full.append(rate)
        rss.append(size)
        place.close()
        place = bench.place()
        bench.run(place, "produce", f"one{i}", count=bench.sizes.per_message + 100)
        single.append(bench.per_second(place, "per-message", f"one{i}", count=bench.sizes.per_message))
        place.close()
        bench.tell(f"  full path {full[-1]:,.0f}/s, bare {bare[-1]:,.0f}/s, per message {single[-1]:,.0f}/s, resident {rss[-1]:.1f} MB")
    f, b, s = (statistics.median(values) for values in (full, bare, single))
    yield "full_path_vs_sql", statistics.median(x / y for x, y in zip(full, bare)), f"{f:,.0f}/s against {b:,.0f}/s"
    yield "full_path_vs_per_message", statistics.median(x / y for x, y in zip(full, single)), f"{f:,.0f}/s against {s:,.0f}/s"
    yield "rss_mb", max(rss), f"{bench.sizes.events:,} events waiting"


def latency(bench):
    place = bench.place()
    # Topics of the shape of ours: a fetch that names twelve partitions costs more than one that names one.
    admin = bench.kafka.admin()      # its futures end with it
    made = admin.create_topics([NewTopic(place.prefix + name, 12, 1) for name in ("bench.one", "bench.two")])
    for name, future in made.items():
        future.result()
        eventually(lambda made=name: made in bench.kafka.topics(), 20, "the broker tells of the topic")
    place.coordinator().start()
    got = bench.run(place, "latency", "ping", rounds=bench.sizes.pings)
    place.close()
    yield "latency_vs_floor", got["ours_us"] / got["floor_us"], f"{got['ours_us'] / 1000:.2f} ms against {got['floor_us'] / 1000:.2f} ms"


def preload(place, count):
    """Held leases, straight into the table: a benchmark's own database only."""
    place.database.query(f"""
      INSERT INTO lease.lease (kind, lease, state, holder, claim_id, fence, since, lease_until, ttl_ms, attempt, check_at)
      SELECT 'settlement', 'present-' || i, 'held', 'run-' || i, gen_random_uuid(), nextval('lease.fence'), now(),
             now() + interval '1 day', 3600000, 1, now() + interval '1 day'
        FROM generate_series(1, {count}) i""")
    place.database.query("VACUUM ANALYZE lease.lease")


def size(bench):
    few, many = bench.place(), bench.place()
    preload(few, bench.sizes.few)
    preload(many, bench.sizes.many)
    small, large = [], []
    for i in range(bench.sizes.rounds):
        small.append(bench.per_second(few, "sql", f"r{i}", count=bench.sizes.events // 2))
        large.append(bench.per_second(many, "sql", f"r{i}", count=bench.sizes.events // 2))
        bench.tell(f"  {bench.sizes.few:,} leases {small[-1]:,.0f}/s, {bench.sizes.many:,} leases {large[-1]:,.0f}/s")
    few.close()
    many.close()
    yield ("leases_1e6_vs_1e4", statistics.median(x / y for x, y in zip(large, small)),
           f"{statistics.median(large):,.0f}/s against {statistics.median(small):,.0f}/s")


def covered(bench):
    place = bench.place()
    got = bench.run(place, "covered", "covered", count=bench.sizes.covered, rounds=bench.sizes.covered_rounds)
    place.close()
    for what in ("renew", "finish"):
        big, small = got[f"{what}_big_us"], got[f"{what}_small_us"]
        yield f"{what}_1e6_vs_1", big / small, f"{big} µs against {small} µs"
    yield "start_vs_update", got["start_us"] / got["update_us"], f"{got['start_us'] / 1000:.1f} ms against {got['update_us'] / 1000:.1f} ms"


def hot(bench):
    place = bench.place()
    rate, _ = bench.full_path(place, "hot", "hot", bench.sizes.hot)
    place.close()
    yield "hot_key_events_per_s", rate, f"{bench.sizes.hot:,} renewals of one lease"


PARTS = {"throughput": throughput, "latency": latency, "size": size, "covered": covered, "hot": hot, "guard": guard, "workers": workers}


def show(found):
    print(f"{'measured':<26} {'value':>10} {'aim':>8}  {'figures':<38} what")
    for name, aim, better, what in ROWS:
        if name not in found:
            continue
        value, behind = found[name]
        bound = "" if aim is None else f"{'≥' if better == 'higher' else '≤'} {aim:g}"
        is_met = aim is None or (value >= aim if better == "higher" else value <= aim)
        print(f"{name:<26} {value:>10,.2f} {bound:>8}{' ' if is_met else '!'} {behind:<38} {what}")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench --", description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--smoke", action="store_true", help="just enough to see that everything works; the figures mean nothing")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), help="these parts only (without it: all but guard and workers)")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder:
        os.chmod(folder, 0o711)
        bench = Bench(folder, Sizes(options.smoke))
        for part in options.only or [part for part in PARTS if part not in ("guard", "workers")]:
            bench.tell(f"{part} ...")
            for name, value, behind in PARTS[part](bench):
                found[name] = (value, behind)
    show(found)
    if options.json:
        rows = [{"name": name, "value": round(found[name][0], 4), "aim": aim, "better": better}
                for name, aim, better, _ in ROWS if name in found]
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
