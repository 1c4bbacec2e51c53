"""A throwaway PostgreSQL server, or a given one, and databases on it."""
import contextlib
import glob
import os
import re
import secrets
import select
import signal
import threading
import urllib.parse

import psycopg2
import psycopg2.extensions

from processes import Child, find_program, free_port, is_root, run
from waiting import eventually

ACCOUNT = "postgres"          # initdb and postgres refuse to run as root
SOCKET_PATH_MAX = 107         # bytes, a limit of the kernel

SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "wal_level": "replica",
    "dynamic_shared_memory_type": "mmap",     # in the server's own folder: one that is killed leaves nothing behind
    "log_line_prefix": "'%m %p %d '",
    "log_checkpoints": "off",
    "timezone": "'UTC'",
    "lc_messages": "'C'",
}


def program_folder():
    """Where the newest installed server (14 or later) keeps its programs."""
    folders = []
    for folder in glob.glob("/usr/lib/postgresql/*/bin"):
        version = folder.split("/")[-2]
        if version.isdigit() and int(version) >= 14 and os.access(f"{folder}/postgres", os.X_OK):
            folders.append((int(version), folder))
    if folders:
        return max(folders)[1]
    return os.path.dirname(find_program("postgres"))


def is_open(connection):
    """False once the server has ended it: an idle connection has nothing to read but that."""
    return not connection.closed and not select.select([connection], [], [], 0)[0]


