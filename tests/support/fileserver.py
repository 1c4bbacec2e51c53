"""A file server for tests: its tables in a database (sql/gate/gate.sql, sql/fileserver/fileserver.sql) and its files in a folder.

    files = FileServer(database, folder).load()
    files.open_account("a1")
    files.add("f1", "a1", 1000)
    files.used("a1"), files.on_disk()
"""
import os
import pathlib

import psycopg2
import psycopg2.extras

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GATE = ROOT / "sql" / "gate" / "gate.sql"
TABLES = ROOT / "sql" / "fileserver" / "fileserver.sql"
QUOTA = 10 ** 12
CLAIM = "00000000-0000-4000-8000-%012x"


def claim_of(fence, other=0):
    """A claim id for a fence that a test makes up."""
    return CLAIM % (fence * 16 + other)


class FileServer:
    """`root` is where the files are; `database` a Database of postgres.py."""

    def __init__(self, database, root):
        self.database = database
        self.root = str(root)
        os.makedirs(self.root, exist_ok=True)

    def load(self):
        """Tables and functions, each file in one transaction."""
        connection = psycopg2.connect(self.database.conninfo)
        try:
            for path in (GATE, TABLES):
                with connection, connection.cursor() as cursor:
                    cursor.execute(path.read_text(encoding="utf-8"))
        finally:
            connection.close()
        return self

    def forget_all(self):
        """No file, no account, and nobody was ever at the gate."""
        self.database.query("TRUNCATE fileserver.account, fileserver.file, fileserver.physical_name, fileserver.lifecycle,"
                            " lease_gate.resource, lease_gate.effect")

    def open_account(self, account, quota=QUOTA):
        self.database.query("SELECT fileserver.open_account(%s, %s)", (account, quota))

    def name_of(self, file, account):
        return f"{account}/{file}.v0"

    def add(self, file, account, size):
        """One file, in the tables and on the disk. Returns its physical name."""
        self.add_many([(file, account, size)])
        return self.name_of(file, account)

    def add_many(self, files):
        """[(file, account, bytes)] in one transaction."""
        connection = psycopg2.connect(self.database.conninfo)
        try:
            with connection, connection.cursor() as cursor:
                rows = [(file, account, size, self.name_of(file, account)) for file, account, size in files]
                for start in range(0, len(rows), 1000):
                    psycopg2.extras.execute_values(
                        cursor, "SELECT fileserver.store(v.file, v.account, v.bytes, v.name) FROM (VALUES %s) v (file, account, bytes, name)",
                        rows[start:start + 1000], page_size=1000)
                    assert {verdict for verdict, in cursor.fetchall()} == {"stored"}
        finally:
            connection.close()
        for _, _, size, name in rows:
            self.put(name, size)

    def put(self, name, size):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.truncate(size)

    def on_disk(self):
        """Every name beneath the root that is no directory → its size."""
        found = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                found[os.path.relpath(path, self.root)] = os.lstat(path).st_size
        return found

    def used(self, account):
        return self.database.value("SELECT used_bytes FROM fileserver.account WHERE account = %s", (account,))

    def state(self, file):
        return self.database.value("SELECT state FROM fileserver.file WHERE file = %s", (file,))

    def write(self, file, fence, size, name, claim_id=None):
        return self.database.value("SELECT fileserver.write(%s, %s, %s, %s, %s)",
                                   (file, fence, claim_id or claim_of(fence), size, name))

    def begin(self, file, fence, claim_id=None):
        return self.database.query("SELECT * FROM fileserver.begin_cleanup(%s, %s, %s)", (file, fence, claim_id or claim_of(fence)))[0]

    def settle(self, file, fence, missing=False, claim_id=None):
        return self.database.query("SELECT * FROM fileserver.settle_cleanup(%s, %s, %s, %s)",
                                   (file, fence, claim_id or claim_of(fence), missing))[0]

    def lifecycle(self, file):
        """[(event, fence, bytes_change, missing)] in order."""
        return self.database.query("SELECT event, fence, bytes_change, missing FROM fileserver.lifecycle WHERE file = %s ORDER BY number",
                                   (file,))

    def everything(self):
        """All that an effect may change, to be compared."""
        return {"disk": self.on_disk(),
                "accounts": self.database.query("SELECT account, used_bytes FROM fileserver.account ORDER BY 1"),
                "files": self.database.query("SELECT file, bytes, physical_name, state, missing, settled_by FROM fileserver.file ORDER BY 1"),
                "lifecycle": self.database.query("SELECT number, file, event, fence, bytes_change, missing FROM fileserver.lifecycle ORDER BY 1"),
                "gate": self.database.query("SELECT resource, fence, claim_id::text FROM lease_gate.resource ORDER BY 1")}
