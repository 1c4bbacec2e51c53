# ctest: LABEL cli TIMEOUT 400
"""leasectl cases and resolve: work from before fencing is brought in, shown with what is known of it, and ended by an operator's word,
which goes the way of every command."""

import pytest

import harness
from leasectl import DATA, NO, USAGE, YES, Leasectl, small_topics
from schemas import Schemas
from stage import Stage

BY = ("--actor", "ann", "--reason", "seen on the disk")
OLD = """
CREATE TABLE public.old_cleanup (id text PRIMARY KEY, status text NOT NULL, path text, updated_at timestamptz, claim_owner text,
                                 claim_token text, lease_until timestamptz, claim_fence bigint NOT NULL DEFAULT 0);
INSERT INTO public.old_cleanup (id, status, path, updated_at, claim_owner, claim_fence)
SELECT 'f' || n, CASE WHEN n < 7 THEN 'IN_PROGRESS' ELSE 'DONE' END, '/a/f' || n, '2026-09-02T10:00:00Z', nullif('host-' || n, 'host-1'), 1
  FROM generate_series(1, 8) n
"""


@pytest.fixture(scope="module")
def stage(postgres, kafka, build, tmp_path_factory):
    place = harness.Place(postgres, kafka, build, tmp_path_factory.mktemp("cases"))
    place.ctl("migrate")
    small_topics(place)
    stage = Stage(place, lanes=1)
    place.database.query(OLD)
    place.database.query("SELECT lease.import_claims('public.old_cleanup', 'ann', 'cut-over')")
    yield stage
    place.close()


@pytest.fixture(scope="module")
def leasectl(stage):
    return Leasectl.of(stage.place)


@pytest.fixture(scope="module")
def fences(stage):
    return dict(stage.place.database.query("SELECT lease, fence FROM lease.leases WHERE condition = 'unfenced'"))


def test_cases_lists_what_was_in_progress_oldest_first_with_what_is_known(leasectl, fences):
    rows = leasectl("cases", "-o", "json").check(YES).json
    assert [row["lease"] for row in rows] == [f"f{number}" for number in range(1, 7)]
    assert {(row["what"], row["claimed_at"], row["last_event"], row["last_operator"]["actor"]) for row in rows} == \
        {("unfenced", "2026-09-02T10:00:00.000000Z", "imported", "ann")}
    assert [row["holder"] for row in rows[:2]] == ["unknown", "host-2"] and rows[0]["fence"] == fences["f1"]
    assert "lease_until" not in rows[0] and "renewed_at" not in rows[0]
    head, *lines = leasectl("cases", "--kind", "cleanup", "--limit", 2).check(YES).lines
    assert "FENCE" in head and "cleanup/f1" in lines[0] and "imported by ann: cut-over" in lines[0] and len(lines) == 2
    assert "nothing waits" in leasectl("cases", "--kind", "delivery").check(YES).err


