"""Lane against lane, driven step by step: two connections, one of them in the middle of its transaction.

Each test opens with the race and what would go wrong. F numbers are facts that look wrong until they are tried;
tests/README.md lists them.
"""
import psycopg2
import psycopg2.errors
import pytest

from rules import Grant, Meanwhile, claim, eventually, request, start, waits_for_a_lock

RETRY = (psycopg2.errors.SerializationFailure, psycopg2.errors.DeadlockDetected)


def has_passed(watcher, moment):
    watcher.rollback()
    return watcher.value("SELECT clock_timestamp() > %s", (moment,))


def again(lane, *commands):
    """What a coordinator does with 40001: the whole transaction once more."""
    for _ in range(3):
        try:
            return lane.decide(*commands)
        except RETRY:
            lane.rollback()
    raise AssertionError("refused three times")


@pytest.fixture(name="a")
def fixture_a(new_lane):
    return new_lane()


@pytest.fixture(name="b")
def fixture_b(new_lane):
    return new_lane()


@pytest.fixture(name="watcher")
def fixture_watcher(new_lane):
    return new_lane()


# ---- F7, F25: the clock is read after the lock ----

@pytest.mark.parametrize("word", ["renew", "advance", "fail", "release"])
def test_F25_a_command_that_waited_behind_a_rolled_back_lane_is_judged_when_it_gets_the_lock(a, b, watcher, word):
    """B's command arrives in time and waits for A's lock until the lease has lapsed; A rolls back. A predicate that was evaluated
    before the wait is not evaluated again after a rollback, and would accept it late."""
    for number in range(10):      # on a machine that stands still, one may have lapsed before A speaks
        grant = a.grant_of(start(f"s{number}", ttl=400))
        answer = a.apply(grant.says("renew", ttl_ms=400))                     # A has the row, and does not commit
        if answer.outcome != "lapsed":
            break
        a.rollback()
    assert answer.outcome == "renewed"
    said = grant.fails() if word == "fail" else grant.says(word, **({"word": "calculated"} if word == "advance" else {}))
    waiting = Meanwhile(b.decide, said)
    waits_for_a_lock(watcher, b)
    eventually(lambda: has_passed(watcher, grant.until), what="the expiry")
    a.rollback()
    assert waiting.end().outcome == "lapsed"


def test_F7_a_command_that_waited_behind_a_committed_lane_is_judged_when_it_gets_the_lock(a, b, watcher):
    """As F25, but A commits something that moves no expiry (a refusal). now() stands still since B's transaction began."""
    grant = a.grant_of(start("s1", ttl=400))
    stranger = Grant("settlement", "s1", "h9", grant.fence, grant.claim_id)
    assert a.apply(stranger.says("renew")).outcome == "stale"
    waiting = Meanwhile(b.decide, grant.says("renew"))
    waits_for_a_lock(watcher, b)
    eventually(lambda: has_passed(watcher, grant.until), what="the expiry")
    a.commit()
    assert waiting.end().outcome == "lapsed"


def test_F25_a_late_finish_behind_a_rolled_back_start_still_counts(a, b, watcher):
    """The lease has lapsed; A starts it anew and rolls back while B, the last holder, waits to finish: nobody was granted since."""
    grant = a.grant_of(start("s1", ttl=1))
    eventually(lambda: has_passed(watcher, grant.until), what="the expiry")
    assert a.apply(start("s1", holder="h2")).outcome == "granted"
    waiting = Meanwhile(b.decide, grant.says("finish"))
    waits_for_a_lock(watcher, b)
    a.rollback()
    assert waiting.end().outcome == "finished"


def test_F25_a_late_finish_behind_a_committed_start_is_stale(a, b, watcher):
    grant = a.grant_of(start("s1", ttl=1))
    eventually(lambda: has_passed(watcher, grant.until), what="the expiry")
    assert a.apply(start("s1", holder="h2")).outcome == "granted"
    waiting = Meanwhile(b.decide, grant.says("finish"))
    waits_for_a_lock(watcher, b)
    a.commit()
    assert waiting.end().outcome == "stale"


# ---- F26: a request and a claim in two lanes ----

def open_and_ready(lane):
    """Demand and items that should have met each other."""
    return lane.query("SELECT d.worker, l.lease FROM lease.demand d JOIN lease.lease l ON l.kind = d.kind AND l.state = 'ready' AND l.ready_at <= clock_timestamp() "
                      "WHERE d.credit_total > d.granted_total AND d.open_until >= clock_timestamp()")


