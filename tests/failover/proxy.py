"""A TCP proxy of the tests' own between libpq and a server, on loopback: it passes bytes on, counts them, and cuts one connection at a
byte of choice, or says something else to the server than it was told.

    proxy = Proxy("127.0.0.1", server.port).start()
    conninfo = proxy.conninfo(server.conninfo("db"))
    proxy.cut_at("lease-coordinator lane-1", TO_SERVER, 1234)     that connection ends when so many bytes more have passed

Connections are told apart by the application_name in their first message, so TLS must be off. A thread for each direction.
"""
import socket
import struct
import threading

import psycopg2.extensions

TO_SERVER, TO_CLIENT = "to server", "to client"
SIZE = 65536


class Cut:
    """One cut: of a connection of `application`, after `after` bytes more in a direction; with a reset, or with an orderly end."""

    def __init__(self, application, direction, after, reset):
        self.application, self.direction, self.after, self.reset = application, direction, after, reset
        self.is_done = False


class Connection:
    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.application = None
        self.is_over = False
        self.threads_left = 2
        self.is_swallowing = threading.Event()
        self.has_swallowed = threading.Event()
        self.passed = {TO_SERVER: 0, TO_CLIENT: 0}
        for direction, source, target in ((TO_SERVER, client, server), (TO_CLIENT, server, client)):
            threading.Thread(target=self._run, args=(direction, source, target), daemon=True).start()

    def _run(self, direction, source, target):
        try:
            self._pass_on(direction, source, target)
        except OSError:
            pass
        self.end(False)
        with self.proxy.lock:
            self.threads_left -= 1
            is_last = self.threads_left == 0
        if is_last:      # a socket that a thread still reads from would not really close
            self.client.close()
            self.server.close()

    def _pass_on(self, direction, source, target):
        while (chunk := source.recv(SIZE)) and not self.is_over:
            if direction == TO_SERVER:
                self._learn_name(chunk)
                chunk = self._instead_of(chunk)
            elif self.is_swallowing.is_set():
                self._swallow(chunk)
                continue
            allowed, cut = self.proxy.take(self, direction, len(chunk))
            target.sendall(chunk[:allowed])
            if cut:
                self.end(cut.reset)
                return

    def _learn_name(self, chunk):
        """The first message: size, version, then names and values that end with a NUL each. It comes in one piece."""
        if self.application is not None:
            return
        size, version = struct.unpack("!II", chunk[:8])
        assert version == 3 << 16 and size == len(chunk), "not a plain start of a connection"
        words = chunk[8:].split(b"\0")
        self.application = dict(zip(words[::2], words[1::2])).get(b"application_name", b"").decode()

    def _instead_of(self, chunk):
        """What goes to the server for this chunk, after what is to be said before it."""
        said = self.proxy.take_saying(self.application, chunk)
        if said is None:
            return chunk
        before, chunk = said
        if before:
            self.is_swallowing.set()
            self.server.sendall(before)
            assert self.has_swallowed.wait(60)
        return chunk

    def _swallow(self, chunk):
        """An answer to what the client never said; its last message says that the server is ready."""
        if chunk[-6:-1] == b"Z\0\0\0\5":
            self.is_swallowing.clear()
            self.has_swallowed.set()

    def end(self, reset):
        """Nothing passes any more; both sides see the end as soon as both threads have, as a reset if that is wanted."""
        self.is_over = True
        for one in (self.client, self.server):
            try:
                if reset:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RD)
            except OSError:
                pass


class Proxy:
    def __init__(self, host, port):
        self.target = (host, port)
        self.lock = threading.Lock()
        self.connections = []
        self.cut = None
        self.saying = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def start(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target, 30)
            except OSError:
                client.close()
                continue
            server.settimeout(None)      # that was for the connecting: a connection may be silent for as long as it likes
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections.append(Connection(self, client, server))

    def conninfo(self, conninfo):
        return psycopg2.extensions.make_dsn(conninfo, host="127.0.0.1", port=str(self.port), sslmode="disable", gssencmode="disable")

    # --- faults ---

    def cut_at(self, application, direction, after, reset=False):
        with self.lock:
            self.cut = Cut(application, direction, after, reset)
        return self.cut

    def say_once(self, application, words, before=b"", instead=None):
        """The next time that a connection of the application sends exactly these bytes, the server is told something else before it
        (the answer goes nowhere), or instead of it."""
        with self.lock:
            self.saying = (application, words, before, words if instead is None else instead)

    def has_said(self):
        with self.lock:
            return self.saying is None

    def close(self):
        self.listener.close()
        with self.lock:
            connections = list(self.connections)
        for connection in connections:
            connection.end(False)

    # --- what the connections ask ---

    def take(self, connection, direction, size):
        """How many of `size` bytes may pass, and the cut that comes then, if one does."""
        with self.lock:
            cut = self.cut
            if cut is None or cut.is_done or (cut.application, cut.direction) != (connection.application, direction) or cut.after > size:
                if cut is not None and (cut.application, cut.direction) == (connection.application, direction):
                    cut.after -= size
                connection.passed[direction] += size
                return size, None
            cut.is_done = True
            connection.passed[direction] += cut.after
            return cut.after, cut

    def take_saying(self, application, chunk):
        with self.lock:
            if self.saying is None or self.saying[:2] != (application, chunk):
                return None
            said, self.saying = self.saying[2:], None
            return said

    # --- measuring ---

    def passed(self, application):
        """Bytes that connections of an application have sent so far: (to the server, to the client)."""
        with self.lock:
            mine = [connection.passed for connection in self.connections if connection.application == application]
            return tuple(sum(passed[direction] for passed in mine) for direction in (TO_SERVER, TO_CLIENT))


def query(text):
    """A simple query as it goes over the wire."""
    body = text.encode() + b"\0"
    return b"Q" + struct.pack("!I", len(body) + 4) + body
