"""A guarded application that says who called, and browsers that call it, for the tests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx
from codemode_console.access_middleware import AccessMiddleware
from codemode_console.auth import TokenAuth, User, token_hash
from codemode_console.errors import Problem
from codemode_console.principals import require_principal
from codemode_console.rendering import problem_response
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from codemode.stores import ALL_TENANTS, MemoryInterruptStore

ANA, EVE = "ana's own 256 random bits", "eve's own 256 random bits"
USERS = {
    token_hash(ANA): User("ana", ALL_TENANTS),
    token_hash(EVE): User("eve", ["acme"], may_decide=False),
}
OWN = {"sec-fetch-site": "same-origin"}


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """One console's guard, its store and its clock."""

    def __init__(self, auth: Any = None, *, prefix: str = "", **settings: Any) -> None:
        self.store, self.clock, self.sent = MemoryInterruptStore(), Clock(), list[Any]()
        chosen = TokenAuth(USERS) if auth is None else auth
        self.guarded = AccessMiddleware(self._inner(), auth=chosen, store=self.store, clock=self.clock, **settings)
        self.app: Any = Starlette(routes=[Mount(prefix, self.guarded)]) if prefix else self.guarded

    def browser(
        self, address: str | None = "192.0.2.1", base: str = "https://desk.test", **settings: Any
    ) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, client=cast("Any", address and (address, 5555)))
        return httpx.AsyncClient(transport=transport, base_url=base, **settings)

    async def kinds(self) -> list[str]:
        return [line.kind async for line in self.store.audit(tenant=ALL_TENANTS)]

    def _inner(self) -> Starlette:
        async def who(request: Request) -> Response:
            visit = require_principal(request)
            assert request.user is visit.user
            return JSONResponse(
                {"name": visit.user.name, "token": visit.create_form_token("a"), "address": visit.address}
            )

        async def change(request: Request) -> Response:
            form = await request.form()
            require_principal(request).require_form_token(form.get("form_token"), "a")
            self.sent.append(form.get("what"))
            return JSONResponse({})

        async def told(request: Request, problem: Exception) -> Response:
            assert isinstance(problem, Problem)
            return problem_response(request, problem)

        async def health(_request: Request) -> Response:
            return JSONResponse({"ok": True})

        routes = [Route("/", who), Route("/change", change, methods=["POST"]), Route("/healthz", health)]
        return Starlette(routes=[*routes, Route("/{rest:path}", who)], exception_handlers={Problem: told})


async def sign_in(browser: httpx.AsyncClient, token: str = ANA, **fields: str) -> httpx.Response:
    return await browser.post("/sign-in", data={"token": token, **fields}, headers=OWN)


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run a test's own coroutine, for a bounded time."""
    asyncio.run(asyncio.wait_for(work(), 180))


def hidden(page: str, name: str) -> str:
    """Return the value of a hidden field of a page."""
    found = re.search(rf'<input type="hidden" name="{re.escape(name)}" value="([^"]*)">', page)
    assert found is not None, page
    return found[1]
