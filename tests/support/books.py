"""The books: does what happened keep the invariants of ARCHITECTURE.md?

collect() gathers a History from a place that has come to rest: every record consumed, everything published, the journal.
check() goes through it and returns the first counterexample of each invariant that is broken; balance() raises with them.
It knows nothing of how the coordinator works: it compares what went in with what came out.

    I1  fences of successive grants of a resource rise, no two claims share one
    I2  at most one live lease covers a resource; what lapsed is never live again
    I3  nobody but the last grant's holder, with its fence, claim id and token, changes anything
    I4  every consumed message has exactly one answer or dead letter; the output topics have what the journal has, once
    I5  answers of one subject come in the order of its messages; numbers rise in each output partition
    I6  consumed offsets never go back
    I8  work without an expiry is never granted
    I10 a final state is never left
    I11 a token stands in lease.grants and in the holder's own commands, nowhere else
"""
import collections
import datetime
import json
import re

from place import INPUTS, OUTPUTS
from topics import read_topic
from waiting import eventually

FINAL_STATES = ("finished", "failed", "dead")
CHANGES = ("granted", "covered", "renewed", "advanced", "finished", "failed", "released")
ENDS = ("finished", "failed", "released")
HOLDER_COMMANDS = ("cover", "begin", "renew", "advance", "finish", "fail", "release")
TOKEN_SHAPE = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class Input:
    """A message as it was sent; what cannot be parsed has no command."""

    __slots__ = ("place", "kind", "command", "subject", "source", "message_id", "data", "record")

    def __init__(self, record):
        self.record = record
        self.place = (record.topic, record.partition, record.offset)
        self.kind = self.command = self.subject = self.source = self.message_id = None
        self.data = {}
        try:
            self._parse(record)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            pass

    def _parse(self, record):
        if "ce_type" in record.headers:
            event = {name[3:]: value.decode() for name, value in record.headers.items() if name.startswith("ce_")}
            event["data"] = json.loads(record.raw)
        else:
            event = json.loads(record.raw)
        kind, _, command = event["type"].rpartition(".")
        data = event.get("data")
        self.subject, self.source, self.message_id = event["subject"], event["source"], event["id"]
        self.kind, self.command = kind, command
        self.data = data if isinstance(data, dict) else {}


class History:
    """What happened in one place. All lists are in the order of the log or the journal."""

    def __init__(self):
        self.inputs = {}          # (topic, partition, offset) → Input
        self.consumed = {}        # (topic, partition) → next offset
        self.outputs = {}         # topic → [Record], marks and repeats included
        self.journal = []         # rows of lease.timeline as dicts, by number
        self.samples = []         # (topic, partition) → next offset, as seen while it ran
        self.unfenced = set()     # (kind, lease) that were claimed before fencing
        self.texts = {}           # name → text that must hold no token (logs, metrics)

    def kept(self, topic):
        """The records of an output topic as a careful consumer keeps them."""
        last = {}
        kept = []
        for record in self.outputs.get(topic, ()):
            if not record.is_mark and record.number > last.get(record.partition, 0):
                last[record.partition] = record.number
                kept.append(record)
        return kept

    def said(self):
        """Journal rows that came of a message: its answer, or what it did to one of the many items that it names."""
        return [row for row in self.journal if row["origin_topic"] is not None]

    def answers(self):
        """Journal rows that answer a message. A command over many items is never itself finished, failed or released."""
        return [row for row in self.said() if not (row["event"] in ENDS and _items_of(self, row))]

    def items(self):
        """(journal row of the answer, what it tells of an item) for every item of the commands over many."""
        rows = {row["number"]: row for row in self.journal if row["event"] == "answered"}
        return [(rows[record.number], item) for record in self.kept("lease.results") if record.number in rows
                for item in record.value["items"]]

    def happened(self):
        """The journal, and behind an answer over many items a row for each that was renewed, as if it had been renewed alone."""
        renewed = collections.defaultdict(list)
        for row, item in self.items():
            if item["outcome"] == "renewed":
                until = datetime.datetime.strptime(item["until"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
                renewed[row["number"]].append(dict(row, event="renewed", subject=item["lease"], fence=item["fence"],
                                                   claim_id=item["claim_id"], lease_until=until, state="held"))
        for row in self.journal:
            yield row
            yield from renewed[row["number"]]


def collect(place, samples=(), unfenced=(), texts=None):
    """Reads everything of a place that is idle, up to one number of the journal: the reaper may go on meanwhile."""
    history = History()
    history.consumed = place.consumed()
    history.samples = list(samples)
    history.unfenced = set(unfenced)
    history.texts = dict(texts or {})
    history.journal = read_journal(place)
    last = history.journal[-1]["number"] if history.journal else 0
    eventually(lambda: place.database.value("SELECT published FROM lease.relay_status") >= last, 60,
               f"the journal is published up to number {last}")
    for topic in INPUTS:
        for record in read_topic(place.kafka.brokers, place.prefix, topic):
            history.inputs[record.topic, record.partition, record.offset] = Input(record)
    for topic in OUTPUTS:
        history.outputs[topic] = [record for record in read_topic(place.kafka.brokers, place.prefix, topic)
                                  if record.is_mark or record.number <= last]
    return history


def read_journal(place):
    """All rows of lease.timeline as dicts, topics without prefix."""
    connection = place.database.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM lease.timeline ORDER BY number")
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, values)) for values in cursor]
    finally:
        connection.close()
    for row in rows:
        if row["origin_topic"] is not None:
            row["origin_topic"] = row["origin_topic"][len(place.prefix):]
    return rows


