"""Commands as a producer would send them, and one row per thing that can be wrong with them.

A fault is (what, command, change to its data, reason, field, can the schema say so?). Changes: a value of REMOVE takes
the member out. The schema cannot say what JSON Schema has no words for: it takes 1.0 for an integer, cannot count bytes
and cannot compare two members."""

SUBJECT = "settlement/2026-06"
CLAIM_ID = "0198c0de-0000-7000-8000-000000000001"
TOKEN = "0123456789abcdef" * 4
GRANT = {"holder": "run-1@host-7", "fence": 4294967297, "claim_id": CLAIM_ID, "token": TOKEN}
WORD = {"actor": "ann@example.org", "reason": "the disk's log shows that it is gone"}
REMOVE = object()


def item(lease="file-1", **more):
    """One of a command over many items."""
    return {"lease": lease, "fence": 4294967297, "claim_id": CLAIM_ID, "token": TOKEN, **more}


def many(*items, **more):
    """The data of a command over many items: its subject is their holder."""
    return {"holder": SUBJECT, "items": list(items), **more}


GOOD = {
    "start": [
        {"holder": "run-1"},
        {"holder": "run-1", "ttl_ms": 30000, "resources": ["album/1", "track/a:b@c+d=e-f_g.h/i"], "payload": {"share": 0.7}},
        {"holder": "run-1", "more": True, "tables": ["album", "track"]},
        {"holder": "run-1", "more": False, "resources": ["album/%05d" % i for i in range(10000)]},
        {"holder": "h" * 200, "ttl_ms": 86400000},
        {"holder": "run-1", "resources": ["album/1"], "wait_ms": 86400000, "refresh": 9007199254740991},
    ],
    "cover": [{**GRANT, "resources": ["album/1"]}],
    "begin": [{**GRANT, "count": 0}, {**GRANT, "count": 1000000}],
    "request": [{}, {"payload": {}, "delay_ms": 2592000000}, {"payload": {"file": {"id": 7, "tags": ["a", None]}}}],
    "claim": [
        {"credit_total": 12, "refresh": 0},
        {"holder": SUBJECT, "credit_total": 1, "refresh": 9007199254740991, "wait_ms": 0, "ttl_ms": 1},
    ],
    "renew": [
        GRANT, {**GRANT, "ttl_ms": 1}, {**GRANT, "fence": 9007199254740991}, {**GRANT, "fence": 1},
        many(item()), many(item("a"), item("b/c", fence=1), ttl_ms=1), many(*(item("item-%04d" % i) for i in range(1000))),
    ],
    "advance": [{**GRANT, "step": "calculated"}, {**GRANT, "step": "a" * 64}],
    "finish": [GRANT, {**GRANT, "result": {"bytes": 1, "cost": 1e-7}}, many(item("a", result={"bytes": 1, "cost": 1e-7}), item("b"))],
    "fail": [
        {**GRANT, "reason": "disk full"},
        {**GRANT, "reason": "\u00fc" * 500, "retry": False, "delay_ms": 0},
        {**GRANT, "reason": "'; drop table x; -- <b>%n%s $$ \u202e", "retry": True},
        many(item("a", reason="disk full"), item("b", reason="\u00fc" * 500, retry=False, delay_ms=0)),
    ],
    "release": [GRANT, many(item("a"), item("b"))],
    "resolve": [
        {**WORD, "verdict": "done", "fence": None},
        {**WORD, "verdict": "not_done", "fence": 9007199254740991},
        {**WORD, "verdict": "extend", "fence": 1, "ttl_ms": 86400000},
    ],
    "edit": [
        {"editor": "ann", "old": {"rate": "70"}, "new": {"rate": "60"}},
        {"editor": "ann", "follows": "m-1", "new": {"rate": None, "is_paid": True, "weeks": 3}, "park_ms": 2592000000},
        {"editor": "ann", "follows": "m-1", "old": {"note": ""}, "new": {"rate": "0.000000000000000000001"}, "park_ms": 1},
    ],
    "cancel": [{"editor": "ann", "edit": "m-1"}],
}


def as_many(*items):
    """The change that makes a command over many of one over its subject."""
    return {"fence": REMOVE, "claim_id": REMOVE, "token": REMOVE, "reason": REMOVE, "holder": SUBJECT, "items": list(items)}


def without(whole, name):
    return {key: value for key, value in whole.items() if key != name}


