"""worker_probe processes: services that work with liblease-worker, as tests see them."""
import json
import os
import queue
import signal
import subprocess
import threading

from waiting import eventually


class Probe:
    """One process. `events` is everything it said, in order; each has `what` and `at` (its monotonic clock, in seconds).
    `link`: the BrokerLink through which it reaches the broker."""

    def __init__(self, place, log, side, kind, link=None, **settings):
        self.events = []
        self.log = log
        environment = dict(os.environ, LEASE_BROKERS=place.kafka.brokers, LEASE_TOPIC_PREFIX=place.prefix)
        words = [f"{name}={value}" for name, value in settings.items()]
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *(link.prefix if link else []),
                                             place.program("worker_probe"), side, kind, *words],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment,
                                            start_new_session=True, text=True)
        self._lines = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.holder = self.wait_for("started")["holder"]

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line)

    def poll(self):
        while not self._lines.empty():
            self.events.append(json.loads(self._lines.get()))

    def find(self, what, **members):
        """All events of that kind with these members, so far."""
        self.poll()
        return [event for event in self.events
                if event["what"] == what and all(event.get(name) == value for name, value in members.items())]

    def wait_for(self, what, limit=60, count=1, **members):
        """The count-th such event."""
        def there():
            found = self.find(what, **members)
            assert len(found) >= count, f"{len(found)} of {count} came; the last events: {self.events[-5:]} {[e for e in self.events if e['what'] != 'effect']}; {self.log_tail()}"
            return found[count - 1]

        return eventually(there, limit, f"{what} {members} of {os.path.basename(self.log)}", every=0.005)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask_past_busy(self, line):
        """The first answer that is not `busy`: that one says to ask again in a moment, because a renewal, say, has the row in hand."""
        def decided():
            answer = self.ask(line)
            return answer if answer["outcome"] != "busy" else None

        return eventually(decided, 60, f"an answer to {line} that stands")

    def ask(self, line, answer="answer", limit=60):
        """Says a line and returns the next event of the kind that answers it."""
        before = len(self.find(answer))
        self.say(line)
        return self.wait_for(answer, limit, before + 1)

    def stats(self):
        return self.ask("stats", "stats")

    def freeze(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait(30)

    def end(self, limit=60):
        """In order, if it still can."""
        if self.process.poll() is None:
            self.thaw()
            try:
                self.say("end")
                self.process.wait(limit)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait(10)
        self.poll()
        return self.process.returncode

    def log_tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()[-2000:]


class Probes:
    def __init__(self, place):
        self.place = place
        self.started = []

    def _start(self, *words, **settings):
        log = os.path.join(self.place.folder, f"probe{len(self.started) + 1}.log")
        probe = Probe(self.place, log, *words, **settings)
        self.started.append(probe)
        return probe

    def pool(self, kind="cleanup", **settings):
        return self._start("pool", kind, **settings)

    def run(self, kind="settlement", **settings):
        return self._start("run", kind, **settings)

    def end(self):
        for probe in self.started:
            probe.end()
