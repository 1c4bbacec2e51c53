"""Messages without end, right ones changed at random, against two judges: the coordinator's decoder, and an independent JSON parser with
Python's jsonschema and the files of schemas/. Where these disagree it is for one of the reasons in DIFFERENCES, or it is a defect.

By hand, for longer: pytest -s test_differential.py --count 200000 [--seed N]"""
import copy
import datetime
import json
import random
import re

import pytest

import examples
import strict_json

STRUCTURED = [("content-type", "application/cloudevents+json")]
IDENTITY = ("specversion", "id", "source", "type", "subject")
INTEGERS = {"fence", "ttl_ms", "count", "delay_ms", "credit_total", "refresh", "wait_ms", "park_ms"}
BY_TEXT = {"payload", "result", "new", "old", "items"}      # members whose own text is looked up
MEDIA = ["application/json", "text/json", "application/x+json", "APPLICATION/Json", " application/json ", "application/json;charset=UTF-8",
         "application/json; charset=\"utf-8\"", "application/json; charset=utf-16", "application/xml", "json", "", "application/jsonx"]


# ---- the case, and what the schemas say of it -----------------------------------------------------------------------------

class Case:
    """A record's value, and its attributes if they are headers."""

    def __init__(self, value, headers=None, key=examples.SUBJECT):
        self.value, self.headers, self.key = value, headers, key
        self.event = self.why = None
        self.numbers = []
        try:
            root, self.numbers = strict_json.parse(value)
        except (strict_json.NotJson, RecursionError) as error:
            self.why = str(error) or "nested"
            return
        if not isinstance(root, dict):
            self.why = "no object"
        elif headers is None:
            self.event = root
        else:
            self.event = {**headers, "data": root}

    @property
    def data(self):
        data = self.event.get("data") if self.event else None
        return data if isinstance(data, dict) else {}

    @property
    def items(self):
        items = self.data.get("items")
        return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []

    def message(self):
        headers = STRUCTURED if self.headers is None else [(f"ce_{name}", value) for name, value in self.headers.items()]
        return self.key, self.value, headers


class Judge:
    def __init__(self, schemas):
        self.event = schemas.validators["event.json"][-1]
        self.parts = {name: self.event.evolve(schema=self.event.schema["properties"][name]) for name in IDENTITY}

    def verdict(self, case):
        if case.event is None:
            return "dead_letter", case.why
        for name in IDENTITY:
            if name not in case.event or not self.parts[name].is_valid(case.event[name]):
                return "dead_letter", name
        error = next(self.event.iter_errors(case.event), None)
        return ("accepted", None) if error is None else ("malformed", f"{error.json_path}: {error.message}")


# ---- where the two may differ ----------------------------------------------------------------------------------------------

def _walk(value, depth=1):
    yield value, depth
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, depth
            yield from _walk(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, depth + 1)


def _has_text(case, pattern):
    return any(isinstance(value, str) and re.search(pattern, value) for value, _ in _walk(case.event))


def _without_strings(case):
    return re.sub(rb'"(?:[^"\\]|\\.)*"', b'""', case.value, flags=re.DOTALL)


def _is_deep(case):
    containers = [depth for value, depth in _walk(case.event) if isinstance(value, (dict, list))]
    return max(containers, default=0) - (0 if case.headers is None else 1) > 32


def _is_long_number(text):
    exponent = re.search(r"[eE][+-]?([0-9]+)$", text)
    return len(text) > 64 or (exponent is not None and len(exponent.group(1)) > 4)


def _has_escaped_name(case):
    if case.headers is None and any(name == "data" and name.is_escaped for name in case.event):
        return True
    return any(name in BY_TEXT and getattr(name, "is_escaped", False) for part in (case.data, *case.items) for name in part)


def _holder_is_another(case):
    is_bound = case.event["type"].endswith(".claim") or "items" in case.data
    return is_bound and "holder" in case.data and case.data["holder"] != case.event["subject"]


def _lease_stands_twice(case):
    leases = [item.get("lease") for item in case.items]
    return len(set(map(str, leases))) < len(leases)


def _is_no_time(case):
    """In the form, and yet no moment: PostgreSQL would change it."""
    time = case.event.get("time")
    match = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?(?:[Zz]|[+-](\d\d):(\d\d))", time, re.ASCII) if isinstance(time, str) else None
    if match is None:
        return False
    numbers = [int(part or 0) for part in match.groups()]
    try:
        datetime.datetime(*numbers[:6])
    except ValueError:
        return True
    return numbers[6] > 23 or numbers[7] > 59


