"""The demo: four stories on real parts; what a person would type is leasectl's, the last two's workers are real processes.

Each step prints what happens, the command and its answer, and is checked: a demo that shows something else fails.
"""
import os
import shlex
import subprocess
import sys
import textwrap
import time

import psycopg2

from fileserver import FileServer
from royalty import HALF, PERIOD, TABLES, LeaseRoyalty, Royalty
from waiting import eventually
from workers import LeaseWorker

WIDTH = 110


class Teller:
    """Prints and runs. Files that a command writes (grants) land in a folder of the demo's own."""

    def __init__(self, place, tell):
        self.place = place
        self.tell = tell
        is_terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.bold, self.dim, self.plain = ("\033[1m", "\033[2m", "\033[0m") if is_terminal else ("", "", "")

    def chapter(self, title):
        self.tell(f"\n{self.bold}{title}{self.plain}")

    def says(self, text):
        self.tell("\n" + textwrap.fill(text, WIDTH))

    def shows(self, *lines):
        for line in lines:
            self.tell(f"  {self.dim}{line}{self.plain}")

    def types(self, line, expect, code=0):
        """Runs one leasectl line and shows it with its answer; `expect` must be in the answer."""
        self.tell(f"{self.bold}$ leasectl {line}{self.plain}")
        environment = dict(os.environ)
        environment.update(self.place.environment())
        done = subprocess.run([self.place.program("leasectl"), *shlex.split(line)], env=environment, cwd=self.place.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60)
        for output, start, end in ((done.stdout, "", ""), (done.stderr, self.dim, self.plain)):
            for shown in output.rstrip().splitlines():
                self.tell(f"  {start}{shown}{end}")
        if done.returncode != code or expect not in done.stdout:
            raise RuntimeError(f"the demo expected '{expect}' and exit code {code}, and got {done.returncode}; "
                               f"the end of the coordinator's log:\n{self.place.coordinators[0].child.log_tail(15)}")


def play(place, tell):
    begun = time.monotonic()
    place.prepare()
    place.coordinator().start()
    tell(f"tables and topics are made, a coordinator runs ({time.monotonic() - begun:.1f} s)")
    teller = Teller(place, tell)
    settlement(teller)
    cleanup(teller)
    file_server(teller, place)
    royalties(teller, place)
    tell(f"\n{time.monotonic() - begun:.0f} s. ./dev up leaves such a system running; README.md tells the rest.")


def settlement(teller):
    says, types = teller.says, teller.types
    teller.chapter("A settlement, paused at the wrong moment")
    says("Run A starts the settlement of June and takes the contracts it reads. Its lease lasts 5 seconds unless it is "
         "renewed. The grant has a number, the fence.")
    types("send settlement.start royalty-2026-06 holder=run-a ttl_ms=5000 "
          "resources:='[\"album/7\",\"track/501\"]' --wait --grant-to run-a.json", "granted")
    says("Run B tries the same settlement and is refused at once; the answer says who has it and until when. So is a "
         "correction run that needs one of the same contracts.")
    types("send settlement.start royalty-2026-06 holder=run-b --wait", "held", 1)
    types("send settlement.start correction-12 holder=run-c resources:='[\"track/501\"]' --wait", "held", 1)
    says("Run A renews: five more seconds from now.")
    types("send settlement.renew --grant run-a.json ttl_ms=5000 --wait", "renewed")
    says("Now run A is paused (a long collection of garbage, a stopped container). Nobody renews, the lease lapses, and "
         "everybody downstream is told at once which fences no longer count.")
    types("tail results --lease settlement/royalty-2026-06 --outcome lapsed --follow --count 1 --wait 30", "lapsed")
    says("Run B takes over. Its fence is higher.")
    types("send settlement.start royalty-2026-06 holder=run-b resources:='[\"album/7\",\"track/501\"]' "
          "--wait --grant-to run-b.json", "granted")
    says("Run A wakes up, knows nothing of this, and reports that it has finished. Its fence is outdated: stale.")
    types("send settlement.finish --grant run-a.json --wait", "stale", 1)
    says("Run B finishes. The settlement has ended, and stays so.")
    types("send settlement.finish --grant run-b.json result:='{\"rows\":1000}' --wait", "finished")
    says("What happened, from the journal in PostgreSQL:")
    types("timeline settlement/royalty-2026-06", "stale")


def cleanup(teller):
    says, types = teller.says, teller.types
    teller.chapter("A file to clean up, and a worker that died")
    says("A file is to be deleted and its quota settled: an item in the pool. Worker 1 claims it, and dies.")
    types("send cleanup.request file/2101 payload:='{\"path\":\"/srv/2101\",\"bytes\":4096}' --wait", "requested")
    types("send cleanup.claim worker-1 credit_total=1 refresh=1 ttl_ms=4000 --wait --grant-to worker-1.json", "granted")
    says("Worker 2 asks too. Nothing is there now, so its demand stays open. Worker 1's lease lapses, the item is ready "
         "again after a pause, and goes to worker 2 with a higher fence: attempt 2.")
    types("send cleanup.claim worker-2 credit_total=1 refresh=1 wait_ms=20000 --wait=20 --grant-to worker-2.json", "waiting")
    types("tail results --lease cleanup/file/2101", "lapsed")
    says("Worker 1 was not dead, only slow. It reports success, and is refused: the item is worker 2's.")
    types("send cleanup.finish --grant worker-1.json --wait", "stale", 1)
    types("send cleanup.finish --grant worker-2.json --wait", "finished")
    types("timeline cleanup/file/2101", "finished")


