"""The matrix: every named crash point x {kill, stop, error} x {first, second, last passage}, on real Kafka and PostgreSQL, and lease-audit after each.

    matrix.py [--point PATTERN]... [--fault FAULT]... [--hit HIT]... [--seed N] [--parallel N] [--json FILE]

Cells of one point share a place and follow each other, first all kills, then all stops, then all errors; lease-audit looks after each fault, so that what
it says is of those three cells and what was before. A cell that fails is told with its reason, and the next ones get a new place. Exit code 1 if a cell failed,
a point was never passed, or a point is in no scene.

What a cell needs to be seen doing is in scenes.py; which points there are, and where no step can fail, in points.py.
"""
import argparse
import ctypes
import fnmatch
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
sys.dont_write_bytecode = True

from harness import GivenKafka, GivenPostgres  # noqa: E402  (the path comes first)
from points import FAULTS, HITS, NO_STEP, ONCE, check_points, read_points  # noqa: E402
from scenes import Comings, Migration, ROLE_POINTS, Standby, scene_of  # noqa: E402

PROGRAMS = ("coordinator/lease-coordinator", "coordinator/cli/leasectl", "worker/daemon/lease-worker", "worker/royalty/lease-royalty")
PARALLEL = 2
DONE, FAILED, NO_SUCH_STEP, ONLY_ONCE = "done", "failed", "no such step", "passed once"

progress = None      # a counter that all processes share


class Cell:
    """One entry of the matrix. `nth` is the passage that was hit, `passages` how many a dry play counted."""

    def __init__(self, point, fault, hit):
        self.point, self.fault, self.hit = point, fault, hit
        self.status = NO_SUCH_STEP if fault == "error" and point in NO_STEP else ONLY_ONCE if hit == "second" and point in ONCE else None
        self.nth = self.passages = self.messages = None
        self.seconds, self.note = 0.0, ""

    def fail(self, why):
        self.status, self.note = FAILED, why

    @property
    def is_to_do(self):
        return self.status is None

    def choose(self, counts):
        self.passages = counts[self.point]
        if self.passages == 0:
            self.fail("the point was never passed")
        elif self.hit == "second" and self.passages < 2:
            self.fail("the point was passed only once")
        self.nth = {"first": 1, "second": 2, "last": self.passages}[self.hit]

    def tell(self):
        what = f"passage {self.nth} of {self.passages}" if self.nth else ""
        number = f"[{progress.value}] " if progress else ""
        print(f"{number}{self.point} {self.fault} {self.hit}: {self.status or ''} {what} {self.seconds:.1f} s {self.note}".rstrip(), flush=True)


class Job:
    """Cells of one scene, in groups: after each group the books are looked at."""

    def __init__(self, scene, groups):
        self.scene, self.groups = scene, groups

    @property
    def cells(self):
        return [cell for group in self.groups for cell in group]

    @property
    def points(self):
        return sorted({cell.point for cell in self.cells})

    @property
    def weight(self):
        """About how long it takes: the longest begin first."""
        return len(self.cells) * (1 + 2 * (self.scene in (Comings, Migration)) + (self.scene is Standby) + (self.points[0].startswith(ROLE_POINTS)))


class Runner:
    """Runs one job. The scene is made anew after a failure."""

    def __init__(self, postgres, kafka, build, folder, seed):
        self.system, self.folder, self.seed = (postgres, kafka, build), folder, seed
        self.scene = None
        self.scenes_made = 0

    def open(self, job):
        if self.scene is None:
            folder = os.path.join(self.folder, f"s{self.scenes_made}")
            self.scenes_made += 1
            self.scene = job.scene(*self.system, folder, self.seed)
            self.counts = self.scene.dry(job.points)

    def close(self):
        if self.scene is not None:
            scene, self.scene = self.scene, None
            scene.close()

    def run(self, job):
        for group in job.groups:
            cells = [cell for cell in group if cell.is_to_do]
            for cell in cells:
                self.run_cell(job, cell)
            self.look_at_books(cells)
        self.give_up()
        return job.cells

    def run_cell(self, job, cell):
        begun = time.monotonic()
        try:
            self.open(job)
            cell.choose(self.counts)
            if cell.status is None:
                cell.note = self.scene.cell(cell.point, cell.fault, cell.nth)
                cell.status = DONE
        except Exception as error:      # whatever it is, it is this cell's failure, and the others go on
            cell.fail(told(error))
            self.give_up()
        cell.seconds = time.monotonic() - begun
        if progress is not None:
            with progress.get_lock():
                progress.value += 1
        cell.tell()

    def look_at_books(self, cells):
        done = [cell for cell in cells if cell.status == DONE]
        if not done or self.scene is None:
            return
        begun = time.monotonic()
        try:
            messages = self.scene.audit()
        except Exception as error:
            for cell in done:
                cell.fail(told(error))
                cell.tell()
            self.give_up()
            return
        for cell in done:
            cell.messages = messages
        print(f"    {done[0].point} {done[0].fault}: the books hold, {messages} messages, {time.monotonic() - begun:.1f} s", flush=True)

    def give_up(self):
        try:
            self.close()
        except Exception as error:
            print(f"    the place could not be cleared away: {told(error)}", flush=True)


def told(error):
    where = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in where if frame.filename.startswith(str(HERE))] or where
    return f"{error} ({os.path.basename(ours[-1].filename)}:{ours[-1].lineno})"[:1500]


def jobs_of(points, faults=FAULTS, hits=HITS):
    """A job for each point."""
    return [Job(scene_of(point), [[Cell(point, fault, hit) for hit in hits] for fault in faults]) for point in points]


# ---- the whole ----


