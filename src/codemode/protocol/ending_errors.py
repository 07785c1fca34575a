"""Make the errors that an invocation can end with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..data.json_values import count_utf8_bytes, decode_json
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
from .call_status import (
    DetachedCall,
    find_abandoned_calls,
    find_unanswered_or_unobserved_calls,
    make_detached_call_error,
    may_handle_rejections,
)
from .events import AbortRequested, Completed, DeadlinePassed, Failed, HostFailed, ProgramRefused, WorkerEnded
from .guest_errors import copy_error_for_run, describe_failed_call
from .guest_output import MAX_TIMERS, MAX_YIELDS
from .ledger import Ledger, LedgerEntry, Rejected
from .messages import CallRequested, EngineFailed, PartiallyStrippedProgram, ProgramReturned, ProgramThrew
from .settings import InvocationSettings

if TYPE_CHECKING:
    from ..data.program_facts import ProgramProblem


_CALL_LIMIT_OPTIONS = ("max_bridge_requests", "max_in_flight_bridge_requests", "max_catalog_requests")
# Limits without an option: for each the kind of request, the maximum, and what the program did.
_FIXED_LIMITS = {
    "max_timers": ("timer", MAX_TIMERS, f"set more than {MAX_TIMERS} timers"),
    "max_yields": ("yield", MAX_YIELDS, f"yielded more than {MAX_YIELDS} times"),
}
OUTPUT_LIMIT = "max_output_bytes"
_MIN_REPORTED_DELAY_MS = 250  # the delay of a busy machine
_MAX_LISTED_VIOLATIONS = 8  # in a message
_POSITION = re.compile(r"program\.js:(\d{1,9}):(\d{1,9})")


def make_guest_error(event: ProgramThrew) -> CodeModeError:
    """Return the error that the program threw. The guest runtime sets `origin`; no guest value chooses a class."""
    details: dict[str, Any] = {"name": event.name, "stack": event.stack}
    if event.details_json is not None:
        details["details"] = _parse_json_or_keep_text(event.details_json)
    if event.error_class is not None:
        details["error_class"] = event.error_class
    if event.fields_json is not None:
        details["fields"] = _parse_json_or_keep_text(event.fields_json)
    position = _POSITION.search(event.stack)
    if position:
        details["line"], details["column"] = int(position[1]), int(position[2])
    if event.origin == "syntax":
        line, column = details.get("line", 1), details.get("column", 1)
        return make_syntax_error([{"message": event.message, "line": line, "column": column}])
    if event.origin == "result":
        return CodeModeSerializationError(f"the program's result is not JSON: {event.message}", details=details)
    if event.origin == "memory":
        details["is_out_of_memory"] = True
    if event.error_code:
        details["code"] = event.error_code
    return CodeModeError(event.message, details=details)


def make_guest_or_call_refusal_error(event: ProgramThrew, settings: InvocationSettings) -> CodeModeError:
    """Return the error of a program that no host answer ended; a call refused for its input may have."""
    error = make_guest_error(event)
    if event.refused_tool is None:
        return error
    codes = settings.profile.host_errors.codes
    if codes is None:
        raise CodeModeProtocolError("the worker refuses a call for its input, which its surface reports otherwise")
    call = _make_call_refusal_details(event.refused_tool, codes["validation"], event.message)
    refused = CodeModeToolError(event.message, details={**error.details, **call})
    refused.reason = "validation"
    return refused


def _make_call_refusal_details(tool_name: str, code: str, message: str) -> dict[str, Any]:
    """Return the details of an error for a call that was refused before it was made."""
    call = {"toolName": tool_name, "code": code, "message": message}
    return {"tool_name": tool_name, "call": call, "ran": False}


def select_ending_error(
    event: ProgramThrew,
    settings: InvocationSettings,
    ledger: Ledger,
    delivered_ids: Sequence[int],
    errors: Mapping[int, CodeModeError],
) -> CodeModeError:
    """Return the error that ended a program: the host's own, by ``errors`` of requests, a limit's, or the guest's.

    ``delivered_ids`` are the requests whose answer the guest received.
    """
    if event.error_class is not None and settings.profile.host_errors.error_fields is None:
        raise CodeModeProtocolError("the worker names a class of errors, which this program does not have")
    if event.request_id is not None:
        if event.request_id not in errors or event.request_id not in delivered_ids:
            raise CodeModeProtocolError("the worker names an error that it was not given")
        call = describe_failed_call(ledger[event.request_id], hides_input=settings.hides_inputs)
        return add_guest_error_details(errors[event.request_id], event, call)
    if event.limit is not None:
        return make_exceeded_limit_error(event.limit, event.refused_tool, settings)
    return make_guest_or_call_refusal_error(event, settings)


def add_guest_error_details(error: CodeModeError, event: ProgramThrew, call: dict[str, Any] | None) -> CodeModeError:
    """Return a host error that ended the program, with the guest's position and the fields of the call."""
    guest_details = make_guest_error(event).details
    keys = ("line", "column", "stack", "details")
    if call is not None:  # it has the details of its own error
        keys, error = keys[:3], copy_error_for_run(error)
        error.details["call"] = call
    for key in keys:
        if key in guest_details:
            error.details.setdefault(key, guest_details[key])
    return error


