# ctest: LABEL worker TIMEOUT 600 TAKES 70
"""The reference worker in a real system: many cleanups by workers that are killed and that sleep through their leases, a kill at each
named point, deliveries to a receiver behind a gate, and a stop in order. The books are checked on topics, tables and disk."""
import json
import os
import random
import subprocess

import pytest

import books_files
from fileserver import FileServer
from inbox import Inbox
from topics import read_topic
from waiting import eventually
from workers import LeaseWorker

TTL_MS = 1500           # of workers that are to be replaced soon
DELIVERY_TTL_MS = 3000  # the least
LONG_TTL_MS = 20000     # of those that must not lose a lease, however busy the machine is
POINTS = ("worker.granted", "effect.begun", "effect.renamed", "effect.settled", "effect.unlinked", "worker.done")
ENDED = "SELECT count(*) FROM lease.leases WHERE kind = %s AND state IN ('finished', 'failed', 'dead')"


@pytest.fixture(name="live")
def fixture_live(small_place):
    """With a coordinator."""
    small_place.coordinator().start()
    return small_place


@pytest.fixture(name="files")
def fixture_files(postgres, folder):
    database = postgres.create_database("files")
    yield FileServer(database, folder / "root").load()
    database.drop()


@pytest.fixture(name="new_worker")
def fixture_new_worker(live):
    workers = []

    def make(*arguments, **settings):
        workers.append(LeaseWorker(live, f"w{len(workers) + 1}", *arguments, **dict({"ttl_ms": TTL_MS}, **settings)))
        return workers[-1]

    yield make
    for worker in workers:
        worker.kill()


def request(place, kind, items):
    events = place.events()
    for item, payload in items:
        events.send(kind, "request", item, {} if payload is None else {"payload": payload})
    events.flush()


def all_ended(place, kind, count, limit=90):
    eventually(lambda: place.database.value(ENDED, (kind,)) == count, limit, f"{count} items of {kind} have ended", every=0.1)


def balance(place, files):
    place.wait_idle()
    return books_files.balance(books_files.collect(place.kafka.brokers, place.prefix, files))


def test_lease_worker__removes_what_was_requested_whoever_dies_or_sleeps(live, files, new_worker):
    chance = random.Random(17)
    for account in range(5):
        files.open_account(f"a{account}")
    files.add_many([(f"f{n}", f"a{n % 5}", chance.randrange(1, 10 ** 6)) for n in range(250)])
    for n in (3, 77, 142):
        os.unlink(f"{files.root}/a{n % 5}/f{n}.v0")
    dying = new_worker("cleanup", files).start(crash="effect.renamed:20")
    sleeping = new_worker("cleanup", files).start(crash="effect.renamed:30:stop")
    request(live, "cleanup", [(f"f{n}", None) for n in range(200)])
    dying.died_at("effect.renamed")
    sleeping.stopped_at("effect.renamed")
    successor = new_worker("cleanup", files).start()
    all_ended(live, "cleanup", 200)
    before = files.everything()
    sleeping.resume()
    assert sleeping.stop() and successor.stop()
    assert 'event="lease lost"' in sleeping.log()
    assert files.everything() == before, "who slept changed something"
    found = balance(live, files)
    print(found)
    assert found["final"] == {"finished": 200} and found["missing"] == 3 and found["on_disk"] == 50
    assert found["begun"] > 200, "nobody was replaced"


