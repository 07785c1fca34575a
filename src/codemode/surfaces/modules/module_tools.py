"""Tools of a server as exports of a module: names, schemas, input errors."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...cached_property import cached_property
from ...data.json_values import NOT_GIVEN, encode_json
from ...data.narrowing import is_array, is_mapping, is_object, list_or_empty, mapping_or_empty, string_or_empty
from ...data.references import LocalReferenceResolver
from ...errors import CodeModeError, CodeModeToolError
from ...schemas.compiled import ValidatedInput, get_json_type_name
from ...schemas.json_schemas import is_empty_schema
from ...signatures.described_tool import DescribedTool
from ...signatures.examples import create_sample_value
from ...tools.collecting import collect_unprepared_tools
from ...tools.prepared import MISSING, PreparedTool
from ...tools.server_lists import (
    MAX_DESCRIPTION_CHARACTERS,
    OmittedEntries,
    format_entry_label,
    to_bounded_annotations,
    to_bounded_text,
)
from ...tools.tool import Tool, require_name
from ...tools.tool_schemas import compile_foreign_schemas
from ...trace.unseen import has_only_visible_characters
from ...trace.visible_text import clip_text

if TYPE_CHECKING:
    from ...tools.prepared import PreparedTool


ERRORS_MODULE = "@codemode/errors"
DISCOVERY_MODULE = "@codemode/discovery"
SERVERS_PREFIX = "@codemode/servers/"
META_EXPORT = "__meta__"
MAX_CALLED_CHARACTERS = 512
"""Maximum length of a qualified tool name."""

_DEFAULT_PATH = "server"
_NON_PATH_CHARACTERS = re.compile("[^a-z0-9]+")
_RESERVED_TEXT = """
    break case catch class const continue debugger default delete do else export extends false finally for function if
    import in instanceof new null return super switch this throw true try typeof var void while with yield let static
    await enum implements interface package private protected public eval arguments
"""
RESERVED = frozenset(_RESERVED_TEXT.split())
"""Reserved words, and names that a module cannot use for variables."""
# JavaScript calls functions of these names implicitly: `await import()` calls then, `${namespace}` the others.
_FORBIDDEN_EXPORTS = RESERVED | {"then", "toString", "toLocaleString", "valueOf", "toJSON"}


def assign_module_paths(server_ids: Iterable[str]) -> list[str]:
    """Return the path of each server, in order; the first of equal paths keeps it."""
    counts: dict[str, int] = {}
    paths: list[str] = []
    for server_id in server_ids:
        path = _NON_PATH_CHARACTERS.sub("-", server_id.lower()).strip("-") or _DEFAULT_PATH
        counts[path] = counts.get(path, 0) + 1
        paths.append(path if counts[path] == 1 else f"{path}--{counts[path]}")  # no other path contains two hyphens
    return paths


def assign_export_names(tool_names: Iterable[str]) -> dict[str, str]:
    """Return the export name of each tool, by tool name in alphabetical order."""
    taken = {META_EXPORT}
    exports: dict[str, str] = {}
    counts: dict[str, int] = {}
    for tool_name in sorted(set(tool_names)):
        identifier = _to_identifier(tool_name)
        name = identifier
        while name in taken:
            counts[identifier] = counts.get(identifier, 1) + 1
            name = f"{identifier}__{counts[identifier]}"
        taken.add(name)
        exports[tool_name] = name
    return exports


def to_specifier(path: str) -> str:
    """Return the specifier of a server's module."""
    return SERVERS_PREFIX + path


def to_server_path(specifier: str) -> str | None:
    """Return the server path in a module specifier, or None for another module."""
    return specifier[len(SERVERS_PREFIX) :] if specifier.startswith(SERVERS_PREFIX) else None


def to_qualified_name(path: str, tool_name: str) -> str:
    """Return the name of a tool in a run. A path contains no dot."""
    return f"{path}.{tool_name}"


