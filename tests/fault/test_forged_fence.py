# ctest: LABEL fault TIMEOUT 300
"""A command that claims a fence which was never given out must not make the topics tell of it.

The output topics are the witness of the highest fence: whoever connects compares them with the database, and refuses to work
when they are ahead. A refused command's fence, told where the witness looks, would let any producer lock everybody out.
"""
from stage import Stage
from waiting import eventually


def test_F30_a_forged_fence_is_no_witness(place):
    stage = Stage(place, mark_interval_ms=200)
    stage.ask("settlement", "start", "run-1", {"holder": "a"})
    grant = stage.grants.wait_for(lambda record: record.value["lease"] == "run-1").value
    forged = stage.as_holder(dict(grant, fence=grant["fence"] + 2 ** 33))
    for command in ("finish", "renew", "release"):
        answer = stage.ask("settlement", command, "run-1", forged)
        assert answer["outcome"] == "stale" and answer["fence"] == forged["fence"]
    marks = place.reader("lease.state", drop_repeats=False)
    eventually(lambda: marks.poll() and marks.find(lambda record: record.is_mark and record.number >= answer["number"]), 20,
               "marks behind the refusals")
    told = {record.value["fence"] for record in marks.records if record.is_mark}
    assert max(told) == grant["fence"], f"marks tell of fences {told}, only {grant['fence']} was given out"
    assert stage.coordinator.stop()
    stage.coordinator.start()
    assert stage.ask("settlement", "finish", "run-1", stage.as_holder(grant))["outcome"] == "finished"
    stage.balance()
