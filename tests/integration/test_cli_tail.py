# ctest: LABEL cli TIMEOUT 600 TAKES 20
"""leasectl tail: the records of the output topics in the order of the journal, each once, filtered, and safe on a terminal."""
import base64
import json

import pytest

from harness import Events, eventually
from leasectl import NO, YES, Leasectl, small_topics

TOKEN = "5" * 64


class Relay:
    """Writes records as the relay does, by hand."""

    def __init__(self, place):
        self.events = Events(place.kafka.brokers, place.prefix)

    def put(self, topic, key, value, number, headers=(), partition=-1):
        all_headers = [("ce_type", b"settlement.x"), ("ce_time", b"2026-11-30T10:29:42.337565Z"),
                       ("lease_number", str(number).encode()), ("lease_epoch", b"1"), *headers]
        raw = value if isinstance(value, (bytes, type(None))) else json.dumps(value).encode()
        self.events.send_raw(topic, key, raw, all_headers, partition)
        return self

    def result(self, number, outcome, lease="2026-10", partition=-1, **more):
        value = dict({"number": number, "outcome": outcome, "kind": "settlement", "lease": lease,
                      "command": {"type": "settlement.start", "source": "/tests", "id": str(number)}}, **more)
        return self.put("lease.results", lease, value, number, [("lease_outcome", outcome.encode())], partition)

    def mark(self, topic, partition, number):
        return self.put(topic, "~mark", {"epoch": 1, "number": number}, number, [("lease_mark", b"1")], partition)

    def flush(self):
        self.events.flush()


@pytest.fixture
def place(bare_place):
    return small_topics(bare_place)


@pytest.fixture
def tail(place):
    run = Leasectl.of(place)
    return lambda *words: run("tail", *words)


@pytest.fixture
def start_tail(place):
    run = Leasectl.of(place)
    started = []

    def start(*words):
        started.append(run.start("tail", *words))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def relay(place):
    return Relay(place)


def numbers(done):
    return [row["number"] for row in done.rows]


def test_results_come_in_the_order_of_the_journal_whatever_their_partition(tail, relay):
    for number in range(60, 0, -1):
        relay.result(number, "granted", lease=f"l{number}", partition=number % 3)
    relay.flush()
    # Within a partition numbers only grow, so of those written downwards each partition's first counts.
    assert numbers(tail("results", "-o", "jsonl").check(YES)) == [58, 59, 60]
    for number in range(61, 101):
        relay.result(number, "granted", lease=f"l{number}", partition=number * 7 % 3)
    relay.flush()
    assert numbers(tail("results", "-o", "jsonl", "--from", "61").check(YES)) == list(range(61, 101))


def test_repeats_and_marks_are_dropped(tail, relay):
    relay.result(1, "granted", partition=2).result(2, "renewed", partition=2).mark("lease.results", 2, 2).mark("lease.results", 1, 9)
    relay.result(2, "renewed", partition=2).result(1, "granted", partition=2).result(3, "finished", partition=2).flush()
    assert numbers(tail("results", "-o", "jsonl").check(YES)) == [1, 2, 3]
    assert len(tail("results").check(YES).lines) == 3


def test_filters(tail, relay):
    relay.result(1, "granted", holder="run-a").result(2, "held", held_by={"holder": "run-a"}).result(3, "lapsed", holder="run-a")
    relay.result(4, "granted", lease="2026-11", holder="run-b").result(5, "granted", lease="a/b", holder="run-b", kind="cleanup")
    relay.flush()

    def found(*filters):
        return numbers(tail("results", "-o", "jsonl", *filters).check(YES))

    assert found() == [1, 2, 3, 4, 5]
    assert found("--lease", "2026-10") == found("--lease", "settlement/2026-10") == [1, 2, 3]
    assert found("--lease", "cleanup/2026-10") == []
    assert found("--lease", "cleanup/a/b") == found("--lease", "a/b") == found("--kind", "cleanup") == [5]
    assert found("--holder", "run-a") == [1, 3]
    assert found("--outcome", "granted", "--holder", "run-b") == [4, 5]
    assert found("--outcome", "lapsed") == [3]
    assert found("--count", "2") == [1, 2]
    assert found("--from", "4") == [4, 5]
    assert found("--from", "end") == []
    assert "nothing like that" in tail("results", "--lease", "nobody").check(YES).err


def test_json_is_an_array_and_jsonl_the_values(tail, relay):
    assert tail("results", "-o", "json").check(YES).json == []
    relay.result(1, "granted", fence=17, holder="run-a").flush()
    [row] = tail("results", "-o", "json").check(YES).json
    assert row == tail("results", "-o", "jsonl").rows[0]
    assert (row["fence"], row["outcome"], row["command"]["id"]) == (17, "granted", "1")


