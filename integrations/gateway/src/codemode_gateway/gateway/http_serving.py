"""Serves the gateway over HTTP: where it listens, how long it waits for half a request, how it ends."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys
from collections.abc import Callable

from codemode_console.web import Server, listen, url_of

from ..config.model import ConfigError
from .http_app import MCP_PATH, HttpApp, Served, http_app
from .http_settings import HttpLimits, is_loopback

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

            await _served(_Server(app, found, ready), bound)


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


class _Server(Server):
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
