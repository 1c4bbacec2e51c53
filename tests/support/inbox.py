"""A receiver of deliveries: a small HTTP service that takes each message in once, behind the SQL gate.

A message is `accepted`, and later `handled`, which is final. Whoever comes late (again, or with an outdated fence) changes nothing:
a repeat is answered 200, a stale sender 409.

    with Inbox(database) as inbox:
        inbox.url, inbox.messages(), inbox.requests
"""
import collections
import http.server
import threading

import psycopg2

from fileserver import GATE

TABLES = """
CREATE SCHEMA IF NOT EXISTS inbox;
CREATE TABLE IF NOT EXISTS inbox.message (
  key text PRIMARY KEY, state text NOT NULL DEFAULT 'accepted' CHECK (state IN ('accepted', 'handled')),
  body text NOT NULL, fence bigint NOT NULL, claim_id uuid NOT NULL
);
"""

Request = collections.namedtuple("Request", "key fence claim_id attempt authorization body answer")


class Inbox:
    """`answers` are (status, headers) for the next requests, instead of taking the message in; `hold` keeps requests waiting
    until it is set."""

    def __init__(self, database):
        self.database = database
        self.requests = []
        self.answers = collections.deque()
        self.arrived = threading.Event()
        self.hold = threading.Event()
        self.hold.set()
        connection = psycopg2.connect(database.conninfo)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(GATE.read_text(encoding="utf-8"))
                cursor.execute(TABLES)
                cursor.execute("TRUNCATE inbox.message, lease_gate.resource, lease_gate.effect")
        finally:
            connection.close()
        inbox = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                inbox.take(self)

            def do_GET(self):       # where a redirect would lead
                inbox.requests.append("GET")
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/messages"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()

    def take(self, request):
        body = request.rfile.read(int(request.headers["Content-Length"])).decode()
        key, fence, claim = (request.headers[name] for name in ("Idempotency-Key", "Lease-Fence", "Lease-Claim"))
        self.arrived.set()
        self.hold.wait(60)
        status, headers = self.answers.popleft() if self.answers else (self.accept(key, int(fence), claim, body), {})
        self.requests.append(Request(key, int(fence), claim, int(request.headers["Lease-Attempt"]),
                                     request.headers["Authorization"], body, status))
        try:
            request.send_response(status)
            for name, value in dict(headers, **{"Content-Length": "0"}).items():
                request.send_header(name, value)
            request.end_headers()
        except OSError:
            pass                    # the sender is gone; the message is here

    def accept(self, key, fence, claim_id, body):
        """One transaction: the gate, and the message. The status to answer with."""
        connection = psycopg2.connect(self.database.conninfo)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute("SELECT lease_gate.admit(%s, %s, %s, 'accept')", (key, fence, claim_id))
                verdict = cursor.fetchone()[0]
                if verdict == "admit":
                    cursor.execute("INSERT INTO inbox.message (key, body, fence, claim_id) VALUES (%s, %s, %s, %s)",
                                   (key, body, fence, claim_id))
            return {"admit": 201, "duplicate": 200, "stale": 409}[verdict]
        finally:
            connection.close()

    def handle(self, key):
        """The message reaches its final state."""
        self.database.query("UPDATE inbox.message SET state = 'handled' WHERE key = %s", (key,))

    def messages(self):
        """key → (state, fence, body)"""
        return {key: rest for key, *rest in self.database.query("SELECT key, state, fence, body FROM inbox.message")}
