"""What happens during an invocation, as events for the host. Knows no worker and no tool; sees full diagnostics.

Events are frozen values with a ``to_dict()`` in the AI SDK's key names. Everything that wants to know is a listener of
the same events: hooks, trace and telemetry.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias, cast

from .options import Lifecycle
from .protocol.ledger import Fulfilled, LedgerEntry, Outcome, Rejected, Waiting
from .values import decode_json, utf8_length

CallStatus: TypeAlias = Literal["fulfilled", "rejected", "interrupted"]
_HOOK_GRACE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that happened in one invocation. Times are host wall-clock milliseconds."""

    hook: ClassVar[str] = ""

    invocation_id: str
    outer_tool_call_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the event in the AI SDK's camelCase keys, without the fields that are None."""
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {_camel_case(name): _plain(value) for name, value in values if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class NestedToolCallEvent(Event):
    """The program called a tool. Comes before lookup, validation and approval. ``bridge_index`` counts from 1."""

    hook: ClassVar[str] = "on_nested_tool_call"

    bridge_index: int
    tool_name: str
    tool_call_id: str
    input: Any
    input_bytes: int
    replayed: bool
    started_at_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NestedToolResultEvent(NestedToolCallEvent):
    """A nested call ended. ``output`` with ``output_bytes``, ``error`` or ``interrupt`` says how."""

    hook: ClassVar[str] = "on_nested_tool_result"

    status: CallStatus
    completed_at_ms: float
    duration_ms: float
    output: Any = None
    output_bytes: int | None = None
    error: BaseException | None = None
    interrupt: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchRequestEvent(Event):
    """The program asked for a URL."""

    hook: ClassVar[str] = "on_fetch_request"

    bridge_index: int
    url: str
    method: str
    input_bytes: int
    replayed: bool
    started_at_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchResultEvent(FetchRequestEvent):
    """A fetch ended. Bodies are never part of an event."""

    hook: ClassVar[str] = "on_fetch_result"

    status: CallStatus
    completed_at_ms: float
    duration_ms: float
    http_status: int | None = None
    output_bytes: int | None = None
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleEvent(Event):
    """The program wrote a line to its console. ``level`` is debug, log, info, warn or error."""

    hook: ClassVar[str] = "on_console"

    level: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InterruptEvent(Event):
    """The invocation paused. ``interrupt`` is the `Interrupt` that the caller gets."""

    hook: ClassVar[str] = "on_interrupt"

    interrupt: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace(Event):
    """A whole invocation: every bridge request in the order in which they ended, and the console output."""

    hook: ClassVar[str] = "on_trace"

    status: Literal["completed", "failed", "interrupted"]
    started_at_ms: float
    completed_at_ms: float
    duration_ms: float
    bridge_requests: tuple[NestedToolResultEvent | FetchResultEvent, ...]
    console: tuple[ConsoleEvent, ...]
    interrupted_by: Any = None
    error: BaseException | None = None

    def to_text(self) -> str:
        """Return an aligned timeline for a terminal."""
        rows = [_timeline_row(request, self.started_at_ms) for request in self.bridge_requests]
        width = max((len(name) for _, name, _ in rows), default=0)
        lines = [f"{self.status} in {self.duration_ms:.1f} ms, {len(rows)} calls"]
        lines += [f"  {time}  {name:<{width}}  {end}" for time, name, end in rows]
        return "\n".join(lines)


def _timeline_row(request: NestedToolResultEvent | FetchResultEvent, zero_ms: float) -> tuple[str, str, str]:
    name = request.tool_name if isinstance(request, NestedToolResultEvent) else f"fetch {request.method} {request.url}"
    size = "" if request.output_bytes is None else f", {request.output_bytes} bytes"
    replayed = ", replayed" if request.replayed else ""
    time = f"{request.started_at_ms - zero_ms:8.1f} ms +{request.duration_ms:7.1f} ms"
    return time, name, f"{request.status}{size}{replayed}"


class Events:
    """Hands the events of one invocation to its listeners and keeps what its trace needs."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        invocation_id: str,
        outer_tool_call_id: str,
        listeners: tuple[Callable[[Event], None], ...] = (),
    ) -> None:
        self._lifecycle = lifecycle
        self._listeners = listeners
        self._ids = {"invocation_id": invocation_id, "outer_tool_call_id": outer_tool_call_id}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_at_ms = time.time() * 1000
        self._bridge_requests: list[NestedToolResultEvent | FetchResultEvent] = []
        self._console: list[ConsoleEvent] = []

    def call_started(self, entry: LedgerEntry, *, replayed: bool = False) -> NestedToolCallEvent:
        """Tell that the program called a tool."""
        event = NestedToolCallEvent(
            **self._ids,
            bridge_index=entry.id,
            tool_name=entry.name,
            tool_call_id=entry.tool_call_id or "",
            input=_readable(entry.input_json),
            input_bytes=entry.input_bytes or utf8_length(entry.input_json or ""),
            replayed=replayed,
            started_at_ms=time.time() * 1000,
        )
        self._emit(event)
        return event

    def call_ended(self, call: NestedToolCallEvent, outcome: Outcome, error: BaseException | None) -> None:
        """Tell how that call ended."""
        completed_at_ms = time.time() * 1000
        text = outcome.value_json if isinstance(outcome, Fulfilled) else None
        event = NestedToolResultEvent(
            **self._ids,
            bridge_index=call.bridge_index,
            tool_name=call.tool_name,
            tool_call_id=call.tool_call_id,
            input=call.input,
            input_bytes=call.input_bytes,
            replayed=call.replayed,
            started_at_ms=call.started_at_ms,
            status=_STATUS[type(outcome)],
            completed_at_ms=completed_at_ms,
            duration_ms=completed_at_ms - call.started_at_ms,
            output=_readable(text),
            output_bytes=None if text is None else utf8_length(text),
            error=error,
            interrupt=_readable(outcome.payload_json) if isinstance(outcome, Waiting) else None,
        )
        self._bridge_requests.append(event)
        self._emit(event)

    def console_written(self, level: str, text: str) -> None:
        """Tell about a line of console output."""
        event = ConsoleEvent(**self._ids, level=level, text=text)
        self._console.append(event)
        self._emit(event)

    def interrupted(self, interrupt: Any) -> None:
        """Tell that the invocation paused."""
        self._emit(InterruptEvent(**self._ids, interrupt=interrupt))

    async def ended(self, *, error: BaseException | None = None, interrupted_by: Any = None) -> Trace:
        """Tell that the invocation has ended, wait for the async hooks, and return its trace."""
        now_ms = time.time() * 1000
        trace = Trace(
            **self._ids,
            status="failed" if error is not None else "interrupted" if interrupted_by is not None else "completed",
            started_at_ms=self._started_at_ms,
            completed_at_ms=now_ms,
            duration_ms=now_ms - self._started_at_ms,
            bridge_requests=tuple(self._bridge_requests),
            console=tuple(self._console),
            interrupted_by=interrupted_by,
            error=error,
        )
        self._emit(trace)
        if self._tasks:
            await self._finish_hooks()
        return trace

    def _emit(self, event: Event) -> None:
        """Tell every listener. Sync hooks run at once; async ones start in order and are awaited at the end."""
        for listener in self._listeners:
            self._guarded(listener, event, "listener")
        hook = getattr(self._lifecycle, event.hook)
        if hook is not None:
            self._guarded(hook, event, event.hook)

    async def _finish_hooks(self) -> None:
        """Wait for the async hooks, for five seconds at the most; what is still running then is cancelled."""
        while self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_HOOK_GRACE_SECONDS)
            for task in late:
                task.cancel()
            self._tasks -= late

    def _guarded(self, hook: Callable[[Any], Any], event: Event, name: str) -> None:
        try:
            pending = hook(event)
        except Exception as error:  # noqa: BLE001 - a hook must never change the invocation it watches
            self._report(error, event, name)
            return
        if inspect.isawaitable(pending):
            self._start(self._awaited(cast("Any", pending), event, name))

    async def _awaited(self, pending: Any, event: Event, name: str) -> None:
        try:
            await pending
        except Exception as error:  # noqa: BLE001 - as above
            self._report(error, event, name)

    def _report(self, error: Exception, event: Event, name: str) -> None:
        report = self._lifecycle.on_hook_error
        if report is None:
            return
        try:
            pending = report(error, {"hook": name, "event": event})
        except Exception:  # noqa: BLE001 - nobody is left to tell
            return
        if inspect.isawaitable(pending):
            self._start(_swallowed(pending))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _swallowed(pending: Any) -> None:
    try:
        await pending
    except Exception:  # noqa: BLE001 - nobody is left to tell
        return


_STATUS: dict[type, CallStatus] = {Fulfilled: "fulfilled", Rejected: "rejected", Waiting: "interrupted"}


def _readable(text: str | None) -> Any:
    try:
        return None if text is None else decode_json(text)
    except ValueError:
        return None


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseException):
        plain = {"name": type(value).__name__, "message": str(value)}
        code = getattr(value, "code", None)
        return {**plain, "code": code} if isinstance(code, str) else plain
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[Any, ...]", value)]
    return value.to_dict() if hasattr(value, "to_dict") else value
