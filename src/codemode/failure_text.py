"""What a model is told when its program failed: enough to correct it, and not to do again what is already done.

Holds nothing that the program could not have seen itself: no host path, no text of a host exception.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from .errors import (
    CodeModeAbortedError,
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeDetachedBridgeRequestError,
    CodeModeError,
    CodeModeFetchError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeSourceTooLargeError,
    CodeModeSyntaxError,
    CodeModeTimeoutError,
    CodeModeToolApprovalDeniedError,
    CodeModeToolApprovalRequiredError,
    CodeModeToolError,
    CodeModeWorkerError,
    guest_view,
)
from .visible_text import visible

MAX_CHARACTERS = 4000
_MAX_MESSAGE_CHARACTERS = 1200
_MAX_LINE_CHARACTERS = 160
_MAX_PLACES = 4
_MAX_CALLS_CHARACTERS = 500
_KEPT = "\n\t"

# By class, the nearest first. None of these depends on what the program did.
_HINTS: dict[type[BaseException], str] = {
    CodeModeSyntaxError: "Nothing of the program ran. Correct every problem above and send the whole program again.",
    CodeModeSourceTooLargeError: "Nothing ran. Send a shorter program; fetch data with tools instead of writing it in.",
    CodeModeTimeoutError: "Do less in one program: fewer or parallel calls (Promise.all), no loop without an end.",
    CodeModeAbortedError: "The run was stopped from outside. Ask before trying again.",
    CodeModeConcurrencyError: "Nothing ran. The program may be right: try the same one again later.",
    CodeModeSerializationError: "Only JSON crosses: return and pass plain objects, arrays, text, numbers; send less.",
    CodeModeBridgeLimitError: "Make fewer calls, or fewer at once: work in batches and await each batch.",
    CodeModeDetachedBridgeRequestError: "Await every call before the program ends, for instance with Promise.all.",
    CodeModeProtocolError: "This is not the program's fault. Do not repeat calls that are listed as done.",
    CodeModeToolApprovalDeniedError: "A person refused this call. Do not try it again; say so, or find another way.",
    CodeModeToolApprovalRequiredError: "This call needs a person's approval and nobody can give it now. Do without it.",
    CodeModeToolError: "Check the tool's name and the types of its input; catch errors of calls that may fail.",
    CodeModeFetchError: "Fetch only what the description of fetch allows.",
    CodeModeWorkerError: "The sandbox failed; a program that uses less memory may work.",
    CodeModeError: "Correct the program at that place and send the whole program again.",
}
_HIDDEN = {
    CodeModeWorkerError: "the sandbox ended without a result",
    CodeModeProtocolError: "the run broke a rule of the sandbox and was stopped",
}


def failure_text(error: BaseException, js: str) -> str:
    """Return what the model is shown for an error of its program ``js``: at most 4,000 characters of plain text.

    Name and message, the place with its line of source, the calls that are done or may be, one hint.
    """
    parts = [_clipped(_headline(error), _MAX_MESSAGE_CHARACTERS), *_places(error, js), *_calls(error), _hint(error)]
    return visible("\n".join(parts), keep=_KEPT)[:MAX_CHARACTERS]


def _headline(error: BaseException) -> str:
    if not isinstance(error, CodeModeError):
        return "Error: the program could not be run"
    for kind, message in _HIDDEN.items():
        if isinstance(error, kind):
            return f"{type(error).__name__}: {message}"
    name, message, _code = guest_view(error)
    tool = error.details.get("tool_name")
    if name == "Error" and isinstance(tool, str):
        return f"{type(error).__name__}: tools.{tool} failed"
    thrown = error.details.get("name") if type(error) is CodeModeError else None
    return f"{thrown if isinstance(thrown, str) else name}: {message}"


def _places(error: BaseException, js: str) -> Iterator[str]:
    details: dict[str, Any] = error.details if isinstance(error, CodeModeError) else {}
    problems: Any = details.get("problems") if isinstance(error, CodeModeSyntaxError) else None
    places = cast("list[Mapping[str, Any]]", problems) if isinstance(problems, list) and problems else [details]
    lines = js.split("\n")
    shown: set[int] = set()
    for place in places:
        line, column = place.get("line"), place.get("column")
        if type(line) is not int or type(column) is not int or not 1 <= line <= len(lines) or line in shown:
            continue
        shown.add(line)
        yield _place(lines[line - 1].rstrip("\r"), line, column)
        if len(shown) == _MAX_PLACES:
            return


def _place(text: str, line: int, column: int) -> str:
    start = max(0, column - 1 - _MAX_LINE_CHARACTERS // 2)
    shown = text[start : start + _MAX_LINE_CHARACTERS].replace("\t", " ")
    marked = f"  at line {line}, column {column}:\n    {shown}"
    at = column - 1 - start
    return f"{marked}\n    {' ' * at}^" if 0 <= at <= len(shown) and shown.isprintable() else marked


def _calls(error: BaseException) -> Iterator[str]:
    calls = [call for call in getattr(error, "calls", ()) if _may_have_run(call)]
    if not calls:
        yield "No call was made."
    for status, meaning in (
        ("fulfilled", "Already done, do not repeat: "),
        ("unknown", "May or may not have happened, find out before repeating: "),
        ("waiting", "Waits for a person, not done: "),
        ("rejected", "Failed: "),
    ):
        named = [f"{call['name']} ({call['id']})" for call in calls if call.get("status") == status]
        if named:
            yield meaning + _listed(named)


def _may_have_run(call: Mapping[str, Any]) -> bool:
    """Return False for a question about the catalog, and for a call that was asked for and never begun."""
    is_begun = call.get("status") != "unknown" or call.get("is_started", True)
    return is_begun and not str(call.get("name")).startswith("$")


def _listed(names: list[str]) -> str:
    shown: list[str] = []
    for name in names:
        if sum(map(len, shown)) + len(name) > _MAX_CALLS_CHARACTERS:
            break
        shown.append(name)
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _hint(error: BaseException) -> str:
    hint = next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), "Try a simpler program.")
    return f"Hint: {hint}"


def _clipped(text: str, max_characters: int) -> str:
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"
