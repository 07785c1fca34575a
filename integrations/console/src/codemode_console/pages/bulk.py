"""Approve or deny several calls of one tool after listing their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.stores import ALL_TENANTS, AnswerRefusedError, Record, StoredRequest, StoreError, StoreUnavailableError

from ..bodies import FormItems, get_single_value, read_form_items
from ..decisions import (
    BULK_SELECTION_SUBJECT,
    MAX_REASON_CHARACTERS,
    SelectedCall,
    compute_bulk_decision_token_subject,
    compute_call_version,
    find_not_pending_problem,
    has_same_decision,
    invalid_decision_problem,
    parse_selection,
    stale_form_problem,
)
from ..errors import Problem, not_found_problem, to_problem
from ..principals import audit_refusal_within_quota, find_decision_refusal, require_principal, select_visible_tenants
from ..rendering import render_page, wants_json
from ..sessions import TOKEN_FIELD
from ..visible_text import MAX_EXPANDED_CHARACTERS, Excerpt, create_excerpt
from .console_context import ConsoleContext

MAX_INPUT_CHARACTERS_PER_PAGE = 1_000_000
"""The limit of inputs on one page; other calls are decided on their own page."""
_DECISION_TEXTS = {"approve": "approved", "deny": "denied"}


@dataclass(frozen=True, slots=True)
class _SelectedCallState:
    """A selected call with its problem, if any. ``call`` is None if the user cannot see it."""

    selected: SelectedCall
    record: Record | None = None
    call: StoredRequest | None = None
    problem: Problem | None = None
    input_excerpt: Excerpt | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result for API callers."""
        result: dict[str, Any] = {"record": self.selected.record_id, "id": self.selected.interrupt_id}
        return result if self.problem is None else {**result, "error": self.problem.to_json()}


def routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the routes of bulk decisions."""

    async def review_selection(request: Request) -> Response:
        items = await read_form_items(request)
        await _require_form_and_permission_or_audit(
            context, request, get_single_value(items, TOKEN_FIELD), BULK_SELECTION_SUBJECT
        )
        return await _render_review_page(
            context,
            request,
            _parse_decision(request, items),
            parse_selection(_list_selection_values(items), part_count=2),
        )

    async def decide_selection(request: Request) -> Response:
        items = await read_form_items(request)
        decision, selection = (
            _parse_decision(request, items),
            parse_selection(_list_selection_values(items), part_count=4),
        )
        await _require_form_and_permission_or_audit(
            context,
            request,
            get_single_value(items, TOKEN_FIELD),
            compute_bulk_decision_token_subject(decision, selection),
        )
        reason = get_single_value(items, "reason").strip()
        if len(reason) > MAX_REASON_CHARACTERS:
            raise Problem(422, "The reason is too long", f"It may have {MAX_REASON_CHARACTERS:,} characters.")
        records: dict[str, Record] = {}
        results: list[_SelectedCallState] = []
        for selected in selection:
            last_problem = results[-1].problem if results else None
            # Once the database is unavailable, the remaining calls do not wait for it again.
            is_store_unavailable = last_problem is not None and last_problem.status == 503
            results.append(
                _SelectedCallState(selected, problem=last_problem)
                if is_store_unavailable
                else await _decide_call(context, request, selected, decision, reason, records)
            )
        return _render_results_page(request, decision, results)

    return [
        Route("/many", review_selection, methods=["POST"]),
        Route("/many/decide", decide_selection, methods=["POST"]),
    ]


def _list_selection_values(items: FormItems) -> Sequence[str]:
    return [text for name, text in items if name == "request"]


def _parse_decision(request: Request, items: FormItems) -> str:
    decision = get_single_value(items, "decision")
    if decision not in _DECISION_TEXTS:
        raise invalid_decision_problem(_DECISION_TEXTS, is_for_programs=wants_json(request))
    return decision


async def _require_form_and_permission_or_audit(
    context: ConsoleContext, request: Request, token: str, subject: str
) -> None:
    """Raise `Problem` 403 for an invalid form token or a user who may not decide, and audit it."""
    principal = require_principal(request)
    try:
        principal.require_form_token(token, subject)
        if not principal.user.may_decide:
            raise Problem(403, "You may not decide this", "you may look but not decide")
    except Problem as problem:
        await audit_refusal_within_quota(context.store, principal, request, problem.message)
        raise


async def _render_review_page(
    context: ConsoleContext, request: Request, decision: str, selection: Sequence[SelectedCall]
) -> Response:
    """Return the page that lists each input before anything is decided."""
    tenants = select_visible_tenants(require_principal(request).user, "")
    ids = list(dict.fromkeys(selected.record_id for selected in selection))
    records = {record.id: record for record in await context.store.records(ids, tenant=tenants)}
    results = await run_in_thread_if_large_or_slow(
        LARGE_CHARACTERS, lambda: [_prepare_call_for_review(context, records, selected) for selected in selection]
    )
    if not wants_json(request):  # API callers get whole inputs
        results = _mark_long_inputs_as_problems(results)
    pending = [result for result in results if result.problem is None]
    tools = {result.call.tool_name for result in results if result.call is not None}
    if len(tools) > 1 and len(ids) > 1:  # one program may call several tools
        raise Problem(
            422, "The calls are of several tools", "Only calls of one tool are decided together. Nothing was decided."
        )
    if not pending:
        return _render_results_page(request, decision, results)
    token = require_principal(request).create_form_token(
        compute_bulk_decision_token_subject(decision, [result.selected for result in pending])
    )

    def render() -> Response:
        if wants_json(request):
            listed = [
                {**result.to_json(), "request": result.selected.to_field_value(), **_call_to_review_json(result)}
                for result in pending
            ]
            not_pending = [result.to_json() for result in results if result.problem is not None]
            return JSONResponse(
                {"decision": decision, "requests": listed, "notWaiting": not_pending, "formToken": token}
            )
        values: dict[str, Any] = {
            "tool": next(iter(tools)) if len(tools) == 1 else "",
            "decision": decision,
            "token": token,
            "max_reason": MAX_REASON_CHARACTERS,
        }
        not_pending = [result for result in results if result.problem is not None]
        return render_page(request, "bulk_review.html", pending=pending, undecided=not_pending, **values)

    return await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, render)


def _call_to_review_json(result: _SelectedCallState) -> dict[str, Any]:
    call = result.call
    return (
        {} if call is None else {"tool": call.tool_name, "input": call.input, "shown": result.selected.display_digest}
    )


def _prepare_call_for_review(
    context: ConsoleContext, records: dict[str, Record], selected: SelectedCall
) -> _SelectedCallState:
    """Return a call as displayed. Raises `Problem` 422 for calls that are no approvals."""
    record = records.get(selected.record_id)
    call = None if record is None else _find_call(record, selected.interrupt_id)
    if record is None or call is None:
        return _SelectedCallState(selected, problem=not_found_problem())
    if call.kind != APPROVAL_KIND:
        raise Problem(422, "This call is not decided with others", "Answer each question on the page of its record.")
    displayed = SelectedCall(
        record.id, call.interrupt_id, compute_call_version(record, call), context.store.compute_display_digest(call)
    )
    return _SelectedCallState(
        displayed,
        record,
        call,
        find_not_pending_problem(record, call),
        create_excerpt(call.input, MAX_EXPANDED_CHARACTERS),
    )


def _mark_long_inputs_as_problems(results: Sequence[_SelectedCallState]) -> list[_SelectedCallState]:
    """Exclude calls whose input does not fit on the page."""
    characters_left, checked = MAX_INPUT_CHARACTERS_PER_PAGE, list[_SelectedCallState]()
    for result in results:
        if result.problem is not None or result.input_excerpt is None:
            checked.append(result)
        elif result.input_excerpt.is_whole and len(result.input_excerpt.text) <= characters_left:
            characters_left -= len(result.input_excerpt.text)
            checked.append(result)
        else:
            checked.append(replace(result, problem=_input_too_long_problem()))
    return checked


def _input_too_long_problem() -> Problem:
    message = "The whole input does not fit on this page. Decide the call on its own page."
    return Problem(422, "Its input is too long for this page", message)


def _find_call(record: Record, interrupt_id: str) -> StoredRequest | None:
    return next((call for call in record.requests if call.interrupt_id == interrupt_id), None)


async def _decide_call(
    context: ConsoleContext,
    request: Request,
    selected: SelectedCall,
    decision: str,
    reason: str,
    records: dict[str, Record],
) -> _SelectedCallState:
    """Decide one call, independent of the others. ``records`` caches records."""
    principal = require_principal(request)
    try:
        # The database may fail here; the result then says which calls were decided before.
        record = records.get(selected.record_id) or await context.store.record(selected.record_id, tenant=ALL_TENANTS)
    except (StoreError, StoreUnavailableError) as error:
        return _SelectedCallState(selected, problem=to_problem(error))
    records[record.id] = record
    call = _find_call(record, selected.interrupt_id) if principal.user.can_see(record.tenant) else None
    if call is None:
        return _SelectedCallState(selected, problem=not_found_problem())
    if (refusal := await find_decision_refusal(context.policy, principal.user, record, request)) is not None:
        await audit_refusal_within_quota(context.store, principal, request, refusal)
        return _SelectedCallState(selected, record, call, Problem(403, "You may not decide this", refusal))
    answer = {"approved": decision == "approve", **({"reason": reason} if reason else {})}
    if call.actor == principal.user.name and has_same_decision(call, answer):
        return _SelectedCallState(selected, record, call)  # submitted twice
    displayed = await run_in_thread_if_large_or_slow(
        LARGE_CHARACTERS, lambda: (compute_call_version(record, call), context.store.compute_display_digest(call))
    )
    if call.state == "waiting" and displayed != (selected.version, selected.display_digest):
        return _SelectedCallState(selected, record, call, stale_form_problem(call))
    attribution: dict[str, Any] = {"actor": principal.user.name, "tenant": record.tenant, "address": principal.address}
    name = call.interrupt_id
    try:
        stored_call = (await context.store.decide({name: answer}, seen={name: selected.display_digest}, **attribution))[
            name
        ]
    except AnswerRefusedError as error:
        return _SelectedCallState(selected, record, call, Problem(422, "The answer does not fit", error.message))
    except (StoreError, StoreUnavailableError) as error:
        return _SelectedCallState(selected, record, call, find_not_pending_problem(record, call) or to_problem(error))
    problem = None if stored_call.actor == principal.user.name else find_not_pending_problem(record, stored_call)
    return _SelectedCallState(selected, record, call, problem)


def _render_results_page(request: Request, decision: str, results: Sequence[_SelectedCallState]) -> Response:
    """Return which calls were decided, and why the others were not."""
    done = [result for result in results if result.problem is None]
    undecided = [result for result in results if result.problem is not None]
    status = 200 if done or undecided[0].problem is None else undecided[0].problem.status
    if wants_json(request):
        outcomes = {
            "decided": [result.to_json() for result in done],
            "notDecided": [result.to_json() for result in undecided],
        }
        return JSONResponse({"decision": _DECISION_TEXTS[decision], **outcomes}, status)
    decided = _DECISION_TEXTS[decision]
    return render_page(request, "bulk_results.html", status=status, decided=decided, done=done, undecided=undecided)
