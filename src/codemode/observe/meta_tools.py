"""Events of meta-tools and runs, as spans and as small messages for listeners."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from ..errors import CodeModeError, to_guest_error_fields
from ..host.clock import now_ms
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..options.parts import CodeModeOptions, Telemetry
from ..trace.events import (
    CatalogQueryEvent,
    GuestMessageEvent,
    InvocationEvent,
    NestedToolCallEvent,
    NestedToolResultEvent,
)
from .call_events import measure_and_hash_source
from .reporter import HookDispatcher, SerialListener


class NotificationListener:
    """Passes a run's tool calls and messages to ``notify``, sync or async; a listener of one run.

    ``{"type": "tool_call_start", "toolName", "input", "callId"}``, ``{"type": "tool_call_end", "toolName", "callId",
    "status": "ok" | "error", "durationMs", "error"?: {"name", "message", "code"}}``, ``{"type": "notify", "event",
    "payload"}`` and ``{"type": "log", "level", "message", "metadata"}``, in order, each a plain dict of its own. A call
    that waits for an answer ends after its resumption. A replay repeats nothing. A call with a large input is delivered
    a little later, and its successors after it.
    """

    name: ClassVar[str] = "notify"

    def __init__(self, notify: Callable[[dict[str, Any]], Any]) -> None:
        self._notify = SerialListener(notify)
        self._order_lock = asyncio.Lock()  # asyncio locks are fair: waiters continue in their order
        self._pending_reads = 0

    def __call__(self, event: InvocationEvent) -> Awaitable[None] | None:
        """Pass the message for an event to ``notify``."""
        is_large = isinstance(event, NestedToolCallEvent) and event.input_bytes >= LARGE_CHARACTERS
        if is_large or self._pending_reads:
            self._pending_reads += 1
            return self._notify_in_order(event)
        message = create_notification(event)
        return None if message is None else self._notify(message)

    async def _notify_in_order(self, event: InvocationEvent) -> None:
        """Notify of an event whose input is read in a thread, or that comes after such an event."""
        try:
            async with self._order_lock:
                message = await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, partial(create_notification, event))
                pending = None if message is None else self._notify(message)
        finally:
            self._pending_reads -= 1
        if pending is not None:
            await pending


def create_notification(event: InvocationEvent) -> dict[str, Any] | None:
    """Return a client's message for an event, or None."""
    match event:
        case NestedToolResultEvent():
            return None if event.replayed or event.status == "interrupted" else _create_call_end_message(event)
        case NestedToolCallEvent():
            return None if event.replayed or event.resumed else _create_call_start_message(event)
        case GuestMessageEvent(kind="log"):
            log_fields = {"level": event.level, "message": event.message, "metadata": event.metadata}
            return {"type": "log", **log_fields}
        case GuestMessageEvent():
            return {"type": "notify", "event": event.event, "payload": event.payload}
        case _:
            return None


def _create_call_start_message(event: NestedToolCallEvent) -> dict[str, Any]:
    call = {"toolName": event.tool_name, "input": event.input, "callId": event.tool_call_id}
    return {"type": "tool_call_start", **call}


def _create_call_end_message(event: NestedToolResultEvent) -> dict[str, Any]:
    message: dict[str, Any] = {"type": "tool_call_end", "toolName": event.tool_name, "callId": event.tool_call_id}
    message |= {"status": "ok" if event.status == "fulfilled" else "error", "durationMs": event.duration_ms}
    error = event.told_error
    if error is None and isinstance(event.error, CodeModeError):
        error = dict(zip(("name", "message", "code"), to_guest_error_fields(event.error)[:3], strict=True))
    return message if error is None else {**message, "error": dict(error)}


@contextmanager
def meta_tool_span(options: Telemetry, name: str, tool_call_id: str | None = None) -> Generator[None]:
    """Do something within a span ``execute_tool <name>``, as an execution has one; nothing unless enabled."""
    if not options.is_enabled:
        yield
        return
    from .telemetry import tool_span

    with tool_span(options, name, tool_call_id):
        yield


class CatalogQueryRecorder:
    """Record a model's question to the catalog: use it with ``async with`` and set ``result_count``.

    ``name`` is the meta-tool's, ``queries`` the queries or the names, None while they are unread. Exceptions inside are
    recorded and propagate.
    """

    def __init__(
        self,
        options: CodeModeOptions,
        name: str,
        operation: Literal["search", "describe"],
        queries: Any = None,
        tool_call_id: str | None = None,
    ) -> None:
        self.queries = queries
        self.result_count: int | None = None
        self._options = options
        self._name = name
        self._operation: Literal["search", "describe"] = operation
        self._ids = _create_invocation_ids(tool_call_id)
        self._span = ExitStack()

    async def __aenter__(self) -> Self:
        """Start the span and the time."""
        self._started_at_ms, self._started = now_ms(), perf_counter()
        self._span.enter_context(meta_tool_span(self._options.telemetry, self._name, self._ids["outer_tool_call_id"]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the span and report the query."""
        self._span.__exit__(kind, error, traceback)
        event = CatalogQueryEvent(
            **self._ids,
            operation=self._operation,
            source="model",
            asked=self.queries,
            started_at_ms=self._started_at_ms,
            duration_ms=(perf_counter() - self._started) * 1000,
            result_count=self.result_count,
            error=error,
        )
        await _report_event(self._options, event)


async def report_failed_start_and_set_trace(
    options: CodeModeOptions,
    listeners: tuple[Callable[[InvocationEvent], Any], ...],
    script: str | None,
    tool_call_id: str | None,
    error: CodeModeError,
) -> None:
    """Report a run that failed before it started, and set its error's trace. ``script`` is None for a single call."""
    from .reporter import InvocationReporter

    reporter = InvocationReporter(options.lifecycle, **_create_invocation_ids(tool_call_id), listeners=listeners)
    if not reporter.is_watched:
        return
    size = await run_in_thread_if_large_or_slow(
        len(script or ""), partial(measure_and_hash_source, script or "", hashes=script is not None)
    )
    reporter.report_start(size, source="invoke" if script is None else "script")
    error.trace = await reporter.report_end_and_create_trace(error=error)


async def _report_event(options: CodeModeOptions, event: InvocationEvent) -> None:
    if options.lifecycle.has_hooks:
        hooks = HookDispatcher(options.lifecycle)
        hooks.dispatch(event)
        await hooks.wait_or_cancel_hooks()


def _create_invocation_ids(tool_call_id: str | None) -> dict[str, Any]:
    generated_id = "code-mode-" + secrets.token_hex(8)
    return {"invocation_id": generated_id, "outer_tool_call_id": tool_call_id or generated_id}
