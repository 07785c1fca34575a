"""The page of one record: its program, its calls, and a card for each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode import CodeModeProtocolError, Interrupt
from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import Record, StoredRequest

from ..bodies import FormItems
from ..decisions import (
    ABOUT_CHOICE,
    MOST_WHY_CHARACTERS,
    PREVIEW,
    Sent,
    about,
    about_ending,
    as_shown,
    chosen_text,
    decision_words,
    edited_input,
    endings_json,
    endings_of,
    form_of,
    is_stuck,
    reason_of,
    version_of,
)
from ..errors import Problem
from ..forms import ABSENT, Edited, Form
from ..notices import failures_of
from ..record_view import (
    Around,
    Asked,
    DiffLine,
    RecordView,
    diff,
    download_text,
    is_of_continuation,
    pause_view,
    question_of,
    record_view,
    value_at,
    view_json,
)
from ..rendering import brief, headline, page, wants_json
from ..visible import ON_DEMAND_CHARACTERS, Cut, Folded, cut, fold
from ..visits import Principal, require_principal, standing_choices, visible_tenants
from .desk import ConsoleContext, record_json

_OPEN = ("pending", "resuming")
_MOST_FIELDS = 1_000
"""So many fields are on one page; what is asked behind them is JSON text until somebody opens its fields."""
_MOST_CHARACTERS = 2_000_000
"""So many characters of forms and changes are on one page; what is behind them is shown when somebody opens it."""
_AROUND_A_LINE = 100
_MOST_TOGETHER = 20
"""So many calls of a record are offered to be decided together: a person reads each first."""
_MOST_ADDRESS_CHARACTERS = 500
_MARKS = (("destructiveHint", "destructive"), ("readOnlyHint", "read-only"), ("idempotentHint", "may be repeated"))


@dataclass(frozen=True, slots=True)
class Answering:
    """What somebody has sent about one request, to be shown again, and ``problem``, why nothing was decided.

    ``is_of_this``: what was typed is about the input that is shown now.
    """

    interrupt_id: str
    sent: Sent
    edited: Edited | None = None
    problem: Problem | None = None
    is_of_this: bool = True

    @property
    def notice(self) -> Problem | None:
        """What is said of the whole page: that something has happened meanwhile."""
        return self.problem if self.problem is not None and self.problem.status != 422 else None

    @property
    def is_of_reason(self) -> bool:
        """Whether it is the reason that does not do."""
        return self.problem is not None and self.problem.facts.get("field") == "reason"

    @property
    def problems(self) -> dict[str, list[str]]:
        """What does not fit, by pointers; ``""`` is the whole."""
        found = dict(self.edited.problems) if self.edited is not None and self.sent.needs_value else {}
        if self.problem is not None and self.problem.status == 422:
            found[""] = [self.problem.message, *found.get("", [])]
        return found

    def to_json(self) -> dict[str, Any]:
        """Return what was found, as callers of the API get it: nothing where all is well."""
        told: dict[str, Any] = {"problems": self.problems}
        if self.edited is not None and self.edited.is_readable and self.problem is None:
            told["value"] = self.edited.value
        return told if self.problem is None else {**told, "error": self.problem.to_json()}


@dataclass(frozen=True, slots=True)
class Card:
    """One request as a page has it.

    ``given`` is the input of its call, ``question`` what its tool asks in its own words; each None where there is none.
    ``form`` is None where there is nothing to answer, and for callers that want none. ``typed`` is what somebody had
    typed, where the form is about something else by now. ``changes`` are those of an edited input: decided, or shown
    before that. ``is_answered``: somebody has just sent it, and nothing was decided. ``is_held_back``: the page is
    full, and shows its form and changes once it is opened. ``later`` says, by names, for how long an approval may hold
    beside this call; ``chosen_later`` is one of them, or nothing.
    """

    one: StoredRequest
    number: int
    since_ms: int
    version: str
    shown: str
    form_token: str
    may_answer: bool
    form: Form | None
    given: Folded | None
    question: Folded | None
    reason: str = ""
    problem: str = ""
    is_of_reason: bool = False
    typed: Cut | None = None
    changes: Sequence[DiffLine] | None = None
    is_answered: bool = False
    is_preview: bool = False
    has_fields: bool = True
    is_held_back: bool = False
    later: Mapping[str, str] = field(default_factory=dict[str, str])
    chosen_later: str = ""

    @property
    def characters(self) -> int:
        """About how many characters of a page its values, its form and its changes take."""
        lines = sum(len(one.pointer) + one.characters + _AROUND_A_LINE for one in self.changes or ())
        values = sum(one.characters for one in (self.given, self.question) if one is not None)
        texts = (self.one.description, self.one.refusal or "", self.decided_reason)
        values += sum(min(len(one), ON_DEMAND_CHARACTERS) for one in texts)
        return lines + values + (0 if self.form is None else self.form.characters)

    @property
    def address(self) -> str:
        """What names it in an address: its id, or its number where an id is none that every server takes."""
        name = self.one.interrupt_id
        is_plain = name.isascii() and name.isprintable() and len(name) <= _MOST_ADDRESS_CHARACTERS
        return quote(name, safe="") if is_plain else str(self.number)

    @property
    def marks(self) -> list[str]:
        """What the tool says of itself."""
        hints = self.one.annotations or {}
        return [words for name, words in _MARKS if hints.get(name) is True]

    @property
    def is_approval(self) -> bool:
        """Whether somebody is to say if a call may run."""
        return self.one.kind == APPROVAL_KIND

    @property
    def is_unknown_outcome(self) -> bool:
        """Whether somebody is to say how a call has ended."""
        return self.one.kind == UNKNOWN_OUTCOME_KIND

    @property
    def decided(self) -> str:
        """What was decided, in words; nothing while that has not happened."""
        return decision_words(self.one) if self.one.state in ("decided", "applied") else ""

    @property
    def decided_reason(self) -> str:
        """The reason of what was decided."""
        return reason_of(self.one)

    def to_json(self) -> dict[str, Any]:
        """Return it as callers of the API get it."""
        one = self.one
        asked = {"input": one.input, "inputSchema": one.input_schema, "payload": dict(one.payload)}
        about_tool = {"tool": one.tool_name, "description": one.description, "annotations": one.annotations}
        made = {"actor": one.actor, "decision": one.decision, "decidedAtMs": one.decided_at_ms, "refusal": one.refusal}
        form = {"shown": self.shown, "version": self.version, "formToken": self.form_token}
        known = {"id": one.interrupt_id, "kind": one.kind, "state": one.state, "line": one.line, "column": one.column}
        return {
            **known,
            **about_tool,
            **asked,
            **made,
            "sinceMs": self.since_ms,
            "mayAnswer": self.may_answer,
            "later": [*self.later],
            **form,
        }


async def cards_of(
    desk: ConsoleContext, request: Request, record: Record, answering: Answering | None = None
) -> list[Card]:
    """Return the cards of a record, in the order of its requests."""
    making = _Making(
        desk=desk,
        visit=require_principal(request),
        record=record,
        answering=answering,
        opened=request.query_params.get("request"),
        is_for_programs=wants_json(request),
    )
    return await run_check(LARGE_CHARACTERS, making.cards)


@dataclass(frozen=True, slots=True)
class _Making:
    """Makes the cards of one page. The work is in proportion to the record."""

    desk: ConsoleContext
    visit: Principal
    record: Record
    answering: Answering | None
    opened: str | None
    is_for_programs: bool

    def cards(self) -> list[Card]:
        cards: list[Card] = []
        left, characters_left = _MOST_FIELDS, _MOST_CHARACTERS
        for number, one in enumerate(self.record.requests, 1):
            own = (
                self.answering
                if self.answering is not None and self.answering.interrupt_id == one.interrupt_id
                else None
            )
            is_opened = own is not None or self.opened == str(number)
            is_held_back = characters_left <= 0 and not is_opened
            card = self._card(number, one, own, has_fields=left > 0 or is_opened, is_held_back=is_held_back)
            if card.form is not None and card.form.root is not None:
                left -= sum(1 for _ in card.form.root.walk())
            characters_left -= card.characters
            cards.append(card)
        return cards

    def _card(
        self, number: int, one: StoredRequest, own: Answering | None, *, has_fields: bool, is_held_back: bool
    ) -> Card:
        version, shown = version_of(self.record, one), self.desk.store.shown(one)
        has_room = not is_held_back and not self.is_for_programs
        may_answer, question = self._may_answer(one, own), question_of(one)
        form, typed = None, None
        if is_held_back and may_answer:
            form = Form(None, "", "json", is_editable=False)
        elif not self.is_for_programs:
            form, typed = _form_and_typed(one, own, may_answer=may_answer, has_fields=has_fields)
        return Card(
            one=one,
            number=number,
            since_ms=_since_ms(self.record, one),
            version=version,
            shown=shown,
            form_token=self.visit.form_token(about(one.interrupt_id, version, shown)),
            may_answer=may_answer,
            form=form,
            given=fold(one.input, has_room=has_room) if question is None or one.input is not None else None,
            question=None if question is None else fold(question, has_room=has_room),
            reason="" if own is None else own.sent.reason,
            problem="" if own is None or own.notice is not None or own.problem is None else own.problem.message,
            is_of_reason=own is not None and own.is_of_reason,
            typed=typed,
            changes=None if is_held_back else _changes(one, own),
            is_answered=own is not None and own.notice is None,
            is_preview=own is not None and own.sent.said == PREVIEW and own.problem is None,
            has_fields=has_fields,
            is_held_back=is_held_back,
            later=standing_choices(self.desk.standing_approvals, self.record, one) if may_answer else {},
            chosen_later="" if own is None else own.sent.later,
        )

    def _may_answer(self, one: StoredRequest, own: Answering | None) -> bool:
        is_gone = own is not None and own.problem is not None and own.problem.status == 410
        is_open = one.state == "waiting" and self.record.state in _OPEN and not is_gone
        return is_open and self.visit.user.may_decide


def _form_and_typed(
    one: StoredRequest, own: Answering | None, *, may_answer: bool, has_fields: bool
) -> tuple[Form | None, Cut | None]:
    """Return the form, with what was typed where it is about the same, and else what was typed beside it."""
    if own is not None and own.edited is not None and own.is_of_this and may_answer:
        return own.edited.typed if own.sent.needs_value else own.edited.typed.unmarked(), None
    form = form_of(one, has_fields=has_fields) if may_answer else None
    return form, None if own is None else _typed(own)


def _typed(own: Answering) -> Cut | None:
    if own.edited is not None and own.edited.is_readable:
        return None if own.edited.unchanged else cut(own.edited.value, ON_DEMAND_CHARACTERS)
    lines = [f"{name}: {text}" for name, text in _controls(own.sent.items) if text]
    return cut("\n".join(lines), ON_DEMAND_CHARACTERS) if lines else None


def _controls(items: FormItems) -> FormItems:
    return [item for item in items if item[0].startswith(("/", "#")) or item[0] == "json"]


def _changes(one: StoredRequest, own: Answering | None) -> list[DiffLine] | None:
    if one.kind != APPROVAL_KIND:
        return None
    if one.state in ("decided", "applied"):
        given = edited_input(one)
        return None if given is ABSENT else diff(one.input, given)
    edited = None if own is None or not own.is_of_this or not own.sent.needs_value else own.edited
    return diff(one.input, edited.value) if edited is not None and edited.is_readable else None


def _since_ms(record: Record, one: StoredRequest) -> int:
    """Return when a request was first asked."""
    times = (version.created_at_ms for version in record.versions if one.interrupt_id in version.interrupt_ids)
    return next(times, record.created_at_ms)


_FILE_NAME = "value.txt"


def routes(desk: ConsoleContext) -> list[BaseRoute]:
    """Return the routes of a record's page and of its values."""

    async def record(request: Request) -> Response:
        return await record_page(desk, request, await desk.load_record(request))

    async def value(request: Request) -> Response:
        return await _download(desk, request, await desk.load_record(request))

    return [
        Route("/records/{record_id}", record, methods=["GET"]),
        Route("/records/{record_id}/value", value, methods=["GET"]),
    ]


