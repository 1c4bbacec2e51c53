"""A way to the brokers of a cluster on which what is sent can be held: it has left the sender, and has not arrived.

    with HeldWay(cluster) as way:
        relay(brokers=cluster.proxied_brokers)
        way.hold()
        eventually(lambda: way.holds(b"a key"), 30, "the record is on its way")
        way.let_go()      # now it arrives, whatever has become of its sender
"""
import socket
import threading

SIZE = 65536


def _end(*sockets):
    for one in sockets:
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        one.close()


class _Connection:
    def __init__(self, way, client, broker):
        self.way, self.client, self.broker = way, client, broker
        self.held = bytearray()
        for run in (self._to_broker, self._to_client):
            threading.Thread(target=run, daemon=True).start()

    def holds(self, texts):
        at = 0
        for text in texts:
            at = self.held.find(text, at) + len(text)
            if at < len(text):
                return False
        return True

    def pass_on(self):
        """With the way's lock."""
        try:
            self.broker.sendall(self.held)
        except OSError:
            pass      # a broker that has hung up: the other direction tells the client
        self.held.clear()

    def _to_broker(self):
        try:
            while chunk := self.client.recv(SIZE):
                with self.way.changed:
                    self.held += chunk
                    if not self.way.is_holding:
                        self.pass_on()
        except OSError:
            pass
        with self.way.changed:      # what was sent before the end arrives before it
            self.way.changed.wait_for(lambda: not self.way.is_holding)
        _end(self.client, self.broker)

    def _to_client(self):
        try:
            while chunk := self.broker.recv(SIZE):
                self.client.sendall(chunk)
        except OSError:
            pass
        _end(self.client)


class HeldWay:
    """Stands where the cluster's listener for those behind a proxy sends its clients."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.changed = threading.Condition()
        self.is_holding = False
        self.connections, self.listeners = [], []

    def __enter__(self):
        for node in self.cluster.nodes:
            listener = socket.create_server(("127.0.0.1", node.before))
            self.listeners.append(listener)
            threading.Thread(target=self._accept, args=(listener, node.proxied), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.let_go()
        for listener in self.listeners:
            _end(listener)
        with self.changed:
            for one in self.connections:
                _end(one.client, one.broker)

    def _accept(self, listener, port):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", port))
            except OSError:
                client.close()
                continue
            for one in (client, broker):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.changed:
                self.connections.append(_Connection(self, client, broker))

    def hold(self):
        with self.changed:
            self.is_holding = True

    def holds(self, *texts):
        """These bytes, one behind the other, are on one connection's way."""
        with self.changed:
            return any(one.holds(texts) for one in self.connections)

    def let_go(self):
        with self.changed:
            for one in self.connections:
                one.pass_on()
            self.is_holding = False
            self.changed.notify_all()
