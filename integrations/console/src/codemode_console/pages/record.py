"""The page of one record: its program, its calls, and a card for each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    BULK_SELECTION_SUBJECT,
    MAX_ACTION_REASON_CHARACTERS,
    PREVIEW,
    SubmittedDecision,
    compute_call_version,
    create_call_form,
    decision_form_subject,
    describe_decision,
    find_decision_reason,
    find_input_edit,
    list_record_actions,
    needs_record_action,
    record_action_subject,
    record_actions_json,
    record_fingerprint,
    selection_value,
)
from ..errors import Problem
from ..forms import ABSENT, Form, FormResult
from ..notices import find_failed_notices
from ..principals import Principal, require_principal, standing_choices, visible_tenants
from ..record_view import (
    DiffLine,
    RecordFacts,
    RecordPageQuery,
    RecordView,
    create_record_view,
    diff_values,
    find_question,
    find_value,
    needs_continuation,
    read_pause_view,
    to_download_text,
    view_json,
)
from ..rendering import create_headline, render_page, truncate_name, wants_json
from ..visible_text import (
    MAX_EXPANDED_CHARACTERS,
    Excerpt,
    ExpandableExcerpt,
    create_excerpt,
    create_expandable_excerpt,
)
from .console_context import ConsoleContext, record_json

_OPEN_STATES = ("pending", "resuming")
_MAX_FIELDS_PER_PAGE = 1_000
"""So many fields are on one page; what is asked behind them is JSON text until somebody opens its fields."""
_MAX_FORM_CHARACTERS_PER_PAGE = 2_000_000
"""So many characters of forms and changes are on one page; what is behind them is shown when somebody opens it."""
_MARKUP_CHARACTERS_PER_LINE = 100
_MAX_CALLS_DECIDED_TOGETHER = 20
"""So many calls of a record are offered to be decided together: a person reads each first."""
_MAX_PATH_ID_CHARACTERS = 500
_ANNOTATION_LABELS = (
    ("destructiveHint", "destructive"),
    ("readOnlyHint", "read-only"),
    ("idempotentHint", "may be repeated"),
)


@dataclass(frozen=True, slots=True)
class Submission:
    """What somebody has sent about one request, to be shown again, and ``problem``, why nothing was decided.

    ``is_of_this``: what was typed is about the input that is shown now.
    """

    interrupt_id: str
    submitted: SubmittedDecision
    form_result: FormResult | None = None
    problem: Problem | None = None
    is_same_input: bool = True

    @property
    def notice(self) -> Problem | None:
        """What is said of the whole page: that something has happened meanwhile."""
        return self.problem if self.problem is not None and self.problem.status != 422 else None

    @property
    def concerns_reason(self) -> bool:
        """Whether it is the reason that does not do."""
        return self.problem is not None and self.problem.facts.get("field") == "reason"

    @property
    def problems(self) -> dict[str, list[str]]:
        """What does not fit, by pointers; ``""`` is the whole."""
        problems_by_pointer = (
            dict(self.form_result.problems) if self.form_result is not None and self.submitted.needs_value else {}
        )
        if self.problem is not None and self.problem.status == 422:
            problems_by_pointer[""] = [self.problem.message, *problems_by_pointer.get("", [])]
        return problems_by_pointer

    def to_json(self) -> dict[str, Any]:
        """Return what was found, as callers of the API get it: nothing where all is well."""
        result: dict[str, Any] = {"problems": self.problems}
        if self.form_result is not None and self.form_result.is_valid and self.problem is None:
            result["value"] = self.form_result.value
        return result if self.problem is None else {**result, "error": self.problem.to_json()}


@dataclass(frozen=True, slots=True)
class RequestCard:
    """One request as a page has it.

    ``given`` is the input of its call, ``question`` what its tool asks in its own words; each None where there is none.
    ``form`` is None where there is nothing to answer, and for callers that want none. ``typed`` is what somebody had
    typed, where the form is about something else by now. ``changes`` are those of an edited input: decided, or shown
    before that. ``is_answered``: somebody has just sent it, and nothing was decided. ``is_deferred``: the page is
    full, and shows its form and changes once it is opened. ``later`` says, by names, for how long an approval may hold
    beside this call; ``chosen_later`` is one of them, or nothing.
    """

    call: StoredRequest
    number: int
    requested_at_ms: int
    version: str
    display_digest: str
    form_token: str
    may_answer: bool
    form: Form | None
    input_excerpt: ExpandableExcerpt | None
    question_excerpt: ExpandableExcerpt | None
    reason: str = ""
    problem: str = ""
    concerns_reason: bool = False
    submitted_excerpt: Excerpt | None = None
    changes: Sequence[DiffLine] | None = None
    was_submitted: bool = False
    is_preview: bool = False
    has_fields: bool = True
    is_deferred: bool = False
    standing_choices: Mapping[str, str] = field(default_factory=dict[str, str])
    standing_choice: str = ""

    @property
    def characters(self) -> int:
        """About how many characters of a page its values, its form and its changes take."""
        lines = sum(len(line.pointer) + line.characters + _MARKUP_CHARACTERS_PER_LINE for line in self.changes or ())
        values = sum(line.characters for line in (self.input_excerpt, self.question_excerpt) if line is not None)
        texts = (self.call.description, self.call.refusal or "", self.decision_reason)
        values += sum(min(len(line), MAX_EXPANDED_CHARACTERS) for line in texts)
        return lines + values + (0 if self.form is None else self.form.page_characters)

    @property
    def address(self) -> str:
        """What names it in an address: its id, or its number where an id is none that every server takes."""
        name = self.call.interrupt_id
        is_plain = name.isascii() and name.isprintable() and len(name) <= _MAX_PATH_ID_CHARACTERS
        return quote(name, safe="") if is_plain else str(self.number)

    @property
    def hint_labels(self) -> list[str]:
        """What the tool says of itself."""
        hints = self.call.annotations or {}
        return [label for name, label in _ANNOTATION_LABELS if hints.get(name) is True]

    @property
    def is_approval(self) -> bool:
        """Whether somebody is to say if a call may run."""
        return self.call.kind == APPROVAL_KIND

    @property
    def is_unknown_outcome(self) -> bool:
        """Whether somebody is to say how a call has ended."""
        return self.call.kind == UNKNOWN_OUTCOME_KIND

    @property
    def decision_text(self) -> str:
        """What was decided, in words; nothing while that has not happened."""
        return describe_decision(self.call) if self.call.state in ("decided", "applied") else ""

    @property
    def decision_reason(self) -> str:
        """The reason of what was decided."""
        return find_decision_reason(self.call)

    def to_json(self) -> dict[str, Any]:
        """Return it as callers of the API get it."""
        call = self.call
        question = {"input": call.input, "inputSchema": call.input_schema, "payload": dict(call.payload)}
        about_tool = {"tool": call.tool_name, "description": call.description, "annotations": call.annotations}
        decision = {
            "actor": call.actor,
            "decision": call.decision,
            "decidedAtMs": call.decided_at_ms,
            "refusal": call.refusal,
        }
        form = {"shown": self.display_digest, "version": self.version, "formToken": self.form_token}
        identity = {
            "id": call.interrupt_id,
            "kind": call.kind,
            "state": call.state,
            "line": call.line,
            "column": call.column,
        }
        return {
            **identity,
            **about_tool,
            **question,
            **decision,
            "sinceMs": self.requested_at_ms,
            "mayAnswer": self.may_answer,
            "later": [*self.standing_choices],
            **form,
        }


async def create_cards(
    context: ConsoleContext, request: Request, record: Record, submission: Submission | None = None
) -> list[RequestCard]:
    """Return the cards of a record, in the order of its requests."""
    builder = _CardBuilder(
        context=context,
        principal=require_principal(request),
        record=record,
        submission=submission,
        expanded=request.query_params.get("request"),
        is_for_programs=wants_json(request),
    )
    return await run_check(LARGE_CHARACTERS, builder.build_cards)


@dataclass(frozen=True, slots=True)
class _CardBuilder:
    """Makes the cards of one page. The work is in proportion to the record."""

    context: ConsoleContext
    principal: Principal
    record: Record
    submission: Submission | None
    expanded: str | None
    is_for_programs: bool

    def build_cards(self) -> list[RequestCard]:
        cards: list[RequestCard] = []
        fields_left, characters_left = _MAX_FIELDS_PER_PAGE, _MAX_FORM_CHARACTERS_PER_PAGE
        for number, call in enumerate(self.record.requests, 1):
            submission = self.submission
            if submission is not None and submission.interrupt_id != call.interrupt_id:
                submission = None
            is_expanded = submission is not None or self.expanded == str(number)
            is_deferred = characters_left <= 0 and not is_expanded
            card = self._build_card(
                number, call, submission, has_fields=fields_left > 0 or is_expanded, is_deferred=is_deferred
            )
            if card.form is not None and card.form.root is not None:
                fields_left -= sum(1 for _ in card.form.root.walk())
            characters_left -= card.characters
            cards.append(card)
        return cards

    def _build_card(
        self, number: int, call: StoredRequest, submission: Submission | None, *, has_fields: bool, is_deferred: bool
    ) -> RequestCard:
        version, display_digest = compute_call_version(self.record, call), self.context.store.shown(call)
        has_room = not is_deferred and not self.is_for_programs
        may_answer, question = self._may_answer(call, submission), find_question(call)
        form, submitted_excerpt = None, None
        if is_deferred and may_answer:
            form = Form(None, "", "json", is_editable=False)
        elif not self.is_for_programs:
            form, submitted_excerpt = _form_and_submitted_excerpt(
                call, submission, may_answer=may_answer, has_fields=has_fields
            )
        return RequestCard(
            call=call,
            number=number,
            requested_at_ms=_requested_at_ms(self.record, call),
            version=version,
            display_digest=display_digest,
            form_token=self.principal.form_token(decision_form_subject(call.interrupt_id, version, display_digest)),
            may_answer=may_answer,
            form=form,
            input_excerpt=create_expandable_excerpt(call.input, has_room=has_room)
            if question is None or call.input is not None
            else None,
            question_excerpt=None if question is None else create_expandable_excerpt(question, has_room=has_room),
            reason="" if submission is None else submission.submitted.reason,
            problem=""
            if submission is None or submission.notice is not None or submission.problem is None
            else submission.problem.message,
            concerns_reason=submission is not None and submission.concerns_reason,
            submitted_excerpt=submitted_excerpt,
            changes=None if is_deferred else _list_changes(call, submission),
            was_submitted=submission is not None and submission.notice is None,
            is_preview=submission is not None
            and submission.submitted.decision == PREVIEW
            and submission.problem is None,
            has_fields=has_fields,
            is_deferred=is_deferred,
            standing_choices=standing_choices(self.context.standing_approvals, self.record, call) if may_answer else {},
            standing_choice="" if submission is None else submission.submitted.standing_choice,
        )

    def _may_answer(self, call: StoredRequest, submission: Submission | None) -> bool:
        is_expired = submission is not None and submission.problem is not None and submission.problem.status == 410
        is_open = call.state == "waiting" and self.record.state in _OPEN_STATES and not is_expired
        return is_open and self.principal.user.may_decide


def _form_and_submitted_excerpt(
    call: StoredRequest, submission: Submission | None, *, may_answer: bool, has_fields: bool
) -> tuple[Form | None, Excerpt | None]:
    """Return the form, with what was typed where it is about the same, and else what was typed beside it."""
    if submission is not None and submission.form_result is not None and submission.is_same_input and may_answer:
        return (
            submission.form_result.form
            if submission.submitted.needs_value
            else submission.form_result.form.without_problems(),
            None,
        )
    form = create_call_form(call, has_fields=has_fields) if may_answer else None
    return form, None if submission is None else _submitted_excerpt(submission)


def _submitted_excerpt(submission: Submission) -> Excerpt | None:
    if submission.form_result is not None and submission.form_result.is_valid:
        return (
            None
            if submission.form_result.is_unchanged
            else create_excerpt(submission.form_result.value, MAX_EXPANDED_CHARACTERS)
        )
    lines = [f"{name}: {text}" for name, text in _value_items(submission.submitted.items) if text]
    return create_excerpt("\n".join(lines), MAX_EXPANDED_CHARACTERS) if lines else None


def _value_items(items: FormItems) -> FormItems:
    return [item for item in items if item[0].startswith(("/", "#")) or item[0] == "json"]


def _list_changes(call: StoredRequest, submission: Submission | None) -> list[DiffLine] | None:
    if call.kind != APPROVAL_KIND:
        return None
    if call.state in ("decided", "applied"):
        new_input = find_input_edit(call)
        return None if new_input is ABSENT else diff_values(call.input, new_input)
    form_result = (
        None
        if submission is None or not submission.is_same_input or not submission.submitted.needs_value
        else submission.form_result
    )
    return diff_values(call.input, form_result.value) if form_result is not None and form_result.is_valid else None


def _requested_at_ms(record: Record, call: StoredRequest) -> int:
    """Return when a request was first asked."""
    times = (version.created_at_ms for version in record.versions if call.interrupt_id in version.interrupt_ids)
    return next(times, record.created_at_ms)


_FILE_NAME = "value.txt"


def routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the routes of a record's page and of its values."""

    async def record(request: Request) -> Response:
        return await record_page(context, request, await context.load_record(request))

    async def value(request: Request) -> Response:
        return await _download_value(context, request, await context.load_record(request))

    return [
        Route("/records/{record_id}", record, methods=["GET"]),
        Route("/records/{record_id}/value", value, methods=["GET"]),
    ]


