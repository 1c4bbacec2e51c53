# ctest: LABEL kafka TIMEOUT 400 TAKES 20
"""Real messages through a real coordinator: everything that comes out fits its schema, and every kind of bad input of
the groups framing, JSON, types and ids gets its answer or its dead letter, and the stream goes on."""
import json

import pytest
from confluent_kafka import KafkaError, Producer

import examples
from schemas import Schemas

STRUCTURED = [("content-type", b"application/cloudevents+json")]


@pytest.fixture(scope="module")
def schemas():
    return Schemas()


class Dialogue:
    """Sends one command at a time and waits for its answer."""

    def __init__(self, place):
        self.events = place.events()
        self.results = place.reader("lease.results")
        self.grants = place.reader("lease.grants")
        self.outcomes = set()

    def ask(self, kind, command, subject, data, message_id=None):
        """The value of the answer to this very record."""
        topic, partition, offset = self.events.place_of(kind, command, subject, data, message_id=message_id)

        here = {"topic": self.events.prefix + topic, "partition": partition, "offset": offset}
        value = self.results.wait_for(lambda record: record.value.get("origin") == here, what=f"the answer to {kind}.{command} of {subject}").value
        self.outcomes.add(value["outcome"])
        return value

    def event(self, subject, outcome):
        """What happens to a lease without being asked for."""
        value = self.results.wait_for(lambda record: record.value["lease"] == subject and "origin" not in record.value
                                      and record.value["outcome"] == outcome).value
        self.outcomes.add(value["outcome"])
        return value

    def grant(self, fence):
        """What a holder must know, from lease.grants."""
        value = self.grants.wait_for(lambda record: record.value["fence"] == fence).value
        return {name: value[name] for name in ("holder", "fence", "claim_id", "token")}


def _settlement(dialogue):
    ask = dialogue.ask
    start = {"holder": "run-1", "ttl_ms": 60000, "resources": ["album/1"], "payload": {"share": 0.70}}
    granted = ask("settlement", "start", "s/1", start, message_id="start-1")
    mine = dialogue.grant(granted["fence"])
    assert ask("settlement", "start", "s/1", start, message_id="start-1")["original"]["fence"] == granted["fence"]
    assert ask("settlement", "start", "s/1", dict(start, ttl_ms=1), message_id="start-1")["reason"] == "id_reused"
    assert ask("settlement", "start", "s/1", {"holder": "run-2"})["held_by"]["holder"] == "run-1"
    blocked = ask("settlement", "start", "s/2", {"holder": "run-2", "resources": ["album/1"]})
    assert blocked["held_by"]["resource"] == "album/1" and blocked["held_by"]["remaining_ms"] > 0
    assert ask("settlement", "renew", "s/1", {**mine, "ttl_ms": 60000})["outcome"] == "renewed"
    assert ask("settlement", "renew", "s/1", {**mine, "token": examples.TOKEN})["outcome"] == "stale"
    assert ask("settlement", "renew", "s/none", mine)["outcome"] == "unknown"
    assert ask("settlement", "renew", "s/1", {**mine, "ttl_ms": 86400000})["reason"] == "ttl_above_maximum"
    assert ask("settlement", "advance", "s/1", {**mine, "step": "posted"})["outcome"] == "out_of_step"
    assert ask("settlement", "advance", "s/1", {**mine, "step": "calculated"})["outcome"] == "advanced"
    assert ask("settlement", "finish", "s/1", {**mine, "result": {"total": 12.50}})["outcome"] == "finished"
    assert ask("settlement", "finish", "s/1", mine)["outcome"] == "final"


def _lapse(dialogue):
    ask = dialogue.ask
    late = dialogue.grant(ask("settlement", "start", "s/3", {"holder": "run-3", "ttl_ms": 200})["fence"])
    lapsed = dialogue.event("s/3", "lapsed")
    assert lapsed["min_fence"] > late["fence"] and lapsed["remaining_ms"] == 0
    assert ask("settlement", "renew", "s/3", late)["outcome"] == "lapsed"
    taken = ask("settlement", "start", "s/3", {"holder": "run-4"})
    assert taken["fence"] > late["fence"]
    assert ask("settlement", "finish", "s/3", late)["outcome"] == "stale"
    assert ask("settlement", "fail", "s/3", {**dialogue.grant(taken["fence"]), "reason": "no \u00fc", "retry": False})["outcome"] == "failed"


