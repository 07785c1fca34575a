"""Pages of saved programs: list, versions, confirm, disable and enable."""

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
from ..principals import audit_refusal_within_quota, require_principal
from ..rendering import render_page, wants_json
from ..sessions import TOKEN_FIELD
from .console_context import ConsoleContext

MAX_VERSIONS = 20
_AUDIT_KINDS = {"disable": "program_disabled", "enable": "program_enabled", "confirm": "program_confirmed"}


@dataclass(frozen=True, slots=True)
class ProgramVersionView:
    """A version and its difference to the one before, as lines with their kind."""

    version: SavedVersion
    lines: tuple[tuple[str, str], ...]


def routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the routes of ``/saved``."""

    async def list_programs(request: Request) -> Response:
        programs = await _list_visible_programs(context, request)
        if wants_json(request):
            return JSONResponse({"programs": [program.to_dict() for program in programs]})
        return render_page(request, "saved.html", programs=programs, path_of=_format_program_path)

    async def show_program(request: Request) -> Response:
        return await _render_program_page(context, request, await _find_program_or_raise(context, request))

    async def change_program(request: Request) -> Response:
        form = await read_small_form(request)
        program = await _find_program_or_raise(context, request)
        await _require_permission_or_audit(context, request, program, form)
        await _apply_program_action_and_audit(context, request, program, form.get("action", ""))
        if wants_json(request):
            return JSONResponse((await _find_program_or_raise(context, request)).to_dict())
        return RedirectResponse(f"{request.scope.get('root_path', '')}/{_format_program_path(program)}", 303)

    path = "/saved/{name}"
    return [
        Route("/saved", list_programs, methods=["GET"]),
        Route(path, show_program, methods=["GET"]),
        Route(path, change_program, methods=["POST"]),
    ]


async def _list_visible_programs(context: ConsoleContext, request: Request) -> list[SavedProgram]:
    """Return the programs whose owner is a tenant that the user sees."""
    user = require_principal(request).user
    return [program for program in await ProgramLibrary.list_all(context.store) if user.can_see(program.owner)]


async def _find_program_or_raise(context: ConsoleContext, request: Request) -> SavedProgram:
    """Return the program of the URL. Raises `Problem` 404, also for other tenants' programs."""
    name, owner = request.path_params["name"], request.query_params.get("owner", "")
    named_program = next(
        (
            program
            for program in await _list_visible_programs(context, request)
            if (program.name, program.owner) == (name, owner)
        ),
        None,
    )
    if named_program is None:
        raise Problem(404, "There is no such saved program")
    return named_program


async def _render_program_page(context: ConsoleContext, request: Request, program: SavedProgram) -> Response:
    library = ProgramLibrary(context.store, owner=program.owner)
    history = (await library.history(program.name))[:MAX_VERSIONS]
    differences = [await library.difference(program.name, version.version) for version in history]
    token = require_principal(request).create_form_token(_compute_form_token_subject(program))
    if wants_json(request):
        pairs = zip(history, differences, strict=True)
        versions = [{**version.to_dict(), "difference": text} for version, text in pairs]
        return JSONResponse({**program.to_dict(), "versions": versions, "formToken": token})
    version_views = [
        ProgramVersionView(version, _classify_difference_lines(text))
        for version, text in zip(history, differences, strict=True)
    ]
    values: dict[str, Any] = {
        "program": program,
        "versions": version_views,
        "token": token,
        "program_path": _format_program_path(program),
    }
    return render_page(request, "saved_program.html", may_decide=require_principal(request).user.may_decide, **values)


async def _require_permission_or_audit(
    context: ConsoleContext, request: Request, program: SavedProgram, form: dict[str, str]
) -> None:
    """Raise `Problem` 403 for a user who may not decide or a stale form, and audit it."""
    principal = require_principal(request)
    try:
        principal.require_form_token(form.get(TOKEN_FIELD), _compute_form_token_subject(program))
        if not principal.user.may_decide:
            raise Problem(403, "You may not decide this", "you may look but not decide")
    except Problem as problem:
        await audit_refusal_within_quota(context.store, principal, request, problem.message)
        raise


async def _apply_program_action_and_audit(
    context: ConsoleContext, request: Request, program: SavedProgram, action: str
) -> None:
    if action not in _AUDIT_KINDS:
        raise Problem(400, "The form names no action on the program")
    library, principal = ProgramLibrary(context.store, owner=program.owner), require_principal(request)
    if action == "confirm":
        try:
            await library.confirm(program.name, by=principal.user.name, shown=program.shown)
        except ValueError as error:
            raise Problem(409, "The program cannot be confirmed now", str(error)) from error
    else:
        await (library.disable if action == "disable" else library.enable)(program.name)
    details = {"program": program.name, "version": program.current.version}
    attribution: dict[str, Any] = {"actor": principal.user.name, "tenant": program.owner, "address": principal.address}
    await context.store.add_audit_line(_AUDIT_KINDS[action], **attribution, details=details)


def _compute_form_token_subject(program: SavedProgram) -> str:
    """Return what the form token is bound to: the program as displayed."""
    return f"saved/{program.owner}/{program.name}/{program.current.version}/{program.is_disabled}/{program.shown}"


def _format_program_path(program: SavedProgram) -> str:
    return f"saved/{quote(program.name)}?{urlencode({'owner': program.owner})}"


def _classify_difference_lines(text: str) -> tuple[tuple[str, str], ...]:
    kinds = {"+": "added", "-": "removed"}
    return tuple((kinds.get(line[:1], "same"), line) for line in text.split("\n")) if text else ()
