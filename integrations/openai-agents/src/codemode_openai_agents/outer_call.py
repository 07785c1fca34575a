"""Run one call of codeMode and report its nested calls as stream events."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from agents import (
    AgentToolStreamEvent,
    FunctionTool,
    RunItemStreamEvent,
    RunResultStreaming,
    StreamEvent,
    ToolCallItem,
    ToolCallOutputItem,
    UserError,
)
from agents.tool_context import ToolContext

from codemode import (
    CallContext,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTool,
    CodeModeToolApprovalDeniedError,
    Interrupt,
    MediaContent,
    PendingRequest,
    ToolCallContext,
    failure_text,
)
from codemode.plugins import OpenedContinuation, add_event_listener
from codemode.types import InvocationStarted, NestedToolCallEvent, NestedToolResultEvent

from .approvals import (
    AGENT_PAUSE_KIND,
    ApprovalPolicy,
    apply_decision_to_all_calls,
    get_run_wide_decision,
    parse_edited_input,
)
from .content import make_function_call
from .nested import NestedCalls
from .pauses import Decision, DecisionReader, format_agent_call_id

OnStream: TypeAlias = Callable[[AgentToolStreamEvent], Any]
_MAX_STREAMED_BYTES = 16 << 10
_MAX_LISTED_INPUT_BYTES = 2 << 10  # records stay in the run's state
_OUTCOMES = {"fulfilled": "done", "rejected": "failed", "interrupted": "waiting", "aborted": "aborted"}
_log = logging.getLogger("codemode_openai_agents")

# Event queues of streamed runs, by the id of the usage object that a run shares with its tool calls.
_active_streams: dict[int, tuple[Any, asyncio.Queue[Any]]] = {}


class CallLog:
    """Record the calls of one program and emit the SDK's stream events for them."""

    name = "nested calls"

    def __init__(self, context: ToolContext[Any], agent: Any, on_stream: OnStream | None) -> None:
        self._context = context
        self._agent = agent
        self._on_stream = on_stream
        self._invocation_id: str | None = None
        self._calls: dict[str, dict[str, Any]] = {}
        self._events: asyncio.Queue[RunItemStreamEvent | None] = asyncio.Queue()

    def __call__(self, event: Any) -> None:
        """Handle an invocation event, on the run's event loop."""
        if self._invocation_id is None and isinstance(event, InvocationStarted):
            self._invocation_id = event.invocation_id
        if not isinstance(event, NestedToolCallEvent) or event.invocation_id != self._invocation_id:
            return
        if isinstance(event, NestedToolResultEvent):
            self._on_call_end(event)
        else:
            self._on_call_start(event)

    def _on_call_start(self, event: NestedToolCallEvent) -> None:
        call_input = event.input if event.input_bytes <= _MAX_STREAMED_BYTES else None
        call: dict[str, Any] = {"name": event.tool_name, "call_id": event.tool_call_id}
        if event.input_bytes <= _MAX_LISTED_INPUT_BYTES:
            call["input"] = call_input
        self._calls[event.tool_call_id] = {**call, "outcome": "running", "started_at_ms": event.started_at_ms}
        if not event.replayed and not event.resumed and self._has_listener:
            self._emit_stream_event(
                "tool_called",
                ToolCallItem(self._agent, make_function_call(event.tool_name, event.tool_call_id, call_input)),
            )

    def _on_call_end(self, event: NestedToolResultEvent) -> None:
        call = self._calls.setdefault(event.tool_call_id, {"name": event.tool_name, "call_id": event.tool_call_id})
        call |= {"outcome": _OUTCOMES[event.status], "completed_at_ms": event.completed_at_ms}
        error = event.told_error
        if error is not None:
            call["error"] = error["message"]
        if event.replayed or event.status == "interrupted" or not self._has_listener:
            return
        fits = event.output_characters is None or event.output_characters <= _MAX_STREAMED_BYTES
        output = error["message"] if error is not None else event.output if fits else None
        raw: Any = {"type": "function_call_output", "call_id": event.tool_call_id, "output": str(output)}
        data: dict[str, Any] = {"codemode": dict(call)}
        self._emit_stream_event("tool_output", ToolCallOutputItem(self._agent, raw, output, custom_data=data))

    @property
    def records(self) -> list[dict[str, Any]]:
        """All calls in start order, as plain JSON."""
        return list(self._calls.values())

    @property
    def _has_listener(self) -> bool:
        return self._on_stream is not None or id(self._context.usage) in _active_streams

    def _emit_stream_event(self, name: Any, item: Any) -> None:
        event = RunItemStreamEvent(name=name, item=item)
        _, stream = _active_streams.get(id(self._context.usage), (None, None))
        if stream is not None:
            stream.put_nowait((event, None))
        if self._on_stream is not None:
            self._events.put_nowait(event)

    async def deliver_events(self) -> None:
        """Pass each event to ``on_stream`` in order, until `stop_delivery`."""
        while (event := await self._events.get()) is not None:
            stream_event: AgentToolStreamEvent = {
                "event": event,
                "agent": self._agent,
                "tool_call": self._context.tool_call,
            }
            try:
                answer: Any = self._on_stream(stream_event) if self._on_stream is not None else None
                if inspect.isawaitable(answer):
                    await answer
            except Exception:  # noqa: BLE001 - a listener changes nothing
                _log.exception("on_stream raised")

    def stop_delivery(self) -> None:
        """Make `deliver_events` return after the last event."""
        self._events.put_nowait(None)


