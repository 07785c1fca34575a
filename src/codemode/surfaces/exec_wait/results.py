"""What a run came to, as plain JSON for the model: completed, waiting, or failed with a code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...data.json_shape import UNLIMITED
from ...errors import (
    CALL_TIMEOUT,
    CodeModeAbortedError,
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeIllegalAccessError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeSourceTooLargeError,
    CodeModeSyntaxError,
    CodeModeTimeoutError,
    CodeModeToolError,
    CodeModeWorkerError,
)
from ...execution.large_results import characters_of, too_large_text
from ...options.parts import MIN_MODEL_CHARACTERS
from .requests import INVALID_INPUT

if TYPE_CHECKING:
    from ...execution.outcome import OutputItem, PendingCall

RUNTIME_UNAVAILABLE = "runtime_unavailable"
SNAPSHOT_EXPIRED = "snapshot_expired"
SNAPSHOT_LIMIT = "snapshot_limit_exceeded"
SNAPSHOT_RESTORE_FAILED = "snapshot_restore_failed"
OUTPUT_LIMIT = "output_limit_exceeded"
MEMORY_LIMIT = "memory_limit_exceeded"
TIMEOUT = "timeout"
ABORTED = "aborted"
INTERNAL_ERROR = "internal_error"
TOO_MANY_PENDING = "too_many_pending_tool_calls"
NESTED_TOOL_FAILED = "nested_tool_failed"
TYPESCRIPT_FAILED = "typescript_transform_failed"
MODULE_DENIED = "module_access_denied"
CAPS = frozenset({TIMEOUT, MEMORY_LIMIT, OUTPUT_LIMIT, SNAPSHOT_LIMIT, TOO_MANY_PENDING})
"""Codes of limits that a program has passed."""
_OF_OUTPUT = "CODE_MODE_OUTPUT_LIMIT"
_TYPESCRIPT = "TypeScript "
_MODULE_WORDS = ("`import", "`export", "`require", "import.meta ", "meta expected")


def code_of(error: CodeModeError) -> str:
    """Return the code that a model reads of an error that ended a program."""
    if error.code == _OF_OUTPUT:
        return OUTPUT_LIMIT
    if error.details.get("is_out_of_memory") is True:
        return MEMORY_LIMIT
    match error:
        case CodeModeTimeoutError():
            return TIMEOUT if error.code != CALL_TIMEOUT else NESTED_TOOL_FAILED
        case CodeModeToolError():
            return NESTED_TOOL_FAILED
        case CodeModeSyntaxError():
            return _code_of_syntax(error)
        case CodeModeBridgeLimitError():
            is_pending = error.details.get("limit") == "max_in_flight_bridge_requests"
            return TOO_MANY_PENDING if is_pending else INTERNAL_ERROR
        case CodeModeSerializationError():
            return _code_of_value(error)
        case CodeModeProtocolError() if error.details.get("origin") == "continuation":
            return SNAPSHOT_RESTORE_FAILED
        case CodeModeWorkerError() if error.details.get("origin") == "worker":
            return INTERNAL_ERROR
        case _:
            return next((code for kind, code in _CODES.items() if isinstance(error, kind)), INTERNAL_ERROR)


_CODES: dict[type[CodeModeError], str] = {
    CodeModeIllegalAccessError: MODULE_DENIED,
    CodeModeConcurrencyError: RUNTIME_UNAVAILABLE,
    CodeModeWorkerError: RUNTIME_UNAVAILABLE,
    CodeModeAbortedError: ABORTED,
    CodeModeSourceTooLargeError: INVALID_INPUT,
}


def _code_of_syntax(error: CodeModeError) -> str:
    messages = [str(one.get("message", "")) for one in error.details.get("problems", ())]
    if any(message.startswith(_MODULE_WORDS) for message in messages):
        return MODULE_DENIED
    return TYPESCRIPT_FAILED if any(message.startswith(_TYPESCRIPT) for message in messages) else INTERNAL_ERROR


def _code_of_value(error: CodeModeError) -> str:
    if "kind" in error.details:  # of a call, not of the program's result
        return NESTED_TOOL_FAILED
    return OUTPUT_LIMIT if "max_bytes" in error.details else INTERNAL_ERROR


def output_of(items: Sequence[OutputItem], most: int | None = None) -> list[dict[str, Any]]:
    """Return the items that a program has written, in order; what it has logged is not among them.

    Of what has more than ``most`` characters, in all, a model is told instead.
    """
    written = [one for one in items if one.kind != "console"]
    shown: list[dict[str, Any]] = []
    left = UNLIMITED if most is None else most
    for at, one in enumerate(written):
        size = 0 if most is None else characters_of(one.value, left)
        if size <= left:
            shown.append({"type": one.kind, "text" if one.kind == "text" else "value": one.value})
            left -= size
            continue
        more = len(written) - at
        if left >= MIN_MODEL_CHARACTERS:
            shown.append({"type": "text", "text": too_large_text(one.value, left)})
            more -= 1
        if more:
            shown.append({"type": "text", "text": f"{more} more items were left out: write less."})
        break
    return shown


def pending_of(calls: Sequence[PendingCall], *, for_person: bool = False) -> list[dict[str, str]]:
    """Return the calls that are in flight, as a model reads them; ``for_person`` marks those that wait for one."""
    return [
        {"id": one.id, "tool": one.name, "status": "approval" if for_person and one.status == "waiting" else one.status}
        for one in calls
    ]


def _with(result: dict[str, Any], output: list[dict[str, Any]], telemetry: dict[str, Any]) -> dict[str, Any]:
    return {**result, **({"output": output} if output else {}), "telemetry": telemetry}


def completed(value: Any, output: list[dict[str, Any]], telemetry: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a program that has ended."""
    return _with({"status": "completed", "value": value}, output, telemetry)


def waiting(
    run_id: str, reason: str, pending: list[dict[str, str]], output: list[dict[str, Any]], telemetry: dict[str, Any]
) -> dict[str, Any]:
    """Return the result of a program at rest."""
    more = {"pendingToolCalls": pending} if pending else {}
    return _with({"status": "waiting", "runId": run_id, "reason": reason, **more}, output, telemetry)


def failed(
    message: str, code: str, telemetry: dict[str, Any], output: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the result of what went wrong."""
    return _with({"status": "failed", "error": message, "code": code}, output or [], telemetry)
