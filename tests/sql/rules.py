"""Calls of lease.apply as a test wants to read them, and a database to make them on.

A Lane is a connection that may stand in the middle of a transaction. A command is a dict; `answer = lane.apply(start("s1",
holder="h1"))` decides it, without committing. Moments are seconds after BASE (a year in which no real clock interferes), or
None for the database's own clock.
"""
import collections
import datetime
import hashlib
import itertools
import json
import os
import sys
import threading
import time

import psycopg2

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from harness import eventually  # noqa: E402

BASE = datetime.datetime(2100, 1, 1, tzinfo=datetime.timezone.utc)
Answer = collections.namedtuple("Answer", "ord outcome number fence claim_id until")
numbers = itertools.count(1)
STATEMENT_MS = 60_000   # a test that waits for ever is a failed one

# The parameters of lease.apply: where a command's dict has it, and its SQL type.
PARAMETERS = [
    ("topic", "text"), ("partition", "int"), ("offset", "bigint"),
    ("kind", "text"), ("command", "text"), ("subject", "text"), ("source", "text"), ("id", "text"), ("digest", "bytea"),
    ("traceparent", "text"), ("holder", "text"), ("fence", "bigint"), ("claim_id", "uuid"), ("token_fits", "boolean"),
    ("ttl_ms", "bigint"), ("amount", "bigint"), ("refresh", "bigint"), ("wait_ms", "bigint"), ("word", "text"), ("flag", "boolean"),
    ("resource_upto", "int"), (None, "text"), ("table_upto", "int"), (None, "text"), ("payload", "text"),
    ("verdict", "text"), ("reason", "text"), ("field", "text"), ("raw_key", "bytea"), ("raw_value", "bytea"), ("raw_headers", "bytea"),
]
STATEMENT = ("SELECT ord, outcome, number, fence, claim_id::text, lease_until FROM lease.apply("
             + ", ".join(f"%s::{sql_type}[]" for _, sql_type in PARAMETERS) + ", %s, %s::boolean[]) WHERE ord > 0 ORDER BY ord")


def moment(seconds):
    return None if seconds is None else BASE + datetime.timedelta(seconds=seconds)


def command(kind, word, subject, /, **fields):
    """Any command. The message's id is a new one unless given; the digest follows from the content."""
    made = {"kind": kind, "command": word, "subject": subject, "topic": f"{kind}.events", "partition": 0, "offset": next(numbers),
            "source": "/tests/sql", "id": f"m{next(numbers)}", "resources": [], "tables": []}
    made.update(fields)
    if "digest" not in fields:
        content = {key: value for key, value in made.items() if key not in ("topic", "partition", "offset", "id", "source")}
        made["digest"] = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).digest()[:16]
    return made


def start(subject, holder="h1", resources=(), more=False, tables=(), ttl=None, kind="settlement", **fields):
    return command(kind, "start", subject, holder=holder, resources=list(resources), flag=more, tables=list(tables),
                   ttl_ms=ttl, **fields)


def request(subject, delay_ms=None, kind="cleanup", **fields):
    return command(kind, "request", subject, amount=delay_ms, payload=fields.pop("payload", '{"path": "a"}'), **fields)


def claim(worker, credit, refresh=1, wait_ms=None, ttl=None, kind="cleanup", **fields):
    return command(kind, "claim", worker, holder=worker, amount=credit, refresh=refresh, wait_ms=wait_ms, ttl_ms=ttl, **fields)


def resolve(kind, subject, verdict, fence=None, ttl=None, actor="ann", reason="seen on the disk", **fields):
    """An operator's word about a lease whose fence he saw (None: it had none)."""
    said = {"actor": actor, "reason": reason, "verdict": verdict, "fence": fence, **({"ttl_ms": ttl} if ttl else {})}
    return command(kind, "resolve", subject, word=verdict, fence=fence, ttl_ms=ttl, payload=json.dumps(said), **fields)


def over(*said, **fields):
    """One command over many items of one holder: what it would say of each alone."""
    first = said[0]
    return command(first["kind"], first["command"], first["holder"], holder=first["holder"], ttl_ms=first.get("ttl_ms"),
                   items=[dict(item, digest=None) for item in said], **fields)


