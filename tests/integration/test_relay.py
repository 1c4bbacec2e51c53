# ctest: LABEL fault TIMEOUT 600 TAKES 85
"""The relay takes over exactly where its predecessor ended, whatever killed that one (F6, F14, F31).

The journal is filled by SQL; relays run in processes of their own, killed at named points, stopped, and replaced. A consumer that
drops numbers which it has seen in a partition must find every row once, in order, in each topic where it belongs.
"""
import hashlib
import hmac
import json
import os
import signal
import tempfile

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

import harness
from leasectl import small_topics
from processes import Child, free_port, is_stopped
from topics import read_topic
from waiting import eventually


# Rows of a made-up history: every fourth a grant (three records), a renewal (one), an end (two), a dead letter (one).
# (No null header: confluent-kafka 1.7.0 loses a reference to None for each; tests/unit/test_kafka.c has them.)
FILL = """
SELECT pg_advisory_xact_lock(1279611205, 1);
INSERT INTO lease.journal (number, at, event, kind, subject, command, source, message_id, origin_topic, origin_partition, origin_offset,
  holder, claim_id, fence, since, lease_until, min_fence, state, attempt, reason, field, changes_lease, is_grant, raw_key, raw_value, raw_headers)
SELECT b + i, clock_timestamp(), ('{{granted,renewed,finished,dead_letter}}'::text[])[i % 4 + 1],
  CASE WHEN i % 4 < 3 THEN 'settlement' END, CASE WHEN i % 4 < 3 THEN 'run-' || (b + i) * 7919 % 97 END,
  CASE WHEN i % 4 < 3 THEN 'start' END, CASE WHEN i % 4 < 3 THEN '/test' END, CASE WHEN i % 4 < 3 THEN 'm' || (b + i) END,
  'settlement.events', 1, b + i,
  CASE WHEN i % 4 < 3 THEN 'holder-' || i % 7 END, CASE WHEN i % 4 < 3 THEN gen_random_uuid() END,
  CASE WHEN i % 4 < 3 THEN 4294967296 + b + i END, clock_timestamp(), clock_timestamp() + interval '30 s',
  CASE WHEN i % 4 = 2 THEN 4294967297 + b + i END, CASE WHEN i % 4 < 3 THEN 'held' END, 1,
  CASE WHEN i % 4 = 3 THEN 'null_value' END, NULL, i % 4 IN (0, 2), i % 4 = 0,
  CASE WHEN i % 8 = 3 THEN 'k'::bytea END, CASE WHEN i % 4 = 3 THEN '\\x00ff'::bytea END,
  CASE WHEN i % 4 = 3 THEN '\\x000000016100000000'::bytea END
FROM (SELECT lease.next_numbers({count}, NULL) AS b OFFSET 0) x, generate_series(1, {count}) i;
SELECT pg_notify('lease_journal', (SELECT max(number) FROM lease.journal) || ' ');
"""


@pytest.fixture
def place(small_place):
    return small_place


class Relay:
    """One relay in a process of its own."""

    def __init__(self, place, name, login=None, **environment):
        self.out = os.path.join(place.folder, f"{name}.out")
        settings = place.environment(instance=name, database=login or place.database.login("lease_coordinator"))
        settings.update(environment)
        self.child = Child(name, [place.program("relay_process")], self.out, env=settings).start()

    def status(self):
        """The last status line."""
        with open(self.out, encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if line.startswith("{") and line.endswith("}")]
        return json.loads(lines[-1]) if lines else {}


def fill(place, count):
    place.database.query(FILL.format(count=count))


def last_number(place):
    return place.database.value("SELECT max(number) FROM lease.journal")


def wait_published(place, relay, limit=60):
    upto = last_number(place)

    def is_published():
        relay.child.must_run()
        assert relay.status().get("published", 0) >= upto, relay.status()
        return True

    eventually(is_published, limit, f"everything up to {upto} is published", every=0.05)


