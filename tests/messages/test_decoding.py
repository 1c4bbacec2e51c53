"""Schema and event_decode say the same about every example, every fault and thousands of random changes."""
import json
import random
import time

import pytest

import examples

STRUCTURED = [("content-type", "application/cloudevents+json")]


def _structured(event):
    return examples.SUBJECT, json.dumps(event, ensure_ascii=False), STRUCTURED


def _binary(event):
    headers = [(f"ce_{name}", value) for name, value in event.items() if name != "data"]
    return examples.SUBJECT, json.dumps(event["data"]), headers + [("content-type", "application/json")]


def _undeclared(event):
    return examples.SUBJECT, json.dumps(event, indent=2), []


GOOD = [(command, data) for command, rows in examples.GOOD.items() for data in rows]


@pytest.mark.parametrize("number", range(len(GOOD)))
def test_good_command__is_accepted_by_all_and_decodes_alike_in_all_modes(number, schemas, probe):
    command, data = GOOD[number]
    event = examples.event(command, data)
    assert schemas.error(f"command.{command}.json", data) is None
    assert schemas.error("event.json", event) is None
    decoded = probe.decode([_structured(event), _binary(event), _undeclared(event)])
    assert decoded[0]["verdict"] == "accepted", decoded[0]
    assert decoded[0] == decoded[1] == decoded[2]
    _same_as(command, data, decoded[0])


def _same_as(command, data, decoded):
    """What was sent is what was understood, member by member."""
    assert decoded["command"] == command
    assert decoded["subject"] == examples.SUBJECT
    places = {"count": "amount", "credit_total": "amount", "delay_ms": "amount", "step": "word", "reason": "word",
              "result": "payload", "more": "flag", "retry": "flag", "editor": "holder", "follows": "word", "edit": "word", "park_ms": "wait_ms", "verdict": "word"}
    if command == "edit":      # what was seen and what is wanted stand together in the payload
        both = {name: data[name] for name in ("old", "new") if name in data}
        data = {**{name: value for name, value in data.items() if name not in both}, "payload": both}
    if command == "resolve":        # all of it is the payload
        assert json.loads(decoded["payload"]) == data
        data = {name: value for name, value in data.items() if name in ("verdict", "fence", "ttl_ms") and value is not None}
    _members_same(data, decoded, places)


def _members_same(data, decoded, places):
    for name, value in data.items():
        if name == "token":
            continue
        got = decoded[places.get(name, name)]
        if name == "items":
            assert len(got) == len(value)
            for item, decoded_item in zip(value, got):
                _members_same(item, decoded_item, places)
            continue
        if name in ("payload", "result"):
            got = json.loads(got)
        assert got == value, name


@pytest.mark.parametrize("what,command,change,reason,field,schema_says", examples.FAULTS,
                         ids=[row[0] for row in examples.FAULTS])
def test_fault_in_data__is_refused_by_both(what, command, change, reason, field, schema_says, schemas, probe):
    data = examples.changed(examples.GOOD[command][0], change)
    event = examples.event(command, data)
    error = schemas.error(f"command.{command}.json", data)
    assert (error is not None) == schema_says
    assert (schemas.error("event.json", event) is not None) == schema_says
    for decoded in probe.decode([_structured(event), _binary(event)]):
        assert (decoded["verdict"], decoded["reason"], decoded["field"]) == ("malformed", reason, field)


@pytest.mark.parametrize("what,change,verdict,reason,field,schema_says", examples.ENVELOPE_FAULTS,
                         ids=[row[0] for row in examples.ENVELOPE_FAULTS])
def test_fault_in_the_envelope__is_refused_by_both(what, change, verdict, reason, field, schema_says, schemas, probe):
    event = examples.changed(examples.event("renew", examples.GRANT), change)
    assert (schemas.error("event.json", event) is not None) == schema_says
    decoded = probe.decode([_structured(event)])[0]
    assert (decoded["verdict"], decoded["reason"], decoded["field"]) == (verdict, reason, field)


# No reals without a fraction (the schema takes them for integers), no holder of a claim or of many items (compared with the subject).
VALUES = [None, True, False, 0, 1, -1, 7, 2 ** 53 - 1, 2 ** 53, 2 ** 63, 2 ** 70, 1.5, -0.5, "", "a", "A-1", "..", "a/b", "a/../b",
          "a//b", "a/", "/a", "\u00e9", "a\n", "a b", "x" * 64, "x" * 65, "x" * 200, "x" * 201, "posted", "done", "extend", "12", [], [[]], {},
          {"a": 1.25}, ["a/1"], ["a/1", "a/2"], ["a/1", "a/1"], ["a"], [1], [None], [{}], ["a/1", "*"], examples.CLAIM_ID,
          [examples.item()], [examples.item("a"), examples.item("b")], [examples.item("a"), examples.item("a")],
          [examples.item(reason="r")], [examples.item(), {}], [examples.item(fence=0)], [examples.item(result={})],
          examples.TOKEN, examples.TOKEN[1:], 86400000, 86400001, 2592000000, 2592000001]
MEMBERS = ["holder", "fence", "claim_id", "token", "ttl_ms", "resources", "more", "tables", "payload", "result", "count", "step",
           "reason", "retry", "delay_ms", "credit_total", "refresh", "wait_ms", "items", "actor", "verdict", "Holder", "", "unknown"]
ROUNDS = 4000


def _mutate(chance, data):
    data = dict(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        name = chance.choice(MEMBERS if chance.random() < 0.3 or not data else sorted(data))
        if chance.random() < 0.15:
            data.pop(name, None)
        else:
            data[name] = chance.choice(VALUES)
    return data


def test_random_changes__schema_and_decoder_agree(schemas, probe):
    seed = int(time.time())
    print(f"seed {seed}")
    chance = random.Random(seed)
    small = [(command, data) for command, data in GOOD if len(data.get("resources", ())) < 100 and len(data.get("items", ())) < 100]
    cases = []
    for _ in range(ROUNDS):
        command, data = chance.choice(small)
        data = _mutate(chance, data)
        if command == "claim":
            data.pop("holder", None)
        elif "items" in data and "holder" in data:
            data["holder"] = examples.SUBJECT
        cases.append((command, data))
    decoded = probe.decode([_structured(examples.event(command, data)) for command, data in cases])
    accepted = 0
    for (command, data), said in zip(cases, decoded):
        error = schemas.error(f"command.{command}.json", data)
        assert said["verdict"] in ("accepted", "malformed")
        assert (error is None) == (said["verdict"] == "accepted"), (seed, command, data, error, said)
        accepted += error is None
    assert ROUNDS / 20 < accepted < ROUNDS * 19 / 20  # both sides were really tried


def test_token__is_in_no_output_of_the_decoder(probe):
    event = examples.event("renew", examples.GRANT)
    wrong = examples.event("renew", {**examples.GRANT, "token": examples.TOKEN + "x"})
    broken = _structured(event)[0], json.dumps(event)[:-1], STRUCTURED
    for said in probe.decode([_structured(event), _structured(wrong), broken]):
        assert examples.TOKEN not in json.dumps(said)
