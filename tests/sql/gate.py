"""The SQL gate for tests: loading sql/gate/gate.sql (also with a protection switched off), and the rule a second time, in plain words."""
import os
import secrets
import uuid

import psycopg2

from rules import ROOT

FILE = os.path.join(ROOT, "sql", "gate", "gate.sql")
STALE, DUPLICATE, ADMIT = "stale", "duplicate", "admit"
FENCE_MAX = 2 ** 53 - 1

# What a gate would be without one of its protections: text of the file, and what stands there instead.
WITHOUT = {
    "the compare": [("p_fence < v_fence OR (p_fence", "(p_fence"), ("WHERE r.fence < EXCLUDED.fence AND", "WHERE r.fence <> EXCLUDED.fence AND")],
    "the look behind the lock": [("WHERE r.fence < EXCLUDED.fence AND", "WHERE r.fence <> EXCLUDED.fence AND")],
    "the claim id": [("OR (p_fence = v_fence AND p_claim_id <> v_claim)", ""), ("p_fence = v_fence AND p_claim_id = v_claim AND", "p_fence = v_fence AND")],
    "the floor": [("OR p_fence < v_floor ", ""), ("AND r.min_fence <= EXCLUDED.fence", ""), ("AND p_fence >= v_floor", "")],
    "the compare of the set": [("OR c.fence < c.highest OR", "OR"), ("AND r.fence < j.fence)", "AND r.fence <> j.fence)")],
    "the claim id of the set": [(" OR c.claim <> c.claim_of_fence AS", " AS")],
    "the floor of the set": [("NOT c.is_above_floor OR ", "")],
    "the base": [("p_fence < v_base OR ", ""), ("IF p_fence < (SELECT b.last_value", "IF false AND p_fence < (SELECT b.last_value")],
    "the base of the set": [("greatest(r.min_fence, v_base)", "r.min_fence")],
    "the base behind the lock": [("IF p_fence < (SELECT b.last_value", "IF false AND p_fence < (SELECT b.last_value")],
    "the memory of effects": [("    IF NOT FOUND THEN\n      RETURN 'duplicate';", "    IF false THEN\n      RETURN 'duplicate';")],
}


def text(without=None):
    with open(FILE, encoding="utf-8") as file:
        content = file.read()
    for old, new in WITHOUT.get(without, []):
        assert content.count(old) == 1, f"{old!r} is not once in gate.sql"
        content = content.replace(old, new)
    return content


def load(database, content=None, conninfo=None, settings=()):
    """In one transaction, as psql -1 does."""
    connection = psycopg2.connect(conninfo or database.conninfo)
    try:
        with connection, connection.cursor() as cursor:
            for name, value in settings:
                cursor.execute("SELECT set_config(%s, %s, false)", (name, value))
            cursor.execute(content or text())
    finally:
        connection.close()


def forget_all(database):
    database.query("TRUNCATE lease_gate.resource, lease_gate.effect; SELECT setval('lease_gate.base', 0, false)")


def stranger(database):
    """The name and the conninfo of a new account without any rights."""
    name, password = f"gate_stranger_{secrets.token_hex(4)}", secrets.token_hex(16)
    database.query(f'CREATE ROLE "{name}" LOGIN PASSWORD %s', (password,))
    database.server.logins.append(name)
    return name, database.server.conninfo(database.name, user=name, password=password)


def claim(number):
    """The claim id with that number."""
    return str(uuid.UUID(int=number))


class Reference:
    """The rule, entry by entry, with nothing clever in it."""

    def __init__(self):
        self.highest, self.floor, self.effects, self.base = {}, {}, set(), 0

    def admit(self, resource, fence, claim_id, effect=None):
        highest, its_claim = self.highest.get(resource, (0, None))
        if fence < max(self.base, self.floor.get(resource, 0)) or fence < highest or (fence == highest and claim_id != its_claim):
            return STALE
        self.highest[resource] = (fence, claim_id)
        if effect is None:
            return ADMIT
        is_done = (resource, effect) in self.effects
        self.effects.add((resource, effect))
        return DUPLICATE if is_done else ADMIT

    def raise_floor(self, resource, fence):
        self.floor[resource] = max(self.floor.get(resource, 0), fence)


class Books:
    """Effects as they landed, in their order: what must be true of them whatever happened on the way. Rows: (seq, what, resource,
    fence, claim, effect), `what` being effect or floor."""

    def __init__(self, rows):
        self.wrong = []
        highest, floor, done = {}, {}, set()
        for seq, what, resource, fence, claim_id, effect in sorted(rows):
            if what == "floor":
                floor[resource] = max(floor.get(resource, 0), fence)
            else:
                before, its_claim = highest.get(resource, (0, None))
                self.check(fence >= before, seq, f"{resource}: fence {fence} landed after {before}")
                self.check(fence != before or claim_id == its_claim, seq, f"{resource}: two claims under fence {fence}")
                self.check(fence >= floor.get(resource, 0), seq, f"{resource}: fence {fence} landed below the floor {floor.get(resource)}")
                self.check(effect is None or (resource, effect) not in done, seq, f"{resource}: effect {effect} landed twice")
                done.add((resource, effect))
                if fence >= before:
                    highest[resource] = (fence, claim_id)

    def check(self, is_right, seq, what):
        if not is_right:
            self.wrong.append(f"{seq}: {what}")