def test_lease_worker__killed_at_each_point_is_completed_by_another(live, files, new_worker):
    """Each asks for one item, so each has one when it dies."""
    files.open_account("a1")
    files.add_many([(f"f{n}", "a1", 1000 + n) for n in range(len(POINTS))])
    dying = {point: new_worker("cleanup", files, concurrency=1, credit=1).start(crash=f"{point}:1", wait=False) for point in POINTS}
    eventually(lambda: live.database.value("SELECT count(*) FROM lease.demands") == len(POINTS), 60, "each of them asks for an item")
    request(live, "cleanup", [(f"f{n}", None) for n in range(len(POINTS))])
    for point, worker in dying.items():
        worker.died_at(point)
    successor = new_worker("cleanup", files, ttl_ms=LONG_TTL_MS).start()
    all_ended(live, "cleanup", len(POINTS))
    assert successor.stop()
    found = balance(live, files)
    assert found["final"] == {"finished": len(POINTS)} and found["on_disk"] == 0
    assert live.database.value("SELECT count(*) FROM lease.leases WHERE attempt > 1") == len(POINTS)
    assert files.used("a1") == 0


GATE_OFF = """
CREATE OR REPLACE FUNCTION lease_gate.admit(p_resource text, p_fence bigint, p_claim_id uuid, p_effect text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER AS 'SELECT ''admit''::text'
"""


@pytest.mark.parametrize("is_gate_on", (True, False))
@pytest.mark.parametrize("successors", ("effect.begun", "worker.done"))
def test_lease_worker__who_sleeps_between_look_and_step_is_turned_away(live, files, new_worker, successors, is_gate_on):
    """It looked at its lease, slept through it, and settles without a further look, while its successor is on the way or done.
    Without the gate the same story goes wrong, and the books tell."""
    files.open_account("a1")
    files.add("f1", "a1", 1000)
    if not is_gate_on:
        files.database.query(GATE_OFF)
    sleeping = new_worker("cleanup", files).start(crash="effect.renamed:1:stop")
    request(live, "cleanup", [("f1", None)])
    sleeping.stopped_at("effect.renamed")
    successor = new_worker("cleanup", files, ttl_ms=LONG_TTL_MS).start(crash=f"{successors}:1:stop")
    successor.stopped_at(successors)
    said = len(sleeping.log())
    sleeping.resume()
    eventually(lambda: "event=file" in sleeping.log()[said:], 60, "the late effect has come to its end")
    assert ("verdict=stale" in sleeping.log()) == is_gate_on
    successor.resume()
    all_ended(live, "cleanup", 1)
    assert sleeping.stop() and successor.stop()
    live.wait_idle()
    broken = books_files.check(books_files.collect(live.kafka.brokers, live.prefix, files))
    assert set(broken) == (set() if is_gate_on else {"D5"}), broken


def test_lease_worker__whose_lease_is_lost_begins_nothing(live, files, new_worker):
    files.open_account("a1")
    files.add("f1", "a1", 1000)
    sleeping = new_worker("cleanup", files).start(crash="worker.granted:1:stop")
    request(live, "cleanup", [("f1", None)])
    sleeping.stopped_at("worker.granted")
    successor = new_worker("cleanup", files, ttl_ms=LONG_TTL_MS).start()
    all_ended(live, "cleanup", 1)
    sleeping.resume()
    eventually(lambda: "verdict=lost" in sleeping.log(), 60, "it has noticed")
    assert sleeping.stop() and successor.stop()
    assert balance(live, files)["begun"] == 1


def test_lease_worker__a_file_that_is_written_is_removed_after_that(live, files, new_worker):
    """A run of kind file-write holds the file: the item waits, and is not failed. What the writer wrote goes too."""
    files.open_account("a1")
    files.add("f1", "a1", 1000)
    grants, events = live.reader("lease.grants"), live.events()
    events.send("file-write", "start", "upload-1", {"holder": "writer", "ttl_ms": 30000, "resources": ["file/f1"]})
    events.flush()
    grant = grants.wait_for(lambda record: record.value["kind"] == "file-write").value
    worker = new_worker("cleanup", files, ttl_ms=LONG_TTL_MS).start()
    request(live, "cleanup", [("f1", None)])
    eventually(lambda: live.database.value("SELECT count(*) FROM lease.leases WHERE kind = 'cleanup' AND ready_at > clock_timestamp()"),
               60, "the item is put off")
    files.put("a1/f1.v1", 400)
    assert files.write("f1", grant["fence"], 400, "a1/f1.v1", grant["claim_id"]) == "written"
    assert files.used("a1") == 400 and live.database.value(ENDED, ("cleanup",)) == 0
    events.send("file-write", "finish", "upload-1", {name: grant[name] for name in ("holder", "fence", "claim_id", "token")})
    events.flush()
    all_ended(live, "cleanup", 1)
    assert worker.stop()
    assert files.write("f1", grant["fence"], 500, "a1/f1.v2", grant["claim_id"]) == "stale", "it comes too late"
    assert files.on_disk() == {} and files.used("a1") == 0
    assert balance(live, files)["final"] == {"finished": 1}
    assert live.database.value("SELECT attempt FROM lease.leases WHERE kind = 'cleanup'") == 1, "waiting burned an attempt"


