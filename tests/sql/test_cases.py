"""What only people can decide: work from before fencing, and runs whose holder fell silent; listed with what is known of it, and resolved."""
import json

import pytest

from rules import Meanwhile, claim, command, eventually, moment, request, resolve, start, waits_for_a_lock

TTL, LIVE, LATE = 10_000, 1, 100


@pytest.fixture(name="lane")
def fixture_lane(undone_lane):
    return undone_lane


def unfenced(lane, kind="cleanup", lease="i1", fence=None, attempt=1):
    lane.query("INSERT INTO lease.lease (kind, lease, state, holder, fence, since, attempt) VALUES (%s, %s, 'held', 'host-3', %s, '2020-01-01Z', %s)",
               (kind, lease, fence, attempt))


def last(lane):
    return lane.journal()[-1]


def cases(lane):
    names = ("kind", "lease", "what", "holder", "fence", "attempt", "last_event")
    return [dict(zip(names, row)) for row in lane.query(f"SELECT {', '.join(names)} FROM lease.cases ORDER BY kind, lease")]


# ---- the three verdicts ----

@pytest.mark.parametrize("kind", ["cleanup", "settlement"])
@pytest.mark.parametrize("fence", [None, 7])
def test_done_ends_it_well_for_good(lane, kind, fence):
    unfenced(lane, kind, fence=fence)
    assert lane.outcomes(resolve(kind, "i1", "done", fence=fence), at=LIVE) == "finished"
    row = last(lane)
    assert row["operator"] == {"actor": "ann", "reason": "seen on the disk", "verdict": "done", "fence": fence}
    assert (row["state"], row["holder"], row["changes_lease"], row["is_grant"]) == ("finished", "host-3", True, False)
    assert row["min_fence"] >= 1
    assert lane.lease(kind, "i1")["state"] == "finished" and cases(lane) == []
    assert lane.outcomes(resolve(kind, "i1", "not_done", fence=fence), at=LIVE) == "final"


def test_not_done_gives_the_item_to_the_next_claim_and_burns_no_attempt(lane):
    unfenced(lane, attempt=3)
    answers = lane.outcomes(resolve("cleanup", "i1", "not_done"), claim("w1", 1), at=LIVE)
    assert answers == ["released", "granted"]
    lease = lane.lease("cleanup", "i1")
    assert (lease["holder"], lease["attempt"], lease["condition"]) == ("w1", 3, "held")


def test_not_done_sets_a_run_free_for_the_next_start(lane):
    unfenced(lane, "settlement", "s1")
    assert lane.outcomes(start("s1", holder="h2"), at=LIVE) == "held"
    assert lane.outcomes(resolve("settlement", "s1", "not_done"), start("s1", holder="h2"), at=LIVE) == ["released", "granted"]


def test_extended_work_is_left_to_its_holder_and_then_lapses(lane):
    lane.query("ALTER SEQUENCE lease.fence RESTART")       # nothing was granted yet
    unfenced(lane)
    fences = lane.value("SELECT last_value FROM lease.fence")
    answer = lane.decide(resolve("cleanup", "i1", "extend", ttl=TTL), at=0)
    assert (answer.outcome, answer.fence, answer.claim_id, answer.until) == ("renewed", None, None, moment(10))
    assert lane.value("SELECT last_value FROM lease.fence") == fences and not last(lane)["is_grant"]
    assert lane.lease("cleanup", "i1")["condition"] == "unfenced"
    assert [(case["what"], case["last_event"]) for case in cases(lane)] == [("extended", "renewed")]
    assert lane.outcomes(request("i1"), at=9) == "held"
    assert lane.reap(at=9)[0] == 0
    assert lane.reap(at=10)[0] == 1
    row = last(lane)
    assert (row["event"], row["state"]) == ("lapsed", "ready") and row["min_fence"] <= lane.claim_one("i1", at=LATE).fence


