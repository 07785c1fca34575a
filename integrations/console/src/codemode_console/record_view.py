"""Build what the page of a record shows, as excerpts and JSON."""

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

from .decisions import describe_decision, find_decision_reason
from .forms.model import to_child_pointer
from .source_view import (
    CallLocation,
    CallSites,
    ProgramView,
    create_program_view,
    find_call_sites,
    is_source_of_compiled_js,
)
from .visible_text import (
    MAX_EXCERPT_CHARACTERS,
    MAX_EXPANDED_CHARACTERS,
    Excerpt,
    create_excerpt,
    iterate_visible_json,
    to_visible_html,
    to_visible_json,
    to_visible_text,
)

MAX_DIFF_LINES = 200
MAX_DIFF_VALUE_CHARACTERS = 200
MAX_EXPANDED_DIFF_CHARACTERS = 8_192

Change = Literal["added", "removed", "more"]
_ABSENT: Any = object()
_DIFF_SIDES: tuple[tuple[Change, str], ...] = (("removed", "from"), ("added", "to"))


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A removed or added value; the change "more" ends a truncated diff. ``rest`` continues ``text``."""

    change: Change
    pointer: Markup
    text: Markup
    rest: Excerpt | None = None

    @property
    def character_count(self) -> int:
        """The size of its value on a page."""
        return len(self.text) + (0 if self.rest is None else len(self.rest.text))

    @property
    def sign(self) -> str:
        """The sign before the line."""
        return {"added": "+", "removed": "-", "more": "\N{HORIZONTAL ELLIPSIS}"}[self.change]


def diff_values(before: Any, after: Any) -> list[DiffLine]:
    """Return the differences of two JSON values, at most `MAX_DIFF_LINES`, with truncated values.

    1 and 1.0 differ, and so do 1 and true, since a tool may treat them differently.
    """
    lines: list[DiffLine] = []
    for pointer, was, now in _iterate_differences(before, after):
        if len(lines) >= MAX_DIFF_LINES:
            return [*lines, DiffLine("more", Markup(), Markup())]
        if was is not _ABSENT:
            lines.append(_create_diff_line("removed", pointer, was))
        if now is not _ABSENT:
            lines.append(_create_diff_line("added", pointer, now))
    return lines


def create_audit_diff_lines(entries: Iterable[Mapping[str, Any]]) -> list[DiffLine]:
    """Return the diff of an audit line: path, from and to, or the beginnings of long values."""
    lines: list[DiffLine] = []
    for entry in entries:
        if entry.get("more"):
            lines.append(DiffLine("more", Markup(), Markup()))
        for change, name in _DIFF_SIDES:
            if name in entry:
                lines.append(_create_diff_line(change, str(entry.get("path", "")), entry[name]))
            elif f"{name}_start" in entry:
                beginning = f"{entry[f'{name}_start']} \N{HORIZONTAL ELLIPSIS}"
                pointer = to_visible_html(str(entry.get("path", ""))[:MAX_DIFF_VALUE_CHARACTERS], one_line=True)
                lines.append(
                    DiffLine(
                        change, pointer, to_visible_html(beginning[: 2 * MAX_DIFF_VALUE_CHARACTERS], one_line=True)
                    )
                )
        if len(lines) >= MAX_DIFF_LINES:
            break
    return lines


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A changed field: its path, and its values before and after, each None where it is absent.

    Both are None in the entry that ends a truncated list.
    """

    field: Markup
    before: DiffLine | None
    after: DiffLine | None


def pair_changes(lines: Iterable[DiffLine]) -> list[ValueChange]:
    """Return the changes of a diff, with the removed and the added line of each field together."""
    changes: list[ValueChange] = []
    for line in lines:
        field = line.pointer.removeprefix("/")
        last = changes[-1] if changes else None
        if line.change == "more":
            changes.append(ValueChange(Markup(), None, None))
        elif line.change == "removed":
            changes.append(ValueChange(field, line, None))
        elif last is not None and last.after is None and last.before is not None and last.field == field:
            changes[-1] = ValueChange(field, last.before, line)
        else:
            changes.append(ValueChange(field, None, line))
    return changes


