# ctest: LABEL worker TIMEOUT 400 TAKES 20
"""Runs that are renewed in the background: while they report progress, and not when they are stuck."""
from waiting import eventually


def test_run__lives_while_there_is_progress_and_is_lost_when_it_is_stuck(place, probes):
    place.coordinator().start()
    run = probes.run(ttl_ms=6000)
    assert run.ask("start a 10000 album/7")["status"] == "accepted"
    assert run.ask("progress 8000", "mine")["mine"]
    assert not run.find("lost")
    lost = run.wait_for("lost")
    assert not lost["mine"]
    other = probes.run(name="other")
    eventually(lambda: other.ask("start b 10000 album/7")["status"] == "accepted", 60, "the resource is free")
