"""The response to a request, and one diagnostic in it, as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from ...data.json_values import well_formed
from ...data.narrowing import mapping_or_empty, string_or_empty
from ...trace.late_values import Late
from ...trace.visible_text import clipped

if TYPE_CHECKING:
    from ...errors import Resumable
    from ...trace.trace import Trace


Severity = Literal["error", "warning", "info"]
MAX_MESSAGE_CHARACTERS = 4_000
_MAX_HINT_CHARACTERS = 1_000
_MAX_SHOWN = 64
_ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}


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
    made: Diagnostic = {"severity": severity, "code": code, "message": message}
    if hint:
        made["hint"] = hint
    if path is not None:
        made["path"] = path
    if error_class:
        made["errorClass"] = error_class
    return made


def read_again(kept: Any) -> Diagnostic:
    """Return a warning or an info that was kept as JSON."""
    said = {key: string_or_empty(value) for key, value in mapping_or_empty(kept).items()}
    severity: Severity = "info" if said.get("severity") == "info" else "warning"
    code, message = said.get("code", ""), said.get("message", "")
    return diagnostic(severity, code, message, hint=said.get("hint"), path=said.get("path"))


def ordered(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return errors before warnings before infos, each of them once, and of all no more than anybody reads."""
    once = {tuple(one.items()): one for one in map(_clipped, diagnostics)}
    return sorted(once.values(), key=lambda one: _ORDER[one["severity"]])[:_MAX_SHOWN]


def _clipped(one: Diagnostic) -> Diagnostic:
    made = one.copy()
    made["message"] = _text(one["message"], MAX_MESSAGE_CHARACTERS)
    if "hint" in one:
        made["hint"] = _text(one["hint"], _MAX_HINT_CHARACTERS)
    if "path" in one:
        made["path"] = _text(one["path"], _MAX_HINT_CHARACTERS)
    return made


def _text(said: str, most: int) -> str:
    # What a request named may have half a pair in it, which nobody can send on.
    return well_formed(clipped(said, most))


def place_of(details: Any) -> str | None:
    """Return ``line:column`` of what has both."""
    place = mapping_or_empty(details)
    line, column = place.get("line"), place.get("column")
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
        if type(self._trace) is Late:
            self._trace = self._trace.value()
        return self._trace

    def keep_trace(self, trace: Trace | Late | None) -> None:
        """Take the trace, or what makes it when somebody looks: most are never looked at."""
        self._trace = trace


def refused(diagnostics: Iterable[Diagnostic], exception: BaseException | None = None) -> RunResponse:
    """Return the response to a request of which nothing ran."""
    response = RunResponse(logs=[], result=None, diagnostics=ordered(diagnostics))
    response.exception = exception
    return response


def host_failed() -> Diagnostic:
    """Return what is said of a program that the host could not run."""
    message = "the host could not run the program"
    return diagnostic("error", "WORKER_FAILED", message, hint="Tell the user: the host's log says more.")
