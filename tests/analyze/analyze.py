"""Runs gcc -fanalyzer, clang-tidy and cppcheck over what is shipped: common/, coordinator/, worker/. Exit code 1 if any has a word to say.

    analyze.py BUILD [gcc] [clang-tidy] [cppcheck]

BUILD is a folder with compile_commands.json. What is left out, and why, stands in .clang-tidy and cppcheck.txt, or beside the line (NOLINT)."""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHIPPED = ("common", "coordinator", "worker")


def sources(build):
    """(file, arguments of its compiler), of files that stand in the repository."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in SHIPPED:
            yield str(path.relative_to(ROOT)), shlex.split(entry["command"])


def say(words):
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=600)
    return done.returncode, done.stdout


def flags_of(arguments):
    """What matters to an analyzer; `-o` and the file are left out. Error messages end in `false`: error.h tells analyzers so."""
    kept, position = ["-D__clang_analyzer__", "-Wno-unused-value"], 1
    while position < len(arguments):
        if arguments[position] in ("-o", "-MF", "-MT"):
            position += 2
            continue
        if arguments[position] not in ("-c", "-MD", arguments[-1]):
            kept.append(arguments[position])
        position += 1
    return kept


def gcc(path, arguments):
    return say(["gcc", *flags_of(arguments), "-O1", "-fanalyzer", "-c", "-o", "/dev/null", path])


def clang_tidy(path, arguments):
    # One file at a time: in a second one this version takes every va_list for uninitialized.
    code, said = say(["clang-tidy-14", "--quiet", path, "--", *flags_of(arguments)])
    return code, "\n".join(line for line in said.splitlines() if not line.endswith(("warnings generated.", "warning generated."))
                           and not line.startswith("Suppressed "))


def cppcheck(_build):
    return say(["cppcheck", f"-j{os.cpu_count()}", "--quiet", "--std=c11", "--enable=warning,performance,portability", "--inline-suppr",
                "--error-exitcode=1", f"--suppressions-list={HERE / 'cppcheck.txt'}", "-I.", "-D_GNU_SOURCE", "-DLEASE_CRASH_POINTS=1",
                "-DLEASE_VERSION=\"0\"", f"--include={HERE / 'macros.h'}", *SHIPPED])


def each(tool, build):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda source: tool(*source), {path: (path, arguments) for path, arguments in sources(build)}.values()))
    return max(code != 0 for code, _ in found), "\n".join(said for code, said in found if code != 0)


TOOLS = {"gcc": lambda build: each(gcc, build), "clang-tidy": lambda build: each(clang_tidy, build), "cppcheck": cppcheck}


def main():
    build, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(TOOLS)
    if set(names) - set(TOOLS):
        sys.exit(f"which analyzer? {' '.join(TOOLS)}")
    is_clean = True
    for name in names:
        begun = time.monotonic()
        code, said = TOOLS[name](build)
        print(f"{name}: {'clean' if not code else 'see below'} ({time.monotonic() - begun:.0f} s)\n{said if code else ''}", end="\n" if code else "", flush=True)
        is_clean &= not code
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
