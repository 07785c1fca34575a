"""A tool of CodeCall with its metadata, usage examples and visibility."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ...data.json_values import decode_json, encode_json
from ...data.narrowing import is_mapping, is_sequence, list_or_empty, mapping_or_empty
from ...errors import CodeModeError, CodeModeSerializationError
from ...options.checked_fields import option_field, require_nonempty_string_or_none, require_strings
from ...options.part import OptionGroup, option_group
from ...schemas.compiled import JsonSchema
from ...signatures.examples import iterate_samples
from ...signatures.literals import MAX_LITERAL_DEPTH, MAX_LITERAL_ITEMS, to_literal, to_string_literal
from ...tools.prepared import PreparedTool, prepare_tool
from ...tools.tool import Tool

_METADATA_KEY = "codecall"


@dataclass(frozen=True, kw_only=True)
class ToolInfo:
    """The argument of ``include_tools`` and ``direct_calls.filter``. Changing it does not change the tool."""

    name: str
    description: str
    app_id: str | None
    source: str | None
    tags: tuple[str, ...]
    annotations: Mapping[str, Any]


@option_group
class UsageExample(OptionGroup):
    """A usage example from the tool's author: a description and an input."""

    path: ClassVar[str] = ""

    description: str
    input: Any


def _require_boolean_or_none(value: Any, path: str) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(f"{path} must be True or False, got {value!r}")


def _parse_examples(value: Any, path: str) -> tuple[UsageExample, ...]:
    if not is_sequence(value):
        raise ValueError(f"{path} must be a list of examples, got {value!r}")
    return tuple(_parse_example(example, f"{path}[{index}]") for index, example in enumerate(value))


def _parse_example(value: Any, path: str) -> UsageExample:
    if not is_mapping(value) or not {"description", "input"} == {*value}:
        raise ValueError(f'{path} must be {{"description", "input"}}, got {value!r}')
    if not isinstance(value["description"], str):
        raise ValueError(f"{path}.description must be a string, got {value['description']!r}")  # noqa: TRY004 - ValueError, as for other inputs
    return UsageExample(**value)


@option_group
class ToolMetadata(OptionGroup):
    """CodeCall metadata of a tool: visibility, app, source, tags and examples."""

    path: ClassVar[str] = ""

    visible_in_list_tools: bool | None = option_field(None, _require_boolean_or_none)
    enabled_in_code_call: bool | None = option_field(None, _require_boolean_or_none)
    app_id: str | None = option_field(None, require_nonempty_string_or_none)
    source: str | None = option_field(None, require_nonempty_string_or_none)
    tags: tuple[str, ...] = option_field((), require_strings)
    examples: tuple[UsageExample, ...] = option_field((), _parse_examples)


def parse_tool_metadata(tool: Tool) -> ToolMetadata:
    """Return the CodeCall metadata of a tool. Raises `ValueError` with the full path of an invalid field."""
    raw: Any = tool.metadata.get(_METADATA_KEY)
    path = f'tools["{tool.name}"].metadata.{_METADATA_KEY}'
    if raw is not None and not is_mapping(raw):
        raise ValueError(f"{path} must be a mapping, got {raw!r}")
    try:
        return ToolMetadata.of(raw)
    except ValueError as error:
        raise ValueError(f"{path}.{error}") from error


def build_tool_info(tool: Tool, metadata: ToolMetadata) -> ToolInfo:
    """Return the argument of `include_tools` and `direct_calls.filter` for a tool."""
    return ToolInfo(
        name=tool.name,
        description=tool.description,
        app_id=metadata.app_id,
        source=metadata.source,
        tags=metadata.tags,
        annotations=dict(tool.annotations),
    )


# Each example is a whole script. Inputs that the schema rejects or that have no literal are skipped.

MAX_EXAMPLES = 5
_MAX_CODE_CHARACTERS = 4000
_MAX_OPTIONAL_FIELDS = 2
_MAX_NAME_CHARACTERS = 60

