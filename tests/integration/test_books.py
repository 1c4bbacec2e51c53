# ctest: LABEL unit TIMEOUT 240
"""The checker of the books finds each fault that is planted in a history that balanced before."""
import datetime
import json

import pytest

import books
from topics import Record

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
TOKEN_A = "a1" * 32
TOKEN_B = "b2" * 32
CLAIM_A = "11111111-1111-4111-8111-111111111111"
CLAIM_B = "22222222-2222-4222-8222-222222222222"
RESULT_PARTITION = 3


def at(seconds):
    return START + datetime.timedelta(seconds=seconds)


class Story:
    """Writes a history message by message: run-1 is granted to a, renewed, lapses, granted to b, which finishes."""

    def __init__(self):
        self.history = books.History()
        self.offset = 0

    def message(self, command, data, token=None, subject="run-1", **answer):
        """One message and the journal row that answers it."""
        data = dict(data, **({"token": token} if token else {}))
        raw = json.dumps({"specversion": "1.0", "id": f"id-{self.offset}", "source": "/tests", "subject": subject,
                          "type": f"settlement.{command}", "data": data}).encode()
        record = Record("settlement.events", 0, self.offset, subject.encode(), raw, [])
        self.history.inputs["settlement.events", 0, self.offset] = books.Input(record)
        self.offset += 1
        self.history.consumed = {("settlement.events", 0): self.offset}
        self.history.samples.append(dict(self.history.consumed))
        self.row(command=command, origin_topic="settlement.events", origin_partition=0, origin_offset=self.offset - 1,
                 token=token, subject=subject, **answer)

    def row(self, event, at_seconds, token=None, items=None, **members):
        """One journal row and its records."""
        row = dict.fromkeys(("command", "origin_topic", "origin_partition", "origin_offset", "holder", "claim_id", "fence",
                             "since", "lease_until", "state", "previous_number"))
        row.update(kind="settlement", subject="run-1", number=len(self.history.journal) + 1, at=at(at_seconds), event=event,
                   changes_lease=False, is_grant=False)
        row.update(members)
        self.history.journal.append(row)
        self.publish("lease.results", row["subject"].encode(), row, {"lease": row["subject"], "fence": row["fence"], "items": items})
        if row["is_grant"]:
            self.publish("lease.grants", row["holder"].encode(), row, {"claim_id": row["claim_id"], "token": token})
        if row["changes_lease"]:
            self.publish("lease.state", f"settlement/{row['subject']}".encode(), row, {})

    def junk(self):
        """A message that is none, and its dead letter."""
        sent = Record("settlement.events", 0, self.offset, b"k", b"{", [("h", None)])
        self.history.inputs["settlement.events", 0, self.offset] = books.Input(sent)
        self.offset += 1
        self.history.consumed = {("settlement.events", 0): self.offset}
        row = dict.fromkeys(("command", "holder", "claim_id", "fence", "since", "lease_until", "state", "previous_number",
                             "kind", "subject"))
        row.update(number=len(self.history.journal) + 1, at=at(7), event="dead_letter", changes_lease=False, is_grant=False,
                   origin_topic="settlement.events", origin_partition=0, origin_offset=self.offset - 1)
        self.history.journal.append(row)
        headers = [("h", None), ("lease_dlq_reason", b"invalid_json"), ("lease_dlq_topic", b"t.settlement.events"),
                   ("lease_dlq_partition", b"0"), ("lease_dlq_offset", str(self.offset - 1).encode()),
                   ("lease_number", str(row["number"]).encode()), ("lease_epoch", b"1")]
        self.history.outputs["lease.dead-letters"] = [Record("lease.dead-letters", 0, 0, b"k", b"{", headers)]

    def publish(self, topic, key, row, value):
        value = dict(value, number=row["number"])
        if topic == "lease.results" and row["origin_topic"]:
            value["origin"] = {"topic": row["origin_topic"], "partition": row["origin_partition"],
                               "offset": row["origin_offset"]}
        value = {name: member for name, member in value.items() if member is not None}
        records = self.history.outputs.setdefault(topic, [])
        records.append(Record(topic, RESULT_PARTITION, len(records), key, json.dumps(value).encode(),
                              [("lease_number", str(row["number"]).encode()), ("lease_epoch", b"1")]))


