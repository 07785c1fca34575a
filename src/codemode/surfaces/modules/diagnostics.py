"""What the model is answered about a run: errors in codes, logs, calls and value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...data.narrowing import is_object, list_or_empty, mapping_or_empty, string_or_empty
from ...errors import (
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
    CodeModeWorkerError,
)
from ...execution.outcome_texts import describe_calls, drop_last_failure, has_done, no_result_text
from ...observe.call_events import CallRecord, error_as_read
from ...protocol.ledger import Rejected
from ...trace.late_values import held
from ...trace.visible_text import clipped
from .catalog import IMPORT_SERVER
from .error_texts import (
    CLASSES,
    IMPORT_FAILURE,
    LIMIT,
    class_and_code,
    exhausted,
    limit_diagnostic,
    result_too_large,
    source_too_large,
    syntax_hint,
    thrown_hint,
    too_many_calls,
    took_too_long,
    without_secrets,
)
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
_DEADLOCK = "CODE_MODE_DEADLOCK"
_UNCAUGHT = "UNCAUGHT_EXCEPTION"
_MISMATCH_HINT = "The call was made. Read the value as it is, and do not rely on the fields that are named."
_MALFORMED = "the decision about a call could not be read: the call did not run, and the program ended"


def diagnostics_of(outcome: RunOutcome, policy: ExecutionPolicy) -> list[Diagnostic]:
    """Return what a model is told of a run beside its result."""
    said = [] if outcome.error is None else of_error(outcome.error, policy, outcome.trace and outcome.trace.duration_ms)
    said += [diagnostic("info", "PROGRAM_REPAIRED", note) for note in outcome.warnings]
    if outcome.returned_nothing:
        said.append(diagnostic("info", "NO_RESULT", no_result_text(outcome, "", _ASSIGN, shows_console=False)))
    said += [diagnostic("warning", "OUTPUT_MISMATCH", one, hint=_MISMATCH_HINT) for one in outcome.output_warnings]
    return [*said, *_of_abandoned([_IN_PROGRAMS.get(call["name"], call["name"]) for call in outcome.abandoned])]


def cleared(said: Sequence[Diagnostic], secrets: tuple[str, ...]) -> list[Diagnostic]:
    """Return diagnostics without what the host has named as secret."""
    return [_without_secrets(one, secrets) for one in said] if secrets else list(said)


def of_error(error: CodeModeError, policy: ExecutionPolicy, ran_ms: float | None = None) -> list[Diagnostic]:
    """Return the diagnostics of an error: its own, and those about the calls of the program."""
    return _with_calls(_own(error, policy, ran_ms), error)


def _own(error: CodeModeError, policy: ExecutionPolicy, ran_ms: float | None) -> list[Diagnostic]:
    if "call" in error.details:  # whatever its class: a call was answered with it
        return [_uncaught(error, policy)]
    match error:
        case CodeModeSyntaxError():
            return [_problem(one) for one in list_or_empty(error.details.get("problems"))] or [_problem({})]
        case CodeModeIllegalAccessError():
            return [_not_analysable(error)]
        case CodeModeSourceTooLargeError():
            return [source_too_large(error)]
        case CodeModeTimeoutError():
            return [took_too_long(error, ran_ms)]
        case CodeModeBridgeLimitError():
            return [too_many_calls(error, place_of(error.details))]
        case CodeModeSerializationError() if "kind" not in error.details:
            return [_no_result(error, policy)]
        case CodeModeWorkerError() | CodeModeProtocolError() | CodeModeAbortedError() | CodeModeConcurrencyError():
            return [_of_host(error)]
        case _ if error.code == _DEADLOCK:
            return [_deadlock()]
        case _:
            return [_uncaught(error, policy)]


def _problem(given: Any) -> Diagnostic:
    problem = mapping_or_empty(given)
    message = string_or_empty(problem.get("message")) or "the program is no module"
    hint = string_or_empty(problem.get("hint")) or syntax_hint(message)
    return diagnostic(
        "error",
        string_or_empty(problem.get("code")) or "SYNTAX_ERROR",
        message,
        hint=hint,
        path=place_of(problem),
        error_class=string_or_empty(problem.get("error_class")),
    )


def _not_analysable(error: CodeModeError) -> Diagnostic:
    message = "it cannot be told what the program imports, so that it did not run"
    return diagnostic(
        "error", "NOT_ANALYSABLE", message, hint="Write the program shorter and simpler.", path=place_of(error.details)
    )


def _no_result(error: CodeModeError, policy: ExecutionPolicy) -> Diagnostic:
    if "max_bytes" in error.details:
        return result_too_large(error)
    name, said = string_or_empty(error.details.get("name")), error.message.rpartition(": ")[2]
    if (spent := exhausted(name, said, policy, None)) is not None:
        return spent
    hint = "Assign plain JSON to globalThis.__codemode_result__: objects, arrays, strings, numbers, booleans, null."
    return diagnostic("error", "RESULT_NOT_JSON", error.message, hint=hint)


def _deadlock() -> Diagnostic:
    message = "the program waits for something that cannot happen: no call or timer is left, and nothing else runs"
    hint = "Resolve every promise that the program awaits; one of a callback that finds no memory is not resolved."
    return diagnostic("error", "DEADLOCK", message, hint=hint)


def _of_host(error: CodeModeError) -> Diagnostic:
    if isinstance(error, CodeModeConcurrencyError):
        return diagnostic("error", "BUSY", "no sandbox was free in time", hint="Run the same program again later.")
    if isinstance(error, CodeModeAbortedError):
        if error.details.get("origin") == "continuation":  # its claim was lost
            message = "this host stood still, and another one goes on with the program"
            hint = "Do not run the program again: tell the user, or send the same answers again for what it comes to."
            return diagnostic("error", "CANCELLED", message, hint=hint)
        hint = "Run the program again if it is still wanted."
        if has_done(error.calls):
            hint = "Ask before you go on, and leave out the calls that are done."
        return diagnostic("error", "CANCELLED", "the run was cancelled", hint=hint)
    if isinstance(error, CodeModeProtocolError):
        if error.details.get("origin") in ("continuation", "journal"):
            message = f"the program does not go on: {error.message}"
            return diagnostic("error", "CONTINUATION_REFUSED", message, hint="Tell the user: nothing has run here.")
        is_undecided = error.details.get("origin") == "decision"
        message = _MALFORMED if is_undecided else "the sandbox broke a rule and was stopped"
        return diagnostic("error", "WORKER_FAILED", message, hint="Tell the user: it is no fault of the program.")
    message = "the sandbox ended without a result"
    return diagnostic("error", "WORKER_FAILED", message, hint="Run a program that needs less memory.")


def _uncaught(error: CodeModeError, policy: ExecutionPolicy) -> Diagnostic:
    details, call = error.details, mapping_or_empty(error.details.get("call"))
    fields = call or _thrown_fields(details)
    error_class = string_or_empty(fields.get("class"))
    error_class = error_class if error_class in CLASSES else ""
    name = error_class or string_or_empty(details.get("name"))
    message = string_or_empty(fields.get("message")) or error.message
    where = place_of(details)
    if not error_class and (spent := exhausted(name, message, policy, where)) is not None:
        return spent
    if error_class == LIMIT:
        return limit_diagnostic(message, string_or_empty(fields.get("hint")), where)
    is_import = string_or_empty(fields.get("code")) == IMPORT_FAILURE and bool(error_class)
    return diagnostic(
        "error",
        IMPORT_FAILURE if is_import else _UNCAUGHT,
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


def _of_abandoned(names: list[str]) -> list[Diagnostic]:
    if not names:
        return []
    message = f"the program ended without awaiting every call: {_listed(names)}"
    hint = "Await each call, for instance with Promise.all."
    return [diagnostic("warning", "CALL_NOT_AWAITED", message, hint=hint)]


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
