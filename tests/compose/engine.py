"""A container engine of the test's own: its daemon, its images and its containers are nobody else's.

The daemon runs in a process and a mount namespace of its own, and, for the test proper, in a network namespace of its
own: no bridge, no rule, no mount and no process of it is seen on the machine, and when its first process ends, however
that happens, the kernel ends everything in it. Images are built by a daemon that shares the machine's network, since
a network namespace has no way to the package mirrors. Only the images stay, in the cache.
"""
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile

import kafka
from processes import Child, descendants, find_program, run
from waiting import eventually

PROGRAMS = ("dockerd", "docker", "docker-compose", "debootstrap", "unshare", "nsenter", "ip", "iptables", "setpriv")
# The engine's defaults are above what an unprivileged machine may hand out; these are enough for these containers.
ULIMITS = ("nofile=20000:20000", "nproc=1000:1000")
CGROUPS = "leasehold-compose"

# The namespace's first process: it passes the request to stop on, and takes in orphans.
FIRST_PROCESS = """
trap 'kill -TERM "$daemon"' TERM
[ "$LEASE_NETWORK" = host ] || ip link set lo up
"$@" &
daemon=$!
while kill -0 "$daemon" 2>/dev/null; do wait "$daemon"; done
"""


def missing():
    """What keeps an engine from running here, as text; empty if nothing does."""
    if os.geteuid() != 0:
        return "an engine of the test's own needs root (namespaces, mounts): run it as root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"not installed: {' '.join(absent)} (Debian: docker.io docker-compose debootstrap iproute2 iptables)"
    return ""


class Engine:
    """One daemon. `network`: "host" to build images with the machine's network, "own" for a namespace."""

    def __init__(self, network):
        self.network = network
        self.cache = os.path.join(kafka.cache_folder(), "compose")
        self.run_folder = None
        self.daemon = None
        self.lock = None

    def start(self):
        os.makedirs(self.cache, exist_ok=True)
        self.lock = open(f"{self.cache}/lock", "w", encoding="ascii")
        # Another test on this machine may hold the images: its whole run is shorter than ours may wait.
        eventually(self._take_lock, 600, "the lock on the engine's images", every=0.5)
        self.run_folder = tempfile.mkdtemp(prefix="lease-compose-")
        self._remove_cgroups()
        self.daemon = Child("dockerd", self._daemon_command(), f"{self.run_folder}/dockerd.log",
                            env={"LEASE_NETWORK": self.network}).start()
        eventually(self._answers, 90, "the engine answers", every=0.1)
        self._remove_containers()
        return self

    def _take_lock(self):
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False

    def _daemon_command(self):
        host = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
        own = [] if self.network == "host" else ["--net"]
        return (["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"] + own
                + ["bash", "-c", FIRST_PROCESS, "first", "dockerd", "--data-root", f"{self.cache}/engine",
                   "--exec-root", f"{self.run_folder}/exec", "--host", self.environment["DOCKER_HOST"],
                   "--pidfile", f"{self.run_folder}/pid", "--cgroup-parent", CGROUPS, "--log-level", "warn"]
                + [f"--default-ulimit={limit}" for limit in ULIMITS]
                + (host if self.network == "host" else []))

    @property
    def environment(self):
        # The classic builder: engines of every age have it. No configuration of the user's.
        return {**os.environ, "DOCKER_HOST": f"unix://{self.run_folder}/socket", "DOCKER_BUILDKIT": "0",
                "COMPOSE_DOCKER_CLI_BUILD": "0", "DOCKER_CONFIG": f"{self.run_folder}/config"}

    def command(self, *words):
        return [find_program("docker", "/usr/bin"), *words]

    def docker(self, *words, limit=120):
        """Runs a docker command and returns what it printed, trimmed; raises with that when it fails."""
        return run(self.command(*words), env=self.environment, limit=limit).strip()

    def try_docker(self, *words):
        """As docker(), but None when the command fails."""
        done = subprocess.run(self.command(*words), env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=60)
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def inside(self, *words, limit=60):
        """Runs a command in the engine's network namespace, as somebody on that machine would."""
        first = descendants(self.daemon.pid)[0]
        return run(["nsenter", "--target", str(first), "--net", "--", *words], limit=limit)

    def _answers(self):
        self.daemon.must_run()
        return self.try_docker("version") is not None

    def _remove_containers(self):
        """What a run that was killed left: images are all that is kept."""
        containers = self.docker("ps", "--all", "--quiet").split()
        if containers:
            self.docker("rm", "--force", "--volumes", *containers)
        self.docker("volume", "prune", "--force")
        if self.network != "host":
            self.docker("network", "prune", "--force")

    def _remove_cgroups(self):
        """They are below ours. Only the test that holds the lock has any; an empty one goes, a used one refuses."""
        with open("/proc/self/cgroup", encoding="ascii") as lines:
            ours = [line.rstrip("\n").split(":", 2) for line in lines]
        for _, controllers, path in ours:
            for mount in ("/sys/fs/cgroup", f"/sys/fs/cgroup/{controllers.removeprefix('name=') or 'unified'}"):
                for folder, _, _ in os.walk(f"{mount}{path}/{CGROUPS}", topdown=False):
                    try:
                        os.rmdir(folder)
                    except OSError:
                        pass

    def stop(self):
        if self.daemon is not None and self.daemon.is_running():
            os.kill(descendants(self.daemon.pid)[0], signal.SIGTERM)
            try:
                self.daemon.wait(30)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
        if self.run_folder is not None:
            self._remove_cgroups()
            shutil.rmtree(self.run_folder, ignore_errors=True)
        if self.lock is not None:
            self.lock.close()

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            if self.daemon is not None:
                print(self.daemon.log_tail())
            self.stop()
            raise

    def __exit__(self, *error):
        self.stop()
