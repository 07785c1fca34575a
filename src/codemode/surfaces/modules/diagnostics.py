"""Convert errors and outcomes of programs to diagnostics and responses for the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...data.json_values import NOT_GIVEN
from ...data.narrowing import is_object, list_or_empty, mapping_or_empty, string_or_empty
from ...errors import (
    HIDDEN_CODES,
    CodeModeAuthenticationError,
    CodeModeBridgeLimitError,
    CodeModeError,
    CodeModeIllegalAccessError,
    CodeModeSyntaxError,
)
from ...execution.outcome_texts import (
    AUTHENTICATION,
    CLASSES,
    FAILED,
    HIDDEN_CALL_HINT,
    IMPORT_FAILURE,
    LIMIT,
    MODULE_CALLS,
    MODULE_WORDING,
    RAISED_HINTS,
    SCHEMA,
    SERVER_NOT_FOUND,
    SIGN_IN_HINT,
    TOOL_NOT_FOUND,
    describe_calls,
    describe_missing_result,
    exclude_last_failed_call,
    find_error_hint,
    find_exhausted_resource_kind,
    find_nearest_error_kind,
    find_saved_program_location,
    find_syntax_hint,
    format_phrase_message,
    may_have_side_effects,
)
from ...observe.call_events import CallRecord, read_guest_error_fields
from ...profile import ErrorFields
from ...protocol.call_status import AWAIT_HINT, NOT_AWAITED
from ...protocol.ledger import Rejected
from ...source.program_input import make_language_hint_for_error
from ...trace.failures import get_exception_text
from ...trace.late_values import get_stored_value
from ...trace.public_message import to_public_message
from ...trace.visible_text import clip_text
from .catalog import IMPORT_SERVER
from .module_tools import ModuleTool, QualifiedTool, describe_mismatch, find_or_generate_example
from .options import SHOWN_NAMES
from .response import (
    MAX_MESSAGE_CHARACTERS,
    Diagnostic,
    RunResponse,
    create_diagnostic,
    format_position,
    sort_and_limit_diagnostics,
)

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome
    from ...options.parts import ExecutionPolicy
    from ...trace.events import ConsoleEvent


if TYPE_CHECKING:
    pass


# Errors of servers are shown, bounded and without the host's secrets; errors of host code without paths and stacks.

_REDACTED = "[secret]"
_DEFAULT_MESSAGE = "the call failed"
_UNDECIDED = "this call needs an approval, and there was no decision"
_MAX_REDACTED_CHARACTERS = 1 << 20
_MAX_CODE_CHARACTERS = 100


def create_error_fields_builder(find: Callable[[str], ModuleTool | None], secrets: tuple[str, ...]) -> ErrorFields:
    """Return a function that describes call errors for programs. ``find`` returns a tool by its qualified name."""

    def format_error(error: CodeModeError, kind: str, name: str, is_raised: bool) -> Mapping[str, Any]:
        path, _, tool_name = name.partition(".") if kind == "tool" else ("", "", name)
        error_class, code, hint = _find_class_code_and_hint(error, is_raised=is_raised)
        fields: dict[str, Any] = {
            "class": error_class,
            "code": code,
            "message": _format_error_message(error, secrets, is_raised=is_raised),
            "toolName": tool_name,
        }
        if path:
            fields["serverId"] = path
        if kind == "catalog" and error.reason == "import_failure":
            del fields["toolName"]  # no tool was called
        question_details = error.details if kind == "catalog" and not is_raised else {}
        fields |= _build_not_found_fields(question_details, error_class)
        if error_class == SCHEMA:
            tool = find(name) if kind == "tool" else None
            fields |= {"exportName": tool_name, **_build_mismatch_fields(error, tool)}
        error_hint = "" if is_raised else string_or_empty(error.details.get("hint"))
        fields |= _select_and_redact_fields(fields, secrets)
        return {**fields, "hint": error_hint or _format_hint(hint, fields)}

    return format_error


def get_class_and_code(error: CodeModeError, *, is_raised: bool) -> tuple[str, str]:
    """Return the class in `@codemode/errors` and the code of an error."""
    return _find_class_code_and_hint(error, is_raised=is_raised)[:2]


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text with the host's secrets removed."""
    if not secrets:
        return text
    is_cut, text = len(text) > _MAX_REDACTED_CHARACTERS, text[:_MAX_REDACTED_CHARACTERS]
    for secret in secrets:
        text = text.replace(secret, _REDACTED)
    # Drop the end, which may be the beginning of a secret.
    return text[: 1 - max(map(len, secrets)) or None] if is_cut else text


