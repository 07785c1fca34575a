"""Errors and results of programs as a model reads them: classes, codes, logs, calls and value."""

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
    drop_last_failure,
    find_exhausted_kind,
    find_nearest_kind,
    find_saved_place,
    format_message,
    has_done,
    no_result_text,
    syntax_hint,
    thrown_hint,
)
from ...observe.call_events import CallRecord, error_as_read
from ...profile import Words
from ...protocol.ledger import Rejected
from ...source.program_input import failed_language_hint
from ...trace.failures import message_of
from ...trace.late_values import held
from ...trace.public_message import public_message
from ...trace.visible_text import clipped
from .catalog import IMPORT_SERVER
from .module_tools import ModuleTool, ServerTool, example_of, mismatch
from .options import SHOWN_NAMES
from .response import MAX_MESSAGE_CHARACTERS, Diagnostic, RunResponse, diagnostic, ordered, place_of

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome
    from ...options.parts import ExecutionPolicy
    from ...trace.events import ConsoleEvent


if TYPE_CHECKING:
    pass


# What a server says of its own failure is shown, bounded and without the host's secrets. What the host raised is shown
# without paths and stacks.

_REMOVED = "[secret]"
_NO_TEXT = "the call failed"
_NOBODY = "this call needs an approval, and nobody has decided about it"
_READ_CHARACTERS = 1 << 20
_MAX_CODE_CHARACTERS = 100


def words_of(find: Callable[[str], ModuleTool | None], secrets: tuple[str, ...]) -> Words:
    """Return what words errors. ``find`` gives a tool by its qualified name."""

    def words(error: CodeModeError, kind: str, name: str, is_raised: bool) -> Mapping[str, Any]:
        path, _, tool_name = name.partition(".") if kind == "tool" else ("", "", name)
        error_class, code, hint = _kind_of(error, is_raised=is_raised)
        fields: dict[str, Any] = {
            "class": error_class,
            "code": code,
            "message": _message(error, secrets, is_raised=is_raised),
            "toolName": tool_name,
        }
        if path:
            fields["serverId"] = path
        if kind == "catalog" and error.reason == "import_failure":
            del fields["toolName"]  # no tool was asked
        asked = error.details if kind == "catalog" and not is_raised else {}
        fields |= _asked_for(asked, error_class)
        if error_class == SCHEMA:
            tool = find(name) if kind == "tool" else None
            fields |= {"exportName": tool_name, **_mismatched(error, tool)}
        own_hint = "" if is_raised else string_or_empty(error.details.get("hint"))
        fields |= _without_secrets_in(fields, secrets)
        return {**fields, "hint": own_hint or _hint(hint, fields)}

    return words


def class_and_code(error: CodeModeError, *, is_raised: bool) -> tuple[str, str]:
    """Return of which class of `@codemode/errors` an error is, and its code."""
    return _kind_of(error, is_raised=is_raised)[:2]


def without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text without what the host has named as secret."""
    if not secrets:
        return text
    is_cut, text = len(text) > _READ_CHARACTERS, text[:_READ_CHARACTERS]
    for secret in secrets:
        text = text.replace(secret, _REMOVED)
    # The end may be the beginning of a secret that was cut through.
    return text[: 1 - max(map(len, secrets)) or None] if is_cut else text


def _kind_of(error: CodeModeError, *, is_raised: bool) -> tuple[str, str, str]:
    if isinstance(error, CodeModeAuthenticationError):
        return AUTHENTICATION, "AUTHENTICATION_REQUIRED", SIGN_IN_HINT
    # What host code has raised has a reason of its own only if this package says so.
    reason = "approval_required" if _is_undecided(error) else "execution" if is_raised else error.reason
    error_class, code, hint = MODULE_CALLS.get(reason, MODULE_CALLS["execution"])
    if code != FAILED:
        return error_class, code, hint
    if error.code in HIDDEN_CODES:
        return error_class, code, HIDDEN_CALL_HINT
    is_own = is_raised and error.code != type(error).default_code
    if not is_own:
        return error_class, code, hint
    return error_class, clipped(error.code, _MAX_CODE_CHARACTERS), RAISED_HINTS.get(error.code, hint)


def _is_undecided(error: CodeModeError) -> bool:
    """Tell whether it is the host's decision about a call that failed, and not the call."""
    return error.code in HIDDEN_CODES and error.details.get("origin") == "decision"


