"""Decide one call; withdraw, close or rerun a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from codemode.stores import AnswerRefusedError, AuditLine, Record, StoredRequest, StoreError

from ..bodies import FormItems, get_single_value, has_json_body, read_form_items, read_json
from ..decisions import (
    MAX_ACTION_REASON_CHARACTERS,
    PREVIEW,
    VALUE_DOES_NOT_FIT,
    DecisionError,
    SubmittedDecision,
    compute_call_version,
    compute_decision_token_subject,
    compute_record_action_token_subject,
    compute_record_fingerprint,
    find_not_pending_problem,
    get_record_action_methods,
    has_same_decision,
    list_record_actions,
    parse_decision_form,
    parse_decision_json,
    read_call_form,
    require_valid_decision,
    stale_form_problem,
    to_store_decision,
)
from ..errors import Problem, not_found_problem, to_problem
from ..forms import FormResult
from ..principals import (
    audit_refusal_within_quota,
    find_decision_refusal,
    list_standing_choices,
    require_principal,
    store_standing_approval,
)
from ..rendering import render_page, wants_json
from ..sessions import TOKEN_FIELD
from ..visible_text import format_time
from .console_context import ConsoleContext, format_record_path
from .record import RedisplayedSubmission, create_record_action_values, render_record_page


def routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the route that takes decisions."""

    async def decide_call(request: Request) -> Response:
        submitted = await _read_submitted_decision(request)
        record = await context.load_visible_record(request)
        call = _find_call_by_id_or_number_or_raise(record, request.path_params["interrupt_id"])
        await _require_permission_or_audit(context, request, record, submitted, call.interrupt_id)
        require_valid_decision(call, submitted, is_for_programs=wants_json(request) or has_json_body(request))
        return await _apply_decision(context, request, record, call, submitted)

    return [Route("/records/{record_id}/requests/{interrupt_id:path}", decide_call, methods=["POST"])]


@dataclass(frozen=True, slots=True)
class _EvaluatedDecision:
    """A submission compared with the stored call.

    ``decision`` holds the decision alone; None if nothing is decided, with the reason in ``error``. ``is_current``: the
    displayed call has not changed; ``is_same_input``: at least its input has not. ``is_repeated``: the same user has
    already made this decision.
    """

    form_result: FormResult | None
    decision: tuple[Any] | None
    error: DecisionError | None
    is_current: bool
    is_same_input: bool
    is_repeated: bool


def _find_call_by_id_or_number_or_raise(record: Record, name: str) -> StoredRequest:
    """Return a call by id or number. Raises `Problem` 404."""
    calls_by_number = {str(number): call for number, call in enumerate(record.requests, 1)}
    call = {**calls_by_number, **{call.interrupt_id: call for call in record.requests}}.get(name)
    if call is None:
        raise not_found_problem()
    return call


async def _read_submitted_decision(request: Request) -> SubmittedDecision:
    if not has_json_body(request):
        return parse_decision_form(await read_form_items(request))
    body = await read_json(request)
    return await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: parse_decision_json(body))


async def _require_permission_or_audit(
    context: ConsoleContext, request: Request, record: Record, submitted: SubmittedDecision, interrupt_id: str
) -> None:
    """Raise `Problem` 403 for a user who may not decide this, and audit it."""
    principal = require_principal(request)
    try:
        principal.require_form_token(
            submitted.form_token,
            compute_decision_token_subject(interrupt_id, submitted.version, submitted.display_digest),
        )
        if (reason := await find_decision_refusal(context.policy, principal.user, record, request)) is not None:
            raise Problem(403, "You may not decide this", reason)
    except Problem as problem:
        await audit_refusal_within_quota(context.store, principal, request, problem.message)
        raise


async def _apply_decision(
    context: ConsoleContext, request: Request, record: Record, call: StoredRequest, submitted: SubmittedDecision
) -> Response:
    actor = require_principal(request).user.name
    evaluation = await run_in_thread_if_large_or_slow(
        LARGE_CHARACTERS, lambda: _evaluate_decision(context, record, call, submitted, actor)
    )
    # The standing approval is not stored again, since it may have been revoked since.
    if evaluation.is_repeated:
        return _decision_response(request, record, call)
    problem = find_not_pending_problem(record, call)
    if problem is None and not evaluation.is_current:
        problem = stale_form_problem(call)
    if problem is None and evaluation.error is not None:
        facts = {"field": "reason"} if evaluation.error.concerns_reason else None
        problem = Problem(422, "Nothing is decided yet", evaluation.error.message, facts=facts)
    if problem is None and evaluation.decision is not None:
        _require_offered_standing_choice(context, record, call, submitted)
        problem = await _store_decision(context, request, record, call, evaluation.decision[0])
        if problem is None:
            return await _store_standing_approval_and_respond(context, request, record, call, submitted)
        record = await context.load_visible_record(request)  # displays changes made meanwhile
    submission = RedisplayedSubmission(
        call.interrupt_id, submitted, evaluation.form_result, problem, evaluation.is_same_input
    )
    status = 200 if problem is None else problem.status
    return await render_record_page(context, request, record, status=status, submission=submission)


