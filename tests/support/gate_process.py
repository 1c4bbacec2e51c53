"""The gate in C (tests/integration/gate_process.c), asked line by line."""
import os
import subprocess

from waiting import eventually


class GateProcess:
    def __init__(self, place, resources_max=0):
        environment = dict(os.environ, **place.environment())
        self.process = subprocess.Popen([place.program("gate_process"), "gate", str(resources_max)], env=environment, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"gate_process ended with {self.process.wait(10)}"
        return answer.split()

    def admit(self, resource, grant, effect=0):
        return self.say("admit", resource, grant["fence"], grant["claim_id"], effect)[0]

    def done(self, resource, grant, effect):
        assert self.say("done", resource, grant["fence"], grant["claim_id"], effect) == ["ok"]

    def poll(self):
        """records, is_ready, resources, forgotten"""
        records, ready, resources, forgotten = self.say("poll", 50)
        return int(records), ready == "ready", int(resources), int(forgotten)

    def wait_ready(self):
        eventually(lambda: self.poll()[1], 60, "the gate is ready")
        return self

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
