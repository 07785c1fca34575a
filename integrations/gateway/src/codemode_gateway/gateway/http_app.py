"""Serve the gateway, its health probes and the console as one ASGI application."""

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

from codemode_console.web import (
    TrustedProxies,
    WebServer,
    get_route_path,
    get_socket_url,
    open_server_socket,
    parse_address,
    parse_content_length,
    resolve_client_address,
)
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.lowlevel import Server
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from codemode.errors import CodeModeConcurrencyError
from codemode.workers.pool import get_pool_or_default

from ..config.model import ConfigError, GatewayConfig
from ..oauth.browser import CALLBACK_PATH, START_PATH
from .http_auth import METADATA_PATH, PEER_KEY, RequestAuthenticator, create_token_verifier
from .http_console import CONSOLE_PATH, MountedConsole, get_server_page_path
from .http_limits import BoundedReceive, HttpError, RequestLimiter, send_error, send_json
from .http_sessions import SessionRegistry
from .http_settings import HttpLimits, HttpSettings, is_loopback, parse_http_settings
from .principals import LOCAL, PRINCIPAL_KEY, RESERVATION_KEY

if TYPE_CHECKING:
    from ..oauth.login_manager import SignInManager


_log = logging.getLogger("codemode.mcp")
_HEALTH_CACHE_SECONDS = 5.0
_CHECK_TIMEOUT_SECONDS = 3.0
"""Limit for both checks together: probes usually time out after five seconds."""
_WORKER_MEMORY_BYTES = 64 << 20


class HealthProbes:
    """Answers ``/healthz`` and ``/readyz``. Check results are cached for five seconds."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._check_task: asyncio.Task[dict[str, str]] | None = None
        self._valid_until = 0.0

    async def get_response(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and JSON body for a probe path."""
        if path == "/healthz":
            return 200, {"status": "ok"}
        if self._check_task is None or (self._check_task.done() and time.monotonic() > self._valid_until):
            self._check_task = asyncio.get_running_loop().create_task(self._check_store_and_workers())
        results = await asyncio.shield(self._check_task)
        is_ready = all(result == "ok" for result in results.values())
        return (200, {"status": "ready", **results}) if is_ready else (503, {"status": "not ready", **results})

    async def _check_store_and_workers(self) -> dict[str, str]:
        store, workers = await asyncio.gather(_run_check(self._check_store), _run_check(self._check_workers))
        results = {"store": store, "workers": workers}
        self._valid_until = time.monotonic() + _HEALTH_CACHE_SECONDS
        return results

    async def _check_store(self) -> None:
        await self._gateway.store.list(tenant=LOCAL.id, limit=1)

    async def _check_workers(self) -> None:
        pool = get_pool_or_default(getattr(self._gateway.options, "pool", None))
        try:
            lease = await pool.acquire(_WORKER_MEMORY_BYTES, "fail")
        except CodeModeConcurrencyError:
            return  # workers run: a full pool is busy, not broken
        lease.kill_and_release()
        lease.refill_spares()


async def _run_check(check: Any) -> str:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
            await check()
    except Exception as error:  # noqa: BLE001 - any error means that the gateway is not ready
        _log.warning("the gateway is not ready: %s: %s", check.__name__.strip("_"), type(error).__name__)
        return "failed"
    return "ok"


MCP_PATH = "/mcp"
_HTTP_METHODS = ("GET", "POST", "DELETE")


class ServableGateway(contextlib.AbstractAsyncContextManager[Any], Protocol):
    """The part of `Gateway` that the application uses."""

    @property
    def config(self) -> GatewayConfig: ...
    @property
    def server(self) -> Server[Any]: ...
    @property
    def options(self) -> Any: ...
    @property
    def is_open(self) -> bool: ...

    record_url: Callable[[str], str | None]


def create_http_app(gateway: ServableGateway, *, limits: HttpLimits | None = None) -> HttpApp:
    """Return a gateway as an ASGI application. Raises `ConfigError` for invalid ``auth`` settings.

    It accepts only local callers unless ``auth.tokens`` or a token verifier is configured.
    """
    settings = parse_http_settings(gateway.config.settings.auth)
    return HttpApp(gateway, settings, limits or HttpLimits())