def test_lease_worker__what_can_never_be_done_is_dead_at_once(live, files, new_worker):
    files.open_account("a1")
    name = files.add("f1", "a1", 10)
    os.unlink(f"{files.root}/{name}")
    os.symlink("/etc/passwd", f"{files.root}/{name}")
    worker = new_worker("cleanup", files, ttl_ms=LONG_TTL_MS).start()
    request(live, "cleanup", [("f1", None), ("unheard-of", None)])
    all_ended(live, "cleanup", 2)
    assert worker.stop()
    live.wait_idle()
    said = {record.value["lease"]: (record.value["state"], record.value["reason"], record.value.get("attempt"))
            for record in read_topic(live.kafka.brokers, live.prefix, "lease.results", drop_repeats=True)
            if record.outcome == "failed"}
    assert said == {"f1": ("dead", "a file is a symbolic link", 1), "unheard-of": ("dead", "the file server has no such file", 1)}
    assert files.used("a1") == 10


def test_lease_worker__delivers_each_message_once_and_leaves_final_states_alone(live, postgres, new_worker):
    database = postgres.create_database("inbox")
    count = 40
    with Inbox(database) as inbox:
        inbox.answers.extend([(503, {"Retry-After": "1"}), (500, {}), (400, {})])
        # One dies when a message is delivered and nobody knows; one sleeps before it sends.
        dying = new_worker("delivery", delivery_url=inbox.url, ttl_ms=DELIVERY_TTL_MS).start(crash="worker.delivered:5")
        sleeping = new_worker("delivery", delivery_url=inbox.url, ttl_ms=DELIVERY_TTL_MS).start(crash="worker.sending:7:stop")
        request(live, "delivery", [(f"m{n}", {"n": n}) for n in range(count)])
        dying.died_at("worker.delivered")
        sleeping.stopped_at("worker.sending")
        successor = new_worker("delivery", delivery_url=inbox.url, ttl_ms=DELIVERY_TTL_MS).start()
        all_ended(live, "delivery", count)
        for key in inbox.messages():
            inbox.handle(key)
        before = inbox.messages()
        sleeping.resume()
        assert sleeping.stop() and successor.stop()
        assert inbox.messages() == before
        refused = [request.key for request in inbox.requests if request.answer == 400]
        assert len(refused) == 1 and before.keys() | set(refused) == {f"delivery/m{n}" for n in range(count)}
        assert all(json.loads(body) == {"n": int(key[len("delivery/m"):])} for key, (_, _, body) in before.items())
        assert any(request.answer == 200 for request in inbox.requests), "nothing came twice"
        live.wait_idle()
        final = [record.value["lease"] for record in read_topic(live.kafka.brokers, live.prefix, "lease.results", drop_repeats=True)
                 if record.value.get("kind") == "delivery" and record.outcome in ("finished", "failed", "dead")
                 and record.value.get("state") in books_files.FINAL_STATES]
        assert sorted(final) == sorted(f"m{n}" for n in range(count))
    database.drop()


