# ctest: LABEL kafka,sanitize TIMEOUT 400 TAKES 20
"""What consumers stand on, against a real coordinator: the gate that starts from lease.state, and the reader that hands each record
of lease.results and lease.grants out once. Both in C, through gate_process; what they must say is known from Python's own reading."""
import json
import os
import subprocess

import pytest
from confluent_kafka import Producer

from gate_process import GateProcess
from harness import eventually, read_topic
from stage import Stage

GATE_SQL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sql", "gate", "gate.sql")
TOPICS = ("lease.results", "lease.grants")


@pytest.fixture(name="stage")
def fixture_stage(small_place):
    return Stage(small_place)


@pytest.fixture(name="new_gate")
def fixture_new_gate(stage):
    gates = []

    def make(**options):
        gates.append(GateProcess(stage.place, **options))
        return gates[-1]

    yield make
    for gate in gates:
        gate.process.kill()
        gate.process.wait(10)


def start(stage, lease, holder, ttl_ms=60000):
    answer = stage.ask("settlement", "start", lease, {"holder": holder, "ttl_ms": ttl_ms})
    assert answer["outcome"] == "granted", answer
    return stage.grant(answer["fence"])


def test_a_gate_admits_nobody_before_it_has_read_and_then_only_the_last(stage, new_gate):
    """A holder that was replaced is refused by a gate that began after it was, and never saw a thing of either."""
    stale = start(stage, "s/1", "h1", ttl_ms=200)
    floor = stage.event("lapsed", "settlement", "s/1")["min_fence"]
    assert floor == stale["fence"] + 1
    grant = start(stage, "s/1", "h2")
    stage.place.wait_idle()

    gate = new_gate()
    assert gate.admit("settlement/s/1", grant) == "not-ready"
    gate.wait_ready()
    assert gate.admit("settlement/s/1", stale) == "stale"
    assert gate.admit("settlement/s/1", dict(grant, claim_id=stale["claim_id"])) == "stale"
    assert gate.admit("settlement/s/1", grant, 1) == "admit"
    gate.done("settlement/s/1", grant, 1)
    assert gate.admit("settlement/s/1", grant, 1) == "duplicate"
    assert gate.admit("settlement/s/1", grant, 2) == "admit"
    gate.end()


def test_a_gate_that_runs_is_closed_by_a_lapse_before_a_successor_comes(stage, new_gate):
    gate = new_gate().wait_ready()                                      # of a topic in which nothing is yet
    grant = start(stage, "s/1", "h1", ttl_ms=300)
    assert gate.admit("settlement/s/1", grant) == "admit"               # its record may not have come yet: it is the highest
    stage.event("lapsed", "settlement", "s/1")
    eventually(lambda: gate.poll() and gate.admit("settlement/s/1", grant) == "stale", 60, "the lapse closes the gate")
    successor = start(stage, "s/1", "h2")
    assert gate.admit("settlement/s/1", successor) == "admit"
    stage.ask("settlement", "finish", "s/1", stage.as_holder(successor))
    eventually(lambda: gate.poll()[0] == 4, 60, "two grants, a lapse and a finish are read")
    assert gate.admit("settlement/s/1", successor) == "admit", "what it sent before its finish may come late"
    assert gate.admit("settlement/s/1", grant) == "stale"
    gives_up = start(stage, "s/2", "h3")
    assert gate.admit("settlement/s/2", gives_up) == "admit"
    stage.ask("settlement", "fail", "s/2", {**stage.as_holder(gives_up), "reason": "no"})
    eventually(lambda: gate.poll() and gate.admit("settlement/s/2", gives_up) == "stale", 30, "giving up closes the gate")
    gate.end()


def test_a_small_gate_forgets_what_has_ended_and_knows_who_is_live(stage, new_gate):
    """Ten times as many leases as it may remember, one after the other; those that are live, old and new, are among what it knows."""
    grants, live = {}, {f"s/{n}" for n in range(0, 600, 30)}
    for wave in range(0, 600, 30):
        for n in range(wave, wave + 30):
            stage.events.send("settlement", "start", f"s/{n}", {"holder": f"h{n}", "ttl_ms": 600000})
        stage.events.flush()
        eventually(lambda upto=wave + 30: stage.grants.poll() and len(stage.grants.records) == upto, 60, "the wave is granted")
        for record in stage.grants.records[wave:]:
            grants[record.value["lease"]] = record.value
            if record.value["lease"] not in live:
                stage.events.send("settlement", "finish", record.value["lease"], stage.as_holder(record.value))
    stage.events.flush()
    stage.place.wait_idle()

    gate = new_gate(resources_max=60).wait_ready()
    records, _, resources, forgotten = gate.poll()
    print(f"{records} records of lease.state: {resources} remembered, {forgotten} forgotten")
    assert resources <= 60 and forgotten >= 500
    verdicts = {lease: gate.admit(f"settlement/{lease}", grant) for lease, grant in grants.items()}
    admitted = {lease for lease, verdict in verdicts.items() if verdict == "admit"}
    assert live <= admitted, "what is finished is forgotten first"
    assert len(admitted) <= 60, "what is forgotten is refused"
    assert set(verdicts.values()) == {"admit", "stale"}
    gate.end()


