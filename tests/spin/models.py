"""Runs the models with Spin: all of a model, and each protection taken away. As a program it prints what it found; with --write it
also writes the traces anew.

A model is searched completely, by depth. A counterexample is searched by breadth, so it is a shortest one; its trace is what the model
prints on the way there, up to the invariant that breaks."""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile
import textwrap

FOLDER = pathlib.Path(__file__).resolve().parent
TRACES = FOLDER / "traces"
LIMIT_S = 120
MEMORY_MB = 1500
DEPTH = 20000

# A run of a model: its switches, and which invariant breaks (None: all hold, and every statement is reached but what `elsewhere` says,
# which another run of that model reaches).
Run = collections.namedtuple("Run", "model switches breaks elsewhere", defaults=(None, ()))

WHOLE = [
    Run("failover", (), elsewhere=("LE004",)),
    Run("failover", ("TWO_PROMOTED",)),
    Run("failover", ("RESTORED",)),
    Run("intake", ()),
    Run("relay", ()),
    Run("worker", ()),
]

# One protection less, and the invariant that it stood for breaks.
REMOVED = [
    Run("failover", ("NO_JUMP",), "I1"),
    Run("failover", ("NO_MARGIN",), "I1"),
    Run("failover", ("NO_WITNESS",), "I1"),
    Run("failover", ("NO_STEPS",), "I1"),
    Run("failover", ("RESTORED", "NO_REFUSAL"), "I1"),
    Run("failover", ("TWO_PROMOTED", "NO_CLAIM_ID"), "I9"),
    Run("intake", ("NO_OFFSET_COMPARE", "NO_OWNER_EPOCH"), "I4"),
    Run("intake", ("NO_OFFSET_COMPARE", "NO_SECOND_LOOK"), "I4"),
    Run("intake", ("NO_ONE_TRANSACTION",), "I4"),
    Run("intake", ("NO_DEDUP",), "I4"),
    Run("relay", ("NO_TAIL",), "I4"),
    Run("relay", ("NO_WAIT_FOR_ACK",), "I4"),
    Run("relay", ("NO_STOP",), "I4"),
    Run("relay", ("NO_NUMBER_COMPARE",), "I4"),
    Run("relay", ("NO_RESTATE",), "I9"),
    Run("relay", ("NO_COMPACTION_LAG",), "I9"),
    Run("relay", ("NO_HIGHEST_NUMBER",), "I9"),
    Run("relay", ("NO_ROLE_CHECK",), "I9"),
    Run("worker", ("NO_LOCK_THEN_CLOCK",), "I2"),
    Run("worker", ("NO_DEAD_STAYS_DEAD",), "I2"),
    Run("worker", ("NO_LOCKED_IS_LIVE",), "I2"),
    Run("worker", ("NO_FENCE_CHECK",), "I3"),
    Run("worker", ("NO_FINAL",), "I10"),
    Run("worker", ("NO_REAPER_LOOK",), "I10"),
    Run("worker", ("NO_GATE",), "I9"),
    Run("worker", ("NO_FENCE_COMPARE",), "I9"),
    Run("worker", ("NO_GATE_TRANSACTION",), "I9"),
    Run("worker", ("NO_EFFECT_KEY",), "I9"),
]

# What the design does not promise, to see where it ends.
BEYOND = [Run("failover", ("RESTORED", "LATE_AFTER_RESTORE"), "I1")]

# Of these another protection takes the place: taken away alone, nothing breaks.
SPARE = [Run("intake", (switch,)) for switch in ("NO_OFFSET_COMPARE", "NO_OWNER_EPOCH", "NO_SECOND_LOOK")]

Found = collections.namedtuple("Found", "states errors unreached trace")


def name_of(run):
    return "-".join((run.model,) + run.switches)


def trace_path(run):
    return TRACES / f"{name_of(run)}.txt"


def _call(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(command)}\n{output}"
    return output


def _trace(model, switches, folder):
    text = _call(["spin", "-t", *switches, str(model)], folder)
    lines = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("spin:"):
            continue
        lines.append(line.rstrip())
        if "BROKEN" in line:
            return textwrap.dedent("\n".join(lines)) + "\n"
    return "no invariant breaks, but the search stops:\n" + text


def search(run):
    """Runs the model; raises if the search was not a complete one."""
    switches = [f"-D{switch}" for switch in run.switches]
    how = ["-O0", "-DBFS"] if run.breaks else ["-O1"]            # the search for a counterexample is shorter than its compilation
    with tempfile.TemporaryDirectory(prefix="lease-spin-") as folder:
        for file in FOLDER.glob("*.pml"):
            (pathlib.Path(folder) / file.name).write_text(file.read_text())
        model = f"{run.model}.pml"
        _call(["spin", "-a", *switches, model], folder)
        _call(["gcc", *how, "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"], folder)
        output = _call(["./pan", f"-m{DEPTH}", "-w20"], folder)
        errors = int(re.search(r"errors: (\d+)", output)[1])
        states = int(float(re.search(r"([\d.e+]+) states, stored", output)[1]))
        assert "max search depth too small" not in output and "reached -DMEMLIM" not in output and "out of memory" not in output, output
        assert errors or "Warning: Search not completed" not in output, output
        unreached = re.findall(r'^\t\S+?:(\d+), state \d+, "(.*)"$', output, re.MULTILINE)
        trace = _trace(model, switches, folder) if errors else None
    return Found(states, errors, [f"line {line}: {text}" for line, text in unreached], trace)


def search_all(runs):
    """As many at a time as there are processors: a future for each run."""
    executor = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    return {run: executor.submit(search, run) for run in runs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="write the traces anew")
    options = parser.parse_args()
    for run, future in search_all(WHOLE + SPARE + REMOVED + BEYOND).items():
        found = future.result()
        what = found.trace.strip().splitlines()[-1].strip() if found.trace else "holds"
        print(f"{name_of(run):45} {found.states:9,} states  {what}", flush=True)
        if options.write and run.breaks:
            TRACES.mkdir(exist_ok=True)
            trace_path(run).write_text(found.trace)


if __name__ == "__main__":
    main()
