# ctest: LABEL cli TIMEOUT 600
"""leasectl ls, show, timeline, dlq ls: what the database knows, with the remaining time beside the expiry."""
import re

import pytest

import harness
from leasectl import CONFIGURATION, NO, YES, Leasectl

CLAIM = "01890000-0000-7000-8000-000000000001"

LEASES = [
    # kind, lease, state, holder, fence, expires in (None: never), attempt
    ("settlement", "2026-10", "held", "run-a", 2**32 + 1, "1 hour", 0),
    ("settlement", "2026-11", "held", "run-b", 2**32 + 2, "-5 seconds", 0),
    ("settlement", "2026-12", "finished", "x\x1b[31m\u202e", 2**32 + 3, None, 0),
    ("settlement", "old", "held", "run-d", 2**32 + 4, None, 0),
    ("cleanup", "file-1", "held", "worker-1", 2**32 + 5, "20 minutes", 2),
    ("cleanup", "a/b", "ready", None, None, None, 1),
]


@pytest.fixture(scope="module")
def one_place(postgres, kafka, build, tmp_path_factory):
    """One database for all tests here: they only look."""
    place = harness.Place(postgres, kafka, build, tmp_path_factory.mktemp("leases"))
    yield place
    place.close()


@pytest.fixture(scope="module")
def leasectl(one_place):
    Leasectl.of(one_place)("migrate").check(YES)
    database = one_place.database
    for kind, lease, state, holder, fence, expires, attempt in LEASES:
        database.query(
            "INSERT INTO lease.lease (kind, lease, state, holder, claim_id, fence, since, lease_until, ttl_ms, attempt, ready_at,"
            " check_at, ended_at) VALUES (%(kind)s, %(lease)s, %(state)s, %(holder)s, CASE WHEN %(fence)s IS NOT NULL THEN"
            f" '{CLAIM}'::uuid END, %(fence)s, now() - interval '1 minute', now() + %(expires)s::interval, 2000, %(attempt)s,"
            " CASE WHEN %(state)s = 'ready' THEN now() END, now() + %(expires)s::interval,"
            " CASE WHEN %(state)s = 'finished' THEN now() END)", locals())
    for number in range(1, 31):
        database.query("INSERT INTO lease.resource VALUES (%s, %s)", (f"contract/a{number:02}", 2**32 + 1))
    return Leasectl.of(one_place, database=database.login("lease_reader"))


def names(done):
    return [f"{row['kind']}/{row['lease']}" for row in done.json]


def test_ls_tells_the_condition_of_now_and_what_is_left(leasectl):
    rows = {f"{row['kind']}/{row['lease']}": row for row in leasectl("ls", "-o", "json").check(YES).json}
    assert {name: row["condition"] for name, row in rows.items()} == {
        "settlement/2026-10": "held", "settlement/2026-11": "lapsed", "settlement/2026-12": "finished",
        "settlement/old": "unfenced", "cleanup/file-1": "held", "cleanup/a/b": "ready"}
    assert 3000000 < rows["settlement/2026-10"]["remaining_ms"] <= 3600000
    assert rows["settlement/2026-11"]["remaining_ms"] <= -5000
    assert rows["settlement/2026-10"]["fence"] == 2**32 + 1
    assert rows["settlement/2026-10"]["lease_until"].endswith("Z")
    assert "holder" not in rows["cleanup/a/b"]


def test_ls_as_a_table_puts_remaining_time_beside_the_expiry(leasectl):
    head, *lines = leasectl("ls").check(YES).lines
    assert head.index("LAPSES") < head.index("EXPIRY")
    [lapsed] = [line for line in lines if "settlement/2026-11 " in line]
    [held] = [line for line in lines if "settlement/2026-10 " in line]
    assert " ago" in lapsed and "lapsed" in lapsed
    assert re.search(r"in (5[0-9] min|1 h)", held)
    assert len(lines) == len(LEASES)


def test_ls_filters(leasectl):
    def found(*filters):
        return names(leasectl("ls", "-o", "json", *filters).check(YES))

    assert found("--kind", "cleanup") == ["cleanup/a/b", "cleanup/file-1"]
    assert found("--state", "held", "--kind", "settlement") == ["settlement/2026-10", "settlement/2026-11", "settlement/old"]
    assert found("--condition", "lapsed") == ["settlement/2026-11"]
    assert found("--condition", "unfenced") == ["settlement/old"]
    assert found("--holder", "worker-1") == ["cleanup/file-1"]
    assert found("--expiring", "30m") == ["cleanup/file-1"]
    assert found("--expiring", "2h") == ["cleanup/file-1", "settlement/2026-10"], "soonest first"
    assert found("--expiring", "1s") == []


def test_ls_says_when_there_is_more(leasectl):
    done = leasectl("ls", "--limit", "2", "-o", "jsonl").check(YES)
    assert len(done.rows) == 2 and "only the first 2" in done.err
    assert "only" not in leasectl("ls", "--limit", "6").check(YES).err
    nothing = leasectl("ls", "--holder", "nobody", "-o", "json").check(YES)
    assert nothing.json == [] and "no lease" in nothing.err


