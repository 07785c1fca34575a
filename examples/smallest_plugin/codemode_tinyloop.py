"""Code mode for Tinyloop: all that a plugin needs, and nothing else."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tinyloop
from tinyloop import Asks, Call, Context, Failure

import codemode
from codemode import (
    CallContext,
    CodeModeError,
    CodeModeOptions,
    CodeModeProtocolError,
    Interrupt,
    ToolCallContext,
    create_code_mode_tool,
    failure_text,
)
from codemode.plugins import add_event_listener, configure_agent_options, select_tools_with_callable_names
from codemode.types import NestedToolCallEvent, NestedToolResultEvent


# 1. A tool of the framework as a tool of a program.
def convert(tool: tinyloop.Tool) -> codemode.Tool:
    """Return the tool of a program that runs one of Tinyloop's."""

    async def execute(arguments: Any, context: ToolCallContext) -> Any:
        return await tool.run(arguments or {}, Context(call_id=context.tool_call_id))

    return _TinyTool(
        tool.name,
        execute=execute,
        description=tool.description,
        input_schema=tool.parameters,
        output_schema=tool.returns,
        needs_approval=tool.needs_approval,
    )


class _TinyTool(codemode.Tool):
    is_foreign = True  # a pattern in its schema that cannot be run costs a warning, not the tool


# 2. The framework's tools for the core's own functions too: the entry point "codemode.adapters" names this one.
def register(register_adapter: Callable[..., None]) -> None:
    """Teach the core Tinyloop's tools."""
    register_adapter(_is_tool, convert)


def _is_tool(value: object) -> bool:
    return isinstance(value, tinyloop.Tool)


# 3. What agents want of the options, where their users have said nothing else.
def settings_of(options: CodeModeOptions | Mapping[str, Any] | None) -> CodeModeOptions:
    """Return the options of programs that agents run."""
    return configure_agent_options(options, pool=None)


# 4. The tool that the model sees.
def code_mode(tools: Iterable[tinyloop.Tool], options: Any = None) -> tinyloop.Tool:
    """Make one tool of Tinyloop of many: a model writes programs that call them."""
    converted = [convert(tool) for tool in select_tools_with_callable_names(tools)]
    made = create_code_mode_tool(converted, settings_of(options))
    return _CodeMode(
        name=made.name,
        description=made.description,
        parameters=made.input_schema,
        function=lambda: None,
        core=made,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CodeMode(tinyloop.Tool):
    core: codemode.CodeModeTool

    async def run(self, arguments: Mapping[str, Any], context: Context) -> Any:
        core = self.core.for_one_call()
        try:
            with add_event_listener(_Following(context)):
                answer = await self._answer(core, arguments, context)
        except CodeModeProtocolError:
            raise  # the answers are refused, and the pause stays as it is: the host asks again
        except CodeModeError as error:
            raise Failure(failure_text(error, str(arguments.get("js", "")))) from error
        if isinstance(answer, Interrupt):
            raise Asks(_waiting(answer), answer.to_dict())
        return core.to_model_output(answer, tool_call_id=context.call_id)["value"]

    # 5. Pauses: what the framework keeps is the interrupt, and what it is told goes on with that.
    async def _answer(self, core: codemode.CodeModeTool, arguments: Mapping[str, Any], context: Context) -> Any:
        if context.kept is None:
            return await core.execute(arguments, CallContext(tool_call_id=context.call_id, context=context))
        interrupt = Interrupt.from_dict(context.kept)
        answers = {
            one.interrupt_id: _resolution(context.decisions[one.interrupt_id])
            for one in interrupt.requests
            if one.interrupt_id in context.decisions
        }
        return await core.resume(interrupt, call=CallContext(context=context), resolutions=answers)


def _waiting(interrupt: Interrupt) -> list[Call]:
    return [Call(id=one.interrupt_id, name=one.tool_name, arguments=one.input) for one in interrupt.requests]


def _resolution(decision: tinyloop.Decision) -> dict[str, Any]:
    if not decision.approved:
        return {"approved": False, "reason": decision.message}
    return {"approved": True} if decision.arguments is None else {"approved": True, "input": decision.arguments}


# 6. Live events: whoever follows the run hears of the calls of its programs.
class _Following:
    def __init__(self, context: Context) -> None:
        self._follow = context.follow

    def __call__(self, event: Any) -> None:
        if isinstance(event, NestedToolCallEvent) and not event.replayed:
            what = "ended" if isinstance(event, NestedToolResultEvent) else "begun"
            self._follow(what, Call(id=event.tool_call_id, name=event.tool_name, arguments=json.dumps(event.input)))