def test_extended_work_can_be_extended_again_never_shortened_and_still_be_resolved(lane):
    unfenced(lane)
    untils = [lane.decide(resolve("cleanup", "i1", "extend", ttl=ttl), at=0).until for ttl in (TTL, 2 * TTL, TTL)]
    assert untils == [moment(10), moment(20), moment(20)]
    assert lane.reap(at=19)[0] == 0
    assert lane.outcomes(resolve("cleanup", "i1", "done"), at=19) == "finished"


def test_an_extension_is_bounded_by_the_kind(lane):
    unfenced(lane)
    assert lane.outcomes(resolve("cleanup", "i1", "extend", ttl=3600001), at=0) == "malformed"
    assert (last(lane)["reason"], last(lane)["field"]) == ("ttl_above_maximum", "ttl_ms")


def test_an_extended_item_at_its_last_attempt_is_dead_when_it_lapses(lane):
    unfenced(lane, attempt=5)
    assert lane.outcomes(resolve("cleanup", "i1", "extend", ttl=TTL), at=0) == "renewed"
    lane.reap(at=LATE)
    assert (last(lane)["event"], lane.lease("cleanup", "i1")["state"]) == ("dead", "dead")


# ---- whom it does not touch ----

def test_a_live_grant_is_its_holders_whatever_an_operator_says(lane):
    grant = lane.grant_of(start("s1", ttl=TTL), at=0)
    for verdict in ("done", "not_done"):
        assert lane.outcomes(resolve("settlement", "s1", verdict, fence=grant.fence), at=LIVE) == "held"
        assert last(lane)["blocker"]["holder"] == "h1" and last(lane)["operator"]["verdict"] == verdict
    assert lane.outcomes(grant.says("renew"), at=LIVE) == "renewed"


def test_a_fence_that_is_not_the_leases_any_more_is_stale(lane):
    grant = lane.grant_of(start("s1", ttl=TTL), at=0)
    second = lane.grant_of(start("s1", holder="h2", ttl=TTL), at=LATE)
    for fence in (grant.fence, None, second.fence + 1):
        assert lane.outcomes(resolve("settlement", "s1", "done", fence=fence), at=LATE * 2) == "stale"
    row = last(lane)
    assert (row["holder"], row["fence"], row["operator"]["actor"], row["changes_lease"]) == (None, second.fence + 1, "ann", False)


def test_the_silent_holder_of_a_run_that_an_operator_set_free_is_not_heard_any_more(lane):
    for _ in range(3):
        grant = lane.grant_of(start("s1", ttl=TTL), at=0)
        assert lane.outcomes(grant.fails(), at=0) == "failed"
    grant = lane.grant_of(start("s1", ttl=TTL), at=0)
    assert lane.outcomes(resolve("settlement", "s1", "not_done", fence=grant.fence), at=LATE) == "released"
    assert lane.outcomes(grant.says("finish"), at=LATE) == "stale"
    assert lane.lease("settlement", "s1")["attempt"] == 3
    assert lane.outcomes(resolve("settlement", "s1", "not_done", fence=grant.fence), at=LATE) == "released"
    assert lane.lease("settlement", "s1")["attempt"] == 3


def test_a_chain_of_steps_that_stopped_half_way_can_be_said_to_be_done(lane):
    grant = lane.grant_of(start("r1", kind="share-ratio", ttl=TTL), at=0)
    assert lane.outcomes(grant.says("advance", word="deleting"), at=LIVE) == "advanced"
    assert lane.outcomes(resolve("share-ratio", "r1", "extend", fence=grant.fence, ttl=TTL), at=LATE) == "out_of_step"
    assert [(case["what"], case["fence"]) for case in cases(lane)] == [("lapsed", grant.fence)]
    assert lane.outcomes(resolve("share-ratio", "r1", "done", fence=grant.fence), at=LATE) == "finished"
    assert last(lane)["step"] == "deleting" and cases(lane) == []


def test_a_resolve_that_comes_twice_is_answered_once(lane):
    unfenced(lane)
    once = resolve("cleanup", "i1", "done")
    assert [lane.outcomes(once, at=LIVE), lane.outcomes(once, at=LIVE)] == ["finished", "duplicate"]
    assert lane.outcomes(resolve("cleanup", "nowhere", "done"), at=LIVE) == "unknown"