def run_job(job, build, seed):
    environment = os.environ
    name = re.sub(r"[^a-z_.-]", "_", "+".join(job.points))[:80]
    folder = os.path.join(build, "test-files", "matrix", name)
    shutil.rmtree(folder, ignore_errors=True)
    return Runner(GivenPostgres(environment["LEASE_TEST_DATABASE"]), GivenKafka(environment["LEASE_TEST_BROKERS"]), build, folder, seed).run(job)


def begin_job(job, build, seed, file):
    """In a process of its own, since clients of Kafka do not survive a fork; what became of the cells is left in the file. Returns its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid != 0:
        return pid
    code = 1
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)      # PR_SET_PDEATHSIG: whoever ends the parent ends us
        cells = run_job(job, build, seed)
        with open(file, "wb") as out:
            pickle.dump(cells, out)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def end_job(job, status, file):
    """The cells as the process has left them; failed, if it has not."""
    if status == 0:
        with open(file, "rb") as left:
            return pickle.load(left)
    for cell in job.cells:
        cell.fail(f"the process of this job ended with {os.waitstatus_to_exitcode(status)}")
    return job.cells


def run_jobs(jobs, build, seed, parallel):
    cells, running = [], {}
    waiting = list(jobs)
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < parallel:
                job, file = waiting.pop(0), os.path.join(folder, str(len(waiting)))
                running[begin_job(job, build, seed, file)] = (job, file)
            pid, status = os.wait()
            if pid in running:
                job, file = running.pop(pid)
                cells += end_job(job, status, file)
    return cells


def table(cells):
    """A row for each point: which passages were hit."""
    lines = [f"{'point':28} {'passed':>6}  " + "  ".join(f"{fault:<17}" for fault in FAULTS)]
    by_place = {(cell.point, cell.fault, cell.hit): cell for cell in cells}
    signs = {FAILED: "FAIL", NO_SUCH_STEP: "-", ONLY_ONCE: "once", None: "?"}
    for point in sorted({cell.point for cell in cells}):
        mine = [cell for cell in cells if cell.point == point]
        passed = max((cell.passages or 0) for cell in mine)
        columns = []
        for fault in FAULTS:
            row = [by_place.get((point, fault, hit)) for hit in HITS]
            columns.append(" ".join(f"{'' if cell is None else cell.nth if cell.status == DONE else signs[cell.status]:>5}" for cell in row))
        lines.append(f"{point:28} {passed:>6}  " + "  ".join(columns))
    return "\n".join(lines)


def summary_of(cells):
    counts = {status: sum(cell.status == status for cell in cells) for status in (DONE, FAILED, NO_SUCH_STEP, ONLY_ONCE)}
    points = {cell.point for cell in cells if cell.status == DONE}
    return f"{len(points)} points, {counts[DONE]} cells done, {counts[FAILED]} failed, {counts[NO_SUCH_STEP]} without a step that may fail, {counts[ONLY_ONCE]} passed once"


def write_json(path, cells, wrong, seconds, seed):
    document = {"format": 1, "seed": seed, "seconds": round(seconds, 1), "wrong": wrong, "no_such_step": NO_STEP, "passed_once": ONCE,
                "cells": [dict(vars(cell), seconds=round(cell.seconds, 2)) for cell in cells]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")


def parse(words):
    parser = argparse.ArgumentParser(prog="./dev test matrix --")
    parser.add_argument("--point", action="append", default=[], metavar="PATTERN", help="only these, like 'tx.*'")
    parser.add_argument("--fault", action="append", default=[], choices=FAULTS)
    parser.add_argument("--hit", action="append", default=[], choices=HITS)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("LEASE_TEST_SEED", "41")))
    parser.add_argument("--parallel", type=int, default=PARALLEL, help="so many places at a time (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="all cells")
    return parser.parse_args(words)


def main():
    global progress
    options = parse(sys.argv[1:])
    build = os.environ["LEASE_TEST_BIN"]
    points = read_points()
    wrong = check_points(points, [os.path.join(build, program) for program in PROGRAMS])
    wrong += [f"{point} is in no scene: say in SCENES of scenes.py how it is reached" for point in points if scene_of(point) is None]
    chosen = [point for point in points if scene_of(point) and (not options.point or any(fnmatch.fnmatch(point, pattern) for pattern in options.point))]
    if not chosen:
        sys.exit(f"no such point: {' '.join(options.point)}; there are: {' '.join(points)}")
    jobs = sorted(jobs_of(chosen, options.fault or FAULTS, options.hit or HITS), key=lambda job: -job.weight)
    count = sum(cell.is_to_do for job in jobs for cell in job.cells)
    print(f"{len(points)} points, {count} cells to do, {options.parallel} at a time, seed {options.seed}", flush=True)
    begun = time.monotonic()
    progress = multiprocessing.Value("i", 0)
    cells = run_jobs(jobs, build, options.seed, options.parallel)
    seconds = time.monotonic() - begun
    print(table(cells))
    for name, reasons in (("no step that may fail", NO_STEP), ("passed once", ONCE)):
        print(f"{name}: " + "; ".join(f"{point} ({reason})" for point, reason in reasons.items() if point in chosen))
    for text in wrong + [f"{cell.point} {cell.fault} {cell.hit}: {cell.note}" for cell in cells if cell.status == FAILED]:
        print(f"FAILED: {text}")
    print(f"matrix: {summary_of(cells)}; {seconds:.0f} s")
    if options.json:
        write_json(options.json, cells, wrong, seconds, options.seed)
    sys.exit(1 if wrong or any(cell.status not in (DONE, NO_SUCH_STEP, ONLY_ONCE) for cell in cells) else 0)


if __name__ == "__main__":
    main()
