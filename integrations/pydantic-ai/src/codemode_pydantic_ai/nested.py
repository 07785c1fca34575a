"""Run nested calls through the framework's tool manager, and report them as events."""

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
from pydantic_ai.exceptions import AgentRunError, ApprovalRequired, CallDeferred, UsageLimitExceeded, UserError
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
from codemode.plugins import replace_content, run_off_loop_if_large
from codemode.types import InvocationStarted, NestedToolCallEvent, NestedToolResultEvent

from .call_scheduling import CallReservation, SharedCallState
from .content import ResultAttachments, replace_media_with_media_content
from .displayed_inputs import CallInput, NestedToolManager, require_displayed_input
from .error_mapping import DEFAULT_ERROR_STYLE, REPORTED_ERRORS, ErrorStyle, format_error


def is_durable_run(capability: AbstractCapability[Any] | None) -> bool:
    """Return whether a durable engine may replay this run and match its records by call order."""
    results: list[bool] = []
    if capability is not None:
        capability.apply(lambda current: results.append(getattr(current, "in_durable_context", False) is True))
    return any(results)


def require_outside_workflow() -> None:
    """Raise `UserError` inside a Temporal workflow function.

    pydantic-ai's Temporal plugin ends the workflow for this error; for others Temporal retries forever.
    """
    try:
        WorkerPool.require_outside_temporal_workflow()
    except RuntimeError:
        raise UserError(
            "An agent that runs programs cannot run inside a Temporal workflow function, which is replayed and may"
            " start no process, and TemporalDurability changes nothing about that: call agent.run in an activity, one"
            " for each run of the agent, and keep what the agent waits for between two of them (stored_pauses, or its"
            " messages). A continuation.journal keeps calls from being made twice when the activity is tried again."
        ) from None


_MAX_STREAMED_BYTES = 16 << 10
_EVENT_BATCH_SECONDS = 0.005

CallState: TypeAlias = Literal["running", "waiting", "done", "failed", "denied", "aborted"]

