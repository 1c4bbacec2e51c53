# ctest: LABEL cli TIMEOUT 600 TAKES 30
"""leasectl send: what it puts on a topic, and what it makes of the answer. The answers here are written by hand, as the relay
writes them; test_cli_system.py has real ones."""
import json
import os
import stat
import threading

import pytest

from harness import Events, Reader
from leasectl import CONFIGURATION, DATA, NO, TEMPORARY, YES, Leasectl, small_topics

TOKEN = "ab" * 32
GRANT = {"number": 5, "kind": "settlement", "lease": "2026-10", "holder": "run-a", "fence": 4294967297,
         "claim_id": "01890000-0000-7000-8000-000000000001", "token": TOKEN, "ttl_ms": 2000}


@pytest.fixture
def place(bare_place):
    return small_topics(bare_place)


@pytest.fixture
def send(place):
    run = Leasectl.of(place)
    return lambda *words, **more: run("send", *words, **more)


@pytest.fixture
def sent(place):
    """What came onto a topic, all of it so far."""
    def read(topic="settlement.events"):
        reader = Reader(place.kafka.brokers, place.prefix, topic, drop_repeats=False)
        try:
            return list(reader.read_all())
        finally:
            reader.close()
    return read


def test_words_become_data_and_attributes(send, sent):
    done = send("settlement.start", "2026-10", "holder=run-a", "ttl_ms=2000", 'resources:=["contract/a1", "contract/b"]',
                "more=true", "payload:={\"a\": 1.50}", "--id", "m-1", "--source", "/me", "-o", "json").check(YES)
    [record] = sent()
    event = json.loads(record.raw)
    assert record.key == b"2026-10"
    assert record.headers["content-type"].startswith(b"application/cloudevents+json")
    assert (event["specversion"], event["id"], event["source"], event["type"], event["subject"]) == (
        "1.0", "m-1", "/me", "settlement.start", "2026-10")
    assert event["data"] == {"holder": "run-a", "ttl_ms": 2000, "resources": ["contract/a1", "contract/b"], "more": True,
                             "payload": {"a": 1.5}}
    assert done.json == {"type": "settlement.start", "subject": "2026-10", "source": "/me", "id": "m-1",
                         "topic": done.json["topic"], "partition": record.partition, "offset": record.offset}


def test_binary_mode_has_the_attributes_in_headers(send, sent):
    send("settlement.start", "2026-10", "holder=run-a", "--binary", "--id", "m-1").check(YES)
    [record] = sent()
    assert json.loads(record.raw) == {"holder": "run-a"}
    assert {name: value for name, value in record.headers.items() if name != "ce_time"} == {
        "ce_specversion": b"1.0", "ce_id": b"m-1", "ce_source": b"/leasectl", "ce_type": b"settlement.start",
        "ce_subject": b"2026-10", "content-type": b"application/json"}


def test_each_message_has_an_id_of_its_own_unless_told(send, sent):
    for _ in range(2):
        send("settlement.start", "2026-10", "holder=run-a").check(YES)
    first, second = (json.loads(record.raw)["id"] for record in sent())
    assert first != second


def test_renewals_go_to_their_own_topic_and_other_kinds_to_theirs(send, sent):
    send("cleanup.renew", "file-1").check(YES)
    send("cleanup.claim", "worker-1", "credit_total=1", "refresh=1", "wait_ms=500").check(YES)
    assert json.loads(sent("lease.renewals")[0].raw)["type"] == "cleanup.renew"
    assert json.loads(sent("cleanup.events")[0].raw)["data"] == {"credit_total": 1, "refresh": 1, "wait_ms": 500}
    send("file-write.start", "upload/7", "holder=w", 'resources:=["file/7"]').check(YES)
    assert json.loads(sent("file-write.events")[0].raw)["data"] == {"holder": "w", "resources": ["file/7"]}
    assert "--apply" in send("invoice-run.start", "x").check(CONFIGURATION).err


def test_items_are_data_as_any_other(send, sent):
    item = {"lease": "file-1", **{name: GRANT[name] for name in ("fence", "claim_id", "token")}}
    send("cleanup.release", "worker-1", "holder=worker-1", f"items:={json.dumps([item])}").check(YES)
    [record] = sent("cleanup.events")
    assert record.key == b"worker-1"
    assert json.loads(record.raw)["data"] == {"holder": "worker-1", "items": [item]}