async def record_page(
    context: ConsoleContext,
    request: Request,
    record: Record,
    *,
    status: int = 200,
    submission: Submission | None = None,
    notice: Problem | None = None,
) -> Response:
    """Return a record's page; ``submission`` is what somebody has sent about one of its requests, ``notice`` news."""
    cards = await create_cards(context, request, record, submission)
    view = await _load_record_view(context, request, record)
    record_facts = await _load_record_facts(context, record)
    submission_json = {} if submission is None else submission.to_json()
    if submission is not None:
        notice = submission.notice
    elif notice is not None:
        submission_json = {"error": notice.to_json()}
    values = record_action_values(request, record)
    if not wants_json(request):
        values |= await _heading_values(context, request, record)
    record_action_json = record_actions_json(record, values["record_actions"], values["record_action_token"])

    def render() -> Response:
        if wants_json(request):
            values_json = {
                **record_json(record),
                **view_json(record, view),
                **record_facts.to_json(),
                "ending": record_action_json,
            }
            return JSONResponse(
                {**values_json, "requests": [card.to_json() for card in cards], **submission_json}, status
            )
        page_values: dict[str, Any] = {
            "record": record,
            "cards": cards,
            "view": view,
            "record_facts": record_facts,
            "notice": notice,
        }
        return render_page(request, "record.html", status=status, **page_values, **values)

    return await run_check(LARGE_CHARACTERS, render)


