"""The gateway: an MCP server with one tool, over all servers of a configuration. Knows no transport but its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from codemode.cached_property import cached_property
from codemode.errors import CodeModeError
from codemode.host.threads import off_loop

from ..config.model import GatewayConfig, ServerConfig
from ..config.places import state_folder
from ..passthrough.client_requests import connection_of
from ..passthrough.proxy import Passed
from .mcp_server import Calls
from .options import GatewayOptions, KeptStore, announced, keys_of
from .principal_sessions import Connections, Seat, Seats
from .principals import LOCAL, Principal, principal_of

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.lowlevel import Server

    from codemode.stores.interrupt_store import InterruptStore
    from codemode.surfaces.modules.run_tool import RunTool

    from ..oauth.login_manager import SignIns

__all__ = ["Gateway", "GatewayOptions"]

_MOMENT_SECONDS = 0.05
_log = logging.getLogger("codemode.mcp")


class Gateway:
    """An MCP server with one tool over the servers of ``config``. Enter it, and serve it on the loop that entered it.

    ``server`` is the SDK's, for a transport of your own. Leaving it ends all programs and all servers.
    """

    def __init__(self, config: GatewayConfig, options: GatewayOptions | None = None) -> None:
        self.options = options or GatewayOptions()
        self.config = self._of(config)
        self.folder = config.settings.state_folder or state_folder()
        self._kept = KeptStore(config.settings, self.folder, self.options.store)
        self._calls = Calls()
        self._sessions: set[Principal] = set()
        self.record_url: Callable[[str], str | None] = _no_page
        """Returns the page on which people decide about a record, where whoever serves the gateway has one."""
        self._is_open = False
        self._until_ended = ExitStack()
        self._warmed: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        from .container import Wiring

        keys_of(self.config.settings.keys, self.folder)  # without key and store nobody can be served: better said now
        self._kept.require()
        wiring = Wiring(
            self.config,
            self.options,
            self._kept,
            self.folder,
            report_steps=self._calls.report_steps,
            page_of=self._page_of,
        )
        self.seats = wiring.seats = Seats(Connections(wiring.connect), wiring, lambda: self.config)
        self._wiring = wiring
        self._until_ended.enter_context(wiring.secrets.guarding_logs())
        self._is_open = True
        if self.options.over_http:  # whoever has asked may come back when it is done
            await wiring.resuming.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        with self._until_ended:
            if self._warmed is not None:
                self._warmed.cancel()
                await asyncio.wait([self._warmed])
            await self._calls.aclose()
            await self._wiring.go_on_no_more()
            await self.seats.aclose()
            await self._wiring.aclose()
            await self._kept.aclose()

    @property
    def is_open(self) -> bool:
        """Whether it was entered, and not left."""
        return self._is_open

    @property
    def store(self) -> InterruptStore:
        """Where pauses, remembered answers and journals are kept. Opened by its first use."""
        return self._kept.store

    @property
    def sign_ins(self) -> SignIns:
        """The sign-ins at its servers, once it is open."""
        return self._wiring.sign_ins

    @property
    def server(self) -> Server[Any]:
        """The SDK's server, with every handler of the gateway."""
        return self._server

    @cached_property
    def _server(self) -> Server[Any]:
        from .mcp_server import made_server

        passes = self.config.settings.pass_through
        return made_server(self.list_tools, self.call_tool, self._passed_of, passes=passes)

    async def seat(self, principal: Principal = LOCAL) -> Seat:
        """Return what one principal has, made when they first come."""
        return await self.seats.of(principal)

    async def serve_stdio(self) -> None:
        """Serve one client over standard input and output until it closes them, or this process is told to end.

        Then leave the gateway: until that is done the first SIGTERM or SIGINT, and any SIGHUP, does no more than this.
        """
        from .stdio import serve_stdio

        await serve_stdio(self.server, self._until_ended)

    def http_app(self) -> Any:
        """Return the ASGI application that serves many clients over streamable HTTP."""
        from .http_app import http_app

        return http_app(self)

    async def list_tools(self, ctx: Any, _params: Any) -> types.ListToolsResult:
        """Answer ``tools/list``."""
        import mcp_types as types
        from mcp.shared.subscriptions import ToolsListChanged

        seat = await self.seat(self._caller(ctx))
        seat.passed.watching.has_listed(ToolsListChanged, connection_of(ctx.session))
        known = announced(getattr(ctx.session.client_params, "client_info", None), self.config.settings)
        tool = await seat.shown(known)
        self._warmed = self._warmed or asyncio.create_task(self._warm(seat.run_tool))
        return types.ListToolsResult(tools=[tool])

    async def call_tool(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        """Answer ``tools/call``."""
        caller = self._caller(ctx)
        seat = await self.seats.of(caller)
        known = announced(getattr(ctx.session.client_params, "client_info", None), self.config.settings)
        return await self._calls.answer(seat, caller, known, ctx, params)

    async def changed(self, config: GatewayConfig) -> None:
        """Have another configuration: from its next run on, every seat has the servers of that one."""
        await off_loop(lambda: self._wiring.secrets.add(*config.secrets))
        self.config = self._of(config)
        await self.seats.take(self.config)

    async def _warm(self, run_tool: RunTool) -> None:
        """Have a worker ready for the first program, once whoever has asked for the tool has been answered."""
        await asyncio.sleep(_MOMENT_SECONDS)
        try:
            await run_tool.load()
        except (CodeModeError, OSError) as error:  # the first program tells of it
            _log.debug("no worker is ready yet: %s", error)

    def _of(self, config: GatewayConfig) -> GatewayConfig:
        if self.options.servers is None:
            return config
        return replace(config, servers=(ServerConfig("given", "stdio"),))

    async def _passed_of(self, ctx: Any) -> Passed:
        return (await self.seat(self._caller(ctx))).passed

    def _caller(self, ctx: Any) -> Principal:
        """Return who has sent a message; a session is known until its connection is over."""
        caller = principal_of(ctx)
        if caller.session is not None and caller not in self._sessions:
            connection = connection_of(ctx.session)
            if connection is not None:
                self._sessions.add(caller)
                connection.exit_stack.push_async_callback(self._left, caller)
        return caller

    async def _left(self, caller: Principal) -> None:
        self._sessions.discard(caller)
        try:
            await self._wiring.remembered.end_session(caller)
        finally:
            await self.seats.left(caller)

    def _page_of(self, record_id: str) -> str | None:
        return self.record_url(record_id)


def _no_page(_record_id: str) -> str | None:
    return None
