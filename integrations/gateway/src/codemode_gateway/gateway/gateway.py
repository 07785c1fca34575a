"""Serve the servers of a configuration as an MCP server with one tool."""

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
from codemode.host.threads import run_in_single_use_thread

from ..config.locations import state_folder
from ..config.model import GatewayConfig, ServerConfig
from ..passthrough.client_requests import get_client_connection
from ..passthrough.proxy import PassthroughProxy
from .mcp_server import ActiveCalls
from .options import GatewayOptions, LazyStore, find_client_profile, load_or_create_signing_keys
from .principals import LOCAL, Principal, get_request_principal
from .workspaces import ConnectionPool, Workspace, Workspaces

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.lowlevel import Server

    from codemode.stores.interrupt_store import InterruptStore
    from codemode.surfaces.modules.run_tool import RunTool

    from ..oauth.login_manager import SignInManager

__all__ = ["Gateway", "GatewayOptions"]

_WARM_UP_DELAY_SECONDS = 0.05
_log = logging.getLogger("codemode.mcp")


class Gateway:
    """An MCP server with one tool over the servers of ``config``.

    Use it as an async context manager, on one event loop. ``server`` is the SDK's server, for a custom transport.
    Leaving the context ends all programs and servers.
    """

    def __init__(self, config: GatewayConfig, options: GatewayOptions | None = None) -> None:
        self.options = options or GatewayOptions()
        self.config = self._with_placeholder_for_custom_servers(config)
        self.folder = config.settings.state_folder or state_folder()
        self._store = LazyStore(config.settings, self.folder, self.options.store)
        self._active_calls = ActiveCalls()
        self._sessions: set[Principal] = set()
        self.record_url: Callable[[str], str | None] = _get_no_record_url
        """Returns the console page of a record, or None without a console."""
        self._is_open = False
        self._exit_stack = ExitStack()
        self._warm_up_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        from .container import GatewayContainer

        load_or_create_signing_keys(self.config.settings.keys, self.folder)  # fail early without key or store
        self._store.ensure_usable()
        container = GatewayContainer(
            self.config,
            self.options,
            self._store,
            self.folder,
            report_steps=self._active_calls.report_program_calls,
            record_url=self._get_record_url,
        )
        self.workspaces = container.workspaces = Workspaces(
            ConnectionPool(container.connect_servers), container, self.config
        )
        self._container = container
        self._exit_stack.enter_context(container.secrets.redact_logs())
        self._is_open = True
        if self.options.over_http:  # clients may return for the result
            await container.resumer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        with self._exit_stack:
            if self._warm_up_task is not None:
                self._warm_up_task.cancel()
                await asyncio.wait([self._warm_up_task])
            await self._active_calls.aclose()
            await self._container.stop_resuming()
            await self.workspaces.aclose()
            await self._container.aclose()
            await self._store.aclose()

    @property
    def is_open(self) -> bool:
        """True while the gateway is entered."""
        return self._is_open

    @property
    def store(self) -> InterruptStore:
        """The store of pauses, remembered answers and journals. Opened on first use."""
        return self._store.store

    @property
    def sign_ins(self) -> SignInManager:
        """The sign-ins at upstream servers, available while the gateway is open."""
        return self._container.sign_ins

    @property
    def server(self) -> Server[Any]:
        """The SDK's server with all handlers of the gateway."""
        return self._server

    @cached_property
    def _server(self) -> Server[Any]:
        from .mcp_server import create_server

        passes = self.config.settings.pass_through
        return create_server(
            self.list_tools, self.call_tool, self._track_caller_and_get_passthrough, passes_through=passes
        )

    async def get_or_create_workspace(self, principal: Principal = LOCAL) -> Workspace:
        """Return the workspace of a principal, created on first use."""
        return await self.workspaces.get_or_create(principal)

    async def serve_stdio(self) -> None:
        """Serve one client over standard input and output until it closes them or a signal arrives.

        Leave the gateway afterwards: until then the first SIGTERM or SIGINT, and any SIGHUP, has no further effect.
        """
        from .stdio import serve_stdio

        await serve_stdio(self.server, self._exit_stack)

    def http_app(self) -> Any:
        """Return the ASGI application that serves many clients over streamable HTTP."""
        from .http_app import create_http_app

        return create_http_app(self)

    async def list_tools(self, ctx: Any, _params: Any) -> types.ListToolsResult:
        """Answer ``tools/list``."""
        import mcp_types as types
        from mcp.shared.subscriptions import ToolsListChanged

        workspace = await self.get_or_create_workspace(self._get_and_track_caller(ctx))
        workspace.passthrough.subscriptions.subscribe_to_list(ToolsListChanged, get_client_connection(ctx.session))
        profile = find_client_profile(getattr(ctx.session.client_params, "client_info", None), self.config.settings)
        tool = await workspace.get_tool_after_listing(profile)
        self._warm_up_task = self._warm_up_task or asyncio.create_task(self._warm_up(workspace.run_tool))
        return types.ListToolsResult(tools=[tool])

    async def call_tool(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        """Answer ``tools/call``."""
        caller = self._get_and_track_caller(ctx)
        workspace = await self.workspaces.get_or_create(caller)
        profile = find_client_profile(getattr(ctx.session.client_params, "client_info", None), self.config.settings)
        return await self._active_calls.call_tool(workspace, caller, profile, ctx, params)

    async def replace_config(self, config: GatewayConfig) -> None:
        """Replace the configuration; running programs keep the old one."""
        await run_in_single_use_thread(lambda: self._container.secrets.add_secrets(*config.secrets))
        self.config = self._with_placeholder_for_custom_servers(config)
        await self.workspaces.apply_config(self.config)

    async def _warm_up(self, run_tool: RunTool) -> None:
        """Prepare a worker for the first program after the answer to ``tools/list``."""
        await asyncio.sleep(_WARM_UP_DELAY_SECONDS)
        try:
            await run_tool.load()
        except (CodeModeError, OSError) as error:  # the first program reports it
            _log.debug("no worker is ready yet: %s", error)

    def _with_placeholder_for_custom_servers(self, config: GatewayConfig) -> GatewayConfig:
        if self.options.servers is None:
            return config
        return replace(config, servers=(ServerConfig("given", "stdio"),))

    async def _track_caller_and_get_passthrough(self, ctx: Any) -> PassthroughProxy:
        return (await self.get_or_create_workspace(self._get_and_track_caller(ctx))).passthrough

    def _get_and_track_caller(self, ctx: Any) -> Principal:
        """Return the sender of a message; end its session when the connection closes."""
        caller = get_request_principal(ctx)
        if caller.session is not None and caller not in self._sessions:
            connection = get_client_connection(ctx.session)
            if connection is not None:
                self._sessions.add(caller)
                connection.exit_stack.push_async_callback(self._on_session_end, caller)
        return caller

    async def _on_session_end(self, caller: Principal) -> None:
        self._sessions.discard(caller)
        try:
            await self._container.remembered.forget_session_answers(caller)
        finally:
            await self.workspaces.end_session(caller)

    def _get_record_url(self, record_id: str) -> str | None:
        return self.record_url(record_id)


def _get_no_record_url(_record_id: str) -> str | None:
    return None
