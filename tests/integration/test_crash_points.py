# ctest: LABEL fault TIMEOUT 600 TAKES 130 BUSY
"""The coordinator is killed with SIGKILL at every named point between consume and acknowledge, twice each, under a mixed
load of 100,000 commands, and started again. Afterwards every message has one answer, every answer is published once, and
all other books balance."""
import itertools
import json
import os
import random

import books
from load import Load
from waiting import eventually

POINTS = ("poll.after", "tx.begun", "tx.offset_locked", "tx.applied", "tx.journaled", "commit.before_send",
          "commit.sent_no_reply", "commit.acked", "relay.read", "relay.produced", "relay.acked", "relay.watermark")
ROUNDS = 2
COMMANDS = int(os.environ.get("LEASE_TEST_COMMANDS", "100000"))
CHUNK = 500
BACKLOG = 4000              # messages sent and not consumed yet, at most
LATEST_PASSAGE = 12         # a point is hit at a random passage up to this one, so not always at the first batch
SEED = int(os.environ.get("LEASE_TEST_SEED", "41"))


class Killer:
    """Starts the coordinator with the next crash point each time it has died."""

    def __init__(self, coordinator, seed):
        self.coordinator = coordinator
        plan = random.Random(seed)
        rounds = [plan.sample(POINTS, len(POINTS)) for _ in range(ROUNDS)]
        self.plan = [(point, plan.randint(1, LATEST_PASSAGE)) for point in itertools.chain(*rounds)]
        self.kills = 0
        self._start_next()

    def _start_next(self):
        if self.plan:
            point, passage = self.plan[0]
            self.coordinator.start(crash=f"{point}:{passage}", wait=False)
        else:
            self.coordinator.start(wait=False)

    def step(self):
        """True once all points have been hit and the coordinator runs undisturbed."""
        if self.plan and not self.coordinator.child.is_running():
            assert self.coordinator.child.returncode() == -9, (
                f"the coordinator ended by itself with {self.coordinator.child.returncode()}:\n"
                + self.coordinator.child.log_tail())
            self.kills += 1
            assert self.coordinator.crashes()[-1] == self.plan[0][0], "killed, but not at the point that was armed"
            self.plan.pop(0)
            self._start_next()
        return not self.plan


def test_killed_at_every_point__the_books_balance(place):
    print(f"seed {SEED} (LEASE_TEST_SEED), {COMMANDS} commands (LEASE_TEST_COMMANDS)")
    coordinator = place.coordinator(batch_messages=500)
    killer = Killer(coordinator, SEED)
    load = Load(place, SEED)
    samples = []

    def backlog_is_small():
        killer.step()
        consumed = place.consumed()
        samples.append(consumed)
        return load.sent - sum(consumed.values()) < BACKLOG

    while load.sent < COMMANDS or not killer.step():
        load.send(CHUNK)
        eventually(backlog_is_small, 180, f"the coordinator keeps up ({killer.kills} kills so far)", every=0.05)
    coordinator.wait_ready()
    place.wait_idle(120)

    hit = coordinator.crashes()
    assert killer.kills >= 20 and set(hit) == set(POINTS), f"{killer.kills} kills at {sorted(set(hit))}"
    texts = {"the coordinator's log": coordinator.log_text(), "/metrics": coordinator.get("/metrics")[1]}
    figures = books.balance(books.collect(place, samples, texts=texts))
    assert figures["messages"] >= COMMANDS and figures["answers"] == figures["messages"]
    print(f"{killer.kills} kills at {len(set(hit))} points;", json.dumps(figures))
