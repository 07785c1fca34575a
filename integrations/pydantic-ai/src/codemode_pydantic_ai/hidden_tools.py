"""Framework tools as tools of a program: names, schemas, annotations. Runs nothing itself."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar, cast

from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ToolsetTool

from codemode import Tool, ToolCallContext
from codemode.plugins import (
    can_be_called,
    forkable_lock,
    prepared,
)

from .content import with_content_schemas
from .exact_outputs import Output, exact_schema, excluding_type
from .framework_internals import function_of

_STAY_NATIVE_KINDS = ("tool-search", "capability-load")
_METADATA_KEYS = ("codecall", "toolKind")
_MAX_COMPILED = 8
_MANY = 50

MadeT = TypeVar("MadeT")


class HiddenTool(Tool):
    """A tool of the framework."""

    is_foreign = True
    is_gated_elsewhere = True


def stays_native(definition: ToolDefinition, ctx: RunContext[Any]) -> bool:
    """Tell whether the model alone can call this tool, whatever an agent says.

    Native stay output tools, tool search and capability loading with what they have not revealed yet, the local
    stand-ins of provider-native tools, and tools whose name a program cannot write.
    """
    return (
        definition.kind == "output"
        or definition.tool_kind in _STAY_NATIVE_KINDS
        or definition.unless_native is not None
        or not ctx.is_tool_available(definition)
        or not can_be_called(definition.name)
    )


class CompiledTools(Generic[MadeT]):
    """The last few sets of tools and what was made of them: schemas, descriptions and an index are worth making once.

    ``make`` gets the tools, by what the framework calls them, and what was made last, or None.
    """

    def __init__(self, make: Callable[[Mapping[str, Tool], MadeT | None], MadeT]) -> None:
        self._make = make
        self._made: OrderedDict[str, MadeT] = OrderedDict()
        self._lock = forkable_lock()

    async def of(self, tools: Mapping[str, ToolsetTool[Any]]) -> MadeT:
        """Return what is made of these tools."""
        if len(tools) < _MANY:
            return self._of(tools)
        return await asyncio.to_thread(self._of, tools)

    def _of(self, tools: Mapping[str, ToolsetTool[Any]]) -> MadeT:
        outputs = {name: (_output_schema(tool), _excluding(tool)) for name, tool in tools.items()}
        said = [[name, *outputs[name], *_said(tool.tool_def)] for name, tool in tools.items()]
        key = json.dumps(said, sort_keys=True, default=str)
        made, newest = self._known(key)
        if made is None:
            made = self._make(
                {name: _hidden(name, tool.tool_def, *outputs[name]) for name, tool in tools.items()}, newest
            )
            with self._lock:
                self._made[key] = made
                while len(self._made) > _MAX_COMPILED:
                    self._made.popitem(last=False)
        return made

    def _known(self, key: str) -> tuple[MadeT | None, MadeT | None]:
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
            return self._made.get(key), next(reversed(self._made.values()), None)


def _said(definition: ToolDefinition) -> list[Any]:
    return [
        definition.name,
        definition.description,
        definition.parameters_json_schema,
        annotations_of(definition),
        repr(metadata_of(definition)),
    ]


def annotations_of(definition: ToolDefinition) -> dict[str, Any]:
    """Return a tool's hints: an MCP tool's annotations, or the same keys in the metadata of any other tool."""
    metadata = definition.metadata or {}
    given = metadata.get("annotations")
    hints = cast("dict[str, Any]", given) if isinstance(given, dict) else metadata
    return {
        key: value for key, value in hints.items() if value is not None and (key.endswith("Hint") or key == "title")
    }


def metadata_of(definition: ToolDefinition) -> dict[str, Any]:
    """Return what a tool says of itself for CodeCall, and what kind of tool it is for exec and wait."""
    metadata = definition.metadata or {}
    return {key: metadata[key] for key in _METADATA_KEYS if key in metadata}


def _hidden(name: str, definition: ToolDefinition, output_schema: dict[str, Any] | None, excluding: Any) -> Tool:
    tool = HiddenTool(
        definition.name,
        execute=partial(_execute, name),
        description=definition.description or "",
        input_schema=with_content_schemas(definition.parameters_json_schema),
        output_schema=Output(with_content_schemas(output_schema), excluding),
        output_validation="warn",  # the framework checks no outputs
        annotations=annotations_of(definition),
        metadata=metadata_of(definition),
    )
    try:
        prepared(tool).compile()
    except ValueError:
        # The framework validates with its own validator; a schema that we cannot read only costs the declaration.
        return HiddenTool(
            tool.name,
            execute=tool.execute,
            description=tool.description,
            annotations=tool.annotations,
            metadata=tool.metadata,
        )
    return tool


async def _execute(name: str, arguments: Any, context: ToolCallContext) -> Any:
    return await context.context.call(name, arguments, context)


def _excluding(tool: ToolsetTool[Any]) -> Any:
    return excluding_type(tool.tool_def.return_schema, function_of(tool))


def _output_schema(tool: ToolsetTool[Any]) -> dict[str, Any] | None:
    definition = tool.tool_def
    schema = exact_schema(definition.return_schema, function_of(tool))
    is_from_server = {"meta", "annotations"} <= set(definition.metadata or {})
    if schema is None or not is_from_server or not (schema.get("x-fastmcp-wrap-result") or _wraps_result(schema)):
        return schema
    # A server wraps what is no object into {"result": ...}, and the framework's MCP client unwraps it again.
    inner = dict(schema["properties"]["result"])
    return {**inner, "$defs": schema["$defs"]} if "$defs" in schema else inner


def _wraps_result(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return isinstance(properties, dict) and set(cast("dict[str, Any]", properties)) == {"result"}
