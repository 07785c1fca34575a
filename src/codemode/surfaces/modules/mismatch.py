"""The mismatch of an input and its schema, field by field: where, what was expected, what was received, an example.

Made of what a validator has said, whichever it was. Pure.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from ...data.json_values import NOT_GIVEN, encode_json
from ...data.narrowing import is_array, is_object, list_or_empty, mapping_or_empty, string_or_empty
from ...data.references import LocalReferences
from ...errors import CodeModeError
from ...schemas.compiled import json_type
from ...signatures.described_tool import DescribedTool
from ...signatures.examples import sample_value
from ...trace.visible_text import clipped

MAX_EXAMPLE_BYTES = 4_000
NOTHING = "nothing"
_NO_PROPERTY = "no property of this name"
_MAX_TEXT_CHARACTERS = 200
_MAX_PARTS = 64
_MAX_VALUES = 500
_MAX_ALTERNATIVES = 16
_STEP = re.compile(r"\.?(?P<name>[^\W\d]\w*)|\[(?P<index>[0-9]{1,9})\]|\[(?P<text>\"(?:[^\"\\]|\\.)*\")\]")
_JSON_TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}
_GOT = re.compile(r"expected (?P<expected>[a-z]+(?: or [a-z]+)*), got (?P<received>[a-z]+)")
_MISSING = re.compile(r'missing required (?P<name>"(?:[^"\\]|\\.)*")')
_UNKNOWN = re.compile(r"does not take (?P<name>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
_BEGINNINGS = ("must be ", "must satisfy ", "Input should be ", "Value error, ", "Assertion failed, ")

Parts = list[str | int]


def mismatch(problem: Any, schema: Any, received: str | None) -> dict[str, str]:
    """Return ``path``, a JSON Pointer, ``expected`` and ``received`` of the first problem of an input."""
    parts, expected, told = _understood(problem, schema)
    return {"path": pointer(parts), "expected": expected, "received": received or told or "another value"}


def received_of(problems: Any, value: Any) -> str | None:
    """Return what stands where the first problem is: its type, or a small value of the right type in short."""
    parts, expected, told = _understood(next(iter(list_or_empty(problems)), None), None)
    if told is not None:
        return told
    for at, part in enumerate(parts):
        if is_object(value) and part in value:
            value = value[str(part)]
        elif is_array(value) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif at == len(parts) - 1:
            return NOTHING
    is_about_type = set(expected.split(" or ")) <= _JSON_TYPES or "valid" in expected
    return json_type(value) if is_about_type or is_array(value) or is_object(value) else _short(value)


def parts_of(path: str) -> Parts:
    """Return the parts of a path as a validator writes it: ``items[0].name``. What was cut off is left out."""
    parts: Parts = []
    position = 0
    while len(parts) < _MAX_PARTS and (step := _STEP.match(path, position)):
        if step["index"] is not None:
            parts.append(int(step["index"]))
        else:
            parts.append(step["name"] if step["text"] is None else str(_read(json.loads, step["text"])))
        position = step.end()
    return parts


def pointer(parts: Sequence[str | int]) -> str:
    """Return a JSON Pointer; empty for the whole."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def example_of(tool: DescribedTool) -> Any:
    """Return an input that fits, `NOT_GIVEN` where none is small: the schema's own, the author's, else one made."""
    schema = tool.input_json_schema
    rest = dict(mapping_or_empty(schema))
    own = list_or_empty(rest.pop("examples", None))
    offered = [*own[:1], *tool.input_examples[:1], sample_value(rest)]
    for example in offered:
        try:
            text = encode_json(example, max_bytes=MAX_EXAMPLE_BYTES, max_values=_MAX_VALUES, what="an example")
            return json.loads(text)
        except (CodeModeError, ValueError):
            continue
    return NOT_GIVEN


def _understood(problem: Any, schema: Any) -> tuple[Parts, str, str | None]:
    """Return where the failing value stands, what was expected there and, where it is said, what was received."""
    said = mapping_or_empty(problem)
    parts, message = parts_of(string_or_empty(said.get("path"))), string_or_empty(said.get("message"))
    if found := _GOT.match(message):
        return parts, found["expected"], found["received"]
    if found := _MISSING.match(message):
        parts = [*parts, str(_read(json.loads, found["name"]))]
    if found or message == "Field required":
        return parts, _type_at(schema, parts) or "a value", NOTHING
    if found := _UNKNOWN.match(message):
        return [*parts, str(_read(ast.literal_eval, found["name"]))], _NO_PROPERTY, None
    if message in ("is not allowed", "Extra inputs are not permitted"):
        return parts, _NO_PROPERTY, None
    named = _type_at(schema, parts) if message.startswith("Input should be a valid ") else None
    return parts, named or _rest_of(message), None


def _rest_of(message: str) -> str:
    for beginning in _BEGINNINGS:
        message = message.removeprefix(beginning)
    return clipped(message, _MAX_TEXT_CHARACTERS) or "another value"


def _type_at(schema: Any, parts: Parts) -> str | None:
    """Return the type that a schema names at a place, as far as that is certain."""
    local = LocalReferences(schema)
    found = _alternatives(local, [schema])
    for part in parts:
        found = _alternatives(local, [_within(one, part) for one in found])
    return next((named for one in found if (named := _named(one)) not in (None, "null")), None)


def _alternatives(local: LocalReferences, schemas: list[Any]) -> list[Mapping[Any, Any]]:
    """Return what schemas come to, those that they choose between among it."""
    found: list[Mapping[Any, Any]] = []
    pending = schemas[:]
    for _ in range(_MAX_ALTERNATIVES):
        if not pending:
            break
        rules = mapping_or_empty(local.followed(pending.pop(0)))
        found.append(rules)
        for keyword in ("anyOf", "oneOf"):
            pending += islice(list_or_empty(rules.get(keyword)), _MAX_ALTERNATIVES)  # more are never come to
    return found


def _within(rules: Mapping[Any, Any], part: str | int) -> Any:
    if isinstance(part, int):
        listed = list_or_empty(rules.get("prefixItems"))
        return listed[part] if part < len(listed) else rules.get("items")
    return mapping_or_empty(rules.get("properties")).get(part, rules.get("additionalProperties"))


def _named(schema: Mapping[Any, Any]) -> str | None:
    declared = schema.get("type")
    names = [one for one in list_or_empty(declared) or [declared] if isinstance(one, str) and one in _JSON_TYPES]
    return " or ".join(names) or None


def _read(read: Any, text: str) -> Any:
    try:
        return read(text)
    except (ValueError, SyntaxError):
        return text


def _short(value: Any) -> str:
    text = value[: _MAX_TEXT_CHARACTERS + 1] if isinstance(value, str) else value
    return clipped(json.dumps(text, ensure_ascii=False), _MAX_TEXT_CHARACTERS)