class HttpApp:
    """An ASGI application. It starts with the server's lifespan, or with `running` on servers without lifespans."""

    def __init__(self, gateway: ServableGateway, settings: HttpSettings, limits: HttpLimits) -> None:
        self._gateway, self._limits = gateway, limits
        self._settings: HttpSettings = settings
        self._config = gateway.config
        self._console: MountedConsole | None = None
        self._base_url = settings.url
        self._custom_verifier = getattr(gateway.options, "verifier", None)
        self._verifier = self._custom_verifier or create_token_verifier(settings.token_verification)
        self._authenticator = RequestAuthenticator(settings, self._verifier)
        self._sessions = SessionRegistry(gateway.server, limits)
        self._limiter = RequestLimiter(limits)
        self._proxies = TrustedProxies(settings.proxies)
        self._health = HealthProbes(gateway)
        self._mcp = AuthContextMiddleware(self._handle_in_session)

    @property
    def requires_sign_in(self) -> bool:
        """True if callers must sign in. Without sign-in they must be local."""
        return self._authenticator.requires_token

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve while the block runs; open the gateway if it is not open. All sessions end with the block.

        Raises `ConfigError` for invalid console users.
        """
        async with contextlib.AsyncExitStack() as stack:
            if not self._gateway.is_open:
                await stack.enter_async_context(self._gateway)
            self._gateway.record_url = self.get_record_url
            if self._sign_ins is not None:
                self._sign_ins.binds_browsers = True
            if self._settings.url is not None and self._sign_ins is not None and self._sign_ins.callback_url is None:
                self._sign_ins.callback_url = f"{self._settings.url}{CALLBACK_PATH}"
            self._console = MountedConsole(
                self._gateway, self._settings, lambda: self._authenticator, requires_sign_in=self.requires_sign_in
            )
            await stack.enter_async_context(self._console.running())
            if self._sign_ins is not None:
                self._sign_ins.get_page_url = self.get_sign_in_url
            await stack.enter_async_context(self._sessions.running())
            yield

    def set_listen_address_and_describe(self, host: str, port: int) -> list[str]:
        """Record the listen address and return the start messages for the operator, with the console token."""
        is_wildcard = host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
        listen_url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._base_url = self._settings.url or (None if is_wildcard else listen_url)
        lines = [f"The gateway listens at {listen_url}{MCP_PATH}"]
        if self._console is not None:
            page = f"{self._base_url or f'http://localhost:{port}'}{CONSOLE_PATH}/"
            token = self._console.token
            lines.append(f"Approvals: {page}" if token is None else f"Approvals: {page}sign-in#token={token}")
        return lines

    def get_record_url(self, record_id: str) -> str | None:
        """Return the console URL of a record without credentials, or None without a console."""
        if self._console is None or self._base_url is None:
            return None
        return f"{self._base_url}{CONSOLE_PATH}/records/{record_id}"

    def get_sign_in_url(self, server: str, principal: str) -> str | None:
        """Return the sign-in page URL of a server for a principal, without credentials, or None."""
        is_operator_only = self.requires_sign_in and principal == LOCAL.id
        if self._console is None or self._base_url is None or is_operator_only:
            return None
        return f"{self._base_url}{CONSOLE_PATH}{get_server_page_path(server)}"

    async def stop(self) -> None:
        """Refuse new requests, give running calls a moment to finish, then end all sessions."""
        await self._sessions.stop(self._limits.stop_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            scope = replace_client_address(scope, self._proxies)
            reservation = self._limiter.create_reservation(scope)
            with reservation.keep_request_counted():
                await self._handle_http(
                    {**scope, RESERVATION_KEY: reservation}, BoundedReceive(receive, reservation, self._limits), send
                )

    async def _handle_http(self, scope: Scope, receive: BoundedReceive, send: Send) -> None:
        try:
            scope[RESERVATION_KEY].reserve_prefetched_bytes(parse_content_length(Headers(scope=scope)) or 0)
            self._reload_settings()
            self._authenticator.check_host_and_origin(scope)
            await self._route_request(get_route_path(scope).rstrip("/") or "/", scope, receive, send)
        except HttpError as error:
            await receive.drain()
            await send_error(error, send)
        except Exception:
            _log.exception("a request failed")  # the ASGI server may not log it
            raise

    def _reload_settings(self) -> None:
        """Apply the gateway's current configuration; keep the previous users if it is invalid."""
        if self._gateway.config is self._config:
            return
        self._config = self._gateway.config
        try:
            settings = parse_http_settings(self._config.settings.auth)
            if self._console is not None:
                self._console.replace_users(settings)
        except ConfigError as error:
            _log.error("%s; the previous users stay", error)
            return
        is_verifier_replaced = (
            settings.token_verification != self._settings.token_verification and self._custom_verifier is None
        )
        if is_verifier_replaced:
            self._verifier = create_token_verifier(settings.token_verification)
        self._settings, self._authenticator = (
            settings,
            RequestAuthenticator(settings, self._verifier, requires_token=self.requires_sign_in),
        )
        self._proxies = TrustedProxies(settings.proxies)
        self._sessions.end_sessions_of_users_not_in(settings.tokens.values(), keep_verified=not is_verifier_replaced)

    async def _route_request(self, path: str, scope: Scope, receive: BoundedReceive, send: Send) -> None:
        if path == MCP_PATH:
            await self._handle_mcp({**scope}, receive, send)
        elif path in ("/healthz", "/readyz") and scope["method"] in ("GET", "HEAD"):
            status, body = await self._health.get_response(path)
            await send_json(send, status, body)
        elif (
            path.startswith(METADATA_PATH) and (body := self._authenticator.create_resource_metadata(scope)) is not None
        ):
            await send_json(send, 200, body)
        elif path == CALLBACK_PATH and self._sign_ins is not None:
            await self._sign_ins.callback_app(scope, receive, send)
        elif path.startswith(START_PATH) and self._sign_ins is not None:
            await self._sign_ins.start_page_app({**scope, "path": path}, receive, send)
        elif self._console is not None and (path == CONSOLE_PATH or path.startswith(f"{CONSOLE_PATH}/")):
            await _call_with_body_limits(self._console, scope, receive, send)
        else:
            raise HttpError(404, f"Not found; the gateway is at {MCP_PATH}")

    @property
    def _sign_ins(self) -> SignInManager | None:
        return getattr(self._gateway, "sign_ins", None)

    async def _handle_mcp(self, scope: Scope, receive: BoundedReceive, send: Send) -> None:
        principal_id, user = await self._authenticate_and_reload_settings(scope, receive)
        if scope["method"] not in _HTTP_METHODS:
            raise HttpError(405, "Send messages by POST", {"allow": ", ".join(_HTTP_METHODS)})
        # Count the request before its body arrives: many slow bodies could fill the memory.
        scope[RESERVATION_KEY].assign_to_user_or_raise(principal_id)
        # Do not trust a user set by an outer server.
        scope["user"] = user
        scope[PRINCIPAL_KEY] = principal_id
        await self._mcp(scope, receive, send)

    async def _authenticate_and_reload_settings(self, scope: Scope, receive: BoundedReceive) -> tuple[str, Any]:
        while True:
            authenticator = self._authenticator
            caller = await authenticator.authenticate(scope, receive.buffer_and_wait_for_disconnect)
            self._reload_settings()
            if authenticator is self._authenticator:  # otherwise the users changed during verification
                return caller

    async def _handle_in_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._sessions.handle_request(scope[PRINCIPAL_KEY], scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.running())
            except Exception as error:  # noqa: BLE001 - reported as a lifespan message
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


