"""The project's JSON Schemas, as validators of both drafts that they keep to."""
import functools
import json
import pathlib
import re

import jsonschema

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "schemas"


def load_schemas():
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


@functools.lru_cache(maxsize=None)
def _python_pattern(pattern):
    """JSON Schema's patterns are ECMA 262's: there `$` is the end, not also the place before a last newline."""
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern))


def _ecma_pattern(validator, pattern, instance, schema):
    if isinstance(instance, str) and not _python_pattern(pattern).search(instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _unique_items(validator, unique, instance, schema):
    """By their text (numbers are integers here). The library compares each object with each: seconds for a thousand."""
    if unique and isinstance(instance, list):
        texts = {json.dumps(item, sort_keys=True) for item in instance}
        if len(texts) < len(instance):
            yield jsonschema.ValidationError("an item is there twice")


DRAFTS = {name: jsonschema.validators.extend(base, {"pattern": _ecma_pattern, "uniqueItems": _unique_items})
          for name, base in (("draft-07", jsonschema.Draft7Validator), ("2020-12", jsonschema.Draft202012Validator))}


class Schemas:
    """Validators of both drafts for each file; they must always agree."""

    def __init__(self):
        # Without their $schema: it would make the library go on with its own validator behind a reference.
        self.documents = {name: {word: part for word, part in document.items() if word != "$schema"}
                          for name, document in load_schemas().items()}
        base = FOLDER.as_uri() + "/"
        store = {base + name: document for name, document in self.documents.items()}
        self.validators = {name: [draft(document, resolver=jsonschema.RefResolver(base + name, document, store=store))
                                  for draft in DRAFTS.values()]
                           for name, document in self.documents.items()}

    def error(self, name, instance):
        """None if the instance is valid, else why not."""
        errors = [next(validator.iter_errors(instance), None) for validator in self.validators[name]]
        assert len({error is None for error in errors}) == 1, f"the drafts disagree about {instance!r}: {errors}"
        return None if errors[0] is None else f"{errors[0].json_path}: {errors[0].message}"

    def undescribed(self, name, value):
        """Members that the schema does not name: readers ignore them, so only a test would notice."""
        return _undescribed(self.documents[name], value)


def _undescribed(schema, value, path=""):
    found = [f"{path}{member}" for member in value if member not in schema["properties"]]
    for member, inner in value.items():
        part = schema["properties"].get(member, {})
        if isinstance(inner, dict) and "properties" in part:
            found += _undescribed(part, inner, f"{path}{member}.")
    return found
