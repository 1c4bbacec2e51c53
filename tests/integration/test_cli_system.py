# ctest: LABEL cli TIMEOUT 600 TAKES 30
"""leasectl against the whole system: the story of the README, told with its commands alone."""
import json

import pytest

from harness import eventually
from leasectl import NO, YES, Leasectl


@pytest.fixture
def place(small_place):
    return small_place


@pytest.fixture
def leasectl(place):
    place.coordinator().start()
    return Leasectl.of(place)


def answer(done, outcome, code=YES):
    assert done.check(code).json["outcome"] == outcome, done
    return done.json


def send(leasectl, *words):
    return leasectl("send", *words, "--wait=60", "-o", "json")


def test_a_settlement_lapses_and_its_late_finish_is_stale(leasectl, folder):
    a, b = folder / "a.json", folder / "b.json"
    covers = 'resources:=["contract/a1", "contract/a2"]'
    first = answer(send(leasectl, "settlement.start", "2026-10", "holder=run-a", "ttl_ms=8000", covers, "--grant-to", a), "granted")
    held = answer(send(leasectl, "settlement.start", "2026-10", "holder=run-b", "ttl_ms=4000", covers), "held", NO)
    assert held["held_by"]["holder"] == "run-a" and held["held_by"]["fence"] == first["fence"]
    other = answer(send(leasectl, "settlement.start", "2026-10x", "holder=run-b", 'resources:=["contract/a2"]'), "held", NO)
    assert other["held_by"]["resource"] == "contract/a2"
    answer(send(leasectl, "settlement.renew", "--grant", a, "ttl_ms=1000"), "renewed")
    assert leasectl("show", "settlement/2026-10", "-o", "json").json["resources"] == ["contract/a1", "contract/a2"]

    lapsed = leasectl("tail", "results", "--from", "beginning", "--follow", "--outcome", "lapsed", "--lease", "2026-10", "--count", "1",
                      "--wait", "60", "-o", "json").check(YES).json
    assert lapsed[0]["fence"] == first["fence"]
    second = answer(send(leasectl, "settlement.start", "2026-10", "holder=run-b", covers, "--grant-to", b), "granted")
    assert second["fence"] > first["fence"]
    answer(send(leasectl, "settlement.finish", "--grant", a), "stale", NO)
    answer(send(leasectl, "settlement.finish", "--grant", b, "--binary", 'result:={"total": "70"}'), "finished")
    answer(send(leasectl, "settlement.start", "2026-10", "holder=run-c"), "final", NO)

    story = leasectl("timeline", "settlement/2026-10", "-o", "json").check(YES).json
    assert [row["event"] for row in story] == ["granted", "held", "renewed", "lapsed", "granted", "stale", "finished", "final"]
    assert leasectl("show", "settlement/2026-10", "-o", "json").json["condition"] == "finished"
    told = leasectl("tail", "results", "--lease", "settlement/2026-10", "-o", "jsonl").check(YES).rows
    assert [row["outcome"] for row in told] == [row["event"] for row in story]


def test_an_item_goes_through_the_pool(leasectl, folder):
    grant = folder / "grant.json"
    answer(send(leasectl, "cleanup.request", "file-1", 'payload:={"path": "/a/b"}'), "requested")
    assert [row["condition"] for row in leasectl("ls", "--kind", "cleanup", "-o", "json").json] == ["ready"]
    answer(send(leasectl, "cleanup.claim", "worker-1", "credit_total=1", "refresh=1", "--grant-to", grant), "granted")
    told = json.loads(grant.read_text())
    assert (told["lease"], told["holder"], told["payload"], told["attempt"]) == ("file-1", "worker-1", {"path": "/a/b"}, 1)
    assert [row["holder"] for row in leasectl("ls", "--expiring", "1h", "-o", "json").json] == ["worker-1"]
    answer(send(leasectl, "cleanup.finish", "--grant", grant), "finished")


def test_a_claim_that_waits_gets_its_grant_when_an_item_comes(leasectl, folder):
    grant = folder / "grant.json"
    waiting = leasectl.start("send", "cleanup.claim", "worker-1", "credit_total=1", "refresh=1", "wait_ms=60000", "--wait=60", "--grant-to", grant)
    assert b"waiting" in waiting.stdout.readline()
    answer(send(leasectl, "cleanup.request", "file-1"), "requested")
    assert waiting.wait(60) == YES
    waiting.communicate()
    assert json.loads(grant.read_text())["lease"] == "file-1"


def test_the_same_message_again_is_a_duplicate_and_another_body_malformed(leasectl):
    words = ["settlement.start", "2026-10", "--id", "m-1"]
    answer(send(leasectl, *words, "holder=run-a"), "granted")
    assert answer(send(leasectl, *words, "holder=run-a"), "duplicate", NO)["original"]["outcome"] == "granted"
    assert answer(send(leasectl, *words, "holder=run-b"), "malformed", NO)["reason"] == "id_reused"


def test_wrong_commands_get_the_coordinators_answer(leasectl):
    row = answer(send(leasectl, "settlement.start", "2026-10", "holder=run-a", "ttl_ms=0"), "malformed", NO)
    assert row["field"] == "ttl_ms"
    row = answer(send(leasectl, "settlement.start", "2026-10"), "malformed", NO)
    assert (row["reason"], row["field"]) == ("missing", "holder")


def test_what_cannot_be_identified_is_in_dlq_ls_and_on_the_topic(place, leasectl):
    done = send(leasectl, "settlement.start", "../etc", "holder=run-a")
    assert done.code == NO, done
    place.events().place_of("settlement", "start", "2026-10", {"holder": "run-a"}, extra={"id": None})
    row = eventually(lambda: leasectl("dlq", "ls", "--reason", "missing_attribute", "-o", "json").check(YES).json, 60, "it is in the list")[0]
    assert row["topic"] == place.prefix + "settlement.events"
    [letter] = eventually(lambda: [row for row in leasectl("tail", "dead-letters", "-o", "jsonl").check(YES).rows
                                   if row["reason"] == "missing_attribute"], 60, "it is on the topic")
    assert (letter["partition"], letter["offset"], letter["bytes"]) == (row["partition"], row["offset"], row["bytes"])
    assert json.loads(letter["value"])["subject"] == "2026-10"


def test_no_token_is_where_it_does_not_belong(place, leasectl, folder):
    grant = folder / "grant.json"
    done = leasectl("send", "settlement.start", "2026-10", "holder=run-a", "--wait=20", "--grant-to", grant).check(YES)
    token = json.loads(grant.read_text())["token"]
    shown = done.out + done.err
    for words in (["ls"], ["show", "settlement/2026-10"], ["timeline", "settlement/2026-10"]):
        for form in ("table", "json", "jsonl"):
            shown += leasectl(*words, "-o", form).check(YES).out
    for topic in ("results", "state"):
        shown += leasectl("tail", topic, "-o", "jsonl").check(YES).out
    shown += leasectl("tail", "grants").check(YES).out
    assert len(token) == 64 and token not in shown
    assert token in leasectl("tail", "grants", "-o", "jsonl").check(YES).out
