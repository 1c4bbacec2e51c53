"""Answers that the table of transitions has no room for: moments, tokens, amounts, what stands in the way, what is kept."""
import uuid

import psycopg2
import pytest

from rules import Grant, claim, command, moment, request, spent, start

MICROSECOND = 1e-6


def expiry_of(grant):
    return (grant.until - moment(0)).total_seconds()


# ---- moments ----

@pytest.mark.parametrize("offset,outcome", [(-MICROSECOND, "renewed"), (0, "lapsed"), (MICROSECOND, "lapsed")])
def test_a_lease_has_lapsed_at_its_expiry_and_not_a_microsecond_before(lane, offset, outcome):
    grant = lane.grant_of(start("s1", ttl=1000), at=0)
    assert lane.outcomes(grant.says("renew"), at=expiry_of(grant) + offset) == outcome


def test_nothing_is_decided_while_the_clock_is_far_behind_the_last_decision(lane):
    """Judged by such a clock, what has lapsed would be live again. A little behind, as after a failover, is no reason to stop."""
    lane.grant_of(start("s1"), at=0)      # in a year to come
    with pytest.raises(psycopg2.Error) as refused:
        lane.apply(start("s2"))
    assert refused.value.pgcode == "LE003" and "behind its last decision" in str(refused.value)
    lane.rollback()
    lane.query("UPDATE lease.setting SET clock_back_max = '1000 years'")
    assert lane.outcomes(start("s2")) == "granted"


@pytest.mark.parametrize("offset", [-MICROSECOND, 0, MICROSECOND])
def test_done_work_is_taken_before_at_and_after_the_expiry(lane, offset):
    grant = lane.grant_of(start("s1", ttl=1000, resources=["album/1"]), at=0)
    assert lane.outcomes(grant.says("finish"), at=expiry_of(grant) + offset) == "finished"


@pytest.mark.parametrize("offset,outcome", [(-MICROSECOND, "held"), (0, "granted")])
def test_a_resource_is_free_at_its_lease_s_expiry(lane, offset, outcome):
    grant = lane.grant_of(start("s1", ttl=1000, resources=["album/1"]), at=0)
    assert lane.outcomes(start("s2", resources=["album/1"]), at=expiry_of(grant) + offset) == outcome


def test_a_late_finish_is_stale_once_a_resource_was_taken(lane):
    grant = lane.grant_of(start("s1", ttl=1000, resources=["album/1", "album/2"]), at=0)
    assert lane.outcomes(start("s2", resources=["album/2"]), at=2) == "granted"
    assert lane.lease("settlement", "s1")["overtaken"]
    assert lane.outcomes(grant.says("finish"), at=3) == "stale"


def test_dead_stays_dead(lane):
    """A renewal that arrives late brings nothing back, however often it comes."""
    grant = lane.grant_of(start("s1", ttl=1000), at=0)
    assert [lane.outcomes(grant.says("renew"), at=at) for at in (1, 1.5, 100)] == ["lapsed"] * 3
    assert lane.lease("settlement", "s1")["state"] == "free"


def test_a_renewal_never_shortens(lane):
    grant = lane.grant_of(start("s1", ttl=10_000), at=0)
    answer = lane.decide(grant.says("renew", ttl_ms=1), at=1)
    assert (answer.outcome, answer.until) == ("renewed", grant.until)
    assert lane.decide(grant.says("renew", ttl_ms=10_000), at=1).until == moment(11)


def test_a_renewal_without_ttl_asks_for_what_the_grant_had(lane):
    grant = lane.grant_of(start("s1", ttl=7000), at=0)
    assert lane.decide(grant.says("renew"), at=1).until == moment(8)


# ---- who speaks ----

def test_the_right_fence_with_another_lease_s_token_is_stale(lane):
    """The token that comes along belongs to another grant: C compares it with the claim id that was sent, SQL that with the lease's."""
    mine, other = lane.grant_of(start("s1"), at=0), lane.grant_of(start("s2"), at=0)
    assert lane.outcomes(mine.says("finish", claim_id=other.claim_id), at=1) == "stale"
    assert lane.outcomes(Grant("settlement", "s1", "h1", other.fence, other.claim_id).says("finish"), at=1) == "stale"


