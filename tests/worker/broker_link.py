"""The test's end of a way to the broker that can be cut; see apart.py."""
import os
import socket
import threading

from apart import pump


class BrokerLink:
    def __init__(self, brokers, path):
        host, port = brokers.split(",")[0].rsplit(":", 1)
        self.broker = (host, int(port))
        self.path = path
        self.is_cut = False
        self._open = []
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def prefix(self):
        """What to put before a command, so that it reaches the broker through here only."""
        apart = os.path.join(os.path.dirname(os.path.abspath(__file__)), "apart.py")
        return ["unshare", "--net", "/usr/bin/python3", "-B", apart, str(self.broker[1]), self.path]

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self.is_cut:
                    client.close()
                    continue
                server = socket.create_connection(self.broker)
                self._open += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=pump, args=(source, target), daemon=True).start()

    def cut(self):
        """Ends all connections and lets none come up."""
        with self._lock:
            self.is_cut = True
            for end in self._open:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self._open.clear()

    def mend(self):
        with self._lock:
            self.is_cut = False

    def close(self):
        self._listener.close()
        self.cut()
