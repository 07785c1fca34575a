"""Examples of scripts that call one tool: its author's, and others by what its name says that it does.

Each is a whole script. Inputs that the tool's own schema refuses, or that cannot be written, are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...data.narrowing import is_mapping, is_sequence, list_or_empty, mapping_or_empty
from ...errors import CodeModeError
from ...signatures.closer_samples import samples
from ...signatures.literals import MAX_LITERAL_DEPTH, MAX_LITERAL_ITEMS, literal, string_literal
from ...tools.prepared import PreparedTool
from .metadata import UsageExample

MAX_EXAMPLES = 5
_MAX_CODE_CHARACTERS = 4000
_MAX_OPTIONAL = 2
_LONGEST_NAME = 60

_INTENTS: Mapping[str, str] = {
    "create": "Creates {one}",
    "add": "Creates {one}",
    "list": "Lists {many}",
    "all": "Lists {many}",
    "get": "Gets {one}",
    "fetch": "Gets {one}",
    "update": "Updates {one}",
    "set": "Updates {one}",
    "delete": "Deletes {one}",
    "remove": "Deletes {one}",
    "rm": "Deletes {one}",
    "search": "Searches {many}",
    "find": "Searches {many}",
}
_WITH_MORE = {
    "Creates": "with optional fields",
    "Lists": "with filters",
    "Updates": "with more fields",
    "Searches": "with filters",
}
_LIKELY = re.compile("limit|count|max|page|size|top|filter|stat|type|name|title|query|search|sort|order", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")


def usage_examples(tool: PreparedTool, given: Sequence[UsageExample]) -> list[dict[str, str]]:
    """Return at most five ``{"description", "code"}`` of a tool, those that are given first."""
    said = _title(tool.name)
    bare = [UsageExample(description=said, input=one) for one in tool.input_examples]
    made: dict[str, dict[str, str]] = {}
    for description, inputs in _offered(tool, [*given, *bare], said):
        code = next((text for one in inputs if (text := _code(tool, one)) is not None), None)
        if code is not None and code not in made:
            made[code] = {"description": description, "code": code}
        if len(made) == MAX_EXAMPLES:
            break
    return list(made.values())


def _offered(tool: PreparedTool, given: Iterable[UsageExample], said: str) -> Iterator[tuple[str, Iterable[Any]]]:
    """Yield what each example says, with inputs of which the first that can be shown is."""
    for one in given:
        yield one.description, [one.input]
    schema = mapping_or_empty(tool.input_json_schema)
    yield said, samples(schema) if schema else [{}]
    more = _WITH_MORE.get(said.split(" ", 1)[0])
    optional = _optional(schema)
    if more is not None and optional:
        wider = {**schema, "required": [*list_or_empty(schema.get("required")), *optional]}
        yield f"{said} {more}", samples(wider)


def _optional(schema: Mapping[Any, Any]) -> list[str]:
    required = list_or_empty(schema.get("required"))
    names = [name for name in mapping_or_empty(schema.get("properties")) if name not in required]
    return sorted(names, key=lambda name: _LIKELY.search(str(name)) is None)[:_MAX_OPTIONAL]


def _code(tool: PreparedTool, value: Any) -> str | None:
    if not _can_be_written(value, 0) or not _fits(tool, value):
        return None
    code = f"return await callTool({string_literal(tool.name)}, {literal(value)})"
    return code if len(code) <= _MAX_CODE_CHARACTERS else None


def _fits(tool: PreparedTool, value: Any) -> bool:
    try:
        tool.validate_input(value)
    except CodeModeError:
        return False
    return True


def _can_be_written(value: Any, depth: int) -> bool:
    """Tell whether a literal has all of a value, and reads as that very value."""
    if value is None or isinstance(value, bool | str):
        return True
    if isinstance(value, int | float):
        return math.isfinite(value)
    if depth >= MAX_LITERAL_DEPTH:
        return False
    if is_mapping(value):
        keys_fit = all(isinstance(key, str) for key in value)  # pyright: ignore[reportUnnecessaryIsInstance]
        return len(value) <= MAX_LITERAL_ITEMS and keys_fit and _can_all(value.values(), depth)
    return is_sequence(value) and len(value) <= MAX_LITERAL_ITEMS and _can_all(value, depth)


def _can_all(values: Iterable[Any], depth: int) -> bool:
    return all(_can_be_written(one, depth + 1) for one in values)


def _title(name: str) -> str:
    """Say what a tool does by the words of its name."""
    words = [word.lower() for word in _WORD.findall(name)]
    intent = next((word for word in words if word in _INTENTS), None)
    if intent is None:
        return f"Calls {name}"
    thing = " ".join(word for word in words if word != intent)[:_LONGEST_NAME]
    return _INTENTS[intent].format(
        one=f"one of {thing}" if thing.endswith("s") else thing or "one", many=thing or "all"
    )
