# ctest: LABEL guard TIMEOUT 400
"""An edit and a lease, step by step on two connections, in both orders and at every isolation level.

What would go wrong: the edit looks, the lease begins, the edit is written (a change under a live lease); or the lease begins over a row
whose change is on its way (a run that reads what nobody will ever see again). Both update the same row, so one of them meets the other:
F8. Who comes second under REPEATABLE READ or SERIALIZABLE gets 40001, under READ COMMITTED the guard looks at the row's new version: F9.

The expiry is no part of the row, so reading it must not race with its renewal: F24.
"""
import time

import pytest

import contracts
from contracts import code_of, edit, isolation, pass_by, run_over
from rules import Meanwhile, eventually, waits_for_a_lock

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
SNAPSHOTS = LEVELS[1:]
IMMEDIATE_S = 10    # far more than a refusal takes on a slow machine, far less than any lease here lives
EDIT = "UPDATE album_contract SET rate = 60 WHERE id = 1"
WRITES = {"update": EDIT, "delete": "DELETE FROM album_contract WHERE id = 1",
          "upsert": "INSERT INTO album_contract VALUES (1, 1, 60) ON CONFLICT (id) DO UPDATE SET rate = EXCLUDED.rate",
          "merge": "MERGE INTO album_contract t USING (VALUES (1)) AS s (id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET rate = 60"}


def begin(editor, level):
    """A transaction whose snapshot is taken now."""
    editor.rollback()
    editor.query(f"SET TRANSACTION ISOLATION LEVEL {level}")
    editor.query("SELECT count(*) FROM album_contract")


def rate(lane):
    lane.rollback()
    value = lane.value("SELECT rate FROM album_contract WHERE id = 1")
    lane.rollback()
    return value


def granted_and(lane, then):
    """A grant and its renewal in time, by `then`. Where the machine stood still for so long in between that the lease lapsed: another one, with
    more time."""
    for ttl in (1000, 5000, 20000):
        grant = run_over(lane, f"run for {ttl}", "album-contract/1", ttl=ttl)
        if then(grant).outcome == "renewed":
            return grant
        lane.commit()
    raise AssertionError("it is never renewed")


def wait_past(lane, grant):
    """Until a lease's first expiry has passed, without a look at the lease (whose row may be locked)."""
    def is_over():
        lane.rollback()
        return lane.value("SELECT clock_timestamp() > %s", (grant.until,))
    eventually(is_over, 60, "the old expiry")
    lane.rollback()


# --- the edit first --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("write", WRITES)
def test_F8_a_start_meets_an_edit_that_is_on_its_way_as_busy(lane, editor, level, write):
    begin(editor, level)
    assert code_of(editor, WRITES[write]) is None
    begun = time.monotonic()
    assert run_over(lane, "r1", "album-contract/2", "album-contract/1") is None
    assert time.monotonic() - begun < IMMEDIATE_S
    assert lane.value("SELECT count(*) FROM album_contract WHERE lease_fence IS NOT NULL") == 0, "all or none"
    editor.rollback()
    assert run_over(lane, "r2", "album-contract/2", "album-contract/1")


@pytest.mark.parametrize("level", LEVELS)
def test_F8_no_start_misses_a_committed_edit(lane, editor, level):
    """Nor one that a lane with an older snapshot of its own begins."""
    lane.query("SELECT count(*) FROM album_contract")      # the lane's transaction is open all the while
    begin(editor, level)
    assert code_of(editor, EDIT) is None
    editor.commit()
    grant = run_over(lane, "r1", "album-contract/1")
    assert grant and rate(lane) == 60
    assert edit(editor, "UPDATE album_contract SET rate = 50 WHERE id = 1") == "LE010"


