"""Nested calls on the framework's own path, reported while they run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from types import GeneratorType
from typing import Any, Literal, NoReturn, TypeAlias, cast

from pydantic import ValidationError
from pydantic_ai import CustomEvent, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import AgentRunError, ApprovalRequired, CallDeferred, UserError
from pydantic_ai.messages import ToolCallPart, ToolReturn, ToolReturnPart, tool_return_ta
from pydantic_ai.tools import ToolDenied
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import to_json

from codemode import (
    CodeModeToolApprovalDeniedError,
    CodeModeToolError,
    ExecutionPolicy,
    ToolCallContext,
    WorkerPool,
    request_interrupt,
)
from codemode.plugins import replace_content, run_bounded
from codemode.types import InvocationStarted, NestedToolCallEvent, NestedToolResultEvent

from .content import Beside, taken
from .failures import OWN_WORDS, TOLD, ErrorWords, told
from .shown_inputs import CallInput, NestedManager, require_as_shown
from .turns import Reservation, SharedTurns


def is_repeated(capability: AbstractCapability[Any] | None) -> bool:
    """Tell whether a durable engine may repeat this run, and match what it has recorded by the order of beginnings."""
    found: list[bool] = []
    if capability is not None:
        capability.apply(lambda one: found.append(getattr(one, "in_durable_context", False) is True))
    return any(found)


def require_place_for_programs() -> None:
    """Raise `UserError` inside a workflow function of Temporal, before anything is started or asked.

    It is the error of which pydantic-ai's plugin for Temporal ends the workflow; for others its task is tried for ever.
    """
    try:
        WorkerPool.refuse_in_workflow()
    except RuntimeError:
        raise UserError(
            "An agent that runs programs cannot run inside a Temporal workflow function, which is replayed and may"
            " start no process, and TemporalDurability changes nothing about that: call agent.run in an activity, one"
            " for each run of the agent, and keep what the agent waits for between two of them (stored_pauses, or its"
            " messages). A continuation.journal keeps calls from being made twice when the activity is tried again."
        ) from None


_MOST = 16 << 10
_GATHERED_SECONDS = 0.005

CallState: TypeAlias = Literal["running", "waiting", "done", "failed", "denied", "aborted"]

_ENDED: dict[str, CallState] = {
    "fulfilled": "done",
    "rejected": "failed",
    "interrupted": "waiting",
    "aborted": "aborted",
}
_IN_BROWSERS = {
    "call_id": "toolCallId",
    "nested_tool_name": "toolName",
    "state": "state",
    "input": "input",
    "error": "error",
    "waits_as": "waitsAs",
    "started_at_ms": "startedAtMs",
    "completed_at_ms": "completedAtMs",
}


@dataclass(kw_only=True)
class NestedCallEvent(CustomEvent, name="codemode.call"):
    """A call that a program makes: once when it begins, once when it ends or waits, and again when it goes on.

    ``tool_call_id`` and ``tool_name`` are those of the model's call that runs the program, ``call_id`` and
    ``nested_tool_name`` those of the call itself. ``waits_as`` is the id under which a waiting call is answered.
    ``input`` and ``output`` are plain JSON, and None where they are longer than 16 KiB, which ``input_bytes`` and
    ``output_characters``, of its JSON text, say. An input that somebody has edited is the edited one from when the call
    is made with it. Times are Unix milliseconds. A browser is sent no ``output``.
    """

    call_id: str
    nested_tool_name: str
    state: CallState = "running"
    input: Any = None
    input_bytes: int = 0
    output: Any = None
    output_characters: int | None = None
    error: str | None = None
    waits_as: str | None = None
    started_at_ms: float = 0.0
    completed_at_ms: float | None = None

    def to_payload(self) -> Any:
        """Return what adapters send to a browser: of each call one part of the message, which is brought up to date.

        ``data`` of it has ``toolCallId``, ``toolName``, ``state``, ``input`` and the rest in these spellings, and
        ``outerToolCallId``.
        """
        # Imported here, for most agents have no browser.
        from pydantic_ai.ui.vercel_ai.response_types import DataChunk

        told = {said: getattr(self, name) for name, said in _IN_BROWSERS.items()}
        data = {key: value for key, value in told.items() if value is not None}
        return DataChunk(type=f"data-{self.name}", id=self.call_id, data={**data, "outerToolCallId": self.tool_call_id})

    def to_metadata(self) -> dict[str, Any]:
        """Return the call as the metadata of the tool's return has it."""
        said = {
            "name": self.nested_tool_name,
            "call_id": self.call_id,
            "input": self.input,
            "outcome": self.state,
            "output": self.output,
            "error": self.error,
            "started_at_ms": self.started_at_ms,
            "completed_at_ms": self.completed_at_ms,
        }
        sizes = {"input_bytes": self.input_bytes, "output_characters": self.output_characters}
        return {key: value for key, value in {**said, **sizes}.items() if value is not None}