FAULTS = [
    ("fence a string", "renew", {"fence": "12"}, "wrong_type", "fence", True),
    ("fence in full width", "renew", {"fence": "\uff11\uff12"}, "wrong_type", "fence", True),
    ("fence 0", "renew", {"fence": 0}, "out_of_range", "fence", True),
    ("fence -1", "renew", {"fence": -1}, "out_of_range", "fence", True),
    ("fence 2^53", "renew", {"fence": 2 ** 53}, "out_of_range", "fence", True),
    ("fence 2^63", "renew", {"fence": 2 ** 63}, "out_of_range", "fence", True),
    ("fence 1.5", "renew", {"fence": 1.5}, "wrong_type", "fence", True),
    ("fence 1.0", "renew", {"fence": 1.0}, "wrong_type", "fence", False),
    ("fence null", "renew", {"fence": None}, "wrong_type", "fence", True),
    ("fence true", "renew", {"fence": True}, "wrong_type", "fence", True),
    ("fence missing", "renew", {"fence": REMOVE}, "missing", "fence", True),
    ("ttl 0", "renew", {"ttl_ms": 0}, "out_of_range", "ttl_ms", True),
    ("edit without what its author saw", "edit", {"old": REMOVE}, "missing", "old", True),
    ("edit of a list", "edit", {"new": []}, "wrong_type", "new", True),
    ("edit parked for no time", "edit", {"park_ms": 0}, "out_of_range", "park_ms", True),
    ("edit that follows an id with a space", "edit", {"follows": "a b"}, "not_allowed_characters", "follows", True),
    ("edit that follows a number", "edit", {"follows": 1.5}, "wrong_type", "follows", True),
    ("cancel without an editor", "cancel", {"editor": REMOVE}, "missing", "editor", True),
    ("ttl above a day", "start", {"ttl_ms": 86400001}, "out_of_range", "ttl_ms", True),
    ("ttl null", "start", {"ttl_ms": None}, "wrong_type", "ttl_ms", True),
    ("claim id in braces", "finish", {"claim_id": "{" + CLAIM_ID + "}"}, "wrong_type", "claim_id", True),
    ("claim id in upper case", "finish", {"claim_id": CLAIM_ID.upper()}, "wrong_type", "claim_id", True),
    ("claim id nil", "finish", {"claim_id": "00000000-0000-0000-0000-000000000000"}, "wrong_type", "claim_id", True),
    ("claim id with a newline", "finish", {"claim_id": CLAIM_ID + "\n"}, "wrong_type", "claim_id", True),
    ("token short", "finish", {"token": "0123"}, "wrong_type", "token", True),
    ("token in upper case", "finish", {"token": TOKEN.upper()}, "wrong_type", "token", True),
    ("token missing", "release", {"token": REMOVE}, "missing", "token", True),
    ("holder empty", "start", {"holder": ""}, "empty", "holder", True),
    ("holder of 201 bytes", "start", {"holder": "h" * 201}, "too_long", "holder", True),
    ("holder /", "start", {"holder": "/"}, "not_allowed_characters", "holder", True),
    ("holder ..", "start", {"holder": ".."}, "not_allowed_characters", "holder", True),
    ("holder a/../b", "start", {"holder": "a/../b"}, "not_allowed_characters", "holder", True),
    ("holder a/..", "start", {"holder": "a/.."}, "not_allowed_characters", "holder", True),
    ("holder a//b", "start", {"holder": "a//b"}, "not_allowed_characters", "holder", True),
    ("holder with %00", "start", {"holder": "a%00"}, "not_allowed_characters", "holder", True),
    ("holder with a newline", "start", {"holder": "a\n"}, "not_allowed_characters", "holder", True),
    ("holder with an escape", "start", {"holder": "a\x1b[2J"}, "not_allowed_characters", "holder", True),
    ("holder right to left", "start", {"holder": "a\u202eb"}, "not_allowed_characters", "holder", True),
    ("holder with zero width", "start", {"holder": "a\u200bb"}, "not_allowed_characters", "holder", True),
    ("holder in NFC", "start", {"holder": "caf\u00e9"}, "not_allowed_characters", "holder", True),
    ("holder in NFD", "start", {"holder": "cafe\u0301"}, "not_allowed_characters", "holder", True),
    ("holder with SQL", "start", {"holder": "'; drop --"}, "not_allowed_characters", "holder", True),
    ("holder with HTML", "start", {"holder": "<b>"}, "not_allowed_characters", "holder", True),
    ("resources empty", "cover", {"resources": []}, "empty", "resources", True),
    ("resources missing", "cover", {"resources": REMOVE}, "missing", "resources", True),
    ("resources not a list", "cover", {"resources": "album/1"}, "wrong_type", "resources", True),
    ("10,001 resources", "cover", {"resources": ["album/%d" % i for i in range(10001)]}, "too_many", "resources", True),
    ("resource twice", "cover", {"resources": ["album/1", "album/2", "album/1"]}, "repeated", "resources[2]", True),
    ("resource a wildcard", "cover", {"resources": ["album/*"]}, "not_allowed_characters", "resources[0]", True),
    ("resource without id", "cover", {"resources": ["album/1", "album/"]}, "not_allowed_characters", "resources[1]", True),
    ("resource without type", "cover", {"resources": ["album"]}, "not_allowed_characters", "resources[0]", True),
    ("resource a number", "cover", {"resources": [1]}, "wrong_type", "resources[0]", True),
    ("tables without more", "start", {"tables": ["album"]}, "missing", "more", True),
    ("tables with more false", "start", {"tables": ["album"], "more": False}, "missing", "more", True),
    ("table with a slash", "start", {"tables": ["album/1"], "more": True}, "not_allowed_characters", "tables[0]", True),
    ("more a string", "start", {"more": "true"}, "wrong_type", "more", True),
    ("payload a list", "request", {"payload": []}, "wrong_type", "payload", True),
    ("payload too long", "request", {"payload": {"a": "x" * 65536}}, "too_long", "payload", False),
    ("delay negative", "request", {"delay_ms": -1}, "out_of_range", "delay_ms", True),
    ("claim for another", "claim", {"holder": "other"}, "key_mismatch", "holder", False),
    ("credit missing", "claim", {"credit_total": REMOVE}, "missing", "credit_total", True),
    ("count a string", "begin", {"count": "7"}, "wrong_type", "count", True),
    ("step in upper case", "advance", {"step": "Posted"}, "not_allowed_characters", "step", True),
    ("step of 65", "advance", {"step": "s" * 65}, "too_long", "step", True),
    ("reason empty", "fail", {"reason": ""}, "empty", "reason", True),
    ("reason of 501", "fail", {"reason": "\u00fc" * 501}, "too_long", "reason", True),
    ("reason with a control", "fail", {"reason": "a\x1b[2J"}, "not_allowed_characters", "reason", True),
    ("reason with a C1 control", "fail", {"reason": "a\x9b2J"}, "not_allowed_characters", "reason", True),
    ("nobody resolves", "resolve", {"actor": REMOVE}, "missing", "actor", True),
    ("an actor with a space", "resolve", {"actor": "Ann B"}, "not_allowed_characters", "actor", True),
    ("resolved for no reason", "resolve", {"reason": REMOVE}, "missing", "reason", True),
    ("resolved for an empty reason", "resolve", {"reason": ""}, "empty", "reason", True),
    ("resolved unseen", "resolve", {"fence": REMOVE}, "missing", "fence", True),
    ("resolved with fence 0", "resolve", {"fence": 0}, "out_of_range", "fence", True),
    ("no verdict", "resolve", {"verdict": REMOVE}, "missing", "verdict", True),
    ("another verdict", "resolve", {"verdict": "maybe"}, "out_of_range", "verdict", True),
    ("a verdict that is no text", "resolve", {"verdict": True}, "wrong_type", "verdict", True),
    ("extended for ever", "resolve", {"verdict": "extend"}, "missing", "ttl_ms", True),
    ("done for a while", "resolve", {"ttl_ms": 1000}, "unknown_member", "ttl_ms", True),
    ("resolved by a holder", "resolve", {"token": TOKEN}, "unknown_member", "token", True),
    ("retry a number", "fail", {"retry": 0}, "wrong_type", "retry", True),
    ("unknown member", "renew", {"ttl": 30000}, "unknown_member", "ttl", True),
    ("a member of another command", "renew", {"step": "posted"}, "unknown_member", "step", True),
    ("items beside a fence", "renew", {"items": [item()]}, "unknown_member", "fence", True),
    ("no items", "renew", as_many(), "empty", "items", True),
    ("1,001 items", "renew", as_many(*(item("item-%04d" % i) for i in range(1001))), "too_many", "items", True),
    ("items an object", "renew", {**as_many(), "items": item()}, "wrong_type", "items", True),
    ("items of another", "renew", {**as_many(item()), "holder": "other"}, "key_mismatch", "holder", False),
    ("an item a text", "renew", as_many("file-1"), "wrong_type", "items[0]", True),
    ("an item twice", "renew", as_many(item("a"), item("b"), item("a")), "repeated", "items[2].lease", True),
    ("an item twice, in two ways", "renew", as_many(item("a"), item("a", fence=1)), "repeated", "items[1].lease", False),
    ("an item without a lease", "renew", as_many(item("a"), without(item("b"), "lease")), "missing", "items[1].lease", True),
    ("an item without a fence", "finish", as_many(without(item(), "fence")), "missing", "items[0].fence", True),
    ("an item without a claim id", "fail", as_many(without(item(reason="r"), "claim_id")), "missing", "items[0].claim_id", True),
    ("an item without a token", "release", as_many(without(item(), "token")), "missing", "items[0].token", True),
    ("an item of no name", "renew", as_many(item("")), "empty", "items[0].lease", True),
    ("an item with fence 0", "renew", as_many(item("a"), item("b", fence=0)), "out_of_range", "items[1].fence", True),
    ("an item with a short token", "renew", as_many(item(token="0123")), "wrong_type", "items[0].token", True),
    ("an item with a holder", "renew", as_many(item(holder=SUBJECT)), "unknown_member", "items[0].holder", True),
    ("an item with a ttl", "renew", as_many(item(ttl_ms=1)), "unknown_member", "items[0].ttl_ms", True),
    ("an item with a list for its result", "finish", as_many(item(result=[])), "wrong_type", "items[0].result", True),
    ("a result for all items", "finish", {**as_many(item()), "result": {}}, "unknown_member", "result", True),
    ("an item without a reason", "fail", as_many(item()), "missing", "items[0].reason", True),
    ("a reason for all items", "fail", {**as_many(item(reason="r")), "reason": "r"}, "unknown_member", "reason", True),
]