def expanded(commands):
    """A command over many is a head, and behind it each of its items, which comes from where the head does."""
    for one in commands:
        items = one.pop("items", None)
        yield dict(one, member=None if items is None else False)
        for item in items or ():
            yield dict(item, member=True, **{name: one.get(name) for name in ("topic", "partition", "offset", "source", "id", "verdict", "reason")})


class Grant:
    """What a holder knows, and the commands that he can give."""

    def __init__(self, kind, subject, holder, fence, claim_id, until=None):
        self.kind, self.subject, self.holder, self.fence, self.claim_id, self.until = kind, subject, holder, fence, claim_id, until

    def says(self, word, /, **fields):
        fields = {"holder": self.holder, "fence": self.fence, "claim_id": self.claim_id, "token_fits": True, **fields}
        return command(self.kind, word, self.subject, **fields)

    def fails(self, retry=True, delay_ms=None, **fields):
        return self.says("fail", flag=retry, amount=delay_ms, word="broken", **fields)


class Lane:
    """One connection. apply() leaves its transaction open; commit() and rollback() end it."""

    def __init__(self, conninfo):
        self.connection = psycopg2.connect(conninfo, application_name="lane", options=f"-c statement_timeout={STATEMENT_MS}")
        self.pid = self.connection.get_backend_pid()

    def query(self, sql, parameters=None):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    def value(self, sql, parameters=None):
        return self.query(sql, parameters)[0][0]

    def apply(self, *commands, at=None):
        resources, tables, columns = [], [], []
        commands = list(expanded([dict(c) for c in commands]))
        for c in commands:
            resources += c["resources"]
            tables += c["tables"]
            c["resource_upto"], c["table_upto"] = len(resources), len(tables)
        for name, _ in PARAMETERS:
            columns.append([c.get(name) for c in commands] if name else None)
        columns[21], columns[23] = resources, tables
        members = [c["member"] for c in commands]
        rows = [Answer(*row) for row in self.query(STATEMENT, columns + [moment(at), members if False in members else None])]
        assert [row.ord for row in rows] == [place for place, member in enumerate(members, 1) if not member]
        return rows if len(rows) != 1 else rows[0]

    def decide(self, *commands, at=None):
        """apply and commit."""
        answers = self.apply(*commands, at=at)
        self.commit()
        return answers

    def outcomes(self, *commands, at=None):
        answers = self.decide(*commands, at=at)
        return [a.outcome for a in answers] if isinstance(answers, list) else answers.outcome

    def grant_of(self, started, at=None):
        """Applies a start and gives the grant."""
        answer = self.decide(started, at=at)
        assert answer.outcome == "granted", answer
        return Grant(started["kind"], started["subject"], started["holder"], answer.fence, answer.claim_id, answer.until)

    def grants_after(self, number):
        """Grants out of demand behind a journal number, oldest first."""
        rows = self.query("SELECT kind, subject, holder, fence, claim_id::text, lease_until FROM lease.timeline "
                          "WHERE number > %s AND is_grant AND command IS NULL ORDER BY number", (number,))
        self.commit()
        return [Grant(*row) for row in rows]

    def claim_one(self, item, worker="w1", at=None, ttl=None, kind="cleanup"):
        """Requests an item and has the worker claim it."""
        before = self.last_number()
        credit = self.query("SELECT coalesce(max(granted_total), 0) + 1, coalesce(max(refresh), 0) + 1 FROM lease.demand WHERE kind = %s AND worker = %s",
                            (kind, worker))[0]
        self.decide(request(item, kind=kind), claim(worker, credit[0], refresh=credit[1], ttl=ttl, kind=kind), at=at)
        grants = [g for g in self.grants_after(before) if g.subject == item]
        assert len(grants) == 1, f"{item} was not granted"
        return grants[0]

    def items_of(self, answer):
        """What an answer over many items tells of each."""
        told = self.value("SELECT payload FROM lease.journal WHERE number = %s AND event = 'answered'", (answer.number,))
        self.commit()
        return json.loads(told)

    def reap(self, limit=1000, at=None):
        row = self.query("SELECT turned, granted FROM lease.reap(%s, %s)", (limit, moment(at)))[0]
        self.commit()
        return row

    def last_number(self):
        number = self.value("SELECT coalesce(max(number), 0) FROM lease.timeline")
        self.commit()
        return number

    def lease(self, kind, lease):
        """state, condition, … of one lease as a dict, or None."""
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT * FROM lease.leases WHERE kind = %s AND lease = %s", (kind, lease))
            row = cursor.fetchone()
            found = dict(zip([column.name for column in cursor.description], row)) if row else None
        self.commit()
        return found

    def await_lapse(self, lease, kind="settlement"):
        """Waits until a lease that was granted by the real clock has lapsed, by the clock of the database."""
        eventually(lambda: self.lease(kind, lease)["condition"] == "lapsed", 60, f"{kind}/{lease} lapses", every=0.002)

    def let_lapse(self, lease, kind="settlement"):
        """Its time is over as of now. For tests that need it live first, however long that takes them."""
        self.query("WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now) UPDATE lease.lease SET lease_until = c.now, check_at = least(check_at, c.now) FROM c"
                   " WHERE kind = %s AND lease = %s", (kind, lease))
        self.commit()
        self.await_lapse(lease, kind)

    def journal(self, after=0, subject=None):
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT * FROM lease.timeline WHERE number > %s AND coalesce(subject = %s, true) ORDER BY number", (after, subject))
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row)) for row in cursor.fetchall()]
        self.commit()
        return rows

    def commit(self):
        self.connection.commit()

    def rollback(self):
        self.connection.rollback()

    def close(self):
        self.connection.close()


