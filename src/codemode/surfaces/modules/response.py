"""The response to a request, and one diagnostic in it, as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from ...data.json_values import well_formed
from ...data.narrowing import mapping_or_empty, string_or_empty
from ...trace.late_values import LazyValue
from ...trace.visible_text import clip_text

if TYPE_CHECKING:
    from ...errors import Resumable
    from ...trace.trace import Trace


Severity = Literal["error", "warning", "info"]
MAX_MESSAGE_CHARACTERS = 4_000
_MAX_HINT_CHARACTERS = 1_000
_MAX_DIAGNOSTICS = 64
_SEVERITY_ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}


class Diagnostic(TypedDict):
    """``path`` is ``line:column`` in the author's text, or a JSON Pointer. ``errorClass`` is of `@codemode/errors`."""

    severity: Severity
    code: str
    message: str
    hint: NotRequired[str]
    path: NotRequired[str]
    errorClass: NotRequired[str]


def diagnostic(
    severity: Severity,
    code: str,
    message: str,
    *,
    hint: str | None = None,
    path: str | None = None,
    error_class: str | None = None,
) -> Diagnostic:
    """Return a diagnostic without the fields that are not given."""
    result: Diagnostic = {"severity": severity, "code": code, "message": message}
    if hint:
        result["hint"] = hint
    if path is not None:
        result["path"] = path
    if error_class:
        result["errorClass"] = error_class
    return result


def restore_diagnostic(stored: Any) -> Diagnostic:
    """Return a warning or an info that was kept as JSON."""
    fields = {key: string_or_empty(value) for key, value in mapping_or_empty(stored).items()}
    severity: Severity = "info" if fields.get("severity") == "info" else "warning"
    code, message = fields.get("code", ""), fields.get("message", "")
    return diagnostic(severity, code, message, hint=fields.get("hint"), path=fields.get("path"))


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return errors before warnings before infos, each of them once, and of all no more than anybody reads."""
    unique = {tuple(item.items()): item for item in map(_clip_diagnostic, diagnostics)}
    return sorted(unique.values(), key=lambda item: _SEVERITY_ORDER[item["severity"]])[:_MAX_DIAGNOSTICS]


def _clip_diagnostic(item: Diagnostic) -> Diagnostic:
    result = item.copy()
    result["message"] = _clip_text(item["message"], MAX_MESSAGE_CHARACTERS)
    if "hint" in item:
        result["hint"] = _clip_text(item["hint"], _MAX_HINT_CHARACTERS)
    if "path" in item:
        result["path"] = _clip_text(item["path"], _MAX_HINT_CHARACTERS)
    return result


def _clip_text(text: str, max_characters: int) -> str:
    # What a request named may have half a pair in it, which nobody can send on.
    return well_formed(clip_text(text, max_characters))


def format_position(details: Any) -> str | None:
    """Return ``line:column`` of what has both."""
    position = mapping_or_empty(details)
    line, column = position.get("line"), position.get("column")
    return f"{line}:{column}" if type(line) is int and type(column) is int else None


# A host that is out of descriptors can import nothing more, and answers nevertheless.


class RunResponse(dict[str, Any]):
    """What the model is answered: ``logs``, ``result``, ``diagnostics``, and ``toolTrace`` once something was called.

    ``declarations`` is there when the request named servers whose declarations the model has not read. The attributes
    are the host's alone: ``exception`` is the error behind the diagnostics, ``trace`` the `Trace` of the run, and
    ``recovery``, after a timeout or a dead worker, the `Interrupt` from which the program can go on.
    """

    exception: BaseException | None = None
    recovery: Resumable | None = None
    _trace: Any = None

    @property
    def trace(self) -> Trace | None:
        """The `Trace` of the run, None where nothing ran."""
        if type(self._trace) is LazyValue:
            self._trace = self._trace.value()
        return self._trace

    def set_trace(self, trace: Trace | LazyValue | None) -> None:
        """Take the trace, or what makes it when somebody looks: most are never looked at."""
        self._trace = trace


def refusal_response(diagnostics: Iterable[Diagnostic], exception: BaseException | None = None) -> RunResponse:
    """Return the response to a request of which nothing ran."""
    response = RunResponse(logs=[], result=None, diagnostics=sort_diagnostics(diagnostics))
    response.exception = exception
    return response


def host_failure_diagnostic() -> Diagnostic:
    """Return what is said of a program that the host could not run."""
    message = "the host could not run the program"
    return diagnostic("error", "WORKER_FAILED", message, hint="Tell the user: the host's log says more.")
