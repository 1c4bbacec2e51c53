# ctest: LABEL examples TIMEOUT 120
"""Steps of the Python worker that the real system brings about too seldom, without it."""
import importlib.util
import os
import queue
import sys

import pytest

PYTHON = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples", "python")


@pytest.fixture(name="module")
def fixture_module(monkeypatch):
    monkeypatch.syspath_prepend(PYTHON)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = importlib.util.spec_from_file_location("python_worker", os.path.join(PYTHON, "worker.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(name="worker")
def fixture_worker(module):
    """One that has no connections; what it sends is in `sent`."""
    worker = module.Worker.__new__(module.Worker)
    worker.items, worker.done, worker.finished, worker.sent = {}, queue.SimpleQueue(), 0, []
    worker.send = lambda command, subject, data: worker.sent.append((command, subject, data["fence"]))
    return worker


def item_of(module, fence, remaining_s):
    grant = {"lease": "l1", "holder": "h", "fence": fence, "claim_id": "c", "token": "t"}
    return module.Item(grant, module.clock_s() + remaining_s)


def test_the_end_of_an_earlier_grant_leaves_the_newer_one_in_hand(module, worker):
    earlier, newer = item_of(module, 5, 10), item_of(module, 7, 10)
    worker.items["l1"] = newer
    worker.done.put((earlier, "fail", {}))
    worker.settle()
    assert worker.items == {"l1": newer} and worker.sent == [("fail", "l1", 5)]
    worker.done.put((newer, "finish", {}))
    worker.settle()
    assert worker.items == {} and worker.sent[1:] == [("finish", "l1", 7)]


def test_what_is_not_surely_ours_is_given_back_and_not_begun(module, worker, monkeypatch):
    begun = []
    monkeypatch.setattr(module, "work", begun.append)
    worker.run(item_of(module, 5, float("-inf")))        # a refresh that we know nothing of
    mine = item_of(module, 7, 10)
    worker.run(mine)
    worker.settle()
    assert begun == [mine]
    assert worker.sent == [("release", "l1", 5), ("finish", "l1", 7)]
