"""The connections of a gateway: one for each server and whoever shares it, for as long as somebody uses it.

A changed configuration so leaves alone what it does not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from codemode.host.cancellation import to_its_end

from ..config.values import GatewayConfig, ServerConfig
from .principals import Principal
from .scopes import Scope, scope_of

Connect = Callable[[GatewayConfig, Scope], AbstractAsyncContextManager[Any]]


@dataclass(eq=False)
class Connection:
    """One connected server: ``connected`` is what `connect` gives for it alone, once ``open`` has returned."""

    server: ServerConfig
    scope: Scope
    users: int = 0
    connected: Any = None
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def open(self, connect: AbstractAsyncContextManager[Any]) -> None:
        """Enter ``connect`` in a task of its own, which also leaves it."""
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(connect, opened))
        self.connected = await asyncio.shield(opened)

    async def _hold(self, connect: AbstractAsyncContextManager[Any], opened: asyncio.Future[Any]) -> None:
        try:
            async with connect as connected:
                opened.set_result(connected)
                await self._closing.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)

    async def close(self) -> None:
        """End the connection."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task])


class Connected:
    """The servers of one seat, in the order of the configuration: as what `connect` gives for all of them."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self.connections = tuple(connections)
        self._servers: tuple[Any, ...] = tuple(one for each in connections for one in each.connected)
        self._upstreams: tuple[Any, ...] = tuple(one for each in connections for one in each.connected.upstreams)

    def __len__(self) -> int:
        return len(self._servers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._servers)

    def __getitem__(self, at: int) -> Any:
        return self._servers[at]

    @property
    def upstreams(self) -> tuple[Any, ...]:
        """The upstreams of all servers."""
        return self._upstreams

    def upstream(self, name: str) -> Any:
        """Return the upstream of this name. Raises `KeyError`."""
        for one in self._upstreams:
            if one.config.name == name:
                return one
        raise KeyError(name)


class Connections:
    """All connections of one gateway. Used on one event loop."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._open: list[Connection] = []
        self._lock = asyncio.Lock()

    async def taken(self, config: GatewayConfig, principal: Principal) -> Connected:
        """Return the servers of ``config`` for one principal, connecting those that are not. Give them back."""
        async with self._lock:
            taken = [self._one(server, scope_of(server, principal)) for server in config.servers]
            new = [one for one in taken if one.connected is None]
            alone = [GatewayConfig((one.server,), config.settings, path=config.path) for one in new]
            await asyncio.gather(*(one.open(self._connect(of, one.scope)) for one, of in zip(new, alone, strict=True)))
            for one in taken:
                one.users += 1
            self._open += new
            return Connected(taken)

    async def give_back(self, connected: Connected) -> None:
        """End those that nobody else uses, whoever is cancelled meanwhile."""
        for one in connected.connections:
            one.users -= 1
        unused = [one for one in connected.connections if not one.users]
        self._open = [one for one in self._open if one not in unused]
        if unused:
            await to_its_end(_closed(unused))

    def _one(self, server: ServerConfig, scope: Scope) -> Connection:
        known = (one for one in self._open if one.scope == scope and one.server == server)
        return next(known, None) or Connection(server, scope)


async def _closed(connections: Sequence[Connection]) -> None:
    await asyncio.gather(*(one.close() for one in connections))
