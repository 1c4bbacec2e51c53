#!/usr/bin/python3
"""The books of the file server: did every cleanup come out as if one careful worker had done each item once?

Reads the topics, the file server's database and the disk, and asks no worker. Every look is one pass: time and memory grow with
the number of files and records, no faster.

    found = collect(brokers, prefix, files)       # files: a FileServer of fileserver.py, at rest
    balance(found)                                # raises with the first examples of what is wrong

    D1  every file whose cleanup was requested is settled, and gone from the disk under all of its names
    D2  what was not requested is on the disk as the tables say, and nothing else is there
    D3  used_bytes of each account is the sum of what remains, and of what happened, to the byte
    D4  a file is settled once; nothing but what successors ask comes after
    D5  no effect was admitted under a fence below one admitted before, nor under an equal one of another claim
    D6  every effect was under a grant that lease.grants tells of; a cleanup's under one of its own item
    D7  each item has exactly one final result
    D8  a file that was not there is told as missing by the result, and only such a one

By hand: books_files.py BROKERS PREFIX CONNINFO ROOT; prints a line per invariant, and exits with 1 if one is broken.
"""
import collections
import os
import re
import sys

import psycopg2

from books import FINAL_STATES, Input
from topics import read_topic

KIND = "cleanup"
FENCED = re.compile(r"^(.*)\.~[0-9]+$")
EXAMPLES = 3


class Found:
    """What is there. Rows of the tables as tuples, in the order of `number` where they have one."""

    def __init__(self):
        self.requested = set()    # items, by lease.results
        self.asked = set()        # items, by the input topic
        self.final = collections.defaultdict(list)   # item → [(outcome, state, result)]
        self.grants = {}          # fence → {(kind, lease, claim id)}
        self.files = {}           # file → (account, bytes, physical name, state, missing, settled by)
        self.names = {}           # physical name, also a former one → file
        self.lifecycle = []       # (file, event, fence, claim id, bytes change, missing)
        self.accounts = {}        # account → used bytes
        self.gate = {}            # file → (fence, claim id)
        self.disk = {}            # path beneath the root → bytes


def collect(brokers, prefix, files):
    found = Found()
    _read_topics(found, brokers, prefix)
    _read_tables(found, files.database.conninfo)
    _read_disk(found, files.root)
    return found


def _read_topics(found, brokers, prefix):
    for record in read_topic(brokers, prefix, f"{KIND}.events"):
        command = Input(record)
        if command.kind == KIND and command.command == "request":
            found.asked.add(command.subject)
    for record in read_topic(brokers, prefix, "lease.results", drop_repeats=True):
        if record.headers.get("ce_type", b"").decode().partition(".")[0] != KIND:
            continue
        value = record.value
        if record.outcome == "requested":
            found.requested.add(value["lease"])
        if record.outcome in ("finished", "failed", "dead") and value.get("state", record.outcome) in FINAL_STATES:
            found.final[value["lease"]].append((record.outcome, value.get("state"), value.get("result")))
    for record in read_topic(brokers, prefix, "lease.grants", drop_repeats=True):
        grant = record.value
        found.grants.setdefault(grant["fence"], set()).add((grant["kind"], grant["lease"], grant["claim_id"]))


def _read_tables(found, conninfo):
    connection = psycopg2.connect(conninfo)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute("SELECT file, account, bytes, physical_name, state, missing, settled_by FROM fileserver.file")
            found.files = {file: tuple(rest) for file, *rest in cursor}
            cursor.execute("SELECT physical_name, file FROM fileserver.physical_name")
            found.names = dict(cursor)
            cursor.execute("SELECT file, event, fence, claim_id::text, bytes_change, missing FROM fileserver.lifecycle ORDER BY number")
            found.lifecycle = cursor.fetchall()
            cursor.execute("SELECT account, used_bytes FROM fileserver.account")
            found.accounts = dict(cursor)
            cursor.execute("SELECT substr(resource, 6), fence, claim_id::text FROM lease_gate.resource WHERE resource LIKE 'file/%'")
            found.gate = {file: (fence, claim) for file, fence, claim in cursor}
    finally:
        connection.close()


def _read_disk(found, root):
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                else:
                    found.disk[path] = entry.stat(follow_symlinks=False).st_size


# --- the checks: each yields what is wrong -----------------------------------------------------------------------------------


def _file_of(found, path):
    """The file that a path belongs to, if any."""
    fenced = FENCED.match(path)
    return found.names.get(fenced.group(1) if fenced else path)


def requested_files_are_gone(found):
    if found.asked != found.requested:
        yield f"asked for but never in the pool: {sorted(found.asked ^ found.requested)[:EXAMPLES]}"
    for file in found.requested:
        if file in found.files and found.files[file][3] != "deleted":
            yield f"{file} is {found.files[file][3]}"
    for path in found.disk:
        file = _file_of(found, path)
        if file in found.requested:
            yield f"{path} of {file} is still on the disk"