def _origin(row):
    return row["origin_topic"], row["origin_partition"], row["origin_offset"]


def _items_of(history, row):
    """The items that the row's message names, as it was sent; none if it names its subject alone."""
    asked = history.inputs.get(_origin(row))
    items = asked.data.get("items") if asked else None
    return items if isinstance(items, list) else []


def _said_by(history, row):
    """What the row's message says about the row's lease, as a command over it alone would say it."""
    asked = history.inputs.get(_origin(row))
    if asked is None:
        return None
    for item in _items_of(history, row):
        if item["lease"] == row["subject"]:
            return dict(item, holder=asked.data.get("holder"))
    return asked.data


# --- what the grants and the journal say ---------------------------------------------------------------------------------


def _grants(history):
    return [row for row in history.journal if row["is_grant"]]


def _grants_by_resource(history):
    """Resource → the grants that took it, in order; a cover counts from its own row on."""
    taken = collections.defaultdict(list)
    for row in history.journal:
        if row["is_grant"]:
            taken[f"{row['kind']}:{row['subject']}"].append(row)
        if row["event"] in ("granted", "covered") and row["command"] in ("start", "cover"):
            asked = history.inputs.get(_origin(row))
            for resource in (asked.data.get("resources") or ()) if asked else ():
                taken[resource].append(row)
    return taken


def check_fences(history):
    """I1"""
    for resource, grants in _grants_by_resource(history).items():
        for earlier, later in zip(grants, grants[1:]):
            is_same = later["claim_id"] == earlier["claim_id"]      # a start and its covers
            if later["fence"] < earlier["fence"] or (later["fence"] == earlier["fence"]) != is_same:
                yield (f"{resource}: fence {later['fence']} at number {later['number']} does not rise above"
                       f" {earlier['fence']} at number {earlier['number']}")
    by_fence = {}
    by_claim = {}
    for row in _grants(history):
        if row["command"] == "begin":
            continue      # the grant that its start made
        for name, seen, key in (("fence", by_fence, row["fence"]), ("claim id", by_claim, row["claim_id"])):
            if key in seen:
                yield f"{name} {key} was given out at number {seen[key]} and again at number {row['number']}"
            seen[key] = row["number"]


