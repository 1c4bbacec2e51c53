# ctest: LABEL failover TIMEOUT 500 TAKES 30
"""An asynchronous standby that lacks the last grants becomes the primary. They were published: holders work with them. Its sequence
stands where those fences have yet to be given out, and its identifier is the old one; only its timeline is new.

The coordinator has all servers in its conninfo (target_session_attrs=read-write) and is not restarted: it finds the new primary,
looks at the topics, and jumps above what they know before anything is granted. Consumed offsets went back together with everything
else, so the commands whose effects are lost are consumed again, also in partitions where nothing new arrives.
"""
import collections

import rules
from client import JUMP, jumps, next_fence_is_above, published
from harness import eventually


def fences_rise(client):
    """The gate's rule over all grants in the order in which a consumer reads them: no fence of a lease at or below one before."""
    highest = collections.defaultdict(int)
    for record in client.grants.read_all():
        grant = record.value
        assert grant["fence"] > highest[grant["lease"]], f"{grant['lease']}: fence {grant['fence']} after {highest[grant['lease']]}"
        highest[grant["lease"]] = grant["fence"]


def fail_over(old, new, place, lacking):
    """`old` dies and `new` is promoted, without the leases called `lacking`… that it was kept from."""
    connection = place.database.connect(new.conninfo(place.database.name))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM lease.leases WHERE lease LIKE %s", (f"{lacking}%",))
        assert cursor.fetchone() == (0,), "the standby was to lack these"
    connection.close()
    old.kill()
    new.promote()


def test_F1_a_standby_without_the_last_grants_jumps_and_decides_again_what_was_lost(world):
    primary = world.server("primary")
    standby = world.follower("standby", primary)
    place = world.place(primary, standby)
    coordinator = place.coordinator(lanes=1).start()
    client = world.client(place)
    known = client.start_many("known", 4)
    kept = client.grant(next(iter(known.values())))
    standby.has_followed(primary)

    primary.hold_back("standby")
    lost = client.start_many("lost", 8)
    lost_grants = [client.grant(answer) for answer in lost.values()]
    assert client.say(lost_grants[0], "finish")["outcome"] == "finished"
    before = published(place)
    consumed = place.consumed()
    fail_over(primary, standby, place, "lost")

    # Nothing new is sent: the coordinator must find by itself that its offsets have gone back.
    again = dict(zip(lost, client.answers(list(lost), above=before.number)))
    coordinator.wait_ready()
    for message_id, answer in again.items():
        assert answer["outcome"] == "granted"
        assert answer["fence"] > before.fence + JUMP, "a fence above everything ever published"
        assert answer["claim_id"] != lost[message_id]["claim_id"]
    (number, previous, floor, who, _), = jumps(place)
    assert number > before.number + JUMP - 1 and floor >= before.fence + JUMP and previous < before.number
    assert who == coordinator.child.env["LEASE_INSTANCE"]
    assert standby.identity()[0] in coordinator.log_text() and "fences jumped" in coordinator.log_text()

    # Holders of lost grants are refused; those whose grant the standby knew go on.
    assert client.say(lost_grants[1], "renew")["outcome"] == "stale"
    assert client.say(kept, "renew", ttl_ms=600000)["outcome"] == "renewed"
    next_fence_is_above(client, before)
    fences_rise(client)
    eventually(place.is_idle, 60, "everything is consumed")
    assert all(place.consumed()[partition] >= offset for partition, offset in consumed.items())
    # One answer on each side of the failover for what was lost, one in all for the rest.
    assert {len(client.all_answers(message_id)) for message_id in lost} == {2}
    assert {len(client.all_answers(message_id)) for message_id in known} == {1}
    assert coordinator.child.is_running() and coordinator.stop()


def test_F1_what_was_lost_and_is_not_decided_again_does_not_stay_in_the_state_topic(world):
    """lease.state is what holds now. A lease that only the lost history knew must not stay held there for ever; and whoever starts a gate
    from that topic must refuse its holder. Here the decision that is lost came from no message, so nothing brings it back."""
    primary = world.server("primary")
    standby = world.follower("standby", primary)
    place = world.place(primary, standby)
    coordinator = place.coordinator(lanes=1).start()
    client = world.client(place)
    client.start_many("known", 2)
    standby.has_followed(primary)
    primary.hold_back("standby")
    lane = rules.Lane(place.database.conninfo)
    lost = lane.grant_of(rules.start("lost", ttl=600000))
    lane.close()
    states = place.reader("lease.state")

    def last_word(lease):
        states.read_all()
        return [record.value for record in states.find(lambda record: record.key == f"settlement/{lease}".encode())][-1]

    eventually(lambda: states.read_all() and states.find(lambda record: record.key == b"settlement/lost"), 60, "it is published")
    assert (last_word("lost")["state"], last_word("lost")["fence"]) == ("held", lost.fence)
    fail_over(primary, standby, place, "lost")
    eventually(lambda: last_word("lost")["state"] == "absent", 60, "the state topic says that nobody has it")
    assert last_word("lost")["min_fence"] > lost.fence + JUMP, "a gate that starts here refuses the lost grant"
    assert last_word("known-0")["state"] == "held"
    next_fence_is_above(client, published(place)._replace(fence=lost.fence, number=0))
    assert coordinator.stop()


def test_F30_the_second_of_two_failovers_in_a_row_jumps_above_the_first(world):
    """The first standby jumps and grants; the second one, behind it, has seen neither the jump nor those grants, and even comes to the
    same timeline number. By itself it would jump to the very same floor. The topics know better."""
    first = world.server("first")
    second = world.follower("second", first)
    third = world.follower("third", second)
    place = world.place(first, second, third)
    coordinator = place.coordinator(lanes=1).start()
    client = world.client(place)
    client.start_many("known", 2)
    second.has_followed(first)
    third.has_followed(first)
    second.hold_back("third")

    first.hold_back("second")
    lost = client.start_many("lost", 2)
    start = published(place)
    fail_over(first, second, place, "lost")
    client.answers(list(lost), above=start.number)
    between = next_fence_is_above(client, start)
    (_, _, first_floor, _, _), = jumps(place)
    after_first = published(place)
    assert after_first.fence >= between["fence"] > first_floor
    identity = second.identity()

    fail_over(second, third, place, "after")
    assert third.identity() == identity, "identifier and timeline do not tell them apart"
    client.answers(list(lost), above=after_first.number)
    next_fence_is_above(client, after_first)
    (_, _, second_floor, _, _), = jumps(place)      # the first jump is lost as well
    assert second_floor >= first_floor + JUMP and second_floor >= after_first.fence + JUMP
    fences_rise(client)
    eventually(place.is_idle, 60, "everything is consumed")
    coordinator.wait_ready()
    assert coordinator.stop()
