"""Whether the console can work: for those who watch over it, signed in or not."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode import StoreUnavailable

from .desk import Desk


def routes(desk: Desk) -> list[BaseRoute]:
    """Return the route of ``/healthz``: 503 while the database is away."""

    async def health(_request: Request) -> Response:
        try:
            await desk.store.changes_head()
        except StoreUnavailable:
            return JSONResponse({"ok": False, "store": "away"}, 503, {"Retry-After": "5"})
        return JSONResponse({"ok": True})

    return [Route("/healthz", health, methods=["GET"])]