def check_one_holder(history):
    """I2"""
    ends = {}        # fence → when it stopped being live
    reason = {}
    for row in history.happened():
        fence = row["fence"]
        if fence is None:
            continue
        if row["is_grant"] or row["event"] == "renewed":
            if fence in ends and row["event"] == "renewed" and row["at"] >= ends[fence]:
                yield f"fence {fence} was renewed at number {row['number']}, at {row['at']}, after it ended at {ends[fence]}"
            if row["lease_until"] is not None:
                ends[fence] = max(row["lease_until"], ends.get(fence, row["lease_until"]))
                reason[fence] = f"its expiry (number {row['number']})"
        elif row["event"] in ("finished", "failed", "released") and row["command"] is not None:
            ends[fence] = min(row["at"], ends.get(fence, row["at"]))
            reason[fence] = f"number {row['number']}"
    live = {}        # resource → the grant that has it
    for resource, grants in _grants_by_resource(history).items():
        live.clear()
        for earlier, later in zip(grants, grants[1:]):
            if earlier["fence"] == later["fence"]:
                continue
            end = ends.get(earlier["fence"])
            # A grant begins at its `since`; a cover takes its resources when it is decided.
            begin = later["since"] if later["is_grant"] else later["at"]
            if end is None or begin < end:
                yield (f"{resource}: granted with fence {later['fence']} at {begin} (number {later['number']}) while"
                       f" fence {earlier['fence']} was live until {end}, {reason.get(earlier['fence'])}")


def check_only_holder_changes(history):
    """I3"""
    tokens = {record.value["claim_id"]: record.value["token"] for record in history.kept("lease.grants")}
    last = {}
    for row in history.happened():
        lease = (row["kind"], row["subject"])
        if row["is_grant"]:
            last[lease] = row
        if row["command"] not in HOLDER_COMMANDS or row["event"] not in CHANGES:
            continue
        said = _said_by(history, row)
        grant = last.get(lease)
        if said is None or grant is None:
            yield f"number {row['number']} ({row['event']}) answers no message or follows no grant"
            continue
        for name, value in (("fence", grant["fence"]), ("claim_id", grant["claim_id"]), ("holder", grant["holder"]),
                            ("token", tokens.get(str(grant["claim_id"])))):
            if str(said.get(name)) != str(value):
                yield (f"number {row['number']}: {row['kind']}.{row['command']} of {row['subject']} was answered"
                       f" {row['event']} although its {name} is not the last grant's")


def check_every_message_answered(history):
    """I4"""
    answered = {}
    for row in history.answers():
        place = _origin(row)
        if place in answered:
            yield f"{place} was answered at number {answered[place]} and again at number {row['number']}"
        answered[place] = row["number"]
    for (topic, partition), end in history.consumed.items():
        sent = sorted(offset for t, p, offset in history.inputs if (t, p) == (topic, partition))
        for offset in sent:
            if (offset < end) != ((topic, partition, offset) in answered):
                yield (f"({topic}, {partition}, {offset}) is {'before' if offset < end else 'behind'} the next offset {end}"
                       f" and has {'no' if offset < end else 'an'} answer")
    for place in answered:
        if place not in history.inputs:
            yield f"number {answered[place]} answers {place}, which was never sent"


def check_items(history):
    """I4: an answer over many items tells of each that its command names, in its order; those that ended have a row of their own."""
    told = collections.defaultdict(list)
    for row, item in history.items():
        told[row["number"]].append(item)
    ended = collections.Counter()
    for row in history.said():
        if row["event"] in ENDS and _items_of(history, row):
            ended[_origin(row), row["subject"], row["event"]] += 1
    for row in history.answers():
        if row["event"] != "answered":
            continue
        items = told[row["number"]]
        if [item["lease"] for item in items] != [item["lease"] for item in _items_of(history, row)]:
            yield f"number {row['number']} tells of {len(items)} items, which are not those that {_origin(row)} names"
        for item in items:
            if item["outcome"] in ENDS:
                ended[_origin(row), item["lease"], item["outcome"]] -= 1
    for (place, lease, outcome), more in ended.items():
        if more != 0:
            yield f"{lease} was {outcome} by {place}, {'but its answer does not say so' if more > 0 else 'says its answer, and has no row'}"