async def stream_events(result: RunResultStreaming) -> AsyncIterator[StreamEvent]:
    """Yield the events of ``result.stream_events()`` and those of nested calls as they start and end.

    Nested calls have the events ``tool_called`` and ``tool_output`` of an agent named codeMode. Iterate over this or
    over ``result.stream_events()``, not over both.
    """
    usage = result.context_wrapper.usage
    queue: asyncio.Queue[tuple[Any, BaseException | None]] = asyncio.Queue()
    _active_streams[id(usage)] = usage, queue

    async def forward_events() -> None:
        failure: BaseException | None = None
        try:
            async for event in result.stream_events():
                queue.put_nowait((event, None))
        except Exception as error:  # noqa: BLE001 - raised where the events are read
            failure = error
        queue.put_nowait((None, failure))

    forwarding = asyncio.ensure_future(forward_events())
    try:
        while (entry := await queue.get())[0] is not None:
            yield entry[0]
        if entry[1] is not None:
            raise entry[1]
    finally:
        _active_streams.pop(id(usage), None)
        forwarding.cancel()
        with suppress(asyncio.CancelledError):
            await forwarding


class OuterCall:
    """One call of codeMode.

    A finished program has ``value`` and ``parts`` for the model, a ``failure`` text, or an ``error`` that ends the
    agent's run.
    """

    def __init__(
        self,
        core: CodeModeTool,
        tools: Mapping[str, FunctionTool],
        approvals: ApprovalPolicy,
        context: ToolContext[Any],
        js: str,
        log: CallLog,
        state: Any,
    ) -> None:
        self.value: Any = None
        self.parts: list[MediaContent] = []
        self.failure: str | None = None
        self.error: BaseException | None = None
        self.is_finished = False
        self._core = core.for_one_call()
        self._js = js
        self._tools = tools
        self._approvals = approvals
        self._context = context
        self._calls = NestedCalls(context, tools)
        self._log = log
        self._state = state
        self._denied: set[str] = set()

    async def start(self) -> Interrupt | None:
        """Run the program to its first pause; None if it finished."""
        call = CallContext(tool_call_id=self._context.tool_call_id, context=self, state=self._state)
        return await self._run_until_pause(self._core.execute(self._js, call))

    async def resume(self, continuation: Any, decide: DecisionReader) -> Interrupt | None:
        """Resume a pause and run to the next one; None if the program finished."""
        try:
            opened = await OpenedContinuation.open(continuation, options=self._core.options)
        except CodeModeProtocolError as error:
            return self._record_fatal_error(_create_resume_error(error))
        interrupt = opened.interrupt
        decisions = await decide(interrupt)
        resolutions = {request.interrupt_id: _create_resolution(request, decisions) for request in interrupt.requests}
        for request in interrupt.requests:
            decision = decisions.get(request.interrupt_id)
            is_approval = request.payload.get("kind") != PendingRequest.UNKNOWN_OUTCOME
            if is_approval and decision is not None and decision.is_for_all:
                await apply_decision_to_all_calls(self._context, request, is_approved=decision.is_approved)
        return await self._run_until_pause(self._resume_program(interrupt, resolutions), is_resumed=True)

    async def _resume_program(self, interrupt: Interrupt, resolutions: Mapping[str, Any]) -> Any:
        """Resume a pause, or the recovery interrupt of an earlier resume with these resolutions."""
        try:
            call = CallContext(context=self, state=self._state)
            return await self._core.resume(interrupt, call=call, resolutions=resolutions)
        except CodeModeError as error:
            recovery = Interrupt.find_recovery(error)
            if recovery is None:
                raise
        return recovery if recovery.requests else await self._resume_program(recovery, {})

    async def call_tool(self, name: str, arguments: dict[str, Any], context: ToolCallContext) -> Any:
        """Run one nested call."""
        if context.tool_call_id in self._denied:
            raise CodeModeToolApprovalDeniedError(
                f"calls of {name!r} are rejected in this run", details={"tool_name": name}
            )
        return await self._calls.call_tool(name, arguments, context)

    async def needs_approval(self, name: str, arguments: dict[str, Any], context: ToolCallContext) -> bool:
        """Return whether a nested call needs approval."""
        earlier_decision = await get_run_wide_decision(self._context, name, context.tool_call_id, arguments)
        if earlier_decision is None:
            return await self._approvals.needs_approval(
                self._tools[name], self._context, arguments, context.tool_call_id
            )
        if not earlier_decision:
            self._denied.add(context.tool_call_id)
        return False

    async def _run_until_pause(self, work: Awaitable[Any], *, is_resumed: bool = False) -> Interrupt | None:
        calls = self._calls
        with add_event_listener(self._log):
            task = asyncio.ensure_future(work)
        calls.cancel_program = task.cancel
        try:
            result = await task
        except asyncio.CancelledError:
            task.cancel()
            if calls.fatal_error is None:
                raise
            return self._record_fatal_error(calls.fatal_error)
        except CodeModeProtocolError as error:
            if is_resumed:
                return self._record_fatal_error(_create_resume_error(error))
            return self._record_failure(error)
        except CodeModeError as error:
            return self._record_failure(error)
        except Exception as error:  # noqa: BLE001 - ends the agent's run
            return self._record_fatal_error(error)
        if calls.fatal_error is not None:
            return self._record_fatal_error(calls.fatal_error)
        if isinstance(result, Interrupt):
            return result
        self.is_finished = True
        self.value, self.parts = self._core.to_model_parts(result, tool_call_id=self._context.tool_call_id)
        return None

    def _record_failure(self, error: CodeModeError) -> None:
        if self._calls.fatal_error is not None:
            return self._record_fatal_error(self._calls.fatal_error)
        self.is_finished = True
        self.failure = failure_text(error, self._js)
        return None

    def _record_fatal_error(self, error: BaseException) -> None:
        self.is_finished = True
        self.error = error