def _create_diff_line(change: Change, pointer: str, value: Any) -> DiffLine:
    # Encodes only the beginning of a long text.
    beginning = value[: MAX_DIFF_VALUE_CHARACTERS + 1] if isinstance(value, str) else value
    pieces: list[str] = []
    for piece in iterate_visible_json(beginning, indent=None):
        pieces.append(piece)
        if sum(map(len, pieces)) > MAX_DIFF_VALUE_CHARACTERS:
            break
    text, rest = "".join(pieces), None
    if len(text) > MAX_DIFF_VALUE_CHARACTERS:
        text, rest = (
            f"{text[:MAX_DIFF_VALUE_CHARACTERS]} \N{HORIZONTAL ELLIPSIS}",
            create_excerpt(value, MAX_EXPANDED_DIFF_CHARACTERS),
        )
    return DiffLine(change, to_visible_html(pointer[:MAX_DIFF_VALUE_CHARACTERS], one_line=True), escape(text), rest)


def _iterate_differences(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    # An explicit stack, since values may nest deeply.
    pending: list[tuple[str, Any, Any]] = [("", before, after)]
    while pending:
        pointer, before_value, after_value = pending.pop()
        pairs = _pair_children(before_value, after_value)
        if pairs is not None:
            pending += [(to_child_pointer(pointer, name), *pair) for name, pair in reversed(pairs)]
        elif type(before_value) is not type(after_value) or before_value != after_value:
            yield pointer, before_value, after_value


def _pair_children(before: Any, after: Any) -> list[tuple[str | int, tuple[Any, Any]]] | None:
    if isinstance(before, dict) and isinstance(after, dict):
        before_members, after_members = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
        names = dict.fromkeys((*before_members, *after_members))
        return [(name, (before_members.get(name, _ABSENT), after_members.get(name, _ABSENT))) for name in names]
    if isinstance(before, list) and isinstance(after, list):
        before_items, after_items = cast("list[Any]", before), cast("list[Any]", after)
        length = max(len(before_items), len(after_items))
        return [
            (index, (_get_item_or_absent(before_items, index), _get_item_or_absent(after_items, index)))
            for index in range(length)
        ]
    return None


def _get_item_or_absent(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _ABSENT


# A path is ``program``, ``calls/3/input``, ``calls/3/value``, ``calls/3/error``, ``requests/2/asked``,
# ``requests/2/decision``, ``outcome/value`` or ``outcome/error``; calls and requests count from 1.

PROGRAM_PATH = "program"
_CALLS_PREFIX = "calls/"
_ItemT = TypeVar("_ItemT")


@dataclass(frozen=True, slots=True)
class ValueView:
    """An excerpt of a value. ``is_expanded``: the longer excerpt that was asked for."""

    path: str
    value: Any
    text: Markup
    is_text: bool
    is_whole: bool
    is_expanded: bool

    @property
    def anchor(self) -> str:
        """The HTML id of the value."""
        return f"value-{self.path.replace('/', '-')}"

    def to_json(self) -> dict[str, Any]:
        """Return the value for API callers, or its beginning as text where it is long."""
        if self.is_whole:
            return {"address": self.path, "json": self.value}
        return {"address": self.path, "begins": str(self.text.unescape())}


def create_value_view(path: str, value: Any, expanded_path: str | None) -> ValueView:
    """Return an excerpt of a value, longer where ``expanded_path`` is its path."""
    is_expanded = path == expanded_path
    excerpt = create_excerpt(value, MAX_EXPANDED_CHARACTERS if is_expanded else MAX_EXCERPT_CHARACTERS)
    return ValueView(path, value, excerpt.text, isinstance(value, str), excerpt.is_whole, is_expanded)


def needs_continuation(path: str) -> bool:
    """Return whether a value is read from the continuation, which takes its key."""
    return path == PROGRAM_PATH or path.startswith(_CALLS_PREFIX)


def parse_call_order(path: str | None) -> int | None:
    """Return the order of the call that a path names."""
    parts = (path or "").split("/")
    return _parse_number(parts[1]) if len(parts) == 3 and parts[0] == "calls" else None


def find_value_or_raise(path: str, record: Record, view: PauseView | None) -> Any:
    """Return the value at a path. Raises `LookupError` without one."""
    if path == PROGRAM_PATH:
        return _require_value(find_program_text_and_is_source(record, view)[0])
    kind, *rest = path.split("/")
    if kind == "outcome" and len(rest) == 1 and record.outcome is not None:
        return _find_outcome_value_or_raise(record, rest[0])
    if len(rest) == 2:
        if kind == "calls" and view is not None:
            return _find_call_value_or_raise(_get_numbered_item(view.calls, rest[0]), rest[1])
        if kind == "requests":
            return _find_request_value_or_raise(_get_numbered_item(record.requests, rest[0]), rest[1])
    raise LookupError(path)


def find_program_text_and_is_source(record: Record, view: PauseView | None) -> tuple[str | None, bool]:
    """Return the program's text, and whether it is the text that the model wrote.

    The signed text wins; the stored text is only used where no signed one can be read or where both agree.
    """
    if view is not None and view.source is not None:
        return view.source, True
    js = None if view is None else view.js
    if record.source is not None and (js is None or is_source_of_compiled_js(record.source, js)):
        return record.source, True
    return js, False


def to_download_text(value: Any) -> str:
    """Return a text as it is, other values as JSON, with invisible characters escaped."""
    return to_visible_text(value) if isinstance(value, str) else to_visible_json(value)


def _find_outcome_value_or_raise(record: Record, part: str) -> Any:
    outcome = record.outcome
    if outcome is not None and part == "value" and outcome.error is None:
        return outcome.value
    if outcome is not None and part == "error":
        return _require_value(outcome.error)
    raise LookupError(part)


def _find_call_value_or_raise(call: CallView, part: str) -> Any:
    if part == "input":
        return call.input
    if part == "value" and call.status == "fulfilled":
        return call.value
    if part == "error" and call.error is not None:
        return format_call_error(call)
    raise LookupError(part)


def format_call_error(call: CallView) -> str:
    """Return the error of a call as text."""
    error = call.error or {}
    return f"{error.get('name', '')}: {error.get('message', '')}"


def _find_request_value_or_raise(request: StoredRequest, part: str) -> Any:
    if part == "asked":
        return combine_question_and_input(request)
    if part == "decision":
        return _require_value(request.decision)
    raise LookupError(part)


def combine_question_and_input(request: StoredRequest) -> Any:
    """Return the input of a call, with the question of its tool if there is one."""
    question = find_question(request)
    if question is None:
        return request.input
    return question if request.input in (None, {}) else {"question": question, "input": request.input}


def find_question(request: StoredRequest) -> dict[str, Any] | None:
    """Return the question that a tool asks; None for approvals and unknown outcomes."""
    if request.kind in (APPROVAL_KIND, UNKNOWN_OUTCOME_KIND):
        return None
    return {name: value for name, value in request.payload.items() if name != "schema"}


def _require_value(value: Any) -> Any:
    if value is None:
        raise LookupError
    return value


def _get_numbered_item(items: Sequence[_ItemT], number: str) -> _ItemT:
    position = _parse_number(number)
    if position is None or not 1 <= position <= len(items):
        raise LookupError(number)
    return items[position - 1]


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


PauseReader: TypeAlias = Callable[[Interrupt], PauseView]

CALLS_PER_PAGE = 200
VERSIONS_PER_PAGE = 20
_MAX_REQUESTS_PER_VERSION = 50
_CALLS_NOT_STORED = "What this program has done was not kept."


@dataclass(frozen=True, slots=True)
class RecordPageQuery:
    """The query of a record page: first call, versions before, and the value to expand."""

    calls_after: int = 0
    versions_before: int | None = None
    expanded_value: str | None = None


@dataclass(frozen=True, slots=True)
class CallEntry:
    """One call that the program has made. ``outcome`` is its value or its error, None while it has neither.

    ``status`` is what the page shows: "outcome unknown" for a call that started and may have run.
    """

    call: CallView
    status: str
    input: ValueView
    outcome: ValueView | None


@dataclass(frozen=True, slots=True)
class EarlierRequestView:
    """A request of an earlier version. ``decision`` is None where it was still open."""

    request: StoredRequest
    input: ValueView
    decision_text: str
    reason: str
    decision: ValueView | None
    changes: tuple[DiffLine, ...]


@dataclass(frozen=True, slots=True)
class RecordVersionView:
    """An earlier version with its requests; ``requests_omitted`` are not shown."""

    version: RecordVersion
    requests: tuple[EarlierRequestView, ...]
    requests_omitted: int


@dataclass(frozen=True, slots=True)
class QuestionAndAnswerViews:
    """Values that a card leaves out: the expanded question and the answer."""

    question: ValueView | None
    answer: ValueView | None


@dataclass(frozen=True, slots=True)
class RecordView:
    """The contents of a record's page.

    ``unreadable`` says why its calls cannot be read here; ``saved_programs`` are the programs of requests by id.
    """

    program: ProgramView | None
    source: ValueView | None
    is_source: bool
    calls: tuple[CallEntry, ...]
    calls_count: int
    calls_after: int
    calls_next: int | None
    unreadable: str | None
    versions: tuple[RecordVersionView, ...]
    versions_next: int | None
    outcome: ValueView | None
    requests: tuple[QuestionAndAnswerViews, ...]
    saved_programs: Mapping[str, str]


def read_pause_view_with_problem(
    interrupt: Interrupt | None, read_pause: PauseReader
) -> tuple[PauseView | None, str | None]:
    """Return what a pause contains, and why it cannot be read if so."""
    if interrupt is None:
        return None, _CALLS_NOT_STORED
    try:
        view = read_pause(interrupt)
    except CodeModeProtocolError as error:
        return None, error.message
    return view, view.unreadable


def create_record_view(
    record: Record,
    interrupt: Interrupt | None,
    read_pause: PauseReader,
    page_query: RecordPageQuery,
    load_error: str | None = None,
) -> RecordView:
    """Return the view of a record.

    ``interrupt`` is its latest pause; ``load_error`` says why that could not be loaded.
    """
    view, unreadable = read_pause_view_with_problem(interrupt, read_pause)
    unreadable = load_error or unreadable
    text, is_source = find_program_text_and_is_source(record, view)
    sites = find_call_sites(text)
    locations = [
        CallLocation(
            request.tool_name,
            format_card_anchor(number),
            *_find_call_start(sites, request.tool_name, request.line, request.column),
        )
        for number, request in enumerate(record.requests, 1)
        if request.state == "waiting"
    ]
    calls = () if view is None else view.calls
    calls_after = _compute_calls_offset(page_query, len(calls))
    listed_calls = calls[calls_after : calls_after + CALLS_PER_PAGE]
    unknown_outcomes = frozenset(
        request.tool_call_id
        for request in (view.requests if view else ())
        if request.payload.get("kind") == UNKNOWN_OUTCOME_KIND
    )
    versions, versions_next = _list_earlier_versions(record, page_query)
    return RecordView(
        program=None if text is None else create_program_view(text, locations),
        source=None if text is None else create_value_view(PROGRAM_PATH, text, PROGRAM_PATH),
        is_source=is_source,
        calls=tuple(_create_call_entry(call, page_query, sites, unknown_outcomes) for call in listed_calls),
        calls_count=len(calls),
        calls_after=calls_after,
        calls_next=calls_after + CALLS_PER_PAGE if calls_after + CALLS_PER_PAGE < len(calls) else None,
        unreadable=unreadable,
        versions=versions,
        versions_next=versions_next,
        outcome=_create_outcome_view(record, page_query),
        requests=tuple(
            _create_question_and_answer_views(number, request, page_query)
            for number, request in enumerate(record.requests, 1)
        ),
        saved_programs={
            request.interrupt_id: request.program for request in (view.requests if view else ()) if request.program
        },
    )


def format_card_anchor(number: int) -> str:
    """Return the HTML id of the card of a request, numbered from 1."""
    return f"request-{number}"


def _compute_calls_offset(page_query: RecordPageQuery, count: int) -> int:
    order = parse_call_order(page_query.expanded_value)
    after = page_query.calls_after if order is None else (order - 1) // CALLS_PER_PAGE * CALLS_PER_PAGE
    return after if 0 <= after < count else 0


def _find_call_start(
    sites: CallSites | None, name: str, line: int | None, column: int | None
) -> tuple[int | None, int | None]:
    """Return line and column of a call; the column only where the engine's line is that of the call's start."""
    start_line = line if sites is None or line is None else sites.find_start_line(name, line, column)
    return start_line, column if start_line == line else None


def _create_call_entry(
    call: CallView, page_query: RecordPageQuery, sites: CallSites | None, unknown_outcomes: frozenset[str]
) -> CallEntry:
    path, outcome = f"calls/{call.order}", None
    line, column = _find_call_start(sites, call.name, call.line, call.column)
    call = replace(call, line=line, column=column)
    if call.error is not None:
        outcome = create_value_view(f"{path}/error", format_call_error(call), page_query.expanded_value)
    elif call.status == "fulfilled":
        outcome = create_value_view(f"{path}/value", call.value, page_query.expanded_value)
    status = "outcome unknown" if call.id in unknown_outcomes else call.status
    return CallEntry(call, status, create_value_view(f"{path}/input", call.input, page_query.expanded_value), outcome)


def _create_outcome_view(record: Record, page_query: RecordPageQuery) -> ValueView | None:
    if record.outcome is None:
        return None
    if record.outcome.error is not None:
        return create_value_view("outcome/error", record.outcome.error, page_query.expanded_value)
    return create_value_view("outcome/value", record.outcome.value, page_query.expanded_value)


def _create_question_and_answer_views(
    number: int, request: StoredRequest, page_query: RecordPageQuery
) -> QuestionAndAnswerViews:
    path, answer = f"requests/{number}", None
    question = create_value_view(f"{path}/asked", combine_question_and_input(request), page_query.expanded_value)
    if request.decision is not None and request.kind != APPROVAL_KIND:
        answer = create_value_view(f"{path}/decision", request.decision, page_query.expanded_value)
    return QuestionAndAnswerViews(question if question.is_expanded or not question.is_whole else None, answer)


def _list_earlier_versions(
    record: Record, page_query: RecordPageQuery
) -> tuple[tuple[RecordVersionView, ...], int | None]:
    """Return earlier versions, newest first, and the version to continue before."""
    before = record.version if page_query.versions_before is None else min(page_query.versions_before, record.version)
    earlier = [version for version in record.versions if version.version < before]
    request_numbers = {request.interrupt_id: number for number, request in enumerate(record.requests, 1)}
    last_versions = {name: version.version for version in record.versions for name in version.interrupt_ids}
    listed = earlier[: -VERSIONS_PER_PAGE - 1 : -1]
    views: list[RecordVersionView] = []
    for version in listed:
        names = [name for name in version.interrupt_ids if name in request_numbers]
        requests = [
            _create_earlier_request_view(request_numbers[name], record, is_last=last_versions[name] == version.version)
            for name in names[:_MAX_REQUESTS_PER_VERSION]
        ]
        views.append(RecordVersionView(version, tuple(requests), len(names) - len(requests)))
    return tuple(views), listed[-1].version if len(earlier) > len(listed) else None


def _create_earlier_request_view(number: int, record: Record, *, is_last: bool) -> EarlierRequestView:
    request = record.requests[number - 1]
    path = f"requests/{number}"
    # Only its card expands it.
    question = create_value_view(f"{path}/asked", combine_question_and_input(request), None)
    if not is_last:
        return EarlierRequestView(request, question, "asked on", "", None, ())
    if request.decision is None:
        decision_text = "no longer asked" if request.state == "superseded" else "not decided"
        return EarlierRequestView(request, question, decision_text, "", None, ())
    decision_text, reason, decision = describe_decision(request), find_decision_reason(request), request.decision
    if request.kind != APPROVAL_KIND:
        return EarlierRequestView(
            request, question, decision_text, reason, create_value_view(f"{path}/decision", decision, None), ()
        )
    changes = (
        diff_values(request.input, decision["input"]) if isinstance(decision, dict) and "input" in decision else ()
    )
    return EarlierRequestView(request, question, decision_text, reason, None, tuple(changes))


@dataclass(frozen=True, slots=True)
class NoticeAndResumeStatus:
    """Failed notices of a record, and where its program is resumed.

    ``last_resumed`` is set where another host resumes programs of the app.
    """

    failures: Sequence[FailedNotice]
    resumes_here: bool
    last_resumed: LastResumed | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the facts for API callers."""
        resumed = (
            None if self.last_resumed is None else {"owner": self.last_resumed.owner, "atMs": self.last_resumed.at_ms}
        )
        failures = [_failed_notice_to_json(failure) for failure in self.failures]
        return {"goesOnHere": self.resumes_here, "lastResumed": resumed, "failedNotices": failures}


def _failed_notice_to_json(failure: FailedNotice) -> dict[str, Any]:
    attempts = {"attempts": failure.attempts, "failedAtMs": failure.failed_at_ms}
    return {"target": failure.target, "version": failure.version, "error": failure.error, **attempts}


def record_view_to_json(record: Record, view: RecordView) -> dict[str, Any]:
    """Return the view for API callers, with excerpts of long values and their paths."""
    return {
        "outerTool": record.outer_tool,
        "notResumable": record.not_resumable,
        "unreadable": view.unreadable,
        "program": _program_to_json(view),
        "calls": [_call_to_json(item) for item in view.calls],
        "callsCount": view.calls_count,
        "callsNext": view.calls_next,
        "versionsBefore": [_version_to_json(item) for item in view.versions],
        "versionsNext": view.versions_next,
        "outcome": None if view.outcome is None else view.outcome.to_json(),
    }


def _program_to_json(view: RecordView) -> dict[str, Any] | None:
    if view.program is None or view.source is None:
        return None
    pending_calls = [
        {"tool": place.name, "line": line.number, "column": place.column}
        for line in view.program.lines
        for place in line.pending_calls
    ]
    return {
        **view.source.to_json(),
        "waits": pending_calls,
        "unplaced": [location.name for location in view.program.unlocated_calls],
    }


def _call_to_json(view: CallEntry) -> dict[str, Any]:
    call, outcome_name = view.call, "error" if view.call.error is not None else "value"
    outcome = {} if view.outcome is None else {outcome_name: view.outcome.to_json()}
    place = {"line": call.line, "column": call.column, "program": call.program}
    when = {"endedAtMs": call.ended_at_ms, "answered": call.answered}
    named = {"order": call.order, "id": call.id, "kind": call.kind, "name": call.name, "status": call.status}
    return {**named, "input": view.input.to_json(), **outcome, **place, **when}


def _version_to_json(view: RecordVersionView) -> dict[str, Any]:
    version, requests = view.version, [_request_to_json(request) for request in view.requests]
    return {"version": version.version, "createdAtMs": version.created_at_ms, "requests": requests}


def _request_to_json(view: EarlierRequestView) -> dict[str, Any]:
    request = view.request
    attribution = {"actor": request.actor, "decidedAtMs": request.decided_at_ms, "reason": view.reason or None}
    return {"id": request.interrupt_id, "tool": request.tool_name, "said": view.decision_text, **attribution}