def _message(error: CodeModeError, secrets: tuple[str, ...], *, is_raised: bool) -> str:
    if _is_undecided(error):
        return _NOBODY
    if error.code in HIDDEN_CODES:
        raised = error.__cause__
        return _NO_TEXT if raised is None else public_message(without_secrets(message_of(raised), secrets), _NO_TEXT)
    if error.reason == "approval_required" and not is_raised:
        return _NOBODY  # how approvals are to be set up is the host's to read
    text = without_secrets(error.message, secrets) or _NO_TEXT
    return clipped(text, MAX_MESSAGE_CHARACTERS)


def _mismatched(error: CodeModeError, tool: ModuleTool | None) -> dict[str, Any]:
    details = error.details
    schema = None if tool is None else tool.tool.input_json_schema
    problem = next(iter(list_or_empty(details.get("problems"))), {"message": error.message})
    found: dict[str, Any] = {**mismatch(problem, schema, string_or_empty(details.get("received")) or None)}
    for field, said in (("path", "pointer"), ("expected", "expected")):  # as discovery has them, of its own arguments
        if isinstance(details.get(said), str):
            found[field] = details[said]
    if tool is not None:
        found["exportName"] = tool.export_name
        example = tool.tool.example if isinstance(tool.tool, ServerTool) else example_of(tool.tool)
        if example is not NOT_GIVEN:
            found["example"] = example
    return found


def _asked_for(details: Mapping[str, Any], error_class: str) -> dict[str, str]:
    """Return the server and the tool that a question to discovery was about, where one of them is not there."""
    names = {
        SERVER_NOT_FOUND: {"serverId": "server_id"},
        TOOL_NOT_FOUND: {"serverId": "server_id", "toolName": "tool_name"},
    }
    said = {field: details.get(key) for field, key in names.get(error_class, {}).items()}
    return {field: value for field, value in said.items() if isinstance(value, str)}


def _hint(hint: str, fields: Mapping[str, Any]) -> str:
    where = f"the value at {fields['path']}" if fields.get("path") else "the input"
    said = {"where": where, "expected": fields.get("expected"), "server": fields.get("serverId", "the server")}
    return hint.format_map(said)


def _without_secrets_in(fields: Mapping[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    names = ("code", "path", "expected", "received")
    return {name: without_secrets(str(fields[name]), secrets) for name in names if name in fields}


def say_other_language(error: CodeModeError | None, code: str) -> None:
    """Let an error before any call say what to do about a text in another language."""
    if error is None or getattr(error, "calls", ()):
        return
    is_syntax = isinstance(error, CodeModeSyntaxError)
    hint = failed_language_hint("SyntaxError" if is_syntax else str(error.details.get("name")), code)
    if hint is None:
        return
    error.details["hint"] = hint
    if is_syntax:
        problems = list_or_empty(error.details.get("problems"))
        error.details["problems"] = [{**mapping_or_empty(one), "hint": hint} for one in problems]


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
    saved = find_saved_place(details)
    own_hint = thrown_hint(name, message) if saved is None else saved.hint
    return diagnostic(
        "error",
        IMPORT_FAILURE if is_import else MODULE_WORDING["error"].code,
        (f"{name}: {message}" if name else message) + ("" if saved is None else f" ({saved})"),
        hint=string_or_empty(fields.get("hint")) or string_or_empty(details.get("hint")) or own_hint,
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
