"""One diagnostic: what a model is told beside logs and result, as plain JSON. Knows no error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NotRequired, TypedDict

from ...data.narrowing import mapping_or_empty

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
    made: Diagnostic = {"severity": severity, "code": code, "message": clipped(message, MAX_MESSAGE_CHARACTERS)}
    if hint:
        made["hint"] = clipped(hint, _MAX_HINT_CHARACTERS)
    if path is not None:
        made["path"] = clipped(path, _MAX_HINT_CHARACTERS)
    if error_class:
        made["errorClass"] = error_class
    return made


def ordered(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return errors before warnings before infos, each of them once, and no more than anybody reads."""
    once = {tuple(one.items()): one for one in diagnostics}
    return sorted(once.values(), key=lambda one: _ORDER[one["severity"]])[:_MAX_SHOWN]


def place_of(details: Any) -> str | None:
    """Return ``line:column`` of what has both."""
    place = mapping_or_empty(details)
    line, column = place.get("line"), place.get("column")
    return f"{line}:{column}" if type(line) is int and type(column) is int else None


def clipped(text: str, most: int) -> str:
    """Return the beginning of a text that is longer."""
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