def test_F26_a_claim_that_commits_after_an_open_request_is_granted(a, b, watcher):
    """A puts an item in, B claims, neither sees the other's rows yet. Without matching as the last step, with a fresh snapshot,
    under one lock, both commit and one ready item waits beside one open demand for ever."""
    assert a.apply(request("i1")).outcome == "requested"
    waiting = Meanwhile(b.decide, claim("w1", 1, wait_ms=60000))
    waits_for_a_lock(watcher, b)
    a.commit()
    assert waiting.end().outcome == "granted"
    assert open_and_ready(watcher) == []


def test_F26_a_request_that_commits_after_an_open_claim_is_granted_to_it(a, b, watcher):
    assert a.apply(claim("w1", 1, wait_ms=60000)).outcome == "waiting"
    waiting = Meanwhile(b.decide, request("i1"))
    waits_for_a_lock(watcher, b)
    a.commit()
    assert waiting.end().outcome == "requested"
    assert [(g.subject, g.holder) for g in b.grants_after(0)] == [("i1", "w1")]
    assert open_and_ready(watcher) == []


def test_F26_a_claim_behind_a_rolled_back_request_waits_and_is_served_by_the_next_one(a, b, watcher):
    assert a.apply(request("i1")).outcome == "requested"
    waiting = Meanwhile(b.decide, claim("w1", 1, wait_ms=60000))
    waits_for_a_lock(watcher, b)
    a.rollback()
    assert waiting.end().outcome == "waiting"
    assert a.decide(request("i2")).outcome == "requested"
    assert [(g.subject, g.holder) for g in b.grants_after(0)] == [("i2", "w1")]


def test_F26_an_item_that_a_rolled_back_lane_had_in_hand_is_given_out_by_the_reaper(a, b, watcher):
    """B matches while A has the only ready item's row locked: B must not wait for it, and leaves it. A then rolls back, and matches
    nothing. The reaper must find that pair."""
    assert a.decide(request("i1")).outcome == "requested"
    a.query("SELECT 1 FROM lease.lease WHERE lease = 'i1' FOR NO KEY UPDATE")
    assert b.decide(claim("w1", 1, wait_ms=60000)).outcome == "waiting"
    a.rollback()
    assert watcher.reap() == (0, 1)
    assert open_and_ready(watcher) == []


# ---- starts against starts ----
# A lane decides without waiting for another, but commits one after the other: B's answer is there when A has ended.

def behind(watcher, lane, *commands):
    """Applies commands on a lane that will decide, and then wait for another's commit to number its answers."""
    waiting = Meanwhile(lane.decide, *commands)
    waits_for_a_lock(watcher, lane, "advisory")
    return waiting


def test_two_starts_over_one_resource_the_second_is_busy_while_the_first_is_open(a, b, watcher):
    """Both would stamp the same rows. The second may neither wait for the first's rows (its batch would hold up everybody) nor look
    past them; the rest of its batch goes on."""
    a.decide(start("s0", resources=["album/1", "album/2"], ttl=1))
    assert a.apply(start("s1", resources=["album/1"])).outcome == "granted"
    waiting = behind(watcher, b, start("s2", holder="h2", resources=["album/1"]), start("s3", holder="h3", resources=["album/3"]))
    a.commit()
    assert [answer.outcome for answer in waiting.end()] == ["busy", "granted"]
    answer = b.decide(start("s4", holder="h2", resources=["album/1"]))
    assert answer.outcome == "held"
    blocker = b.journal(answer.number - 1)[0]["blocker"]
    assert (blocker["lease"], blocker["resource"], blocker["holder"]) == ("s1", "album/1", "h1")


def test_two_starts_over_different_resources_of_one_ended_run_do_not_meet(a, b, watcher):
    """Both resources carry the stamp of the same lease, which has ended. Who locks that lease to be sure makes every start over the
    contracts of last month's run refuse the others."""
    ended = a.grant_of(start("s0", resources=["album/1", "album/2"]))
    assert a.decide(ended.says("finish")).outcome == "finished"
    assert a.apply(start("s1", resources=["album/1"])).outcome == "granted"
    waiting = behind(watcher, b, start("s2", holder="h2", resources=["album/2"]))
    a.commit()
    assert waiting.end().outcome == "granted"


