"""Servers that can be followed, copied, held back, promoted and killed, and the list of them that a client is given.

    a = Server(folder)                  a throwaway server
    b = a.follower("b", folder)         a base backup of it that follows it (asynchronously, unless it is told otherwise)
    servers = Servers(a, b)             one conninfo with both: whoever may be written to
"""
import contextlib
import os
import re
import shutil
import signal

import psycopg2

from harness import Database, GivenPostgres, Postgres, eventually, run
from postgres import ACCOUNT, rows_of
from processes import descendants, is_gone, is_root

# A follower that lost its server asks again this soon; by default it would be five seconds.
FOLLOWING = {"wal_retrieve_retry_interval": "100ms", "wal_receiver_status_interval": "1s"}


def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Server(Postgres):
    def __init__(self, folder, settings=None):
        super().__init__(folder, settings=dict(FOLLOWING, shared_buffers="32MB", **(settings or {})))

    def account(self, **parts):
        """The superuser's conninfo, with some parts replaced."""
        return self.conninfo(None, **parts)

    # --- copies ---

    def follower(self, name, folder, start=True):
        """A base backup that follows this server under `name`."""
        copy = Server(folder)
        copy._prepare_folder()
        copy._take_password(self.password)
        run([f"{self.programs}/pg_basebackup", "-D", copy.data, "-d", self.account(application_name=name), "-R",
             "-c", "fast", "-X", "stream", "--no-sync"], user=ACCOUNT, cwd="/")
        copy._move_in()
        return copy.start() if start else copy

    def keep_data(self, folder):
        """Copies the data directory of this server, which must be stopped, to `folder`."""
        assert not self.child.is_running()
        shutil.rmtree(folder, ignore_errors=True)
        run(["cp", "-a", self.data, folder])

    def put_back(self, folder):
        """Puts a data directory that keep_data() copied back in place of this server's, as a careless operator would."""
        assert not self.child.is_running()
        shutil.rmtree(self.data)
        run(["cp", "-a", folder, self.data])

    def _prepare_folder(self):
        os.makedirs(self.folder, exist_ok=True)
        os.chmod(self.folder, 0o700)
        if is_root():
            shutil.chown(self.folder, ACCOUNT)

    def _take_password(self, password):
        self._conninfo = psycopg2.extensions.make_dsn(self._conninfo, password=password)
        self.password = password

    def _move_in(self):
        """The last word in the file counts: it came with the port and the socket of the server that was copied."""
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a", encoding="ascii") as file:
            file.write(f"port = {self.port}\nunix_socket_directories = '{self.folder}'\n")

    def load(self, path, database):
        """psql < path"""
        run([f"{self.programs}/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.conninfo(database), "-f", path])

    # --- who is who ---

    def identity(self):
        """System identifier and timeline, the two things by which a server is known."""
        return self.query("SELECT c.system_identifier::text, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int"
                          " FROM pg_control_system() c")[0]

    def log_text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    # --- following ---

    def has_followed(self, server, limit=60):
        """Waits until this one has replayed all that `server` has written so far."""
        upto = server.query("SELECT pg_current_wal_lsn()::text")[0][0]
        eventually(lambda: self.query("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (upto,))[0][0], limit,
                   "the standby has followed")
        return self

    def sender_of(self, name):
        """The process id that sends to the follower `name`."""
        rows = self.query("SELECT pid FROM pg_stat_replication WHERE application_name = %s AND state = 'streaming'", (name,))
        assert rows, f"nobody called {name} follows"
        return rows[0][0]

    def hold_back(self, name):
        """From now on the follower gets nothing; resume() with the returned process id lets it go on."""
        sender = eventually(lambda: self.sender_of(name), 60, f"{name} follows")
        os.kill(sender, signal.SIGSTOP)
        return sender

    @staticmethod
    def resume(pid):
        os.kill(pid, signal.SIGCONT)

    def promote(self):
        assert self.query("SELECT pg_promote(true, 60)")[0][0]
        return self

    # --- ends ---

    def processes(self):
        return [self.child.pid, *descendants(self.child.pid)] if self.child.is_running() else []

    def freeze(self):
        """Stops every process of it (SIGSTOP); thaw() lets them go on."""
        signal_all(self.processes(), signal.SIGSTOP)

    def thaw(self):
        signal_all(self.processes(), signal.SIGCONT)

    def kill(self):
        """Everything of it dies at once, as with the machine. What was not sent by then is lost to the followers."""
        processes = self.processes()
        signal_all(processes, signal.SIGKILL)
        if processes:
            self.child.wait()
            # A process that has yet to die is still at the shared memory, and a server that is started meanwhile refuses that.
            eventually(lambda: all(map(is_gone, processes)), 60, "all of it is gone")
            pid_file = os.path.join(self.data, "postmaster.pid")
            if os.path.exists(pid_file):
                os.unlink(pid_file)

    # --- waiting in commits ---

    def follow_synchronously(self, names):
        """Commits wait for these followers from now on ('' ends that)."""
        self.query(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.query("SELECT pg_reload_conf()")
        eventually(lambda: self.query("SHOW synchronous_standby_names")[0][0] == names, what="the setting counts")
        if names:
            eventually(lambda: self.query("SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')")[0][0],
                       60, "somebody is synchronous")

    def waiting_for_follower(self, application):
        """The process id of a connection whose commit waits for a synchronous follower."""
        rows = self.query("SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event = 'SyncRep'", (application,))
        return rows[0][0] if rows else None


class ServersDatabase(Database):
    def query(self, sql, parameters=None):
        """On a connection of its own: each time the server counts that may be written to by then."""
        with contextlib.closing(self.connect()) as connection:
            return rows_of(connection, sql, parameters)

    def drop(self):
        """It goes with its servers."""


class Servers(GivenPostgres):
    """Several servers as one: a client is given all of them and takes the one that may be written to.

    They share the password, since each is a copy of another. Not a server to be started: its members are.
    """

    is_throwaway = True

    def __init__(self, *members):
        self.members = members
        self.logins = []
        self._conninfo = members[0].account(host=",".join("127.0.0.1" for _ in members),
                                            port=",".join(str(member.port) for member in members),
                                            target_session_attrs="read-write", connect_timeout="10")

    def create_database(self, prefix="lease", template=None):
        made = super().create_database(prefix, template)
        return ServersDatabase(self, made.name)

    def database(self, name):
        return ServersDatabase(self, name)

    def drop_logins(self):
        """They go with their servers."""

    def stop(self):
        for member in self.members:
            if member.child:
                member.kill()


def dump(database, folder):
    """The roles of a database's server and the database itself, as SQL: two files."""
    server = database.server
    server = server.members[0] if isinstance(server, Servers) else server
    roles, content = os.path.join(folder, "roles.sql"), os.path.join(folder, "dump.sql")
    for path, words in ((roles, ["pg_dumpall", "--roles-only", "-d", server.account()]), (content, ["pg_dump", "-d", server.conninfo(database.name)])):
        text = run([f"{server.programs}/{words[0]}", *words[1:]])
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return roles, content


def restore(files, server, name):
    """psql < dump, into a new database. The accounts that every server has are there already."""
    roles, content = files
    own = re.compile(r"^(CREATE|ALTER) ROLE postgres\b.*$", re.MULTILINE)
    with open(roles, encoding="utf-8") as file:
        text = own.sub("", file.read())
    with open(roles, "w", encoding="utf-8") as file:
        file.write(text)
    server.query(f'CREATE DATABASE "{name}" TEMPLATE template0 ENCODING \'UTF8\'')
    for path in (roles, content):
        server.load(path, name)
