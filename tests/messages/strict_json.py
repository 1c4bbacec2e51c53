"""JSON as RFC 8259 has it and no more, with what a validator forgets: how numbers and names were written, and names that stand twice.
Shares nothing with the coordinator's parser or Python's."""
import json
import re

_TOKEN = re.compile(r"""[ \t\n\r]*(?:
    (?P<sign>[\[\]{},:])
  | (?P<string>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")
  | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
  | (?P<word>true|false|null)
  | (?P<end>\Z) )""", re.VERBOSE)
_WORDS = {"true": True, "false": False, "null": None}


class NotJson(Exception):
    pass


class Name(str):
    """A member's name; `is_escaped`: it was written with escapes."""
    is_escaped = False


class Real(float):
    """A number that is not written as a plain integer: 1.5, but also 1.0, 1e0 and -0."""


def parse(data):
    """The value and the texts of all its numbers. NotJson says why not."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson("not UTF-8") from error
    numbers = []
    tokens = _tokens(text, numbers)
    value = _value(tokens, next(tokens))
    if next(tokens)[0] != "end":
        raise NotJson("text behind the end")
    return value, numbers


def _tokens(text, numbers):
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotJson(f"no token at {at}")
        kind, token = match.lastgroup, match.group(match.lastgroup)
        if kind == "number":
            numbers.append(token)
        yield kind, token
        at = match.end()


def _value(tokens, token):
    kind, text = token
    if kind == "string":
        return json.loads(text)
    if kind == "number":
        return int(text) if re.fullmatch(r"0|-?[1-9][0-9]*", text) else Real(text)
    if kind == "word":
        return _WORDS[text]
    if text == "[":
        return _array(tokens)
    if text == "{":
        return _object(tokens)
    raise NotJson(f"{text!r} where a value is due")


def _array(tokens):
    items, token = [], next(tokens)
    if token == ("sign", "]"):
        return items
    while True:
        items.append(_value(tokens, token))
        token = next(tokens)
        if token == ("sign", "]"):
            return items
        if token != ("sign", ","):
            raise NotJson("neither , nor ]")
        token = next(tokens)


def _object(tokens):
    members, token = {}, next(tokens)
    if token == ("sign", "}"):
        return members
    while True:
        if token[0] != "string":
            raise NotJson("no name")
        name = Name(json.loads(token[1]))
        name.is_escaped = "\\" in token[1]
        if name in members:
            raise NotJson("a name stands twice")
        if next(tokens) != ("sign", ":"):
            raise NotJson("no :")
        members[name] = _value(tokens, next(tokens))
        token = next(tokens)
        if token == ("sign", "}"):
            return members
        if token != ("sign", ","):
            raise NotJson("neither , nor }")
        token = next(tokens)
