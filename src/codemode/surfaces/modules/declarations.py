"""TypeScript declarations of built-in modules and of servers' modules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...data.json_shape import estimate_json_length
from ...data.narrowing import is_mapping, is_object
from ...data.rich_values import is_rich
from ...schemas.json_schemas import is_empty_schema
from ...signatures.declarations import (
    create_call_types_and_aliases,
    create_example_tags,
    create_hint_tags,
    extract_first_sentence,
    find_tool_description,
)
from ...signatures.described_tool import RenamedTool, rename_tool
from ...signatures.literals import to_comment_line, to_literal, to_string_literal
from ...signatures.shapes import JsDoc
from ...signatures.typescript import format_jsdoc, indent_lines
from .module_tools import RESERVED, ListedServer, ModuleTool, to_specifier

DISCOVERY_DECLARATION = """\
declare module "@codemode/discovery" {
  type Detail = "name" | "description" | "full";
  interface ServerInfo { serverId: string; serverName: string; capabilities?: string[] }
  /** `leftOut`: tools of its list that cannot be used, and why. */
  interface ServerDescription extends ServerInfo {
    description?: string;
    version?: string;
    leftOut?: string[];
    declaration?: string;
  }
  interface ToolSummary {
    toolName: string;
    exportName: string;
    description?: string;
    annotations?: Record<string, unknown>;
  }
  interface ToolDefinition extends ToolSummary { inputSchema?: any; outputSchema?: any; declaration?: string }
  /** `alsoIn`: other servers that have the very same tool. */
  interface FoundTool extends ToolDefinition { serverId: string; alsoIn?: string[] }
  export const specVersion: string;
  export function listServers(): Promise<ServerInfo[]>;
  /** With `declaration`, the TypeScript of the server's module, unless less than "full" is asked for. */
  export function describeServer(serverId: string, options?: { detail?: Detail }): Promise<ServerDescription>;
  export function listTools(serverId: string, options?: { detail?: Detail }): Promise<ToolDefinition[]>;
  /** With schemas and `declaration`, unless less than "full" is asked for. */
  export function getTool(
    serverId: string,
    toolName: string,
    options?: { detail?: Detail },
  ): Promise<ToolDefinition>;
  export function searchTools(
    query: string,
    options?: { detail?: Detail; serverId?: string; limit?: number },
  ): Promise<{ query: string; results: FoundTool[] }>;
}"""

ERRORS_DECLARATION = """\
declare module "@codemode/errors" {
  export class CodemodeError extends Error {
    readonly code: string;
    /** One thing to do about it. */
    readonly hint: string;
    readonly serverId?: string;
    readonly toolName?: string;
  }
  export class SchemaValidationError extends CodemodeError {
    readonly exportName?: string;
    /** A JSON Pointer into the input. */
    readonly path: string;
    readonly expected: string;
    readonly received: string;
    /** An input that fits. */
    readonly example?: any;
  }
  export class ToolNotFoundError extends CodemodeError {}
  export class ServerNotFoundError extends CodemodeError {}
  export class ToolCallError extends CodemodeError {}
  export class AuthenticationError extends ToolCallError {}
  export class SandboxLimitError extends CodemodeError {}
}"""


OBSERVED_KEY = "observed"
"""Key in a tool's ``metadata``: ``{"schema": <JSON Schema>, "isText": <schema is of JSON in text results>}``."""

_MAX_CHARACTERS = 1_500
_RESULT_TYPE_START = "): Promise<"


@dataclass(frozen=True)
class ObservedOutput:
    """The output schema observed in earlier calls; with ``is_text``, the schema of JSON in text results."""

    schema: dict[str, Any]
    is_text: bool

    def apply_to(self, tool: RenamedTool) -> RenamedTool:
        """Return a tool with the observed schema as its output schema."""
        return replace(
            tool,
            output_json_schema={"type": "string"} if self.is_text else self.schema,
            rich_sides=(tool.rich_sides[0], False),
        )

    @property
    def jsdoc_tag(self) -> str:
        """The tag for the comment of the tool's function."""
        if not self.is_text:
            return "@observed The result type is that of earlier calls; it is not guaranteed."
        content_type = RenamedTool("x", "", None, self.schema, (), {})
        calls, aliases = create_call_types_and_aliases([content_type], has_comments=False)
        result_type = "anything" if aliases else calls[0].partition(_RESULT_TYPE_START)[2].removesuffix(">")
        hint = f"The result was JSON text so far: JSON.parse it. It is not guaranteed to be {result_type}"
        return f"@observed {to_comment_line(hint, _MAX_CHARACTERS)}"


def get_observed_output(tool: ModuleTool) -> ObservedOutput | None:
    """Return the observed output of a tool, or None if it declares an output schema."""
    observed = tool.tool.metadata.get(OBSERVED_KEY)
    if not is_mapping(observed) or tool.tool.output_json_schema is not None or not is_object(observed.get("schema")):
        return None
    return ObservedOutput(observed["schema"], observed.get("isText") is True)