def test_a_refused_request_burns_no_fence(lane):
    first = lane.grant_of(start("s1"), at=0)
    for _ in range(5):
        assert lane.outcomes(start("s1", holder="h2"), at=1) == "held"
    assert lane.grant_of(start("s2"), at=1).fence == first.fence + 1


def test_an_unfenced_lease_is_nobody_s_to_take(lane):
    """NULL expiry: neither a start, nor the reaper, nor its own name moves it (I8)."""
    lane.query("INSERT INTO lease.lease (kind, lease, state, holder) VALUES ('settlement', 's1', 'held', 'h1')")
    lane.commit()
    assert lane.outcomes(start("s1"), at=10 ** 8) == "held"
    assert lane.reap(at=10 ** 8) == (0, 0)
    assert lane.outcomes(Grant("settlement", "s1", "h1", 1, str(uuid.uuid4())).says("finish"), at=0) == "stale"
    assert lane.lease("settlement", "s1")["condition"] == "unfenced"


# ---- resources ----

def test_repeated_resources_count_once_and_none_is_allowed(lane):
    answer = lane.decide(start("s1", resources=["album/1", "album/1", "album/2"]), at=0)
    assert lane.journal(answer.number - 1)[0]["amount"] == 2
    assert lane.outcomes(start("s2"), at=0) == "granted"


def test_held_names_who_has_which_resource_since_and_until_when(lane):
    grant = lane.grant_of(start("s1", ttl=1000, resources=["album/1", "album/2"]), at=0)
    answer = lane.decide(start("s2", holder="h2", resources=["album/3", "album/2"]), at=0.25)
    blocker = lane.journal(answer.number - 1)[0]["blocker"]
    assert blocker == {"kind": "settlement", "lease": "s1", "resource": "album/2", "holder": "h1", "fence": grant.fence,
                       "since": "2100-01-01T00:00:00.000000Z", "until": "2100-01-01T00:00:01.000000Z", "remaining_ms": 750}
    assert lane.outcomes(start("s3", holder="h2", resources=["album/3"]), at=0.25) == "granted"


def test_only_one_run_at_a_time_is_covering_a_table(lane):
    grant = lane.grant_of(start("s1", more=True, tables=["album"]), at=0)
    assert lane.outcomes(start("s2", holder="h2", more=True, tables=["album", "track"]), at=1) == "held"
    assert lane.outcomes(start("s3", holder="h3", resources=["album/9"]), at=1) == "granted"      # single rows are no matter of it
    assert [a.outcome for a in lane.decide(grant.says("cover", resources=["album/1"]), grant.says("begin", amount=1), at=2)] == ["covered", "granted"]
    assert lane.outcomes(start("s4", holder="h4", more=True, tables=["album"]), at=3) == "granted"


def test_a_cover_is_all_or_none(lane):
    lane.grant_of(start("s1", resources=["album/2"]), at=0)
    grant = lane.grant_of(start("s2", holder="h2", more=True), at=0)
    assert lane.outcomes(grant.says("cover", resources=["album/1", "album/2"]), at=1) == "held"
    assert lane.outcomes(grant.says("cover", resources=["album/1", "album/3", "album/1"]), at=1) == "covered"
    assert lane.outcomes(grant.says("cover", resources=["album/1"]), at=1) == "covered"
    assert lane.lease("settlement", "s2")["resources_covered"] == 2


# ---- messages ----

def test_a_duplicate_tells_the_original_answer(lane):
    once = start("s1", id="same")
    first = lane.decide(once, at=0)
    lane.outcomes(start("s1", holder="h2"), at=1)
    answer = lane.decide(once, at=2)
    original = lane.journal(answer.number - 1)[0]["original"]
    assert (answer.outcome, original["outcome"], original["fence"], original["claim_id"]) == ("duplicate", "granted", first.fence, first.claim_id)


