# ctest: LABEL guard TIMEOUT 400
"""Every way to edit a row × every state of the lease that covers it × every isolation level, with the outcome of each.

A state is made once, on a row of its own, and every edit is rolled back. All edits but the one under session_replication_role are made
by somebody who has no right on the schema lease.
"""
import psycopg2
import pytest

import contracts
from contracts import code_of, isolation, pass_by, run_over

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")

# The state of the lease on a row, and the row that has it.
STATES = {"free": 1, "held": 2, "covered by a lease without an expiry": 3, "lapsed": 4, "lapsed and turned over": 5, "finished": 6, "failed": 7,
          "given back": 8}
LIVE = ("held", "covered by a lease without an expiry")
UNFINISHED = ("lapsed", "lapsed and turned over")      # their late finish is told of edits

# Edits of a guarded column, of the key, or of the row as a whole: refused while the lease lives, admitted otherwise.
GUARDED = {
    "update": "UPDATE album_contract SET rate = 60 WHERE id = %(id)s",
    "update of another guarded column": "UPDATE album_contract SET terms = NULL WHERE id = %(id)s",
    "update of the key": "UPDATE album_contract SET id = id + 1000 WHERE id = %(id)s",
    "update of all rows": "UPDATE album_contract SET rate = rate + 1 WHERE id = %(id)s OR id > 90",
    "delete": "DELETE FROM album_contract WHERE id = %(id)s",
    "insert on conflict do update": "INSERT INTO album_contract VALUES (%(id)s, 1, 60) ON CONFLICT (id) DO UPDATE SET rate = EXCLUDED.rate",
    "merge, update": "MERGE INTO album_contract t USING (VALUES (%(id)s)) AS s (id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET rate = 60",
    "merge, delete": "MERGE INTO album_contract t USING (VALUES (%(id)s)) AS s (id) ON t.id = s.id WHEN MATCHED THEN DELETE",
    "copy, then update": "CREATE TEMP TABLE loaded (id bigint, rate numeric); INSERT INTO loaded VALUES (%(id)s, 60); "
                         "UPDATE album_contract t SET rate = l.rate FROM loaded l WHERE t.id = l.id",
    "update through a view": "UPDATE album_rate SET rate = 60 WHERE id = %(id)s",
    "delete through a view": "DELETE FROM album_rate WHERE id = %(id)s",
    "update in a WITH": "WITH u AS (UPDATE album_contract SET rate = 60 WHERE id = %(id)s RETURNING id) SELECT count(*) FROM u",
    "update in a function": "DO $$ BEGIN UPDATE album_contract SET rate = 60 WHERE id = %(id)s; END $$",
    "update behind a savepoint": "SAVEPOINT a; UPDATE album_contract SET rate = 60 WHERE id = %(id)s; RELEASE a",
    "update to another scale": "UPDATE album_contract SET rate = 60, note = 'n', artist = artist WHERE id = %(id)s",
    "foreign key, on update cascade": "UPDATE artist SET id = id + 1000 WHERE id = %(id)s",
    "foreign key, on delete cascade": "DELETE FROM artist WHERE id = %(id)s",
    "update with a cursor": "DECLARE c CURSOR FOR SELECT * FROM album_contract WHERE id = %(id)s FOR UPDATE; FETCH c; "
                            "UPDATE album_contract SET rate = 60 WHERE CURRENT OF c",
    "update of a partitioned table": "UPDATE track_contract SET rate = 60 WHERE id = %(id)s",
    "update of a partition": "UPDATE track_contract_kr SET rate = 60 WHERE id = %(id)s",
    "delete of a partitioned table": "DELETE FROM track_contract WHERE id = %(id)s",
    "move to another partition": "UPDATE track_contract SET region = 'jp' WHERE id = %(id)s",
    "delete and insert": "WITH d AS (DELETE FROM album_contract WHERE id = %(id)s RETURNING *) INSERT INTO album_contract SELECT d.id + 1000, d.artist, 60 FROM d",
    "clear the stamp": "UPDATE album_contract SET lease_fence = NULL WHERE id = %(id)s AND lease_fence IS NOT NULL",
    "clear the stamp and update": "UPDATE album_contract SET lease_fence = NULL, rate = 60 WHERE id = %(id)s",
}
# Edits that no lease minds.
FREE = {
    "update of another column": "UPDATE album_contract SET note = 'changed' WHERE id = %(id)s",
    "a mapper that writes every column": "UPDATE album_contract SET id = id, artist = artist, rate = rate, terms = terms, note = 'changed' WHERE id = %(id)s",
    "insert on conflict, another column": "INSERT INTO album_contract VALUES (%(id)s, 1, 60) ON CONFLICT (id) DO UPDATE SET note = 'changed'",
    "insert on conflict do nothing": "INSERT INTO album_contract VALUES (%(id)s, 1, 60) ON CONFLICT DO NOTHING",
    "insert of a new row": "INSERT INTO album_contract VALUES (%(id)s + 1000, 1, 60)",
    "another column through a view": "UPDATE album_rate SET note = 'changed' WHERE id = %(id)s",
    "another column of a partition": "UPDATE track_contract SET note = 'changed' WHERE id = %(id)s",
    "lock": "SELECT * FROM album_contract WHERE id = %(id)s FOR UPDATE",
    "insert of a child row": "UPDATE artist SET name = 'changed' WHERE id = %(id)s",
}
# Edits that nobody makes, whatever the lease does.
NEVER = {
    "truncate": ("LE011", "TRUNCATE album_contract"),
    "truncate, cascading": ("LE011", "TRUNCATE artist CASCADE"),
    "truncate of a partitioned table": ("LE011", "TRUNCATE track_contract"),
    "truncate of one partition": ("LE011", "TRUNCATE track_contract_kr"),
    "insert with a stamp to come": ("LE013", "INSERT INTO album_contract (id, rate, lease_fence) VALUES (%(id)s + 1000, 1, 9007199254740991)"),
}


