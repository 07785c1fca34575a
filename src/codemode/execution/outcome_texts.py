"""Describe failures and results of programs for models, with one table per surface."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..data.narrowing import list_or_empty, mapping_or_empty
from ..errors import (
    CALL_TIMEOUT,
    HOST_FETCH_ERROR,
    HOST_TOOL_ERROR,
    CallSummary,
    CodeModeAbortedError,
    CodeModeAuthenticationError,
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeDetachedBridgeRequestError,
    CodeModeError,
    CodeModeFetchError,
    CodeModeIllegalAccessError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeSourceTooLargeError,
    CodeModeSyntaxError,
    CodeModeTimeoutError,
    CodeModeToolApprovalDeniedError,
    CodeModeToolApprovalRequiredError,
    CodeModeToolError,
    CodeModeWorkerError,
    to_guest_error_fields,
)
from ..protocol.call_status import (
    AWAIT_HINT,
    ERROR_STATUSES,
    NOT_AWAITED,
    format_detached_calls_message,
    is_noncatalog_call_that_may_have_run,
)
from ..source.program_input import make_language_hint_for_error
from ..trace.visible_text import clip_text, escape_invisible
from .large_results import escape_and_shorten_console, suggest_awaiting_last_call

if TYPE_CHECKING:
    from .outcome import RunOutcome


_DEADLOCK = "CODE_MODE_DEADLOCK"
# Each kind of error has a name. A surface words the kinds that it distinguishes, else a broader kind.

_KINDS_BY_CLASS: tuple[tuple[type[CodeModeError], str], ...] = (
    (CodeModeSyntaxError, "syntax"),
    (CodeModeIllegalAccessError, "illegal_access"),
    (CodeModeSourceTooLargeError, "source_too_large"),
    (CodeModeTimeoutError, "timeout"),
    (CodeModeAbortedError, "aborted"),
    (CodeModeConcurrencyError, "busy"),
    (CodeModeSerializationError, "value"),
    (CodeModeBridgeLimitError, "limit"),
    (CodeModeDetachedBridgeRequestError, "detached"),
    (CodeModeProtocolError, "protocol"),
    (CodeModeToolApprovalDeniedError, "denied"),
    (CodeModeToolApprovalRequiredError, "unapproved"),
    (CodeModeAuthenticationError, "sign_in"),
    (CodeModeToolError, "tool"),
    (CodeModeFetchError, "fetch"),
    (CodeModeWorkerError, "worker"),
)
_BROADER = {
    **dict.fromkeys(("held", "call_timeout"), "timeout"),
    "claim_lost": "aborted",
    **dict.fromkeys(("result_too_large", "call_value"), "value"),
    "call_value_too_large": "call_value",
    **dict.fromkeys(("max_in_flight_bridge_requests", "max_bridge_requests", "max_catalog_requests"), "limit"),
    **dict.fromkeys(("max_ledger_bytes", "max_timers"), "limit"),
    **dict.fromkeys(("continuation", "journal", "malformed_decision"), "protocol"),
    **dict.fromkeys(("undecided", "pipeline_failed", "denied", "unapproved", "sign_in", "tool_output"), "tool"),
    **dict.fromkeys(("tool_refused", "tool_failed", "slow_tool"), "tool"),
    "fetch_failed": "fetch",
    "worker_ended": "worker",
}
_TOOL_CODES = {HOST_TOOL_ERROR: "tool_failed", CALL_TIMEOUT: "slow_tool"}
_BY_CODE = {
    ("timeout", CALL_TIMEOUT): "call_timeout",
    ("fetch", HOST_FETCH_ERROR): "fetch_failed",
    ("error", _DEADLOCK): "deadlock",
}
_BY_ORIGIN = {
    ("aborted", "continuation"): "claim_lost",
    ("protocol", "continuation"): "continuation",
    ("protocol", "journal"): "journal",
    ("protocol", "decision"): "malformed_decision",
    ("worker", "worker"): "worker_ended",
}
_HOST_DETAILS = {"schema", "problems", "available_tools"}  # of errors that no tool raised


def find_error_kind(error: CodeModeError) -> str:
    """Return the most specific kind of an error that ended a program."""
    details, code, origin = error.details, error.code, error.details.get("origin")
    kind = next((kind for known, kind in _KINDS_BY_CLASS if isinstance(error, known)), "error")
    if isinstance(error, CodeModeToolError):
        if origin == "decision":
            return "undecided"
        if origin == "pipeline":
            return "pipeline_failed"
        if details.get("schema") == "output":
            return "tool_output"
        is_raised = kind == "tool" and error.reason == "execution" and not details.keys() & _HOST_DETAILS
        return _TOOL_CODES.get(code, "tool_refused" if is_raised and type(error) is CodeModeToolError else kind)
    if kind == "timeout" and "late_ms" in details:
        return "held"
    if kind == "value":
        is_large = "max_bytes" in details
        if "kind" in details:  # of a call, not of the program's result
            return "call_value_too_large" if is_large else "call_value"
        return "result_too_large" if is_large else kind
    if kind == "limit":
        return str(details.get("limit")) if details.get("limit") in _BROADER else kind
    if kind == "error" and code != _DEADLOCK and details.get("name") == "ReferenceError":
        return "undefined_name"
    return _BY_ORIGIN.get((kind, str(origin))) or _BY_CODE.get((kind, code), kind)


def find_nearest_error_kind(table: Mapping[str, Any], error: CodeModeError) -> str:
    """Return the nearest kind of an error that a table has; every table has ``error``."""
    kind = find_error_kind(error)
    while kind not in table:
        kind = _BROADER.get(kind, "error")
    return kind


# All surfaces use these lines, so that a model repeats no finished call and has its results.

MAX_DESCRIPTION_CHARACTERS = 3000
# The beginning of each kind of line and its share of the space.
_CALL_GROUPS = (
    ("Already done, do not repeat: ", 0.4),
    ("May or may not have happened, find out before repeating: ", 0.15),
    ("Waits for a person, not done: ", 0.1),
    ("Denied, not done: ", 0.1),
    ("Failed: ", 0.15),
    ("Done, only read: ", 0.4),
    ("Cut off, only reads: ", 0.1),
)
_DONE, _UNKNOWN, _WAITING, _DENIED, _FAILED, _READ, _READING = range(len(_CALL_GROUPS))
# The group of a call by its status, and that of a read-only call.
_GROUPS_BY_STATUS = {
    ERROR_STATUSES.fulfilled: (_DONE, _READ),
    ERROR_STATUSES.open: (_UNKNOWN, _READING),
    ERROR_STATUSES.waiting: (_WAITING, _WAITING),
    "denied": (_DENIED, _DENIED),
    ERROR_STATUSES.rejected: (_FAILED, _FAILED),
}
_TEXT_LENGTHS = (1000, 500, 200, 80, 30)  # of each text of a call: the largest with which all calls fit
_MAX_NAME_CHARACTERS = 120
_MAX_LISTED_NAMES = 2
_MAX_SAVED_RESULT_CHARACTERS = 200  # of a result that the next program can read in full
_LEFT_OUT_CHARACTERS = 80  # for the note about omitted calls


def describe_calls(calls: Iterable[CallSummary], max_characters: int = MAX_DESCRIPTION_CHARACTERS) -> list[str]:
    """Return one line for each status of calls, at most ``max_characters`` in all; [] without calls.

    Shorten inputs, results and messages, and leave out and count calls, where there is no room for them.
    """
    groups: list[list[CallSummary]] = [[] for _ in _CALL_GROUPS]
    for call in calls:
        if (
            is_noncatalog_call_that_may_have_run(call)
            and (group := _GROUPS_BY_STATUS.get(call.get("status", ""))) is not None
        ):
            groups[group[call.get("reads_only") is True]].append(call)
    filled_groups = [
        (beginning, share, group) for (beginning, share), group in zip(_CALL_GROUPS, groups, strict=True) if group
    ]
    scale = max_characters / max(1.0, sum(share for _, share, _ in filled_groups))
    return [
        clip_text(beginning + _format_calls(group, int(share * scale) - len(beginning)), int(share * scale))
        for beginning, share, group in filled_groups
    ]


def exclude_last_failed_call(calls: Sequence[CallSummary], name: str, *, is_late: bool = False) -> list[CallSummary]:
    """Return the calls without the last failed or late one of this name, which the error describes."""
    statuses = (ERROR_STATUSES.late,) if is_late else (ERROR_STATUSES.rejected, "denied")
    failed = [index for index, call in enumerate(calls) if call["name"] == name and call["status"] in statuses]
    return [call for index, call in enumerate(calls) if index != max(failed, default=None)]


def may_have_side_effects(calls: Iterable[CallSummary]) -> bool:
    """Return True if a finished or unknown call may have changed something: the program must not simply run again."""
    statuses = (ERROR_STATUSES.fulfilled, ERROR_STATUSES.open)
    return any(
        call.get("status") in statuses
        and is_noncatalog_call_that_may_have_run(call)
        and call.get("reads_only") is not True
        for call in calls
    )


def _format_calls(calls: Sequence[CallSummary], max_characters: int) -> str:
    """Return calls with as much text as fits, else the first calls and the number of further ones."""
    texts: list[str] = []
    for characters in _TEXT_LENGTHS:
        texts = [_describe_call(call, characters) for call in calls]
        if sum(len(text) + 2 for text in texts) <= max_characters:
            return "; ".join(texts)
    max_characters -= _LEFT_OUT_CHARACTERS
    count = used = 0
    for text in texts:
        used += len(text) + 2
        if count and used > max_characters:
            break
        count += 1
    names = list(dict.fromkeys(clip_text(call["name"], _MAX_NAME_CHARACTERS) for call in calls[count:]))
    others = ", ".join(names[:_MAX_LISTED_NAMES]) + (", ..." if len(names) > _MAX_LISTED_NAMES else "")
    return f"{'; '.join(texts[:count])} and {len(calls) - count} more ({escape_invisible(others)})"


def _describe_call(call: CallSummary, characters: int) -> str:
    """Return ``name(input) -> result`` or ``name(input): message``, each text of at most ``characters``."""
    text = clip_text(call["name"], _MAX_NAME_CHARACTERS)
    if (call_input := call.get("input")) is not None:
        text += f"({clip_text(call_input, characters)})"
    if (result := call.get("result")) is not None:
        key = call.get("kept")
        text += f" -> {clip_text(result, characters if key is None else min(characters, _MAX_SAVED_RESULT_CHARACTERS))}"
        text += "" if key is None else f' (the whole: await state.get("{key}"))'
    elif (message := call.get("error")) is not None:
        text += f": {clip_text(' '.join(message.split()), characters)}"
    return escape_invisible(text)


_MAX_CALLS_CHARACTERS = 1500


def describe_unhandled_failures(calls: Iterable[CallSummary]) -> list[str]:
    """Return the warning about failed calls whose errors a successful program did not handle; [] without calls."""
    lines = describe_calls(calls, _MAX_CALLS_CHARACTERS)
    return ["\n".join([f"{NOT_AWAITED}.", *lines, f"{AWAIT_HINT}."])] if lines else []


_KEPT_CONTROLS = "\n\t"
_RETURN_HINT = "Only what it returns is its result: end it with `return`."
_UNDEFINED_RESULT = "The program returned nothing: its result is undefined, like that of a tool without output."
_ENDS_WITH_RETURN = re.compile(r"(?:^|[;{}\n])[ \t]*return\b[^;\n]*;?\s*\Z")
_LAST_CHARACTERS = 500
_UNCALLED_FUNCTION = re.compile(r"the function ([\w$]+), which nothing has called")  # as the guest runtime reports it
_CALL_FUNCTION = "It declares the function `{name}` and never calls it: end it with `{keyword} await {name}(...)`."
_UNAWAITED_MAIN = "It ended before the function that it calls last: write {call} instead."


def describe_missing_result(
    outcome: RunOutcome,
    js: str,
    return_hint: str = _RETURN_HINT,
    *,
    return_keyword: str = "return",
    shows_console: bool = True,
) -> str:
    """Return the model's text about a program that returned nothing, so that it need not run again.

    It has the value of the last statement, the calls, and with ``shows_console`` the printed lines. ``return_hint``
    says how a program returns a result, and ``return_keyword`` begins that statement. For null it has only the printed
    lines; for any other result it is "".
    """
    console = escape_and_shorten_console(outcome.console) if shows_console else ""
    console_lines = [f"It had printed:\n{console}"] if console else []
    if not outcome.returned_nothing:
        return f"The program returned null. {console_lines[0]}" if console and outcome.value is None else ""
    suggestion, last_value = suggest_awaiting_last_call(js), outcome.last_value
    if (uncalled := _UNCALLED_FUNCTION.fullmatch(last_value)) is not None:
        lines = [f"The program returned nothing. {_CALL_FUNCTION.format(name=uncalled[1], keyword=return_keyword)}"]
        last_value = ""
    elif not last_value and _ENDS_WITH_RETURN.search(js[-_LAST_CHARACTERS:]) is not None:
        lines = [_UNDEFINED_RESULT]
    else:
        hint = return_hint if suggestion is None else _UNAWAITED_MAIN.format(call=suggestion)
        lines = [f"The program returned nothing. {hint}"]
    calls = outcome.calls
    if last_value:
        lines.append(f"Its last statement has this value: {escape_invisible(last_value, keep=_KEPT_CONTROLS)}")
    if last_value or outcome.console:  # which contain the results of read-only calls
        calls = [call for call in calls if call.get("reads_only") is not True]
    return "\n".join([*lines, *describe_calls(calls, _MAX_CALLS_CHARACTERS), *console_lines])


# Contains only what the program could have seen: no host paths, no texts of host exceptions.

MAX_FAILURE_CHARACTERS = 6000
_MAX_MESSAGE_CHARACTERS = 1200
_MAX_LINE_CHARACTERS = 160
_MAX_LOCATIONS = 4
_MAX_FAILURE_CALLS_CHARACTERS = 3200
_MAX_ENDED_CHARACTERS = 2000

_SEND_AGAIN_PHRASE = "send the whole program again"
_SEND_REMAINING_PHRASE = "send it without the calls that are done: use their results"
_SLOW_CALL = "The call may still have been carried out: check before you repeat it, and request less from a slow tool."
_REFUSED_HINT = "The tool says what is wrong. Change the call accordingly, or do without it."
_UNREADABLE_OUTPUT = (
    "This is not the program's fault. Do without this result, or ask for less if the call may be repeated."
)
_HINTS = {
    "syntax": "Nothing of the program ran. Correct every problem above and send the whole program again.",
    "illegal_access": "Nothing of the program ran. Do without what is named above and send it again.",
    "source_too_large": "Nothing ran. Send a shorter program; fetch data with tools instead of writing it in.",
    "timeout": "Do less in one program: fewer or parallel calls (Promise.all), no loop without an end.",
    "held": "This may not be the program's fault: the host was busy with something else. Try fewer calls, or say so.",
    "call_timeout": _SLOW_CALL,
    "aborted": "The run was stopped from outside. Ask before trying again.",
    "busy": "The program may be right: try the same one again later.",
    "value": "Only JSON crosses: return and pass plain objects, arrays, text, numbers.",
    "result_too_large": "Return less: filter, slice or aggregate in the program.",
    "call_value_too_large": "Send less in one call, or ask the tool for less: split the work or use its limits.",
    "limit": "Make fewer calls, or fewer at once: work in batches and await each batch.",
    "detached": "Await every call before the program ends, for instance with Promise.all.",
    "protocol": "This is not the program's fault. Say so, and do not repeat what may be done.",
    "denied": "A person refused this call. Do not try it again; say so, or find another way.",
    "unapproved": "This call needs a person's approval and none can be given now. Do without it.",
    "undecided": "This is not the program's fault: the host could not decide about the call. Do without it.",
    "pipeline_failed": "This is not the program's fault: the host's own code around the call failed. Skip this call.",
    "sign_in": "A user must sign in before this tool can be called. Say so, or do without it.",
    "tool": "Check the tool's name and the types of its input; catch errors of calls that may fail.",
    "tool_failed": "The tool itself failed. Try other input, or do without it.",
    "tool_refused": _REFUSED_HINT,
    "tool_output": "This is not the program's fault: the tool broke its own output schema. Do without it.",
    "slow_tool": _SLOW_CALL,
    "fetch": "Fetch only what the description of fetch allows.",
    "fetch_failed": "The server did not answer as expected, or could not be reached. Do without it, or try later.",
    "worker": "The sandbox failed; a program that uses less memory may work.",
    "undefined_name": "A program has the language itself and what the description names, and calls a tool on `tools`."
    f" Correct it and {_SEND_AGAIN_PHRASE}.",
    "error": f"Correct the program at that place and {_SEND_AGAIN_PHRASE}.",
}
# A variable assigned from a call without `await`; names taken from `tools` or imported.
_ASSIGNED_CALL = re.compile(
    r"\b(?:const|let|var)\s{1,9}(\w{1,60})\s{0,9}(?::[^=\n]{1,80})?=\s{0,9}([\w.]{1,120})(?:<[^()]{1,200}>)?\("
)
_TAKEN_NAMES = re.compile(
    r"\{([^{}]{1,300})\}\s{0,9}=\s{0,9}(?:globalThis\.)?tools\b|\bimport\s{0,9}\{([^{}]{1,300})\}"
)
_MAX_READ_CHARACTERS = 20_000
_SAVED_FRAME = re.compile(r"\(saved/([A-Za-z_]\w{0,63})\.js:(\d{1,6}):(\d{1,6})\)", re.ASCII)
_MAX_CHAIN_LINES = 5
_BEFORE_ANY_CALL = (CodeModeSyntaxError, CodeModeIllegalAccessError, CodeModeSourceTooLargeError)
_CANNOT_CONTINUE_HINT = "The program may be right, and could not continue now. Say so, and do not send it again."
_PRINTED_HEADING = "It had printed:"
_NO_CALL_MADE = "No call was made."
_HIDDEN_MESSAGES = {
    CodeModeWorkerError: "the sandbox ended without a result",
    CodeModeProtocolError: "the run broke a rule of the sandbox and was stopped",
}


def failure_text(error: BaseException, js: str | None, hint: str = "") -> str:
    """Return the model's text about an error of its program: at most 6,000 characters of plain text.

    It has name and message, the position with its source line, finished and unknown calls with inputs and results,
    and one hint; then at most 4,000 characters of printed lines. ``js`` is the program as the model wrote it; None
    if it sent none. ``hint`` replaces the hint of the error.
    """
    return describe_failure_without_console(error, js, hint) + _format_printed_lines(error)


def describe_failure_without_console(error: BaseException, js: str | None, hint: str = "") -> str:
    """Return the same text without printed lines."""
    headline = escape_invisible(clip_text(_make_headline(error), _MAX_MESSAGE_CHARACTERS), keep=_KEPT_CONTROLS)
    hint = f"Hint: {hint}" if hint else _find_failure_hint(error, js or "")
    details = escape_invisible("\n".join([headline, *_iter_locations(error, js or "")]), keep=_KEPT_CONTROLS)
    details = clip_text(details, MAX_FAILURE_CHARACTERS - len(hint) - _MAX_FAILURE_CALLS_CHARACTERS)
    return "\n".join([details, *_describe_calls_made(error), hint])[:MAX_FAILURE_CHARACTERS]


def _format_printed_lines(error: BaseException) -> str:
    trace = error.trace if isinstance(error, CodeModeError) else None
    text = "" if trace is None else escape_and_shorten_console(trace.console)
    return f"\n{_PRINTED_HEADING}\n{text}" if text else ""


def describe_stopped_program(ending: str, error: BaseException | None) -> str:
    """Return the model's text about a program that was ended from outside.

    ``ending`` says what happened; then follow finished and unknown calls, at most 2,000 characters in all.
    """
    ending = clip_text(escape_invisible(ending, keep=_KEPT_CONTROLS), _MAX_ENDED_CHARACTERS)
    parts = [ending] if error is None else [ending, *_describe_calls_made(error, _MAX_ENDED_CHARACTERS - len(ending))]
    return "\n".join(parts)[:_MAX_ENDED_CHARACTERS]


def _make_headline(error: BaseException) -> str:
    if not isinstance(error, CodeModeError):
        return "Error: the program could not be run"
    hidden = next((message for kind, message in _HIDDEN_MESSAGES.items() if isinstance(error, kind)), None)
    if hidden is not None:
        return f"{type(error).__name__}: {_describe_host_error(error) or hidden}"
    name, message, _code = to_guest_error_fields(error)
    tool = error.details.get("tool_name")
    if name == "Error" and isinstance(tool, str):
        ending = ": no decision could be obtained; the call did not run" if _is_decision_failure(error) else " failed"
        displayed_name = tool if ":" in tool else f"tools.{tool}"  # a catalog id is not a member of `tools`
        return f"{type(error).__name__}: {displayed_name}{ending}"
    error_name = error.details.get("name") if type(error) is CodeModeError else None
    return f"{error_name if isinstance(error_name, str) else name}:{_format_error_message(error, message)}"


def _describe_host_error(error: CodeModeError) -> str:
    """Return the public message of a host error; nothing from a worker, which is hostile."""
    if not isinstance(error, CodeModeProtocolError):
        return ""
    if error.details.get("origin") == "continuation":
        return f"the paused program could not resume: {error.message}"
    if _is_decision_failure(error):
        return "the host's approval decision was malformed; the call did not run"
    return ""


def _is_decision_failure(error: BaseException) -> bool:
    return isinstance(error, CodeModeError) and error.details.get("origin") == "decision"


def _format_error_message(error: CodeModeError, message: str) -> str:
    detached_calls = error.details.get("calls") if isinstance(error, CodeModeDetachedBridgeRequestError) else None
    if calls := list_or_empty(detached_calls):
        return " " + format_detached_calls_message([_format_detached_call(mapping_or_empty(call)) for call in calls])
    problems = _get_syntax_problems(error)
    if len(problems) < 2:
        return f" {message}"
    return "".join(
        f"\nline {problem.get('line')}, column {problem.get('column')}: {problem.get('message')}"
        for problem in problems
    )


def _format_detached_call(call: Mapping[str, Any]) -> str:
    name, status = call.get("name"), call.get("status")
    # To correct the program it need not know that a call finished unobserved.
    return str(name) if status == "unobserved" else f"{name} ({status})"


def _get_syntax_problems(error: BaseException) -> list[Mapping[str, Any]]:
    return list_or_empty(error.details.get("problems")) if isinstance(error, CodeModeSyntaxError) else []


def _iter_locations(error: BaseException, js: str) -> Iterator[str]:
    details: dict[str, Any] = error.details if isinstance(error, CodeModeError) else {}
    locations = _get_syntax_problems(error) or [details]
    lines = js.split("\n")
    seen_lines: set[int] = set()
    for location in locations:
        line, column = location.get("line"), location.get("column")
        if type(line) is not int or type(column) is not int or line < 1 or line in seen_lines:
            continue
        if js and line > len(lines):  # of another text
            continue
        seen_lines.add(line)
        # The resuming caller may not have the program; the model has it.
        yield (
            _format_location(lines[line - 1].rstrip("\r"), line, column) if js else f"  at line {line}, column {column}"
        )
        if len(seen_lines) == _MAX_LOCATIONS:
            return
    if not seen_lines and (saved_location := find_saved_program_location(details)):
        yield f"  {saved_location}"


class SavedProgramLocation(NamedTuple):
    """A position in a saved program."""

    name: str
    line: str
    column: str

    def __str__(self) -> str:
        return f"in saved.{self.name}, line {self.line}, column {self.column}"

    @property
    def hint(self) -> str:
        """The hint for an error that is not in the model's own program."""
        return f"Call saved.{self.name} with other input, or do without it."


