"""Report one invocation to hooks, listeners and the log; make its trace."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

from ..data.json_values import count_utf8_bytes
from ..errors import HIDDEN_CODES, CodeModeAbortedError, CodeModeError
from ..host.cancellation import is_cancelled_from_outside
from ..host.clock import now_ms
from ..options.parts import Lifecycle
from ..protocol.ledger import LedgerEntry, Outcome, get_displayed_input_json
from ..protocol.messages import NoticeKind
from ..trace.events import (
    CatalogQueryEvent,
    ConsoleEvent,
    FetchRequestEvent,
    FetchResultEvent,
    GuestMessageEvent,
    InterruptEvent,
    InvocationEvent,
    InvocationStarted,
    NestedToolCallEvent,
    NestedToolResultEvent,
    RefusalEvent,
    WorkerAcquiredEvent,
)
from ..trace.failures import TOOLS_LOGGER, log_failure
from ..trace.late_values import LazyValue
from ..trace.trace import Trace
from .call_events import (
    CallRecord,
    ResultEvent,
    SourceSizeAndHash,
    create_catalog_event,
    create_guest_message_event,
    create_refusal_event,
    create_result_event,
    create_start_event,
    measure_and_hash_source,
)


class SerialListener:
    """Calls a function with one value after another: an async one has ended with the last before it begins the next.

    Each event loop has an order of its own.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._last: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[None]] = WeakKeyDictionary()

    def __call__(self, value: Any) -> Awaitable[None] | None:
        """Call the function. Return an awaitable for its async result, which waits for the previous one."""
        pending = self._function(value)
        if not inspect.isawaitable(pending):
            return None
        loop = asyncio.get_running_loop()
        previous, finished = self._last.get(loop), loop.create_future()
        self._last[loop] = finished
        return self._await_after_previous(previous, pending, finished)

    async def _await_after_previous(
        self, previous: asyncio.Future[None] | None, pending: Awaitable[Any], finished: asyncio.Future[None]
    ) -> None:
        try:
            if previous is not None:
                await asyncio.shield(previous)
            await pending
        finally:
            if inspect.iscoroutine(pending):
                pending.close()  # one that never began would warn of it
            finished.set_result(None)
            loop = finished.get_loop()
            if self._last.get(loop) is finished:
                del self._last[loop]  # which it knows, so that neither would ever go


AMBIENT_LISTENER: ContextVar[Callable[[Any], Any] | None] = ContextVar("codemode_hearing", default=None)
"""The listener of the invocations that start in this context."""


@contextmanager
def add_event_listener(listener: Callable[[Any], Any]) -> Generator[None]:
    """Call this listener with every event of the invocations that start in this block, before their own hooks.

    It is called on the event loop of each; what it raises changes nothing. Programs that a tool runs are included: the
    first event of each invocation is an `InvocationStarted` with its ids.
    """
    token = AMBIENT_LISTENER.set(listener)
    try:
        yield
    finally:
        AMBIENT_LISTENER.reset(token)


_GRACE_SECONDS = 5.0
_HOOK_BY_EVENT: dict[type[InvocationEvent], str] = {
    InvocationStarted: "on_invocation_start",
    CatalogQueryEvent: "on_catalog",
    GuestMessageEvent: "on_guest_message",
    RefusalEvent: "on_refusal",
    NestedToolCallEvent: "on_nested_tool_call",
    NestedToolResultEvent: "on_nested_tool_result",
    FetchRequestEvent: "on_fetch_request",
    FetchResultEvent: "on_fetch_result",
    ConsoleEvent: "on_console",
    InterruptEvent: "on_interrupt",
    Trace: "on_trace",
}


