"""One diagnostic: what a model is told beside logs and result, as plain JSON. Knows no error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NotRequired, TypedDict

from ...data.json_values import well_formed
from ...data.narrowing import mapping_or_empty, string_or_empty
from ...trace.visible_text import clipped

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
