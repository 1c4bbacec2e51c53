# ctest: LABEL kafka TIMEOUT 180 TAKES 40
"""Kafka and PostgreSQL behind TLS, as in earnest: the settings reach the client libraries, every client that the coordinator has
uses them, and who is not trusted is told so in words.

What would go wrong: a client of the five that was made without the settings, a secret that shows in a log, a wrong password or
an unknown authority that looks like a broker that is only away.
"""
import contextlib
import os
import re
import secrets
import shutil

import psycopg2.extensions
import pytest

import system
from certificates import Authority
from harness import Kafka, Place, Postgres, eventually
from postgres import ACCOUNT
from processes import is_root
from stage import Stage

USER = "coordinator"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}=\"{password}\";"


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
        self.password = secrets.token_hex(16)

    def broker(self):
        # Java reads the key, then the certificates, from one file.
        store = write(f"{self.folder}/pki/server.store", text_of(self.server_key, self.server_certificate))
        properties = {"ssl.keystore.type": "PEM", "ssl.keystore.location": store, "ssl.truststore.type": "PEM",
                      "ssl.truststore.location": self.authority.certificate, "listener.name.tls.ssl.client.auth": "required",
                      "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
                      "listener.name.sasl.plain.sasl.jaas.config": JAAS.format(user=USER, password=self.password)}
        return Kafka(f"{self.folder}/kafka", properties=properties, listeners={"TLS": "SSL", "SASL": "SASL_SSL"})

    def server(self):
        server = Postgres(f"{self.folder}/postgres", settings={
            "ssl": "on", "ssl_cert_file": "'server.pem'", "ssl_key_file": "'server.key'", "shared_buffers": "32MB"}).create()
        for source, name in ((self.server_key, "server.key"), (self.server_certificate, "server.pem")):
            path = f"{server.data}/{name}"
            write(path, text_of(source))
            if is_root():
                shutil.chown(path, ACCOUNT)
        with open(f"{server.data}/pg_hba.conf", "w", encoding="ascii") as file:
            file.write("hostssl all all 127.0.0.1/32 scram-sha-256\n")
        return server.start()

    def secret(self, text):
        return write(f"{self.folder}/secret-{secrets.token_hex(4)}", text + "\n")


@pytest.fixture(name="secured", scope="module")
def fixture_secured():
    with system.temporary_folder() as folder:
        yield Secured(folder)


@pytest.fixture(name="broker", scope="module")
def fixture_broker(secured):
    broker = secured.broker()
    try:
        yield broker.start()
    finally:
        broker.stop()


@contextlib.contextmanager
def prepared(postgres, kafka, build, folder):
    place = Place(postgres, kafka, build, folder)
    try:
        yield place.prepare()
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


@pytest.mark.parametrize("settings", [sasl, tls])
def test_kafka_behind_tls(kafka_place, secured, broker, settings):
    """A command in, its result and its grant out, by way of every client that a coordinator has."""
    stage = Stage(kafka_place, **settings(secured, broker))
    granted = stage.ask("settlement", "start", "run-1", {"holder": "a"})
    assert granted["outcome"] == "granted" and stage.grant(granted["fence"])["holder"] == "a"
    assert secured.password not in stage.coordinator.log_text()
    listed = kafka_place.ctl("topics", **settings(secured, broker))
    assert "settlement.events" in listed
    assert stage.coordinator.stop()


# What is wrong, the code and a word of what must be said of it. librdkafka tells of a certificate first as TLS, then, with the same words, as a broken
# connection: which one stands last is a matter of time. A broker that asks for a certificate says that it is bad, or (newer Java) that one is required, 116.
WRONG = [
    (sasl, lambda s, b: {"kafka_sasl_password_file": s.secret("wrong-one")}, "kafka_not_authenticated", "Authentication failed"),
    (sasl, lambda s, b: {"kafka_ssl_ca_location": s.stranger.certificate}, "kafka_tls|kafka_connection", "certificate verify failed"),
    (sasl, lambda s, b: {"brokers": f"127.0.0.1:{b.ports['SASL']}"}, "kafka_tls|kafka_connection", "certificate verify failed"),
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

        eventually(is_told, 30, "it says why")
        assert coordinator.get("/readyz")[0] != 200
        assert "wrong-one" not in coordinator.log_text() and secured.password not in coordinator.log_text()


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
        for wrong, word in (({"sslrootcert": secured.stranger.certificate}, "certificate verify failed"),
                            ({"host": "other"}, "does not match host name"), ({"sslmode": "disable", "sslrootcert": ""}, "no encryption")):
            refused = place.coordinator(**coordinator(**wrong)).start(wait=False)
            eventually(lambda one=refused, text=word: text in one.log_text(), 20, f"it says: {word}")
            assert refused.get("/readyz")[0] != 200
            refused.kill()