def test_one_line_for_people_tells_who_what_and_how_long(tail, relay):
    relay.result(7, "held", held_by={"kind": "settlement", "lease": "2026-10", "holder": "run-a", "fence": 17,
                                     "remaining_ms": 1800, "resource": "contract/a1"}, lease="2026-10b")
    relay.result(8, "granted", holder="run-b", fence=18, remaining_ms=2000).result(9, "malformed", reason="missing", field="holder")
    relay.flush()
    held, granted, malformed = tail("results").check(YES).lines
    assert held.startswith("#7  2026-11-30 10:29:42.337  settlement/2026-10b  start → held")
    for part in ("run-a", "fence 17", "contract/a1", "1.8 s"):
        assert part in held
    assert "granted" in granted and "run-b" in granted and "fence 18" in granted and "2.0 s" in granted
    assert "missing in holder" in malformed


def test_data_cannot_drive_the_terminal(tail, relay):
    evil = "x\x1b[31m\x07\r\n‮txt\x9b"
    relay.result(1, "granted", holder=evil, lease="2026-10").flush()
    done = tail("results").check(YES)
    assert len(done.lines) == 1
    assert not [letter for letter in done.out if (ord(letter) < 32 and letter != "\n") or 127 <= ord(letter) < 160 or letter == "‮"]
    assert r"x\x1b[31m\x07\r\n\u{202e}txt\u{009b}" in done.out
    assert tail("results", "-o", "jsonl").rows[0]["holder"] == evil


def test_tokens_are_in_the_json_of_grants_and_in_no_line_for_people(tail, relay):
    relay.put("lease.grants", "run-a", {"number": 1, "kind": "settlement", "lease": "2026-10", "holder": "run-a", "fence": 17,
                                        "claim_id": "c", "token": TOKEN, "ttl_ms": 2000}, 1).flush()
    done = tail("grants").check(YES)
    assert TOKEN not in done.out + done.err and "fence 17" in done.out and "run-a" in done.out
    assert tail("grants", "-o", "json").json[0]["token"] == TOKEN


def test_dead_letters_show_reason_place_and_bytes(tail, relay):
    about = [("lease_dlq_reason", b"invalid_json"), ("lease_dlq_detail", b"at byte 3"), ("lease_dlq_topic", b"settlement.events"),
             ("lease_dlq_partition", b"4"), ("lease_dlq_offset", b"1234"), ("lease_dlq_at", b"2026-11-30T10:29:42.337565Z")]
    relay.put("lease.dead-letters", b"k\x00\xff", b"\xff\xfe{", 1, [*about, ("own", b"\x80"), ("own", None), ("b", b"text")])
    relay.put("lease.dead-letters", "key", None, 2, about).flush()
    first, second = tail("dead-letters", "-o", "jsonl").check(YES).rows
    assert (first["reason"], first["topic"], first["partition"], first["offset"]) == ("invalid_json", "settlement.events", 4, 1234)
    assert base64.b64decode(first["key_base64"]) == b"k\x00\xff" and base64.b64decode(first["value_base64"]) == b"\xff\xfe{"
    own = [header for header in first["headers"] if header["name"] in ("own", "b")]
    assert own == [{"name": "own", "value_base64": "gA=="}, {"name": "own"}, {"name": "b", "value": "text"}]
    assert second["key"] == "key" and "value" not in second and "value_base64" not in second
    assert "invalid_json  settlement.events/4@1234" in tail("dead-letters").check(YES).lines[0]


def test_state_shows_floor_and_holder_and_what_is_no_record_of_ours(tail, relay):
    relay.put("lease.state", "settlement/2026-10", {"number": 1, "kind": "settlement", "lease": "2026-10", "state": "free",
                                                    "fence": 17, "min_fence": 18}, 1, partition=0)
    relay.put("lease.state", "settlement/2026-10", b"{broken", 2, partition=0).put("lease.state", "x", None, 3, partition=0).flush()
    done = tail("state").check(YES)
    assert "free" in done.lines[0] and "floor 18" in done.lines[0]
    assert "not a record of ours" in done.lines[1] and "not a record of ours" in done.lines[2]
    assert tail("state", "-o", "jsonl").rows[1]["value"] == "{broken"


def test_follow_begins_at_the_end_and_stops_at_the_count(start_tail, relay):
    relay.result(1, "granted", partition=0).flush()
    process = start_tail("results", "--follow", "--count", "2", "-o", "jsonl")

    def came(number=iter(range(2, 10000))):
        relay.result(next(number), "renewed", partition=0).flush()
        return process.poll() is not None

    eventually(came, 60, "two records have come", every=0.1)
    rows = [json.loads(line) for line in process.communicate()[0].splitlines()]
    assert process.returncode == YES and len(rows) == 2
    assert rows[0]["number"] >= 2 and rows[1]["number"] == rows[0]["number"] + 1


def test_follow_from_the_beginning_shows_both(start_tail, relay):
    relay.result(1, "granted", partition=0).result(2, "renewed", partition=1).flush()
    process = start_tail("results", "--follow", "--from", "beginning", "-o", "jsonl")
    assert [json.loads(process.stdout.readline())["number"] for _ in range(2)] == [1, 2]
    relay.result(3, "finished", partition=1).flush()
    assert json.loads(process.stdout.readline())["number"] == 3


def test_a_wait_that_is_in_vain_says_no(tail, relay):
    relay.result(1, "granted").flush()
    done = tail("results", "--follow", "--outcome", "lapsed", "--count", "1", "--wait", "500ms").check(NO)
    assert "0 of 1" in done.err and done.out == ""
