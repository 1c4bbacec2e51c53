"""Which crash points there are, and what can be tried at each: read from the sources, so that a new point is in the matrix by itself.

Where a point is an expression (`if (CRASH_POINT("x")) ...`), the code has a step there that may fail, and the point makes it fail. Where it
is a statement (`CRASH_POINT("x");`), there is none: the reason stands here, and a point without one fails the run, as does a reason for
a point that has a step. What a process passes only once in its life has no second hit; that stands here too, and is counted again by each run.
"""
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("common", "coordinator", "worker")
POINT = re.compile(r'CRASH_POINT\("([^"]+)"\)')
FAULTS = ("kill", "stop", "error")
HITS = ("first", "second", "last")

NO_STEP = {
    "poll.after": "the message is in memory, and goes into a queue in memory",
    "revoke.enter": "what follows happens in memory; the group is told of offsets without waiting, and only lag tools read them",
    "revoke.drained": "the partitions are given up, and nothing is left to do",
    "commit.acked": "the transaction is over, and what follows happens in memory",
    "effect.unlinked": "the effect is over; its result goes into a queue in memory",
    "worker.granted": "what follows is a look at the lease, in memory; the steps behind it have points of their own",
    "worker.done": "the result goes into the library's queue, which sends it as long as the lease lives",
    "worker.delivered": "the result goes into the library's queue, which sends it as long as the lease lives",
}
ONCE = {
    "shutdown.drain": "a process ends once",
    "royalty.closed": "a process settles one settlement, and closes it once",
}


def read_points():
    """point → has it a step that may fail?"""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.c")):
            for line in path.read_text(encoding="utf-8").splitlines():
                for match in POINT.finditer(line):
                    is_statement = line.strip() == f'CRASH_POINT("{match.group(1)}");'
                    found[match.group(1)] = found.get(match.group(1), False) or not is_statement
    return dict(sorted(found.items()))


def check_points(points, place_of_programs):
    """What is wrong with sources, programs and the reasons above, as texts."""
    wrong = []
    programs = b"".join(pathlib.Path(path).read_bytes() for path in place_of_programs)
    for point, has_step in points.items():
        if b"\0" + point.encode() + b"\0" not in programs:
            wrong.append(f"{point} stands in the sources and in no program: they are old, or built without crash points")
        if has_step == (point in NO_STEP):
            wrong.append(f"{point} has a step that may fail, and a reason why not" if has_step
                         else f"{point} has no step that may fail: say why not, in NO_STEP of {os.path.basename(__file__)}")
    for name, reasons in (("NO_STEP", NO_STEP), ("ONCE", ONCE)):
        wrong += [f"{name} names {point}, which is no point" for point in reasons if point not in points]
    return wrong
