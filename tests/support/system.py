"""The system that `dev` runs things on: one PostgreSQL server and one Kafka broker, throwaway or given.

    system.py run [options] -- COMMAND ...   runs a command with LEASE_TEST_BROKERS, LEASE_TEST_DATABASE, LEASE_TEST_BIN set
    system.py up [options] [--env FILE]      migrates, makes topics, starts a coordinator, and stays until told to stop
    system.py demo [options]                 the same, and plays a story on it

Whatever was started is stopped when the command ends, when we are told to stop, and (by the kernel) when we die.
The process adopts every orphan below it, so that nothing which a test leaves behind survives.
"""
import argparse
import contextlib
import ctypes
import fcntl
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from kafka import GivenKafka, Kafka
from place import Place
from postgres import Database, GivenPostgres, Postgres
from processes import end_descendants
from story import play

PR_SET_CHILD_SUBREAPER = 36
FOLDER_PREFIX = "leasehold-"
MEMORY, MEMORY_NEEDED = "/dev/shm", 8 << 30      # a folder in memory, and how much must be free there
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def tell(text):
    print(text, flush=True)


def adopt_orphans():
    """Orphans below us become our children, so that end_descendants() finds them."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stop_on_signals():
    """A signal to stop unwinds the stack, so that every `with` stops what it started."""
    def stop(number, _frame):
        for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def _is_locked(folder):
    try:
        with open(os.path.join(folder, "lock"), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return True      # not ours to judge
    return False


def _free_bytes(folder):
    try:
        room = os.statvfs(folder)
        with open("/proc/meminfo", encoding="ascii") as file:
            available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 0
    return min(room.f_bavail * room.f_frsize, available)


def data_parent(in_memory):
    """Where the folder of the data is made. Tests kill and stop their servers, but no power fails: memory does for them, where there is plenty of it,
    and spares a third of the time. What is measured or shown stays on the disk. TMPDIR, where it is set, is obeyed."""
    if in_memory and "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and _free_bytes(MEMORY) >= MEMORY_NEEDED:
        return MEMORY
    parent = tempfile.gettempdir()
    return parent if len(parent) <= 60 else "/tmp"      # the path of PostgreSQL's socket has a limit


@contextlib.contextmanager
def temporary_folder(in_memory=False):
    """A folder that goes at the end. Those of processes that died without a chance to tidy up go at the start."""
    parent = data_parent(in_memory)
    for old in glob.glob(f"{parent}/{FOLDER_PREFIX}*"):
        if os.stat(old).st_uid == os.geteuid() and not _is_locked(old):
            shutil.rmtree(old, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent)
    os.chmod(folder, 0o711)
    with open(os.path.join(folder, "lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class System:
    """Holds the server and the broker. Entering starts them (in parallel, the broker takes seconds), leaving stops them."""

    def __init__(self, folder, brokers=None, database=None, quick=True, parts=("database", "broker")):
        self.folder = folder
        self.postgres = self.kafka = None
        if "database" in parts:
            self.postgres = GivenPostgres(database) if database else Postgres(f"{folder}/postgres")
        if "broker" in parts:
            self.kafka = GivenKafka(brokers) if brokers else Kafka(f"{folder}/kafka", quick=quick, tell=tell)

    def __enter__(self):
        try:
            for part in (self.postgres, self.kafka):
                if part:
                    part.start()
        except BaseException:
            self.keep_logs()
            self.stop()
            raise
        self.introduce()
        return self

    def introduce(self):
        """Says which server and which broker are in use, so that nobody mistakes one for another."""
        if self.folder.startswith(f"{MEMORY}/"):
            tell(f"throwaway data is in memory, in {self.folder}; TMPDIR=/tmp in the environment puts it on the disk")
        if self.postgres:
            kind = "throwaway" if self.postgres.is_throwaway else "given"
            tell(f"PostgreSQL {self.postgres.version()}, {kind}, at {self.postgres.where()}"
                 f" (fsync {self.postgres.query('SHOW fsync')[0][0]})")
        if self.kafka:
            kind = "throwaway" if self.kafka.is_throwaway else "given"
            tell(f"{self.kafka.version()}, {kind}, at {self.kafka.where()}")

    def __exit__(self, kind, _value, _trace):
        self.stop()

    def stop(self):
        for part in (self.kafka, self.postgres):
            if part:
                part.stop()

    def environment(self, build):
        environment = {"LEASE_TEST_BIN": os.path.abspath(build), "PYTHONDONTWRITEBYTECODE": "1"}
        if self.postgres:
            environment["LEASE_TEST_DATABASE"] = self.postgres.conninfo()
        if self.kafka:
            environment["LEASE_TEST_BROKERS"] = self.kafka.brokers
        return environment

    def keep_logs(self):
        """Copies the logs out of the folder that is about to go."""
        target = os.path.join(ROOT, "build", "logs")
        for log in glob.glob(f"{self.folder}/*/*.log"):
            os.makedirs(target, exist_ok=True)
            shutil.copyfile(log, os.path.join(target, os.path.basename(log)))
        if os.path.isdir(target):
            tell(f"logs are kept in {os.path.relpath(target, ROOT)}/")


def run_command(command, environment):
    """Runs the command in the foreground and returns its exit code."""
    process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *command], env=dict(os.environ, **environment))
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run_on_system(options):
    with temporary_folder(in_memory=not options.bench) as folder:
        with System(folder, options.broker, options.database, not options.bench, options.parts) as system:
            code = run_command(options.command, system.environment(options.build))
            if code != 0:
                system.keep_logs()
            return code


def given_database(postgres):
    """The database that the conninfo of a given server names."""
    return Database(postgres, postgres.query("SELECT current_database()")[0][0])


def write_environment(path, place, coordinator):
    """KEY=value lines, written at once: whoever waits for the file finds it whole."""
    fresh = f"{path}.{os.getpid()}"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(f"LEASE_BROKERS={place.kafka.brokers}\n"
                   f"LEASE_DATABASE={place.database.uri()}\n"
                   f"LEASE_HTTP=127.0.0.1:{coordinator.port}\n")
    os.rename(fresh, path)


def stay_up(options):
    """The system for somebody to play with, until Ctrl-C, or until the coordinator ends by itself."""
    with temporary_folder() as folder:
        with System(folder, options.broker, options.database, quick=False) as system:
            database = given_database(system.postgres) if options.database else system.postgres.create_database("leasehold")
            place = Place(system.postgres, system.kafka, options.build, f"{folder}/place", prefix="", database=database)
            place.prepare()
            coordinator = place.coordinator(**place.token_key_setting()).start()
            ctl = os.path.relpath(place.program("leasectl"))
            tell(f"""everything is ready; Ctrl-C stops it

  export LEASE_BROKERS={place.kafka.brokers}
  export LEASE_DATABASE='{database.uri()}'
  export LEASE_HTTP=127.0.0.1:{coordinator.port}

  {ctl} send --help              how to send a command
  {ctl} tail results --follow    what comes out
  {ctl} ls                       the leases
  psql "$LEASE_DATABASE" -c 'TABLE lease.timeline'
  curl http://127.0.0.1:{coordinator.port}/readyz   (also /metrics, /livez)
