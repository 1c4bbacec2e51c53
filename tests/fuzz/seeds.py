"""Writes the seeds of corpus/ anew: the examples and faults that tests/messages compares with the schemas, as records (fuzz.h), and the rows
below. What else is in corpus/ stays: inputs that were found."""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[0] / "support"))

import examples  # noqa: E402  (the path comes first)

LONGEST = 3000      # an example of a thousand items teaches a fuzzer nothing that two do not


def structured(event, headers=("content-type: application/cloudevents+json",)):
    return "\n".join([f"key {examples.SUBJECT}", *headers, "", json.dumps(event)])


def binary(event, more=()):
    headers = [f"ce_{name}: {value}" for name, value in event.items() if name != "data"]
    return "\n".join([f"key {examples.SUBJECT}", *headers, "content-type: application/json", *more, "", json.dumps(event["data"])])


def event_seeds():
    for command, rows in examples.GOOD.items():
        for number, data in enumerate(rows):
            event = examples.event(command, data)
            yield f"{command}-{number}", structured(event) if number % 2 == 0 else structured(event, (":kinds 1",))
    for what, command, change, *_rest in examples.FAULTS:
        yield "fault-" + what, structured(examples.event(command, examples.changed(examples.GOOD[command][0], change)), ())
    for what, change, *_rest in examples.ENVELOPE_FAULTS:
        yield "envelope-" + what, structured(examples.changed(examples.event("renew", examples.GRANT), change))
    event = examples.event("finish", {**examples.GRANT, "result": {"a": [1.5, -0, 1e-7, 12345678901234567890, None, True]}})
    yield "numbers", structured(event)
    yield "names-with-escapes", structured(event).replace('"data"', '"d\\u0061ta"').replace('"result"', '"r\\u0065sult"')
    yield "twice-by-an-alias", structured(event).replace('"result"', '"tok\\u0065n"')
    yield "white-space", "key A\n\n" + json.dumps(event, indent=9)
    yield "bytes-that-are-no-json", "key A\n\n\x00\x1f\x8b\xff"


def header_seeds():
    for command, rows in examples.GOOD.items():
        event = examples.event(command, rows[0])
        yield command, binary(event)
    event = examples.event("renew", examples.GRANT)
    yield "tracing", binary(event, ["traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate: a=b"])
    yield "tracing-ours", binary(event, ["ce_traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"])
    yield "time", binary({**event, "time": "2026-06-30T23:59:59.123456+02:00"})
    yield "nulls", binary(event, ["ce_time", "x", "traceparent"])
    yield "twice", binary(event, ["ce_id: other"])
    yield "charset", binary(event).replace("application/json", "Application/JSON; charset=UTF-16")
    yield "batch", "key A\ncontent-type: application/cloudevents-batch+json\n\n[]"
    yield "stamped-by-a-stranger", binary(event, ["lease_mark: 1", "lease_number: 99", "lease_epoch: 98", "lease_fence: 97",
                                                  "lease_dlq_at: now", "lease_dlq_reason: none"])
    yield "lost", ":lost_headers 1\nkey A\nce_id: 1\n\n{}"
    yield "packed", "key A\n\n\0\0\0\x01a\0\0\0\x02bc\0\0\0\x01d\xff\xff\xff\xff\0\0\0\x01e\0\0\0\x09f"


def config_seeds():
    yield "flags", "arg --batch-messages=5\narg --lanes\narg 3\narg --throwaway\narg --http=[::1]:0\narg -X\narg linger.ms=5"
    yield "environment", "env LEASE_GROUP=g\nenv LEASE_KAFKA_SASL_MECHANISM=PLAIN\nenv LEASE_LOG_LEVEL=debug\nenv LEASE_SERVICE_HOST=1"
    yield "file", "arg --show-config\n\n# all of it\nlanes = 4\nlog_format=json\nqueue_messages: 5000\n[kafka]\nfetch.min.bytes = 1\n"
    yield "file-and-flags", "arg --lanes=2\nenv LEASE_LANES=3\n\nlanes = 4\ntopic_prefix = test.\n"
    yield "unknown", "arg --lane=2"
    yield "unknown-variable", "env LEASE_LANE=3"
    yield "unknown-in-file", "\nlane = 3\n"
    yield "refused", "arg -Xplugin.library.paths=/x"
    yield "fixed", "env LEASE_KAFKA_ACKS=0"
    yield "secret-flag", "arg --token-key=0123456789abcdef0123456789abcdef"
    yield "secret-file", "env LEASE_TOKEN_KEY_FILE=/nowhere"
    yield "twice", "arg --lanes=2\narg --lanes=3"
    yield "section", "\n[kafka\n[other]\nlanes = 1\n"
    yield "odd-lines", "\n lanes = 1\nlanes = 1 ; no\n;\n\n"
    yield "together", "arg --queue-messages=1\narg --batch-messages=2"
    yield "leasectl", "program leasectl\narg ls\narg --topic-prefix=x\narg --\narg --lanes=3"
    yield "help", "arg -h"
    yield "numbers", "arg --lanes=99999999999999999999\narg --drain-ms=-1"


