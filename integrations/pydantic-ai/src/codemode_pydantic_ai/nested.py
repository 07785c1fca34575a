"""Nested calls on the framework's own path. Knows nothing of programs, message histories or who answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from types import GeneratorType
from typing import Any, NoReturn, cast

from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    UserError,
)
from pydantic_ai.messages import ToolCallPart, ToolReturn, ToolReturnPart, tool_return_ta
from pydantic_ai.tools import ToolDenied
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from codemode import (
    CodeModeToolApprovalDeniedError,
    CodeModeToolError,
    ExecutionPolicy,
    ToolCallContext,
    request_interrupt,
)
from codemode.plugins import LARGE_CHARACTERS, refuse_too_many, run_check, weigh

from .content import Beside, as_places, taken
from .failures import OWN_WORDS, TOLD, ErrorWords, told
from .shown_inputs import CallInput, NestedManager, require_as_shown
from .told_calls import CallLog
from .turns import Reservation, SharedTurns
from .workflows import is_repeated

APPROVAL_KIND = "pydantic-ai/approval"
CALL_KIND = "pydantic-ai/call"
TOOL_NAME = "toolName"
"""In the payload of a pause: what the framework calls the tool, where programs have another name for it."""

# These end the run of the agent; a program must not be able to catch them.
_ENDS_THE_RUN = (AgentRunError, UserError)


@dataclass
class _CountedToolset(WrapperToolset[Any]):
    """Stands where the framework calls a tool, behind all its hooks.

    What was approved must arrive as it was shown; and a reservation is given back at the moment before the framework
    counts the call itself.
    """

    reservations: dict[str, Reservation] = field(default_factory=dict[str, Reservation])
    inputs: dict[str, CallInput] = field(default_factory=dict[str, CallInput])

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        waiting = self.inputs.get(ctx.tool_call_id or "")
        if waiting is not None and ctx.tool_call_approved:
            await require_as_shown(ToolCallPart(name, tool_call_id=ctx.tool_call_id or ""), waiting, tool_args, tool)
        result = await self.wrapped.call_tool(name, tool_args, ctx, tool)
        reservation = self.reservations.get(ctx.tool_call_id or "")
        if reservation is not None:  # a tool may make calls of its own, under ids of its own
            reservation.release()
        return result


class NestedCalls:
    """The calls of one program, through a `ToolManager` that knows the hidden tools.

    ``fatal`` is what ends the run of the agent, whatever the program does; ``stop`` then cancels the program.
    ``settled`` are the calls that somebody answered, by the id under which they waited, ``beside`` what results have
    beside their values. ``is_repeated`` tells that a
    durable engine runs them, one after the other, and may run them again. ``words`` are those of the errors that a
    program is told of. ``run_context`` is that of the model's call; hooks of the core, whose ``context`` this is, find
    it here. ``shared`` is what all programs of the run share, and ``log`` hears of the calls.
    """

    def __init__(
        self,
        toolset: AbstractToolset[Any],
        tools: Mapping[str, ToolsetTool[Any]],
        ctx: RunContext[Any],
        shared: SharedTurns,
        policy: ExecutionPolicy,
        words: ErrorWords = OWN_WORDS,
    ) -> None:
        self.fatal: BaseException | None = None
        self.stop: Callable[[], object] = lambda: None
        self.settled: dict[str, ToolReturnPart] = {}
        self.beside = Beside()
        self.run_context = ctx
        self.shared = shared
        self._policy = policy
        self._words = words
        self._toolset = _CountedToolset(toolset)
        self._manager = _manager(self._toolset, tools, ctx)
        self._manager.inputs = self._toolset.inputs
        self.is_repeated = is_repeated(self._manager.root_capability)
        self.log = CallLog(ctx, is_live=not self.is_repeated)
        self._all_alone = self.is_repeated or self._manager.get_parallel_execution_mode() == "sequential"

    async def call(
        self,
        name: str,
        arguments: Any,
        context: ToolCallContext,
        *,
        approved: bool = False,
        shown: dict[str, Any] | None = None,
    ) -> Any:
        """Run one nested call, or finish one that waited. Returns plain JSON.

        ``approved`` and ``shown`` are for a call that somebody has already approved, as it was shown.
        """
        call = ToolCallPart(name, as_places(arguments) or {}, tool_call_id=context.tool_call_id)
        try:
            if context.interrupt is None:
                waiting = await CallInput.of(call.args_as_dict(), shown)
                call = replace(call, args=waiting.arguments)
                return await self._handle(call, waiting, context, approved=approved)
            return await self._finish(call, context)
        except _ENDS_THE_RUN as error:
            self.fatal = error
            self.stop()
            # The run raises it; raised from here it would be logged as a failure of the tool, which it is not.
            raise self._words.failure(call, "the run of the agent has ended") from None

    def add(self, name: str, tool: ToolsetTool[Any]) -> None:
        """Let one more tool be called, which was not known before."""
        assert self._manager.tools is not None  # noqa: S101 - given when the manager is made
        self._manager.tools[name] = tool

    async def _finish(self, call: ToolCallPart, context: ToolCallContext) -> Any:
        """Go on with a call that waited, by the answer that it got."""
        answered = context.interrupt
        assert answered is not None  # noqa: S101 - the caller has looked
        try:
            value = await self._by_answer(call, context, answered.payload, answered.resolution)
        except CodeModeToolApprovalDeniedError as error:
            self.settled[answered.id] = _settled(call, answered.id, error.message, "denied")
            raise
        except CodeModeToolError as error:
            self.settled[answered.id] = _settled(call, answered.id, error.message, "failed")
            raise
        self.settled[answered.id] = _settled(call, answered.id, value, "success")
        return value

    async def _by_answer(
        self, call: ToolCallPart, context: ToolCallContext, payload: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> Any:
        if "result" in answer:
            return answer["result"]
        if "failed" in answer:
            raise self._words.failure(call, str(answer["failed"]))
        if answer.get("approved") is not True:
            # Where a store keeps the question, the answer is in the words of its decisions.
            said = answer.get("message", answer.get("reason")) or ToolDenied().message
            raise self._words.denial(call, str(said))
        if payload["kind"] != APPROVAL_KIND:
            raise UserError(f"{call.tool_name!r} waits for a result, not for an approval")
        arguments = payload.get("given") or call.args_as_dict()
        waiting = await CallInput.of(arguments, payload["args"], payload.get("metadata"))
        call = replace(call, args=answer.get("args", answer.get("input", waiting.arguments)))
        return await self._handle(call, waiting, context, approved=True, metadata=answer.get("metadata"))

    async def _handle(
        self,
        call: ToolCallPart,
        waiting: CallInput,
        context: ToolCallContext,
        *,
        approved: bool = False,
        metadata: Any = None,
    ) -> Any:
        reservation = self.shared.budget.reserve(_context(self._manager))
        self._toolset.reservations[call.tool_call_id] = reservation
        self._manager.inputs[call.tool_call_id] = waiting
        waiting.require_allowed = context.require_allowed
        try:
            alone = self._all_alone or self._manager.is_sequential(call)
            async with self.shared.turns.take(alone=alone):
                outcome = await self._through_manager(call, context, approved=approved, metadata=metadata)
        except (ApprovalRequired, CallDeferred) as waits:
            name = call.tool_name if self._words.names_tools else None
            _pause(waits, await self._shown(call), waiting.edited, name)
        except TOLD as error:
            # The text says it all, but for what a tool itself could not validate: the host's log has that.
            is_hidden = waiting.has_begun and isinstance(error, ValidationError)
            failure = self._words.failure(call, told(error), is_refused=not waiting.has_begun)
            raise failure from (error if is_hidden else None)
        finally:
            if waiting.edited is not None and waiting.has_begun:
                self.log.last.note_edit(call.tool_call_id, waiting.edited)
            reservation.release()
            del self._toolset.reservations[call.tool_call_id]
            del self._manager.inputs[call.tool_call_id]
        if isinstance(outcome, ToolDenied):
            raise self._words.denial(call, outcome.message)
        value = outcome
        if isinstance(outcome, ToolReturn):
            returned = cast("ToolReturn[Any]", outcome)
            self.beside.note(call.tool_name, call.tool_call_id, returned)
            value = returned.return_value
        return await self._as_json(value, call.tool_name)

    async def _shown(self, call: ToolCallPart) -> dict[str, Any]:
        try:
            return await self._manager.show(call)
        except ValidationError as error:  # an iterator validates what it gives when it is read
            raise self._words.failure(call, told(error), is_refused=True) from None

    async def _as_json(self, given: Any, name: str) -> Any:
        most = self._policy.max_values

        def write() -> Any:
            # A generator is the tool's code, and may never end.
            value = list(islice(cast("Iterator[Any]", given), most + 1)) if isinstance(given, GeneratorType) else given
            value = taken(value)
            refuse_too_many(value, most, f"the output of tool {name!r}")
            try:
                return tool_return_ta.dump_python(value, mode="json", by_alias=True)
            except ValueError:  # a part of it cannot be written: the core reads the others
                return value

        return await run_check(weigh(given, LARGE_CHARACTERS), write)

    async def _through_manager(self, call: ToolCallPart, context: ToolCallContext, **given: Any) -> Any:
        """Make a call; while an inline handler decides about it, the program's time stands still."""
        with ExitStack() as asking:

            async def asked(_requests: object) -> None:
                asking.enter_context(context.asking_person())

            async def answered(_requests: object, _results: object) -> None:
                asking.close()

            # A program may catch what fails, and what it does not catch is a retry of the program: neither is one of
            # the tool's own.
            return await self._manager.handle_call(
                call,
                wrap_validation_errors=False,
                on_deferred_requests=asked,
                on_inline_deferred=answered,
                **given,
            )