async def record_page(
    desk: ConsoleContext,
    request: Request,
    record: Record,
    *,
    status: int = 200,
    answering: Answering | None = None,
    notice: Problem | None = None,
) -> Response:
    """Return a record's page; ``answering`` is what somebody has sent about one of its requests, ``notice`` news."""
    cards = await cards_of(desk, request, record, answering)
    view = await _view(desk, request, record)
    around = await _around(desk, record)
    told = {} if answering is None else answering.to_json()
    if answering is not None:
        notice = answering.notice
    elif notice is not None:
        told = {"error": notice.to_json()}
    known = ending_context(request, record)
    if not wants_json(request):
        known |= await _headings(desk, request, record)
    ending = endings_json(record, known["endings"], known["ending_token"])

    def rendered() -> Response:
        if wants_json(request):
            facts = {**record_json(record), **view_json(record, view), **around.to_json(), "ending": ending}
            return JSONResponse({**facts, "requests": [one.to_json() for one in cards], **told}, status)
        shown: dict[str, Any] = {"record": record, "cards": cards, "view": view, "around": around, "notice": notice}
        return page(request, "record.html", status=status, **shown, **known)

    return await run_check(LARGE_CHARACTERS, rendered)


def _as_decided(one: StoredRequest) -> StoredRequest:
    """Return a request with the input that was approved."""
    edited = edited_input(one)
    return one if edited is ABSENT else replace(one, input=edited)


