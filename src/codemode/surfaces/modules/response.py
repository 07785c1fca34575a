"""The response of `codemode.run` and its diagnostics, as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from ...data.json_values import replace_lone_surrogates
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
    """``path``: ``line:column`` in the program, or a JSON Pointer. ``errorClass``: a class of `@codemode/errors`."""

    severity: Severity
    code: str
    message: str
    hint: NotRequired[str]
    path: NotRequired[str]
    errorClass: NotRequired[str]


def create_diagnostic(
    severity: Severity,
    code: str,
    message: str,
    *,
    hint: str | None = None,
    path: str | None = None,
    error_class: str | None = None,
) -> Diagnostic:
    """Return a diagnostic without unset fields."""
    result: Diagnostic = {"severity": severity, "code": code, "message": message}
    if hint:
        result["hint"] = hint
    if path is not None:
        result["path"] = path
    if error_class:
        result["errorClass"] = error_class
    return result


def restore_diagnostic(stored: Any) -> Diagnostic:
    """Return a warning or info that was stored as JSON."""
    fields = {key: string_or_empty(value) for key, value in mapping_or_empty(stored).items()}
    severity: Severity = "info" if fields.get("severity") == "info" else "warning"
    code, message = fields.get("code", ""), fields.get("message", "")
    return create_diagnostic(severity, code, message, hint=fields.get("hint"), path=fields.get("path"))


def sort_and_limit_diagnostics(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the diagnostics by severity, without duplicates, up to the maximum number."""
    unique = {tuple(item.items()): item for item in map(_clip_diagnostic, diagnostics)}
    return sorted(unique.values(), key=lambda item: _SEVERITY_ORDER[item["severity"]])[:_MAX_DIAGNOSTICS]


def _clip_diagnostic(item: Diagnostic) -> Diagnostic:
    result = item.copy()
    result["message"] = _clip_to_encodable_text(item["message"], MAX_MESSAGE_CHARACTERS)
    if "hint" in item:
        result["hint"] = _clip_to_encodable_text(item["hint"], _MAX_HINT_CHARACTERS)
    if "path" in item:
        result["path"] = _clip_to_encodable_text(item["path"], _MAX_HINT_CHARACTERS)
    return result


def _clip_to_encodable_text(text: str, max_characters: int) -> str:
    # Text of a request can contain lone surrogates, which cannot be encoded.
    return replace_lone_surrogates(clip_text(text, max_characters))


def format_position(details: Any) -> str | None:
    """Return ``line:column``, or None if one is missing."""
    position = mapping_or_empty(details)
    line, column = position.get("line"), position.get("column")
    return f"{line}:{column}" if type(line) is int and type(column) is int else None


# This module must be imported early: a host without file descriptors cannot import, but must answer.


class RunResponse(dict[str, Any]):
    """The answer to the model: ``logs``, ``result``, ``diagnostics``, and ``toolTrace`` if tools were called.

    ``declarations`` is present if the request named servers whose declarations the model has not read. The attributes
    are for the host only. ``exception``: the error behind the diagnostics. ``trace``: the `Trace` of the run.
    ``recovery``: after a timeout or a dead worker, the `Interrupt` from which the program can resume.
    """

    exception: BaseException | None = None
    recovery: Resumable | None = None
    _trace: Any = None

    @property
    def trace(self) -> Trace | None:
        """The `Trace` of the run, or None if nothing ran."""
        if type(self._trace) is LazyValue:
            self._trace = self._trace.value()
        return self._trace

    def set_trace(self, trace: Trace | LazyValue | None) -> None:
        """Set the trace, or a value that builds it on first access."""
        self._trace = trace


def build_refusal_response(diagnostics: Iterable[Diagnostic], exception: BaseException | None = None) -> RunResponse:
    """Return the response to a request that did not run."""
    response = RunResponse(logs=[], result=None, diagnostics=sort_and_limit_diagnostics(diagnostics))
    response.exception = exception
    return response


def create_host_failure_diagnostic() -> Diagnostic:
    """Return the diagnostic of a program that the host could not run."""
    message = "the host could not run the program"
    return create_diagnostic("error", "WORKER_FAILED", message, hint="Tell the user: the host's log says more.")
