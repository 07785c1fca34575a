"""The nested calls of one part of a program: run a LangChain tool, keep what is not for the guest, notice pauses.

Knows neither the checkpoint nor how a pause reaches a person.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol, cast

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context
from langchain_core.tools import BaseTool, ToolException

from codemode import CodeModeToolError, ToolCallContext, request_interrupt

from .conversion import Capture, guest_value, plain_args, told, tool_call
from .graph import Answer, NestedScratchpad, interrupts_in, is_wrong_answer

INTERRUPT_KIND = "langgraph-interrupt"


class Caller(Protocol):
    """How one call of a tool is made."""

    def call(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """Return what LangChain makes of the call: a message, a command, or a list of them."""
        ...

    async def acall(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """Do the same without blocking."""
        ...


class DirectCaller:
    """Calls the tool itself."""

    def call(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `Caller.call`."""
        return tool.invoke(call, config)

    async def acall(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `Caller.acall`."""
        return await tool.ainvoke(call, config)


class WrongAnswer(Exception):  # noqa: N818 - an answer, not a failure of this code
    """The newest answer does not fit the schema that the tool's ``interrupt()`` gave."""


@dataclass
class NestedRun:
    """Serves the nested calls of one part of a program.

    ``answers`` are what people answered to interrupts inside calls, ``responses`` what they gave in a call's place,
    both by the id of the nested call. What comes of the calls beside their values is in ``commands``, ``artifacts``
    and ``asked``: the ``interrupt()`` of a call, as ``value``, ``response_schema``, ``is_own`` (not of a graph inside
    the tool) and ``answers``, how many earlier answers hold.
    """

    caller: Caller
    config: RunnableConfig
    answers: Mapping[str, Sequence[Answer]] = field(default_factory=dict[str, Sequence[Answer]])
    responses: Mapping[str, str] = field(default_factory=dict[str, str])
    asked: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]], init=False)
    commands: list[Any] = field(default_factory=list[Any], init=False)
    artifacts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]], init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(self, tool: BaseTool, value: Any, context: ToolCallContext) -> Any:
        """Make one call; it may block."""
        if context.tool_call_id in self.responses:
            return self.responses[context.tool_call_id]
        answers = self.answers.get(context.tool_call_id, ())
        attempt = _Attempt(self, tool, value, context, answers)
        try:
            return attempt.finished(self._call(attempt))
        except WrongAnswer:
            return attempt.finished(self._call(attempt.without_last_answer()))

    async def arun(self, tool: BaseTool, value: Any, context: ToolCallContext) -> Any:
        """Make one call without blocking."""
        if context.tool_call_id in self.responses:
            return self.responses[context.tool_call_id]
        answers = self.answers.get(context.tool_call_id, ())
        attempt = _Attempt(self, tool, value, context, answers)
        try:
            return attempt.finished(await self._acall(attempt))
        except WrongAnswer:
            return attempt.finished(await self._acall(attempt.without_last_answer()))

    def _call(self, attempt: _Attempt) -> Any:
        with set_config_context(attempt.config) as variables:
            try:
                return variables.run(self.caller.call, attempt.capture.tool, attempt.call, attempt.config)
            except Exception as error:  # noqa: BLE001 - a pause is recognised, all else is raised again
                attempt.failed(error)

    async def _acall(self, attempt: _Attempt) -> Any:
        with set_config_context(attempt.config) as variables:
            work = self.caller.acall(attempt.capture.tool, attempt.call, attempt.config)
            try:
                return await asyncio.create_task(cast("Coroutine[Any, Any, Any]", work), context=variables)
            except Exception as error:  # noqa: BLE001 - as above
                attempt.failed(error)

    def keep(self, tool_call_id: str, tool: BaseTool, result: Any) -> ToolMessage | None:
        """Take apart what a call gave: artifacts and state updates stay here, the message goes on."""
        parts = cast("list[Any]", result) if isinstance(result, list) else [result]
        message: ToolMessage | None = None
        with self._lock:
            for part in parts:
                if isinstance(part, ToolMessage):
                    message = part
                elif hasattr(part, "update"):
                    command, found = without_message(part, tool_call_id)
                    self.commands.append(command)
                    message = found or message
            if message is not None and message.artifact is not None:
                kept = {"tool": tool.name, "tool_call_id": tool_call_id, "artifact": message.artifact}
                self.artifacts.append(kept)
        return message


class _Attempt:
    """One attempt at one call: what it is made with, and how its end is read."""

    def __init__(
        self,
        run: NestedRun,
        tool: BaseTool,
        value: Any,
        context: ToolCallContext,
        answers: Sequence[Answer],
    ) -> None:
        self._run = run
        self._tool = tool
        self._value = value
        self._context = context
        self._answers = answers
        self._id = context.tool_call_id
        self._scratchpad = NestedScratchpad(self._id, answers)
        self.config = self._scratchpad.applied_to(run.config)
        self.capture = Capture(tool, self.config)
        self.call = tool_call(tool.name, plain_args(value), self._id)

    def without_last_answer(self) -> _Attempt:
        """Return the same call as if the last question had not been answered: it asks again."""
        return _Attempt(self._run, self._tool, self._value, self._context, self._answers[:-1])

    def finished(self, result: Any) -> Any:
        """Return what the program gets."""
        message = self._run.keep(self._id, self._tool, result)
        return None if message is None else guest_value(message, self.capture)

    def failed(self, error: Exception) -> NoReturn:
        """Raise a pause for an interrupt and `WrongAnswer` for an answer that did not fit it; else the error itself."""
        if self._answers and is_wrong_answer(error):
            raise WrongAnswer from error
        if isinstance(error, ToolException):
            raise told(error, self._tool.name) from error
        interrupts = interrupts_in(error)
        if interrupts is None:
            raise error
        if len(interrupts) != 1:
            raise CodeModeToolError("a nested call cannot wait for several answers at once") from error
        stop = interrupts[0]
        self._run.asked[self._id] = {
            "value": stop.value,
            "response_schema": stop.response_schema,
            "is_own": self._scratchpad.asked_itself,
            "answers": len(self._answers),
        }
        request_interrupt({"kind": INTERRUPT_KIND})


def without_message(command: Any, tool_call_id: str) -> tuple[Any, ToolMessage | None]:
    """Take the message for a nested call out of a command: the model never made that call."""
    update: Any = command.update
    is_state = isinstance(update, dict)
    messages: Any = cast("dict[str, Any]", update).get("messages") if is_state else update
    if not isinstance(messages, list):
        return command, None
    kept: list[Any] = []
    found: ToolMessage | None = None
    for one in cast("list[Any]", messages):
        if isinstance(one, ToolMessage) and one.tool_call_id == tool_call_id:
            found = one
        else:
            kept.append(one)
    if not is_state:
        return replace(command, update=kept), found
    rest = {key: value for key, value in cast("dict[str, Any]", update).items() if key != "messages"}
    return replace(command, update={**rest, **({"messages": kept} if kept else {})}), found
