"""Serves a console by itself: what `codemode console` runs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from codemode import ALL_TENANTS, InterruptStore

from .application import Console, ConsoleOptions, Resume, approval_console, read_options
from .auth import TokenAuth, User, new_private_path, new_token, token_hash
from .notices import SlackWebhook, Webhook
from .web import Server, listen, read_address, url_of

_SECONDS_TO_END = 5
_HEADER_SECONDS = 15.0


def serve(
    store: InterruptStore,
    *,
    auth: Any = None,
    resume: Mapping[str, Resume] | Resume | None = None,
    notify: Iterable[Webhook | SlackWebhook] = (),
    options: ConsoleOptions | Mapping[str, Any] | None = None,
    base_url: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8822,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a console until the process is told to end (SIGINT, SIGTERM). What runs then comes to its end.

    Without ``auth`` one token is made for one user, who sees all tenants, and ``say`` is given the URL that holds it,
    once; ``host`` must then be an address of this machine alone. Port 0 takes a free one. Raises `ValueError` for what
    cannot be meant, `OSError` for an address that cannot be had.
    """
    address = "127.0.0.1" if host == "localhost" else host
    token = None
    if auth is None:
        require_loopback(address)
        token = new_token()
        auth = TokenAuth({token_hash(token): User("operator", ALL_TENANTS)})
        # No name but this one leads here, unless somebody turned theirs to this machine.
        chosen = read_options(options)
        private_path = chosen.private_path or new_private_path()
        options = replace(chosen, hosts=[*chosen.hosts, "localhost"], private_path=private_path)
    console = approval_console(store, auth=auth, resume=resume, notify=notify, options=options, base_url=base_url)
    listening = listen(host, port)
    where = f"{url_of(listening)}/"
    first = f"Sign in at {where}" if token is None else f"Sign in at {where}sign-in#token={token}"
    with listening:
        asyncio.run(_serve(store, console, listening, lambda: say(first)))


def require_loopback(host: str) -> None:
    """Raise `ValueError` for an address that others can reach: one token printed on a terminal is for that machine."""
    address = read_address(host)
    if address is None or not address.is_loopback:
        raise ValueError(f"without a file of tokens the console is for this machine alone, not for {host!r}")


async def _serve(store: InterruptStore, console: Console, listening: socket.socket, ready: Callable[[], None]) -> None:
    server = Server(console, header_seconds=_HEADER_SECONDS, stop_seconds=_SECONDS_TO_END, log_level="warning")
    async with contextlib.aclosing(store), console.running():
        await store.list(tenant=ALL_TENANTS, limit=1)  # a database that cannot be used is told of at once
        ready()
        await server.serve(sockets=[listening])
