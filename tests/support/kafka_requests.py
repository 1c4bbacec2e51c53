"""Requests that Debian's confluent-kafka has no call for, in Kafka's own protocol."""
import socket
import struct

DELETE_RECORDS = 21
ELECT_LEADERS, PREFERRED, ELECTION_NOT_NEEDED = 43, 0, 84
ALTER_PARTITION_REASSIGNMENTS = 45
TIMEOUT_MS = 10000


def _text(value):
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _receive(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "the broker closed the connection"
        data += part
    return data


def _ask(brokers, key, version, body, is_flexible=False):
    host, port = brokers.split(",")[0].rsplit(":", 1)
    request = struct.pack(">hhi", key, version, 1) + _text("tests") + (b"\0" if is_flexible else b"") + body
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_MS / 1000) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        size, = struct.unpack(">i", _receive(connection, 4))
        return _receive(connection, size)[5 if is_flexible else 4:]      # behind the correlation id (and no tags)


class _Answer:
    """Reads an answer from front to back."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value, = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return value

    def text(self):
        size = max(0, self.number("h"))
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def short(self):
        """An unsigned number of variable length."""
        value = shift = 0
        while True:
            byte = self.number("B")
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def short_text(self):
        size = max(0, self.short() - 1)
        self.at += size
        return self.data[self.at - size:self.at].decode()


def _short(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _short(value >> 7)


def _by_topic(places):
    found = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def elect_preferred(brokers, places):
    """Each of the places (topic, partition) is led by the first of its copies from now on. Only where that is another one does it count:
    returns how many leaders moved."""
    topics = _by_topic(places)
    body = struct.pack(">bi", PREFERRED, len(topics))
    for topic, partitions in topics.items():
        body += _text(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    answer = _Answer(_ask(brokers, ELECT_LEADERS, 1, body + struct.pack(">i", TIMEOUT_MS)))
    answer.number("i")
    error, moved = answer.number("h"), 0
    assert error == 0, f"the broker refuses to elect leaders: error {error}"
    for _ in range(answer.number("i")):
        topic = answer.text()
        for _ in range(answer.number("i")):
            partition, error, why = answer.number("i"), answer.number("h"), answer.text()
            assert error in (0, ELECTION_NOT_NEEDED), f"{topic}[{partition}]: error {error}, {why}"
            moved += error == 0
    return moved


def reassign(brokers, copies):
    """(topic, partition) → the brokers that are to have a copy, the first of which is the preferred leader."""
    topics = _by_topic(copies)
    body = struct.pack(">i", TIMEOUT_MS) + _short(len(topics) + 1)
    for topic, partitions in topics.items():
        body += _short(len(topic) + 1) + topic.encode() + _short(len(partitions) + 1)
        for partition in partitions:
            nodes = copies[topic, partition]
            body += struct.pack(">i", partition) + _short(len(nodes) + 1) + struct.pack(f">{len(nodes)}i", *nodes) + b"\0"
        body += b"\0"
    answer = _Answer(_ask(brokers, ALTER_PARTITION_REASSIGNMENTS, 0, body + b"\0", is_flexible=True))
    answer.number("i")
    error, why = answer.number("h"), answer.short_text()
    assert error == 0, f"the broker refuses to move partitions: error {error}, {why}"
    for _ in range(answer.short() - 1):
        topic = answer.short_text()
        for _ in range(answer.short() - 1):
            partition, error, why = answer.number("i"), answer.number("h"), answer.short_text()
            answer.short()
            assert error == 0, f"{topic}[{partition}]: error {error}, {why}"
        answer.short()


def delete_records(brokers, topic, partition, offset):
    """Records before the offset are gone, as after the retention. Returns the first that is left."""
    body = (struct.pack(">i", 1) + _text(topic) + struct.pack(">iiq", 1, partition, offset) + struct.pack(">i", TIMEOUT_MS))
    answer = _ask(brokers, DELETE_RECORDS, 1, body)
    low, error = struct.unpack(">qh", answer[-10:])
    assert error == 0, f"the broker refuses to delete records: error {error}"
    return low
