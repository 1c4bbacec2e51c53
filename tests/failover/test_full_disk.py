# ctest: LABEL failover TIMEOUT 300 TAKES 10
"""F19: a server whose write-ahead log finds no room on its disk panics and cuts everybody off, commits in doubt and all; one that has
none for its tables refuses to write. The coordinator is not ready meanwhile and stays alive; with room on the disk again, every
command gets its one answer.

The disk is a tmpfs in a mount namespace of this process's own, which goes with it.
"""
import ctypes
import os
import secrets
import shutil

import psycopg2
import pytest

from harness import eventually
from postgres import ACCOUNT
from processes import is_root
from servers import Server

CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 0x4000, 0x40000, 2
DISK_MB = 64
AT_ONCE = 40      # starts
MOST = 800


@pytest.fixture(name="disk")
def fixture_disk(world):
    """A small disk that only this process and its children see."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not is_root() or libc.unshare(CLONE_NEWNS) != 0:
        pytest.skip("a mount namespace of one's own needs root and the right to mount")

    def done(result):
        assert result == 0, os.strerror(ctypes.get_errno())

    disk = world.server_folder("disk")
    os.makedirs(disk)
    done(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    done(libc.mount(b"none", disk.encode(), b"tmpfs", 0, f"size={DISK_MB}m,mode=711".encode()))
    yield disk
    done(libc.umount2(disk.encode(), MNT_DETACH))      # its folder can go then, as all others of the servers


def give_to_server(path):
    for folder, _, files in os.walk(path):
        for one in (folder, *(os.path.join(folder, name) for name in files)):
            shutil.chown(one, ACCOUNT, ACCOUNT)


def put_log_on(disk, server):
    """Its write-ahead log is on the small disk; the rest is not."""
    server.create()
    shutil.move(f"{server.data}/pg_wal", f"{disk}/pg_wal")
    os.symlink(f"{disk}/pg_wal", f"{server.data}/pg_wal")
    give_to_server(f"{disk}/pg_wal")


def put_tables_on(disk, place):
    """Its tables are on the small disk; the write-ahead log is not."""
    os.makedirs(f"{disk}/tables")
    give_to_server(f"{disk}/tables")
    place.database.server.query(f"CREATE TABLESPACE small LOCATION '{disk}/tables'")
    place.database.server.query(f'ALTER DATABASE "{place.database.name}" SET TABLESPACE small')


def fill(disk):
    path = f"{disk}/ballast"
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            return path


class Flood:
    """Starts with large payloads that nothing makes smaller."""

    def __init__(self, place):
        self.events = place.events()
        self.sent = 0

    def until(self, condition, limit=90):
        def holds():
            if self.sent < MOST:
                for _ in range(AT_ONCE):
                    self.events.send("settlement", "start", f"run-{self.sent}", {
                        "holder": "a", "ttl_ms": 3600000, "payload": {"fill": secrets.token_urlsafe(45000)}})
                    self.sent += 1
                self.events.flush()
            return condition()

        eventually(holds, limit, "the disk is full", every=0.1)


def is_told(coordinator):
    eventually(lambda: coordinator.get("/readyz")[0] == 503, 60, "the coordinator is not ready")
    assert coordinator.child.is_running() and coordinator.get("/livez")[0] == 200


def comes_back(server):
    """It may end a moment after it has room again, of what it found before."""
    if not server.child.is_running():
        server.start()
    try:
        return server.query("SELECT true")
    except psycopg2.OperationalError:
        return False


def check_all_answered(place, coordinator, flood):
    coordinator.wait_ready(60)
    place.wait_idle(60)
    assert place.database.query("SELECT event, count(*) FROM lease.timeline GROUP BY event") == [("granted", flood.sent)]
    print(f"{flood.sent} commands")


def test_F19_no_room_for_the_log_is_waited_for_and_every_command_is_answered_once(world, disk):
    server = world.keep(Server(world.server_folder("server"), {"max_wal_size": "32MB", "min_wal_size": "32MB"}))
    put_log_on(disk, server)
    place = world.place(server.start())
    coordinator, flood = place.coordinator().start(), Flood(place)
    ballast = fill(disk)
    flood.until(lambda: "PANIC" in server.log_text() and "No space left on device" in server.log_text())
    is_told(coordinator)
    os.unlink(ballast)
    eventually(lambda: comes_back(server), 60, "the server is back")
    check_all_answered(place, coordinator, flood)


def test_no_room_for_the_tables_is_waited_for_and_every_command_is_answered_once(world, disk):
    """No panic here: what wants to write is refused (53100), what only looks is not. So the reaper is content while no lane is."""
    place = world.place(world.server("server"))
    put_tables_on(disk, place)
    coordinator, flood = place.coordinator().start(), Flood(place)
    ballast = fill(disk)
    flood.until(lambda: "code=53100" in coordinator.log_text())
    is_told(coordinator)
    os.unlink(ballast)
    check_all_answered(place, coordinator, flood)
