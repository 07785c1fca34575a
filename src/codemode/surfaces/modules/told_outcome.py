"""What the model is answered once a program was begun: what it logged, called and came to. Words no error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import CodeModeError
from ...observe.call_events import CallRecord, error_as_read
from ...protocol.ledger import Rejected
from ...trace.late_values import held
from .diagnostic import Diagnostic, ordered
from .response import RunResponse
from .words import CLASSES, class_and_code

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome
    from ...trace.events import ConsoleEvent

_LEVELS = {"debug": "debug", "warn": "warn", "error": "error"}


def response_of(
    outcome: RunOutcome, diagnostics: Sequence[Diagnostic], declarations: str = "", began_ms: float = 0.0
) -> RunResponse:
    """Return the response to a request whose program was begun. After an error there is no result.

    ``began_ms``: when its tools were ready, where they had to be listed.
    """
    error = outcome.error
    response = RunResponse(
        logs=_logs(outcome, began_ms) if outcome.console else [],
        result=outcome.value if error is None else None,
        diagnostics=ordered(diagnostics) if diagnostics else [],
    )
    if outcome.ended_calls and (calls := _calls(outcome)):
        response["toolTrace"] = calls
    if declarations:
        response["declarations"] = declarations
    response.keep_trace(held(outcome, "trace"))
    if error is not None:
        response.exception, response.recovery = error, error.recovery
    return response


def _logs(outcome: RunOutcome, began_ms: float) -> list[dict[str, Any]]:
    if outcome.began_at_ms is not None:
        began_ms = outcome.began_at_ms
    elif outcome.trace is not None:
        began_ms = max(began_ms, outcome.trace.started_at_ms)
    return [_log(line, began_ms) for line in outcome.console]


def _log(line: ConsoleEvent, began_ms: float) -> dict[str, Any]:
    time_ms = max(round(line.written_at_ms - began_ms), 0)
    return {"level": _LEVELS.get(line.level, "log"), "message": line.text, "timeMs": time_ms}


def _calls(outcome: RunOutcome) -> list[dict[str, Any]]:
    """Return what was called, without what was passed and what came of it."""
    return [_call(one) for one in outcome.ended_calls if one.entry.kind == "tool"]


def _call(one: CallRecord) -> dict[str, Any]:
    path, _, tool_name = one.entry.name.partition(".")
    is_ok = one.status == "fulfilled"
    said: dict[str, Any] = {
        "serverId": path,
        "toolName": tool_name,
        "durationMs": max(round(one.duration_ms), 0),
        "ok": is_ok,
    }
    return said if is_ok else {**said, "error": _failure(one)}


def _failure(one: CallRecord) -> str:
    if one.status == "aborted":
        return "ToolCallError OUTCOME_UNKNOWN"
    told = error_as_read(one.outcome) if isinstance(one.outcome, Rejected) else {}
    if told.get("name") in CLASSES:
        return f"{told['name']} {told.get('code')}"
    if isinstance(one.error, CodeModeError):
        return " ".join(class_and_code(one.error, is_raised=False))
    return "ToolCallError WAITING" if one.status == "interrupted" else "ToolCallError TOOL_FAILED"