def time_seeds():
    rows = [("2026-06-30T23:59:59.123456Z", "1.5s", "1234"), ("2024-02-29t00:00:00-09:30", "10m", "-9223372036854775808"),
            ("0001-01-01T00:00:00+23:59", "3650d", "9223372036854775807"), ("9999-12-31T23:59:59.999999999z", "0ms", "-0"),
            ("infinity", "5 m", "+1"), ("2026-06-30T23:59:60Z", "999999999999999", "007"), ("2023-02-29T00:00:00Z", "1.s", "0x10"),
            ("0000-01-01T00:00:00Z", "-1s", ""), ("10000-01-01T00:00:00Z", "1e3s", "9223372036854775808")]
    for number, row in enumerate(rows):
        yield f"row-{number}", "\n".join(row) + "\nab\x1b[2J\u202e\x00caf\u00e9" + "\x01\x02\x03" * number


def foreign_seeds():
    def state(number, fence, epoch, key="settlement/a", **more):
        value = {"number": number, "kind": "settlement", "lease": key[11:], "state": "held", "fence": fence,
                 "claim_id": examples.CLAIM_ID, **more}
        return f"key {key}\nlease_number: {number}\nlease_epoch: {epoch}\nlease_fence: {fence}\n\n" + json.dumps(value, separators=(",", ":"))

    def mark(number, fence, epoch, before=""):
        return (f"{before}key ~mark\nlease_mark: 1\nlease_number: {number}\nlease_epoch: {epoch}\n\n"
                f'{{"epoch":{epoch},"number":{number},"fence":{fence},"system_identifier":"7","timeline":1}}')

    every = [f":topic {topic}\n:partition {partition}\n:gap 9\n" for topic in range(4) for partition in range(2)]
    yield "state", "\n%%\n".join([":mark 2\n" + state(1, 1, 4), state(2, 2, 4), state(3, 3, 5, min_fence=4)])
    yield "stragglers", "\n%%\n".join([":mark 9\n" + state(5, 3, 4), state(4, 2, 3), state(6, 4, 9, "settlement/b")])
    yield "to-the-marks", "\n%%\n".join(mark(7, 5, 5, before) for before in every)
    yield "behind-the-marks", "\n%%\n".join([*(mark(7, 5, 5, before) for before in every), ":ack 1\n:gap 0\n", ":ack 1\n:gap 3\n",
                                              state(8, 6, 4), state(9, 6, 5, "settlement/c"), ":ack -1\n", ":ack 1\n"])
    yield "restarts", "\n%%\n".join([":error 1\n:partition 1\n", state(1, 1, 5), ":error 2\n", ":error 1\n:partition 1\n", state(2, 1, 5)])
    yield "lost-history", "\n%%\n".join([":lost_after 3\n:lost_before 9\n:mark 9\n" + state(5, 1, 5), state(9, 2, 5)])
    yield "strangers", "key x/y\nlease_number: 9999999999999999999\nlease_epoch: -1\nlease_fence: 1e3\n\nnot json"
    yield "a-dead-letter-that-claims", ":topic 3\nkey a/b\nlease_mark: 1\nlease_fence: 99\nlease_number: 1\nlease_dlq_at: x\nlease_number: 7\n\n{\"fence\":88}"
    yield "unreadable", state(3, 1, 4).replace('"fence":1', '"fence":1.5')


def main():
    for target, seeds in (("event", event_seeds), ("headers", header_seeds), ("config", config_seeds), ("times", time_seeds),
                          ("foreign", foreign_seeds)):
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("seed-*"):
            old.unlink()
        for name, text in seeds():
            data = text.encode("latin-1" if "no-json" in name or name == "packed" else "utf-8")
            if len(data) <= LONGEST:
                (folder / ("seed-" + "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in name))).write_bytes(data)


if __name__ == "__main__":
    main()
