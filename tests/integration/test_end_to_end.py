# ctest: LABEL kafka,sanitize TIMEOUT 400 TAKES 80 BUSY
"""Commands in through a real broker, decided in a real PostgreSQL, answered through the broker: the two stories of the
README, repeats, bad input, and the books of a mixed load."""
import json
import uuid

import pytest

import books
from events import SOURCE, binary, structured
from load import Load
from stage import Stage
from waiting import eventually

SEED = 20260101
BACKLOG = 1000      # messages sent and not consumed yet, at most


@pytest.fixture
def stage(place):
    return Stage(place)


@pytest.fixture
def small_stage(small_place):
    return Stage(small_place)


def test_settlement__second_run_is_refused_then_takes_over_and_the_late_finish_is_stale(stage):
    first = stage.ask("settlement", "start", "royalty-2026-06", {"holder": "run-a", "ttl_ms": 6000, "resources": ["album/1"]})
    assert first["outcome"] == "granted"
    grant_a = stage.grant(first["fence"])
    assert (grant_a["holder"], grant_a["claim_id"]) == ("run-a", first["claim_id"])

    refused = stage.ask("settlement", "start", "royalty-2026-06", {"holder": "run-b"})
    assert refused["outcome"] == "held"
    assert refused["held_by"]["holder"] == "run-a" and refused["held_by"]["fence"] == first["fence"]
    assert refused["held_by"]["remaining_ms"] > 0
    contended = stage.ask("settlement", "start", "another", {"holder": "run-c", "resources": ["album/2", "album/1"]})
    assert contended["outcome"] == "held" and contended["held_by"]["resource"] == "album/1"

    renewed = stage.ask("settlement", "renew", "royalty-2026-06", stage.as_holder(grant_a, ttl_ms=6000))
    assert renewed["outcome"] == "renewed" and renewed["until"] > first["until"]
    stepped = stage.ask("settlement", "advance", "royalty-2026-06", stage.as_holder(grant_a, step="calculated"))
    assert stepped["outcome"] == "advanced" and stepped["step"] == "calculated"

    lapsed = stage.event("lapsed", "settlement", "royalty-2026-06")
    assert lapsed["min_fence"] > first["fence"]
    second = stage.ask("settlement", "start", "royalty-2026-06", {"holder": "run-b", "resources": ["album/1"]})
    assert second["outcome"] == "granted" and second["fence"] > first["fence"]

    late = stage.ask("settlement", "finish", "royalty-2026-06", stage.as_holder(grant_a))
    assert late["outcome"] == "stale"
    grant_b = stage.grant(second["fence"])
    assert grant_b["token"] != grant_a["token"]
    finished = stage.ask("settlement", "finish", "royalty-2026-06", stage.as_holder(grant_b, result={"rows": 1000}))
    assert finished["outcome"] == "finished" and finished["result"] == {"rows": 1000}
    assert stage.ask("settlement", "start", "royalty-2026-06", {"holder": "run-d"})["outcome"] == "final"
    stage.balance()


def test_cleanup__silent_worker_loses_its_item_to_another_with_a_higher_fence(small_stage):
    assert small_stage.ask("cleanup", "request", "file/17", {"payload": {"path": "/srv/17"}})["outcome"] == "requested"
    claimed = small_stage.ask("cleanup", "claim", "worker-1", {"credit_total": 1, "refresh": 1, "ttl_ms": 3000})
    assert claimed["outcome"] == "granted" and claimed["count"] == 1
    grant_1 = small_stage.grants.wait_for(lambda record: record.value["lease"] == "file/17").value
    assert grant_1["holder"] == "worker-1" and grant_1["attempt"] == 1 and grant_1["payload"] == {"path": "/srv/17"}

    waiting = small_stage.ask("cleanup", "claim", "worker-2", {"credit_total": 1, "refresh": 1, "wait_ms": 60000})
    assert waiting["outcome"] == "waiting"
    lapsed = small_stage.event("lapsed", "cleanup", "file/17")
    assert lapsed["min_fence"] > grant_1["fence"]
    grant_2 = small_stage.grants.wait_for(lambda record: record.value["holder"] == "worker-2").value
    assert grant_2["lease"] == "file/17" and grant_2["fence"] > grant_1["fence"] and grant_2["attempt"] == 2
    assert grant_2["refresh"] == 1

    assert small_stage.ask("cleanup", "finish", "file/17", small_stage.as_holder(grant_1))["outcome"] == "stale"
    assert small_stage.ask("cleanup", "finish", "file/17", small_stage.as_holder(grant_2))["outcome"] == "finished"
    small_stage.balance()


def test_repeats__are_answered_duplicate_with_the_first_answer(small_stage):
    data = {"holder": "run-a"}
    message_id = str(uuid.uuid4())
    first = small_stage.ask("settlement", "start", "run-1", data, message_id=message_id)
    again = small_stage.ask("settlement", "start", "run-1", data, message_id=message_id)
    other_mode = small_stage.ask("settlement", "start", "run-1", data, message_id=message_id, mode="binary")
    for repeat in (again, other_mode):
        assert repeat["outcome"] == "duplicate"
        assert repeat["original"]["outcome"] == "granted" and repeat["original"]["fence"] == first["fence"]
    reused = small_stage.ask("settlement", "start", "run-1", {"holder": "run-b"}, message_id=message_id)
    assert (reused["outcome"], reused["reason"]) == ("malformed", "id_reused")
    other_source = small_stage.ask("settlement", "start", "run-1", data, message_id=message_id, source="/other")
    assert other_source["outcome"] == "held"
    small_stage.balance()