def test_a_malformed_command_leaves_its_id_free(lane):
    """It was never applied: corrected, it may come again under its id."""
    assert lane.outcomes(start("s1", id="same", ttl=10 ** 9), at=0) == "malformed"
    assert lane.outcomes(start("s1", id="same"), at=0) == "granted"


def test_an_id_with_another_body_is_refused_and_named(lane):
    assert lane.outcomes(start("s1", id="same"), at=0) == "granted"
    answer = lane.decide(start("s1", id="same", ttl=5), at=0)
    row = lane.journal(answer.number - 1)[0]
    assert (answer.outcome, row["reason"], row["field"]) == ("malformed", "id_reused", "id")


def test_one_source_s_ids_are_not_another_s(lane):
    assert lane.outcomes(start("s1", id="same", source="/a"), start("s2", id="same", source="/b"), at=0) == ["granted", "granted"]


def test_a_dead_letter_is_kept_byte_for_byte_and_the_batch_goes_on(lane):
    key, value, headers = bytes(range(256)), b"\x00\xff{" * 50, b"\x00\x00\x00\x01h\xff\xff\xff\xff"
    letter = {"verdict": "dead_letter", "reason": "invalid_json", "field": "line 1", "raw_key": key, "raw_value": value, "raw_headers": headers,
              "topic": "settlement.events", "partition": 3, "offset": 17, "resources": [], "tables": []}
    answers = lane.decide(letter, start("s1"), at=0)
    assert [a.outcome for a in answers] == ["dead_letter", "granted"]
    row = lane.query("SELECT reason, origin_topic, origin_partition, origin_offset, raw_key, raw_value, raw_headers, kind, changes_lease FROM lease.journal "
                     "WHERE event = 'dead_letter'")[0]
    assert row[:4] == ("invalid_json", "settlement.events", 3, 17)
    assert [bytes(part) for part in row[4:7]] == [key, value, headers]
    assert row[7:] == (None, False)


def test_one_bad_message_among_500_changes_nothing_for_the_others(lane):
    batch = [start(f"s{i}") for i in range(499)]
    batch.insert(250, command("settlement", "start", None, verdict="malformed", reason="missing", field="holder"))
    outcomes = lane.outcomes(*batch, at=0)
    assert outcomes[250] == "malformed"
    assert outcomes.count("granted") == 499


def test_ten_thousand_starts_on_one_key_take_linear_time(lane):
    def seconds(count):
        batch = [start(f"key{count}", holder=f"h{i}") for i in range(count)]
        began = spent(lane)
        outcomes = lane.outcomes(*batch, at=0)
        assert outcomes == ["granted"] + ["held"] * (count - 1)
        return spent(lane) - began
    seconds(100)
    short, long = seconds(1000), seconds(10_000)
    print(f"1,000: {short:.3f} s, 10,000: {long:.3f} s")
    assert long < 10 * short * 3 + 1


# ---- pool ----

def test_items_are_given_out_oldest_first_and_demand_is_served_in_order(lane):
    lane.decide(claim("w1", 1, wait_ms=9000), claim("w2", 2, wait_ms=9000), at=0)
    lane.decide(request("b", delay_ms=1), request("a"), request("c", delay_ms=2), at=0)
    lane.reap(at=1)
    assert [(g.subject, g.holder) for g in lane.grants_after(0)] == [("a", "w1"), ("b", "w2"), ("c", "w2")]


def test_a_repeated_claim_asks_for_nothing_more(lane):
    lane.decide(*[request(f"i{n}") for n in range(5)], at=0)
    assert lane.outcomes(claim("w1", 2, refresh=1), at=0) == "granted"
    assert lane.outcomes(claim("w1", 2, refresh=1), at=1) == "empty"
    assert lane.outcomes(claim("w1", 3, refresh=2), at=2) == "granted"
    assert len(lane.grants_after(0)) == 3