def mark_observed_result(call: str) -> str:
    """Return a call type with a comment that marks its result type as observed."""
    # Observed types contain no text of servers, so the last match is not inside a literal.
    before_result, marker, type_text = call.rpartition(_RESULT_TYPE_START)
    return f"{before_result}{marker}/* observed */ {type_text}"


MAX_DECLARATION_CHARACTERS = 16_000
"""Maximum length of one server's declarations in discovery."""

_MAX_TAGS = 12
_MAX_TAG_CHARACTERS = 100
# A declaration is never shorter than its schemas by more than these factors, except for unused definitions.
_MAX_SCHEMA_RATIO = 8
_SCHEMA_CHARACTERS_PER_CHARACTER = 32
_META = (
    "export const __meta__: { serverId: string; serverName: string; serverVersion?: string; "
    "tools: { toolName: string; exportName: string; description?: string }[] };"
)
_PLAIN_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}\Z")
# Not valid as function names in declarations, but valid as exports.
_UNDECLARABLE = RESERVED | {"globalThis", "undefined"}


def declare_server(server: ListedServer) -> str:
    """Return ``declare module "@codemode/servers/<path>" {...}`` with all exports. Cached."""
    return _get_declaration(server, 0)


def declare_tool(server: ListedServer, tool: ModuleTool, max_characters: int = MAX_DECLARATION_CHARACTERS) -> str:
    """Return the module with only this tool, shortened to ``max_characters`` if omitting types achieves that."""
    return next(
        (text for make in _LEVELS if len(text := _format_module(server, make([tool]))) <= max_characters),
        _format_module(server, _format_untyped_members([tool])),
    )


def declare_server_within(server: ListedServer, max_characters: int = MAX_DECLARATION_CHARACTERS) -> str:
    """Return a server's module, shortened to ``max_characters`` as in `declare_servers_within`."""
    return declare_servers_within([server], max_characters)


def declare_servers_within(servers: Sequence[ListedServer], max_characters: int) -> str:
    """Return the modules of servers in at most ``max_characters`` characters: valid TypeScript, always the same.

    Long modules lose comments first, then types, the longest module first; then functions, with a comment that counts
    them. Empty if nothing fits.
    """
    max_server_characters = min(max_characters, MAX_DECLARATION_CHARACTERS)
    levels = [_choose_detail_level(server, max_server_characters) for server in servers]
    texts = [_get_declaration(*pair) for pair in zip(servers, levels, strict=True)]
    while sum(map(len, texts)) + 2 * max(len(texts) - 1, 0) > max_characters:
        shortenable = [index for index, level in enumerate(levels) if level < len(_LEVELS) - 1]
        if not shortenable:
            return _cut_to_fit(servers, texts, max_characters)
        index = max(shortenable, key=lambda index: (len(texts[index]), -index))
        levels[index] += 1
        texts[index] = _get_declaration(servers[index], levels[index])
    return "\n\n".join(texts)


def _choose_detail_level(server: ListedServer, max_characters: int) -> int:
    """Return the first level of detail that fits in ``max_characters``, or the last."""
    last = len(_LEVELS) - 1
    if _are_schemas_larger_than(server, _SCHEMA_CHARACTERS_PER_CHARACTER * max_characters):
        return last
    first = 0 if _estimate_min_characters(server) <= max_characters else 1
    return next((index for index in range(first, last) if len(_get_declaration(server, index)) <= max_characters), last)


def declare_server_if_fits(server: ListedServer, max_characters: int) -> str | None:
    """Return the whole module if it fits, else None. Avoids reading schemas of modules that cannot fit."""
    if _estimate_min_characters(server) > max_characters or _are_schemas_larger_than(
        server, _MAX_SCHEMA_RATIO * max_characters
    ):
        return None
    text = declare_server(server)
    return text if len(text) <= max_characters else None


def _estimate_min_characters(server: ListedServer) -> int:
    """Return the characters that descriptions and names of a module take at least."""
    cache = vars(server)
    least: int | None = cache.get("_least_characters")
    if least is None:
        least = sum(
            len(format_jsdoc(JsDoc(tool.tool.description))) + len(tool.export_name) + 40 for tool in server.tools
        )
        cache["_least_characters"] = least
    return least


def _are_schemas_larger_than(server: ListedServer, characters: int) -> bool:
    """Return True if the schemas of a server are too large to be worth reading."""
    for tool in server.tools:
        schemas = tool.tool.input_json_schema, tool.tool.output_json_schema
        weight = estimate_json_length(schemas, characters + 1)
        characters -= weight
        if characters < 0:
            return True
    return False


def is_declaration_cached(server: ListedServer) -> bool:
    """Return True if a declaration of the server is cached."""
    return any(name.startswith("_declared_") for name in vars(server))


