"""What one principal has of a gateway: its servers, the tool over them, what is passed on. Serves no request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from codemode.host.cancellation import to_its_end

from ..config.values import GatewayConfig, ServerConfig
from ..passthrough.passed import Passed
from .connections import Connected, Connections
from .outfit import Outfit, Wired
from .principals import Principal

if TYPE_CHECKING:
    import mcp_types as types

    from codemode.surfaces.modules.run_tool import RunTool

    from .client_table import Announced

LISTING_SECONDS = 5.0


class Seat:
    """One principal at a gateway. ``connected``, ``run_tool`` and ``asking`` are those of the next run.

    A run has those with which it began, whatever changes meanwhile. ``passed`` is what is passed through of the servers
    beside their tools; ``runs`` is how many programs run.
    """

    def __init__(self, principal: Principal, connections: Connections, wiring: Wired) -> None:
        self.principal = principal
        self.runs = 0
        self.passed = Passed(
            lambda: self._current.connected.upstreams, hide=wiring.secrets.text, hide_in=wiring.secrets.off_loop
        )
        self._connections = connections
        self._wiring = wiring
        self._outfit: Outfit | None = None
        self._lock = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Seat of {self.principal.id!r}>"

    @property
    def connected(self) -> Connected:
        """The servers, as what `connect` gives."""
        return self._current.connected

    @property
    def run_tool(self) -> RunTool:
        """The tool over them."""
        return self._current.run_tool

    @property
    def asking(self) -> Any:
        """How the principal is asked about inner calls."""
        return self._current.asking_for(self.principal)

    @property
    def config(self) -> GatewayConfig:
        """The configuration of the next run."""
        return self._current.config

    @property
    def _current(self) -> Outfit:
        if self._outfit is None:
            raise RuntimeError("the seat is not taken, or was closed")
        return self._outfit

    async def take(self, config: GatewayConfig) -> None:
        """Have the servers of a configuration from the next run on."""
        async with self._lock:
            old = self._outfit
            if old is not None and old.config is config:
                return
            connected = await self._connections.taken(config, self.principal)
            run_tool = self._wiring.run_tool(config, connected, self.principal)
            self._outfit = Outfit(config, connected, run_tool, self._wiring.asking)
        if old is not None:
            old.is_replaced = True
            self._end_unused(old)
            self.tools_changed()

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[Outfit]:
        """Have servers, tool and asking of one run until it ends."""
        outfit = self._current
        outfit.users += 1
        self.runs += 1
        try:
            yield outfit
        finally:
            outfit.users -= 1
            self.runs -= 1
            self._end_unused(outfit)

    async def shown(self, known: Announced) -> types.Tool:
        """Return the tool as a client is shown it, with what is known of servers that answer in time."""
        from .tool_shown import tool_shown

        async with self.run() as outfit:
            upstreams = outfit.connected.upstreams
            # What a cache knows is there at once; whoever must be asked first is waited for, but not for long.
            await outfit.run_tool.prepare([one.server_id for one in upstreams if one.listed])
            if not all(one.listed for one in upstreams):
                await self._asked(outfit)
            return await tool_shown(outfit, known)

    async def notified(self, server: ServerConfig, notification: Any) -> None:
        """Pass on what a server says by itself; other tools of it are another description of the one tool."""
        import mcp_types as types

        if isinstance(notification, types.ToolListChangedNotification):
            self.tools_changed()
        await self.passed.notified(server, notification)

    def tools_changed(self) -> None:
        """Tell the clients who have listed it that the tool says something else of itself."""
        from mcp.shared.subscriptions import ToolsListChanged

        self.passed.watching.list_changed(ToolsListChanged())

    def forget(self, caller: Principal) -> None:
        """Let nothing of a session that is over be remembered."""
        asking = None if self._outfit is None else self._outfit.forget(caller)
        if asking is not None:
            self._spawn(asking.aclose())

    async def aclose(self) -> None:
        """Give everything back. Programs that still run lose their servers."""
        old, self._outfit = self._outfit, None
        await self.passed.aclose()
        if old is not None:
            self._spawn(self._given_back(old))
        if self._ending:
            await to_its_end(asyncio.wait([*self._ending]))

    async def _asked(self, outfit: Outfit) -> None:
        now = asyncio.get_running_loop().time()
        if outfit.listing is None:
            outfit.listing = asyncio.create_task(self._listed(outfit))
            outfit.listed_by = now + LISTING_SECONDS
        if now < outfit.listed_by:
            await asyncio.wait([outfit.listing], timeout=outfit.listed_by - now)

    async def _listed(self, outfit: Outfit) -> None:
        await outfit.run_tool.prepare()
        if asyncio.get_running_loop().time() >= outfit.listed_by:  # it may itself have begun late
            self.tools_changed()  # whoever has asked was answered without them

    def _end_unused(self, outfit: Outfit) -> None:
        if outfit.is_replaced and not outfit.users:
            self._spawn(self._given_back(outfit))

    async def _given_back(self, outfit: Outfit) -> None:
        await outfit.aclose()
        await self._connections.give_back(outfit.connected)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
