# ctest: LABEL kafka TIMEOUT 600 TAKES 40
"""Kafka and PostgreSQL behind TLS, as in earnest, with access rules: the settings reach the client libraries, every client that the
coordinator has uses them, who is not trusted is told so in words, and what a coordinator may not do is named when it starts.

What would go wrong: a client of the seven that was made without the settings, a secret that shows in a log, a wrong password or
an unknown authority that looks like a broker that is only away, a permission whose lack shows only with the first dead letter.
"""
import contextlib
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess

import confluent_kafka
import psycopg2.extensions
import pytest

import system
from certificates import Authority
from harness import Kafka, Place, Postgres, eventually
from kafka import jars
from leasectl import small_topics
from place import INPUTS, OUTPUTS
from postgres import ACCOUNT
from processes import is_root
from stage import Stage
from topics import read_topic

HERE = pathlib.Path(__file__).resolve().parent
EX_NOPERM = 77
# What a coordinator needs, as the README says: operation, type and name (the prefix comes before). Everything else is refused to it.
NEEDS = ([("Read", "topic", topic) for topic in INPUTS] + [("Read", "topic", topic) for topic in OUTPUTS]
         + [("Write", "topic", topic) for topic in OUTPUTS] + [("Read", "group", "lease-coordinator")])
WHOLE, NOBODY = "whole", "nobody"
LACKING = {f"lacking-{index}": need for index, need in enumerate(NEEDS)}
USER = "coordinator"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required {users};"


def write(path, text, mode=0o600):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="ascii") as file:
        file.write(text)
    return path


def text_of(*paths):
    return "".join(open(path, encoding="ascii").read() for path in paths)


class Secured:
    """A broker that takes clients with a certificate (TLS) or a password inside TLS (SASL), a server that insists on TLS, and the
    authority that signed for both. `stranger` is an authority that nobody trusts."""

    def __init__(self, folder):
        self.folder = folder
        self.authority, self.stranger = Authority(f"{folder}/pki"), Authority(f"{folder}/pki", "stranger")
        self.server_key, self.server_certificate = self.authority.sign("localhost")
        self.client_key, self.client_certificate = self.authority.sign("client")
        self.expired_key, self.expired_certificate = self.authority.sign("localhost", is_expired=True)
        self.password = secrets.token_hex(16)

    def broker(self):
        # Java reads the key, then the certificates, from one file.
        store = write(f"{self.folder}/pki/server.store", text_of(self.server_key, self.server_certificate))
        expired = write(f"{self.folder}/pki/expired.store", text_of(self.expired_key, self.expired_certificate))
        properties = {"ssl.keystore.type": "PEM", "ssl.keystore.location": store, "ssl.truststore.type": "PEM",
                      "ssl.truststore.location": self.authority.certificate, "listener.name.tls.ssl.client.auth": "required",
                      "listener.name.expired.ssl.keystore.location": expired,
                      "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                      "super.users": f"User:ANONYMOUS;User:CN=client;User:{USER}",
                      "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                      "listener.name.sasl.scram-sha-512.sasl.jaas.config":
                          "org.apache.kafka.common.security.scram.ScramLoginModule required;",
                      "listener.name.sasl.plain.sasl.jaas.config": JAAS.format(
                          users=" ".join(f'user_{user}="{self.password}"' for user in (USER, WHOLE, NOBODY, *LACKING)))}
        return Kafka(f"{self.folder}/kafka", properties=properties, listeners={"TLS": "SSL", "SASL": "SASL_SSL", "EXPIRED": "SSL"})

    def server(self):
        server = Postgres(f"{self.folder}/postgres", settings={
            "ssl": "on", "ssl_cert_file": "'server.pem'", "ssl_key_file": "'server.key'", "shared_buffers": "32MB"}).create()
        self.show(server, self.server_key, self.server_certificate)
        with open(f"{server.data}/pg_hba.conf", "w", encoding="ascii") as file:
            file.write("hostssl all all 127.0.0.1/32 scram-sha-256\n")
        return server.start()

    @staticmethod
    def show(server, key, certificate):
        """What the server shows from its next start or SIGHUP on."""
        for source, name in ((key, "server.key"), (certificate, "server.pem")):
            path = f"{server.data}/{name}"
            write(path, text_of(source))
            if is_root():
                shutil.chown(path, ACCOUNT)

    def secret(self, text):
        return write(f"{self.folder}/secret-{secrets.token_hex(4)}", text + "\n")


@pytest.fixture(name="secured", scope="module")
def fixture_secured():
    with system.temporary_folder(in_memory=True) as folder:
        yield Secured(folder)


