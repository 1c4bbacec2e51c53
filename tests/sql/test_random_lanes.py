"""Four lanes at random, on real clocks with short leases, and afterwards the books.

What is hard to foresee in interleavings is left to chance here; the journal then tells whether the invariants held. The seed is
printed and can be given: LEASE_TEST_SEED. (Threads make a run only nearly repeatable.)
"""
import collections
import os
import random
import threading
import time

import psycopg2.errors

from rules import Grant, Lane, claim, eventually, request, start

LANES, SECONDS = 4, float(os.environ.get("LEASE_TEST_SECONDS", "12"))
LEASES, ITEMS, RESOURCES, WORKERS, TTL = 12, 12, 8, 5, 120      # ms
RETRY = (psycopg2.errors.SerializationFailure, psycopg2.errors.DeadlockDetected)
ENDS = {"lapsed", "dead", "finished", "failed", "released"}
# What a run has to show. A slow machine finds most leases lapsed: then it goes on until it has.
SHOWN = {"granted", "renewed", "finished", "failed", "released", "lapsed", "held", "stale", "duplicate", "waiting", "requested"}
SECONDS_MAX = 8 * SECONDS


class Player:
    """One lane. Remembers what it sent, so that the books can be compared with it."""

    def __init__(self, number, conninfo, seed, world):
        self.random = random.Random(seed * 100 + number)
        self.lane, self.number, self.world = Lane(conninfo), number, world
        self.sent, self.refused, self.rolled_back, self.error = {}, 0, 0, None
        self.thread = threading.Thread(target=self.play, daemon=True)

    def any_command(self):
        r, world = self.random, self.world
        roll = r.random()
        if roll < 0.05 and self.sent:
            return dict(r.choice(list(self.sent.values())))            # once more
        if roll < 0.35:
            return start(f"s{world['epoch']}.{r.randrange(LEASES)}", holder=f"h{self.number}", ttl=r.randrange(5, TTL),
                         resources=[f"album/{r.randrange(RESOURCES)}" for _ in range(r.randrange(4))])
        if roll < 0.42:
            return request(f"i{world['epoch']}.{r.randrange(ITEMS)}")
        if roll < 0.62:
            with world["lock"]:
                worker = r.randrange(WORKERS)
                world["credit"][worker] += r.randrange(6)
                world["refresh"][worker] += 1
                return claim(f"w{worker}", world["credit"][worker], refresh=world["refresh"][worker], wait_ms=r.choice([None, 50, 50, 300]), ttl=r.randrange(5, TTL))
        grants = list(world["grants"])
        if not grants:
            return request(f"i{world['epoch']}.0")
        grant = r.choice(grants[-40:])
        word = r.choice(["renew", "renew", "finish", "fail", "release", "advance"])
        if word == "fail":
            return grant.fails(retry=r.random() < 0.8, delay_ms=r.choice([None, 0, 5]))
        return grant.says(word, ttl_ms=r.randrange(5, TTL) if word == "renew" else None, word="calculated" if word == "advance" else None)

    def one_batch(self):
        commands = [self.any_command() for _ in range(self.random.choice([1, 1, 2, 5, 20]))]
        for _ in range(50):
            try:
                answers = self.lane.apply(*commands)
                if self.random.random() < 0.08:
                    self.lane.rollback()
                    self.rolled_back += 1
                    continue
                self.lane.commit()
            except RETRY:
                self.lane.rollback()
                self.refused += 1
                continue
            for sent, answer in zip(commands, answers if isinstance(answers, list) else [answers]):
                self.sent.setdefault(sent["id"], sent)
                self.world["seen"].add(answer.outcome)
                self.world["answered"][sent["id"]].append(answer.number)
                if sent["command"] == "start" and answer.outcome == "granted":
                    self.world["grants"].append(Grant(sent["kind"], sent["subject"], sent["holder"], answer.fence, answer.claim_id))
            return
        raise AssertionError("refused fifty times")

    def play(self):
        try:
            begun = time.monotonic()
            while (passed := time.monotonic() - begun) < SECONDS or passed < SECONDS_MAX and not SHOWN <= self.world["seen"]:
                if self.random.random() < 0.15:
                    self.lane.reap(limit=self.random.choice([1, 3, 100]))
                    continue
                self.one_batch()
                if self.random.random() < 0.3:
                    for grant in self.lane.grants_after(max(0, self.lane.last_number() - 60)):
                        self.world["grants"].append(grant)
        except Exception as error:  # pylint: disable=broad-except  # told by the test
            self.error = error


