"""The rules as a table: one row per (mode, condition, command, fits) with its outcome and the condition that follows.

transitions.txt is the table as people read it. The view lease.transitions must say the same, and so must lease.apply: each row is
played on a lease that was brought into that condition, once with everything right or, where `fits` is false, once for each way
of being wrong. To accept a change of the rules: print the view with `pytest --print-transitions` and look at the difference.
"""
import os
import re

import pytest

from rules import Grant, claim, command, moment, over, request, resolve, start

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "transitions.txt")
FOREIGN = Grant("settlement", "s1", "h1", 2 ** 40, "11111111-2222-4333-8444-555555555555")
TTL = 10_000          # ms; leases are granted at moment 0 …
LIVE, LATE = 1, 100   # … and looked at while they live, or when their expiry and any backoff are past


def table_text(rows):
    lines = [f"{mode:<5}{condition:<10}{word:<9}{'fits' if fits else '-':<6}{outcome:<13}{after}" for mode, condition, word, fits, outcome, after in rows]
    return "\n".join([f"{'mode':<5}{'condition':<10}{'command':<9}{'fits':<6}{'outcome':<13}next condition"] + lines) + "\n"


def golden_rows():
    with open(GOLDEN, encoding="utf-8") as file:
        for line in file.read().splitlines()[1:]:
            mode, condition, word, fits, outcome, after = line.split()
            yield mode, condition, word, fits == "fits", outcome, after


ROWS = list(golden_rows())


def test_the_view_says_what_the_golden_table_says(lane, pytestconfig):
    rows = lane.query("SELECT mode, condition, command, fits, outcome, next_condition FROM lease.transitions")
    if pytestconfig.getoption("--print-transitions"):
        print(table_text(rows))
    with open(GOLDEN, encoding="utf-8") as file:
        assert table_text(rows) == file.read()


# ---- bringing a lease into a condition ----

class Scene:
    """One lease of one mode, in one condition, and the last grant there was. Moments: granted at 0."""

    def __init__(self, lane, mode, condition, is_late_holder):
        self.lane, self.mode = lane, mode
        self.kind, self.lease = ("settlement", "s1") if mode == "run" else ("cleanup", "i1")
        self.grant, self.at = None, LIVE
        self.reach = getattr(self, f"{mode}_{condition}")
        self.reach(is_late_holder)

    def started(self, **fields):
        self.grant = self.lane.grant_of(start(self.lease, ttl=TTL, **fields), at=0)

    def claimed(self):
        self.grant = self.lane.claim_one(self.lease, "h1", at=0, ttl=TTL)

    def run_absent(self, _):
        pass

    def run_free(self, is_late_holder):
        self.started()
        if is_late_holder:
            self.at = LATE
        else:
            assert self.lane.outcomes(self.grant.fails(), at=0) == "failed"

    def run_covering(self, _):
        self.started(more=True, tables=["album"])

    def run_held(self, _):
        self.started()

    def unfenced(self):
        self.lane.query("INSERT INTO lease.lease (kind, lease, state, holder) VALUES (%s, %s, 'held', 'h1')", (self.kind, self.lease))
        self.lane.commit()

    def run_unfenced(self, _):
        self.unfenced()

    def run_finished(self, _):
        self.started()
        assert self.lane.outcomes(self.grant.says("finish"), at=0) == "finished"

    def run_failed(self, _):
        self.started()
        assert self.lane.outcomes(self.grant.fails(retry=False), at=0) == "failed"

    def pool_absent(self, _):
        pass

    def pool_ready(self, is_late_holder):
        if is_late_holder:
            self.claimed()
            self.at = LATE
        else:
            assert self.lane.outcomes(request(self.lease), at=0) == "requested"

    def pool_held(self, _):
        self.claimed()

    def pool_unfenced(self, _):
        self.unfenced()

    def pool_finished(self, _):
        self.claimed()
        assert self.lane.outcomes(self.grant.says("finish"), at=0) == "finished"

    def pool_dead(self, _):
        self.claimed()
        assert self.lane.outcomes(self.grant.fails(retry=False), at=0) == "failed"

    def voice(self, word, **wrong):
        """The command, said by the last holder or, if there never was one, by a stranger."""
        grant = self.grant or Grant(self.kind, self.lease, "h1", FOREIGN.fence, FOREIGN.claim_id)
        if word == "start":
            return start(self.lease, holder="h2", ttl=TTL)
        if word == "request":
            return request(self.lease)
        if word == "fail":
            return grant.fails(**wrong)
        if word == "resolve":
            seen = self.lane.lease(self.kind, self.lease)
            return resolve(self.kind, self.lease, "done", wrong.get("fence", seen and seen["fence"]))
        extra = {"cover": {"resources": ["album/1"]}, "begin": {"amount": 0}, "advance": {"word": "calculated"}}.get(word, {})
        return grant.says(word, **extra, **wrong)

    def condition(self):
        row = self.lane.lease(self.kind, self.lease)
        if not row:
            return "absent"
        if row["state"] == "held" and row["lease_until"] and row["lease_until"] <= moment(self.at):
            return "free" if self.mode == "run" else "ready"
        return row["condition"]


