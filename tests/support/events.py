"""Producing commands as CloudEvents, in both modes, and raw records that are none."""
import json
import uuid

from confluent_kafka import Producer

SOURCE = "/tests"


def type_of(kind, command):
    return f"{kind}.{command}"


def topic_of(kind, command):
    """Where a command goes: renewals have a topic of their own, so that no backlog delays them."""
    return "lease.renewals" if command == "renew" else f"{kind}.events"


def structured(kind, command, subject, data, message_id, source=SOURCE, extra=None):
    """Value and headers of a structured CloudEvent. `extra`: further attributes, or None values to leave some out."""
    event = {"specversion": "1.0", "id": message_id, "source": source, "type": type_of(kind, command),
             "subject": subject, "datacontenttype": "application/json", "data": data}
    for name, value in (extra or {}).items():
        if value is None:
            event.pop(name, None)
        else:
            event[name] = value
    headers = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
    return json.dumps(event, ensure_ascii=False).encode(), headers


def binary(kind, command, subject, data, message_id, source=SOURCE, extra=None):
    """Value and headers of a binary CloudEvent."""
    attributes = {"specversion": "1.0", "id": message_id, "source": source, "type": type_of(kind, command),
                  "subject": subject}
    attributes.update(extra or {})
    headers = [(f"ce_{name}", value.encode()) for name, value in attributes.items() if value is not None]
    headers.append(("content-type", b"application/json"))
    return json.dumps(data, ensure_ascii=False).encode(), headers


ENCODERS = {"structured": structured, "binary": binary}


class Events:
    """A producer for the input topics of one place. Every send returns (or is found later in `sent`) as
    (topic without prefix, partition, offset)."""

    def __init__(self, brokers, prefix):
        self.prefix = prefix
        self.producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 2,
                                  "queue.buffering.max.messages": 1000000, "log_level": 3})
        self.producer.list_topics(timeout=30)      # connects now: its first record would wait half a second for its producer id
        self.failed = []

    def send_raw(self, topic, key, value, headers=None, partition=-1, then=None):
        """Queues one record. `then(topic, partition, offset)` is called once it is in the log."""
        def delivered(error, message):
            if error is not None:
                self.failed.append(error)
            elif then is not None:
                then(topic, message.partition(), message.offset())

        self.producer.produce(self.prefix + topic, value=value, key=key, headers=headers or [], partition=partition,
                              on_delivery=delivered)

    def send(self, kind, command, subject, data, message_id=None, mode="structured", source=SOURCE, topic=None,
             key=None, extra=None, then=None):
        """Queues one command and returns its id."""
        message_id = message_id or str(uuid.uuid4())
        value, headers = ENCODERS[mode](kind, command, subject, data, message_id, source, extra)
        self.send_raw(topic or topic_of(kind, command), subject if key is None else key, value, headers, then=then)
        self.producer.poll(0)
        return message_id

    def flush(self):
        left = self.producer.flush(60)
        assert left == 0 and not self.failed, f"{left} records were not delivered; errors: {self.failed[:3]}"

    def place_of(self, *arguments, **options):
        """Sends one command, waits until it is in the log and returns where: (topic, partition, offset)."""
        places = []
        self.send(*arguments, **options, then=lambda *place: places.append(place))
        self.flush()
        return places[0]