@pytest.fixture
def story():
    told = Story()
    a = {"holder": "a", "fence": 7, "claim_id": CLAIM_A}
    b = {"holder": "b", "fence": 9, "claim_id": CLAIM_B}
    # The grant needs its token on lease.grants, the start carries none: row() gets it on the side.
    told.message("start", {"holder": "a", "resources": ["track/1"]}, event="granted", at_seconds=0, is_grant=True,
                 changes_lease=True, state="held", since=at(0), lease_until=at(2), **a)
    told.history.outputs["lease.grants"][-1].value["token"] = TOKEN_A
    told.message("renew", a, TOKEN_A, event="renewed", at_seconds=1, state="held", lease_until=at(3), **a)
    told.row(event="lapsed", at_seconds=3.01, state="free", changes_lease=True, min_fence=8, **a)
    told.message("start", {"holder": "b", "resources": ["track/1"]}, event="granted", at_seconds=4, is_grant=True,
                 changes_lease=True, state="held", since=at(4), lease_until=at(6), **b)
    told.history.outputs["lease.grants"][-1].value["token"] = TOKEN_B
    told.message("finish", a, TOKEN_A, event="stale", at_seconds=4.5)
    told.message("finish", b, TOKEN_B, event="finished", at_seconds=5, state="finished", changes_lease=True, **b)
    told.message("start", {"holder": "c"}, event="final", at_seconds=6)
    told.junk()
    return told


GRANT_D = {"fence": 20, "claim_id": "4" * 36}
SAYS_D = {"lease": "run-2", "token": "d4" * 32, **GRANT_D}


def hold_another(story):
    """d is granted run-2."""
    story.message("start", {"holder": "d"}, subject="run-2", event="granted", at_seconds=10, is_grant=True, changes_lease=True, state="held",
                  since=at(10), lease_until=at(20), holder="d", **GRANT_D)
    story.history.outputs["lease.grants"][-1].value["token"] = SAYS_D["token"]


def over_many(story, command, outcomes, says, at_seconds=11):
    """A command of d over run-2 and run-9, which nobody has."""
    nobody = {"lease": "run-9", "fence": 1, "claim_id": CLAIM_A, "token": TOKEN_A}
    items = [{"lease": lease, "outcome": outcome, "fence": 1, "claim_id": CLAIM_A} for lease, outcome in zip(("run-2", "run-9"), outcomes)]
    items[0].update(GRANT_D, **({"until": "2026-01-01T00:00:25.000000Z", "remaining_ms": 14000} if command == "renew" else {}))
    story.message(command, {"holder": "d", "items": [says, nobody]}, subject="d", event="answered", at_seconds=at_seconds, holder="d", items=items)
    return story.offset - 1


def finish_many(story, outcomes=("finished", "unknown"), says=SAYS_D, has_row=True):
    hold_another(story)
    over_many(story, "renew", ("renewed", "unknown"), SAYS_D)
    offset = over_many(story, "finish", outcomes, says, at_seconds=24)
    if has_row:
        story.row(event="finished", at_seconds=24, command="finish", subject="run-2", holder="d", state="finished", changes_lease=True,
                  origin_topic="settlement.events", origin_partition=0, origin_offset=offset, **GRANT_D)


def renew_many_late(story):
    hold_another(story)
    over_many(story, "renew", ("renewed", "unknown"), SAYS_D, at_seconds=21)


def tell_of_another(story):
    finish_many(story)
    story.history.outputs["lease.results"][-2].value["items"].reverse()


def row(story, number):
    return story.history.journal[number - 1]


def grant_again(story):
    story.message("start", {"holder": "c"}, event="granted", at_seconds=9, is_grant=True, changes_lease=True, holder="c",
                  fence=12, claim_id="3" * 36, state="held", since=at(9), lease_until=at(11))
    story.history.outputs["lease.grants"][-1].value["token"] = "c3" * 32


def hide_result(story, number):
    records = story.history.outputs["lease.results"]
    records[:] = [record for record in records if record.number != number]


def disorder_results(story):
    records = story.history.outputs["lease.results"]
    records[1], records[2] = records[2], records[1]


def leak_token(story):
    story.history.texts["a log"] = f'level=info event="granted" token={TOKEN_B}'


