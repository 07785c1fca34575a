"""The nested calls of a call of the model, told while they go on and when it has ended. Makes none of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pydantic_ai import CustomEvent, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_core import to_json

from codemode import CodeModeToolApprovalDeniedError, InvocationStarted, NestedToolCallEvent, NestedToolResultEvent
from codemode.plugins import weigh

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
        told, size = self._calls.get(call_id), weigh(edited, _MOST)
        if told is not None:
            size = len(to_json(edited)) if size < _MOST else size
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
