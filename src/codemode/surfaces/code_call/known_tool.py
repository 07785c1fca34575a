"""A tool of CodeCall: its metadata, its examples and its place in the index."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ...data.json_values import decode_json, encode_json
from ...data.narrowing import is_mapping, is_sequence, list_or_empty, mapping_or_empty
from ...errors import CodeModeError, CodeModeSerializationError
from ...options.checked_fields import checked, strings, text_or_none
from ...options.part import OptionPart
from ...schemas.compiled import JsonSchema
from ...signatures.examples import samples
from ...signatures.literals import MAX_LITERAL_DEPTH, MAX_LITERAL_ITEMS, literal, string_literal
from ...tools.prepared import PreparedTool, prepared
from ...tools.tool import Tool

_KEY = "codecall"


@dataclass(frozen=True, kw_only=True)
class ToolInfo:
    """What ``include_tools`` and ``direct_calls.filter`` are told of a tool. Nothing in it changes the tool."""

    name: str
    description: str
    app_id: str | None
    source: str | None
    tags: tuple[str, ...]
    annotations: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class UsageExample(OptionPart):
    """An example of a tool's author: what it shows, and the input that does so."""

    path: ClassVar[str] = ""

    description: str
    input: Any


def _boolean_or_none(value: Any, path: str) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(f"{path} must be True or False, got {value!r}")


def _examples(value: Any, path: str) -> tuple[UsageExample, ...]:
    if not is_sequence(value):
        raise ValueError(f"{path} must be a list of examples, got {value!r}")
    return tuple(_example(one, f"{path}[{at}]") for at, one in enumerate(value))


def _example(value: Any, path: str) -> UsageExample:
    if not is_mapping(value) or not {"description", "input"} == {*value}:
        raise ValueError(f'{path} must be {{"description", "input"}}, got {value!r}')
    if not isinstance(value["description"], str):
        raise ValueError(f"{path}.description must be a string, got {value['description']!r}")  # noqa: TRY004 - as above
    return UsageExample(**value)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ToolMetadata(OptionPart):
    """Whether a tool is in the index and in the list of tools, what it belongs to, and how it is used."""

    path: ClassVar[str] = ""

    visible_in_list_tools: bool | None = checked(None, _boolean_or_none)
    enabled_in_code_call: bool | None = checked(None, _boolean_or_none)
    app_id: str | None = checked(None, text_or_none)
    source: str | None = checked(None, text_or_none)
    tags: tuple[str, ...] = checked((), strings)
    examples: tuple[UsageExample, ...] = checked((), _examples)


def metadata_of(tool: Tool) -> ToolMetadata:
    """Return what a tool says of itself. Raises `ValueError` naming the full path of what is wrong."""
    said: Any = tool.metadata.get(_KEY)
    path = f'tools["{tool.name}"].metadata.{_KEY}'
    if said is not None and not is_mapping(said):
        raise ValueError(f"{path} must be a mapping, got {said!r}")
    try:
        return ToolMetadata.of(said)
    except ValueError as error:
        raise ValueError(f"{path}.{error}") from error


def info_of(tool: Tool, metadata: ToolMetadata) -> ToolInfo:
    """Return what filters are told of a tool."""
    return ToolInfo(
        name=tool.name,
        description=tool.description,
        app_id=metadata.app_id,
        source=metadata.source,
        tags=metadata.tags,
        annotations=dict(tool.annotations),
    )


# Each is a whole script. Inputs that the tool's own schema refuses, or that cannot be written, are left out.

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


@dataclass(frozen=True)
class KnownTool:
    """A tool that somebody registered. What is made of it is shared by the versions of a set that have it."""

    made: Tool
    tool: PreparedTool
    metadata: ToolMetadata
    info: ToolInfo
    is_indexed: bool = False
    is_listed: bool = False
    _kept: dict[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)

    def at(self, *, is_indexed: bool, is_listed: bool) -> KnownTool:
        """Return the same tool at another place."""
        if (self.is_indexed, self.is_listed) == (is_indexed, is_listed):
            return self
        return replace(self, is_indexed=is_indexed, is_listed=is_listed)

    @property
    def definition(self) -> dict[str, Any]:
        """What ``getTool`` gives of it, as plain JSON."""
        found = self._kept.get("definition")
        if found is None:
            found = self._kept["definition"] = _definition(self.tool)
        return found

    @property
    def examples(self) -> list[dict[str, str]]:
        """What ``usageExamples`` are."""
        found = self._kept.get("examples")
        if found is None:
            found = self._kept["examples"] = usage_examples(self.tool, self.metadata.examples)
        return found


def known_tool(tool: Tool) -> KnownTool:
    """Return a tool with what it says of itself. Raises `ValueError` for metadata that is wrong."""
    metadata = metadata_of(tool)
    return KnownTool(tool, prepared(tool), metadata, info_of(tool, metadata))


def _definition(tool: PreparedTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {} if tool.input_json_schema is None else _plain(tool.input_json_schema),
        "outputSchema": None if tool.output_json_schema is None else _plain(tool.output_json_schema),
    }


def _plain(schema: JsonSchema) -> Any:
    """Return a schema as plain JSON. Of one that is none, as with a default of Python's own, nothing is shown."""
    if isinstance(schema, bool):
        return {} if schema else schema
    try:
        return decode_json(encode_json(schema, what="a schema"))
    except (CodeModeSerializationError, ValueError):
        return {}
