"""asyncapi.yaml describes the topics that the code creates, and refers only to schemas that exist."""
import re

import yaml

from conftest import ROOT

DOCUMENT = yaml.safe_load((ROOT / "asyncapi.yaml").read_text())


def _topics(probe):
    return {topic["name"]: topic for topic in probe.run("topics")}


def test_asyncapi__has_the_topics_of_the_table(probe):
    assert DOCUMENT["asyncapi"] == "3.0.0"
    described = {channel["address"]: channel["bindings"]["kafka"] for channel in DOCUMENT["channels"].values()}
    topics = _topics(probe)
    assert described.keys() == topics.keys()
    for name, topic in topics.items():
        settings = {key: ",".join(value) if isinstance(value, list) else str(value)
                    for key, value in described[name]["topicConfiguration"].items()}
        assert settings == topic["configs"], name
        assert described[name]["partitions"] == topic["partitions"], name


def test_asyncapi__directions_are_those_of_the_table(probe):
    topics = _topics(probe)
    actions = {operation["channel"]["$ref"].rpartition("/")[2]: operation["action"]
               for operation in DOCUMENT["operations"].values()}
    assert actions == {name: "receive" if topic["input"] else "send" for name, topic in topics.items()}


def test_asyncapi__says_which_topics_are_secret(probe):
    for name, topic in _topics(probe).items():
        text = DOCUMENT["channels"][name]["description"].lower()
        assert ("secret" in text or "only holders" in text) == topic["secret"], name


def _references(node):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def test_asyncapi__references_are_found():
    for reference in set(_references(DOCUMENT)):
        file, _, pointer = reference.partition("#")
        target = yaml.safe_load((ROOT / file).read_text()) if file else DOCUMENT
        for part in filter(None, pointer.split("/")):
            target = target[part]


def test_asyncapi__uses_every_schema_of_a_record():
    used = {reference.partition("#")[0].rpartition("/")[2] for reference in _references(DOCUMENT)} - {""}
    records = {path.name for path in (ROOT / "schemas").glob("*.json") if not path.name.startswith("command.")}
    assert used == records  # the commands are in event.json


def test_asyncapi__lists_the_reasons_of_dead_letters(probe):
    reasons = DOCUMENT["components"]["schemas"]["deadLetterHeaders"]["properties"]["lease_dlq_reason"]["enum"]
    assert reasons == probe.run("names")[0]["dead_letter"]
    assert all(re.fullmatch(r"[a-z_]+", reason) for reason in reasons)