def _duty(row):
    """The output topics that a journal row goes to."""
    if row["event"] == "dead_letter":
        return {"lease.dead-letters"}
    topics = set() if row["event"] in ("jumped", "restated") else {"lease.results"}
    if row["is_grant"]:
        topics.add("lease.grants")
    if row["changes_lease"]:
        topics.add("lease.state")
    return topics


def check_published_once(history):
    """I4"""
    for topic in ("lease.results", "lease.grants", "lease.dead-letters"):
        due = {row["number"] for row in history.journal if topic in _duty(row)}
        kept = [record.number for record in history.kept(topic)]
        twice = [number for number, times in collections.Counter(kept).items() if times > 1]
        if twice:
            yield f"{topic} has number {twice[0]} twice, in two partitions"
        missing = due - set(kept)
        if missing:
            yield f"{topic} lacks {len(missing)} journal rows, the first is number {min(missing)}"
        extra = set(kept) - due
        if extra:
            yield f"{topic} has {len(extra)} records that the journal lacks, the first is number {min(extra)}"
    due = {}
    for row in history.journal:
        if "lease.state" in _duty(row):
            due[f"{row['kind']}/{row['subject']}"] = row["number"]
    kept = {}
    for record in history.outputs.get("lease.state", ()):
        if not record.is_mark:
            key = record.key.decode()
            kept[key] = max(kept.get(key, 0), record.number)
    for key, number in due.items():
        if kept.get(key) != number:
            yield f"lease.state has number {kept.get(key)} for {key}, the journal {number}"


def check_answers_agree(history):
    """I4: the record on the topic says what the journal says."""
    rows = {row["number"]: row for row in history.journal}
    for record in history.kept("lease.results"):
        row = rows.get(record.number)
        if row is None:
            continue
        value = record.value
        if record.key.decode() != row["subject"] or value["lease"] != row["subject"] or value["number"] != row["number"]:
            yield f"number {record.number} is keyed {record.key!r}, names {value['lease']!r}; the journal {row['subject']!r}"
        if value.get("fence") != row["fence"]:
            yield f"number {record.number} tells fence {value.get('fence')}, the journal {row['fence']}"
        if "origin" in value:
            place = (value["origin"]["topic"], value["origin"]["partition"], value["origin"]["offset"])
            if (place[0].endswith(str(row["origin_topic"])), place[1:]) != (True, _origin(row)[1:]):
                yield f"number {record.number} tells origin {place}, the journal {_origin(row)}"


def check_dead_letters(history):
    """I4: a dead letter keeps key, value and headers byte for byte, and names its origin and the reason."""
    rows = {row["number"]: row for row in history.journal}
    for record in history.kept("lease.dead-letters"):
        row = rows.get(record.number)
        asked = history.inputs.get(_origin(row)) if row else None
        if asked is None:
            yield f"dead letter {record.number} comes from no message"
            continue
        sent = asked.record
        own = record.header_list[:len(sent.header_list)]
        for name, kept, was in (("key", record.key, sent.key), ("value", record.raw, sent.raw),
                                ("headers", own, sent.header_list)):
            if kept != was:
                yield f"dead letter {record.number}: the {name} of {asked.place} was {was!r} and is {kept!r}"
        told = [record.headers.get(f"lease_dlq_{name}", b"").decode() for name in ("topic", "partition", "offset")]
        if not told[0].endswith(sent.topic) or told[1:] != [str(sent.partition), str(sent.offset)]:
            yield f"dead letter {record.number} of {asked.place} says it comes from {told}"
        if not record.headers.get("lease_dlq_reason"):
            yield f"dead letter {record.number} has no reason"