def test_a_partition_that_a_topic_grew_later_is_told_apart(a):
    """Its keys stood in another partition before: who takes it for one that was always there reads them out of order."""
    assert a.value("SELECT known_partitions FROM lease.take_partition('t', 0, 12, 'o')") == 12
    assert a.value("SELECT known_partitions FROM lease.take_partition('t', 12, 13, 'o')") == 12
    a.rollback()


def test_two_starts_over_one_resource_that_was_never_covered_the_second_is_busy(a, b, watcher):
    """As above, but there is no row yet for the second to find locked: both would insert it."""
    assert a.apply(start("s1", resources=["album/1"])).outcome == "granted"
    waiting = behind(watcher, b, start("s2", holder="h2", resources=["album/1"]))
    a.rollback()
    assert waiting.end().outcome == "busy"
    assert b.decide(start("s3", holder="h2", resources=["album/1"])).outcome == "granted"


def test_a_busy_start_has_stamped_nothing(a, b, watcher):
    """All or none: what it could have had stays free."""
    assert a.apply(start("s1", resources=["album/1"])).outcome == "granted"
    waiting = behind(watcher, b, start("s2", resources=["album/0", "album/1", "album/2"]))
    a.commit()
    assert waiting.end().outcome == "busy"
    assert b.decide(start("s3", holder="h3", resources=["album/0", "album/2"])).outcome == "granted"


def test_a_busy_start_waits_for_no_row(a, b):
    """A stranger has the resource's row in hand (and not the journal): B's batch does not wait for that at all."""
    b.decide(start("s0", resources=["album/1"], ttl=1))
    a.query("SELECT 1 FROM lease.resource WHERE resource = 'album/1' FOR UPDATE")
    assert [x.outcome for x in b.decide(start("s2", resources=["album/1"]), start("s3", resources=["album/2"]))] == ["busy", "granted"]
    a.rollback()
    assert b.decide(start("s4", resources=["album/1"])).outcome == "granted"


def test_a_start_over_the_resource_of_a_lapsed_lease_in_another_lane_is_busy(a, b, watcher):
    """The lease behind the stamp has lapsed, but its row is in A's hand: perhaps A is finishing it. B must not take it over meanwhile."""
    grant = a.grant_of(start("s1", resources=["album/1"], ttl=1))
    eventually(lambda: has_passed(watcher, grant.until), what="the expiry")
    assert a.apply(grant.says("finish")).outcome == "finished"
    waiting = behind(watcher, b, start("s2", holder="h2", resources=["album/1"]))
    a.commit()
    assert waiting.end().outcome == "busy"
    assert b.decide(start("s3", holder="h2", resources=["album/1"])).outcome == "granted"


def test_two_lanes_that_insert_one_new_lease_grant_it_once(a, b, watcher):
    """There is no row to lock: both would insert. The second waits, is refused with 40001 after the first's commit, and tries again."""
    assert a.apply(start("s1", holder="h1")).outcome == "granted"
    waiting = Meanwhile(again, b, start("s1", holder="h2"))
    waits_for_a_lock(watcher, b)
    a.commit()
    assert waiting.end().outcome == "held"
    assert [row["event"] for row in watcher.journal(subject="s1")] == ["granted", "held"]


def test_two_lanes_that_insert_one_new_lease_the_second_gets_it_when_the_first_rolls_back(a, b, watcher):
    assert a.apply(start("s1", holder="h1")).outcome == "granted"
    waiting = Meanwhile(again, b, start("s1", holder="h2"))
    waits_for_a_lock(watcher, b)
    a.rollback()
    assert waiting.end().outcome == "granted"
    assert watcher.lease("settlement", "s1")["holder"] == "h2"


def test_lanes_that_name_the_same_leases_in_opposite_order_do_not_deadlock(a, b, watcher):
    first, second = a.grant_of(start("s1")), a.grant_of(start("s2"))
    a.apply(second.says("renew"), first.says("renew"))
    waiting = Meanwhile(b.decide, first.says("renew"), second.says("renew"))
    waits_for_a_lock(watcher, b)
    a.commit()
    assert [answer.outcome for answer in waiting.end()] == ["renewed", "renewed"]


# ---- deduplication ----

