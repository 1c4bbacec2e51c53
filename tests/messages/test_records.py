"""What the encoders write is what the schemas promise, for a row of every outcome and event."""
import json

import pytest
import yaml

from conftest import ROOT
from examples import CLAIM_ID

AT = 1782864000123456
COMMON = {"number": 4294967301, "at_us": AT, "kind": "settlement", "subject": "settlement/2026-06"}
ASKED = {"command": "start", "source": "/producers/royalty", "message_id": "message-1", "origin_topic": "settlement.events",
         "origin_partition": 3, "origin_offset": 41,
         "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
HELD = {"holder": "run-1", "claim_id": CLAIM_ID, "fence": 4294967297, "since_us": AT, "lease_until_us": AT + 30000000, "state": "held"}
BLOCKER = {"blocker": json.dumps({"kind": "settlement", "lease": "settlement/2026-05", "resource": "album/*", "holder": "run-0", "fence": 7,
                                  "since": "2026-07-01T08:59:00.5+09:00", "until": "2026-07-01T00:00:10+00:00", "remaining_ms": -1})}
ITEMS = [{"lease": "file-1", "outcome": "renewed", "fence": 5, "claim_id": CLAIM_ID, "until": "2026-07-01T00:00:30.123456Z", "remaining_ms": 30000},
         {"lease": "file-2", "outcome": "stale", "fence": 6, "claim_id": CLAIM_ID}]
CHANGE = {"changes_lease": True}

ROWS = {
    "malformed": {**ASKED, "reason": "unknown_member", "field": "a\x1b[2J\u00fc"},
    "duplicate": {**ASKED, "original": json.dumps({"outcome": "granted", "fence": 5, "claim_id": CLAIM_ID})},
    "unknown": ASKED,
    "final": {**ASKED, "state": "finished", "fence": 5},
    "stale": {**ASKED, "min_fence": 9, "state": "held", "fence": 9},
    "lapsed": {**ASKED, **HELD, "state": "free", "min_fence": 4294967298},
    "held": {**ASKED, **BLOCKER},
    "busy": {**ASKED, "blocker": "{\"resource\": \"album/1\"}"},
    "incomplete": {**ASKED, "amount": 12},
    "out_of_step": {**ASKED, **HELD, "step": "calculated"},
    "waiting": {**ASKED, "refresh": 3, "amount": 0},
    "parked": ASKED,
    "empty": {**ASKED, "refresh": 3, "amount": 0},
    "granted": {**ASKED, **HELD, **CHANGE, "is_grant": True, "attempt": 1, "step": "calculated", "refresh": 0, "payload": "{\"share\": 0.70}"},
    "covered": {**ASKED, **HELD, "amount": 10000},
    "renewed": {**ASKED, **HELD},
    "advanced": {**ASKED, **HELD, "step": "posted"},
    "finished": {**ASKED, **CHANGE, "state": "finished", "fence": 5, "payload": "{\"rows\": 1000}"},
    "failed": {**ASKED, **CHANGE, "state": "ready", "reason": "disk full", "attempt": 2},
    "released": {**ASKED, **CHANGE, "state": "free"},
    "requested": {**ASKED, **CHANGE, "state": "ready", "attempt": 0},
    "answered": {**ASKED, "command": "renew", "holder": "run-1", "payload": json.dumps(ITEMS, indent=1)},
    "applied": {**ASKED, "command": "edit", "holder": "ann"},
    "bounced": {**ASKED, "command": "edit", "holder": "ann", "reason": "row_changed"},
    "cancelled": {**ASKED, "command": "cancel", "holder": "ann"},
    "dead": {**HELD, **CHANGE, "state": "dead", "lease_until_us": AT - 1, "min_fence": 4294967298, "attempt": 5},
    "imported": {**CHANGE, "holder": "host-3", "fence": 4294967297, "since_us": AT, "state": "held", "min_fence": 4294967297, "attempt": 3,
                 "payload": json.dumps({"actor": "ann", "reason": "cut-over", "table": "old.cleanup"})},
}
SCHEMA_OF = {"result": "result.json", "grant": "grant.json", "state": "state.json"}


def _encode(probe, event, fields):
    return probe.run("record", [{**COMMON, "event": event, **fields}])[0]


def _value(record):
    return json.loads(bytes.fromhex(record["value"]))


@pytest.mark.parametrize("event", ROWS)
def test_records_of_each_event__fit_their_schemas(event, schemas, probe):
    encoded = _encode(probe, event, ROWS[event])
    wanted = {"result"} | ({"state"} if "changes_lease" in ROWS[event] else set()) | ({"grant"} if "is_grant" in ROWS[event] else set())
    assert {name for name in ("result", "grant", "state", "dead_letter") if encoded[name] is not None} == wanted
    for name in wanted:
        value = _value(encoded[name])
        assert schemas.error(SCHEMA_OF[name], value) is None
        assert schemas.undescribed(SCHEMA_OF[name], value) == []


@pytest.mark.parametrize("outcome", ["finished", "released", "renewed", "stale", "held"])
def test_an_operators_word__is_in_every_answer_to_it(outcome, schemas, probe):
    said = {"actor": "ann", "reason": "the file is gone", "verdict": "done", "fence": None}
    row = {**ROWS[outcome], "command": "resolve", "payload": json.dumps(said)}
    value = _value(_encode(probe, outcome, row)["result"])
    assert value["operator"] == said and "result" not in value
    assert schemas.error("result.json", value) is None and schemas.undescribed("result.json", value) == []


def test_result_of_a_finish__is_in_its_answer__and_a_grants_payload_is_not(probe):
    assert _value(_encode(probe, "finished", ROWS["finished"])["result"])["result"] == {"rows": 1000}
    assert "result" not in _value(_encode(probe, "granted", ROWS["granted"])["result"])


def test_rows__one_for_each_outcome(probe):
    assert list(ROWS) == probe.run("names")[0]["outcomes"] + ["dead", "imported"]


def test_mark__fits_its_schema(schemas, probe):
    mark = _encode(probe, "renewed", ROWS["renewed"])["mark"]
    assert schemas.error("mark.json", _value(mark)) is None
    assert bytes.fromhex(mark["key"]).decode() == "~mark/lease.results/3"


def test_headers__are_those_of_asyncapi(probe):
    parts = yaml.safe_load((ROOT / "asyncapi.yaml").read_text())["components"]["schemas"]
    common = parts["headers"]
    result = parts["resultHeaders"]["allOf"][1]
    encoded = _encode(probe, "granted", ROWS["granted"])
    assert {name for name, _ in encoded["result"]["headers"]} == common["properties"].keys() | result["properties"].keys()
    assert {name for name, _ in encoded["grant"]["headers"]} == common["properties"].keys()
    assert {name for name, _ in encoded["state"]["headers"]} == common["properties"].keys()
    assert {name for name, _ in encoded["mark"]["headers"]} == parts["markHeaders"]["properties"].keys()
    letter = _encode(probe, "dead_letter", {**ASKED, "kind": None, "subject": None, "reason": "invalid_json", "field": "x",
                                            "raw_value": "00ff", "raw_key": None, "raw_headers": ""})["dead_letter"]
    assert {name for name, _ in letter["headers"]} == parts["deadLetterHeaders"]["properties"].keys()
    assert letter["value"] == "00ff" and letter["key"] is None


def test_header_values__fit_asyncapi(probe):
    encoded = _encode(probe, "granted", ROWS["granted"])["result"]
    headers = {name: bytes.fromhex(value).decode() for name, value in encoded["headers"]}
    value = _value(encoded)
    assert headers["ce_type"] == "settlement.granted"
    assert headers["lease_outcome"] == value["outcome"]
    assert headers["lease_fence"] == str(value["fence"])
    assert headers["ce_id"] == headers["lease_number"] == str(value["number"])