def test_cases_looks_for_the_file_beneath_the_root_only(leasectl, stage, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f1").write_text("")
    stage.place.database.query("UPDATE lease.lease SET payload = '{\"path\": \"a/../../etc/passwd\"}' WHERE lease = 'f6'")
    found = {row["lease"]: row["file"] for row in leasectl("cases", "--root", tmp_path, "-o", "json").check(YES).json}
    assert found == {"f1": "there", "f2": "gone", "f3": "gone", "f4": "gone", "f5": "gone", "f6": "not looked at"}
    leasectl("cases", "--root", tmp_path / "nowhere").check(DATA)


def test_one_case_shows_what_the_topics_say_of_it(leasectl, stage, fences):
    stage.place.wait_idle()
    assert stage.ask("cleanup", "request", "f1", {})["outcome"] == "held"
    case = leasectl("cases", "cleanup/f1", "-o", "json").check(YES).json
    told = {(told["topic"], told["value"].get("outcome"), told["value"]["state"]) for told in case["topics"]}
    assert told == {("lease.results", "imported", "held"), ("lease.results", "held", "held"), ("lease.state", None, "held")}
    assert all(Schemas().error("result.json", told["value"]) is None for told in case["topics"] if told["topic"] == "lease.results")
    assert case["last_event"] == "held" and case["last_message"]["topic"].endswith("cleanup.events") and case["fence"] == fences["f1"]
    text = leasectl("cases", "cleanup/f1").check(YES).out
    assert "lease.state" in text and "imported" in text
    assert "no case" in leasectl("cases", "cleanup/f8").check(NO).err
    assert "topics were not read" in leasectl("cases", "cleanup/f1", LEASE_BROKERS=None).check(YES).err


WRONG = [
    (("--done", "--unfenced", "--actor", "ann"), "reason"), (("--done", "--unfenced", "--reason", "x"), "actor"),
    (("--unfenced", *BY), "--not-done"), (("--done", "--not-done", "--unfenced", *BY), "not two"),
    (("--done", *BY), "--unfenced"), (("--done", "--unfenced", "--fence", "7", *BY), "--unfenced"),
    (("--done", "--fence", "0", *BY), "fence"), (("--extend", "2d", "--unfenced", *BY), "day"), (("--extend", "--unfenced", *BY), "--fence"),
]


@pytest.mark.parametrize("words, says", WRONG)
def test_resolve_asks_for_who_why_what_and_the_fence_seen(leasectl, words, says):
    assert says in leasectl("resolve", "cleanup/f1", *words).check(USAGE).err


def answered(done, code):
    answer = done.check(code).json
    assert Schemas().error("result.json", answer) is None
    assert answer["operator"]["actor"] == "ann" and answer["operator"]["reason"] == "seen on the disk"
    return answer


def test_done_is_finished_for_good_and_stands_in_the_timeline(leasectl, stage, fences):
    seen = "--fence", fences["f2"], *BY, "-o", "json"
    answer = answered(leasectl("resolve", "cleanup/f2", "--done", *seen), YES)
    assert (answer["outcome"], answer["state"], answer["holder"]) == ("finished", "finished", "host-2") and "result" not in answer
    assert stage.state.wait_for(lambda record: record.value["lease"] == "f2" and record.value["state"] == "finished")
    assert answered(leasectl("resolve", "cleanup/f2", "--not-done", *seen), NO)["outcome"] == "final"
    assert "done by ann: seen on the disk" in leasectl("timeline", "cleanup/f2").check(YES).out
    assert leasectl("timeline", "cleanup/f2", "-o", "json").json[-2]["operator"]["verdict"] == "done"


def test_not_done_goes_to_the_next_claim(leasectl, stage, fences):
    assert answered(leasectl("resolve", "cleanup/f3", "--not-done", "--fence", fences["f3"], *BY, "-o", "json"), YES)["outcome"] == "released"
    assert stage.ask("cleanup", "claim", "w1", {"credit_total": 1, "refresh": 1})["count"] == 1
    grant = stage.grants.wait_for(lambda record: record.value["holder"] == "w1").value
    assert (grant["lease"], grant["attempt"], grant["payload"]["path"]) == ("f3", 1, "/a/f3") and grant["fence"] > fences["f3"]
    live = answered(leasectl("resolve", "cleanup/f3", "--done", "--fence", grant["fence"], *BY, "-o", "json"), NO)
    assert live["outcome"] == "held" and live["held_by"]["holder"] == "w1"


def test_another_fence_than_the_operator_saw_is_stale(leasectl, fences):
    for seen in (("--unfenced",), ("--fence", fences["f4"] + 1)):
        assert answered(leasectl("resolve", "cleanup/f4", "--done", *seen, *BY, "-o", "json"), NO)["outcome"] == "stale"
    assert leasectl("show", "cleanup/f4", "-o", "json").json["condition"] == "unfenced"


def test_extended_lapses_by_itself_and_is_claimed_then(leasectl, stage, fences):
    answer = answered(leasectl("resolve", "cleanup/f5", "--extend", "300ms", "--fence", fences["f5"], *BY, "-o", "json"), YES)
    assert answer["outcome"] == "renewed" and answer["fence"] == fences["f5"] and "claim_id" not in answer
    assert stage.event("lapsed", "cleanup", "f5")["holder"] == "host-5"
    assert stage.ask("cleanup", "claim", "w2", {"credit_total": 1, "refresh": 1, "wait_ms": 20000})["outcome"] in ("waiting", "granted")
    assert stage.grants.wait_for(lambda record: record.value["holder"] == "w2").value["lease"] == "f5"
    assert not any(record.value["lease"] == "f5" and record.value["holder"] == "host-5" for record in stage.grants.records)


def test_what_nobody_resolved_is_still_nobodys(leasectl):
    assert [row["lease"] for row in leasectl("cases", "-o", "json").json if row["what"] == "unfenced"] == ["f1", "f4", "f6"]