# ---- against others at the same moment ----

def test_two_operators_at_once__one_is_heard_the_other_is_told(database, new_lane):
    a, b = new_lane(), new_lane()
    unfenced(a)
    a.commit()
    assert a.apply(resolve("cleanup", "i1", "done")).outcome == "finished"
    other = Meanwhile(b.decide, resolve("cleanup", "i1", "not_done", actor="bob"))
    waits_for_a_lock(new_lane(), b)
    a.commit()
    assert other.end().outcome == "final"


def test_what_is_in_progress_keeps_a_writer_off_the_file(lane):
    """The fence that the importer draws is on the resource; the operator's word takes it away."""
    table(lane, ("17", "IN_PROGRESS", None, None))
    lane.query("SELECT lease.import_claims('old_cleanup', 'ann', 'cut-over')")
    fence = lane.lease("cleanup", "17")["fence"]
    write = dict(holder="h1", resources=["file/17"], kind="file-write")
    assert lane.outcomes(start("w1", **write), at=LIVE) == "held"
    assert last(lane)["blocker"] == {"kind": "cleanup", "lease": "17", "resource": "file/17", "holder": "unknown",
                                     "fence": fence, "since": "2026-09-02T10:00:00.000000Z"}
    assert lane.outcomes(resolve("cleanup", "17", "done", fence=fence), start("w2", **write), at=LIVE) == ["finished", "granted"]


# ---- the importer ----

def table(lane, *rows, columns="claim_owner text, lease_until timestamptz, claim_token text, claim_fence bigint NOT NULL DEFAULT 0"):
    """The old file server's: a status, and the columns that came later, which older claims do not fill."""
    lane.query(f"CREATE TEMPORARY TABLE old_cleanup (id text PRIMARY KEY, status text NOT NULL, path text, updated_at timestamptz, {columns}) ON COMMIT DROP")
    for lease, status, owner, until in rows:
        lane.query("INSERT INTO old_cleanup (id, status, path, updated_at, claim_owner, lease_until, claim_token, claim_fence) VALUES "
                   "(%s, %s, 'a/' || %s, '2026-09-02 10:00Z', %s, %s, 'secret-' || %s, 2)", (lease, status, lease, owner, until, lease))


def imported(lane, **options):
    given = "".join(f", p_{name} => %({name})s" for name in options)
    return dict(lane.query(f"SELECT * FROM lease.import_claims('pg_temp.old_cleanup', 'ann', 'cut-over'{given})", options))


def test_rows_of_the_old_shape_become_leases_each_once(lane):
    table(lane, ("1", "IN_PROGRESS", None, None), ("2", "IN_PROGRESS", "host-3", None), ("3", "IN_PROGRESS", "host 4", moment(60)),
          ("4", "PENDING", None, None), ("5", "DONE", "host-3", None), ("6//6", "DONE", None, None))
    assert imported(lane) == {"held": 3, "ready": 1, "finished": 1, "unnameable": 1}
    assert imported(lane) == {"unnameable": 1}
    rows = {row["subject"]: row for row in lane.journal()}
    assert {row["event"] for row in rows.values()} == {"imported"} and len(rows) == 5
    assert {row["operator"]["actor"] for row in rows.values()} == {"ann"} and all(row["changes_lease"] for row in rows.values())
    told = {lease: (row["state"], row["condition"], row["holder"], row["lease_until"], row["attempt"]) for lease in "12345"
            for row in [lane.lease("cleanup", lease)]}
    assert told == {"1": ("held", "unfenced", "unknown", None, 2), "2": ("held", "unfenced", "host-3", None, 2),
                    "3": ("held", "unfenced", "unknown", moment(60), 2), "4": ("ready", "ready", None, None, 2),
                    "5": ("finished", "finished", None, None, 2)}
    assert [(case["lease"], case["what"]) for case in cases(lane)] == [("1", "unfenced"), ("2", "unfenced"), ("3", "extended")]
    payload = json.loads(lane.value("SELECT payload::text FROM lease.lease WHERE lease = '1'"))
    assert payload["path"] == "a/1" and not any(str(value).startswith("secret") for value in payload.values())
    assert not any("secret" in str(row) for row in rows.values())


