"""The page of one record: its program, calls and request cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode import CodeModeProtocolError, Interrupt
from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
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
    compute_decision_token_subject,
    compute_record_action_token_subject,
    compute_record_fingerprint,
    create_call_form,
    describe_decision,
    encode_selection_value,
    find_decision_reason,
    find_edited_input,
    list_record_actions,
    needs_record_action,
    record_actions_to_json,
)
from ..errors import Problem
from ..forms import ABSENT, Form, FormResult
from ..notices import find_failed_notices
from ..principals import Principal, list_standing_choices, require_principal, select_visible_tenants
from ..record_view import (
    DiffLine,
    NoticeAndResumeStatus,
    RecordPageQuery,
    RecordView,
    create_record_view,
    diff_values,
    find_question,
    find_value_or_raise,
    needs_continuation,
    read_pause_view_with_problem,
    record_view_to_json,
    to_download_text,
)
from ..rendering import create_headline, render_page, to_short_visible_name_html, wants_json
from ..visible_text import (
    MAX_EXPANDED_CHARACTERS,
    Excerpt,
    ExpandableExcerpt,
    create_excerpt,
    create_expandable_excerpt,
)
from .console_context import ConsoleContext, record_to_json

_OPEN_STATES = ("pending", "resuming")
_MAX_FIELDS_PER_PAGE = 1_000
"""Further calls are shown as JSON text until they are expanded."""
_MAX_FORM_CHARACTERS_PER_PAGE = 2_000_000
"""Further cards are deferred until they are expanded."""
_MARKUP_CHARACTERS_PER_LINE = 100
_MAX_CALLS_DECIDED_TOGETHER = 20
"""The limit of calls of one record that can be decided together."""
_MAX_PATH_ID_CHARACTERS = 500
_ANNOTATION_LABELS = (
    ("destructiveHint", "destructive"),
    ("readOnlyHint", "read-only"),
    ("idempotentHint", "may be repeated"),
)


@dataclass(frozen=True, slots=True)
class RedisplayedSubmission:
    """A submitted decision that is displayed again, with the problem that prevented it.

    ``is_same_input``: it concerns the input that is displayed now.
    """

    interrupt_id: str
    submitted: SubmittedDecision
    form_result: FormResult | None = None
    problem: Problem | None = None
    is_same_input: bool = True

    @property
    def page_problem(self) -> Problem | None:
        """The problem if it concerns the whole page."""
        return self.problem if self.problem is not None and self.problem.status != 422 else None

    @property
    def concerns_reason(self) -> bool:
        """True if the reason is at fault."""
        return self.problem is not None and self.problem.facts.get("field") == "reason"

    @property
    def problems(self) -> dict[str, list[str]]:
        """Messages by pointer, ``""`` for the whole value."""
        problems_by_pointer = (
            dict(self.form_result.problems) if self.form_result is not None and self.submitted.needs_value else {}
        )
        if self.problem is not None and self.problem.status == 422:
            problems_by_pointer[""] = [self.problem.message, *problems_by_pointer.get("", [])]
        return problems_by_pointer

    def to_json(self) -> dict[str, Any]:
        """Return the problems and the value for API callers."""
        result: dict[str, Any] = {"problems": self.problems}
        if self.form_result is not None and self.form_result.is_valid and self.problem is None:
            result["value"] = self.form_result.value
        return result if self.problem is None else {**result, "error": self.problem.to_json()}


@dataclass(frozen=True, slots=True)
class RequestCard:
    """One request as a card of the page.

    ``input_excerpt`` and ``question_excerpt`` may be None. ``form`` is None without anything to
    answer, and for API callers. ``submitted_excerpt`` is what was typed for an older version of the form. ``changes``
    are those of a decided or previewed input. ``was_submitted``: it was just submitted and not decided.
    ``is_deferred``: the page is full, and the card has to be opened. ``standing_choices`` are labels of how long an
    approval may hold.
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
    def character_count(self) -> int:
        """The approximate size of its values, form and changes on a page."""
        lines = sum(
            len(line.pointer) + line.character_count + _MARKUP_CHARACTERS_PER_LINE for line in self.changes or ()
        )
        values = sum(line.character_count for line in (self.input_excerpt, self.question_excerpt) if line is not None)
        texts = (self.call.description, self.call.refusal or "", self.decision_reason)
        values += sum(min(len(line), MAX_EXPANDED_CHARACTERS) for line in texts)
        return lines + values + (0 if self.form is None else self.form.page_character_count)

    @property
    def path_segment(self) -> str:
        """Its part of URLs: the id, or the number if the id is not safe there."""
        name = self.call.interrupt_id
        is_plain = name.isascii() and name.isprintable() and len(name) <= _MAX_PATH_ID_CHARACTERS
        return quote(name, safe="") if is_plain else str(self.number)

    @property
    def hint_labels(self) -> list[str]:
        """Labels of the tool's annotations."""
        hints = self.call.annotations or {}
        return [label for name, label in _ANNOTATION_LABELS if hints.get(name) is True]

    @property
    def is_approval(self) -> bool:
        """True if the call needs an approval."""
        return self.call.kind == APPROVAL_KIND

    @property
    def is_unknown_outcome(self) -> bool:
        """True if the outcome of the call has to be entered."""
        return self.call.kind == UNKNOWN_OUTCOME_KIND

    @property
    def decision_text(self) -> str:
        """The decision in words, "" while pending."""
        return describe_decision(self.call) if self.call.state in ("decided", "applied") else ""

    @property
    def decision_reason(self) -> str:
        """The reason of the decision."""
        return find_decision_reason(self.call)

    def to_json(self) -> dict[str, Any]:
        """Return the card for API callers."""
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
    context: ConsoleContext, request: Request, record: Record, submission: RedisplayedSubmission | None = None
) -> list[RequestCard]:
    """Return the cards of a record in the order of its requests."""
    builder = _CardBuilder(
        context=context,
        principal=require_principal(request),
        record=record,
        submission=submission,
        expanded=request.query_params.get("request"),
        is_for_programs=wants_json(request),
    )
    return await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, builder.build_cards)