# What is done to the history, the check that must find it, the invariant it names.
FAULTS = [
    ("a later grant has a lower fence", lambda s: row(s, 4).update(fence=5), "check_fences", "I1"),
    ("two grants share a fence", lambda s: row(s, 4).update(fence=7), "check_fences", "I1"),
    ("two grants share a claim id", lambda s: row(s, 4).update(claim_id=CLAIM_A), "check_fences", "I1"),
    ("granted while the other was live", lambda s: row(s, 4).update(since=at(2.9)), "check_one_holder", "I2"),
    ("a lapsed lease is renewed", lambda s: row(s, 2).update(at=at(2.5)), "check_one_holder", "I2"),
    ("finished with another token", lambda s: s.history.inputs["settlement.events", 0, 4].data.update(token=TOKEN_A),
     "check_only_holder_changes", "I3"),
    ("finished with an old fence", lambda s: s.history.inputs["settlement.events", 0, 4].data.update(fence=7),
     "check_only_holder_changes", "I3"),
    ("a message has no answer", lambda s: row(s, 5).update(origin_offset=99), "check_every_message_answered", "I4"),
    ("a message has two answers", lambda s: row(s, 5).update(origin_offset=4), "check_every_message_answered", "I4"),
    ("consumed beyond the last answer", lambda s: s.history.inputs.update(
        {("settlement.events", 0, 7): s.history.inputs["settlement.events", 0, 5]})
     or s.history.consumed.update({("settlement.events", 0): 8}), "check_every_message_answered", "I4"),
    ("a result is missing", lambda s: hide_result(s, 5), "check_published_once", "I4"),
    ("a result tells another fence", lambda s: s.history.outputs["lease.results"][3].value.update(fence=8),
     "check_answers_agree", "I4"),
    ("finished as one of many with another token", lambda s: finish_many(s, says=dict(SAYS_D, token=TOKEN_A)), "check_only_holder_changes", "I3"),
    ("renewed as one of many with another fence", lambda s: (hold_another(s), over_many(s, "renew", ("renewed", "unknown"), dict(SAYS_D, fence=7))),
     "check_only_holder_changes", "I3"),
    ("renewed as one of many after the expiry", renew_many_late, "check_one_holder", "I2"),
    ("an answer over many tells of others", tell_of_another, "check_items", "I4"),
    ("an item was finished, and its answer does not say so", lambda s: finish_many(s, ("stale", "unknown")), "check_items", "I4"),
    ("an item was finished, says the answer, and has no row", lambda s: finish_many(s, has_row=False), "check_items", "I4"),
    ("a dead letter lost a header", lambda s: s.history.outputs["lease.dead-letters"][0].header_list.pop(0),
     "check_dead_letters", "I4"),
    ("a dead letter's value was changed", lambda s: setattr(s.history.outputs["lease.dead-letters"][0], "raw", b"{ "),
     "check_dead_letters", "I4"),
    ("the journal has a gap", lambda s: s.history.journal.pop(2), "check_numbers", "I4"),
    ("results stand in the wrong order", disorder_results, "check_numbers", "I4"),
    ("answers of a subject are out of order", lambda s: (row(s, 4).update(origin_offset=3), row(s, 5).update(origin_offset=2)),
     "check_order_of_subjects", "I5"),
    ("an offset went back", lambda s: s.history.samples.append({("settlement.events", 0): 2}), "check_offsets", "I6"),
    ("work without expiry was granted", lambda s: s.history.unfenced.add(("settlement", "run-1")), "check_unfenced", "I8"),
    ("a final state was left", grant_again, "check_final", "I10"),
    ("a token is in a log", leak_token, "check_tokens", "I11"),
    ("a token is in a result", lambda s: s.history.outputs["lease.results"].append(
        Record("lease.results", 0, 0, b"run-1", json.dumps({"token": TOKEN_A}).encode(), [("lease_mark", b"1")])),
     "check_tokens", "I11"),
]


def test_books__a_sound_history_balances(story):
    assert books.check(story.history) == []
    assert books.balance(story.history)["answers"] == 7


def test_books__a_command_over_many_items_balances(story):
    finish_many(story)
    assert books.check(story.history) == []
    assert books.balance(story.history)["answers"] == 10


def test_books__a_repeat_after_a_crash_is_dropped(story):
    records = story.history.outputs["lease.results"]
    records.append(records[2])
    assert books.check(story.history) == []


@pytest.mark.parametrize("what, plant, finder, invariant", FAULTS, ids=[fault[0] for fault in FAULTS])
def test_books__planted_fault_is_found(story, what, plant, finder, invariant):
    plant(story)
    found = books.check(story.history)
    assert any(finder in line and line.startswith(invariant) for line in found), f"{what}: found only {found}"
    with pytest.raises(AssertionError, match="do not balance"):
        books.balance(story.history)


def test_books__every_check_has_a_planted_fault():
    assert {fault[2] for fault in FAULTS} == {check.__name__ for check in books.CHECKS}
