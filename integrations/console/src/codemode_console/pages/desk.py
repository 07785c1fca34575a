"""What all pages of one console know, and whether the console can work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode import Interrupt, inspect_interrupt
from codemode.stores import ALL_TENANTS, InterruptStore, Record, StoreUnavailableError
from codemode.surfaces.exec_wait.stored import scope_of
from codemode.types import PauseView

from ..errors import unknown
from ..visits import LaterAnswers, Policy, visit_of

Inspect: TypeAlias = Callable[[Record, Interrupt], PauseView]
"""Reads what a record waits in, as `inspect_interrupt` does. Raises `CodeModeProtocolError`."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the pages of one console stand on. ``apps`` go on here once they are decided; None is every app.

    ``options`` are those of the tools of apps, as far as they are known: they have the keys. ``inspect`` reads what a
    record waits in without them. ``later`` keeps approvals that hold for later calls too.
    """

    store: InterruptStore
    policy: Policy | None = None
    apps: frozenset[str | None] = frozenset()
    options: Mapping[str | None, Any] = field(default_factory=dict[str | None, Any])
    inspect: Inspect | None = None
    later: LaterAnswers | None = None

    def resumes(self, app: str) -> bool:
        """Tell whether the programs of an app go on here."""
        return app in self.apps or None in self.apps

    def reader_of(self, record: Record) -> Callable[[Interrupt], PauseView]:
        """Return what reads the pause of a record: with the keys of its app, else those of the process.

        What a record says of its scope is taken from it; the signature tells whether that is so.
        """
        if self.inspect is not None:
            return partial(self.inspect, record)
        options = self.options.get(record.app, self.options.get(None))
        return partial(inspect_interrupt, options=options, conversation_id=scope_of(record) or None)

    async def record_of(self, request: Request) -> Record:
        """Return the record of the address. Somebody else's is unknown: `Problem` 404."""
        record = await self.store.record(request.path_params["record_id"], tenant=ALL_TENANTS)
        if not visit_of(request).user.sees(record.tenant):
            raise unknown()
        return record


def record_path(request: Request, record_id: str) -> str:
    """Return the address of a record's page, wherever the console is mounted."""
    return f"{request.scope.get('root_path', '')}/records/{record_id}"


def record_json(record: Record) -> dict[str, Any]:
    """Return a record as callers of the API get it, without its requests: ``tools`` are those of the ones that wait."""
    waiting = [one for one in record.requests if one.state == "waiting"]
    asks = {"waiting": [one.interrupt_id for one in waiting], "tools": [one.tool_name for one in waiting]}
    times = {"createdAtMs": record.created_at_ms, "expiresAtMs": record.expires_at_ms}
    named = {"id": record.id, "tenant": record.tenant, "app": record.app, "labels": dict(record.labels)}
    return {**named, "state": record.state, "version": record.version, **times, **asks}


def health_routes(desk: Desk) -> list[BaseRoute]:
    """Return the route of ``/healthz``: 503 while the database is away."""

    async def health(_request: Request) -> Response:
        try:
            await desk.store.changes_head()
        except StoreUnavailableError:
            return JSONResponse({"ok": False, "store": "away"}, 503, {"Retry-After": "5"})
        return JSONResponse({"ok": True})

    return [Route("/healthz", health, methods=["GET"])]
