"""The gateway as one ASGI application (``/mcp``, its probes, the console), and its server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Protocol

from codemode_console.web import Server as WebServer
from codemode_console.web import TrustedProxies, caller_of, declared_length, listen, read_address, route_path, url_of
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.lowlevel import Server
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from codemode.errors import CodeModeConcurrencyError
from codemode.workers.pool import pool_or_default

from ..config.model import ConfigError, GatewayConfig
from ..oauth.browser import CALLBACK_PATH, START_PATH
from .http_auth import METADATA_PATH, PEER_KEY, Door, verifier_of
from .http_console import CONSOLE_PATH, MountedConsole, server_page
from .http_limits import Incoming, Places, Refused, answer, refuse
from .http_sessions import Sessions
from .http_settings import HttpLimits, HttpSettings, http_settings, is_loopback
from .principals import LOCAL, PLACE_KEY, PRINCIPAL_KEY

if TYPE_CHECKING:
    from ..oauth.login_manager import SignIns


_log = logging.getLogger("codemode.mcp")
_KEPT_SECONDS = 5.0
_CHECK_SECONDS = 3.0
"""Both at a time: whoever probes a gateway waits for about five."""
_MEMORY_BYTES = 64 << 20


class Health:
    """Answers of ``/healthz`` and ``/readyz``. However often somebody asks, things are looked at every five seconds."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._checking: asyncio.Task[dict[str, str]] | None = None
        self._until = 0.0

    async def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return a status and what is said with it."""
        if path == "/healthz":
            return 200, {"status": "ok"}
        if self._checking is None or (self._checking.done() and time.monotonic() > self._until):
            self._checking = asyncio.get_running_loop().create_task(self._checked())
        found = await asyncio.shield(self._checking)
        is_ready = all(said == "ok" for said in found.values())
        return (200, {"status": "ready", **found}) if is_ready else (503, {"status": "not ready", **found})

    async def _checked(self) -> dict[str, str]:
        store, workers = await asyncio.gather(_tried(self._store), _tried(self._workers))
        found = {"store": store, "workers": workers}
        self._until = time.monotonic() + _KEPT_SECONDS
        return found

    async def _store(self) -> None:
        await self._gateway.store.list(tenant=LOCAL.id, limit=1)

    async def _workers(self) -> None:
        pool = pool_or_default(getattr(self._gateway.options, "pool", None))
        try:
            lease = await pool.acquire(_MEMORY_BYTES, "fail")
        except CodeModeConcurrencyError:
            return  # workers run: who has no room is busy and not broken
        lease.kill_and_release()
        lease.refill()


async def _tried(check: Any) -> str:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the gateway cannot work
        _log.warning("the gateway is not ready: %s: %s", check.__name__.strip("_"), type(error).__name__)
        return "failed"
    return "ok"


MCP_PATH = "/mcp"
_METHODS = ("GET", "POST", "DELETE")


class Served(contextlib.AbstractAsyncContextManager[Any], Protocol):
    """What the application needs of a `Gateway`."""

    @property
    def config(self) -> GatewayConfig: ...
    @property
    def server(self) -> Server[Any]: ...
    @property
    def options(self) -> Any: ...
    @property
    def is_open(self) -> bool: ...

    record_url: Callable[[str], str | None]


def http_app(gateway: Served, *, limits: HttpLimits | None = None) -> HttpApp:
    """Return a gateway as an ASGI application. Raises `ConfigError` for an ``auth`` that cannot be meant.

    It answers to this machine alone until ``auth.tokens`` or a token verifier says who may call.
    """
    settings = http_settings(gateway.config.settings.auth)
    return HttpApp(gateway, settings, limits or HttpLimits())


class HttpApp:
    """An ASGI application. A server that knows of lifespans runs it; elsewhere enter `running`. See `http_app`."""

    def __init__(self, gateway: Served, settings: HttpSettings, limits: HttpLimits) -> None:
        self._gateway, self._limits = gateway, limits
        self._settings: HttpSettings = settings
        self._config = gateway.config
        self._console: MountedConsole | None = None
        self._served_at = settings.url
        self._given = getattr(gateway.options, "verifier", None)
        self._verifier = self._given or verifier_of(settings.check)
        self._door = Door(settings, self._verifier)
        self._sessions = Sessions(gateway.server, limits)
        self._places = Places(limits)
        self._proxies = TrustedProxies(settings.proxies)
        self._health = Health(gateway)
        self._mcp = AuthContextMiddleware(self._in_session)

    @property
    def asks(self) -> bool:
        """Whether callers must sign in; without, they must be of this machine."""
        return self._door.asks

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve while the block runs, and run the gateway where nobody else does. At its end all sessions end.

        Raises `ConfigError` for users of the console who cannot be meant.
        """
        async with contextlib.AsyncExitStack() as stack:
            if not self._gateway.is_open:
                await stack.enter_async_context(self._gateway)
            self._gateway.record_url = self.record_url
            if self._sign_ins is not None:
                self._sign_ins.binds_browsers = True
            if self._settings.url is not None and self._sign_ins is not None and self._sign_ins.callback_url is None:
                self._sign_ins.callback_url = f"{self._settings.url}{CALLBACK_PATH}"
            self._console = MountedConsole(self._gateway, self._settings, lambda: self._door, asks=self.asks)
            await stack.enter_async_context(self._console.running())
            if self._sign_ins is not None:
                self._sign_ins.page_of = self.sign_in_url
            await stack.enter_async_context(self._sessions.running())
            yield

    def listens_at(self, host: str, port: int) -> list[str]:
        """Take note of where it is served, and return what the operator is to be told, with the console's own token."""
        is_all = host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
        here = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._served_at = self._settings.url or (None if is_all else here)
        lines = [f"The gateway listens at {here}{MCP_PATH}"]
        if self._console is not None:
            page = f"{self._served_at or f'http://localhost:{port}'}{CONSOLE_PATH}/"
            token = self._console.token
            lines.append(f"Approvals: {page}" if token is None else f"Approvals: {page}sign-in#token={token}")
        return lines

    def record_url(self, record_id: str) -> str | None:
        """Return the page on which people decide about a record, without credentials; None where there is none."""
        if self._console is None or self._served_at is None:
            return None
        return f"{self._served_at}{CONSOLE_PATH}/records/{record_id}"

    def sign_in_url(self, server: str, principal: str) -> str | None:
        """Return the page on which a principal signs in to a server, without credentials; None where there is none."""
        is_operators = self.asks and principal == LOCAL.id
        if self._console is None or self._served_at is None or is_operators:
            return None
        return f"{self._served_at}{CONSOLE_PATH}{server_page(server)}"

    async def stop(self) -> None:
        """Let nobody in any more, and end all sessions once the calls that run have had a moment to end."""
        await self._sessions.stop(self._limits.stop_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            scope = with_caller(scope, self._proxies)
            place = self._places.of(scope)
            with place.in_use():
                await self._http({**scope, PLACE_KEY: place}, Incoming(receive, place, self._limits), send)

    async def _http(self, scope: Scope, incoming: Incoming, send: Send) -> None:
        try:
            scope[PLACE_KEY].read_ahead(declared_length(Headers(scope=scope)) or 0)
            self._follow()
            self._door.require_own_name(scope)
            await self._answer(route_path(scope).rstrip("/") or "/", scope, incoming, send)
        except Refused as refused:
            await incoming.drain()
            await refuse(refused, send)
        except Exception:
            _log.exception("a request failed")  # the server around it may say nothing of what it raised
            raise

    def _follow(self) -> None:
        """Have the users of the gateway's configuration as it is now; those of before where it cannot be meant."""
        if self._gateway.config is self._config:
            return
        self._config = self._gateway.config
        try:
            settings = http_settings(self._config.settings.auth)
            if self._console is not None:
                self._console.take(settings)
        except ConfigError as error:
            _log.error("%s; the users from before stay", error)
            return
        is_other = settings.check != self._settings.check and self._given is None
        if is_other:
            self._verifier = verifier_of(settings.check)
        self._settings, self._door = settings, Door(settings, self._verifier, asks=self.asks)
        self._proxies = TrustedProxies(settings.proxies)
        self._sessions.leave_all_but(settings.tokens.values(), verified=not is_other)

    async def _answer(self, path: str, scope: Scope, incoming: Incoming, send: Send) -> None:
        if path == MCP_PATH:
            await self._called({**scope}, incoming, send)
        elif path in ("/healthz", "/readyz") and scope["method"] in ("GET", "HEAD"):
            status, said = await self._health.answer(path)
            await answer(send, status, said)
        elif path.startswith(METADATA_PATH) and (said := self._door.metadata(scope)) is not None:
            await answer(send, 200, said)
        elif path == CALLBACK_PATH and self._sign_ins is not None:
            await self._sign_ins.callback_app(scope, incoming, send)
        elif path.startswith(START_PATH) and self._sign_ins is not None:
            await self._sign_ins.start_app({**scope, "path": path}, incoming, send)
        elif self._console is not None and (path == CONSOLE_PATH or path.startswith(f"{CONSOLE_PATH}/")):
            await _in_room(self._console, scope, incoming, send)
        else:
            raise Refused(404, f"There is nothing here; the gateway is at {MCP_PATH}")

    @property
    def _sign_ins(self) -> SignIns | None:
        return getattr(self._gateway, "sign_ins", None)

    async def _called(self, scope: Scope, receive: Incoming, send: Send) -> None:
        name, user = await self._caller(scope, receive)
        if scope["method"] not in _METHODS:
            raise Refused(405, "Messages are sent by POST", {"allow": ", ".join(_METHODS)})
        # Counted before its body is here: many that come slowly would hold all memory there is.
        scope[PLACE_KEY].belongs_to(name)
        # Whom a server around this one knows is somebody else's word.
        scope["user"] = user
        scope[PRINCIPAL_KEY] = name
        await self._mcp(scope, receive, send)

    async def _caller(self, scope: Scope, incoming: Incoming) -> tuple[str, Any]:
        while True:
            door = self._door
            found = await door.caller(scope, incoming.gone)
            self._follow()
            if door is self._door:  # else those who may call have changed while one was verified
                return found

    async def _in_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._sessions.handle(scope[PRINCIPAL_KEY], scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.running())
            except Exception as error:  # noqa: BLE001 - told as the server expects to hear it
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


async def _in_room(app: ASGIApp, scope: Scope, incoming: Incoming, send: Send) -> None:
    """Let an application answer that knows nothing of room: where there is none, its own answer is not sent."""

    async def sent(message: Message) -> None:
        if incoming.refused is None:
            await send(message)

    async def received() -> Message:
        try:
            return await incoming()
        except Refused:
            return {"type": "http.disconnect"}  # the application would log the error as a failure of its own

    try:
        await app(scope, received, sent)
    except Exception:
        if incoming.refused is None:
            raise
    if incoming.refused is not None:
        raise incoming.refused


def with_caller(scope: Scope, proxies: TrustedProxies) -> Scope:
    """Return a request with the caller as its client: the nearest one that is no trusted proxy.

    What callers write into `X-Forwarded-For` themselves stands farther away than what the first proxy adds.
    """
    peer = scope.get("client")
    if peer is None:
        return scope
    caller = caller_of(HTTPConnection(scope), proxies)
    if caller is None or caller == read_address(peer[0]):
        return scope
    return {**scope, "client": (str(caller), 0), PEER_KEY: peer}


_SIGN_IN = (
    'codemode.auth.tokens needs a user, {{"sha256:<SHA-256 of a token>": {{"name": ...}}}}, or codemode.auth one of jwt'
    " and introspection, before it may listen on {host}: without sign-in it is for this machine alone"
    " (--http 127.0.0.1:PORT)"
)


async def serve_http(
    gateway: Served,
    host: str = "127.0.0.1",
    port: int = 8765,
    *,
    limits: HttpLimits | None = None,
    say: Callable[[str], None] | None = None,
    listening: Callable[[str], None] | None = None,
) -> None:
    """Serve a gateway that runs until the process is told to end (SIGINT, SIGTERM), or the task is cancelled.

    Port 0 takes a free one.

    ``say`` is given lines for the operator, by default on stderr; ``listening`` the URL, once it answers. Raises
    `ConfigError` for an address that cannot be had, and for one that others reach where nobody has to sign in.
    """
    found = limits or HttpLimits()
    app = http_app(gateway, limits=found)
    if not app.asks and not is_loopback(host):
        raise ConfigError(_SIGN_IN.format(host=host))
    with _bound(host, port) as bound:
        host, port = bound.getsockname()[:2]
        async with app.running():

            def ready() -> None:
                for line in app.listens_at(host, port):
                    (say or _said)(line)
                if listening is not None:
                    listening(f"{url_of(bound)}{MCP_PATH}")

            await _serve(_Server(app, found, ready), bound)


async def _serve(server: _Server, bound: socket.socket) -> None:
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[bound]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await asyncio.wait([serving])
        raise


def _said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - stdout is for protocols


class _Server(WebServer):
    """Ends the gateway's sessions before it waits for their connections, which would last as long as they do."""

    def __init__(self, app: HttpApp, limits: HttpLimits, on_ready: Callable[[], None]) -> None:
        super().__init__(
            app,
            header_seconds=limits.header_seconds,
            stop_seconds=limits.stop_seconds,
            on_ready=on_ready,
            log_config=None,
            log_level="critical",
            limit_concurrency=limits.connections,
            timeout_keep_alive=limits.keep_alive_seconds,
        )
        self._app = app
        self._is_told = False

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.stop()
        if self._is_told:
            # In its place stands sse_starlette's, by which all streams of this process end: those of pages do so now,
            # and those of calls have had their moment.
            self.handle_exit(signal.SIGTERM, None)
        await super().shutdown(sockets)

    def end(self, number: signal.Signals) -> None:
        self.force_exit = self.should_exit and number == signal.SIGINT
        self.should_exit = self._is_told = True


def _bound(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except ValueError as error:
        raise ConfigError(f"--http: {error}") from error
    except OSError as error:
        raise ConfigError(f"--http {host}:{port}: {_why(error, port)}") from error


def _why(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"something else listens there already: end it, or choose another port, such as {port % 65535 + 1}"
    if error.errno == errno.EACCES:
        return "this user may not have the port: choose one from 1024 on"
    return f"this address cannot be had ({error.strerror or error}): take one that this machine has, as 127.0.0.1"