class HookDispatcher:
    """Calls sync hooks at once and async ones as tasks. Logs their exceptions.

    ``seconds`` is how long they have blocked the event loop.
    """

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._tasks: set[asyncio.Task[None]] = set()
        self.seconds = 0.0

    def has_hook(self, event: type[InvocationEvent]) -> bool:
        """Tell whether there is a hook for such events."""
        return getattr(self._lifecycle, _HOOK_BY_EVENT[event]) is not None

    def dispatch(self, event: InvocationEvent) -> None:
        """Call the hook for this event, if there is one."""
        name = _HOOK_BY_EVENT.get(type(event))
        hook = None if name is None else getattr(self._lifecycle, name)
        if name is not None and hook is not None:
            self.call_hook(hook, event, name)

    def call_hook(self, hook: Callable[[Any], Any], event: InvocationEvent, name: str) -> None:
        """Call a hook with an event."""
        started = time.perf_counter()
        try:
            pending = hook(event)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a hook must never change the invocation it watches
            self._report_hook_error(error, event, name)
        else:
            if inspect.isawaitable(pending):
                self._start_task(self._await_hook(pending, event, name))
        self.seconds += time.perf_counter() - started

    async def wait_or_cancel_hooks(self) -> None:
        """Wait for the async hooks, for five seconds at the most; what is still running then is cancelled."""
        if not self._tasks:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _GRACE_SECONDS
        try:
            while self._tasks and (seconds := deadline - loop.time()) > 0:
                await asyncio.wait(self._tasks, timeout=seconds)
        finally:
            for task in self._tasks:
                task.cancel()

    async def _await_hook(self, pending: Any, event: InvocationEvent, name: str) -> None:
        try:
            await pending
        except BaseException as error:  # noqa: BLE001 - as above; out of a task, SystemExit would end the whole loop
            _raise_if_task_ends(error)
            self._report_hook_error(error, event, name)

    def _report_hook_error(self, error: BaseException, event: InvocationEvent, name: str) -> None:
        report = self._lifecycle.on_hook_error
        if report is None:
            return
        try:
            pending = report(error, {"hook": name, "event": event})
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - no caller is left
            return
        if inspect.isawaitable(pending):
            self._start_task(_await_ignoring_failure(pending))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _await_ignoring_failure(pending: Any) -> None:
    try:
        await pending
    except BaseException as error:  # noqa: BLE001 - no caller is left
        _raise_if_task_ends(error)


def _raise_if_task_ends(error: BaseException) -> None:
    """Raise what ends this very task. A cancellation of something inside the hook is the hook's own failure."""
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError) and is_cancelled_from_outside(asyncio.current_task()):
        raise error


# Knows no hooks. A hook that hears of a failure stands in for its line here; who calls this knows whether there is one.

_FETCH = logging.getLogger("codemode.fetch")


def log_call_failure(kind: str, name: str, call_id: str, error: BaseException | None) -> None:
    """Log the details of a failed call that its program did not see, with a traceback. ``kind``: the request's."""
    raised = find_hidden_failure(error)
    if raised is None:
        return
    if kind == "fetch":
        log_failure(_FETCH, "request %s: %s", (call_id, error), raised)
    elif isinstance(error, CodeModeError) and error.details.get("origin") == "decision":
        log_failure(TOOLS_LOGGER, "no decision about a call of tool %r (%s)", (name, call_id), raised)
    elif isinstance(error, CodeModeError) and error.details.get("origin") == "pipeline":
        log_failure(TOOLS_LOGGER, "the pipeline failed for a call of tool %r (%s)", (name, call_id), raised)
    else:
        log_failure(TOOLS_LOGGER, "tool %r failed (%s)", (name, call_id), raised)


def find_hidden_failure(error: BaseException | None) -> BaseException | None:
    """Return what was raised behind an error that does not say it, or None for an error that says it all."""
    if error is None:
        return None
    if isinstance(error, CodeModeError) and error.code in HIDDEN_CODES:
        return error.__cause__ or error
    return error if error.__cause__ is not None else None


_START_EVENT_BY_KIND: dict[str, type[InvocationEvent]] = {"tool": NestedToolCallEvent}
_END_EVENT_BY_KIND: dict[str, type[InvocationEvent]] = {"tool": NestedToolResultEvent}
_KINDS_WITHOUT_START_EVENT = ("catalog", "state")  # without a start event; state has no events at all
Listener: TypeAlias = Callable[[InvocationEvent], Any]
"""Hears every event, as hooks do. Its ``name`` is what ``on_hook_error`` reads when it fails."""


