"""A throwaway single-node Kafka (a real KRaft broker from Maven's artifacts), or a given one."""
import base64
import fcntl
import glob
import hashlib
import os
import shutil
import sys
import tempfile
import uuid

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from processes import Child, find_program, free_port, run
from waiting import eventually

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kafka")
SUMS = "SHA256SUMS"
START_TRIES = 3      # a free port can be taken by somebody else before the broker gets it

JVM = ["-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData"]
JVM_QUICK = ["-XX:TieredStopAtLevel=1"]      # starts sooner, runs slower: for tests, never for benchmarks

# Of a broker alone and of one among several; each is its own controller.
ANY_BROKER = """\
process.roles=broker,controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=CLIENTS
log.dirs={folder}/log
auto.create.topics.enable=false
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.cleaner.dedupe.buffer.size=16777216
log.cleaner.threads=1
"""
PROPERTIES = """\
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CLIENTS://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{more_listeners}
advertised.listeners=CLIENTS://127.0.0.1:{port}{more_listeners}
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT{more_protocols}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
""" + ANY_BROKER


def cache_folder():
    return os.environ.get("LEASE_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "leasehold")


def _sum_of(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _sums_of(folder):
    return "".join(f"{_sum_of(jar)}  {os.path.basename(jar)}\n" for jar in sorted(glob.glob(f"{folder}/*.jar")))


def _is_complete(folder):
    """The list of sums is written last, so a fetch that was cut off, or a jar changed since, is noticed."""
    try:
        with open(os.path.join(folder, SUMS), encoding="ascii") as file:
            expected = file.read()
    except OSError:
        return False
    return expected != "" and expected == _sums_of(folder)


def jars(tell=lambda text: None):
    """The folder with the broker's jars, fetched if it is not in the cache whole."""
    pom = os.path.join(HERE, "pom.xml")
    folder = os.path.join(cache_folder(), f"kafka-{_sum_of(pom)[:12]}")
    os.makedirs(cache_folder(), exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_complete(folder):
            return folder
        tell(f"fetching the Kafka jars once, into {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        fresh = tempfile.mkdtemp(prefix="fetch-", dir=cache_folder())
        try:
            run([find_program("mvn"), "-B", "-q", "-C", "-Dstyle.color=never", "-f", pom, "dependency:copy-dependencies",
                 f"-DoutputDirectory={fresh}"], limit=900)
            with open(os.path.join(fresh, SUMS), "w", encoding="ascii") as file:
                file.write(_sums_of(fresh))
            os.rename(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        if not _is_complete(folder):
            raise RuntimeError(f"Maven fetched no Kafka jars into {folder}")
    return folder


def java(folder, flags, *words):
    """The command line of a program of Kafka's, with the jars in `folder`."""
    return [find_program("java"), *flags, "-cp", f"{folder}/*", f"-Dlog4j2.configurationFile={HERE}/log4j2.properties", *words]


def fresh_id():
    """As Kafka names clusters and folders."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=").replace("-", "A", 1)


class GivenKafka:
    """A broker that somebody else runs."""

    is_throwaway = False

    def __init__(self, brokers):
        self.brokers = brokers
        self._session_timeout_min_ms = None

    def start(self):
        return self

    def stop(self):
        pass

    def admin(self):
        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 2})

    def topics(self):
        """The names of all topics."""
        return set(self.admin().list_topics(timeout=30).topics)

    def partition_count(self, name):
        """As a client that asks now is told: a broker hears of a change a little later than the controller answers."""
        return len(self.admin().list_topics(name, timeout=30).topics[name].partitions)

    def delete_topics(self, names):
        if names:
            admin = self.admin()      # its futures end with it
            for future in admin.delete_topics(sorted(names), operation_timeout=30).values():
                future.result()

    def session_timeout_min_ms(self):
        """The shortest group session that the broker admits."""
        if self._session_timeout_min_ms is None:
            admin = self.admin()
            broker = ConfigResource("broker", str(next(iter(admin.list_topics(timeout=30).brokers))))
            settings = next(iter(admin.describe_configs([broker]).values())).result(10)
            self._session_timeout_min_ms = int(settings["group.min.session.timeout.ms"].value)
        return self._session_timeout_min_ms

    def where(self):
        return self.brokers

    def version(self):
        return "Kafka"


class Kafka(GivenKafka):
    """A throwaway broker and controller in one process, on free ports, with its data in `folder`.

    `listeners`: more ones on localhost, name → protocol; ports[name] is then where.
    """

    is_throwaway = True

    def __init__(self, folder, quick=True, properties=None, tell=lambda text: None, listeners=None):
        super().__init__(None)
        self.listeners = listeners or {}
        self.ports = {}
        self.folder = os.path.abspath(folder)
        self.log = os.path.join(self.folder, "kafka.log")
        self.quick = quick
        self.properties = properties or {}
        self.jars = jars(tell)
        self.child = None

    def version(self):
        jar = glob.glob(f"{self.jars}/kafka_2.13-*.jar")[0]
        return "Kafka " + os.path.basename(jar)[len("kafka_2.13-"):-len(".jar")]

    def _java(self, *words):
        return java(self.jars, JVM + (JVM_QUICK if self.quick else []), *words)

    def _configure(self):
        self.port = free_port()
        self.ports = {name: free_port() for name in self.listeners}
        text = PROPERTIES.format(port=self.port, controller=free_port(), folder=self.folder,
                                 more_listeners="".join(f",{name}://localhost:{port}" for name, port in self.ports.items()),
                                 more_protocols="".join(f",{name}:{protocol}" for name, protocol in self.listeners.items()))
        text += "".join(f"{key}={value}\n" for key, value in self.properties.items())
        self.config = os.path.join(self.folder, "server.properties")
        with open(self.config, "w", encoding="ascii") as file:
            file.write(text)
        self.brokers = f"127.0.0.1:{self.port}"

    def start(self):
        os.makedirs(self.folder, exist_ok=True)
        for tries_left in reversed(range(START_TRIES)):
            shutil.rmtree(f"{self.folder}/log", ignore_errors=True)
            self._configure()
            run(self._java("kafka.tools.StorageTool", "format", "-t", fresh_id(), "-c", self.config))
            try:
                self.resume()
                return self
            except RuntimeError:
                if not tries_left:
                    raise
        raise AssertionError("not reached")

    def resume(self):
        """Starts the broker on the data that it has, on the same ports."""
        self.child = Child("kafka", self._java("kafka.Kafka", self.config), self.log,
                           env={"LOG_DIR": self.folder}).start()
        eventually(self._answers, 180, "Kafka is ready")
        return self

    def _answers(self):
        self.child.must_run()
        try:
            return bool(self.admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def stop(self):
        """Nobody wants the data: no need to wait for an orderly end."""
        if self.child:
            self.child.kill()

    def stop_orderly(self):
        self.child.stop(60)


if __name__ == "__main__":
    # For scripts that need the jars themselves: fetches them if need be and prints where they are.
    print(jars(lambda text: print(text, file=sys.stderr)))
