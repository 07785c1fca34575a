"""Events as records of an audit log: what was run and called, by whom and how it ended, and nothing of what it said."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import Any

from ..errors import CodeModeError, CodeModeTimeoutError
from ..host.clock import now_ms
from ..options.parts import Lifecycle
from ..trace.events import (
    CatalogEvent,
    Event,
    InvocationStarted,
    NestedToolCallEvent,
    NestedToolResultEvent,
    RefusalEvent,
)
from ..trace.trace import Trace
from .reporter import InOrder

_MAX_NAME_CHARACTERS = 128


def audit_log(
    sink: Callable[[dict[str, Any]], Any], *, lifecycle: Lifecycle | Mapping[str, Any] | None = None
) -> Lifecycle:
    """Return hooks that give ``sink``, sync or async, a record of all that happens: ``{"event", "at", ...}``.

    ``event`` is execution_started, execution_succeeded, execution_failed, execution_timed_out or execution_paused;
    call_started, call_resumed, call_succeeded, call_failed or call_paused; self_reference, access_denied or
    static_rule; search, describe or invoke. ``at`` is in wall-clock milliseconds. Beside them stand ``invocationId``
    and ``outerToolCallId``, and as far as they are known ``toolName``, ``callId``, ``durationMs``, ``code`` of an
    error, ``scriptSha256`` and ``scriptBytes``, ``resumed``, ``paused``, ``kinds`` of broken rules, and
    ``results``, how many were found. Programs, inputs, outputs, queries and messages are in none of them. An async sink
    is given one record after another.

    ``lifecycle`` are hooks of your own: they hear everything too, each before the log does.
    """
    own, audit = Lifecycle.of(lifecycle), _Audit(sink)
    hooks: dict[str, Any] = {one.name: getattr(own, one.name) for one in fields(own)}
    for name in _HEARD:
        hooks[name] = audit.hear if hooks[name] is None else _Both(hooks[name], audit.hear)
    return Lifecycle(**hooks)


_HEARD = (
    "on_invocation_start",
    "on_nested_tool_call",
    "on_nested_tool_result",
    "on_catalog",
    "on_refusal",
    "on_trace",
)


class _Audit:
    def __init__(self, sink: Callable[[dict[str, Any]], Any]) -> None:
        self._sink = InOrder(sink)
        self._invoked: dict[str, str | None] = {}  # the tool, by invocation that is one call of the model's own

    def hear(self, event: Event) -> Awaitable[None] | None:
        record = self._record(event)
        if record is None:
            return None
        ids = {"invocationId": event.invocation_id, "outerToolCallId": event.outer_tool_call_id}
        known = {key: value for key, value in record.items() if value is not None}
        return self._sink({"event": known.pop("event"), "at": now_ms(), **ids, **known})

    def _record(self, event: Event) -> dict[str, Any] | None:
        match event:
            case InvocationStarted():
                return self._started(event)
            case NestedToolResultEvent():
                return None if event.replayed else _call_ended(event)
            case NestedToolCallEvent():
                return self._called(event)
            case CatalogEvent():
                ended = {"durationMs": event.duration_ms, "results": event.result_count, "code": _code(event.error)}
                return {"event": event.operation, **ended}
            case RefusalEvent():
                return _refused(event)
            case Trace():
                return self._ended(event)
            case _:
                return None

    def _started(self, event: InvocationStarted) -> dict[str, Any] | None:
        if event.source == "invoke":
            self._invoked[event.invocation_id] = None
            return None
        script = {"scriptSha256": event.source_sha256, "scriptBytes": event.source_bytes}
        return {"event": "execution_started", **script, "resumed": event.resumed or None}

    def _called(self, event: NestedToolCallEvent) -> dict[str, Any] | None:
        if event.invocation_id in self._invoked:
            self._invoked[event.invocation_id] = _clipped(event.tool_name)
        how = "resumed" if event.resumed else "started"
        return None if event.replayed else {"event": f"call_{how}", **_call(event)}

    def _ended(self, trace: Trace) -> dict[str, Any]:
        ended = {"durationMs": trace.duration_ms, "code": _code(trace.error)}
        if trace.invocation_id in self._invoked:
            is_paused = trace.status == "interrupted" or None
            return {"event": "invoke", "toolName": self._invoked.pop(trace.invocation_id), **ended, "paused": is_paused}
        if isinstance(trace.error, CodeModeTimeoutError) and "call" not in trace.error.details:
            return {"event": "execution_timed_out", **ended}
        outcome = {"completed": "succeeded", "interrupted": "paused"}.get(trace.status, "failed")
        return {"event": f"execution_{outcome}", **ended}


def _call(event: NestedToolCallEvent) -> dict[str, Any]:
    return {"toolName": _clipped(event.tool_name), "callId": event.tool_call_id}


def _call_ended(event: NestedToolResultEvent) -> dict[str, Any]:
    outcome = {"fulfilled": "succeeded", "interrupted": "paused"}.get(event.status, "failed")
    code = event.told_error["code"] if event.told_error is not None else _code(event.error)
    return {"event": f"call_{outcome}", **_call(event), "durationMs": event.duration_ms, "code": code}


def _refused(event: RefusalEvent) -> dict[str, Any]:
    kinds = sorted({str(one.get("kind")) for one in event.violations}) or None
    name = None if event.tool_name is None else _clipped(event.tool_name)
    if event.reason in ("limit", "validation"):
        return {"event": "call_failed", "toolName": name, "code": event.code}
    return {"event": event.reason, "toolName": name, "callId": event.tool_call_id, "kinds": kinds}


def _code(error: BaseException | None) -> str | None:
    if error is None:
        return None
    return error.code if isinstance(error, CodeModeError) else type(error).__name__


def _clipped(name: str) -> str:
    # A name that is no tool's is a text of the program's own.
    return name[:_MAX_NAME_CHARACTERS]


class _Both:
    """Two hooks for one: what the first one does or raises keeps nothing from the second."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
        self._first = first
        self._second = second

    def __call__(self, event: Event) -> Awaitable[None] | None:
        pending: list[Awaitable[Any]] = []
        failed: BaseException | None = None
        for hook in (self._first, self._second):
            try:
                told = hook(event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - raised again, once both have heard of the event
                failed = failed or error
            else:
                pending += [told] if inspect.isawaitable(told) else []
        if pending:
            return _all(pending, failed)
        if failed is not None:
            raise failed
        return None


async def _all(pending: list[Awaitable[Any]], failed: BaseException | None) -> None:
    tasks = [asyncio.ensure_future(one) for one in pending]
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
    for task in tasks:
        task.result()
    if failed is not None:
        raise failed
