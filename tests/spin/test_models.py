# ctest: LABEL model-check TIMEOUT 600 TAKES 25 BUSY
"""The models of this folder hold, reach everything that they say, and break where a protection is taken away; README.md tells of each."""
import re

import pytest

import models


@pytest.fixture(name="found", scope="module")
def fixture_found(request):
    """All runs that are asked for are begun at once; the first to ask waits longest."""
    asked = [item.callspec.params["run"] for item in request.session.items if hasattr(item, "callspec")]
    futures = models.search_all(dict.fromkeys(asked))
    yield lambda run: futures[run].result()
    for future in futures.values():
        future.cancel()


@pytest.mark.parametrize("run", models.WHOLE + models.SPARE, ids=models.name_of)
def test_model__holds(run, found):
    result = found(run)
    assert result.errors == 0, result.trace
    assert result.states > 1000


@pytest.mark.parametrize("run", models.WHOLE, ids=models.name_of)
def test_model__reaches_every_statement_but_the_broken_ones(run, found):
    unreached = [text for text in found(run).unreached
                 if "BROKEN" not in text and "-end-" not in text and not any(part in text for part in run.elsewhere)]
    assert unreached == []


@pytest.mark.parametrize("run", models.REMOVED + models.BEYOND, ids=models.name_of)
def test_model__breaks_without_a_protection_as_the_kept_trace_tells(run, found):
    """If the trace is another one on purpose: tests/spin/models.py --write, and read README.md again."""
    trace = found(run).trace
    assert trace is not None, "nothing breaks"
    assert trace.strip().splitlines()[-1].strip().startswith(f"BROKEN {run.breaks}:"), trace
    assert trace == models.trace_path(run).read_text()


def test_every_switch_and_trace_is_tried_and_explained():
    tried = {switch for run in models.WHOLE + models.SPARE + models.REMOVED + models.BEYOND for switch in run.switches}
    told = {switch for file in models.FOLDER.glob("*.pml") for switch in re.findall(r"^ \*   -D(\w+)  ", file.read_text(), re.MULTILINE)}
    used = {switch for file in models.FOLDER.glob("*.pml")
            for switch in re.findall(r"(?:ifn?def |defined\()(\w+)", file.read_text())}
    assert told == tried and used == tried
    kept = {file.name for file in models.TRACES.iterdir()}
    assert kept == {models.trace_path(run).name for run in models.REMOVED + models.BEYOND}
    readme = (models.FOLDER / "README.md").read_text()
    assert [name for name in sorted(kept) if f"(traces/{name})" not in readme] == []
