"""Random mixed commands against one place: what many producers, workers and settlements would send, right and wrong.

The generator learns fences and tokens from lease.grants as holders do, so that most of its holders' commands are meant
in earnest; others come late, twice, from a stranger, or are no commands at all. Choices hang on a seed; what they meet
hangs on timing as well, so one seed gives similar runs, not equal ones. What is sent stands in the input topics, where the
books read it: nothing is remembered here.
"""
import collections
import json
import random
import uuid

from events import ENCODERS, topic_of
from grants import Grants
from waiting import eventually

REMEMBERED = 3000        # grants and messages kept to be used again
TTL_MS = (150, 400, 1000, 3000, 30000)
STEPS = ("calculated", "posted")


class Load:
    KIND = None              # of all kinds

    def __init__(self, place, seed, runs=150, items=400, workers=12, contracts=120, ttl_ms=TTL_MS):
        self.random = random.Random(seed)
        self.events = place.events()
        self.grants = Grants(place, self.KIND, REMEMBERED)
        self.runs, self.items, self.contracts, self.ttl_ms = runs, items, contracts, ttl_ms
        self.workers = {f"worker-{number}": [0, 0] for number in range(workers)}     # credit_total, refresh
        self.older = collections.deque(maxlen=REMEMBERED)
        self.sent_before = collections.deque(maxlen=REMEMBERED)     # (topic, key, value, headers)
        self.sent = 0
        self.covering = collections.deque(maxlen=200)               # runs started with `more`
        self.actions = [(self.start, 16), (self.run_step, 30), (self.request, 16), (self.claim, 6), (self.item_step, 30),
                        (self.many_step, 4), (self.cover_or_begin, 4), (self.late_step, 5), (self.forged_step, 4), (self.send_again, 4),
                        (self.reuse_id, 1), (self.send_malformed, 3), (self.send_junk, 2)]

    # --- the loop ---

    @property
    def newest(self):
        return self.grants.newest

    def learn(self, wait=0.001):
        """Reads new grants, as their holders would. True if somebody holds something."""
        self.older += self.grants.read(wait)
        return bool(self.newest)

    def send(self, count):
        """Sends `count` messages. Before the second time somebody must hold something, or it would all be starts and requests."""
        if self.sent:
            eventually(lambda: self.newest or self.learn(0.05), 60, "the first grant", every=0)
        self.learn()
        actions, weights = zip(*self.actions)
        until = self.sent + count
        while self.sent < until:
            for action in self.random.choices(actions, weights, k=until - self.sent):
                action()
        self.events.flush()

    def _raw(self, topic, key, value, headers):
        self.events.send_raw(topic, key, value, headers)
        self.sent += 1
        if self.sent % 500 == 0:
            self.events.producer.poll(0)

    def _command(self, kind, command, subject, data, message_id=None, topic=None):
        mode = self.random.choice(("structured", "binary"))
        message_id = message_id or str(uuid.UUID(int=self.random.getrandbits(128)))
        value, headers = ENCODERS[mode](kind, command, subject, data, message_id)
        topic = topic or topic_of(kind, command)
        self.sent_before.append((topic, subject, value, headers))
        self._raw(topic, subject, value, headers)

    # --- names: a window that moves on, since an ended lease stays ended ---

    def _name(self, stem, width):
        return f"{stem}-{self.sent // (8 * width) * (width // 2) + self.random.randrange(width)}"

    def _run(self):
        return self._name("run", self.runs)

    def _item(self):
        return self._name("item", self.items)

    def _contracts(self):
        count = self.random.choice((0, 0, 0, 1, 1, 2, 5))
        return [f"{table}/{number}" for table, number in
                {(self.random.choice(("album", "track", "video")), self.random.randrange(self.contracts))
                 for _ in range(count)}]

    # --- commands in earnest ---

    def start(self):
        data = {"holder": f"settler-{self.random.randrange(20)}", "ttl_ms": self.random.choice(self.ttl_ms)}
        contracts = self._contracts()
        if contracts:
            data["resources"] = contracts
        subject = self._run()
        if self.random.random() < 0.1:
            data.update(more=True, tables=[f"bulk-{self.random.randrange(5)}"])
            self.covering.append(subject)
        self._command("settlement", "start", subject, data)

    def request(self):
        self._command("cleanup", "request", self._item(), {"payload": {"file": f"f{self.sent}", "bytes": self.sent}})

    def claim(self):
        worker = self.random.choice(list(self.workers))
        demand = self.workers[worker]
        demand[0] += self.random.choice((0, 1, 5, 20))
        demand[1] += 1
        self._command("cleanup", "claim", worker, {"credit_total": demand[0], "refresh": demand[1],
                                                   "wait_ms": self.random.choice((0, 0, 500, 5000)),
                                                   "ttl_ms": self.random.choice(self.ttl_ms)})

    def _holder(self, grant):
        return {name: grant[name] for name in ("holder", "fence", "claim_id", "token")}

    def _step(self, grant, change=None):
        """A holder's command; `change` alters its identity."""
        kind = grant["kind"]
        weights = (5, 3 if kind == "settlement" else 0.1, 3, 1, 1)      # a pool's items have no steps
        command = self.random.choices(("renew", "advance", "finish", "fail", "release"), weights)[0]
        data = self._holder(grant)
        if change:
            change(data)
        if command == "renew" and self.random.random() < 0.7:
            data["ttl_ms"] = self.random.choice(self.ttl_ms)
        if command == "advance":
            data["step"] = self.random.choice(STEPS)
        if command == "finish" and self.random.random() < 0.5:
            data["result"] = {"rows": self.random.randrange(1000), "text": "정산 ✓ \"quoted\" \\ back"}
        if command == "fail":
            data["reason"] = "disk on fire"
            if self.random.random() < 0.5:
                data["retry"] = self.random.random() < 0.7
            if kind == "cleanup" and data.get("retry", True) and self.random.random() < 0.3:
                data["delay_ms"] = self.random.randrange(300)
        self._command(kind, command, grant["lease"], data)

    def _newest_of(self, kind):
        """A grant of the last few hundred leases of a kind, or None."""
        names = [lease for lease in list(self.newest)[-400:] if lease[0] == kind]
        return self.newest[self.random.choice(names)] if names else None

    def run_step(self):
        grant = self._newest_of("settlement")
        self._step(grant) if grant else self.start()

    def item_step(self):
        grant = self._newest_of("cleanup")
        self._step(grant) if grant else self.request()

    def many_step(self):
        """One command of a worker over what it holds, or held; now and then something in it is not right."""
        one = self._newest_of("cleanup")
        if one is None:
            return self.request()
        holder = one["holder"]
        command = self.random.choices(("renew", "finish", "fail", "release"), (5, 3, 1, 1))[0]
        held = {grant["lease"]: grant for grant in (self.newest[lease] for lease in list(self.newest)[-400:])
                if (grant["kind"], grant["holder"]) == ("cleanup", holder)}
        if self.older and self.random.random() < 0.2:
            late = self.random.choice(self.older)
            held.setdefault(late["lease"], late)
        items = []
        for grant in self.random.sample(list(held.values()), self.random.randint(1, min(len(held), 40))):
            item = {name: grant[name] for name in ("lease", "fence", "claim_id", "token")}
            if self.random.random() < 0.05:
                item.update(self.random.choice(({"token": "0" * 64}, {"fence": item["fence"] + 1}, {"lease": f"no-{self.sent}"})))
            if command == "fail":
                item.update(reason="disk on fire", retry=self.random.random() < 0.7)
            if command == "finish" and self.random.random() < 0.5:
                item["result"] = {"rows": self.random.randrange(1000)}
            items.append(item)
        if self.random.random() < 0.03:
            items[-1]["colour"] = "red"
        return self._command("cleanup", command, holder, {"holder": holder, "items": items})

    def cover_or_begin(self):
        grant = self.newest.get(("settlement", self.random.choice(self.covering))) if self.covering else None
        if grant is None:
            return self.start()
        data = self._holder(grant)
        if self.random.random() < 0.6:
            data["resources"] = [f"bulk-{self.random.randrange(5)}/{number}"
                                 for number in self.random.sample(range(1000), self.random.randrange(1, 20))]
            return self._command("settlement", "cover", grant["lease"], data)
        data["count"] = self.random.randrange(20)
        return self._command("settlement", "begin", grant["lease"], data)

    # --- late, forged, repeated ---

    def late_step(self):
        if not self.older:
            return self.request()
        return self._step(self.random.choice(self.older))

    def forged_step(self):
        grant = self._newest_of(self.random.choice(("settlement", "cleanup")))
        if grant is None:
            return self.start()
        other = self.random.choice(list(self.newest.values())[-400:])
        forgery = self.random.choice([
            lambda data: data.update(token="0" * 64),
            lambda data: data.update(token=other["token"]),
            lambda data: data.update(fence=data["fence"] + self.random.choice((-1, 1, 2 ** 33))),
            lambda data: data.update(holder="somebody"),
            lambda data: data.update(claim_id=str(uuid.uuid4())),
        ])
        return self._step(grant, forgery)

    def send_again(self):
        if self.sent_before:
            self._raw(*self.random.choice(self.sent_before))

    def reuse_id(self):
        """A new body under an old id; the old one may or may not have been answered before."""
        if not self.sent_before:
            return
        _topic, _key, value, headers = self.random.choice(self.sent_before)
        named = dict(headers).get("ce_id")
        message_id = named.decode() if named else json.loads(value)["id"]
        self._command("cleanup", "request", self._item(), {"payload": {"again": self.sent}}, message_id)

    # --- wrong ---

    def send_malformed(self):
        subject = self._run()
        data = self.random.choice([
            {"holder": "a", "ttl_ms": 0}, {"holder": "a", "ttl_ms": -1}, {"holder": "a", "ttl_ms": "1000"}, {"holder": 7},
            {"holder": "a", "colour": "red"}, {}, {"holder": "a", "resources": ["../etc"]}, {"holder": "a", "resources": []},
            {"holder": "a", "ttl_ms": 2 ** 31}, {"holder": "a\n"}, {"holder": "a", "resources": ["track/*"]},
        ])
        self._command("settlement", "start", subject, data)

    def send_junk(self):
        topic = self.random.choice(("settlement.events", "cleanup.events", "lease.renewals"))
        key = self.random.choice((b"k", b"run-1", b"", None, b"\xff\x00", b"k" * 300))
        value = self.random.choice((None, b"", b"\x1f\x8b\x08\x00garbage", b"{", b"[1,2]", b"null", b"\xef\xbb\xbf{}",
                                    b'{"specversion":"0.3","id":"1","source":"/s","type":"settlement.start"}',
                                    b'{"specversion":"1.0","id":"1","source":"/s"}', b"[" * 100000,
                                    b'{"a":1,"a":2}', b"\x00" * 50, "정산".encode("utf-16")))
        headers = self.random.choice(([], [("ce_id", b"x")], [("empty", None), ("empty", b""), ("h", b"\xff\x00")]))
        self._raw(topic, key, value, headers)
