# ctest: LABEL soak TIMEOUT 600 TAKES 60 BUSY
"""The soak of ./dev soak, for some seconds: production-like load and faults, then everything heals, converges and is audited."""
import json
import os
import random

import system
from soak import CONVERGE_S, RATES, soak

SECONDS = float(os.environ.get("LEASE_TEST_SECONDS", "20"))


def test_a_short_soak_leaves_nothing_broken(build, kafka):
    seed = int(os.environ.get("LEASE_TEST_SEED", "0")) or random.randrange(1, 10 ** 6)
    print(f"seed {seed} (LEASE_TEST_SEED)")
    with system.temporary_folder(in_memory=True) as folder:
        figures = soak(build, kafka.brokers, folder, SECONDS, seed, rates={what: rate / 3 for what, rate in RATES.items()},
                       converge_s=3 * CONVERGE_S)      # others run beside it
    print(json.dumps(figures))
    assert not figures["broken"]
    assert figures["faults"] and figures["lapsed"] > 0 and figures["refused_edits"] > 0
    idle = [name for name, judged in figures["judged"].items() if judged == 0]
    assert not idle, f"nothing was judged of {idle}"