def test_one_message_in_two_lanes_is_applied_once(a, b, watcher):
    """The same source and id on two partitions: neither lane sees the other's answer yet, and both would apply it."""
    once = start("s1", id="same")
    assert a.apply(once).outcome == "granted"
    waiting = Meanwhile(again, b, dict(once, subject="s1"))
    waits_for_a_lock(watcher, b)
    a.commit()
    answer = waiting.end()
    assert answer.outcome == "duplicate"
    assert watcher.journal(answer.number - 1)[0]["original"]["outcome"] == "granted"


def test_one_id_under_two_keys_in_two_lanes_is_applied_once(a, b, watcher):
    """As above, but the leases differ, so that no lease's lock is in between: only the deduplication table can tell."""
    assert a.apply(start("s1", id="same")).outcome == "granted"
    other = start("s2", id="same")
    waiting = Meanwhile(again, b, other)
    waits_for_a_lock(watcher, b)
    a.commit()
    answer = waiting.end()
    assert (answer.outcome, watcher.lease("settlement", "s2")) == ("malformed", None)
    assert watcher.journal(answer.number - 1)[0]["reason"] == "id_reused"


def make_a_switch_due(lane):
    lane.query("UPDATE lease.setting SET dedup_switched_at = now() - dedup_window")
    lane.commit()


def slot(lane):
    value = lane.value("SELECT dedup_slot FROM lease.settings")
    lane.commit()
    return value


def test_F39_the_deduplication_slot_is_not_switched_under_a_running_batch(a, b, watcher):
    """A has read which slot is current and will write its ids there. A switch in between would let B write the same id into the next."""
    once = start("s1", id="same")
    assert a.apply(once).outcome == "granted"
    make_a_switch_due(watcher)
    before = slot(watcher)
    b.query("SELECT lease.housekeep()")           # gives way after a moment
    b.commit()
    assert slot(watcher) == before
    a.commit()
    b.query("SELECT lease.housekeep()")
    b.commit()
    assert slot(watcher) == (before + 1) % 3
    assert a.decide(once).outcome == "duplicate"


def test_F39_the_slot_is_not_switched_between_a_batch_reading_which_it_is_and_writing_there(a, b, new_lane, watcher):
    """A knows the slot and has not touched the table of ids yet: only its own lock on the slot keeps housekeeping away."""
    gate = new_lane()
    gate.query("LOCK TABLE ONLY lease.dedup IN ACCESS EXCLUSIVE MODE")
    make_a_switch_due(watcher)
    before = slot(watcher)
    once = start("s1", id="same")
    waiting = Meanwhile(a.decide, once)
    waits_for_a_lock(watcher, a)
    b.query("SELECT lease.housekeep()")
    b.commit()
    assert slot(watcher) == before
    gate.rollback()
    assert waiting.end().outcome == "granted"
    assert b.decide(once).outcome == "duplicate"


def test_F39_a_batch_that_starts_during_the_switch_waits_and_finds_the_old_ids(a, b, watcher):
    once = start("s1", id="same")
    assert b.decide(once).outcome == "granted"
    make_a_switch_due(watcher)
    a.query("SELECT lease.housekeep()")           # switched, not committed
    waiting = Meanwhile(b.decide, once)
    waits_for_a_lock(watcher, b)
    a.commit()
    assert waiting.end().outcome == "duplicate"


def test_F39_an_id_is_remembered_over_two_switches(a, b):
    """Three slots: a key is looked up in all, and a slot is emptied only when it is two switches old."""
    once = start("s1", id="same")
    assert a.decide(once).outcome == "granted"
    for _ in range(2):
        make_a_switch_due(b)
        b.query("SELECT lease.housekeep()")
        b.commit()
        assert a.decide(once).outcome == "duplicate"


# ---- the journal ----

def numbers(lane):
    return [row["number"] for row in lane.journal()]


def test_journal_numbers_are_gapless_when_a_lane_rolls_back(a, b, watcher):
    """Numbers from a sequence would be lost with A, and a reader could not tell a gap from a transaction that is still open."""
    a.decide(start("s1"))
    a.apply(start("s2"), start("s3"))
    waiting = Meanwhile(b.decide, start("s4"))
    waits_for_a_lock(watcher, b)
    a.rollback()
    assert waiting.end().outcome == "granted"
    assert numbers(watcher) == [1, 2]


