#!/usr/bin/env python3
"""A worker of a pool: claims items with credit, works on them in threads, renews what gets on, stops what has lost its lease."""
import argparse
import concurrent.futures
import queue
import secrets
import signal
import threading
import time

import leasehold

MARGIN_S = 0.5      # our clock and the network are not perfect: stop a little early


def clock_s():
    """Goes on while the machine sleeps, as the lease does, where there is such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Item:
    """One grant, and how long it is surely ours."""

    def __init__(self, grant, deadline):
        self.grant, self.deadline = grant, deadline
        self.progressed = clock_s()

    def is_mine(self):
        """To be asked before every effect. Once false it stays false."""
        if clock_s() >= self.deadline - MARGIN_S:
            self.deadline = float("-inf")
        return self.deadline > 0

    def progress(self):
        """Work that says nothing is not renewed: it may be stuck, and others can do it."""
        self.progressed = clock_s()
        return self.is_mine()

    def as_holder(self):
        return {name: self.grant[name] for name in ("holder", "fence", "claim_id", "token")}


def work(item):
    """Yours. Returns what is to stand in the result, or raises."""
    for _ in range(3):
        time.sleep(0.01)
        if not item.progress():
            raise RuntimeError("the lease is lost")
    return {"by": "python"}


class Worker:
    def __init__(self, kind, threads, ttl_s):
        self.kind, self.threads, self.ttl_s = kind, threads, ttl_s
        self.holder = f"python-{secrets.token_hex(4)}"          # new in every process
        self.records = leasehold.Records("lease.grants", "lease.results", from_end=True)     # before the first claim
        self.producer = leasehold.producer()
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)
        self.items, self.done = {}, queue.SimpleQueue()
        self.asked = self.granted = self.refresh = self.finished = 0
        self.sent_at = {}               # refresh: when it was sent
        self.renewals = {}              # message id: (item, when it was sent)
        self.is_stopping = threading.Event()
        self.has_closed = False         # our demand

    def send(self, command, subject, data):
        return leasehold.send(self.producer, self.kind, command, subject, data)

    def claim(self):
        """Asks for what the threads have room for; says again, now and then, that we still want it; and at last, once, that we don't."""
        wait_s, is_last = self.ttl_s / 2, self.is_stopping.is_set()
        wanted = max(self.asked, self.granted + (0 if is_last else self.threads - len(self.items)))
        is_told = self.has_closed if is_last else wanted == self.asked and clock_s() - self.sent_at.get(self.refresh, 0) < wait_s / 2
        if is_told:
            return
        self.has_closed = is_last
        self.asked = wanted                                      # a total of all claims so far; it never falls
        self.refresh += 1
        self.sent_at[self.refresh] = clock_s()
        self.sent_at.pop(self.refresh - 100, None)
        self.send("claim", self.holder, {"credit_total": self.asked, "refresh": self.refresh, "ttl_ms": int(self.ttl_s * 1000),
                                         "wait_ms": 0 if is_last else int(wait_s * 1000)})

    def take(self, grant):
        self.granted += 1
        item = Item(grant, self.sent_at.get(grant["refresh"], float("-inf")) + self.ttl_s)
        self.items[grant["lease"]] = item
        self.pool.submit(self.run, item)

    def run(self, item):
        if not item.is_mine():          # it waited for too long, or answers a claim that we know nothing of
            self.done.put((item, "release", {}))
            return
        try:
            self.done.put((item, "finish", {"result": work(item)}))
        except Exception as problem:  # pylint: disable=broad-except  # whatever it is: the item is tried again
            self.done.put((item, "fail", {"reason": str(problem)[:200], "retry": True}))

    def settle(self):
        """What is done is said under its grant, also if the lease has lapsed: done work counts if nobody else has begun it."""
        while not self.done.empty():
            item, command, said = self.done.get()
            if self.items.get(item.grant["lease"]) is item:     # and not the next grant of the same lease
                del self.items[item.grant["lease"]]
            self.send(command, item.grant["lease"], {**item.as_holder(), **said})
            self.finished += command == "finish"

    def renew(self):
        now = clock_s()
        self.renewals = {name: sent for name, sent in self.renewals.items() if now - sent[1] < self.ttl_s / 3}   # unanswered: again
        for item in self.items.values():
            is_due = now > item.deadline - self.ttl_s * 2 / 3
            if is_due and now - item.progressed < self.ttl_s / 3 and all(item is not other for other, _ in self.renewals.values()):
                message_id = self.send("renew", item.grant["lease"], {**item.as_holder(), "ttl_ms": int(self.ttl_s * 1000)})
                self.renewals[message_id] = (item, now)

    def answered(self, answer):
        item, sent_at = self.renewals.pop(answer.get("command", {}).get("id"), (None, 0))
        if item and answer["outcome"] == "renewed":
            item.deadline = max(item.deadline, sent_at + self.ttl_s) if item.is_mine() else item.deadline

    def turn(self):
        self.claim()
        self.renew()
        self.producer.poll(0)
        record = self.records.next(0.02)
        if record:
            topic, key, value = record
            if topic == "lease.grants" and key == self.holder:
                self.take(value)
            elif topic == "lease.results":
                self.answered(value)
        self.settle()
        return record is not None

    def serve(self, until_idle):
        quiet_since = clock_s()
        while not self.is_stopping.is_set() and (until_idle is None or clock_s() - quiet_since < until_idle):
            if self.turn() and self.items:
                quiet_since = clock_s()
        self.is_stopping.set()                                   # drain: ask for nothing more, end what is in hand
        until = clock_s() + self.ttl_s
        while (self.items or self.asked > self.granted) and clock_s() < until:
            self.turn()
            if not self.items and clock_s() > until - self.ttl_s + 1:
                break
        self.producer.flush(10)
        print(f"{self.holder}: {self.finished} finished", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="cleanup")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--ttl", type=float, default=10, metavar="SECONDS")
    parser.add_argument("--until-idle", type=float, metavar="SECONDS", help="end when nothing was granted for so long")
    options = parser.parse_args()
    worker = Worker(options.kind, options.threads, options.ttl)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.is_stopping.set())
    worker.serve(options.until_idle)


if __name__ == "__main__":
    main()
