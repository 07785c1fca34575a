"""``/console/servers/NAME``: whoever has signed in to the console goes on from here to sign in to that server.

Its address carries no credential, so that programs and models may know it: it works for each user by themselves.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from codemode.stores.records import ALL_TENANTS

from ..config.own_entry import login_command
from ..oauth.errors import SignInError
from ..oauth.pages import PAGE_HEADERS, SIGNED_IN, page
from .principals import Principal
from .scopes import scope_of

SERVERS_PATH = "/servers/"


def server_pages(package: str, gateway: Any, **guard: Any) -> ASGIApp:
    """Return the pages, behind the sign-in of the console: ``guard`` is what that is made with."""
    return import_module(f"{package}.guarded").Guarded(_Pages(package, gateway), **guard)


def server_page(name: str) -> str:
    """Return the path of the page of a server, behind that of the console."""
    return SERVERS_PATH + quote(name, safe="")


class _Pages:
    def __init__(self, package: str, gateway: Any) -> None:
        self._gateway = gateway
        self._problem: Any = import_module(f"{package}.errors").Problem
        self._shown: Any = import_module(f"{package}.rendering").problem_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            response: Response = await self._answer(request)
        except self._problem as problem:
            response = self._shown(request, problem)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise self._problem(405, "There is nothing of the kind here", headers={"Allow": "GET, HEAD"})
        path = str(request.scope["path"]).removeprefix(str(request.scope.get("root_path", "")))
        name = path.removeprefix(SERVERS_PATH)
        server = next((one for one in self._gateway.config.servers if one.name == name), None)
        sign_ins = getattr(self._gateway, "sign_ins", None)
        if server is None or server.url is None or sign_ins is None:
            raise self._problem(
                404, "There is no such server", "The configuration has none to sign in to by this name."
            )
        principal = self._principal(request.scope["user"])
        if scope_of(server, Principal(principal)).owner != principal:
            words = f"Whoever runs the gateway signs in to it: {login_command(name)}"
            raise self._problem(403, "All users share this server", words)
        try:
            sign_in = await sign_ins.sign_in(server, principal)
        except SignInError as error:
            raise self._problem(502, "Signing in cannot begin", error.message) from None
        if sign_in is None:
            return HTMLResponse(page(SIGNED_IN), headers=PAGE_HEADERS)
        cookie = sign_in.set_cookie()
        return RedirectResponse(sign_in.url, 303, headers={} if cookie is None else {"Set-Cookie": cookie})

    def _principal(self, user: Any) -> str:
        if user.tenants is not ALL_TENANTS and len(user.tenants) == 1:
            return next(iter(user.tenants))
        words = (
            "You see the programs of several users, or of none. Sign in with the token of the one who uses the server."
        )
        raise self._problem(403, "Whose sign-in this is cannot be known", words)
