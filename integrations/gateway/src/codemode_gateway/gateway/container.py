"""Puts together what a seat has: servers, the tool over them, how a person is asked. The one place that knows all."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codemode.cached_property import cached_property
from codemode.observe.request_telemetry import is_recorded

from ..config.model import GatewayConfig, ServerConfig
from ..config.redaction import Secrets
from ..upstreams.hooks import UpstreamHooks
from .options import APP, GatewayOptions, KeptStore, keys_of
from .principal_sessions import Connected
from .principals import CallOrigin, Principal, Scope, share_of

if TYPE_CHECKING:
    from codemode.execution.program_library import ProgramLibrary
    from codemode.surfaces.modules.run_tool import RunTool

    from ..approvals.pending_store import Resuming, RunsOf
    from .principal_sessions import Seat, Seats


_MAX_AGE_MS = 7 * 24 * 3_600_000
_LEAST_SECRET_CHARACTERS = 4


class Wiring:
    """How everything of one gateway hangs together. ``seats`` is set by whoever makes both."""

    seats: Seats

    def __init__(
        self,
        config: GatewayConfig,
        options: GatewayOptions,
        store: KeptStore,
        folder: Path,
        *,
        report_steps: Callable[[str | None], AbstractContextManager[None]],
        page_of: Callable[[str], str | None],
    ) -> None:
        from ..approvals.remembered import Remembered
        from ..oauth.login_manager import SignIns
        from ..tool_history.output_schema_inference import KnownOf

        self.secrets = Secrets(config.secrets)
        self.remembered = Remembered(folder)
        self.sign_ins = SignIns(
            config,
            secrets=self.secrets,
            open_browser=options.open_browser,
            callback_url=options.callback_url,
            command=options.command,
        )
        self.known = KnownOf(folder)
        self._options = options
        self._store = store
        self._folder = folder
        self._report_steps = report_steps
        self._page_of = page_of

    def connect(self, config: GatewayConfig, scope: Scope) -> AbstractAsyncContextManager[Any]:
        """Return what connects the servers of a configuration for those who share them."""
        if self._options.servers is not None:
            return _given(self._options.servers)
        return self._connected(config, scope)

    @asynccontextmanager
    async def _connected(self, config: GatewayConfig, scope: Scope) -> AsyncGenerator[Any]:
        from ..upstreams.connected import connect

        lists = self._folder / "lists"
        async with self.known.of(scope.owner, learns=learns(config, self._options)) as known:
            hooks = replace(self.hooks(scope), **known.hooks)
            async with connect(
                config, hooks=hooks, cache_folder=lists, principal=scope.owner, secrets=self.secrets
            ) as connected:
                yield connected

    def hooks(self, scope: Scope) -> UpstreamHooks:
        """Return what is decided about the servers that some share."""
        import mcp_types as types

        from ..approvals.remembered import approval_hook
        from ..upstreams.connection import lowest

        async def asked(server: ServerConfig, method: str, params: Mapping[str, Any], context: Any) -> Any:
            return await self._asked(scope, server, method, params, context)

        async def notified(server: ServerConfig, notification: Any) -> None:
            is_logged = isinstance(notification, types.LoggingMessageNotification)
            for seat in self._hearing(scope) if is_logged else self.seats.within(scope):
                await seat.notified(server, notification)

        def log_level(_server: ServerConfig) -> types.LoggingLevel | None:
            return lowest(seat.passed.logs.level for seat in self._hearing(scope))

        return UpstreamHooks(
            approval=approval_hook(self.remembered),
            asked=asked,
            notified=notified,
            log_level=log_level,
            sign_in=self.sign_ins.hook(scope.owner),
            signed_out=self.sign_ins.signed_out_hook(scope.owner),
        )

    def run_tool(self, config: GatewayConfig, connected: Connected, principal: Principal) -> RunTool:
        """Return the tool over these servers."""
        from codemode.surfaces.modules.run_tool import create_modules_tool

        limits = dict(config.settings.limits)
        options = {
            "ceilings": limits.pop("ceilings", None),
            "limits": limits,
            "secrets": [text for text in config.secrets if len(text) >= _LEAST_SECRET_CHARACTERS],
        }
        pool = share_of(self._options.pool, principal)
        library = self._library_of(principal, pool) if config.settings.library else None
        settings = self._settings(config, principal)
        return create_modules_tool(connected, options, settings=settings, pool=pool, library=library)

    def _library_of(self, principal: Principal, pool: Any) -> ProgramLibrary:
        """Return the saved programs of a principal, in the gateway's store."""
        from codemode.execution.program_library import ProgramLibrary

        return ProgramLibrary(self._store.store, owner=principal.id, model_saves=True, pool=pool)

    @cached_property
    def resuming(self) -> Resuming:
        """What goes on with the runs about which people decide in the store, whosever they are."""
        from ..approvals.pending_store import Resuming

        return Resuming(lambda: self._store.store, self._runs_of, APP)

    @asynccontextmanager
    async def _runs_of(self, principal: Principal) -> AsyncGenerator[RunsOf]:
        seat = await self.seats.of(principal)
        async with seat.run() as outfit:
            yield outfit.asking_for(principal).runs

    def asking(self, run_tool: RunTool, config: GatewayConfig, caller: Principal) -> Any:
        """Return how a caller is asked about the inner calls of their programs."""
        from ..approvals.approval_flow import Asking

        return Asking(
            run_tool,
            config.settings,
            lambda: self._store.store,
            caller,
            self.remembered,
            goes_on=self.resuming.start,
            servers=config.servers,
            url=self._page_of,
            command=self._options.command,
            app=APP,
            report_steps=self._report_steps,
        )

    async def go_on_no_more(self) -> None:
        """Take nothing more that was decided in the store, and end what runs of it: seats are there until then."""
        if "resuming" in vars(self):
            await self.resuming.aclose()

    async def aclose(self) -> None:
        """End what is under way beside programs."""
        await self.sign_ins.aclose()

    def _settings(self, config: GatewayConfig, principal: Principal) -> dict[str, Any]:
        continuation: dict[str, Any] = {
            "keys": keys_of(config.settings.keys, self._folder),
            "guard": self._store.guard,
            "conversation_id": f"{APP}:{principal.id}",
            "max_age_ms": _MAX_AGE_MS,
            "compress": True,
            "seal": _can_seal(),
        }
        if self._keeps_journal(config):
            continuation["journal"] = self._store.journal(principal.id)
        return {
            # A slow server is bounded by its own time, and a full pool by the caller's patience.
            "execution_policy": {"clock": "program", "on_saturation": "wait"},
            "approval": {"mode": "interrupt", "show_denial_reason": True},
            "continuation": continuation,
            "telemetry": {"is_enabled": is_recorded()},
        }

    def _keeps_journal(self, config: GatewayConfig) -> bool:
        """Off, but on where a store is named, unless the configuration says otherwise."""
        settings = config.settings
        return settings.store is not None if settings.journal is None else settings.journal

    async def _asked(
        self, scope: Scope, server: ServerConfig, method: str, params: Mapping[str, Any], context: Any
    ) -> Any:
        """Let the client answer in whose call a server asks, or the only one that there is."""
        import mcp_types as types

        origin = getattr(context, "context", None)
        seats = self.seats.within(scope)
        if isinstance(origin, CallOrigin):
            seats = [await self.seats.of(origin.principal)]
        if len(seats) != 1:
            return types.ErrorData(code=types.INVALID_REQUEST, message=f"{method} is declined: it came in no call")
        return await seats[0].passed.asked(server, method, params, context)

    def _hearing(self, scope: Scope) -> list[Seat]:
        """Return the seats that may be told what a server logs: a user is told nothing of the calls of another."""
        return [seat for seat in self.seats.within(scope) if scope.is_of_user(seat.principal)]


def learns(config: GatewayConfig, options: GatewayOptions) -> bool:
    """Tell whether the shapes of results are learned: where nobody says so, for one local user alone.

    What is learned of a server that users share is declared to all of them.
    """
    if config.settings.learn is not None:
        return config.settings.learn
    return not (options.over_http or options.verifier is not None or config.settings.auth)


class _Given:
    """Servers that were given, as what `connect` gives."""

    def __init__(self, servers: Any) -> None:
        self._servers: tuple[Any, ...] = tuple(servers)
        self.upstreams: tuple[Any, ...] = ()

    def __iter__(self) -> Any:
        return iter(self._servers)


@asynccontextmanager
async def _given(servers: Any) -> AsyncGenerator[_Given]:
    yield _Given(servers)


def _can_seal() -> bool:
    from importlib.util import find_spec

    return find_spec("cryptography") is not None