""")
            if options.env:
                write_environment(options.env, place, coordinator)
            try:
                code = coordinator.child.process.wait()
            except SystemExit:
                tell("stopping")
                coordinator.stop()
                return 0
            tell(f"dev: the coordinator ended by itself with {code}; the end of its log:\n{coordinator.child.log_tail()}")
            system.keep_logs()
            return 70


def show_demo(options):
    """The story, in a database and topics of its own, also on a given server."""
    with temporary_folder() as folder:
        with System(folder, options.broker, options.database, quick=True) as system:
            place = Place(system.postgres, system.kafka, options.build, f"{folder}/place",
                          prefix="" if system.kafka.is_throwaway else None)
            try:
                play(place, tell)
            except BaseException:
                system.keep_logs()
                raise
            finally:
                place.close()
            return 0


def parse(words):
    parser = argparse.ArgumentParser(prog="system.py", description=__doc__.splitlines()[0])
    parser.add_argument("--broker", help="use this broker")
    parser.add_argument("--database", help="use this server (conninfo of a superuser)")
    parser.add_argument("--build", default="build", help="the folder with the binaries")
    parser.add_argument("--bench", action="store_true", help="the broker runs as it would in earnest")
    parser.add_argument("--parts", default="database,broker", type=lambda text: [part for part in text.split(",") if part])
    commands = parser.add_subparsers(dest="action", required=True)
    run = commands.add_parser("run")
    run.add_argument("command", nargs="+")
    run.set_defaults(handler=run_on_system)
    up = commands.add_parser("up")
    up.add_argument("--env", type=os.path.abspath, help="write how to reach the system into this file once it is ready")
    up.set_defaults(handler=stay_up)
    commands.add_parser("demo").set_defaults(handler=show_demo)
    return parser.parse_args(words)


def main(words):
    options = parse(words)
    stop_on_signals()
    adopt_orphans()
    code = 70
    try:
        code = options.handler(options)
    except (RuntimeError, AssertionError) as error:
        tell(f"dev: {error}")
    finally:
        for left in end_descendants():
            tell(f"dev: was still running, ended: {left}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
