"""The demo: two stories played with leasectl on real parts, as a person would type them.

Each step prints what happens, the command and its answer, and is checked: a demo that shows something else fails.
"""
import os
import shlex
import subprocess
import sys
import textwrap
import time

WIDTH = 110


class Teller:
    """Prints and runs. Files that a command writes (grants) land in a folder of the demo's own."""

    def __init__(self, place, tell):
        self.place = place
        self.tell = tell
        is_terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.bold, self.dim, self.plain = ("\033[1m", "\033[2m", "\033[0m") if is_terminal else ("", "", "")

    def chapter(self, title):
        self.tell(f"\n{self.bold}{title}{self.plain}")

    def says(self, text):
        self.tell("\n" + textwrap.fill(text, WIDTH))

    def types(self, line, expect, code=0):
        """Runs one leasectl line and shows it with its answer; `expect` must be in the answer."""
        self.tell(f"{self.bold}$ leasectl {line}{self.plain}")
        environment = dict(os.environ)
        environment.update(self.place.environment())
        done = subprocess.run([self.place.program("leasectl"), *shlex.split(line)], env=environment, cwd=self.place.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60)
        for output, start, end in ((done.stdout, "", ""), (done.stderr, self.dim, self.plain)):
            for shown in output.rstrip().splitlines():
                self.tell(f"  {start}{shown}{end}")
        if done.returncode != code or expect not in done.stdout:
            raise RuntimeError(f"the demo expected '{expect}' and exit code {code}, and got {done.returncode}; "
                               f"the end of the coordinator's log:\n{self.place.coordinators[0].child.log_tail(15)}")


def play(place, tell):
    begun = time.monotonic()
    place.prepare()
    place.coordinator().start()
    tell(f"tables and topics are made, a coordinator runs ({time.monotonic() - begun:.1f} s)")
    teller = Teller(place, tell)
    settlement(teller)
    cleanup(teller)
    tell(f"\n{time.monotonic() - begun:.0f} s. ./dev up leaves such a system running; README.md tells the rest.")


def settlement(teller):
    says, types = teller.says, teller.types
    teller.chapter("A settlement, paused at the wrong moment")
    says("Run A starts the settlement of June and takes the contracts it reads. Its lease lasts 3 seconds unless it is "
         "renewed. The grant has a number, the fence.")
    types("send settlement.start royalty-2026-06 holder=run-a ttl_ms=3000 "
          "resources:='[\"album/7\",\"track/501\"]' --wait --grant-to run-a.json", "granted")
    says("Run B tries the same settlement and is refused at once; the answer says who has it and until when. So is a "
         "correction run that needs one of the same contracts.")
    types("send settlement.start royalty-2026-06 holder=run-b --wait", "held", 1)
    types("send settlement.start correction-12 holder=run-c resources:='[\"track/501\"]' --wait", "held", 1)
    says("Run A renews: three more seconds from now.")
    types("send settlement.renew --grant run-a.json ttl_ms=3000 --wait", "renewed")
    says("Now run A is paused (a long collection of garbage, a stopped container). Nobody renews, the lease lapses, and "
         "everybody downstream is told at once which fences no longer count.")
    types("tail results --lease settlement/royalty-2026-06 --outcome lapsed --follow --count 1 --wait 15", "lapsed")
    says("Run B takes over. Its fence is higher.")
    types("send settlement.start royalty-2026-06 holder=run-b resources:='[\"album/7\",\"track/501\"]' "
          "--wait --grant-to run-b.json", "granted")
    says("Run A wakes up, knows nothing of this, and reports that it has finished. Its fence is outdated: stale.")
    types("send settlement.finish --grant run-a.json --wait", "stale", 1)
    says("Run B finishes. The settlement has ended, and stays so.")
    types("send settlement.finish --grant run-b.json result:='{\"rows\":1000}' --wait", "finished")
    says("What happened, from the journal in PostgreSQL:")
    types("timeline settlement/royalty-2026-06", "stale")


def cleanup(teller):
    says, types = teller.says, teller.types
    teller.chapter("A file to clean up, and a worker that died")
    says("A file is to be deleted and its quota settled: an item in the pool. Worker 1 claims it, and dies.")
    types("send cleanup.request file/2101 payload:='{\"path\":\"/srv/2101\",\"bytes\":4096}' --wait", "requested")
    types("send cleanup.claim worker-1 credit_total=1 refresh=1 ttl_ms=1500 --wait --grant-to worker-1.json", "granted")
    says("Worker 2 asks too. Nothing is there now, so its demand stays open. Worker 1's lease lapses, the item is ready "
         "again after a pause, and goes to worker 2 with a higher fence: attempt 2.")
    types("send cleanup.claim worker-2 credit_total=1 refresh=1 wait_ms=20000 --wait=20 --grant-to worker-2.json", "waiting")
    types("tail results --lease cleanup/file/2101", "lapsed")
    says("Worker 1 was not dead, only slow. It reports success, and is refused: the item is worker 2's.")
    types("send cleanup.finish --grant worker-1.json --wait", "stale", 1)
    types("send cleanup.finish --grant worker-2.json --wait", "finished")
    types("timeline cleanup/file/2101", "finished")