@pytest.mark.parametrize("level", LEVELS)
def test_F8_a_start_over_a_row_that_somebody_deletes(lane, editor, level):
    begin(editor, level)
    assert code_of(editor, WRITES["delete"]) is None
    assert run_over(lane, "r1", "album-contract/1") is None
    editor.commit()
    assert run_over(lane, "r1", "album-contract/1") is None
    lane.rollback()


# --- the lease first -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("write", WRITES)
def test_F9_an_edit_that_waited_for_a_start_is_refused(database, lane, editor, connect, level, write):
    watcher = connect(database)
    grant = run_over(lane, "r1", "album-contract/1", commit=False)
    assert grant
    begin(editor, level)
    waiting = Meanwhile(edit, editor, WRITES[write])
    waits_for_a_lock(watcher, editor)
    lane.commit()
    assert waiting.end() == ("LE010" if level == "READ COMMITTED" else "40001")
    assert rate(lane) == 70


@pytest.mark.parametrize("level", LEVELS)
def test_F9_an_edit_that_waited_for_a_start_that_came_to_nothing_goes_through(database, lane, editor, connect, level):
    watcher = connect(database)
    assert run_over(lane, "r1", "album-contract/1", commit=False)
    begin(editor, level)
    waiting = Meanwhile(edit, editor, EDIT)
    waits_for_a_lock(watcher, editor)
    lane.rollback()
    assert waiting.end() is None
    assert rate(lane) == 60


@pytest.mark.parametrize("level", LEVELS)
def test_F9_an_edit_whose_snapshot_is_older_than_the_lease_is_refused(lane, editor, level):
    begin(editor, level)
    assert run_over(lane, "r1", "album-contract/1")
    assert edit(editor, EDIT) == ("LE010" if level == "READ COMMITTED" else "40001")


@pytest.mark.parametrize("level", LEVELS)
def test_guard__an_edit_whose_snapshot_is_older_than_the_leases_end_is_not_refused_by_it(lane, editor, level):
    """By its snapshot's word the lease lives: it is told to look again (40001), and then goes through."""
    grant = run_over(lane, "r1", "album-contract/1")
    begin(editor, level)
    lane.decide(grant.says("finish"))
    assert edit(editor, EDIT) == (None if level == "READ COMMITTED" else "40001")
    begin(editor, level)
    assert edit(editor, EDIT) is None


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("end", ["finish", "release", "fail"])
def test_guard__while_the_end_is_on_its_way_the_lease_still_lives(lane, editor, level, end):
    """What ends it may still be rolled back; nobody waits for it."""
    grant = run_over(lane, "r1", "album-contract/1")
    lane.apply(grant.fails() if end == "fail" else grant.says(end))
    begin(editor, level)
    begun = time.monotonic()
    assert edit(editor, EDIT) == "LE010"
    assert time.monotonic() - begun < IMMEDIATE_S
    lane.commit()
    begin(editor, level)
    assert edit(editor, EDIT) is None


@pytest.mark.parametrize("level", LEVELS)
def test_guard__an_edit_of_a_lapsed_row_and_the_next_start_meet_in_the_row(lane, editor, connect, database, level):
    grant = run_over(lane, "r1", "album-contract/1", ttl=50)
    pass_by(lane, grant)
    begin(editor, level)
    assert code_of(editor, EDIT) is None
    assert run_over(lane, "r2", "album-contract/1") is None, "the row is in the editor's hands"
    editor.commit()
    assert run_over(lane, "r2", "album-contract/1")
    assert edit(editor, "UPDATE album_contract SET rate = 50 WHERE id = 1") == "LE010"


# --- the expiry ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("level", SNAPSHOTS)
def test_F24_an_old_snapshot_of_the_expiry_lets_nobody_in(lane, editor, level):
    """The snapshot says that the lease has expired; it was renewed since."""
    def renewed(grant):
        begin(editor, level)
        return lane.decide(grant.says("renew", ttl_ms=60_000))
    wait_past(lane, granted_and(lane, renewed))
    assert edit(editor, EDIT) == "40001"
    begin(editor, level)
    assert edit(editor, EDIT) == "LE010"