def the_rest_is_there(found):
    for path in found.disk:
        file = _file_of(found, path)
        if file is None or (file not in found.requested and found.files[file][2] != path):
            yield f"{path} is on the disk and belongs to nothing"
    for file, (_, size, name, state, _, _) in found.files.items():
        if file in found.requested:
            continue
        if state != "active":
            yield f"{file} is {state} and nobody asked for it"
        elif found.disk.get(name) != size:
            yield f"{name} of {file} has {found.disk.get(name)} bytes on the disk, {size} in the tables"


def accounts_balance(found):
    stored = collections.Counter()
    for account, size, _, state, _, _ in found.files.values():
        stored[account] += 0 if state == "deleted" else size
    happened = collections.Counter()
    for file, _, _, _, change, _ in found.lifecycle:
        happened[found.files[file][0]] += change
    for account, used in found.accounts.items():
        if not used == stored[account] == happened[account]:
            yield f"{account} uses {used} bytes; {stored[account]} remain, {happened[account]} by what happened"


def files_are_settled_once(found):
    settled = collections.Counter()
    for file, event, fence, _, change, _ in found.lifecycle:
        if settled[file] and event not in ("begun", "confirmed"):
            yield f"{file}: {event} under fence {fence} after it was settled"
        if event == "settled":
            settled[file] += 1
            if change != -found.files[file][1]:
                yield f"{file} of {found.files[file][1]} bytes was settled with {change}"
    for file, row in found.files.items():
        if settled[file] != (row[3] == "deleted"):
            yield f"{file} is {row[3]} and was settled {settled[file]} times"


def fences_rise(found):
    last = {}
    for file, event, fence, claim, _, _ in found.lifecycle:
        if fence is None:
            continue
        before = last.get(file, (0, None))
        if fence < before[0] or (fence == before[0] and claim != before[1]):
            yield f"{file}: {event} under fence {fence} ({claim}) after {before[0]} ({before[1]})"
        last[file] = max(before, (fence, claim), key=lambda pair: pair[0])
    for file, (fence, claim) in last.items():
        gate = found.gate.get(file, (0, None))
        if gate[0] < fence or (gate[0] == fence and gate[1] != claim):
            yield f"{file}: the gate remembers {gate}, an effect was admitted under {(fence, claim)}"


def effects_were_granted(found):
    for file, event, fence, claim, _, _ in found.lifecycle:
        if fence is None:
            continue
        grants = found.grants.get(fence, set())
        if event == "written" and any(claim == granted for _, _, granted in grants):
            continue
        if event != "written" and (KIND, file, claim) in grants:
            continue
        yield f"{file}: {event} under fence {fence} ({claim}), which nobody was granted for it"


def items_end_once(found):
    for item in found.requested:
        if len(found.final.get(item, ())) != 1:
            yield f"{item} has {len(found.final.get(item, ()))} final results: {found.final.get(item, [])[:EXAMPLES]}"
    for item in found.final.keys() - found.requested:
        yield f"{item} has a final result and was never requested"


def missing_is_told(found):
    for file, (_, _, _, state, missing, _) in found.files.items():
        for outcome, _, result in found.final.get(file, ()):
            told = (result or {}).get("file")
            if outcome == "finished" and (state != "deleted" or told != ("missing" if missing else "removed")):
                yield f"{file} is {state}{', missing' if missing else ''}, and its result says {told}"


INVARIANTS = {"D1": requested_files_are_gone, "D2": the_rest_is_there, "D3": accounts_balance, "D4": files_are_settled_once,
              "D5": fences_rise, "D6": effects_were_granted, "D7": items_end_once, "D8": missing_is_told}


def check(found):
    """Invariant → the first examples of what breaks it, for those that are broken."""
    broken = {}
    for name, invariant in INVARIANTS.items():
        examples = []
        for example in invariant(found):
            examples.append(example)
            if len(examples) == EXAMPLES:
                break
        if examples:
            broken[name] = examples
    return broken


def summary(found):
    ends = collections.Counter(end[0] for ends in found.final.values() for end in ends)
    return {"requested": len(found.requested), "final": dict(ends), "files": len(found.files), "on_disk": len(found.disk),
            "effects": len([1 for row in found.lifecycle if row[2] is not None]),
            "begun": len([1 for row in found.lifecycle if row[1] == "begun"]),
            "missing": len([1 for row in found.lifecycle if row[1] == "settled" and row[5]])}


def balance(found):
    broken = check(found)
    assert not broken, "the books do not balance:\n" + "\n".join(
        f"{name} {INVARIANTS[name].__name__}: {'; '.join(examples)}" for name, examples in broken.items())
    return summary(found)


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    brokers, prefix, conninfo, root = sys.argv[1:]

    class Files:
        class database:
            pass
    Files.database.conninfo, Files.root = conninfo, root
    found = collect(brokers, prefix, Files)
    broken = check(found)
    print(summary(found))
    for name, invariant in INVARIANTS.items():
        print(f"{name} {invariant.__name__}: {'; '.join(broken[name]) if name in broken else 'holds'}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
