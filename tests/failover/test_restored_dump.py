# ctest: LABEL failover TIMEOUT 400 TAKES 10
"""A dump restored into a new cluster knows nothing of what happened after it was made, and its fence counter would give the fences
out again that were granted and published since. The server's identifier is another one, so the coordinator that is pointed at it
jumps by itself, above whatever the topics have seen, before it grants anything.
"""
from client import JUMP, jumps, make_place, marks_above, next_fence_is_above, published
from servers import Servers, dump, restore


def test_a_coordinator_pointed_at_a_restored_dump_jumps_above_everything_ever_published(world):
    old = world.server("old")
    place = world.place(old)
    coordinator = place.coordinator(lanes=1).start()
    client = world.client(place)

    before_dump = client.start_many("dumped", 4)
    kept = client.grant(next(iter(before_dump.values())))                # a live lease, held across the restore
    ended = client.take("dumped-and-finished")
    assert client.say(ended, "finish")["outcome"] == "finished"
    files = dump(place.database, world.folder)
    lost = client.start_many("lost", 6)                                  # granted and published behind the dump's back
    lost_grants = [client.grant(answer) for answer in lost.values()]
    assert client.say(lost_grants[0], "finish")["outcome"] == "finished"
    assert coordinator.stop()
    before = published(place)
    old_identifier = old.identity()[0]
    old.kill()

    new = world.server("new")
    restore(files, new, place.database.name)
    assert new.identity()[0] != old_identifier
    moved = make_place(Servers(new), world.kafka, world.build, f"{world.folder}/new", topics=False, prefix=place.prefix,
                       database=Servers(new).database(place.database.name), token_key=place.token_key)
    world.places.append(moved)
    client.place = moved
    second = moved.coordinator(lanes=1).start()

    (number, previous, floor, who, why), = jumps(moved)
    assert number == before.number + JUMP and floor == before.fence + JUMP and previous < before.number
    assert who == second.child.env["LEASE_INSTANCE"] and "another server" in why
    assert "fences jumped" in second.log_text()
    witnesses = marks_above(moved, number)
    assert all(value["system_identifier"] == new.identity()[0] for value in witnesses.values() if value["number"] >= number)

    # What the dump did not know is decided again: under new fences, for the same messages.
    again = dict(zip(lost, client.answers(list(lost), above=before.number)))
    for message_id, answer in again.items():
        assert answer["outcome"] == "granted" and answer["fence"] > before.fence + JUMP > lost[message_id]["fence"]
        assert answer["claim_id"] != lost[message_id]["claim_id"]
    # The finish of a grant that the restored database does not know was consumed again too, and cannot count.
    assert client.say(lost_grants[1], "finish")["outcome"] == "stale"

    next_fence_is_above(client, before)

    # What the dump knew goes on: live leases under their old fences, final ones stay final.
    assert client.say(kept, "renew", ttl_ms=600000)["outcome"] == "renewed"
    assert client.start("dumped-and-finished")["outcome"] == "final"
    # Nothing from before the dump was answered again.
    for message_id in before_dump:
        assert len(client.all_answers(message_id)) == 1
    # Restarts are not jumps.
    assert second.stop()
    second.start()
    assert len(jumps(moved)) == 1