def _manager(
    toolset: AbstractToolset[Any], tools: Mapping[str, ToolsetTool[Any]], ctx: RunContext[Any]
) -> NestedManager:
    """Return a manager of the hidden tools that shares the run's hooks and usage with the visible one."""
    outer = ctx.tool_manager
    if outer is None:
        return NestedManager(toolset, ctx=ctx, tools=dict(tools))
    return NestedManager.beside(
        replace(outer, toolset=toolset, tools=dict(tools), failed_tools=set(), succeeded_tools=set())
    )


def _context(manager: NestedManager) -> RunContext[Any]:
    assert manager.ctx is not None  # noqa: S101 - set when the manager is made
    return manager.ctx


def _pause(
    waits: ApprovalRequired | CallDeferred, shown: dict[str, Any], edited: dict[str, Any] | None, name: str | None
) -> NoReturn:
    kind = APPROVAL_KIND if isinstance(waits, ApprovalRequired) else CALL_KIND
    payload: dict[str, Any] = {"kind": kind, "args": shown}
    if kind == APPROVAL_KIND:
        payload["asksApproval"] = True  # to a store
    if name is not None:
        payload[TOOL_NAME] = name
    if edited is not None:
        payload["given"] = edited
    if waits.metadata is not None:
        payload["metadata"] = waits.metadata
    if getattr(waits, "kind", None) == "question":
        payload["question"] = True
    request_interrupt(payload)


def _settled(call: ToolCallPart, waiting_id: str, content: Any, outcome: Any) -> ToolReturnPart:
    return ToolReturnPart(tool_name=call.tool_name, content=content, tool_call_id=waiting_id, outcome=outcome)
