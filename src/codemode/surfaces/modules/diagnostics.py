"""What the model is answered about a run: errors in codes, logs, calls and value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...data.narrowing import is_object, list_or_empty, mapping_or_empty, string_or_empty
from ...errors import CodeModeBridgeLimitError, CodeModeError, CodeModeIllegalAccessError
from ...execution.outcome_texts import (
    CLASSES,
    IMPORT_FAILURE,
    LIMIT,
    MODULE_WORDING,
    describe_calls,
    drop_last_failure,
    find_exhausted_kind,
    find_nearest_kind,
    format_message,
    has_done,
    no_result_text,
    syntax_hint,
    thrown_hint,
)
from ...observe.call_events import CallRecord, error_as_read
from ...protocol.ledger import Rejected
from ...trace.late_values import held
from ...trace.visible_text import clipped
from .catalog import IMPORT_SERVER
from .error_texts import class_and_code, without_secrets
from .options import SHOWN_NAMES
from .response import Diagnostic, RunResponse, diagnostic, ordered, place_of

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome
    from ...options.parts import ExecutionPolicy
    from ...trace.events import ConsoleEvent


# A diagnostic holds what the program or its author could know: no stack, and of the host neither paths nor secrets.

_MOST_LISTED = 5
_MAX_ERROR_CHARACTERS = 1_000  # of a message behind which calls stand
_ASSIGN = "Assign its result to globalThis.__codemode_result__, which is undefined."
_IN_PROGRAMS = {IMPORT_SERVER: "import()"}
_MISMATCH_HINT = "The call was made. Read the value as it is, and do not rely on the fields that are named."


def diagnostics_of(outcome: RunOutcome, policy: ExecutionPolicy) -> list[Diagnostic]:
    """Return what a model is told of a run beside its result."""
    said = [] if outcome.error is None else of_error(outcome.error, policy, outcome.trace and outcome.trace.duration_ms)
    if outcome.warnings:
        said += [diagnostic("info", "PROGRAM_REPAIRED", note) for note in outcome.warnings]
    if outcome.returned_nothing:
        said.append(diagnostic("info", "NO_RESULT", no_result_text(outcome, "", _ASSIGN, shows_console=False)))
    if outcome.output_warnings:
        said += [diagnostic("warning", "OUTPUT_MISMATCH", one, hint=_MISMATCH_HINT) for one in outcome.output_warnings]
    if outcome.abandoned:
        said.append(_of_abandoned([_IN_PROGRAMS.get(call["name"], call["name"]) for call in outcome.abandoned]))
    return said


def cleared(said: Sequence[Diagnostic], secrets: tuple[str, ...]) -> list[Diagnostic]:
    """Return diagnostics without what the host has named as secret."""
    return [_without_secrets(one, secrets) for one in said] if secrets else list(said)


def of_error(error: CodeModeError, policy: ExecutionPolicy, ran_ms: float | None = None) -> list[Diagnostic]:
    """Return the diagnostics of an error: its own, and those about the calls of the program."""
    return _with_calls(_own(error, policy, ran_ms), error)


def _own(error: CodeModeError, policy: ExecutionPolicy, ran_ms: float | None) -> list[Diagnostic]:
    # Whatever its class: a call was answered with it.
    kind = "error" if "call" in error.details else find_nearest_kind(MODULE_WORDING, error)
    if kind in ("error", "call_value"):
        return [_uncaught(error, policy)]
    if kind == "syntax":
        return [_problem(one) for one in list_or_empty(error.details.get("problems"))] or [_problem({})]
    if kind == "value":
        name, said = string_or_empty(error.details.get("name")), error.message.rpartition(": ")[2]
        if (spent := _find_exhaustion(error, name, said, policy, None)) is not None:
            return [spent]
    limit, most = str(error.details.get("limit")), error.details.get("max")
    message = format_message(
        MODULE_WORDING[kind],
        error,
        name=SHOWN_NAMES.get(limit, limit),
        next=most + 1 if type(most) is int else "more",
        used="" if ran_ms is None else f", and it had run for {round(ran_ms)} ms",
    )
    is_placed = isinstance(error, CodeModeBridgeLimitError | CodeModeIllegalAccessError)
    made = _make_diagnostic(kind, message, place_of(error.details) if is_placed else None)
    if kind == "aborted" and has_done(error.calls):
        made["hint"] = "Ask before you go on, and leave out the calls that are done."
    return [made]


def _make_diagnostic(kind: str, message: str, path: str | None) -> Diagnostic:
    wording = MODULE_WORDING[kind]
    return diagnostic("error", wording.code, message, hint=wording.hint, path=path, error_class=wording.error_class)


def _find_exhaustion(
    error: CodeModeError, name: str, message: str, policy: ExecutionPolicy, path: str | None
) -> Diagnostic | None:
    """Return the diagnostic of memory or stack, when that is what the engine has thrown."""
    kind = find_exhausted_kind(name, message)
    if kind is None:
        return None
    most = policy.memory_limit_bytes if kind == "out_of_memory" else policy.max_stack_size_bytes
    or_null = " (or threw null)" if "threw null" in message else ""
    return _make_diagnostic(kind, format_message(MODULE_WORDING[kind], error, most=most, or_null=or_null), path)


def _problem(given: Any) -> Diagnostic:
    problem, wording = mapping_or_empty(given), MODULE_WORDING["syntax"]
    message = string_or_empty(problem.get("message")) or wording.message
    return diagnostic(
        "error",
        string_or_empty(problem.get("code")) or wording.code,
        message,
        hint=string_or_empty(problem.get("hint")) or syntax_hint(message),
        path=place_of(problem),
        error_class=string_or_empty(problem.get("error_class")),
    )


def _uncaught(error: CodeModeError, policy: ExecutionPolicy) -> Diagnostic:
    details, call = error.details, mapping_or_empty(error.details.get("call"))
    fields = call or _thrown_fields(details)
    error_class = string_or_empty(fields.get("class"))
    error_class = error_class if error_class in CLASSES else ""
    name = error_class or string_or_empty(details.get("name"))
    message = string_or_empty(fields.get("message")) or error.message
    where = place_of(details)
    if not error_class and (spent := _find_exhaustion(error, name, message, policy, where)) is not None:
        return spent
    if error_class == LIMIT:
        made = _make_diagnostic("max_ledger_bytes", message, where)
        return {**made, "hint": string_or_empty(fields.get("hint")) or made.get("hint", "")}
    is_import = string_or_empty(fields.get("code")) == IMPORT_FAILURE and bool(error_class)
    return diagnostic(
        "error",
        IMPORT_FAILURE if is_import else MODULE_WORDING["error"].code,
        f"{name}: {message}" if name else message,
        hint=string_or_empty(fields.get("hint")) or string_or_empty(details.get("hint")) or thrown_hint(name, message),
        path=string_or_empty(fields.get("path")) or where,
        error_class=error_class,
    )


def _thrown_fields(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the public fields of an error of ours that the program itself has thrown."""
    error_class, fields = details.get("error_class"), details.get("fields")
    return {**fields, "class": error_class} if is_object(fields) else {"class": error_class}


