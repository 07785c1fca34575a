"""What there is to see of a record, cut for a page. Knows no requests. Takes as long as what was recorded is long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from codemode import (
    CallView,
    CodeModeProtocolError,
    Interrupt,
    PauseView,
    Record,
    RecordVersion,
    StoredRequest,
)
from codemode.plugins import APPROVAL_KIND

from .call_sites import CallSites, sites_of
from .decisions import decision_words, reason_of
from .diff import DiffLine, diff
from .program import Place, ProgramView, program_view
from .record_values import PROGRAM, ValueView, asked_of, call_order, error_text, program_text, value_view

Reader: TypeAlias = Callable[[Interrupt], PauseView]

CALLS_AT_ONCE = 200
VERSIONS_AT_ONCE = 20
_MOST_IN_VERSION = 50
_NO_LONGER_KEPT = "What this program has done was not kept."


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a record a page is asked to show: behind which call, before which version, of which value more."""

    calls_after: int = 0
    versions_before: int | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class CallShown:
    """One call that the program has made. ``outcome`` is its value or its error, None while it has neither."""

    call: CallView
    input: ValueView
    outcome: ValueView | None


@dataclass(frozen=True, slots=True)
class DecidedShown:
    """One request of a version before. ``decision`` is None where it asked on in the next version."""

    request: StoredRequest
    input: ValueView
    said: str
    reason: str
    decision: ValueView | None
    changes: tuple[DiffLine, ...]


