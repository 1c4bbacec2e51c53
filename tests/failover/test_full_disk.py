# ctest: LABEL failover TIMEOUT 120
"""F19: a server whose write-ahead log finds no room on its disk panics and cuts everybody off, commits in doubt and all. The
coordinator is not ready meanwhile and stays alive; with room on the disk again, every command gets its one answer.

The disk is a tmpfs in a mount namespace of this process's own, which goes with it.
"""
import ctypes
import os
import secrets
import shutil

import pytest

from harness import eventually
from postgres import ACCOUNT
from processes import is_root
from servers import Server

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
DISK_MB = 64
COMMANDS = 40


def mount_disk(path):
    libc = ctypes.CDLL(None, use_errno=True)

    def done(result):
        assert result == 0, os.strerror(ctypes.get_errno())

    os.makedirs(path)
    done(libc.unshare(CLONE_NEWNS))
    done(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    done(libc.mount(b"none", path.encode(), b"tmpfs", 0, f"size={DISK_MB}m,mode=711".encode()))


def server_with_small_disk(world):
    """Its write-ahead log is on the small disk; the rest is not."""
    disk = world.server_folder("disk")
    mount_disk(disk)
    server = world.keep(Server(world.server_folder("server"), {"max_wal_size": "32MB", "min_wal_size": "32MB"})).create()
    shutil.move(f"{server.data}/pg_wal", f"{disk}/pg_wal")
    os.symlink(f"{disk}/pg_wal", f"{server.data}/pg_wal")
    for folder, _, files in os.walk(f"{disk}/pg_wal"):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            shutil.chown(path, ACCOUNT, ACCOUNT)
    return server.start(), disk


def fill(disk):
    path = f"{disk}/ballast"
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            return path


@pytest.mark.skipif(not is_root(), reason="a mount namespace needs root")
def test_F19_a_full_disk_is_waited_for_and_every_command_is_answered_once(world):
    server, disk = server_with_small_disk(world)
    place = world.place(server)
    coordinator = place.coordinator().start()
    events = place.events()
    ballast = fill(disk)

    def send(first):
        for number in range(first, first + COMMANDS):
            events.send("settlement", "start", f"run-{number}", {"holder": "a", "payload": {"fill": secrets.token_urlsafe(45000)}})
        events.flush()

    def has_panicked():
        return "PANIC" in server.log_text() and "No space left on device" in server.log_text()

    sent = 0
    while not has_panicked() and sent < 40 * COMMANDS:
        send(sent)
        sent += COMMANDS
    eventually(has_panicked, 30, "the server panics")
    eventually(lambda: coordinator.get("/readyz")[0] == 503, 20, "the coordinator is not ready")
    assert coordinator.child.is_running() and coordinator.get("/livez")[0] == 200
    os.unlink(ballast)
    if not server.child.is_running():
        server.start()
    coordinator.wait_ready(60)
    place.wait_idle(60)
    assert place.database.query("SELECT event, count(*) FROM lease.timeline GROUP BY event") == [("granted", sent)]
    print(f"{sent} commands, {server.log_text().count('PANIC')} panics")