def test_show_tells_everything_about_one_lease(leasectl):
    row = leasectl("show", "settlement/2026-10", "-o", "json").check(YES).json
    assert (row["holder"], row["fence"], row["claim_id"], row["condition"]) == ("run-a", 2**32 + 1, CLAIM, "held")
    assert row["resources"] == [f"contract/a{number:02}" for number in range(1, 31)]
    table = leasectl("show", "settlement/2026-10").check(YES).out
    assert "contract/a20" in table and "contract/a21" not in table
    assert "token" not in table
    assert leasectl("show", "cleanup/a/b", "-o", "json").check(YES).json["lease"] == "a/b"


def test_show_of_a_lease_that_is_not_there_says_no(leasectl):
    done = leasectl("show", "settlement/nope").check(NO)
    assert done.out == "" and "there is no lease settlement/nope" in done.err


@pytest.fixture(scope="module")
def journal(leasectl, one_place):
    def add(number, event, **columns):
        columns = dict({"number": number, "event": event, "at": "2026-11-30T10:29:42.337565Z", "kind": "settlement",
                        "subject": "2026-10", "changes_lease": False, "is_grant": False}, **columns)
        one_place.database.query(f"INSERT INTO lease.journal ({', '.join(columns)}) VALUES"
                                  f" ({', '.join(['%s'] * len(columns))})", tuple(columns.values()))
    add(1, "granted", command="start", holder="run-a", fence=2**32 + 1, origin_topic="settlement.events", origin_partition=4,
        origin_offset=12, state="held")
    add(2, "held", command="start", blocker='{"kind": "settlement", "lease": "2026-10", "holder": "run-a", "fence": 4294967297}',
        origin_topic="settlement.events", origin_partition=4, origin_offset=13)
    add(3, "lapsed", holder="run-a", fence=2**32 + 1, state="free")
    add(4, "malformed", command="finish", reason="missing", field="token", source="/tests\x1b[2J")
    add(5, "granted", command="start", subject="2026-11")
    for number, reason in ((6, "invalid_json"), (7, "null_value")):
        add(number, "dead_letter", kind=None, subject=None, reason=reason, field="byte 3", origin_topic="cleanup.events",
            origin_partition=1, origin_offset=number, raw_key=b"k", raw_value=b"\x00" * 9 if number == 6 else None)
    return leasectl


def test_timeline_is_the_story_of_one_lease_in_order(journal):
    rows = journal("timeline", "settlement/2026-10", "-o", "json").check(YES).json
    assert [(row["number"], row.get("command"), row["event"]) for row in rows] == [
        (1, "start", "granted"), (2, "start", "held"), (3, None, "lapsed"), (4, "finish", "malformed")]
    assert (rows[0]["topic"], rows[0]["partition"], rows[0]["offset"]) == ("settlement.events", 4, 12)
    assert rows[1]["held_by"]["holder"] == "run-a" and rows[0]["at"] == "2026-11-30T10:29:42.337565Z"
    table = journal("timeline", "settlement/2026-10").check(YES).lines
    assert "settlement.events/4@12" in table[1] and "held by run-a (settlement/2026-10)" in table[2] and "missing token" in table[4]


def test_timeline_limit_keeps_the_last(journal):
    done = journal("timeline", "settlement/2026-10", "--limit", "2", "-o", "jsonl").check(YES)
    assert [row["number"] for row in done.rows] == [3, 4] and "only the last 2" in done.err
    assert "says nothing" in journal("timeline", "settlement/nope").check(YES).err


def test_data_cannot_drive_the_terminal(leasectl):
    out = leasectl("ls").check(YES).out + leasectl("show", "settlement/2026-12").check(YES).out
    assert "\x1b" not in out and "‮" not in out and r"x\x1b[31m\u{202e}" in out


def test_dlq_ls_tells_reason_place_and_size(journal):
    rows = journal("dlq", "ls", "-o", "json").check(YES).json
    assert [(row["number"], row["reason"], row["topic"], row["partition"], row["offset"]) for row in rows] == [
        (6, "invalid_json", "cleanup.events", 1, 6), (7, "null_value", "cleanup.events", 1, 7)]
    assert rows[0]["bytes"] == 9 and "bytes" not in rows[1] and rows[0]["detail"] == "byte 3"
    assert [row["number"] for row in journal("dlq", "ls", "--reason", "null_value", "-o", "jsonl").rows] == [7]
    assert journal("dlq", "ls", "--topic", "settlement.events", "-o", "json").json == []
    assert "invalid_json" in journal("dlq", "ls").lines[1]


def test_a_database_without_the_schema_is_told_what_to_do(bare_place):
    done = Leasectl.of(bare_place)("ls").check(CONFIGURATION)
    assert "leasectl migrate" in done.err