def _evaluate_decision(
    context: ConsoleContext, record: Record, call: StoredRequest, submitted: SubmittedDecision, actor: str
) -> _EvaluatedDecision:
    is_same_input = submitted.display_digest == context.store.compute_display_digest(call)
    is_current = is_same_input and submitted.version == compute_call_version(record, call)
    form_result: FormResult | None = None
    try:
        form_result = read_call_form(call, submitted.items)
    except Problem:
        if is_current and submitted.needs_value:
            raise
    decision: tuple[Any] | None = None
    why_none: DecisionError | None = None
    try:
        if submitted.decision == PREVIEW:
            is_invalid = form_result is not None and form_result.problems and not form_result.is_valid
            why_none = DecisionError(VALUE_DOES_NOT_FIT) if is_invalid else None
        elif not submitted.changes_form:
            decision = (to_store_decision(call, submitted, form_result),)
    except DecisionError as error:
        why_none = error
    is_repeat = decision is not None and call.actor == actor and has_same_decision(call, decision[0])
    return _EvaluatedDecision(form_result, decision, why_none, is_current, is_same_input, is_repeat)


async def _store_decision(
    context: ConsoleContext, request: Request, record: Record, call: StoredRequest, decision: Any
) -> Problem | None:
    """Store the decision, and return the problem if that fails."""
    principal, interrupt_id = require_principal(request), call.interrupt_id
    attribution: dict[str, Any] = {"actor": principal.user.name, "tenant": record.tenant, "address": principal.address}
    try:
        stored_calls = await context.store.decide(
            {interrupt_id: decision}, seen={interrupt_id: context.store.compute_display_digest(call)}, **attribution
        )
    except AnswerRefusedError as error:
        problems: Any = error.details.get("problems", {}).get(interrupt_id, [error.message])
        return Problem(422, "The answer does not fit", "; ".join(problems))
    except StoreError as error:
        return to_problem(error)
    stored_call = stored_calls[interrupt_id]
    return None if stored_call.actor == principal.user.name else find_not_pending_problem(record, stored_call)


def _require_offered_standing_choice(
    context: ConsoleContext, record: Record, call: StoredRequest, submitted: SubmittedDecision
) -> None:
    """Raise `Problem` 400 for a standing choice that was not offered."""
    if submitted.standing_choice and submitted.standing_choice not in list_standing_choices(
        context.standing_approvals, record, call
    ):
        raise Problem(400, "Nothing is decided", "This approval is for this call only.")


async def _store_standing_approval_and_respond(
    context: ConsoleContext, request: Request, record: Record, call: StoredRequest, submitted: SubmittedDecision
) -> Response:
    """Store the standing approval, if one was chosen, and return the response."""
    choice = submitted.standing_choice if submitted.is_approving else ""
    notice = await store_standing_approval(context.standing_approvals, record, call, choice, require_principal(request))
    if notice is None:
        return _decision_response(request, record, call)
    return await render_record_page(context, request, await context.load_visible_record(request), notice=notice)


def _decision_response(request: Request, record: Record, call: StoredRequest) -> Response:
    if wants_json(request):
        return JSONResponse({"id": call.interrupt_id, "state": "decided"})
    if "back" not in request.query_params:
        return RedirectResponse(format_record_path(request, record.id), 303)
    # Back to the list, with the same order and filters.
    number = [candidate.interrupt_id for candidate in record.requests].index(call.interrupt_id) + 1
    query_pairs = [pair for pair in parse_qsl(request.query_params["back"]) if pair[0] != "done"]
    query = urlencode([*query_pairs, ("done", f"{record.id}/{number}")])
    return RedirectResponse(f"{request.scope.get('root_path', '')}/?{query}", 303)


_MAX_LISTED_CALLS = 20
_AUDIT_KINDS = {"withdraw": "withdrawn", "close": "closed", "run-again": "run_again"}
_ACTION_RESULTS = {**_AUDIT_KINDS, "run-again": "run again"}