def test_what_was_in_progress_is_taken_by_nobody_but_what_waits_is_claimed(lane):
    table(lane, ("1", "IN_PROGRESS", None, None), ("2", "IN_PROGRESS", "h1", moment(60)), ("3", "PENDING", None, None), ("4", "COMPLETED", None, None))
    imported(lane)
    before = lane.last_number()
    assert lane.outcomes(claim("w1", 10, wait_ms=86400000), at=LIVE) == "granted"
    assert [grant.subject for grant in lane.grants_after(before)] == ["3"]
    for at in (10, 70, 10000):
        lane.reap(at=at)
    assert {grant.subject for grant in lane.grants_after(before)} == {"2", "3"}
    assert lane.lease("cleanup", "1")["condition"] == "unfenced"
    assert lane.outcomes(command("cleanup", "finish", "1", holder="unknown", fence=lane.lease("cleanup", "1")["fence"], token_fits=True), at=LIVE) == "stale"


def test_a_large_table_comes_in_parts(lane):
    table(lane, *((f"{number:03}", "IN_PROGRESS", None, None) for number in range(25)))
    assert [imported(lane, limit=10) for _ in range(4)] == [{"held": 10}, {"held": 10}, {"held": 5}, {}]
    assert len({row["fence"] for row in lane.journal()}) == 25


def test_a_file_that_somebody_writes_comes_later_and_one_that_lapsed_is_overtaken(lane):
    live = lane.grant_of(start("w1", kind="file-write", resources=["file/1"], ttl=3600000))
    silent = lane.grant_of(start("w2", kind="file-write", resources=["file/2"], ttl=1))
    eventually(lambda: lane.reap()[0] == 1, what="a lapse")
    table(lane, ("1", "IN_PROGRESS", None, None), ("2", "IN_PROGRESS", None, None))
    assert imported(lane) == {"held": 1, "covered": 1}
    assert lane.outcomes(silent.says("finish")) == "stale"
    assert lane.outcomes(live.says("finish")) == "finished"
    assert imported(lane) == {"held": 1}


def test_other_names_and_words_are_given(lane):
    lane.query('CREATE TEMPORARY TABLE old_cleanup ("Item No" int, state text, worker text) ON COMMIT DROP')
    lane.query("INSERT INTO old_cleanup VALUES (1, 'busy', 'w7'), (2, 'lost', NULL)")
    assert imported(lane, columns='{"id": "Item No", "status": "state", "owner": "worker"}', states='{"busy": "held", "lost": "dead"}') == {"held": 1, "dead": 1}
    assert (lane.lease("cleanup", "1")["holder"], lane.lease("cleanup", "2")["state"]) == ("w7", "dead")


@pytest.mark.parametrize("options, code, words", [
    ({"states": '{"DONE": "finished"}'}, "22023", "IN_PROGRESS"), ({"states": '{"IN_PROGRESS": "free"}'}, "22023", "p_states"),
    ({"columns": '{"owner": "worker"}'}, "42703", "owner"), ({"columns": '{"id": "no"}'}, "42703", "id"),
    ({"kind": "settlement"}, "22023", "pool"), ({"kind": "nothing"}, "22023", "pool")])
def test_what_will_not_do_is_refused_whole(lane, options, code, words):
    table(lane, ("1", "IN_PROGRESS", None, None))
    with pytest.raises(Exception, match=words) as refused:
        imported(lane, **options)
    assert refused.value.pgcode == code


@pytest.mark.parametrize("actor, reason", [("", "why"), (None, "why"), ("ann", None), ("ann", ""), ("Ann B", "why"), ("ann", "two\nlines")])
def test_who_and_why_are_asked_for(lane, actor, reason):
    table(lane)
    with pytest.raises(Exception, match="who imports") as refused:
        lane.query("SELECT lease.import_claims('old_cleanup', %s, %s)", (actor, reason))
    assert refused.value.pgcode == "22023"