def duties(place):
    """Topic → the numbers that belong there."""
    where = {"lease.results": "event NOT IN ('dead_letter', 'jumped', 'restated')", "lease.grants": "is_grant",
             "lease.state": "changes_lease", "lease.dead-letters": "event = 'dead_letter'"}
    return {topic: [row[0] for row in place.database.query(f"SELECT number FROM lease.journal WHERE {condition} ORDER BY number")]
            for topic, condition in where.items()}


def check_published(place):
    """Every row once in each topic that it belongs to, rising in each partition."""
    repeats = 0
    for topic, numbers in duties(place).items():
        reader = place.reader(topic)
        kept = reader.read_all()
        found = sorted(record.number for record in kept if not is_mark(record))
        missing = sorted(set(numbers) - set(found))[:5]
        strange = sorted(set(found) - set(numbers))[:5]
        assert found == numbers, f"{topic}: missing {missing}, strange {strange}, {len(found)} of {len(numbers)}"
        repeats += len(reader.everything) - len(kept)
    return repeats


def is_mark(record):
    return record.is_mark and "lease_dlq_at" not in record.headers


def test_relay_publishes_each_row_where_it_belongs(place):
    fill(place, 400)
    relay = Relay(place, "r1")
    wait_published(place, relay)
    check_published(place)
    assert relay.child.stop()

    grants = place.reader("lease.grants").read_all()
    for grant in grants:
        value = grant.value
        claim = bytes.fromhex(value["claim_id"].replace("-", ""))
        assert value["token"] == hmac.new(place.token_key.encode(), claim, hashlib.sha256).hexdigest()
        assert grant.key == value["holder"].encode()
    for topic in ("lease.results", "lease.state"):
        assert not any(b"token" in record.raw for record in place.reader(topic, drop_repeats=False).read_all())
    for letter in place.reader("lease.dead-letters").read_all():
        assert letter.raw == b"\x00\xff"
        assert letter.key == (b"k" if (letter.number % 8) == 3 else None)
        assert letter.header_list[0] == ("a", b"")
        assert letter.headers["lease_dlq_reason"] == b"null_value"


def test_relay_writes_down_how_far_it_came_when_it_is_told_to_stop(place):
    fill(place, 3000)
    relay = Relay(place, "r1")
    eventually(lambda: relay.status().get("has_role"), 60, "the role is taken")
    assert relay.child.stop()
    published, epoch = place.database.query("SELECT published, epoch FROM lease.relay_status")[0]
    assert (published, epoch) == (3000, 1)
    second = Relay(place, "r2")
    fill(place, 8)
    wait_published(place, second)
    assert second.status()["skipped"] == 0
    assert second.child.stop()      # or a mark comes between the two readings
    assert check_published(place) == sum(1 for _ in marks_of(place)), "nothing was published twice"


def marks_of(place):
    for topic in duties(place):
        for record in place.reader(topic, drop_repeats=False).read_all():
            if is_mark(record):
                yield record


POINTS = [("role.taken", 1), ("relay.read", 1), ("relay.read", 2), ("relay.produced", 1), ("relay.produced", 3),
          ("relay.acked", 1), ("relay.acked", 4), ("relay.watermark", 1), ("relay.watermark", 2)]


@pytest.mark.parametrize("how", ["kill", "error"])
def test_relay_resumes_after_a_crash_at_each_point(place, how):
    """Each relay dies at a point (or meets an I/O error there and steps down) while rows keep coming."""
    log = os.path.join(place.folder, "points")
    for count, (point, nth) in enumerate(POINTS):
        fill(place, 2500)
        relay = Relay(place, f"{how}{count}", LEASE_CRASH=f"{point}:{nth}:{how}", LEASE_CRASH_LOG=log)
        if how == "kill":
            eventually(lambda: fill(place, 300) or not relay.child.is_running(), 60, f"killed at {point}", every=0.2)
        else:
            eventually(lambda: fill(place, 300) or relay.status().get("step_downs"), 60, f"error at {point}", every=0.2)
            wait_published(place, relay)
            assert relay.child.stop()
    with open(log, encoding="ascii") as file:
        assert {line.split()[0] for line in file} >= {point for point, _ in POINTS}
    last = Relay(place, "last")
    wait_published(place, last)
    check_published(place)