def _media(case):
    media = case.event.get("datacontenttype")
    return media if case.headers is None and isinstance(media, str) else None


def _is_other_charset(case):
    charset = re.search(r"charset=(.*)", _media(case) or "", re.IGNORECASE | re.DOTALL)
    return charset is not None and not re.match(r"\"?utf-8|us-ascii", charset.group(1), re.IGNORECASE)


def _is_loosely_json(case):
    """Not as the schema writes it, and yet JSON."""
    media = _media(case)
    if media is None or not (media != media.lower() or " " in media or "\n" in media or media.startswith("+")):
        return False
    name = media.partition(";")[0].strip(" ").lower()
    return name in ("application/json", "text/json") or name.endswith("+json")


# One row per reason: what the decoder says, when, why no schema says it, and a case that shows the row to be needed. In the decoder's
# order: the first that applies counts.
DIFFERENCES = [
    ("dead_letter", lambda case: _has_text(case, "\0"),
     "\\u0000: neither text nor jsonb of PostgreSQL holds it; the schema looks into no payload",
     ("request", {"payload": {"a": "x\0"}}, None)),
    ("dead_letter", lambda case: _has_text(case, "[\ud800-\udfff]"),
     "half a surrogate pair is no character; JSON's grammar takes its escape",
     ("request", {"payload": {"a": "\ud800"}}, None)),
    ("dead_letter", _is_deep, "a bound that is kept before anything is parsed; schemas know none of depth",
     ("request", {"payload": {"a": json.loads("[" * 30 + "]" * 30)}}, None)),
    ("dead_letter", lambda case: len(re.findall(rb"[\[{,]", _without_strings(case))) > 20000, "likewise, of members and elements in all",
     ("request", {"payload": {"a": [0] * 20000}}, None)),
    ("dead_letter", lambda case: re.search(rb"[ \t\n\r]{4097}", _without_strings(case)), "likewise, of white space in one place",
     ("request", {"payload": {}}, lambda text: text.replace(b"{", b"{" + b" " * 4097, 1))),
    ("dead_letter", lambda case: any(map(_is_long_number, case.numbers)), "likewise, of digits: no reader of ours holds such a number",
     ("request", {"payload": {"a": 5}}, lambda text: re.sub(rb"\b5\b", b"1e00001", text))),
    ("malformed", lambda case: case.key != case.event["subject"], "key and subject are compared; a schema sees no key",
     ("renew", examples.GRANT, lambda text: text.replace(b"settlement/2026-06", b"settlement/2026-07", 1))),
    ("malformed", _is_no_time, "a pattern knows no calendar",
     ("renew", examples.GRANT, lambda text: text[:-1] + b', "time": "2026-02-29T00:00:00Z"}')),
    ("malformed", _is_other_charset, "a charset other than UTF-8; the pattern ends at the first semicolon",
     ("renew", examples.GRANT, lambda text: text[:-1] + b', "datacontenttype": "application/json; charset=utf-16"}')),
    ("malformed", _has_escaped_name, "a member that is kept as its own text is looked up by its plain name",
     ("finish", {**examples.GRANT, "result": {}}, lambda text: text.replace(b'"result"', b'"r\\u0065sult"'))),
    ("malformed", lambda case: any(isinstance(value, strict_json.Real) for part in (case.data, *case.items)
                                   for name, value in part.items() if name in INTEGERS),
     "1.0, 1e0 and -0 are integers for a schema; here a number of the protocol is written as one",
     ("begin", {**examples.GRANT, "count": 7}, lambda text: re.sub(rb"\b7\b", b"7.0", text))),
    ("malformed", _holder_is_another, "two members are compared", ("claim", {"holder": "other", "credit_total": 1, "refresh": 0}, None)),
    ("malformed", _lease_stands_twice, "items are compared by one member of theirs",
     ("renew", examples.many(examples.item("a"), examples.item("a", fence=1)), None)),
    ("malformed", lambda case: any(len(json.dumps(part[name], ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")) > 65536
                                   for part in (case.data, *case.items) for name in BY_TEXT - {"items"} if isinstance(part.get(name), dict)),
     "bytes of a whole object; schemas count no bytes", ("request", {"payload": {"a": "x" * 65536}}, None)),
]


def expected(case, judge):
    """The verdict that the decoder must give, and why."""
    verdict, why = judge.verdict(case)
    if verdict == "malformed" and _is_loosely_json(case):
        # The one thing that the decoder takes and the schema does not: names of media types are of either case, with space around them.
        plain = copy.copy(case)
        plain.event = {**case.event, "datacontenttype": "application/json"}
        verdict, why = judge.verdict(plain)
    if verdict == "dead_letter" and case.event is None:
        return verdict, why
    for says, applies, reason, _example in DIFFERENCES:
        if verdict != "dead_letter" or says == "dead_letter":
            if applies(case):
                return says, reason
    return verdict, why


# ---- cases at random -------------------------------------------------------------------------------------------------------

def _numbers(chance):
    return chance.choice((0, 1, -1, 7, 2 ** 31, 2 ** 53 - 1, 2 ** 53, 2 ** 63 - 1, 2 ** 63, 10 ** 18, 86400000, 86400001, 2592000000, 2592000001, 1.5,
                          chance.randrange(2 ** 54), -chance.randrange(1000)))


def _texts(chance):
    letters = "aZ0._:@/+=-" * 3 + " \u00e9\u202e\u0301\t\x1b\x7f\x9b\0%'<*\uff11\U0001f600"
    if chance.random() < 0.5:
        return chance.choice(("", "..", "a/b", "a/../b", "a//b", "/a", "a/", "a", "done", "extend", "infinity", "2026-06-30T23:59:60Z", "2024-02-29t01:02:03.5+23:59",
                              "0000-01-01T00:00:00Z", "x" * 64, "x" * 65, "x" * 128, "x" * 129, "x" * 200, "x" * 201, "\u00fc" * 500, "\u00fc" * 501, "1.0", "0.3",
                              "settlement.renew", "cleanup.claim", "settlement.explode", "Settlement.renew", ".renew", "k" * 33 + ".renew", examples.CLAIM_ID, examples.CLAIM_ID.upper(),
                              "00000000-0000-0000-0000-000000000000", examples.TOKEN, examples.SUBJECT, *MEDIA))
    return "".join(chance.choice(letters) for _ in range(chance.randrange(1, 8)))


def _values(chance):
    kind = chance.randrange(10)
    if kind < 3:
        return _numbers(chance)
    if kind < 7:
        return _texts(chance)
    if kind == 7:
        return chance.choice((None, True, False))
    if kind == 8:
        return [_values(chance) for _ in range(chance.randrange(3))]
    return {_texts(chance): _values(chance) for _ in range(chance.randrange(3))}


NAMES = ["holder", "fence", "claim_id", "token", "ttl_ms", "resources", "more", "tables", "payload", "result", "count", "step", "reason", "retry", "delay_ms",
         "credit_total", "refresh", "wait_ms", "items", "lease", "actor", "verdict", "editor", "new", "old", "follows", "park_ms", "edit", "data_base64", "time",
         "datacontenttype", "subject", "id", "type", "unknown"]


def _change(chance, event):
    """One change somewhere in it, nearer to the top more often."""
    place, name = {"": event}, ""
    while isinstance(place[name], (dict, list)) and place[name] and (name in ("", "data") or chance.random() < 0.75):
        place = place[name]
        name = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        if place is event and "data" in event and chance.random() < 0.7:
            name = "data"
    what = chance.random()
    if place is event and name == "":
        return
    if what < 0.15:
        del place[name]
    elif what < 0.35 and isinstance(place, dict):
        place[chance.choice(NAMES)] = _values(chance)
    elif what < 0.4 and isinstance(place, list):
        place.append(copy.deepcopy(place[name]))
    elif what < 0.5 and isinstance(place[name], str):
        at = chance.randrange(len(place[name]) + 1)
        place[name] = place[name][:at] + _texts(chance) + place[name][at:]
    elif what < 0.6 and isinstance(place[name], int):
        place[name] += chance.choice((-1, 1, 2 ** 53))
    else:
        place[name] = _values(chance)


def _write_text(chance, text):
    written = json.dumps(text, ensure_ascii=chance.random() < 0.5)
    if text and chance.random() < 0.04:
        at = chance.randrange(len(text))
        written = json.dumps(text[:at])[:-1] + "".join(f"\\u{ord(unit):04x}" for unit in text[at] if ord(unit) < 65536) + json.dumps(text[at + 1:])[1:]
    return written


def _write(chance, value):
    """As JSON, in one of the ways in which it can be written."""
    gap = " " * chance.randrange(3) if chance.random() < 0.1 else ""
    if isinstance(value, dict):
        members = list(value.items())
        if chance.random() < 0.2:
            chance.shuffle(members)
        if members and chance.random() < 0.004:
            members.append(chance.choice(members))
        return "{" + gap + ",".join(_write_text(chance, name) + ":" + gap + _write(chance, inner) for name, inner in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(gap + _write(chance, inner) for inner in value) + "]"
    if isinstance(value, str):
        return _write_text(chance, value)
    if isinstance(value, int) and not isinstance(value, bool) and chance.random() < 0.03:
        return chance.choice(("{}.0", "{}e0", "{}E+0", "-{}", "+{}", "0{}", "{}.", "{}e99999", "{}" + "0" * 60)).format(value)
    return json.dumps(value)


def _damage(chance, text):
    """Bytes changed without a thought for JSON."""
    data = bytearray(text)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        what = chance.randrange(4)
        if what == 0:
            del data[at:at + chance.randrange(1, 4)]
        elif what == 1:
            data[at:at] = chance.choice((b",", b"]", b"}", b"\"", b"\\", b"\0", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"//", b"NaN", b"\n", b"1", b"-", b"e", b".",
                                         b"\\u0000", b"\\ud800", b"\\ud83d\\ude00", b"[" * 40, b"{}"))
        elif what == 2 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        else:
            del data[at:]
    return bytes(data)


SMALL = [(command, data) for command, rows in examples.GOOD.items() for data in rows if len(json.dumps(data)) < 3000]


def make_case(chance):
    command, data = chance.choice(SMALL)
    event = copy.deepcopy(examples.event(command, data))
    is_binary = chance.random() < 0.25
    if chance.random() < 0.2:
        event["time"] = _texts(chance) if chance.random() < 0.5 else "2026-06-30T23:59:59Z"
    if chance.random() < 0.1 and not is_binary:
        event["datacontenttype"] = chance.choice(MEDIA)
    headers = {name: event[name] for name in event if name != "data"} if is_binary else None
    if is_binary and not all(isinstance(value, str) and value.isprintable() and value for value in headers.values()):
        headers["time"] = "2026-06-30T23:59:59Z"
    target = event["data"] if is_binary else event
    for _ in range(chance.choice((0, 1, 1, 1, 1, 2, 3))):
        _change(chance, target)
    text = _write(chance, target).encode("utf-8", "surrogatepass")
    if chance.random() < 0.12:
        text = _damage(chance, text)
    return Case(text, headers)


# ---- tests -----------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def judge(schemas):
    return Judge(schemas)


@pytest.mark.parametrize("row", DIFFERENCES, ids=[row[2][:40] for row in DIFFERENCES])
def test_difference__is_one(row, judge, probe):
    says, applies, _why, (command, data, change) = row
    text = json.dumps(examples.event(command, data)).encode()
    case = Case(change(text) if change else text)
    assert judge.verdict(case)[0] == "accepted" and applies(case)
    assert expected(case, judge)[0] == says
    assert probe.decode([case.message()])[0]["verdict"] == says


def test_messages_at_random__decoder_and_schemas_agree(pytestconfig, judge, probe):
    seed, count = pytestconfig.getoption("seed"), pytestconfig.getoption("count")
    print(f"seed {seed}, {count} messages")
    chance = random.Random(seed)
    verdicts = {}
    while count > 0:
        cases = [make_case(chance) for _ in range(min(count, 5000))]
        count -= len(cases)
        for case, said in zip(cases, probe.decode([case.message() for case in cases])):
            verdict, why = expected(case, judge)
            assert said["verdict"] == verdict, f"seed {seed}: {case.value!r} with headers {case.headers}\nexpected {verdict}: {why}\n" \
                f"the decoder says {said['verdict']}, {said['reason']}, {said['field']}"
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
    print(verdicts)
    assert len(verdicts) == 3 and min(verdicts.values()) * 20 > max(verdicts.values()), verdicts      # each was really tried
