"""Child processes that never outlive the process that started them.

Each child runs in a session of its own, so that Ctrl-C at a terminal reaches only us, and we stop the children in
order. The kernel's parent-death signal ends them when we die without a chance to do so. Everything is ended by process
id, never by name.
"""
import os
import shutil
import signal
import socket
import subprocess
import time

from waiting import eventually


_reserved = []


def free_port():
    """A TCP port of the loopback interface that nobody listens on, and that nobody else is given while this process lives: it stays bound
    here, which keeps no program that sets SO_REUSEADDR (as servers do) from listening on it, also again and again. Without that a port may
    go to another test between here and its server's start, or while its server is down."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _reserved.append(holder)
    return holder.getsockname()[1]


def is_root():
    return os.geteuid() == 0


class Child:
    """One process. `user` is another account to run it as, where we are root and the program refuses root."""

    def __init__(self, name, argv, log, env=None, user=None, death_signal="KILL", stop_signal=signal.SIGTERM, cwd=None):
        self.name = name
        self.argv = [str(word) for word in argv]
        self.log = log
        self.env = env
        self.user = user
        self.death_signal = death_signal
        self.stop_signal = stop_signal
        self.cwd = cwd
        self.process = None

    def start(self):
        assert not self.is_running(), f"{self.name} runs already"
        prefix = ["setpriv", "--pdeathsig", self.death_signal]
        if self.user and is_root():
            prefix += ["--reuid", self.user, "--regid", self.user, "--init-groups"]
        environment = dict(os.environ)
        environment.update(self.env or {})
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(prefix + self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, env=environment, cwd=self.cwd)
        return self

    @property
    def pid(self):
        return self.process.pid

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def returncode(self):
        return None if self.process is None else self.process.poll()

    def signal(self, number):
        if self.is_running():
            self.process.send_signal(number)

    def wait(self, limit=60):
        return self.process.wait(limit)

    def kill(self):
        """SIGKILL, and waits until the process is gone."""
        if self.process is None:
            return
        self.signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self, limit=40):
        """Asks it to stop, insists after `limit` seconds. True if asking was enough."""
        if not self.is_running():
            return True
        self.signal(self.stop_signal)
        self.signal(signal.SIGCONT)
        try:
            self.process.wait(limit)
            return True
        except subprocess.TimeoutExpired:
            self.kill()
            return False

    def log_tail(self, lines=40):
        try:
            with open(self.log, "rb") as log:
                return b"\n".join(log.read().splitlines()[-lines:]).decode("utf-8", "replace")
        except OSError:
            return ""

    def must_run(self):
        """Raises, with the end of the log, when the process has ended."""
        if not self.is_running():
            raise RuntimeError(f"{self.name} ended with {self.returncode()}; the end of its log:\n{self.log_tail()}")


def run(argv, user=None, env=None, cwd=None, limit=600):
    """Runs a command to its end and returns its output; raises with that output when it fails."""
    prefix = ["setpriv", "--pdeathsig", "KILL"]
    if user and is_root():
        prefix += ["--reuid", user, "--regid", user, "--init-groups"]
    environment = dict(os.environ)
    environment.update(env or {})
    argv = [str(word) for word in argv]
    done = subprocess.run(prefix + argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=environment, cwd=cwd, timeout=limit)
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}:\n{output}")
    return output


def find_program(name, *folders):
    """The path of a program in one of the folders or in PATH; raises when there is none."""
    for folder in folders:
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return path
    path = shutil.which(name)
    if path is None:
        raise RuntimeError(f"the program {name} is not installed")
    return path


def descendants(pid):
    """The process ids below pid, children first, zombies left out."""
    parents = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] != b"Z":
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found = []
    queue = [pid]
    while queue:
        children = parents.get(queue.pop(0), [])
        found += children
        queue += children
    return found


def state_of(pid):
    """The letter of a process's state, such as T of one that a signal has stopped; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0].decode("ascii")
    except OSError:
        return None


def is_stopped(pid):
    """By a signal."""
    return state_of(pid) == "T"


def is_gone(pid):
    """Or a zombie that somebody has yet to look after."""
    return state_of(pid) in (None, "Z", "X")


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as words:
            return words.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return "?"


def end_descendants(limit=3.0):
    """Ends every process below us, by id. Returns what was still there, as 'pid command'."""
    left = [f"{pid} {command_line(pid)}" for pid in descendants(os.getpid())]
    deadline = time.monotonic() + limit

    def none_left():
        number = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        _reap()
        return not descendants(os.getpid())

    eventually(none_left, 10 * limit, "every process below us has ended", every=0.05)
    return left


def _reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
