"""A tool, or a lookup, of an MCP server as programs call it. Lists nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...data.json_values import encode_json
from ...data.narrowing import is_mapping, mapping_or_empty, string_or_empty
from ...errors import CodeModeError, CodeModeToolError
from ...host import steps
from ...schemas.compiled import ValidatedInput
from ...tools.context import ToolCallContext
from ...tools.foreign_schemas import foreign_schemas
from ...tools.prepared import MISSING, PreparedTool
from ...tools.server_texts import plain_annotations, plain_text
from ...tools.tool import Tool
from .mcp_session import plain, read, result_of

MAX_NAME_CHARACTERS = 128
MAX_DESCRIPTION_CHARACTERS = 4000
_STEPS_OF_A_TOOL = 4

Asks = Callable[[str, Any, ToolCallContext], Any]
"""``(name, input, context)``: whether a person is asked about this call of the tool that the server calls so."""


@dataclass(frozen=True)
class Making:
    """How the tools of a server are made: whether a person is ``asked``, and what a plugin makes of each."""

    asks: bool | Asks = False
    adapt: Callable[[Tool, str], Tool] | None = None

    @property
    def may_ask(self) -> bool:
        """True when a call of some tool may wait for a person."""
        return self.asks is not False or self.adapt is not None

    def adapted(self, tool: Tool, tool_id: str) -> Tool:
        """Return the tool that programs call."""
        return tool if self.adapt is None else self.adapt(tool, tool_id)


USUAL = Making()


@dataclass(frozen=True)
class ServerTool:
    """A tool of a server: its own ``name``, and its identifiers, the one that is shown first."""

    name: str
    names: tuple[str, ...]
    tool: McpTool


class McpTool(PreparedTool):
    """A tool, or a lookup, with its id, which takes one object. A schema that nobody can read takes anything."""

    def __init__(self, tool: Tool, tool_id: str, making: Making) -> None:
        made = making.adapted(tool, tool_id)
        super().__init__(made)
        self.id: str = tool_id
        self._schemas = foreign_schemas(tool_id, made.input_schema, made.output_schema)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check an input as every tool does; nothing given is an empty object."""
        if value is MISSING or value is None:
            value = {}
        if not is_mapping(value):
            error = CodeModeToolError(f"tool {self.name!r} takes one object", details={"tool_name": self.name})
            error.reason = "validation"
            raise error
        return super().validate_input(value)

    @property
    def text(self) -> str:
        """What tells it from another tool of its id."""
        try:
            schemas = [self.input_json_schema, self.output_json_schema]
            return f"{self.id} {encode_json(schemas, what='the schemas of a tool')}"
        except (CodeModeError, ValueError):  # one has a default that is no JSON
            return self.id


def name_of(listed: Any) -> str | None:
    """Return what a server calls a tool; None for a name by which no program could call it."""
    steps.take(_STEPS_OF_A_TOOL)
    name = string_or_empty(read(listed, "name"))
    return name if name and len(name) <= MAX_NAME_CHARACTERS and name.isprintable() else None


def tool_of(session: Any, name: str, listed: Any, tool_id: str, making: Making) -> McpTool:
    """Return what a server lists as a tool of a program."""

    async def execute(value: Any, _context: Any) -> Any:
        return await result_of(session.call_tool(name, dict(value)))

    asks = making.asks
    made = Tool(
        name,
        execute=execute,
        description=plain_text(read(listed, "description"), MAX_DESCRIPTION_CHARACTERS) or "",
        annotations=_annotations(listed),
        input_schema=read(listed, "input_schema", "inputSchema"),
        output_schema=read(listed, "output_schema", "outputSchema"),
        needs_approval=asks if isinstance(asks, bool) else _asking(asks, name),
    )
    return McpTool(made, tool_id, making)


def _annotations(listed: Any) -> dict[str, Any]:
    given = plain_annotations(mapping_or_empty(plain(read(listed, "annotations"))))
    title = plain_text(read(listed, "title"))
    return {"title": title, **given} if title else given


def _asking(asks: Asks, name: str) -> Callable[[Any, ToolCallContext], Any]:
    if inspect.iscoroutinefunction(asks) or inspect.iscoroutinefunction(getattr(asks, "__call__", None)):  # noqa: B004

        async def ask(value: Any, context: ToolCallContext) -> Any:
            return await asks(name, value, context)

        return ask
    return partial(asks, name)
