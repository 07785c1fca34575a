"""What there is to see of a record, cut for a page, as JSON and by the addresses of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar, cast

from markupsafe import Markup, escape

from codemode import CodeModeProtocolError, Interrupt
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import FailedNotice, LastResumed, Record, RecordVersion, StoredRequest
from codemode.types import CallView, PauseView

from .decisions import decision_words, reason_of
from .forms.model import below
from .program import CallSites, Place, ProgramView, is_written_as, program_view, sites_of
from .visible import (
    ON_DEMAND_CHARACTERS,
    SHOWN_CHARACTERS,
    Cut,
    cut,
    visible,
    visible_json,
    visible_json_pieces,
    visible_text,
)

MOST_LINES = 200
MOST_VALUE_CHARACTERS = 200
MOST_UNFOLDED_CHARACTERS = 8_192

Change = Literal["added", "removed", "more"]
_ABSENT: Any = object()
_SIDES: tuple[tuple[Change, str], ...] = (("removed", "from"), ("added", "to"))


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line: ``removed`` is what was shown, ``added`` what takes its place; the change "more" ends a cut diff.

    ``more`` is more of a value of which ``text`` is the beginning.
    """

    change: Change
    pointer: Markup
    text: Markup
    more: Cut | None = None

    @property
    def characters(self) -> int:
        """How many characters of a page its value takes."""
        return len(self.text) + (0 if self.more is None else len(self.more.text))

    @property
    def sign(self) -> str:
        """What stands before the line."""
        return {"added": "+", "removed": "-", "more": "\N{HORIZONTAL ELLIPSIS}"}[self.change]


def diff(before: Any, after: Any) -> list[DiffLine]:
    """Return what differs between two JSON values, at most `MOST_LINES`; each value of a line is cut.

    1 and 1.0 differ, and so do 1 and true: what a tool gets is said exactly.
    """
    lines: list[DiffLine] = []
    for pointer, was, now in _places(before, after):
        if len(lines) >= MOST_LINES:
            return [*lines, DiffLine("more", Markup(), Markup())]
        if was is not _ABSENT:
            lines.append(_line("removed", pointer, was))
        if now is not _ABSENT:
            lines.append(_line("added", pointer, now))
    return lines


def told_diff(entries: Iterable[Mapping[str, Any]]) -> list[DiffLine]:
    """Return a difference as a line of the audit tells it: path, from and to, or the beginnings of long ones."""
    lines: list[DiffLine] = []
    for one in entries:
        if one.get("more"):
            lines.append(DiffLine("more", Markup(), Markup()))
        for change, name in _SIDES:
            if name in one:
                lines.append(_line(change, str(one.get("path", "")), one[name]))
            elif f"{name}_start" in one:
                begun = f"{one[f'{name}_start']} \N{HORIZONTAL ELLIPSIS}"
                pointer = visible(str(one.get("path", ""))[:MOST_VALUE_CHARACTERS], one_line=True)
                lines.append(DiffLine(change, pointer, visible(begun[: 2 * MOST_VALUE_CHARACTERS], one_line=True)))
        if len(lines) >= MOST_LINES:
            break
    return lines


def _line(change: Change, pointer: str, value: Any) -> DiffLine:
    # Of a long text the beginning alone is written.
    begun = value[: MOST_VALUE_CHARACTERS + 1] if isinstance(value, str) else value
    pieces: list[str] = []
    for piece in visible_json_pieces(begun, indent=None):
        pieces.append(piece)
        if sum(map(len, pieces)) > MOST_VALUE_CHARACTERS:
            break
    text, more = "".join(pieces), None
    if len(text) > MOST_VALUE_CHARACTERS:
        text, more = f"{text[:MOST_VALUE_CHARACTERS]} \N{HORIZONTAL ELLIPSIS}", cut(value, MOST_UNFOLDED_CHARACTERS)
    return DiffLine(change, visible(pointer[:MOST_VALUE_CHARACTERS], one_line=True), escape(text), more)


