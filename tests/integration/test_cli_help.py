# ctest: LABEL cli TIMEOUT 240 TAKES 10
"""leasectl's command line: help teaches every command, mistakes are named, exit codes mean what parts of a script need."""
import os
import re

import pytest

from leasectl import CONFIGURATION, NO, UNAVAILABLE, USAGE, YES, Leasectl

COMMANDS = ["migrate", "topics", "send", "tail", "ls", "show", "timeline", "line", "edits", "cases", "resolve", "dlq ls", "jump"]
NOWHERE = {"LEASE_DATABASE": "host=127.0.0.1 port=1 user=nobody connect_timeout=2", "LEASE_BROKERS": "127.0.0.1:1"}


@pytest.fixture
def leasectl(build):
    for path in (f"{build}/coordinator/cli/leasectl", f"{build}/leasectl"):
        if os.access(path, os.X_OK):
            return Leasectl(path)
    raise AssertionError(f"no leasectl in {build}")


def test_overview_lists_every_command_and_the_exit_codes(leasectl):
    done = leasectl("--help").check(YES)
    listed = re.findall(r"^  ([a-z]+(?: [a-z]+)?) +\S.*$", done.out.split("Commands:")[1].split("\n\n")[0], re.MULTILINE)
    assert listed == COMMANDS
    for code in ("64 usage", "65 data", "69 server", "75 try again", "77 permission", "78 configuration"):
        assert code in done.out
    for setting in ("--brokers", "--database", "--topic-prefix", "LEASE_BROKERS", "LEASE_DATABASE", "-X"):
        assert setting in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_teaches_with_examples(leasectl, command):
    done = leasectl(*command.split(), "--help").check(YES)
    assert done.out.startswith(f"leasectl {command} – ")
    assert f"Usage: leasectl {command}" in done.out
    examples = done.out.split("Examples:\n")[1].splitlines()
    assert any(line.startswith("$ leasectl ") and command in line for line in examples)
    for line in examples:
        assert line.startswith(("$ leasectl ", "  ")), line
    assert done.err == ""
    assert leasectl("help", *command.split()).check(YES).out == done.out
    assert leasectl(*command.split(), "-h").check(YES).out == done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_working_configuration(leasectl, command):
    leasectl(*command.split(), "--help", LEASE_NONSENSE="1", LEASE_CONFIG="/nonexistent").check(YES)


@pytest.mark.parametrize("command", COMMANDS)
def test_lines_of_help_fit_a_wide_terminal(leasectl, command):
    for line in leasectl(*command.split(), "--help").out.splitlines():
        assert len(line) <= 132, line


def test_version(leasectl):
    assert re.fullmatch(r"leasectl \d+\.\d+\.\d+\n", leasectl("--version").check(YES).out)


def test_no_command_is_a_mistake_that_shows_the_overview(leasectl):
    done = leasectl().check(USAGE)
    assert done.out == "" and "Commands:" in done.err


@pytest.mark.parametrize("words, says", [
    (["tial"], "did you mean 'tail'"),
    (["dlq"], "did you mean 'leasectl dlq ls'"),
    (["frobnicate"], "there is no command 'frobnicate'"),
    (["ls", "--limt", "3"], "did you mean --limit"),
    (["ls", "extra"], "'extra' is too much"),
    (["show"], "something is missing"),
    (["show", "no-slash"], "KIND/ID"),
    (["ls", "--limit", "many"], "--limit wants a number"),
    (["ls", "--limit", "0"], "--limit wants a number"),
    (["ls", "--limit"], "--limit wants a value"),
    (["ls", "--expiring", "soon"], "--expiring wants a duration"),
    (["ls", "--expiring", "-3s"], "--expiring wants a duration"),
    (["ls", "-o", "xml"], "--output wants table, json or jsonl"),
    (["tail", "everything"], "results, grants, state or dead-letters"),
    (["tail", "results", "--from", "yesterday"], "--from wants"),
    (["tail", "grants", "--outcome", "stale"], "only results have an --outcome"),
    (["tail", "results", "--follow", "-o", "json"], "use -o jsonl"),
    (["tail", "results", "--wait", "3"], "--wait belongs to --follow"),
    (["send", "settlement"], "is no type"),
    (["send", "settlement.explode", "x"], "is no type"),
    (["send", "settlement.start"], "which lease"),
    (["send", "settlement.start", "x", "word"], "neither name=text nor name:=json"),
    (["send", "settlement.start", "x", "--data", "[1]"], "wants a JSON object"),
    (["send", "settlement.start", "x", "--binary", "--structured"], "not both"),
    (["send", "settlement.start", "x", "--grant-to", "f"], "--grant-to needs --wait"),
    (["migrate", "--plan=yes"], "--plan takes no value"),
    (["jump"], "--who"),
    (["--nonsense"], "--nonsense"),
])
def test_mistakes_are_named_with_the_way_out(leasectl, words, says):
    done = leasectl(*words, **NOWHERE).check(USAGE)
    assert says in done.err and done.out == ""
    assert "--help" in done.err


def test_unknown_settings_are_refused_by_name(leasectl):
    assert "LEASE_DATABSE" in leasectl("ls", LEASE_DATABSE="x").check(CONFIGURATION).err


@pytest.mark.parametrize("words", [["ls"], ["show", "a/b"], ["timeline", "a/b"], ["dlq", "ls"], ["migrate"], ["migrate", "--plan"]])
def test_a_database_that_is_away_is_unavailable(leasectl, words):
    done = leasectl(*words, **NOWHERE).check(UNAVAILABLE)
    assert "Connection refused" in done.err and "what to do:" in done.err and done.out == ""


def test_waiting_for_a_database_says_so_and_ends(leasectl):
    done = leasectl("migrate", "--wait", "400ms", **NOWHERE).check(UNAVAILABLE)
    assert "waiting for PostgreSQL" in done.err


@pytest.mark.parametrize("words", [["topics"], ["topics", "--apply"]])
def test_brokers_that_are_away_are_unavailable(leasectl, words):
    done = leasectl(*words, **NOWHERE).check(UNAVAILABLE)
    assert "what to do:" in done.err and done.out == ""


@pytest.mark.parametrize("words", [["topics"], ["tail", "results"], ["send", "settlement.start", "x"]])
def test_brokers_that_are_not_named_are_a_configuration_error(leasectl, words):
    assert "LEASE_BROKERS" in leasectl(*words).check(CONFIGURATION).err


def test_a_password_never_shows_in_an_error(leasectl):
    done = leasectl("ls", LEASE_DATABASE="host=127.0.0.1 port=1 user=x password=canary-7f connect_timeout=2").check(UNAVAILABLE)
    assert "canary" not in done.err + done.out
    assert "canary" not in leasectl("--show-config", LEASE_DATABASE="password=canary-7f").check(YES).out


def test_output_that_cannot_be_written_is_no_success(leasectl, build):
    with open("/dev/full", "wb") as full:
        import subprocess
        process = subprocess.run([leasectl.program, "--help"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert process.returncode not in (YES, NO)