WRONG = {"token": {"token_fits": False}, "fence": {"fence": 2 ** 41}, "lower fence": {"fence": 1}, "holder": {"holder": "h9"},
         "claim id": {"claim_id": FOREIGN.claim_id}}
BY_HOLDER = ("cover", "begin", "renew", "advance", "finish", "fail", "release")


def voices(scene, word, fits):
    if word == "resolve" and not fits:
        return [(name, scene.voice(word, fence=fence)) for name, fence in (("fence", 2 ** 41), ("lower fence", 1), ("no fence", None))
                if scene.grant is None or fence != scene.grant.fence if (scene.grant, fence) != (None, None)]
    if fits or word not in BY_HOLDER:
        return [("", scene.voice(word))]
    if scene.grant is None or scene.reach.__name__ in ("run_free", "pool_ready") and scene.at == LIVE:
        return [("nobody's grant", scene.voice(word))]
    return [(name, scene.voice(word, **wrong)) for name, wrong in WRONG.items() if wrong != {"fence": scene.grant.fence}]


@pytest.mark.parametrize("is_reaped", [False, True], ids=["met by the command", "reaped before"])
def test_every_row_of_the_table_is_what_apply_answers(database, new_lane, is_reaped):
    """Each row plays in a transaction that is rolled back, so that all of them can share a database."""
    lane = new_lane()
    lane.commit = lambda: None      # everything stays in one transaction, ended row by row
    wrong = []
    lane.query("INSERT INTO lease.step (kind, step, after) VALUES ('cleanup', 'calculated', NULL)")
    lane.connection.commit()
    for mode, condition, word, fits, outcome, after in ROWS:
        for is_late_holder in {fits, False} if condition in ("free", "ready") else {False}:
            if fits and not is_late_holder and condition in ("free", "ready") and word in BY_HOLDER:
                continue
            lane.query("SAVEPOINT row")
            scene = Scene(lane, mode, condition, is_late_holder)
            if is_reaped and scene.at == LATE:
                assert lane.reap(at=LATE)[0] == 1
            for name, said in voices(scene, word, fits):
                answer = lane.apply(said, at=scene.at)
                got = (answer.outcome, scene.condition())
                if got != (outcome, after):
                    wrong.append(f"{mode} {condition} {word} fits={fits} {name}: {got}, not {(outcome, after)}")
            lane.query("ROLLBACK TO SAVEPOINT row")
    lane.rollback()
    assert not wrong, "\n".join(wrong)


def test_a_command_that_the_table_does_not_know_is_malformed(lane):
    known = {(mode, word) for mode, _, word, *_ in ROWS} | {("pool", "claim")}
    for mode, kind in (("run", "settlement"), ("pool", "cleanup")):
        for word in BY_HOLDER + ("start", "request", "claim", "resolve"):
            if (mode, word) not in known:
                assert lane.decide(command(kind, word, "x", holder="h1", amount=1, refresh=1), at=0).outcome == "malformed"
                row = lane.journal()[-1]
                assert (row["reason"], row["field"]) == ("wrong_kind", "type")