async def _heading_values(context: ConsoleContext, request: Request, record: Record) -> dict[str, Any]:
    """Return what a page says of the calls of a record together, and which record comes after it."""
    principal = require_principal(request)
    pending = [call for call in record.requests if call.state == "waiting"]
    approvals = [call for call in pending if call.kind == APPROVAL_KIND]
    is_open = record.state in _OPEN_STATES and principal.user.may_decide
    titled_calls = pending or record.requests
    text = create_headline(titled_calls[0]) if titled_calls else truncate_name(record.outer_tool or record.id)
    is_unknown = bool(pending) and pending[0].kind == UNKNOWN_OUTCOME_KIND
    decisions = {describe_decision(call) if call.state in ("decided", "applied") else "" for call in titled_calls}
    title = {
        "text": text,
        "decision": next(iter(decisions)) if len(decisions) == 1 else "",
        "more": max(0, len(titled_calls) - 1),
        "waiting": bool(pending),
        "is_unknown_outcome": is_unknown,
    }
    values: dict[str, Any] = {
        "title": title,
        "together": [selection_value(record.id, call.interrupt_id) for call in approvals[:_MAX_CALLS_DECIDED_TOGETHER]],
        "selection_token": principal.form_token(BULK_SELECTION_SUBJECT),
        "next_pending": None,
    }
    if not is_open or not 2 <= len(approvals) <= _MAX_CALLS_DECIDED_TOGETHER:
        values["together"] = []
    if not pending and principal.user.may_decide:
        pending_records = await context.store.list(tenant=visible_tenants(principal.user, ""), state="waiting", limit=1)
        values["next_pending"] = next(iter(pending_records.records), None)
    return values


