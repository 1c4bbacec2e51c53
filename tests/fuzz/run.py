"""Fuzzes the targets of this folder with libFuzzer, one after the other, and says what was tried and found.

    run.py --build FOLDER [--seconds N] [--seed N] [--fresh] [TARGET ...]

Inputs that reach new code are kept in FOLDER/fuzz-corpus/TARGET and are where the next run begins, beside corpus/TARGET; with --fresh only
the latter is. Findings go to FOLDER/fuzz-findings/TARGET. Exit code 1 if there is one."""
import argparse
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
INPUT_BYTES = 8192      # at most; larger ones are what the unit tests try
INPUT_SECONDS = 20      # one that takes longer is a finding


def targets_of(folder):
    return sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.c") if (folder / path.stem).exists())


def fuzz(program, target, seconds, seed, grown, findings):
    findings.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    words = [program, f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={INPUT_BYTES}", f"-timeout={INPUT_SECONDS}",
             "-rss_limit_mb=2048", "-print_final_stats=1", f"-artifact_prefix={findings}/"]
    dictionary = HERE / f"{target}.dict"
    if dictionary.exists():
        words.append(f"-dict={dictionary}")
    done = subprocess.run([*words, grown, HERE / "corpus" / target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          timeout=seconds + 120, text=True, errors="replace")
    found = sorted(set(findings.iterdir()) - before)
    return done, found


def figures(said):
    status = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", said)
    runs = re.findall(r"stat::number_of_executed_units: (\d+)", said)
    return (int(runs[-1]) if runs else 0, *(int(number) for number in (status[-1] if status else (0, 0, 0))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=300, help="over all targets")
    parser.add_argument("--short", action="store_const", dest="seconds", const=int(os.environ.get("LEASE_TEST_FUZZ_SECONDS", "10")),
                        help="for a test: LEASE_TEST_FUZZ_SECONDS, or 10")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2 ** 31))
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("targets", nargs="*")
    arguments = parser.parse_args()
    folder = arguments.build / "tests/fuzz"
    known = targets_of(folder)
    targets = arguments.targets or known
    unknown = sorted(set(targets) - set(known))
    if unknown or not targets:
        sys.exit(f"no such target: {' '.join(unknown)}; there are: {' '.join(known)} (built in {folder} by ./dev fuzz)")
    seconds = max(1, arguments.seconds // len(targets))
    print(f"seed {arguments.seed}, {seconds} s each", flush=True)
    print(f"{'target':<10}{'executions':>12}{'per second':>12}{'edges':>8}{'features':>10}{'inputs':>8}  findings", flush=True)
    failed = False
    for target in targets:
        grown = pathlib.Path(tempfile.mkdtemp()) if arguments.fresh else arguments.build / "fuzz-corpus" / target
        grown.mkdir(parents=True, exist_ok=True)
        try:
            done, found = fuzz(folder / f"fuzz_{target}", target, seconds, arguments.seed, grown, arguments.build / "fuzz-findings" / target)
        finally:
            if arguments.fresh:
                shutil.rmtree(grown)
        runs, edges, features, inputs = figures(done.stdout)
        print(f"{target:<10}{runs:>12,}{runs // seconds:>12,}{edges:>8,}{features:>10,}{inputs:>8,}  {len(found) or 'none'}", flush=True)
        if done.returncode != 0 or found or runs == 0:
            failed = True
            print("\n".join(done.stdout.splitlines()[-60:]))
            for path in found:
                print(f"found: {path}\n  once it is understood and mended, keep it: cp {path} tests/fuzz/corpus/{target}/<what-it-was>")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