def _find_class_code_and_hint(error: CodeModeError, *, is_raised: bool) -> tuple[str, str, str]:
    if isinstance(error, CodeModeAuthenticationError):
        return AUTHENTICATION, "AUTHENTICATION_REQUIRED", SIGN_IN_HINT
    # Ignore the reason of an error that host code raised.
    reason = "approval_required" if _is_decision_failure(error) else "execution" if is_raised else error.reason
    error_class, code, hint = MODULE_CALLS.get(reason, MODULE_CALLS["execution"])
    if code != FAILED:
        return error_class, code, hint
    if error.code in HIDDEN_CODES:
        return error_class, code, HIDDEN_CALL_HINT
    sets_code = is_raised and error.code != type(error).default_code
    if not sets_code:
        return error_class, code, hint
    return error_class, clip_text(error.code, _MAX_CODE_CHARACTERS), RAISED_HINTS.get(error.code, hint)


def _is_decision_failure(error: CodeModeError) -> bool:
    """Return True if the host's approval decision failed, rather than the call."""
    return error.code in HIDDEN_CODES and error.details.get("origin") == "decision"


def _format_error_message(error: CodeModeError, secrets: tuple[str, ...], *, is_raised: bool) -> str:
    if _is_decision_failure(error):
        return _UNDECIDED
    if error.code in HIDDEN_CODES:
        raised = error.__cause__
        return (
            _DEFAULT_MESSAGE
            if raised is None
            else to_public_message(redact(get_exception_text(raised), secrets), _DEFAULT_MESSAGE)
        )
    if error.reason == "approval_required" and not is_raised:
        return _UNDECIDED  # how to configure approvals is only for the host
    text = redact(error.message, secrets) or _DEFAULT_MESSAGE
    return clip_text(text, MAX_MESSAGE_CHARACTERS)


def _build_mismatch_fields(error: CodeModeError, tool: ModuleTool | None) -> dict[str, Any]:
    details = error.details
    schema = None if tool is None else tool.tool.input_json_schema
    problem = next(iter(list_or_empty(details.get("problems"))), {"message": error.message})
    found: dict[str, Any] = {**describe_mismatch(problem, schema, string_or_empty(details.get("received")) or None)}
    for field, detail_key in (
        ("path", "pointer"),
        ("expected", "expected"),
    ):  # set by discovery for its own arguments
        if isinstance(details.get(detail_key), str):
            found[field] = details[detail_key]
    if tool is not None:
        found["exportName"] = tool.export_name
        example = tool.tool.example if isinstance(tool.tool, QualifiedTool) else find_or_generate_example(tool.tool)
        if example is not NOT_GIVEN:
            found["example"] = example
    return found


def _build_not_found_fields(details: Mapping[str, Any], error_class: str) -> dict[str, str]:
    """Return the server and tool of a discovery question if one of them was not found."""
    names = {
        SERVER_NOT_FOUND: {"serverId": "server_id"},
        TOOL_NOT_FOUND: {"serverId": "server_id", "toolName": "tool_name"},
    }
    values = {field: details.get(key) for field, key in names.get(error_class, {}).items()}
    return {field: value for field, value in values.items() if isinstance(value, str)}


def _format_hint(hint: str, fields: Mapping[str, Any]) -> str:
    position = f"the value at {fields['path']}" if fields.get("path") else "the input"
    values = {"where": position, "expected": fields.get("expected"), "server": fields.get("serverId", "the server")}
    return hint.format_map(values)