def test_relay_that_was_stopped_does_not_publish_twice_for_careful_consumers(place):
    """F20, F31: A is stopped with records in flight, B takes over, A wakes up and sends what it holds."""
    fill(place, 20000)
    first = Relay(place, "first", LEASE_CRASH="relay.produced:3:stop")
    eventually(lambda: is_stopped(first.child.pid), 60, "stopped")
    place.database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lease-relay'"
                         " AND datname = current_database()")   # in real life idle_session_timeout, ten seconds later
    second = Relay(place, "second")
    eventually(lambda: second.status().get("has_role"), 60, "the second relay has the role")
    wait_published(place, second)
    first.child.signal(signal.SIGCONT)
    fill(place, 2000)
    wait_published(place, second)
    eventually(lambda: first.status().get("step_downs", 0) >= 1, 60, "the first relay noticed")
    eventually(lambda: first.status()["code"] == "", 60, "to wait for a role that another has is no failure")
    assert not first.status()["has_role"]
    wait_published(place, second)
    check_published(place)
    epochs = {record.epoch for record in place.reader("lease.results").read_all()}
    assert len(epochs) >= 2


def put_straggler(place, key, number, epoch, partition):
    """A record as a paused relay of an older epoch would still send it."""
    producer = Producer({"bootstrap.servers": place.kafka.brokers, "acks": "all"})
    producer.produce(place.prefix + "lease.state", key=key, value=b'{"number":%d}' % number, partition=partition,
                     headers=[("lease_number", str(number).encode()), ("lease_epoch", str(epoch).encode())])
    assert producer.flush(60) == 0


def last_of_key(place, key):
    found = [record for record in read_topic(place.kafka.brokers, place.prefix, "lease.state") if record.key == key]
    return max(found, key=lambda record: record.offset)


@pytest.mark.parametrize("when", ["relay is running", "between relays"])
def test_relay_restates_what_a_straggler_overwrote(place, when):
    """F31: compaction would keep the straggler, so the key is journaled anew, under a new number."""
    fill(place, 400)
    first = Relay(place, "first")
    wait_published(place, first)
    assert first.child.stop()
    relay = Relay(place, "second")
    eventually(lambda: relay.status().get("has_role"), 60, "the role is taken")
    fill(place, 400)
    wait_published(place, relay)
    victim = place.reader("lease.state").read_all()[-1]
    if when == "between relays":
        assert relay.child.stop()
    put_straggler(place, victim.key, 3, 1, victim.partition)
    if when == "between relays":
        relay = Relay(place, "third")

    def is_repaired():
        last = last_of_key(place, victim.key)
        assert last.headers.get("ce_type") == b"settlement.restated", last
        return last.number > 800

    eventually(is_repaired, 60, "the key is restated")
    kind, subject = victim.key.decode().split("/", 1)
    assert place.database.query("SELECT kind, subject FROM lease.journal WHERE event = 'restated'") == [(kind, subject)]
    wait_published(place, relay)
    assert relay.status()["restated"] == 1
    fill(place, 100)
    wait_published(place, relay)
    assert relay.status()["restated"] == 1, "a repair must not be repaired"


def witness(place):
    child = Child("witness", [place.program("relay_process"), "witness"], os.path.join(place.folder, "witness.out"),
                  env=place.environment()).start()
    assert child.wait(60) == 0, child.log_tail()
    return tuple(json.loads(child.log_tail(1))[name] for name in ("number", "fence", "empty"))


