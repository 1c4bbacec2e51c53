# ctest: LABEL effects TIMEOUT 240
"""The books of the file server see what is wrong: a history in which everything is right, and one change each that breaks an
invariant. And they stay quick with many files."""
import time

import pytest

import books_files
from fileserver import claim_of
from books_files import Found


def history(count=6):
    """Files f0 …: the even ones were requested and are gone, every third of these by a successor; f0 was missing."""
    found = Found()
    found.accounts = {"a": 0}
    fence = 0

    def effect(file, event, change=0, missing=False):
        found.lifecycle.append((file, event, fence, claim_of(fence), change, missing))
        found.grants[fence] = {("cleanup", file, claim_of(fence))}
        found.gate[file] = (fence, claim_of(fence))

    for n in range(count):
        file, name, size = f"f{n}", f"a/f{n}", 100 + n
        found.names[name] = file
        found.lifecycle.append((file, "stored", None, None, size, False))
        if n % 2:
            found.files[file] = ("a", size, name, "active", False, None)
            found.accounts["a"] += size
            found.disk[name] = size
            continue
        missing = n == 0
        fence += 1
        effect(file, "begun")
        if n % 3 == 0:
            fence += 1
            effect(file, "begun")
        effect(file, "settled", -size, missing)
        found.files[file] = ("a", size, name, "deleted", missing, fence)
        found.asked.add(file)
        found.requested.add(file)
        found.final[file] = [("finished", "finished", {"file": "missing" if missing else "removed"})]
    return found


def change_file(found, file, **changes):
    fields = ("account", "bytes", "name", "state", "missing", "settled_by")
    row = dict(zip(fields, found.files[file]), **changes)
    found.files[file] = tuple(row[field] for field in fields)


def settled_at(found, file):
    return next(i for i, row in enumerate(found.lifecycle) if row[:2] == (file, "settled"))


def settle_again(found):
    row = found.lifecycle[settled_at(found, "f2")]
    found.lifecycle.append(row)
    found.accounts["a"] -= row[4] * -1


def effect_of_a_stale_worker(found):
    at = settled_at(found, "f0")           # under fence 2, after a begin under 2; let it be 1's
    found.lifecycle[at] = ("f0", "settled", 1, claim_of(1)) + found.lifecycle[at][4:]


def same_fence_of_another_claim(found):
    at = settled_at(found, "f2")
    fence = found.lifecycle[at][2]
    found.lifecycle[at] = ("f2", "settled", fence, claim_of(fence, 1)) + found.lifecycle[at][4:]
    found.grants[fence].add(("cleanup", "f2", claim_of(fence, 1)))


BREAKS = {
    "a file is left": ("D1", lambda found: found.disk.update({"a/f2": 102})),
    "a file is left under a fence": ("D1", lambda found: found.disk.update({"a/f2.~7": 102})),
    "a request was lost": ("D1", lambda found: found.asked.add("f9")),
    "a file was never settled": ("D1", lambda found: change_file(found, "f2", state="deleting")),
    "too much was removed": ("D2", lambda found: found.disk.pop("a/f1")),
    "a stranger is on the disk": ("D2", lambda found: found.disk.update({"a/x": 1})),
    "a file was cut": ("D2", lambda found: found.disk.update({"a/f1": 1})),
    "a byte is missing": ("D3", lambda found: found.accounts.update(a=found.accounts["a"] - 1)),
    "settled twice": ("D4", settle_again),
    "an effect of a stale worker": ("D5", effect_of_a_stale_worker),
    "an equal fence of another claim": ("D5", same_fence_of_another_claim),
    "the gate has forgotten": ("D5", lambda found: found.gate.pop("f2")),
    "an effect without a grant": ("D6", lambda found: found.grants.pop(found.files["f2"][5])),
    "an effect under somebody else's grant": ("D6", lambda found: found.grants.update(
        {found.files["f2"][5]: {("cleanup", "f4", claim_of(found.files["f2"][5]))}})),
    "no end": ("D7", lambda found: found.final.pop("f2")),
    "two ends": ("D7", lambda found: found.final["f2"].append(("dead", "dead", None))),
    "an end of nothing": ("D7", lambda found: found.final["f1"].append(("dead", "dead", None))),
    "success by silence": ("D8", lambda found: found.final.update(f0=[("finished", "finished", {"file": "removed"})])),
    "missing, though it was there": ("D8", lambda found: found.final.update(f2=[("finished", "finished", {"file": "missing"})])),
}


def test_books_files__balance():
    assert books_files.balance(history())["requested"] == 3


@pytest.mark.parametrize("what", BREAKS)
def test_books_files__see_it(what):
    invariant, spoil = BREAKS[what]
    found = history()
    spoil(found)
    assert invariant in books_files.check(found), "not seen"
    with pytest.raises(AssertionError, match=f"{invariant} "):
        books_files.balance(found)


def test_books_files__every_invariant_is_broken_by_some_change():
    assert {invariant for invariant, _ in BREAKS.values()} == set(books_files.INVARIANTS)


def test_books_files__ten_times_the_files_take_ten_times_as_long():
    def seconds(count):
        found = history(count)
        begun = time.process_time()
        books_files.balance(found)
        return time.process_time() - begun
    assert seconds(200000) < 40 * max(seconds(20000), 0.01)
