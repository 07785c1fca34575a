"""Construct and connect the parts of a gateway."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codemode.cached_property import cached_property
from codemode.observe.request_telemetry import is_telemetry_recorded

from ..config.model import GatewayConfig, ServerConfig
from ..config.redaction import SecretRedactor
from ..upstreams.hooks import UpstreamHooks
from .options import APP_NAME, GatewayOptions, LazyStore, load_or_create_signing_keys
from .principals import CallOrigin, Principal, SharingScope, get_pool_share
from .workspaces import ConnectedServers

if TYPE_CHECKING:
    from codemode.execution.program_library import ProgramLibrary
    from codemode.surfaces.modules.run_tool import RunTool

    from ..approvals.pending_store import PrincipalRunResumer, StoredRunResumer
    from .workspaces import Workspace, Workspaces


_MAX_CONTINUATION_AGE_MS = 7 * 24 * 3_600_000
_MIN_SECRET_CHARACTERS = 4


class GatewayContainer:
    """Constructs and connects the parts of one gateway. The gateway sets ``workspaces`` after construction."""

    workspaces: Workspaces

    def __init__(
        self,
        config: GatewayConfig,
        options: GatewayOptions,
        store: LazyStore,
        state_folder: Path,
        *,
        report_steps: Callable[[str | None], AbstractContextManager[None]],
        record_url: Callable[[str], str | None],
    ) -> None:
        from ..approvals.remembered_answers import RememberedAnswers
        from ..oauth.login_manager import SignInManager
        from ..tool_history.output_schema_inference import ToolHistories

        self.secrets = SecretRedactor(config.secrets)
        self.remembered = RememberedAnswers(state_folder)
        self.sign_ins = SignInManager(
            config,
            secrets=self.secrets,
            open_browser=options.open_browser,
            callback_url=options.callback_url,
            command=options.command,
        )
        self.tool_histories = ToolHistories(state_folder)
        self._options = options
        self._store = store
        self._state_folder = state_folder
        self._report_steps = report_steps
        self._record_url = record_url

    def connect_servers(self, config: GatewayConfig, scope: SharingScope) -> AbstractAsyncContextManager[Any]:
        """Return a context manager that connects a configuration's servers for the principals of a scope."""
        if self._options.servers is not None:
            return _use_custom_servers(self._options.servers)
        return self._connect_configured_servers(config, scope)

    @asynccontextmanager
    async def _connect_configured_servers(self, config: GatewayConfig, scope: SharingScope) -> AsyncGenerator[Any]:
        from ..upstreams.connected import connect

        lists = self._state_folder / "lists"
        async with self.tool_histories.open(
            scope.owner_id, learns=should_learn_schemas(config, self._options)
        ) as known:
            hooks = replace(self.create_hooks(scope), **known.hooks)
            async with connect(
                config, hooks=hooks, cache_folder=lists, principal=scope.owner_id, secrets=self.secrets
            ) as connected:
                yield connected

    def create_hooks(self, scope: SharingScope) -> UpstreamHooks:
        """Return the upstream hooks for the connections of a scope."""
        import mcp_types as types

        from ..approvals.remembered_answers import create_approval_hook
        from ..upstreams.connection import find_most_verbose_level

        async def on_request(server: ServerConfig, method: str, params: Mapping[str, Any], context: Any) -> Any:
            return await self._forward_request(scope, server, method, params, context)

        async def on_notification(server: ServerConfig, notification: Any) -> None:
            is_logged = isinstance(notification, types.LoggingMessageNotification)
            for workspace in self._list_log_recipients(scope) if is_logged else self.workspaces.list_in_scope(scope):
                await workspace.handle_notification(server, notification)

        def get_log_level(_server: ServerConfig) -> types.LoggingLevel | None:
            return find_most_verbose_level(
                workspace.passthrough.logs.subscribed_level for workspace in self._list_log_recipients(scope)
            )

        return UpstreamHooks(
            get_approval_rule=create_approval_hook(self.remembered),
            on_request=on_request,
            on_notification=on_notification,
            get_log_level=get_log_level,
            create_auth=self.sign_ins.create_auth_hook(scope.owner_id),
            on_signed_out=self.sign_ins.create_signed_out_hook(scope.owner_id),
        )

    def create_run_tool(self, config: GatewayConfig, connected: ConnectedServers, principal: Principal) -> RunTool:
        """Return the run tool over connected servers for one principal."""
        from codemode.surfaces.modules.run_tool import create_modules_tool

        limits = dict(config.settings.limits)
        options = {
            "ceilings": limits.pop("ceilings", None),
            "limits": limits,
            "secrets": [text for text in config.secrets if len(text) >= _MIN_SECRET_CHARACTERS],
        }
        pool = get_pool_share(self._options.pool, principal)
        library = self._create_program_library(principal, pool) if config.settings.library else None
        settings = self._create_tool_settings(config, principal)
        return create_modules_tool(connected, options, settings=settings, pool=pool, library=library)

    def _create_program_library(self, principal: Principal, pool: Any) -> ProgramLibrary:
        """Return the library of a principal's saved programs, in the gateway's store."""
        from codemode.execution.program_library import ProgramLibrary

        return ProgramLibrary(self._store.store, owner=principal.id, model_saves=True, pool=pool)

    @cached_property
    def resumer(self) -> StoredRunResumer:
        """The worker that resumes programs after decisions in the store, for all principals."""
        from ..approvals.pending_store import StoredRunResumer

        return StoredRunResumer(lambda: self._store.store, self._open_principal_runs, APP_NAME)

    @asynccontextmanager
    async def _open_principal_runs(self, principal: Principal) -> AsyncGenerator[PrincipalRunResumer]:
        workspace = await self.workspaces.get_or_create(principal)
        async with workspace.use_environment() as environment:
            yield environment.get_or_create_approval_flow(principal).runs

    def create_approval_flow(self, run_tool: RunTool, config: GatewayConfig, caller: Principal) -> Any:
        """Return the flow that asks a caller to approve the tool calls of their programs."""
        from ..approvals.approval_flow import ApprovalFlow

        return ApprovalFlow(
            run_tool,
            config.settings,
            lambda: self._store.store,
            caller,
            self.remembered,
            start_resuming=self.resumer.start,
            servers=config.servers,
            page_url=self._record_url,
            command=self._options.command,
            app=APP_NAME,
            report_steps=self._report_steps,
        )

    async def stop_resuming(self) -> None:
        """Stop claiming decided records and end the programs resumed from them. The workspaces must still be open."""
        if "resumer" in vars(self):
            await self.resumer.aclose()

    async def aclose(self) -> None:
        """End the sign-ins that are in progress."""
        await self.sign_ins.aclose()

    def _create_tool_settings(self, config: GatewayConfig, principal: Principal) -> dict[str, Any]:
        continuation: dict[str, Any] = {
            "keys": load_or_create_signing_keys(config.settings.keys, self._state_folder),
            "guard": self._store.guard,
            "conversation_id": f"{APP_NAME}:{principal.id}",
            "max_age_ms": _MAX_CONTINUATION_AGE_MS,
            "compress": True,
            "seal": _can_seal_continuations(),
        }
        if self._uses_journal(config):
            continuation["journal"] = self._store.get_journal(principal.id)
        return {
            # Each server has its own timeout, and callers decide how long to wait for a full pool.
            "execution_policy": {"timeout_includes_tools": False, "on_saturation": "wait"},
            "approval": {"mode": "interrupt", "show_denial_reason": True},
            "continuation": continuation,
            "telemetry": {"is_enabled": is_telemetry_recorded()},
        }

    def _uses_journal(self, config: GatewayConfig) -> bool:
        """Return the journal setting; the default is on when a store is configured."""
        settings = config.settings
        return settings.store is not None if settings.journal is None else settings.journal

    async def _forward_request(
        self, scope: SharingScope, server: ServerConfig, method: str, params: Mapping[str, Any], context: Any
    ) -> Any:
        """Forward a server's request to the client of the call, or to the scope's only client."""
        import mcp_types as types

        origin = getattr(context, "context", None)
        workspaces = self.workspaces.list_in_scope(scope)
        if isinstance(origin, CallOrigin):
            workspaces = [await self.workspaces.get_or_create(origin.principal)]
        if len(workspaces) != 1:
            return types.ErrorData(code=types.INVALID_REQUEST, message=f"{method} is declined: it belongs to no call")
        return await workspaces[0].passthrough.on_request(server, method, params, context)

    def _list_log_recipients(self, scope: SharingScope) -> list[Workspace]:
        """Return the workspaces that may receive a server's log: no user sees the calls of another."""
        return [
            workspace
            for workspace in self.workspaces.list_in_scope(scope)
            if scope.is_unshared_or_principal_local(workspace.principal)
        ]


def should_learn_schemas(config: GatewayConfig, options: GatewayOptions) -> bool:
    """Return whether result schemas are inferred. The default is on for a single local user only.

    Schemas inferred on a shared server are declared to all its users.
    """
    if config.settings.learn is not None:
        return config.settings.learn
    return not (options.over_http or options.verifier is not None or config.settings.auth)


class _CustomServers:
    """Servers from `GatewayOptions.servers`, with the interface of connected upstreams."""

    def __init__(self, servers: Any) -> None:
        self._servers: tuple[Any, ...] = tuple(servers)
        self.upstreams: tuple[Any, ...] = ()

    def __iter__(self) -> Any:
        return iter(self._servers)


@asynccontextmanager
async def _use_custom_servers(servers: Any) -> AsyncGenerator[_CustomServers]:
    yield _CustomServers(servers)


def _can_seal_continuations() -> bool:
    from importlib.util import find_spec

    return find_spec("cryptography") is not None