def test_the_outcomes_stand_in_the_order_of_precedence(lane):
    outcomes = [row[0] for row in lane.query("SELECT outcome FROM lease.outcomes ORDER BY precedence")]
    assert outcomes == ["malformed", "duplicate", "unknown", "final", "stale", "lapsed", "held", "busy", "incomplete", "out_of_step",
                        "waiting", "parked", "empty", "granted", "covered", "renewed", "advanced", "finished", "failed", "released", "requested", "answered",
                        "applied", "bounced", "cancelled"]


# ---- outcomes that hang on more than the table ----

def grant_at_0(lane, lease="s1", **fields):
    return lane.grant_of(start(lease, ttl=TTL, **fields), at=0)


def outcome_malformed(lane):
    return lane.outcomes(command("settlement", "start", None, verdict="malformed", reason="missing", field="holder"), at=0)


def outcome_duplicate(lane):
    once = start("s1", id="same")
    assert lane.outcomes(once, at=0) == "granted"
    return lane.outcomes(once, at=1)


def outcome_unknown(lane):
    return lane.outcomes(FOREIGN.says("finish"), at=0)


def outcome_final(lane):
    grant = grant_at_0(lane)
    assert lane.outcomes(grant.says("finish"), at=1) == "finished"
    return lane.outcomes(grant.says("finish"), at=2)


def outcome_stale(lane):
    first = grant_at_0(lane)
    lane.grant_of(start("s1", holder="h2"), at=LATE)
    return lane.outcomes(first.says("finish"), at=LATE)


def outcome_lapsed(lane):
    return lane.outcomes(grant_at_0(lane).says("renew"), at=LATE)


def outcome_held(lane):
    grant_at_0(lane, resources=["album/1"])
    return lane.outcomes(start("s2", holder="h2", resources=["album/1"]), at=1)


def outcome_incomplete(lane):
    grant = grant_at_0(lane, more=True)
    assert lane.outcomes(grant.says("cover", resources=["album/1", "album/2"]), at=1) == "covered"
    return lane.outcomes(grant.says("begin", amount=3), at=1)


def outcome_out_of_step(lane):
    return lane.outcomes(grant_at_0(lane).says("advance", word="posted"), at=1)


def outcome_waiting(lane):
    return lane.outcomes(claim("w1", 1, wait_ms=1000), at=0)


def outcome_empty(lane):
    return lane.outcomes(claim("w1", 1), at=0)


def outcome_granted(lane):
    return lane.outcomes(request("i1"), claim("w1", 1), at=0)[1]


def outcome_covered(lane):
    return lane.outcomes(grant_at_0(lane, more=True).says("cover", resources=["album/1"]), at=1)


def outcome_renewed(lane):
    return lane.outcomes(grant_at_0(lane).says("renew"), at=1)


def outcome_advanced(lane):
    return lane.outcomes(grant_at_0(lane).says("advance", word="calculated"), at=1)


def outcome_finished(lane):
    return lane.outcomes(grant_at_0(lane).says("finish"), at=1)


def outcome_failed(lane):
    return lane.outcomes(grant_at_0(lane).fails(), at=1)


def outcome_released(lane):
    return lane.outcomes(grant_at_0(lane).says("release"), at=1)


def outcome_requested(lane):
    return lane.outcomes(request("i1"), at=0)


def outcome_answered(lane):
    return lane.outcomes(over(FOREIGN.says("renew")), at=0)


# `busy` needs a second connection: test_lanes.py. Edits need a guarded table: test_edits.py.
ELSEWHERE = {"busy", "parked", "applied", "bounced", "cancelled"}
MAKERS = {name[len("outcome_"):]: value for name, value in dict(globals()).items() if name.startswith("outcome_")}


@pytest.mark.parametrize("outcome", sorted(MAKERS))
def test_outcome(lane, outcome):
    assert MAKERS[outcome](lane) == outcome


def test_every_outcome_has_a_test(lane):
    assert {row[0] for row in lane.query("SELECT outcome FROM lease.outcomes")} == set(MAKERS) | ELSEWHERE
    source = open(os.path.join(os.path.dirname(GOLDEN), "test_lanes.py"), encoding="utf-8").read()
    assert re.search(r'"busy"', source)