@dataclass(frozen=True, slots=True)
class _CardBuilder:
    """Builds the cards of one page. The work grows with the record."""

    context: ConsoleContext
    principal: Principal
    record: Record
    submission: RedisplayedSubmission | None
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
            characters_left -= card.character_count
            cards.append(card)
        return cards

    def _build_card(
        self,
        number: int,
        call: StoredRequest,
        submission: RedisplayedSubmission | None,
        *,
        has_fields: bool,
        is_deferred: bool,
    ) -> RequestCard:
        version, display_digest = (
            compute_call_version(self.record, call),
            self.context.store.compute_display_digest(call),
        )
        has_room = not is_deferred and not self.is_for_programs
        may_answer, question = self._may_answer(call, submission), find_question(call)
        form, submitted_excerpt = None, None
        if is_deferred and may_answer:
            form = Form(None, "", "json", is_editable=False)
        elif not self.is_for_programs:
            form, submitted_excerpt = _create_form_and_submitted_excerpt(
                call, submission, may_answer=may_answer, has_fields=has_fields
            )
        return RequestCard(
            call=call,
            number=number,
            requested_at_ms=_find_request_time_ms(self.record, call),
            version=version,
            display_digest=display_digest,
            form_token=self.principal.create_form_token(
                compute_decision_token_subject(call.interrupt_id, version, display_digest)
            ),
            may_answer=may_answer,
            form=form,
            input_excerpt=create_expandable_excerpt(call.input, has_room=has_room)
            if question is None or call.input is not None
            else None,
            question_excerpt=None if question is None else create_expandable_excerpt(question, has_room=has_room),
            reason="" if submission is None else submission.submitted.reason,
            problem=""
            if submission is None or submission.page_problem is not None or submission.problem is None
            else submission.problem.message,
            concerns_reason=submission is not None and submission.concerns_reason,
            submitted_excerpt=submitted_excerpt,
            changes=None if is_deferred else _diff_input(call, submission),
            was_submitted=submission is not None and submission.page_problem is None,
            is_preview=submission is not None
            and submission.submitted.decision == PREVIEW
            and submission.problem is None,
            has_fields=has_fields,
            is_deferred=is_deferred,
            standing_choices=list_standing_choices(self.context.standing_approvals, self.record, call)
            if may_answer
            else {},
            standing_choice="" if submission is None else submission.submitted.standing_choice,
        )

    def _may_answer(self, call: StoredRequest, submission: RedisplayedSubmission | None) -> bool:
        is_expired = submission is not None and submission.problem is not None and submission.problem.status == 410
        is_open = call.state == "waiting" and self.record.state in _OPEN_STATES and not is_expired
        return is_open and self.principal.user.may_decide