def check_numbers(history):
    """I4, I5: the journal is gapless but for jumps; each partition's repeats are repeats."""
    for earlier, later in zip(history.journal, history.journal[1:]):
        before = later.get("previous_number") if later["event"] == "jumped" else later["number"] - 1
        if before is not None and earlier["number"] != before:
            yield f"the journal goes from number {earlier['number']} to {later['number']}"
    for topic, records in history.outputs.items():
        last = {}
        seen = set()
        for record in records:
            if record.is_mark:
                continue
            place = (record.partition, record.number)
            if record.number <= last.get(record.partition, 0) and place not in seen:
                yield (f"{topic}/{record.partition}: number {record.number} at offset {record.offset} comes after"
                       f" {last[record.partition]} and was never there before: consumers lose it")
            seen.add(place)
            last[record.partition] = max(record.number, last.get(record.partition, 0))


def check_order_of_subjects(history):
    """I5"""
    last = {}
    for row in sorted(history.said(), key=_origin):
        key = (row["origin_topic"], row["origin_partition"], row["subject"])
        if row["subject"] is None:
            continue
        if key in last and last[key]["number"] > row["number"]:
            yield (f"{row['subject']}: offset {last[key]['origin_offset']} was answered at number {last[key]['number']},"
                   f" the later offset {row['origin_offset']} at {row['number']}")
        last[key] = row
    partitions = {}
    for record in history.kept("lease.results"):
        if partitions.setdefault(record.key, record.partition) != record.partition:
            yield f"results of {record.key!r} stand in partitions {partitions[record.key]} and {record.partition}"


def check_offsets(history):
    """I6"""
    last = {}
    for number, sample in enumerate(history.samples + [history.consumed]):
        for place, offset in sample.items():
            if offset < last.get(place, 0):
                yield f"sample {number}: the next offset of {place} went back from {last[place]} to {offset}"
            last[place] = offset


def check_unfenced(history):
    """I8"""
    for row in history.journal:
        if (row["kind"], row["subject"]) in history.unfenced and (row["is_grant"] or row["event"] in CHANGES + ("lapsed",)):
            if row["is_grant"] or row["command"] is None:
                yield f"number {row['number']}: {row['subject']} has no expiry and was {row['event']}"


def check_final(history):
    """I10"""
    ended = {}
    for row in history.happened():
        lease = (row["kind"], row["subject"])
        if lease in ended and (row["is_grant"] or row["event"] in CHANGES + ("requested",)) and row["command"] != "claim":
            yield f"number {row['number']}: {row['subject']} was {row['event']} after it had ended at number {ended[lease]}"
        is_change = row["event"] in ("finished", "failed", "dead") or row["changes_lease"]
        if is_change and row["state"] in FINAL_STATES:
            ended.setdefault(lease, row["number"])


def check_tokens(history):
    """I11"""
    tokens = {record.value["token"] for record in history.outputs.get("lease.grants", ()) if not record.is_mark}
    texts = [(name, text) for name, text in history.texts.items()]
    for topic in ("lease.results", "lease.state"):
        texts += [(f"{topic} number {record.headers.get('lease_number')}",
                   f"{(record.raw or b'').decode('utf-8', 'replace')} {record.header_list!r}")
                  for record in history.outputs.get(topic, ())]
    texts += [(f"journal number {row['number']}", repr(list(row.values()))) for row in history.journal]
    for name, text in texts:
        found = tokens.intersection(TOKEN_SHAPE.findall(text))
        if found:
            yield f"a token stands in {name}"


CHECKS = (check_fences, check_one_holder, check_only_holder_changes, check_every_message_answered, check_items, check_published_once,
          check_answers_agree, check_dead_letters, check_numbers, check_order_of_subjects, check_offsets, check_unfenced, check_final,
          check_tokens)


def check(history):
    """The first counterexample of each check that finds one, as 'invariant: what'."""
    found = []
    for one in CHECKS:
        example = next(one(history), None)
        if example is not None:
            found.append(f"{one.__doc__.split(':')[0].strip()} ({one.__name__}): {example}")
    return found


def balance(history):
    """Raises if the books do not balance; returns figures for the report."""
    found = check(history)
    assert not found, "the books do not balance:\n" + "\n".join(found)
    outcomes = collections.Counter(row["event"] for row in history.answers())
    return {"messages": len(history.inputs), "answers": sum(outcomes.values()), "journal": len(history.journal),
            "outcomes": dict(outcomes.most_common())}