@pytest.mark.parametrize("level", LEVELS)
def test_F24_an_expiry_that_is_being_moved_lets_nobody_in(lane, editor, level):
    """The renewal was decided in time; its transaction is still open when the old expiry has passed."""
    wait_past(editor, granted_and(lane, lambda grant: lane.apply(grant.says("renew", ttl_ms=60_000))))
    begin(editor, level)
    begun = time.monotonic()
    assert edit(editor, EDIT) == "LE010"
    assert time.monotonic() - begun < IMMEDIATE_S, "it waited for the renewal"
    begin(editor, level)
    lane.commit()
    assert edit(editor, EDIT) == ("LE010" if level == "READ COMMITTED" else "40001")
    assert edit(editor, EDIT) == "LE010"


@pytest.mark.parametrize("level", LEVELS)
def test_F24_a_renewal_that_came_to_nothing_keeps_nobody_out(lane, editor, level):
    wait_past(editor, granted_and(lane, lambda grant: lane.apply(grant.says("renew", ttl_ms=60_000))))
    lane.rollback()
    begin(editor, level)
    assert edit(editor, EDIT) is None


@pytest.mark.parametrize("level", LEVELS)
def test_guard__a_look_at_the_lease_leaves_no_lock_on_it(lane, editor, level):
    """The editor's transaction stays open; the late holder and the reaper go on."""
    grant = run_over(lane, "r1", "album-contract/1", ttl=50)
    pass_by(lane, grant)
    begin(editor, level)
    assert code_of(editor, EDIT) is None
    assert lane.decide(grant.says("finish")).outcome == "finished"
    editor.commit()


def test_guard__the_row_opens_with_the_expiry_and_without_a_coordinator(lane, editor):
    """Nobody turns the lease over: the first edit that comes after the expiry goes through, and none before."""
    for ttl in (300, 5000, 20000):      # the longer ones only if the machine stood still for the whole of it
        grant = run_over(lane, f"run for {ttl}", "album-contract/1", ttl=ttl)
        refused = 0
        while edit(editor, EDIT) is not None:
            refused += 1
        assert lane.value("SELECT max(at) FROM lease.admitted_edit") >= grant.until
        lane.rollback()
        if refused > 0:
            break
    assert refused > 0


@pytest.mark.parametrize("level", LEVELS)
def test_guard__the_holder_writes_and_nobody_else_does(database, lane, connect, level):
    """Fence and claim id are no secrets: they count only under a login that was granted lease_holder."""
    holder, stranger = connect(database, contracts.editor_of(database)), connect(database, contracts.editor_of(database))
    name = holder.value("SELECT current_user")
    holder.rollback()
    lane.query(f'GRANT lease_holder TO "{name}"')
    lane.commit()
    grant = run_over(lane, "r1", "album-contract/1")
    older = run_over(lane, "r0", "album-contract/2")

    def presented(one, fence, claim_id):
        with isolation(one, level):
            one.query("SELECT set_config('lease.fence', %s, true), set_config('lease.claim_id', %s, true)", (str(fence), claim_id))
            return code_of(one, EDIT)
    assert presented(holder, grant.fence, grant.claim_id) is None
    assert presented(holder, grant.fence, grant.claim_id.upper()) is None
    assert presented(stranger, grant.fence, grant.claim_id) == "LE010"
    assert presented(holder, older.fence, older.claim_id) == "LE010"
    assert presented(holder, grant.fence, older.claim_id) == "LE010"
    assert presented(holder, "", "") == "LE010"
    with isolation(holder, level):
        holder.query("SELECT set_config('lease.fence', %s, true), set_config('lease.claim_id', %s, true)", (str(grant.fence), grant.claim_id))
        assert code_of(holder, "UPDATE album_contract SET lease_fence = NULL WHERE id = 1") == "LE010", "the stamp is not his"
