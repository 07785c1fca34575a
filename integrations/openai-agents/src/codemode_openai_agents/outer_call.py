"""One call of codeMode by a model: its program, and its calls, told while it runs."""

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

from .approvals import AGENT_KIND, Approvals, decide_for_all, decided_before, edited_input
from .content import call_of
from .nested import NestedCalls
from .pauses import Decide, Decision, inner_id

OnStream: TypeAlias = Callable[[AgentToolStreamEvent], Any]
_MOST = 16 << 10
_MOST_LISTED = 2 << 10  # what is listed stays in the state of the run
_OUTCOMES = {"fulfilled": "done", "rejected": "failed", "interrupted": "waiting", "aborted": "aborted"}
_log = logging.getLogger("codemode_openai_agents")

# Who streams a run, by the usage that the run and all its tool calls count in.
_streams: dict[int, tuple[Any, asyncio.Queue[Any]]] = {}


class CallLog:
    """Hears of the calls of one program, passes them on as the SDK's stream events, and lists them."""

    name = "nested calls"

    def __init__(self, context: ToolContext[Any], agent: Any, on_stream: OnStream | None) -> None:
        self._context = context
        self._agent = agent
        self._on_stream = on_stream
        self._invocation_id: str | None = None
        self._calls: dict[str, dict[str, Any]] = {}
        self._news: asyncio.Queue[RunItemStreamEvent | None] = asyncio.Queue()

    def __call__(self, event: Any) -> None:
        """Hear of an event of an invocation, on its loop, which is that of the run."""
        if self._invocation_id is None and isinstance(event, InvocationStarted):
            self._invocation_id = event.invocation_id
        if not isinstance(event, NestedToolCallEvent) or event.invocation_id != self._invocation_id:
            return
        if isinstance(event, NestedToolResultEvent):
            self._ended(event)
        else:
            self._begun(event)

    def _begun(self, event: NestedToolCallEvent) -> None:
        given = event.input if event.input_bytes <= _MOST else None
        call: dict[str, Any] = {"name": event.tool_name, "call_id": event.tool_call_id}
        if event.input_bytes <= _MOST_LISTED:
            call["input"] = given
        self._calls[event.tool_call_id] = {**call, "outcome": "running", "started_at_ms": event.started_at_ms}
        if not event.replayed and not event.resumed and self._is_heard:
            self._tell("tool_called", ToolCallItem(self._agent, call_of(event.tool_name, event.tool_call_id, given)))

    def _ended(self, event: NestedToolResultEvent) -> None:
        call = self._calls.setdefault(event.tool_call_id, {"name": event.tool_name, "call_id": event.tool_call_id})
        call |= {"outcome": _OUTCOMES[event.status], "completed_at_ms": event.completed_at_ms}
        failed = event.told_error
        if failed is not None:
            call["error"] = failed["message"]
        if event.replayed or event.status == "interrupted" or not self._is_heard:
            return
        is_short = event.output_characters is None or event.output_characters <= _MOST
        output = failed["message"] if failed is not None else event.output if is_short else None
        raw: Any = {"type": "function_call_output", "call_id": event.tool_call_id, "output": str(output)}
        data: dict[str, Any] = {"codemode": dict(call)}
        self._tell("tool_output", ToolCallOutputItem(self._agent, raw, output, custom_data=data))

    @property
    def listed(self) -> list[dict[str, Any]]:
        """All calls, in the order of their beginnings: plain JSON."""
        return list(self._calls.values())

    @property
    def _is_heard(self) -> bool:
        return self._on_stream is not None or id(self._context.usage) in _streams

    def _tell(self, name: Any, item: Any) -> None:
        event = RunItemStreamEvent(name=name, item=item)
        _, stream = _streams.get(id(self._context.usage), (None, None))
        if stream is not None:
            stream.put_nowait((event, None))
        if self._on_stream is not None:
            self._news.put_nowait(event)

    async def listen(self) -> None:
        """Give ``on_stream`` each event in its order, until `finish`."""
        while (event := await self._news.get()) is not None:
            told: AgentToolStreamEvent = {"event": event, "agent": self._agent, "tool_call": self._context.tool_call}
            try:
                answer: Any = self._on_stream(told) if self._on_stream is not None else None
                if inspect.isawaitable(answer):
                    await answer
            except Exception:  # noqa: BLE001 - a listener changes nothing
                _log.exception("on_stream raised")

    def finish(self) -> None:
        """Let `listen` end once all is told."""
        self._news.put_nowait(None)


async def stream_events(result: RunResultStreaming) -> AsyncIterator[StreamEvent]:
    """Yield what ``result.stream_events()`` yields, and the calls of programs among it as they begin and end.

    These are events ``tool_called`` and ``tool_output`` too; the agent of their items is called codeMode. Iterate over
    one of the two, not over both.
    """
    usage = result.context_wrapper.usage
    queue: asyncio.Queue[tuple[Any, BaseException | None]] = asyncio.Queue()
    _streams[id(usage)] = usage, queue

    async def pull() -> None:
        failure: BaseException | None = None
        try:
            async for event in result.stream_events():
                queue.put_nowait((event, None))
        except Exception as error:  # noqa: BLE001 - raised where the events are read
            failure = error
        queue.put_nowait((None, failure))

    pulling = asyncio.ensure_future(pull())
    try:
        while (told := await queue.get())[0] is not None:
            yield told[0]
        if told[1] is not None:
            raise told[1]
    finally:
        _streams.pop(id(usage), None)
        pulling.cancel()
        with suppress(asyncio.CancelledError):
            await pulling


