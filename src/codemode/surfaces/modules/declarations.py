"""Built-in modules and the modules of servers as TypeScript declarations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...data.json_shape import weigh
from ...data.narrowing import is_mapping, is_object
from ...data.rich_values import is_rich
from ...schemas.json_schemas import says_nothing
from ...signatures.declarations import call_types, example_tags, first_sentence, summary_of
from ...signatures.described_tool import Renamed, renamed
from ...signatures.literals import comment_line, literal, string_literal
from ...signatures.shapes import Doc
from ...signatures.typescript import indented, jsdoc
from .module_tools import RESERVED, ListedServer, ModuleTool, module_of

DISCOVERY = """\
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

ERRORS = """\
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


KEY = "observed"
"""Where the ``metadata`` of a tool has it: ``{"schema": <JSON Schema>, "isText": <of the JSON in its text>}``."""

_MAX_CHARACTERS = 1_500
_GIVES = "): Promise<"


@dataclass(frozen=True)
class ObservedOutput:
    """The schema of what calls gave; with ``is_text`` each gave a text, and that is the schema of the JSON in it."""

    schema: dict[str, Any]
    is_text: bool

    def on(self, shown: Renamed) -> Renamed:
        """Return a tool as if it had declared what was observed."""
        return replace(
            shown,
            output_json_schema={"type": "string"} if self.is_text else self.schema,
            rich_sides=(shown.rich_sides[0], False),
        )

    @property
    def tag(self) -> str:
        """The tag in the comment of its function."""
        if not self.is_text:
            return "@observed The type of the result is what calls gave so far; it is not promised."
        inside = Renamed("x", "", None, self.schema, (), {})
        calls, aliases = call_types([inside], has_comments=False)
        said = "anything" if aliases else calls[0].partition(_GIVES)[2].removesuffix(">")
        hint = f"The result is a text that was JSON so far: JSON.parse it. It is not promised to be {said}"
        return f"@observed {comment_line(hint, _MAX_CHARACTERS)}"


def observed_output(one: ModuleTool) -> ObservedOutput | None:
    """Return what was observed of a tool, None for one that declares its output."""
    said = one.tool.metadata.get(KEY)
    if not is_mapping(said) or one.tool.output_json_schema is not None or not is_object(said.get("schema")):
        return None
    return ObservedOutput(said["schema"], said.get("isText") is True)


def marked(call: str) -> str:
    """Return a call type whose result is marked as observed."""
    # Observed types hold no text of a server, so the last one is not within a literal.
    takes, gives, type_text = call.rpartition(_GIVES)
    return f"{takes}{gives}/* observed */ {type_text}"


MAX_LOOKED_UP_CHARACTERS = 16_000
"""What one server's declarations may cost whoever looks them up."""

_MAX_TAGS = 12
_MAX_TAG_CHARACTERS = 100
# What schemas say in so many characters no declaration says in one, but for definitions that nothing refers to.
_LARGEST_SHARE = 8
_CHARACTERS_READ_FOR_ONE = 32
_META = (
    "export const __meta__: { serverId: string; serverName: string; serverVersion?: string; "
    "tools: { toolName: string; exportName: string; description?: string }[] };"
)
_PLAIN_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}\Z")
# No function can be declared under these, while a module may well export one.
_UNDECLARABLE = RESERVED | {"globalThis", "undefined"}


def declare_server(server: ListedServer) -> str:
    """Return ``declare module "@codemode/servers/<path>" {...}``: every export, complete TypeScript. Made once."""
    return _declared(server, 0)


def declare_tool(server: ListedServer, one: ModuleTool, most_characters: int = MAX_LOOKED_UP_CHARACTERS) -> str:
    """Return the module with this one tool, in at most so many characters where types can be left out for that."""
    return next(
        (text for make in _LEVELS if len(text := _module(server, make([one]))) <= most_characters),
        _module(server, _names([one])),
    )


def declare_in(server: ListedServer, most_characters: int = MAX_LOOKED_UP_CHARACTERS) -> str:
    """Return one server's module in at most so many characters, as `declarations_for` does of several."""
    return declarations_for([server], most_characters)


def declarations_for(servers: Sequence[ListedServer], most_characters: int) -> str:
    """Return the modules of servers in at most so many characters: TypeScript still, and the same each time.

    What is too long loses comments first, then types, the longest module first; then functions, which a comment
    counts. Empty when there is room for nothing.
    """
    most_of_one = min(most_characters, MAX_LOOKED_UP_CHARACTERS)
    levels = [_level(one, most_of_one) for one in servers]
    texts = [_declared(*pair) for pair in zip(servers, levels, strict=True)]
    while sum(map(len, texts)) + 2 * max(len(texts) - 1, 0) > most_characters:
        open_ones = [at for at, level in enumerate(levels) if level < len(_LEVELS) - 1]
        if not open_ones:
            return _cut(servers, texts, most_characters)
        at = max(open_ones, key=lambda at: (len(texts[at]), -at))
        levels[at] += 1
        texts[at] = _declared(servers[at], levels[at])
    return "\n\n".join(texts)


def _level(server: ListedServer, most_characters: int) -> int:
    """Return how much has to be left out of a module for it to have so many characters, or as much as can be."""
    last = len(_LEVELS) - 1
    if _weighs_more_than(server, _CHARACTERS_READ_FOR_ONE * most_characters):
        return last
    first = 0 if _least(server) <= most_characters else 1
    return next((at for at in range(first, last) if len(_declared(server, at)) <= most_characters), last)


