# ctest: LABEL audit TIMEOUT 400 TAKES 38 BUSY
"""lease-audit finds nothing wrong with a healthy system that has seen everything, also while it runs; and of a fault that is put into a table or a topic it
says that one invariant is broken, and shows that fault. Each function of FAULTS spoils a copy of the database, and returns the invariant and words that
the counterexample must have.
"""
import os
import pathlib
import re
import subprocess

import pytest

from audit import run
from fixtures import folder_of
from kafka import jars
from place import INPUTS
from world import World

HERE = pathlib.Path(__file__).resolve().parent
ALL = [f"I{number}" for number in range(1, 12)]
LATER = "clock_timestamp() + interval '1 hour'"


@pytest.fixture(scope="module", name="world")
def fixture_world(request, postgres, kafka, build):
    world = World(postgres, kafka, build, folder_of(request, build))
    yield world.prepare()
    world.close()


@pytest.fixture(scope="module", name="books")
def fixture_books(world):
    return world.books


@pytest.fixture(scope="module", name="file_server")
def fixture_file_server(world):
    """The words that name the file server: a login that may read its tables and the gate's."""
    def words(database):
        conninfo = database.login("fileserver_user")
        user = dict(pair.split("=", 1) for pair in conninfo.split())["user"]
        database.query(f'GRANT lease_gate_user TO "{user}"')
        return ["--file-server", conninfo, "--root", world.files.root]
    return words


def test_a_healthy_system_keeps_all_invariants(world, books, file_server):
    found = books.audit("--text", world.place.coordinators[0].child.log, *file_server(world.files.database))
    assert found.code == 0 and not found.broken, found
    assert found.verdicts == dict.fromkeys(ALL, "holds"), found
    idle = [name for name in ALL if found.of(name)["judged"] == 0]
    assert not idle, f"nothing was judged of {idle}"
    assert found.report["cut"]["head_number"] == found.report["cut"]["published_number"] == world.head


def test_a_running_system_keeps_them_too(world):
    """With messages not consumed yet, rows not published yet, and a coordinator that has just been killed."""
    found = world.while_it_ran
    assert found.code == 0 and not found.broken, found
    assert 0 < found.report["cut"]["published_number"] <= found.report["cut"]["head_number"] < world.head


# ---- one fault for each ----

def a_fence_given_out_twice(world, database):
    fence, = database.query("SELECT j.fence FROM lease.journal j WHERE j.is_grant AND NOT EXISTS (SELECT FROM lease.lease l WHERE l.fence = j.fence) LIMIT 1")[0]
    claim = world.claim()
    database.query(f"INSERT INTO lease.lease (kind, lease, state, holder, claim_id, fence, since, lease_until, check_at, ttl_ms, attempt)"
                   f" VALUES ('cleanup', 'again', 'held', 'w', %s, %s, now(), {LATER}, now(), 1000, 1)", (claim, fence))
    until = database.value("SELECT lease_until FROM lease.lease WHERE lease = 'again'")
    world.append(database, subject="again", holder="w", claim_id=claim, fence=fence, since="now", lease_until=until, state="held", attempt=1, is_grant=True)
    return "I1", f"fence {fence} was given to"


def a_lapsed_run_that_lives_again(world, database):
    database.query(f"UPDATE lease.lease SET state = 'held', lease_until = {LATER}, check_at = now() WHERE lease = 'lapsed'")
    return "I2", "settlement/lapsed was over"


def a_resource_taken_from_a_live_lease(world, database):
    database.query("UPDATE lease.resource SET fence = NULL WHERE resource = 'album/live'")
    return "I2", "album/live is covered by fence"


def a_lease_that_is_live_longer_than_told(world, database):
    database.query("UPDATE lease.lease SET lease_until = lease_until + interval '1 day' WHERE lease = 'live'")
    return "I2", "settlement/live"


def not_published(world, database):
    """The refusal of the last message, and what came behind it, as if the relay were slow: outputs are judged up to the row before."""
    database.query("UPDATE lease.relay_progress SET published = least(published, %s)", (world.refused - 1,))