@pytest.fixture(scope="module", name="stage")
def fixture_stage(shared):
    """The states, made; and the edits' connections."""
    from rules import Lane
    lane = Lane(shared.conninfo)
    grants = {}
    for state, row in STATES.items():
        if state != "free":
            ttl = 200 if state in UNFINISHED else 600_000
            grants[state] = run_over(lane, f"run {row}", f"album-contract/{row}", f"track-contract/kr:{row}", ttl=ttl)
            assert grants[state], state
    lane.query("UPDATE lease.lease SET lease_until = NULL, check_at = NULL WHERE lease = 'run 3'")
    lane.commit()
    pass_by(lane, grants["lapsed and turned over"])
    assert lane.decide(grants["lapsed and turned over"].says("renew")).outcome == "lapsed"
    pass_by(lane, grants["lapsed"])
    lane.decide(grants["finished"].says("finish"))
    lane.decide(grants["failed"].fails(retry=False))
    lane.decide(grants["given back"].says("release"))
    editor, superuser = Lane(contracts.editor_of(shared)), Lane(shared.conninfo)
    yield editor, superuser, lane
    for one in (editor, superuser, lane):
        one.close()


def expected(path, state):
    """The outcome of one field of the matrix."""
    if path in NEVER:
        return NEVER[path][0]
    return "LE010" if path in GUARDED and state in LIVE else None


def outcomes(lane, level, sql, *before):
    """What one edit meets on the row of each state."""
    met = {}
    for state, row in STATES.items():
        with isolation(lane, level):
            for statement in before:
                lane.query(statement)
            met[state] = code_of(lane, sql, {"id": row})
    return met


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", [*GUARDED, *FREE, *NEVER])
def test_guard__an_edit_meets(stage, path, level):
    editor, superuser, _ = stage
    sql = GUARDED.get(path) or FREE.get(path) or NEVER[path][1]
    # Only who may do DDL truncates the parent table, too.
    lane = superuser if path == "truncate, cascading" else editor
    assert outcomes(lane, level, sql) == {state: expected(path, state) for state in STATES}