def rows_of(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []


class Database:
    """One database. `conninfo` is the superuser's; login() makes accounts with fewer rights."""

    def __init__(self, server, name):
        self.server = server
        self.name = name
        self.conninfo = server.conninfo(name)
        self._kept = threading.local()

    def uri(self):
        """The conninfo in one word: needs no quotes in a shell or an environment file."""
        parts = psycopg2.extensions.parse_dsn(self.conninfo)
        quoted = {key: urllib.parse.quote(value, safe="") for key, value in parts.items()}
        account = quoted.pop("user", "") + (f":{quoted.pop('password')}" if "password" in quoted else "")
        place = quoted.pop("host", "") + (f":{quoted.pop('port')}" if "port" in quoted else "")
        rest = "&".join(f"{key}={value}" for key, value in quoted.items() if key != "dbname")
        return f"postgresql://{account + '@' if account else ''}{place}/{quoted.get('dbname', '')}{'?' + rest if rest else ''}"

    def connect(self, conninfo=None):
        connection = psycopg2.connect(conninfo or self.conninfo)
        connection.autocommit = True
        return connection

    def query(self, sql, parameters=None):
        """The rows of one statement, or [] if it returns none.

        Each thread keeps its connection: whoever waits asks fifty times a second, and a new connection costs more than the answer.
        So a statement must leave nothing behind in its session."""
        connection = getattr(self._kept, "connection", None)
        if connection is not None and not is_open(connection):
            connection = None
        if connection is None:
            connection = self._kept.connection = self.connect()
        return rows_of(connection, sql, parameters)

    def forget_connection(self):
        """Closes this thread's connection."""
        if hasattr(self._kept, "connection"):
            self._kept.connection.close()
            del self._kept.connection

    def value(self, sql, parameters=None):
        return self.query(sql, parameters)[0][0]

    def login(self, role):
        """The conninfo of a new account that is only a member of `role` (a role of the migrations)."""
        name = f"{role}_{secrets.token_hex(4)}"
        password = secrets.token_hex(16)
        self.query(f'CREATE ROLE "{name}" LOGIN PASSWORD %s IN ROLE "{role}"', (password,))
        self.server.logins.append(name)
        return self.server.conninfo(self.name, user=name, password=password)

    def drop(self):
        self.forget_connection()
        self.server.query(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')


class GivenPostgres:
    """A server that somebody else runs. The conninfo must be a superuser's: databases and roles are made on it."""

    is_throwaway = False

    def __init__(self, conninfo):
        self._conninfo = conninfo
        self.logins = []

    def conninfo(self, database=None, **other):
        parts = psycopg2.extensions.parse_dsn(self._conninfo)
        if database:
            parts["dbname"] = database
        parts.update(other)
        return psycopg2.extensions.make_dsn(**parts)

    def start(self):
        return self

    def stop(self):
        pass

    def query(self, sql, parameters=None):
        """As of a database, on a connection of its own."""
        with contextlib.closing(Database(self, None).connect()) as connection:
            return rows_of(connection, sql, parameters)

    def version(self):
        return self.query("SHOW server_version")[0][0].split()[0]

    def where(self):
        """Where the server is, without the password."""
        parts = psycopg2.extensions.parse_dsn(self._conninfo)
        return " ".join(f"{key}={value}" for key, value in parts.items() if key in ("service", "host", "port", "dbname"))

    def create_database(self, prefix="lease", template=None):
        name = f"{prefix}_{secrets.token_hex(4)}"
        assert re.fullmatch(r"[a-z0-9_]+", name), name
        copied = f' TEMPLATE "{template}"' if template else " TEMPLATE template0 ENCODING 'UTF8'"
        self.query(f'CREATE DATABASE "{name}"{copied}')
        return Database(self, name)

    def drop_logins(self):
        for name in self.logins:
            self.query(f'DROP ROLE IF EXISTS "{name}"')
        self.logins.clear()


class Postgres(GivenPostgres):
    """A throwaway server with a data directory, a password and free ports of its own.

    fsync stays on unless told otherwise, so that what is measured on it is honest.
    """

    is_throwaway = True

    def __init__(self, folder, fsync=True, settings=None, environment=None):
        self.environment = environment or {}
        self.folder = os.path.abspath(folder)
        self.data = os.path.join(self.folder, "data")
        self.log = os.path.join(self.folder, "postgres.log")
        self.port = free_port()
        self.password = secrets.token_hex(16)
        self.settings = dict(SETTINGS, fsync="on" if fsync else "off", **(settings or {}))
        self.programs = program_folder()
        self.child = None
        super().__init__(f"host=127.0.0.1 port={self.port} user=postgres password={self.password} dbname=postgres")
        socket_path = f"{self.folder}/.s.PGSQL.{self.port}"
        assert len(socket_path) <= SOCKET_PATH_MAX, f"the path {socket_path} is too long for a socket"

    def create(self):
        """Makes the data directory (initdb)."""
        os.makedirs(self.folder, exist_ok=True)
        if is_root():
            os.chmod(self.folder, 0o700)
            run(["chown", ACCOUNT, self.folder])
        password_file = os.path.join(self.folder, "password")
        with open(os.open(password_file, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(self.password + "\n")
        if is_root():
            run(["chown", ACCOUNT, password_file])
        run([f"{self.programs}/initdb", "-D", self.data, "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
             "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password_file}"], user=ACCOUNT, cwd="/")
        os.unlink(password_file)
        self.write_settings()
        return self

    def write_settings(self):
        settings = dict(self.settings, port=str(self.port), unix_socket_directories=f"'{self.folder}'")
        with open(os.path.join(self.data, "postgresql.auto.conf"), "w", encoding="ascii") as file:
            file.writelines(f"{key} = {value}\n" for key, value in settings.items())

    def start(self):
        if not os.path.exists(self.data):
            self.create()
        # SIGINT is PostgreSQL's fast shutdown: clients are cut off, nothing is lost.
        self.child = Child("postgres", [find_program("env"), *(f"{name}={value}" for name, value in self.environment.items()),
                                        f"{self.programs}/postgres", "-D", self.data], self.log, user=ACCOUNT,
                           death_signal="INT", stop_signal=signal.SIGINT, cwd="/").start()
        eventually(self._answers, 60, "PostgreSQL is ready")
        return self

    def _answers(self):
        self.child.must_run()
        try:
            self.query("SELECT 1")
            return True
        except psycopg2.OperationalError:
            return False

    def stop(self):
        if self.child:
            self.child.stop(60)

    def crash(self):
        """Ends the server as a crash would (immediate shutdown); start() then recovers."""
        self.child.signal(signal.SIGQUIT)
        self.child.wait(60)

    def restart(self):
        self.stop()
        self.start()

    def where(self):
        return f"127.0.0.1:{self.port}"
