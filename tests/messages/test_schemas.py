"""The schemas are valid in both drafts, and keep to what the two have in common."""
import pytest

from schemas import DRAFTS, load_schemas

DOCUMENTS = load_schemas()

# Words that mean something else, or nothing, in one of the two drafts.
ONLY_IN_ONE = {"$defs", "$anchor", "$dynamicRef", "$recursiveRef", "dependencies", "dependentRequired", "dependentSchemas",
               "prefixItems", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "minContains", "maxContains",
               "contentSchema", "contains"}


def _walk(schema):
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from _walk(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _walk(value)


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("draft", DRAFTS)
def test_schema__is_valid(name, draft):
    DRAFTS[draft].check_schema(DOCUMENTS[name])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema__has_only_words_of_both_drafts(name):
    for schema in _walk(DOCUMENTS[name]):
        assert not ONLY_IN_ONE & schema.keys()
        # draft-07 ignores what stands beside a reference, 2020-12 does not
        assert "$ref" not in schema or len(schema) == 1
        assert not isinstance(schema.get("items"), list)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema__references_are_found(name):
    for schema in _walk(DOCUMENTS[name]):
        if "$ref" not in schema:
            continue
        file, _, pointer = schema["$ref"].partition("#")
        target = DOCUMENTS[file or name]
        for part in filter(None, pointer.split("/")):
            target = target[part]


def test_schemas__one_for_each_command(probe):
    names = probe.run("names")[0]
    assert {f"command.{command}.json" for command in names["commands"]} == \
        {name for name in DOCUMENTS if name.startswith("command.")}


def test_schemas__have_the_codes_names_and_limits(probe):
    names = probe.run("names")[0]
    limits = names["limits"]
    common = DOCUMENTS["common.json"]["definitions"]
    result = DOCUMENTS["result.json"]["properties"]
    assert result["outcome"]["enum"] == names["outcomes"] + ["dead", "imported"]  # events, never answers
    assert result["original"]["properties"]["outcome"]["enum"] == result["outcome"]["enum"]
    assert common["state"]["enum"] == names["states"]
    assert common["id"]["maxLength"] == limits["id"]
    assert common["fence"]["maximum"] == limits["fence"]
    assert common["count"]["maximum"] == limits["fence"]
    assert common["reason"]["maxLength"] == limits["reason"]
    assert common["resources"]["maxItems"] == limits["resources"]
    assert result["items"]["maxItems"] == limits["items"]
    for command in ("renew", "finish", "fail", "release"):
        assert DOCUMENTS[f"command.{command}.json"]["oneOf"][1]["properties"]["items"]["maxItems"] == limits["items"]
    assert common["ttl_ms"]["maximum"] == limits["ttl_ms"]
    assert common["wait_ms"]["maximum"] == limits["wait_ms"]
    assert common["delay_ms"]["maximum"] == limits["delay_ms"]
    assert DOCUMENTS["command.start.json"]["properties"]["tables"]["maxItems"] == limits["tables"]
