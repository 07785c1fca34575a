"""Values of a record by their addresses: of each its beginning for a page, and all of it for a download. Pure.

An address is ``program``, ``calls/3/input``, ``calls/3/value``, ``calls/3/error``, ``requests/2/asked``,
``requests/2/decision``, ``outcome/value`` or ``outcome/error``; calls and requests count from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from markupsafe import Markup

from codemode import CallView, PauseView, Record, StoredRequest
from codemode.plugins import APPROVAL_KIND, UNKNOWN_OUTCOME_KIND

from .program import is_written_as
from .visible import ON_DEMAND_CHARACTERS, SHOWN_CHARACTERS, cut, visible_json, visible_text

PROGRAM = "program"
_CALLS = "calls/"
_ItemT = TypeVar("_ItemT")


@dataclass(frozen=True, slots=True)
class ValueView:
    """The beginning of a value. ``is_asked``: as much of it as a page shows at all."""

    address: str
    value: Any
    text: Markup
    is_text: bool
    is_whole: bool
    is_asked: bool

    @property
    def anchor(self) -> str:
        """Its id within the page."""
        return f"value-{self.address.replace('/', '-')}"

    def to_json(self) -> dict[str, Any]:
        """Return it for callers of the API: the value itself where it is short, else its beginning as text."""
        if self.is_whole:
            return {"address": self.address, "json": self.value}
        return {"address": self.address, "begins": str(self.text.unescape())}


def value_view(address: str, value: Any, asked: str | None) -> ValueView:
    """Return what a page shows of a value, more of it where ``asked`` is its address."""
    is_asked = address == asked
    begun = cut(value, ON_DEMAND_CHARACTERS if is_asked else SHOWN_CHARACTERS)
    return ValueView(address, value, begun.text, isinstance(value, str), begun.is_whole, is_asked)


def is_of_continuation(address: str) -> bool:
    """Tell whether a value is found in what the program goes on from, for which its key is needed."""
    return address == PROGRAM or address.startswith(_CALLS)


def call_order(address: str | None) -> int | None:
    """Return which call an address is of."""
    parts = (address or "").split("/")
    return _number(parts[1]) if len(parts) == 3 and parts[0] == "calls" else None


def value_at(address: str, record: Record, view: PauseView | None) -> Any:
    """Return a value. Raises `LookupError` where there is none."""
    if address == PROGRAM:
        return _known(program_text(record, view)[0])
    kind, *rest = address.split("/")
    if kind == "outcome" and len(rest) == 1 and record.outcome is not None:
        return _outcome_part(record, rest[0])
    if len(rest) == 2:
        if kind == "calls" and view is not None:
            return _call_part(_nth(view.calls, rest[0]), rest[1])
        if kind == "requests":
            return _request_part(_nth(record.requests, rest[0]), rest[1])
    raise LookupError(address)


def program_text(record: Record, view: PauseView | None) -> tuple[str | None, bool]:
    """Return the program as the model wrote it, and whether that is known: never another than what runs.

    What was signed counts; a text that was kept beside it is shown where nothing signed can be read.
    """
    if view is not None and view.source is not None:
        return view.source, True
    js = None if view is None else view.js
    if record.source is not None and (js is None or is_written_as(record.source, js)):
        return record.source, True
    return js, False


def download_text(value: Any) -> str:
    """Return all of a value as text in which every character is seen: a text as it is, all else as JSON."""
    return visible_text(value) if isinstance(value, str) else visible_json(value)


def _outcome_part(record: Record, part: str) -> Any:
    outcome = record.outcome
    if outcome is not None and part == "value" and outcome.error is None:
        return outcome.value
    if outcome is not None and part == "error":
        return _known(outcome.error)
    raise LookupError(part)


def _call_part(call: CallView, part: str) -> Any:
    if part == "input":
        return call.input
    if part == "value" and call.status == "fulfilled":
        return call.value
    if part == "error" and call.error is not None:
        return error_text(call)
    raise LookupError(part)


def error_text(call: CallView) -> str:
    """Return what a call failed with, as a text."""
    error = call.error or {}
    return f"{error.get('name', '')}: {error.get('message', '')}"


def _request_part(request: StoredRequest, part: str) -> Any:
    if part == "asked":
        return asked_of(request)
    if part == "decision":
        return _known(request.decision)
    raise LookupError(part)


def asked_of(request: StoredRequest) -> Any:
    """Return all that a request asks about: the input of a call, and the question of a tool, where it has one."""
    question = question_of(request)
    if question is None:
        return request.input
    return question if request.input in (None, {}) else {"question": question, "input": request.input}


def question_of(request: StoredRequest) -> dict[str, Any] | None:
    """Return what a tool asks in its own words; None where the input of its call is all there is."""
    if request.kind in (APPROVAL_KIND, UNKNOWN_OUTCOME_KIND):
        return None
    return {name: value for name, value in request.payload.items() if name != "schema"}


def _known(value: Any) -> Any:
    if value is None:
        raise LookupError
    return value


def _nth(items: Sequence[_ItemT], number: str) -> _ItemT:
    at = _number(number)
    if at is None or not 1 <= at <= len(items):
        raise LookupError(number)
    return items[at - 1]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