def _cover(dialogue):
    ask = dialogue.ask
    mine = dialogue.grant(ask("settlement", "start", "s/4", {"holder": "run-5", "more": True, "tables": ["track"]})["fence"])
    assert ask("settlement", "cover", "s/4", {**mine, "resources": ["track/1", "track/2"]})["count"] == 2
    assert ask("settlement", "finish", "s/4", mine)["outcome"] == "incomplete"
    assert ask("settlement", "begin", "s/4", {**mine, "count": 3})["outcome"] == "incomplete"
    assert ask("settlement", "begin", "s/4", {**mine, "count": 2})["outcome"] == "granted"
    assert ask("settlement", "release", "s/4", mine)["outcome"] == "released"


def _cleanup(dialogue):
    ask = dialogue.ask
    assert ask("cleanup", "claim", "w-1", {"credit_total": 1, "refresh": 1})["outcome"] == "empty"
    assert ask("cleanup", "request", "file/1", {"payload": {"bytes": 7}})["outcome"] == "requested"
    assert ask("cleanup", "claim", "w-1", {"credit_total": 1, "refresh": 2, "ttl_ms": 60000})["outcome"] == "granted"
    given = dialogue.event("file/1", "granted")
    assert "id" in given["command"] and "source" in given["command"]
    first = dialogue.grant(given["fence"])
    failed = ask("cleanup", "fail", "file/1", {**first, "reason": "disk", "delay_ms": 0})
    assert failed["state"] == "ready" and failed["reason"] == "disk"
    assert ask("cleanup", "claim", "w-2", {"credit_total": 1, "refresh": 1, "wait_ms": 60000})["outcome"] in ("granted", "waiting")
    again = dialogue.results.wait_for(lambda record: record.value["lease"] == "file/1" and record.value["outcome"] == "granted"
                                      and record.value["fence"] > first["fence"]).value
    assert ask("cleanup", "fail", "file/1", {**dialogue.grant(again["fence"]), "reason": "for good", "retry": False})["state"] == "dead"
    assert ask("cleanup", "claim", "w-3", {"credit_total": 1, "refresh": 1, "wait_ms": 60000})["outcome"] == "waiting"
    assert ask("cleanup", "request", "file/2", {})["outcome"] == "requested"
    late = dialogue.event("file/2", "granted")
    assert late["holder"] == "w-3" and late["refresh"] == 1


SCHEMA_OF = {"lease.results": "result.json", "lease.grants": "grant.json", "lease.state": "state.json"}


def test_every_record_out__fits_its_schema(place, schemas):
    place.coordinator().start()
    dialogue = Dialogue(place)
    for story in (_settlement, _lapse, _cover, _cleanup):
        story(dialogue)
    wanted = {"malformed", "duplicate", "unknown", "final", "stale", "lapsed", "held", "incomplete", "out_of_step", "waiting",
              "empty", "granted", "covered", "renewed", "advanced", "finished", "failed", "released", "requested"}
    assert dialogue.outcomes == wanted
    place.wait_idle()
    for topic, schema in SCHEMA_OF.items():
        reader = place.reader(topic, drop_repeats=False)
        reader.read_all()
        assert reader.everything
        for record in reader.everything:
            name = "mark.json" if record.is_mark else schema
            assert schemas.error(name, record.value) is None, record
            assert schemas.undescribed(name, record.value) == [], record
            assert record.is_mark or record.value["number"] == record.number
            assert "token" not in record.value or topic == "lease.grants"


def _binary(event, value):
    headers = [(f"ce_{name}", text.encode()) for name, text in event.items() if name != "data"]
    return value, headers + [("content-type", b"application/json")]


def _renew(value):
    """A binary renew whose value is this."""
    return _binary(examples.event("renew", None), value)


def _structured(**change):
    return json.dumps(examples.changed(examples.event("renew", examples.GRANT), change)).encode(), STRUCTURED


LONG = b"x" * 200
GOOD = json.dumps(examples.GRANT).encode()
KEY = examples.SUBJECT.encode()