def file_server(teller, place):
    teller.chapter("A worker that is paused in the middle of a deletion")
    database = place.postgres.create_database("files")
    files = FileServer(database, os.path.join(place.folder, "files")).load()
    workers = [LeaseWorker(place, f"worker-{letter}", "cleanup", files, ttl_ms=1500, concurrency=1) for letter in "ab"]
    try:
        paused_worker(teller, place, files, *workers)
    finally:
        for worker in workers:
            worker.kill()
        database.drop()


def paused_worker(teller, place, files, first, second):
    says, types = teller.says, teller.types

    def look():
        used = files.used("ann")
        teller.shows(*sorted(f"{name}  {size:,} bytes" for name, size in files.on_disk().items()), f"account ann uses {used:,} bytes")
        return used

    says("A file server: the files are on this disk, names and quota in a database of its own, behind a gate that keeps the highest "
         "fence of each file. Ann has two files.")
    files.open_account("ann")
    files.add_many([("report", "ann", 4096), ("notes", "ann", 1000)])
    look()
    says("The report is to go. Worker A moves it to a name that carries its fence, the first step; and there it is stopped (SIGSTOP), "
         "before it has settled the quota.")
    first.start(crash="effect.renamed:1:stop")
    types("send cleanup.request report --wait", "requested")
    first.stopped_at("effect.renamed")
    look()
    says("Its lease lapses. Worker B gets the file under a higher fence, finds it half done, and ends it.")
    second.start()
    types("tail results --lease cleanup/report --outcome finished --follow --count 1 --wait 60", "finished")
    used = look()
    says("Worker A wakes up (SIGCONT) where it was: its next step is to settle the quota. The gate has seen a higher fence.")
    first.resume()
    eventually(lambda: "verdict=stale" in first.log(), 60, "worker A is refused")
    teller.shows(*[line.split(" ", 1)[1] for line in first.log().splitlines() if "lease lost" in line or "verdict=stale" in line])
    says("Nothing has changed: the file is gone once, and its bytes were given back once.")
    if look() != used or used != 1000:
        raise RuntimeError(f"the demo expected 1000 bytes in use, and {files.used('ann')} are")
    types("timeline cleanup/report", "finished")


def royalties(teller, place):
    teller.chapter("A rate that is changed in the middle of a settlement")
    royalty = Royalty(place.database).load()
    royalty.story()
    runs = [LeaseRoyalty(place, royalty, settlement, contracts="track-contract/A", chunk_sales=HALF) for settlement in ("june", "june-again")]
    try:
        two_bases(teller, royalty, runs[0])
        one_basis(teller, royalty, runs[1])
    finally:
        for run in runs:
            run.kill()


def operator(teller, database, statement, code=None):
    """An operator at psql; `code` is the SQLSTATE of the refusal."""
    teller.tell(f"{teller.bold}$ psql -c \"{statement}\"{teller.plain}")
    try:
        database.query(statement)
        got, lines = None, ["done"]
    except psycopg2.Error as error:
        got, lines = error.pgcode, error.pgerror.partition("\nCONTEXT:")[0].splitlines()
    for line in lines:
        teller.tell(f"  {line}")
    if got != code:
        raise RuntimeError(f"the demo expected {code}, and got {got}")


def bases(teller, royalty, settlement):
    """What each basis came to."""
    rows = royalty.database.query("SELECT rate, first_work, last_work, royalty FROM royalty.basis WHERE settlement = %s ORDER BY first_work",
                                  (settlement,))
    teller.shows(*[f"tracks {first} to {last} at {rate:.0%}: {amount:,.2f}" for rate, first, last, amount in rows])
    return len(rows)


def half_settled(teller, run):
    """Tracks 1 to 500 are computed; there it stands still, as a long settlement would be in the middle."""
    teller.tell(f"{teller.bold}$ lease-royalty --settlement {run.settlement} --period {PERIOD} --contracts track-contract/A{teller.plain}")
    run.start(crash="royalty.written:1:stop").stopped_at("royalty.written")


def settled(teller, royalty, run, expected):
    """Lets the run go on to its end; the number of bases it must have come to."""
    run.resume()
    status, said = run.wait()
    found = bases(teller, royalty, said["settlement"])
    teller.shows(f"total {said['total']}")
    if status != 0 or found != expected:
        raise RuntimeError(f"the demo expected {expected} bases, and got {found} (exit code {status})")
    return said["total"]


def two_bases(teller, royalty, run):
    teller.says("Contract A pays 70 percent of what its thousand tracks sold. A settlement (lease-royalty) has computed tracks 1 to 500 when an "
                "operator sets 60 percent. Its lease covers contract A, but a lease is only kept by those who ask for one, and psql does not.")
    half_settled(teller, run)
    operator(teller, royalty.database, "UPDATE royalty.track_contract SET rate = 0.60 WHERE contract = 'A'")
    settled(teller, royalty, run, 2)
    teller.says("One settlement, two bases, and a total that is right by neither.")


def one_basis(teller, royalty, run):
    royalty.edit("0.70")
    teller.says("Now the three tables of contracts are registered: PostgreSQL itself refuses to change payee or rate of a contract under a live "
                "lease, whoever asks. The same settlement again.")
    for kind, table in TABLES.items():
        operator(teller, royalty.database, f"SELECT lease.guard_table('{table}', '{kind}', ARRAY['payee', 'rate'])")
    half_settled(teller, run)
    operator(teller, royalty.database, "UPDATE royalty.track_contract SET rate = 0.60 WHERE contract = 'A'", "LE010")
    total = settled(teller, royalty, run, 1)
    if total != str(royalty.right_total()):
        raise RuntimeError(f"the demo expected a total of {royalty.right_total()}, and got {total}")
    teller.says("One basis. The settlement has finished; from this moment the rate may change.")
    operator(teller, royalty.database, "UPDATE royalty.track_contract SET rate = 0.60 WHERE contract = 'A'")
