# ctest: LABEL kafka TIMEOUT 240
"""A kind with steps that no program knows: rows, a topic, a schema file, and a coordinator that starts after them. The steps are
taken by two holders, the second from where the first one stopped; every answer and grant is as the schemas say."""
import json

import jsonschema

from leasectl import Leasectl, USAGE, small_topics
from schemas import FOLDER, Schemas
from stage import Stage

KIND, STEPS = "price-list", ["frozen", "copied", "switched"]
ROWS = """
INSERT INTO lease.kind (kind, mode, ttl_ms, ttl_max_ms, finish_after, summary) VALUES ('price-list', 'run', 5000, 60000, 'switched', 'a new price list');
INSERT INTO lease.step (kind, step, after) VALUES ('price-list', 'frozen', NULL), ('price-list', 'copied', 'frozen'), ('price-list', 'switched', 'copied')
"""


def schema_of_kind(folder):
    """Written after the one of share-ratio, as CONTRIBUTING.md says."""
    text = (FOLDER / "kind.share-ratio.json").read_text()
    schema = json.loads(text.replace("share-ratio", KIND))
    schema["allOf"][2]["then"]["properties"]["data"]["properties"]["step"]["enum"] = STEPS
    path = f"{folder}/kind.{KIND}.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(schema, file)
    return path


def validator(path):
    documents = Schemas().documents
    with open(path, encoding="utf-8") as file:
        schema = {word: part for word, part in json.load(file).items() if word != "$schema"}
    base = FOLDER.as_uri() + "/"
    store = {base + name: document for name, document in documents.items()}
    return jsonschema.Draft7Validator(schema, resolver=jsonschema.RefResolver(base + "kind.json", schema, store=store))


class Story(Stage):
    """A stage that holds every command against the kind's schema, and every answer against the project's."""

    def __init__(self, place, path):
        super().__init__(place, lanes=1)
        self.commands, self.records = validator(path), Schemas()

    def says(self, command, **data):
        event = {"specversion": "1.0", "id": "1", "source": "/tests", "type": f"{KIND}.{command}", "subject": "eu/2026", "data": data}
        answer = self.ask(KIND, command, "eu/2026", data)
        assert self.records.error("result.json", answer) is None
        return answer, self.commands.is_valid(event)

    def starts(self, holder, **more):
        answer, is_valid = self.says("start", holder=holder, **more)
        assert answer["outcome"] == "granted" and is_valid
        grant = self.grant(answer["fence"])
        assert self.records.error("grant.json", grant) is None and grant.get("step") == answer.get("step")
        return grant

    def steps(self, grant, step):
        answer, is_valid = self.says("advance", **self.as_holder(grant, step=step))
        assert is_valid == (step in STEPS)
        return answer["outcome"]


def test_a_stepped_kind_is_rows_a_topic_and_a_schema_file(bare_place):
    run = Leasectl.of(bare_place)
    run("migrate").check(0)
    bare_place.database.query(ROWS)
    small_topics(bare_place)
    assert "price_list" in run("topics", "--kind", "Price_list").check(USAGE).err.lower()
    listed = {row["topic"][len(bare_place.prefix):]: row["state"] for row in run("topics", "--apply", "--kind", KIND, "-o", "json").json}
    assert listed[f"{KIND}.events"] == "created"
    story = Story(bare_place, schema_of_kind(bare_place.folder))

    first = story.starts("h1", ttl_ms=5000)
    assert "step" not in first
    assert [story.steps(first, step) for step in ("copied", "frozen", "frozen", "registered")] == \
        ["out_of_step", "advanced", "out_of_step", "out_of_step"]
    assert story.event("lapsed", KIND, "eu/2026")["step"] == "frozen"
    second = story.starts("h2")
    assert second["step"] == "frozen" and second["fence"] > first["fence"]
    assert story.steps(first, "copied") == "stale"
    assert story.steps(second, "copied") == "advanced"
    assert story.says("finish", **story.as_holder(second))[0]["outcome"] == "out_of_step"
    assert story.steps(second, "switched") == "advanced"
    assert story.says("finish", **story.as_holder(second))[0]["outcome"] == "finished"
