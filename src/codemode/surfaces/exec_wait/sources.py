"""Collect the tools of a catalog from their sources and assign ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ...data.narrowing import mapping_or_empty, string_or_empty
from ...signatures.declarations import extract_first_sentence, find_tool_description
from ...tools.collecting import collect_unprepared_tools
from ...tools.prepared import PreparedTool, compile_tools_and_log_missing_outputs, prepare_tool
from ...tools.tool import ImpossibleNameError, Tool, require_name
from .options import EXEC_KIND, TOOL_KIND, WAIT_KIND, InvalidConfigError

HOST = "host"
CLIENT = "client"
MCP = "mcp"
CORE = "core"
RESERVED_SOURCE = "namespace"
"""Not allowed as the name of a source, because ids of namespaces begin with it."""
EXCLUDED_TOOLS = frozenset({"tool_search_code", "tool_search", "tool_describe", "tool_call"})
"""Tools that search for tools, which the catalog replaces."""
_ID_PART = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@./-]{0,63}", re.ASCII)
_MAX_NAME_CHARACTERS = 128
INHERITED_NAMES = frozenset(
    {
        *("__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__"),
        *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "prototype", "then"),
        *("toJSON", "toLocaleString", "toString", "valueOf"),
    }
)
_SESSION_METHODS = ("list_tools", "call_tool")
TOOLS_METHODS = frozenset({"search", "describe", "call"})


@dataclass(frozen=True)
class ToolSource:
    """Tools of one owner. ``tools``: a mapping or an iterable, as in `create_code_mode_tool`.

    ``source`` is the kind of the source and ``owner`` the owner of the tools; both are part of the ids,
    `<source>:<owner>:<tool>`. For the kind "mcp", ``tools`` is a connected session of an SDK, or any object with the
    methods ``list_tools`` and ``call_tool``; ``owner`` None means the name of the server. ``needs_approval`` is only
    for sessions: a bool for all tools, or ``(name, input, context) -> bool``, sync or async, with the server's own tool
    name. ``adapt(tool, id)``, set by plugins of frameworks, returns the tool that programs call.
    """

    tools: Any
    source: str = HOST
    owner: str | None = None
    needs_approval: Any = field(default=False, kw_only=True)
    adapt: Callable[[Tool, str], Tool] | None = field(default=None, kw_only=True)

    @staticmethod
    def parse_sources(sources: Any) -> list[ToolSource]:
        """Convert sources or tools to a list of sources. Raises `InvalidConfigError`."""
        return to_sources(sources)

    def __post_init__(self) -> None:
        """Check the fields. Raises `InvalidConfigError`, a `ValueError`."""
        if self.source == MCP and not _is_session(self.tools):
            raise InvalidConfigError("sources: a source of kind 'mcp' needs a session with list_tools and call_tool")
        if self.source != MCP and _is_session(self.tools):
            raise _create_bare_session_error(self.tools)
        if not isinstance(self.needs_approval, bool) and not callable(self.needs_approval):
            raise InvalidConfigError(
                f"sources.needs_approval must be a bool or a function, got {self.needs_approval!r}"
            )
        if self.needs_approval is not False and self.source != MCP:
            raise InvalidConfigError(
                "sources.needs_approval is only for MCP sessions: set needs_approval on other tools"
            )
        if self.owner is None:
            object.__setattr__(self, "owner", _derive_owner(self.tools) if self.source == MCP else CORE)
        if self.source == RESERVED_SOURCE:
            raise InvalidConfigError(f"sources.source: {RESERVED_SOURCE!r} is reserved for the ids of namespaces")
        id_parts: tuple[tuple[str, Any], ...] = (("source", self.source), ("owner", self.owner))
        for field_name, value in id_parts:
            if not isinstance(value, str) or _ID_PART.fullmatch(value) is None:
                raise InvalidConfigError(
                    f"sources.{field_name} must be 1 to 64 ASCII letters, digits, _, @, -, / and ., not starting"
                    f" with -, / or ., got {value!r}"
                )


@dataclass(frozen=True)
class CatalogEntry:
    """A tool of a catalog with its id and source."""

    id: str
    source: str
    owner: str
    original: Tool
    tool: PreparedTool

    @property
    def name(self) -> str:
        """The original name of the tool."""
        return self.tool.name

    @property
    def javascript_name(self) -> str | None:
        """The name as a JavaScript identifier; None for a name that would replace a built-in member."""
        name = to_identifier(self.tool.name)
        return None if name in TOOLS_METHODS or name in INHERITED_NAMES else name

    @property
    def summary(self) -> dict[str, str]:
        """The entry of the tool in ``ALL_TOOLS`` and search results."""
        label = string_or_empty(self.tool.annotations.get("title"))
        summary = {"id": self.id, "name": self.name}
        if label and label != self.name:
            summary["label"] = label
        summary |= {"description": extract_first_sentence(find_tool_description(self.tool)), "source": self.source}
        return summary if self.owner == CORE else {**summary, "sourceName": self.owner}


def to_identifier(name: str) -> str:
    """Return a name as a JavaScript identifier; other characters become ``_``."""
    text = "".join(character if _is_identifier_character(character) else "_" for character in name)
    return f"_{text}" if text[:1].isdigit() else text


# Invisible letters and marks: Hangul fillers and variation selectors.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def _is_identifier_character(character: str) -> bool:
    return (
        character == "$"
        or (character.isascii() and (character.isalnum() or character == "_"))
        or (not character.isascii() and f"a{character}".isidentifier() and not _INVISIBLE.match(character))
    )


def collect_non_server_entries(sources: Any) -> tuple[CatalogEntry, ...]:
    """Return the tools of all sources, ordered by id. ``sources`` can also be the tools of one source.

    Raises `InvalidConfigError` for duplicate ids, `ValueError` for an invalid tool.
    """
    found: dict[str, CatalogEntry] = {}
    for source in to_sources(sources):
        if source.source == MCP:
            continue
        owner = source.owner or CORE
        for tool in collect_unprepared_tools(source.tools, require_source_tool_name).values():
            if tool.name in EXCLUDED_TOOLS or is_exec_or_wait_tool(tool):
                continue
            tool_id = f"{source.source}:{owner}:{tool.name}"
            original = tool if source.adapt is None else source.adapt(tool, tool_id)
            entry = CatalogEntry(tool_id, source.source, owner, original, prepare_tool(original))
            if entry.id in found:
                raise InvalidConfigError(f"sources: two tools have the id {entry.id!r}")
            found[entry.id] = entry
    compile_tools_and_log_missing_outputs((key, entry.tool) for key, entry in found.items())
    return tuple(found[key] for key in sorted(found))


def is_exec_or_wait_tool(tool: Tool) -> bool:
    """Return True for exec and wait tools: programs cannot run programs."""
    return mapping_or_empty(tool.metadata).get(TOOL_KIND) in (EXEC_KIND, WAIT_KIND)


def to_sources(sources: Any) -> list[ToolSource]:
    """Convert sources or tools to a list of sources. Raises `InvalidConfigError`."""
    if isinstance(sources, ToolSource):
        return [sources]
    if isinstance(sources, Mapping | str | bytes) or not isinstance(sources, Iterable):
        return [ToolSource(sources)]
    values = [*cast("Iterable[Any]", sources)]
    if any(isinstance(value, ToolSource) for value in values):
        if not all(isinstance(value, ToolSource) for value in values):
            raise InvalidConfigError("sources must be either all ToolSource or all tools")
        return values
    if sessions := [value for value in values if _is_session(value)]:
        raise _create_bare_session_error(sessions[0])
    return [ToolSource(values)]


def _is_session(value: Any) -> bool:
    return all(callable(getattr(value, method_name, None)) for method_name in _SESSION_METHODS)


def _create_bare_session_error(session: Any) -> InvalidConfigError:
    class_name = type(session).__name__
    return InvalidConfigError(f"sources: pass an MCP session ({class_name}) as ToolSource(session, source='mcp')")


def require_source_tool_name(name: Any) -> str:
    """Return a valid tool name. Raises `ImpossibleNameError`."""
    name = require_name(name)
    if len(name) > _MAX_NAME_CHARACTERS or not name.isprintable():
        raise ImpossibleNameError(f"{name[:32]!r} is too long for a tool name or contains a control character")
    return name


def find_server_name(session: Any) -> str:
    """Return the name of an MCP server, as far as its session knows it."""
    for holder in ("server_info", "serverInfo", "initialize_result", "initializeResult"):
        info_holder = getattr(session, holder, None)
        for info in (getattr(info_holder, "serverInfo", None), getattr(info_holder, "server_info", None), info_holder):
            if name := string_or_empty(getattr(info, "name", None)):
                return name
    return string_or_empty(getattr(session, "name", None)) or "server"


def _derive_owner(session: Any) -> str:
    return re.sub(r"[^A-Za-z0-9_@./-]+", "-", find_server_name(session)).strip("-./")[:64] or "server"
