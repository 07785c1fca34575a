"""Nested calls, made as the SDK makes the calls of a model: its guardrails, hooks, spans, timeouts and errors.

Knows nothing of programs, and of who is asked about a call.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from agents import (
    FunctionTool,
    SpanError,
    ToolInputGuardrailData,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailData,
    ToolOutputGuardrailTripwireTriggered,
    function_span,
)
from agents.exceptions import ToolTimeoutError
from agents.tool import default_tool_timeout_error_message
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall

from codemode import CodeModeError, CodeModeToolError, ToolCallContext
from codemode.plugins import run_bounded

from . import approvals, sdk
from .content import made_call, object_of, value_of


class NestedCalls:
    """The calls of one program. ``context`` is that of the model's call of codeMode, ``tools`` are by their names.

    ``fatal`` is what ends the run of the agent, whatever the program does; ``stop`` then cancels the program.
    """

    def __init__(self, context: ToolContext[Any], tools: Mapping[str, FunctionTool]) -> None:
        self.context = context
        self.fatal: BaseException | None = None
        self.stop: Callable[[], object] = lambda: None
        self._tools = tools
        self._raising: dict[str, FunctionTool] = {}  # copies, which take their time to make

    async def call(self, name: str, arguments: dict[str, Any], context: ToolCallContext) -> Any:
        """Run one call. Returns plain JSON, raises `CodeModeToolError` for what the SDK would tell a model."""
        tool = self._tools[name]
        call = await made_call(name, context.tool_call_id, arguments, object_of)
        nested = self._context_of(call)
        shows_data = nested.run_config is None or nested.run_config.trace_include_sensitive_data
        with function_span(name, input=call.arguments if shows_data else None) as span:
            try:
                output = await self._called(tool, nested, call.arguments, context.interrupt)
            except CodeModeError as error:
                span.set_error(_span_error(name, error.message if shows_data else ""))
                raise
            if shows_data:
                span.span_data.output = output
        return await run_bounded(output, lambda: value_of(output, is_of_server=sdk.is_of_server(tool)))

    def _context_of(self, call: ResponseFunctionToolCall) -> ToolContext[Any]:
        outer = self.context
        return ToolContext.from_agent_context(
            outer, call.call_id, tool_call=call, agent=outer.agent, run_config=outer.run_config
        )

    async def _called(self, tool: FunctionTool, context: ToolContext[Any], arguments: str, answered: Any) -> Any:
        agent: Any = context.agent
        hooks = getattr(agent, "hooks", None)
        if answered is not None and answered.payload["kind"] == approvals.AGENT_KIND:
            await approvals.go_on(tool, context, answered.payload, answered.resolution["decisions"])
        else:
            await self._begun(tool, context, hooks)
        output = await self._guard_output(tool, context, await self._invoked(tool, context, arguments))
        if hooks is not None:
            await hooks.on_tool_end(context, agent, tool, output)
        return output

    async def _begun(self, tool: FunctionTool, context: ToolContext[Any], hooks: Any) -> None:
        if not await self._is_enabled(tool, context):
            raise CodeModeToolError(f"tool {tool.name!r} is not enabled now", details={"tool_name": tool.name})
        await self._guard_input(tool, context)
        if hooks is not None:
            await hooks.on_tool_start(context, context.agent, tool)

    async def _is_enabled(self, tool: FunctionTool, context: ToolContext[Any]) -> bool:
        if isinstance(tool.is_enabled, bool):
            return tool.is_enabled
        answer = tool.is_enabled(context, context.agent)  # pyright: ignore[reportArgumentType] - None outside of agents
        return bool(await answer if inspect.isawaitable(answer) else answer)

    async def _invoked(self, tool: FunctionTool, context: ToolContext[Any], arguments: str) -> Any:
        try:
            if tool.name not in self._raising:
                self._raising[tool.name] = sdk.raising(tool)
            output = await sdk.invoke(self._raising[tool.name], context, arguments)
        except ToolTimeoutError as error:
            if tool.timeout_behavior == "raise_exception":
                self._end(error)
            raise CodeModeToolError(await _late(tool, context, error), details={"tool_name": tool.name}) from None
        except asyncio.CancelledError as error:
            if self.fatal is not None or _is_cancelled():
                raise
            await self._refuse(tool, context, error)
        except Exception as error:  # noqa: BLE001 - the tool's own function says what becomes of it
            await self._refuse(tool, context, error)
        else:
            if (paused := sdk.paused_run(context)) is not None:
                approvals.ask(paused)
            return output

    async def _refuse(self, tool: FunctionTool, context: ToolContext[Any], error: BaseException) -> NoReturn:
        said = await sdk.told(tool, context, error)
        if said is None:
            self._end(error)
        raise CodeModeToolError(str(said), details={"tool_name": tool.name}) from error

    def _end(self, error: BaseException) -> NoReturn:
        self.fatal = error
        self.stop()
        raise error

    async def _guard_input(self, tool: FunctionTool, context: ToolContext[Any]) -> None:
        agent: Any = context.agent
        for guardrail in tool.tool_input_guardrails or ():
            said = await guardrail.run(ToolInputGuardrailData(context=context, agent=agent))
            if said.behavior["type"] == "raise_exception":
                self._end(ToolInputGuardrailTripwireTriggered(guardrail, said))
            if said.behavior["type"] == "reject_content":
                raise CodeModeToolError(said.behavior["message"], details={"tool_name": tool.name})

    async def _guard_output(self, tool: FunctionTool, context: ToolContext[Any], output: Any) -> Any:
        agent: Any = context.agent
        for guardrail in tool.tool_output_guardrails or ():
            said = await guardrail.run(ToolOutputGuardrailData(context=context, agent=agent, output=output))
            if said.behavior["type"] == "raise_exception":
                self._end(ToolOutputGuardrailTripwireTriggered(guardrail, said))
            if said.behavior["type"] == "reject_content":
                raise CodeModeToolError(said.behavior["message"], details={"tool_name": tool.name})
        return output


async def _late(tool: FunctionTool, context: ToolContext[Any], error: ToolTimeoutError) -> str:
    if tool.timeout_error_function is None:
        return default_tool_timeout_error_message(tool_name=tool.name, timeout_seconds=tool.timeout_seconds or 0)
    said = tool.timeout_error_function(context, error)
    return str(await said if inspect.isawaitable(said) else said)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _span_error(name: str, message: str) -> SpanError:
    return SpanError(message="Error running tool", data={"tool_name": name, "error": message})