class UndoneLane(Lane):
    """A lane alone in its database. Its transactions are savepoints in one that never commits; undo() takes it all back."""

    def __init__(self, conninfo):
        super().__init__(conninfo)
        self.query("SAVEPOINT committed")

    def commit(self):
        self.query("RELEASE SAVEPOINT committed; SAVEPOINT committed")

    def rollback(self):
        self.query("ROLLBACK TO SAVEPOINT committed")

    def undo(self):
        self.connection.rollback()
        self.query("SAVEPOINT committed")


class Meanwhile:
    """Something that is done on a lane in a thread, because it is expected to wait."""

    def __init__(self, call, *arguments, **named):
        self.result, self.error = None, None
        self.thread = threading.Thread(target=self._run, args=(call, arguments, named), daemon=True)
        self.thread.start()

    def _run(self, call, arguments, named):
        try:
            self.result = call(*arguments, **named)
        except Exception as error:  # pylint: disable=broad-except  # handed on by end()
            self.error = error

    def is_over(self):
        return not self.thread.is_alive()

    def end(self, limit=60):
        """The result, or the error raised here."""
        self.thread.join(limit)
        assert self.is_over(), "still waiting"
        if self.error:
            raise self.error
        return self.result


def waits_for_a_lock(watcher, lane, kind=None):
    """Waits until the lane's connection waits for somebody's lock, of one kind (pg_stat_activity.wait_event) if one is given."""
    def is_waiting():
        watcher.rollback()
        return watcher.query("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock' AND wait_event = coalesce(%s, wait_event)",
                             (lane.pid, kind))
    eventually(is_waiting, 60, "a wait for a lock")
    watcher.rollback()


def spent(lane):
    """Seconds of the processor that the lane's server process has had: on a machine that others use too, clocks tell of the others. (A clock
    where the server is on another machine.)"""
    try:
        with open(f"/proc/{lane.pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0]) / 1e9
    except OSError:
        return time.monotonic()


def sql_files(folder=os.path.join(ROOT, "sql")):
    """sql/ in the order in which it is applied."""
    files = []
    for part in ("migrations", "functions", "triggers", "views"):
        path = os.path.join(folder, part)
        names = os.listdir(path) if os.path.isdir(path) else []
        files += [os.path.join(path, name) for name in sorted(names, key=lambda n: (n[0] != "V", int(n[1:].split("__")[0]) if n[0] == "V" else 0, n))
                  if name.endswith(".sql")]
    grants = os.path.join(folder, "grants.sql")
    return files + ([grants] if os.path.exists(grants) else [])


def install(database):
    """Applies sql/ to a new database, file by file, each in a transaction."""
    connection = psycopg2.connect(database.conninfo)
    for path in sql_files():
        with open(path, encoding="utf-8") as file, connection.cursor() as cursor:
            cursor.execute(file.read())
        connection.commit()
    connection.close()
