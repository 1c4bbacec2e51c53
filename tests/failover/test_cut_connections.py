# ctest: LABEL failover TIMEOUT 600 TAKES 40 BUSY
"""The connection to PostgreSQL ends at any byte of a batch's exchange, in either direction, with a reset or an orderly end. The client
then has an error; whether the server has committed hangs on a few bytes. Neither 'it failed' nor 'it worked' may be concluded: the
coordinator connects again and reads the consumed offset, which was written by the same transaction, and so knows.

The books must hold: each message has one answer, none is lost, none is doubled. A sample of the cut points runs here; the sweep over
every byte with LEASE_TEST_EVERY_BYTE=1, another sample with LEASE_TEST_SEED.
"""
import os
import random

import pytest

import books
from events import structured
from harness import eventually
from proxy import TO_CLIENT, TO_SERVER, Proxy, query

LANE = "lease-coordinator lane-1"
BATCH = 3
AT_THE_END = 24       # bytes: COMMIT is 12 there, its answer 18 with the ReadyForQuery behind it
SPREAD = 10           # points elsewhere
STANDS = "a commit that was in doubt stands"


@pytest.fixture(name="seed")
def fixture_seed():
    seed = int(os.environ.get("LEASE_TEST_SEED") or random.randrange(2**31))
    print(f"LEASE_TEST_SEED={seed}")
    return seed


class Line:
    """One coordinator whose connections all go through a proxy."""

    def __init__(self, world):
        self.server = world.server("server")
        self.place = world.place(self.server)
        self.place.coordinator()
        self.proxy = Proxy("127.0.0.1", self.server.port).start()
        # Waits a moment for more messages, so that what is sent together is one batch.
        self.coordinator = self.place.coordinator(lanes=1, batch_wait_ms=20, session_timeout_ms=6000,
                                                  database=self.proxy.conninfo(self.server.conninfo(self.place.database.name))).start()
        self.client = world.client(self.place)
        self.sent = 0

    def send_batch(self):
        """A few commands of one partition, sent together; their ids. All batches have one size on the wire."""
        ids = []
        for _ in range(BATCH):
            self.sent += 1
            name = f"{self.sent:06}"
            ids.append(f"m{name}")
            data = {"holder": "h1", "ttl_ms": 600000, "resources": [f"album/{name}", f"track/{name}"]}
            value, headers = structured("settlement", "start", f"run-{name}", data, ids[-1])
            self.client.events.send_raw("settlement.events", f"run-{name}", value, headers, partition=0)
        self.client.events.flush()
        return ids

    def exchange(self):
        """One batch, until all its answers are published."""
        ids = self.send_batch()
        answers = self.client.answers(ids)
        assert {answer["outcome"] for answer in answers} == {"granted"}, answers

    def size_of_exchange(self):
        """Bytes of a batch to the server and back, on a connection that has prepared its statements. What was sent together may arrive apart, and
        is two batches then: more bytes."""
        self.exchange()
        sizes = []
        for _ in range(5):
            before = self.proxy.passed(LANE)
            self.exchange()
            sizes.append([now - then for now, then in zip(self.proxy.passed(LANE), before)])
        return min(sizes)

    def times_in_doubt(self):
        return self.coordinator.log_text().count("code=db_commit_in_doubt")

    def times_it_stood(self):
        return self.coordinator.log_text().count(STANDS)

    def balance(self):
        eventually(self.place.is_idle, 60, "everything is consumed and published")
        assert self.coordinator.stop()
        figures = books.balance(books.collect(self.place, texts={"log": self.coordinator.log_text()}))
        assert figures["outcomes"] == {"granted": self.sent}, figures
        return figures

    def close(self):
        self.proxy.close()


@pytest.fixture(name="line")
def fixture_line(world):
    line = Line(world)
    yield line
    line.close()


def points(seed, size):
    """After how many bytes to cut: all of them, or the last ones, where the commit is, and some elsewhere."""
    if os.environ.get("LEASE_TEST_EVERY_BYTE"):
        return range(size + 1)
    last = range(max(0, size - AT_THE_END), size + 1, 2)
    return sorted({*last, *random.Random(seed).sample(range(last.start), min(SPREAD, last.start))})


def test_F5_a_connection_cut_at_any_byte_of_a_batch_loses_and_doubles_nothing(line, seed):
    sizes = dict(zip((TO_SERVER, TO_CLIENT), line.size_of_exchange()))
    done, stood = {TO_SERVER: 0, TO_CLIENT: 0}, {TO_SERVER: 0, TO_CLIENT: 0}
    for direction, size in sizes.items():
        before = line.times_it_stood()
        for number, after in enumerate(points(seed, size)):
            doubts = line.times_in_doubt()
            cut = line.proxy.cut_at(LANE, direction, after, reset=number % 2 == 1)
            line.exchange()
            done[direction] += cut.is_done
            if line.times_in_doubt() > doubts:
                line.exchange()      # what stood is published before the lane has found out: one batch more, and it has
        stood[direction] = line.times_it_stood() - before
    print(f"{sizes[TO_SERVER]} bytes to the server, {sizes[TO_CLIENT]} back; cuts done: {done}; of these had committed: {stood}")
    line.balance()
    assert sum(done.values()) >= 40
    assert stood[TO_CLIENT] > 0, "no cut met a commit that stood: this shows nothing"
    assert stood[TO_CLIENT] < done[TO_CLIENT] and stood[TO_SERVER] < done[TO_SERVER], "no cut met a commit that was lost: this shows nothing"


def test_F5_any_other_connection_cut_anywhere_loses_and_doubles_nothing(line, seed):
    """The relay's and the reaper's connections at random points while batches go by, the intake's while it takes its partitions."""
    chance = random.Random(seed)
    relay, reaper, intake = "lease-relay", f"lease-coordinator {line.coordinator.child.env['LEASE_INSTANCE']}", "lease-coordinator intake"
    done = dict.fromkeys((relay, reaper, intake), 0)

    def cut(name, most):
        return line.proxy.cut_at(name, chance.choice((TO_SERVER, TO_CLIENT)), chance.randrange(most), reset=chance.random() < 0.5)

    for name in (relay, reaper) * 6:
        one = cut(name, 400)
        for _ in range(20):      # exchanges, until so many bytes have passed
            line.exchange()
            if one.is_done:
                break
        done[name] += one.is_done
    for _ in range(4):
        assert line.coordinator.stop()
        one = cut(intake, 1200)
        line.coordinator.start()
        line.exchange()
        done[intake] += one.is_done
    print(f"cuts done: {done}")
    line.balance()
    assert all(done.values()), "this shows nothing"


def test_F4_a_commit_that_is_answered_with_ROLLBACK_counts_as_none(line):
    """COMMIT of a transaction that had failed is no error: the answer is the word ROLLBACK. The batch is done again, once."""
    line.exchange()
    line.proxy.say_once(LANE, query("COMMIT"), instead=query("ROLLBACK"))
    line.exchange()
    assert line.proxy.has_said()
    assert line.times_it_stood() == 0
    line.balance()


def test_F4_a_commit_outside_of_a_transaction_counts_as_none(line):
    """COMMIT where no transaction is open is no error either: it is answered COMMIT, with a warning."""
    line.exchange()
    line.proxy.say_once(LANE, query("COMMIT"), before=query("ROLLBACK"))
    line.exchange()
    assert line.proxy.has_said()
    assert line.times_it_stood() == 0
    line.balance()
