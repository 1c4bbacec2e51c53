"""docker-compose.yml runs for real: its services get healthy, a command goes in, its result comes out, a coordinator is
killed, the next result comes out, and nothing is left behind.

The tests tell one story and run in the order in which they stand here. No registry of images is reached: images.py tells
what stands in for what.
"""
import json
import os
import sys
import tempfile
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "support")]

import images  # noqa: E402
import stack as stacks  # noqa: E402
from engine import Engine, missing  # noqa: E402
from waiting import eventually  # noqa: E402

COORDINATORS = ("coordinator-1", "coordinator-2")
SERVICES = ("postgres", "kafka", "init") + COORDINATORS
# From an empty machine to healthy takes 20 s here; the limit allows for a machine that is busy with other tests.
UP_LIMIT = 240
BEGUN = time.monotonic()


def tell(text):
    print(f"{time.monotonic() - BEGUN:6.1f} s  {text}", file=sys.__stdout__, flush=True)


@pytest.fixture(scope="module")
def project():
    reason = missing()
    if reason:
        pytest.fail(f"the compose tests cannot run: {reason}", pytrace=False)
    with tempfile.TemporaryDirectory(prefix="lease-project-") as folder:
        yield stacks.copy_project(f"{folder}/leasehold")


@pytest.fixture(scope="module")
def stack(project, request):
    with Engine("host") as builder:
        images.build(builder, project, tell)
    with Engine("own") as engine:
        stack = stacks.Stack(engine, project)
        try:
            tell("docker-compose up")
            stack.up()
            yield stack
            if request.session.testsfailed:
                stack.tell_state()
        except BaseException:
            stack.tell_state()
            raise
        finally:
            stack.down()
    check_nothing_is_left(engine)


def check_nothing_is_left(engine):
    with open("/proc/mounts", encoding="utf-8") as mounts:
        assert engine.run_folder not in mounts.read()
    assert not os.path.exists(engine.run_folder)
    eventually(lambda: not processes_that_name(engine.run_folder), 60, "no process of the engine is left")


def processes_that_name(text):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                if text.encode() in words.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def start(stack, service, lease, holder):
    """Sends settlement.start through leasectl in the service's container; returns the result that it waited for."""
    code, output = stack.run_in(service, "leasectl", "send", "settlement.start", lease, f"holder={holder}", "ttl_ms=600000",
                                "--wait=60", "-o", "json")
    tell(f"settlement.start {lease} by {holder}: exit code {code}, {output.strip()}")
    return code, json.loads(output)


def test_init_ended_well_and_both_coordinators_are_healthy(stack):
    assert stack.inspect("init")["State"]["ExitCode"] == 0
    stack.wait_healthy("postgres", "kafka", *COORDINATORS, limit=UP_LIMIT)
    tell("both coordinators are healthy")


def test_our_containers_are_confined(stack):
    for service in SERVICES:
        host = stack.inspect(service)["HostConfig"]
        assert host["CapDrop"] == ["ALL"], service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service
        assert not host["Privileged"], service
    for service in ("postgres", "init") + COORDINATORS:
        assert stack.inspect(service)["HostConfig"]["ReadonlyRootfs"], service
    for service in COORDINATORS:
        assert stack.run_in(service, "id", "-u") == (0, "10001\n")
        assert stack.run_in(service, "touch", "/usr/local/written")[0] != 0
    assert stack.run_in("kafka", "id", "-u")[1] != "0\n"
    assert stack.run_in("postgres", "id", "-u")[1] != "0\n"


def test_no_secret_is_in_a_containers_environment_or_arguments(stack, project):
    folder = f"{project}/deploy/secrets"
    secrets = {name: open(f"{folder}/{name}", encoding="ascii").read().strip() for name in os.listdir(folder)}
    for service in SERVICES:
        text = json.dumps(stack.inspect(service))
        assert not [name for name, value in secrets.items() if value in text], service


def test_ports_are_published_on_the_loopback_interface_only(stack):
    addresses = set()
    for service in SERVICES:
        for bindings in (stack.inspect(service)["HostConfig"]["PortBindings"] or {}).values():
            addresses |= {binding["HostIp"] for binding in bindings}
    assert addresses == {"127.0.0.1"}
    for port in (9464, 9465):
        assert "200" in stack.engine.inside("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port} && "
                                            "printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3")


def test_a_command_gets_its_result(stack):
    code, result = start(stack, "coordinator-1", "run-1", "alice")
    assert (code, result["outcome"]) == (0, "granted")


def test_a_second_run_is_refused(stack):
    code, result = start(stack, "coordinator-2", "run-1", "bob")
    assert (code, result["outcome"], result["held_by"]["holder"]) == (1, "held", "alice")


def test_results_go_on_when_a_coordinator_is_killed(stack):
    stack.engine.docker("kill", stack.container("coordinator-1"))
    tell("coordinator-1 is killed")
    # One lease for each of the topic's partitions and more: some of them were the dead one's.
    fences = []
    for number in range(2, 8):
        code, result = start(stack, "coordinator-2", f"run-{number}", "carol")
        assert (code, result["outcome"]) == (0, "granted")
        fences.append(result["fence"])
    assert fences == sorted(set(fences))
    assert stack.is_healthy("coordinator-2")


def test_up_brings_the_killed_one_back(stack):
    stack.up()
    stack.wait_healthy(*COORDINATORS, limit=UP_LIMIT)
    code, result = start(stack, "coordinator-1", "run-1", "dave")
    assert (code, result["outcome"], result["held_by"]["holder"]) == (1, "held", "alice")


def test_coordinators_stop_when_they_are_asked(stack):
    stack.compose("stop", *COORDINATORS)
    for service in COORDINATORS:
        assert stack.inspect(service)["State"]["ExitCode"] == 0, service


def test_down_leaves_nothing(stack):
    stack.down()
    tell("docker-compose down")
    assert stack.engine.docker("ps", "--all", "--quiet") == ""
    assert stack.engine.docker("volume", "ls", "--quiet") == ""