def _get_declaration(server: ListedServer, level: int) -> str:
    # Cached with the server object, which lives as long as its listing.
    cache = vars(server)
    key = f"_declared_{level}{'_rich' if is_rich.get() else ''}"
    text: str | None = cache.get(key)
    if text is None:
        text = cache[key] = _format_module(server, _LEVELS[level](server.tools))
    return text


def _format_module(server: ListedServer, members: list[str]) -> str:
    text = "".join(f"{indent_lines(member)}\n" for member in [*members, _META])
    return f"declare module {to_string_literal(to_specifier(server.path))} {{\n{text}}}"


def _format_full_members(tools: Sequence[ModuleTool]) -> list[str]:
    calls, aliases = create_call_types_and_aliases([_to_exported_tool(tool) for tool in tools], has_handles=False)
    return _join_members([_format_comment(tool) for tool in tools], tools, _mark_observed_calls(tools, calls), aliases)


def _format_short_members(tools: Sequence[ModuleTool]) -> list[str]:
    exported_tools = [_to_exported_tool(tool) for tool in tools]
    calls, aliases = create_call_types_and_aliases(exported_tools, has_comments=False, has_handles=False)
    return _join_members(
        [_format_short_comment(tool) for tool in tools], tools, _mark_observed_calls(tools, calls), aliases
    )


def _mark_observed_calls(tools: Sequence[ModuleTool], calls: Sequence[str]) -> list[str]:
    return [
        mark_observed_result(call) if get_observed_output(tool) else call
        for tool, call in zip(tools, calls, strict=True)
    ]


def _format_untyped_members(tools: Sequence[ModuleTool]) -> list[str]:
    return _join_members([""] * len(tools), tools, ["(input?: unknown): Promise<unknown>"] * len(tools), [])


_LEVELS = (_format_full_members, _format_short_members, _format_untyped_members)


def _join_members(
    comments: Sequence[str], tools: Sequence[ModuleTool], calls: Sequence[str], aliases: list[str]
) -> list[str]:
    lines = list(aliases)
    rename_tool: list[str] = []
    for index, (comment, tool, call) in enumerate(zip(comments, tools, calls, strict=True)):
        name = tool.export_name
        if name not in _UNDECLARABLE:
            lines.append(f"{comment}export function {name}{call};")
        else:
            lines.append(f"{comment}function _{index}{call};")
            rename_tool.append(f"_{index} as {name}")
    # Without an export list TypeScript exports every declaration, including types.
    if rename_tool:
        lines.append(f"export {{ {', '.join(rename_tool)} }};")
    return [*lines, "export {};"] if aliases and not rename_tool else lines


def _cut_to_fit(servers: Sequence[ListedServer], texts: Sequence[str], max_characters: int) -> str:
    parts: list[str] = []
    remaining = max_characters
    for server, text in zip(servers, texts, strict=True):
        part = text if len(text) <= remaining else _format_first_functions(server, remaining)
        if part:
            parts.append(part)
            remaining -= len(part) + 2
    return "\n\n".join(parts)


def _format_first_functions(server: ListedServer, remaining: int) -> str:
    """Return as many functions of a module as fit, and the number of the others."""
    lines = _format_untyped_members(server.tools)
    remaining -= len(_format_module(server, [_format_omitted_functions_comment(len(lines))]))
    count = 0
    for line in lines:
        remaining -= len(line) + 3
        if remaining < 0:
            break
        count += 1
    return (
        _format_module(server, [*lines[:count], _format_omitted_functions_comment(len(lines) - count)])
        if remaining >= 0 or count
        else ""
    )


def _format_omitted_functions_comment(count: int) -> str:
    return f"// {count} more: listTools of @codemode/discovery has them all."


def _to_exported_tool(tool: ModuleTool) -> RenamedTool:
    exported = rename_tool(tool.tool, tool.export_name)
    if (observed := get_observed_output(tool)) is not None:
        exported = observed.apply_to(exported)
    return replace(exported, input_json_schema=None) if is_empty_schema(exported.input_json_schema) else exported


def _format_comment(tool: ModuleTool) -> str:
    others = {name: value for name, value in tool.tool.annotations.items() if name not in _PLAIN_HINTS}
    tags = [*create_hint_tags(tool.tool), *_build_annotation_tags(others), *create_example_tags(tool.tool)]
    if (observed := get_observed_output(tool)) is not None:
        tags.append(observed.jsdoc_tag)
    return format_jsdoc(JsDoc(find_tool_description(tool.tool), tuple(tags)))


def _format_short_comment(tool: ModuleTool) -> str:
    return format_jsdoc(
        JsDoc(extract_first_sentence(find_tool_description(tool.tool)), tuple(create_hint_tags(tool.tool)))
    )


def _build_annotation_tags(annotations: Mapping[str, Any]) -> list[str]:
    tags = [
        f"@{name} {to_comment_line(value if isinstance(value, str) else to_literal(value), _MAX_TAG_CHARACTERS)}"
        for name, value in annotations.items()
        if _TAG.match(str(name)) and isinstance(value, str | bool | int | float)
    ]
    return tags[:_MAX_TAGS]
