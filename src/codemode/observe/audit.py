"""Events as audit log records: program, calls, caller and end, without any content."""

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
    CatalogQueryEvent,
    InvocationEvent,
    InvocationStarted,
    NestedToolCallEvent,
    NestedToolResultEvent,
    RefusalEvent,
)
from ..trace.trace import Trace
from .reporter import SerialListener

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
    user_hooks, recorder = Lifecycle.of(lifecycle), _AuditRecorder(sink)
    hooks: dict[str, Any] = {hook_field.name: getattr(user_hooks, hook_field.name) for hook_field in fields(user_hooks)}
    for name in _AUDITED_HOOKS:
        hooks[name] = recorder.on_event if hooks[name] is None else _HookPair(hooks[name], recorder.on_event)
    return Lifecycle(**hooks)


_AUDITED_HOOKS = (
    "on_invocation_start",
    "on_nested_tool_call",
    "on_nested_tool_result",
    "on_catalog",
    "on_refusal",
    "on_trace",
)


class _AuditRecorder:
    def __init__(self, sink: Callable[[dict[str, Any]], Any]) -> None:
        self._sink = SerialListener(sink)
        self._direct_calls: dict[str, str | None] = {}  # the tool, by invocation that is one call of the model's own

    def on_event(self, event: InvocationEvent) -> Awaitable[None] | None:
        record = self._create_record(event)
        if record is None:
            return None
        ids = {"invocationId": event.invocation_id, "outerToolCallId": event.outer_tool_call_id}
        fields_with_values = {key: value for key, value in record.items() if value is not None}
        return self._sink({"event": fields_with_values.pop("event"), "at": now_ms(), **ids, **fields_with_values})

    def _create_record(self, event: InvocationEvent) -> dict[str, Any] | None:
        match event:
            case InvocationStarted():
                return self._note_start_and_create_record(event)
            case NestedToolResultEvent():
                return None if event.replayed else _create_call_end_record(event)
            case NestedToolCallEvent():
                return self._note_call_and_create_start_record(event)
            case CatalogQueryEvent():
                result_fields = {
                    "durationMs": event.duration_ms,
                    "results": event.result_count,
                    "code": _get_error_code(event.error),
                }
                return {"event": event.operation, **result_fields}
            case RefusalEvent():
                return _create_refusal_record(event)
            case Trace():
                return self._forget_call_and_create_end_record(event)
            case _:
                return None

    def _note_start_and_create_record(self, event: InvocationStarted) -> dict[str, Any] | None:
        if event.source == "invoke":
            self._direct_calls[event.invocation_id] = None
            return None
        script = {"scriptSha256": event.source_sha256, "scriptBytes": event.source_bytes}
        return {"event": "execution_started", **script, "resumed": event.resumed or None}

    def _note_call_and_create_start_record(self, event: NestedToolCallEvent) -> dict[str, Any] | None:
        if event.invocation_id in self._direct_calls:
            self._direct_calls[event.invocation_id] = _clip_name(event.tool_name)
        verb = "resumed" if event.resumed else "started"
        return None if event.replayed else {"event": f"call_{verb}", **_create_call_fields(event)}

    def _forget_call_and_create_end_record(self, trace: Trace) -> dict[str, Any]:
        result_fields = {"durationMs": trace.duration_ms, "code": _get_error_code(trace.error)}
        if trace.invocation_id in self._direct_calls:
            is_paused = trace.status == "interrupted" or None
            return {
                "event": "invoke",
                "toolName": self._direct_calls.pop(trace.invocation_id),
                **result_fields,
                "paused": is_paused,
            }
        if isinstance(trace.error, CodeModeTimeoutError) and "call" not in trace.error.details:
            return {"event": "execution_timed_out", **result_fields}
        outcome = {"completed": "succeeded", "interrupted": "paused"}.get(trace.status, "failed")
        return {"event": f"execution_{outcome}", **result_fields}


def _create_call_fields(event: NestedToolCallEvent) -> dict[str, Any]:
    return {"toolName": _clip_name(event.tool_name), "callId": event.tool_call_id}


def _create_call_end_record(event: NestedToolResultEvent) -> dict[str, Any]:
    outcome = {"fulfilled": "succeeded", "interrupted": "paused"}.get(event.status, "failed")
    code = event.told_error["code"] if event.told_error is not None else _get_error_code(event.error)
    return {"event": f"call_{outcome}", **_create_call_fields(event), "durationMs": event.duration_ms, "code": code}


def _create_refusal_record(event: RefusalEvent) -> dict[str, Any]:
    kinds = sorted({str(violation.get("kind")) for violation in event.violations}) or None
    name = None if event.tool_name is None else _clip_name(event.tool_name)
    if event.reason in ("limit", "validation"):
        return {"event": "call_failed", "toolName": name, "code": event.code}
    return {"event": event.reason, "toolName": name, "callId": event.tool_call_id, "kinds": kinds}


def _get_error_code(error: BaseException | None) -> str | None:
    if error is None:
        return None
    return error.code if isinstance(error, CodeModeError) else type(error).__name__


def _clip_name(name: str) -> str:
    # A name that is no tool's is a text of the program's own.
    return name[:_MAX_NAME_CHARACTERS]


class _HookPair:
    """Two hooks for one: what the first one does or raises keeps nothing from the second."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
        self._first = first
        self._second = second

    def __call__(self, event: InvocationEvent) -> Awaitable[None] | None:
        pending: list[Awaitable[Any]] = []
        first_error: BaseException | None = None
        for hook in (self._first, self._second):
            try:
                hook_result = hook(event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - raised again, once both have heard of the event
                first_error = first_error or error
            else:
                pending += [hook_result] if inspect.isawaitable(hook_result) else []
        if pending:
            return _wait_for_hooks(pending, first_error)
        if first_error is not None:
            raise first_error
        return None


async def _wait_for_hooks(pending: list[Awaitable[Any]], first_error: BaseException | None) -> None:
    tasks = [asyncio.ensure_future(awaitable) for awaitable in pending]
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
    for task in tasks:
        task.result()
    if first_error is not None:
        raise first_error
