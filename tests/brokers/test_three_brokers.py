# ctest: LABEL brokers TIMEOUT 600 TAKES 55 BUSY
"""Three brokers, three copies of each partition, of which two must have a record: each broker is killed in turn, and leaders move, under load.

What would go wrong: a record that was acknowledged by a leader alone is gone with it; a relay that goes on elsewhere sends twice or leaves out what
was in flight; a group whose own broker is gone gives partitions to two members; a reader goes on at an offset that its new leader does not have.
"""
import json
import time

from confluent_kafka import KafkaException

from audit import Books
from crew import Crew
from waiting import eventually

NODES = 3


def rotated(one, by):
    return one.replicas[by % NODES:] + one.replicas[:by % NODES]


def told(ask):
    """What the cluster says to ask(), as soon as it says something: a broker that stood still for a moment has to be found again first."""
    def answer():
        try:
            return [ask()]
        except (KafkaException, OSError) as error:
            raise AssertionError(str(error)) from error

    return eventually(answer, 60, "the cluster answers", every=0.1)[0]


def move_leaders(cluster, prefix):
    """Every partition gets another preferred leader, which then leads. Returns how many leaders moved."""
    places = told(lambda: cluster.partitions(prefix))
    wanted = {place: rotated(one, 1) for place, one in places.items()}
    told(lambda: cluster.reassign(wanted))

    def lead():
        cluster.elect_preferred(wanted)
        leaders = cluster.leaders(prefix)
        behind = [place for place, copies in wanted.items() if leaders[place] != copies[0]]
        assert not behind, f"{behind[0]} is led by {leaders[behind[0]]}"

    told(lead)
    return sum(one.leader != wanted[place][0] for place, one in places.items())


def test_each_broker_is_killed_in_turn_and_leaders_move__the_books_balance(cluster, wide_place):
    place = wide_place
    crew = Crew(place)
    coordinators = [crew.coordinator(batch_messages=200).start() for _ in range(2)]
    crew.send(700)
    moved, waited = [], []
    for node in cluster.nodes:
        moved.append(move_leaders(cluster, place.prefix))
        crew.send(300)
        led = sum(leader == node.number for leader in told(lambda: cluster.leaders(place.prefix)).values())
        begun = time.monotonic()
        node.kill()
        crew.send_until(lambda n=node: n.number not in told(cluster.leaders).values(), what=f"nobody is led by {node.child.name}")
        crew.send(300)
        waited.append((led, round(time.monotonic() - begun, 1)))
        node.start()
        cluster.wait_brokers(NODES)
        crew.send_until(cluster.is_whole, what=f"{node.child.name} has caught up")
    for coordinator in coordinators:
        coordinator.wait_ready()
    figures = crew.balance()
    found = Books(place).audit()
    print(f"{crew.load.sent} commands; leaders moved on request: {moved}; killed brokers led so many partitions, and 300 commands were consumed"
          f" so many seconds after: {waited};", json.dumps(figures))
    assert found.code == 0, found
    assert all(count > 10 for count in moved) and all(led > 5 for led, _ in waited)
