# ctest: LABEL failover TIMEOUT 600
"""Ten thousand edits of rows that a run covers, sent while it runs; the coordinator and PostgreSQL are killed in the middle of taking them in and of
making them. Afterwards every edit was made once, in its order, or bounced with its reason.

What would go wrong: an edit made and its answer lost, so that it is made again; one that is parked twice, or overtaken by a later one of its row.
"""
from harness import eventually

ROWS = 100
EDITS = 100             # of each row
STALE = 7               # every so many rows, one edit was made up on what is not there any more
SETUP = f"""
  CREATE TABLE public.contract (id int PRIMARY KEY, version int NOT NULL, edits int NOT NULL DEFAULT 0);
  INSERT INTO public.contract SELECT i, 0 FROM generate_series(1, {ROWS}) i;
  CREATE FUNCTION public.count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.edits := OLD.edits + 1; RETURN NEW; END $$;
  CREATE TRIGGER counted BEFORE UPDATE OF version ON public.contract FOR EACH ROW EXECUTE FUNCTION public.count();
  SELECT lease.guard_table('public.contract', 'contract', ARRAY['version']);
  SELECT lease.allow_edits('contract');
"""


class Edits:
    """A chain for each row: each edit was made on what the one before it makes of the row."""

    def __init__(self, events):
        self.events, self.sent = events, {}

    def send(self, numbers):
        for number in numbers:
            for row in range(1, ROWS + 1):
                old = 1000 if row % STALE == 0 and number == EDITS else number - 1
                identity = self.events.send("contract", "edit", f"contract/{row}",
                                            {"editor": "ann", "old": {"version": old}, "new": {"version": number}})
                self.sent[identity] = (row, number, "bounced" if old == 1000 else "applied")
        self.events.flush()


def until(client, condition, limit, what):
    def is_met():
        client.results.poll()
        return condition()
    eventually(is_met, limit, what)


def answers(client):
    """Message → the outcomes of it, in order."""
    told = {}
    for record in client.results.records:
        if record.value["kind"] == "contract":
            told.setdefault(record.value["command"]["id"], []).append(record.outcome)
    return told


def test_ten_thousand_edits_are_each_made_once_whatever_dies(world):
    server = world.server("server")
    place = world.place(server)
    place.database.query(SETUP)
    coordinator = place.coordinator().start()
    client = world.client(place)
    grant = client.take("settlement-1", resources=[f"contract/{row}" for row in range(1, ROWS + 1)])
    edits = Edits(client.events)
    edits.send(range(1, EDITS // 2))
    coordinator.kill()                          # while it takes them in
    coordinator.start()
    edits.send(range(EDITS // 2, EDITS + 1))
    server.crash()
    server.start()
    until(client, lambda: len(answers(client)) == ROWS * EDITS, 90, "every edit has its first answer")
    assert set(map(tuple, answers(client).values())) == {("parked",)}
    assert place.database.value("SELECT count(*) FROM lease.parked_edits") == ROWS * EDITS
    assert place.database.value("SELECT max(version) FROM public.contract") == 0

    client.send_as(grant, "finish")
    client.events.flush()
    made = "SELECT sum(version) FROM public.contract"
    for step in (1, 2, 3):                      # while they are made
        until(client, lambda at=step: place.database.value(made) > at * ROWS * EDITS / 5, 60, "edits are made")
        if step == 2:
            server.crash()
            server.start()
        else:
            coordinator.kill()
            coordinator.start()
    until(client, lambda: sum(len(outcomes) for outcomes in answers(client).values()) >= 2 * ROWS * EDITS, 90, "every edit is made or bounced")
    place.wait_idle()                           # a second answer would be there now
    client.results.read_all()
    told = answers(client)
    assert {identity: tuple(outcomes) for identity, outcomes in told.items()} == {
        identity: ("parked", outcome) for identity, (_, _, outcome) in edits.sent.items()}
    rows = place.database.query("SELECT id, version, edits FROM public.contract ORDER BY id")
    assert rows == [(row, EDITS - (row % STALE == 0), EDITS - (row % STALE == 0)) for row in range(1, ROWS + 1)]
    assert place.database.value("SELECT count(*) FROM lease.parked_edits") == 0