def _select_and_redact_fields(fields: Mapping[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    names = ("code", "path", "expected", "received")
    return {name: redact(str(fields[name]), secrets) for name in names if name in fields}


def add_language_hint(error: CodeModeError | None, code: str) -> None:
    """Add a hint to an error before any call if the program is in another language."""
    if error is None or getattr(error, "calls", ()):
        return
    is_syntax = isinstance(error, CodeModeSyntaxError)
    hint = make_language_hint_for_error("SyntaxError" if is_syntax else str(error.details.get("name")), code)
    if hint is None:
        return
    error.details["hint"] = hint
    if is_syntax:
        problems = list_or_empty(error.details.get("problems"))
        error.details["problems"] = [{**mapping_or_empty(problem), "hint": hint} for problem in problems]


# Diagnostics contain no stacks and no paths or secrets of the host.

_MAX_LISTED_NAMES = 5
_MAX_ERROR_CHARACTERS = 1_000  # of a message followed by calls
_ASSIGN_RESULT_HINT = "Assign its result to globalThis.__codemode_result__, which is undefined."
_NAMES_IN_PROGRAMS = {IMPORT_SERVER: "import()"}
_MISMATCH_HINT = "The call was made. Read the value as it is; do not rely on the named fields."


def build_diagnostics(outcome: RunOutcome, policy: ExecutionPolicy) -> list[Diagnostic]:
    """Return the diagnostics of a run."""
    diagnostics = (
        []
        if outcome.error is None
        else diagnose_error(outcome.error, policy, outcome.trace and outcome.trace.duration_ms)
    )
    if outcome.warnings:
        diagnostics += [create_diagnostic("info", "PROGRAM_REPAIRED", note) for note in outcome.warnings]
    if outcome.returned_nothing:
        diagnostics.append(
            create_diagnostic(
                "info",
                "NO_RESULT",
                describe_missing_result(
                    outcome, "", _ASSIGN_RESULT_HINT, return_keyword="export default", shows_console=False
                ),
            )
        )
    if outcome.output_warnings:
        diagnostics += [
            create_diagnostic("warning", "OUTPUT_MISMATCH", warning, hint=_MISMATCH_HINT)
            for warning in outcome.output_warnings
        ]
    if outcome.abandoned:
        names = [_NAMES_IN_PROGRAMS.get(call["name"], call["name"]) for call in outcome.abandoned]
        diagnostics.append(_diagnose_unawaited_calls(names, describe_calls(outcome.unhandled_failures)))
    return diagnostics


def redact_diagnostics(diagnostics: Sequence[Diagnostic], secrets: tuple[str, ...]) -> list[Diagnostic]:
    """Return diagnostics with the host's secrets removed."""
    return [_redact_diagnostic(item, secrets) for item in diagnostics] if secrets else list(diagnostics)


def diagnose_error(error: CodeModeError, policy: ExecutionPolicy, ran_ms: float | None = None) -> list[Diagnostic]:
    """Return the diagnostics of an error and of the program's calls."""
    return _add_call_outcomes(_diagnose_error_without_listing_calls(error, policy, ran_ms), error)


def _diagnose_error_without_listing_calls(
    error: CodeModeError, policy: ExecutionPolicy, ran_ms: float | None
) -> list[Diagnostic]:
    # Its class does not matter: a call failed with it.
    kind = "error" if "call" in error.details else find_nearest_error_kind(MODULE_WORDING, error)
    if kind in ("error", "call_value"):
        return [_diagnose_uncaught(error, policy)]
    if kind == "syntax":
        return [_diagnose_syntax_problem(problem) for problem in list_or_empty(error.details.get("problems"))] or [
            _diagnose_syntax_problem({})
        ]
    if kind == "value":
        name, exception_message = string_or_empty(error.details.get("name")), error.message.rpartition(": ")[2]
        if (exhaustion := _diagnose_exhaustion(error, name, exception_message, policy, None)) is not None:
            return [exhaustion]
    limit, maximum = str(error.details.get("limit")), error.details.get("max")
    message = format_phrase_message(
        MODULE_WORDING[kind],
        error,
        name=SHOWN_NAMES.get(limit, limit),
        next=maximum + 1 if type(maximum) is int else "more",
        used="" if ran_ms is None else f", and it had run for {round(ran_ms)} ms",
    )
    is_placed = isinstance(error, CodeModeBridgeLimitError | CodeModeIllegalAccessError)
    result = _create_diagnostic_of_kind(kind, message, format_position(error.details) if is_placed else None)
    if kind == "aborted" and may_have_side_effects(error.calls):
        result["hint"] = "Ask before you continue, and skip the calls that are done."
    return [result]


def _create_diagnostic_of_kind(kind: str, message: str, path: str | None) -> Diagnostic:
    phrases = MODULE_WORDING[kind]
    return create_diagnostic(
        "error", phrases.code, message, hint=phrases.hint, path=path, error_class=phrases.error_class
    )


def _diagnose_exhaustion(
    error: CodeModeError, name: str, message: str, policy: ExecutionPolicy, path: str | None
) -> Diagnostic | None:
    """Return the diagnostic for an engine error of memory or stack, or None."""
    kind = find_exhausted_resource_kind(name, message)
    if kind is None:
        return None
    maximum = policy.memory_limit_bytes if kind == "out_of_memory" else policy.max_stack_size_bytes
    or_null = " (or threw null)" if "threw null" in message else ""
    return _create_diagnostic_of_kind(
        kind, format_phrase_message(MODULE_WORDING[kind], error, most=maximum, or_null=or_null), path
    )


def _diagnose_syntax_problem(value: Any) -> Diagnostic:
    problem, phrases = mapping_or_empty(value), MODULE_WORDING["syntax"]
    message = string_or_empty(problem.get("message")) or phrases.message
    return create_diagnostic(
        "error",
        string_or_empty(problem.get("code")) or phrases.code,
        message,
        hint=string_or_empty(problem.get("hint")) or find_syntax_hint(message),
        path=format_position(problem),
        error_class=string_or_empty(problem.get("error_class")),
    )


def _diagnose_uncaught(error: CodeModeError, policy: ExecutionPolicy) -> Diagnostic:
    details, call = error.details, mapping_or_empty(error.details.get("call"))
    fields = call or _get_error_fields(details)
    error_class = string_or_empty(fields.get("class"))
    error_class = error_class if error_class in CLASSES else ""
    name = error_class or string_or_empty(details.get("name"))
    message = string_or_empty(fields.get("message")) or error.message
    position = format_position(details)
    if not error_class and (exhaustion := _diagnose_exhaustion(error, name, message, policy, position)) is not None:
        return exhaustion
    if error_class == LIMIT:
        result = _create_diagnostic_of_kind("max_ledger_bytes", message, position)
        return {**result, "hint": string_or_empty(fields.get("hint")) or result.get("hint", "")}
    is_import = string_or_empty(fields.get("code")) == IMPORT_FAILURE and bool(error_class)
    saved_place = find_saved_program_location(details)
    default_hint = find_error_hint(name, message) if saved_place is None else saved_place.hint
    return create_diagnostic(
        "error",
        IMPORT_FAILURE if is_import else MODULE_WORDING["error"].code,
        (f"{name}: {message}" if name else message) + ("" if saved_place is None else f" ({saved_place})"),
        hint=string_or_empty(fields.get("hint")) or string_or_empty(details.get("hint")) or default_hint,
        path=string_or_empty(fields.get("path")) or position,
        error_class=error_class,
    )


def _get_error_fields(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the public fields of one of our errors that the program has thrown."""
    error_class, fields = details.get("error_class"), details.get("fields")
    return {**fields, "class": error_class} if is_object(fields) else {"class": error_class}


def _add_call_outcomes(diagnostics: list[Diagnostic], error: CodeModeError) -> list[Diagnostic]:
    """Add the calls of the program to the first diagnostic, and a diagnostic of calls with unknown outcome."""
    recovery = error.recovery
    requested_names = None if recovery is None else [request.tool_name for request in recovery.requests]
    unsettled_calls = [call for call in error.calls if call["status"] == "unknown" and call["is_started"]]
    cut_off = [
        unsettled_call
        for unsettled_call in unsettled_calls
        if not unsettled_call.get("reads_only")
        and (requested_names is None or unsettled_call["name"] in requested_names)
    ]
    last_call = mapping_or_empty(error.details.get("call"))
    last_call_name = f"{last_call.get('serverId')}.{last_call.get('toolName')}"
    if lines := describe_calls(
        call for call in exclude_last_failed_call(error.calls, last_call_name) if call not in unsettled_calls
    ):
        diagnostics[0]["message"] = "\n".join([clip_text(diagnostics[0]["message"], _MAX_ERROR_CHARACTERS), *lines])
    if cut_off:
        hint = "Find out what happened before calling again."
        diagnostics.append(create_diagnostic("error", "OUTCOME_UNKNOWN", "\n".join(describe_calls(cut_off)), hint=hint))
    return diagnostics


def _diagnose_unawaited_calls(names: list[str], failure_lines: list[str]) -> Diagnostic:
    message = "\n".join([f"{NOT_AWAITED}: {_join_names(names)}", *failure_lines])
    return create_diagnostic("warning", "CALL_NOT_AWAITED", message, hint=f"{AWAIT_HINT}.")


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED_NAMES} more" if len(names) > _MAX_LISTED_NAMES else ""
    return ", ".join(name[:100] for name in names[:_MAX_LISTED_NAMES]) + more


def _redact_diagnostic(item: Diagnostic, secrets: tuple[str, ...]) -> Diagnostic:
    redacted: Diagnostic = {**item, "message": redact(item["message"], secrets)}
    if "hint" in item:
        redacted["hint"] = redact(item["hint"], secrets)
    if "path" in item:
        redacted["path"] = redact(item["path"], secrets)
    return redacted


_LEVELS = {"debug": "debug", "warn": "warn", "error": "error"}


def build_response(
    outcome: RunOutcome, diagnostics: Sequence[Diagnostic], declarations: str = "", began_ms: float = 0.0
) -> RunResponse:
    """Return the response to a request whose program started. It has no result after an error.

    ``began_ms``: when the tools were listed, if they had to be.
    """
    error = outcome.error
    response = RunResponse(
        logs=_build_logs(outcome, began_ms) if outcome.console else [],
        result=outcome.value if error is None else None,
        diagnostics=sort_and_limit_diagnostics(diagnostics) if diagnostics else [],
    )
    if calls := [_build_traced_call(call) for call in outcome.ended_calls if call.entry.kind == "tool"]:
        response["toolTrace"] = calls
    if declarations:
        response["declarations"] = declarations
    response.set_trace(get_stored_value(outcome, "trace"))
    if error is not None:
        response.exception, response.recovery = error, error.recovery
    return response


def _build_logs(outcome: RunOutcome, started_ms: float) -> list[dict[str, Any]]:
    if outcome.began_at_ms is not None:
        started_ms = outcome.began_at_ms
    elif outcome.trace is not None:
        started_ms = max(started_ms, outcome.trace.started_at_ms)
    return [_build_log_line(line, started_ms) for line in outcome.console]


def _build_log_line(line: ConsoleEvent, started_ms: float) -> dict[str, Any]:
    time_ms = max(round(line.written_at_ms - started_ms), 0)
    return {"level": _LEVELS.get(line.level, "log"), "message": line.text, "timeMs": time_ms}


def _build_traced_call(call: CallRecord) -> dict[str, Any]:
    """Return a call without its input and result."""
    path, _, tool_name = call.entry.name.partition(".")
    is_ok = call.status == "fulfilled"
    fields: dict[str, Any] = {
        "serverId": path,
        "toolName": tool_name,
        "durationMs": max(round(call.duration_ms), 0),
        "ok": is_ok,
    }
    return fields if is_ok else {**fields, "error": _format_call_failure(call)}


def _format_call_failure(call: CallRecord) -> str:
    if call.status == "aborted":
        return "ToolCallError OUTCOME_UNKNOWN"
    error_fields = read_guest_error_fields(call.outcome) if isinstance(call.outcome, Rejected) else {}
    if error_fields.get("name") in CLASSES:
        return f"{error_fields['name']} {error_fields.get('code')}"
    if isinstance(call.error, CodeModeError):
        return " ".join(get_class_and_code(call.error, is_raised=False))
    return "ToolCallError WAITING" if call.status == "interrupted" else "ToolCallError TOOL_FAILED"
