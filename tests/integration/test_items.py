# ctest: LABEL kafka TIMEOUT 400 TAKES 20
"""Commands over many items, on real parts: one message of a worker over what it holds, one answer, an outcome for each item."""
import pytest

from schemas import Schemas
from stage import Stage

COUNT = 50
WORKER = "worker-1"


@pytest.fixture(scope="module", name="schemas")
def fixture_schemas():
    return Schemas()


class Pool(Stage):
    """A stage on which a worker holds fifty items."""

    def __init__(self, place, kind="cleanup"):
        super().__init__(place, lanes=2)
        self.kind = kind
        for number in range(COUNT):
            self.events.send(kind, "request", f"item-{number:02}", {"payload": {"number": number}})
        self.events.flush()
        place.wait_idle()
        answer = self.ask(kind, "claim", WORKER, {"credit_total": COUNT, "refresh": 1, "wait_ms": 0, "ttl_ms": 600000})
        assert (answer["outcome"], answer["count"]) == ("granted", COUNT)
        place.wait_idle()      # the answer comes before the grants that it counts
        self.grants.read_all()
        self.held = {record.value["lease"]: record.value for record in self.grants.records}
        assert len(self.held) == COUNT

    def items(self, *leases, **more):
        """What the worker says about these, or about all."""
        return [dict({name: self.held[lease][name] for name in ("lease", "fence", "claim_id", "token")}, **more)
                for lease in leases or sorted(self.held)]

    def say(self, command, items, message_id=None, **more):
        """Sends a command over these items; its answer, and what else came of it."""
        origin = self.events.place_of(self.kind, command, WORKER, {"holder": WORKER, "items": items, **more}, message_id=message_id)
        answer = self.answer_to(origin, WORKER)
        self.place.wait_idle()
        self.results.read_all()
        came = [record for record in self.results.records if self._origin(record) == origin and record.value["number"] != answer["number"]]
        return answer, came

    def _origin(self, record):
        told = record.value.get("origin")
        return told and (told["topic"][len(self.place.prefix):], told["partition"], told["offset"])

    def states(self):
        """The state of each lease, as lease.state says it last."""
        self.state.read_all()
        return {record.value["lease"]: record.value["state"] for record in self.state.records}


def is_good(schemas, came, answer):
    """The schema describes every record."""
    for value in [answer] + [record.value for record in came]:
        assert schemas.error("result.json", value) is None
        assert schemas.undescribed("result.json", value) == []


def test_a_worker_renews_and_finishes_what_it_holds_in_one_message_each(small_place, schemas):
    pool = Pool(small_place)
    renewed, came = pool.say("renew", pool.items(), ttl_ms=1200000)
    is_good(schemas, came, renewed)
    assert (renewed["outcome"], renewed["lease"], renewed["holder"]) == ("answered", WORKER, WORKER)
    assert [item["lease"] for item in renewed["items"]] == sorted(pool.held)
    assert {item["outcome"] for item in renewed["items"]} == {"renewed"}
    for item in renewed["items"]:
        assert item["until"] > pool.held[item["lease"]]["until"]
        assert 0 < item["remaining_ms"] <= 1200000
    assert came == []       # a renewal has no record of its own

    said = pool.items(*sorted(pool.held)[:49], result={"bytes": 1, "share": 0.5})
    said[7]["fence"] += 1
    said[21]["token"] = pool.held["item-00"]["token"]
    finished, came = pool.say("finish", said, message_id="finish-49")
    is_good(schemas, came, finished)
    assert finished["outcome"] == "answered"
    outcomes = {item["lease"]: item["outcome"] for item in finished["items"]}
    assert [item["lease"] for item in finished["items"]] == [item["lease"] for item in said]
    assert {lease for lease, outcome in outcomes.items() if outcome == "stale"} == {"item-07", "item-21"}
    assert sorted(outcomes.values()) == ["finished"] * 47 + ["stale"] * 2
    # Each that ended has a record as if it had been finished alone, under its own key, and names the command.
    assert {record.value["lease"]: record.value["outcome"] for record in came} == \
        {lease: "finished" for lease, outcome in outcomes.items() if outcome == "finished"}
    for record in came:
        assert record.key.decode() == record.value["lease"]
        assert record.value["command"] == {"type": "cleanup.finish", "source": "/tests", "id": "finish-49"}
        assert record.value["result"] == {"bytes": 1, "share": 0.5}
        assert record.value["number"] > finished["number"]
    states = pool.states()
    assert {lease for lease, state in states.items() if state == "held"} == {"item-07", "item-21", "item-49"}
    assert sorted(set(states.values())) == ["finished", "held"]

    # The same message again is a duplicate, as a whole; another one under its id is refused as a whole.
    again, came = pool.say("finish", said, message_id="finish-49")
    assert (again["outcome"], again["original"], came) == ("duplicate", {"outcome": "answered"}, [])
    assert "items" not in again
    other, came = pool.say("finish", pool.items("item-49"), message_id="finish-49")
    assert (other["outcome"], other["reason"], came) == ("malformed", "id_reused", [])
    assert pool.states() == states
    figures = pool.balance()
    assert figures["outcomes"] == {"requested": COUNT, "granted": 1, "answered": 2, "duplicate": 1, "malformed": 1}


