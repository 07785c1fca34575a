"""Approving or denying many calls of one tool: a page that lists each input first, then each is decided on its own.

What is listed is read with three statements, however many are chosen. Deciding reads each record once; of what has
happened since, the store tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.stores import ALL_TENANTS, AnswerRefusedError, Record, StoredRequest, StoreError, StoreUnavailableError

from ..bodies import FormItems, read_form_items, single_value
from ..decisions import (
    ABOUT_CHOICE,
    MOST_REASON_CHARACTERS,
    Chosen,
    about_many,
    changed_meanwhile,
    chosen_of,
    is_decision,
    no_decision,
    no_longer_asked,
    version_of,
)
from ..errors import Problem, not_found_problem, to_problem
from ..rendering import page, wants_json
from ..sessions import TOKEN_FIELD
from ..visible import ON_DEMAND_CHARACTERS, Cut, cut
from ..visits import audit_refusal, find_refusal, require_principal, visible_tenants
from .desk import ConsoleContext

MOST_ON_PAGE_CHARACTERS = 1_000_000
"""So many characters of inputs are on one page; what is behind them is decided on its own."""
_DECISIONS = {"approve": "approved", "deny": "denied"}


@dataclass(frozen=True, slots=True)
class _Told:
    """What there is to be said of one that was chosen. ``one`` is None where it is nothing that the visitor sees."""

    chosen: Chosen
    record: Record | None = None
    one: StoredRequest | None = None
    problem: Problem | None = None
    asked: Cut | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as callers of the API get it."""
        told: dict[str, Any] = {"record": self.chosen.record_id, "id": self.chosen.interrupt_id}
        return told if self.problem is None else {**told, "error": self.problem.to_json()}


def routes(desk: ConsoleContext) -> list[BaseRoute]:
    """Return the routes on which many are chosen, and decided."""

    async def look(request: Request) -> Response:
        items = await read_form_items(request)
        await _require_own_form(desk, request, single_value(items, TOKEN_FIELD), ABOUT_CHOICE)
        return await _look(desk, request, _decision(request, items), chosen_of(_named(items), parts=2))

    async def decide(request: Request) -> Response:
        items = await read_form_items(request)
        decision, chosen = _decision(request, items), chosen_of(_named(items), parts=4)
        await _require_own_form(desk, request, single_value(items, TOKEN_FIELD), about_many(decision, chosen))
        reason = single_value(items, "reason").strip()
        if len(reason) > MOST_REASON_CHARACTERS:
            raise Problem(422, "The reason is too long", f"It may have {MOST_REASON_CHARACTERS:,} characters.")
        records: dict[str, Record] = {}
        told: list[_Told] = []
        for one in chosen:
            last = told[-1].problem if told else None
            # Once the database is away, nobody waits for it again for each of the rest.
            is_away = last is not None and last.status == 503
            told.append(
                _Told(one, problem=last) if is_away else await _decided(desk, request, one, decision, reason, records)
            )
        return _answer(request, decision, told)

    return [Route("/many", look, methods=["POST"]), Route("/many/decide", decide, methods=["POST"])]


def _named(items: FormItems) -> Sequence[str]:
    return [text for name, text in items if name == "request"]


def _decision(request: Request, items: FormItems) -> str:
    decision = single_value(items, "decision")
    if decision not in _DECISIONS:
        raise no_decision(_DECISIONS, is_for_programs=wants_json(request))
    return decision


async def _require_own_form(desk: ConsoleContext, request: Request, token: str, of: str) -> None:
    """Raise `Problem` 403 for who decides nothing, and for a form that is not theirs; which is audited."""
    visit = require_principal(request)
    try:
        visit.require_form_token(token, of)
        if not visit.user.may_decide:
            raise Problem(403, "You may not decide this", "you may look, and decide nothing")
    except Problem as problem:
        await audit_refusal(desk.store, visit, request, problem.message)
        raise


async def _look(desk: ConsoleContext, request: Request, decision: str, chosen: Sequence[Chosen]) -> Response:
    """Return the page that lists each input. Nothing is decided yet."""
    tenants = visible_tenants(require_principal(request).user, "")
    ids = list(dict.fromkeys(one.record_id for one in chosen))
    records = {one.id: one for one in await desk.store.records(ids, tenant=tenants)}
    told = await run_check(LARGE_CHARACTERS, lambda: [_seen(desk, records, one) for one in chosen])
    if not wants_json(request):  # programs get each input whole
        told = _whole(told)
    asked = [one for one in told if one.problem is None]
    tools = {one.one.tool_name for one in told if one.one is not None}
    if len(tools) > 1 and len(ids) > 1:  # the calls of one program are shown together on its page, too
        raise Problem(422, "These are calls of several tools", "Those of one tool are decided together; nothing was.")
    if not asked:
        return _answer(request, decision, told)
    token = require_principal(request).form_token(about_many(decision, [one.chosen for one in asked]))

    def rendered() -> Response:
        if wants_json(request):
            listed = [{**one.to_json(), "request": one.chosen.text(), **_shown(one)} for one in asked]
            gone = [one.to_json() for one in told if one.problem is not None]
            return JSONResponse({"decision": decision, "requests": listed, "notWaiting": gone, "formToken": token})
        shown: dict[str, Any] = {
            "tool": next(iter(tools)) if len(tools) == 1 else "",
            "most_reason": MOST_REASON_CHARACTERS,
        }
        gone = [one for one in told if one.problem is not None]
        return page(request, "many.html", decision=decision, asked=asked, gone=gone, token=token, **shown)

    return await run_check(LARGE_CHARACTERS, rendered)


