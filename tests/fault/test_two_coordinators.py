# ctest: LABEL fault TIMEOUT 900 TAKES 110 BUSY
"""Two coordinators in one group, under a mixed load.

The race: Kafka says who reads a partition, PostgreSQL decides. A process that was stopped past its session wakes up with a batch
in hand and believes that the partitions are still its own; whoever has them now has applied the same messages. If offsets were
trusted to the client, or checked before instead of in the transaction, both would be answered.
"""
import json
import os
import time

from confluent_kafka import Consumer, TopicPartition

from crew import HALF, Crew, owns_all
from processes import is_stopped
from stage import Stage
from waiting import eventually

COMMANDS = int(os.environ.get("LEASE_TEST_COMMANDS", "20000"))

# Where the second coordinator stops, and at which passage; each time with something read and not yet committed.
# In batch.in_hand its connection survives, so that it is the compare-and-set that refuses it.
STOPS = [("batch.in_hand", 12), ("poll.after", 20), ("tx.begun", 12), ("tx.applied", 12), ("commit.before_send", 12),
         ("commit.acked", 12), ("revoke.enter", 1), ("batch.in_hand", 30)]


def refused(coordinator):
    return coordinator.metric("lease_claims_refused_total") or 0


def freeze_and_wake(crew, first, second, point, passage):
    """Stops `second` at the point, waits until `first` has all partitions, wakes it; returns how many claims were refused."""
    seen = len(second.crashes())

    def has_stopped():
        return len(second.crashes()) > seen and is_stopped(second.child.pid)

    second.start(crash=f"{point}:{passage}:stop", wait=False)      # with a backlog it may stop before anybody has seen it ready
    third = None
    if point == "revoke.enter":       # somebody must come for partitions to be revoked, once it has its half; or it loses its session
        crew.send_until(lambda: has_stopped() or second.metric("lease_partitions_assigned") == HALF, what=f"{second.name} has its half")
        third = None if has_stopped() else crew.coordinator().start()
    crew.send_until(has_stopped, what=f"{second.name} stops at {point}")
    if third:
        crew.begin_stop(third)
    crew.send_until(lambda: owns_all(first), what=f"{first.name} gets the partitions of the stopped one")
    assert is_stopped(second.child.pid)
    crew.send(500)                    # consumed by the other: what the stopped one has in hand is old now
    second.thaw()
    crew.send_until(lambda: not owns_all(first) and second.is_ready(), what=f"{second.name} is back in the group")
    crew.send(500)
    crew.end_stops()
    count = refused(second)
    crew.begin_stop(second)
    crew.send(250)
    crew.end_stops()
    return count