def _create_form_and_submitted_excerpt(
    call: StoredRequest, submission: RedisplayedSubmission | None, *, may_answer: bool, has_fields: bool
) -> tuple[Form | None, Excerpt | None]:
    """Return the form with the submitted texts if they still apply, else the form and an excerpt of them."""
    if submission is not None and submission.form_result is not None and submission.is_same_input and may_answer:
        return (
            submission.form_result.form
            if submission.submitted.needs_value
            else submission.form_result.form.without_problems(),
            None,
        )
    form = create_call_form(call, has_fields=has_fields) if may_answer else None
    return form, None if submission is None else _create_submission_excerpt(submission)


def _create_submission_excerpt(submission: RedisplayedSubmission) -> Excerpt | None:
    if submission.form_result is not None and submission.form_result.is_valid:
        return (
            None
            if submission.form_result.is_unchanged
            else create_excerpt(submission.form_result.value, MAX_EXPANDED_CHARACTERS)
        )
    lines = [f"{name}: {text}" for name, text in _filter_value_items(submission.submitted.items) if text]
    return create_excerpt("\n".join(lines), MAX_EXPANDED_CHARACTERS) if lines else None


def _filter_value_items(items: FormItems) -> FormItems:
    return [item for item in items if item[0].startswith(("/", "#")) or item[0] == "json"]


def _diff_input(call: StoredRequest, submission: RedisplayedSubmission | None) -> list[DiffLine] | None:
    if call.kind != APPROVAL_KIND:
        return None
    if call.state in ("decided", "applied"):
        new_input = find_edited_input(call)
        return None if new_input is ABSENT else diff_values(call.input, new_input)
    form_result = (
        None
        if submission is None or not submission.is_same_input or not submission.submitted.needs_value
        else submission.form_result
    )
    return diff_values(call.input, form_result.value) if form_result is not None and form_result.is_valid else None


def _find_request_time_ms(record: Record, call: StoredRequest) -> int:
    """Return when a call was first requested."""
    times = (version.created_at_ms for version in record.versions if call.interrupt_id in version.interrupt_ids)
    return next(times, record.created_at_ms)


_FILE_NAME = "value.txt"


def routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the routes of a record's page and of its values."""

    async def show_record(request: Request) -> Response:
        return await render_record_page(context, request, await context.load_visible_record(request))

    async def download_value(request: Request) -> Response:
        return await _download_value(context, request, await context.load_visible_record(request))

    return [
        Route("/records/{record_id}", show_record, methods=["GET"]),
        Route("/records/{record_id}/value", download_value, methods=["GET"]),
    ]


async def render_record_page(
    context: ConsoleContext,
    request: Request,
    record: Record,
    *,
    status: int = 200,
    submission: RedisplayedSubmission | None = None,
    notice: Problem | None = None,
) -> Response:
    """Return a record's page; ``submission`` is displayed again, ``notice`` shown at the top."""
    cards = await create_cards(context, request, record, submission)
    view = await _load_record_view(context, request, record)
    record_facts = await _load_notice_and_resume_status(context, record)
    submission_json = {} if submission is None else submission.to_json()
    if submission is not None:
        notice = submission.page_problem
    elif notice is not None:
        submission_json = {"error": notice.to_json()}
    values = create_record_action_values(request, record)
    if not wants_json(request):
        values |= await _load_heading_values(context, request, record)
    record_action_json = record_actions_to_json(record, values["record_actions"], values["record_action_token"])

    def render() -> Response:
        if wants_json(request):
            values_json = {
                **record_to_json(record),
                **record_view_to_json(record, view),
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

    return await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, render)


