"""Pages from templates, all of what they show escaped. Knows no store."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from .errors import Problem
from .sessions import ROOTS_KEY
from .visible import cut, fold, json_beginning, moment, visible, visible_json

_BRIEF_CHARACTERS = 200
_GLIMPSE_CHARACTERS = 120


def _environment() -> Environment:
    loader = PackageLoader("codemode_console")
    settings: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "auto_reload": False}
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, **settings)
    made.filters["visible"] = lambda text: visible(str(text))  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    made.filters["json_text"] = visible_json
    made.filters["moment"] = moment
    made.filters["brief"] = brief
    made.filters["beginning"] = beginning
    made.filters["glimpse"] = glimpse
    made.filters["fold"] = fold
    return made


def brief(text: str) -> Markup:
    """Return a name that strangers may have chosen, in one line that is not long."""
    more = "\N{HORIZONTAL ELLIPSIS}" if len(text) > _BRIEF_CHARACTERS else ""
    return visible(text[:_BRIEF_CHARACTERS], one_line=True) + more


def beginning(text: str) -> Markup:
    """Return as much of a text that strangers may have written as a page shows of a value."""
    begun = cut(text)
    return begun.text if begun.is_whole else begun.text + " \N{HORIZONTAL ELLIPSIS}"


def glimpse(value: Any) -> Markup:
    """Return the beginning of a value in one line, by which it is told from others."""
    text, is_whole = json_beginning(value, _GLIMPSE_CHARACTERS, indent=None)
    return escape(text) + ("" if is_whole else "\N{HORIZONTAL ELLIPSIS}")


_ENVIRONMENT = _environment()


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
    """Return a page. In templates ``root`` is where the console is mounted, ``visit`` who looks, None for nobody."""
    scope = request.scope
    known = {"root": scope.get("root_path", ""), "visit": scope.get("console_visit")}
    known |= {"sequence": scope.get("console_sequence"), "is_posted": scope["method"] == "POST"}
    known["is_private"] = ROOTS_KEY in scope and scope[ROOTS_KEY][1] == known["root"]
    text = _ENVIRONMENT.get_template(template).render(**known, **context)
    return HTMLResponse(text, status)


def wants_json(request: Request) -> bool:
    """Say whether the caller is a program that reads JSON."""
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def problem_page(request: Request, problem: Problem) -> Response:
    """Return what is said of a problem, as a page or as JSON."""
    if wants_json(request):
        response: Response = JSONResponse({"error": problem.to_json()}, problem.status)
    else:
        response = page(request, "problem.html", status=problem.status, problem=problem)
    response.headers.update(problem.headers)
    return response
