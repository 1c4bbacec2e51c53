# ctest: LABEL failover TIMEOUT 400 TAKES 20
"""An old copy of the database is put back as it is: identifier and timeline are those of the server that published more than it now
knows. Nothing in the database can tell; the topics can. The coordinator refuses to work, with LE004, and says what to do: whoever put
the copy there knows whether that was meant, and says so with `leasectl jump`. Consumption goes on where the copy had come to.
"""
from client import JUMP, jumps, make_place, next_fence_is_above, published
from servers import Servers, dump

EX_DATAERR = 65


def is_refused(coordinator, from_byte=0):
    """It ends by itself, with the exit code for data, and its log says why and what helps."""
    assert coordinator.child.wait(60) == EX_DATAERR
    text = coordinator.log_text()[from_byte:]
    assert "code=LE004" in text and "the topics are ahead of this database" in text and "leasectl jump" in text


def jump_and_go_on(place, client, coordinator, before, lost):
    plan = place.ctl_json("jump", "--plan")
    assert (plan["topics_number"], plan["topics_fence"]) == before and plan["jumped"] is False
    assert plan["known_server"] == plan["server"]
    assert jumps(place) == [], "refusing has changed nothing"
    place.ctl("jump", "--who", "kim", "--why", "the disk failed, this is the copy of last night")
    (number, previous, floor, who, why), = jumps(place)
    assert (number, floor) == (before.number + JUMP, before.fence + JUMP) and previous < before.number
    assert (who, why) == ("kim", "the disk failed, this is the copy of last night")

    coordinator.start()
    for message_id, answer in zip(lost, client.answers(list(lost), above=before.number)):
        assert answer["outcome"] == "granted" and answer["fence"] > before.fence + JUMP > lost[message_id]["fence"]
    next_fence_is_above(client, before)
    assert coordinator.stop()
    coordinator.start()
    assert len(jumps(place)) == 1


def test_F30_an_old_copy_of_the_data_directory_is_refused_until_somebody_says_that_it_is_meant(world):
    server = world.server("server")
    place = world.place(server)
    coordinator = place.coordinator(lanes=1).start()
    client = world.client(place)
    client.start_many("known", 4)
    server.stop()
    server.keep_data(world.server_folder("copy"))
    server.start()
    lost = client.start_many("lost", 6)
    before, identity = published(place), server.identity()

    server.stop()
    server.put_back(world.server_folder("copy"))
    server.start()
    assert server.identity() == identity, "nothing in the database tells"
    is_refused(coordinator)                                # the one that was running all the time
    seen = len(coordinator.log_text())
    is_refused(coordinator.start(wait=False), seen)        # and one that is started anew
    jump_and_go_on(place, client, coordinator, before, lost)


def test_F30_a_dump_restored_beside_its_own_database_is_refused_until_somebody_says_that_it_is_meant(world):
    """The same in one server: identifier and timeline belong to the server, not to the database."""
    server = world.server("server")
    place = world.place(server)
    coordinator = place.coordinator(lanes=1).start()
    client = world.client(place)
    client.start_many("known", 4)
    files = dump(place.database, world.folder)
    lost = client.start_many("lost", 4)
    assert coordinator.stop()
    before = published(place)

    place.database.server.query("CREATE DATABASE put_back TEMPLATE template0 ENCODING 'UTF8'")
    server.load(files[1], "put_back")
    back = make_place(Servers(server), world.kafka, world.build, f"{world.folder}/back", topics=False, prefix=place.prefix,
                      database=Servers(server).database("put_back"), token_key=place.token_key)
    world.places.append(back)
    second = back.coordinator(lanes=1)
    is_refused(second.start(wait=False))
    client.place = back
    jump_and_go_on(back, client, second, before, lost)