async def _headings(desk: ConsoleContext, request: Request, record: Record) -> dict[str, Any]:
    """Return what a page says of the calls of a record together, and which record comes after it."""
    visit = require_principal(request)
    waiting = [one for one in record.requests if one.state == "waiting"]
    approvals = [one for one in waiting if one.kind == APPROVAL_KIND]
    is_open = record.state in _OPEN and visit.user.may_decide
    asked = waiting or record.requests
    text = headline(_as_decided(asked[0])) if asked else brief(record.outer_tool or record.id)
    is_unknown = bool(waiting) and waiting[0].kind == UNKNOWN_OUTCOME_KIND
    title = {"text": text, "more": max(0, len(asked) - 1), "waiting": bool(waiting), "is_unknown_outcome": is_unknown}
    found: dict[str, Any] = {
        "title": title,
        "together": [chosen_text(record.id, one.interrupt_id) for one in approvals[:_MOST_TOGETHER]],
        "choice_token": visit.form_token(ABOUT_CHOICE),
        "next_pending": None,
    }
    if not is_open or not 2 <= len(approvals) <= _MOST_TOGETHER:
        found["together"] = []
    if not waiting and visit.user.may_decide:
        listed = await desk.store.list(tenant=visible_tenants(visit.user, ""), state="waiting", limit=1)
        found["next_pending"] = next(iter(listed.records), None)
    return found


