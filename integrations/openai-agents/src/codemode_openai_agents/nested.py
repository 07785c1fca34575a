"""Run nested calls with the SDK's guardrails, hooks, spans, timeouts and errors."""

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
from codemode.plugins import run_off_loop_if_large

from . import approvals, sdk_internals
from .content import from_media_content, make_function_call_async, to_program_value


class NestedCalls:
    """The nested calls of one program.

    ``context``: context of the outer call. ``tools``: by name. ``fatal_error``: error that ends the agent's run even if
    the program catches it; ``cancel_program`` is called when it is set.
    """

    def __init__(self, context: ToolContext[Any], tools: Mapping[str, FunctionTool]) -> None:
        self.context = context
        self.fatal_error: BaseException | None = None
        self.cancel_program: Callable[[], object] = lambda: None
        self._tools = tools
        self._raising_tools: dict[str, FunctionTool] = {}  # copies are slow to make

    async def call_tool(self, name: str, arguments: dict[str, Any], context: ToolCallContext) -> Any:
        """Run one call and return plain JSON. Raises `CodeModeToolError` for errors that the SDK reports to a model."""
        tool = self._tools[name]
        call = await make_function_call_async(name, context.tool_call_id, arguments, from_media_content)
        nested = self._make_tool_context(call)
        shows_data = nested.run_config is None or nested.run_config.trace_include_sensitive_data
        with function_span(name, input=call.arguments if shows_data else None) as span:
            try:
                output = await self._run_tool(tool, nested, call.arguments, context.interrupt)
            except CodeModeError as error:
                span.set_error(_create_span_error(name, error.message if shows_data else ""))
                raise
            except Exception as error:  # noqa: BLE001 - a hook or guardrail raised, which ends the run as in direct calls
                span.set_error(_create_span_error(name, str(error) if shows_data else ""))
                self._cancel_program_and_raise(error)
            if shows_data:
                span.span_data.output = output
        return await run_off_loop_if_large(
            output, lambda: to_program_value(output, parses_json=sdk_internals.is_mcp_tool(tool))
        )

    def _make_tool_context(self, call: ResponseFunctionToolCall) -> ToolContext[Any]:
        outer = self.context
        return ToolContext.from_agent_context(
            outer, call.call_id, tool_call=call, agent=outer.agent, run_config=outer.run_config
        )

    async def _run_tool(
        self, tool: FunctionTool, context: ToolContext[Any], arguments: str, resolved_interrupt: Any
    ) -> Any:
        agent: Any = context.agent
        hooks = getattr(agent, "hooks", None)
        if resolved_interrupt is not None and resolved_interrupt.payload["kind"] == approvals.AGENT_PAUSE_KIND:
            await approvals.prepare_agent_resume(
                tool, context, resolved_interrupt.payload, resolved_interrupt.resolution["decisions"]
            )
        else:
            await self._run_start_checks_and_hooks(tool, context, hooks)
        output = await self._run_output_guardrails(tool, context, await self._invoke_tool(tool, context, arguments))
        if hooks is not None:
            await hooks.on_tool_end(context, agent, tool, output)
        return output

    async def _run_start_checks_and_hooks(self, tool: FunctionTool, context: ToolContext[Any], hooks: Any) -> None:
        if not await self._is_tool_enabled(tool, context):
            raise CodeModeToolError(f"tool {tool.name!r} is disabled", details={"tool_name": tool.name})
        await self._run_input_guardrails(tool, context)
        if hooks is not None:
            await hooks.on_tool_start(context, context.agent, tool)

    async def _is_tool_enabled(self, tool: FunctionTool, context: ToolContext[Any]) -> bool:
        if isinstance(tool.is_enabled, bool):
            return tool.is_enabled
        answer = tool.is_enabled(context, context.agent)  # pyright: ignore[reportArgumentType] - None outside of agents
        return bool(await answer if inspect.isawaitable(answer) else answer)

    async def _invoke_tool(self, tool: FunctionTool, context: ToolContext[Any], arguments: str) -> Any:
        try:
            if tool.name not in self._raising_tools:
                self._raising_tools[tool.name] = sdk_internals.make_raising_copy(tool)
            output = await sdk_internals.invoke_tool(self._raising_tools[tool.name], context, arguments)
        except ToolTimeoutError as error:
            if tool.timeout_behavior == "raise_exception":
                self._cancel_program_and_raise(error)
            raise CodeModeToolError(
                await _format_timeout_message(tool, context, error), details={"tool_name": tool.name}
            ) from None
        except asyncio.CancelledError as error:
            if self.fatal_error is not None or _is_task_cancelled():
                raise
            await self._raise_tool_error(tool, context, error)
        except Exception as error:  # noqa: BLE001 - failure_error_function decides
            await self._raise_tool_error(tool, context, error)
        else:
            if (paused := sdk_internals.take_paused_run(context)) is not None:
                approvals.pause_for_agent(paused)
            return output

    async def _raise_tool_error(self, tool: FunctionTool, context: ToolContext[Any], error: BaseException) -> NoReturn:
        message = await sdk_internals.format_tool_error(tool, context, error)
        if message is None:
            self._cancel_program_and_raise(error)
        raise CodeModeToolError(str(message), details={"tool_name": tool.name}) from error

    def _cancel_program_and_raise(self, error: BaseException) -> NoReturn:
        self.fatal_error = error
        self.cancel_program()
        raise error

    async def _run_input_guardrails(self, tool: FunctionTool, context: ToolContext[Any]) -> None:
        agent: Any = context.agent
        for guardrail in tool.tool_input_guardrails or ():
            result = await guardrail.run(ToolInputGuardrailData(context=context, agent=agent))
            if result.behavior["type"] == "raise_exception":
                self._cancel_program_and_raise(ToolInputGuardrailTripwireTriggered(guardrail, result))
            if result.behavior["type"] == "reject_content":
                raise CodeModeToolError(result.behavior["message"], details={"tool_name": tool.name})

    async def _run_output_guardrails(self, tool: FunctionTool, context: ToolContext[Any], output: Any) -> Any:
        agent: Any = context.agent
        for guardrail in tool.tool_output_guardrails or ():
            result = await guardrail.run(ToolOutputGuardrailData(context=context, agent=agent, output=output))
            if result.behavior["type"] == "raise_exception":
                self._cancel_program_and_raise(ToolOutputGuardrailTripwireTriggered(guardrail, result))
            if result.behavior["type"] == "reject_content":
                raise CodeModeToolError(result.behavior["message"], details={"tool_name": tool.name})
        return output


async def _format_timeout_message(tool: FunctionTool, context: ToolContext[Any], error: ToolTimeoutError) -> str:
    if tool.timeout_error_function is None:
        return default_tool_timeout_error_message(tool_name=tool.name, timeout_seconds=tool.timeout_seconds or 0)
    message = tool.timeout_error_function(context, error)
    return str(await message if inspect.isawaitable(message) else message)


def _is_task_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _create_span_error(name: str, message: str) -> SpanError:
    return SpanError(message="Error running tool", data={"tool_name": name, "error": message})
