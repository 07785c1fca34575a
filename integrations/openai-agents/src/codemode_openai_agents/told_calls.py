"""The calls of a program, told while it runs and listed when it has ended. Makes none of them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, TypeAlias

from agents import (
    AgentToolStreamEvent,
    RunItemStreamEvent,
    RunResultStreaming,
    StreamEvent,
    ToolCallItem,
    ToolCallOutputItem,
)
from agents.tool_context import ToolContext

from codemode import InvocationStarted, NestedToolCallEvent, NestedToolResultEvent

from .calls import call_of

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
