# ctest: LABEL effects TIMEOUT 240 TAKES 10
"""The file server's tables by themselves: writers and cleanups behind the gate, quota to the byte, names that are never reused."""
import psycopg2
import pytest

from fileserver import claim_of


@pytest.fixture(autouse=True)
def stored(files):
    files.add("f1", "a1", 1000)


def test_fileserver__a_writer_moves_quota_and_name(files):
    assert files.write("f1", 3, 400, "a1/f1.v1") == "written"
    assert files.used("a1") == 400
    assert files.database.value("SELECT physical_name FROM fileserver.file WHERE file = 'f1'") == "a1/f1.v1"
    assert files.write("f1", 3, 400, "a1/f1.v1") == "written", "told again"
    assert files.lifecycle("f1") == [("stored", None, 1000, False), ("written", 3, -600, False)]


def test_fileserver__a_stale_writer_is_refused(files):
    files.begin("f1", 5)
    before = files.everything()
    assert files.write("f1", 4, 1, "a1/f1.v1") == "stale"
    assert files.write("f1", 5, 1, "a1/f1.v1", claim_of(5, 1)) == "stale"
    assert files.settle("f1", 4)[0] == "stale" and files.begin("f1", 4)[0] == "stale"
    assert files.everything() == before


def test_fileserver__nobody_writes_a_file_whose_deletion_has_begun(files):
    files.begin("f1", 5)
    assert files.write("f1", 6, 1, "a1/f1.v1") == "gone"
    files.settle("f1", 7)
    assert files.write("f1", 8, 1, "a1/f1.v1") == "gone"
    assert files.used("a1") == 0


def test_fileserver__a_writer_that_was_replaced_by_a_writer_is_refused(files):
    assert files.write("f1", 6, 60, "a1/f1.v6") == "written"
    assert files.write("f1", 5, 50, "a1/f1.v5") == "stale"
    assert files.used("a1") == 60


def test_fileserver__settles_once(files):
    files.begin("f1", 5)
    assert files.settle("f1", 5) == ("settled", 1000, 5, False)
    assert files.settle("f1", 5) == ("already", 1000, 5, False)
    assert files.settle("f1", 6, missing=True) == ("already", 1000, 5, False)
    assert files.used("a1") == 0
    assert [row[:2] for row in files.lifecycle("f1")] == [("stored", None), ("begun", 5), ("settled", 5), ("confirmed", 6)]


def test_fileserver__does_not_settle_what_was_not_begun(files):
    assert files.settle("f1", 5)[0] == "not_begun"
    assert files.used("a1") == 1000


def test_fileserver__tells_a_successor_where_the_file_may_be(files):
    files.write("f1", 2, 10, "a1/f1.v1")
    files.begin("f1", 5)
    files.begin("f1", 7)
    files.begin("f1", 7)
    assert files.begin("f1", 9) == ("deleting", "a1/f1.v1", [5, 7], ["a1/f1.v0"], False)


def test_fileserver__a_name_is_never_used_again(files):
    files.write("f1", 2, 10, "a1/f1.v1")
    before = files.everything()
    assert files.write("f1", 3, 10, "a1/f1.v0") == "name_taken"
    assert files.database.value("SELECT fileserver.store('f2', 'a1', 5, 'a1/f1.v0')") == "name_taken"
    assert {key: files.everything()[key] for key in ("accounts", "files", "lifecycle")} == {
        key: before[key] for key in ("accounts", "files", "lifecycle")}


def test_fileserver__stays_within_the_quota(files):
    files.open_account("a1", 1500)
    assert files.write("f1", 2, 1501, "a1/f1.v1") == "over_quota"
    assert files.database.value("SELECT fileserver.store('f2', 'a1', 501, 'a1/f2.v0')") == "over_quota"
    assert files.database.value("SELECT fileserver.store('f2', 'a1', 500, 'a1/f2.v0')") == "stored"
    assert files.used("a1") == 1500


def test_fileserver__a_lowered_quota_keeps_nobody_from_deleting(files):
    files.add("f2", "a1", 500)
    files.open_account("a1", 10)
    files.begin("f1", 5)
    assert files.settle("f1", 5)[0] == "settled" and files.used("a1") == 500


@pytest.mark.parametrize("name", ("/f", "../f", "a/../f", "a//f", "a/", ".", "a/.", "a/f.~7", pytest.param("x" * 201, id="long"), "a\nb"))
def test_fileserver__refuses_a_name_that_no_worker_would_touch(files, name):
    with pytest.raises(psycopg2.errors.CheckViolation):
        files.database.query("SELECT fileserver.store('f2', 'a1', 5, %s)", (name,))
    assert files.used("a1") == 1000


def test_fileserver__its_users_change_nothing_but_through_the_functions(files):
    conninfo = files.database.login("fileserver_user")
    connection = files.database.connect(conninfo)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT fileserver.write('f1', 2, %s, 10, 'a1/f1.v1')", (claim_of(2),))
            assert cursor.fetchone() == ("written",)
            for statement in ("UPDATE fileserver.file SET physical_name = 'a1/x'", "UPDATE fileserver.account SET used_bytes = 0",
                              "DELETE FROM fileserver.lifecycle", "SELECT fileserver.use_bytes('a1', -1)",
                              "SELECT lease_gate.admit('file/f1', 99, gen_random_uuid())"):
                with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                    cursor.execute(statement)
    finally:
        connection.close()
        files.database.server.drop_logins()
