"""Addresses of the console, and what is answered when something cannot be done."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from codemode import CodeModeError

from .errors import Problem, problem_of
from .pages import audit, bulk, deciding, ending, health, history, listing, live, record
from .pages.desk import Desk
from .rendering import problem_page

_log = logging.getLogger("codemode.console")
_PAGES = (listing, bulk, record, deciding, ending, history, audit, live, health)


def routes(desk: Desk) -> list[BaseRoute]:
    """Return the routes of a console."""
    static = Mount("/static", StaticFiles(packages=[("codemode_console", "static")]))
    return [*(route for page in _PAGES for route in page.routes(desk)), static]


def told() -> dict[Any, Callable[[Request, Any], Awaitable[Response]]]:
    """Return what is answered when something cannot be done, by the class of the error."""
    return {Problem: _problem, CodeModeError: _store_error, HTTPException: _http_error}


async def _problem(request: Request, problem: Problem) -> Response:
    return problem_page(request, problem)


async def _store_error(request: Request, error: CodeModeError) -> Response:
    problem = problem_of(error)
    if problem is None:
        _log.error("a request failed", exc_info=error)
        problem = Problem(500, "Something went wrong", "It is in the log of the console.")
    return problem_page(request, problem)


async def _http_error(request: Request, error: HTTPException) -> Response:
    return problem_page(request, Problem(error.status_code, error.detail, headers=error.headers))
