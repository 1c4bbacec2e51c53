"""A system with everything in it that lease-audit judges, at rest: runs, items and edits, right and wrong commands, lapses and late finishes, a start that
waited in line, a coordinator that was killed in the middle, work from before fencing, guarded rows that were edited, files that were removed.

Faults are put into copies of its databases, so that each is alone; the topics are the same for all.
"""
import json
import os
import uuid

import psycopg2
from confluent_kafka import Producer

from audit import Books
from fileserver import FileServer
from harness import Place
from load import Load
from stage import Stage
from waiting import eventually

SEED = int(os.environ.get("LEASE_TEST_SEED", "7"))
HOUR_MS = 3600000
ACCOUNT_BYTES = 1000


class Copy:
    """A copy of a database at rest, with all rows of some schemas kept aside."""

    def __init__(self, database):
        self.database = database
        tables = database.query("SELECT format('%I.%I', n.nspname, c.relname), format('kept.%I', n.nspname || '.' || c.relname) FROM pg_class c"
                                " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname IN ('lease', 'fileserver', 'lease_gate') AND c.relkind IN ('r', 'p')"
                                " AND NOT c.relispartition")
        database.query("CREATE SCHEMA kept")
        for table, kept in tables:
            database.query(f"CREATE TABLE {kept} AS TABLE {table}")
        back = "".join(f"DELETE FROM {table}; INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE {kept};" for table, kept in tables)
        self.back = f"SET session_replication_role = replica; {back} RESET session_replication_role"      # no trigger, no foreign key

    def undone(self):
        self.database.query(self.back)
        return self.database