def test_witness_tells_how_far_the_topics_have_come(place):
    assert witness(place) == (0, 0, True)
    fill(place, 403)
    relay = Relay(place, "r1")
    wait_published(place, relay)
    assert relay.child.stop()
    assert witness(place) == (403, 4294967296 + 402, False)

    # Whoever sends a message chooses its headers, and a dead letter keeps them: they must not count.
    producer = Producer({"bootstrap.servers": place.kafka.brokers, "acks": "all"})
    producer.produce(place.prefix + "lease.dead-letters", value=b"x", partition=0,
                     headers=[("lease_number", b"99999999"), ("lease_fence", b"9007199254740991"), ("lease_mark", b"1"),
                              ("lease_dlq_at", b"2026"), ("lease_number", b"404"), ("lease_epoch", b"1")])
    assert producer.flush(60) == 0
    assert witness(place) == (404, 4294967296 + 402, False)


def test_witness_survives_in_marks_after_the_records_are_gone(place):
    fill(place, 40)
    relay = Relay(place, "r1")
    wait_published(place, relay)
    assert relay.child.stop()
    marks = [json.loads(record.raw) for record in place.reader("lease.state", drop_repeats=False).read_all()
             if record.key.startswith(b"~mark/")]
    places = {record.key for record in place.reader("lease.state", drop_repeats=False).read_all() if record.key.startswith(b"~mark/")}
    partitions = sum(len(place.reader(topic).partitions) for topic in duties(place))
    assert len(places) == partitions
    assert max((mark["number"], mark["fence"]) for mark in marks) == (40, 4294967296 + 40)
    assert {mark["system_identifier"] for mark in marks} == {str(place.database.value("SELECT system_identifier FROM lease.server_identity"))}


def test_witness_looks_through_what_a_paused_relay_sent_late(place):
    """More stragglers in each partition than the tail that is read at first."""
    fill(place, 400)
    first = Relay(place, "first")
    wait_published(place, first)
    assert first.child.stop()
    second = Relay(place, "second")
    fill(place, 403)
    wait_published(place, second)
    second.child.signal(signal.SIGSTOP)     # no mark comes behind them
    before = last_number(place)
    producer = Producer({"bootstrap.servers": place.kafka.brokers, "acks": "all"})
    for topic in duties(place):
        for partition in place.reader(topic).partitions:
            for number in range(150):
                producer.produce(place.prefix + topic, key=b"settlement/late", value=b"{}", partition=partition,
                                 headers=[("lease_number", str(number + 1).encode()), ("lease_epoch", b"1")])
    assert producer.flush(60) == 0
    assert witness(place) == (before, 4294967296 + before - 1, False)
    second.child.signal(signal.SIGCONT)


def test_relay_takes_no_epoch_that_the_topics_show_though_the_database_forgot_it(place):
    """A server that crashed, was restored or failed over forgets epochs; a relay of the same epoch would not see that one's records
    for the stragglers that they are."""
    fill(place, 40)
    for name in ("first", "second"):
        relay = Relay(place, name)
        eventually(lambda: relay.status().get("has_role"), 60, "the role is taken")
        wait_published(place, relay)
        assert relay.child.stop()
    place.database.query("DELETE FROM lease.relay_progress WHERE epoch > 1; DELETE FROM lease.relay WHERE epoch > 1")
    third = Relay(place, "third")
    fill(place, 40)
    wait_published(place, third)
    assert third.status()["epoch"] == 3
    assert place.database.value("SELECT max(epoch) FROM lease.relay") == 3
    check_published(place)


def test_relay_writes_marks_at_a_jump(place):
    fill(place, 10)
    relay = Relay(place, "r1")
    wait_published(place, relay)
    floor = place.database.value("SELECT lease.jump(20, 4294967300, 'test', 'test')")
    number = last_number(place)
    assert number > 4294967296
    fill(place, 8)
    wait_published(place, relay)
    jumps = [record for record in marks_of(place) if record.number == number]
    assert {json.loads(record.raw)["fence"] for record in jumps} == {floor}
    assert {record.topic for record in jumps} == set(duties(place))
    check_published(place)


