# ctest: LABEL fault TIMEOUT 600 TAKES 70
"""What the intake does when the place is wrong, the database is away or a message kills: halts, leaves, and gives up one message."""
import os
import shutil
import tempfile

import psycopg2
import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from harness import Postgres, Place, eventually
from stage import Stage

TOPIC = "settlement.events"


def start_run(place, events, name, **data):
    return events.place_of("settlement", "start", name, {"holder": "h-1", "ttl_ms": 60000, **data})


def answers(place, subject):
    return [row[0] for row in place.database.query(
        "SELECT event FROM lease.timeline WHERE subject = %s ORDER BY number", (subject,))]


def wait_answers(place, subject, count=1, limit=60):
    eventually(lambda: len(answers(place, subject)) >= count, limit, f"{subject} is answered")
    return answers(place, subject)


def fill(place, events, count=24):
    """Consumes something from every partition."""
    for number in range(count):
        start_run(place, events, f"fill-{number}")
    place.wait_idle(60)


def recreate(place, partitions=12, records=0):
    admin, name = place.kafka.admin(), place.prefix + TOPIC
    admin.delete_topics([name])[name].result()
    eventually(lambda: name not in place.kafka.topics(), 60, "the topic is gone")

    def created():
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        except Exception as error:      # deletion is not finished everywhere
            raise AssertionError(error)
        return True

    eventually(created, 60, "the topic is made again")
    eventually(lambda: name in place.kafka.topics(), 60, "the broker tells of the topic")
    events = place.events()
    for number in range(records):
        events.send_raw(TOPIC, f"other-{number}", b"{}", None, number % partitions)
    events.flush()


def halted(coordinator):
    return coordinator.metric("lease_partitions_halted")


def test_a_recreated_topic_with_a_longer_log_halts(place):
    """F11: reading on from the middle of another log would be silent."""
    coordinator, events = place.coordinator().start(), place.events()
    fill(place, events)
    assert coordinator.stop()
    recreate(place, records=600)
    before = place.database.value("SELECT max(number) FROM lease.timeline")
    coordinator.start(wait=False)
    eventually(lambda: (halted(coordinator) or 0) > 0, 60, "partitions halt")
    eventually(lambda: coordinator.get("/readyz")[0] == 503 and "topic_recreated" in coordinator.get("/readyz")[1], 60, "not ready, and says why")
    # The other topics go on.
    events.send("cleanup", "request", "item-1", {})
    events.flush()
    wait_answers(place, "item-1")
    assert place.database.value("SELECT count(*) FROM lease.timeline WHERE number > %s AND origin_topic = %s"
                                " AND subject LIKE 'other%%'", (before, place.prefix + TOPIC)) == 0


def test_a_recreated_topic_with_a_shorter_log_halts(place):
    coordinator, events = place.coordinator().start(), place.events()
    fill(place, events)
    assert coordinator.stop()
    recreate(place)
    coordinator.start(wait=False)
    eventually(lambda: (halted(coordinator) or 0) > 0, 60, "partitions halt")
    eventually(lambda: "offset_beyond_log" in coordinator.log_text(), what="it says why")


def test_more_partitions_than_before_halt_the_whole_topic(place):
    """Keys may have moved: order by key would be lost."""
    coordinator, events = place.coordinator().start(), place.events()
    fill(place, events)
    admin = place.kafka.admin()      # its futures die with it
    admin.create_partitions([NewPartitions(place.prefix + TOPIC, 13)])[place.prefix + TOPIC].result()
    eventually(lambda: place.kafka.partition_count(place.prefix + TOPIC) == 13, 60, "the broker tells of the new partition")
    assert coordinator.stop()
    coordinator.start(wait=False)
    eventually(lambda: halted(coordinator) == 13, 60, "all 13 partitions halt")
    eventually(lambda: "partition_count_changed" in coordinator.get("/readyz")[1], what="it says why")


def test_a_stop_drains_and_leaves_nothing_undone(place):
    coordinator, events = place.coordinator().start(), place.events()
    for number in range(3000):
        events.send("settlement", "start", f"run-{number}", {"holder": "h-1", "ttl_ms": 600000})
    events.flush()
    eventually(lambda: (coordinator.metric("lease_answers_total") or 0) > 0, 60, "it is at work")
    assert coordinator.stop(30)
    unpublished = place.database.value("SELECT unpublished FROM lease.relay_status")
    assert unpublished == 0
    coordinator.start()
    place.wait_idle(60)
    assert place.database.value("SELECT count(*) FROM lease.timeline WHERE event = 'granted'") == 3000
    assert place.database.value("SELECT count(*) FROM lease.timeline WHERE event = 'duplicate'") == 0