async def _call_with_body_limits(app: ASGIApp, scope: Scope, receive: BoundedReceive, send: Send) -> None:
    """Call an application and replace its answer by the `HttpError` of a body over the limits."""

    async def send_unless_refused(message: Message) -> None:
        if receive.error is None:
            await send(message)

    async def receive_or_disconnect() -> Message:
        try:
            return await receive()
        except HttpError:
            return {"type": "http.disconnect"}  # the application would log the error as a failure of its own

    try:
        await app(scope, receive_or_disconnect, send_unless_refused)
    except Exception:
        if receive.error is None:
            raise
    if receive.error is not None:
        raise receive.error


def replace_client_address(scope: Scope, proxies: TrustedProxies) -> Scope:
    """Return a scope with the nearest address that is not a trusted proxy as its client.

    Addresses that callers write into ``X-Forwarded-For`` themselves are behind the one that the first proxy adds.
    """
    peer = scope.get("client")
    if peer is None:
        return scope
    caller = resolve_client_address(HTTPConnection(scope), proxies)
    if caller is None or caller == parse_address(peer[0]):
        return scope
    return {**scope, "client": (str(caller), 0), PEER_KEY: peer}


_SIGN_IN_REQUIRED = (
    "The gateway cannot listen on {host} without sign-in. Add a user to codemode.auth.tokens,"
    ' {{"sha256:<SHA-256 of a token>": {{"name": ...}}}}, or set codemode.auth.jwt or codemode.auth.introspection,'
    " or listen on this machine only (--http 127.0.0.1:PORT)"
)