def a_renewal_with_another_token(world, database):
    not_published(world, database)
    database.query("UPDATE lease.journal j SET event = 'renewed', state = 'held', holder = l.holder, claim_id = l.claim_id, fence = l.fence, since = l.since,"
                   " lease_until = l.lease_until, attempt = 1, blocker = NULL FROM lease.lease l WHERE l.lease = 'forged' AND j.number = %s", (world.refused,))
    return "I3", f"renewed settlement/forged at number {world.refused}, by a command whose token"


def a_lease_of_another_holder(world, database):
    database.query("UPDATE lease.lease SET holder = 'mallory' WHERE lease = 'live'")
    return "I3", "settlement/live was granted to a"


def a_message_without_an_answer(world, database):
    not_published(world, database)
    topic, partition, offset = database.query("SELECT origin_topic, origin_partition, origin_offset FROM lease.journal WHERE number = %s", (world.refused,))[0]
    database.query("UPDATE lease.journal SET origin_topic = NULL, origin_partition = NULL, origin_offset = NULL WHERE number = %s", (world.refused,))
    return "I4", f"{topic[len(world.place.prefix):]}/{partition}@{offset} was consumed"


def an_answer_that_says_something_else(world, database):
    number = database.value("UPDATE lease.journal SET reason = 'another' WHERE number = (SELECT min(number) FROM lease.journal WHERE event = 'malformed') RETURNING number")
    return "I4", f"number {number} in lease.results/"


def results_in_another_order(world, database):
    first, second = (world.append(database, event="bounced", kind="contract", subject="album/1", source="/s", message_id=f"m{n}", reason="expired", changes_lease=False)
                     for n in (1, 2))
    for number, message in ((second, "m2"), (first, "m1")):
        world.produce("lease.results", "album/1", {"number": number, "outcome": "bounced", "kind": "contract", "lease": "album/1",
                                                   "command": {"source": "/s", "id": message}, "reason": "expired"}, number, "bounced")
    database.query("UPDATE lease.relay_progress SET published = %s", (second,))
    return "I5", f"has number {first} behind a higher one"


def an_offset_that_goes_back(world, database):
    topic, partition, offset = database.query("SELECT origin_topic, origin_partition, origin_offset FROM lease.journal WHERE number = %s", (world.refused,))[0]
    database.query("DELETE FROM lease.consumed WHERE topic = %s AND partition = %s AND next_offset > %s", (topic, partition, offset))
    return "I6", f"{topic[len(world.place.prefix):]}/{partition} would be consumed from"


def an_edit_under_a_live_lease(world, database):
    database.query("INSERT INTO lease.admitted_edit VALUES (%s, 'album', 'live', clock_timestamp(), 'ann', '{}', '{}')", (world.live["fence"],))
    return "I7", "album/live was changed by ann"


def a_run_that_was_told_of_an_edit_while_it_lived(world, database):
    number = database.value("UPDATE lease.journal j SET basis = jsonb_set(basis, '{changes,0,at}', to_jsonb(to_char((SELECT g.since FROM lease.journal g WHERE g.subject = 'lapsing'"
                            " AND g.is_grant) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))) WHERE subject = 'lapsing' AND event = 'finished' RETURNING number")
    return "I7", f"as number {number} tells"


def work_without_an_expiry_that_is_taken(world, database):
    database.query("UPDATE lease.lease SET state = 'ready', ready_at = now() WHERE lease = 'old-1'")
    number = world.append(database, event="lapsed", subject="old-1", holder="host-3", fence=database.value("SELECT fence FROM lease.lease WHERE lease = 'old-1'"), state="ready")
    return "I8", f"cleanup/old-1 has no expiry, and lapsed at number {number}"


def a_final_state_that_is_left(world, database):
    database.query("UPDATE lease.lease SET state = 'ready', ready_at = now(), ended_at = NULL WHERE lease = 'file-0'")
    return "I10", "cleanup/file-0 ended at number"


def a_token_in_a_table(world, database):
    database.query("UPDATE lease.kind SET summary = %s WHERE kind = 'delivery'", (f"the key is {world.live['token']}!",))
    return "I11", "a token stands in a row of lease.kinds"


def an_effect_with_a_lower_fence(world, database):
    database.query("INSERT INTO fileserver.lifecycle (file, event, fence, claim_id, physical_name) SELECT file, 'confirmed', 1, gen_random_uuid(), physical_name"
                   " FROM fileserver.file WHERE file = 'file-1'")
    return "I9", "file-1: row"


