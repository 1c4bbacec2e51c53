"""Three brokers on loopback, each also a controller: a cluster that loses one of them and goes on.

    cluster = Cluster(folder).start()
    cluster.brokers                      # all of them, as a client wants it
    cluster.node(2).kill(); cluster.node(2).start(); cluster.wait_whole()
"""
import os
import re
import shutil

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import kafka
import kafka_requests
from processes import Child, free_port
from waiting import eventually

JVM = ["-Xms128m", "-Xmx320m", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1"]
NODES = (1, 2, 3)

# A dead broker is known to be dead after two seconds. CLIENTS is what everybody uses; a client that asks PROXIED is told the
# addresses of whatever stands before the brokers. New partitions have three copies, of which two must have a record.
PROPERTIES = kafka.ANY_BROKER + """\
node.id={node}
controller.quorum.voters={voters}
listeners=CLIENTS://127.0.0.1:{port},PROXIED://127.0.0.1:{proxied},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=CLIENTS://127.0.0.1:{port},PROXIED://127.0.0.1:{before}
listener.security.protocol.map=CLIENTS:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
broker.heartbeat.interval.ms=300
broker.session.timeout.ms=2000
controller.quorum.election.timeout.ms=500
controller.quorum.fetch.timeout.ms=1500
replica.lag.time.max.ms=4000
auto.leader.rebalance.enable=false
controlled.shutdown.enable=true
num.network.threads=2
num.io.threads=3
background.threads=2
num.recovery.threads.per.data.dir=1
log.cleaner.backoff.ms=200
"""


class Node:
    """One broker of the cluster: killed, stopped and started again on the data that it has."""

    def __init__(self, number, folder, jars):
        self.number = number
        self.folder = os.path.join(folder, str(number))
        self.port, self.proxied, self.controller, self.before = (free_port() for _ in range(4))
        self.config = os.path.join(self.folder, "server.properties")
        self.address = f"127.0.0.1:{self.port}"
        self.child = Child(f"broker {number}", kafka.java(jars, JVM, "kafka.Kafka", self.config),
                           os.path.join(folder, f"broker-{number}.log"), env={"LOG_DIR": self.folder})

    def configure(self, voters):
        os.makedirs(self.folder, exist_ok=True)
        with open(self.config, "w", encoding="ascii") as file:
            file.write(PROPERTIES.format(node=self.number, voters=voters, port=self.port, proxied=self.proxied, before=self.before,
                                         controller=self.controller, folder=self.folder))

    def start(self):
        self.child.start()
        return self

    def kill(self):
        """SIGKILL: what the others have not got is on its disk only."""
        self.child.kill()

    def is_running(self):
        return self.child.is_running()


class Cluster(kafka.GivenKafka):
    """Owns its nodes; stop() ends them."""

    is_throwaway = True

    def __init__(self, folder):
        self.jars = kafka.jars()
        self.folder = os.path.abspath(folder)
        os.makedirs(self.folder, exist_ok=True)
        self.nodes = [Node(number, self.folder, self.jars) for number in NODES]
        super().__init__(",".join(node.address for node in self.nodes))

    @property
    def proxied_brokers(self):
        """What stands before the brokers, for whoever is to be slow."""
        return ",".join(f"127.0.0.1:{node.before}" for node in self.nodes)

    def node(self, number):
        return self.nodes[number - 1]

    def _format(self):
        """Formats the first node's folder with Kafka's own tool; the others' differ in two names only."""
        first = self.nodes[0]
        kafka.run(kafka.java(self.jars, JVM, "kafka.tools.StorageTool", "format", "-t", kafka.fresh_id(), "-c", first.config))
        for node in self.nodes[1:]:
            shutil.copytree(f"{first.folder}/log", f"{node.folder}/log")
            path = f"{node.folder}/log/meta.properties"
            with open(path, encoding="ascii") as file:
                text = file.read()
            text = re.sub(r"(?m)^node\.id=1$", f"node.id={node.number}", text)
            text = re.sub(r"(?m)^directory\.id=.*$", f"directory.id={kafka.fresh_id()}", text)
            with open(path, "w", encoding="ascii") as file:
                file.write(text)

    def start(self):
        voters = ",".join(f"{node.number}@127.0.0.1:{node.controller}" for node in self.nodes)
        for node in self.nodes:
            node.configure(voters)
        self._format()
        for node in self.nodes:
            node.start()
        self.wait_brokers(len(self.nodes))
        return self

    def stop(self):
        for node in self.nodes:
            node.kill()

    # ---- what it looks like ----

    def metadata(self):
        return self.admin().list_topics(timeout=5)

    def wait_brokers(self, count, limit=180):
        def are_there():
            for node in self.nodes:
                assert node.is_running() or node.child.process is not None, f"{node.child.name} was never started"
            try:
                return len(self.metadata().brokers) == count
            except KafkaException:
                return False

        eventually(are_there, limit, f"{count} brokers are there", every=0.1)

    def partitions(self, prefix=""):
        """(topic, partition) → confluent_kafka's PartitionMetadata, of all topics whose name begins so."""
        return {(name, number): one for name, topic in self.metadata().topics.items() if name.startswith(prefix)
                for number, one in topic.partitions.items()}

    def leaders(self, prefix=""):
        return {place: one.leader for place, one in self.partitions(prefix).items()}

    def is_whole(self):
        """All brokers are there, and every copy is in step."""
        try:
            assert len(self.metadata().brokers) == len(self.nodes), "a broker is not there"
            behind = [place for place, one in self.partitions().items() if len(one.isrs) < len(one.replicas) or one.leader < 0]
        except KafkaException as error:
            raise AssertionError(str(error)) from error
        assert not behind, f"{len(behind)} partitions lack a copy, {behind[0]} is one"
        return True

    def wait_whole(self, limit=180):
        eventually(self.is_whole, limit, "every copy is in step", every=0.1)

    def heal(self):
        for node in self.nodes:
            if not node.is_running():
                node.start()
        self.wait_whole()

    # ---- what can be asked of it ----

    def create_topics(self, topics, limit=30):
        """confluent_kafka's NewTopics, and waits until every broker knows them."""
        admin = self.admin()      # its futures end with it
        for future in admin.create_topics(topics).values():
            future.result()

        def are_known():
            for node in self.nodes:
                known = AdminClient({"bootstrap.servers": node.address, "log_level": 2}).list_topics(timeout=5).topics
                for topic in topics:
                    assert topic.topic in known and all(one.leader >= 0 for one in known[topic.topic].partitions.values()), f"{topic.topic} at {node.number}"
            return True

        eventually(are_known, limit, "every broker knows the new topics", every=0.1)

    def alive(self):
        return next(node.address for node in self.nodes if node.is_running())

    def reassign(self, replicas):
        """(topic, partition) → node numbers, the first of which leads when it is asked for."""
        kafka_requests.reassign(self.alive(), replicas)

    def elect_preferred(self, places):
        """Each of these partitions is led by the first of its copies; returns how many leaders moved."""
        return kafka_requests.elect_preferred(self.alive(), places)

    def keep_logs(self, target):
        for node in self.nodes:
            shutil.copyfile(node.child.log, os.path.join(target, os.path.basename(node.child.log)))