async def serve_http(
    gateway: ServableGateway,
    host: str = "127.0.0.1",
    port: int = 8765,
    *,
    limits: HttpLimits | None = None,
    print_line: Callable[[str], None] | None = None,
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serve an open gateway until a signal (SIGINT, SIGTERM) or cancellation.

    Port 0 selects a free port. ``print_line`` receives messages for the operator (default: stderr), ``on_listening``
    the URL. Raises `ConfigError` for an unusable address, and for a non-local address without sign-in.
    """
    http_limits = limits or HttpLimits()
    app = create_http_app(gateway, limits=http_limits)
    if not app.requires_sign_in and not is_loopback(host):
        raise ConfigError(_SIGN_IN_REQUIRED.format(host=host))
    with _open_listen_socket(host, port) as bound:
        host, port = bound.getsockname()[:2]
        async with app.running():

            def on_ready() -> None:
                for line in app.set_listen_address_and_describe(host, port):
                    (print_line or _print_to_stderr)(line)
                if on_listening is not None:
                    on_listening(f"{get_socket_url(bound)}{MCP_PATH}")

            await _serve_until_cancelled(_GatewayWebServer(app, http_limits, on_ready), bound)


async def _serve_until_cancelled(server: _GatewayWebServer, bound: socket.socket) -> None:
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[bound]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await asyncio.wait([serving])
        raise


def _print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - stdout is for protocols


class _GatewayWebServer(WebServer):
    """Ends the gateway's sessions before it waits for their connections."""

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
        self._is_signalled = False

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.stop()
        if self._is_signalled:
            # sse_starlette replaces handle_exit: this ends all event streams of the process. Calls have had their
            # grace period.
            self.handle_exit(signal.SIGTERM, None)
        await super().shutdown(sockets)

    def handle_signal(self, signal_number: signal.Signals) -> None:
        self.force_exit = self.should_exit and signal_number == signal.SIGINT
        self.should_exit = self._is_signalled = True


def _open_listen_socket(host: str, port: int) -> socket.socket:
    try:
        return open_server_socket(host, port)
    except ValueError as error:
        raise ConfigError(f"--http: {error}") from error
    except OSError as error:
        raise ConfigError(f"--http {host}:{port}: {_describe_listen_error(error, port)}") from error


def _describe_listen_error(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"the port is in use: stop the program that uses it, or choose another port, such as {port % 65535 + 1}"
    if error.errno == errno.EACCES:
        return "this user may not use the port: choose 1024 or higher"
    return f"the address cannot be used ({error.strerror or error}): choose one of this machine, such as 127.0.0.1"
