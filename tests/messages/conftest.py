"""The schemas, and a probe that prints what the C code makes of messages."""
import json
import os
import pathlib
import re
import subprocess

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "schemas"


def load_schemas():
    return {path.name: json.loads(path.read_text()) for path in sorted(SCHEMAS.glob("*.json"))}


def _ecma_pattern(validator, pattern, instance, schema):
    """JSON Schema's patterns are ECMA 262's: there `$` is the end, not also the place before a last newline."""
    python = re.sub(r"(?<!\\)\$", r"\\Z", pattern)
    if isinstance(instance, str) and not re.search(python, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


DRAFTS = {name: jsonschema.validators.extend(base, {"pattern": _ecma_pattern})
          for name, base in (("draft-07", jsonschema.Draft7Validator), ("2020-12", jsonschema.Draft202012Validator))}


class Schemas:
    """Validators of both drafts for a schema file; they must always agree."""

    def __init__(self):
        # Without their $schema: it would make the library go on with its own validator behind a reference.
        self.documents = {name: {word: part for word, part in document.items() if word != "$schema"}
                          for name, document in load_schemas().items()}
        base = SCHEMAS.as_uri() + "/"
        store = {base + name: document for name, document in self.documents.items()}
        self.validators = {name: [draft(document, resolver=jsonschema.RefResolver(base + name, document, store=store))
                                  for draft in DRAFTS.values()]
                           for name, document in self.documents.items()}

    def error(self, name, instance):
        """None if the instance is valid, else why not."""
        errors = [next(validator.iter_errors(instance), None) for validator in self.validators[name]]
        assert len({error is None for error in errors}) == 1, f"the drafts disagree about {instance!r}: {errors}"
        return None if errors[0] is None else f"{errors[0].json_path}: {errors[0].message}"


@pytest.fixture(scope="session")
def schemas():
    return Schemas()


class Probe:
    def __init__(self, path):
        self.path = path

    def run(self, mode, lines=()):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        done = subprocess.run([self.path, mode], input=text, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def decode(self, messages):
        return self.run("event", [_message(*message) for message in messages])


def _hex(value):
    if value is None:
        return None
    return (value if isinstance(value, bytes) else value.encode()).hex()


def _message(key, value, headers=()):
    return {"key": _hex(key), "value": _hex(value), "headers": [[name, _hex(data)] for name, data in headers]}


@pytest.fixture(scope="session")
def probe():
    path = os.environ.get("LEASE_MESSAGE_PROBE")
    assert path, "LEASE_MESSAGE_PROBE is not set: run this through ctest -L messages"
    return Probe(path)
