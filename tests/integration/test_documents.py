# ctest: LABEL unit TIMEOUT 240
"""What the documents list is what there is: facts that tests are named after, named crash points and the tests that hit them."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FACT = re.compile(r"(?<![A-Za-z0-9_-])F([0-9]{1,2})(?![A-Za-z0-9_-])|test_F([0-9]+)(?=_)|_F([0-9]+)(?=_)")


def text_of(*path):
    return ROOT.joinpath(*path).read_text(encoding="utf-8")


def sources(*folders, suffixes=(".c", ".h", ".py", ".sql")):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes]


def facts_in(path):
    return {int(next(filter(None, found))) for found in FACT.findall(path.read_text(encoding="utf-8"))}


def test_every_fact_that_a_test_names_is_explained():
    explained = {int(number) for number in re.findall(r"^\| F([0-9]+) \|", text_of("tests", "README.md"), re.M)}
    named = {number: path.name for path in sources("tests") if path != pathlib.Path(__file__).resolve() for number in facts_in(path)}
    assert len(named) > 10
    assert {number: name for number, name in named.items() if number not in explained} == {}


def test_every_fact_that_is_explained_is_named_by_the_tests_it_lists():
    for number, files in re.findall(r"^\| F([0-9]+) \| .* \| (.*) \|$", text_of("tests", "README.md"), re.M):
        for file in re.findall(r"`([a-z]+/test_[a-z_]+\.(?:py|c))", files):
            assert int(number) in facts_in(ROOT / "tests" / file), f"{file} does not name F{number}"


def test_code_says_facts_in_words():
    assert [path.name for path in sources("common", "coordinator", "worker", "sql") if facts_in(path)] == []


def points_listed():
    """(point, file of tests) for each that CONTRIBUTING.md's table has."""
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", text_of("CONTRIBUTING.md").split("## Add a crash point")[1], re.M)
    return [(point, file) for points, files in rows for point in re.findall(r"`([a-z]+\.[a-z_]+)`", points)
            for file in re.findall(r"`(test_[a-z_]+\.py)`", files) or [None]]


def test_every_crash_point_is_listed():
    points = {point for path in sources("common", "coordinator", "worker", suffixes=(".c",))
              for point in re.findall(r'CRASH_POINT\("([a-z_.]+)"\)', path.read_text(encoding="utf-8"))}
    assert len(points) > 15
    assert points == {point for point, _ in points_listed()}


def test_every_crash_point_is_armed_by_the_tests_that_are_said_to_hit_it():
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources("tests", suffixes=(".py",))}
    assert [(point, file) for point, file in points_listed() if not re.search(rf'"{re.escape(point)}[":]', texts.get(file, ""))] == []


def test_sql_is_ascii():
    """Functions are kept by the database as they were written: a dump of it must fit databases of any encoding."""
    for path in sources("sql/migrations", "sql/functions", "sql/views", suffixes=(".sql",)):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert line.isascii(), f"{path.name}:{number}: {line}"