def test_a_gate_in_another_database_takes_grants_and_floors_as_they_are_published(stage):
    """What stands in lease.grants and lease.state is what sql/gate/gate.sql wants; it knows nothing else of us."""
    place = stage.place
    database = place.postgres.create_database("lease_gate")
    try:
        with open(GATE_SQL, encoding="utf-8") as file:
            database.query(file.read())

        def admit(grant, effect=None):
            return database.value("SELECT lease_gate.admit('settlement/s/1', %s, %s, %s)", (grant["fence"], grant["claim_id"], effect))

        def take_floors():
            stage.state.read_all()
            rows = [record.value for record in stage.state.records]
            return database.value("SELECT lease_gate.raise_floor(%s, %s::bigint[])",
                                  ([f"{row['kind']}/{row['lease']}" for row in rows], [row.get("min_fence") for row in rows]))

        stale = start(stage, "s/1", "h1", ttl_ms=300)
        assert admit(stale, "pay") == "admit"
        stage.event("lapsed", "settlement", "s/1")
        place.wait_idle()
        assert take_floors() == 1 and take_floors() == 0
        assert admit(stale, "post") == "stale"
        successor = start(stage, "s/1", "h2")
        assert [admit(successor, "pay"), admit(successor, "post")] == ["duplicate", "admit"]
    finally:
        database.drop()


# ---- results ----

def read(place, positions, most=10 ** 9, topics=TOPICS, **environment):
    """Records handed out (topic, partition, offset), the positions behind them, gaps, counts by kind."""
    done = subprocess.run([place.program("gate_process"), "results", str(most)] + [place.prefix + topic for topic in topics], text=True, timeout=120,
                          input="\n".join(" ".join(map(str, position)) for position in positions), stdout=subprocess.PIPE, check=True,
                          env=dict(os.environ, **place.environment(), **environment))
    lines = [line.split() for line in done.stdout.splitlines()]
    parsed = {word: [(line[1], *map(int, line[2:])) for line in lines if line[0] == word] for word in ("record", "position", "gap")}
    kinds = dict(zip(("new", "mark", "repeat", "straggler", "stranger"), [int(n) for n in lines[-1][1:]]))
    return parsed["record"], parsed["position"], parsed["gap"], kinds


def expected(place, topics=TOPICS):
    """By partition, in order: what Python's reader keeps."""
    found = {}
    for topic in topics:
        for record in read_topic(place.kafka.brokers, place.prefix, topic, drop_repeats=True):
            found.setdefault((place.prefix + topic, record.partition), []).append(record.offset)
    return found


def by_partition(records):
    found = {}
    for topic, partition, offset in records:
        found.setdefault((topic, partition), []).append(offset)
    return found


def forge(place, topic, partition, number, epoch):
    """A record as an old relay would send it."""
    producer = Producer({"bootstrap.servers": place.kafka.brokers})
    headers = [("lease_number", str(number).encode()), ("lease_epoch", str(epoch).encode())]
    producer.produce(place.prefix + topic, key=b"s", value=json.dumps({"number": number}).encode(), partition=partition, headers=headers)
    assert producer.flush(60) == 0


def test_each_record_is_handed_out_once_however_often_reading_starts_again(stage):
    place = stage.place
    for n in range(300):
        stage.events.send("settlement", "start", f"s/{n % 150}", {"holder": f"h{n}", "ttl_ms": 600000})
    stage.events.flush()
    place.wait_idle()
    handed_out, positions, starts = [], [], 0
    while True:
        records, positions, gaps, _ = read(place, positions, most=100)
        assert gaps == []
        handed_out += records
        starts += 1
        if not records:
            break
    assert starts > 4 and by_partition(handed_out) == expected(place)
    assert len(handed_out) == 300 + 150
    assert all(number > 0 and epoch > 0 for topic, _, _, number, epoch in positions if topic.endswith("results"))

    # Who starts at the end gets what comes from then on, and repeats and stragglers not at all.
    assert read(place, [], LEASE_TEST_FROM_END="1")[0] == []
    epoch = max(position[4] for position in positions)
    last = {(position[0], position[1]): position[3] for position in positions}
    for partition in range(3):
        number = last[place.prefix + "lease.results", partition]
        forge(place, "lease.results", partition, number, epoch)              # what a relay repeats after a crash
        forge(place, "lease.results", partition, number + 1000, epoch - 1)   # what a paused one sends when it wakes up
    producer = Producer({"bootstrap.servers": place.kafka.brokers})
    producer.produce(place.prefix + "lease.results", value=b"none of ours")
    assert producer.flush(60) == 0
    stage.events.send("settlement", "start", "s/late", {"holder": "h"})
    stage.events.flush()
    place.wait_idle()
    records, positions, _, kinds = read(place, positions)
    assert len(records) == 2, "one answer, one grant"
    assert (kinds["repeat"], kinds["straggler"], kinds["stranger"]) == (3, 3, 1)
    assert read(place, positions)[0] == []


def test_a_position_that_the_log_does_not_have_any_more_is_told(stage):
    place = stage.place
    for n in range(30):
        stage.events.send("settlement", "start", f"s/{n}", {"holder": f"h{n}"})
    stage.events.flush()
    place.wait_idle()
    _, positions, _, _ = read(place, [])
    moved = [(topic, partition, 10 ** 9 if partition == 1 and topic.endswith("results") else offset, number, epoch)
             for topic, partition, offset, number, epoch in positions]
    records, behind, gaps, kinds = read(place, moved)
    assert gaps == [(place.prefix + "lease.results", 1, 10 ** 9)]
    assert records == [] and kinds["repeat"] > 0, "what it reads again is known by its numbers"
    assert behind == positions