def test_relay_stops_at_a_gap_in_the_journal(place):
    fill(place, 10)
    relay = Relay(place, "r1")
    wait_published(place, relay)
    place.database.query("INSERT INTO lease.journal (number, at, event, kind, subject, changes_lease, is_grant)"
                         " VALUES (12, clock_timestamp(), 'renewed', 'settlement', 'x', false, false)")
    assert relay.child.wait(60) == 70
    assert "relay_journal_gap" in relay.child.log_tail()


@pytest.mark.parametrize("size, limit", [(1200000, None), (1050000, "1000000")], ids=["its own bound", "the broker's"])
def test_relay_stops_at_a_row_that_no_topic_takes__and_names_it(place, size, limit):
    """To try it again and again would mean that nothing is ever published again, without a word."""
    topics = AdminClient({"bootstrap.servers": place.kafka.brokers})
    if limit is not None:
        change = ConfigResource("topic", place.prefix + "lease.dead-letters", set_config={"max.message.bytes": limit})
        for future in topics.alter_configs([change]).values():
            future.result(20)
    fill(place, 10)
    relay = Relay(place, "r1")
    wait_published(place, relay)
    place.database.query("INSERT INTO lease.journal (number, at, event, reason, changes_lease, is_grant, raw_value, raw_headers)"
                         f" VALUES (11, clock_timestamp(), 'dead_letter', 'value_too_large', false, false, repeat('x', {size})::bytea, '')")
    assert relay.child.wait(60) == 70
    assert "kafka_too_large" in relay.child.log_tail() and "row 11 of the journal" in relay.child.log_tail()


def test_relay_waits_for_brokers_and_database(place, folder):
    """Neither is an error at the start; both pass."""
    nobody = f"127.0.0.1:{free_port()}"
    relay = Relay(place, "r1", LEASE_BROKERS=nobody)
    eventually(lambda: relay.status().get("step_downs", 0) >= 1, 60, "it says that the brokers are away")
    relay.child.must_run()
    assert relay.child.stop()


@pytest.fixture
def short_folder():
    """A socket's path has room for 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="lease-") as path:
        os.chmod(path, 0o755)
        yield path


def test_relay_publishes_only_what_a_standby_has(build, kafka, folder, short_folder):
    """F6: with a synchronous standby configured, a row that is visible but that no standby has yet stays here."""
    postgres = harness.Postgres(os.path.join(short_folder, "pg"), settings={"synchronous_standby_names": "'nobody'",
                                                                      "synchronous_commit": "local"})
    postgres.start()
    try:
        place = harness.Place(postgres, kafka, build, folder)
        place.ctl("migrate")
        small_topics(place)
        fill(place, 100)
        login = place.database.login("lease_coordinator")
        dies = Relay(place, "dies", login=login, LEASE_CRASH="relay.barrier:1")
        assert dies.child.wait(60) == -signal.SIGKILL
        first = Relay(place, "first", login=login)      # local: the barrier does not wait
        wait_published(place, first)
        assert first.child.stop()

        def set_standbys(names):
            postgres.query(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            postgres.query("SELECT pg_reload_conf()")
            eventually(lambda: postgres.query("SHOW synchronous_standby_names") == [(names,)], 60, "the setting is known")

        set_standbys("")                                # the role itself is taken for certain, and would wait
        postgres.query(f"ALTER DATABASE {place.database.name} SET synchronous_commit = on")
        second = Relay(place, "second", login=login)
        wait_published(place, second)
        set_standbys("nobody")
        place.database.query("SET LOCAL synchronous_commit = local;" + FILL.format(count=100))
        eventually(lambda: "SyncRep" in str(postgres.query("SELECT wait_event FROM pg_stat_activity WHERE application_name = 'lease-relay'")),
                   60, "the barrier waits for a standby")
        assert second.status()["published"] == 100
        assert max(record.number for record in place.reader("lease.results").read_all()) == 100

        set_standbys("")
        wait_published(place, second)
        assert second.child.stop()
        check_published(place)
    finally:
        postgres.stop()
