"""A client of one place: sends commands, reads answers as a careful consumer does, and knows all that was ever published."""
import collections
import contextlib

from harness import Place, Reader, eventually, read_topic
from leasectl import small_topics

JUMP = 2**32
LARGEST = 2**53 - 1
TTL_MS = 600000      # longer than any test: what lapses here does so because it was told to
PARTITIONS = 2       # few, so that a look at all tails is quick

Published = collections.namedtuple("Published", "number fence")


def make_place(servers, kafka, build, folder, database=None, prefix=None, token_key=None, topics=True):
    """A place on servers of the test's own. Migrated, with topics, unless it continues another one."""
    place = Place(servers, kafka, build, folder, prefix=prefix, database=database)
    if token_key:
        place.token_key = token_key
    if topics:
        place.ctl("migrate")
        small_topics(place, PARTITIONS)
    return place


def published(place):
    """The highest journal number and fence that anybody can have read: every output topic, marks, repeats and all."""
    number = fence = 0
    for topic in ("lease.results", "lease.grants", "lease.state", "lease.dead-letters"):
        for record in read_topic(place.kafka.brokers, place.prefix, topic):
            number = max(number, record.number)
            value = record.value if topic != "lease.dead-letters" or record.is_mark else {}
            fence = max(fence, value.get("fence") or 0, int(record.headers.get("lease_fence", b"0")))
    return Published(number, fence)


class Client:
    """Reads from the start of the topics, whichever server stands behind them: what it drops by number, others drop too."""

    def __init__(self, place):
        self.place = place
        self.events = place.events()
        self.results = Reader(place.kafka.brokers, place.prefix, "lease.results")
        self.grants = Reader(place.kafka.brokers, place.prefix, "lease.grants")

    def close(self):
        self.results.close()
        self.grants.close()

    # --- sending ---

    def send_start(self, subject, holder="h1", **data):
        return self.events.send("settlement", "start", subject, dict({"holder": holder, "ttl_ms": TTL_MS}, **data))

    def send_as(self, grant, command, **data):
        """A holder's command, with the grant as lease.grants told it."""
        own = {name: grant[name] for name in ("holder", "fence", "claim_id", "token")}
        return self.events.send(grant["kind"], command, grant["lease"], dict(own, **data))

    # --- reading ---

    def answer(self, message_id, above=0, limit=60):
        """The answer to a message; `above`: one with a higher number than that."""
        self.events.flush()
        return self.results.wait_for(lambda record: record.value.get("command", {}).get("id") == message_id and record.number > above,
                                     limit, f"an answer to {message_id}").value

    def answers(self, message_ids, above=0, limit=60):
        return [self.answer(message_id, above, limit) for message_id in message_ids]

    def all_answers(self, message_id):
        """What a careful consumer has read so far of the answers to one message."""
        self.results.read_all()
        return [record.value for record in self.results.find(lambda r: r.value.get("command", {}).get("id") == message_id)]

    def grant(self, answer):
        """The grant with its token, as its holder reads it."""
        return self.grants.wait_for(lambda record: record.value["number"] == answer["number"], 60, "the grant").value

    # --- both ---

    def start(self, subject, holder="h1", **data):
        return self.answer(self.send_start(subject, holder, **data))

    def start_many(self, stem, count, holder="h1"):
        """As many leases, in both partitions of each topic. Message id → answer; all are granted."""
        ids = [self.send_start(f"{stem}-{number}", holder) for number in range(count)]
        found = dict(zip(ids, self.answers(ids)))
        assert {answer["outcome"] for answer in found.values()} == {"granted"}, found
        return found

    def take(self, subject, holder="h1", **data):
        answer = self.start(subject, holder, **data)
        assert answer["outcome"] == "granted", answer
        return self.grant(answer)

    def say(self, grant, command, **data):
        return self.answer(self.send_as(grant, command, **data))


def next_fence_is_above(client, before, limit=60):
    """The property: a grant made now has a fence and a number above everything published before, by the width of a jump, and a
    consumer that drops what repeats a number reads it. Returns the grant."""
    grant = client.take(f"after-{before.number}", "h2")
    assert grant["fence"] > before.fence + JUMP, f"fence {grant['fence']} is not {JUMP} above {before.fence}, which was published"
    assert grant["number"] > before.number + JUMP
    assert grant["fence"] <= LARGEST - JUMP, "JSON readers no longer keep it exact, or the next jump has no room"
    return grant


def marks_above(place, number):
    """Waits until every output partition, and the witness of each in lease.state, has a mark at or above a journal number."""
    def are_there():
        missing = []
        witnesses = {}
        for topic in ("lease.results", "lease.grants", "lease.dead-letters", "lease.state"):
            last = collections.defaultdict(int)
            for record in read_topic(place.kafka.brokers, place.prefix, topic):
                if record.is_mark:
                    last[record.partition] = max(last[record.partition], record.value["number"])
                    if topic == "lease.state":
                        witnesses[record.key.decode()] = record.value
            missing += [f"{topic}/{partition}" for partition in range(PARTITIONS) if last[partition] < number]
            missing += [f"~mark/{place.prefix}{topic}/{partition}" for partition in range(PARTITIONS) if topic != "lease.state"
                        and (witnesses or {}).get(f"~mark/{place.prefix}{topic}/{partition}", {"number": number})["number"] < number]
        assert not missing, f"no mark as high as {number} in {missing}"
        return witnesses
    return eventually(are_there, 60, "marks everywhere", every=0.2)


def jumps(place):
    """number, previous number, floor, who and why of each jump in the journal."""
    return place.database.query("SELECT number, previous_number, fence, holder, reason FROM lease.timeline WHERE event = 'jumped' ORDER BY number")


@contextlib.contextmanager
def closing(*things):
    try:
        yield things
    finally:
        for thing in reversed(things):
            thing.close()