def _places(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    # A stack of its own: the values nest as deeply as JSON may.
    left: list[tuple[str, Any, Any]] = [("", before, after)]
    while left:
        pointer, was, now = left.pop()
        pairs = _pairs(was, now)
        if pairs is not None:
            left += [(below(pointer, name), *pair) for name, pair in reversed(pairs)]
        elif type(was) is not type(now) or was != now:
            yield pointer, was, now


def _pairs(was: Any, now: Any) -> list[tuple[str | int, tuple[Any, Any]]] | None:
    if isinstance(was, dict) and isinstance(now, dict):
        one, other = cast("dict[str, Any]", was), cast("dict[str, Any]", now)
        names = dict.fromkeys((*one, *other))
        return [(name, (one.get(name, _ABSENT), other.get(name, _ABSENT))) for name in names]
    if isinstance(was, list) and isinstance(now, list):
        rows, others = cast("list[Any]", was), cast("list[Any]", now)
        both = max(len(rows), len(others))
        return [(at, (_item(rows, at), _item(others, at))) for at in range(both)]
    return None


def _item(items: list[Any], at: int) -> Any:
    return items[at] if at < len(items) else _ABSENT


# An address is ``program``, ``calls/3/input``, ``calls/3/value``, ``calls/3/error``, ``requests/2/asked``,
# ``requests/2/decision``, ``outcome/value`` or ``outcome/error``; calls and requests count from 1.

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
    """A record as its page shows it. ``unreadable`` says why its calls cannot be seen here.

    ``programs`` are the saved programs that make its requests, by their ids.
    """

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
    programs: Mapping[str, str]


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
        programs={one.interrupt_id: one.program for one in (view.requests if view else ()) if one.program},
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


@dataclass(frozen=True, slots=True)
class Around:
    """What is known beside a record: which notices of it were given up, and where its program goes on.

    ``resumed`` is looked for where that is elsewhere: who has last gone on with a program of its app.
    """

    failures: Sequence[FailedNotice]
    goes_on_here: bool
    resumed: LastResumed | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it for callers of the API."""
        resumed = None if self.resumed is None else {"owner": self.resumed.owner, "atMs": self.resumed.at_ms}
        failures = [_failure(one) for one in self.failures]
        return {"goesOnHere": self.goes_on_here, "lastResumed": resumed, "failedNotices": failures}


def _failure(one: FailedNotice) -> dict[str, Any]:
    tried = {"attempts": one.attempts, "failedAtMs": one.failed_at_ms}
    return {"target": one.target, "version": one.version, "error": one.error, **tried}


def view_json(record: Record, view: RecordView) -> dict[str, Any]:
    """Return the facts of a page beside its cards. Values that are long are cut, and can be had at their addresses."""
    return {
        "outerTool": record.outer_tool,
        "notResumable": record.not_resumable,
        "unreadable": view.unreadable,
        "program": _program(view),
        "calls": [_call_json(one) for one in view.calls],
        "callsCount": view.calls_count,
        "callsNext": view.calls_next,
        "versionsBefore": [_version(one) for one in view.versions],
        "versionsNext": view.versions_next,
        "outcome": None if view.outcome is None else view.outcome.to_json(),
    }


def _program(view: RecordView) -> dict[str, Any] | None:
    if view.program is None or view.text is None:
        return None
    waits = [
        {"tool": place.name, "line": line.number, "column": place.column}
        for line in view.program.lines
        for place in line.waits
    ]
    return {**view.text.to_json(), "waits": waits, "unplaced": [one.name for one in view.program.unplaced]}


def _call_json(shown: CallShown) -> dict[str, Any]:
    call, ended = shown.call, "error" if shown.call.error is not None else "value"
    outcome = {} if shown.outcome is None else {ended: shown.outcome.to_json()}
    place = {"line": call.line, "column": call.column, "program": call.program}
    when = {"endedAtMs": call.ended_at_ms, "answered": call.answered}
    named = {"order": call.order, "id": call.id, "kind": call.kind, "name": call.name, "status": call.status}
    return {**named, "input": shown.input.to_json(), **outcome, **place, **when}


def _version(shown: VersionShown) -> dict[str, Any]:
    version, requests = shown.version, [_decided_json(one) for one in shown.requests]
    return {"version": version.version, "createdAtMs": version.created_at_ms, "requests": requests}


def _decided_json(shown: DecidedShown) -> dict[str, Any]:
    request = shown.request
    who = {"actor": request.actor, "decidedAtMs": request.decided_at_ms, "reason": shown.reason or None}
    return {"id": request.interrupt_id, "tool": request.tool_name, "said": shown.said, **who}
