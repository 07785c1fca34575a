"""Tools that an agent has for programs alone, of whatever owner: called on the framework's own path, too."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset

import codemode
from codemode import ToolCallContext, ToolResult, ToolSource
from codemode.plugins import PreparedTool, listed, prepared, run_check

MCP = "mcp"
_STRUCTURED, _IS_ERROR = "structuredContent", "isError"
_ANY_OBJECT: Mapping[str, Any] = {"type": "object", "additionalProperties": True}


@dataclass(kw_only=True)
class SourceTool(ToolsetTool[Any]):
    """A tool of a source, which the framework knows by its id, for another owner's may have the same name."""

    source_tool: ToolsetTool[Any]


@dataclass
class Behind(WrapperToolset[Any]):
    """Calls an agent's own tools and those of sources."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool where it is from."""
        if not isinstance(tool, SourceTool):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        inner = tool.source_tool
        return await inner.toolset.call_tool(inner.tool_def.name, tool_args, ctx, inner)


class Sources:
    """The sources beside an agent's tools: toolsets by the beginning of their tools' ids, and servers of MCP.

    Raises `ValueError` for what is no source, and no tool.
    """

    def __init__(self, given: Any) -> None:
        found = _listed(given)
        servers = [one for one in found if one.source == MCP]
        self.servers = [ToolSource(one.tools, MCP, one.owner, adapt=one.adapt or _adapted) for one in servers]
        self._toolsets = [(f"{one.source}:{one.owner}", _toolset(one.tools)) for one in found if one.source != MCP]

    async def tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools by their ids."""
        found: dict[str, ToolsetTool[Any]] = {}
        for start, toolset in self._toolsets:
            for name, tool in (await toolset.get_tools(ctx)).items():
                found[f"{start}:{name}"] = source_tool(tool)
        return found


def source_tool(tool: ToolsetTool[Any]) -> SourceTool:
    """Return a toolset's tool as one that is called there, whatever it is called by."""
    return SourceTool(
        toolset=tool.toolset,
        tool_def=tool.tool_def,
        max_retries=tool.max_retries,
        args_validator=tool.args_validator,
        args_validator_func=tool.args_validator_func,
        source_tool=tool,
    )


def _adapted(tool: codemode.Tool, tool_id: str) -> codemode.Tool:
    """Return a tool of a server whose calls are made as those of an agent's tools are."""
    ask = tool.execute
    if ask is None:
        return tool

    async def execute(value: Any, context: ToolCallContext) -> Any:
        async def run(**arguments: Any) -> Any:
            answer = await ask(arguments, context)
            # What a server sends is of any size: much of it is made plain off the loop.
            return await run_check(0, lambda: _told(answer)) if isinstance(answer, ToolResult) else answer

        made = Tool[Any].from_schema(run, tool_id, tool.description or None, dict(_ANY_OBJECT))
        arguments = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}
        return _untold(await context.context.call_added(made, arguments, context))

    return dataclasses.replace(tool, execute=execute)


def _told(answer: ToolResult) -> dict[str, Any]:
    """Return what a server has answered as the framework's hooks are shown it."""
    told: dict[str, Any] = {"content": [_plain(block) for block in answer.content], _IS_ERROR: answer.is_error}
    return {**told, _STRUCTURED: answer.structured_content} if answer.has_structured_content else told


def _plain(block: Any) -> Any:
    dump = getattr(block, "model_dump", None)
    return block if dump is None else dump(mode="json", by_alias=True, exclude_none=True)


def _untold(value: Any) -> Any:
    if not isinstance(value, dict) or not {"content", _IS_ERROR} <= value.keys() <= {"content", _IS_ERROR, _STRUCTURED}:
        return cast("Any", value)
    told = cast("dict[str, Any]", value)
    structured = {"structured_content": told[_STRUCTURED]} if _STRUCTURED in told else {}
    return ToolResult(told["content"], is_error=told[_IS_ERROR], **structured)


def _listed(given: Any) -> list[ToolSource]:
    if isinstance(given, AbstractToolset):
        return [ToolSource(given)]
    return listed(given)


def _toolset(tools: Any) -> AbstractToolset[Any]:
    """Return the tools of a source as a toolset. Raises `ValueError` for what is no tool."""
    if isinstance(tools, AbstractToolset):
        return cast("AbstractToolset[Any]", tools)
    if isinstance(tools, Mapping):
        given = cast("Mapping[str, Any]", tools)
        return FunctionToolset[Any]([_tool(value, name) for name, value in given.items()])
    if isinstance(tools, str | bytes) or not isinstance(tools, Iterable):
        raise ValueError(f"sources must be tools, or ToolSource of tools, got {tools!r}")  # noqa: TRY004 - as every option
    return FunctionToolset[Any]([_tool(value, None) for value in cast("Iterable[Any]", tools)])


def _tool(value: Any, name: str | None) -> Tool[Any]:
    if isinstance(value, codemode.Tool):
        return _of_core(value.renamed(name) if name is not None else value)
    if isinstance(value, Tool):
        made = cast("Tool[Any]", value)
        return made if name is None or name == made.name else dataclasses.replace(made, name=name)
    if not callable(value):
        raise ValueError(f"sources: {value!r} is no tool")  # noqa: TRY004 - as above
    return Tool[Any](value, name=name)


def _of_core(tool: codemode.Tool) -> Tool[Any]:
    """Return a tool of the core as one of the framework, which validates, asks and runs as the core would."""
    made = prepared(tool)

    async def run(ctx: RunContext[Any], /, **arguments: Any) -> Any:
        value = made.validate_input(arguments).value
        call_id = ctx.tool_call_id or ""
        given: dict[str, Any] = {"messages": ctx.messages, "context": ctx}
        context = ToolCallContext(tool_call_id=call_id, outer_tool_call_id="", **given)
        if not ctx.tool_call_approved and await _settled(made.asks_approval(value, context)):
            raise ApprovalRequired
        return made.validate_output(await _called(made, value, context))

    declared = made.input_json_schema
    schema = dict(cast("Mapping[str, Any]", declared) if isinstance(declared, dict) else _ANY_OBJECT)
    of_schema = Tool[Any].from_schema(run, tool.name, tool.description or None, schema, takes_ctx=True)
    of_schema.metadata = {**tool.metadata, "annotations": dict(tool.annotations)}
    return of_schema


async def _called(tool: PreparedTool, value: Any, context: ToolCallContext) -> Any:
    if tool.execute_kind == "sync":
        return await _settled(await asyncio.to_thread(tool.call, value, context))
    return await _settled(tool.call(value, context))


async def _settled(given: Any) -> Any:
    if inspect.isawaitable(given):
        return await given
    if isinstance(given, AsyncIterator):
        last = None
        async for one in cast("AsyncIterator[Any]", given):
            last = one
        return last
    return given
