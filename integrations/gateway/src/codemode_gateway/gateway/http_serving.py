"""Serves the gateway over HTTP: where it listens, how long it waits for half a request, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import sys
from collections.abc import Callable, Generator

import uvicorn

from codemode.host.http_timeouts import protocol_with_header_timeout

from ..config.model import ConfigError
from .http_app import MCP_PATH, HttpApp, Served, http_app
from .http_settings import HttpLimits, is_loopback

_BACKLOG = 128
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
            server = _server(app, found)

            def ready() -> None:
                for line in app.listens_at(host, port):
                    (say or _said)(line)
                if listening is not None:
                    listening(f"http://{f'[{host}]' if ':' in host else host}:{port}{MCP_PATH}")

            server.on_ready = ready
            await _served(server, bound)


async def _served(server: _Server, bound: socket.socket) -> None:
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[bound]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await asyncio.wait([serving])
        raise


def _said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - stdout is for protocols


def _server(app: HttpApp, limits: HttpLimits) -> _Server:
    config = uvicorn.Config(
        app,
        http=protocol_with_header_timeout(limits.header_seconds),
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who calls is whoever is at the other end
        limit_concurrency=limits.connections,
        timeout_keep_alive=limits.keep_alive_seconds,
        timeout_graceful_shutdown=max(1, round(limits.stop_seconds)),
    )
    return _Server(config, app)


class _Server(uvicorn.Server):
    """Ends the gateway's sessions before it waits for their connections, which would last as long as they do."""

    def __init__(self, config: uvicorn.Config, app: HttpApp) -> None:
        super().__init__(config)
        self._app = app
        self.on_ready: Callable[[], None] | None = None
        self._is_told = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_ready is not None:
            self.on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.stop()
        if self._is_told:
            # In its place stands sse_starlette's, by which all streams of this process end: those of pages do so now,
            # and those of calls have had their moment.
            self.handle_exit(signal.SIGTERM, None)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        # Its own raises the signal again once it has served: the process would die before the gateway has ended.
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            for one in (signal.SIGINT, signal.SIGTERM):
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # no loop of the main thread
                    loop.add_signal_handler(one, self._end, one)
                    stack.callback(loop.remove_signal_handler, one)
            yield

    def _end(self, number: signal.Signals) -> None:
        self.force_exit = self.should_exit and number == signal.SIGINT
        self.should_exit = self._is_told = True


def _bound(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ConfigError(f"--http: a port is between 0 and 65535, got {port}")
    address = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(f"--http {host}:{port}: {_why(error, port)}") from error


def _why(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"something else listens there already: end it, or choose another port, such as {port % 65535 + 1}"
    if error.errno == errno.EACCES:
        return "this user may not have the port: choose one from 1024 on"
    return f"this address cannot be had ({error.strerror or error}): take one that this machine has, as 127.0.0.1"
