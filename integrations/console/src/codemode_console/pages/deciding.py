"""Decide about one request; withdraw, close or run a record again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.stores import AnswerRefusedError, AuditLine, Record, StoredRequest, StoreError

from ..bodies import FormItems, has_json_body, read_form_items, read_json, single_value
from ..decisions import (
    MISFIT,
    MOST_WHY_CHARACTERS,
    PREVIEW,
    NotDecided,
    Sent,
    about,
    about_ending,
    as_shown,
    changed_meanwhile,
    decision_of,
    edited_of,
    ending_calls,
    endings_of,
    is_decision,
    no_longer_asked,
    require_sense,
    sent_form,
    sent_json,
    version_of,
)
from ..errors import Problem, not_found_problem, to_problem
from ..forms import Edited
from ..rendering import page, wants_json
from ..sessions import TOKEN_FIELD
from ..visible import moment_text
from ..visits import audit_refusal, find_refusal, keep_standing_approval, require_principal, standing_choices
from .desk import ConsoleContext, record_path
from .record import Answering, ending_context, record_page


def routes(desk: ConsoleContext) -> list[BaseRoute]:
    """Return the route that takes decisions."""

    async def decide(request: Request) -> Response:
        sent = await _sent(request)
        record = await desk.load_record(request)
        one = _named(record, request.path_params["interrupt_id"])
        await _require_allowed(desk, request, record, sent, one.interrupt_id)
        require_sense(one, sent, is_for_programs=wants_json(request) or has_json_body(request))
        return await _answer(desk, request, record, one, sent)

    return [Route("/records/{record_id}/requests/{interrupt_id:path}", decide, methods=["POST"])]


@dataclass(frozen=True, slots=True)
class _Said:
    """What was read. ``decision`` holds it alone; None where nothing is decided, and ``why_none`` says why.

    ``is_current``: all that was shown is so still; ``is_of_this``: the input at least. ``is_repeat``: the same person
    has decided the same.
    """

    edited: Edited | None
    decision: tuple[Any] | None
    why_none: NotDecided | None
    is_current: bool
    is_of_this: bool
    is_repeat: bool


def _named(record: Record, name: str) -> StoredRequest:
    """Return a request by its id, or by its number. Raises `Problem` 404."""
    known = {str(number): one for number, one in enumerate(record.requests, 1)}
    one = {**known, **{one.interrupt_id: one for one in record.requests}}.get(name)
    if one is None:
        raise not_found_problem()
    return one


async def _sent(request: Request) -> Sent:
    if not has_json_body(request):
        return sent_form(await read_form_items(request))
    body = await read_json(request)
    return await run_check(LARGE_CHARACTERS, lambda: sent_json(body))


async def _require_allowed(desk: ConsoleContext, request: Request, record: Record, sent: Sent, name: str) -> None:
    """Raise `Problem` 403 for who may not decide this, which is audited."""
    visit = require_principal(request)
    try:
        visit.require_form_token(sent.token, about(name, sent.version, sent.shown))
        if (why := await find_refusal(desk.policy, visit.user, record, request)) is not None:
            raise Problem(403, "You may not decide this", why)
    except Problem as problem:
        await audit_refusal(desk.store, visit, request, problem.message)
        raise


async def _answer(desk: ConsoleContext, request: Request, record: Record, one: StoredRequest, sent: Sent) -> Response:
    actor = require_principal(request).user.name
    said = await run_check(LARGE_CHARACTERS, lambda: _read(desk, record, one, sent, actor))
    # What it holds for is not kept again: somebody may have taken it back since.
    if said.is_repeat:
        return _done(request, record, one)
    problem = no_longer_asked(record, one)
    if problem is None and not said.is_current:
        problem = changed_meanwhile(one)
    if problem is None and said.why_none is not None:
        facts = {"field": "reason"} if said.why_none.is_of_reason else None
        problem = Problem(422, "Nothing is decided yet", said.why_none.words, facts=facts)
    if problem is None and said.decision is not None:
        _require_choice(desk, record, one, sent)
        problem = await _decide(desk, request, record, one, said.decision[0])
        if problem is None:
            return await _decided(desk, request, record, one, sent)
        record = await desk.load_record(request)  # what has happened meanwhile is shown
    answering = Answering(one.interrupt_id, sent, said.edited, problem, said.is_of_this)
    status = 200 if problem is None else problem.status
    return await record_page(desk, request, record, status=status, answering=answering)


def _read(desk: ConsoleContext, record: Record, one: StoredRequest, sent: Sent, actor: str) -> _Said:
    is_of_this = sent.shown == desk.store.shown(one)
    is_current = is_of_this and sent.version == version_of(record, one)
    edited: Edited | None = None
    try:
        edited = edited_of(one, sent.items)
    except Problem:
        if is_current and sent.needs_value:
            raise
    decision: tuple[Any] | None = None
    why_none: NotDecided | None = None
    try:
        if sent.said == PREVIEW:
            is_misfit = edited is not None and edited.problems and not edited.is_readable
            why_none = NotDecided(MISFIT) if is_misfit else None
        elif not sent.is_redraw:
            decision = (decision_of(one, sent, edited),)
    except NotDecided as error:
        why_none = error
    is_repeat = decision is not None and one.actor == actor and is_decision(one, decision[0])
    return _Said(edited, decision, why_none, is_current, is_of_this, is_repeat)


async def _decide(
    desk: ConsoleContext, request: Request, record: Record, one: StoredRequest, decision: Any
) -> Problem | None:
    """Record the decision, and return why it was not."""
    visit, name = require_principal(request), one.interrupt_id
    told_by: dict[str, Any] = {"actor": visit.user.name, "tenant": record.tenant, "address": visit.address}
    try:
        decided = await desk.store.decide({name: decision}, seen={name: desk.store.shown(one)}, **told_by)
    except AnswerRefusedError as error:
        problems: Any = error.details.get("problems", {}).get(name, [error.message])
        return Problem(422, "The answer does not fit", "; ".join(problems))
    except StoreError as error:
        return to_problem(error)
    first = decided[name]
    return None if first.actor == visit.user.name else no_longer_asked(record, first)


def _require_choice(desk: ConsoleContext, record: Record, one: StoredRequest, sent: Sent) -> None:
    """Raise `Problem` 400 for an approval that is to hold for what nobody was offered."""
    if sent.later and sent.later not in standing_choices(desk.standing_approvals, record, one):
        raise Problem(400, "Nothing is decided", "This can be decided for this call alone.")


async def _decided(desk: ConsoleContext, request: Request, record: Record, one: StoredRequest, sent: Sent) -> Response:
    """Let what was decided hold for as long as it is to."""
    choice = sent.later if sent.approves else ""
    notice = await keep_standing_approval(desk.standing_approvals, record, one, choice, require_principal(request))
    if notice is None:
        return _done(request, record, one)
    return await record_page(desk, request, await desk.load_record(request), notice=notice)


def _done(request: Request, record: Record, one: StoredRequest) -> Response:
    if wants_json(request):
        return JSONResponse({"id": one.interrupt_id, "state": "decided"})
    if "back" not in request.query_params:
        return RedirectResponse(record_path(request, record.id), 303)
    # Decided in the list: it says so, in the same order and with the same filters.
    number = [each.interrupt_id for each in record.requests].index(one.interrupt_id) + 1
    kept = [pair for pair in parse_qsl(request.query_params["back"]) if pair[0] != "done"]
    query = urlencode([*kept, ("done", f"{record.id}/{number}")])
    return RedirectResponse(f"{request.scope.get('root_path', '')}/?{query}", 303)


_MOST_WAITING = 20
_KINDS = {"withdraw": "withdrawn", "close": "closed", "run-again": "run_again"}
_SAID = {**_KINDS, "run-again": "run again"}


def ending_routes(desk: ConsoleContext) -> list[BaseRoute]:
    """Return the route that takes what is said of a whole record."""

    async def form(request: Request) -> Response:
        return _form(request, await desk.load_record(request))

    async def end(request: Request) -> Response:
        items = await read_form_items(request)
        record = await desk.load_record(request)
        await _require_ending_allowed(desk, request, record, items)
        return await _end(desk, request, record, items)

    path = "/records/{record_id}/ending"
    return [Route(path, form, methods=["GET"]), Route(path, end, methods=["POST"])]


def _form(request: Request, record: Record) -> Response:
    """Return the page on which somebody says it. Raises `Problem` 404 where there is nothing to be said."""
    known = ending_context(request, record)
    if not known["endings"]:
        can_decide = require_principal(request).user.may_decide
        title = "This program can no longer be withdrawn" if can_decide else "You may not withdraw this program"
        raise Problem(404, title, f"The program is {record.state}.", record_id=record.id)
    waiting = [one for one in record.requests if one.state == "waiting"]
    shown = {"waiting": waiting[:_MOST_WAITING], "waiting_more": max(0, len(waiting) - _MOST_WAITING)}
    return page(request, "ending_page.html", record=record, **shown, **known)


async def _require_ending_allowed(desk: ConsoleContext, request: Request, record: Record, items: FormItems) -> None:
    """Raise `Problem` 403 for who may not say anything of this record, which is audited."""
    visit = require_principal(request)
    version, state = single_value(items, "version"), single_value(items, "state")
    try:
        visit.require_form_token(single_value(items, TOKEN_FIELD), about_ending(record.id, version, state))
        if (why := await find_refusal(desk.policy, visit.user, record, request)) is not None:
            raise Problem(403, "You may not decide this", why)
    except Problem as problem:
        await audit_refusal(desk.store, visit, request, problem.message)
        raise


async def _end(desk: ConsoleContext, request: Request, record: Record, items: FormItems) -> Response:
    visit = require_principal(request)
    action, why = single_value(items, "action"), single_value(items, "why").strip()
    if action not in _KINDS:
        raise Problem(400, "This form says nothing of the record")
    if (single_value(items, "version"), single_value(items, "state")) != (as_shown(record), record.state):
        return await _meanwhile(desk, request, record, action)
    chosen = next((one for one in endings_of(record) if one.action == action), None)
    if chosen is None:
        raise Problem(409, "It cannot be done now", f"The record is {record.state}.")
    if len(why) > MOST_WHY_CHARACTERS:
        raise Problem(422, "The reason is too long", f"It may have {MOST_WHY_CHARACTERS:,} characters.")
    said = {"actor": visit.user.name, "reason": why, "tenant": record.tenant, "address": visit.address}
    await ending_calls(desk.store)[action](record.id, **said)
    return _ended(request, record, chosen.action)


def _ended(request: Request, record: Record, action: str) -> Response:
    if wants_json(request):
        return JSONResponse({"id": record.id, "state": _SAID[action]})
    return RedirectResponse(record_path(request, record.id), 303)


async def _meanwhile(desk: ConsoleContext, request: Request, record: Record, action: str) -> Response:
    """Return what has happened since the form was shown; to a second click, that it is done."""
    line = await _last_line(desk, record)
    if line is not None and (line.kind, line.actor) == (_KINDS[action], require_principal(request).user.name):
        return _ended(request, record, action)
    words = f"It is {record.state} now, version {record.version}."
    if line is not None and line.actor:
        words = f"{line.kind.replace('_', ' ').capitalize()} by {line.actor}, {moment_text(line.at_ms)}. {words}"
    notice = Problem(410 if record.state == "expired" else 409, "Something has happened meanwhile", words)
    return await record_page(desk, request, record, status=notice.status, notice=notice)


async def _last_line(desk: ConsoleContext, record: Record) -> AuditLine | None:
    lines = desk.store.audit(tenant=record.tenant, record_id=record.id, limit=1, newest_first=True)
    async for line in lines:
        return line
    return None