_STATE_BY_STATUS: dict[str, CallState] = {
    "fulfilled": "done",
    "rejected": "failed",
    "interrupted": "waiting",
    "aborted": "aborted",
}
_BROWSER_KEYS = {
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
    """A nested call: emitted when it starts, when it ends or waits, and again when it resumes.

    ``tool_call_id`` and ``tool_name`` are those of the outer call, ``call_id`` and ``nested_tool_name`` those of the
    nested call. ``waits_as``: id under which a waiting call is answered. ``input`` and ``output``: plain JSON, None if
    larger than 16 KiB; ``input_bytes`` and ``output_characters`` are the sizes of their JSON texts. An edited input
    replaces the original one when the call runs with it. Times are Unix milliseconds. Browsers get no ``output``.
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
        """Return the message part that adapters send to a browser; later events of the call update it.

        Its ``data`` has ``toolCallId``, ``toolName``, ``state``, ``input`` and so on, and ``outerToolCallId``.
        """
        # Imported late: most agents have no browser.
        from pydantic_ai.ui.vercel_ai.response_types import DataChunk

        fields = {browser_key: getattr(self, name) for name, browser_key in _BROWSER_KEYS.items()}
        data = {key: value for key, value in fields.items() if value is not None}
        return DataChunk(type=f"data-{self.name}", id=self.call_id, data={**data, "outerToolCallId": self.tool_call_id})

    def to_metadata(self) -> dict[str, Any]:
        """Return the call as an entry of the tool return's metadata."""
        fields = {
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
        return {key: value for key, value in {**fields, **sizes}.items() if value is not None}


class NestedCallLog:
    """Records the calls of a program and emits events into the agent's run.

    A later outer call that continues the program takes over its log. ``is_live`` is False for durable engines, which
    would have to replay the events in the same order.
    """

    name = "nested calls"

    def __init__(self, ctx: RunContext[Any], *, is_live: bool) -> None:
        self._ctx = ctx
        self._is_live = is_live
        self._loop = asyncio.get_running_loop()
        self._events: deque[NestedCallEvent] = deque()
        self._has_events = asyncio.Event()
        self._invocation_id: str | None = None
        self._successor: NestedCallLog | None = None
        self._calls: dict[str, NestedCallEvent] = {}
        self._reported_calls: dict[str, NestedCallEvent] = {}
        self._replayed: set[str] = set()

    def __call__(self, event: Any) -> None:
        """Handle an invocation event, on the invocation's event loop."""
        if self._invocation_id is None and isinstance(event, InvocationStarted):
            self._invocation_id = event.invocation_id
        if isinstance(event, NestedToolCallEvent) and event.invocation_id == self._invocation_id:
            log = self.latest_log
            log.record_and_emit_event(
                _make_call_event(event, self._ctx, log.find_start_event_if_result(event)), is_replay=event.replayed
            )

    @property
    def latest_log(self) -> NestedCallLog:
        """The log of the outer call that runs the program now."""
        return self if self._successor is None else self._successor.latest_log

    def find_start_event_if_result(self, event: NestedToolCallEvent) -> NestedCallEvent | None:
        """Return the start event of a call, if this event is its end."""
        return self._calls.get(event.tool_call_id) if isinstance(event, NestedToolResultEvent) else None

    def record_and_emit_event(self, call_event: NestedCallEvent, *, is_replay: bool) -> None:
        """Record a call event, and emit it unless it is a replay of one before the pause."""
        self._calls[call_event.call_id] = call_event
        if is_replay:
            self._replayed.add(call_event.call_id)
        elif self._is_live:
            self._replayed.discard(call_event.call_id)
            self._events.append(call_event)
            if asyncio.get_running_loop() is self._loop:
                self._has_events.set()
            else:  # the program runs on the loop of the call that started it
                self._loop.call_soon_threadsafe(self._has_events.set)

    def record_edited_input(self, call_id: str, edited_input: dict[str, Any]) -> None:
        """Replace the recorded input of a call by the edited one that it ran with."""
        call_event = self._calls.get(call_id)
        if call_event is not None:
            size = len(to_json(edited_input))
            self._calls[call_id] = replace(
                call_event, input=edited_input if size <= _MAX_STREAMED_BYTES else None, input_bytes=size
            )

    def take_over_from(self, log: NestedCallLog) -> None:
        """Take over the calls of another log, with the events after its outer call returned."""
        if log is self:
            return
        calls, events = log.hand_over_to(self)
        self._calls.update(calls)
        self._events.extend(events)
        self._has_events.set()

    def hand_over_to(self, log: NestedCallLog) -> tuple[dict[str, NestedCallEvent], Iterable[NestedCallEvent]]:
        """Forward later events to another log. Returns changed calls since the report, and events not emitted yet."""
        self._successor = log
        return {
            key: call_event
            for key, call_event in self._calls.items()
            if self._reported_calls.get(key) is not call_event
        }, self._events

    def list_and_mark_reported_calls(self) -> list[dict[str, Any]]:
        """Return all calls in start order as plain data, and remember them as reported.

        Those before a pause are marked ``replayed``.
        """
        self._reported_calls = dict(self._calls)
        return [
            {**call_event.to_metadata(), **({"replayed": True} if call_id in self._replayed else {})}
            for call_id, call_event in self._calls.items()
        ]

    @asynccontextmanager
    async def stream_events(self) -> AsyncGenerator[None]:
        """Emit events during the block, and the last ones at its end."""
        emit_task = asyncio.create_task(self._emit_batches())
        try:
            yield
        finally:
            emit_task.cancel()
            with suppress(asyncio.CancelledError):
                await emit_task
            await self._emit_pending_events()

    async def _emit_batches(self) -> None:
        while True:
            await self._has_events.wait()
            # Waking the consumer costs as much as an event: emit events in batches.
            await asyncio.sleep(_EVENT_BATCH_SECONDS)
            self._has_events.clear()
            await self._emit_pending_events()

    async def _emit_pending_events(self) -> None:
        try:
            while self._events:
                await self._ctx.emit(self._events.popleft())
        except UserError:
            # No agent run, or one that accepts no events from this tool.
            self._is_live = False
            self._events.clear()


def _make_call_event(
    event: NestedToolCallEvent, ctx: RunContext[Any], started_event: NestedCallEvent | None
) -> NestedCallEvent:
    size = event.input_bytes if started_event is None else started_event.input_bytes
    # Reuse the input decoded for the start event.
    call_input = (
        started_event.input if started_event is not None else event.input if size <= _MAX_STREAMED_BYTES else None
    )
    result_fields: dict[str, Any] = _make_result_fields(event) if isinstance(event, NestedToolResultEvent) else {}
    return NestedCallEvent(
        tool_call_id=ctx.tool_call_id,
        tool_name=ctx.tool_name,
        call_id=event.tool_call_id,
        nested_tool_name=event.tool_name,
        input=call_input,
        input_bytes=size,
        started_at_ms=event.started_at_ms,
        **result_fields,
    )


def _make_result_fields(event: NestedToolResultEvent) -> dict[str, Any]:
    size = event.output_characters
    is_denied = isinstance(event.error, CodeModeToolApprovalDeniedError)
    return {
        "state": "denied" if is_denied else _STATE_BY_STATUS[event.status],
        "output": event.output if size is not None and size <= _MAX_STREAMED_BYTES else None,
        "output_characters": size,
        "error": None if event.told_error is None else event.told_error["message"],
        "waits_as": event.interrupt_id,
        "completed_at_ms": event.completed_at_ms,
    }


APPROVAL_KIND = "pydantic-ai/approval"
CALL_KIND = "pydantic-ai/call"
TOOL_NAME_KEY = "toolName"
"""Payload key of a pause: the framework's tool name, if programs use another one."""

# These end the agent's run; a program must not catch them.
_FATAL_ERRORS = (AgentRunError, UserError)


@dataclass
class _CallCheckingToolset(WrapperToolset[Any]):
    """Checks each call behind all hooks of the framework, right before its tool.

    An approved call must run with the displayed input, and its reservation must be released just before the framework
    counts the call.
    """

    reservations: dict[str, CallReservation] = field(default_factory=dict[str, CallReservation])
    call_inputs: dict[str, CallInput] = field(default_factory=dict[str, CallInput])

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        call_input = self.call_inputs.get(ctx.tool_call_id or "")
        if call_input is not None and ctx.tool_call_approved:
            await require_displayed_input(
                ToolCallPart(name, tool_call_id=ctx.tool_call_id or ""), call_input, tool_args, tool
            )
        result = await self.wrapped.call_tool(name, tool_args, ctx, tool)
        reservation = self.reservations.get(ctx.tool_call_id or "")
        if reservation is not None:  # a tool may make calls with other ids
            reservation.release()
        return result


class NestedCalls:
    """The nested calls of one program, run through a `ToolManager` with the program tools.

    ``fatal_error``: error that ends the agent's run even if the program catches it; ``cancel_program`` is called when
    it is set. ``settled_results``: results of answered calls, by the id under which they waited. ``attachments``:
    metadata and content of results. ``is_durable``: a durable engine runs the calls sequentially and may replay them.
    ``error_style``: how errors are reported to programs. ``run_context``: context of the outer call, also for the
    core's hooks. ``shared_state``: budget and scheduler of the run. ``log``: records the calls.
    """

    def __init__(
        self,
        toolset: AbstractToolset[Any],
        tools: Mapping[str, ToolsetTool[Any]],
        run_context: RunContext[Any],
        shared_state: SharedCallState,
        policy: ExecutionPolicy,
        error_style: ErrorStyle = DEFAULT_ERROR_STYLE,
    ) -> None:
        self.fatal_error: BaseException | None = None
        self.cancel_program: Callable[[], object] = lambda: None
        self.settled_results: dict[str, ToolReturnPart] = {}
        self.attachments = ResultAttachments()
        self.run_context = run_context
        self.shared_state = shared_state
        self._policy = policy
        self._error_style = error_style
        self._toolset = _CallCheckingToolset(toolset)
        self._manager = _make_manager(self._toolset, tools, run_context)
        self._manager.call_inputs = self._toolset.call_inputs
        self.is_durable = is_durable_run(self._manager.root_capability)
        self.log = NestedCallLog(run_context, is_live=not self.is_durable)
        self._is_sequential = self.is_durable or self._manager.get_parallel_execution_mode() == "sequential"

    async def call(
        self,
        name: str,
        arguments: Any,
        context: ToolCallContext,
        *,
        is_approved: bool = False,
        displayed: dict[str, Any] | None = None,
    ) -> Any:
        """Run one nested call, or finish one that waited. Returns plain JSON.

        ``is_approved`` and ``displayed``: the call was already approved, with this displayed input.
        """
        call = ToolCallPart(name, replace_content(arguments) or {}, tool_call_id=context.tool_call_id)
        try:
            if context.interrupt is None:
                call_input = await CallInput.create(call.args_as_dict(), displayed)
                call = replace(call, args=call_input.arguments)
                return await self._run_call(call, call_input, context, approved=is_approved)
            return await self._finish_waiting_call(call, context)
        except _FATAL_ERRORS as error:
            self.fatal_error = error
            self.cancel_program()
            # The run raises the fatal error; raised here it would be logged as a failure of the tool.
            # A later run with the same answers reads this message; texts of tools stay with the host.
            reason = str(error) if isinstance(error, UsageLimitExceeded) else type(error).__name__
            raise self._error_style.make_failed_error(
                call, f"the run of the agent ended at this call: {reason}"
            ) from None

    def add_tool(self, name: str, tool: ToolsetTool[Any]) -> None:
        """Add a tool that nested calls can use."""
        assert self._manager.tools is not None  # noqa: S101 - set when the manager is made
        self._manager.tools[name] = tool

    async def _finish_waiting_call(self, call: ToolCallPart, context: ToolCallContext) -> Any:
        """Finish a call that waited, with its answer."""
        interrupt = context.interrupt
        assert interrupt is not None  # noqa: S101 - the caller has looked
        try:
            value = await self._return_answer_or_run_approved_call(
                call, context, interrupt.payload, interrupt.resolution
            )
        except CodeModeToolApprovalDeniedError as error:
            self.settled_results[interrupt.id] = _make_tool_return(call, interrupt.id, error.message, "denied")
            raise
        except CodeModeToolError as error:
            self.settled_results[interrupt.id] = _make_tool_return(call, interrupt.id, error.message, "failed")
            raise
        self.settled_results[interrupt.id] = _make_tool_return(call, interrupt.id, value, "success")
        return value

    async def _return_answer_or_run_approved_call(
        self, call: ToolCallPart, context: ToolCallContext, payload: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> Any:
        if "result" in answer:
            return answer["result"]
        if "failed" in answer:
            raise self._error_style.make_failed_error(call, str(answer["failed"]))
        if answer.get("approved") is not True:
            # Decisions of a store have "reason" instead of "message".
            message = answer.get("message", answer.get("reason")) or ToolDenied().message
            raise self._error_style.make_denied_error(call, str(message))
        if payload["kind"] != APPROVAL_KIND:
            raise UserError(f"{call.tool_name!r} waits for a result, not for an approval")
        arguments = payload.get("given") or call.args_as_dict()
        call_input = await CallInput.create(arguments, payload["args"], payload.get("metadata"))
        call = replace(call, args=answer.get("args", answer.get("input", call_input.arguments)))
        return await self._run_call(call, call_input, context, approved=True, metadata=answer.get("metadata"))

    async def _run_call(
        self,
        call: ToolCallPart,
        call_input: CallInput,
        context: ToolCallContext,
        *,
        approved: bool = False,
        metadata: Any = None,
    ) -> Any:
        reservation = self.shared_state.budget.reserve_or_raise(_require_context(self._manager))
        self._toolset.reservations[call.tool_call_id] = reservation
        self._manager.call_inputs[call.tool_call_id] = call_input
        call_input.require_allowed = context.require_allowed
        try:
            is_sequential = self._is_sequential or self._manager.is_sequential(call)
            async with self.shared_state.scheduler.acquire(is_sequential=is_sequential):
                outcome = await self._call_through_manager(call, context, approved=approved, metadata=metadata)
        except (ApprovalRequired, CallDeferred) as deferral:
            name = call.tool_name if self._error_style.includes_tool_name else None
            _raise_interrupt(deferral, await self._get_displayed_input(call), call_input.edited_input, name)
        except REPORTED_ERRORS as error:
            # A validation error inside the tool is chained for the host's log; other texts are complete.
            is_tool_validation = call_input.has_started and isinstance(error, ValidationError)
            failure = self._error_style.make_failed_error(
                call, format_error(error), is_invalid_input=not call_input.has_started
            )
            raise failure from (error if is_tool_validation else None)
        finally:
            if call_input.edited_input is not None and call_input.has_started:
                self.log.latest_log.record_edited_input(call.tool_call_id, call_input.edited_input)
            reservation.release()
            del self._toolset.reservations[call.tool_call_id]
            del self._manager.call_inputs[call.tool_call_id]
        if isinstance(outcome, ToolDenied):
            raise self._error_style.make_denied_error(call, outcome.message)
        value = outcome
        if isinstance(outcome, ToolReturn):
            tool_return = cast("ToolReturn[Any]", outcome)
            self.attachments.add(call.tool_name, call.tool_call_id, tool_return)
            value = tool_return.return_value
        return await self._output_to_json(value)

    async def _get_displayed_input(self, call: ToolCallPart) -> dict[str, Any]:
        try:
            return await self._manager.get_or_make_displayed_input(call)
        except ValidationError as error:  # an iterator validates its items when read
            raise self._error_style.make_failed_error(call, format_error(error), is_invalid_input=True) from None

    async def _output_to_json(self, output: Any) -> Any:
        max_values = self._policy.max_values

        def convert_output() -> Any:
            # A generator may be endless.
            value = (
                list(islice(cast("Iterator[Any]", output), max_values + 1))
                if isinstance(output, GeneratorType)
                else output
            )
            value = replace_media_with_media_content(value)
            try:
                return tool_return_ta.dump_python(value, mode="json", by_alias=True)
            except ValueError:  # not serializable in part: the core converts the rest
                return value

        return await run_off_loop_if_large(output, convert_output)

    async def _call_through_manager(self, call: ToolCallPart, context: ToolCallContext, **options: Any) -> Any:
        """Run a call; the program's time stops while an inline handler decides about it."""
        with ExitStack() as asking_person:

            async def on_asked(_requests: object) -> None:
                asking_person.enter_context(context.asking_person())

            async def on_answered(_requests: object, _results: object) -> None:
                asking_person.close()

            # An uncaught error is a retry of the program, not of the tool.
            return await self._manager.handle_call(
                call,
                wrap_validation_errors=False,
                on_deferred_requests=on_asked,
                on_inline_deferred=on_answered,
                **options,
            )


def _make_manager(
    toolset: AbstractToolset[Any], tools: Mapping[str, ToolsetTool[Any]], ctx: RunContext[Any]
) -> NestedToolManager:
    """Return a manager of the program tools with the run's hooks and usage."""
    outer = ctx.tool_manager
    if outer is None:
        return NestedToolManager(toolset, ctx=ctx, tools=dict(tools))
    return NestedToolManager.from_manager(
        replace(outer, toolset=toolset, tools=dict(tools), failed_tools=set(), succeeded_tools=set())
    )


def _require_context(manager: NestedToolManager) -> RunContext[Any]:
    assert manager.ctx is not None  # noqa: S101 - set when the manager is made
    return manager.ctx


def _raise_interrupt(
    deferral: ApprovalRequired | CallDeferred,
    displayed: dict[str, Any],
    edited_input: dict[str, Any] | None,
    name: str | None,
) -> NoReturn:
    kind = APPROVAL_KIND if isinstance(deferral, ApprovalRequired) else CALL_KIND
    payload: dict[str, Any] = {"kind": kind, "args": displayed}
    if kind == APPROVAL_KIND:
        payload["asksApproval"] = True  # to a store
    if name is not None:
        payload[TOOL_NAME_KEY] = name
    if edited_input is not None:
        payload["given"] = edited_input
    if deferral.metadata is not None:
        payload["metadata"] = deferral.metadata
    if getattr(deferral, "kind", None) == "question":
        payload["question"] = True
    request_interrupt(payload)


def _make_tool_return(call: ToolCallPart, waiting_id: str, content: Any, outcome: Any) -> ToolReturnPart:
    return ToolReturnPart(tool_name=call.tool_name, content=content, tool_call_id=waiting_id, outcome=outcome)
