"""What the three examples share: how to send a command, and how to read records."""
import json
import os
import secrets

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

BROKERS = os.environ.get("LEASE_BROKERS", "localhost:9092")
PREFIX = os.environ.get("LEASE_TOPIC_PREFIX", "")
SOURCE = "/examples/python"


def producer():
    # murmur2: the same partition for a key as every other client of Kafka's own takes. Idempotence: no repeats, no reordering.
    return Producer({"bootstrap.servers": BROKERS, "partitioner": "murmur2_random", "enable.idempotence": True, "linger.ms": 1})


def send(to, kind, command, subject, data, message_id=None):
    """Queues a command and returns its id. Sent again under the same id it is answered `duplicate` and changes nothing."""
    message_id = message_id or secrets.token_hex(8)
    topic = "lease.renewals" if command == "renew" else f"{kind}.events"
    event = {"specversion": "1.0", "id": message_id, "source": SOURCE, "type": f"{kind}.{command}", "subject": subject,
             "datacontenttype": "application/json", "data": data}
    to.produce(PREFIX + topic, key=subject, value=json.dumps(event), headers={"content-type": "application/cloudevents+json"})
    return message_id


class Records:
    """Records of lease.results or lease.grants, each once: repeats and marks are left out."""

    def __init__(self, *topics, from_end):
        self.consumer = Consumer({"bootstrap.servers": BROKERS, "group.id": "lease-example", "enable.auto.commit": False,
                                  "auto.offset.reset": "error", "fetch.wait.max.ms": 50})
        self.last = {}                  # (topic, partition): the last journal number seen there
        places = []
        for topic in topics:
            found = self.consumer.list_topics(PREFIX + topic, timeout=10).topics[PREFIX + topic]
            if not found.partitions:
                raise SystemExit(f"there is no topic {PREFIX + topic}; leasectl topics --apply makes it")
            for partition in found.partitions:
                place = TopicPartition(PREFIX + topic, partition, OFFSET_BEGINNING)
                if from_end:            # fixed now, not when the consumer gets round to it
                    place.offset = self.consumer.get_watermark_offsets(place, timeout=10)[1]
                places.append(place)
        self.consumer.assign(places)

    def next(self, wait_s):
        """(topic, key, value) of the next record, or None when wait_s are over."""
        message = self.consumer.poll(wait_s)
        if message is None:
            return None
        if message.error():
            raise RuntimeError(message.error())
        headers = {name: value.decode() for name, value in message.headers() or []}
        if "lease_mark" in headers:
            return None
        place, number = (message.topic(), message.partition()), int(headers["lease_number"])
        if number <= self.last.get(place, 0):
            return None                 # a repeat after a crash
        self.last[place] = number
        return message.topic()[len(PREFIX):], message.key().decode(), json.loads(message.value())