def test_lease_worker__a_stop_finishes_what_is_in_hand(live, files, new_worker, folder):
    files.open_account("a1")
    files.add_many([(f"f{n}", "a1", 10) for n in range(40)])
    worker = new_worker("cleanup", files, concurrency=2, ttl_ms=LONG_TTL_MS).start()
    request(live, "cleanup", [(f"f{n}", None) for n in range(40)])
    eventually(lambda: live.database.value(ENDED, ("cleanup",)) > 0, 60, "the first item has ended")
    assert worker.stop()
    live.wait_idle()
    assert live.database.value("SELECT count(*) FROM lease.leases WHERE kind = 'cleanup' AND state = 'held'") == 0
    assert live.database.value("SELECT count(*) FROM lease.timeline WHERE event = 'lapsed'") == 0
    assert not [name for name in files.on_disk() if ".~" in name], "half done"


def test_lease_worker__waits_out_a_database_that_is_away(live, files, new_worker):
    files.open_account("a1")
    files.add_many([(f"f{n}", "a1", 10) for n in range(20)])
    worker = new_worker("cleanup", files).start()
    rename = 'ALTER DATABASE "{}" CONNECTION LIMIT {}'
    login = files.database.login("fileserver_user")
    worker.stop()
    worker.child.env["LEASE_FILE_DATABASE"] = login
    worker.start()
    live.postgres.query(rename.format(files.database.name, 0))
    live.postgres.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (files.database.name,))
    request(live, "cleanup", [(f"f{n}", None) for n in range(20)])
    eventually(lambda: "SQLSTATE" in worker.log() or "connect" in worker.log() or live.database.value(
        "SELECT count(*) FROM lease.leases WHERE kind = 'cleanup' AND state = 'held'") > 0, 60, "items wait for the database")
    live.postgres.query(rename.format(files.database.name, -1))
    all_ended(live, "cleanup", 20)
    assert worker.stop()
    assert balance(live, files)["final"] == {"finished": 20}


WRONG = (
    ({"file_root": "/nowhere"}, "/nowhere"), ({"file_root": None}, "file_root"), ({"credit": 1}, "credit"), ({"kind": "delivery"}, "delivery_url"),
    ({"kind": "delivery", "delivery_url": "file:///"}, "delivery_url"), ({"kind": "delivery", "delivery_url": "http://x/", "ttl_ms": 2999}, "ttl_ms"),
    ({"kind": "settlement"}, "kind"), ({"ttl_ms": 1}, "ttl_ms"), ({"unheard_of": 1}, "LEASE_UNHEARD_OF"))


def test_lease_worker__says_what_is_wrong_with_its_configuration(kafka, build, files):
    for settings, word in WRONG:
        values = {"kind": "cleanup", "brokers": kafka.brokers, "file_root": files.root, "file_database": files.database.conninfo}
        values.update(settings)
        environment = {f"LEASE_{key.upper()}": str(value) for key, value in values.items() if value is not None}
        done = subprocess.run([f"{build}/worker/daemon/lease-worker"], env=environment, stderr=subprocess.PIPE, text=True, timeout=60)
        assert (done.returncode, word in done.stderr) == (78, True), (settings, done.stderr)


def test_lease_worker__a_wrong_flag_is_a_matter_of_usage(build):
    done = subprocess.run([f"{build}/worker/daemon/lease-worker", "--tll-ms", "5"], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 64 and "--ttl-ms" in done.stderr


def test_lease_worker__help_teaches_and_the_configuration_shows_no_secret(build, files):
    program = f"{build}/worker/daemon/lease-worker"
    said = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    for word in ("--kind cleanup", "--kind delivery", "--file-root", "--delivery-url", "Idempotency-Key", "SIGTERM", "69"):
        assert word in said
    environment = {"LEASE_KIND": "cleanup", "LEASE_BROKERS": "x", "LEASE_FILE_ROOT": "/", "LEASE_FILE_DATABASE": "password=geheim"}
    shown = subprocess.run([program, "--show-config"], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "geheim" not in shown and "file_database = (secret)" in shown
