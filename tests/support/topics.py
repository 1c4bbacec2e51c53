"""Reading the output topics as the documentation tells consumers to: skip marks, drop what repeats a number.

    results = Reader(brokers, prefix, "lease.results")
    answer = results.wait_for(lambda record: record.value["command"]["id"] == message_id)
"""
import functools
import json
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from waiting import eventually

BATCH = 2000
LATEST = -1      # asked for as a time, it means the end of the log


@functools.lru_cache(maxsize=None)
def _asker(brokers):
    """A client that only asks, one a process. On a reader's own connection the broker would answer behind its open fetch."""
    return Consumer({"bootstrap.servers": brokers, "group.id": "asker", "log_level": 3})


def ends_of(brokers, topics):
    """(topic, partition) → the offset after the last record, of all partitions of the topics. One question to the broker: asked
    for the watermarks of each partition, it would answer as often as there are partitions."""
    asker = _asker(brokers)
    asked = [TopicPartition(topic, partition, LATEST) for topic in topics
             for partition in asker.list_topics(topic, timeout=30).topics[topic].partitions]
    found = {}
    for place in asker.offsets_for_times(asked, timeout=30):
        if place.error is not None:
            raise KafkaException(place.error)
        found[place.topic, place.partition] = place.offset
    return found


class Record:
    """One record. `value` is the JSON value where there is one; `raw` and `key` are the bytes. `arrived`: when we got it, by
    the wall clock in seconds."""

    __slots__ = ("topic", "partition", "offset", "key", "raw", "header_list", "arrived", "_headers", "_value")

    def __init__(self, topic, partition, offset, key, raw, header_list):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.raw = raw
        self.header_list = header_list
        self.arrived = time.time()
        self._headers = self._value = None

    @classmethod
    def of(cls, message, prefix):
        return cls(message.topic()[len(prefix):], message.partition(), message.offset(), message.key(), message.value(),
                   message.headers() or [])

    @property
    def headers(self):
        """The headers by name; of repeated ones the last."""
        if self._headers is None:
            self._headers = dict(self.header_list)
        return self._headers

    @property
    def value(self):
        if self._value is None and self.raw is not None:
            self._value = json.loads(self.raw)
        return self._value

    @property
    def is_mark(self):
        """A dead letter keeps what its sender put into the original's headers, and is none."""
        return "lease_mark" in self.headers and "lease_dlq_at" not in self.headers

    @property
    def number(self):
        return int(self.headers["lease_number"])

    @property
    def epoch(self):
        return int(self.headers["lease_epoch"])

    @property
    def outcome(self):
        header = self.headers.get("lease_outcome")
        return header.decode() if header is not None else None

    def __repr__(self):
        return f"<{self.topic}/{self.partition}@{self.offset} key={self.key!r} {self.raw!r}>"


class Reader:
    """Everything in one topic from its start, without a group.

    `records` has what a careful consumer keeps; `everything` also marks and repeats, for the books.
    """

    def __init__(self, brokers, prefix, topic, drop_repeats=True):
        self.brokers = brokers
        self.prefix = prefix
        self.topic = topic
        self.drop_repeats = drop_repeats
        self.records = []
        self.everything = []
        self._last_number = {}
        self.consumer = Consumer({"bootstrap.servers": brokers, "group.id": f"reader-of-{topic}",
                                  "enable.auto.commit": False, "enable.auto.offset.store": False,
                                  "enable.partition.eof": False, "auto.offset.reset": "error",
                                  "fetch.wait.max.ms": 100, "check.crcs": True, "log_level": 3})
        name = prefix + topic
        described = self.consumer.list_topics(name, timeout=30).topics[name]
        assert described.error is None, f"topic {name}: {described.error}"
        self.partitions = sorted(described.partitions)
        self.consumer.assign([TopicPartition(name, number, 0) for number in self.partitions])

    def poll(self, wait=0.05):
        """Takes what is there, as soon as there is something; True if there was."""
        first = self.consumer.poll(wait)      # consume() alone would wait for a whole batch
        messages = [first] + self.consumer.consume(BATCH, 0) if first is not None else []
        for message in messages:
            if message.error():
                if message.error().code() == KafkaError._PARTITION_EOF:
                    continue
                raise AssertionError(f"reading {self.topic}: {message.error()}")
            self._take(Record.of(message, self.prefix))
        return bool(messages)

    def _take(self, record):
        self.everything.append(record)
        if self.drop_repeats:
            if record.is_mark:
                return
            if record.number <= self._last_number.get(record.partition, 0):
                return
            self._last_number[record.partition] = record.number
        self.records.append(record)

    def ends(self):
        """Partition → the offset after its last record."""
        name = self.prefix + self.topic
        try:
            return {partition: end for (_, partition), end in ends_of(self.brokers, [name]).items()}
        except KafkaException as error:      # a leader that has just moved
            raise AssertionError(str(error)) from error

    def read_all(self, limit=60):
        """Reads up to where the topic ends now. Offsets are not dense (transactions), so positions are compared."""
        ends = eventually(self.ends, limit, f"the ends of {self.topic} are told")
        name = self.prefix + self.topic

        def is_there():
            positions = {place.partition: place.offset
                         for place in self.consumer.position([TopicPartition(name, number) for number in self.partitions])}
            return all(end == 0 or positions[number] >= end for number, end in ends.items())

        eventually(lambda: is_there() or self.poll() and is_there(), limit, f"{self.topic} is read to its end", every=0)
        return self.records

    def forget(self):
        """Lets go of what was read, for whoever reads on and on."""
        self.records.clear()
        self.everything.clear()

    def find(self, condition):
        return [record for record in self.records if condition(record)]

    def wait_for(self, condition, limit=60.0, what=None):
        """The first record for which the condition holds, now or within the limit."""
        seen = 0

        def found():
            nonlocal seen
            self.poll()
            while seen < len(self.records):
                seen += 1
                if condition(self.records[seen - 1]):
                    return self.records[seen - 1]
            return None

        return eventually(found, limit, what or f"a record in {self.topic}", every=0.001)

    def close(self):
        self.consumer.close()


def read_topic(brokers, prefix, topic, drop_repeats=False):
    """All records of a topic up to its end now."""
    reader = Reader(brokers, prefix, topic, drop_repeats)
    try:
        return list(reader.read_all())
    finally:
        reader.close()