async def _load_heading_values(context: ConsoleContext, request: Request, record: Record) -> dict[str, Any]:
    """Return title, bulk form and next pending record of the page."""
    principal = require_principal(request)
    pending = [call for call in record.requests if call.state == "waiting"]
    approvals = [call for call in pending if call.kind == APPROVAL_KIND]
    is_open = record.state in _OPEN_STATES and principal.user.may_decide
    titled_calls = pending or record.requests
    text = (
        create_headline(titled_calls[0]) if titled_calls else to_short_visible_name_html(record.outer_tool or record.id)
    )
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
        "together": [
            encode_selection_value(record.id, call.interrupt_id) for call in approvals[:_MAX_CALLS_DECIDED_TOGETHER]
        ],
        "selection_token": principal.create_form_token(BULK_SELECTION_SUBJECT),
        "next_pending": None,
    }
    if not is_open or not 2 <= len(approvals) <= _MAX_CALLS_DECIDED_TOGETHER:
        values["together"] = []
    if not pending and principal.user.may_decide:
        pending_records = await context.store.list(
            tenant=select_visible_tenants(principal.user, ""), state="waiting", limit=1
        )
        values["next_pending"] = next(iter(pending_records.records), None)
    return values


def create_record_action_values(request: Request, record: Record) -> dict[str, Any]:
    """Return the template values of record actions."""
    principal = require_principal(request)
    return {
        "record_actions": list_record_actions(record) if principal.user.may_decide else (),
        "needs_record_action": needs_record_action(record),
        "record_action_token": principal.create_form_token(
            compute_record_action_token_subject(record.id, compute_record_fingerprint(record), record.state)
        ),
        "fingerprint": compute_record_fingerprint(record),
        "max_reason": MAX_ACTION_REASON_CHARACTERS,
    }


async def _load_record_view(context: ConsoleContext, request: Request, record: Record) -> RecordView:
    interrupt, unreadable = await _load_interrupt_with_problem(context, record)
    page_query, reader = _parse_page_query(request), context.create_pause_reader(record)
    # Large checks run one at a time.
    return await run_in_thread_if_large_or_slow(
        LARGE_CHARACTERS, lambda: create_record_view(record, interrupt, reader, page_query, unreadable)
    )


async def _load_notice_and_resume_status(context: ConsoleContext, record: Record) -> NoticeAndResumeStatus:
    failures = (await find_failed_notices(context.store, [record])).get(record.id, ())
    if context.resumes_app(record.app):
        return NoticeAndResumeStatus(failures, resumes_here=True)
    resumed = await context.store.last_resumed(tenant=record.tenant, app=record.app)
    return NoticeAndResumeStatus(failures, resumes_here=False, last_resumed=resumed)


async def _load_interrupt_with_problem(context: ConsoleContext, record: Record) -> tuple[Interrupt | None, str | None]:
    """Return the latest pause of a record, and why it cannot be read if so."""
    pending_call = next((call for call in record.requests if call.state in ("waiting", "decided")), None)
    load_last_interrupt: Any = getattr(context.store, "last_interrupt", None)  # a custom store may lack it
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
    """Return a whole value as a file. Raises `Problem` 404."""
    address = request.query_params.get("of", "")
    interrupt = None
    if needs_continuation(address):
        interrupt, _ = await _load_interrupt_with_problem(context, record)
    reader = context.create_pause_reader(record)

    def encode_value() -> bytes:
        view = None if interrupt is None else read_pause_view_with_problem(interrupt, reader)[0]
        return to_download_text(find_value_or_raise(address, record, view)).encode("utf-8", "backslashreplace")

    try:
        body = await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, encode_value)
    except LookupError:
        message = "The URL may be wrong, the program may have continued, or the key is missing here."
        raise Problem(404, "There is no such value", message) from None
    headers = {"content-disposition": f'attachment; filename="{_FILE_NAME}"', "x-content-type-options": "nosniff"}
    return Response(body, headers=headers, media_type="text/plain; charset=utf-8")
