"""Errors that an invocation can end with, and their wording."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..data.json_values import decode_json, utf8_length
from ..errors import (
    CodeModeAbortedError,
    CodeModeBridgeLimitError,
    CodeModeError,
    CodeModeIllegalAccessError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeSyntaxError,
    CodeModeTimeoutError,
    CodeModeToolError,
    CodeModeWorkerError,
)
from .call_status import DetachedCall, abandoned_calls, detached_calls, detached_error
from .events import AbortRequested, Completed, DeadlinePassed, Failed, HostFailed, ProgramRefused, WorkerEnded
from .guest_errors import failed_call, of_this_run
from .guest_output import MAX_TIMERS, MAX_YIELDS
from .ledger import Ledger, LedgerEntry
from .messages import CallRequested, Draft, EngineFailed, ProgramReturned, ProgramThrew
from .settings import Settings

if TYPE_CHECKING:
    from ..data.program_facts import ProgramProblem


_CALL_LIMITS = ("max_bridge_requests", "max_in_flight_bridge_requests", "max_catalog_requests")
# Limits that have no option: for each the kind of request, how many there may be, and what the program did.
_OWN_LIMITS = {
    "max_timers": ("timer", MAX_TIMERS, f"set more than {MAX_TIMERS} timers"),
    "max_yields": ("yield", MAX_YIELDS, f"yielded more than {MAX_YIELDS} times"),
}
OUTPUT_LIMIT = "max_output_bytes"
_LATE_MS = 250  # a busy machine is that late
_MAX_LISTED = 8  # violations in a message
_POSITION = re.compile(r"program\.js:(\d{1,9}):(\d{1,9})")


def guest_error(event: ProgramThrew) -> CodeModeError:
    """Return the error that the program threw. The kernel sets `origin`; no guest value chooses a class."""
    details: dict[str, Any] = {"name": event.name, "stack": event.stack}
    if event.details_json is not None:
        details["details"] = _thrown_details(event.details_json)
    if event.error_class is not None:
        details["error_class"] = event.error_class
    if event.fields_json is not None:
        details["fields"] = _thrown_details(event.fields_json)
    position = _POSITION.search(event.stack)
    if position:
        details["line"], details["column"] = int(position[1]), int(position[2])
    if event.origin == "syntax":
        line, column = details.get("line", 1), details.get("column", 1)
        return syntax_error([{"message": event.message, "line": line, "column": column}])
    if event.origin == "result":
        return CodeModeSerializationError(f"the program's result is not JSON: {event.message}", details=details)
    if event.origin == "memory":
        details["is_out_of_memory"] = True
    if event.error_code:
        details["code"] = event.error_code
    return CodeModeError(event.message, details=details)


def thrown(event: ProgramThrew, settings: Settings) -> CodeModeError:
    """Return the error of a program that no answer of the host ended, but a call that its input made impossible may."""
    error = guest_error(event)
    if event.refused is None:
        return error
    codes = settings.profile.host_errors.codes
    if codes is None:
        raise CodeModeProtocolError("the worker refuses a call for its input, of which its programs are told otherwise")
    call = _refused_call(event.refused, codes["validation"], event.message)
    refused = CodeModeToolError(event.message, details={**error.details, **call})
    refused.reason = "validation"
    return refused


def _refused_call(tool_name: str, code: str, message: str) -> dict[str, Any]:
    """Return the details of an error for a call that never was one."""
    call = {"toolName": tool_name, "code": code, "message": message}
    return {"tool_name": tool_name, "call": call, "ran": False}


def after_throw(
    event: ProgramThrew, settings: Settings, ledger: Ledger, taken: Sequence[int], errors: Mapping[int, CodeModeError]
) -> CodeModeError:
    """Return the error that a program let end it: the host's own, by ``errors`` of requests, a limit's, or the guest's.

    ``taken`` are the requests whose answer the guest was handed.
    """
    if event.error_class is not None and settings.profile.host_errors.words is None:
        raise CodeModeProtocolError("the worker names a class of errors, which this program has not")
    if event.request is not None:
        if event.request not in errors or event.request not in taken:
            raise CodeModeProtocolError("the worker names an error that it was not given")
        call = failed_call(ledger[event.request], hides_input=settings.hides_inputs)
        return placed(errors[event.request], event, call)
    if event.limit is not None:
        return limit_error(event.limit, event.refused, settings)
    return thrown(event, settings)


def placed(error: CodeModeError, event: ProgramThrew, call: dict[str, Any] | None) -> CodeModeError:
    """Return a host's own error that the program let end it, with the guest's position and what is said of its call."""
    position = guest_error(event).details
    keys = ("line", "column", "stack", "details")
    if call is not None:  # which has the details of its own error
        keys, error = keys[:3], of_this_run(error)
        error.details["call"] = call
    for key in keys:
        if key in position:
            error.details.setdefault(key, position[key])
    return error


def _thrown_details(text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError:  # a long one was cut
        return text


def diverged(position: int, how: str) -> CodeModeProtocolError:
    details = {"position": position, "origin": "continuation"}
    return CodeModeProtocolError(f"replay diverged at request {position}: {how}", details=details)


def request_text(request: LedgerEntry | CallRequested) -> str:
    text = request.input_json or ""
    return f"{request.kind} {request.name}({text if len(text) <= 200 else text[:200] + '...'})"


def timeout_error(settings: Settings, late_ms: int = 0) -> CodeModeError:
    """Return the error for a program whose clock has run out, and that was told of so much later."""
    timeout_ms, clock = settings.limits.timeout_ms, settings.limits.clock
    did = "did not end within" if clock == "wall" else "ran, not counting its calls, for more than"
    text = f"the program {did} {timeout_ms} ms"
    if settings.profile.at_deadline == "rest":
        name = _shown_name("timeout_ms", settings)
        text = f"the program computed for more than {timeout_ms} ms without an end ({name} is {timeout_ms})"
    if late_ms < max(_LATE_MS, timeout_ms // 2):
        return CodeModeTimeoutError(text, details={"timeout_ms": timeout_ms})
    held = f"the host's event loop stood still for {late_ms} ms beyond that, as with an async tool that blocks"
    return CodeModeTimeoutError(f"{text}; {held}", details={"timeout_ms": timeout_ms, "late_ms": late_ms})


def limit_error(limit: str, refused: str | None, settings: Settings) -> CodeModeError:
    """Return the error for a program that let the refusal of a call end it: of that tool, where it is known."""
    if (own := _OWN_LIMITS.get(limit)) is not None and own[0] in settings.profile.request_kinds:
        return CodeModeBridgeLimitError(f"the program {own[2]}", details={"limit": limit, "max": own[1]})
    if limit == OUTPUT_LIMIT and settings.profile.output is not None:
        return output_full(settings.profile.output.max_bytes, _shown_name(OUTPUT_LIMIT, settings))
    if limit not in _CALL_LIMITS:
        raise CodeModeProtocolError("the worker names a limit that does not exist")
    maximum, named = getattr(settings.limits, limit), _shown_name(limit, settings)
    made = f"the program made more calls than {named} allows ({maximum})"
    if limit == "max_in_flight_bridge_requests":
        made = f"the program made more calls at once than {named} allows ({maximum}). Await some before making more"
    error = CodeModeBridgeLimitError(made, details={"limit": limit, "max": maximum})
    error.reason = "limit"
    codes = settings.profile.host_errors.codes
    if refused is not None and codes is not None:
        error.details |= _refused_call(refused, codes["limit"], made)
    return error


def _shown_name(limit: str, settings: Settings) -> str:
    """Return what a limit is called where the program is."""
    return settings.profile.guest.limit_names.get(limit, limit)


def output_full(maximum: int, name: str = OUTPUT_LIMIT) -> CodeModeError:
    """Return the error of a program that has written more than it may, by a limit that is called so."""
    return CodeModeError(
        f"the program wrote more than {maximum} bytes of output, console and value together, which is {name}."
        " Write less",
        code="CODE_MODE_OUTPUT_LIMIT",
        details={"limit": OUTPUT_LIMIT, "max": maximum},
    )


def after_return(
    event: ProgramReturned,
    settings: Settings,
    ledger: Ledger,
    taken: Sequence[int],
    unsent: Sequence[LedgerEntry],
    queued: Sequence[LedgerEntry],
) -> Completed | Failed:
    """Return the ending of a program that returned, by what its profile makes of calls that nobody waits for.

    ``unsent`` are the calls of the last turn, ``queued`` those that other calls left no room for: neither has run.
    """
    if len(taken) == len(ledger.entries) and not event.unobserved:
        return returned(event, settings)  # all that it has asked for was answered and looked at
    last_turn = {entry.id for entry in unsent}
    if settings.profile.unawaited != "refuse":
        not_sent = last_turn | {entry.id for entry in queued}
        abandoned = abandoned_calls(ledger, taken, not_sent, event.unobserved)
        if settings.profile.unawaited == "drain" and any(call["status"] != "failed" for call in abandoned):
            raise CodeModeProtocolError("the worker ended a program whose calls are in flight")
        return returned(event, settings, abandoned)
    calls = detached_calls(ledger, taken, last_turn, event.unobserved)
    return Failed(detached_error(calls)) if calls else returned(event, settings)


def returned(
    event: ProgramReturned, settings: Settings, abandoned: tuple[DetachedCall, ...] = ()
) -> Completed | Failed:
    """Return the ending of a program that returned.

    Raises `CodeModeProtocolError` when its result is not there.
    """
    size = event.value_bytes if event.value_json is None else utf8_length(event.value_json)
    max_result_bytes = settings.limits.max_result_bytes
    if size is not None and size > max_result_bytes:
        name = _shown_name("max_result_bytes", settings)
        return Failed(
            CodeModeSerializationError(
                f"the program's result has {size} bytes; {name} is {max_result_bytes}. Return less",
                details={"bytes": size, "max_bytes": max_result_bytes},
            )
        )
    if event.value_bytes is not None:
        raise CodeModeProtocolError("the worker withheld a result that is small enough")
    return Completed(event.value_json, event.warnings, abandoned, event.last)


def ledger_full(maximum: int) -> CodeModeBridgeLimitError:
    error = CodeModeBridgeLimitError(
        "the ledger of this run is full: what its calls were given and gave takes more than"
        f" execution_policy.max_ledger_bytes allows ({maximum})",
        details={"limit": "max_ledger_bytes", "max": maximum},
    )
    error.reason = "limit"
    return error


def deadlock() -> CodeModeError:
    return CodeModeError(
        "the program waits for something that cannot happen: no call is in flight and nothing is left to run"
        " (a promise that nobody resolves, or memory ran out inside a promise callback)",
        code="CODE_MODE_DEADLOCK",
    )


def syntax_error(problems: list[ProgramProblem]) -> CodeModeSyntaxError:
    """Return the error for a program that was refused before it ran; its message lists every problem."""
    first = problems[0] if problems else {"message": "the program cannot run", "line": 1, "column": 1}
    text = "; ".join(f"line {p['line']}, column {p['column']}: {p['message']}" for p in problems)
    details = {"name": "SyntaxError", "problems": problems, "line": first["line"], "column": first["column"]}
    return CodeModeSyntaxError(text or str(first["message"]), details=details)


def refusal(event: ProgramRefused) -> CodeModeError:
    """Return the error for a program that was refused before it ran."""
    if event.error is not None:
        return event.error
    if event.violations:
        return illegal_access(event.violations)
    return syntax_error([problem.copy() for problem in event.problems])


def illegal_access(violations: Sequence[Mapping[str, Any]]) -> CodeModeIllegalAccessError:
    """Return the error for a program that says what its surface forbids; its message lists the first violations."""
    first = violations[0]
    lines = [_violation_text(one) for one in violations[:_MAX_LISTED]]
    if len(violations) > _MAX_LISTED:
        lines.append(f"and {len(violations) - _MAX_LISTED} more")
    details = {"name": "IllegalAccess", "violations": [dict(one) for one in violations], **first["location"]}
    return CodeModeIllegalAccessError("; ".join(lines), details=details)


def not_analysable(draft: Draft | None) -> CodeModeIllegalAccessError:
    """Return the error for a program that compiles, and of which nothing else is certain; ``draft`` says from where."""
    place = {"line": 1, "column": 1} if draft is None else {"line": draft.line, "column": draft.column}
    return illegal_access([{"kind": "NotAnalysable", "location": place}])


def _violation_text(violation: Mapping[str, Any]) -> str:
    place, kind = violation["location"], str(violation["kind"])
    text = _VIOLATIONS.get(kind, "the program breaks the rule {kind}")
    said = text.format(kind=kind, name=violation.get("name", "this"))
    return f"line {place['line']}, column {place['column']}: {said}"


_VIOLATIONS = {
    "IllegalBuiltinAccess": "`{name}` may not be used here",
    "DisallowedGlobal": "`{name}` may not be used here",
    "DisallowedLoop": "loops are not allowed here (`{name}`): use array methods such as map, filter and reduce",
    "DisallowedImport": "`{name}` is not available: a program has no modules",
    "NotAnalysable": "it cannot be told what the program does, so that it does not run: write it simpler",
}


def cut_short(
    event: DeadlinePassed | AbortRequested | WorkerEnded | HostFailed | EngineFailed, settings: Settings
) -> CodeModeError:
    """Return the error for an invocation that something outside its program has ended."""
    match event:
        case DeadlinePassed():
            return timeout_error(settings, event.late_ms)
        case AbortRequested():
            return CodeModeAbortedError("the invocation was aborted")
        case WorkerEnded(reason):
            return CodeModeWorkerError(f"the worker ended without a result: {reason}", details={"origin": "worker"})
        case EngineFailed(_, "time") if settings.profile.guest.stops_itself:
            return timeout_error(settings)
        case EngineFailed(message, origin):
            told = {"is_out_of_memory": True} if origin == "memory" else {}
            return CodeModeError(message, details={"name": "InternalError", **told})
        case HostFailed(error):
            return error