# Attributes of a structured event: (what, change, verdict, reason, field, can the schema say so?)
ENVELOPE_FAULTS = [
    ("no id", {"id": REMOVE}, "dead_letter", "missing_attribute", "id", True),
    ("id null", {"id": None}, "dead_letter", "missing_attribute", "id", True),
    ("id empty", {"id": ""}, "dead_letter", "missing_attribute", "id", True),
    ("id a number", {"id": 7}, "dead_letter", "invalid_attribute", "id", True),
    ("id with a space", {"id": "a b"}, "dead_letter", "invalid_attribute", "id", True),
    ("id of 129 bytes", {"id": "i" * 129}, "dead_letter", "invalid_attribute", "id", True),
    ("no source", {"source": REMOVE}, "dead_letter", "missing_attribute", "source", True),
    ("source with a newline", {"source": "/s\n"}, "dead_letter", "invalid_attribute", "source", True),
    ("no type", {"type": REMOVE}, "dead_letter", "missing_attribute", "type", True),
    ("unknown command", {"type": "settlement.explode"}, "dead_letter", "unknown_type", "settlement.explode", True),
    ("kind in upper case", {"type": "Settlement.renew"}, "dead_letter", "unknown_type", "Settlement.renew", True),
    ("no subject", {"subject": REMOVE}, "dead_letter", "missing_attribute", "subject", True),
    ("subject with a space", {"subject": "a b"}, "dead_letter", "invalid_attribute", "subject", True),
    ("specversion 0.3", {"specversion": "0.3"}, "dead_letter", "unknown_specversion", None, True),
    ("no specversion", {"specversion": REMOVE}, "dead_letter", "missing_attribute", "specversion", True),
    ("time infinity", {"time": "infinity"}, "malformed", "wrong_type", "time", True),
    ("time without zone", {"time": "2026-06-30T23:59:59"}, "malformed", "wrong_type", "time", True),
    ("time with a year of five digits", {"time": "10000-01-01T00:00:00Z"}, "malformed", "wrong_type", "time", True),
    ("time a number", {"time": 1719792000}, "malformed", "wrong_type", "time", True),
    ("second 60", {"time": "2026-06-30T23:59:60Z"}, "malformed", "out_of_range", "time", False),
    ("data missing", {"data": REMOVE}, "malformed", "missing", "data", True),
    ("data null", {"data": None}, "malformed", "wrong_type", "data", True),
    ("data a list", {"data": []}, "malformed", "wrong_type", "data", True),
    ("data in base64", {"data_base64": "e30="}, "malformed", "wrong_type", "data_base64", True),
    ("data not JSON", {"datacontenttype": "text/xml"}, "malformed", "wrong_type", "datacontenttype", True),
]


def kind_of(command):
    return {"request": "cleanup", "claim": "cleanup", "edit": "contract", "cancel": "contract"}.get(command, "settlement")


def event(command, data):
    return {"specversion": "1.0", "id": "message-1", "source": "/producers/royalty",
            "type": f"{kind_of(command)}.{command}", "subject": SUBJECT, "data": data}


def changed(whole, change):
    merged = {**whole, **change}
    return {name: value for name, value in merged.items() if value is not REMOVE}