def test_journal_numbers_are_drawn_in_commit_order(a, b, watcher):
    """B began after A and would like to commit first: it may not have a number below one that is not visible yet."""
    a.apply(start("s1"))
    waiting = Meanwhile(b.decide, start("s2"))
    waits_for_a_lock(watcher, b)
    assert numbers(watcher) == []
    a.commit()
    waiting.end()
    assert [(row["number"], row["subject"]) for row in watcher.journal()] == [(1, "s1"), (2, "s2")]


def test_F39_a_journal_without_its_old_partitions_goes_on_numbering(a, watcher):
    """Dropping everything that is published would leave no row to go on from: numbers would start again at 1."""
    watcher.query("UPDATE lease.setting SET journal_rows = 10, journal_keep = '0'")
    watcher.query("DELETE FROM lease.journal_partition; DROP TABLE lease.journal_1")
    watcher.query("CREATE TABLE lease.journal_1 PARTITION OF lease.journal FOR VALUES FROM (1) TO (11); INSERT INTO lease.journal_partition VALUES ('journal_1', 1, 11)")
    watcher.commit()
    for i in range(35):
        a.decide(start(f"s{i}"))
    epoch = a.value("SELECT epoch FROM lease.relay_take('r')")
    a.query("SELECT lease.relay_advance(%s, 35, '{}', '{}', '{}')", (epoch,))
    a.commit()
    for _ in range(10):
        watcher.query("SELECT lease.housekeep()")
        watcher.commit()
    left = numbers(watcher)
    assert left and left[0] > 1 and left[-1] == 35, left
    assert a.decide(start("later")).number == 36


def test_a_relay_that_was_superseded_is_refused(new_lane):
    """One relay at a time: while its session lives nobody else becomes it; when that has gone, its epoch is worth nothing any more."""
    first, second = new_lane(), new_lane()
    first.decide(start("s1"))
    epoch = first.value("SELECT epoch FROM lease.relay_take('first')")
    first.commit()
    assert second.query("SELECT epoch FROM lease.relay_take('second')") == []
    second.commit()
    assert len(first.query("SELECT number FROM lease.relay_read(%s, 0, 100, 1000000)", (epoch,))) == 1
    first.commit()
    first.close()
    row = eventually(lambda: (second.rollback(), second.query("SELECT epoch, published FROM lease.relay_take('second')"))[1], what="the role")[0]
    second.commit()
    assert row == (epoch + 1, 0)
    for call in ("relay_read(%s, 0, 10, 1000)", "relay_barrier(%s)", "relay_advance(%s, 1, '{}', '{}', '{}')", "restate(%s, '{settlement}', '{s1}')"):
        with pytest.raises(psycopg2.Error) as caught:
            second.query(f"SELECT lease.{call}", (epoch,))
        second.rollback()
        assert caught.value.pgcode == "LE005", call
    assert second.query("SELECT lease.relay_advance(%s, 1, '{}', '{}', '{}')", (epoch + 1,))


# ---- offsets (F12, F13) ----

def claims(lane, epoch, expected, upto):
    return lane.query("SELECT topic, epoch, next_offset FROM lease.claim_offsets('{t}', '{0}', %s, %s, %s, %s, '{0}', '{0}')",
                      ([epoch], [expected], [upto], [upto - 1]))


def take(lane, owner):
    row = lane.query("SELECT epoch, next_offset FROM lease.take_partition('t', 0, 12, %s)", (owner,))[0]
    lane.commit()
    return row


def test_F13_a_batch_of_a_coordinator_that_lost_its_partition_is_refused(a, b):
    """A was paused past its session; B has the partition now. A's offset would still be the right one: only the epoch tells."""
    old, _ = take(a, "a")
    assert take(b, "b") == (old + 1, None)
    assert claims(a, old, -1, 5) == [("t", old + 1, -1)]
    a.rollback()
    assert claims(b, old + 1, -1, 5) == []
    b.commit()


def test_F12_offsets_do_not_go_back_and_no_batch_counts_twice(a, b):
    epoch, _ = take(a, "a")
    assert claims(a, epoch, -1, 5) == []
    a.commit()
    assert claims(a, epoch, -1, 5) == [("t", epoch, 5)]     # the same batch once more, after a commit in doubt
    a.rollback()
    assert claims(a, epoch, 5, 9) == []
    a.commit()
    assert take(b, "b") == (epoch + 1, 9)


