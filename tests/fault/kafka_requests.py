"""Requests that Debian's confluent-kafka has no call for, in Kafka's own protocol."""
import socket
import struct

DELETE_RECORDS = 21
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


def _ask(brokers, key, version, body):
    host, port = brokers.split(",")[0].rsplit(":", 1)
    request = struct.pack(">hhi", key, version, 1) + _text("tests") + body
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_MS / 1000) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        size, = struct.unpack(">i", _receive(connection, 4))
        return _receive(connection, size)[4:]      # behind the correlation id


def delete_records(brokers, topic, partition, offset):
    """Records before the offset are gone, as after the retention. Returns the first that is left."""
    body = (struct.pack(">i", 1) + _text(topic) + struct.pack(">iiq", 1, partition, offset) + struct.pack(">i", TIMEOUT_MS))
    answer = _ask(brokers, DELETE_RECORDS, 1, body)
    low, error = struct.unpack(">qh", answer[-10:])
    assert error == 0, f"the broker refuses to delete records: error {error}"
    return low