class OuterCall:
    """What becomes of a program: ``value`` and ``parts`` for the model, or the text of a ``failure``, or a pause.

    ``error`` is what ends the run of the agent.
    """

    def __init__(
        self,
        core: CodeModeTool,
        tools: Mapping[str, FunctionTool],
        approvals: Approvals,
        context: ToolContext[Any],
        js: str,
        log: CallLog,
        state: Any,
    ) -> None:
        self.value: Any = None
        self.parts: list[MediaContent] = []
        self.failure: str | None = None
        self.error: BaseException | None = None
        self.has_ended = False
        self._core = core.for_one_call()
        self._js = js
        self._tools = tools
        self._approvals = approvals
        self._context = context
        self._calls = NestedCalls(context, tools)
        self._log = log
        self._state = state
        self._denied: set[str] = set()

    async def begin(self) -> Interrupt | None:
        """Run the program up to its first pause; None when it has ended."""
        call = CallContext(tool_call_id=self._context.tool_call_id, context=self, state=self._state)
        return await self._turn(self._core.execute(self._js, call))

    async def go_on(self, continuation: Any, decide: Decide) -> Interrupt | None:
        """Do the same from a pause."""
        try:
            opened = await OpenedContinuation.open(continuation, options=self._core.options)
        except CodeModeProtocolError as error:
            return self._end(_cannot_go_on(error))
        interrupt = opened.interrupt
        decisions = await decide(interrupt)
        answers = {one.interrupt_id: _answer(one, decisions) for one in interrupt.requests}
        for one in interrupt.requests:
            made = decisions.get(one.interrupt_id)
            is_asked = one.payload.get("kind") != PendingRequest.UNKNOWN_OUTCOME
            if is_asked and made is not None and made.is_for_all:
                await decide_for_all(self._context, one, is_approved=made.is_approved)
        return await self._turn(self._resumed(interrupt, answers), is_resumed=True)

    async def _resumed(self, interrupt: Interrupt, answers: Mapping[str, Any]) -> Any:
        """Go on from a pause; where a run was cut off that did so by these answers, from there."""
        try:
            call = CallContext(context=self, state=self._state)
            return await self._core.resume(interrupt, call=call, resolutions=answers)
        except CodeModeError as error:
            recovery = Interrupt.find_recovery(error)
            if recovery is None:
                raise
        return recovery if recovery.requests else await self._resumed(recovery, {})

    async def call(self, name: str, arguments: dict[str, Any], context: ToolCallContext) -> Any:
        """Make a call of the program."""
        if context.tool_call_id in self._denied:
            raise CodeModeToolApprovalDeniedError(
                f"calls of {name!r} are rejected in this run", details={"tool_name": name}
            )
        return await self._calls.call(name, arguments, context)

    async def asks(self, name: str, arguments: dict[str, Any], context: ToolCallContext) -> bool:
        """Tell whether a person must decide about a call first."""
        decided = await decided_before(self._context, name, context.tool_call_id, arguments)
        if decided is None:
            return await self._approvals.asks(self._tools[name], self._context, arguments, context.tool_call_id)
        if not decided:
            self._denied.add(context.tool_call_id)
        return False

    async def _turn(self, work: Awaitable[Any], *, is_resumed: bool = False) -> Interrupt | None:
        calls = self._calls
        with add_event_listener(self._log):
            running = asyncio.ensure_future(work)
        calls.stop = running.cancel
        try:
            answer = await running
        except asyncio.CancelledError:
            running.cancel()
            if calls.fatal is None:
                raise
            return self._end(calls.fatal)
        except CodeModeProtocolError as error:
            if is_resumed:
                return self._end(_cannot_go_on(error))
            return self._failed(error)
        except CodeModeError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - what a tool of the SDK ends the run with
            return self._end(error)
        if calls.fatal is not None:
            return self._end(calls.fatal)
        if isinstance(answer, Interrupt):
            return answer
        self.has_ended = True
        self.value, self.parts = self._core.to_model_parts(answer, tool_call_id=self._context.tool_call_id)
        return None

    def _failed(self, error: CodeModeError) -> None:
        if self._calls.fatal is not None:
            return self._end(self._calls.fatal)
        self.has_ended = True
        self.failure = failure_text(error, self._js)
        return None

    def _end(self, error: BaseException) -> None:
        self.has_ended = True
        self.error = error


def _answer(request: PendingRequest, decisions: Mapping[str, Decision]) -> dict[str, Any]:
    if request.payload.get("kind") == AGENT_KIND:
        ids = [inner_id(request.interrupt_id, number) for number in range(len(request.payload["waiting"]))]
        return {"decisions": [_inner_answer(decisions.get(one)) for one in ids]}
    decision = decisions.get(request.interrupt_id)
    is_approved = decision is not None and decision.is_approved
    said = "" if decision is None else decision.said
    if request.payload.get("kind") == PendingRequest.UNKNOWN_OUTCOME:
        return {"runAgain": True} if is_approved else {"error": {"message": said or "rejected"}}
    if is_approved:
        return {"approved": True}
    edited = None if decision is None else edited_input(said, decision.mark)
    if edited is not None:
        return {"approved": True, "input": edited}
    return {"approved": False, **({"reason": said} if said else {})}


def _inner_answer(decision: Decision | None) -> dict[str, Any]:
    if decision is None:
        return {}
    always: dict[str, Any] = {"always": True} if decision.is_for_all else {}
    if decision.is_approved:
        return {"approved": True, **always}
    edited = edited_input(decision.said, decision.mark)
    return {"input": edited} if edited is not None else {"approved": False, "message": decision.said, **always}


def _cannot_go_on(error: CodeModeProtocolError) -> UserError:
    said, own = "This paused codeMode call cannot go on", "a state goes on once, with one set of decisions"
    return UserError(error.explain(said, first="the state of the run", otherwise=own))