@pytest.mark.parametrize("path", [*GUARDED, *NEVER])
def test_guard__F10_a_session_in_the_role_of_a_replica_meets_the_same(stage, path):
    """session_replication_role = replica turns ordinary triggers off, foreign keys among them."""
    _, superuser, _ = stage
    sql = GUARDED.get(path) or NEVER[path][1]
    wanted = {state: None if path.startswith("foreign key") else expected(path, state) for state in STATES}
    assert outcomes(superuser, "READ COMMITTED", sql, "SET LOCAL session_replication_role = replica") == wanted


@pytest.mark.parametrize("level", LEVELS)
def test_guard__nobody_stamps_by_hand(stage, level):
    """A forged stamp would close a row to everybody, or open it to the lease that comes to this fence."""
    editor, _, lane = stage
    live = lane.value("SELECT fence FROM lease.lease WHERE lease = 'run 2'")
    lane.rollback()
    wanted = {state: "LE010" if state in LIVE else "LE013" for state in STATES}
    stamp = "UPDATE album_contract SET lease_fence = {} WHERE id = %(id)s"
    assert outcomes(editor, level, stamp.format(9007199254740991)) == wanted
    assert outcomes(editor, level, stamp.format(live)) == {**wanted, "held": None}, "the stamp that the row has is no change"
    with isolation(editor, level):
        assert code_of(editor, "INSERT INTO album_contract (id, rate, lease_fence) VALUES (1000, 1, %s)", (live,)) == "LE013"


@pytest.mark.parametrize("path", GUARDED)
def test_guard__an_edit_under_an_unfinished_lease_is_recorded(stage, path):
    """So that a late finish is told what its base data became. No other edit leaves a trace."""
    _, lane, _ = stage
    for state, row in STATES.items():
        if state in LIVE:
            continue
        with isolation(lane, "READ COMMITTED"):
            assert code_of(lane, GUARDED[path], {"id": row}) is None
            records = lane.query("SELECT a.id, a.by, a.old, a.new FROM lease.admitted_edits a WHERE a.lease = %s", (f"run {row}",))
        assert bool(records) == (state in UNFINISHED), state
        for row_id, by, old, new in records:
            assert by == "postgres" and row_id in (str(row), f"kr:{row}", f"jp:{row}")
            assert old is None or old["rate"] == "70.00"
            assert old != new or "stamp" in path


def test_guard__the_refusal_tells_the_person_what_to_do(stage):
    editor, _, lane = stage
    fence, since, until = lane.query("SELECT fence, lease.utc(since), lease.utc(lease_until) FROM lease.lease WHERE lease = 'run 2'")[0]
    lane.rollback()
    with pytest.raises(psycopg2.Error) as caught:
        editor.query("UPDATE album_contract SET rate = 60 WHERE id = 2")
    editor.rollback()
    told = caught.value.diag
    assert told.sqlstate == "LE010" and (told.schema_name, told.table_name) == ("public", "album_contract")
    assert told.message_primary == "album contract 2 cannot be changed while settlement run 2 is using it"
    beginning, _, rest = told.message_detail.partition(", in ")
    assert beginning == f"Type album-contract, id 2; kind settlement, run run 2, holder h1; fence {fence}; since {since}; until {until}"
    assert rest.endswith(" s, unless it is renewed.") and 0 < float(rest.split(" ")[0]) <= 600
    assert told.message_hint == "Only its columns id, artist, rate, terms are guarded. More: leasectl show settlement/run 2"


def test_guard__a_lease_without_an_expiry_is_told_as_an_operators_case(stage):
    editor, _, _ = stage
    with pytest.raises(psycopg2.Error) as caught:
        editor.query("DELETE FROM track_contract WHERE id = 3")
    editor.rollback()
    assert "id kr:3;" in caught.value.diag.message_detail
    assert caught.value.diag.message_detail.endswith("without an expiry: an operator has to resolve it.")