def _with_calls(said: list[Diagnostic], error: CodeModeError) -> list[Diagnostic]:
    """Return the diagnostics of an error, the first with what the program had called, and one of calls cut off."""
    recovery = error.recovery
    asked = None if recovery is None else [request.tool_name for request in recovery.requests]
    unknown = [call for call in error.calls if call["status"] == "unknown" and call["is_started"]]
    cut_off = [one for one in unknown if not one.get("reads_only") and (asked is None or one["name"] in asked)]
    ended_it = mapping_or_empty(error.details.get("call"))
    own = f"{ended_it.get('serverId')}.{ended_it.get('toolName')}"
    if lines := describe_calls(call for call in drop_last_failure(error.calls, own) if call not in unknown):
        said[0]["message"] = "\n".join([clipped(said[0]["message"], _MAX_ERROR_CHARACTERS), *lines])
    if cut_off:
        hint = "Find out what has happened before calling again."
        said.append(diagnostic("error", "OUTCOME_UNKNOWN", "\n".join(describe_calls(cut_off)), hint=hint))
    return said


def _of_abandoned(names: list[str]) -> Diagnostic:
    message = f"the program ended without awaiting every call: {_listed(names)}"
    hint = "Await each call, for instance with Promise.all."
    return diagnostic("warning", "CALL_NOT_AWAITED", message, hint=hint)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(name[:100] for name in names[:_MOST_LISTED]) + more


def _without_secrets(one: Diagnostic, secrets: tuple[str, ...]) -> Diagnostic:
    left: Diagnostic = {**one, "message": without_secrets(one["message"], secrets)}
    if "hint" in one:
        left["hint"] = without_secrets(one["hint"], secrets)
    if "path" in one:
        left["path"] = without_secrets(one["path"], secrets)
    return left


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