@pytest.mark.parametrize("point", ["tx.begun", "tx.offset_locked", "tx.applied", "commit.before_send", "commit.sent_no_reply"])
def test_a_connection_lost_in_a_transaction_is_answered_once(small_place, point):
    """F3 to F5: whatever happened to the commit, the offset row tells."""
    coordinator, events = small_place.coordinator().start(crash=f"{point}:3:error"), small_place.events()
    for wave in range(4):   # a transaction at least for each
        for number in range(10):
            events.send("settlement", "start", f"run-{wave}-{number}", {"holder": "h-1", "ttl_ms": 600000})
        events.flush()
        small_place.wait_idle(60)
    assert point in coordinator.crashes()
    assert small_place.database.query("SELECT event, count(*) FROM lease.timeline GROUP BY event") == [("granted", 40)]


def test_a_message_that_kills_is_given_up_and_the_others_go_on(small_place):
    """The process dies of its first transaction, again and again: only notes in transactions of their own end that."""
    coordinator, events = small_place.coordinator(), small_place.events()
    killer = start_run(small_place, events, "killer")
    begun = 0
    for _ in range(20):
        coordinator.start(crash="tx.begun:1:kill", wait=False)
        eventually(lambda: not coordinator.child.is_running(), 60, "it dies")
        begun = small_place.database.value("SELECT coalesce(max(tries), 0) FROM lease.attempt")
        if begun > 3:
            break
    assert begun == 4 and "with caution" in coordinator.log_text()
    others = [start_run(small_place, events, f"other-{number}") for number in range(24)]
    coordinator.start()
    small_place.wait_idle(60)
    letters = small_place.database.query("SELECT origin_topic, origin_partition, origin_offset, reason FROM lease.timeline"
                                   " WHERE event = 'dead_letter'")
    assert letters == [(small_place.prefix + killer[0], killer[1], killer[2], "killed_process")]
    assert small_place.database.value("SELECT count(*) FROM lease.timeline WHERE event = 'granted'") == len(others)


def test_away_from_the_database_it_leaves_the_group_and_comes_back(kafka, build, folder):
    short = tempfile.mkdtemp(prefix="lease-pg-")      # the path of a socket has a limit
    os.chmod(short, 0o711)
    server = Postgres(f"{short}/pg")
    server.start()
    place = Place(server, kafka, build, f"{folder}/place")
    try:
        place.prepare()
        coordinator, events = place.coordinator(database_grace_ms=2000).start(), place.events()
        start_run(place, events, "before")
        wait_answers(place, "before")
        server.crash()
        eventually(lambda: "leaving the group" in coordinator.log_text(), 60, "it leaves")
        eventually(lambda: coordinator.get("/readyz")[0] == 503 and coordinator.get("/livez")[0] == 200, what="it is alive and not ready")
        events.send("settlement", "start", "meanwhile", {"holder": "h-1"})
        events.flush()
        server.start()
        wait_answers(place, "meanwhile")
        coordinator.wait_ready()
        start_run(place, events, "after")
        wait_answers(place, "after")
        place.wait_idle(60)
    finally:
        place.close()
        server.stop()
        shutil.rmtree(short, ignore_errors=True)


def raise_on(place, table, condition, sqlstate):
    place.database.query(f"""
        CREATE FUNCTION public.broken() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN RAISE EXCEPTION 'for the test' USING ERRCODE = '{sqlstate}'; END$$""")
    place.database.query("CREATE TRIGGER broken BEFORE INSERT ON lease." + table + " FOR EACH ROW"
                         f" WHEN ({condition}) EXECUTE FUNCTION public.broken()")