class InvocationReporter:
    """Passes the events of one invocation to its listeners and stores the data of its trace.

    Events of a call are sent in the task that performs it, so that a listener can set context variables for it. Events
    without a listener are made only for a trace. ``is_watched`` is False without listeners; ``hooks`` add up how long
    they have blocked the event loop; ``console`` is the console output so far. With ``hides_inputs`` the start event of
    a tool call waits for the visible part of its input, until the call ends at the latest: the program's own input is
    then never part of an event. ``kinds`` are those of the outer tool and of its input.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        invocation_id: str,
        outer_tool_call_id: str,
        listeners: tuple[Listener, ...] = (),
        *,
        hides_inputs: bool = False,
        kinds: tuple[str | None, str | None] = (None, None),
    ) -> None:
        self.hooks = HookDispatcher(lifecycle)
        listener = AMBIENT_LISTENER.get()
        self._listeners = listeners if listener is None else (*listeners, listener)
        self._hides_inputs = hides_inputs
        self.is_watched = bool(self._listeners) or lifecycle.has_hooks
        self._ids = {"invocation_id": invocation_id, "outer_tool_call_id": outer_tool_call_id}
        self._tool_kinds = kinds
        # Wall-clock milliseconds that never run backwards.
        self._started_at_ms = float(now_ms())
        self._offset_ms = self._started_at_ms - time.perf_counter() * 1000
        self._source_bytes = 0
        self._open_calls: dict[int, CallRecord] = {}
        self.calls: list[CallRecord] = []
        """The calls of tools and fetches that have ended, in the order in which they did."""
        self.console: list[ConsoleEvent] = []
        self.notes: tuple[str, ...] = ()  # on the program as a whole

    def report_start(
        self, text: str | SourceSizeAndHash, *, source: Literal["script", "invoke"] = "script", resumed: bool = False
    ) -> None:
        """Tell that the run of this program, or of one that was measured before, begins."""
        if not self.is_watched or not (self._listeners or self.hooks.has_hook(InvocationStarted)):
            self._source_bytes = count_utf8_bytes(text) if isinstance(text, str) else text.source_bytes
            return
        if isinstance(text, str):
            # A direct call has no program but its input.
            text = measure_and_hash_source(text, hashes=source == "script")
        self._source_bytes = text.source_bytes
        event_fields = {**text._asdict(), **_create_kind_fields(self._tool_kinds)}
        self._emit_event(InvocationStarted(**self._ids, **event_fields, source=source, resumed=resumed))

    def report_worker_acquired(self) -> None:
        """Report that the invocation has a worker."""
        if self._listeners:
            self._emit_event(WorkerAcquiredEvent(**self._ids, wait_ms=self._now_ms() - self._started_at_ms))

    def report_call_start(
        self, entry: LedgerEntry, *, replayed: bool = False, is_input_edited: bool = False
    ) -> CallRecord:
        """Report a tool call or a request for a URL. A question to the catalog is reported at its end.

        A call whose input was edited is reported by `report_delayed_call_start`, with the edited input.
        """
        record = CallRecord(entry, self._offset_ms + time.perf_counter() * 1000, replayed=replayed)
        self._open_calls[entry.id] = record
        was_approved = replayed and entry.executed_input_json is not None
        if (self._hides_inputs or is_input_edited or was_approved) and entry.kind == "tool":
            record.is_input_hidden, record.displayed_input_json = True, get_displayed_input_json(entry)
        if (
            self.is_watched
            and entry.kind not in _KINDS_WITHOUT_START_EVENT
            and (not record.is_input_hidden or replayed)
        ):
            self._report_call_start_event(record)
        return record

    def report_delayed_call_start(self, record: CallRecord, input_json: str | None) -> None:
        """Set the visible part of an unreported call's input, and report the call."""
        if record.is_input_hidden and not record.is_reported and record.entry.id in self._open_calls:
            record.displayed_input_json = input_json
            self._report_call_start_event(record)

    def record_call_end_and_get_duration_us(self, record: CallRecord) -> int:
        """Set the end time of a call to now, and return its duration in microseconds."""
        record.completed_at_ms = self._offset_ms + time.perf_counter() * 1000
        return max(round((record.completed_at_ms - record.started_at_ms) * 1000), 0)

    def report_call_end(self, record: CallRecord, outcome: Outcome, error: BaseException | None) -> None:
        """Tell how that call ended. Once the invocation has ended only the log hears of a failure."""
        entry = record.entry
        if error is not None and not record.replayed and entry.kind != "catalog" and not self._has_call_end_hook(entry):
            log_call_failure(entry.kind, entry.name, entry.tool_call_id or str(entry.id), error)
        self._close_and_report_call(record, outcome, error)

    def report_still_waiting_call(self, entry: LedgerEntry) -> None:
        """Report a call that still waits for an answer, unless this run has reported it."""
        if entry.outcome is not None and entry.id not in {record.entry.id for record in self.calls}:
            self.report_call_end(self.report_call_start(entry, replayed=True), entry.outcome, None)

    def report_console_line(self, level: str, text: str) -> None:
        """Tell about a line of console output."""
        event = ConsoleEvent(**self._ids, level=level, text=text, written_at_ms=self._now_ms())
        self.console.append(event)
        self._emit_event(event)

    def report_guest_message(self, kind: NoticeKind, payload_json: str) -> None:
        """Report a program's message to listeners: a JSON object with the fields of `GuestMessageEvent`."""
        if self.is_watched:
            self._emit_event(create_guest_message_event(kind, payload_json, self._ids))

    def report_interrupt(self, interrupt: Any) -> None:
        """Tell that the invocation paused."""
        self._emit_event(InterruptEvent(**self._ids, interrupt=interrupt))

    async def report_end_and_create_trace(
        self, *, error: BaseException | None = None, interrupted_by: Any = None, result_bytes: int | None = None
    ) -> Trace:
        """Tell that the invocation has ended, wait for the async hooks, and return its trace."""
        trace = _create_trace(
            *self._close_calls_and_get_trace_arguments(result_bytes), error=error, interrupted_by=interrupted_by
        )
        if self.is_watched:
            if error is not None:
                self._report_refusal(error, None)
            self._emit_event(trace)
            await self.hooks.wait_or_cancel_hooks()
        return trace

    def close_calls_and_create_lazy_trace(self, result_bytes: int | None) -> LazyValue:
        """Return the trace of a finished invocation without listeners, made when it is read."""
        return LazyValue(_create_trace, *self._close_calls_and_get_trace_arguments(result_bytes))

    def _now_ms(self) -> float:
        return self._offset_ms + time.perf_counter() * 1000

    def _close_calls_and_get_trace_arguments(self, result_bytes: int | None) -> tuple[Any, ...]:
        """Close what is open, and return what a trace is made of."""
        for record in list(self._open_calls.values()):
            self._close_and_report_call(record, None, CodeModeAbortedError("the invocation ended before this call did"))
        times = (self._started_at_ms, self._now_ms())
        return (
            self._ids,
            self._tool_kinds,
            *times,
            tuple(self.calls),
            tuple(self.console),
            self._source_bytes,
            result_bytes,
            self.notes,
        )

    def _close_and_report_call(self, record: CallRecord, outcome: Outcome | None, error: BaseException | None) -> None:
        if self._open_calls.pop(record.entry.id, None) is None:
            return
        record.completed_at_ms = record.completed_at_ms or self._now_ms()
        record.outcome, record.error = outcome, error
        if record.entry.kind in _KINDS_WITHOUT_START_EVENT:
            if self.is_watched and record.entry.kind == "catalog":
                self._emit_event(create_catalog_event(record, self._ids))
            return
        self.calls.append(record)
        if not self.is_watched:
            return
        if record.is_reported:
            self._report_call_end_event(record)
        else:
            # Listeners set context variables between start and end, and this may be another caller's task.
            copy_context().run(self._report_whole_call, record)

    def _has_call_end_hook(self, entry: LedgerEntry) -> bool:
        return entry.id in self._open_calls and self.hooks.has_hook(
            _END_EVENT_BY_KIND.get(entry.kind, FetchResultEvent)
        )

    def _report_call_start_event(self, record: CallRecord) -> None:
        record.is_reported = True
        event = _START_EVENT_BY_KIND.get(record.entry.kind, FetchRequestEvent)
        if self.is_watched and (self._listeners or self.hooks.has_hook(event)):
            self._emit_event(create_start_event(record, self._ids))

    def _report_call_end_event(self, record: CallRecord) -> None:
        if self._listeners or self.hooks.has_hook(_END_EVENT_BY_KIND.get(record.entry.kind, FetchResultEvent)):
            self._emit_event(_get_or_create_result_event(record, self._ids))
        if record.error is not None and not record.replayed:
            self._report_refusal(record.error, record)

    def _report_whole_call(self, record: CallRecord) -> None:
        self._report_call_start_event(record)
        self._report_call_end_event(record)

    def _report_refusal(self, error: BaseException, record: CallRecord | None) -> None:
        refusal = create_refusal_event(error, record, self._ids)
        if refusal is not None:
            self._emit_event(refusal)

    def _emit_event(self, event: InvocationEvent) -> None:
        for listener in self._listeners:
            self.hooks.call_hook(listener, event, getattr(listener, "name", "telemetry"))
        self.hooks.dispatch(event)


