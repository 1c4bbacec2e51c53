# ctest: LABEL matrix-sample TIMEOUT 600 TAKES 30 BUSY
"""A cross section of the matrix, chosen by the seed; and that the matrix is no formality: a point that nobody passes fails it, and so does a protection
that is taken away. The whole matrix is `./dev test matrix`.
"""
import os
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import points as table  # noqa: E402  (the path comes first)
from matrix import DONE, FAILED, PROGRAMS, Cell, Job, Runner  # noqa: E402
from scenes import ROLE_POINTS, Cleanup, Intake, scene_of  # noqa: E402

SEED = int(os.environ.get("LEASE_TEST_SEED", "0")) or random.randrange(1, 10 ** 6)
NEVER = "tx.never"


@pytest.fixture(name="runner")
def fixture_runner(postgres, kafka, build, folder):
    print(f"seed {SEED} (LEASE_TEST_SEED)")
    runner = Runner(postgres, kafka, build, str(folder), SEED)
    yield runner
    runner.close()


def cells_of(scene, count):
    """Some cells of the points that a scene passes, by the seed, one of each fault at least. A relay that is stopped takes ten seconds more: left to the whole."""
    chance = random.Random(SEED)
    mine = [point for point in table.read_points() if scene_of(point) is scene]
    all_of = {fault: [cell for point in mine for hit in table.HITS for cell in [Cell(point, fault, hit)]
                      if cell.is_to_do and not (fault == "stop" and point.startswith(ROLE_POINTS))] for fault in table.FAULTS}
    chosen = [chance.choice(all_of[fault]) for fault in table.FAULTS]
    while len(chosen) < count:
        chosen.append(chance.choice(all_of[chance.choice(table.FAULTS)]))
    return chosen[:count]


def test_every_point_has_a_scene_and_a_step_or_a_reason(build):
    points = table.read_points()
    programs = [os.path.join(build, program) for program in PROGRAMS]
    assert table.check_points(points, programs) == []
    assert [point for point in points if scene_of(point) is None] == []
    assert len(points) > 30 and sum(points.values()) > 20


def test_a_point_that_is_new_is_asked_for(build):
    programs = [os.path.join(build, program) for program in PROGRAMS]
    wrong = table.check_points({**table.read_points(), NEVER: False, "new.point": True}, programs)
    assert len(wrong) == 3 and all("tx.never" in text or "new.point" in text for text in wrong), wrong
    assert scene_of("new.point") is None
    points = table.read_points()
    assert len(table.check_points({point: not has_step for point, has_step in points.items()}, programs)) == len(points)


def test_a_cross_section_of_the_coordinator(runner):
    chosen = cells_of(Intake, 5)
    never = Cell(NEVER, "kill", "first")
    runner.run(Job(Intake, [chosen + [never]]))
    assert [(cell.point, cell.fault, cell.hit, cell.note) for cell in chosen if cell.status != DONE] == []
    assert all(cell.messages > 200 for cell in chosen)
    assert (never.status, never.note) == (FAILED, "the point was never passed")


def test_a_cross_section_of_the_worker(runner):
    chosen = cells_of(Cleanup, 2)
    runner.run(Job(Cleanup, [chosen]))
    assert [(cell.point, cell.fault, cell.hit, cell.note) for cell in chosen if cell.status != DONE] == []


class Trusting(Intake):
    """Nobody compares where consumption stands: what was read is applied, whoever has applied it before."""

    def dry(self, points):
        text = self.place.database.value("SELECT pg_get_functiondef('lease.claim_offsets'::regproc)")
        condition = "WHERE p.epoch IS DISTINCT FROM u.epoch OR coalesce(c.next_offset, -1) <> u.expected"
        insert = "SELECT * FROM unnest(p_topic, p_partition, p_next, p_last_offset, p_last_timestamp, p_last_checksum)"
        assert condition in text and insert in text
        self.place.database.query(text.replace(condition, "WHERE false").replace(insert, f"{insert} ON CONFLICT DO NOTHING"))
        return super().dry(points)


def test_without_the_comparison_of_offsets_the_books_do_not_balance(runner):
    cell = Cell("batch.in_hand", "stop", "last")
    runner.run(Job(Trusting, [[cell]]))
    assert cell.status == FAILED and "the audit says: {'I4'" in cell.note, cell.note
