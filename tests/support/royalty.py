"""A royalty settlement for tests: its tables in a database (sql/gate/gate.sql, sql/royalty/royalty.sql) and processes of lease-royalty.

    royalty = Royalty(place.database).load()
    royalty.story()                                  # contract A: 70 %, tracks 1 to 1000
    run = LeaseRoyalty(place, royalty, "royalty-2026-06").start(crash="royalty.written:1:stop")
    run.stopped_at("royalty.written"), run.resume(), run.wait()
"""
import json
import os
import pathlib
import signal

import psycopg2

from processes import Child, is_stopped
from waiting import eventually

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = (ROOT / "sql" / "gate" / "gate.sql", ROOT / "sql" / "royalty" / "royalty.sql")
PERIOD = "2026-06"
TYPES = ("album-contract", "track-contract", "video-contract")
TABLES = {kind: f"royalty.{kind.replace('-', '_')}" for kind in TYPES}
TRACKS = 1000
HALF = 2 * TRACKS // 2          # sales of the first half of the tracks: a chunk
AMOUNT = "1.234567"


class Royalty:
    def __init__(self, database):
        self.database = database
        self.login = None

    def conninfo(self):
        """Of an account that may do what a settlement does, and no more."""
        self.login = self.login or self.database.login("royalty_user")
        return self.login

    def load(self):
        connection = psycopg2.connect(self.database.conninfo)
        try:
            for path in FILES:
                with connection, connection.cursor() as cursor:
                    cursor.execute(path.read_text(encoding="utf-8"))
        finally:
            connection.close()
        return self

    def guard(self):
        """Registers the three tables with the coordinator's own database."""
        for kind, table in TABLES.items():
            self.database.query("SELECT lease.guard_table(%s::regclass, %s, ARRAY['payee', 'rate'])", (table, kind))

    def generate(self, seed, contracts=100, sales=5000):
        self.database.query("SELECT royalty.generate(%s, %s, %s, %s)", (seed, contracts, sales, PERIOD))

    def story(self, contract="A"):
        """One contract over a thousand tracks, each of which was sold twice; 70 percent."""
        self.database.query("INSERT INTO royalty.track_contract (contract, payee, rate) VALUES (%s, 'Ann', 0.70)", (contract,))
        self.database.query("INSERT INTO royalty.sale SELECT 'track-contract', %s, %s, t, 2 * t + n, %s"
                            " FROM generate_series(1, %s) t, generate_series(0, 1) n", (PERIOD, contract, AMOUNT, TRACKS))

    def edit(self, rate, contract="A"):
        """What the operator does in between."""
        self.database.query("UPDATE royalty.track_contract SET rate = %s WHERE contract = %s", (rate, contract))

    def right_total(self, contracts=None):
        """What it must come to, computed by SQL with the rates of now."""
        return self.database.value(
            "SELECT coalesce(sum(round(w.gross * c.rate, 6)), 0) FROM royalty.contract c JOIN"
            " (SELECT type, contract, work, sum(amount) AS gross FROM royalty.sale WHERE period = %s GROUP BY 1, 2, 3) w USING (type, contract)"
            " WHERE %s::text[] IS NULL OR c.type || '/' || c.contract = ANY (%s)", (PERIOD, contracts, contracts))

    def basis(self, settlement):
        """[(rate, first work, last work)] of a settlement over one contract."""
        return [(str(rate), first, last) for rate, first, last in self.database.query(
            "SELECT rate, first_work, last_work FROM royalty.basis WHERE settlement = %s ORDER BY first_work", (settlement,))]

    def settlement(self, name):
        """(state, lines, total, basis)"""
        return self.database.query("SELECT state, lines, total, basis FROM royalty.settlement WHERE settlement = %s", (name,))[0]

    def fences(self, name):
        """[(fence, lines)] of those who wrote."""
        return self.database.query("SELECT fence, count(*) FROM royalty.settlement_line WHERE settlement = %s GROUP BY 1 ORDER BY 1", (name,))


class LeaseRoyalty:
    """One process; `settings` are its configuration keys."""

    def __init__(self, place, royalty, settlement, name="royalty", **settings):
        values = {"settlement": settlement, "period": PERIOD, "name": name, "brokers": place.kafka.brokers, "topic_prefix": place.prefix,
                  "royalty_database": royalty.conninfo(), "log_level": "debug"}
        values.update(settings)
        self.name = name
        self.settlement = settlement
        self.output = os.path.join(place.folder, f"{settlement}.{name}.out")
        self.crash_log = os.path.join(place.folder, f"{settlement}.{name}.crashes")
        environment = {f"LEASE_{key.upper()}": str(value) for key, value in values.items()}
        environment["LEASE_CRASH_LOG"] = self.crash_log
        self.child = Child(name, ["/bin/sh", "-c", 'exec "$0" >"$1"', place.program("lease-royalty"), self.output],
                           os.path.join(place.folder, f"{settlement}.{name}.log"), env=environment)

    def start(self, crash=None):
        self.child.env.pop("LEASE_CRASH", None)
        if crash:
            self.child.env["LEASE_CRASH"] = crash
        self.child.start()
        return self

    def log(self):
        with open(self.child.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def says(self, text, limit=60):
        eventually(lambda: text in self.log(), limit, f"{self.name} says '{text}': {self.log()[-1000:]}")

    def is_suspended(self):
        assert self.child.is_running(), f"{self.name} ended: {self.log()[-2000:]}"
        return is_stopped(self.child.pid)

    def stopped_at(self, point, limit=60):
        """Waits until it stands still, by that point."""
        eventually(self.is_suspended, limit, f"{self.name} stops at {point}", every=0.01)
        with open(self.crash_log, encoding="ascii") as log:
            assert log.read().split()[-1:] == [point]

    def resume(self):
        self.child.signal(signal.SIGCONT)

    def wait(self, limit=90):
        """(exit status, what it printed)"""
        eventually(lambda: not self.child.is_running(), limit, f"{self.name} ends", every=0.01)
        with open(self.output, encoding="utf-8") as output:
            text = output.read()
        return self.child.returncode(), json.loads(text) if text else None

    def kill(self):
        self.child.kill()
