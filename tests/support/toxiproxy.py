"""Toxiproxy before the brokers of a cluster: what goes through is delayed or throttled. Debian has no package of it: it is built with Go, once, from
the sums in toxiproxy/, into the cache.

    with Toxiproxy(folder, cluster) as proxy:
        coordinator(brokers=cluster.proxied_brokers)
        proxy.add(2, "latency", {"latency": 300}); proxy.clear()
"""
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import urllib.request

from kafka import cache_folder
from processes import Child, find_program, free_port, run
from waiting import eventually

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "toxiproxy")
PINNED = ("go.mod", "go.sum")
PACKAGE = "github.com/Shopify/toxiproxy/v2/cmd/server"
# As pinned, by the Go that is there, whatever its owner has set up.
GO = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off", "CGO_ENABLED": "0"}
MISSING = "toxiproxy is not built yet, and there is no Go to build it with (Debian's package golang-go)"


def _path():
    sums = hashlib.sha256()
    for name in PINNED:
        with open(os.path.join(HERE, name), "rb") as file:
            sums.update(file.read())
    return os.path.join(cache_folder(), f"toxiproxy-{sums.hexdigest()[:12]}")


def can_be_had():
    return os.access(_path(), os.X_OK) or shutil.which("go") is not None


def program(tell=lambda text: None):
    """The proxy's program; builds it if it is not in the cache."""
    path = _path()
    os.makedirs(cache_folder(), exist_ok=True)
    with open(f"{path}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.access(path, os.X_OK):
            return path
        tell(f"building toxiproxy once, into {path}")
        with tempfile.TemporaryDirectory(prefix="build-", dir=cache_folder()) as folder:
            for name in PINNED:
                shutil.copy(os.path.join(HERE, name), folder)
            built = os.path.join(folder, "toxiproxy")
            run([find_program("go"), "build", "-o", built, PACKAGE], env=GO, cwd=folder, limit=600)
            os.rename(built, path)
    return path


class Toxiproxy:
    """Stands where the cluster's listener for those behind a proxy sends its clients."""

    def __init__(self, folder, cluster):
        self.cluster = cluster
        self.port = free_port()
        self.child = Child("toxiproxy", [program(), "-host", "127.0.0.1", "-port", self.port], os.path.join(folder, "toxiproxy.log"))
        self.toxics = []

    def _ask(self, method, path, value=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, data=None if value is None else json.dumps(value).encode(),
                                         headers={"Content-Type": "application/json", "User-Agent": "tests"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.read()

    def _answers(self):
        self.child.must_run()
        try:
            return bool(self._ask("GET", "/version"))
        except OSError:
            return False

    def __enter__(self):
        self.child.start()
        eventually(self._answers, 60, "toxiproxy answers")
        for node in self.cluster.nodes:
            self._ask("POST", "/proxies", {"name": f"broker-{node.number}", "listen": f"127.0.0.1:{node.before}", "upstream": f"127.0.0.1:{node.proxied}",
                                           "enabled": True})
        return self

    def __exit__(self, *_):
        self.child.kill()

    def add(self, number, kind, attributes):
        """To and from a broker."""
        for stream in ("upstream", "downstream"):
            name = f"{kind}-{stream}"
            self._ask("POST", f"/proxies/broker-{number}/toxics", {"name": name, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes})
            self.toxics.append((number, name))

    def clear(self):
        """Everything goes through as it comes; what was held is let go."""
        for number, name in self.toxics:
            self._ask("DELETE", f"/proxies/broker-{number}/toxics/{name}")
        self.toxics.clear()


if __name__ == "__main__":
    # For `dev`: builds it before any test's time runs.
    try:
        program(lambda text: print(text, file=sys.stderr))
    except RuntimeError as error:
        sys.exit(str(error))