def record_action_values(request: Request, record: Record) -> dict[str, Any]:
    """Return what a template needs to let the visitor say something of a whole record."""
    principal = require_principal(request)
    return {
        "record_actions": list_record_actions(record) if principal.user.may_decide else (),
        "needs_record_action": needs_record_action(record),
        "record_action_token": principal.form_token(
            record_action_subject(record.id, record_fingerprint(record), record.state)
        ),
        "fingerprint": record_fingerprint(record),
        "max_reason": MAX_ACTION_REASON_CHARACTERS,
    }


async def _load_record_view(context: ConsoleContext, request: Request, record: Record) -> RecordView:
    interrupt, unreadable = await _load_interrupt(context, record)
    page_query, reader = _parse_page_query(request), context.pause_reader(record)
    # One runs at a time.
    return await run_check(
        LARGE_CHARACTERS, lambda: create_record_view(record, interrupt, reader, page_query, unreadable)
    )


async def _load_record_facts(context: ConsoleContext, record: Record) -> RecordFacts:
    failures = (await find_failed_notices(context.store, [record])).get(record.id, ())
    if context.resumes_app(record.app):
        return RecordFacts(failures, resumes_here=True)
    resumed = await context.store.last_resumed(tenant=record.tenant, app=record.app)
    return RecordFacts(failures, resumes_here=False, last_resumed=resumed)


