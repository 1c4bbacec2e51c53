# ctest: LABEL kafka TIMEOUT 240
"""The tables of README.md are what the programs, the database and the broker say. `LEASE_TEST_WRITE=1` writes them anew."""
import os
import pathlib
import re
import subprocess

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def compare(name, text):
    """The part of the README between the marks of that name is `text`."""
    readme = README.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- begin {name} -->\n)(.*?)(<!-- end {name} -->)", re.S)
    found = pattern.search(readme)
    assert found, f"README.md has no part named {name}"
    if os.environ.get("LEASE_TEST_WRITE"):
        README.write_text(pattern.sub(lambda match: match.group(1) + text + match.group(3), readme), encoding="utf-8")
    else:
        assert found.group(2) == text, "run with LEASE_TEST_WRITE=1 to write it anew"


def table(head, rows):
    lines = [head, "---|" * (head.count("|") - 1)]
    lines[1] = "|" + lines[1]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def test_configuration__is_what_the_coordinator_prints(bare_place):
    said = subprocess.run([bare_place.program("lease-coordinator"), "--help"], stdout=subprocess.PIPE, text=True, check=True)
    compare("configuration", "```\n" + said.stdout.rstrip() + "\n```\n")


def test_outcomes__are_those_of_the_database(place):
    rows = place.database.query("SELECT outcome, is_refusal, meaning FROM lease.outcomes ORDER BY precedence")
    compare("outcomes", table("| outcome | | meaning |", [(f"`{outcome}`", "refusal" if refused else "done", meaning)
                                                           for outcome, refused, meaning in rows]))


def test_topics__are_those_on_the_broker(place):
    topics = place.ctl_json("topics")
    rows = [(f"`{topic['topic'][len(place.prefix):]}`", str(topic["partitions"]), topic["cleanup_policy"],
             topic["key"].replace("<", "\\<"), topic["contents"]) for topic in topics]
    compare("topics", table("| topic | partitions | cleanup | key | what is in it |", rows))
