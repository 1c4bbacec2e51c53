# ctest: LABEL kafka TIMEOUT 240 TAKES 15
"""What waits for the end of a lease, through real coordinators and a real broker: a start in line, edits that were asked for in SQL."""
import pytest

from leasectl import USAGE, YES, Leasectl
from stage import Stage
from waiting import eventually

ROWS = 60           # with half of their edits, more than a coordinator takes in at once
EDITS = 20      # of each row, each made on what the one before it makes of it
TABLE = f"""
  CREATE TABLE public.contract (id int PRIMARY KEY, version int NOT NULL);
  INSERT INTO public.contract SELECT i, 0 FROM generate_series(1, {ROWS}) i;
  SELECT lease.guard_table('public.contract', 'contract', '{{version}}');
  SELECT lease.allow_edits('contract');
"""
ASK = "SELECT lease.ask_edit('contract/' || r, json_build_object('version', n)::jsonb, json_build_object('version', n - 1)::jsonb) FROM generate_series(%s, %s) n, generate_series(1, %s) r ORDER BY n, r"


@pytest.fixture
def stage(small_place):
    small_place.database.query(TABLE)
    return Stage(small_place)


def test_a_start_that_waits_is_granted_when_the_lease_before_it_ends(stage):
    first = stage.ask("settlement", "start", "s1", {"holder": "run-a", "ttl_ms": 600000, "resources": ["contract/1", "album/1"]})
    waits = {"holder": "run-b", "ttl_ms": 600000, "resources": ["contract/1", "contract/2"], "wait_ms": 120000, "refresh": 7}
    answer = stage.ask("settlement", "start", "s2", waits)
    assert answer["outcome"] == "waiting" and answer["refresh"] == 7 and answer["until"] > answer.get("since", "")
    assert answer["held_by"]["lease"] == "s1" and answer["held_by"]["fence"] == first["fence"]
    leasectl = Leasectl.of(stage.place)
    stage.ask("settlement", "start", "s4", {**waits, "holder": "run-d"})
    shown = leasectl("line", "-o", "json").check(YES).json
    assert [(row["place"], row["lease"], row.get("held_by"), row.get("behind"), row["resources"]) for row in shown] == [
        (1, "s2", "settlement/s1", None, 2), (2, "s4", None, "settlement/s2", 2)]
    assert 0 < shown[0]["remaining_ms"] <= 120000
    head, first_line = leasectl("line", "--resource", "contract/2", "--limit", 1).check(YES).lines
    assert head.split()[:3] == ["PLACE", "LEASE", "FOR"] and first_line.split()[:5] == ["1", "settlement/s2", "run-b", "2", "settlement/s1"]
    assert "nobody waits" in leasectl("line", "--kind", "cleanup").check(YES).err
    assert stage.ask("settlement", "start", "s4", {"holder": "run-d", "resources": ["contract/2"]})["outcome"] == "held"     # and leaves
    assert [row["lease"] for row in leasectl("line", "-o", "json").json] == ["s2"]
    behind = stage.ask("settlement", "start", "s3", {"holder": "run-c", "resources": ["contract/2"]})
    assert (behind["outcome"], behind["reason"]) == ("held", "in_line")
    stage.ask("settlement", "finish", "s1", stage.as_holder(stage.grant(first["fence"])))
    grant = stage.grants.wait_for(lambda record: record.value["lease"] == "s2", what="the grant out of the line").value
    assert grant["holder"] == "run-b" and grant["fence"] > first["fence"] and grant["refresh"] == 7
    assert stage.place.database.value("SELECT count(*) FROM public.contract WHERE lease_fence = %s", (grant["fence"],)) == 2
    assert stage.ask("settlement", "finish", "s2", stage.as_holder(grant))["outcome"] == "finished"
    stage.balance()


def test_two_coordinators_take_one_inbox_in_its_order(stage):
    """Each edit was made on the one before it: were the inbox split between the two, some would bounce."""
    place = stage.place
    other = place.coordinator().start()
    grant = stage.ask("settlement", "start", "s1", {"holder": "run-a", "ttl_ms": 600000, "resources": ["contract/1"]})
    asked = [identity for identity, in place.database.query(ASK, (1, EDITS // 2, ROWS))]
    eventually(lambda: place.database.value("SELECT sum(version) FROM public.contract") > 0, 60, "the first are made")
    leasectl = Leasectl.of(place)
    eventually(lambda: len(leasectl("edits", "contract/1", "-o", "json").check(YES).json) == EDITS // 2, 60, "the first row's are parked")
    shown = leasectl("edits", "contract/1", "-o", "json").json
    assert [(row["no"], row["new"]["version"], row["held_by"]) for row in shown] == [(row["no"], n, "settlement/s1") for n, row in enumerate(shown, 1)]
    lines = leasectl("edits", "contract/1").check(YES).lines
    assert "version=1 (was 0)" in lines[1] and "settlement/s1" in lines[1]
    assert "no edit is parked" in leasectl("edits", "contract/2").check(YES).err
    leasectl("edits", "contract").check(USAGE)
    asked += [identity for identity, in place.database.query(ASK, (EDITS // 2 + 1, EDITS, ROWS))]
    free = "SELECT count(*) FROM public.contract WHERE version = %s"
    eventually(lambda: place.database.value(free, (EDITS,)) == ROWS - 1, 60, "rows that nobody covers are edited")
    stage.ask("settlement", "finish", "s1", stage.as_holder(stage.grant(grant["fence"])))
    eventually(lambda: place.database.value(free, (EDITS,)) == ROWS, 60, "and the other one, when its lease has ended")
    place.wait_idle()
    stage.results.read_all()
    told = {}
    for record in stage.results.records:
        if record.value["kind"] == "contract":
            told.setdefault(record.value["command"]["id"], []).append(record.outcome)
    assert set(told) == set(asked) and {tuple(outcomes) for outcomes in told.values()} <= {("applied",), ("parked", "applied")}
    assert other.child.must_run() is None and place.database.value("SELECT count(*) FROM lease.edit_inbox") == 0


def test_whatever_is_asked_for_in_sql_ends_no_coordinator(stage):
    """Rows as no function of ours writes them, and a member's name that no topic would take."""
    place = stage.place
    place.database.query("""INSERT INTO lease.edit_inbox (command, subject, editor, message_id, payload)
      VALUES ('edit', 'contract/1', 'ann', 'null', NULL), ('cancel', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) i), 'ann', 'long', NULL),
             ('edit', 'contract/1', 'ann', 'large', json_build_object('new', json_build_object(repeat('k', 3000000), '1'), 'old', '{}'::json))""")
    good = place.database.value("SELECT lease.ask_edit('contract/2', '{\"version\": 1}', '{\"version\": 0}')")
    outcomes = {identity: stage.results.wait_for(lambda record, of=identity: record.value.get("command", {}).get("id") == of, what=identity).outcome
                for identity in ("null", "long", "large", good)}
    assert outcomes == {"null": "malformed", "long": "malformed", "large": "malformed", good: "applied"}
    stage.coordinator.child.must_run()