def _to_identifier(tool_name: str) -> str:
    name = "".join(character if _can_continue_identifier(character) else "_" for character in tool_name)
    if not _can_start_identifier(name[:1]):
        name = f"_{name}"
    return f"{name}_" if name in _FORBIDDEN_EXPORTS else name


def _can_start_identifier(character: str) -> bool:
    return character == "$" or character.isidentifier()


def _can_continue_identifier(character: str) -> bool:
    # Exclude invisible letters: two names would look the same, and a model could not write them.
    return character == "$" or (f"_{character}".isidentifier() and has_only_visible_characters(character))


@dataclass(frozen=True, eq=False)
class ModuleTool:
    """One tool of a server: its name at the server, its export name, and the prepared tool.

    ``tool.name`` is the qualified name ``<path>.<tool_name>``.
    """

    tool_name: str
    export_name: str
    tool: PreparedTool


@dataclass(frozen=True, eq=False)
class ListedServer:
    """One server as last listed. ``path`` is part of its module name, ``server_id`` is the host's id.

    ``tools`` are ordered by name. ``left_out`` explains which entries of its list were left out.
    """

    path: str
    server_id: str
    name: str
    version: str | None
    description: str | None
    capabilities: tuple[str, ...]
    tools: tuple[ModuleTool, ...]
    left_out: tuple[str, ...] = ()
    failure: str | None = None
    """Why the server cannot be used now, for descriptions."""

    @cached_property
    def all_tool_names(self) -> frozenset[str]:
        """All names of its tools: original, exported and qualified."""
        return frozenset(name for tool in self.tools for name in (tool.tool_name, tool.export_name, tool.tool.name))

    @cached_property
    def may_wait_for_person(self) -> bool:
        """True if a call of some tool can wait for a person."""
        return any(tool.tool.may_wait_for_person for tool in self.tools)

    def format_omission_suffix(self, tool_name: str) -> str:
        """Return a suffix for messages about a missing tool: why it was left out, if known."""
        notes = (note for note in self.left_out if f'"{tool_name}"' in note)
        return next((f" (left out of its list: {note})" for note in notes), "")


# Works with the messages of any validator.