def ending_context(request: Request, record: Record) -> dict[str, Any]:
    """Return what a template needs to let the visitor say something of a whole record."""
    visit = require_principal(request)
    return {
        "endings": endings_of(record) if visit.user.may_decide else (),
        "is_stuck": is_stuck(record),
        "ending_token": visit.form_token(about_ending(record.id, as_shown(record), record.state)),
        "as_shown": as_shown(record),
        "most_why": MOST_WHY_CHARACTERS,
    }


async def _view(desk: ConsoleContext, request: Request, record: Record) -> RecordView:
    interrupt, unfit = await _interrupt(desk, record)
    asked, reader = _asked(request), desk.pause_reader(record)
    # One runs at a time.
    return await run_check(LARGE_CHARACTERS, lambda: record_view(record, interrupt, reader, asked, unfit))


async def _around(desk: ConsoleContext, record: Record) -> Around:
    failures = (await failures_of(desk.store, [record])).get(record.id, ())
    if desk.resumes_app(record.app):
        return Around(failures, goes_on_here=True)
    resumed = await desk.store.last_resumed(tenant=record.tenant, app=record.app)
    return Around(failures, goes_on_here=False, resumed=resumed)


async def _interrupt(desk: ConsoleContext, record: Record) -> tuple[Interrupt | None, str | None]:
    """Return what a record waits in, or last waited in, and why it cannot be read, if so."""
    asks = next((one for one in record.requests if one.state in ("waiting", "decided")), None)
    last: Any = getattr(desk.store, "last_interrupt", None)  # a store of the host's own may lack it
    try:
        if asks is None:
            return None if last is None else await last(record.id, tenant=record.tenant), None
        return await desk.store.get(asks.interrupt_id, tenant=record.tenant), None
    except CodeModeProtocolError as error:
        return None, error.message


def _asked(request: Request) -> Asked:
    asked = request.query_params
    before = _number(asked.get("versions", ""))
    return Asked(_number(asked.get("calls", "")) or 0, before, asked.get("value"))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


async def _download(desk: ConsoleContext, request: Request, record: Record) -> Response:
    """Return all of a value as a file. Raises `Problem` 404 where there is none."""
    address = request.query_params.get("of", "")
    interrupt = None
    if is_of_continuation(address):
        interrupt, _ = await _interrupt(desk, record)
    reader = desk.pause_reader(record)

    def written() -> bytes:
        view = None if interrupt is None else pause_view(interrupt, reader)[0]
        return download_text(value_at(address, record, view)).encode("utf-8", "backslashreplace")

    try:
        body = await run_check(LARGE_CHARACTERS, written)
    except LookupError:
        words = "Its address may be wrong, or the program has gone on, or the key is not here."
        raise Problem(404, "There is no such value", words) from None
    headers = {"content-disposition": f'attachment; filename="{_FILE_NAME}"', "x-content-type-options": "nosniff"}
    return Response(body, headers=headers, media_type="text/plain; charset=utf-8")