def _create_trace(
    ids: dict[str, str],
    kinds: tuple[str | None, str | None],
    started_at_ms: float,
    completed_at_ms: float,
    records: tuple[CallRecord, ...],
    console: tuple[ConsoleEvent, ...],
    source_bytes: int,
    result_bytes: int | None,
    notes: tuple[str, ...],
    error: BaseException | None = None,
    interrupted_by: Any = None,
) -> Trace:
    result_events: Any = LazyValue(_create_result_events, records, ids)
    return Trace(
        **ids,
        **_create_kind_fields(kinds),
        status="failed" if error is not None else "interrupted" if interrupted_by is not None else "completed",
        started_at_ms=started_at_ms,
        completed_at_ms=completed_at_ms,
        duration_ms=completed_at_ms - started_at_ms,
        bridge_requests=result_events,
        console=console,
        source_bytes=source_bytes,
        result_bytes=result_bytes,
        interrupted_by=interrupted_by,
        error=error,
        notes=notes or None,
    )


def _create_kind_fields(kinds: tuple[str | None, str | None]) -> dict[str, Any]:
    return {"tool_kind": kinds[0], "tool_input_kind": kinds[1]}


def _create_result_events(records: tuple[CallRecord, ...], ids: dict[str, str]) -> tuple[ResultEvent, ...]:
    return tuple(_get_or_create_result_event(record, ids) for record in records)


def _get_or_create_result_event(record: CallRecord, ids: dict[str, str]) -> ResultEvent:
    if record.result_event is None:
        record.result_event = create_result_event(record, ids)
    return record.result_event