def test_F13_taking_a_partition_waits_for_the_batch_in_flight(a, b, watcher):
    """B may not read an offset that A's open transaction is about to move."""
    epoch, _ = take(a, "a")
    assert claims(a, epoch, -1, 5) == []
    waiting = Meanwhile(take, b, "b")
    waits_for_a_lock(watcher, b)
    a.commit()
    assert waiting.end() == (epoch + 1, 5)


# ---- F21: the reaper ----

def test_F21_the_reaper_does_not_overwrite_what_a_lane_has_in_hand(a, watcher):
    """A reaper that picks from an old snapshot and writes by id alone turns a lease over that was just finished."""
    grant = a.grant_of(start("s1", ttl=1))
    eventually(lambda: has_passed(watcher, grant.until), what="the expiry")
    assert a.apply(grant.says("finish")).outcome == "finished"
    assert watcher.reap() == (0, 0)      # skipped, not waited for
    a.commit()
    assert watcher.reap() == (0, 0)
    assert watcher.lease("settlement", "s1")["state"] == "finished"


def test_F21_the_reaper_is_not_starved_by_leases_without_an_expiry(a):
    """Rows that it may not take must not fill its batches."""
    a.query("INSERT INTO lease.lease (kind, lease, state, holder) SELECT 'settlement', 'old' || i, 'held', 'h' FROM generate_series(1, 50) i")
    a.grant_of(start("s1", ttl=1000), at=0)
    assert a.reap(limit=1, at=10) == (1, 0)
    assert a.value("SELECT count(*) FROM lease.leases WHERE condition = 'unfenced'") == 50


def test_F40_an_item_that_kills_every_worker_becomes_dead(a):
    """Silence burns an attempt: a poison item is not given out for ever."""
    a.decide(request("i1"), at=0)
    for attempt in range(1, 6):
        assert a.outcomes(claim("w1", attempt, refresh=attempt, ttl=1000), at=attempt * 1000) == "granted"
    assert a.reap(at=9000) == (1, 0)
    row = a.lease("cleanup", "i1")
    assert (row["state"], row["attempt"]) == ("dead", 5)
    assert a.outcomes(claim("w1", 6, refresh=6), at=9001) == "empty"


def test_F34_a_grant_out_of_open_demand_names_the_newest_refresh(a):
    """The worker's deadline counts from when it sent the refresh that the grant names: an older one would make it too short, a newer too long."""
    a.decide(claim("w1", 1, refresh=1, wait_ms=5000), at=0)
    newest = claim("w1", 1, refresh=2, wait_ms=5000)
    a.decide(newest, at=1)
    a.decide(request("i1"), at=2)
    row = [r for r in a.journal() if r["is_grant"]][0]
    assert (row["refresh"], row["message_id"], row["command"]) == (2, newest["id"], None)


def written_by(lane):
    """table → rows inserted and rows changed by this connection, those of its earlier transactions as well."""
    return {name: (inserted, changed) for name, inserted, changed in lane.query(
        "SELECT relname, n_tup_ins, n_tup_upd + n_tup_del FROM pg_stat_xact_user_tables WHERE schemaname = 'lease'")}


def test_F33_what_every_batch_writes_is_appended(a, b):
    """Under a long snapshot of somebody's, a row that each batch updates has a chain of versions that each batch must walk: within
    seconds it costs double. Offsets, numbers, answers and the relay's progress are inserted; so is a new lease."""
    epoch = b.value("SELECT epoch FROM lease.take_partition('settlement.events', 0, 12, 'one')")
    relay = b.value("SELECT epoch FROM lease.relay_take('one')")
    b.commit()
    for offset in range(3):
        lost = a.query("SELECT * FROM lease.claim_offsets(ARRAY['settlement.events'], ARRAY[0], ARRAY[%s]::bigint[], ARRAY[%s]::bigint[],"
                       " ARRAY[%s]::bigint[], ARRAY[%s]::bigint[], ARRAY[0]::bigint[], ARRAY[0]::bigint[])",
                       (epoch, offset or -1, offset + 1, offset))
        assert lost == [] and a.apply(start(f"run-{offset}")).outcome == "granted"
        a.query("SELECT lease.relay_advance(%s, %s, '{}', '{}', '{}')", (relay, offset))
        a.commit()
    written = written_by(a)
    assert {name for name, (inserted, _) in written.items() if inserted} >= {"consumed", "relay_progress", "lease"}, written
    assert {name for name, (_, changed) in written.items() if changed} == set()
