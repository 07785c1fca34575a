"""What the runs of one principal have in common until the configuration changes. Runs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..config.secrets import Secrets
from ..config.values import GatewayConfig
from .connections import Connected
from .principals import Principal

if TYPE_CHECKING:
    from codemode.surfaces.modules.run_tool import RunTool


class Wired(Protocol):
    """What puts together the parts of a seat."""

    @property
    def secrets(self) -> Secrets: ...
    def run_tool(self, config: GatewayConfig, connected: Connected, principal: Principal) -> RunTool: ...
    def asking(self, run_tool: RunTool, config: GatewayConfig, caller: Principal) -> Any: ...


class Outfit:
    """The servers of one configuration and the tool over them. Given back when it is replaced and no run has it.

    ``asking_for`` gives how a person is asked, for each session on its own: what is allowed for one is not for others.
    """

    def __init__(
        self,
        config: GatewayConfig,
        connected: Connected,
        run_tool: RunTool,
        made: Callable[[RunTool, GatewayConfig, Principal], Any],
    ) -> None:
        self.config = config
        self.connected = connected
        self.run_tool = run_tool
        self.users = 0
        self.is_replaced = False
        self.listing: asyncio.Task[None] | None = None
        """Lists the servers that no cache knows, once: programs that import one later list it again."""
        self.listed_by = 0.0
        """Until when, on the loop's clock, somebody waits for that."""
        self._made = made
        self._asking: dict[Principal, Any] = {}

    def waited_for(self) -> str | None:
        """Return which server is starting, as a client is told while a program waits; None where none is."""
        name = next((one.config.name for one in self.connected.upstreams if one.state == "starting"), None)
        return None if name is None else f"waiting for the server {name!r} to start"

    def asking_for(self, caller: Principal) -> Any:
        """Return the `Asking` of one caller."""
        return self._asking.get(caller) or self._asking.setdefault(
            caller, self._made(self.run_tool, self.config, caller)
        )

    def forget(self, caller: Principal) -> Any:
        """Return the `Asking` of a session that is over, if it has one, to be closed."""
        return self._asking.pop(caller, None)

    async def aclose(self) -> None:
        """Claim nothing more of what people decide in the store, and wait for what runs of it."""
        if self.listing is not None:
            self.listing.cancel()
            await asyncio.wait([self.listing])
        await asyncio.gather(*(one.aclose() for one in self._asking.values()))
