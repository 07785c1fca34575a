"""Saved programs: the list, one with its versions, and confirming, disabling or enabling it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from codemode import ProgramLibrary
from codemode.types import SavedProgram, SavedVersion

from ..bodies import read_small_form
from ..errors import Problem
from ..rendering import page, wants_json
from ..sessions import TOKEN_FIELD
from ..visits import audit_refusal, require_principal
from .desk import ConsoleContext

MOST_VERSIONS = 20
_DONE = {"disable": "program_disabled", "enable": "program_enabled", "confirm": "program_confirmed"}


@dataclass(frozen=True, slots=True)
class ShownVersion:
    """One version, and each line of what it changed of the one before it, with the kind of that line."""

    version: SavedVersion
    lines: tuple[tuple[str, str], ...]


def routes(desk: ConsoleContext) -> list[BaseRoute]:
    """Return the routes of ``/saved``."""

    async def listed(request: Request) -> Response:
        found = await _visible(desk, request)
        if wants_json(request):
            return JSONResponse({"programs": [one.to_dict() for one in found]})
        return page(request, "saved.html", programs=found, address=_address)

    async def shown(request: Request) -> Response:
        return await _page(desk, request, await _named(desk, request))

    async def change(request: Request) -> Response:
        form = await read_small_form(request)
        program = await _named(desk, request)
        await _require_allowed(desk, request, program, form)
        await _change(desk, request, program, form.get("action", ""))
        if wants_json(request):
            return JSONResponse((await _named(desk, request)).to_dict())
        return RedirectResponse(f"{request.scope.get('root_path', '')}/{_address(program)}", 303)

    path = "/saved/{name}"
    return [
        Route("/saved", listed, methods=["GET"]),
        Route(path, shown, methods=["GET"]),
        Route(path, change, methods=["POST"]),
    ]


async def _visible(desk: ConsoleContext, request: Request) -> list[SavedProgram]:
    """Return the programs of owners that are tenants whom the user sees."""
    user = require_principal(request).user
    return [one for one in await ProgramLibrary.list_all(desk.store) if user.can_see(one.owner)]


async def _named(desk: ConsoleContext, request: Request) -> SavedProgram:
    """Return the program of the address. Somebody else's is unknown: `Problem` 404."""
    name, owner = request.path_params["name"], request.query_params.get("owner", "")
    found = next((one for one in await _visible(desk, request) if (one.name, one.owner) == (name, owner)), None)
    if found is None:
        raise Problem(404, "There is no such saved program")
    return found


async def _page(desk: ConsoleContext, request: Request, program: SavedProgram) -> Response:
    library = ProgramLibrary(desk.store, owner=program.owner)
    history = (await library.history(program.name))[:MOST_VERSIONS]
    changed = [await library.difference(program.name, one.version) for one in history]
    token = require_principal(request).form_token(_about(program))
    if wants_json(request):
        pairs = zip(history, changed, strict=True)
        versions = [{**one.to_dict(), "difference": text} for one, text in pairs]
        return JSONResponse({**program.to_dict(), "versions": versions, "formToken": token})
    shown = [ShownVersion(one, _lines(text)) for one, text in zip(history, changed, strict=True)]
    context: dict[str, Any] = {"program": program, "versions": shown, "token": token, "address": _address(program)}
    return page(request, "saved_program.html", may_decide=require_principal(request).user.may_decide, **context)


async def _require_allowed(desk: ConsoleContext, request: Request, program: SavedProgram, form: dict[str, str]) -> None:
    """Raise `Problem` 403 for who may not decide, or saw something else; it is audited."""
    visit = require_principal(request)
    try:
        visit.require_form_token(form.get(TOKEN_FIELD), _about(program))
        if not visit.user.may_decide:
            raise Problem(403, "You may not decide this", "you may look, and decide nothing")
    except Problem as problem:
        await audit_refusal(desk.store, visit, request, problem.message)
        raise


async def _change(desk: ConsoleContext, request: Request, program: SavedProgram, action: str) -> None:
    if action not in _DONE:
        raise Problem(400, "This form says nothing of the program")
    library, visit = ProgramLibrary(desk.store, owner=program.owner), require_principal(request)
    if action == "confirm":
        try:
            await library.confirm(program.name, by=visit.user.name, shown=program.shown)
        except ValueError as error:
            raise Problem(409, "It cannot be confirmed now", str(error)) from error
    else:
        await (library.disable if action == "disable" else library.enable)(program.name)
    details = {"program": program.name, "version": program.current.version}
    told: dict[str, Any] = {"actor": visit.user.name, "tenant": program.owner, "address": visit.address}
    await desk.store.note(_DONE[action], **told, details=details)


def _about(program: SavedProgram) -> str:
    """Return what a form is about: what was shown, and nothing that has changed since."""
    return f"saved/{program.owner}/{program.name}/{program.current.version}/{program.is_disabled}/{program.shown}"


def _address(program: SavedProgram) -> str:
    return f"saved/{quote(program.name)}?{urlencode({'owner': program.owner})}"


def _lines(text: str) -> tuple[tuple[str, str], ...]:
    kinds = {"+": "added", "-": "removed"}
    return tuple((kinds.get(line[:1], "same"), line) for line in text.split("\n")) if text else ()
