"""Waiting for a condition, with a limit. The one place in the tests where time passes."""
import threading
import time


class NotYet(AssertionError):
    """The condition did not come true within its limit."""


def pause(seconds):
    """Lets time pass where that is what is meant: between two faults, between two portions of a load. It waits for nothing."""
    threading.Event().wait(seconds)


def eventually(condition, limit=30.0, what="the condition", every=0.02):
    """Calls condition() until it returns something true, and returns that.

    An AssertionError inside the condition means 'not yet'; after `limit` seconds the last one is told. It is called once after them in any
    case: a machine that stood still meanwhile has not given it a chance.
    """
    deadline = time.monotonic() + limit
    last = None
    while True:
        is_last = time.monotonic() >= deadline
        try:
            value = condition()
            if value:
                return value
            last = None
        except AssertionError as error:
            last = error
        if is_last:
            raise NotYet(f"{what} did not come true within {limit} s" + (f": {last}" if last else "")) from last
        pause(every)
