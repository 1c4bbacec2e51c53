"""leasectl as a person runs it: words in, exit code, data and messages out."""
import json
import os
import subprocess

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from topics import ends_of
from waiting import eventually

YES, NO = 0, 1
USAGE, DATA, UNAVAILABLE, SOFTWARE, TEMPORARY, PERMISSION, CONFIGURATION = 64, 65, 69, 70, 75, 77, 78


class Done:
    def __init__(self, words, process):
        self.words = words
        self.code = process.returncode
        self.out = process.stdout.decode()
        self.err = process.stderr.decode()

    def __repr__(self):
        return f"<leasectl {' '.join(self.words)} → {self.code}\n{self.out}--\n{self.err}>"

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def rows(self):
        """The objects of -o jsonl."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def lines(self):
        return self.out.splitlines()

    def check(self, code):
        assert self.code == code, self
        return self


class Leasectl:
    """`settings` as LEASE_* variables; nothing of the caller's own environment gets through."""

    def __init__(self, program, **settings):
        self.program = program
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("LEASE_", "PG")) and name != "NO_COLOR"}
        self.environment["NO_PROXY"] = "*"
        self.environment.update({f"LEASE_{key.upper()}": str(value) for key, value in settings.items()})

    @classmethod
    def of(cls, place, **settings):
        values = dict({"brokers": place.kafka.brokers, "database": place.database.conninfo, "topic_prefix": place.prefix},
                      **settings)
        return cls(place.program("leasectl"), **values)

    def start(self, *words, **more):
        environment = dict(self.environment, **more)
        return subprocess.Popen([self.program, *map(str, words)], env=environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __call__(self, *words, given=b"", **more):
        words = [str(word) for word in words]
        environment = {name: value for name, value in dict(self.environment, **more).items() if value is not None}
        return Done(words, subprocess.run([self.program, *words], env=environment, input=given, timeout=120,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False))


TOPICS = ("settlement.events", "cleanup.events", "file-write.events", "delivery.events", "share-ratio.events", "contract.events", "lease.renewals", "lease.results",
          "lease.grants", "lease.state", "lease.dead-letters")


def small_topics(place, partitions=3, copies=1):
    """The topics with few partitions, for tests that look at records and not at the topics: quick to make."""
    admin = place.kafka.admin()
    names = [place.prefix + topic for topic in TOPICS]
    for future in admin.create_topics([NewTopic(name, partitions, copies) for name in names]).values():
        future.result(60)

    def answer():
        try:
            return len(ends_of(place.kafka.brokers, names)) == len(names) * partitions
        except KafkaException:      # the metadata names a leader a moment before the leader knows
            return False

    eventually(answer, 60, "every new partition answers")
    return place
