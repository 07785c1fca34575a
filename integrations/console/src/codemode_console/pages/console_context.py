"""The context that all pages share, and the health check."""

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
from codemode.surfaces.exec_wait.stored_runs import get_scope
from codemode.types import PauseView

from ..errors import not_found_problem
from ..principals import Policy, StandingApprovals, require_principal

InspectPause: TypeAlias = Callable[[Record, Interrupt], PauseView]
"""Reads the pause of a record, as `inspect_interrupt` does. Raises `CodeModeProtocolError`."""


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """Settings and store that all pages of one console share.

    ``resumed_apps`` are the apps whose programs this process resumes; None in it stands for all apps. ``app_options``
    are the tool options by app, with the keys that verify pauses; ``inspect_pause`` replaces them.
    """

    store: InterruptStore
    policy: Policy | None = None
    resumed_apps: frozenset[str | None] = frozenset()
    app_options: Mapping[str | None, Any] = field(default_factory=dict[str | None, Any])
    inspect_pause: InspectPause | None = None
    standing_approvals: StandingApprovals | None = None

    def resumes_app(self, app: str) -> bool:
        """Return whether this process resumes programs of an app."""
        return app in self.resumed_apps or None in self.resumed_apps

    def create_pause_reader(self, record: Record) -> Callable[[Interrupt], PauseView]:
        """Return a function that reads pauses of a record with the keys of its app or process.

        The scope is taken from the record; the signature verifies it.
        """
        if self.inspect_pause is not None:
            return partial(self.inspect_pause, record)
        tool_options = self.app_options.get(record.app, self.app_options.get(None))
        return partial(inspect_interrupt, options=tool_options, conversation_id=get_scope(record) or None)

    async def load_visible_record(self, request: Request) -> Record:
        """Return the record of the URL. Raises `Problem` 404, also for other tenants' records."""
        record = await self.store.record(request.path_params["record_id"], tenant=ALL_TENANTS)
        if not require_principal(request).user.can_see(record.tenant):
            raise not_found_problem()
        return record


def format_record_path(request: Request, record_id: str) -> str:
    """Return the path of a record's page."""
    return f"{request.scope.get('root_path', '')}/records/{record_id}"


def record_to_json(record: Record) -> dict[str, Any]:
    """Return a record for API callers, with its pending calls only."""
    pending = [call for call in record.requests if call.state == "waiting"]
    calls = {"waiting": [call.interrupt_id for call in pending], "tools": [call.tool_name for call in pending]}
    times = {"createdAtMs": record.created_at_ms, "expiresAtMs": record.expires_at_ms}
    identity = {"id": record.id, "tenant": record.tenant, "app": record.app, "labels": dict(record.labels)}
    return {**identity, "state": record.state, "version": record.version, **times, **calls}


def create_health_routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the route of ``/healthz``, which answers 503 without the database."""

    async def check_health(_request: Request) -> Response:
        try:
            await context.store.changes_head()
        except StoreUnavailableError:
            return JSONResponse({"ok": False, "store": "away"}, 503, {"Retry-After": "5"})
        return JSONResponse({"ok": True})

    return [Route("/healthz", check_health, methods=["GET"])]