class World:
    def __init__(self, postgres, kafka, build, folder):
        self.place = Place(postgres, kafka, build, folder / "place")
        self.files = FileServer(postgres.create_database("files"), folder / "root").load()
        self.copies = {}      # database → its copy

    def prepare(self):
        place = self.place.prepare()
        self._tables()
        self.stage = Stage(place)
        self.books = Books(place)
        other = place.coordinator().start()
        self._remove_files()      # before the load's workers ask for everything
        load = Load(place, SEED, runs=30, items=60)
        load.send(300)
        self._story()
        other.kill()
        load.send(300)
        self.while_it_ran = self.books.audit()
        other.start()
        self._late_edits()
        self._last_words()
        self._come_to_rest()
        self.head = place.database.value("SELECT max(number) FROM lease.timeline")
        return self

    def _come_to_rest(self):
        """What lapses while the coordinators end may be left unpublished: then they have another turn."""
        eventually(self._stopped_at_rest, 120, "nothing is left unpublished")

    def _stopped_at_rest(self):
        for coordinator in self.place.coordinators:
            if not coordinator.child.is_running():
                coordinator.start()
        self.place.wait_idle()
        assert all([coordinator.stop() for coordinator in self.place.coordinators])
        return self.place.is_idle()

    # ---- what happens in it ----

    def _tables(self):
        """A guarded table, and claims from before fencing."""
        owner = psycopg2.connect(self.place.database.conninfo)
        owner.autocommit = True
        with owner, owner.cursor() as cursor:
            cursor.execute("CREATE TABLE contract (id text PRIMARY KEY, rate numeric NOT NULL); INSERT INTO contract SELECT n, 70 FROM generate_series(1, 9) n;"
                           " SELECT lease.guard_table('public.contract', 'contract', ARRAY['rate'])")
            cursor.execute("CREATE TABLE old_cleanup (id text, status text, claim_owner text);"
                           " INSERT INTO old_cleanup VALUES ('old-1', 'IN_PROGRESS', 'host-3'), ('old-2', 'IN_PROGRESS', 'host-4')")
            cursor.execute("SELECT lease.import_claims('old_cleanup', 'ann', 'cut-over')")
        owner.close()

    def _story(self):
        stage = self.stage
        first = stage.ask("settlement", "start", "first", {"holder": "a", "ttl_ms": HOUR_MS, "resources": ["album/1000", "album/1001"]})
        stage.ask("settlement", "start", "second", {"holder": "b", "ttl_ms": HOUR_MS, "resources": ["album/1001"], "wait_ms": 60000, "refresh": 1})
        stage.ask("settlement", "release", "first", stage.as_holder(stage.grant(first["fence"])))
        stage.results.wait_for(lambda record: record.value["lease"] == "second" and record.outcome == "granted", what="the line is served")
        stage.ask("cleanup", "resolve", "old-2", {"actor": "ann", "reason": "it is gone", "verdict": "done",
                                                  "fence": self.place.database.value("SELECT fence FROM lease.leases WHERE lease = 'old-2'")})

    def _late_edits(self):
        """A run lapses, one of its rows is edited, and it finishes late."""
        stage = self.stage
        fence = stage.ask("settlement", "start", "lapsing", {"holder": "a", "ttl_ms": 100, "resources": ["contract/1"]})["fence"]
        stage.event("lapsed", "settlement", "lapsing")
        self.place.database.query("UPDATE contract SET rate = 60 WHERE id = '1'")
        assert stage.ask("settlement", "finish", "lapsing", stage.as_holder(stage.grant(fence)))["basis"] == "changed"
        stage.ask("settlement", "start", "lapsed", {"holder": "a", "ttl_ms": 100, "resources": ["contract/2"]})
        stage.event("lapsed", "settlement", "lapsed")
        self.place.database.query("UPDATE contract SET rate = 60 WHERE id = '2'")

    def _grant(self, item):
        """The item's first grant, by the claim that is open."""
        self.stage.ask("cleanup", "request", item, {})
        return self.stage.grants.wait_for(lambda record: record.value["lease"] == item, what=f"{item} is granted").value

    def _remove_files(self):
        """Three files are removed by what two workers were granted, the second of them twice."""
        files, stage = self.files, self.stage
        files.open_account("a")
        for number in range(5):
            files.add(f"file-{number}", "a", ACCOUNT_BYTES + number)
        stage.ask("cleanup", "claim", "remover", {"credit_total": 4, "refresh": 1, "wait_ms": HOUR_MS, "ttl_ms": HOUR_MS})
        for number in range(3):
            file = f"file-{number}"
            grant = self._grant(file)
            if number == 1:
                files.begin(file, grant["fence"], grant["claim_id"])
                stage.ask("cleanup", "fail", file, stage.as_holder(grant, reason="no disk", delay_ms=0))
                grant = stage.grants.wait_for(lambda record: record.value["lease"] == file and record.value["attempt"] == 2).value
            who = (file, grant["fence"], False, grant["claim_id"])
            files.begin(file, grant["fence"], grant["claim_id"])
            name = os.path.join(files.root, files.name_of(file, "a"))
            os.rename(name, f"{name}.~{grant['fence']}")
            files.settle(*who)
            os.unlink(f"{name}.~{grant['fence']}")
            stage.ask("cleanup", "finish", file, stage.as_holder(grant, result={"file": "removed"}))

    def _last_words(self):
        """Runs that go on, and the very last message: a renewal whose token is none."""
        stage = self.stage
        for name in ("live", "forged"):
            stage.ask("settlement", "start", name, {"holder": "a", "ttl_ms": HOUR_MS, "resources": [f"album/{name}"]})
        self.live = stage.grant(stage.results.find(lambda record: record.value["lease"] == "live")[-1].value["fence"])
        self.forged = stage.grant(stage.results.find(lambda record: record.value["lease"] == "forged")[-1].value["fence"])
        self.place.wait_idle()
        answer = stage.ask("settlement", "renew", "forged", {**stage.as_holder(self.forged), "token": "0" * 64})
        assert answer["outcome"] == "stale"
        self.refused = answer["number"]

    # ---- faults ----

    def spoilt(self, source):
        """The copy of a database that faults are put into, as it was before the last one. There is one: to make and drop a database takes long."""
        if source not in self.copies:
            source.forget_connection()
            self.place.postgres.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (source.name,))
            self.copies[source] = Copy(self.place.postgres.create_database("spoilt", template=source.name))
        return self.copies[source].undone()

    def append(self, database, **row):
        """One more row of the journal, behind the head. Returns its number."""
        values = {"event": "granted", "kind": "cleanup", "changes_lease": True, "is_grant": False, **row}
        columns = ", ".join(values)
        holes = ", ".join(["%s"] * len(values))
        return database.value(f"INSERT INTO lease.journal (number, at, {columns}) SELECT max(number) + 1, clock_timestamp(), {holes} FROM lease.journal RETURNING number",
                              tuple(values.values()))

    def produce(self, topic, key, value, number, outcome):
        """A record as the relay would write it."""
        producer = Producer({"bootstrap.servers": self.place.kafka.brokers, "partitioner": "murmur2_random", "log_level": 3})
        producer.produce(self.place.prefix + topic, key=key, value=json.dumps(value),
                         headers=[("ce_type", f"contract.{outcome}"), ("lease_outcome", outcome), ("lease_number", str(number)), ("lease_epoch", "99")])
        assert producer.flush(30) == 0

    @staticmethod
    def claim():
        return str(uuid.uuid4())

    def close(self):
        for copy in self.copies.values():
            copy.database.drop()
        self.place.close()
        self.files.database.drop()
