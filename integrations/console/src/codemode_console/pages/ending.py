"""Withdrawing a record that waits, and saying what is to become of a lost one, or of one that nobody can resume."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from codemode import AuditLine, Record

from ..bodies import only, read_items
from ..csrf import TOKEN_FIELD
from ..endings import MOST_WHY_CHARACTERS, about, as_shown, ending_calls, endings_of
from ..errors import Problem
from ..limits import Items
from ..moments import moment_text
from ..policy import refusal
from ..rendering import page, wants_json
from ..visits import note_refusal, visit_of
from .desk import Desk, record_path
from .record import ending_context, record_page

_MOST_WAITING = 20
_KINDS = {"withdraw": "withdrawn", "close": "closed", "run-again": "run_again"}
_SAID = {**_KINDS, "run-again": "run again"}


def routes(desk: Desk) -> list[BaseRoute]:
    """Return the route that takes what is said of a whole record."""

    async def form(request: Request) -> Response:
        return _form(request, await desk.record_of(request))

    async def end(request: Request) -> Response:
        items = await read_items(request)
        record = await desk.record_of(request)
        await _require_allowed(desk, request, record, items)
        return await _end(desk, request, record, items)

    path = "/records/{record_id}/ending"
    return [Route(path, form, methods=["GET"]), Route(path, end, methods=["POST"])]


def _form(request: Request, record: Record) -> Response:
    """Return the page on which somebody says it. Raises `Problem` 404 where there is nothing to be said."""
    known = ending_context(request, record)
    if not known["endings"]:
        raise Problem(404, "There is nothing to be said of it", f"The record is {record.state}.")
    waiting = [one for one in record.requests if one.state == "waiting"]
    shown = {"waiting": waiting[:_MOST_WAITING], "waiting_more": max(0, len(waiting) - _MOST_WAITING)}
    return page(request, "ending_page.html", record=record, **shown, **known)


async def _require_allowed(desk: Desk, request: Request, record: Record, items: Items) -> None:
    """Raise `Problem` 403 for who may not say anything of this record, which is audited."""
    visit = visit_of(request)
    version, state = only(items, "version"), only(items, "state")
    try:
        visit.require_form_token(only(items, TOKEN_FIELD), about(record.id, version, state))
        if (why := await refusal(desk.policy, visit.user, record, request)) is not None:
            raise Problem(403, "You may not decide this", why)
    except Problem as problem:
        await note_refusal(desk.store, visit, request, problem.words)
        raise


async def _end(desk: Desk, request: Request, record: Record, items: Items) -> Response:
    visit = visit_of(request)
    action, why = only(items, "action"), only(items, "why").strip()
    if action not in _KINDS:
        raise Problem(400, "This form says nothing of the record")
    if (only(items, "version"), only(items, "state")) != (as_shown(record), record.state):
        return await _meanwhile(desk, request, record, action)
    chosen = next((one for one in endings_of(record) if one.action == action), None)
    if chosen is None:
        raise Problem(409, "It cannot be done now", f"The record is {record.state}.")
    if len(why) > MOST_WHY_CHARACTERS:
        raise Problem(422, "The reason is too long", f"It may have {MOST_WHY_CHARACTERS:,} characters.")
    said = {"actor": visit.user.name, "reason": why, "tenant": record.tenant, "address": visit.address}
    await ending_calls(desk.store)[action](record.id, **said)
    return _done(request, record, chosen.action)


def _done(request: Request, record: Record, action: str) -> Response:
    if wants_json(request):
        return JSONResponse({"id": record.id, "state": _SAID[action]})
    return RedirectResponse(record_path(request, record.id), 303)


async def _meanwhile(desk: Desk, request: Request, record: Record, action: str) -> Response:
    """Return what has happened since the form was shown; to a second click, that it is done."""
    line = await _last_line(desk, record)
    if line is not None and (line.kind, line.actor) == (_KINDS[action], visit_of(request).user.name):
        return _done(request, record, action)
    words = f"It is {record.state} now, version {record.version}."
    if line is not None and line.actor:
        words = f"{line.kind.replace('_', ' ').capitalize()} by {line.actor}, {moment_text(line.at_ms)}. {words}"
    notice = Problem(410 if record.state == "expired" else 409, "Something has happened meanwhile", words)
    return await record_page(desk, request, record, status=notice.status, notice=notice)


async def _last_line(desk: Desk, record: Record) -> AuditLine | None:
    lines = desk.store.audit(tenant=record.tenant, record_id=record.id, limit=1, newest_first=True)
    async for line in lines:
        return line
    return None