@dataclass(frozen=True, slots=True)
class VersionShown:
    """A version before, with its requests; ``left_out`` of them are not shown."""

    version: RecordVersion
    requests: tuple[DecidedShown, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class RequestShown:
    """What a card does not show of its request: all of a long input or question, and an answer."""

    asked: ValueView | None
    answer: ValueView | None


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record as its page shows it. ``unreadable`` says why its calls cannot be seen here."""

    program: ProgramView | None
    text: ValueView | None
    is_source: bool
    calls: tuple[CallShown, ...]
    calls_count: int
    calls_after: int
    calls_next: int | None
    unreadable: str | None
    versions: tuple[VersionShown, ...]
    versions_next: int | None
    outcome: ValueView | None
    requests: tuple[RequestShown, ...]


def pause_view(interrupt: Interrupt | None, reader: Reader) -> tuple[PauseView | None, str | None]:
    """Return what a pause has done, and why that cannot be said here, if so."""
    if interrupt is None:
        return None, _NO_LONGER_KEPT
    try:
        view = reader(interrupt)
    except CodeModeProtocolError as error:
        return None, error.message
    return view, view.unreadable


def record_view(
    record: Record,
    interrupt: Interrupt | None,
    reader: Reader,
    asked: Asked,
    unfit: str | None = None,
) -> RecordView:
    """Return what a page shows of a record; ``interrupt`` is what it waits in, ``unfit`` why that is not to be had."""
    view, unreadable = pause_view(interrupt, reader)
    unreadable = unfit or unreadable
    text, is_source = program_text(record, view)
    sites = sites_of(text)
    places = [
        Place(one.tool_name, anchor(number), *_begun(sites, one.tool_name, one.line, one.column))
        for number, one in enumerate(record.requests, 1)
        if one.state == "waiting"
    ]
    calls = () if view is None else view.calls
    after = _after(asked, len(calls))
    shown = calls[after : after + CALLS_AT_ONCE]
    versions, versions_next = _versions(record, asked)
    return RecordView(
        program=None if text is None else program_view(text, places),
        text=None if text is None else value_view(PROGRAM, text, PROGRAM),
        is_source=is_source,
        calls=tuple(_call(one, asked, sites) for one in shown),
        calls_count=len(calls),
        calls_after=after,
        calls_next=after + CALLS_AT_ONCE if after + CALLS_AT_ONCE < len(calls) else None,
        unreadable=unreadable,
        versions=versions,
        versions_next=versions_next,
        outcome=_outcome(record, asked),
        requests=tuple(_request(number, one, asked) for number, one in enumerate(record.requests, 1)),
    )


def anchor(number: int) -> str:
    """Return the id of a request's card within the page, of its place among those of the record."""
    return f"request-{number}"


def _after(asked: Asked, count: int) -> int:
    order = call_order(asked.value)
    after = asked.calls_after if order is None else (order - 1) // CALLS_AT_ONCE * CALLS_AT_ONCE
    return after if 0 <= after < count else 0


def _begun(sites: CallSites | None, name: str, line: int | None, column: int | None) -> tuple[int | None, int | None]:
    """Return line and column of a call: those that the engine told, or the line alone in which it begins."""
    begun = line if sites is None or line is None else sites.line_of(name, line, column)
    return begun, column if begun == line else None


def _call(call: CallView, asked: Asked, sites: CallSites | None) -> CallShown:
    where, outcome = f"calls/{call.order}", None
    line, column = _begun(sites, call.name, call.line, call.column)
    call = replace(call, line=line, column=column)
    if call.error is not None:
        outcome = value_view(f"{where}/error", error_text(call), asked.value)
    elif call.status == "fulfilled":
        outcome = value_view(f"{where}/value", call.value, asked.value)
    return CallShown(call, value_view(f"{where}/input", call.input, asked.value), outcome)


def _outcome(record: Record, asked: Asked) -> ValueView | None:
    if record.outcome is None:
        return None
    if record.outcome.error is not None:
        return value_view("outcome/error", record.outcome.error, asked.value)
    return value_view("outcome/value", record.outcome.value, asked.value)


def _request(number: int, request: StoredRequest, asked: Asked) -> RequestShown:
    where, answer = f"requests/{number}", None
    whole = value_view(f"{where}/asked", asked_of(request), asked.value)
    if request.decision is not None and request.kind != APPROVAL_KIND:
        answer = value_view(f"{where}/decision", request.decision, asked.value)
    return RequestShown(whole if whole.is_asked or not whole.is_whole else None, answer)


def _versions(record: Record, asked: Asked) -> tuple[tuple[VersionShown, ...], int | None]:
    """Return the versions before the newest, the newest of them first, and before which there are more."""
    before = record.version if asked.versions_before is None else min(asked.versions_before, record.version)
    past = [one for one in record.versions if one.version < before]
    numbers = {one.interrupt_id: number for number, one in enumerate(record.requests, 1)}
    last = {name: one.version for one in record.versions for name in one.interrupt_ids}
    shown = past[: -VERSIONS_AT_ONCE - 1 : -1]
    found: list[VersionShown] = []
    for version in shown:
        names = [name for name in version.interrupt_ids if name in numbers]
        requests = [
            _decided(numbers[name], record, is_last=last[name] == version.version) for name in names[:_MOST_IN_VERSION]
        ]
        found.append(VersionShown(version, tuple(requests), len(names) - len(requests)))
    return tuple(found), shown[-1].version if len(past) > len(shown) else None


def _decided(number: int, record: Record, *, is_last: bool) -> DecidedShown:
    request = record.requests[number - 1]
    where = f"requests/{number}"
    # All of it is shown with its card alone.
    given = value_view(f"{where}/asked", asked_of(request), None)
    if not is_last:
        return DecidedShown(request, given, "asked on", "", None, ())
    if request.decision is None:
        said = "no longer asked" if request.state == "superseded" else "not decided"
        return DecidedShown(request, given, said, "", None, ())
    said, reason, decision = decision_words(request), reason_of(request), request.decision
    if request.kind != APPROVAL_KIND:
        return DecidedShown(request, given, said, reason, value_view(f"{where}/decision", decision, None), ())
    changes = diff(request.input, decision["input"]) if isinstance(decision, dict) and "input" in decision else ()
    return DecidedShown(request, given, said, reason, None, tuple(changes))