def create_record_action_routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the routes of record actions."""

    async def show_record_action_form(request: Request) -> Response:
        return _render_record_action_page(request, await context.load_visible_record(request))

    async def apply_record_action(request: Request) -> Response:
        items = await read_form_items(request)
        record = await context.load_visible_record(request)
        await _require_record_action_permission_or_audit(context, request, record, items)
        return await _run_record_action(context, request, record, items)

    path = "/records/{record_id}/ending"
    return [Route(path, show_record_action_form, methods=["GET"]), Route(path, apply_record_action, methods=["POST"])]


def _render_record_action_page(request: Request, record: Record) -> Response:
    """Return the page that confirms a record action. Raises `Problem` 404 if none is allowed."""
    action_values = create_record_action_values(request, record)
    if not action_values["record_actions"]:
        can_decide = require_principal(request).user.may_decide
        title = "This program can no longer be withdrawn" if can_decide else "You may not withdraw this program"
        raise Problem(404, title, f"The program is {record.state}.", record_id=record.id)
    pending = [call for call in record.requests if call.state == "waiting"]
    values = {"pending": pending[:_MAX_LISTED_CALLS], "hidden_calls": max(0, len(pending) - _MAX_LISTED_CALLS)}
    return render_page(request, "record_action.html", record=record, **values, **action_values)


async def _require_record_action_permission_or_audit(
    context: ConsoleContext, request: Request, record: Record, items: FormItems
) -> None:
    """Raise `Problem` 403 for a user who may not act on this record, and audit it."""
    principal = require_principal(request)
    version, state = get_single_value(items, "version"), get_single_value(items, "state")
    try:
        principal.require_form_token(
            get_single_value(items, TOKEN_FIELD), compute_record_action_token_subject(record.id, version, state)
        )
        if (reason := await find_decision_refusal(context.policy, principal.user, record, request)) is not None:
            raise Problem(403, "You may not decide this", reason)
    except Problem as problem:
        await audit_refusal_within_quota(context.store, principal, request, problem.message)
        raise


async def _run_record_action(context: ConsoleContext, request: Request, record: Record, items: FormItems) -> Response:
    principal = require_principal(request)
    action, reason = get_single_value(items, "action"), get_single_value(items, "why").strip()
    if action not in _AUDIT_KINDS:
        raise Problem(400, "The form names no action on the record")
    if (get_single_value(items, "version"), get_single_value(items, "state")) != (
        compute_record_fingerprint(record),
        record.state,
    ):
        return await _respond_to_conflict_or_repeat(context, request, record, action)
    record_action = next((candidate for candidate in list_record_actions(record) if candidate.action == action), None)
    if record_action is None:
        raise Problem(409, "This is not possible now", f"The record is {record.state}.")
    if len(reason) > MAX_ACTION_REASON_CHARACTERS:
        raise Problem(422, "The reason is too long", f"It may have {MAX_ACTION_REASON_CHARACTERS:,} characters.")
    attribution = {
        "actor": principal.user.name,
        "reason": reason,
        "tenant": record.tenant,
        "address": principal.address,
    }
    await get_record_action_methods(context.store)[action](record.id, **attribution)
    return _record_action_response(request, record, record_action.action)


def _record_action_response(request: Request, record: Record, action: str) -> Response:
    if wants_json(request):
        return JSONResponse({"id": record.id, "state": _ACTION_RESULTS[action]})
    return RedirectResponse(format_record_path(request, record.id), 303)


async def _respond_to_conflict_or_repeat(
    context: ConsoleContext, request: Request, record: Record, action: str
) -> Response:
    """Return the page of a record that changed; success if the same user has already done this."""
    line = await _find_last_audit_line(context, record)
    if line is not None and (line.kind, line.actor) == (_AUDIT_KINDS[action], require_principal(request).user.name):
        return _record_action_response(request, record, action)
    message = f"It is now {record.state}, version {record.version}."
    if line is not None and line.actor:
        message = f"{line.kind.replace('_', ' ').capitalize()} by {line.actor}, {format_time(line.at_ms)}. {message}"
    notice = Problem(410 if record.state == "expired" else 409, "The program has changed meanwhile", message)
    return await render_record_page(context, request, record, status=notice.status, notice=notice)


async def _find_last_audit_line(context: ConsoleContext, record: Record) -> AuditLine | None:
    lines = context.store.audit(tenant=record.tenant, record_id=record.id, limit=1, newest_first=True)
    async for line in lines:
        return line
    return None