def _shown(told: _Told) -> dict[str, Any]:
    one = told.one
    return {} if one is None else {"tool": one.tool_name, "input": one.input, "shown": told.chosen.shown}


def _seen(desk: ConsoleContext, records: dict[str, Record], chosen: Chosen) -> _Told:
    """Return a request as it is shown. Raises `Problem` 422 for a question that is no approval."""
    record = records.get(chosen.record_id)
    one = None if record is None else _request(record, chosen.interrupt_id)
    if record is None or one is None:
        return _Told(chosen, problem=not_found_problem())
    if one.kind != APPROVAL_KIND:
        raise Problem(422, "This is not decided with others", "Each question is answered on the page of its record.")
    as_shown = Chosen(record.id, one.interrupt_id, version_of(record, one), desk.store.shown(one))
    return _Told(as_shown, record, one, no_longer_asked(record, one), cut(one.input, ON_DEMAND_CHARACTERS))


def _whole(told: Sequence[_Told]) -> list[_Told]:
    """Leave out what the page cannot show whole: nobody approves what they have not seen."""
    left, shown = MOST_ON_PAGE_CHARACTERS, list[_Told]()
    for one in told:
        if one.problem is not None or one.asked is None:
            shown.append(one)
        elif one.asked.is_whole and len(one.asked.text) <= left:
            left -= len(one.asked.text)
            shown.append(one)
        else:
            shown.append(replace(one, problem=_too_long()))
    return shown


def _too_long() -> Problem:
    words = "Not all of its input can be shown here, and nothing is decided that is not shown: decide it on its page."
    return Problem(422, "Its input is too long for this page", words)


def _request(record: Record, interrupt_id: str) -> StoredRequest | None:
    return next((one for one in record.requests if one.interrupt_id == interrupt_id), None)


async def _decided(
    desk: ConsoleContext, request: Request, chosen: Chosen, decision: str, reason: str, records: dict[str, Record]
) -> _Told:
    """Decide about one, whatever becomes of the others. ``records`` are those that were read for others before."""
    visit = require_principal(request)
    try:
        # Away by now: those before it are decided, and the answer says which.
        record = records.get(chosen.record_id) or await desk.store.record(chosen.record_id, tenant=ALL_TENANTS)
    except (StoreError, StoreUnavailableError) as error:
        return _Told(chosen, problem=to_problem(error))
    records[record.id] = record
    one = _request(record, chosen.interrupt_id) if visit.user.can_see(record.tenant) else None
    if one is None:
        return _Told(chosen, problem=not_found_problem())
    if (why := await find_refusal(desk.policy, visit.user, record, request)) is not None:
        await audit_refusal(desk.store, visit, request, why)
        return _Told(chosen, record, one, Problem(403, "You may not decide this", why))
    answer = {"approved": decision == "approve", **({"reason": reason} if reason else {})}
    if one.actor == visit.user.name and is_decision(one, answer):
        return _Told(chosen, record, one)  # sent again
    as_shown = await run_check(LARGE_CHARACTERS, lambda: (version_of(record, one), desk.store.shown(one)))
    if one.state == "waiting" and as_shown != (chosen.version, chosen.shown):
        return _Told(chosen, record, one, changed_meanwhile(one))
    said: dict[str, Any] = {"actor": visit.user.name, "tenant": record.tenant, "address": visit.address}
    name = one.interrupt_id
    try:
        first = (await desk.store.decide({name: answer}, seen={name: chosen.shown}, **said))[name]
    except AnswerRefusedError as error:
        return _Told(chosen, record, one, Problem(422, "The answer does not fit", error.message))
    except (StoreError, StoreUnavailableError) as error:
        return _Told(chosen, record, one, no_longer_asked(record, one) or to_problem(error))
    problem = None if first.actor == visit.user.name else no_longer_asked(record, first)
    return _Told(chosen, record, one, problem)


def _answer(request: Request, decision: str, told: Sequence[_Told]) -> Response:
    """Return which were decided, and of the others why not."""
    done = [one for one in told if one.problem is None]
    gone = [one for one in told if one.problem is not None]
    status = 200 if done or gone[0].problem is None else gone[0].problem.status
    if wants_json(request):
        said = {"decided": [one.to_json() for one in done], "notDecided": [one.to_json() for one in gone]}
        return JSONResponse({"decision": _DECISIONS[decision], **said}, status)
    return page(request, "many_done.html", status=status, decided=_DECISIONS[decision], done=done, gone=gone)