def test_texts_stay_texts_and_later_words_win_over_data(send, sent):
    send("settlement.fail", "2026-10", "reason=17", "retry=maybe", "fence=abc", "--data", '{"reason": "old", "x": null}').check(YES)
    assert json.loads(sent()[0].raw)["data"] == {"reason": "17", "x": None, "retry": "maybe", "fence": "abc"}


@pytest.mark.parametrize("text", ['{"a":1}{"b":2}', '{"a":1,"a":2}', "{", "'"], ids=["two", "repeated", "cut", "quote"])
def test_data_that_is_no_json_is_named_and_not_sent(send, sent, text):
    assert "not valid JSON" in send("settlement.start", "x", "--data", text).check(DATA).err
    assert "not valid JSON" in send("settlement.start", "x", f"payload:={text}").check(DATA).err
    assert sent() == []


@pytest.mark.parametrize("text", [json.dumps(GRANT), json.dumps([dict(GRANT, fence=1), GRANT]),
                                  json.dumps(dict(GRANT, fence=1)) + "\n" + json.dumps(GRANT) + "\n", json.dumps([GRANT], indent=1)],
                         ids=["object", "array", "lines", "indented"])
def test_a_grant_gives_holder_fence_claim_and_token(send, sent, folder, text):
    path = folder / "grant.json"
    path.write_text(text)
    send("settlement.finish", "--grant", path, 'result:={"total": "70"}').check(YES)
    send("settlement.renew", "--grant", "-", given=text.encode()).check(YES)
    expected = {name: GRANT[name] for name in ("holder", "fence", "claim_id", "token")}
    [finish], [renew] = sent(), sent("lease.renewals")
    assert finish.key == b"2026-10"
    assert json.loads(finish.raw)["data"] == dict(expected, result={"total": "70"})
    assert json.loads(renew.raw)["data"] == expected


def test_what_is_no_grant_is_refused_and_never_printed(send, folder):
    path = folder / "grant.json"
    for text in ("", "[]", json.dumps({"token": TOKEN}), TOKEN, "[1]", json.dumps(GRANT)[:-5]):
        path.write_text(text)
        done = send("settlement.finish", "--grant", path).check(DATA)
        assert TOKEN not in done.err + done.out
    assert "No such file" in send("settlement.finish", "--grant", folder / "none").check(DATA).err


class Coordinator(threading.Thread):
    """Answers each command that comes, as coordinator and relay would: `answer(origin, event)` gives the records."""

    def __init__(self, place, topic, answer):
        super().__init__(daemon=True)
        self.place = place
        self.answer = answer
        self.reader = Reader(place.kafka.brokers, place.prefix, topic, drop_repeats=False)
        self.events = Events(place.kafka.brokers, place.prefix)
        self.number = 0
        self.ended = threading.Event()
        self.failure = None
        self.start()

    def run(self):
        try:
            answered = 0
            while not self.ended.is_set():
                self.reader.poll()
                for record in self.reader.records[answered:]:
                    self.put(record)
                answered = len(self.reader.records)
        except Exception as failure:  # told by the test's own thread
            self.failure = failure
        finally:
            self.reader.close()

    def put(self, record):
        origin = {"topic": self.place.prefix + record.topic, "partition": record.partition, "offset": record.offset}
        for topic, key, value, headers in self.answer(origin, json.loads(record.raw)):
            self.number += 1
            self.events.send_raw(topic, key, value if isinstance(value, bytes) else json.dumps(value).encode(),
                                 [("lease_number", str(self.number).encode()), *headers])
        self.events.flush()


@pytest.fixture
def coordinator(place):
    started = []

    def start(answer, topic="settlement.events"):
        started.append(Coordinator(place, topic, answer))

    yield start
    for one in started:
        one.ended.set()
        one.join(60)
        assert one.failure is None


def result_of(origin, event, outcome, **more):
    value = dict({"number": 1, "outcome": outcome, "kind": "settlement", "lease": event["subject"],
                  "command": {"type": event["type"], "source": event["source"], "id": event["id"]}, "origin": origin}, **more)
    return ("lease.results", event["subject"], value, [])


