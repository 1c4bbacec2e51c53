"""Running lease-audit, as an auditor would: with a login that may only read.

    books = Books(place)                                 # logins for it are made once
    found = books.audit(database=clone)                  # of a copy of the place's database; topics are the place's
    found.code, found.broken, found.of("I4")["counterexample"]
"""
import json
import os
import pathlib
import subprocess

AUDIT = pathlib.Path(__file__).resolve().parent.parent.parent / "audit" / "lease-audit"
LIMIT_S = 120
# It starts sooner so, and runs slower: for tests.
QUICK = "-XX:TieredStopAtLevel=1"


class Found:
    def __init__(self, code, said, told):
        self.code, self.told = code, told
        self.report = json.loads(said) if said.strip().startswith("{") else None
        self.text = said

    def of(self, invariant):
        return self.report["invariants"][invariant]

    @property
    def verdicts(self):
        return {name: one["verdict"] for name, one in self.report["invariants"].items()}

    @property
    def broken(self):
        """Invariant → its first counterexample, of those that are broken."""
        return {name: one["counterexample"] for name, one in self.report["invariants"].items() if one["verdict"] == "broken"}

    def __repr__(self):
        return f"exit {self.code}\n{self.text}{self.told}"


def run(words, environment=None, limit=LIMIT_S):
    """Exit code, standard output and standard error of one run."""
    done = subprocess.run([str(AUDIT), *map(str, words)], env={**os.environ, "LEASE_AUDIT_JAVA": QUICK, **(environment or {})}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit)
    return Found(done.returncode, done.stdout.decode(), done.stderr.decode())


class Books:
    def __init__(self, place, database=None):
        self.place = place
        self.conninfo = (database or place.database).login("lease_reader")

    def conninfo_of(self, database):
        """The same login in another database of the server."""
        import psycopg2.extensions
        return psycopg2.extensions.make_dsn(self.conninfo, dbname=database.name)

    def audit(self, *words, database=None, json_out=True, limit=LIMIT_S, **settings):
        values = {"brokers": self.place.kafka.brokers, "topic_prefix": self.place.prefix, "token_key": self.place.token_key,
                  "database": self.conninfo_of(database or self.place.database)}
        values.update(settings)
        environment = {f"LEASE_{key.upper()}": value for key, value in values.items() if value is not None}
        return run([*(["-o", "json"] if json_out else []), "--memory", "128m", *words], environment, limit)
