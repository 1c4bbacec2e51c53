"""The SQL gate by itself: the rule as a table, its forms against each other and against a second statement of the rule, errors,
rights, loading, forgetting, and what a call costs. What transactions do to each other is in test_gate_races.py."""
import json
import os
import random
import time

import psycopg2
import psycopg2.errors
import pytest

import gate
from gate import ADMIT, DUPLICATE, FENCE_MAX, STALE, Reference, claim
from rules import Lane, spent

A, B = claim(0xA), claim(0xB)
LE101 = "LE101"


@pytest.fixture(name="loaded", scope="module")
def fixture_loaded(server):
    """With the gate in it and nothing of the coordinator's."""
    database = server.create_database("lease_gate")
    gate.load(database)
    yield database
    database.drop()


@pytest.fixture(name="database")
def fixture_database(loaded):
    gate.forget_all(loaded)
    return loaded


def admit(lane, resource, fence, claim_id, effect=None):
    return lane.value("SELECT lease_gate.admit(%s, %s, %s, %s)", (resource, fence, claim_id, effect))


def require(lane, resource, fence, claim_id, effect=None):
    """stale, told by its error."""
    lane.query("SAVEPOINT here")
    try:
        return lane.value("SELECT lease_gate.require(%s, %s, %s, %s)", (resource, fence, claim_id, effect))
    except psycopg2.Error as error:
        assert error.pgcode == LE101, error
        lane.query("ROLLBACK TO here")
        return STALE


def admit_each(lane, *entries):
    columns = list(zip(*entries)) if entries else [()] * 4
    rows = lane.query("SELECT ord, resource, verdict FROM lease_gate.admit_each(%s::text[], %s::bigint[], %s::uuid[], %s::text[])", [list(c) for c in columns])
    assert [(row[0], row[1]) for row in rows] == [(n, entry[0]) for n, entry in enumerate(entries, 1)], "not in the order of the entries"
    return [row[2] for row in rows]


def one_of_each(lane, resource, fence, claim_id, effect=None):
    return admit_each(lane, (resource, fence, claim_id, effect))[0]


def granted_to_each(lane, resource, fence, claim_id, effect=None):
    return lane.query("SELECT verdict FROM lease_gate.admit_each(ARRAY[%s], %s::bigint, %s::uuid, %s)", (resource, fence, claim_id, effect))[0][0]


def required_of_each(lane, resource, fence, claim_id, effect=None):
    lane.query("SAVEPOINT here")
    try:
        return lane.query("SELECT verdict FROM lease_gate.require_each(ARRAY[%s], %s::bigint, %s::uuid, %s)", (resource, fence, claim_id, effect))[0][0]
    except psycopg2.Error as error:
        assert error.pgcode == LE101, error
        lane.query("ROLLBACK TO here")
        return STALE


FORMS = [admit, require, one_of_each, granted_to_each, required_of_each]