POSITIVE = ["waiting", "parked", "empty", "granted", "covered", "renewed", "advanced", "finished", "failed", "released", "requested",
            "answered", "applied", "cancelled"]
REFUSALS = ["malformed", "duplicate", "unknown", "final", "stale", "lapsed", "held", "busy", "incomplete", "out_of_step", "bounced"]


def test_the_exit_code_says_whether_it_was_done(place, send, coordinator):
    # Each answer comes behind one of another command, whose outcome is the opposite.
    coordinator(lambda origin, event: [
        result_of(dict(origin, offset=origin["offset"] + 1), event, "stale" if event["subject"] in POSITIVE else "granted"),
        result_of(origin, event, event["subject"], fence=17)])
    place.ctl("migrate")
    outcomes = [outcome for (outcome,) in place.database.query("SELECT outcome FROM lease.outcomes ORDER BY precedence")]
    assert sorted(outcomes) == sorted(REFUSALS + POSITIVE), "every outcome has its row here"
    for outcome in outcomes:
        done = send("settlement.start", outcome, "--wait=60", "-o", "json").check(YES if outcome in POSITIVE else NO)
        assert (done.json["outcome"], done.json["fence"]) == (outcome, 17)


def test_what_became_of_one_of_many_items_is_not_the_answer(send, coordinator):
    """It names the command too, and may come first: another partition."""
    def answer(origin, event):
        of_item, answered = result_of(origin, event, "finished"), result_of(origin, event, "answered", items=[])
        of_item[2]["lease"] = "file-1"
        return [("lease.results", "file-1", *of_item[2:]), answered]

    coordinator(answer, topic="cleanup.events")
    done = send("cleanup.finish", "worker-1", "holder=worker-1", "items:=[]", "--wait=60", "-o", "json").check(YES)
    assert (done.json["outcome"], done.json["lease"]) == ("answered", "worker-1")


def test_the_answer_is_a_line_for_people(send, coordinator):
    coordinator(lambda origin, event: [result_of(origin, event, "granted", fence=17, holder="run-a")])
    [line] = send("settlement.start", "2026-10", "--wait=60").check(YES).lines
    assert "settlement/2026-10  start → granted" in line and "fence 17" in line


def test_the_grant_is_kept_for_its_holder_alone(send, coordinator, folder):
    def answer(origin, event):
        named = dict(GRANT, command={"source": event["source"], "id": event["id"]})
        return [("lease.grants", "run-b", dict(named, holder="run-b", command={"source": "/other", "id": event["id"]}), []),
                result_of(origin, event, "granted"), ("lease.grants", "run-a", named, [])]

    path = folder / "grant.json"
    path.write_text("old and longer " * 500)
    os.chmod(path, 0o644)
    coordinator(answer)
    done = send("settlement.start", "2026-10", "holder=run-a", "--wait=60", "--grant-to", path).check(YES)
    assert TOKEN not in done.out + done.err
    assert json.loads(path.read_text())["holder"] == "run-a"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    send("settlement.renew", "--grant", path).check(YES)


def test_a_refusal_writes_no_grant(send, coordinator, folder):
    coordinator(lambda origin, event: [result_of(origin, event, "held")])
    send("settlement.start", "2026-10", "--wait=60", "--grant-to", folder / "grant.json").check(NO)
    assert not os.path.exists(folder / "grant.json")


def test_a_dead_letter_is_told_and_is_no_success(send, coordinator):
    def answer(origin, event):
        return [("lease.dead-letters", "x", b"{}", [("lease_dlq_reason", b"unknown_type"), ("lease_dlq_topic", origin["topic"].encode()),
                                                    ("lease_dlq_partition", str(origin["partition"]).encode()),
                                                    ("lease_dlq_offset", str(origin["offset"]).encode())])]

    coordinator(answer)
    done = send("settlement.start", "2026-10", "--wait=60").check(NO)
    assert "dead letter" in done.err and "unknown_type" in done.out


def test_no_answer_in_time_is_temporary_and_says_where_the_command_is(send):
    done = send("settlement.start", "2026-10", "--id", "m-1", "--wait=300ms").check(TEMPORARY)
    assert "settlement.events/" in done.err and "id m-1" in done.err and done.out == ""