def _create_resolution(request: PendingRequest, decisions: Mapping[str, Decision]) -> dict[str, Any]:
    if request.payload.get("kind") == AGENT_PAUSE_KIND:
        ids = [format_agent_call_id(request.interrupt_id, number) for number in range(len(request.payload["waiting"]))]
        return {"decisions": [_create_agent_call_resolution(decisions.get(call_id)) for call_id in ids]}
    decision = decisions.get(request.interrupt_id)
    is_approved = decision is not None and decision.is_approved
    message = "" if decision is None else decision.message
    if request.payload.get("kind") == PendingRequest.UNKNOWN_OUTCOME:
        return {"runAgain": True} if is_approved else {"error": {"message": message or "rejected"}}
    if is_approved:
        return {"approved": True}
    edited_arguments = None if decision is None else parse_edited_input(message, decision.edit_id)
    if edited_arguments is not None:
        return {"approved": True, "input": edited_arguments}
    return {"approved": False, **({"reason": message} if message else {})}


def _create_agent_call_resolution(decision: Decision | None) -> dict[str, Any]:
    if decision is None:
        return {}
    always: dict[str, Any] = {"always": True} if decision.is_for_all else {}
    if decision.is_approved:
        return {"approved": True, **always}
    edited_arguments = parse_edited_input(decision.message, decision.edit_id)
    return (
        {"input": edited_arguments}
        if edited_arguments is not None
        else {"approved": False, "message": decision.message, **always}
    )


def _create_resume_error(error: CodeModeProtocolError) -> UserError:
    message, hint = "This paused codeMode call cannot resume", "a state resumes once, with one set of decisions"
    return UserError(error.explain_failed_resume(message, first="the state of the run", otherwise=hint))