class Books:
    """Replays the journal in order and says what does not add up."""

    def __init__(self, rows, sent):
        self.sent, self.wrong = sent, []
        self.live = {}                                   # (kind, lease) -> grant row
        self.fence, self.claims, self.until = collections.defaultdict(int), {}, {}
        self.owner, self.final = {}, set()               # resource -> (kind, lease)
        self.credit, self.granted = collections.defaultdict(int), collections.defaultdict(int)
        self.applied = collections.Counter()
        self.started = {}                                # (kind, lease, fence) -> message that started it
        for row in rows:
            self.row(row)

    def check(self, is_right, row, what):
        if not is_right:
            self.wrong.append(f"{row['number']} {row['event']} {row['subject']}: {what}")

    def row(self, row):
        key, event = (row["kind"], row["subject"]), row["event"]
        if row["command"] and event not in ("duplicate", "malformed"):
            self.applied[row["message_id"]] += 1
            self.check(self.applied[row["message_id"]] == 1, row, "I4: a message was applied twice")
        if row["command"] == "claim":
            if event not in ("duplicate", "malformed"):
                self.credit[row["subject"]] = max(self.credit[row["subject"]], self.sent[row["message_id"]]["amount"])
            return
        if event == "granted":
            self.grant(row, key)
        elif event in ENDS and (row["command"] is None or event != "lapsed"):
            self.end(row, key)
        elif event in ("renewed", "advanced"):
            self.check(key in self.live and self.live[key]["fence"] == row["fence"], row, "I3: by somebody whose grant is not live")
            self.check(row["at"] < self.until[key], row, "I2: after its expiry")
            self.check(row["lease_until"] >= self.until[key], row, "a renewal shortened the lease")
            self.until[key] = row["lease_until"]

    def grant(self, row, key):
        self.check(key not in self.final, row, "I10: a final state was left")
        self.check(key not in self.live, row, "I2: granted while held")
        self.check(row["fence"] > self.fence[key], row, "I1: the fence did not rise")
        self.check(row["claim_id"] not in self.claims and row["fence"] not in self.claims.values(), row, "I1: claim id or fence given out twice")
        self.fence[key], self.claims[row["claim_id"]] = row["fence"], row["fence"]
        self.live[key], self.until[key] = row, row["lease_until"]
        if row["command"] is None:
            self.granted[row["holder"]] += 1
        else:
            self.started[key + (row["fence"],)] = row["message_id"]
        for resource in set(self.sent[row["message_id"]]["resources"]):
            before = self.owner.get(resource)
            self.check(before is None or before[0] not in self.live or self.live[before[0]]["fence"] != before[1], row, f"I2: {resource} is covered by live {before}")
            self.check(before is None or before[1] < row["fence"], row, f"I1: {resource} was granted under a higher fence")
            self.owner[resource] = (key, row["fence"])

    def end(self, row, key):
        self.check(key not in self.final, row, "I10: a final state was left")
        if row["command"] is None:
            self.check(key in self.live and self.live[key]["fence"] == row["fence"], row, "a lapse of what was not live")
            self.check(row["min_fence"] == row["fence"] + 1, row, "no fence floor")
            self.check(row["at"] >= self.until[key], row, "lapsed before its expiry")
        elif row["event"] == "finished" and key not in self.live:      # late
            self.check(self.fence[key] == row["fence"], row, "I3: a late finish, but somebody was granted since")
            for resource in self.covered_by(key, row["fence"]):
                self.check(self.owner[resource] == (key, row["fence"]), row, f"I3: a late finish, but {resource} was taken by {self.owner[resource]}")
        else:
            self.check(self.live[key]["fence"] == row["fence"] and self.live[key]["claim_id"] == row["claim_id"], row, "I3: by somebody else")
            self.check(row["at"] < self.until[key], row, "I2: after its expiry")
        self.live.pop(key, None)
        if row["state"] in ("finished", "dead", "failed"):
            self.final.add(key)

    def covered_by(self, key, fence):
        return set(self.sent[self.started[key + (fence,)]]["resources"]) if key + (fence,) in self.started else set()


def test_random_lanes_keep_the_books(database, new_lane):
    seed = int(os.environ.get("LEASE_TEST_SEED", random.randrange(10 ** 9)))
    print(f"seed {seed}")
    watcher = new_lane()
    watcher.query("UPDATE lease.kind SET backoff_base_ms = 5, backoff_max_ms = 40 WHERE kind = 'cleanup'")
    watcher.commit()
    world = {"lock": threading.Lock(), "credit": collections.defaultdict(int), "refresh": collections.defaultdict(int), "epoch": 0, "seen": set(),
             "grants": collections.deque(maxlen=400), "answered": collections.defaultdict(list)}
    players = [Player(i, database.conninfo, seed, world) for i in range(LANES)]
    for player in players:
        player.thread.start()
    while any(player.thread.is_alive() for player in players):
        players[0].thread.join(0.25)
        world["epoch"] += players[0].thread.is_alive()       # final leases are left behind
    assert [player.error for player in players if player.error] == []

    # Everything lapses, everything ready meets what is open, and nothing stays that should have met (F26).
    def is_at_rest():
        watcher.reap()
        return watcher.query("SELECT 1 FROM lease.leases WHERE condition IN ('held', 'lapsed', 'covering')") == []
    eventually(is_at_rest, 60, "an end of all leases")
    before = watcher.value("SELECT clock_timestamp()")
    watcher.reap()
    assert watcher.query("SELECT worker FROM lease.demands d WHERE is_open AND EXISTS (SELECT 1 FROM lease.leases l WHERE l.kind = d.kind AND l.state = 'ready' "
                         "AND l.ready_at <= %s)", (before,)) == []

    sent = {}
    for player in players:
        sent.update(player.sent)
    rows = watcher.journal()
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1)), "the journal has gaps"
    answers = {row["number"]: row["message_id"] for row in rows if row["command"]}
    told = {number: message for message, numbers in world["answered"].items() for number in numbers}
    assert answers == told, "I4: what the lanes were told is not what the journal says"
    books = Books(rows, sent)
    assert books.wrong == [], "\n".join(books.wrong[:20])
    for worker, granted in books.granted.items():
        assert granted <= books.credit[worker], f"{worker} was granted {granted}, and asked for {books.credit[worker]}"
    events = collections.Counter(row["event"] for row in rows)
    print(f"{len(rows)} journal rows, {sum(p.refused for p in players)} refused and run again, {sum(p.rolled_back for p in players)} rolled back: {dict(events)}")
    assert SHOWN <= set(events), f"no {SHOWN - set(events)}: this run shows little"
    for player in players:
        player.lane.close()