_DESCRIPTIONS_BY_VERB: Mapping[str, str] = {
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
_OPTIONAL_FIELD_SUFFIXES = {
    "Creates": "with optional fields",
    "Lists": "with filters",
    "Updates": "with more fields",
    "Searches": "with filters",
}
_LIKELY_FIELD = re.compile(
    "limit|count|max|page|size|top|filter|stat|type|name|title|query|search|sort|order", re.IGNORECASE
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")


def build_usage_examples(tool: PreparedTool, authored: Sequence[UsageExample]) -> list[dict[str, str]]:
    """Return at most five ``{"description", "code"}`` for a tool, those of its author first."""
    title = _describe_from_name(tool.name)
    untitled = [UsageExample(description=title, input=input_value) for input_value in tool.input_examples]
    examples_by_code: dict[str, dict[str, str]] = {}
    for description, inputs in _iter_example_candidates(tool, [*authored, *untitled], title):
        code = next(
            (
                code_text
                for input_value in inputs
                if (code_text := _format_call_script_if_valid_input(tool, input_value)) is not None
            ),
            None,
        )
        if code is not None and code not in examples_by_code:
            examples_by_code[code] = {"description": description, "code": code}
        if len(examples_by_code) == MAX_EXAMPLES:
            break
    return list(examples_by_code.values())


def _iter_example_candidates(
    tool: PreparedTool, authored: Iterable[UsageExample], title: str
) -> Iterator[tuple[str, Iterable[Any]]]:
    """Yield descriptions with candidate inputs; the first valid input of each is used."""
    for example in authored:
        yield example.description, [example.input]
    schema = mapping_or_empty(tool.input_json_schema)
    yield title, iterate_samples(schema) if schema else [{}]
    suffix = _OPTIONAL_FIELD_SUFFIXES.get(title.split(" ", 1)[0])
    optional = _pick_optional_fields(schema)
    if suffix is not None and optional:
        wider_schema = {**schema, "required": [*list_or_empty(schema.get("required")), *optional]}
        yield f"{title} {suffix}", iterate_samples(wider_schema)


def _pick_optional_fields(schema: Mapping[Any, Any]) -> list[str]:
    required = list_or_empty(schema.get("required"))
    names = [name for name in mapping_or_empty(schema.get("properties")) if name not in required]
    return sorted(names, key=lambda name: _LIKELY_FIELD.search(str(name)) is None)[:_MAX_OPTIONAL_FIELDS]


def _format_call_script_if_valid_input(tool: PreparedTool, value: Any) -> str | None:
    if not _has_exact_literal(value, 0) or not _is_valid_input(tool, value):
        return None
    code = f"return await callTool({to_string_literal(tool.name)}, {to_literal(value)})"
    return code if len(code) <= _MAX_CODE_CHARACTERS else None


def _is_valid_input(tool: PreparedTool, value: Any) -> bool:
    try:
        tool.validate_input(value)
    except CodeModeError:
        return False
    return True


def _has_exact_literal(value: Any, depth: int) -> bool:
    """Return True if the literal of a value is complete and reads back as the same value."""
    if value is None or isinstance(value, bool | str):
        return True
    if isinstance(value, int | float):
        return math.isfinite(value)
    if depth >= MAX_LITERAL_DEPTH:
        return False
    if is_mapping(value):
        keys_fit = all(isinstance(key, str) for key in value)  # pyright: ignore[reportUnnecessaryIsInstance]
        return len(value) <= MAX_LITERAL_ITEMS and keys_fit and _have_exact_literals(value.values(), depth)
    return is_sequence(value) and len(value) <= MAX_LITERAL_ITEMS and _have_exact_literals(value, depth)


def _have_exact_literals(values: Iterable[Any], depth: int) -> bool:
    return all(_has_exact_literal(value, depth + 1) for value in values)


def _describe_from_name(name: str) -> str:
    """Describe a tool by the words of its name."""
    name_parts = [word.lower() for word in _WORD.findall(name)]
    verb = next((word for word in name_parts if word in _DESCRIPTIONS_BY_VERB), None)
    if verb is None:
        return f"Calls {name}"
    thing = " ".join(word for word in name_parts if word != verb)[:_MAX_NAME_CHARACTERS]
    return _DESCRIPTIONS_BY_VERB[verb].format(
        one=f"one of {thing}" if thing.endswith("s") else thing or "one", many=thing or "all"
    )


@dataclass(frozen=True)
class RegisteredTool:
    """A registered tool. Versions of a set share derived data through ``_cache``."""

    original: Tool
    tool: PreparedTool
    metadata: ToolMetadata
    info: ToolInfo
    is_indexed: bool = False
    is_listed: bool = False
    _cache: dict[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)

    def with_visibility(self, *, is_indexed: bool, is_listed: bool) -> RegisteredTool:
        """Return the same tool with other visibility."""
        if (self.is_indexed, self.is_listed) == (is_indexed, is_listed):
            return self
        return replace(self, is_indexed=is_indexed, is_listed=is_listed)

    @property
    def definition(self) -> dict[str, Any]:
        """The result of ``getTool``, as plain JSON."""
        found = self._cache.get("definition")
        if found is None:
            found = self._cache["definition"] = _build_definition(self.tool)
        return found

    @property
    def examples(self) -> list[dict[str, str]]:
        """The ``usageExamples`` of the tool."""
        found = self._cache.get("examples")
        if found is None:
            found = self._cache["examples"] = build_usage_examples(self.tool, self.metadata.examples)
        return found


def build_registered_tool(tool: Tool) -> RegisteredTool:
    """Return a tool with its metadata. Raises `ValueError` for invalid metadata."""
    metadata = parse_tool_metadata(tool)
    return RegisteredTool(tool, prepare_tool(tool), metadata, build_tool_info(tool, metadata))


def _build_definition(tool: PreparedTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {} if tool.input_json_schema is None else _schema_to_json(tool.input_json_schema),
        "outputSchema": None if tool.output_json_schema is None else _schema_to_json(tool.output_json_schema),
    }


def _schema_to_json(schema: JsonSchema) -> Any:
    """Return a schema as plain JSON; ``{}`` if it is not JSON, such as with a Python object as default."""
    if isinstance(schema, bool):
        return {} if schema else schema
    try:
        return decode_json(encode_json(schema, what="a schema"))
    except (CodeModeSerializationError, ValueError):
        return {}