# What was admitted before (fence, claim, effect), the floor, what comes, the verdict.
VERDICTS = [
    ([], 0, (1, A, None), ADMIT),
    ([], 0, (FENCE_MAX, A, "e"), ADMIT),
    ([(5, A, None)], 0, (4, A, None), STALE),
    ([(5, A, None)], 0, (4, B, None), STALE),
    ([(5, A, None)], 0, (5, A, None), ADMIT),
    ([(5, A, None)], 0, (5, B, None), STALE),
    ([(5, A, None)], 0, (6, B, None), ADMIT),
    ([(5, A, None)], 0, (6, A, None), ADMIT),
    ([(5, A, None), (6, B, None)], 0, (5, A, None), STALE),
    # an effect is done once, whoever comes again
    ([(5, A, "e")], 0, (5, A, "e"), DUPLICATE),
    ([(5, A, "e")], 0, (5, A, "f"), ADMIT),
    ([(5, A, "e")], 0, (5, A, None), ADMIT),
    ([(5, A, "e")], 0, (6, B, "e"), DUPLICATE),
    ([(5, A, "e"), (6, B, "e")], 0, (5, A, "f"), STALE),       # the duplicate has raised the fence all the same
    # stale comes before duplicate
    ([(5, A, "e"), (6, B, None)], 0, (5, A, "e"), STALE),
    ([(5, A, "e")], 0, (5, B, "e"), STALE),
    # what was refused is not remembered
    ([(5, A, None), (4, B, "e")], 0, (6, B, "e"), ADMIT),
    ([(5, A, None), (5, B, None)], 0, (5, A, None), ADMIT),
    # floors
    ([], 5, (4, A, None), STALE),
    ([], 5, (5, A, None), ADMIT),
    ([(5, A, None)], 6, (5, A, None), STALE),
    ([(5, A, "e")], 6, (5, A, "e"), STALE),
    ([(5, A, "e")], 6, (6, B, "e"), DUPLICATE),
    ([(5, A, None)], 3, (4, A, None), STALE),
    ([], FENCE_MAX + 1, (FENCE_MAX, A, None), STALE),          # ended under the last fence there is
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before,floor,entry,verdict", VERDICTS)
def test_the_rule(new_lane, form, before, floor, entry, verdict):
    lane = new_lane()
    for earlier in before:
        admit(lane, "r", *earlier)
    if floor:
        lane.query("SELECT lease_gate.raise_floor(ARRAY['r'], ARRAY[%s])", (floor,))
    assert form(lane, "r", *entry) == verdict
    assert admit(lane, "other", 1, A) == ADMIT, "a resource is judged by itself"


def any_entry(r, resources=4, fences=8, claims=2, effects=4):
    return (f"r{r.randrange(resources)}", 1 + r.randrange(fences), claim(1 + r.randrange(claims)), r.choice([None] + [f"e{n}" for n in range(effects)]))


def test_random_calls_of_every_form_agree_with_the_reference(new_lane):
    seed = int(os.environ.get("LEASE_TEST_SEED", random.randrange(10 ** 9)))
    print(f"seed {seed}")
    r, lane, seen = random.Random(seed), new_lane(), {STALE: 0, DUPLICATE: 0, ADMIT: 0}
    for game in range(60):
        reference = Reference()
        lane.query("SAVEPOINT game")
        rise = 0
        for _ in range(25):
            rise += r.random() < 0.5
            if r.random() < 0.1:
                floors = [(f"r{r.randrange(4)}", r.choice([None, r.randrange(9) + rise])) for _ in range(r.randrange(4))]
                lane.query("SELECT lease_gate.raise_floor(%s::text[], %s::bigint[])", ([f[0] for f in floors], [f[1] for f in floors]))
                for resource, floor in floors:
                    reference.raise_floor(resource, floor or 0)
                continue
            entries = [(lambda e: (e[0], e[1] + rise, *e[2:]))(any_entry(r)) for _ in range(r.choice([1, 1, 2, 5, 20]))]
            expected = [reference.admit(*entry) for entry in entries]
            if len(entries) == 1:
                found = [r.choice(FORMS)(lane, *entries[0])]
            else:
                found = admit_each(lane, *entries)
            assert found == expected, f"game {game}: {list(zip(entries, found, expected))}"
            for verdict in found:
                seen[verdict] += 1
        stored = lane.query("SELECT resource, fence, claim_id::text FROM lease_gate.resource WHERE fence > 0")
        assert {row[0]: row[1:] for row in stored} == reference.highest
        assert lane.query("SELECT * FROM lease_gate.resource WHERE (fence > 0) <> (claim_id IS NOT NULL) OR fence < 0 OR min_fence < 0") == []
        assert {tuple(row) for row in lane.query("SELECT resource, effect FROM lease_gate.effect")} == reference.effects
        lane.query("ROLLBACK TO game")
    print(seen)
    assert min(seen.values()) > 100


def test_memory_is_the_transactions_own(new_lane):
    lane = new_lane()
    assert admit(lane, "r", 5, A, "e") == ADMIT
    lane.commit()
    lane.query("SAVEPOINT here")
    assert admit(lane, "r", 9, B, "f") == ADMIT
    lane.query("ROLLBACK TO here")
    assert admit(lane, "r", 6, A, "f") == ADMIT
    lane.rollback()
    assert admit(lane, "r", 5, A, "f") == ADMIT


def test_require_kills_the_transaction_and_tells_what_stands_there(new_lane):
    lane = new_lane()
    admit(lane, "r", 7, B)
    lane.query("SELECT lease_gate.raise_floor('{r}', '{6}')")
    lane.commit()
    lane.query("CREATE TEMP TABLE effects (what text)")
    lane.commit()
    lane.query("INSERT INTO effects VALUES ('before')")
    with pytest.raises(psycopg2.Error) as caught:
        lane.value("SELECT lease_gate.require('r', 5, %s)", (A,))
    assert caught.value.pgcode == LE101
    told = lane_detail(caught.value)
    assert told == {"resource": "r", "fence": 5, "claim_id": A, "highest": 7, "highest_claim_id": B, "min_fence": 6}
    lane.commit()                                   # says ROLLBACK
    assert lane.query("SELECT * FROM effects") == []


def lane_detail(error):
    return json.loads(error.diag.message_detail)


def test_require_each_names_the_first_that_is_stale_and_remembers_none(new_lane):
    lane = new_lane()
    admit(lane, "b", 9, B)
    lane.commit()
    with pytest.raises(psycopg2.Error) as caught:
        lane.query("SELECT * FROM lease_gate.require_each('{a,b,c}'::text[], 5, %s::uuid)", (A,))
    assert (caught.value.pgcode, lane_detail(caught.value)["resource"]) == (LE101, "b")
    lane.rollback()
    assert lane.query("SELECT resource FROM lease_gate.resource") == [("b",)]
    assert [row[2] for row in lane.query("SELECT * FROM lease_gate.require_each('{a,b,c}'::text[], 10, %s::uuid, 'e')", (A,))] == [ADMIT] * 3
    assert [row[2] for row in lane.query("SELECT * FROM lease_gate.require_each('{a,b,c}'::text[], 11, %s::uuid, 'e')", (A,))] == [DUPLICATE] * 3


def test_one_grant_over_ten_thousand_resources_is_one_call(new_lane):
    lane = new_lane()
    resources = [f"album/{n}" for n in range(10000)]
    random.Random(1).shuffle(resources)
    rows = lane.query("SELECT ord, resource, verdict FROM lease_gate.admit_each(%s::text[], 5, %s::uuid, 'settle')", (resources, A))
    assert rows == [(n, resource, ADMIT) for n, resource in enumerate(resources, 1)]
    assert admit_each(lane) == []


def test_the_stale_leave_no_trace(new_lane):
    lane = new_lane()
    lane.query("SELECT * FROM lease_gate.purge(100)")
    lane.commit()
    assert admit(lane, "r", 5, A, "e") == STALE
    assert admit_each(lane, ("r", 5, A, "e"), ("s", 99, A, None)) == [STALE, STALE]
    assert lane.value("SELECT (SELECT count(*) FROM lease_gate.resource) + (SELECT count(*) FROM lease_gate.effect)") == 0


# ---- arguments ----

BAD = [(None, 5, A, None), ("", 5, A, None), ("x" * 1001, 5, A, None), ("r", None, A, None), ("r", 0, A, None), ("r", -1, A, None),
       ("r", FENCE_MAX + 1, A, None), ("r", 5, None, None), ("r", 5, A, ""), ("r", 5, A, "x" * 1001)]


@pytest.mark.parametrize("entry", BAD)
@pytest.mark.parametrize("form", [admit, one_of_each, granted_to_each])
def test_what_cannot_be_judged_is_an_error_and_no_verdict(new_lane, form, entry):
    with pytest.raises(psycopg2.errors.InvalidParameterValue):
        form(new_lane(), *entry)


@pytest.mark.parametrize("sql", [
    "SELECT * FROM lease_gate.admit_each('{a,b}'::text[], '{1}'::bigint[], '{}'::uuid[])",
    "SELECT * FROM lease_gate.admit_each('{a}'::text[], '{1}'::bigint[], NULL::uuid[])",
    "SELECT lease_gate.raise_floor('{a,b}', '{1}')", "SELECT lease_gate.raise_floor('{a,NULL}', '{1,2}')", "SELECT lease_gate.raise_floor('{a}', '{-1}')",
    "SELECT * FROM lease_gate.purge(NULL)", "SELECT * FROM lease_gate.purge(0)", "SELECT * FROM lease_gate.purge(5, NULL, 0)"])
def test_arguments_that_do_not_fit_are_an_error(new_lane, sql):
    with pytest.raises(psycopg2.errors.InvalidParameterValue):
        new_lane().query(sql)


def test_names_are_data(new_lane):
    lane = new_lane()
    for name in ("r'; DROP SCHEMA lease_gate", "계약/1", "a\nb", "%s", "{a,b}", "NULL"):
        assert [form(lane, name, 5, A, name) for form in FORMS] == [ADMIT] + [DUPLICATE] * 4


# ---- rights ----

@pytest.fixture(name="user")
def fixture_user(database):
    lane = Lane(database.login("lease_gate_user"))
    yield lane
    lane.close()


@pytest.fixture(name="keeper")
def fixture_keeper(database):
    lane = Lane(database.login("lease_gate_keeper"))
    yield lane
    lane.close()


def refused(lane, sql):
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        lane.query(sql)
    lane.rollback()


def test_users_may_ask_and_keepers_may_keep_and_nobody_may_write(user, keeper, database):
    assert admit(user, "r", 5, A, "e") == ADMIT and admit_each(user, ("s", 5, A, None)) == [ADMIT]
    assert require(user, "r", 4, A) == STALE and required_of_each(user, "r", 5, A) == ADMIT
    user.commit()
    assert keeper.value("SELECT lease_gate.raise_floor('{r}', '{6}')") == 1
    keeper.query("SELECT * FROM lease_gate.purge(3)")
    keeper.commit()
    for sql in ("SELECT lease_gate.raise_floor('{r}', '{6}')", "SELECT * FROM lease_gate.purge(3)"):
        refused(user, sql)
    refused(keeper, f"SELECT lease_gate.admit('r', 9, '{A}')")
    for lane in (user, keeper):
        assert lane.query("SELECT fence, min_fence FROM lease_gate.resource WHERE resource = 'r'") == [(5, 6)]
        for sql in ("UPDATE lease_gate.resource SET fence = 1", "DELETE FROM lease_gate.resource", "TRUNCATE lease_gate.effect",
                    f"INSERT INTO lease_gate.effect VALUES ('r', 'f', 1, '{A}')", "SELECT setval('lease_gate.base', 1)", "SELECT nextval('lease_gate.base')",
                    "CREATE TABLE lease_gate.mine ()", "SELECT lease_gate.refuse_stale('r', 1, NULL)"):
            refused(lane, sql)
    stranger = Lane(gate.stranger(database)[1])
    refused(stranger, f"SELECT lease_gate.admit('r', 9, '{A}')")
    refused(stranger, "SELECT * FROM lease_gate.resource")
    stranger.close()


def test_F10_a_callers_own_names_lead_nowhere(user):
    user.query("SELECT lease_gate.admit('r', 5, %s, 'e')", (A,))
    user.commit()
    user.query("CREATE TEMP TABLE resource (resource text, fence bigint, claim_id uuid, min_fence bigint)")
    user.query("CREATE TEMP TABLE base (last_value bigint)")
    user.query("CREATE FUNCTION pg_temp.greatest_of() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    user.query("CREATE OPERATOR pg_temp.<> (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = uuid_eq)")
    user.query("SET search_path = pg_temp, pg_catalog")
    assert [form(user, "r", 4, A) for form in FORMS] == [STALE] * 5
    assert [form(user, "r", 5, B) for form in FORMS] == [STALE] * 5
    assert user.value("SELECT count(*) FROM resource") == 0


# ---- loading ----

def test_loading_again_keeps_what_is_remembered(new_lane, database):
    lane = new_lane()
    admit(lane, "r", 5, A, "e")
    lane.query("SELECT * FROM lease_gate.purge(3)")
    lane.commit()
    gate.load(database)
    assert admit(lane, "r", 4, A) == STALE and admit(lane, "r", 5, A, "e") == DUPLICATE and admit(lane, "new", 2, A) == STALE


def test_it_needs_nothing_but_the_right_to_make_a_schema(server):
    """The loader may not make roles, and names who may use it. Nothing of the coordinator is there."""
    database = server.create_database("lease_gate")
    name, owner = gate.stranger(database)
    database.query(f'GRANT CREATE ON DATABASE "{database.name}" TO "{name}"')
    app_name, app = gate.stranger(database)
    settings = [("lease_gate.user", app_name), ("lease_gate.keeper", app_name)]
    try:
        gate.load(database, conninfo=owner, settings=settings)
        gate.load(database, conninfo=owner, settings=settings)
        lane = Lane(app)
        assert admit(lane, "r", 5, A) == ADMIT and lane.value("SELECT lease_gate.raise_floor('{r}', '{9}')") == 1
        lane.close()
        # Another loader would run what the owner put there.
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            gate.load(database)
    finally:
        database.drop()


def test_an_older_file_does_not_replace_a_newer_gate(server):
    database = server.create_database("lease_gate")
    gate.load(database)
    gate.load(database, gate.text().replace("IMMUTABLE AS 'SELECT 1'", "IMMUTABLE AS 'SELECT 2'").replace("IF v_loaded > 1", "IF v_loaded > 2"))
    with pytest.raises(psycopg2.Error) as caught:
        gate.load(database)
    assert caught.value.pgcode == "LE102"
    assert database.value("SELECT lease_gate.version()") == 2
    database.drop()


# ---- forgetting ----

def test_purge_forgets_only_what_the_base_refuses_anyway(new_lane):
    lane = new_lane()
    for name, fence, floor in (("low", 5, 0), ("floored", 5, 6), ("at", 10, 0), ("high", 12, 0), ("far-floor", 3, 11), ("floor-at", 3, 10)):
        assert admit(lane, name, fence, A, "e") == ADMIT
        lane.query("SELECT lease_gate.raise_floor(ARRAY[%s], ARRAY[%s])", (name, floor))
    lane.commit()
    assert lane.query("SELECT * FROM lease_gate.purge(10)") == [(3, 0)]
    lane.commit()
    assert {row[0] for row in lane.query("SELECT resource FROM lease_gate.resource")} == {"at", "high", "far-floor"}
    for name in ("low", "floored", "floor-at", "never seen"):
        assert [form(lane, name, 9, A) for form in FORMS] == [STALE] * 5
    assert admit(lane, "low", 10, B, "e") == DUPLICATE, "effects outlive the resource"
    assert admit(lane, "at", 10, B) == STALE and admit(lane, "high", 11, A) == STALE and admit(lane, "far-floor", 10, A) == STALE
    lane.rollback()
    assert lane.query("SELECT * FROM lease_gate.purge(5, 'infinity')") == [(0, 2)], "a base does not go down; effects below 5"
    lane.commit()
    assert admit(lane, "low", 9, A) == STALE
    assert lane.query("SELECT effects FROM lease_gate.purge(10, '-infinity')") == [(0,)]
    assert lane.query("SELECT effects FROM lease_gate.purge(10, 'infinity')") == [(2,)]
    assert admit(lane, "low", 10, B, "e") == ADMIT, "told to forget, it does"


def test_purge_takes_as_many_as_it_is_told_and_nothing_that_is_in_hand(new_lane):
    lane, other = new_lane(), new_lane()
    admit_each(lane, *[(f"r{n}", 5, A, "e") for n in range(10)])
    lane.commit()
    admit(other, "r0", 5, A)
    assert lane.query("SELECT * FROM lease_gate.purge(10, 'infinity', 4)") == [(4, 4)]
    assert lane.query("SELECT * FROM lease_gate.purge(10, 'infinity', 40)") == [(5, 6)]
    lane.commit()
    other.commit()
    assert lane.query("SELECT * FROM lease_gate.purge(10, 'infinity', 40)") == [(1, 0)]


# ---- what it costs ----

def cost_us(lane, body, count=5000):
    """Per call, in one transaction that is rolled back. Of the server's process, where it is on this machine."""
    loop = f"DO $$ BEGIN FOR i IN 1..{count} LOOP {body}; END LOOP; END $$"
    best = None
    for _ in range(3):
        begun = spent(lane)
        lane.query(loop)
        taken = (spent(lane) - begun) * 1e6 / count
        lane.rollback()
        best = taken if best is None else min(best, taken)
    return best


def test_an_admit_costs_a_few_updates(new_lane, database):
    lane = new_lane()
    lane.query("CREATE TABLE public.account (name text COLLATE \"C\" PRIMARY KEY, amount bigint NOT NULL) WITH (fillfactor = 70)")
    lane.query("INSERT INTO account SELECT 'r/' || i, 0 FROM generate_series(1, 5000) i")
    lane.query("SELECT count(*) FROM (SELECT lease_gate.admit('r/' || i, 10, %s, 'e') FROM generate_series(1, 5000) i) q", (A,))
    lane.commit()
    lane.connection.autocommit = True
    lane.query("VACUUM ANALYZE")
    lane.connection.autocommit = False
    nothing = cost_us(lane, "PERFORM 1")
    bare = cost_us(lane, "UPDATE account SET amount = amount + 1 WHERE name = 'r/' || i") - nothing
    rows = [("higher fence", f"lease_gate.admit('r/' || i, 11, '{B}')"), ("same fence", f"lease_gate.admit('r/' || i, 10, '{A}')"),
            ("same fence, an effect", f"lease_gate.admit('r/' || i, 10, '{A}', 'f')"), ("duplicate", f"lease_gate.admit('r/' || i, 10, '{A}', 'e')"),
            ("new resource", f"lease_gate.admit('s/' || i, 11, '{B}')"), ("stale", f"lease_gate.admit('r/' || i, 9, '{A}')"),
            ("require, higher fence", f"lease_gate.require('r/' || i, 11, '{B}')")]
    costs = {name: cost_us(lane, f"PERFORM {call}") - nothing for name, call in rows}
    print(f"a bare UPDATE {bare:.1f} µs; " + ", ".join(f"{name} {cost:.1f} µs ({cost / bare:.1f} ×)" for name, cost in costs.items()))
    begun = time.monotonic()
    lane.query("SELECT count(*) FROM lease_gate.admit_each((SELECT array_agg('r/' || i) FROM generate_series(1, 5000) i), 11, %s::uuid)", (B,))
    print(f"admit_each over 5000 resources {(time.monotonic() - begun) * 1000:.0f} ms")
    lane.query("DROP TABLE account")
    lane.commit()
    # The aim is 50 µs on a quiet machine. What others do to the caches may double it; this finds out when it becomes something else.
    assert costs["higher fence"] < 100 or costs["higher fence"] < 12 * bare, costs