def quota_that_is_settled_twice(world, database):
    database.query("UPDATE fileserver.account SET used_bytes = used_bytes - 1000")
    return "I9", "account a uses"


def an_effect_above_the_gate(world, database):
    database.query("INSERT INTO lease_gate.effect VALUES ('file/file-1', 'e', 9007199254740000, gen_random_uuid())")
    return "I9", "effect e of file/file-1"


# One of each; then what else may break an invariant, several at a time, where each breaks another one.
FAULTS = [[fault] for fault in (
    a_fence_given_out_twice, a_lapsed_run_that_lives_again, a_renewal_with_another_token, a_message_without_an_answer, results_in_another_order,
    an_offset_that_goes_back, an_edit_under_a_live_lease, work_without_an_expiry_that_is_taken, an_effect_with_a_lower_fence,
    a_final_state_that_is_left, a_token_in_a_table)]
MORE = [[a_resource_taken_from_a_live_lease, a_lease_of_another_holder, an_answer_that_says_something_else, a_run_that_was_told_of_an_edit_while_it_lived,
         an_effect_above_the_gate],
        [a_lease_that_is_live_longer_than_told, quota_that_is_settled_twice]]
IN_FILES = (an_effect_with_a_lower_fence, an_effect_above_the_gate, quota_that_is_settled_twice)


def spoil(world, faults):
    """The copies that the faults are put into, and what is expected: invariant → words."""
    expected, copies = {}, {}
    for fault in faults:
        source = world.files.database if fault in IN_FILES else world.place.database
        if source not in copies:
            copies[source] = world.spoilt(source)
        invariant, words = fault(world, copies[source])
        expected[invariant] = words
    return copies.get(world.place.database), copies.get(world.files.database), expected


@pytest.mark.parametrize("faults", FAULTS + MORE, ids=["-".join(fault.__name__ for fault in faults) for faults in FAULTS + MORE])
def test_a_fault_breaks_its_invariant_and_no_other(world, books, file_server, faults):
    database, files, expected = spoil(world, faults)
    found = books.audit("--wait", "0", *(file_server(files) if files else []), database=database)
    assert found.code == 1, found
    assert set(found.broken) == set(expected), found.broken
    for invariant, words in expected.items():
        assert words in found.broken[invariant], found.broken


def test_a_fault_on_the_disk_breaks_I9(world, books, file_server):
    path = os.path.join(world.files.root, world.files.name_of("file-3", "a"))
    os.rename(path, f"{path}.~9")
    try:
        found = books.audit(*file_server(world.files.database), json_out=False)
    finally:
        os.rename(f"{path}.~9", path)
    assert found.code == 1, found
    assert re.search(r"^I9 +broken .*\n +first of 1: .*file-3.v0.~9 was moved under fence 9, which never began on file file-3$", found.text, re.M), found
    assert [line.split()[0] for line in found.text.splitlines() if re.match(r"I\d+ +holds ", line)] == [name for name in ALL if name != "I9"], found


# ---- what it cannot look at ----

def test_what_retention_took_is_left_out(world, books):
    """The last one with these topics: half of all they had is gone, and the older half of the journal with it. Nothing is broken by that."""
    prefix = world.place.prefix
    topics = [prefix + topic for topic in (*INPUTS, "lease.results", "lease.grants", "lease.dead-letters")]
    subprocess.run(["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", HERE / "DeleteRecords.java", world.place.kafka.brokers, *topics], check=True, timeout=60,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    database = world.spoilt(world.place.database)
    database.query("DELETE FROM lease.journal WHERE number < %s", (world.head // 2,))
    found = books.audit("--wait", "0", database=database, token_key=None)
    assert found.code == 0 and not found.broken, found
    assert found.of("I4")["left_out"] and found.of("I4")["judged"] > world.head / 4, found
    assert found.report["cut"]["first_number"] == world.head // 2


def test_it_says_that_it_could_not_look(books):
    for code, found in ((2, books.audit("--database", "host=127.0.0.1 port=9 dbname=x user=x")), (2, books.audit("--memory", "64m")), (64, run(["--colour", "red"]))):
        assert found.code == code and found.told.startswith("lease-audit: "), found
        assert found.text == ""
