# ctest: LABEL brokers,long TIMEOUT 900 TAKES 60 BUSY
"""A member joins or leaves the group every two seconds, some of them killed, while a load runs.

What would go wrong: partitions change hands faster than they are taken; whoever had them last still has a batch in flight; a member is told to leave
before its first partitions came; and where everybody is always about to leave, nobody gets to work. Twenty seconds of it, or
LEASE_TEST_STORM_SECONDS (300 is five minutes).
"""
import json
import os
import random
import signal
import time

from audit import Books
from crew import SEED, Crew
from waiting import eventually

EVERY_S = 2
MOVES = max(1, round(float(os.environ.get("LEASE_TEST_STORM_SECONDS", "20")) / EVERY_S))
KILLED_OF = 4      # one in so many leaves by SIGKILL
LIMIT_S = 120      # of whatever is waited for


def drains_when_told(coordinator):
    """It has come so far that SIGTERM is a word to it; before, it would end the process as it ends any other."""
    with open(f"/proc/{coordinator.child.pid}/status", encoding="ascii") as status:
        blocked = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk:"))
    return bool(blocked & (1 << (signal.SIGTERM - 1)))


class Storm:
    """Coordinators that come and go, one at a time, by lot."""

    def __init__(self, place):
        self.crew = Crew(place)
        self.random = random.Random(SEED)
        self.moves = {"joined": 0, "left": 0, "killed": 0}
        self.consumed, self.changed_at, self.longest = 0, time.monotonic(), 0.0
        self.comers = [self.crew.coordinator(batch_messages=200) for _ in range(3)]

    def can_move(self, one):
        return not one.child.is_running() or (one not in self.crew.leaving and drains_when_told(one))

    def move(self):
        """Whoever is away joins; whoever is there is killed, or told to leave. Who is still on the way out is let be."""
        ready = []
        self.crew.send_until(lambda: ready.extend(filter(self.can_move, self.comers)) or ready, LIMIT_S, "one of the members can join or leave")
        one = self.random.choice(ready)
        if not one.child.is_running():
            if one in self.crew.leaving:
                self.crew.leaving.remove(one)
                assert one.child.returncode() == 0, f"{one.name}:\n{one.child.log_tail()}"
            self.crew.killed.discard(one)
            one.start(wait=False)
            self.moves["joined"] += 1
        elif self.random.randrange(KILLED_OF) == 0:
            self.crew.kill(one)
            self.moves["killed"] += 1
        else:
            self.crew.begin_stop(one)
            self.moves["left"] += 1

    def note_progress(self):
        now, consumed = time.monotonic(), sum(self.crew.samples[-1].values())
        self.longest = max(self.longest, now - self.changed_at)
        if consumed != self.consumed:
            self.consumed, self.changed_at = consumed, now

    def is_over(self, at):
        self.note_progress()
        return time.monotonic() >= at


def test_members_come_and_go_every_two_seconds__the_books_balance(place):
    storm = Storm(place)
    crew = storm.crew
    stays = crew.coordinator(batch_messages=200).start()
    crew.send(500, LIMIT_S)
    storm.note_progress()
    consumed, sent = storm.consumed, crew.load.sent
    taken = place.database.value("SELECT sum(epoch) FROM lease.partitions")
    begun = time.monotonic()
    for _ in range(MOVES):
        storm.move()
        crew.send_until(lambda at=time.monotonic() + EVERY_S: storm.is_over(at), LIMIT_S, "two seconds are over")
    took = time.monotonic() - begun
    consumed, sent = storm.consumed - consumed, crew.load.sent - sent
    taken = place.database.value("SELECT sum(epoch) FROM lease.partitions") - taken
    crew.end_stops(LIMIT_S)
    crew.send(300, LIMIT_S)
    eventually(stays.is_ready, LIMIT_S, f"{stays.name} is ready")
    figures = crew.balance(LIMIT_S)
    found = Books(place).audit()
    print(f"{took:.0f} s: {storm.moves}; partitions were taken {taken:.0f} times; {sent} commands came in it, {consumed} were consumed in it; nothing was"
          f" consumed for {storm.longest:.1f} s at most;", json.dumps(figures))
    assert found.code == 0, found
    assert taken > 0 and consumed > 0