def _parse_json_or_keep_text(text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError:  # a long one was cut
        return text


def make_replay_divergence_error(position: int, difference: str) -> CodeModeProtocolError:
    details = {"position": position, "origin": "continuation"}
    return CodeModeProtocolError(f"replay diverged at request {position}: {difference}", details=details)


def format_request(request: LedgerEntry | CallRequested) -> str:
    text = request.input_json or ""
    return f"{request.kind} {request.name}({text if len(text) <= 200 else text[:200] + '...'})"


def make_program_timeout_error(settings: InvocationSettings, late_ms: int = 0) -> CodeModeError:
    """Return the error for an exceeded program timeout, reported ``late_ms`` after the deadline."""
    timeout_ms = settings.limits.timeout_ms
    phrase = (
        "did not end within" if settings.limits.timeout_includes_tools else "ran, not counting its calls, for more than"
    )
    text = f"the program {phrase} {timeout_ms} ms"
    if settings.profile.at_deadline == "rest":
        name = _get_displayed_limit_name("timeout_ms", settings)
        text = f"the program computed for more than {timeout_ms} ms without an end ({name} is {timeout_ms})"
    if late_ms < max(_MIN_REPORTED_DELAY_MS, timeout_ms // 2):
        return CodeModeTimeoutError(text, details={"timeout_ms": timeout_ms})
    delay_text = f"the host's event loop stood still for {late_ms} ms beyond that, as with an async tool that blocks"
    return CodeModeTimeoutError(f"{text}; {delay_text}", details={"timeout_ms": timeout_ms, "late_ms": late_ms})


def make_exceeded_limit_error(limit: str, refused_tool: str | None, settings: InvocationSettings) -> CodeModeError:
    """Return the error for a refused call over a limit, with its tool if known."""
    if (fixed_limit := _FIXED_LIMITS.get(limit)) is not None and fixed_limit[0] in settings.profile.request_kinds:
        return CodeModeBridgeLimitError(
            f"the program {fixed_limit[2]}", details={"limit": limit, "max": fixed_limit[1]}
        )
    if limit == OUTPUT_LIMIT and settings.profile.output is not None:
        return make_output_limit_error(
            settings.profile.output.max_bytes, _get_displayed_limit_name(OUTPUT_LIMIT, settings)
        )
    if limit not in _CALL_LIMIT_OPTIONS:
        raise CodeModeProtocolError("the worker names a limit that does not exist")
    maximum, displayed_name = getattr(settings.limits, limit), _get_displayed_limit_name(limit, settings)
    message = f"the program made more calls than {displayed_name} allows ({maximum})"
    if limit == "max_in_flight_bridge_requests":
        message = (
            f"the program made more calls at once than {displayed_name} allows ({maximum})."
            " Await some before making more"
        )
    error = CodeModeBridgeLimitError(message, details={"limit": limit, "max": maximum})
    error.reason = "limit"
    codes = settings.profile.host_errors.codes
    if refused_tool is not None and codes is not None:
        error.details |= _make_call_refusal_details(refused_tool, codes["limit"], message)
    return error


def _get_displayed_limit_name(limit: str, settings: InvocationSettings) -> str:
    """Return the name of a limit on the program's surface."""
    return (settings.profile.guest.limit_names or {}).get(limit, limit)


def make_output_limit_error(maximum: int, name: str = OUTPUT_LIMIT) -> CodeModeError:
    """Return the error for exceeded output, with the surface's name of the limit."""
    return CodeModeError(
        f"the program wrote more than {maximum} bytes of output, console and value together, which is {name}."
        " Write less",
        code="CODE_MODE_OUTPUT_LIMIT",
        details={"limit": OUTPUT_LIMIT, "max": maximum},
    )


def make_return_ending(
    event: ProgramReturned,
    settings: InvocationSettings,
    ledger: Ledger,
    delivered_ids: Sequence[int],
    unsent: Sequence[LedgerEntry],
    queued: Sequence[LedgerEntry],
    js: str,
) -> Completed | Failed:
    """Return the ending of the program ``js``, which returned, by its profile's rule for calls that were not awaited.

    ``unsent`` are the calls of the last turn, ``queued`` those that waited for a free slot: neither has run.
    """
    is_settled = len(delivered_ids) == len(ledger.entries) and not event.unobserved_ids
    if is_settled and Rejected not in map(type, map(attrgetter("outcome"), ledger.entries)):
        return check_result_and_make_ending(event, settings)  # every request succeeded and was observed
    last_turn = {entry.id for entry in unsent}
    if settings.profile.unawaited == "refuse":
        calls = find_unanswered_or_unobserved_calls(ledger, delivered_ids, last_turn, event.unobserved_ids)
        if calls:
            return Failed(make_detached_call_error(calls))
    not_sent = last_turn | {entry.id for entry in queued}
    # A saved program, whose text is not in ``js``, may handle errors of its own calls.
    may_handle_errors = '"saved":' in (settings.invocation_data_json or "") or may_handle_rejections(js)
    abandoned = find_abandoned_calls(
        ledger, delivered_ids, not_sent, event.unobserved_ids, may_handle_errors=may_handle_errors
    )
    if settings.profile.unawaited == "refuse":  # which drops calls of the last turn silently
        abandoned = tuple(call for call in abandoned if call["status"] == "failed")
    if settings.profile.unawaited == "drain" and any(call["status"] != "failed" for call in abandoned):
        raise CodeModeProtocolError("the worker ended a program whose calls are in flight")
    return check_result_and_make_ending(event, settings, abandoned)


def check_result_and_make_ending(
    event: ProgramReturned, settings: InvocationSettings, abandoned: tuple[DetachedCall, ...] = ()
) -> Completed | Failed:
    """Check the result of a program and return its ending.

    Raises `CodeModeProtocolError` if the result is missing.
    """
    size = event.value_bytes if event.value_json is None else count_utf8_bytes(event.value_json)
    max_result_bytes = settings.limits.max_result_bytes
    if size is not None and size > max_result_bytes:
        name = _get_displayed_limit_name("max_result_bytes", settings)
        return Failed(
            CodeModeSerializationError(
                f"the program's result has {size} bytes; {name} is {max_result_bytes}. Return less",
                details={"bytes": size, "max_bytes": max_result_bytes},
            )
        )
    if event.value_bytes is not None:
        raise CodeModeProtocolError("the worker withheld a result that is small enough")
    return Completed(event.value_json, event.warnings, abandoned, event.last_value)


def make_ledger_limit_error(maximum: int) -> CodeModeBridgeLimitError:
    error = CodeModeBridgeLimitError(
        "the ledger of this run is full: inputs and results of its calls take more than"
        f" execution_policy.max_ledger_bytes allows ({maximum})",
        details={"limit": "max_ledger_bytes", "max": maximum},
    )
    error.reason = "limit"
    return error


def make_deadlock_error() -> CodeModeError:
    return CodeModeError(
        "the program waits for something that cannot happen: no call is in flight and nothing is left to run"
        " (an unresolved promise, or memory ran out in a promise callback)",
        code="CODE_MODE_DEADLOCK",
    )


def make_syntax_error(problems: list[ProgramProblem]) -> CodeModeSyntaxError:
    """Return the error for a refused program; its message lists every problem."""
    first = problems[0] if problems else {"message": "the program cannot run", "line": 1, "column": 1}
    text = "; ".join(f"line {p['line']}, column {p['column']}: {p['message']}" for p in problems)
    details = {"name": "SyntaxError", "problems": problems, "line": first["line"], "column": first["column"]}
    return CodeModeSyntaxError(text or str(first["message"]), details=details)


def make_program_refusal_error(event: ProgramRefused) -> CodeModeError:
    """Return the error for a program that was refused before it ran."""
    if event.error is not None:
        return event.error
    if event.violations:
        return make_illegal_access_error(event.violations)
    return make_syntax_error([problem.copy() for problem in event.problems])


def make_illegal_access_error(violations: Sequence[Mapping[str, Any]]) -> CodeModeIllegalAccessError:
    """Return the error for a program that breaks rules of its surface; its message lists the first violations."""
    first = violations[0]
    lines = [_format_violation(violation) for violation in violations[:_MAX_LISTED_VIOLATIONS]]
    if len(violations) > _MAX_LISTED_VIOLATIONS:
        lines.append(f"and {len(violations) - _MAX_LISTED_VIOLATIONS} more")
    details = {
        "name": "IllegalAccess",
        "violations": [dict(violation) for violation in violations],
        **first["location"],
    }
    return CodeModeIllegalAccessError("; ".join(lines), details=details)


def make_unanalysable_program_error(draft: PartiallyStrippedProgram | None) -> CodeModeIllegalAccessError:
    """Return the error for a program that compiles but cannot be analysed; ``draft`` has the position."""
    location = {"line": 1, "column": 1} if draft is None else {"line": draft.line, "column": draft.column}
    return make_illegal_access_error([{"kind": "NotAnalysable", "location": location}])


def _format_violation(violation: Mapping[str, Any]) -> str:
    location, kind = violation["location"], str(violation["kind"])
    text = _VIOLATION_TEXTS.get(kind, "the program breaks the rule {kind}")
    message = text.format(kind=kind, name=violation.get("name", "this"))
    return f"line {location['line']}, column {location['column']}: {message}"


_VIOLATION_TEXTS = {
    "IllegalBuiltinAccess": "`{name}` may not be used here",
    "DisallowedGlobal": "`{name}` may not be used here",
    "DisallowedLoop": "loops are not allowed here (`{name}`): use array methods such as map, filter and reduce",
    "DisallowedImport": "`{name}` is not available: a program has no modules",
    "NotAnalysable": "the program cannot be analysed and did not run: write it more simply",
}


def make_external_stop_error(
    event: DeadlinePassed | AbortRequested | WorkerEnded | HostFailed | EngineFailed, settings: InvocationSettings
) -> CodeModeError:
    """Return the error for an invocation that was stopped from outside the program."""
    match event:
        case DeadlinePassed():
            return make_program_timeout_error(settings, event.late_ms)
        case AbortRequested():
            return CodeModeAbortedError("the invocation was aborted")
        case WorkerEnded(reason):
            return CodeModeWorkerError(f"the worker ended without a result: {reason}", details={"origin": "worker"})
        case EngineFailed(_, "time") if settings.profile.guest.stops_itself:
            return make_program_timeout_error(settings)
        case EngineFailed(message, origin):
            details = {"is_out_of_memory": True} if origin == "memory" else {}
            return CodeModeError(message, details={"name": "InternalError", **details})
        case HostFailed(error):
            return error
