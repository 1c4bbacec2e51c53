#!/usr/bin/env python3
"""Prints the answers, and keeps a ledger behind a gate: what comes with an outdated fence has no effect."""
import argparse
import time

import leasehold


class Gate:
    """For each resource the highest fence that was let in. (A service keeps it beside the data, in the same transaction as the
    effect: sql/gate has that for PostgreSQL.)"""

    def __init__(self):
        self.highest = {}               # resource: (fence, claim id; None: a floor, nobody was let in with that number yet)

    def admits(self, resource, fence, claim_id):
        seen = self.highest.get(resource)
        if seen and (fence < seen[0] or fence == seen[0] and seen[1] not in (None, claim_id)):
            return False
        self.highest[resource] = (fence, claim_id)
        return True

    def raise_floor(self, resource, min_fence):
        """Nobody below this comes in any more: the lease behind it has lapsed or ended."""
        if min_fence > self.highest.get(resource, (0, None))[0]:
            self.highest[resource] = (min_fence, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--until-idle", type=float, metavar="SECONDS", help="end when nothing has come for so long")
    options = parser.parse_args()
    records, gate, ledger = leasehold.Records("lease.results", from_end=False), Gate(), {}
    quiet_since = time.monotonic()
    while options.until_idle is None or time.monotonic() - quiet_since < options.until_idle:
        record = records.next(0.2)
        if record is None:
            continue
        quiet_since = time.monotonic()
        _, _, answer = record
        lease = f"{answer['kind']}/{answer['lease']}"
        print(answer["number"], answer["outcome"], lease, "fence", answer.get("fence", "-"), flush=True)
        if answer["outcome"] == "finished" and gate.admits(lease, answer["fence"], answer["claim_id"]):
            ledger[lease] = answer.get("result")
        elif "min_fence" in answer:
            gate.raise_floor(lease, answer["min_fence"])
    print(f"{len(ledger)} finished")


if __name__ == "__main__":
    main()