def fits_in(server: ListedServer, most_characters: int) -> str | None:
    """Return the whole module where it is no longer than that. No type of a longer one is read if that can be seen."""
    if _least(server) > most_characters or _weighs_more_than(server, _LARGEST_SHARE * most_characters):
        return None
    text = declare_server(server)
    return text if len(text) <= most_characters else None


def _least(server: ListedServer) -> int:
    """Return what the descriptions and names of a module take, whatever its types are."""
    kept = vars(server)
    least: int | None = kept.get("_least_characters")
    if least is None:
        least = sum(len(jsdoc(Doc(one.tool.description))) + len(one.export_name) + 40 for one in server.tools)
        kept["_least_characters"] = least
    return least


def _weighs_more_than(server: ListedServer, characters: int) -> bool:
    """Tell whether the schemas of a server are so long that reading them all would be for nothing."""
    for one in server.tools:
        schemas = one.tool.input_json_schema, one.tool.output_json_schema
        weight = weigh(schemas, characters + 1)
        characters -= weight
        if characters < 0:
            return True
    return False


def is_declared(server: ListedServer) -> bool:
    """Return True if the module of a server has been written, whole or in part."""
    return any(name.startswith("_declared_") for name in vars(server))


def _declared(server: ListedServer, level: int) -> str:
    # Kept with the server, which lives as long as its listing.
    kept = vars(server)
    key = f"_declared_{level}{'_rich' if is_rich.get() else ''}"
    text: str | None = kept.get(key)
    if text is None:
        text = kept[key] = _module(server, _LEVELS[level](server.tools))
    return text


def _module(server: ListedServer, members: list[str]) -> str:
    text = "".join(f"{indented(member)}\n" for member in [*members, _META])
    return f"declare module {string_literal(module_of(server.path))} {{\n{text}}}"


def _whole(tools: Sequence[ModuleTool]) -> list[str]:
    calls, aliases = call_types([_export(one) for one in tools])
    return _members([_comment(one) for one in tools], tools, _marked(tools, calls), aliases)


def _short(tools: Sequence[ModuleTool]) -> list[str]:
    calls, aliases = call_types([_export(one) for one in tools], has_comments=False)
    return _members([_short_comment(one) for one in tools], tools, _marked(tools, calls), aliases)


def _marked(tools: Sequence[ModuleTool], calls: Sequence[str]) -> list[str]:
    return [marked(call) if observed_output(one) else call for one, call in zip(tools, calls, strict=True)]


def _names(tools: Sequence[ModuleTool]) -> list[str]:
    return _members([""] * len(tools), tools, ["(input?: unknown): Promise<unknown>"] * len(tools), [])


_LEVELS = (_whole, _short, _names)


def _members(
    comments: Sequence[str], tools: Sequence[ModuleTool], calls: Sequence[str], aliases: list[str]
) -> list[str]:
    found = list(aliases)
    renamed: list[str] = []
    for at, (comment, one, call) in enumerate(zip(comments, tools, calls, strict=True)):
        name = one.export_name
        if name not in _UNDECLARABLE:
            found.append(f"{comment}export function {name}{call};")
        else:
            found.append(f"{comment}function _{at}{call};")
            renamed.append(f"_{at} as {name}")
    # Without a list of exports everything in such a module is one, types too.
    if renamed:
        found.append(f"export {{ {', '.join(renamed)} }};")
    return [*found, "export {};"] if aliases and not renamed else found


def _cut(servers: Sequence[ListedServer], texts: Sequence[str], most_characters: int) -> str:
    said: list[str] = []
    room = most_characters
    for server, text in zip(servers, texts, strict=True):
        shown = text if len(text) <= room else _first_names(server, room)
        if shown:
            said.append(shown)
            room -= len(shown) + 2
    return "\n\n".join(said)


def _first_names(server: ListedServer, room: int) -> str:
    """Return as many functions of a module as there is room for, and how many more it has."""
    lines = _names(server.tools)
    room -= len(_module(server, [_more(len(lines))]))
    count = 0
    for line in lines:
        room -= len(line) + 3
        if room < 0:
            break
        count += 1
    return _module(server, [*lines[:count], _more(len(lines) - count)]) if room >= 0 or count else ""


def _more(count: int) -> str:
    return f"// {count} more: listTools of @codemode/discovery has them all."


def _export(one: ModuleTool) -> Renamed:
    shown = renamed(one.tool, one.export_name)
    if (observed := observed_output(one)) is not None:
        shown = observed.on(shown)
    return replace(shown, input_json_schema=None) if says_nothing(shown.input_json_schema) else shown


def _comment(one: ModuleTool) -> str:
    tags = [*_annotation_tags(one.tool.annotations), *example_tags(one.tool)]
    if (observed := observed_output(one)) is not None:
        tags.append(observed.tag)
    return jsdoc(Doc(summary_of(one.tool), tuple(tags)))


def _short_comment(one: ModuleTool) -> str:
    hints = {name: value for name, value in one.tool.annotations.items() if name in _PLAIN_HINTS}
    return jsdoc(Doc(first_sentence(summary_of(one.tool)), tuple(_annotation_tags(hints))))


def _annotation_tags(annotations: Mapping[str, Any]) -> list[str]:
    said = [
        f"@{name} {comment_line(value if isinstance(value, str) else literal(value), _MAX_TAG_CHARACTERS)}"
        for name, value in annotations.items()
        if _TAG.match(str(name)) and isinstance(value, str | bool | int | float)
    ]
    return said[:_MAX_TAGS]
