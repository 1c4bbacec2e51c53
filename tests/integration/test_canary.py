# ctest: LABEL kafka TIMEOUT 240 TAKES 12
"""A canary in every secret, and a search in every place: the key of the tokens, every token that was given out, and the passwords stand
nowhere but where they belong. At log level debug, with a server that logs every statement with its parameters.

Tokens belong into lease.grants and into the holders' own commands; nothing else belongs anywhere. (A message that cannot be identified is kept
whole as a dead letter: ARCHITECTURE.md says what follows. None here is like that.)
"""
import base64
import secrets

import pytest

import system
from harness import Place, Postgres, eventually
from place import INPUTS, OUTPUTS
from stage import Stage
from topics import read_topic

LOGGED = {"log_statement": "all", "log_min_error_statement": "debug5", "log_min_messages": "debug1", "log_parameter_max_length": "-1",
          "log_parameter_max_length_on_error": "-1", "log_connections": "on", "log_duration": "on", "shared_buffers": "32MB"}
COLUMNS = ("SELECT c.oid::regclass::text FROM pg_class c WHERE c.relkind IN ('r', 'm') AND c.relnamespace NOT IN "
           "('pg_catalog'::regnamespace, 'information_schema'::regnamespace) AND c.relnamespace::regnamespace::text !~ '^pg_toast'")


@pytest.fixture(name="server", scope="module")
def fixture_server():
    with system.temporary_folder(in_memory=True) as folder:
        server = Postgres(f"{folder}/postgres", settings=LOGGED).create().start()
        yield server
        server.stop()


def spellings(secret):
    """As it is, and as a bytea, a base64 text or a percent-coded one would show it."""
    raw = secret.encode()
    yield from (secret, raw.hex(), base64.b64encode(raw).decode().rstrip("=")[:-1])
    if len(secret) == 64:
        yield base64.b64encode(bytes.fromhex(secret)).decode().rstrip("=")[:-1]


def search(places, canaries):
    """(place, canary) for whatever is found; both by name."""
    return [(place, name) for place, text in places.items() for name, secret in canaries.items()
            if any(spelling in text for spelling in spellings(secret))]


def text_of_records(records):
    return "\n".join(repr((record.key, record.raw, record.header_list)) + (record.raw or b"").decode("utf-8", "replace") + str(record.header_list)
                     for record in records)


def tables(database):
    return {f"table {name}": "\n".join(row for row, in database.query(f"SELECT t::text FROM {name} t")) for name, in database.query(COLUMNS)}


def topics(place, names):
    return {f"topic {name}": text_of_records(read_topic(place.kafka.brokers, place.prefix, name)) for name in names}


def file_text(path):
    with open(path, "rb") as file:
        return file.read().decode("utf-8", "replace")


def log_of(server):
    """Without the statement by which the test makes the account: it has the password in it."""
    return "\n".join(line for line in file_text(server.log).splitlines() if "CREATE ROLE" not in line)


def work(stage):
    """Every way on which a token comes in: right and wrong ones, late ones, malformed and repeated commands."""
    granted = stage.ask("settlement", "start", "run-1", {"holder": "a", "ttl_ms": 60000, "resources": ["album/1"], "payload": {"x": 1}})
    first = stage.grant(granted["fence"])
    mine = stage.as_holder(first)
    wrong = dict(mine, token="0" * 64)
    assert stage.ask("settlement", "renew", "run-1", wrong)["outcome"] == "stale"
    assert stage.ask("settlement", "renew", "run-1", mine)["outcome"] == "renewed"
    assert stage.ask("settlement", "renew", "run-1", dict(mine, ttl_ms="many"))["outcome"] == "malformed"
    assert stage.ask("settlement", "advance", "run-1", dict(mine, step="posted"))["outcome"] == "out_of_step"
    assert stage.ask("settlement", "fail", "run-1", dict(mine, reason="no"), message_id="f1")["outcome"] == "failed"
    assert stage.ask("settlement", "fail", "run-1", dict(mine, reason="no"), message_id="f1")["outcome"] == "duplicate"
    assert stage.ask("settlement", "finish", "run-1", mine)["outcome"] in ("stale", "lapsed", "final")
    assert stage.ask("cleanup", "request", "item-1", {"payload": {"path": "a"}})["outcome"] == "requested"
    stage.ask("cleanup", "claim", "w1", {"credit_total": 1, "refresh": 1})
    item = stage.grants.wait_for(lambda record: record.value["lease"] == "item-1").value
    assert stage.ask("cleanup", "finish", "item-1", stage.as_holder(item, result={"done": True}))["outcome"] == "finished"
    return {"token of the run": first["token"], "token of the item": item["token"]}


def test_no_secret_stands_anywhere_that_it_does_not_belong(server, kafka, build, folder):
    place = Place(server, kafka, build, folder)
    try:
        place.prepare()
        place.token_key = f"canary-key-{secrets.token_hex(24)}"
        stage = Stage(place, log_level="debug", kafka_debug="all")
        password = place._login.partition("password=")[2].split()[0].strip("'")
        canaries = dict({"token key": place.token_key, "database password": password}, **work(stage))
        # The database is away for a moment, so that errors are told, too; and a session of the server is looked at while it is there.
        sessions = str(place.database.query("SELECT * FROM pg_stat_activity"))
        place.database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'lease-coordinator%%'")
        eventually(lambda: "trying again" in stage.coordinator.log_text(), 60, "the coordinator noticed")
        eventually(lambda: stage.coordinator.get("/readyz")[0] == 200, 60, "and is ready again")
        places = dict({"/metrics": stage.coordinator.get("/metrics")[1], "/readyz": stage.coordinator.get("/readyz")[1],
                       "pg_stat_activity": sessions, "command line": file_text(f"/proc/{stage.coordinator.child.pid}/cmdline"),
                       "leasectl ls": place.ctl("ls", "-o", "json"), "leasectl --show-config": place.ctl("--show-config")},
                      **tables(place.database), **topics(place, [name for name in OUTPUTS if name != "lease.grants"]))
        assert stage.coordinator.stop()
        places.update({"coordinator's log": stage.coordinator.log_text(), "server's log": log_of(server)})
        assert len(places) > 30 and "lease.apply" in places["server's log"] and "level=debug" in places["coordinator's log"]
        assert search(places, canaries) == []
        # The search finds what it looks for where it belongs: tokens in the grants and in the holders' commands, and nothing else even there.
        found = search(topics(place, ["lease.grants", *INPUTS]), canaries)
        assert {name for _, name in found} == {"token of the run", "token of the item"}, found
        assert {where for where, _ in found} == {"topic lease.grants", "topic settlement.events", "topic cleanup.events", "topic lease.renewals"}, found
        print(f"{len(canaries)} secrets looked for in {len(places)} places, {sum(map(len, places.values()))} characters")
    finally:
        place.close()