def test_F12_F13_partitions_move_and_a_stopped_coordinator_comes_back__the_books_balance(place):
    crew = Crew(place)
    first, second, third = (crew.coordinator(batch_messages=200) for _ in range(3))
    first.start()
    second.start()
    moves = [(crew.begin_stop, second), (third.start, False), (second.start, False), (crew.begin_stop, first),
             (first.start, False), (crew.begin_stop, third), (crew.begin_stop, second)]
    share = COMMANDS // 2 // len(moves)
    for move, argument in moves:
        crew.send(share)
        move(argument) if move == crew.begin_stop else move(wait=argument)
        crew.send(share // 4)
        crew.end_stops()
    eventually(lambda: owns_all(first), 60, "the first one has all partitions")
    taken = place.database.value("SELECT sum(epoch) FROM lease.partitions")
    refusals = [(point, int(freeze_and_wake(crew, first, second, point, passage))) for point, passage in STOPS]
    crew.send(max(0, COMMANDS - crew.load.sent))
    figures = crew.balance()
    print(f"{crew.load.sent} commands; partitions were taken {taken:.0f} times in {len(moves)} moves;"
          f" claims refused after each stop: {refusals};", json.dumps(figures))
    assert crew.load.sent >= COMMANDS and taken > 5 * HALF
    assert all(count > 0 for point, count in refusals if point == "batch.in_hand"), f"no old batch was refused: {refusals}"


def send_everywhere(crew, name):
    """A start into each settlement partition, and a request into each cleanup partition, some times."""
    events = crew.load.events
    for number in range(60):
        events.send("settlement", "start", f"{name}-{number}", {"holder": "a"})
        events.send("cleanup", "request", f"{name}-{number}", {})
    events.flush()


def test_F15_a_stopped_coordinator_holds_nobody_up_for_longer_than_a_transaction_may_stand_idle(place):
    """Stopped between apply and commit it holds the journal's lock, which everybody needs. Only the server can end that: without
    idle_in_transaction_session_timeout all others would wait for ever. Its other lanes may stand in line for that lock, get it when
    the first is cut off, and stand idle in turn: all of that together must be over before the group's session is."""
    crew = Crew(place)
    session_ms = 8000      # so long that a machine which stands still for a moment does not make the difference
    first = crew.coordinator(session_timeout_ms=session_ms).start()
    second = crew.coordinator(session_timeout_ms=session_ms).start(crash="tx.applied:1:stop")
    eventually(lambda: first.metric("lease_partitions_assigned") == HALF, 60, "each has its half")
    send_everywhere(crew, "a")
    eventually(lambda: is_stopped(second.child.pid), 60, "the second one is stopped inside its transaction")
    stopped_at = os.stat(second.crash_log).st_mtime
    before = place.database.value("SELECT journal_number FROM lease.relay_status")
    holder = place.database.query("SELECT a.state FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory'"
                                  " AND l.granted AND l.objid = 1 AND l.classid = 1279611205 AND a.datname = current_database()")
    is_held = ("idle in transaction",) in holder
    send_everywhere(crew, "b")
    eventually(lambda: place.database.value("SELECT journal_number FROM lease.relay_status") > before, 60,
               "somebody decides again")
    waited = time.time() - stopped_at
    assert is_stopped(second.child.pid)
    print(f"others decided {waited:.2f} s after the stop; the session times out after {session_ms / 1000:.1f} s")
    assert is_held, f"the stopped process does not hold the journal: {holder}"
    assert waited < session_ms / 1000, "the others waited for the group, not for the server"
    second.thaw()
    crew.balance()


def test_F12_the_offsets_of_the_group_decide_nothing(place):
    """What the group has committed is for lag tools: with offsets that went back and offsets that skip, nothing is answered twice
    and nothing is left out."""
    crew = Crew(place)
    one = crew.coordinator()
    one.start()
    send_everywhere(crew, "a")
    place.wait_idle()
    assert one.stop()
    consumer = Consumer({"bootstrap.servers": place.kafka.brokers, "group.id": f"{place.prefix}lease-coordinator"})
    topic = f"{place.prefix}settlement.events"
    before = place.ends(["settlement.events"])
    send_everywhere(crew, "b")
    after = place.ends(["settlement.events"])
    ends = {place[1]: end for place, end in after.items() if end > before.get(place, 0)}
    forged = [TopicPartition(topic, partition, 0 if partition % 2 else end) for partition, end in ends.items()]
    assert len(forged) > 6
    consumer.commit(offsets=forged, asynchronous=False)
    consumer.close()
    one.start()
    figures = crew.balance()
    assert figures["outcomes"] == {"granted": 120, "requested": 120}

    def is_told():
        assert group_offsets(place, ends) == ends
        return True

    eventually(is_told, 60, "the group is told where we are, whatever stood there")


def group_offsets(place, partitions):
    consumer = Consumer({"bootstrap.servers": place.kafka.brokers, "group.id": f"{place.prefix}lease-coordinator"})
    topic = f"{place.prefix}settlement.events"
    places = consumer.committed([TopicPartition(topic, partition) for partition in partitions], timeout=10)
    consumer.close()
    return {one.partition: one.offset for one in places}


def test_F20_a_zombie_that_takes_a_partition_costs_a_session_timeout_and_no_answer(place):
    """A process of before wakes up and takes the partition in the database although the group gave it to another. The rightful owner
    is refused, pauses one session timeout, sees that it still is the owner, and takes the partition back."""
    stage = Stage(place, session_timeout_ms=2000)
    crew = Crew(place)
    assert stage.ask("settlement", "start", "run-1", {"holder": "a"})["outcome"] == "granted"
    (partition, epoch), = place.database.query(
        "SELECT partition, epoch FROM lease.partitions WHERE next_offset IS NOT NULL AND topic = %s", (f"{place.prefix}settlement.events",))
    place.database.query("SELECT * FROM lease.take_partition(%s, %s, 12, 'zombie')", (f"{place.prefix}settlement.events", partition))
    begun = time.monotonic()
    assert stage.ask("settlement", "start", "run-1", {"holder": "b"})["outcome"] == "held"
    waited = time.monotonic() - begun
    now = place.database.query("SELECT epoch, owner FROM lease.partitions WHERE partition = %s AND topic = %s",
                               (partition, f"{place.prefix}settlement.events"))
    print(f"answered after {waited:.2f} s; the epoch went from {epoch} to {now[0][0]}")
    assert refused(stage.coordinator) >= 1 and "claim refused, partition paused" in stage.coordinator.log_text()
    assert now[0][0] > epoch + 1 and now[0][1].endswith("c1")
    assert 2.0 <= waited
    assert crew.balance()["outcomes"] == {"granted": 1, "held": 1}


def test_F23_two_coordinators_with_one_instance_name_do_not_mistake_each_other(place):
    """Names are only for people: what counts is the epoch, which rises at each taking."""
    crew = Crew(place)
    first, second = (crew.coordinator(instance="same") for _ in range(2))
    first.start()
    second.start()
    eventually(lambda: first.metric("lease_partitions_assigned") == second.metric("lease_partitions_assigned") == HALF, 60,
               "each has its half")
    crew.send(1500)
    crew.kill(second)
    crew.send(500)
    second.start(wait=False)
    crew.send(500)
    crew.balance()
