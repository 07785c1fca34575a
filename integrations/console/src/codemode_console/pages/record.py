"""The page of one record: what waits, the program with the lines that wait, what it has done, what was decided."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode import CodeModeProtocolError, Interrupt, Record
from codemode.plugins import LARGE_CHARACTERS, run_check

from ..endings import MOST_WHY_CHARACTERS, about, as_shown, endings_json, endings_of, is_stuck
from ..errors import Problem
from ..notices import failures_of
from ..record_json import Around, view_json
from ..record_values import download_text, is_of_continuation, value_at
from ..record_view import Asked, RecordView, pause_view, record_view
from ..rendering import page, wants_json
from ..visits import visit_of
from .cards import Answering, cards_of
from .desk import Desk, record_json

_FILE_NAME = "value.txt"


def routes(desk: Desk) -> list[BaseRoute]:
    """Return the routes of a record's page and of its values."""

    async def record(request: Request) -> Response:
        return await record_page(desk, request, await desk.record_of(request))

    async def value(request: Request) -> Response:
        return await _download(desk, request, await desk.record_of(request))

    return [
        Route("/records/{record_id}", record, methods=["GET"]),
        Route("/records/{record_id}/value", value, methods=["GET"]),
    ]


async def record_page(
    desk: Desk,
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
    ending = endings_json(record, known["endings"], known["ending_token"])

    def rendered() -> Response:
        if wants_json(request):
            facts = {**record_json(record), **view_json(record, view), **around.to_json(), "ending": ending}
            return JSONResponse({**facts, "requests": [one.to_json() for one in cards], **told}, status)
        shown: dict[str, Any] = {"record": record, "cards": cards, "view": view, "around": around, "notice": notice}
        return page(request, "record.html", status=status, **shown, **known)

    return await run_check(LARGE_CHARACTERS, rendered)


def ending_context(request: Request, record: Record) -> dict[str, Any]:
    """Return what a template needs to let the visitor say something of a whole record."""
    visit = visit_of(request)
    return {
        "endings": endings_of(record) if visit.user.may_decide else (),
        "is_stuck": is_stuck(record),
        "ending_token": visit.form_token(about(record.id, as_shown(record), record.state)),
        "as_shown": as_shown(record),
        "most_why": MOST_WHY_CHARACTERS,
    }


async def _view(desk: Desk, request: Request, record: Record) -> RecordView:
    interrupt, unfit = await _interrupt(desk, record)
    asked, reader = _asked(request), desk.reader_of(record)
    # Its work is measured in steps: it stops where nobody waits for it any more, and one runs at a time.
    return await run_check(LARGE_CHARACTERS, lambda: record_view(record, interrupt, reader, asked, unfit))


async def _around(desk: Desk, record: Record) -> Around:
    failures = (await failures_of(desk.store, [record])).get(record.id, ())
    if desk.resumes(record.app):
        return Around(failures, goes_on_here=True)
    resumed = await desk.store.last_resumed(tenant=record.tenant, app=record.app)
    return Around(failures, goes_on_here=False, resumed=resumed)


async def _interrupt(desk: Desk, record: Record) -> tuple[Interrupt | None, str | None]:
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


async def _download(desk: Desk, request: Request, record: Record) -> Response:
    """Return all of a value as a file. Raises `Problem` 404 where there is none."""
    address = request.query_params.get("of", "")
    interrupt = None
    if is_of_continuation(address):
        interrupt, _ = await _interrupt(desk, record)
    reader = desk.reader_of(record)

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