def test_what_is_wrong_with_one_item_is_wrong_with_the_command(small_place, schemas):
    pool = Pool(small_place, "delivery")
    for fault, reason, field in (({"fence": 0}, "out_of_range", "items[3].fence"), ({"token": "x"}, "wrong_type", "items[3].token"),
                                 ({"lease": "item-00"}, "repeated", "items[3].lease"), ({"reason": ""}, "empty", "items[3].reason")):
        said = pool.items(reason="broken")
        said[3].update(fault)
        answer, came = pool.say("fail", said)
        is_good(schemas, came, answer)
        assert (answer["outcome"], answer["reason"], answer["field"], came) == ("malformed", reason, field, [])
    answer, came = pool.say("renew", pool.items(), ttl_ms=3600001)     # beyond what the kind allows: only the database knows
    assert (answer["outcome"], answer["reason"], answer["field"], came) == ("malformed", "ttl_above_maximum", "ttl_ms", [])
    assert set(pool.states().values()) == {"held"}
    pool.balance()


def test_some_fail_some_are_given_back(small_place, schemas):
    pool = Pool(small_place, "delivery")
    said = pool.items("item-00", reason="no route", delay_ms=60000) + pool.items("item-01", reason="gone", retry=False)
    failed, came = pool.say("fail", said)
    is_good(schemas, came, failed)
    assert [item["outcome"] for item in failed["items"]] == ["failed", "failed"]
    own = {record.value["lease"]: record.value for record in came}
    assert (own["item-00"]["state"], own["item-00"]["reason"]) == ("ready", "no route")
    assert (own["item-01"]["state"], own["item-01"]["reason"]) == ("dead", "gone")
    # What ended is told as a command over it alone would be told; what never was, too.
    unknown = dict(pool.items("item-00")[0], lease="no-such-item")
    given_back, came = pool.say("release", pool.items("item-02", "item-00", "item-01") + [unknown])
    is_good(schemas, came, given_back)
    assert [item["outcome"] for item in given_back["items"]] == ["released", "stale", "final", "unknown"]
    assert [record.value["lease"] for record in came] == ["item-02"]
    pool.balance()


def test_the_largest_command_is_answered_beside_others(small_place):
    """A thousand items of somebody who has none of them; the queue behind goes on."""
    stage = Stage(small_place, lanes=1)
    items = [{"lease": f"{'x' * 40}-{number:04}", "fence": 1, "claim_id": "0198c0de-0000-7000-8000-000000000001", "token": "0f" * 32}
             for number in range(1000)]
    answer = stage.ask("cleanup", "renew", WORKER, {"holder": WORKER, "items": items})
    assert [item["outcome"] for item in answer["items"]] == ["unknown"] * 1000
    assert [item["lease"] for item in answer["items"]] == [item["lease"] for item in items]
    assert stage.ask("cleanup", "renew", WORKER, {"holder": WORKER, "items": items + items[:1]})["reason"] == "too_many"
    assert stage.ask("file-write", "start", "write-1", {"holder": "w", "resources": ["file/1"]})["outcome"] == "granted"
    stage.balance()