# Name, key, value and headers as they are sent; the reason of the dead letter.
DEAD = [
    ("null value", KEY, (None, []), "null_value"),
    ("empty value", KEY, (b"", []), "empty_value"),
    ("null key", None, _renew(GOOD), "null_key"),
    ("key of 257 bytes", b"k" * 257, _renew(GOOD), "key_too_long"),
    ("value over the cap", KEY, _renew(b'{"holder":"' + b"h" * 262144 + b'"}'), "value_too_large"),
    ("100 headers", KEY, (GOOD, [(f"h{i}", LONG) for i in range(100)]), "headers_too_large"),
    ("90,000 headers", KEY, (GOOD, [("abcdef", b"")] * 90000), "headers_too_large"),
    ("a forged mark", KEY, (GOOD, [("lease_mark", b"1"), ("lease_number", b"99999999")]), "not_cloudevents"),
    ("batch mode", KEY, (b"[]", [("content-type", b"application/cloudevents-batch+json")]), "batch_mode"),
    ("JSON that is no event", KEY, (b'{"a":1}', []), "not_cloudevents"),
    ("gzip", KEY, (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\x56", []), "invalid_encoding"),
    ("protobuf", KEY, (b"\x0a\x05hello\x10\x96\x01", []), "invalid_encoding"),
    ("Avro", KEY, (b"Obj\x01\x04\x14avro.codec", []), "invalid_json"),
    ("specversion 2.0", KEY, _structured(specversion="2.0"), "unknown_specversion"),
    ("no id", KEY, _structured(id=examples.REMOVE), "missing_attribute"),
    ("no source", KEY, _structured(source=examples.REMOVE), "missing_attribute"),
    ("no type", KEY, _structured(type=examples.REMOVE), "missing_attribute"),
    ("no subject", KEY, _structured(subject=examples.REMOVE), "missing_attribute"),
    ("unknown command", KEY, _structured(type="settlement.explode"), "unknown_type"),
    ("subject with SQL", b"'; drop --", _structured(subject="'; drop --"), "invalid_attribute"),
    ("subject right to left", "a\u202e".encode(), _structured(subject="a\u202e"), "invalid_attribute"),
    ("truncated", KEY, _renew(GOOD[:-1]), "invalid_json"),
    ("trailing bytes", KEY, _renew(GOOD + b" x"), "invalid_json"),
    ("two documents", KEY, _renew(GOOD + GOOD), "invalid_json"),
    ("top-level array", KEY, _renew(b"[]"), "invalid_json"),
    ("top-level scalar", KEY, _renew(b"7"), "invalid_json"),
    ("top-level null", KEY, _renew(b"null"), "invalid_json"),
    ("byte order mark", KEY, _renew(b"\xef\xbb\xbf" + GOOD), "invalid_encoding"),
    ("UTF-16", KEY, _renew(GOOD.decode().encode("utf-16")), "invalid_encoding"),
    ("overlong UTF-8", KEY, _renew(b'{"holder":"\xc0\xaf"}'), "invalid_encoding"),
    ("surrogate in UTF-8", KEY, _renew(b'{"holder":"\xed\xa0\x80"}'), "invalid_encoding"),
    ("lone surrogate", KEY, _renew(b'{"holder":"\\ud800"}'), "invalid_json"),
    ("raw control character", KEY, _renew(b'{"holder":"a\x01"}'), "invalid_json"),
    ("raw NUL", KEY, _renew(b'{"holder":"a\x00"}'), "invalid_encoding"),
    ("escaped NUL in a value", KEY, _renew(b'{"holder":"a\\u0000"}'), "invalid_json"),
    ("escaped NUL in a name", KEY, _renew(b'{"a\\u0000":"a"}'), "invalid_json"),
    ("NaN", KEY, _renew(b'{"fence":NaN}'), "invalid_json"),
    ("leading zero", KEY, _renew(b'{"fence":01}'), "invalid_json"),
    ("comment", KEY, _renew(b'{"fence":1/**/}'), "invalid_json"),
    ("trailing comma", KEY, _renew(b'{"fence":1,}'), "invalid_json"),
    ("depth 33", KEY, _renew(b'{"a":' * 33 + b"1" + b"}" * 33), "too_deep"),
    ("depth 100,000", KEY, _renew(b"[" * 100000), "too_deep"),
    ("25,000 names", KEY, _renew(b"{" + b",".join(b'"%x":1' % i for i in range(25000)) + b"}"), "too_complex"),
    ("white space", KEY, _renew(b"{" + b" " * 100000 + b"}"), "too_complex"),
    ("a string of 900 KB", KEY, _renew(b'{"holder":"' + b"h" * 900000 + b'"}'), "value_too_large"),
    ("duplicate names", KEY, _renew(b'{"fence":1,"fence":1}'), "duplicate_member"),
    ("duplicate by an escape", KEY, _renew(b'{"fence":1,"f\\u0065nce":1}'), "duplicate_member"),
]


def test_bad_input__has_its_dead_letter_byte_for_byte__and_the_stream_goes_on(place):
    place.coordinator().start()
    events = place.events()
    sent = {}
    for name, key, (value, headers), reason in DEAD:
        def note(topic, partition, offset, row=(name, key, value, headers, reason)):
            sent[partition, offset] = row
        events.send_raw("settlement.events", key, value, headers, partition=5, then=note)
        events.flush()
    assert len(sent) == len(DEAD)

    dialogue = Dialogue(place)
    answer = dialogue.ask("settlement", "start", "after/all", {"holder": "run-1"})
    assert answer["outcome"] == "granted"
    place.wait_idle()
    letters = place.reader("lease.dead-letters")
    letters.read_all()
    found = {(int(letter.headers["lease_dlq_partition"]), int(letter.headers["lease_dlq_offset"])): letter
             for letter in letters.records}
    assert found.keys() == sent.keys()
    assert len(letters.records) == len(sent)
    for where, (name, key, value, headers, reason) in sent.items():
        letter = found[where]
        assert letter.headers["lease_dlq_reason"].decode() == reason, name
        assert letter.key == key, name
        assert letter.raw == value, name
        assert [(header, bytes(data)) for header, data in letter.header_list[:len(headers)]] == headers, name


def test_more_headers_than_the_library_reads__are_a_dead_letter_that_says_so(place):
    place.coordinator().start()
    events = place.events()
    events.send_raw("settlement.events", KEY, GOOD, [("a", b"")] * 300000, partition=5)
    events.flush()
    letter = place.reader("lease.dead-letters").wait_for(lambda record: "lease_dlq_reason" in record.headers)
    assert letter.headers["lease_dlq_reason"] == b"headers_too_large"
    assert letter.headers["lease_dlq_detail"].startswith(b"cut")
    assert letter.raw == GOOD
    assert "a" not in letter.headers
    assert Dialogue(place).ask("settlement", "start", "after/it", {"holder": "run-1"})["outcome"] == "granted"


def test_inputs__take_no_record_that_grows_beyond_their_bound(place):
    """Compressed, two megabytes of spaces are some kilobytes; dead letters keep what was sent, and would not fit."""
    producer = Producer({"bootstrap.servers": place.kafka.brokers, "compression.type": "gzip", "message.max.bytes": 4000000,
                         "log_level": 0})
    for topic in ("settlement.events", "cleanup.events", "lease.renewals"):
        for value, code in ((b" " * 2000000, KafkaError.MSG_SIZE_TOO_LARGE), (b" " * 900000, None)):
            reports = []
            producer.produce(place.prefix + topic, value=value, key=KEY, on_delivery=lambda error, _: reports.append(error))
            assert producer.flush(60) == 0
            assert [error and error.code() for error in reports] == [code], (topic, len(value))


def test_malformed_commands__are_answered_with_reason_and_field__one_among_good_ones(place):
    place.coordinator().start()
    events = place.events()
    expected = {}
    for number, (what, command, change, reason, field, _) in enumerate(examples.FAULTS):
        kind = examples.kind_of(command)
        data = examples.changed(examples.GOOD[command][0], change)
        mode = ("structured", "binary")[number % 2]
        message_id = events.send(kind, command, examples.SUBJECT, data, mode=mode)
        expected[message_id] = (what, "malformed", reason, field)
        for extra in range(3):
            message_id = events.send("settlement", "start", f"good/{number}/{extra}", {"holder": "run-1"}, mode=mode)
            expected[message_id] = ("good", "granted", None, None)
    events.flush()
    place.wait_idle()
    results = place.reader("lease.results")
    results.read_all()
    answers = {record.value["command"]["id"]: record.value for record in results.records}
    assert len(results.records) == len(answers)
    assert answers.keys() == expected.keys()
    for message_id, (what, outcome, reason, field) in expected.items():
        answer = answers[message_id]
        assert (answer["outcome"], answer.get("reason"), answer.get("field")) == (outcome, reason, field), what
