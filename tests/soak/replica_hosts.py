"""The processes of `tests.soak.replicas`: servers of an agent's runs, and people who click in consoles."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tests.soak import gateway_world
from tests.soak.console_hosts import Clicker, click
from tests.soak.gateway_processes import serve_app
from tests.soak.gateway_world import edited, verdict_on
from tests.soak.pause_hosts import APP, Lines, World, code_mode_over, hurry, store_of, value_of

from codemode import CallContext, CodeModeAbortedError, Interrupt
from codemode.stores import Resumer, StoredRequest
from codemode.stores.errors import RequestSettledError, RequestSupersededError, StoreUnavailableError

TENANT, FIRST_ASKED, LEASE_MS = "acme", 1_000_000, 3_000
"""``FIRST_ASKED``: runs from this number on are those of agent servers, the others those of gateways."""


def serve_agent(kind: str, where: str, world: str, port: int) -> None:
    """Serve runs until killed: what one has begun any other goes on with."""
    hurry()
    agent = Agent(store_of(kind, where), Lines(world))
    routes = [Route("/ask", agent.ask, methods=["POST"]), Route("/runs/{run:int}", agent.run)]
    serve_app(Starlette(routes=routes, lifespan=agent.running), port)


class Agent:
    """A program for each run, under a name that stays, so that to ask once more is to go on."""

    def __init__(self, store: Any, world: Lines) -> None:
        self._store = store
        self._code_mode = code_mode_over(World(world).tools(), store, "journal", lease_ms=LEASE_MS)

    @contextlib.asynccontextmanager
    async def running(self, _app: Any) -> AsyncGenerator[None]:
        """Go on with what was decided, whoever has begun it."""

        async def resume(interrupt: Any, resolutions: Any) -> Any:
            return await self._code_mode.resume(interrupt, resolutions=resolutions)

        async with Resumer(self._store, tenant=TENANT, app=APP, resume=resume, lease_ms=LEASE_MS):
            yield

    async def ask(self, request: Request) -> JSONResponse:
        """Have a program run. Where the database did not answer in time whoever asks does so again."""
        asked = await request.json()
        try:
            return await self._asked(asked["run"], asked["js"])
        except (CodeModeAbortedError, StoreUnavailableError) as error:
            return JSONResponse({"error": repr(error)}, status_code=503)

    async def _asked(self, run: int, js: str) -> JSONResponse:
        came = await self._code_mode.execute({"js": js}, call=CallContext(tool_call_id=f"call_{run}"))
        if not isinstance(came, Interrupt):
            return JSONResponse({"value": came})
        with contextlib.suppress(RequestSettledError, RequestSupersededError):  # somebody has gone on with it meanwhile
            labels = {"run": str(run)}
            await self._store.put(came, tool=self._code_mode, tenant=TENANT, app=APP, labels=labels)
        return JSONResponse({"waiting": run}, status_code=202)

    async def run(self, request: Request) -> JSONResponse:
        """Say what has come of a run that has paused."""
        labels = {"run": str(request.path_params["run"])}
        try:
            page = await self._store.list(tenant=TENANT, app=APP, labels=labels, limit=2)
        except StoreUnavailableError as error:
            return JSONResponse({"error": repr(error)}, status_code=503)
        if not page.records:
            return JSONResponse({"error": "no such run"}, status_code=404)
        (record,) = page.records
        return JSONResponse({"state": record.state, "value": record.outcome and record.outcome.value})


def click_for_ever(*arguments: Any) -> None:
    """Decide about everything that comes up, each twice, until killed."""
    asyncio.run(click(Clerk, *arguments))


class Clerk(Clicker):
    """Thinks of an agent's calls as a person of their own, and of a gateway's as everybody does."""

    def __init__(self, store: Any, world: Lines, *others: Any) -> None:
        super().__init__(store, world, *others)
        self._known = gateway_world.World(world.path)

    async def work(self, after: int) -> None:
        """Look on once the database is back."""
        while True:
            with contextlib.suppress(StoreUnavailableError):
                await super().work(after)
            await asyncio.sleep(0.1)

    def _opinion(self, request: StoredRequest) -> dict[str, Any]:
        value = request.input
        if value["run"] >= FIRST_ASKED:
            return super()._opinion(request)
        if verdict_on(value) == "deny":
            return {"approved": False}
        return {"approved": True, **({"input": edited(value)} if verdict_on(value) == "edit" else {})}

    def _found_out(self, value: Any) -> dict[str, Any] | None:
        found = self._known.found_out(value)
        if found is None or value["run"] < FIRST_ASKED:
            return found
        # What has not begun in the process of its tool, which is dead, never will.
        return {"value": value_of(value)} if "value" in found else {"runAgain": True}
