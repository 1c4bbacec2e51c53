# ctest: LABEL brokers,long TIMEOUT 900 TAKES 60 BUSY
"""Brokers behind a slow way: one that answers half a second late, each in turn, and then all of them behind a narrow one.

What would go wrong: waiting for one broker holds up what others lead; a poll that comes late loses the group; records that are sent again because
their acknowledgement was late stand twice, or in another order.
"""
import json
import time

import pytest
from confluent_kafka.admin import AdminClient

import toxiproxy
from audit import Books
from crew import Crew
from topics import read_topic

COUNT = 500
LATE = {"latency": 500, "jitter": 200}       # ms, each way
NARROW = {"rate": 60}                        # KB/s
LIMIT_S = 120
TOPIC = "settlement.events"

pytestmark = pytest.mark.skipif(not toxiproxy.can_be_had(), reason=toxiproxy.MISSING)


def seconds(act):
    begun = time.monotonic()
    act()
    return round(time.monotonic() - begun, 1)


def test_slow_brokers_cost_time_and_nothing_else(cluster, wide_place, folder):
    with toxiproxy.Toxiproxy(str(folder), cluster) as proxy:
        crew = Crew(wide_place)
        one = crew.coordinator(brokers=cluster.proxied_brokers, session_timeout_ms=6000).start(limit=LIMIT_S)

        def work():
            crew.send(COUNT, LIMIT_S)
            wide_place.wait_idle(LIMIT_S)

        took = {"quick": seconds(work)}
        for node in cluster.nodes:
            proxy.add(node.number, "latency", LATE)
            took[f"broker {node.number} late"] = seconds(work)
            answered = seconds(lambda n=node: AdminClient({"bootstrap.servers": f"127.0.0.1:{n.before}", "log_level": 2}).list_topics(timeout=LIMIT_S))
            assert answered >= 2 * (LATE["latency"] - LATE["jitter"]) / 1000, f"broker {node.number} was not late: it answered after {answered} s"
            proxy.clear()
        for node in cluster.nodes:
            proxy.add(node.number, "bandwidth", NARROW)
        took["all narrow"] = seconds(work)
        records = []
        came = seconds(lambda: records.extend(read_topic(cluster.proxied_brokers, wide_place.prefix, TOPIC)))
        size = sum(len(record.raw or b"") for record in records)
        assert came >= size / (1000 * NARROW["rate"] * len(cluster.nodes)) / 2, f"the way was not narrow: {size} bytes came in {came} s"
        proxy.clear()
        one.wait_ready(LIMIT_S)
        figures = crew.balance(LIMIT_S)
        found = Books(wide_place).audit()
        print(f"seconds for {COUNT} commands each: {took}; {size} bytes came through the narrow way in {came} s;", json.dumps(figures))
        assert found.code == 0, found
        assert "partition halted" not in one.log_text()