MAX_EXAMPLE_BYTES = 4_000
NOTHING = "nothing"
_NO_PROPERTY = "no property of this name"
_MAX_TEXT_CHARACTERS = 200
_MAX_PARTS = 64
_MAX_VALUES = 500
_MAX_ALTERNATIVES = 16
_STEP = re.compile(r"\.?(?P<name>[^\W\d]\w*)|\[(?P<index>[0-9]{1,9})\]|\[(?P<text>\"(?:[^\"\\]|\\.)*\")\]")
_JSON_TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}
_TYPE_MISMATCH = re.compile(r"expected (?P<expected>[a-z]+(?: or [a-z]+)*), got (?P<received>[a-z]+)")
_MISSING = re.compile(r'missing required (?P<name>"(?:[^"\\]|\\.)*")')
_UNKNOWN = re.compile(r"does not take (?P<name>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
_MESSAGE_PREFIXES = ("must be ", "must satisfy ", "Input should be ", "Value error, ", "Assertion failed, ")

PathParts = list[str | int]


def describe_mismatch(problem: Any, schema: Any, received: str | None) -> dict[str, str]:
    """Return ``path`` (a JSON Pointer), ``expected`` and ``received`` of the first problem of an input."""
    parts, expected, received_text = _parse_problem(problem, schema)
    return {
        "path": to_json_pointer(parts),
        "expected": expected,
        "received": received or received_text or "another value",
    }


def describe_received_value(problems: Any, value: Any) -> str | None:
    """Return what the input has at the first problem: the type, or a small value of the right type."""
    parts, expected, received_text = _parse_problem(next(iter(list_or_empty(problems)), None), None)
    if received_text is not None:
        return received_text
    for index, part in enumerate(parts):
        if is_object(value) and part in value:
            value = value[str(part)]
        elif is_array(value) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif index == len(parts) - 1:
            return NOTHING
    is_about_type = set(expected.split(" or ")) <= _JSON_TYPES or "valid" in expected
    return get_json_type_name(value) if is_about_type or is_array(value) or is_object(value) else _to_short_json(value)


def parse_problem_path(path: str) -> PathParts:
    """Return the parts of a validator's path, such as ``items[0].name``; an incomplete end is dropped."""
    parts: PathParts = []
    position = 0
    while len(parts) < _MAX_PARTS and (step := _STEP.match(path, position)):
        if step["index"] is not None:
            parts.append(int(step["index"]))
        else:
            parts.append(step["name"] if step["text"] is None else str(_parse_literal(json.loads, step["text"])))
        position = step.end()
    return parts


def to_json_pointer(parts: Sequence[str | int]) -> str:
    """Return a JSON Pointer; empty for the root."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def find_or_generate_example(tool: DescribedTool) -> Any:
    """Return a small valid input from the schema, the author or generated, or `NOT_GIVEN`."""
    schema = tool.input_json_schema
    schema_without_examples = dict(mapping_or_empty(schema))
    schema_examples = list_or_empty(schema_without_examples.pop("examples", None))
    candidates = [*schema_examples[:1], *tool.input_examples[:1], create_sample_value(schema_without_examples)]
    for example in candidates:
        try:
            text = encode_json(example, max_bytes=MAX_EXAMPLE_BYTES, max_values=_MAX_VALUES, what="an example")
            return json.loads(text)
        except (CodeModeError, ValueError):
            continue
    return NOT_GIVEN


def _parse_problem(problem: Any, schema: Any) -> tuple[PathParts, str, str | None]:
    """Return the path of the failing value, what was expected, and what was received if known."""
    fields = mapping_or_empty(problem)
    parts, message = parse_problem_path(string_or_empty(fields.get("path"))), string_or_empty(fields.get("message"))
    if found := _TYPE_MISMATCH.match(message):
        return parts, found["expected"], found["received"]
    if found := _MISSING.match(message):
        parts = [*parts, str(_parse_literal(json.loads, found["name"]))]
    if found or message == "Field required":
        return parts, _find_type(schema, parts) or "a value", NOTHING
    if found := _UNKNOWN.match(message):
        return [*parts, str(_parse_literal(ast.literal_eval, found["name"]))], _NO_PROPERTY, None
    if message in ("is not allowed", "Extra inputs are not permitted"):
        return parts, _NO_PROPERTY, None
    type_name = _find_type(schema, parts) if message.startswith("Input should be a valid ") else None
    return parts, type_name or _strip_message_prefixes(message), None


def _strip_message_prefixes(message: str) -> str:
    for prefix in _MESSAGE_PREFIXES:
        message = message.removeprefix(prefix)
    return clip_text(message, _MAX_TEXT_CHARACTERS) or "another value"


def _find_type(schema: Any, parts: PathParts) -> str | None:
    """Return the type that a schema certainly requires at a path, or None."""
    local = LocalReferenceResolver(schema)
    schemas_at_path = _expand_alternatives(local, [schema])
    for part in parts:
        schemas_at_path = _expand_alternatives(local, [_get_child_schema(rules, part) for rules in schemas_at_path])
    return next(
        (type_name for rules in schemas_at_path if (type_name := _join_type_names(rules)) not in (None, "null")), None
    )


def _expand_alternatives(local: LocalReferenceResolver, schemas: list[Any]) -> list[Mapping[Any, Any]]:
    """Return schemas with references resolved and alternatives included."""
    expanded: list[Mapping[Any, Any]] = []
    pending = schemas[:]
    for _ in range(_MAX_ALTERNATIVES):
        if not pending:
            break
        rules = mapping_or_empty(local.follow_reference_chain(pending.pop(0)))
        expanded.append(rules)
        for keyword in ("anyOf", "oneOf"):
            pending += islice(list_or_empty(rules.get(keyword)), _MAX_ALTERNATIVES)  # more are never used
    return expanded


def _get_child_schema(rules: Mapping[Any, Any], part: str | int) -> Any:
    if isinstance(part, int):
        prefix_items = list_or_empty(rules.get("prefixItems"))
        return prefix_items[part] if part < len(prefix_items) else rules.get("items")
    return mapping_or_empty(rules.get("properties")).get(part, rules.get("additionalProperties"))


def _join_type_names(schema: Mapping[Any, Any]) -> str | None:
    types = schema.get("type")
    names = [name for name in list_or_empty(types) or [types] if isinstance(name, str) and name in _JSON_TYPES]
    return " or ".join(names) or None


def _parse_literal(parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except (ValueError, SyntaxError):
        return text


def _to_short_json(value: Any) -> str:
    text = value[: _MAX_TEXT_CHARACTERS + 1] if isinstance(value, str) else value
    return clip_text(json.dumps(text, ensure_ascii=False), _MAX_TEXT_CHARACTERS)


_log = logging.getLogger("codemode.tools")


def collect_server_tools(
    tools: Mapping[str, Any] | Iterable[Any], left_out: OmittedEntries | None = None
) -> dict[str, Tool]:
    """Collect tools under the names that their server uses.

    Invalid tools are added to ``left_out``; without it, raises `ValueError`.
    """
    if left_out is None and is_mapping(tools) and "" in tools:
        _log.warning("a tool without a name is left out")
        tools = {name: tool for name, tool in tools.items() if name != ""}
    return collect_unprepared_tools(tools, require_name, left_out)


def create_module_tools(path: str, tools: Mapping[str, Tool], left_out: OmittedEntries) -> tuple[ModuleTool, ...]:
    """Return the tools of a server's module in alphabetical order, with compiled schemas."""
    callable_names = [name for name in tools if _accept_name_or_record_omission(path, name, left_out)]
    exports = assign_export_names(callable_names)
    return tuple(
        ModuleTool(name, export, QualifiedTool(tools[name], to_qualified_name(path, name)))
        for name, export in exports.items()
    )


class QualifiedTool(PreparedTool):
    """A tool with its qualified name. An unreadable schema accepts anything."""

    def __init__(self, tool: Tool, name: str) -> None:
        super().__init__(tool)
        self.name = name
        self.description = to_bounded_text(tool.description, MAX_DESCRIPTION_CHARACTERS) or ""
        self.annotations = to_bounded_annotations(tool.annotations)
        self._schemas = compile_foreign_schemas(name, tool.input_schema, tool.output_schema)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Validate an input; errors include what was received.

        A tool without input schema gets ``{}`` from a call without input, as an MCP server would.
        """
        if value is MISSING and is_empty_schema(self.input_json_schema):
            value = {}
        try:
            return super().validate_input(value)
        except CodeModeToolError as error:
            if error.reason == "validation":
                error.details["received"] = describe_received_value(error.details.get("problems"), value)
                if "example" not in vars(self):
                    _ = self.example
            raise

    @cached_property
    def example(self) -> Any:
        """A small valid input, or `NOT_GIVEN`."""
        return find_or_generate_example(self)


def _accept_name_or_record_omission(path: str, name: str, left_out: OmittedEntries) -> bool:
    """Return True if a program can call a tool by this name. Lone surrogates cannot be sent to workers."""
    try:
        name.encode()
    except UnicodeEncodeError:
        is_text = False
    else:
        is_text = True
    if is_text and len(to_qualified_name(path, name)) <= MAX_CALLED_CHARACTERS:
        return True
    left_out.add_entry("no program could call it by its name", format_entry_label({"name": name}, 1))
    return False
