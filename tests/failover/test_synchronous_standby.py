# ctest: LABEL failover TIMEOUT 400 TAKES 20
"""With a synchronous standby a commit returns when the standby has it, and only then can others see it. Two ways lead around that: the
wait can be cancelled, and a primary that crashes and comes back shows at once what no standby has. Whoever publishes such rows lets
holders work with grants that the next failover takes back. So a commit whose wait was cancelled is in doubt, and the relay has a
small commit of its own acknowledged before it publishes what it has read.
"""
import pytest

import books
from client import published
from harness import eventually

LANE, RELAY = "lease-coordinator lane-1", "lease-relay"
STANDS = "a commit that was in doubt stands"


class Pair:
    """A primary whose commits wait for a standby, and one coordinator."""

    def __init__(self, world):
        self.primary = world.server("primary")
        self.standby = world.follower("standby", self.primary)
        self.place = world.place(self.primary)
        self.primary.follow_synchronously("standby")
        self.coordinator = self.place.coordinator(lanes=1).start()
        self.client = world.client(self.place)
        self.client.start_many("before", 2)

    def is_decided(self, subject):
        """Others see the decision."""
        return self.place.database.query("SELECT number FROM lease.timeline WHERE subject = %s AND event = 'granted'", (subject,))

    def is_waiting(self, application):
        return self.primary.waiting_for_follower(application)

    def is_unpublished(self, message_id):
        """The relay has read the decision, and waits for the standby instead of publishing."""
        eventually(lambda: self.is_waiting(RELAY), 60, "the relay waits for the standby")
        assert self.client.all_answers(message_id) == []

    def is_published_once(self, message_id):
        assert self.client.answer(message_id)["outcome"] == "granted"
        assert len(self.client.all_answers(message_id)) == 1

    def balance(self):
        eventually(self.place.is_idle, 60, "everything is consumed and published")
        assert self.coordinator.stop()
        books.balance(books.collect(self.place))


@pytest.fixture(name="pair")
def fixture_pair(world):
    return Pair(world)


def test_F3_a_commit_whose_wait_is_cancelled_is_in_doubt_and_the_offset_tells_that_it_stands(pair):
    """The server answers COMMIT, with a warning. The coordinator concludes nothing from that, and looks."""
    sender = pair.primary.hold_back("standby")
    message_id = pair.client.send_start("cancelled")
    pair.client.events.flush()
    backend = eventually(lambda: pair.is_waiting(LANE), 60, "the lane's commit waits for the standby")
    assert not pair.is_decided("cancelled"), "nobody sees it yet"
    pair.place.database.query("SELECT pg_cancel_backend(%s)", (backend,))
    eventually(lambda: "db_commit_in_doubt" in pair.coordinator.log_text(), 60, "the commit is in doubt")
    eventually(lambda: STANDS in pair.coordinator.log_text(), 60, "the offset tells")
    assert pair.is_decided("cancelled")
    pair.is_unpublished(message_id)      # F6
    pair.primary.resume(sender)
    pair.is_published_once(message_id)
    pair.balance()


def test_F3_a_commit_whose_wait_was_cancelled_and_that_a_failover_took_back_is_done_again(world):
    """The other way for the same doubt to end: the primary dies, the standby has not got it, and the offset tells that."""
    primary = world.server("primary")
    standby = world.follower("standby", primary)
    place = world.place(primary, standby)
    primary.follow_synchronously("standby")
    coordinator = place.coordinator(lanes=1).start()
    client = world.client(place)
    client.start_many("before", 2)
    before = published(place)
    primary.hold_back("standby")
    message_id = client.send_start("cancelled")
    client.events.flush()
    backend = eventually(lambda: primary.waiting_for_follower(LANE), 60, "the lane's commit waits for the standby")
    place.database.query("SELECT pg_cancel_backend(%s)", (backend,))
    eventually(lambda: STANDS in coordinator.log_text(), 60, "the offset tells")
    first, = place.database.query("SELECT fence, claim_id::text FROM lease.leases WHERE lease = 'cancelled'")
    primary.kill()
    standby.promote()
    answer = client.answer(message_id)
    assert answer["outcome"] == "granted" and answer["claim_id"] != first[1] and answer["fence"] > before.fence + 2**32
    assert len(client.all_answers(message_id)) == 1, "the grant that was lost was never published"


def test_F6_what_a_crashed_primary_shows_before_the_standby_has_it_is_not_published(pair):
    """The lane's commit waits for the standby, which stands still; the primary crashes and recovers. Now everybody sees the decision,
    and nobody waits for anything any more, but the relay."""
    pair.standby.freeze()
    message_id = pair.client.send_start("crashed")
    pair.client.events.flush()
    eventually(lambda: pair.is_waiting(LANE), 60, "the lane's commit waits for the standby")
    assert not pair.is_decided("crashed")
    pair.primary.kill()
    pair.primary.start()
    assert pair.is_decided("crashed"), "this is what makes the barrier needed"
    pair.is_unpublished(message_id)
    pair.standby.thaw()
    pair.is_published_once(message_id)
    pair.balance()