def test_a_claim_without_open_credit_waits_for_nothing(lane):
    lane.decide(request("i1"), claim("w1", 1), at=0)
    assert lane.outcomes(claim("w1", 1, refresh=2, wait_ms=1000), at=1) == "empty"


def test_demand_that_is_not_refreshed_lapses(lane):
    lane.decide(claim("w1", 1, wait_ms=1000), at=0)
    lane.decide(request("i1"), at=1 + MICROSECOND)
    assert lane.grants_after(0) == []
    assert lane.outcomes(claim("w1", 1, refresh=2), at=2) == "granted"


def test_giving_a_grant_back_burns_no_attempt_and_silence_does(lane):
    grant = lane.claim_one("i1", at=0)
    assert lane.outcomes(grant.says("release"), at=1) == "released"
    assert lane.lease("cleanup", "i1")["attempt"] == 0
    lane.claim_one("i1", at=2, ttl=1000)
    lane.reap(at=10)
    row = lane.lease("cleanup", "i1")
    assert (row["state"], row["attempt"], row["ready_at"]) == ("ready", 1, moment(4))     # expiry at 3, backoff 1 s


def test_the_backoff_doubles_up_to_its_maximum_and_the_last_attempt_is_the_last(lane):
    lane.query("UPDATE lease.kind SET backoff_base_ms = 1000, backoff_max_ms = 3000, attempts_max = 4 WHERE kind = 'cleanup'")
    lane.commit()
    waits = []
    for round_ in range(1, 5):
        grant = lane.claim_one("i1", at=round_ * 100)
        lane.decide(grant.fails(), at=round_ * 100 + 1)
        row = lane.lease("cleanup", "i1")
        waits.append((row["ready_at"] - moment(round_ * 100 + 1)).total_seconds() if row["ready_at"] else row["state"])
    assert waits == [1, 2, 3, "dead"]


def test_an_item_that_is_requested_anew_after_it_was_purged_keeps_its_old_holder_out(lane):
    """lease.state then has a new record for it, and no other: without a floor, whoever starts a gate from there would let the old fence in."""
    grant = lane.claim_one("i1", at=0)
    lane.decide(grant.says("finish"), at=1)
    lane.query("DELETE FROM lease.lease WHERE lease = 'i1'")         # as housekeeping does after keep_final
    lane.commit()
    lane.decide(request("i1"), at=2)
    row = lane.journal(subject="i1")[-1]
    assert (row["event"], row["changes_lease"]) == ("requested", True) and row["min_fence"] > grant.fence


def test_the_first_grant_of_a_database_is_above_every_floor(lane):
    lane.decide(request("i1"), claim("w1", 1))
    floor = max(row["min_fence"] or 0 for row in lane.journal() if row["event"] == "requested")
    grant, = lane.grants_after(0)
    assert floor <= grant.fence


def test_what_is_finished_keeps_its_own_holder_in(lane):
    """Effects under it may still be on their way to a gate, behind the news of its end."""
    grant = lane.claim_one("i1")
    lane.decide(grant.says("finish"))
    assert lane.journal(subject="i1")[-1]["min_fence"] == grant.fence


def test_a_lapse_publishes_a_fence_floor(lane):
    grant = lane.grant_of(start("s1", ttl=1000), at=0)
    assert lane.reap(at=1) == (1, 0)
    row = lane.journal(subject="s1")[-1]
    assert (row["event"], row["min_fence"], row["changes_lease"], row["command"], row["state"]) == ("lapsed", grant.fence + 1, True, None, "free")


def test_a_renewal_does_not_rewrite_the_published_state(lane):
    grant = lane.grant_of(start("s1"), at=0)
    lane.decide(grant.says("renew"), at=1)
    assert [row["changes_lease"] for row in lane.journal(subject="s1")] == [True, False]


def test_no_batch_at_all_is_no_trouble(lane):
    assert lane.query("SELECT * FROM lease.apply(" + ", ".join(["NULL"] * 31) + ")") == []
    assert lane.journal() == []