class CallLog:
    """Hears of the calls of a program, and passes them on to whoever streams the run of the agent.

    A program that is left waiting may go on in another call of the model, whose log it is then: `follow`. ``is_live``
    False is for an engine that repeats runs, where the order of all that is told would have to be the same again.
    """

    name = "nested calls"

    def __init__(self, ctx: RunContext[Any], *, is_live: bool) -> None:
        self._ctx = ctx
        self._is_live = is_live
        self._loop = asyncio.get_running_loop()
        self._news: deque[NestedCallEvent] = deque()
        self._has_news = asyncio.Event()
        self._invocation_id: str | None = None
        self._successor: CallLog | None = None
        self._calls: dict[str, NestedCallEvent] = {}
        self._reported: dict[str, NestedCallEvent] = {}
        self._replayed: set[str] = set()

    def __call__(self, event: Any) -> None:
        """Hear of an event of an invocation, on whichever loop that lives."""
        if self._invocation_id is None and isinstance(event, InvocationStarted):
            self._invocation_id = event.invocation_id
        if isinstance(event, NestedToolCallEvent) and event.invocation_id == self._invocation_id:
            log = self.last
            log.take(_told(event, self._ctx, log.begun(event)), is_replayed=event.replayed)

    @property
    def last(self) -> CallLog:
        """The log of the call that goes on with the program; this one, until one does."""
        return self if self._successor is None else self._successor.last

    def begun(self, event: NestedToolCallEvent) -> NestedCallEvent | None:
        """Return what was told of a call when it began, if this event is of its end."""
        return self._calls.get(event.tool_call_id) if isinstance(event, NestedToolResultEvent) else None

    def take(self, told: NestedCallEvent, *, is_replayed: bool) -> None:
        """Keep what has become of a call, and pass it on unless it was told of before the program had paused."""
        self._calls[told.call_id] = told
        if is_replayed:
            self._replayed.add(told.call_id)
        elif self._is_live:
            self._replayed.discard(told.call_id)
            self._news.append(told)
            if asyncio.get_running_loop() is self._loop:
                self._has_news.set()
            else:  # the program lives on the loop of the call that began it
                self._loop.call_soon_threadsafe(self._has_news.set)

    def note_edit(self, call_id: str, edited: dict[str, Any]) -> None:
        """Let the input of a call be the one that somebody put in its place, with which it has been made."""
        told = self._calls.get(call_id)
        if told is not None:
            size = len(to_json(edited))
            self._calls[call_id] = replace(told, input=edited if size <= _MOST else None, input_bytes=size)

    def follow(self, log: CallLog) -> None:
        """Take over what is still to come of the calls of another log, and what came after its call had returned."""
        if log is self:
            return
        calls, news = log.left_to(self)
        self._calls.update(calls)
        self._news.extend(news)
        self._has_news.set()

    def left_to(self, log: CallLog) -> tuple[dict[str, NestedCallEvent], Iterable[NestedCallEvent]]:
        """Leave what is still to come to another log. Returns what came after the report, and what was not told yet."""
        self._successor = log
        return {key: told for key, told in self._calls.items() if self._reported.get(key) is not told}, self._news

    def report(self) -> list[dict[str, Any]]:
        """Return every call in the order in which they began, as plain data; ``replayed`` are those before a pause."""
        self._reported = dict(self._calls)
        return [
            {**told.to_metadata(), **({"replayed": True} if call_id in self._replayed else {})}
            for call_id, told in self._calls.items()
        ]

    @asynccontextmanager
    async def streamed(self) -> AsyncGenerator[None]:
        """Emit events into the run while the block goes on, and the last of them when it is left."""
        emitting = asyncio.create_task(self._emit_news())
        try:
            yield
        finally:
            emitting.cancel()
            with suppress(asyncio.CancelledError):
                await emitting
            await self._emit()

    async def _emit_news(self) -> None:
        while True:
            await self._has_news.wait()
            # Each time that whoever streams is woken costs as much as an event: what comes together is told together.
            await asyncio.sleep(_GATHERED_SECONDS)
            self._has_news.clear()
            await self._emit()

    async def _emit(self) -> None:
        try:
            while self._news:
                await self._ctx.emit(self._news.popleft())
        except UserError:
            # There is nobody to tell: no run of an agent, or one whose events this tool is not to make.
            self._is_live = False
            self._news.clear()


def _told(event: NestedToolCallEvent, ctx: RunContext[Any], begun: NestedCallEvent | None) -> NestedCallEvent:
    size = event.input_bytes if begun is None else begun.input_bytes
    # What an input is decoded to once need not be decoded again.
    given = begun.input if begun is not None else event.input if size <= _MOST else None
    ending: dict[str, Any] = _ending(event) if isinstance(event, NestedToolResultEvent) else {}
    return NestedCallEvent(
        tool_call_id=ctx.tool_call_id,
        tool_name=ctx.tool_name,
        call_id=event.tool_call_id,
        nested_tool_name=event.tool_name,
        input=given,
        input_bytes=size,
        started_at_ms=event.started_at_ms,
        **ending,
    )


def _ending(event: NestedToolResultEvent) -> dict[str, Any]:
    size = event.output_characters
    is_denied = isinstance(event.error, CodeModeToolApprovalDeniedError)
    return {
        "state": "denied" if is_denied else _ENDED[event.status],
        "output": event.output if size is not None and size <= _MOST else None,
        "output_characters": size,
        "error": None if event.told_error is None else event.told_error["message"],
        "waits_as": event.interrupt_id,
        "completed_at_ms": event.completed_at_ms,
    }


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
        call = ToolCallPart(name, replace_content(arguments) or {}, tool_call_id=context.tool_call_id)
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
        return await self._as_json(value)

    async def _shown(self, call: ToolCallPart) -> dict[str, Any]:
        try:
            return await self._manager.show(call)
        except ValidationError as error:  # an iterator validates what it gives when it is read
            raise self._words.failure(call, told(error), is_refused=True) from None

    async def _as_json(self, given: Any) -> Any:
        most = self._policy.max_values

        def write() -> Any:
            # A generator is the tool's code, and may never end.
            value = list(islice(cast("Iterator[Any]", given), most + 1)) if isinstance(given, GeneratorType) else given
            value = taken(value)
            try:
                return tool_return_ta.dump_python(value, mode="json", by_alias=True)
            except ValueError:  # a part of it cannot be written: the core reads the others
                return value

        return await run_bounded(given, write)

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
