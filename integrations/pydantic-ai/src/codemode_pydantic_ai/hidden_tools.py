"""Framework tools as tools of a program: names, schemas, annotations. Runs nothing itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ToolsetTool

from codemode import CodeModeOptions, CodeModeTool, Tool, ToolCallContext, WorkerPool, create_code_mode_tool
from codemode.plugins import (
    Compile,
    CompiledSchema,
    FrameworkSchema,
    JsonSchema,
    ValidatedInput,
    can_be_called,
    prepared,
)

_STAY_NATIVE_KINDS = ("tool-search", "capability-load")
_MAX_COMPILED = 8


class HiddenTool(Tool):
    """A tool of the framework."""

    is_foreign = True


class ShownOutput(FrameworkSchema):
    """A declared output for the model's eyes: the framework does not check outputs, so neither do we."""

    def __init__(self, declared: Any) -> None:
        self._declared = declared

    def compiled(self, compiled: Compile) -> CompiledSchema | None:
        """Return what takes any value: a direct call of the tool would have passed too."""
        described = compiled(self._declared)
        return None if described is None else _Unchecked(described.json_schema)


class _Unchecked:
    def __init__(self, json_schema: JsonSchema) -> None:
        self.json_schema = json_schema
        self.varies = False

    def validate_input(self, value: Any) -> ValidatedInput:
        raise NotImplementedError

    def validate_output(self, value: Any, what: str) -> Any:  # noqa: ARG002 - as the other kinds have it
        return value


def stays_native(definition: ToolDefinition, keep: Collection[str], ctx: RunContext[Any]) -> bool:
    """Tell whether the model goes on calling this tool directly.

    Native stay output tools, tool search and capability loading with what they have not revealed yet, the local
    stand-ins of provider-native tools, and tools whose name a program cannot write.
    """
    return (
        definition.name in keep
        or definition.kind == "output"
        or definition.tool_kind in _STAY_NATIVE_KINDS
        or definition.unless_native is not None
        or not ctx.is_tool_available(definition)
        or not can_be_called(definition.name)
    )


class CompiledTools:
    """The last few sets of tools and what was made of them: schemas and descriptions are worth making once."""

    def __init__(self, options: CodeModeOptions, pool: WorkerPool | None) -> None:
        self.options = options
        self.pool = pool
        self._made: dict[str, CodeModeTool] = {}
        self._lock = threading.Lock()

    def of(self, tools: Mapping[str, ToolsetTool[Any]]) -> CodeModeTool:
        """Return the codeMode tool over these tools."""
        key = json.dumps([_said(tool.tool_def) for tool in tools.values()], sort_keys=True, default=str)
        with self._lock:
            made = self._made.pop(key, None)
        if made is None:
            hidden = [_hidden(tool.tool_def) for tool in tools.values()]
            made = create_code_mode_tool(hidden, self.options, pool=self.pool)
        with self._lock:
            self._made[key] = made
            while len(self._made) > _MAX_COMPILED:
                del self._made[next(iter(self._made))]
        return made


def _said(definition: ToolDefinition) -> list[Any]:
    return [
        definition.name,
        definition.description,
        definition.parameters_json_schema,
        definition.return_schema,
        annotations_of(definition),
    ]


def annotations_of(definition: ToolDefinition) -> dict[str, Any]:
    """Return a tool's hints: an MCP tool's annotations, or the same keys in the metadata of any other tool."""
    metadata = definition.metadata or {}
    given = metadata.get("annotations")
    hints = cast("dict[str, Any]", given) if isinstance(given, dict) else metadata
    return {
        key: value for key, value in hints.items() if value is not None and (key.endswith("Hint") or key == "title")
    }


def _hidden(definition: ToolDefinition) -> Tool:
    tool = HiddenTool(
        definition.name,
        execute=partial(_execute, definition.name),
        description=definition.description or "",
        input_schema=definition.parameters_json_schema,
        output_schema=ShownOutput(_output_schema(definition)),
        annotations=annotations_of(definition),
    )
    try:
        prepared(tool).compile()
    except ValueError:
        # The framework validates with its own validator; a schema that we cannot read only costs the declaration.
        return HiddenTool(tool.name, execute=tool.execute, description=tool.description, annotations=tool.annotations)
    return tool


async def _execute(name: str, arguments: Any, context: ToolCallContext) -> Any:
    return await context.context.call(name, arguments, context)


def _output_schema(definition: ToolDefinition) -> dict[str, Any] | None:
    schema = definition.return_schema
    is_from_server = {"meta", "annotations"} <= set(definition.metadata or {})
    if schema is None or not is_from_server or not (schema.get("x-fastmcp-wrap-result") or _wraps_result(schema)):
        return schema
    # A server wraps what is no object into {"result": ...}, and the framework's MCP client unwraps it again.
    inner = dict(schema["properties"]["result"])
    return {**inner, "$defs": schema["$defs"]} if "$defs" in schema else inner


def _wraps_result(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return isinstance(properties, dict) and set(cast("dict[str, Any]", properties)) == {"result"}