def test_one_message_that_the_database_refuses_among_500(place):
    """Its batch is halved until it alone is left; the other 499 are answered as if it had not been there."""
    raise_on(place, "lease", "NEW.lease = 'run-250'", "22003")
    coordinator, events, sent = place.coordinator(lanes=1), place.events(), {}
    for number in range(500):
        place_of = sent.setdefault(number, [])
        events.send("settlement", "start", f"run-{number}", {"holder": "h-1", "ttl_ms": 600000},
                    then=lambda *where, to=place_of: to.extend(where))
    events.flush()
    coordinator.start()
    place.wait_idle(60)
    letters = place.database.query("SELECT origin_topic, origin_partition, origin_offset, reason FROM lease.timeline"
                                   " WHERE event = 'dead_letter'")
    topic, partition, offset = sent[250]
    assert letters == [(place.prefix + topic, partition, offset, "database_refused")]
    assert place.database.value("SELECT count(*) FROM lease.timeline WHERE event = 'granted'") == 499
    # At the worst each of 12 partitions comes as a batch of its own, and about 40 messages are halved.
    assert coordinator.metric("lease_batch_messages_count") < 40, "halved, not one by one"


def test_a_broken_invariant_ends_the_process_and_loses_nothing(small_place):
    raise_on(small_place, "consumed", "true", "LE007")
    coordinator, events = small_place.coordinator().start(), small_place.events()
    start_run(small_place, events, "run-1")
    eventually(lambda: not coordinator.child.is_running(), 60, "it ends")
    assert coordinator.child.returncode() == 70
    assert "LE007" in coordinator.log_text()
    small_place.database.query("DROP TRIGGER broken ON lease.consumed")
    coordinator.start()
    assert wait_answers(small_place, "run-1") == ["granted"]


def test_a_clock_far_behind_is_waited_for_and_told(small_place):
    """As the database's clock stands after a failover to a server whose clock is wrong; here the last decision is moved instead."""
    coordinator, events = small_place.coordinator().start(), small_place.events()
    start_run(small_place, events, "before")
    assert wait_answers(small_place, "before") == ["granted"] and coordinator.stop()
    small_place.database.query("UPDATE lease.journal SET at = at + interval '1 hour'")
    coordinator.start(wait=False)
    start_run(small_place, events, "meanwhile")
    eventually(lambda: "behind its last decision" in coordinator.get("/readyz")[1], 60, "it says why it is not ready")
    eventually(lambda: coordinator.get("/readyz")[0] == 503 and coordinator.get("/livez")[0] == 200, what="it is alive and not ready")
    eventually(lambda: "code=LE003" in coordinator.log_text(), what="it logs why")
    assert answers(small_place, "meanwhile") == []
    small_place.database.query("UPDATE lease.journal SET at = at - interval '1 hour'")
    assert wait_answers(small_place, "meanwhile") == ["granted"]
    coordinator.wait_ready()


def test_F35_renewals_pass_a_lane_that_stands(small_place):
    """A backlog, or a lane that waits, must end no live run: renewals have a topic and a lane of their own."""
    stage = Stage(small_place, lanes=1)
    mine = stage.grant(stage.ask("settlement", "start", "run-1", {"holder": "a"})["fence"])
    stage.ask("settlement", "start", "run-2", {"holder": "b"})
    stranger = psycopg2.connect(small_place.database.conninfo)
    stranger.cursor().execute("SELECT 1 FROM lease.lease WHERE lease = 'run-2' FOR UPDATE")
    waiting = [stage.events.place_of("settlement", "start", name, {"holder": "c"}) for name in ("run-2", "run-3", "run-4")]
    for _ in range(20):
        assert stage.ask("settlement", "renew", "run-1", stage.as_holder(mine))["outcome"] == "renewed"
    assert answers(small_place, "run-2") == ["granted"], "the lane should stand, or nothing is shown"
    stranger.rollback()
    assert stage.answer_to(waiting[0])["outcome"] == "held"
    stage.balance()


def test_without_its_topics_it_refuses_to_start_and_says_why(bare_place):
    bare_place.ctl("migrate")
    coordinator = bare_place.coordinator()
    coordinator.start(wait=False)
    eventually(lambda: not coordinator.child.is_running(), 60, "it ends")
    assert coordinator.child.returncode() == 78
    assert "leasectl topics" in coordinator.log_text() or "witness_topic_missing" in coordinator.log_text()


def test_without_its_tables_it_refuses_to_start(bare_place):
    bare_place.ctl("topics", "--apply")
    coordinator = bare_place.coordinator(database=bare_place.database.conninfo)
    coordinator.start(wait=False)
    eventually(lambda: not coordinator.child.is_running(), 60, "it ends")
    assert coordinator.child.returncode() == 78