def find_saved_program_location(details: Mapping[str, Any]) -> SavedProgramLocation | None:
    """Return the position of an error in a saved program, if it is in one."""
    stack = details.get("stack")
    if "line" in details or not isinstance(stack, str):
        return None
    match = _SAVED_FRAME.search(stack[:_MAX_READ_CHARACTERS])
    return None if match is None else SavedProgramLocation(*match.groups())


def _format_location(text: str, line: int, column: int) -> str:
    start = max(0, column - 1 - _MAX_LINE_CHARACTERS // 2)
    displayed = text[start : start + _MAX_LINE_CHARACTERS].replace("\t", " ")
    marked_line = f"  at line {line}, column {column}:\n    {displayed}"
    caret = column - 1 - start
    return (
        f"{marked_line}\n    {' ' * caret}^"
        if 0 <= caret <= len(displayed) and displayed.isprintable()
        else marked_line
    )


def _describe_calls_made(error: BaseException, max_characters: int = _MAX_FAILURE_CALLS_CHARACTERS) -> list[str]:
    """Return the lines about the calls of the program."""
    if lines := describe_calls(getattr(error, "calls", ()), max_characters):
        return lines
    return [
        "Calls made before the pause may be done; do not repeat them."
        if _may_have_unlisted_calls(error)
        else _NO_CALL_MADE
    ]


def _may_have_unlisted_calls(error: BaseException) -> bool:
    """Return True if the program may have made calls that the error does not have."""
    details = error.details if isinstance(error, CodeModeError) else {}
    return details.get("origin") == "continuation" or details.get("is_resumed") is True


def _find_failure_hint(error: BaseException, js: str) -> str:
    if (
        isinstance(error, CodeModeDetachedBridgeRequestError)
        and (suggestion := suggest_awaiting_last_call(js)) is not None
    ):
        return f"Hint: The program ended before the function that it calls last: write {suggestion} instead."
    name = error.details.get("name") if isinstance(error, CodeModeError) else None
    is_syntax = isinstance(error, CodeModeSyntaxError)
    is_runtime = type(error) is CodeModeError and not getattr(error, "calls", ())
    if (is_syntax or is_runtime) and (
        other := make_language_hint_for_error("SyntaxError" if is_syntax else str(name), js)
    ):
        return f"Hint: {other}"
    if type(error) is CodeModeError and name == "TypeError" and (unawaited_hint := _find_unawaited_hint(error, js)):
        return f"Hint: {unawaited_hint}"
    hint = (
        _HINTS[find_nearest_error_kind(_HINTS, error)] if isinstance(error, CodeModeError) else "Try a simpler program."
    )
    if (
        type(error) is CodeModeError
        and hint == _HINTS["error"]
        and (saved_location := find_saved_program_location(error.details))
    ):
        hint = saved_location.hint
    if isinstance(error, CodeModeSerializationError) and error.reason == "output":
        hint = _UNREADABLE_OUTPUT
    if getattr(error, "calls", ()) and isinstance(error, _BEFORE_ANY_CALL):
        hint = _REFUSED_HINT  # the error is from a program that a tool ran
    if _may_have_unlisted_calls(error) or may_have_side_effects(getattr(error, "calls", ())):
        hint = (
            _CANNOT_CONTINUE_HINT
            if isinstance(error, CodeModeConcurrencyError)
            else hint.replace(_SEND_AGAIN_PHRASE, _SEND_REMAINING_PHRASE)
        )
    return f"Hint: {hint}"


def _find_unawaited_hint(error: CodeModeError, js: str) -> str:
    """Return a hint if the failed line uses the promise of a call like its result, else ""."""
    line = error.details.get("line")
    lines = js.split("\n")
    if type(line) is not int or not 0 < line <= len(lines):
        return ""
    before = "\n".join(lines[:line])[-_MAX_READ_CHARACTERS:]
    imported_names = {"callTool", *re.findall(r"\w+", " ".join("".join(pair) for pair in _TAKEN_NAMES.findall(before)))}
    first = line - 1
    while first > 0 and line - first < _MAX_CHAIN_LINES and lines[first].lstrip()[:1] in (".", ")"):
        first -= 1  # a chain of calls continues there
    used = set(re.findall(r"\w+", " ".join(lines[first:line])[:_MAX_READ_CHARACTERS]))
    for variable, callee in _ASSIGNED_CALL.findall(before):
        if variable in used and (callee.startswith("tools.") or callee in imported_names):
            return f"`{variable}` is a promise: write `{variable} = await {callee}(...)`, then {_SEND_AGAIN_PHRASE}."
    return ""


# Classes of `@codemode/errors`, codes, messages and hints for programs that are modules.

SCHEMA, TOOL_CALL, LIMIT = "SchemaValidationError", "ToolCallError", "SandboxLimitError"
TOOL_NOT_FOUND, SERVER_NOT_FOUND, AUTHENTICATION = "ToolNotFoundError", "ServerNotFoundError", "AuthenticationError"
BASE = "CodemodeError"
CLASSES = frozenset({BASE, SCHEMA, TOOL_CALL, LIMIT, TOOL_NOT_FOUND, SERVER_NOT_FOUND, AUTHENTICATION})
FAILED, IMPORT_FAILURE = "TOOL_FAILED", "IMPORT_FAILURE"
WITHOUT_SERVER_HINT = "Do without this server, or tell the user."

_LOOK_UP_HINT = "Look the {} up with {} of @codemode/discovery."
MODULE_CALLS: Mapping[str, tuple[str, str, str]] = {
    "validation": (SCHEMA, "VALIDATION", "Change {where}: expected {expected}."),
    "unknown_tool": (TOOL_NOT_FOUND, "TOOL_NOT_FOUND", _LOOK_UP_HINT.format("tool", "searchTools")),
    "unknown_server": (SERVER_NOT_FOUND, "SERVER_NOT_FOUND", _LOOK_UP_HINT.format("server", "listServers")),
    "import_failure": (SERVER_NOT_FOUND, IMPORT_FAILURE, _LOOK_UP_HINT.format("server", "listServers")),
    "limit": (LIMIT, "SANDBOX_LIMIT", "Do less in one program."),
    "timeout": (TOOL_CALL, "TIMEOUT", "Ask the tool for less at once."),
    "approval_denied": (
        TOOL_CALL,
        "APPROVAL_DENIED",
        "Do without this call, and do not try it again: a person denied it.",
    ),
    "approval_required": (TOOL_CALL, "APPROVAL_REQUIRED", "Tell the user that a person must approve this call first."),
    "output": (
        TOOL_CALL,
        "INVALID_OUTPUT",
        "Do without this result: the call was made, and it cannot be read.",
    ),
    "execution": (TOOL_CALL, FAILED, "Change the call as the message says."),
}
RAISED_HINTS: Mapping[str, str] = {
    "OUTCOME_UNKNOWN": "Do not make this call again before it is known whether it has happened: look, or ask the user.",
    "TIMEOUT": "Ask the tool for less at once.",
    "SERVER_LOST": WITHOUT_SERVER_HINT,
    "SERVER_UNAVAILABLE": WITHOUT_SERVER_HINT,
}
HIDDEN_CALL_HINT = "Do without this call, or tell the user that the tool fails."
SIGN_IN_HINT = "Tell the user to sign in to {server}."


class ErrorPhrases(NamedTuple):
    """The words of a surface for one kind of error: code, message with fields in braces, hint and class."""

    code: str
    message: str
    hint: str = ""
    error_class: str = ""


def _make_limit_phrases(message: str, hint: str = "Do less in one program.") -> ErrorPhrases:
    return ErrorPhrases("SANDBOX_LIMIT", message, hint, LIMIT)


_NOT_PROGRAMS_FAULT = "Tell the user: the program is not at fault."
MODULE_WORDING: Mapping[str, ErrorPhrases] = {
    "syntax": ErrorPhrases("SYNTAX_ERROR", "the program is no module"),
    "illegal_access": ErrorPhrases(
        "NOT_ANALYSABLE",
        "the program's imports cannot be analysed, so it did not run",
        "Write the program shorter and simpler.",
    ),
    "source_too_large": _make_limit_phrases(
        "code has {bytes} bytes; at most {max_bytes} are allowed", "Send a shorter program."
    ),
    "timeout": _make_limit_phrases(
        "the program did not end in time: timeoutMs is {timeout_ms}{used}",
        "Do less in one program, or ask for a longer timeoutMs.",
    ),
    "limit": _make_limit_phrases("{name} is {max}, and the program made {next} calls", "Make fewer calls."),
    "max_catalog_requests": _make_limit_phrases(
        "{name} is {max}, and the program made {next} questions to discovery", "Make fewer calls."
    ),
    "max_in_flight_bridge_requests": _make_limit_phrases(
        "{name} is {max}, and the program made {next} calls at once", "Await some calls before making more."
    ),
    "max_ledger_bytes": _make_limit_phrases("inputs and results of calls take more than {max} bytes"),
    "max_timers": _make_limit_phrases("the program set more than {max} timers", "Set fewer timers."),
    "out_of_memory": _make_limit_phrases(
        "the program has used all of its memory{or_null}: maxMemoryBytes is {most}", "Keep less in memory at a time."
    ),
    "out_of_stack": _make_limit_phrases(
        "the program has used all of its call stack of {most} bytes", "Use a loop in place of recursion."
    ),
    "value": ErrorPhrases(
        "RESULT_NOT_JSON",
        "{message}",
        "Assign plain JSON to globalThis.__codemode_result__: objects, arrays, strings, numbers, booleans, null.",
    ),
    "result_too_large": ErrorPhrases(
        "RESULT_TOO_LARGE",
        "the result has {bytes} bytes; maxResultBytes is {max_bytes}",
        "Filter or sum up in the program, and give back less.",
    ),
    "deadlock": ErrorPhrases(
        "DEADLOCK",
        "the program waits for something that cannot happen: no call or timer is left, and nothing else runs",
        "Resolve every promise that the program awaits; one of a callback that finds no memory is not resolved.",
    ),
    "busy": ErrorPhrases("BUSY", "no sandbox was free in time", "Run the same program again later."),
    "aborted": ErrorPhrases("CANCELLED", "the run was cancelled", "Run the program again if it is still wanted."),
    "claim_lost": ErrorPhrases(
        "CANCELLED",
        "this host was suspended, and another one runs the program",
        "Do not run the program again: tell the user, or send the same answers again for its outcome.",
    ),
    **dict.fromkeys(
        ("continuation", "journal"),
        ErrorPhrases(
            "CONTINUATION_REFUSED", "the program does not resume: {message}", "Tell the user: nothing has run here."
        ),
    ),
    "malformed_decision": ErrorPhrases(
        "WORKER_FAILED",
        "the decision about a call could not be read: the call did not run, and the program ended",
        _NOT_PROGRAMS_FAULT,
    ),
    "protocol": ErrorPhrases("WORKER_FAILED", "the sandbox broke a rule and was stopped", _NOT_PROGRAMS_FAULT),
    "worker": ErrorPhrases(
        "WORKER_FAILED", "the sandbox ended without a result", "Run a program that needs less memory."
    ),
    **dict.fromkeys(("call_value", "error"), ErrorPhrases("UNCAUGHT_EXCEPTION", "{message}")),
}


def find_exhausted_resource_kind(name: str, message: str) -> str | None:
    """Return the kind of an engine error about exhausted memory or stack; None for any other."""
    if name == "InternalError" and _OUT_OF_MEMORY in message:
        return "out_of_memory"
    return "out_of_stack" if name in ("RangeError", "InternalError") and message in _OUT_OF_STACK else None


_OUT_OF_MEMORY = "out of memory"
_OUT_OF_STACK = ("Maximum call stack size exceeded", "stack overflow")
_UNDEFINED_NAME = re.compile(r"(?P<name>[\w$]{1,100}) is not defined\Z")
_CORRECT_HINT = "Correct the program at this place and send it whole."
_CATCH_HINT = "Correct the program at this place, or catch the error."
_ASSIGN_RESULT_HINT = "Assign the result to globalThis.__codemode_result__ in place of this."
_IMPORT_HINT = 'Import it, as in: import * as server from "@codemode/servers/<serverId>".'
_NO_NETWORK_HINT = "Call the tools of servers: there is no network."
_NO_EVAL_HINT = "Write the code out: code in strings is never run."
_FOREIGN_GLOBALS = [
    "AbortController", "AbortSignal", "Blob", "Buffer", "Bun", "crypto", "Deno", "document",
    "FormData", "global", "Headers", "Intl", "localStorage", "navigator", "process",
    "Request", "Response", "setImmediate", "window", "__dirname", "__filename",
]  # fmt: skip
_ABSENT_NAME_HINTS = {
    **dict.fromkeys(("fetch", "XMLHttpRequest", "WebSocket", "EventSource", "axios"), _NO_NETWORK_HINT),
    **dict.fromkeys(("module", "exports"), _ASSIGN_RESULT_HINT),
    **dict.fromkeys(_FOREIGN_GLOBALS, "Do without it: this is no Node.js and no browser."),
    "structuredClone": "Copy with JSON.parse(JSON.stringify(value)).",
    "performance": "Use Date.now().",
    **dict.fromkeys(("print", "alert"), "Write console.log(value)."),
    "eval": _NO_EVAL_HINT,
    **dict.fromkeys(("require", "tools", "callTool"), _IMPORT_HINT),
    "setInterval": "Use setTimeout in a loop.",
}
_WRONG_SHAPE_HINT = "Write the value before this place to console.log: it is not what the program expects."
_NOT_A_FUNCTION_HINT = "Check what is called here: it is not a function. Await the result of a tool first."


def find_foreign_name_hint(name: str) -> str | None:
    """Return a hint for a name of another host environment; None for any other name."""
    return _ABSENT_NAME_HINTS.get(name)


def find_syntax_hint(message: str) -> str:
    """Return a hint for a syntax error of the engine."""
    return _ASSIGN_RESULT_HINT if message.startswith("return not in a function") else _CORRECT_HINT


def find_error_hint(name: str, message: str) -> str:
    """Return a hint for an uncaught error of the engine."""
    if name == "ReferenceError" and (missing := _UNDEFINED_NAME.match(message)):
        return _ABSENT_NAME_HINTS.get(
            missing["name"], f"Declare or import {missing['name']}: tools are imported from their servers."
        )
    if name == "EvalError":
        return _NO_EVAL_HINT
    if name == "TypeError" and message.endswith("not a function"):
        return _NOT_A_FUNCTION_HINT
    if name == "TypeError" and message.startswith("cannot read property "):
        return _WRONG_SHAPE_HINT
    return _CATCH_HINT


# The statuses of CodeCall.

CODE_CALL_WORDING: Mapping[str, ErrorPhrases] = {
    "syntax": ErrorPhrases("syntax_error", "{message}"),
    "source_too_large": ErrorPhrases(
        "syntax_error", "the script has {bytes} bytes; at most {max_bytes} bytes are allowed. Send a shorter one"
    ),
    "illegal_access": ErrorPhrases("illegal_access", "{message}"),
    "timeout": ErrorPhrases("timeout", "{message}"),
    "max_bridge_requests": ErrorPhrases("runtime_error", "the script made more calls than maxSteps allows ({max})"),
    "worker": ErrorPhrases(
        "runtime_error", "the sandbox ended without a result: a script that uses less memory may work"
    ),
    "undefined_name": ErrorPhrases(
        "runtime_error",
        "{message}",
        "a script has the language itself and what the description names: it calls a tool with"
        " `await callTool(name, input)`, by the name that search has given",
    ),
    "error": ErrorPhrases("runtime_error", "{message}"),
}


def format_phrase_message(phrases: ErrorPhrases, error: CodeModeError, **fields: Any) -> str:
    """Format the message of a wording with the details of an error and ``fields``."""
    return phrases.message.format_map(_MessageFields({**error.details, "message": error.message, **fields}))


class _MessageFields(dict[str, Any]):
    def __missing__(self, name: str) -> None:
        """Return None for a detail that the error lacks, for example one of another version."""


# The error codes of exec.

INVALID_INPUT = "invalid_input"
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
LIMIT_CODES = frozenset({TIMEOUT, MEMORY_LIMIT, OUTPUT_LIMIT, SNAPSHOT_LIMIT, TOO_MANY_PENDING})
"""Codes of exceeded limits."""
_EXEC_CODES = {
    "illegal_access": MODULE_DENIED,
    "source_too_large": INVALID_INPUT,
    "timeout": TIMEOUT,
    "call_timeout": NESTED_TOOL_FAILED,
    "aborted": ABORTED,
    "busy": RUNTIME_UNAVAILABLE,
    "call_value": NESTED_TOOL_FAILED,
    "result_too_large": OUTPUT_LIMIT,
    "max_in_flight_bridge_requests": TOO_MANY_PENDING,
    "continuation": SNAPSHOT_RESTORE_FAILED,
    "tool": NESTED_TOOL_FAILED,
    "worker": RUNTIME_UNAVAILABLE,
    "worker_ended": INTERNAL_ERROR,
    "error": INTERNAL_ERROR,
}
_TYPESCRIPT_PREFIX = "TypeScript "
_MODULE_PREFIXES = ("`import", "`export", "`require", "import.meta ", "meta expected")
PERSON_ASKED_TEXT = (
    "A person has been asked to decide. Asking again does not help: call wait with this runId later, or do something"
    " else meanwhile."
)
_TOOL_CALL = re.compile(r"\btools\.([A-Za-z_$][\w$]{0,127})\(")
_CALL_CONTEXT_CHARACTERS = 140  # around the position of a call, which is on its dot or name
STORE_UNAVAILABLE_AFTER_CALLS = "The store cannot be used now. Say so, and do not repeat what is done or may be."
STORE_UNAVAILABLE = "The store cannot be used now, and no program continues without it. Call this again later."
SHELL_COMMAND_TEXT = (
    "exec runs JavaScript, and this looks like a shell command, which it is not. Write a program: find tools with"
    ' `await tools.search("what it should do")`, and call one with `await tools.call(id, input)`'
)


def find_exec_error_code(error: CodeModeError) -> str:
    """Return the exec code of an error that ended a program."""
    if error.code == "CODE_MODE_OUTPUT_LIMIT":
        return OUTPUT_LIMIT
    if error.details.get("is_out_of_memory") is True:
        return MEMORY_LIMIT
    messages = [str(problem.get("message", "")) for problem in _get_syntax_problems(error)]
    if any(message.startswith(_MODULE_PREFIXES) for message in messages):
        return MODULE_DENIED
    if any(message.startswith(_TYPESCRIPT_PREFIX) for message in messages):
        return TYPESCRIPT_FAILED
    return _EXEC_CODES[find_nearest_error_kind(_EXEC_CODES, error)]


def describe_aborted_run(reason: str | None, error: CodeModeError | None) -> str:
    """Return the model's text about an aborted run: the reason and its calls."""
    return describe_stopped_program("this run was aborted" + (f": {reason}" if reason else ""), error)


def describe_store_unavailable(error: CodeModeError) -> str:
    """Return the model's text about a program that ended because its store is unavailable."""
    return failure_text(
        error, None, STORE_UNAVAILABLE_AFTER_CALLS if may_have_side_effects(error.calls) else STORE_UNAVAILABLE
    )


def describe_waiting_run(error: BaseException | None) -> str:
    """Return the model's text about a run that could not continue now. It asks for no correction."""
    lines = [] if error is None else failure_text(error, None).splitlines()[:1]
    return "\n".join([*lines, "The run still waits: call wait again."])


def find_missing_tool_hint(error: CodeModeError, code: str) -> str:
    """Return a hint if a program called a tool by a name that does not exist, else ""."""
    line, column = error.details.get("line"), error.details.get("column")
    if error.details.get("name") != "TypeError" or error.message != "not a function":
        return ""
    if type(line) is not int or type(column) is not int or not 1 <= line <= len(lines := code.split("\n")):
        return ""
    near = _TOOL_CALL.finditer(
        lines[line - 1], max(0, column - _CALL_CONTEXT_CHARACTERS), column + _CALL_CONTEXT_CHARACTERS
    )
    match = next((call for call in near if call.start() < column <= call.end()), None)
    if match is None:
        return ""
    return (
        f"tools.{match[1]} is no tool, or a name that several have: find ids with `await tools.search(query)`,"
        " and call one with `await tools.call(id, input)`."
    )