def test_state__says_what_holds_now_per_lease(small_stage):
    first = small_stage.ask("settlement", "start", "run-1", {"holder": "run-a", "ttl_ms": 300})
    held = small_stage.state.wait_for(lambda record: record.key == b"settlement/run-1").value
    assert (held["state"], held["fence"], held["holder"]) == ("held", first["fence"], "run-a")
    floor = small_stage.state.wait_for(lambda record: record.key == b"settlement/run-1" and record.value["state"] == "free").value
    assert floor["min_fence"] > first["fence"]


JUNK = [
    ("null_value", b"run-1", None),
    ("empty_value", b"run-1", b""),
    ("null_key", None, b"{}"),
    ("key_too_long", b"k" * 257, b"{}"),
    ("value_too_large", b"run-1", b'"' + b"x" * 262144 + b'"'),
    ("invalid_json", b"run-1", b'{"specversion": "1.0", '),
    ("invalid_encoding", b"run-1", b"\x1f\x8b\x08\x00 gzip"),
    ("not_cloudevents", b"run-1", b'{"holder": "run-a"}'),
    ("unknown_specversion", b"run-1", b'{"specversion":"0.3","id":"1","source":"/s","type":"settlement.start"}'),
]


def test_junk__becomes_a_dead_letter_byte_for_byte_and_the_stream_goes_on(stage):
    headers = [("plain", b"text"), ("twice", b"1"), ("twice", b"2"), ("null", None), ("bytes", b"\xff\x00\x01")]
    origins = []
    for _reason, key, value in JUNK:
        stage.events.send_raw("settlement.events", key, value, headers, partition=0,
                              then=lambda *place: origins.append(place))
        stage.events.flush()
    assert stage.ask("settlement", "start", "run-2", {"holder": "run-a"})["outcome"] == "granted"
    for (reason, key, value), origin in zip(JUNK, origins):
        letter = stage.dead_letters.wait_for(
            lambda record: record.headers["lease_dlq_offset"] == str(origin[2]).encode(), what=f"dead letter {reason}")
        assert letter.headers["lease_dlq_reason"].decode() == reason
        assert letter.key == key and letter.raw == value
        assert letter.header_list[:len(headers)] == headers
        assert letter.headers["kafka_dlt-original-topic"].decode().endswith("settlement.events")
    stage.balance()


MALFORMED = [
    ("out_of_range", "ttl_ms", "start", {"holder": "a", "ttl_ms": 0}),
    ("wrong_type", "ttl_ms", "start", {"holder": "a", "ttl_ms": "1000"}),
    ("ttl_above_maximum", "ttl_ms", "start", {"holder": "a", "ttl_ms": 3600001}),
    ("missing", "holder", "start", {}),
    ("not_allowed_characters", "holder", "start", {"holder": "a\u202eb"}),
    ("unknown_member", "colour", "start", {"holder": "a", "colour": "red"}),
    ("wrong_type", "fence", "finish", {"holder": "a", "fence": "7", "claim_id": str(uuid.uuid4()), "token": "0" * 64}),
]


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_malformed__names_reason_and_field(small_stage, mode):
    for reason, field, command, data in MALFORMED:
        answer = small_stage.ask("settlement", command, "run-1", data, mode=mode)
        assert (answer["outcome"], answer["reason"], answer["field"]) == ("malformed", reason, field), data
    value, headers = (structured if mode == "structured" else binary)(
        "settlement", "start", "run-1", {"holder": "a"}, str(uuid.uuid4()), SOURCE)
    places = []
    small_stage.events.send_raw("settlement.events", b"other-key", value, headers, then=lambda *place: places.append(place))
    small_stage.events.flush()
    assert small_stage.answer_to(places[0])["reason"] == "key_mismatch"
    small_stage.balance()


def test_stop__drains_and_another_coordinator_goes_on(small_stage):
    assert small_stage.ask("settlement", "start", "run-1", {"holder": "a"})["outcome"] == "granted"
    assert small_stage.coordinator.stop(), "SIGTERM did not end the coordinator with code 0"
    origin = small_stage.events.place_of("settlement", "start", "run-1", {"holder": "b"})
    small_stage.place.coordinator().start()
    assert small_stage.answer_to(origin)["outcome"] == "held"
    small_stage.balance()


def test_mixed_load__balances(stage):
    load = Load(stage.place, SEED)
    samples = []

    def is_kept_up_with():
        """Who is far behind has granted nothing yet, and nobody could renew or finish."""
        samples.append(stage.place.consumed())
        return load.sent - sum(samples[-1].values()) < BACKLOG

    for _ in range(16):
        load.send(500)
        eventually(is_kept_up_with, 120, "the coordinator keeps up with the load", every=0.05)
    eventually(stage.place.is_idle, 120, "the load is worked off")
    history = books.collect(stage.place, samples, texts=stage.texts())
    figures = books.balance(history)
    print(f"seed {SEED}:", json.dumps(figures))
    missing = {"granted", "renewed", "finished", "stale", "held", "duplicate", "malformed", "dead_letter", "final", "lapsed",
               "unknown", "advanced", "failed", "released", "requested", "out_of_step"} - set(figures["outcomes"])
    assert not missing - {"unknown"}, f"the load never met {missing}"
