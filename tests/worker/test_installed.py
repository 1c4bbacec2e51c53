# ctest: LABEL worker TIMEOUT 400
"""The library as a stranger finds it: installed, with pkg-config and as a CMake package, shared and static, from C and C++."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
#include <lease_worker.h>
#include <stdio.h>
static char *buf_append(void) { return NULL; } /* a name that the library has inside */
int main(void) {
    struct lease_worker_options options;
    struct lease_worker *worker = NULL;
    struct lease_error error;
    lease_worker_options_init(&options);
    if (buf_append() != NULL || lease_worker_start(&options, &worker, &error))
        return 1;
    puts(error.code);
    return 0;
}
"""
CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(stranger C CXX)
find_package(lease-worker 0.1 REQUIRED)
add_executable(shared program.c)
target_link_libraries(shared lease-worker::lease-worker)
add_executable(static program.c)
target_link_libraries(static lease-worker::static)
add_executable(plus program.cpp)
target_link_libraries(plus lease-worker::lease-worker)
"""


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200,
                          **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def installed(build, tmp_path_factory):
    """A prefix with what `cmake --install` of worker/ puts there, and a program that uses it."""
    if build.endswith("asan"):
        pytest.skip("a stranger's program has no sanitizers")
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", pathlib.Path(build) / "worker", "--prefix", prefix)
    for name in ("program.c", "program.cpp"):
        (prefix / name).write_text(PROGRAM)
    (prefix / "CMakeLists.txt").write_text(CMAKE)
    return prefix


def library_folder(prefix):
    return next(prefix.rglob("lease-worker.pc")).parent.parent


def test_installed__has_what_the_header_says_and_nothing_else(installed):
    names = run("nm", "-D", "--defined-only", library_folder(installed) / "liblease-worker.so").split("\n")
    exported = {line.split()[2].split("@")[0] for line in names if " T " in line}
    header = (ROOT / "worker" / "lease_worker.h").read_text()
    declared = set(re.findall(r"LEASE_API [^;]*?\b(lease_[a-z_]+)\(", header))
    assert declared == exported


def test_installed__is_found_by_pkg_config(installed):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(library_folder(installed) / "pkgconfig"))
    flags = run("pkg-config", "--define-prefix", "--cflags", "--libs", "lease-worker", env=environment).split()
    run("cc", "-Wall", "-Wextra", "-Werror", "-std=c11", "program.c", "-o", "by-pkg-config", *flags, cwd=installed)
    found = run(installed / "by-pkg-config", env=dict(os.environ, LD_LIBRARY_PATH=str(library_folder(installed))))
    assert found == "options\n"


def test_installed__compiles_the_example_of_the_readme(installed):
    blocks = re.findall(r"```c\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    example, = [block for block in blocks if "lease_worker.h" in block]
    (installed / "example.c").write_text(example)
    run("cc", "-Wall", "-Wextra", "-Werror", "-std=gnu11", f"-I{installed}/include", "-c", "example.c", cwd=installed)


def test_installed__is_found_by_cmake(installed):
    run("cmake", "-G", "Ninja", "-S", installed, "-B", installed / "build", f"-DCMAKE_PREFIX_PATH={installed}")
    run("cmake", "--build", installed / "build")
    for program in ("shared", "static", "plus"):
        assert run(installed / "build" / program) == "options\n", program
    needed = run("readelf", "-d", installed / "build" / "static")
    assert "liblease-worker" not in needed and "librdkafka" in needed