def permit(broker, rows):
    """Makes users (name, password) and access rules (user, operation, type, name)."""
    done = subprocess.run(["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", HERE / "Access.java", broker.brokers], check=False, timeout=60,
                          input="".join(" ".join(row) + "\n" for row in rows).encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout.decode()


@pytest.fixture(name="broker", scope="module")
def fixture_broker(secured):
    broker = secured.broker()
    try:
        broker.start()
        permit(broker, [(USER, secured.password)])
        yield broker
    finally:
        broker.stop()


@contextlib.contextmanager
def prepared(postgres, kafka, build, folder):
    place = Place(postgres, kafka, build, folder)
    try:
        place.ctl("migrate")
        yield small_topics(place)
    finally:
        place.close()


@pytest.fixture(name="kafka_place")
def fixture_kafka_place(postgres, broker, build, folder):
    with prepared(postgres, broker, build, folder) as place:
        yield place


def sasl(secured, broker, **more):
    return dict({"brokers": f"localhost:{broker.ports['SASL']}", "kafka_security_protocol": "SASL_SSL",
                 "kafka_broker_address_family": "v4", "kafka_sasl_mechanisms": "PLAIN", "kafka_sasl_username": USER,
                 "kafka_sasl_password_file": secured.secret(secured.password),
                 "kafka_ssl_ca_location": secured.authority.certificate}, **more)


def tls(secured, broker, **more):
    return dict({"brokers": f"localhost:{broker.ports['TLS']}", "kafka_security_protocol": "SSL", "kafka_broker_address_family": "v4",
                 "kafka_ssl_ca_location": secured.authority.certificate, "kafka_ssl_key_location": secured.client_key,
                 "kafka_ssl_certificate_location": secured.client_certificate}, **more)


def scram(secured, broker, **more):
    return sasl(secured, broker, kafka_sasl_mechanisms="SCRAM-SHA-512", **more)


# librdkafka before 2.6.1 repeats its nonce where SCRAM forbids it; Kafka 3.7.2, 3.8.1 and later refuse that as a wrong password.
KNOWS_SCRAM = confluent_kafka.libversion()[1] >= 0x02060100


@pytest.mark.parametrize("settings", [sasl, tls, pytest.param(scram, marks=pytest.mark.skipif(not KNOWS_SCRAM, reason="librdkafka before 2.6.1"))])
def test_kafka_behind_tls(kafka_place, secured, broker, settings):
    """A command in, its result and its grant out, by way of every client that a coordinator has."""
    stage = Stage(kafka_place, **settings(secured, broker))
    granted = stage.ask("settlement", "start", "run-1", {"holder": "a"})
    assert granted["outcome"] == "granted" and stage.grant(granted["fence"])["holder"] == "a"
    assert secured.password not in stage.coordinator.log_text()
    listed = kafka_place.ctl("topics", ok=(0, 1), **settings(secured, broker))      # 1: they have fewer partitions
    assert "settlement.events" in listed
    assert stage.coordinator.stop()


# What is wrong, the code and a word of what must be said of it. librdkafka tells of a certificate first as TLS, then, with the same words, as a broken
# connection: which one stands last is a matter of time. A broker that asks for a certificate says that it is bad, or (newer Java) that one is required, 116.
WRONG = [
    (sasl, lambda s, b: {"kafka_sasl_password_file": s.secret("wrong-one")}, "kafka_not_authenticated", "Authentication failed"),
    (scram, lambda s, b: {"kafka_sasl_password_file": s.secret("wrong-one")}, "kafka_not_authenticated", "Authentication failed"),
    (sasl, lambda s, b: {"kafka_sasl_mechanisms": "SCRAM-SHA-256"}, "kafka_not_authenticated", "SCRAM-SHA-256"),
    (sasl, lambda s, b: {"kafka_ssl_ca_location": s.stranger.certificate}, "kafka_tls|kafka_connection",
     "certificate: (unable to get local issuer certificate|self.signed certificate)"),
    (sasl, lambda s, b: {"brokers": f"127.0.0.1:{b.ports['SASL']}"}, "kafka_tls|kafka_connection", "certificate: (IP address|hostname) mismatch"),
    (tls, lambda s, b: {"brokers": f"localhost:{b.ports['EXPIRED']}"}, "kafka_tls|kafka_connection", "certificate: certificate has expired"),
    (tls, lambda s, b: {"kafka_ssl_key_location": None, "kafka_ssl_certificate_location": None}, "kafka_connection", "bad certificate|alert number 116"),
    (tls, lambda s, b: {"kafka_security_protocol": None}, "kafka_brokers_down", "is security.protocol right?"),
]


def test_a_broker_that_does_not_trust_us_or_we_not_it_is_told(kafka_place, secured, broker):
    """Not only in librdkafka's own lines, but in the reason why the start does not get on. All at once: it takes ten seconds."""
    waiting = [(kafka_place.coordinator(**settings(secured, broker, **change(secured, broker))).start(wait=False), code, word)
               for settings, change, code, word in WRONG]
    for coordinator, code, word in waiting:
        def is_told(coordinator=coordinator, code=code, word=word):
            lines = [line for line in coordinator.log_text().splitlines() if 'event="not there yet"' in line]
            assert any(f"code={one}" in line and re.search(word, line) for one in code.split("|") for line in lines), (code, lines[-1:])
            return True

        eventually(is_told, 60, "it says why")
        assert coordinator.get("/readyz")[0] != 200
        coordinator.kill()
        assert "wrong-one" not in coordinator.log_text() and secured.password not in coordinator.log_text()


def test_each_missing_permission_is_named_at_the_start(kafka_place, secured, broker):
    """With all that the README asks for everything works; without any one of it the start ends, and says which."""
    place = kafka_place
    permit(broker, [(user, operation, kind, place.prefix + name) for user in (WHOLE, *LACKING)
                    for operation, kind, name in NEEDS if (operation, kind, name) != LACKING.get(user)])
    refused = {user: place.coordinator(**sasl(secured, broker, kafka_sasl_username=user)).start(wait=False) for user in (NOBODY, *LACKING)}
    for user, need in LACKING.items():
        operation, kind, name = need
        assert refused[user].child.wait(150) == EX_NOPERM, refused[user].child.log_tail()
        lines = [line for line in refused[user].log_text().splitlines() if "event=stopped" in line]
        assert f"{operation} on {kind} {place.prefix}{name}" in lines[-1] and "code=kafka_not_authorized" in lines[-1], (need, lines)
        others = [other for other in NEEDS if other != need and re.search(rf"{other[0]} on {other[1]}[^;]*\b{re.escape(place.prefix + other[2])}\b", lines[-1])]
        assert others == [], (need, lines[-1])
    assert refused[NOBODY].child.wait(150) == EX_NOPERM
    said = refused[NOBODY].log_text()
    for topic in OUTPUTS:
        assert re.search(rf"Read on topic [^;]*{place.prefix}{topic}\b", said) and re.search(rf"Write on topic [^;]*{place.prefix}{topic}\b", said), said
    stage = Stage(place, **sasl(secured, broker, kafka_sasl_username=WHOLE))
    granted = stage.ask("settlement", "start", "run-1", {"holder": "a"})
    assert granted["outcome"] == "granted" and stage.grant(granted["fence"])["holder"] == "a"
    assert stage.coordinator.stop()
    assert [record for topic in OUTPUTS for record in read_topic(broker.brokers, place.prefix, topic) if record.key == b"access"] == []
    assert all(secured.password not in one.log_text() for one in place.coordinators)


@pytest.fixture(name="server", scope="module")
def fixture_server(secured):
    server = secured.server()
    yield server
    server.stop()


def test_postgresql_behind_tls(server, secured, kafka, build, folder):
    """Every connection that a coordinator has is one of TLS, and the server's name and authority are looked at."""
    trusted = {"sslmode": "verify-full", "sslrootcert": secured.authority.certificate, "host": "localhost", "hostaddr": "127.0.0.1"}
    with prepared(server, kafka, build, folder) as place:
        login = place.database.login("lease_coordinator")

        def coordinator(**more):
            return {"database": psycopg2.extensions.make_dsn(login, **dict(trusted, **more))}

        stage = Stage(place, **coordinator())
        assert stage.ask("settlement", "start", "run-1", {"holder": "a"})["outcome"] == "granted"
        used = place.database.query("SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)"
                                    " WHERE a.application_name LIKE 'lease-coordinator%%'")
        assert len(used) >= 4 and all(is_ssl for is_ssl, in used)
        assert stage.coordinator.stop()
        def is_refused(wrong, *words):
            refused = place.coordinator(**coordinator(**wrong)).start(wait=False)
            eventually(lambda: all(word in refused.log_text() for word in words), 60, f"it says: {words}")
            assert refused.get("/readyz")[0] != 200
            refused.kill()

        is_refused({"sslrootcert": secured.stranger.certificate}, "certificate verify failed", "no authority in sslrootcert, or it is out of date")
        is_refused({"host": "other"}, "does not match host name")
        is_refused({"sslmode": "disable", "sslrootcert": ""}, "no encryption")
        is_refused({"password": "wrong-one"}, "password authentication failed")
        secured.show(server, secured.expired_key, secured.expired_certificate)
        server.child.signal(signal.SIGHUP)
        eventually(lambda: "certificate has expired" in subprocess.run(
            ["openssl", "s_client", "-starttls", "postgres", "-connect", f"127.0.0.1:{server.port}", "-CAfile", secured.authority.certificate],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60).stdout.decode(errors="replace"),
                   60, "the server shows the expired certificate")
        is_refused({}, "certificate verify failed", "no authority in sslrootcert, or it is out of date")