async def _load_interrupt(context: ConsoleContext, record: Record) -> tuple[Interrupt | None, str | None]:
    """Return what a record waits in, or last waited in, and why it cannot be read, if so."""
    pending_call = next((call for call in record.requests if call.state in ("waiting", "decided")), None)
    load_last_interrupt: Any = getattr(context.store, "last_interrupt", None)  # a store of the host's own may lack it
    try:
        if pending_call is None:
            return None if load_last_interrupt is None else await load_last_interrupt(
                record.id, tenant=record.tenant
            ), None
        return await context.store.get(pending_call.interrupt_id, tenant=record.tenant), None
    except CodeModeProtocolError as error:
        return None, error.message


def _parse_page_query(request: Request) -> RecordPageQuery:
    params = request.query_params
    before = _parse_number(params.get("versions", ""))
    return RecordPageQuery(_parse_number(params.get("calls", "")) or 0, before, params.get("value"))


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


async def _download_value(context: ConsoleContext, request: Request, record: Record) -> Response:
    """Return all of a value as a file. Raises `Problem` 404 where there is none."""
    address = request.query_params.get("of", "")
    interrupt = None
    if needs_continuation(address):
        interrupt, _ = await _load_interrupt(context, record)
    reader = context.pause_reader(record)

    def encode_value() -> bytes:
        view = None if interrupt is None else read_pause_view(interrupt, reader)[0]
        return to_download_text(find_value(address, record, view)).encode("utf-8", "backslashreplace")

    try:
        body = await run_check(LARGE_CHARACTERS, encode_value)
    except LookupError:
        message = "Its address may be wrong, or the program has gone on, or the key is not here."
        raise Problem(404, "There is no such value", message) from None
    headers = {"content-disposition": f'attachment; filename="{_FILE_NAME}"', "x-content-type-options": "nosniff"}
    return Response(body, headers=headers, media_type="text/plain; charset=utf-8")
